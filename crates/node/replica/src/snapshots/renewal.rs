//! Renewal of the service's files, which are damaged where they were not read yet: the service is
//! rebuilt from a snapshot, and serves as it is until that is complete and on this node's disk
//! ([scrub-8]).

use quorate_core::{slot::Slot, time::Time};

/// Time without a piece of a peer's snapshot after which the service stays as it is until the next
/// scrub.
pub(super) const PATIENCE_MS: u64 = 600_000;

/// Progress of a renewal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Renewal {
    /// No renewal is pending.
    Nothing,
    /// A snapshot is wanted; until then the log begins no later than `from`. The renewal is dropped
    /// at `until`.
    Wanted { from: Slot, until: Time },
    /// The service has dropped its state, and loads the snapshot.
    Loading,
    /// No peer sent a snapshot, or the service could not be set aside.
    Failed,
}

impl Renewal {
    pub(crate) fn is_under_way(self) -> bool {
        matches!(self, Self::Wanted { .. } | Self::Loading)
    }
}
