//! Options of a log.

use crate::disk::{BLOCK, Zeros};
use quorate_core::{
    node_id::{Incarnation, NodeId},
    slot::Slot,
};

use crate::{
    error::LogError,
    log_write::{Owner, WRITE_BYTES_MAX},
};

/// Most writes in flight ([disk-2]).
pub const DEPTH_MAX: usize = 4;

/// Most bytes that gather before they are written, where no commit waits for the disk.
pub const LINGER_BYTES: usize = 256 << 10;

/// Owner and layout of a log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LogOptions {
    /// The cluster.
    pub cluster: u128,
    /// The node.
    pub node: NodeId,
    /// Its incarnation, as its identity says.
    pub incarnation: Incarnation,
    /// Size of new segments: whole blocks, at least four.
    pub segment_bytes: u64,
    /// Segments kept ready in addition to the one in use: at least one.
    pub spare_segments: usize,
    /// A log write takes no more records once it has this many bytes: whole blocks.
    pub write_bytes_max: usize,
    /// Writes in flight while records gather: 1 to [`DEPTH_MAX`].
    pub depth: usize,
    /// This node has run before, so that no segments mean a lost log, not a new one ([volatile-1]).
    pub used: bool,
    /// Its incarnation was raised because votes or promises are gone; whatever is missing now is
    /// known to be.
    pub owns_up: bool,
    /// A store next to the log has everything below, and took it only from records on stable
    /// storage: a log that knows less has lost its end ([volatile-1]).
    pub stored_to: Slot,
    /// Votes for batches gather up to this many bytes, or until [`Log::hurry`](crate::Log::hurry),
    /// before a write starts: for a class that does not wait for the disk. 0: it starts at once.
    pub linger_bytes: usize,
}

impl LogOptions {
    /// The usual sizes: segments of 64 MiB, one of them spare, writes of up to 1 MiB, two of them
    /// in flight.
    pub fn new(cluster: u128, node: NodeId, incarnation: Incarnation) -> Self {
        Self {
            cluster,
            node,
            incarnation,
            segment_bytes: 64 << 20,
            spare_segments: 1,
            write_bytes_max: 1 << 20,
            depth: 2,
            used: false,
            owns_up: false,
            stored_to: Slot(0),
            linger_bytes: 0,
        }
    }

    pub(crate) fn owner(&self) -> Owner {
        Owner { cluster: self.cluster, node: self.node }
    }

    /// A log that lets votes linger delays no commit; the amount that its disk has to write is what
    /// counts.
    pub(crate) const fn zeros(&self) -> Zeros {
        match self.linger_bytes {
            0 => Zeros::Written,
            _ => Zeros::Reserved,
        }
    }

    pub(crate) fn check(&self) -> Result<(), LogError> {
        let wrong = |what: &str| Err(LogError::Options(what.to_owned()));
        let block = BLOCK as u64;
        if !self.segment_bytes.is_multiple_of(block) || self.segment_bytes < 4 * block {
            return wrong("segments are whole blocks of 4096 bytes, at least four");
        }
        if self.spare_segments == 0 {
            return wrong("at least one segment is spare");
        }
        let bytes = self.write_bytes_max;
        if !bytes.is_multiple_of(BLOCK) || bytes == 0 || bytes > WRITE_BYTES_MAX {
            return wrong("log writes are whole blocks of 4096 bytes, up to 16 MiB");
        }
        if bytes as u64 > self.segment_bytes {
            return wrong("a log write must fit into a segment");
        }
        if !(1..=DEPTH_MAX).contains(&self.depth) {
            return wrong("one to four writes may be in flight");
        }
        Ok(())
    }
}
