//! Renewal of a service with damaged files, from a snapshot that replaces all of them.

use quorate_core::{slot::Slot, time::Time};
use quorate_log::disk::Disk;

use super::{
    super::{Renewal, Snapshots, renewal::STALL_TIMEOUT_MS},
    around::ReplicaParts,
};
use crate::{observing::events::Event, ports::service::StateMachine};

impl Snapshots {
    /// Starts a renewal of the service. The log begins at `start`.
    pub(crate) fn begin_renewal(&mut self, now: Time, start: Slot) {
        if !self.renewal.is_under_way() {
            let until = now.plus_ms(STALL_TIMEOUT_MS);
            self.renewal = Renewal::Wanted { from: start, deadline: until };
        }
    }

    pub(crate) fn renewal(&self) -> Renewal {
        self.renewal
    }

    /// Extends the time limit of the renewal because the transfer of a peer's snapshot makes
    /// progress.
    pub(in crate::snapshots) fn extend_renewal(&mut self, now: Time) {
        if let Renewal::Wanted { deadline: until, .. } = &mut self.renewal {
            *until = now.plus_ms(STALL_TIMEOUT_MS);
        }
    }

    /// Returns whether a snapshot must be fetched for the renewal.
    pub(in crate::snapshots) fn lacks_replacement(&self, start: Slot) -> bool {
        matches!(self.renewal, Renewal::Wanted { .. })
            && self.base_switch.is_none()
            && !self.has_replacement(start)
    }

    /// Returns whether the disk has everything to rebuild the service: a snapshot, and the log
    /// after it.
    pub(in crate::snapshots) fn has_replacement(&self, start: Slot) -> bool {
        self.base_switch.is_none() && self.own_snapshot.is_some_and(|own| own.slot >= start)
    }

    /// Returns whether the renewal only waits until this node no longer leads.
    pub(crate) fn waits_to_lose_leadership(&self, start: Slot) -> bool {
        matches!(self.renewal, Renewal::Wanted { .. }) && self.has_replacement(start)
    }

    /// Continues the renewal. Called before the log is trimmed, because a snapshot that arrived in
    /// this turn is useful only together with the log after it.
    pub(super) fn advance_renewal<D: Disk, S: StateMachine>(
        &mut self,
        around: &mut ReplicaParts<'_, '_, D, S>,
    ) {
        let start = around.log().start();
        match self.renewal {
            Renewal::Nothing | Renewal::Failed => {}
            Renewal::Wanted { deadline: until, .. } if around.now >= until => {
                self.renewal = Renewal::Failed;
            }
            Renewal::Wanted { .. } => {
                let failed = around.applying.service().has_failed();
                let busy = self.job.is_some()
                    || self.loading.is_some()
                    || self.is_service_spoiled
                    || failed;
                // A leader hands over first, since it would serve no requests during the renewal.
                if busy || around.protocol.is_leader() || !self.has_replacement(start) {
                    return;
                }
                self.renewal = match around.applying.service_mut().renew() {
                    Ok(()) => Renewal::Loading,
                    // The service has just closed its files, and will open them again.
                    Err(_) if around.applying.service().has_failed() => return,
                    Err(why) => {
                        around.observing.queue_event(Event::SnapshotFailed { why });
                        Renewal::Failed
                    }
                };
            }
            Renewal::Loading => {
                let applying = &around.applying;
                let down = applying.service().has_failed() || applying.condition().is_down();
                if !down && self.loading.is_none() && applying.applied_to() >= start {
                    self.renewal = Renewal::Nothing;
                }
            }
        }
    }
}
