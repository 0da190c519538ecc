//! Loading of this node's own snapshot when the service is behind it.

use quorate_core::slot::Slot;
use quorate_log::disk::Disk;

use super::{
    super::{
        SnapshotJob, Snapshots,
        loading::{LoadFailure, Loading},
        manifest::Manifest,
        reading::Chunk,
    },
    around::{RETRY_DELAY_MS, ReplicaParts},
};
use crate::{observing::events::Event, ports::service::StateMachine};

/// Delay in milliseconds before the next item while the service's writes are behind.
const BEHIND_RETRY_MS: u64 = 2;

impl Snapshots {
    pub(super) fn can_load(
        &self,
        start: Slot,
        applied_to: Slot,
        persistent: bool,
        lost: Option<Slot>,
    ) -> bool {
        let usable = |own: &Manifest| {
            let bridges = lost.is_some_and(|lost| lost < own.slot);
            let needed = applied_to < start || !persistent || bridges;
            own.slot > applied_to && own.slot >= start && needed
        };
        self.own_snapshot.as_ref().is_some_and(usable)
    }

    /// Makes the service load this node's snapshot if the service is behind it.
    pub(super) fn advance_load<D: Disk, S: StateMachine>(
        &mut self,
        around: &mut ReplicaParts<'_, '_, D, S>,
    ) {
        if self.base_switch.is_some() {
            return;
        }
        if self.is_service_spoiled {
            if around.now < self.next_load_at {
                return;
            }
            // The service has dropped its state. It starts over with the log or another snapshot.
            if let Err(error) = around.applying.restart_from_empty() {
                self.next_load_at = around.now.plus_ms(RETRY_DELAY_MS);
                let why = error.to_string();
                around.observing.queue_event(Event::SnapshotFailed { why });
                return;
            }
            self.is_service_spoiled = false;
        }
        if self.loading.is_none() {
            let start = around.log().start();
            let applied_to = around.applying.applied_to();
            let persistent = around.applying.service_mut().synced_to().is_some();
            let lost = around.catching_up.first_lost_slot().map(|(lost, _)| lost);
            let Some(own) =
                self.own_snapshot.filter(|_| self.can_load(start, applied_to, persistent, lost))
            else {
                if applied_to < start && !around.protocol.node().is_auxiliary() {
                    around.applying.set_loading("it waits for a snapshot".to_owned());
                }
                return;
            };
            if around.now < self.next_load_at {
                return;
            }
            if let Some(SnapshotJob::Taking(_)) = self.job
                && let Some(job) = self.job.take()
            {
                self.abandon_job(job, around);
            }
            match Loading::begin_load(own, around.applying.service_mut()) {
                Ok(loading) => self.loading = Some(loading),
                Err(error) => {
                    self.next_load_at = around.now.plus_ms(RETRY_DELAY_MS);
                    let why = error.to_string();
                    around.observing.queue_event(Event::SnapshotFailed { why });
                    return;
                }
            }
        }
        if let Some(loading) = &mut self.loading {
            let (done, all) = (loading.bytes(), loading.manifest().bytes);
            let percent = (u128::from(done) * 100).checked_div(u128::from(all));
            let percent = percent.unwrap_or(100);
            around.applying.set_loading(format!("it takes in a snapshot: {percent} %"));
            // The service accepts no items until its writes have caught up.
            if around.now < self.next_load_at {
                return;
            }
            if around.applying.service_accepts_commands() {
                loading.read(&mut self.reads, around.storing.log_mut().disk_mut());
            } else {
                self.next_load_at = around.now.plus_ms(BEHIND_RETRY_MS);
            }
        }
    }

    pub(super) fn on_chunk_to_load<D: Disk, S: StateMachine>(
        &mut self,
        chunk: Chunk,
        around: &mut ReplicaParts<'_, '_, D, S>,
    ) {
        let Some(loading) = &mut self.loading else {
            return;
        };
        let service = around.applying.service_mut();
        match loading.on_chunk(self.cluster, chunk, service) {
            Ok(None) => {}
            Ok(Some(meta)) => {
                let at = loading.manifest().slot;
                self.loading = None;
                around.outbox.counters.snapshots_loaded += 1;
                around.applying.on_loaded(at, meta);
                let sessions = around.applying.sessions();
                around.origin.on_skipped(around.now, sessions, around.completions);
                around.observing.queue_event(Event::SnapshotLoaded { at });
            }
            Err(LoadFailure::NotNow) => self.next_load_at = around.now.plus_ms(RETRY_DELAY_MS),
            Err(LoadFailure::Snapshot(why)) => {
                let manifest = *loading.manifest();
                self.loading = None;
                self.is_service_spoiled = true;
                self.on_own_damaged(manifest, &why, around);
            }
            Err(LoadFailure::Service(why)) => {
                self.loading = None;
                self.next_load_at = around.now.plus_ms(RETRY_DELAY_MS);
                around.observing.queue_event(Event::SnapshotFailed { why });
            }
        }
    }
}
