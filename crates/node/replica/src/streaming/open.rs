//! Client bytes not yet sent to any node: the piece that is being filled.
//!
//! A few bytes are stored in a vector. More are stored in memory from which the store writes and
//! connections send, so that they are copied only once. A piece ends at a chunk boundary of the
//! store or, if it is needed earlier, at a unit boundary.

use quorate_log::disk::{BlockPool, Filling};
use quorate_stream::store::Layout;
use quorate_wire::frame::STREAM_PIECE_BYTES_MAX;

use crate::ports::payload::Payload;

/// Maximum number of unused buffers retained for later pieces.
const FREE_MAX: usize = 32;

/// Boundaries of pieces, and the memory from which pieces are allocated.
#[derive(Debug)]
pub(crate) struct PieceBounds {
    unit_bytes: u64,
    piece_bytes: u64,
    pool: BlockPool,
}

impl PieceBounds {
    /// Returns the boundaries of pieces for a store with this layout.
    pub(crate) fn for_layout(layout: Layout) -> Self {
        let piece = (layout.chunk_bytes as usize).min(STREAM_PIECE_BYTES_MAX);
        Self {
            unit_bytes: u64::from(layout.unit_bytes),
            piece_bytes: piece as u64,
            pool: BlockPool::new(piece, FREE_MAX),
        }
    }

    pub(crate) fn is_piece_end(&self, position: u64) -> bool {
        position.is_multiple_of(self.piece_bytes)
    }

    /// Returns the maximum length of a piece that begins at `position`.
    fn piece_bytes_from(&self, position: u64) -> usize {
        usize::try_from(self.piece_bytes - position % self.piece_bytes).expect("a piece")
    }

    /// Returns the total length of the whole units within `bytes` bytes that begin at `position`.
    fn whole_unit_bytes(&self, position: u64, bytes: usize) -> usize {
        let end = position + bytes as u64;
        let whole = (end - end % self.unit_bytes).saturating_sub(position);
        usize::try_from(whole).expect("of the bytes")
    }
}

/// Bytes of the piece that is being filled.
#[derive(Debug)]
pub(crate) enum OpenPiece {
    /// At most one unit, in a vector.
    Small(Vec<u8>),
    Large(Filling),
}

impl Default for OpenPiece {
    fn default() -> Self {
        Self::Small(Vec::new())
    }
}

impl OpenPiece {
    pub(crate) fn len(&self) -> usize {
        match self {
            Self::Small(bytes) => bytes.len(),
            Self::Large(filling) => filling.len(),
        }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Adds bytes to the piece at `position`, up to its end. Returns the number of bytes added.
    pub(crate) fn add_bytes(&mut self, position: u64, bytes: &[u8], cut: &PieceBounds) -> usize {
        let most = cut.piece_bytes_from(position);
        match self {
            Self::Small(few) => {
                let count = bytes.len().min(most - few.len());
                if few.len() + count <= usize::try_from(cut.unit_bytes).unwrap_or(usize::MAX) {
                    few.extend_from_slice(&bytes[..count]);
                    return count;
                }
                let mut filling = cut.pool.start_filling(position, most);
                filling.append_bytes(few);
                *self = Self::Large(filling);
                self.add_bytes(position, bytes, cut)
            }
            Self::Large(filling) => filling.append_bytes(bytes),
        }
    }

    /// Returns memory for the next bytes, up to the end of the piece. The caller must then call
    /// [`Self::record_written`] with the number of bytes written to it.
    pub(crate) fn spare_memory(&mut self, position: u64, cut: &PieceBounds) -> &mut [u8] {
        if let Self::Small(few) = self {
            let mut filling = cut.pool.start_filling(position, cut.piece_bytes_from(position));
            filling.append_bytes(few);
            *self = Self::Large(filling);
        }
        match self {
            Self::Large(filling) => filling.spare_memory(),
            Self::Small(_) => &mut [],
        }
    }

    /// Records that `count` bytes were written to [`Self::spare_memory`]. If none were, and the
    /// piece has at most one unit, releases the memory for a whole piece.
    pub(crate) fn record_written(&mut self, count: usize, cut: &PieceBounds) {
        if let Self::Large(filling) = self {
            filling.record_written(count);
            let bytes = filling.bytes();
            if count == 0 && bytes.len() as u64 <= cut.unit_bytes {
                *self = Self::Small(bytes.to_vec());
            }
        }
    }

    /// Takes a payload at `position`: the whole units if there are any, otherwise all bytes.
    pub(crate) fn take_payload(&mut self, position: u64, cut: &PieceBounds) -> Payload {
        match std::mem::take(self) {
            Self::Small(few) => Payload::new(few),
            Self::Large(filling) if filling.free_bytes() == 0 => filling.into_blocks().into(),
            Self::Large(filling) => {
                let (bytes, most) = (filling.bytes(), cut.piece_bytes_from(position));
                let whole = match cut.whole_unit_bytes(position, bytes.len()) {
                    0 => bytes.len(),
                    whole => whole,
                };
                *self = Self::Small(bytes[whole..].to_vec());
                // If a smaller buffer would do, the bytes are copied to one.
                if cut.pool.memory_bytes_for(whole) == cut.pool.memory_bytes_for(most) {
                    return filling.finish_at(whole).into();
                }
                let mut less = cut.pool.start_filling(position, whole);
                less.append_bytes(&bytes[..whole]);
                less.into_blocks().into()
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const UNIT: usize = 2 * 4096;
    const PIECE: usize = 4 * UNIT;

    fn cut() -> PieceBounds {
        PieceBounds::for_layout(Layout {
            unit_bytes: UNIT as u32,
            chunk_bytes: PIECE as u32,
            chunks_per_file: 4,
        })
    }

    /// Puts bytes in writes of the lengths in `writes`, and takes a piece when it is full and, if
    /// `early`, after each write. Returns the pieces' lengths.
    fn pieces(writes: &[usize], early: bool) -> Vec<usize> {
        let (cut, mut open) = (cut(), OpenPiece::default());
        let (mut sealed, mut given, mut pieces) = (0, 0_u64, Vec::new());
        let byte = |at: u64| (at % 251) as u8;
        let mut take = |open: &mut OpenPiece, sealed: &mut u64| {
            let piece = open.take_payload(*sealed, &cut);
            let expected: Vec<u8> = (*sealed..*sealed + piece.len() as u64).map(byte).collect();
            assert!(*piece == *expected, "a piece of {} at {sealed}", piece.len());
            *sealed += piece.len() as u64;
            pieces.push(piece.len());
        };
        for write in writes {
            let bytes: Vec<u8> = (given..given + *write as u64).map(byte).collect();
            let mut rest = &bytes[..];
            while !rest.is_empty() {
                let used = open.add_bytes(sealed, rest, &cut);
                (rest, given) = (&rest[used..], given + used as u64);
                assert_eq!(open.len() as u64, given - sealed);
                if cut.is_piece_end(given) {
                    take(&mut open, &mut sealed);
                    assert!(open.is_empty());
                }
            }
            if early && !open.is_empty() {
                take(&mut open, &mut sealed);
            }
        }
        pieces
    }

    #[test]
    fn memory_for_missing_bytes_is_released() {
        let (cut, mut open) = (cut(), OpenPiece::default());
        open.add_bytes(0, &[1, 2], &cut);
        assert_eq!(open.spare_memory(0, &cut).len(), PIECE - 2);
        open.record_written(0, &cut);
        assert!(matches!(&open, OpenPiece::Small(few) if *few == [1, 2]));
        open.spare_memory(0, &cut)[..3].copy_from_slice(&[3, 4, 5]);
        open.record_written(3, &cut);
        assert!(matches!(open, OpenPiece::Large(_)));
        assert_eq!(open.len(), 5);
        assert_eq!(*open.take_payload(0, &cut), [1, 2, 3, 4, 5], "no whole unit");
        assert!(open.is_empty());
        let spare = open.spare_memory(5, &cut);
        assert_eq!(spare.len(), PIECE - 5);
        spare.fill(6);
        open.record_written(PIECE - 5, &cut);
        assert_eq!(open.take_payload(5, &cut).len(), PIECE - 5);
    }

    #[test]
    fn pieces_end_at_chunk_boundaries() {
        assert_eq!(pieces(&[3 * PIECE], false), [PIECE; 3]);
        assert_eq!(pieces(&[1; 2 * PIECE], false), [PIECE; 2]);
    }

    #[test]
    fn few_bytes_are_taken_as_they_are_and_many_in_whole_units() {
        assert_eq!(pieces(&[5, UNIT], true), [5, UNIT]);
        assert_eq!(pieces(&[2 * UNIT + 5, UNIT], true), [2 * UNIT, UNIT]);
        assert_eq!(pieces(&[5, UNIT + 7, 3], true), [5, UNIT - 5, 15]);
        assert_eq!(pieces(&[PIECE - 1, 2], true), [3 * UNIT, UNIT, 1]);
    }
}
