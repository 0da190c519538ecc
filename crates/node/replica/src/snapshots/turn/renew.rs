//! The service is rebuilt, once the replacement of its files is here.

use quorate_log::disk::Disk;

use super::{
    super::{Renewal, Snapshots},
    Around,
};
use crate::{observing::events::Event, service::StateMachine};

impl Snapshots {
    /// Continues the renewal. Before anything is trimmed: the snapshot that arrived in this turn
    /// counts only with the log after it.
    pub(super) fn go_on_renewing<D: Disk, S: StateMachine>(
        &mut self,
        around: &mut Around<'_, '_, D, S>,
    ) {
        let start = around.log().start();
        match self.renewal {
            Renewal::Nothing | Renewal::Failed => {}
            Renewal::Wanted { until, .. } if around.now >= until => {
                self.renewal = Renewal::Failed;
            }
            Renewal::Wanted { .. } => {
                let failed = around.applying.service().has_failed();
                let busy = self.job.is_some() || self.loading.is_some() || self.spoiled || failed;
                // A leader hands over first, for it would serve nothing during the renewal.
                if busy || around.protocol.leads() || !self.has_replacement(start) {
                    return;
                }
                self.renewal = match around.applying.service_mut().renew() {
                    Ok(()) => Renewal::Loading,
                    // It was let go of just now, to be opened again.
                    Err(_) if around.applying.service().has_failed() => return,
                    Err(why) => {
                        around.observing.tell(Event::SnapshotFailed { why });
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
