//! Renewal of the service's files, which are damaged where they were not read yet: the service is
//! rebuilt from a snapshot, and serves as it is until that is complete and on this node's disk
//! ([scrub-8]).

use quorate_core::{slot::Slot, time::Time};

use super::Snapshots;

/// Time without a piece of a peer's snapshot after which the service stays as it is until the next
/// scrub.
const PATIENCE_MS: u64 = 600_000;

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

impl Snapshots {
    /// Starts a renewal: a scrub found files of the service damaged; the log begins here.
    pub(crate) fn renew(&mut self, now: Time, start: Slot) {
        if !self.renewal.is_under_way() {
            let until = now.plus_ms(PATIENCE_MS);
            self.renewal = Renewal::Wanted { from: start, until };
        }
    }

    pub(crate) fn renewal(&self) -> Renewal {
        self.renewal
    }

    /// Prolongs the renewal: a peer's snapshot makes progress.
    pub(super) fn renewal_moves(&mut self, now: Time) {
        if let Renewal::Wanted { until, .. } = &mut self.renewal {
            *until = now.plus_ms(PATIENCE_MS);
        }
    }

    /// Returns whether a snapshot is to be fetched for it.
    pub(super) fn lacks_replacement(&self, start: Slot) -> bool {
        matches!(self.renewal, Renewal::Wanted { .. })
            && self.switch.is_none()
            && !self.has_replacement(start)
    }

    /// Returns whether this node's disk has everything to rebuild the service: a snapshot, and the
    /// log after it.
    pub(super) fn has_replacement(&self, start: Slot) -> bool {
        self.switch.is_none() && self.own.is_some_and(|own| own.at >= start)
    }

    /// Returns whether everything is here, and only this node's leadership is in the way.
    pub(crate) fn waits_to_follow(&self, start: Slot) -> bool {
        matches!(self.renewal, Renewal::Wanted { .. }) && self.has_replacement(start)
    }
}
