//! The loop of one replica: what happened, what is decided, what to say. No socket, clock or thread.
//!
//! Whoever drives it hands in frames, requests and the time, calls [`Replica::poll`], delivers the
//! completions, flushes the plane's buffers, and then calls [`Replica::submit`]: the leader sends
//! before it writes, so that nobody waits for two disks in a row.

pub(crate) mod egress;
mod ingress;
pub(crate) mod requests;

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use quorate_core::{
    effect::{Alarm, Effects, Refusal, Role},
    input::Input,
    node::Node,
    node_id::{Member, NodeId},
    record::{Class, RecordSeq},
    slot::{Slot, SlotRange},
    time::Time,
    value::Value,
};
use quorate_disk::Disk;
use quorate_log::Log;
use quorate_tuner::{Change, Setting};
use quorate_wire::{Frame, Lane, encode, header::HEADER_BYTES};

use crate::{
    applying::applier::{Applier, Listeners, Next},
    applying::health::Tended,
    catching_up::repair::Repair,
    catching_up::serving::{History, Serving},
    completions::Completions,
    contents::fetches::Fetches,
    contents::payloads::{Payload, Payloads},
    counters::Counters,
    ending::Stop,
    front::Front,
    limits::Limits,
    observing::events::Events,
    observing::promises::Promises,
    observing::watch::Watch,
    open::largest_command,
    plane::Plane,
    proposing::forwarded::Forwarded,
    proposing::origin::{Offer, Origin},
    reading::confirmations::Reads,
    reading::probe::{Probe, Probed},
    replica::egress::RETRY_MS,
    replica::requests::Requester,
    service::{Metadata, StateMachine},
    status::{Addresses, TuningReport},
    storing::reads::{LogReads, Purpose},
    tuning::Tuning,
};

/// How often the leader asks its service for what is due.
const DUE_MS: u64 = 10;
/// A log that lacks room or descriptors looks for them this often, however quiet it is.
const SHORT_RETRY_MS: u64 = 100;
/// How long records linger in a log that nobody waits for.
const LINGER_MS: u64 = 5;

/// One replica: core, log and service joined.
pub struct Replica<D: Disk, S: StateMachine> {
    // Who and how; constant.
    pub(crate) cluster: u128,
    pub(crate) member: Member,
    pub(crate) boot: u32,
    pub(crate) command_bytes_max: usize,
    pub(crate) client_timeout_ms: u64,
    pub(crate) patience_ms: u64,
    pub(crate) election_max_ms: u64,
    pub(crate) window_slots: u64,
    pub(crate) limits: Limits,
    // The protocol.
    pub(crate) node: Node,
    pub(crate) effects: Effects,
    /// Events that wait for a call that can also send.
    pub(crate) inbox: VecDeque<Input>,
    pub(crate) node_wake: Time,
    /// What lingers in the log is written then.
    pub(crate) write_by: Option<Time>,
    pub(crate) role: Role,
    pub(crate) promises: Promises,
    // The log.
    pub(crate) log: Log<D>,
    pub(crate) log_reads: LogReads,
    pub(crate) last_record: RecordSeq,
    pub(crate) persisted_to: RecordSeq,
    pub(crate) storage_error: Option<String>,
    /// Something that the log could not read back.
    pub(crate) read_error: Option<String>,
    /// Votes of an earlier process whose payloads are still to be read; nothing else until then.
    pub(crate) unread_votes: VecDeque<SlotRange>,
    pub(crate) repair: Repair,
    // Commands on their way.
    pub(crate) payloads: Payloads,
    pub(crate) origin: Origin,
    pub(crate) forwarded: Forwarded,
    pub(crate) applier: Applier<S>,
    pub(crate) tended: Tended,
    pub(crate) reads: Reads,
    pub(crate) completions: Completions,
    pub(crate) due_at: Time,
    /// Unix time in milliseconds, as of the last poll.
    pub(crate) wall_ms: u64,
    // Peers.
    /// Those that can be talked to.
    pub(crate) peers: BTreeMap<NodeId, Member>,
    pub(crate) addresses: BTreeMap<NodeId, Addresses>,
    pub(crate) fetches: Fetches,
    pub(crate) serving: Serving,
    pub(crate) history: History,
    /// A peer's buffer was full, or a read had to wait: try again then.
    pub(crate) retry_at: Option<Time>,
    /// The log lacks room or descriptors: it tries again then.
    pub(crate) short_retry_at: Time,
    // What people hear of it.
    pub(crate) watch: Watch,
    pub(crate) probe: Probe,
    pub(crate) events: Events,
    // The end.
    pub(crate) stop: Stop,
    pub(crate) transfer_ended: Option<Result<NodeId, Refusal>>,
    pub(crate) alarm: Option<Alarm>,
    /// Peers that are known to have applied something else.
    pub(crate) different: BTreeSet<NodeId>,
    pub(crate) compare_at: Time,
    pub(crate) counters: Counters,
    // How fast.
    pub(crate) tuning: Tuning,
}

impl<D: Disk, S: StateMachine> Replica<D, S> {
    /// A peer can be talked to: its handshake is done.
    pub fn peer_up(&mut self, now: Time, member: Member, _boot: u32, addresses: Addresses) {
        if member.node == self.member.node {
            return;
        }
        self.peer_down(now, member.node);
        self.peers.insert(member.node, member);
        self.addresses.insert(member.node, addresses);
        self.tuning.on_peers_changed();
        self.inbox.push_back(Input::Connected(member));
        if self.node.leader() == Some(member.node) {
            // What was on the old connection may be lost.
            self.origin.on_new_ballot();
        }
    }

    /// It cannot be talked to any more.
    pub fn peer_down(&mut self, _now: Time, node: NodeId) {
        if self.peers.remove(&node).is_some() {
            self.serving.stop(node);
            self.applier.digest.forget(node);
            self.tuning.on_peers_changed();
            self.inbox.push_back(Input::Disconnected(node));
        }
    }

    /// A peer said something.
    pub fn on_frame(
        &mut self,
        now: Time,
        _wall_ms: u64,
        from: Member,
        frame: Frame<'_>,
        plane: &mut dyn Plane,
    ) {
        if from.node == self.member.node || self.is_silent() {
            self.counters.frames_overload += 1;
            return;
        }
        self.drain_inbox(now, plane);
        self.take_frame(now, from, frame, plane);
    }

    /// Whatever is to be done now: timers, completed writes, decisions, new proposals. Reads that
    /// have a place among the commands run in `front` meanwhile; all else it hears of by
    /// [`Replica::deliver`].
    pub fn poll(&mut self, now: Time, wall_ms: u64, plane: &mut dyn Plane, front: &mut dyn Front) {
        self.retry_at = None;
        self.wall_ms = wall_ms;
        self.tuning.begin_turn(now);
        self.poll_log(now, plane, front);
        if self.is_silent() {
            self.probe.settle(now, self.applier.applied_to());
            self.advance_stop(now);
            return;
        }
        self.drain_inbox(now, plane);
        let promised = self.node.acceptor().promised();
        self.promises.look(now, promised, self.node.era());
        self.tick(now, plane);
        self.expire(now);
        self.apply(now, front);
        self.take_due(now);
        self.propose(now, plane);
        self.ask_reads(now, plane);
        self.drain_inbox(now, plane);
        // A group of one in memory has decided what it just proposed.
        self.apply(now, front);
        self.probe.settle(now, self.applier.applied_to());
        self.help_peers(now, plane);
        self.compare_histories(now, plane);
        self.advance_stop(now);
    }

    /// Starts writing what was appended. Called after the plane's buffers were flushed.
    pub fn submit(&mut self, now: Time) {
        if self.log.lingers() {
            let due = *self.write_by.get_or_insert(now.plus_ms(LINGER_MS));
            if now >= due {
                self.log.hurry();
            }
        }
        self.log.submit();
        if !self.log.lingers() {
            self.write_by = None;
        }
        self.note_writes(now);
    }

    /// The turn is over: `now` is later than what the turn began with by what it cost. Says when
    /// [`Replica::poll`] is due, as [`Replica::wake_at`] does.
    pub fn end_turn(&mut self, now: Time) -> Option<Time> {
        self.watch(now);
        let wake_by = self.wake_at(now);
        for completed in self.origin.take_completed() {
            self.tuning.on_completed(now, &completed);
        }
        let (waiting, in_flight) = self.origin.queued();
        let totals = self.origin.totals();
        let setting = self
            .tuning
            .end_turn(now, wake_by, totals, waiting, in_flight);
        let changed = self
            .origin
            .set_batching(setting.batch_bytes, setting.window);
        // There may be room now for what waits.
        if changed && waiting > 0 {
            return Some(now);
        }
        wake_by
    }

    /// What the tuner knows, predicts and chose.
    pub fn tuning(&self) -> TuningReport {
        TuningReport {
            report: self.tuning.report(),
            setting: self.tuning.setting(),
            held: self.tuning.is_held(),
        }
    }

    /// Batch and window that are in force.
    pub fn batching(&self) -> Setting {
        self.tuning.setting()
    }

    /// Holds batch and window at these values until then, or at the nearest that work, whatever the
    /// tuner would do; `None` ends that.
    pub fn hold_setting(&mut self, now: Time, setting: Option<Setting>, until: Time) {
        self.tuning.hold(now, setting, until);
    }

    /// What an operator should be told once, if there is something new.
    pub fn next_notice(&mut self, now: Time) -> Option<String> {
        self.promises.take_news(now)
    }

    /// The next change of batch and window that was not asked for yet, for the operator's log.
    pub fn next_change(&mut self) -> Option<Change> {
        self.tuning.next_change()
    }

    /// Writes that the log began since it was last looked at.
    fn note_writes(&mut self, now: Time) {
        for (seq, bytes) in self.log.writes() {
            let bytes = usize::try_from(bytes).unwrap_or(usize::MAX);
            self.tuning.on_write(now, seq, bytes);
        }
    }

    /// When [`Replica::poll`] is due at the latest, if nothing else happens; in the past if there is
    /// work left.
    pub fn wake_at(&self, now: Time) -> Option<Time> {
        if self.stop.is_silent() {
            // Only the disk is waited for.
            return match self.stop {
                Stop::Writing if self.all_written() => Some(now),
                Stop::Writing => self.short_retry(),
                _ => None,
            };
        }
        if !self.unread_votes.is_empty() {
            let reads = self.log_reads.wake_at(now);
            let parts = [reads, self.probe.wake_at(), self.short_retry()];
            return parts.into_iter().flatten().min();
        }
        if self.has_work() {
            return Some(now);
        }
        let leading = (self.role == Role::Leader).then_some(self.due_at);
        let parts = [
            Some(self.node_wake),
            leading,
            self.retry_at,
            self.origin.wake_at(now),
            self.reads.wake_at(self.patience_ms),
            self.probe.wake_at(),
            self.fetches.wake_at(),
            self.repair.wake_at(),
            self.log_reads.wake_at(now),
            self.write_by,
            self.stop.deadline(),
            self.tend_at(now),
            self.short_retry(),
        ];
        parts.into_iter().flatten().min()
    }

    /// A disk does not say when it has room again.
    fn short_retry(&self) -> Option<Time> {
        self.log.is_short().then_some(self.short_retry_at)
    }

    /// Who wants to be woken when, for whoever wonders why a replica does not come to rest.
    pub(crate) fn unrest(&self, now: Time) -> String {
        format!(
            "stop {:?}, work {}, node {:?}, due {:?}, retry {:?}, origin {:?}, reads {:?}, fetches {:?}, \
             repair {:?}, log {:?}, write {:?}",
            self.stop,
            self.has_work(),
            self.node_wake,
            self.due_at,
            self.retry_at,
            self.origin.wake_at(now),
            self.reads.wake_at(self.patience_ms),
            self.fetches.wake_at(),
            self.repair.wake_at(),
            self.log_reads.wake_at(now),
            self.write_by,
        )
    }

    fn has_work(&self) -> bool {
        let room = self.completions.bytes() < self.limits.completion_bytes && self.applier.takes();
        let next = || match self.applier.next(self.node.decided_to()) {
            Next::Value(_, Value::Batch(name)) => self.payloads.holds(&name),
            Next::Value(..) => true,
            Next::FromLog(_) | Next::Nothing => false,
        };
        !self.inbox.is_empty() || (room && next())
    }

    /// What clients ask of this node.
    pub fn requests(&mut self, now: Time, wall_ms: u64) -> Requester<'_, D, S> {
        Requester::new(self, now, wall_ms)
    }

    /// Tells a front of everything that ended; says whether there was anything.
    pub fn deliver(&mut self, now: Time, wall_ms: u64, front: &mut dyn Front) -> bool {
        let Some(mut ended) = self.completions.take() else {
            return false;
        };
        while let Some(completion) = ended.next_wanted(&mut self.completions) {
            front.completed(completion, &mut self.requests(now, wall_ms));
        }
        self.completions.recycle(ended);
        true
    }

    /// Whether nothing may be said: the votes of before are not read yet, or the last ones are
    /// being written down.
    fn is_silent(&self) -> bool {
        !self.unread_votes.is_empty() || self.stop.is_silent()
    }

    /// Whether what others propose must wait: this node could not keep up with writing or applying.
    pub(crate) fn is_overloaded(&self) -> bool {
        self.log.backlog_bytes() as u64 > self.limits.log_backlog_bytes || self.applier.is_full()
    }

    fn may_propose(&self, bytes: usize) -> bool {
        self.node.can_propose() && !self.is_overloaded() && self.payloads.has_room(bytes)
    }

    pub(crate) fn drain_inbox(&mut self, now: Time, plane: &mut dyn Plane) {
        while let Some(input) = self.inbox.pop_front() {
            self.step(now, input, plane);
        }
    }

    fn tick(&mut self, now: Time, plane: &mut dyn Plane) {
        if now >= self.node_wake {
            self.node_wake = now.plus_ms(u64::MAX);
            self.step(now, Input::Tick, plane);
        }
    }

    fn expire(&mut self, now: Time) {
        self.origin.repeat_if_silent(now);
        let commands = self.origin.expire(now, &mut self.completions);
        let reads = self.reads.expire(now, &mut self.completions);
        self.counters.requests_timed_out += commands + reads;
    }

    /// Applies what is decided, within a budget, and lets the reads run that waited for it.
    fn apply(&mut self, now: Time, front: &mut dyn Front) {
        self.tend(now);
        let mut budget = self.limits.apply_bytes;
        while budget > 0
            && self.applier.takes()
            && self.completions.bytes() < self.limits.completion_bytes
        {
            let (range, value) = match self.applier.next(self.node.decided_to()) {
                Next::Value(range, value) => (range, value),
                Next::FromLog(range) => {
                    self.read_to_apply(now, range);
                    break;
                }
                Next::Nothing => break,
            };
            let payload = match value {
                Value::Batch(name) => match self.payloads.get(&name) {
                    Some(payload) => Some(payload.clone()),
                    None => {
                        self.read_to_apply(now, range);
                        break;
                    }
                },
                _ => None,
            };
            budget = budget.saturating_sub(payload.as_ref().map_or(64, |payload| payload.len()));
            self.apply_one(now, range, value, payload.as_deref(), front);
        }
        self.applied(front);
    }

    /// Applies this; if the service fails it takes nothing more.
    pub(crate) fn apply_one(
        &mut self,
        now: Time,
        range: SlotRange,
        value: Value,
        payload: Option<&[u8]>,
        front: &mut dyn Front,
    ) {
        let Self {
            origin,
            completions,
            counters,
            ..
        } = self;
        let mut listeners = Listeners {
            now,
            wall_ms: self.wall_ms,
            front,
            reply_bytes: self.limits.reply_bytes,
            origin,
            completions,
            counters,
        };
        if self.applier.apply(range, &value, payload, &mut listeners) {
            self.history.push(range, value);
        }
    }

    pub(crate) fn applied(&mut self, front: &mut dyn Front) {
        if self.node.configuration().class() == Class::Durable {
            self.applier.service.logged(self.node.durable_to());
        }
        self.applier.commit();
        self.applier
            .service
            .take_notices(&mut |subject, message| front.notice(subject, message));
        let applied_to = self.applier.applied_to();
        self.payloads.unpin_below(applied_to);
        self.release_reads();
    }

    fn release_reads(&mut self) {
        if self.applier.answers() {
            self.reads
                .release(self.applier.applied_to(), &mut self.completions);
        }
    }

    /// [session-3] Time reaches the service as commands in the log, from the leader alone.
    fn take_due(&mut self, now: Time) {
        if self.role != Role::Leader || now < self.due_at {
            return;
        }
        self.due_at = now.plus_ms(DUE_MS);
        if self.stop.is_requested() || self.applier.is_down() {
            return;
        }
        let origin = &mut self.origin;
        // Whatever clients may send: what a service once took it must be able to end.
        let max = largest_command(&self.log);
        self.applier
            .service
            .due(self.wall_ms, self.limits.due_commands, &mut |command| {
                if command.len() <= max {
                    origin.accept_due(now, command);
                }
            });
    }

    fn propose(&mut self, now: Time, plane: &mut dyn Plane) {
        self.origin.look(now);
        match self.node.leader() {
            _ if self.role == Role::Leader => {
                self.propose_forwarded(now, plane);
                self.propose_own(now, plane);
            }
            Some(leader) if leader != self.member.node => self.forward_own(now, leader, plane),
            _ => {}
        }
    }

    pub(crate) fn propose_forwarded(&mut self, now: Time, plane: &mut dyn Plane) {
        while let Some(bytes) = self.forwarded.next_bytes()
            && self.may_propose(bytes)
            && let Some((value, payload)) = self.forwarded.pop()
        {
            self.propose_value(now, value, payload, plane);
        }
    }

    fn propose_own(&mut self, now: Time, plane: &mut dyn Plane) {
        while let Some(bytes) = self.origin.next_bytes(now)
            && self.may_propose(bytes)
            && let Some(Offer { value, payload }) = self.origin.take_offer(now)
        {
            if !self.forwarded.knows(&value) {
                self.propose_value(now, value, payload, plane);
            }
        }
    }

    fn propose_value(
        &mut self,
        now: Time,
        value: Value,
        payload: Option<Payload>,
        plane: &mut dyn Plane,
    ) {
        if let (Value::Batch(name), Some(payload)) = (value, payload) {
            self.payloads.insert(name, payload);
            self.found(name);
        }
        self.step(now, Input::Propose { value, slots: 1 }, plane);
    }

    /// Two-level batching: this node's batches go to the leader whole.
    fn forward_own(&mut self, now: Time, leader: NodeId, plane: &mut dyn Plane) {
        while let Some(bytes) = self.origin.next_bytes(now) {
            // First the room, then the batch: one that was formed cannot be taken back.
            let Some(out) = plane.outgoing(leader, Lane::Control, HEADER_BYTES + bytes) else {
                self.counters.sends_dropped += 1;
                self.origin.hold(now.plus_ms(RETRY_MS));
                return;
            };
            let Some(Offer { value, payload }) = self.origin.take_offer(now) else {
                return;
            };
            let frame = Frame::Forward {
                value,
                bytes: payload.as_deref().unwrap_or_default(),
            };
            if encode(self.member, &frame, out).is_err() {
                self.counters.sends_dropped += 1;
            }
            if let (Value::Batch(name), Some(payload)) = (value, payload) {
                // The leader's proposal may come without the bytes: they are from here.
                self.payloads.insert(name, payload);
            }
        }
    }

    fn ask_reads(&mut self, now: Time, plane: &mut dyn Plane) {
        if let Some(token) = self.reads.next_question(now, self.patience_ms) {
            self.step(now, Input::Read(token), plane);
            self.release_reads();
        }
        if let Some(token) = self.probe.next_question(now) {
            self.step(now, Input::Read(token), plane);
        }
    }

    /// Tries whether a linearizable read is served here now. The end of it: [`Replica::take_probe`].
    pub fn probe(&mut self, now: Time) {
        let refused = if self.takes_requests().is_err() {
            Some(Probed::Closed)
        } else {
            self.applier.is_stuck().then_some(Probed::Unavailable)
        };
        self.probe.begin(now, refused);
    }

    /// How the attempt ended, once.
    pub fn take_probe(&mut self) -> Option<Probed> {
        self.probe.take()
    }

    fn poll_log(&mut self, now: Time, plane: &mut dyn Plane, front: &mut dyn Front) {
        if self.short_retry().is_some_and(|at| at <= now) {
            self.log.try_again();
            self.short_retry_at = now.plus_ms(SHORT_RETRY_MS);
        }
        let polled = self.log.poll();
        let oldest = self.log.writes().next();
        let written_to = oldest.map_or(self.log.next_seq(), |(seq, _)| seq);
        let Self {
            tuning,
            watch,
            events,
            ..
        } = self;
        tuning.on_written(now, written_to.saturating_sub(1), |us, bytes| {
            watch.on_written(us, bytes, events);
        });
        self.note_writes(now);
        match polled {
            Ok(persisted_to) if persisted_to > self.persisted_to => {
                self.persisted_to = persisted_to;
                self.log_reads.written(persisted_to);
                if !self.stop.is_silent() {
                    self.step(now, Input::Persisted(persisted_to), plane);
                }
            }
            Ok(_) => {}
            Err(error) => self.fail_storage(error.to_string()),
        }
        self.read_votes(now);
        while let Some(done) = self.log.next_read() {
            if let Some(purpose) = self.log_reads.ended(done.token) {
                self.on_log_read(now, purpose, done, plane, front);
            }
        }
    }

    pub(crate) fn read(&mut self, now: Time, purpose: Purpose, range: SlotRange) {
        let range = self.log_reads.readable(range);
        if !range.is_empty() && self.log_reads.may_start(now, purpose) {
            let bytes_max = self.limits.log_read_bytes;
            self.log_reads
                .start(&mut self.log, purpose, range, bytes_max);
        }
    }

    /// Everything that this replica counts.
    pub fn counters(&self) -> Counters {
        Counters {
            batches_formed: self.origin.totals().batches,
            batches_repeated: self.origin.repeated(),
            ..self.counters
        }
    }

    /// What the core counts of its slow paths.
    pub fn slow_paths(&self) -> quorate_core::effect::SlowPaths {
        self.effects.slow
    }

    /// The core, for invariants.
    pub fn node(&self) -> &Node {
        &self.node
    }

    /// The log, for its counters and its file descriptor.
    pub fn log(&self) -> &Log<D> {
        &self.log
    }

    /// The service.
    pub fn service(&self) -> &S {
        &self.applier.service
    }

    /// Who this is.
    pub fn member(&self) -> Member {
        self.member
    }

    /// Every slot below is applied.
    pub fn applied_to(&self) -> Slot {
        self.applier.applied_to()
    }

    /// The session table in a canonical form: equal on all nodes that applied the same slots.
    pub fn sessions(&self) -> Metadata {
        self.applier.sessions().canonical()
    }
}
