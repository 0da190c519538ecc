//! The shape of a receive ring: slots of equal length, in blocks of whole pages.

use crate::ethernet::{frame::ETHERNET_BYTES, slot::SLOT_HEADER_BYTES};

/// Minimum size of a block in bytes. A block is one contiguous allocation of the kernel.
const BLOCK_BYTES_MIN: usize = 64 << 10;
/// Maximum page size of any machine, in bytes. Blocks are multiples of it, so that they consist of
/// whole pages.
const PAGE_BYTES_MAX: usize = 64 << 10;
/// Slots begin at multiples of this (`TPACKET_ALIGNMENT`).
const ALIGNMENT: usize = 16;
/// Maximum size to request, in bytes. The kernel would kill other processes for lack of memory
/// before it refuses a larger ring.
const RING_BYTES_MAX: usize = 256 << 20;
/// Maximum MTU of an interface. A slot for it takes at most two blocks.
const MTU_MAX: usize = 65_536;

/// Shape of a ring. Slots never cross the end of a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct RingShape {
    pub(crate) slot_bytes: usize,
    pub(crate) block_bytes: usize,
    pub(crate) blocks: usize,
}

impl RingShape {
    /// Returns the shape of a ring for frames of up to `mtu` bytes, with at least one block.
    pub(crate) fn of(mtu: usize, ring_bytes: usize) -> Self {
        let frame_bytes = ETHERNET_BYTES + mtu.min(MTU_MAX);
        let slot_bytes = (SLOT_HEADER_BYTES + frame_bytes).next_multiple_of(ALIGNMENT);
        let block_bytes = slot_bytes.max(BLOCK_BYTES_MIN).next_multiple_of(PAGE_BYTES_MAX);
        let blocks = ring_bytes.min(RING_BYTES_MAX) / block_bytes;
        Self { slot_bytes, block_bytes, blocks: blocks.max(1) }
    }

    /// Returns the shape with half as many blocks, or `None` if there is only one.
    pub(crate) const fn with_half_the_blocks(self) -> Option<Self> {
        match self.blocks / 2 {
            0 => None,
            blocks => Some(Self { blocks, ..self }),
        }
    }

    pub(crate) const fn bytes(self) -> usize {
        self.block_bytes * self.blocks
    }

    pub(crate) const fn slots(self) -> usize {
        self.slots_per_block() * self.blocks
    }

    const fn slots_per_block(self) -> usize {
        self.block_bytes / self.slot_bytes
    }

    /// Returns the offset of a slot, which ends within the ring.
    pub(crate) fn slot_offset(self, slot: usize) -> usize {
        assert!(slot < self.slots(), "slot {slot} of {}", self.slots());
        let per_block = self.slots_per_block();
        slot / per_block * self.block_bytes + slot % per_block * self.slot_bytes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slots_fit_a_frame_and_do_not_overlap() {
        for mtu in [0, 68, 1500, 9000, 65_521, 65_536, usize::MAX] {
            for bytes in [0, 1 << 16, 4 << 20, usize::MAX] {
                let shape = RingShape::of(mtu, bytes);
                assert!(shape.slot_bytes >= SLOT_HEADER_BYTES + ETHERNET_BYTES + mtu.min(MTU_MAX));
                assert!(shape.bytes() <= bytes.max(shape.block_bytes).min(RING_BYTES_MAX));
                assert_eq!(shape.block_bytes % PAGE_BYTES_MAX, 0);
                let mut end = 0;
                for slot in 0..shape.slots() {
                    let offset = shape.slot_offset(slot);
                    assert!(offset >= end && offset.is_multiple_of(ALIGNMENT));
                    end = offset + shape.slot_bytes;
                    let last = end - 1;
                    assert_eq!(offset / shape.block_bytes, last / shape.block_bytes);
                }
                assert!(end <= shape.bytes());
            }
        }
    }

    #[test]
    fn a_ring_is_halved_down_to_a_block() {
        let mut shape = RingShape::of(1500, 5 * (64 << 10));
        let mut blocks = vec![shape.blocks];
        while let Some(half) = shape.with_half_the_blocks() {
            shape = half;
            blocks.push(shape.blocks);
        }
        assert_eq!(blocks, [5, 2, 1]);
    }
}
