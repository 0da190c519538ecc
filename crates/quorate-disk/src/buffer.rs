//! Memory that a disk can read from and write to directly: aligned, whole blocks.

use std::{
    fmt,
    ops::{Deref, DerefMut},
};

use super::BLOCK;

/// Whole blocks of zeroed memory, aligned to a block.
pub struct Buffer {
    memory: Vec<u8>,
    start: usize,
    bytes: usize,
    /// Set by a driver that knows this memory in advance.
    registered: Option<u16>,
}

impl Buffer {
    /// At least `bytes` bytes, rounded up to whole blocks.
    pub fn new(bytes: usize) -> Self {
        let bytes = bytes.next_multiple_of(BLOCK).max(BLOCK);
        // The memory is never resized, so the aligned start stays where it is.
        let memory = vec![0; bytes + BLOCK - 1];
        let start = memory.as_ptr().align_offset(BLOCK);
        assert!(start < BLOCK, "byte pointers can be aligned");
        Self {
            memory,
            start,
            bytes,
            registered: None,
        }
    }

    #[cfg(target_os = "linux")]
    pub(super) fn register(&mut self, index: u16) {
        self.registered = Some(index);
    }

    /// The driver's own number of this memory, if it has one.
    pub fn registered(&self) -> Option<u16> {
        self.registered
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buffers_are_aligned_whole_zeroed_blocks() {
        for bytes in [0, 1, BLOCK, BLOCK + 1, 100 * BLOCK] {
            let buffer = Buffer::new(bytes);
            assert!(buffer.len() >= bytes.max(BLOCK));
            assert_eq!(buffer.len() % BLOCK, 0);
            assert_eq!(buffer.as_ptr().align_offset(BLOCK), 0);
            assert!(buffer.iter().all(|byte| *byte == 0));
        }
    }
}
