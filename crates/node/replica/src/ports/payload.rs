//! Payload: the bytes of a value, shared by the log, the store and the queues to peers.

use std::{
    fmt,
    ops::{Deref, Range},
    sync::Arc,
};

use quorate_log::disk::Blocks;
use quorate_stream::store::UnitBytes;

/// Immutable, reference-counted bytes. A copy is another reference to the same bytes.
#[derive(Clone)]
pub struct Payload(PayloadBytes);

#[derive(Clone)]
enum PayloadBytes {
    Plain(Arc<Vec<u8>>),
    /// Blocks from which a disk can write directly.
    Bulk(Blocks),
}

impl Payload {
    /// Creates a payload from `bytes` without copying them.
    pub fn new(bytes: Vec<u8>) -> Self {
        Self(PayloadBytes::Plain(Arc::new(bytes)))
    }

    /// Returns the number of references to the bytes; 1 if they are not shared.
    pub fn reference_count(&self) -> usize {
        match &self.0 {
            PayloadBytes::Plain(bytes) => Arc::strong_count(bytes),
            PayloadBytes::Bulk(blocks) => blocks.holder_count(),
        }
    }

    /// Returns the CRC-32C of the bytes. It is cached for large payloads.
    pub fn checksum(&self) -> u32 {
        match &self.0 {
            PayloadBytes::Plain(bytes) => quorate_wire::checksum(bytes),
            PayloadBytes::Bulk(blocks) => blocks.checksum(),
        }
    }

    /// Returns whole units for the store of streams, without a copy if aligned for a disk.
    pub(crate) fn as_bulk(&self, range: Range<usize>) -> UnitBytes<'_> {
        match &self.0 {
            PayloadBytes::Plain(bytes) => UnitBytes::to_copy(&bytes[range]),
            PayloadBytes::Bulk(blocks) => UnitBytes::shared(blocks, range),
        }
    }
}

impl From<Blocks> for Payload {
    fn from(blocks: Blocks) -> Self {
        Self(PayloadBytes::Bulk(blocks))
    }
}

impl Deref for Payload {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        match &self.0 {
            PayloadBytes::Plain(bytes) => bytes,
            PayloadBytes::Bulk(blocks) => blocks,
        }
    }
}

impl PartialEq for Payload {
    fn eq(&self, other: &Self) -> bool {
        **self == **other
    }
}

impl Eq for Payload {}

impl fmt::Debug for Payload {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Payload({} bytes)", self.len())
    }
}
