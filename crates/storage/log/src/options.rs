//! Options of a log, fixed when it is opened.

use crate::disk::{BLOCK, ZeroFill};
use quorate_core::{
    node_id::{Incarnation, NodeId},
    slot::Slot,
};

use crate::{
    error::LogError,
    log_write::{Owner, WRITE_BYTES_MAX},
};

/// Maximum number of log writes in flight ([disk-2]).
pub const WRITES_IN_FLIGHT_MAX: usize = 4;

/// Number of bytes to buffer before a log write starts, in classes whose commits do not wait for
/// the disk.
pub const LINGER_BYTES: usize = 256 << 10;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LogOptions {
    pub cluster: u128,
    pub node: NodeId,
    pub incarnation: Incarnation,
    /// Size of new segments in bytes: a multiple of the block size, at least four blocks.
    pub segment_bytes: u64,
    /// Number of segments kept ready in addition to the current one, at least one.
    pub spare_segments: usize,
    /// Size at which a log write accepts no more records, in bytes: a multiple of the block size.
    pub write_bytes_max: usize,
    /// Maximum number of log writes in flight while records are buffered: 1 to
    /// [`WRITES_IN_FLIGHT_MAX`].
    pub writes_in_flight_max: usize,
    /// Set if the node has run before, so that an empty folder means a lost log, not a new one
    /// ([volatile-1]).
    pub has_run_before: bool,
    /// Set if the incarnation was raised because votes or promises were lost, so that missing
    /// records are already accounted for.
    pub is_loss_known: bool,
    /// Slot below which a store next to the log has everything. The store takes slots only from
    /// records on stable storage, so a log that knows fewer slots has lost its end ([volatile-1]).
    pub store_has_to: Slot,
    /// Number of bytes of votes for batches to buffer before a log write starts, unless
    /// [`Log::write_soon`](crate::Log::write_soon) is called. For classes that do not wait for the
    /// disk. 0 starts log writes at once.
    pub linger_bytes: usize,
}

impl LogOptions {
    /// Returns the default options: segments of 64 MiB with one spare, and log writes of up to 1
    /// MiB, two of them in flight.
    pub fn new(cluster: u128, node: NodeId, incarnation: Incarnation) -> Self {
        Self {
            cluster,
            node,
            incarnation,
            segment_bytes: 64 << 20,
            spare_segments: 1,
            write_bytes_max: 1 << 20,
            writes_in_flight_max: 2,
            has_run_before: false,
            is_loss_known: false,
            store_has_to: Slot(0),
            linger_bytes: 0,
        }
    }

    pub(crate) fn owner(&self) -> Owner {
        Owner { cluster: self.cluster, node: self.node }
    }

    /// Returns how segments are zeroed. In a log that buffers votes, commits do not wait for the
    /// disk, so the number of bytes written matters most.
    pub(crate) const fn zero_fill(&self) -> ZeroFill {
        match self.linger_bytes {
            0 => ZeroFill::Written,
            _ => ZeroFill::Reserved,
        }
    }

    pub(crate) fn check(&self) -> Result<(), LogError> {
        let wrong = |what: &str| Err(LogError::InvalidOptions(what.to_owned()));
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
        if !(1..=WRITES_IN_FLIGHT_MAX).contains(&self.writes_in_flight_max) {
            return wrong("one to four writes may be in flight");
        }
        Ok(())
    }
}
