//! Rules for trimming the log and for taking a new snapshot.

use quorate_core::{message::HeldSlots, slot::Slot};

use crate::defaults;

/// Divisor of the log's minimum growth before a snapshot, in effect while the node replays its log.
const REPLAY_GROWTH_DIVISOR: u64 = 8;

/// Options for snapshots and trimming.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SnapshotOptions {
    /// A snapshot is taken when the log has grown by this multiple of the last snapshot's size.
    pub ratio: u32,
    /// Minimum growth of the log in bytes before a snapshot is taken.
    pub log_bytes_min: u64,
    /// Size of the log in bytes above which it is trimmed even if nodes lag. These nodes then
    /// receive a snapshot ([trim-1]).
    pub log_bytes_max: u64,
    /// Maximum rate of writing and sending snapshots, in bytes per second; `None` if unlimited.
    pub transfer_bytes_per_second: Option<u64>,
    /// Size of a chunk on disk, and the number of chunks in a file.
    pub(crate) layout: super::layout::ChunkLayout,
}

impl Default for SnapshotOptions {
    fn default() -> Self {
        Self {
            ratio: defaults::SNAPSHOT_RATIO,
            log_bytes_min: 64 << 20,
            log_bytes_max: defaults::LOG_BYTES_MAX,
            transfer_bytes_per_second: None,
            layout: super::layout::ChunkLayout::DEFAULT,
        }
    }
}

impl SnapshotOptions {
    /// Returns whether another snapshot is due, given `log_bytes` of applied records since the last
    /// snapshot of `snapshot_bytes`. While the node `replays` its log, snapshots are due sooner, so
    /// that its progress survives if the process is killed ([snap-6]).
    pub(crate) fn is_due(&self, log_bytes: u64, snapshot_bytes: u64, replays: bool) -> bool {
        let wanted = match replays {
            true => snapshot_bytes.max(self.log_bytes_min / REPLAY_GROWTH_DIVISOR),
            false => snapshot_bytes.saturating_mul(u64::from(self.ratio)).max(self.log_bytes_min),
        };
        log_bytes >= wanted
    }

    /// [snap-4] Returns the size of the log in bytes above which it is trimmed despite transfers in
    /// progress. A peer that is receiving a snapshot of that size must then start over.
    pub(crate) fn moving_bytes_max(&self, snapshot_bytes: u64) -> u64 {
        let more = self.log_bytes_max.max(snapshot_bytes);
        self.log_bytes_max.saturating_add(more)
    }

    /// Returns the options with another file size, for tests and simulation. A chunk must be whole
    /// blocks.
    #[must_use]
    pub fn in_files_of(mut self, chunk_bytes: u32, chunks: u32) -> Self {
        if let Some(layout) = super::layout::ChunkLayout::from_disk(chunk_bytes, chunks) {
            self.layout = layout;
        }
        self
    }
}

/// [trim-1] Returns the slot at which the log may begin. Only `own` matters for safety: below it
/// this node's durable state is complete. The rest is policy. Slightly lagging peers catch up from
/// the log, unless it has grown too large. The same limit ends the wait for a quorum of full
/// replicas, since the group may decide without one for days with an auxiliary.
pub(crate) fn trim_to(
    own: Slot,
    held: HeldSlots,
    log_bytes: u64,
    auxiliaries: bool,
    options: &SnapshotOptions,
) -> Slot {
    let wanted = match (log_bytes <= options.log_bytes_max, auxiliaries) {
        (true, _) => held.all.min(held.quorum),
        (false, false) => held.quorum,
        (false, true) => own,
    };
    own.min(wanted)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn log_is_retained_for_lagging_nodes_until_too_large() {
        let options = SnapshotOptions { log_bytes_max: 1000, ..SnapshotOptions::default() };
        let held = HeldSlots { all: Slot(5), quorum: Slot(50) };
        let to =
            |own, held, bytes, auxiliaries| trim_to(Slot(own), held, bytes, auxiliaries, &options);
        assert_eq!(to(100, held, 1000, false), Slot(5));
        assert_eq!(to(100, held, 1001, false), Slot(50));
        assert_eq!(to(20, held, 1001, false), Slot(20));
        assert_eq!(to(20, HeldSlots::default(), 9999, false), Slot(0));
        assert_eq!(to(100, held, 1000, true), Slot(5));
        assert_eq!(to(100, held, 1001, true), Slot(100), "with an auxiliary");
    }

    #[test]
    fn a_snapshot_is_due_by_ratio_but_not_for_a_small_log() {
        let options = SnapshotOptions { log_bytes_min: 100, ..SnapshotOptions::default() };
        assert!(!options.is_due(99, 0, false));
        assert!(options.is_due(100, 50, false));
        assert!(!options.is_due(199, 100, false));
        assert!(options.is_due(200, 100, false));
        assert!(!options.is_due(11, 0, true));
        assert!(options.is_due(12, 0, true));
        assert!(!options.is_due(99, 100, true));
        assert!(options.is_due(100, 100, true));
    }
}
