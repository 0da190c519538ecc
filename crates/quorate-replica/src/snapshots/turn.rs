//! What snapshots do in a turn: what the disk has done is taken in, what is due begins.

use quorate_core::{input::Input, node_id::NodeId, node_set::NodeSet, slot::Slot, time::Time};
use quorate_disk::{Completed, Disk};
use quorate_log::Log;
use quorate_wire::{Frame, Lane};

use super::{
    Job, PAUSE_MS, Snapshots, Switch,
    fetching::{Offer, Question, Target},
    header::Header,
    loading::{Failed, Loading},
    manifest::Manifest,
    note::Note,
    reading::{Chunk, Purpose, READS_MAX, Unread},
    receiving::{self, Receiving},
    taking::Taking,
    trimming::trim_to,
};
use crate::{
    applying::Applying,
    catching_up::CatchingUp,
    completions::Completions,
    observing::{Observing, events::Event},
    outbox::{Outbox, RETRY_MS},
    peers::Peers,
    proposing::origin::Origin,
    protocol::Protocol,
    service::StateMachine,
    storing::Storing,
};

/// While nothing is under way, what is due is looked for this often, if there are turns.
const LOOK_MS: u64 = 5;
/// What cannot be read or taken at the moment is tried again after this.
const SHORT_MS: u64 = 100;
/// A service that is behind with its writing is given more after this.
const BEHIND_MS: u64 = 2;
/// Bytes of a snapshot that is being received are named to the disk by this.
const KEEP_TOKEN: u64 = 0;

/// What snapshots look at and act on, for one turn.
pub(crate) struct Around<'a, 'o, D: Disk, S> {
    pub(crate) now: Time,
    pub(crate) storing: &'a mut Storing<D>,
    pub(crate) applying: &'a mut Applying<S>,
    pub(crate) origin: &'a mut Origin,
    pub(crate) completions: &'a mut Completions,
    pub(crate) catching_up: &'a mut CatchingUp,
    pub(crate) protocol: &'a mut Protocol,
    pub(crate) peers: &'a Peers,
    pub(crate) observing: &'a mut Observing,
    pub(crate) out: &'a mut Outbox<'o>,
}

impl<D: Disk, S: StateMachine> Around<'_, '_, D, S> {
    fn log(&mut self) -> &mut Log<D> {
        self.storing.log_mut()
    }

    fn disk(&mut self) -> &mut D {
        self.storing.log_mut().disk_mut()
    }
}

impl Snapshots {
    /// A turn. What was applied in it is committed.
    pub(crate) fn advance<D: Disk, S: StateMachine>(&mut self, around: &mut Around<'_, '_, D, S>) {
        self.go_on_at = None;
        while let Some(completed) = around.log().next_other() {
            self.on_completed(completed, around);
        }
        if let Some(start) = around.log().rebased() {
            self.on_rebased(start, around);
        }
        // Nothing is under way: what may begin is looked for now and then only.
        if self.is_quiet() {
            if around.now < self.look_at {
                return;
            }
            self.look_at = around.now.plus_ms(LOOK_MS);
        }
        self.end_job(around);
        if self.switch.is_none()
            && let Some(own) = self.own()
        {
            self.asking.have(own);
        }
        self.decide(around);
        self.take(around);
        self.fetch(around);
        self.serve(around);
        self.load(around);
        self.sweep(around.disk());
        // What could not be started, for want of descriptors, tells nobody when it can be.
        if self.job.as_ref().is_some_and(|job| !job.writer().is_busy()) {
            let at = around.now.plus_ms(SHORT_MS);
            self.go_on_at = crate::wake::earliest([self.go_on_at, Some(at)]);
        }
    }

    fn on_completed<D: Disk, S: StateMachine>(
        &mut self,
        completed: Completed,
        around: &mut Around<'_, '_, D, S>,
    ) {
        let disk = around.storing.log_mut().disk_mut();
        let file = match completed {
            Completed::Read {
                token,
                buffer,
                result,
                ..
            } => {
                self.reads.ended(token, buffer, result, disk);
                while let Some(chunk) = self.reads.take() {
                    self.on_chunk(chunk, around);
                }
                return;
            }
            // A file that stays is tried again at the next start.
            Completed::Retired { .. } => return,
            // Without it a transfer that is interrupted begins again.
            Completed::Kept { .. } => return,
            Completed::Written { file, .. }
            | Completed::Flushed { file, .. }
            | Completed::Prepared { file, .. } => file,
        };
        if let Some(job) = &mut self.job
            && job.writer().parts().any(|part| part == file)
        {
            if let Err(error) = job.writer_mut().on_completed(completed, disk) {
                self.fail_job(error.to_string(), around);
            }
            return;
        }
        for writer in &mut self.ending {
            if writer.parts().any(|part| part == file) {
                // It was given up.
                let _ = writer.on_completed(completed, disk);
                return;
            }
        }
    }

    fn on_chunk<D: Disk, S: StateMachine>(
        &mut self,
        chunk: Chunk,
        around: &mut Around<'_, '_, D, S>,
    ) {
        match chunk.purpose {
            Purpose::Load => self.on_chunk_to_load(chunk, around),
            Purpose::Serve(to) => self.on_chunk_to_serve(to, chunk, around),
            Purpose::Resume => self.on_chunk_to_resume(chunk, around),
        }
    }

    /// The base is durable: what it says is so.
    fn on_rebased<D: Disk, S: StateMachine>(
        &mut self,
        start: Slot,
        around: &mut Around<'_, '_, D, S>,
    ) {
        let Some(switch) = self.switch.take_if(|switch| switch.start <= start) else {
            return;
        };
        let Note {
            eras,
            snapshot,
            hollow,
        } = switch.note;
        around.out.counters.trims += u64::from(switch.trims);
        if let Some(old) = self.own
            && snapshot != Some(old)
        {
            self.serving.clear();
            self.idle.extend(old.parts());
        }
        self.own = snapshot;
        self.eras = eras;
        self.changes.retain(|(slot, _)| *slot >= start);
        if let Some(header) = switch.install {
            around.protocol.later(Input::Installed {
                to: header.at,
                eras: header.eras,
            });
            around.out.counters.snapshots_installed += 1;
            around
                .observing
                .tell(Event::SnapshotInstalled { at: start });
        }
        around.protocol.later(match hollow {
            true => Input::Forgotten(start),
            false => Input::Trimmed(start),
        });
        around.catching_up.begins_at(start, around.protocol);
    }

    /// Makes this the base of the log.
    fn rebase<D: Disk, S: StateMachine>(
        &mut self,
        start: Slot,
        snapshot: Option<Manifest>,
        install: Option<Header>,
        around: &mut Around<'_, '_, D, S>,
    ) {
        let eras = match &install {
            Some(header) => header.eras.clone(),
            None => self.eras_at(start),
        };
        let note = Note {
            eras,
            snapshot,
            hollow: false,
        };
        let trims = start > around.log().start();
        around.log().rebase(start, note.encode());
        self.switch = Some(Switch {
            start,
            note,
            install,
            trims,
        });
    }

    /// [trim-1] The log begins where this auxiliary asked for, and nothing stands for what was below. Void
    /// if it begins there anyhow.
    fn begin_hollow<D: Disk, S: StateMachine>(&mut self, around: &mut Around<'_, '_, D, S>) {
        let Some(start) = self.forget.take() else {
            return;
        };
        if start <= around.log().start() {
            return;
        }
        let note = Note {
            eras: around.protocol.node().eras().clone(),
            snapshot: None,
            hollow: true,
        };
        around.log().rebase(start, note.encode());
        self.switch = Some(Switch {
            start,
            note,
            install: None,
            trims: true,
        });
    }

    /// The snapshot that was written is whole.
    fn end_job<D: Disk, S: StateMachine>(&mut self, around: &mut Around<'_, '_, D, S>) {
        if self.switch.is_some() {
            return;
        }
        match &mut self.job {
            None => {}
            Some(Job::Taking(taking)) => {
                taking.writer.tend(around.storing.log_mut().disk_mut());
                if let Some(manifest) = taking.writer.done() {
                    self.next_part = taking.writer.parts_end();
                    self.job = None;
                    around.applying.service_mut().end_image();
                    around.out.counters.snapshots_taken += 1;
                    around.observing.tell(Event::SnapshotTaken {
                        at: manifest.at,
                        bytes: manifest.bytes,
                    });
                    let start = around.log().start();
                    self.rebase(start, Some(manifest), None, around);
                }
            }
            Some(Job::Receiving(receiving)) => {
                receiving.writer.tend(around.storing.log_mut().disk_mut());
                match receiving.done() {
                    None => {}
                    Some(Err(wrong)) => self.refuse(wrong.0, around),
                    Some(Ok((manifest, header))) => {
                        let node = around.protocol.node();
                        // [snap-2] Behind what is decided here it is the service's alone.
                        let unknown = header.at > node.decided_to();
                        // [disk-8] Nor does anybody need what the log has lost below.
                        let lost = around.catching_up.lost_value();
                        // [trim-1] A node that has forgotten what is below its log takes any.
                        let unknown = unknown || node.is_hollow();
                        let ahead = unknown || lost.is_some_and(|(lost, _)| lost < header.at);
                        if unknown && !node.may_install(header.at, &header.eras) {
                            return self.refuse("it contradicts what is known here", around);
                        }
                        self.next_part = receiving.writer.parts_end();
                        self.job = None;
                        self.fetching.stop();
                        let start = around.log().start();
                        let (start, install) = match ahead {
                            true => (header.at, Some(header)),
                            false => (start, None),
                        };
                        self.rebase(start, Some(manifest), install, around);
                    }
                }
            }
        }
    }

    /// What was received is not what was wanted: all of it is given up.
    fn refuse<D: Disk, S: StateMachine>(&mut self, why: &str, around: &mut Around<'_, '_, D, S>) {
        if let Some(source) = self.fetching.source() {
            let why = format!("node {source}'s snapshot was refused: {why}");
            around.observing.tell(Event::SnapshotFailed { why });
            self.fetching.disappoint(source);
        }
        if let Some(job) = self.job.take() {
            self.give_up(job, around);
        }
    }

    /// The disk does not take it, or the service does not give it.
    fn fail_job<D: Disk, S: StateMachine>(
        &mut self,
        why: String,
        around: &mut Around<'_, '_, D, S>,
    ) {
        self.not_before = around.now.plus_ms(PAUSE_MS);
        if let Some(Job::Taking(_)) = self.job
            && self.asking.wanted().is_some()
        {
            self.asking.fail(why.clone());
        }
        around.observing.tell(Event::SnapshotFailed { why });
        if let Some(job) = self.job.take() {
            self.give_up(job, around);
        }
    }

    fn give_up<D: Disk, S: StateMachine>(&mut self, job: Job, around: &mut Around<'_, '_, D, S>) {
        match job {
            Job::Taking(taking) => {
                around.applying.service_mut().end_image();
                self.abandon(taking.writer);
            }
            Job::Receiving(receiving) => self.abandon(receiving.writer),
        }
    }

    /// What is being received, if something is, is not needed.
    fn give_up_receiving<D: Disk, S: StateMachine>(&mut self, around: &mut Around<'_, '_, D, S>) {
        if matches!(self.job, Some(Job::Receiving(_)))
            && let Some(job) = self.job.take()
        {
            self.give_up(job, around);
        }
    }

    /// Begins what is due: a snapshot, or a new beginning of the log.
    fn decide<D: Disk, S: StateMachine>(&mut self, around: &mut Around<'_, '_, D, S>) {
        if self.switch.is_some() {
            return;
        }
        self.begin_hollow(around);
        if around.protocol.node().is_hollow() {
            if self.asking.wanted().is_some() {
                let why = "an auxiliary that has forgotten what it held has no state".to_owned();
                self.asking.fail(why);
            }
            return;
        }
        if self.switch.is_some() {
            return;
        }
        let (start, used, written) = {
            let log = around.log();
            (log.start(), log.used_bytes(), log.counters().write_bytes)
        };
        let grown = match self.written_then == 0 {
            true => used,
            false => written.saturating_sub(self.written_then),
        };
        let synced = around.applying.service_mut().synced_to();
        let size = self.own.map_or(0, |own| own.bytes);
        let due = self.options.is_due(grown, size);
        if due && synced.is_some() {
            around.applying.service_mut().start_sync();
            self.written_then = written.max(1);
        }
        let applied_to = around.applying.applied_to();
        let wanted = [self.wanted, self.asking.wanted()];
        let asked = wanted.into_iter().flatten().any(|at| at <= applied_to);
        // [snap-4] Who is being sent this node's snapshot would have to begin again with another, and who
        // learns from the log would need one again. Who moves has some room above the bound to end in.
        let now = around.now;
        let (roomy, moving) = match used {
            _ if used <= self.options.log_bytes_max => (true, true),
            _ => (false, used <= self.options.moving_bytes_max(size)),
        };
        let sends = self.own.is_some_and(|own| {
            (roomy && self.serving.uses(&own)) || (moving && self.serving.moves(now, &own))
        });
        if (asked || (due && synced.is_none())) && !sends {
            self.begin_taking(written, around);
        }
        let own = synced.or(self.own.map(|own| own.at)).unwrap_or(Slot(0));
        let sent = self.own.filter(|_| sends).map(|own| own.at);
        let kept = sent.into_iter().chain(match moving {
            true => self.serving.needs(now),
            false => None,
        });
        let own = kept.fold(own, Slot::min);
        let held = around.protocol.node().held();
        // A log that lost its end may know less than the snapshot; it learns again.
        let decided_to = around.protocol.node().decided_to();
        let node = around.protocol.node();
        // [trim-1] With an auxiliary engaged, full replicas may be no quorum for as long as one is away.
        let apart = node.configuration().members().iter().any(|m| m.auxiliary);
        let to = trim_to(own, held, used, apart, &self.options).min(decided_to);
        if to > start && around.log().freed_by(to) > 0 {
            // A snapshot below it would be of no use to anybody.
            let snapshot = self.own.filter(|own| own.at >= to);
            self.rebase(to, snapshot, None, around);
        }
    }

    fn begin_taking<D: Disk, S: StateMachine>(
        &mut self,
        written: u64,
        around: &mut Around<'_, '_, D, S>,
    ) {
        if self.fetching.needed().is_none() {
            // An earlier process began with it, and nobody needs it any more.
            self.give_up_receiving(around);
        }
        let ready = self.job.is_none()
            && self.resuming.is_none()
            && self.loading.is_none()
            && around.now >= self.not_before
            && around.applying.is_whole();
        let at = around.applying.applied_to();
        if !ready || at == Slot::FIRST {
            return;
        }
        if self.own.is_some_and(|own| own.at >= at) {
            self.wanted = None;
            return;
        }
        if !around.applying.service_mut().begin_image() {
            if self.asking.wanted().is_some() {
                let why = "the service gives no image of its state, or not now";
                self.asking.fail(why.to_owned());
            }
            self.not_before = around.now.plus_ms(PAUSE_MS);
            return;
        }
        self.wanted = None;
        self.written_then = written.max(1);
        let header = Header {
            cluster: self.cluster,
            at,
            eras: self.eras_at(at),
        };
        let meta = around.applying.metadata();
        let taking = Taking::new(&header, meta, self.options.layout, self.next_part);
        self.job = Some(Job::Taking(Box::new(taking)));
    }

    fn take<D: Disk, S: StateMachine>(&mut self, around: &mut Around<'_, '_, D, S>) {
        let Some(Job::Taking(taking)) = &mut self.job else {
            return;
        };
        if taking.is_imaged() || !taking.writer.has_room() {
            return;
        }
        // A service that is behind because of its image is not made to wait for it longer.
        if !self.allowance.may(around.now) && around.applying.service_takes() {
            self.go_on_at = self.allowance.wake_at();
            return;
        }
        let disk = around.storing.log_mut().disk_mut();
        match taking.step(around.applying.service_mut(), disk) {
            Ok(bytes) => {
                self.allowance.spend(bytes);
                // One step a turn, so that nobody waits for a snapshot.
                self.go_on_at = Some(around.now);
            }
            Err(_) => self.fail_job("the service could not be read".to_owned(), around),
        }
    }

    /// Asks peers for a snapshot, if one is needed.
    fn fetch<D: Disk, S: StateMachine>(&mut self, around: &mut Around<'_, '_, D, S>) {
        let start = around.log().start();
        let applied_to = around.applying.applied_to();
        let loads = self.loading.is_some() || self.can_load(start, applied_to, false, None);
        // [aux-4] An auxiliary needs no state of its own, until its log is too large for want of one.
        let small = around.log().used_bytes() <= self.options.log_bytes_max;
        let spared = around.protocol.node().is_auxiliary() && small;
        if applied_to < start && !loads && !spared && self.switch.is_none() {
            self.fetching.need(start);
        }
        let decided_to = around.protocol.node().decided_to();
        let lost = around.catching_up.lost_value();
        let lost = lost.is_some_and(|(lost, _)| Some(lost) < self.for_lost);
        if let Some(needed) = self.fetching.needed()
            && needed <= decided_to
            && applied_to >= start
            && !lost
        {
            // It learned what was missing in another way.
            self.fetching.stop();
            self.give_up_receiving(around);
        }
        // What an earlier process received, and nobody needs after all.
        if self.fetching.needed().is_none() && around.now >= self.resume_until {
            self.give_up_receiving(around);
        }
        if self.switch.is_some() || matches!(self.job, Some(Job::Taking(_))) {
            return;
        }
        self.resume(around);
        let (known, received) = match &self.job {
            Some(Job::Receiving(receiving)) => (Some(receiving.target), receiving.writer.bytes()),
            _ => (None, 0),
        };
        if self.resuming.is_some() || around.now < self.not_before {
            return;
        }
        // Who asks is sent a window, so the disk has to be done with most of the last one.
        if self
            .job
            .as_ref()
            .is_some_and(|job| !job.writer().has_room())
        {
            return;
        }
        let leader = around.protocol.node().leader();
        let question = self.fetching.question(around.now, leader, known, received);
        match question {
            None => {}
            Some(Question::Offers) => {
                let offset = self.fetching.needed().unwrap_or_default().0;
                let frame = Frame::SnapshotAsk {
                    at: Slot(0),
                    digest: 0,
                    offset,
                };
                for node in around.peers.ids() {
                    around.out.send(node, Lane::Bulk, &frame);
                }
            }
            Some(Question::More(node, target, offset)) => {
                self.receive(target, around);
                let frame = Frame::SnapshotAsk {
                    at: target.at,
                    digest: target.digest,
                    offset,
                };
                around.out.send(node, Lane::Bulk, &frame);
            }
        }
    }

    /// What is received from now on is this.
    fn receive<D: Disk, S: StateMachine>(
        &mut self,
        target: Target,
        around: &mut Around<'_, '_, D, S>,
    ) {
        if let Some(Job::Receiving(receiving)) = &self.job
            && receiving.target == target
        {
            return;
        }
        if let Some(job) = self.job.take() {
            self.give_up(job, around);
        }
        let receiving = Receiving::new(target, self.options.layout, self.next_part);
        around
            .disk()
            .start_keep(KEEP_TOKEN, receiving::FILE, receiving.encode());
        self.job = Some(Job::Receiving(Box::new(receiving)));
    }

    /// Looks through what an earlier process received, chunk by chunk.
    fn resume<D: Disk, S: StateMachine>(&mut self, around: &mut Around<'_, '_, D, S>) {
        let Some(receiving) = &self.resuming else {
            return;
        };
        if self.reads.count(|purpose| purpose == Purpose::Resume) > 0 {
            return;
        }
        let manifest = receiving.as_manifest();
        let offset = receiving.writer.bytes();
        let place = manifest
            .layout
            .place(manifest.first_part, manifest.layout.chunk_at(offset).0);
        let there = |disk: &mut D| {
            let files = disk
                .files(quorate_disk::Family::Snapshot)
                .unwrap_or_default();
            files.iter().any(|info| info.file == place.file)
        };
        if offset < manifest.bytes && there(around.disk()) {
            self.reads
                .start(Purpose::Resume, manifest, offset, around.disk());
        } else {
            self.resumed(around);
        }
    }

    fn on_chunk_to_resume<D: Disk, S: StateMachine>(
        &mut self,
        chunk: Chunk,
        around: &mut Around<'_, '_, D, S>,
    ) {
        let Some(receiving) = &mut self.resuming else {
            return;
        };
        let whole = chunk
            .content
            .is_ok_and(|content| receiving.have(self.cluster, &content).is_ok());
        if !whole {
            self.resumed(around);
        }
    }

    /// All that an earlier process received was looked at.
    fn resumed<D: Disk, S: StateMachine>(&mut self, around: &mut Around<'_, '_, D, S>) {
        let Some(mut receiving) = self.resuming.take() else {
            return;
        };
        let files = around.disk().files(quorate_disk::Family::Snapshot);
        let first = receiving.as_manifest().first_part;
        let there = files.unwrap_or_default();
        let behind = there
            .iter()
            .map(|info| info.file.number)
            .filter(|number| *number >= first)
            .max();
        receiving
            .writer
            .resume(behind.map_or(first, |last| last + 1));
        if receiving.writer.bytes() == receiving.target.bytes {
            receiving.writer.finish(around.disk());
        }
        self.job = Some(Job::Receiving(receiving));
    }

    /// A peer sent a piece of its snapshot.
    pub(crate) fn on_piece<D: Disk, S: StateMachine>(
        &mut self,
        from: NodeId,
        (at, digest, offset): (Slot, u128, u64),
        bytes: &[u8],
        around: &mut Around<'_, '_, D, S>,
    ) {
        let Some(Job::Receiving(receiving)) = &mut self.job else {
            return;
        };
        let have = receiving.writer.bytes();
        let takes = receiving.has_room()
            && self
                .fetching
                .takes(around.now, from, (at, digest, offset), have);
        if !takes {
            return;
        }
        around.out.counters.snapshot_bytes_received += bytes.len() as u64;
        let disk = around.storing.log_mut().disk_mut();
        if let Err(wrong) = receiving.push(self.cluster, bytes, disk) {
            self.refuse(wrong.0, around);
        }
    }

    /// Sends peers what they asked for, each in turn.
    fn serve<D: Disk, S: StateMachine>(&mut self, around: &mut Around<'_, '_, D, S>) {
        let Some(own) = self.own else { return };
        let serves = |purpose| matches!(purpose, Purpose::Serve(_));
        while self.reads.count(serves) < READS_MAX {
            let Some((to, offset)) = self.serving.next(around.now, &own) else {
                return;
            };
            if !self.allowance.may(around.now) {
                let at = self.allowance.wake_at();
                self.go_on_at = crate::wake::earliest([self.go_on_at, at]);
                return;
            }
            let room = super::layout::blocks(own.layout.content_bytes());
            let before = self.reads.count(|purpose| purpose == Purpose::Serve(to));
            if before > 0 && !around.out.fits(to, Lane::Bulk, room * (before + 1)) {
                // What is being read comes first.
                return;
            }
            if !around.out.has_room(to, Lane::Bulk, room) {
                let at = around.now.plus_ms(RETRY_MS);
                self.go_on_at = crate::wake::earliest([self.go_on_at, Some(at)]);
                return;
            }
            let disk = around.disk();
            let end = self.reads.start(Purpose::Serve(to), own, offset, disk);
            self.allowance
                .spend(usize::try_from(end - offset).unwrap_or(usize::MAX));
            self.serving.reads(to, end);
        }
    }

    fn on_chunk_to_serve<D: Disk, S: StateMachine>(
        &mut self,
        to: NodeId,
        chunk: Chunk,
        around: &mut Around<'_, '_, D, S>,
    ) {
        let Chunk {
            manifest,
            offset,
            content,
            ..
        } = chunk;
        let content = match content {
            Ok(content) => content,
            Err(Unread::NotNow) => {
                self.serving.missed(to);
                self.go_on_at = Some(around.now.plus_ms(SHORT_MS));
                return;
            }
            Err(Unread::Damaged(why)) => return self.lose_own(manifest, &why, around),
        };
        let Some((offset, bytes)) = self.serving.piece(to, &manifest, offset, &content) else {
            return;
        };
        let frame = Frame::SnapshotPiece {
            at: manifest.at,
            digest: manifest.digest,
            offset,
            bytes,
        };
        let sent = around
            .out
            .send_all(NodeSet::one(to), Lane::Bulk, &frame, None);
        if sent.is_empty() {
            self.serving.missed(to);
        } else {
            around.out.counters.snapshot_bytes_sent += bytes.len() as u64;
            self.serving.sent(around.now, to, bytes.len());
        }
    }

    /// This node's snapshot is damaged: it takes another one, or needs a peer's.
    fn lose_own<D: Disk, S: StateMachine>(
        &mut self,
        lost: Manifest,
        why: &str,
        around: &mut Around<'_, '_, D, S>,
    ) {
        if self.own != Some(lost) {
            return;
        }
        let why = format!("the snapshot at slot {} is damaged: {why}", lost.at);
        around.observing.tell(Event::SnapshotFailed { why });
        self.own = None;
        self.serving.clear();
        self.idle.extend(lost.parts());
        self.wanted = Some(around.applying.applied_to());
        self.not_before = around.now;
    }

    fn can_load(
        &self,
        start: Slot,
        applied_to: Slot,
        persistent: bool,
        lost: Option<Slot>,
    ) -> bool {
        let usable = |own: &Manifest| {
            let bridges = lost.is_some_and(|lost| lost < own.at);
            let needed = applied_to < start || !persistent || bridges;
            own.at > applied_to && own.at >= start && needed
        };
        self.own.as_ref().is_some_and(usable)
    }

    /// The service takes in the own snapshot, if it is behind it.
    fn load<D: Disk, S: StateMachine>(&mut self, around: &mut Around<'_, '_, D, S>) {
        if self.switch.is_some() {
            return;
        }
        if self.spoiled {
            if around.now < self.load_at {
                return;
            }
            // What it had before is given up already: it begins with the log, or with another snapshot.
            if let Err(error) = around.applying.begin_again() {
                self.load_at = around.now.plus_ms(SHORT_MS);
                let why = error.to_string();
                around.observing.tell(Event::SnapshotFailed { why });
                return;
            }
            self.spoiled = false;
        }
        if self.loading.is_none() {
            let start = around.log().start();
            let applied_to = around.applying.applied_to();
            let persistent = around.applying.service_mut().synced_to().is_some();
            let lost = around.catching_up.lost_value().map(|(lost, _)| lost);
            let Some(own) = self
                .own
                .filter(|_| self.can_load(start, applied_to, persistent, lost))
            else {
                if applied_to < start && !around.protocol.node().is_auxiliary() {
                    around
                        .applying
                        .set_loading("it waits for a snapshot".to_owned());
                }
                return;
            };
            if around.now < self.load_at {
                return;
            }
            if let Some(Job::Taking(_)) = self.job
                && let Some(job) = self.job.take()
            {
                self.give_up(job, around);
            }
            match Loading::begin(own, around.applying.service_mut()) {
                Ok(loading) => self.loading = Some(loading),
                Err(error) => {
                    self.load_at = around.now.plus_ms(SHORT_MS);
                    let why = error.to_string();
                    around.observing.tell(Event::SnapshotFailed { why });
                    return;
                }
            }
        }
        if let Some(loading) = &mut self.loading {
            let (done, all) = (loading.bytes(), loading.manifest().bytes);
            let percent = (u128::from(done) * 100).checked_div(u128::from(all));
            let percent = percent.unwrap_or(100);
            around
                .applying
                .set_loading(format!("it takes in a snapshot: {percent} %"));
            // A service whose writing is behind takes nothing at the moment.
            if around.now < self.load_at {
                return;
            }
            if around.applying.service_takes() {
                loading.read(&mut self.reads, around.storing.log_mut().disk_mut());
            } else {
                self.load_at = around.now.plus_ms(BEHIND_MS);
            }
        }
    }

    fn on_chunk_to_load<D: Disk, S: StateMachine>(
        &mut self,
        chunk: Chunk,
        around: &mut Around<'_, '_, D, S>,
    ) {
        let Some(loading) = &mut self.loading else {
            return;
        };
        let service = around.applying.service_mut();
        match loading.on_chunk(self.cluster, chunk, service) {
            Ok(None) => {}
            Ok(Some(meta)) => {
                let at = loading.manifest().at;
                self.loading = None;
                around.out.counters.snapshots_loaded += 1;
                around.applying.loaded(at, meta);
                let sessions = around.applying.sessions();
                around
                    .origin
                    .on_skipped(around.now, sessions, around.completions);
                around.observing.tell(Event::SnapshotLoaded { at });
            }
            Err(Failed::NotNow) => self.load_at = around.now.plus_ms(SHORT_MS),
            Err(Failed::Snapshot(why)) => {
                let manifest = *loading.manifest();
                self.loading = None;
                self.spoiled = true;
                self.lose_own(manifest, &why, around);
            }
            Err(Failed::Service(why)) => {
                self.loading = None;
                self.load_at = around.now.plus_ms(SHORT_MS);
                around.observing.tell(Event::SnapshotFailed { why });
            }
        }
    }
}

/// The answer to a peer that needs a snapshot.
pub(crate) fn offer_frame(offer: Offer, log_start: Slot) -> Frame<'static> {
    Frame::SnapshotOffer {
        at: offer.at,
        digest: offer.digest,
        bytes: offer.bytes,
        log_start,
        busy: offer.busy,
    }
}
