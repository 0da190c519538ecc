//! Bulk data that stays in place: received once, then read by disks and sockets without a copy.
//!
//! The bytes have the same alignment within a block as in their file, so a disk can write them from
//! where they are. [`Blocks`] are immutable. Their memory returns to its pool when the last
//! reference is dropped.

use std::{
    fmt,
    ops::{Deref, Range},
    sync::{Arc, Mutex, OnceLock, PoisonError},
};

use crate::disk::{BLOCK, Buffer, checksum::combine_checksums};

/// Number of bytes covered by one of [`Blocks::piece_checksums`].
pub const CHECKED_BYTES: usize = 64 << 10;

/// Pool of memory for bulk data. Buffer sizes are powers of two, so that a reused buffer fits
/// without being zeroed first.
#[derive(Clone, Debug)]
pub struct BlockPool(Arc<Home>);

#[derive(Debug)]
struct Home {
    /// Size of the largest pooled buffers.
    bytes: usize,
    /// Maximum number of bytes retained in unused buffers.
    idle_bytes_max: usize,
    idle_buffers: Mutex<IdleBuffers>,
}

#[derive(Debug, Default)]
struct IdleBuffers {
    bytes: usize,
    /// Unused buffers, indexed by [`size_class`].
    by_size_class: [Vec<Buffer>; SIZE_CLASSES],
}

/// Smallest pooled size, in bytes. Allocating smaller buffers is cheap.
const SIZE_CLASS_BYTES_MIN: usize = 32 << 10;
/// Number of size classes.
const SIZE_CLASSES: usize = 8;

/// Returns the size class for a buffer. Class n contains buffers of [`SIZE_CLASS_BYTES_MIN`] × 2ⁿ
/// bytes.
const fn size_class(bytes: usize) -> usize {
    bytes.div_ceil(SIZE_CLASS_BYTES_MIN).next_power_of_two().ilog2() as usize
}

impl BlockPool {
    /// Creates a pool of buffers for up to `bytes` bytes. It retains up to `free_max` unused
    /// buffers of the largest size, or the same amount of memory in smaller ones.
    pub fn new(bytes: usize, free_max: usize) -> Self {
        let bytes = bytes.min(SIZE_CLASS_BYTES_MIN << (SIZE_CLASSES - 1));
        Self(Arc::new(Home {
            bytes,
            idle_bytes_max: free_max.saturating_mul(SIZE_CLASS_BYTES_MIN << size_class(bytes)),
            idle_buffers: Mutex::default(),
        }))
    }

    /// Allocates memory for `bytes` bytes. `position` is the position of the first one in its file.
    pub fn start_filling(&self, position: u64, bytes: usize) -> Filling {
        let from = offset_in_block(position);
        Filling {
            buffer: self.buffer(from, bytes),
            from,
            filled_to: from,
            fill_end: from + bytes,
            pool: self.is_pooled_size(bytes).then(|| self.clone()),
        }
    }

    /// Allocates a buffer for reading `bytes` bytes from a disk. After the read, pass it to
    /// [`Self::blocks_from_read`].
    pub fn buffer_for_read(&self, bytes: usize) -> Buffer {
        self.buffer(0, bytes)
    }

    /// Returns the `wanted` part of the `bytes` bytes that a disk read into `buffer`.
    pub fn blocks_from_read(&self, buffer: Buffer, bytes: usize, wanted: Range<usize>) -> Blocks {
        let (from, to) = (wanted.start, wanted.end);
        assert!(from <= to && to <= bytes, "no part of what was read");
        Blocks(Arc::new(HeldBlocks {
            buffer: Some(buffer),
            from,
            filled_to: to,
            pool: self.is_pooled_size(bytes).then(|| self.clone()),
            checks: OnceLock::new(),
        }))
    }

    /// Copies bytes into the pool's memory.
    pub fn copy_bytes(&self, bytes: &[u8]) -> Blocks {
        let mut filling = self.start_filling(0, bytes.len());
        filling.append_bytes(bytes);
        filling.into_blocks()
    }

    /// Returns the size of the memory that is allocated to fill `bytes` bytes, disregarding
    /// alignment within a block.
    pub fn memory_bytes_for(&self, bytes: usize) -> usize {
        if self.is_pooled_size(bytes) { SIZE_CLASS_BYTES_MIN << size_class(bytes) } else { bytes }
    }

    fn is_pooled_size(&self, bytes: usize) -> bool {
        bytes > SIZE_CLASS_BYTES_MIN / 2 && bytes <= self.0.bytes
    }

    fn buffer(&self, from: usize, bytes: usize) -> Buffer {
        if !self.is_pooled_size(bytes) {
            return Buffer::new(from + bytes);
        }
        let mut free = self.lock_idle_buffers();
        let Some(buffer) = free.by_size_class[size_class(bytes)].pop() else {
            drop(free);
            return Buffer::new(BLOCK + self.memory_bytes_for(bytes));
        };
        free.bytes -= buffer.len() - BLOCK;
        buffer
    }

    fn lock_idle_buffers(&self) -> std::sync::MutexGuard<'_, IdleBuffers> {
        self.0.idle_buffers.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns a buffer from [`Self::buffer`] to the pool.
    fn return_buffer(&self, buffer: Buffer) {
        let bytes = buffer.len() - BLOCK;
        let mut free = self.lock_idle_buffers();
        if free.bytes + bytes <= self.0.idle_bytes_max {
            free.bytes += bytes;
            free.by_size_class[size_class(bytes)].push(buffer);
        }
    }
}

fn offset_in_block(position: u64) -> usize {
    let rest = position % BLOCK as u64;
    usize::try_from(rest).expect("less than a block")
}

pub struct Filling {
    buffer: Buffer,
    from: usize,
    filled_to: usize,
    /// End of the space to fill.
    fill_end: usize,
    pool: Option<BlockPool>,
}

impl Filling {
    pub fn len(&self) -> usize {
        self.filled_to - self.from
    }

    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    pub fn free_bytes(&self) -> usize {
        self.fill_end - self.filled_to
    }

    /// Returns the free space. After filling part of it, pass the number of bytes to
    /// [`Self::record_written`].
    pub fn spare_memory(&mut self) -> &mut [u8] {
        &mut self.buffer[self.filled_to..self.fill_end]
    }

    /// Records that `count` bytes were written to [`Self::spare_memory`].
    pub fn record_written(&mut self, count: usize) {
        assert!(count <= self.free_bytes(), "more than there was room for");
        self.filled_to += count;
    }

    /// Appends as many of these bytes as fit. Returns the number of bytes appended.
    pub fn append_bytes(&mut self, bytes: &[u8]) -> usize {
        let count = bytes.len().min(self.free_bytes());
        self.spare_memory()[..count].copy_from_slice(&bytes[..count]);
        self.record_written(count);
        count
    }

    pub fn bytes(&self) -> &[u8] {
        &self.buffer[self.from..self.filled_to]
    }

    /// Removes and returns the bytes if there is no free space left.
    pub fn take_full(&mut self) -> Option<Blocks> {
        let full = self.free_bytes() == 0;
        full.then(|| std::mem::replace(self, Self::empty()).into_blocks())
    }

    fn empty() -> Self {
        Self { buffer: Buffer::new(0), from: 0, filled_to: 0, fill_end: 0, pool: None }
    }

    /// Finishes filling and discards everything after the first `bytes` bytes.
    pub fn finish_at(mut self, bytes: usize) -> Blocks {
        self.filled_to = self.filled_to.min(self.from + bytes);
        self.into_blocks()
    }

    pub fn into_blocks(self) -> Blocks {
        let Self { buffer, from, filled_to: to, pool: home, .. } = self;
        Blocks(Arc::new(HeldBlocks {
            buffer: Some(buffer),
            from,
            filled_to: to,
            pool: home,
            checks: OnceLock::new(),
        }))
    }
}

impl fmt::Debug for Filling {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Filling({} of {} bytes)", self.len(), self.fill_end - self.from)
    }
}

/// Immutable bytes. A clone is another reference to the same memory.
#[derive(Clone)]
pub struct Blocks(Arc<HeldBlocks>);

struct HeldBlocks {
    /// Always `Some`, until the buffer is returned to its pool on drop.
    buffer: Option<Buffer>,
    from: usize,
    filled_to: usize,
    pool: Option<BlockPool>,
    checks: OnceLock<Vec<u32>>,
}

impl HeldBlocks {
    fn bytes(&self) -> &[u8] {
        let buffer = self.buffer.as_deref();
        buffer.map_or(&[], |buffer| &buffer[self.from..self.filled_to])
    }
}

impl Drop for HeldBlocks {
    fn drop(&mut self) {
        if let (Some(home), Some(buffer)) = (&self.pool, self.buffer.take()) {
            home.return_buffer(buffer);
        }
    }
}

impl Blocks {
    pub fn holder_count(&self) -> usize {
        Arc::strong_count(&self.0)
    }

    /// Returns the CRC-32C of each [`CHECKED_BYTES`] bytes. The last one covers the remainder.
    /// Computed only once.
    pub fn piece_checksums(&self) -> &[u32] {
        let compute = || self.chunks(CHECKED_BYTES).map(crc32c::crc32c).collect();
        self.0.checks.get_or_init(compute)
    }

    pub fn checksum(&self) -> u32 {
        let parts = self.chunks(CHECKED_BYTES).zip(self.piece_checksums());
        parts.fold(0, |all, (bytes, check)| combine_checksums(all, *check, bytes.len()))
    }

    /// Returns a part of the bytes as the source of a disk write, or `None` unless it consists of
    /// whole, aligned blocks.
    pub fn aligned_part(&self, range: Range<usize>) -> Option<Output> {
        let at = self.0.from + range.start;
        let whole = at.is_multiple_of(BLOCK) && range.len().is_multiple_of(BLOCK);
        (whole && range.end <= self.len()).then(|| Output(OutputMemory::Part(self.clone(), range)))
    }
}

impl Deref for Blocks {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        self.0.bytes()
    }
}

impl PartialEq for Blocks {
    fn eq(&self, other: &Self) -> bool {
        self[..] == other[..]
    }
}

impl Eq for Blocks {}

impl fmt::Debug for Blocks {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Blocks({} bytes)", self.len())
    }
}

/// Source of a disk write: the writer's own buffer, or part of a shared one.
#[derive(Debug)]
pub struct Output(OutputMemory);

#[derive(Debug)]
enum OutputMemory {
    Own(Buffer),
    Part(Blocks, Range<usize>),
}

impl Output {
    /// Returns the writer's own buffer, or `None` if the memory is shared.
    pub fn into_buffer(self) -> Option<Buffer> {
        match self.0 {
            OutputMemory::Own(buffer) => Some(buffer),
            OutputMemory::Part(..) => None,
        }
    }

    /// Returns the index under which the driver registered this memory, if it did.
    #[cfg(target_os = "linux")]
    pub(crate) fn registered_index(&self) -> Option<u16> {
        match &self.0 {
            OutputMemory::Own(buffer) => buffer.registered_index(),
            OutputMemory::Part(..) => None,
        }
    }
}

impl From<Buffer> for Output {
    fn from(buffer: Buffer) -> Self {
        Self(OutputMemory::Own(buffer))
    }
}

impl Deref for Output {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        match &self.0 {
            OutputMemory::Own(buffer) => buffer,
            OutputMemory::Part(blocks, range) => &blocks[range.clone()],
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const USUAL: usize = 4 * CHECKED_BYTES;

    fn filled(pool: &BlockPool, position: u64, bytes: &[u8]) -> Blocks {
        let mut filling = pool.start_filling(position, bytes.len());
        assert_eq!(filling.append_bytes(bytes), bytes.len());
        assert_eq!((filling.free_bytes(), filling.bytes()), (0, bytes));
        filling.into_blocks()
    }

    fn bytes(length: usize) -> Vec<u8> {
        (0..length).map(|at| (at % 251) as u8).collect()
    }

    #[test]
    fn bytes_are_aligned_as_their_position_within_a_block() {
        let pool = BlockPool::new(USUAL, 2);
        for position in [0, 1, 4095, 4096, 70_001] {
            for length in [1, BLOCK, USUAL / 2 + 1, USUAL, USUAL + 1] {
                let bytes = bytes(length);
                let blocks = filled(&pool, position, &bytes);
                assert_eq!(*blocks, *bytes);
                let place = blocks.as_ptr().align_offset(BLOCK) as u64;
                assert_eq!((position + place) % BLOCK as u64, 0, "{position} {length}");
            }
        }
    }

    fn free(pool: &BlockPool) -> usize {
        let free = pool.lock_idle_buffers();
        let all = free.by_size_class.iter().flatten();
        assert_eq!(all.clone().map(|buffer| buffer.len() - BLOCK).sum::<usize>(), free.bytes);
        all.count()
    }

    #[test]
    fn memory_is_pooled_by_size_up_to_a_bound() {
        let pool = BlockPool::new(USUAL, 2);
        let lengths = [
            SIZE_CLASS_BYTES_MIN / 2,
            SIZE_CLASS_BYTES_MIN,
            SIZE_CLASS_BYTES_MIN + 1,
            USUAL / 2,
            USUAL / 2 + 1,
            USUAL,
        ];
        let made = lengths.map(|length| filled(&pool, 4095, &bytes(length)));
        let places = made.each_ref().map(|blocks| blocks.as_ptr());
        // The first is too small to be pooled. The rest (32, 64, 128, 256 and 256 KiB) are retained
        // while their total stays within 512 KiB.
        drop(made);
        assert_eq!(free(&pool), 4);
        let again = [4, 3, 2, 1].map(|at| filled(&pool, 4095, &bytes(lengths[at])).as_ptr());
        assert_eq!(again, [4, 3, 2, 1].map(|at| places[at]));
        assert_eq!(pool.memory_bytes_for(SIZE_CLASS_BYTES_MIN + 1), 2 * SIZE_CLASS_BYTES_MIN);
        assert_eq!(
            pool.memory_bytes_for(USUAL + 1),
            USUAL + 1,
            "more than the usual is made for its reader"
        );
    }

    #[test]
    fn memory_is_reused_once_it_has_no_readers() {
        let pool = BlockPool::new(USUAL, 1);
        let (one, two) = (filled(&pool, 7, &bytes(USUAL)), filled(&pool, 0, &bytes(USUAL)));
        let source = two.aligned_part(0..BLOCK).unwrap();
        drop((one, two));
        assert_eq!(free(&pool), 1, "a disk reads the other");
        assert_eq!(*source, bytes(USUAL)[..BLOCK]);
        drop(source);
        assert_eq!(free(&pool), 1, "no more are kept than was said");
        drop(filled(&pool, 0, &bytes(BLOCK)));
        assert_eq!(free(&pool), 1, "a small one takes none of it");
        assert_eq!(*filled(&pool, 4095, &bytes(USUAL)), *bytes(USUAL));
    }

    #[test]
    fn memory_of_disk_reads_is_reused() {
        let pool = BlockPool::new(USUAL, 1);
        let mut buffer = pool.buffer_for_read(USUAL);
        buffer[..USUAL].copy_from_slice(&bytes(USUAL));
        let read = pool.blocks_from_read(buffer, USUAL, 5..70_000);
        assert_eq!(*read, bytes(USUAL)[5..70_000]);
        assert_eq!(read, pool.copy_bytes(&bytes(USUAL)[5..70_000]));
        drop(read);
        assert_eq!(free(&pool), 1);
        drop(pool.blocks_from_read(pool.buffer_for_read(BLOCK), BLOCK, 0..0));
        assert_eq!(free(&pool), 1, "a small one takes none of it");
    }

    #[test]
    fn checksums_of_parts_combine_to_that_of_the_whole() {
        let pool = BlockPool::new(USUAL, 1);
        for length in [1, CHECKED_BYTES, 2 * CHECKED_BYTES + 17] {
            let bytes = bytes(length);
            let blocks = filled(&pool, 5, &bytes);
            assert_eq!(blocks.piece_checksums().len(), length.div_ceil(CHECKED_BYTES));
            assert_eq!(blocks.checksum(), crc32c::crc32c(&bytes), "{length}");
        }
    }

    #[test]
    fn only_whole_aligned_blocks_are_lent_to_a_disk() {
        let pool = BlockPool::new(USUAL, 1);
        let blocks = filled(&pool, 4000, &bytes(3 * BLOCK));
        assert!(blocks.aligned_part(0..BLOCK).is_none(), "not at a block");
        assert!(blocks.aligned_part(96..96 + BLOCK - 1).is_none(), "not a whole one");
        assert!(blocks.aligned_part(96..96 + 3 * BLOCK).is_none(), "not there");
        let part = blocks.aligned_part(96..96 + 2 * BLOCK).unwrap();
        assert_eq!(part.as_ptr().align_offset(BLOCK), 0);
        assert_eq!(*part, bytes(3 * BLOCK)[96..96 + 2 * BLOCK]);
    }
}
