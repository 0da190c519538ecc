//! Pool of unit-sized buffers, used between gathering and the disk.

use quorate_log::disk::{BLOCK, Buffer};

/// Whole blocks of a stream within one unit, waiting for a chunk.
#[derive(Debug)]
pub(super) struct CutBlocks {
    /// Distinguishes this cut from others at the same position.
    pub(super) id: u64,
    /// Memory that starts with the `bytes` bytes of the blocks.
    pub(super) buffer: Buffer,
    pub(super) bytes: usize,
}

/// Maximum number of unused unit buffers that are retained.
const SPARE_BUFFERS_MAX: usize = 32;

/// Pool of unit-sized buffers. A smaller cut gets its own memory, so that many small cuts need
/// little.
#[derive(Debug)]
pub(super) struct UnitBuffers {
    unit_bytes: usize,
    spare_buffers: Vec<Buffer>,
    next_id: u64,
}

impl UnitBuffers {
    pub(super) fn new(unit_bytes: u32) -> Self {
        Self { unit_bytes: unit_bytes as usize, spare_buffers: Vec::new(), next_id: 0 }
    }

    /// Copies whole blocks into a cut.
    pub(super) fn copy_blocks(&mut self, bytes: &[u8]) -> CutBlocks {
        self.cut_after_zeros(0, bytes)
    }

    /// Creates a cut of `zeros` zero bytes followed by `bytes`, in whole blocks.
    pub(super) fn cut_after_zeros(&mut self, zeros: usize, bytes: &[u8]) -> CutBlocks {
        let length = zeros + bytes.len();
        debug_assert!(length.is_multiple_of(BLOCK) && length <= self.unit_bytes);
        let mut buffer = self.take_buffer(length);
        buffer[..zeros].fill(0);
        buffer[zeros..length].copy_from_slice(bytes);
        self.next_id += 1;
        CutBlocks { id: self.next_id, buffer, bytes: length }
    }

    pub(super) fn copy_to_buffer(&mut self, bytes: &[u8]) -> Buffer {
        let mut buffer = self.take_buffer(bytes.len());
        buffer[..bytes.len()].copy_from_slice(bytes);
        buffer
    }

    fn take_buffer(&mut self, length: usize) -> Buffer {
        match self.spare_buffers.pop() {
            Some(spare) if length > self.unit_bytes / 2 && length <= self.unit_bytes => spare,
            other => {
                self.spare_buffers.extend(other);
                let usual = length > self.unit_bytes / 2 && length <= self.unit_bytes;
                Buffer::new(if usual { self.unit_bytes } else { length })
            }
        }
    }

    pub(super) fn return_buffer(&mut self, buffer: Buffer) {
        if buffer.len() == self.unit_bytes && self.spare_buffers.len() < SPARE_BUFFERS_MAX {
            self.spare_buffers.push(buffer);
        }
    }
}
