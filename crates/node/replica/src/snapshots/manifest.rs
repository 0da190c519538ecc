//! Manifest of a complete snapshot: its position and its identity.

use quorate_core::slot::Slot;
use quorate_log::disk::{Family, FileId};

use super::layout::ChunkLayout;
use crate::fields::Fields;

/// A complete and durable snapshot on this node's disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Manifest {
    /// Slot of the snapshot. The snapshot covers all lower slots.
    pub(crate) slot: Slot,
    pub(crate) layout: ChunkLayout,
    pub(crate) first_part: u64,
    /// Length of the stream in bytes.
    pub(crate) bytes: u64,
    /// XXH3-128 of the stream, equal on all nodes that have a snapshot at this slot.
    pub(crate) digest: u128,
}

impl Manifest {
    /// Returns the lowest number above those of the snapshot's parts.
    pub(crate) fn parts_end(&self) -> u64 {
        self.first_part.saturating_add(self.layout.part_count(self.bytes))
    }

    pub(crate) fn has_part(&self, file: FileId) -> bool {
        file.family == Family::Snapshot
            && (self.first_part..self.parts_end()).contains(&file.number)
    }

    pub(crate) fn parts(&self) -> impl Iterator<Item = FileId> + use<> {
        let numbers = self.first_part..self.parts_end();
        numbers.map(|number| FileId::new(Family::Snapshot, number))
    }

    pub(super) fn encode(&self, out: &mut Vec<u8>) {
        for word in [self.slot.0, self.first_part, self.bytes] {
            out.extend_from_slice(&word.to_be_bytes());
        }
        out.extend_from_slice(&self.layout.chunk_bytes.to_be_bytes());
        out.extend_from_slice(&self.layout.chunks_per_part.to_be_bytes());
        out.extend_from_slice(&self.digest.to_be_bytes());
    }

    pub(super) fn decode(fields: &mut Fields<'_>) -> Option<Self> {
        let (at, first_part, bytes) = (Slot(fields.u64()?), fields.u64()?, fields.u64()?);
        let layout = ChunkLayout::from_disk(fields.u32()?, fields.u32()?)?;
        let digest = fields.u128()?;
        Some(Self { slot: at, layout, first_part, bytes, digest })
    }
}
