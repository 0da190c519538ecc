//! Memory that a disk can access directly: aligned, whole blocks, and a pool of them.
//!
//! A buffer is a handle: it can be filled by a socket, written by a disk, and passed on, and its
//! bytes stay in place.

use std::{
    fmt,
    ops::{Deref, DerefMut},
};

use crate::disk::BLOCK;

/// Whole blocks of memory, aligned to a block boundary.
pub struct Buffer {
    memory: Vec<u8>,
    start: usize,
    bytes: usize,
    capacity: usize,
    /// Set if this memory belongs to the driver's pool.
    pool_membership: Option<PoolMembership>,
}

/// Membership of a buffer in a driver's pool.
#[derive(Clone, Copy, Debug, Default)]
struct PoolMembership {
    /// The kernel's index of the buffer, if it is registered.
    registered_index: Option<u16>,
}

impl Buffer {
    /// Allocates at least `bytes` zeroed bytes, rounded up to whole blocks.
    pub fn new(bytes: usize) -> Self {
        let bytes = bytes.next_multiple_of(BLOCK).max(BLOCK);
        // The memory is never resized, so the aligned start does not move.
        let memory = vec![0; bytes + BLOCK - 1];
        let start = memory.as_ptr().align_offset(BLOCK);
        assert!(start < BLOCK, "byte pointers can be aligned");
        Self { memory, start, bytes, capacity: bytes, pool_membership: None }
    }

    /// Returns the index under which the driver registered this memory, if it did.
    #[cfg(target_os = "linux")]
    pub(crate) fn registered_index(&self) -> Option<u16> {
        self.pool_membership?.registered_index
    }
}

impl Deref for Buffer {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.memory[self.start..self.start + self.bytes]
    }
}

impl DerefMut for Buffer {
    fn deref_mut(&mut self) -> &mut [u8] {
        &mut self.memory[self.start..self.start + self.bytes]
    }
}

impl fmt::Debug for Buffer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Buffer({} bytes)", self.bytes)
    }
}

/// Size of the buffer pool that a disk shares among all families.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Buffers {
    /// Further buffers are allocated on demand and freed when they are released.
    pub preallocated_count: u16,
    /// Size of each buffer, a multiple of the block size. Larger requests are allocated separately.
    pub bytes: usize,
}

impl Default for Buffers {
    /// Returns enough buffers for a log of the default depth: those in flight, one being filled,
    /// and one spare, each as large as the largest ordinary batch.
    fn default() -> Self {
        Self { preallocated_count: 4, bytes: 1 << 20 }
    }
}

/// A driver's pool of unused buffers.
#[cfg(target_os = "linux")]
#[derive(Debug)]
pub(crate) struct Pool {
    bytes: usize,
    free: Vec<Buffer>,
}

#[cfg(target_os = "linux")]
impl Pool {
    pub(crate) fn new(buffers: Buffers) -> Self {
        let buffer = |_| Buffer {
            pool_membership: Some(PoolMembership::default()),
            ..Buffer::new(buffers.bytes)
        };
        let free: Vec<_> = (0..buffers.preallocated_count).map(buffer).collect();
        let bytes = free.first().map_or(0, |buffer| buffer.capacity);
        Self { bytes, free }
    }

    /// Returns all buffers so that a driver can register them. Call it before the first allocation.
    pub(crate) fn all_buffers_mut(&mut self) -> impl ExactSizeIterator<Item = &mut [u8]> {
        self.free.iter_mut().map(|buffer| &mut **buffer)
    }

    /// Marks all buffers as registered with the kernel, numbered in the order of
    /// [`Self::all_buffers_mut`].
    pub(crate) fn register(&mut self) {
        for (index, buffer) in (0..).zip(&mut self.free) {
            let registered = Some(index);
            buffer.pool_membership = Some(PoolMembership { registered_index: registered });
        }
    }

    /// Allocates from the pool if a buffer is free and large enough, otherwise from the heap. The
    /// contents of a pooled buffer are arbitrary.
    pub(crate) fn allocate(&mut self, bytes: usize) -> Buffer {
        let bytes = bytes.next_multiple_of(BLOCK).max(BLOCK);
        if bytes > self.bytes {
            return Buffer::new(bytes);
        }
        match self.free.pop() {
            Some(buffer) => Buffer { bytes, ..buffer },
            None => Buffer::new(bytes),
        }
    }

    /// Returns a buffer to the pool, if it belongs to it.
    pub(crate) fn release(&mut self, buffer: Buffer) {
        if buffer.pool_membership.is_some() {
            let bytes = buffer.capacity;
            self.free.push(Buffer { bytes, ..buffer });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buffers_are_aligned_zeroed_and_whole_blocks() {
        for bytes in [0, 1, BLOCK, BLOCK + 1, 100 * BLOCK] {
            let buffer = Buffer::new(bytes);
            assert!(buffer.len() >= bytes.max(BLOCK));
            assert_eq!(buffer.len() % BLOCK, 0);
            assert_eq!(buffer.as_ptr().align_offset(BLOCK), 0);
            assert!(buffer.iter().all(|byte| *byte == 0));
        }
    }

    #[test]
    fn pool_allocates_from_its_own_memory_first() {
        let bytes = 4 * BLOCK;
        let mut pool = Pool::new(Buffers { preallocated_count: 2, bytes });
        let large = pool.allocate(bytes + 1);
        assert_eq!((large.len(), pool.free.len()), (5 * BLOCK, 2));
        let (a, b, c) = (pool.allocate(1), pool.allocate(bytes), pool.allocate(bytes));
        assert_eq!([a.len(), b.len(), c.len()], [BLOCK, bytes, bytes]);
        let known = a.as_ptr();
        for buffer in [c, large, b, a] {
            pool.release(buffer);
        }
        assert_eq!(pool.free.len(), 2, "what was allocated besides is freed");
        let again = pool.allocate(bytes);
        assert_eq!((again.as_ptr(), again.len()), (known, bytes), "in full");
    }

    #[test]
    fn empty_pool_allocates_new_memory() {
        let mut pool = Pool::new(Buffers { preallocated_count: 0, bytes: 0 });
        let buffer = pool.allocate(BLOCK);
        assert_eq!(buffer.len(), BLOCK);
        pool.release(buffer);
        assert!(pool.free.is_empty());
    }
}
