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

/// Maximum number of log writes in flight ([disk-2]).
pub const DEPTH_MAX: usize = 4;

/// Bytes that are buffered before a write starts, in classes where no commit waits for the disk.
pub const LINGER_BYTES: usize = 256 << 10;

/// Owner and layout of a log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LogOptions {
    pub cluster: u128,
    pub node: NodeId,
    /// Incarnation recorded in the node's identity.
    pub incarnation: Incarnation,
    /// Size of new segments: whole blocks, at least four.
    pub segment_bytes: u64,
    /// Number of segments kept ready in addition to the current one, at least one.
    pub spare_segments: usize,
    /// Size at which a log write accepts no more records: whole blocks.
    pub write_bytes_max: usize,
    /// Maximum number of writes in flight while records are buffered: 1 to [`DEPTH_MAX`].
    pub depth: usize,
    /// The node has run before, so an empty folder means a lost log, not a new one ([volatile-1]).
    pub used: bool,
    /// The incarnation was raised because votes or promises were lost; anything missing now is
    /// already accounted for.
    pub is_loss_known: bool,
    /// Everything below is in a store next to the log, which takes it only from records on stable
    /// storage: a log that knows less has lost its end ([volatile-1]).
    pub stored_to: Slot,
    /// Votes for batches are buffered up to this many bytes, or until
    /// [`Log::hurry`](crate::Log::hurry), before a write starts: for a class that does not wait for
    /// the disk. 0: writes start at once.
    pub linger_bytes: usize,
}

impl LogOptions {
    /// Returns the default options: segments of 64 MiB, one of them spare, writes of up to 1 MiB,
    /// two of them in flight.
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
            is_loss_known: false,
            stored_to: Slot(0),
            linger_bytes: 0,
        }
    }

    pub(crate) fn owner(&self) -> Owner {
        Owner { cluster: self.cluster, node: self.node }
    }

    /// Returns how segments are zeroed. A log that buffers votes delays no commit, so the number of
    /// bytes written matters most.
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
