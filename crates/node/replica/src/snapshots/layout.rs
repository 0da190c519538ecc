//! Layout of a snapshot: a stream cut into chunks, which are stored in files of fixed size.
//!
//! | bytes of a chunk | what |
//! |---|---|
//! | 8 | [`MAGIC`] |
//! | 4 | CRC-32C of everything after it, to the end of the content |
//! | 4 | length of the content |
//! | 8 | the snapshot's slot |
//! | 8 | offset of the content in the stream |
//! | 8 | number of the snapshot's first part, unique among all snapshots of this node |
//! | 24 | zeros |
//! | length | content, then zeros up to a whole block |

use quorate_core::slot::Slot;
use quorate_log::disk::{BLOCK, Family, FileId, Position};

/// Magic number at the start of every chunk.
const MAGIC: [u8; 8] = *b"qrtesnap";
/// Length in bytes of the head that precedes a chunk's content.
pub(crate) const HEAD_BYTES: usize = 64;
const CHECKSUMMED_FROM: usize = 12;

/// Sizes of a snapshot's chunks and parts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ChunkLayout {
    /// Size of a chunk on disk in bytes, including its head; a multiple of the block size.
    pub(crate) chunk_bytes: u32,
    pub(crate) chunks_per_part: u32,
}

impl ChunkLayout {
    /// Chunks of 256 KiB in parts of 64 MiB.
    pub(crate) const DEFAULT: Self = Self { chunk_bytes: 256 << 10, chunks_per_part: 256 };
    const CHUNK_BYTES_MAX: u32 = 16 << 20;
    const PART_BYTES_MAX: u64 = 1 << 40;

    /// Returns a layout that was read from disk, if it is valid.
    pub(crate) fn from_disk(chunk_bytes: u32, part_chunks: u32) -> Option<Self> {
        let layout = Self { chunk_bytes, chunks_per_part: part_chunks };
        let whole = (chunk_bytes as usize).is_multiple_of(BLOCK) && chunk_bytes > 0;
        let bounded = chunk_bytes <= Self::CHUNK_BYTES_MAX && part_chunks > 0;
        (whole && bounded && layout.part_bytes() <= Self::PART_BYTES_MAX).then_some(layout)
    }

    pub(crate) fn part_bytes(self) -> u64 {
        u64::from(self.chunk_bytes) * u64::from(self.chunks_per_part)
    }

    /// Returns the number of stream bytes in a full chunk.
    pub(crate) fn content_bytes(self) -> usize {
        self.chunk_bytes as usize - HEAD_BYTES
    }

    pub(crate) fn chunk_count(self, bytes: u64) -> u64 {
        bytes.div_ceil(self.content_bytes() as u64)
    }

    pub(crate) fn part_count(self, bytes: u64) -> u64 {
        self.chunk_count(bytes).div_ceil(u64::from(self.chunks_per_part))
    }

    /// Returns the number of the chunk that contains stream offset `offset`, and the stream offset
    /// of the chunk's content.
    pub(crate) fn chunk_at(self, offset: u64) -> (u64, u64) {
        let content = self.content_bytes() as u64;
        let chunk = offset / content;
        (chunk, chunk * content)
    }

    /// Returns the file position of a chunk of the snapshot whose first part is `first_part`.
    pub(crate) fn chunk_position(self, first_part: u64, chunk: u64) -> Position {
        let chunks = u64::from(self.chunks_per_part);
        let file = FileId::new(Family::Snapshot, first_part + chunk / chunks);
        file.position_at(chunk % chunks * u64::from(self.chunk_bytes))
    }
}

/// Fields of a chunk's head, except its checksum.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ChunkHead {
    /// Slot of the snapshot. The snapshot covers all lower slots.
    pub(crate) slot: Slot,
    /// Offset of the content in the stream.
    pub(crate) offset: u64,
    /// Number of the snapshot's first part.
    pub(crate) first_part: u64,
}

/// Returns the size on disk, in bytes, of a chunk with `content` bytes, rounded up to whole blocks.
pub(crate) fn padded_chunk_bytes(content: usize) -> usize {
    (HEAD_BYTES + content).next_multiple_of(BLOCK)
}

/// Completes a chunk in place, with `content` bytes of the stream after the head and zeros after
/// these. Returns the number of bytes to write, in whole blocks.
pub(crate) fn seal_chunk(head: ChunkHead, chunk: &mut [u8], content: usize) -> usize {
    let used = HEAD_BYTES + content;
    let blocks = padded_chunk_bytes(content);
    chunk[used..blocks].fill(0);
    chunk[..HEAD_BYTES].fill(0);
    chunk[..8].copy_from_slice(&MAGIC);
    let length = u32::try_from(content).expect("a chunk is bounded");
    chunk[12..16].copy_from_slice(&length.to_le_bytes());
    chunk[16..24].copy_from_slice(&head.slot.0.to_le_bytes());
    chunk[24..32].copy_from_slice(&head.offset.to_le_bytes());
    chunk[32..40].copy_from_slice(&head.first_part.to_le_bytes());
    let sum = quorate_wire::checksum(&chunk[CHECKSUMMED_FROM..used]);
    chunk[8..12].copy_from_slice(&sum.to_le_bytes());
    blocks
}

/// Returns the content of a chunk, if it is complete and matches `head`.
pub(crate) fn open(head: ChunkHead, chunk: &[u8]) -> Option<&[u8]> {
    let word = |at: usize| {
        let bytes = chunk.get(at..at + 8)?;
        Some(u64::from_le_bytes(bytes.try_into().ok()?))
    };
    let half = |at: usize| {
        let bytes = chunk.get(at..at + 4)?;
        Some(u32::from_le_bytes(bytes.try_into().ok()?))
    };
    let right = chunk.get(..8)? == MAGIC
        && word(16)? == head.slot.0
        && word(24)? == head.offset
        && word(32)? == head.first_part;
    let length = half(12)? as usize;
    let covered = chunk.get(CHECKSUMMED_FROM..HEAD_BYTES.checked_add(length)?)?;
    let sound = right && quorate_wire::checksum(covered) == half(8)?;
    sound.then(|| &chunk[HEAD_BYTES..HEAD_BYTES + length])
}

#[cfg(test)]
mod tests {
    use super::*;

    const HERE: ChunkHead = ChunkHead { slot: Slot(7), offset: 8128, first_part: 3 };

    #[test]
    fn chunk_round_trips_and_any_flipped_bit_is_detected() {
        let mut chunk = vec![9; 2 * BLOCK];
        let content = BLOCK - HEAD_BYTES + 5;
        assert_eq!(seal_chunk(HERE, &mut chunk, content), 2 * BLOCK);
        assert_eq!(open(HERE, &chunk), Some(&vec![9; content][..]));
        for bit in 0..(HEAD_BYTES + content) * 8 {
            chunk[bit / 8] ^= 1 << (bit % 8);
            assert_eq!(open(HERE, &chunk), None, "bit {bit}");
            chunk[bit / 8] ^= 1 << (bit % 8);
        }
    }

    #[test]
    fn chunk_of_another_place_is_refused() {
        let mut chunk = vec![9; BLOCK];
        seal_chunk(HERE, &mut chunk, 100);
        for other in [
            ChunkHead { slot: Slot(8), ..HERE },
            ChunkHead { offset: 0, ..HERE },
            ChunkHead { first_part: 4, ..HERE },
        ] {
            assert_eq!(open(other, &chunk), None);
        }
        assert_eq!(open(HERE, &chunk[..HEAD_BYTES + 99]), None);
        assert_eq!(open(HERE, &[]), None);
    }

    #[test]
    fn chunks_fill_parts_in_order() {
        let layout = ChunkLayout::from_disk(2 * BLOCK as u32, 3).unwrap();
        let content = layout.content_bytes() as u64;
        assert_eq!(layout.chunk_at(content), (1, content));
        assert_eq!(layout.chunk_at(content - 1), (0, 0));
        let part = |number| FileId::new(Family::Snapshot, number);
        assert_eq!(layout.chunk_position(5, 2), part(5).position_at(4 * BLOCK as u64));
        assert_eq!(layout.chunk_position(5, 3), part(6).position_at(0));
        assert_eq!((layout.part_count(0), layout.part_count(3 * content)), (0, 1));
        assert_eq!(layout.part_count(3 * content + 1), 2);
        assert_eq!(ChunkLayout::from_disk(100, 3), None);
        assert_eq!(ChunkLayout::from_disk(0, 3), None);
        assert_eq!(ChunkLayout::from_disk(BLOCK as u32, 0), None);
    }
}
