//! Renewal of the service's damaged files from a snapshot. The service serves with its old state
//! until the snapshot is complete on this node's disk ([scrub-8]).

use quorate_core::{slot::Slot, time::Time};

/// Time in milliseconds without progress of a peer's snapshot after which a renewal is abandoned.
pub(super) const STALL_TIMEOUT_MS: u64 = 600_000;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Renewal {
    /// No renewal is pending.
    Nothing,
    /// A snapshot is needed. Until one is available, the log begins no later than `from`. The
    /// renewal is abandoned at `deadline`.
    Wanted { from: Slot, deadline: Time },
    /// The service has dropped its state and loads the snapshot.
    Loading,
    /// No peer sent a snapshot, or the service could not drop its state.
    Failed,
}

impl Renewal {
    pub(crate) fn is_under_way(self) -> bool {
        matches!(self, Self::Wanted { .. } | Self::Loading)
    }
}
