//! Taking snapshots of this node's own state and moving the log's start. Neither takes effect until
//! the base of the log references the result.

use quorate_core::{input::Input, slot::Slot};
use quorate_log::disk::Disk;

use super::{
    super::{
        BaseSwitch, RETRY_DELAY_MS, Renewal, SnapshotJob, Snapshots, header::SnapshotHeader,
        manifest::Manifest, note::BaseNote, taking::SnapshotInProgress, trimming::trim_to,
    },
    around::ReplicaParts,
};
use crate::{observing::events::Event, ports::service::StateMachine};

impl Snapshots {
    /// Applies the content of the log's new base, which is now durable.
    pub(super) fn on_rebased<D: Disk, S: StateMachine>(
        &mut self,
        start: Slot,
        around: &mut ReplicaParts<'_, '_, D, S>,
    ) {
        let Some(switch) = self.base_switch.take_if(|switch| switch.start <= start) else {
            return;
        };
        let BaseNote { eras, snapshot, is_hollow: hollow } = switch.note;
        around.outbox.counters.trims += u64::from(switch.moves_start);
        if let Some(old) = self.own_snapshot
            && snapshot != Some(old)
        {
            self.serving.drop_all();
            self.deletable_files.extend(old.parts());
        }
        self.own_snapshot = snapshot;
        self.eras = eras;
        self.reconfigurations.retain(|(slot, _)| *slot >= start);
        if let Some(header) = switch.installed_header {
            around.protocol.queue_input(Input::Installed { to: header.slot, eras: header.eras });
            around.outbox.counters.snapshots_installed += 1;
            around.observing.queue_event(Event::SnapshotInstalled { at: start });
        }
        around.protocol.queue_input(match hollow {
            true => Input::Forgotten(start),
            false => Input::Trimmed(start),
        });
        around.catching_up.on_log_start(start, around.protocol);
    }

    pub(super) fn begin_rebase<D: Disk, S: StateMachine>(
        &mut self,
        start: Slot,
        snapshot: Option<Manifest>,
        install: Option<SnapshotHeader>,
        around: &mut ReplicaParts<'_, '_, D, S>,
    ) {
        let eras = match &install {
            Some(header) => header.eras.clone(),
            None => self.eras_at(start),
        };
        let note = BaseNote { eras, snapshot, is_hollow: false };
        let trims = start > around.log().start();
        around.log().rebase(start, note.encode());
        self.base_switch =
            Some(BaseSwitch { start, note, installed_header: install, moves_start: trims });
    }

    /// [trim-1] Moves the start of the log to the slot that the core requested for this auxiliary,
    /// with no snapshot to replace the earlier slots. Has no effect if the log already starts
    /// there.
    fn begin_hollow<D: Disk, S: StateMachine>(&mut self, around: &mut ReplicaParts<'_, '_, D, S>) {
        let Some(start) = self.forgettable_to.take() else {
            return;
        };
        if start <= around.log().start() {
            return;
        }
        let note = BaseNote {
            eras: around.protocol.node().eras().clone(),
            snapshot: None,
            is_hollow: true,
        };
        around.log().rebase(start, note.encode());
        self.base_switch =
            Some(BaseSwitch { start, note, installed_header: None, moves_start: true });
    }

    /// Handles a snapshot that was written completely.
    pub(super) fn end_job<D: Disk, S: StateMachine>(
        &mut self,
        around: &mut ReplicaParts<'_, '_, D, S>,
    ) {
        if self.base_switch.is_some() {
            return;
        }
        match &mut self.job {
            None => {}
            Some(SnapshotJob::Taking(taking)) => {
                taking.writer.retry_operations(around.storing.log_mut().disk_mut());
                if let Some(manifest) = taking.writer.finished_manifest() {
                    self.next_part = taking.writer.parts_end();
                    self.job = None;
                    around.applying.service_mut().end_image();
                    around.outbox.counters.snapshots_taken += 1;
                    around.observing.queue_event(Event::SnapshotTaken {
                        at: manifest.slot,
                        bytes: manifest.bytes,
                    });
                    let start = around.log().start();
                    self.begin_rebase(start, Some(manifest), None, around);
                }
            }
            Some(SnapshotJob::Receiving(_)) => self.end_receiving(around),
        }
    }

    /// Abandons a snapshot after a failure of the disk or the service.
    pub(super) fn fail_job<D: Disk, S: StateMachine>(
        &mut self,
        why: String,
        around: &mut ReplicaParts<'_, '_, D, S>,
    ) {
        let again = around.now.plus_ms(RETRY_DELAY_MS);
        if let Some(SnapshotJob::Taking(_)) = self.job {
            self.no_snapshot_before = again;
            if self.operator_request.requested_slot().is_some() {
                self.operator_request.fail_request(why.clone());
            }
        } else {
            self.no_transfer_before = again;
        }
        around.observing.queue_event(Event::SnapshotFailed { why });
        if let Some(job) = self.job.take() {
            self.abandon_job(job, around);
        }
    }

    /// Abandons the snapshot that is being taken. Another one may start at once.
    fn abandon_snapshot<D: Disk, S: StateMachine>(
        &mut self,
        around: &mut ReplicaParts<'_, '_, D, S>,
    ) {
        if let Some(job) = self.job.take_if(|job| matches!(job, SnapshotJob::Taking(_))) {
            self.abandon_job(job, around);
        }
    }

    pub(super) fn abandon_job<D: Disk, S: StateMachine>(
        &mut self,
        job: SnapshotJob,
        around: &mut ReplicaParts<'_, '_, D, S>,
    ) {
        match job {
            SnapshotJob::Taking(taking) => {
                around.applying.service_mut().end_image();
                self.abandon_writer(taking.writer);
            }
            SnapshotJob::Receiving(receiving) => self.abandon_writer(receiving.writer),
        }
    }

    /// Starts work that is due: a snapshot, or a move of the log's start.
    pub(super) fn start_due_work<D: Disk, S: StateMachine>(
        &mut self,
        around: &mut ReplicaParts<'_, '_, D, S>,
    ) {
        if around.log().rebase_failure().is_none() {
            self.operator_request.record_progress();
        }
        if self.base_switch.is_some() {
            // The base is written once the disk permits; operators should not wait for that.
            if let Some(error) = around.log().rebase_failure().cloned()
                && self.operator_request.record_no_progress(around.now)
            {
                let why = format!("the log's base could not be replaced: {error}");
                self.operator_request.fail_request(why);
            }
            return;
        }
        self.begin_hollow(around);
        if around.protocol.node().is_hollow() {
            if self.operator_request.requested_slot().is_some() {
                let why = "an auxiliary that has forgotten what it held has no state".to_owned();
                self.operator_request.fail_request(why);
            }
            return;
        }
        if self.base_switch.is_some() {
            return;
        }
        let applied_to = around.applying.applied_to();
        let synced = around.applying.service_mut().synced_to();
        self.syncing_to = self.syncing_to.min(applied_to);
        let size = self.own_snapshot.map_or(0, |own| own.bytes);
        // [snap-6] Counts the slots that a restart would apply again, not those written. A sync
        // costs the same whether or not there is a snapshot for peers.
        let (covered, cost) = match synced {
            Some(synced) => (synced.max(self.syncing_to), 0),
            None => (self.own_snapshot.map_or(Slot(0), |own| own.slot), size),
        };
        let log = around.log();
        let (start, used) = (log.start(), log.used_bytes());
        let grown = log.bytes_before(applied_to).saturating_sub(log.bytes_before(covered));
        let due = self.options.is_due(grown, cost, applied_to < self.replay_to);
        if due && synced.is_some() {
            around.applying.service_mut().start_sync();
            self.syncing_to = applied_to;
        }
        let wanted = [self.needed_from, self.operator_request.requested_slot()];
        let asked = wanted.into_iter().flatten().any(|at| at <= applied_to);
        // [snap-4] With a new snapshot, a peer that is receiving the current one would have to
        // start over, and a peer that catches up from the log would need a snapshot again. A peer
        // that makes progress may finish even if the log exceeds its limit for a while.
        let now = around.now;
        let (roomy, moving) = match used {
            _ if used <= self.options.log_bytes_max => (true, true),
            _ => (false, used <= self.options.moving_bytes_max(size)),
        };
        let sends = self.own_snapshot.is_some_and(|own| {
            (roomy && self.serving.is_sending(&own))
                || (moving && self.serving.makes_progress(now, &own))
        });
        if sends {
            // Likewise, a snapshot that was started before must not use up the rate limit and then
            // replace the one that is being sent.
            self.abandon_snapshot(around);
        } else if asked || (due && synced.is_none()) {
            self.begin_taking(around);
        }
        let own = synced.or(self.own_snapshot.map(|own| own.slot)).unwrap_or(Slot(0));
        let sent = self.own_snapshot.filter(|_| sends).map(|own| own.slot);
        // [scrub-8] The snapshot is useful only together with the log that follows it.
        let renewed = match self.renewal {
            Renewal::Wanted { from, .. } if moving => Some(from),
            _ => None,
        };
        let kept = sent.into_iter().chain(renewed).chain(match moving {
            true => {
                let node = around.protocol.node();
                self.serving.first_needed_slot(now, |peer| node.peer_holds_to(peer))
            }
            false => None,
        });
        let own = kept.fold(own, Slot::min);
        // [trim-2] The log retains the bytes of streams until the store has them.
        self.streams_wanted_to = Some(own).filter(|own| *own > self.streams_stored_to);
        let own = own.min(self.streams_stored_to);
        let held = around.protocol.node().held_slots();
        // A damaged log may have fewer decisions than the snapshot covers; they are learned again.
        let decided_to = around.protocol.node().decided_to();
        let node = around.protocol.node();
        // [trim-1] With an active auxiliary, a full replica may be absent for long.
        let apart = node.configuration().members().iter().any(|m| m.auxiliary);
        let to = trim_to(own, held, used, apart, &self.options).min(decided_to);
        if to > start && around.log().bytes_freed_by(to) > 0 {
            // A snapshot below the start of the log is useless.
            let snapshot = self.own_snapshot.filter(|own| own.slot >= to);
            self.begin_rebase(to, snapshot, None, around);
        }
    }

    pub(super) fn begin_taking<D: Disk, S: StateMachine>(
        &mut self,
        around: &mut ReplicaParts<'_, '_, D, S>,
    ) {
        if self.fetching.needed_slot().is_none() {
            // An earlier process started to receive a snapshot that is no longer needed.
            self.abandon_transfer(around);
        }
        let ready = self.job.is_none()
            && self.resuming.is_none()
            && self.loading.is_none()
            && around.now >= self.no_snapshot_before
            && around.applying.is_fully_committed();
        let at = around.applying.applied_to();
        if !ready || at == Slot::FIRST {
            return;
        }
        if self.own_snapshot.is_some_and(|own| own.slot >= at) {
            self.needed_from = None;
            return;
        }
        if !around.applying.service_mut().begin_image() {
            if self.operator_request.requested_slot().is_some() {
                let why = "the service gives no image of its state, or not now";
                self.operator_request.fail_request(why.to_owned());
            }
            self.no_snapshot_before = around.now.plus_ms(RETRY_DELAY_MS);
            return;
        }
        self.needed_from = None;
        let header = SnapshotHeader { cluster: self.cluster, slot: at, eras: self.eras_at(at) };
        let meta = around.applying.metadata();
        let taking = SnapshotInProgress::new(&header, meta, self.options.layout, self.next_part);
        self.job = Some(SnapshotJob::Taking(Box::new(taking)));
    }

    pub(super) fn take_snapshot<D: Disk, S: StateMachine>(
        &mut self,
        around: &mut ReplicaParts<'_, '_, D, S>,
    ) {
        let Some(SnapshotJob::Taking(taking)) = &mut self.job else {
            return;
        };
        if taking.is_imaged() || !taking.writer.has_room() {
            return;
        }
        // If the service is behind because of its image, the rate limit must not delay it further.
        if !self.rate_limit.can_transfer(around.now) && around.applying.service_accepts_commands() {
            self.next_turn_at = self.rate_limit.wake_at();
            return;
        }
        let disk = around.storing.log_mut().disk_mut();
        match taking.write_next_items(around.applying.service_mut(), disk) {
            Ok(bytes) => {
                self.rate_limit.spend_bytes(bytes);
                // Take one step per turn, to keep turns short.
                self.next_turn_at = Some(around.now);
            }
            Err(_) => self.fail_job("the service could not be read".to_owned(), around),
        }
    }

    /// Handles damage to this node's snapshot: takes another one, or requests a peer's.
    pub(super) fn on_own_damaged<D: Disk, S: StateMachine>(
        &mut self,
        lost: Manifest,
        why: &str,
        around: &mut ReplicaParts<'_, '_, D, S>,
    ) {
        if self.own_snapshot != Some(lost) {
            return;
        }
        let why = format!("the snapshot at slot {} is damaged: {why}", lost.slot);
        around.observing.queue_event(Event::SnapshotFailed { why });
        self.own_snapshot = None;
        self.serving.drop_all();
        self.deletable_files.extend(lost.parts());
        self.needed_from = Some(around.applying.applied_to());
        (self.no_snapshot_before, self.no_transfer_before) = (around.now, around.now);
    }
}
