//! Sizes of files, chunks and units, and limits on memory and disk use.

use quorate_log::disk::{BLOCK, Family, FileId, Position};

/// Upper bound of positions, chosen so that sums do not overflow. A stream cannot get longer,
/// because each byte takes a slot and there are fewer slots.
pub(super) const POSITION_MAX: u64 = 1 << 62;
/// Maximum number of calls to skip after a failure before the next attempt.
pub(super) const RETRY_SKIPS_MAX: u32 = 256;

/// Sizes of files and their parts. A store keeps the layout with which it was created.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Layout {
    /// Size of a unit: the maximum number of bytes that share a checksum and that are buffered
    /// before a write. A multiple of the block size.
    pub unit_bytes: u32,
    /// Size of a chunk: bytes of one stream that are stored together. A multiple of the unit size.
    pub chunk_bytes: u32,
    pub chunks_per_file: u32,
}

impl Layout {
    /// Chunks of 1 MiB in files of 64 MiB, with a checksum for each 64 KiB.
    pub const DEFAULT: Self =
        Self { unit_bytes: 64 << 10, chunk_bytes: 1 << 20, chunks_per_file: 64 };
    const CHUNK_BYTES_MAX: u32 = 16 << 20;
    /// Maximum number of chunks per file. Bounds the memory for free chunks, each of which is
    /// recorded by its address.
    const FILE_CHUNKS_MAX: u32 = 1 << 12;

    /// Returns this layout, or `None` if it is invalid.
    pub(super) fn validated(self) -> Option<Self> {
        let whole = (self.unit_bytes as usize).is_multiple_of(BLOCK)
            && self.unit_bytes > 0
            && self.chunk_bytes.is_multiple_of(self.unit_bytes)
            && self.chunk_bytes > 0;
        let bounded = self.chunk_bytes <= Self::CHUNK_BYTES_MAX
            && (1..=Self::FILE_CHUNKS_MAX).contains(&self.chunks_per_file);
        (whole && bounded).then_some(self)
    }

    pub(super) fn file_bytes(self) -> u64 {
        u64::from(self.chunk_bytes) * u64::from(self.chunks_per_file)
    }

    pub(super) fn unit_bytes_u64(self) -> u64 {
        u64::from(self.unit_bytes)
    }

    pub(super) fn chunk_bytes_u64(self) -> u64 {
        u64::from(self.chunk_bytes)
    }

    pub(super) fn blocks_per_unit(self) -> u16 {
        blocks_in(u64::from(self.unit_bytes))
    }

    pub(super) fn blocks_per_chunk(self) -> u16 {
        blocks_in(u64::from(self.chunk_bytes))
    }

    /// Returns the block that contains a stream position, counted from the start of its chunk.
    pub(super) fn block_in_chunk(self, position: u64) -> u16 {
        blocks_in(position % self.chunk_bytes_u64())
    }

    /// Returns the file position of a block.
    pub(super) fn file_position(self, address: ChunkAddress, block: u16) -> Position {
        let offset =
            u64::from(address.index) * self.chunk_bytes_u64() + u64::from(block) * BLOCK as u64;
        address.file_id().position_at(offset)
    }
}

/// Converts a size of at most one chunk from bytes to blocks.
fn blocks_in(bytes: u64) -> u16 {
    u16::try_from(bytes / BLOCK as u64).expect("a chunk has at most 4096 blocks")
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct ChunkAddress {
    pub(super) file: u64,
    pub(super) index: u32,
}

impl ChunkAddress {
    /// Returns the file that contains the chunk.
    pub(super) fn file_id(self) -> FileId {
        FileId::new(Family::Stream, self.file)
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StoreLimits {
    /// Maximum number of bytes in whole blocks that wait in memory for the disk. Above it
    /// [`super::Store::has_room`] returns false.
    pub dirty_bytes_max: usize,
    /// Maximum number of bytes, within `dirty_bytes_max`, that are held back until their unit is
    /// full.
    pub gathered_bytes_max: usize,
    /// Free disk space that remains after creating a chunk file, in bytes, for other users of the
    /// disk.
    pub disk_reserve_bytes: u64,
}

impl StoreLimits {
    /// 32 MiB in memory, half of which may be held back. 256 MiB of the disk are left to the log.
    pub const DEFAULT: Self = Self {
        dirty_bytes_max: 32 << 20,
        gathered_bytes_max: 16 << 20,
        disk_reserve_bytes: 256 << 20,
    };
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn layout_needs_whole_blocks_units_and_chunks() {
        let usual = Layout::DEFAULT;
        assert_eq!(usual.validated(), Some(usual));
        assert_eq!(usual.file_bytes(), 64 << 20);
        let block = u32::try_from(BLOCK).unwrap();
        let layout = |unit_bytes, chunk_bytes, file_chunks| {
            let layout = Layout { unit_bytes, chunk_bytes, chunks_per_file: file_chunks };
            layout.validated().is_some()
        };
        assert!(layout(block, block, 1));
        for (unit, chunk, chunks) in [
            (0, block, 1),
            (block, 0, 1),
            (block, block, 0),
            (block / 2, block, 1),
            (2 * block, 3 * block, 1),
            (1 << 25, 1 << 25, 1),
            (block, block, (1 << 12) + 1),
        ] {
            assert!(!layout(unit, chunk, chunks), "{unit} {chunk} {chunks}");
        }
    }

    #[test]
    fn chunks_are_placed_one_after_another() {
        let address = ChunkAddress { file: 7, index: 3 };
        let place = Layout::DEFAULT.file_position(address, 5);
        assert_eq!(place.file, FileId::new(Family::Stream, 7));
        assert_eq!(place.offset, 3 * (1 << 20) + 5 * 4096);
        assert_eq!(Layout::DEFAULT.block_in_chunk((1 << 20) * 9 + 2 * 4096 + 1), 2);
    }
}
