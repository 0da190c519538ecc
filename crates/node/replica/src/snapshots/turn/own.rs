//! Taking snapshots of this node's own state and moving the log's start. Neither takes effect until
//! the base of the log references the result.

use quorate_core::{input::Input, slot::Slot};
use quorate_log::disk::Disk;

use super::{
    super::{
        Job, PAUSE_MS, Renewal, Snapshots, Switch, header::Header, manifest::Manifest, note::Note,
        taking::SnapshotInProgress, trimming::trim_to,
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
        let Some(switch) = self.switch.take_if(|switch| switch.start <= start) else {
            return;
        };
        let Note { eras, snapshot, hollow } = switch.note;
        around.out.counters.trims += u64::from(switch.trims);
        if let Some(old) = self.own_snapshot
            && snapshot != Some(old)
        {
            self.serving.drop_all();
            self.deletable_files.extend(old.parts());
        }
        self.own_snapshot = snapshot;
        self.eras = eras;
        self.changes.retain(|(slot, _)| *slot >= start);
        if let Some(header) = switch.install {
            around.protocol.later(Input::Installed { to: header.at, eras: header.eras });
            around.out.counters.snapshots_installed += 1;
            around.observing.queue_event(Event::SnapshotInstalled { at: start });
        }
        around.protocol.later(match hollow {
            true => Input::Forgotten(start),
            false => Input::Trimmed(start),
        });
        around.catching_up.begins_at(start, around.protocol);
    }

    pub(super) fn rebase<D: Disk, S: StateMachine>(
        &mut self,
        start: Slot,
        snapshot: Option<Manifest>,
        install: Option<Header>,
        around: &mut ReplicaParts<'_, '_, D, S>,
    ) {
        let eras = match &install {
            Some(header) => header.eras.clone(),
            None => self.eras_at(start),
        };
        let note = Note { eras, snapshot, hollow: false };
        let trims = start > around.log().start();
        around.log().rebase(start, note.encode());
        self.switch = Some(Switch { start, note, install, trims });
    }

    /// [trim-1] Moves the start of the log to the slot that the core requested for this auxiliary,
    /// with no snapshot to replace the earlier slots. Has no effect if the log already starts
    /// there.
    fn begin_hollow<D: Disk, S: StateMachine>(&mut self, around: &mut ReplicaParts<'_, '_, D, S>) {
        let Some(start) = self.forget.take() else {
            return;
        };
        if start <= around.log().start() {
            return;
        }
        let note =
            Note { eras: around.protocol.node().eras().clone(), snapshot: None, hollow: true };
        around.log().rebase(start, note.encode());
        self.switch = Some(Switch { start, note, install: None, trims: true });
    }

    /// Handles a snapshot that was written completely.
    pub(super) fn end_job<D: Disk, S: StateMachine>(
        &mut self,
        around: &mut ReplicaParts<'_, '_, D, S>,
    ) {
        if self.switch.is_some() {
            return;
        }
        match &mut self.job {
            None => {}
            Some(Job::Taking(taking)) => {
                taking.writer.retry_operations(around.storing.log_mut().disk_mut());
                if let Some(manifest) = taking.writer.finished_manifest() {
                    self.next_part = taking.writer.parts_end();
                    self.job = None;
                    around.applying.service_mut().end_image();
                    around.out.counters.snapshots_taken += 1;
                    around.observing.queue_event(Event::SnapshotTaken {
                        at: manifest.at,
                        bytes: manifest.bytes,
                    });
                    let start = around.log().start();
                    self.rebase(start, Some(manifest), None, around);
                }
            }
            Some(Job::Receiving(_)) => self.end_receiving(around),
        }
    }

    /// Abandons a snapshot after a failure of the disk or the service.
    pub(super) fn fail_job<D: Disk, S: StateMachine>(
        &mut self,
        why: String,
        around: &mut ReplicaParts<'_, '_, D, S>,
    ) {
        let again = around.now.plus_ms(PAUSE_MS);
        if let Some(Job::Taking(_)) = self.job {
            self.take_at = again;
            if self.asking.requested_slot().is_some() {
                self.asking.fail(why.clone());
            }
        } else {
            self.not_before = again;
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
        if let Some(job) = self.job.take_if(|job| matches!(job, Job::Taking(_))) {
            self.abandon_job(job, around);
        }
    }

    pub(super) fn abandon_job<D: Disk, S: StateMachine>(
        &mut self,
        job: Job,
        around: &mut ReplicaParts<'_, '_, D, S>,
    ) {
        match job {
            Job::Taking(taking) => {
                around.applying.service_mut().end_image();
                self.abandon(taking.writer);
            }
            Job::Receiving(receiving) => self.abandon(receiving.writer),
        }
    }

    /// Starts work that is due: a snapshot, or a move of the log's start.
    pub(super) fn start_due_work<D: Disk, S: StateMachine>(
        &mut self,
        around: &mut ReplicaParts<'_, '_, D, S>,
    ) {
        if around.log().rebase_failure().is_none() {
            self.asking.goes_on();
        }
        if self.switch.is_some() {
            // The base is written once the disk permits; operators should not wait for that.
            if let Some(error) = around.log().rebase_failure().cloned()
                && self.asking.is_in_vain(around.now)
            {
                let why = format!("the log's base could not be replaced: {error}");
                self.asking.fail(why);
            }
            return;
        }
        self.begin_hollow(around);
        if around.protocol.node().is_hollow() {
            if self.asking.requested_slot().is_some() {
                let why = "an auxiliary that has forgotten what it held has no state".to_owned();
                self.asking.fail(why);
            }
            return;
        }
        if self.switch.is_some() {
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
            None => (self.own_snapshot.map_or(Slot(0), |own| own.at), size),
        };
        let log = around.log();
        let (start, used) = (log.start(), log.used_bytes());
        let grown = log.bytes_before(applied_to).saturating_sub(log.bytes_before(covered));
        let due = self.options.is_due(grown, cost, applied_to < self.replay_to);
        if due && synced.is_some() {
            around.applying.service_mut().start_sync();
            self.syncing_to = applied_to;
        }
        let wanted = [self.needed_from, self.asking.requested_slot()];
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
            (roomy && self.serving.uses(&own)) || (moving && self.serving.moves(now, &own))
        });
        if sends {
            // Likewise, a snapshot that was started before must not use up the rate limit and then
            // replace the one that is being sent.
            self.abandon_snapshot(around);
        } else if asked || (due && synced.is_none()) {
            self.begin_taking(around);
        }
        let own = synced.or(self.own_snapshot.map(|own| own.at)).unwrap_or(Slot(0));
        let sent = self.own_snapshot.filter(|_| sends).map(|own| own.at);
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
        self.streams_wanted_to = Some(own).filter(|own| *own > self.streams_kept_to);
        let own = own.min(self.streams_kept_to);
        let held = around.protocol.node().held_slots();
        // A damaged log may have fewer decisions than the snapshot covers; they are learned again.
        let decided_to = around.protocol.node().decided_to();
        let node = around.protocol.node();
        // [trim-1] With an active auxiliary, a full replica may be absent for long.
        let apart = node.configuration().members().iter().any(|m| m.auxiliary);
        let to = trim_to(own, held, used, apart, &self.options).min(decided_to);
        if to > start && around.log().freed_by(to) > 0 {
            // A snapshot below the start of the log is useless.
            let snapshot = self.own_snapshot.filter(|own| own.at >= to);
            self.rebase(to, snapshot, None, around);
        }
    }

    pub(super) fn begin_taking<D: Disk, S: StateMachine>(
        &mut self,
        around: &mut ReplicaParts<'_, '_, D, S>,
    ) {
        if self.fetching.needed().is_none() {
            // An earlier process started to receive a snapshot that is no longer needed.
            self.abandon_transfer(around);
        }
        let ready = self.job.is_none()
            && self.resuming.is_none()
            && self.loading.is_none()
            && around.now >= self.take_at
            && around.applying.is_whole();
        let at = around.applying.applied_to();
        if !ready || at == Slot::FIRST {
            return;
        }
        if self.own_snapshot.is_some_and(|own| own.at >= at) {
            self.needed_from = None;
            return;
        }
        if !around.applying.service_mut().begin_image() {
            if self.asking.requested_slot().is_some() {
                let why = "the service gives no image of its state, or not now";
                self.asking.fail(why.to_owned());
            }
            self.take_at = around.now.plus_ms(PAUSE_MS);
            return;
        }
        self.needed_from = None;
        let header = Header { cluster: self.cluster, at, eras: self.eras_at(at) };
        let meta = around.applying.metadata();
        let taking = SnapshotInProgress::new(&header, meta, self.options.layout, self.next_part);
        self.job = Some(Job::Taking(Box::new(taking)));
    }

    pub(super) fn take_snapshot<D: Disk, S: StateMachine>(
        &mut self,
        around: &mut ReplicaParts<'_, '_, D, S>,
    ) {
        let Some(Job::Taking(taking)) = &mut self.job else {
            return;
        };
        if taking.is_imaged() || !taking.writer.has_room() {
            return;
        }
        // If the service is behind because of its image, the rate limit must not delay it further.
        if !self.allowance.may_transfer(around.now) && around.applying.service_takes() {
            self.go_on_at = self.allowance.wake_at();
            return;
        }
        let disk = around.storing.log_mut().disk_mut();
        match taking.write_next_items(around.applying.service_mut(), disk) {
            Ok(bytes) => {
                self.allowance.spend_bytes(bytes);
                // Take one step per turn, to keep turns short.
                self.go_on_at = Some(around.now);
            }
            Err(_) => self.fail_job("the service could not be read".to_owned(), around),
        }
    }

    /// Handles damage to this node's snapshot: takes another one, or requests a peer's.
    pub(super) fn lose_own<D: Disk, S: StateMachine>(
        &mut self,
        lost: Manifest,
        why: &str,
        around: &mut ReplicaParts<'_, '_, D, S>,
    ) {
        if self.own_snapshot != Some(lost) {
            return;
        }
        let why = format!("the snapshot at slot {} is damaged: {why}", lost.at);
        around.observing.queue_event(Event::SnapshotFailed { why });
        self.own_snapshot = None;
        self.serving.drop_all();
        self.deletable_files.extend(lost.parts());
        self.needed_from = Some(around.applying.applied_to());
        (self.take_at, self.not_before) = (around.now, around.now);
    }
}
