//! The main loop of one replica: its parts, and the order of a turn. It has no socket, clock or
//! thread.
//!
//! The caller passes frames, requests and the time, calls [`Replica::poll`], delivers the
//! completions, flushes the plane's buffers, and then calls [`Replica::submit`]. The leader sends
//! before it writes, so that no client waits for two disks one after the other.
//!
//! Each part owns its state, and borrows what it needs from the others for one call. The parts are
//! joined here. Each source of input has a file of its own: peers' frames (`ingress`), effects of
//! the core (`egress`), completions of the disk (`disk`), and clients' requests (`requests`).
//! `rollback` handles other nodes' statements about their logs, `report` the status of the replica,
//! and `start` and `ending` its start and end.

mod differing;
mod disk;
mod egress;
mod frame_clients;
mod ingress;
mod levels;
mod members;
mod report;
pub(crate) mod requests;
mod rollback;
mod scrub;
mod start;
mod streams;

use quorate_core::{
    ballot::Era,
    device::DeviceReport,
    effect::{Refusal, Role},
    input::Input,
    level::Level,
    node_id::{Member, NodeId},
    record::Class,
    slot::{Slot, SlotRange},
    time::Time,
    value::Value,
};
use quorate_log::disk::{Disk, DiskError};
use quorate_tuner::Setting;

use self::rollback::Rollback;
use crate::{
    applying::{Applying, applier::Listeners},
    backup::Held,
    catching_up::CatchingUp,
    clock::Clock,
    clocks::Clocks,
    completions::Completions,
    contents::Contents,
    counters::Counters,
    devices::{DeviceEvent, Devices, report_bytes},
    ending::Ending,
    fitness::{FitnessState, Lag},
    hops::{Hop, Hops},
    idling::Surroundings,
    observing::{Observing, events::Event, watch::ReplicaView},
    offers::Offer,
    outbox::Outbox,
    outlasting::{self, Confirmation, EARLY_LEVEL},
    peers::{Doubt, Peers},
    ports::{
        device::DeviceSource,
        front::{Failure, Front},
        plane::Plane,
        service::StateMachine,
        status::{Addresses, Snapshot},
    },
    pressure::Pressure,
    proposing::{LeaderPaths, Proposing},
    protocol::Protocol,
    reading::{Reading, probe::Probed},
    rings::Rings,
    rising::LevelRaises,
    routing::Routing,
    scrubbing::Scrubbing,
    snapshots::{Snapshots, turn::ReplicaParts},
    steering::MembershipDriver,
    storing::{Storing, largest_command},
    streaming::Streaming,
    tuning::Tuning,
    turns::Turns,
    wake::earliest,
};

/// Maximum distance in slots above the decided slots at which decisions received by frames are
/// still used.
const TOLD_AHEAD: u64 = 1 << 12;

/// Name of a small file, and the result of reading it.
type Recalled = (&'static str, Result<Option<Vec<u8>>, DiskError>);

/// A replica: the core, the log and the service, joined.
pub struct Replica<D: Disk, S: StateMachine> {
    cluster: u128,
    member: Member,
    boot: u32,
    /// Number of slots above `decided_to` that are accepted. Messages about higher slots are
    /// refused ([p2-3]).
    window_slots: u64,
    protocol: Protocol,
    peers: Peers,
    rollback: Rollback,
    // Parts on the path of a command.
    proposing: Proposing,
    contents: Contents,
    storing: Storing<D>,
    applying: Applying<S>,
    completions: Completions,
    // Part on the path of a stream.
    streaming: Streaming,
    // Other parts.
    reading: Reading,
    /// Clock for leases and for reads with a bound on staleness; both are impossible without it.
    clock: Option<Clock>,
    /// Wall clocks and the group's clock.
    clocks: Clocks,
    catching_up: CatchingUp,
    snapshots: Snapshots,
    steering: MembershipDriver,
    /// Levels that other nodes support, and operators' requests that wait for a raise.
    rising: LevelRaises,
    scrubbing: Scrubbing,
    /// A small file that has been read from disk but not taken yet.
    recalled: Option<Recalled>,
    /// Level of the group at the last check.
    raised_to: Option<Level>,
    ending: Ending,
    fit: FitnessState,
    lag: Lag,
    /// Why this node's state may be wrong ([differ-2]); `None` if there is no doubt.
    doubt: Option<Doubt>,
    turns: Turns,
    observing: Observing,
    tuning: Tuning,
    /// This node's device, if any. It may run phase 2.
    devices: Devices,
    /// Number of names assigned to clients of devices ([offload-22]).
    names_lent: u32,
    /// Automatic choice of the route of votes; `None` if the route is configured.
    routing: Option<Routing>,
    counters: Counters,
    /// Timestamps of hops, if enabled.
    hops: Option<Box<Hops>>,
    rings: Rings,
    /// Era of the configuration that the plane last received.
    voters_of: Option<Era>,
}

impl<D: Disk, S: StateMachine> Replica<D, S> {
    /// Marks a peer as connected after its handshake.
    pub fn peer_up(
        &mut self,
        now: Time,
        member: Member,
        boot: u32,
        newest: Level,
        addresses: Addresses,
    ) {
        if member.node == self.member.node {
            return;
        }
        self.peer_down(now, member.node);
        self.peers.connect(member, addresses);
        self.rising.met(now, member.node, newest);
        self.meet(member, boot);
        self.tuning.on_peers_changed();
        self.protocol.later(Input::Connected(member));
        self.streaming.peer_up(member.node, boot);
        if self.protocol.node().leader() == Some(member.node) {
            // Offers sent over the old connection may be lost.
            self.proposing.origin().on_new_ballot();
        }
    }

    /// Marks the node as disconnected.
    pub fn peer_down(&mut self, _now: Time, node: NodeId) {
        if self.peers.disconnect(node) {
            self.rising.lost(node);
            self.catching_up.stop_serving(node);
            self.snapshots.lose(node);
            self.streaming.peer_down(node);
            self.tuning.on_peers_changed();
            self.protocol.later(Input::Disconnected(node));
        }
    }

    /// Does all work that is due: timers, completed writes, decisions, new proposals. Reads that
    /// are ordered among the commands run in `front`; all other results are reported by
    /// [`Replica::deliver`]. `wall_ms` is Unix time in milliseconds.
    pub fn poll(&mut self, now: Time, wall_ms: u64, plane: &mut dyn Plane, front: &mut dyn Front) {
        let wall_ms = self.look_at_clocks(now, wall_ms);
        self.remind(plane);
        self.begin_turn(now);
        self.catching_up.begin_turn();
        self.tuning.begin_turn(now);
        if let Some(routing) = &mut self.routing {
            routing.begin_turn(now);
        }
        self.poll_log(now, wall_ms, plane, front);
        if self.is_silent() {
            self.reading.settle_probe(now, self.applying.applied_to());
            self.advance_stop(now);
            return;
        }
        let node = self.protocol.node();
        plane.told(node.ballot(), node.decided_to());
        if self.voters_of.replace(node.era()) != Some(node.era()) {
            plane.voters(node.configuration());
        }
        self.turn_device(now);
        self.look_at_fitness(now);
        self.drain_inbox(now, plane);
        self.look_at_promise(now);
        self.tick(now, plane);
        self.expire(now);
        self.apply(now, wall_ms, false, front);
        self.take_due(now, plane);
        self.steer(now, plane);
        self.propose(now, plane);
        self.offer_streams(now, wall_ms, plane);
        self.ask_reads(now, plane);
        self.drain_inbox(now, plane);
        self.turn_device(now);
        // In a volatile group of one, the latest proposal is already decided.
        self.apply(now, wall_ms, true, front);
        self.judge_asks(now);
        self.answer_raises(now);
        self.release_reads_within(now);
        self.reading.settle_probe(now, self.applying.applied_to());
        self.help_peers(now, plane);
        self.keep_snapshots(now, plane);
        self.go_on_scrubbing(now, wall_ms, plane);
        self.compare_histories(now, plane);
        self.advance_stop(now);
    }

    /// [live-5] Reports a late turn to the core before any message that arrived in the meantime.
    pub(super) fn begin_turn(&mut self, now: Time) {
        if let Some(us) = self.turns.begin(now)
            && !self.is_silent()
        {
            self.protocol.later(Input::Late { us });
        }
    }

    /// [access-4] If a caller needs the access rules and they are not known, starts a linearizable
    /// read. The read shows that this node has applied everything on which it may have acted before
    /// the restart.
    fn look_at_access(&mut self, now: Time) {
        if !self.applying.access().is_wanted() || self.is_open().is_err() {
            return;
        }
        if self.reading.shows_access(now, self.applying.applied_to()) {
            self.applying.know_access();
        }
    }

    /// Starts writing the appended records. Called once the plane's buffers have been flushed.
    pub fn submit(&mut self, now: Time) {
        self.storing.submit(now, self.protocol.node().awaits_disk());
        self.note_writes(now);
    }

    /// Ends the turn. `now` is the time at the end of the turn. Returns the time at which
    /// [`Replica::poll`] is due, as [`Replica::wake_at`] does.
    pub fn end_turn(&mut self, now: Time) -> Option<Time> {
        self.watch(now);
        self.choose_route(now);
        let wake_by = self.wake_at(now);
        let origin = self.proposing.origin();
        for completed in origin.take_completed() {
            self.counters.on_answered(now, &completed);
            self.tuning.on_completed(now, &completed);
        }
        let (waiting, in_flight) = origin.queued();
        let totals = origin.totals();
        let setting = self.tuning.end_turn(now, wake_by, totals, waiting, in_flight);
        // [offload-15] The coordinator need not be revoked for a batch that fits into a frame.
        let refitted = origin.set_room(now, self.devices.room());
        let batch_bytes = setting.batch_bytes.min(self.applying.batch_bytes_max());
        let changed = origin.set_batching(batch_bytes, setting.window) || refitted;
        // Waiting commands may fit into a batch now.
        if changed && waiting > 0 {
            self.turns.end(now, Some(now));
            return Some(now);
        }
        self.turns.end(now, wake_by);
        wake_by
    }

    /// [plane-3] Chooses the route of votes.
    fn choose_route(&mut self, now: Time) {
        let node = self.protocol.node();
        let leads = node.role() == Role::Leader;
        let voters = node.configuration().members().len();
        if let Some(routing) = &mut self.routing {
            routing.end_turn(now);
            if let Some(route) = routing.look(leads, voters, now) {
                self.protocol.later(Input::Route(route));
            }
        }
    }

    /// Returns the latest time at which [`Replica::poll`] is due without an event. The time is in
    /// the past if work is left.
    pub fn wake_at(&self, now: Time) -> Option<Time> {
        if self.ending.is_silent() {
            // Only disk writes are pending.
            return match self.ending.is_writing() {
                true if self.storing.all_written() => Some(now),
                true => self.storing.short_retry(),
                false => None,
            };
        }
        let (read_at, short_retry) = (self.storing.read_at(now), self.storing.short_retry());
        if self.catching_up.unread_votes().is_some() {
            return earliest([read_at, self.reading.probe_at(), short_retry]);
        }
        if self.has_work() {
            return Some(now);
        }
        let leading = self.protocol.leads().then_some(self.proposing.due_at());
        earliest([
            Some(self.protocol.wake()),
            leading,
            self.proposing.own().wake_at(now),
            self.contents.wake_at(),
            self.storing.write_by(),
            read_at,
            short_retry,
            self.applying.condition().wake_at(now),
            self.completions.lasting_deadline(),
            self.reading.wake_at(now),
            self.reading.probe_at(),
            self.catching_up.retry_at(),
            self.catching_up.repair_at(),
            self.snapshots.wake_at(now),
            self.scrubbing.wake_at(now),
            self.steer_at(),
            self.ending.deadline(),
            self.devices.wake_at(),
            self.streaming.wake_at(now),
            self.protocol.leads().then(|| self.streaming.retain_at()).flatten(),
        ])
    }

    /// Returns the end of the slots that may be executed. An auxiliary that has forgotten earlier
    /// slots executes none.
    fn executable_to(&self) -> Slot {
        let node = self.protocol.node();
        match node.is_hollow() {
            true => self.applying.applied_to(),
            false => node.decided_to(),
        }
    }

    /// Returns the first slot whose bytes may be needed in memory. All earlier slots are decided,
    /// and are either applied or will be read from the log. An auxiliary that has forgotten earlier
    /// slots applies nothing, and neither does a service in trouble. A service that is ahead of its
    /// log, because the log lost its end, has applied slots for which this node must still vote.
    fn needed_from(&self) -> Slot {
        let applies = !self.protocol.node().is_hollow() && !self.applying.condition().is_stuck();
        let decided_to = self.protocol.node().decided_to();
        match applies {
            true => self.applying.applied_to().min(decided_to),
            false => decided_to,
        }
    }

    fn has_work(&self) -> bool {
        let decided_to = self.executable_to();
        self.protocol.has_input()
            || self.streaming.has_fresh()
            || (self.streaming.keeping.has_room()
                && self.applying.has_work(decided_to, &self.contents, &self.completions))
    }

    /// Returns whether the node must not send, because its earlier votes are not read yet or its
    /// last ones are being written.
    fn is_silent(&self) -> bool {
        self.catching_up.unread_votes().is_some() || self.ending.is_silent()
    }

    /// Returns whether proposals of other nodes must wait because this node cannot keep up with
    /// writing or applying.
    fn is_overloaded(&self) -> bool {
        self.storing.is_behind() || self.applying.is_full()
    }

    fn drain_inbox(&mut self, now: Time, plane: &mut dyn Plane) {
        while let Some(input) = self.protocol.next_input() {
            self.step(now, input, plane);
        }
    }

    fn look_at_promise(&mut self, now: Time) {
        let node = self.protocol.node();
        self.observing.promised(now, node.acceptor().promised(), node.era());
    }

    fn tick(&mut self, now: Time, plane: &mut dyn Plane) {
        if self.protocol.take_tick(now) {
            self.step(now, Input::Tick, plane);
        }
    }

    fn expire(&mut self, now: Time) {
        let origin = self.proposing.origin();
        origin.repeat_if_silent(now);
        let commands = origin.expire(now, &mut self.completions);
        let reads = self.reading.expire(now, &mut self.completions);
        let lasting = self.completions.expire_lasting(now);
        self.counters.requests_timed_out += commands + reads + lasting;
    }

    /// Applies the decided slots, within a budget, and releases the reads that waited for them.
    /// `again` means that slots may already have been applied in this turn.
    fn apply(&mut self, now: Time, wall_ms: u64, again: bool, front: &mut dyn Front) {
        self.tend();
        if !self.streaming.keeping.has_room() {
            return;
        }
        let decided_to = self.executable_to();
        let (applying, contents, mut listeners) = self.lend_to_apply(now, wall_ms, front);
        let before = applying.applied_to();
        let unread = applying.run(decided_to, contents, again, &mut listeners);
        let applied_to = applying.applied_to();
        if applied_to > before {
            self.stamp(Hop::Applied, Some(Slot(applied_to.0 - 1)));
        }
        if let Some(range) = unread {
            self.read_to_apply(now, range);
        }
        self.applied(now, front);
    }

    /// Borrows the source of the applier's input, and the listeners for its output.
    fn lend_to_apply<'a>(
        &'a mut self,
        now: Time,
        wall_ms: u64,
        front: &'a mut dyn Front,
    ) -> (&'a mut Applying<S>, &'a Contents, Listeners<'a>) {
        let listeners = Listeners {
            now,
            clock: self.clock.as_ref(),
            wall_ms,
            front,
            origin: self.proposing.origin(),
            completions: &mut self.completions,
            counters: &mut self.counters,
            appended: &mut self.streaming.appended,
            runs: &mut self.streaming.runs,
            streams_done: &mut self.streaming.done,
        };
        (&mut self.applying, &self.contents, listeners)
    }

    /// Processes the effects of applied slots, if any.
    fn applied(&mut self, now: Time, front: &mut dyn Front) {
        self.look_for_later_names();
        self.follow_streams(now);
        let node = self.protocol.node();
        let durable = node.configuration().class() == Class::Durable;
        let logged = durable.then(|| node.durable_to());
        self.applying.commit(logged, front);
        self.contents.release_below(self.needed_from());
        self.ask_what_lasts();
        self.release_reads();
    }

    /// [class-2] Queries the members about their disks while clients wait until applied commands
    /// are on stable storage at a quorum.
    fn ask_what_lasts(&mut self) {
        if self.completions.outlasting().is_empty() {
            return;
        }
        // Slots confirmed earlier may have been applied since.
        self.completions.lasts(Slot(0));
        if let Some(to) = self.completions.outlasting().question() {
            self.protocol.later(Input::Last { to });
        }
    }

    /// [last-5] Returns how to confirm that a command is on stable storage at a quorum.
    fn durable_confirmation(&self) -> Confirmation {
        match self.protocol.node().configuration().class() {
            Class::Durable => Confirmation::Decided,
            Class::Volatile if self.level() >= outlasting::LEVEL => Confirmation::Asked,
            Class::Volatile => Confirmation::Closed,
        }
    }

    /// [less-5] Returns how to confirm that a command is in memory at a quorum.
    fn early_confirmation(&self) -> Confirmation {
        match self.protocol.node().configuration().class() {
            Class::Volatile => Confirmation::Decided,
            Class::Durable if self.level() >= EARLY_LEVEL => Confirmation::Asked,
            Class::Durable => Confirmation::Closed,
        }
    }

    fn release_reads(&mut self) {
        if self.applying.answers() {
            self.reading.release(self.applying.applied_to(), &mut self.completions);
        }
    }

    /// Checks the service's health. The node continues to vote whatever the state of the service.
    fn tend(&mut self) {
        if let Some(why) = self.applying.tend() {
            self.observing.tell(Event::ServiceBack { why });
        }
        if self.applying.take_went_back() {
            self.streaming.keeping.went_back();
        }
        if let Some(event) = self.applying.news() {
            self.observing.tell(event);
        }
        if !self.applying.condition().is_stuck() {
            return;
        }
        // Decided values are in the log, and are read from there when they can be applied. The
        // memory that they use must not keep this node from voting.
        self.contents.release_below(self.protocol.node().decided_to());
    }

    /// Reports to the core whether this node is fit to lead ([live-3], [live-6]).
    fn look_at_fitness(&mut self, now: Time) {
        let (applying, keeping) = (&self.applying, &self.streaming.keeping);
        let device = self.devices.late();
        let service = || {
            let condition = applying.condition();
            let cannot = condition.is_stuck() || condition.doubt().is_some();
            let trouble = cannot.then(|| applying.trouble()).flatten();
            // A leader without free space for streams assigns them no slots.
            let waits = keeping.is_full() || !keeping.has_room();
            let streams = keeping.short().filter(|_| waits);
            let streams = streams.map(|why| format!("no room for byte streams: {why}"));
            device.map(str::to_owned).or(trouble).or(streams)
        };
        let known_to = self.protocol.node().known_to();
        let lag = self.lag.look(now, known_to, self.level_to());
        if let Some(fitness) = self.fit.look(now, self.storing.trouble(now), service, lag) {
            self.protocol.later(Input::Fitness(fitness));
        }
    }

    /// [time-3] Compares the clocks and reports changes. Returns the group's time as far as this
    /// node knows it.
    fn look_at_clocks(&mut self, now: Time, wall_ms: u64) -> u64 {
        self.clocks.turn(now, wall_ms);
        let (leads, node) = (self.protocol.leads(), self.protocol.node());
        let (time_ms, configuration) = (self.applying.time().ms(), node.configuration());
        let news = self.clocks.look(now, time_ms, self.member, leads, configuration);
        for off in news {
            self.observing.tell(Event::ClockOff(off));
        }
        self.clocks.now_ms(self.read_clock(now)).max(time_ms)
    }

    /// Returns the current time. The process may have been suspended since its turn began, so the
    /// input that it reads now may have been sent later.
    fn read_clock(&self, now: Time) -> Time {
        self.clock.as_ref().map_or(now, |clock| clock.now().max(now))
    }

    /// [session-3] If this node leads, proposes the commands that are due. Time reaches the service
    /// only through the log, stamped by the leader.
    fn take_due(&mut self, now: Time, plane: &mut dyn Plane) {
        if !self.protocol.leads() || !self.proposing.take_due(now) {
            return;
        }
        if self.ending.is_requested() || self.applying.condition().is_down() {
            return;
        }
        let group_ms = self.applying.time().ms();
        if self.proposing.may_stamp(now, group_ms)
            && self.may_propose(0)
            && let Some(clock_ms) = self.clocks.stamp_ms(now)
            && let Some(ms) = self.applying.stamp(clock_ms)
        {
            self.proposing.stamped(now, ms);
            let value = Value::Now { ms };
            let payload = None;
            self.propose_value(now, Offer { value, payload }, plane);
        }
        let origin = self.proposing.origin();
        // This limit does not depend on the one for clients' commands, since housekeeping must be
        // able to complete what an accepted command began.
        let max = largest_command(self.storing.log());
        self.applying.due(&mut |command| {
            if command.len() <= max {
                origin.accept_due(now, command);
            }
        });
    }

    fn propose(&mut self, now: Time, plane: &mut dyn Plane) {
        self.proposing.origin().look(now);
        match self.protocol.node().leader() {
            _ if self.protocol.leads() => {
                self.devices.forget_offers();
                self.propose_forwarded(now, plane);
                self.propose_own(now, plane);
                self.steering.set_pausing(self.protocol.node().pauses_for_era());
            }
            Some(leader) if leader != self.member.node => {
                let mut out = Outbox::new(self.member, plane, &mut self.counters);
                let mut ways = LeaderPaths {
                    leader,
                    ballot: self.protocol.node().ballot(),
                    devices: &mut self.devices,
                    contents: &mut self.contents,
                    out: &mut out,
                };
                self.proposing.forward(now, &mut ways);
            }
            _ => self.devices.forget_offers(),
        }
    }

    fn propose_forwarded(&mut self, now: Time, plane: &mut dyn Plane) {
        while let Some(bytes) = self.proposing.next_forwarded_bytes()
            && self.may_propose(bytes)
            && let Some(offer) = self.proposing.pop_forwarded()
        {
            self.propose_value(now, offer, plane);
        }
    }

    fn propose_own(&mut self, now: Time, plane: &mut dyn Plane) {
        while let Some(bytes) = self.proposing.own().next_bytes(now)
            && self.may_propose(bytes)
            && let Some(offer) = self.proposing.origin().take_offer(now)
        {
            if !self.proposing.knows(&offer.value) {
                self.propose_value(now, offer, plane);
            }
        }
    }

    fn may_propose(&self, bytes: usize) -> bool {
        let node = self.protocol.node();
        node.can_propose()
            && self.devices.has_room()
            && !self.is_overloaded()
            && self.contents.has_room(bytes)
    }

    fn propose_value(&mut self, now: Time, offer: Offer, plane: &mut dyn Plane) {
        let Offer { value, payload } = offer;
        self.counters.slots_waited_for_era += u64::from(self.steering.is_pausing());
        if let Some(payload) = payload {
            self.devices.note_proposed(now, payload.len());
            self.contents.offer(&value, payload);
            self.found(now, value);
        }
        self.step(now, Input::Propose { value, slots: 1 }, plane);
    }

    /// Sets the devices to choose from. If one is available, phase 2 of the group may run on it
    /// ([offload-5]).
    pub fn lend_device(&mut self, devices: Box<dyn DeviceSource>) {
        self.devices.lend(devices);
    }

    /// Processes the device's messages, and lets its owner do the work that is due.
    fn turn_device(&mut self, now: Time) {
        if self.devices.is_none() {
            return;
        }
        let (contents, protocol) = (&mut self.contents, &mut self.protocol);
        let node = protocol.node();
        let (role, decided_to) = (node.role(), node.decided_to());
        let group = Surroundings {
            has_vote: role != Role::Learner,
            is_durable: node.configuration().class() == Class::Durable,
            leads: role == Role::Leader,
            leader: node.leader(),
            decided_to,
        };
        self.devices.turn(now, &group, |news| match news {
            DeviceEvent::Bytes(value, range, payload) => contents.insert(&value, range, payload),
            DeviceEvent::Told(ballot, held) => {
                // Decisions far ahead are learned later, in order.
                if !(decided_to..decided_to.plus(TOLD_AHEAD)).contains(&held.slot) {
                    return;
                }
                let (slot, value) = report_bytes(held, &mut |news| {
                    if let DeviceEvent::Bytes(value, range, payload) = news {
                        contents.insert(&value, range, payload);
                    }
                });
                protocol.later(Input::Device(DeviceReport::CountedValue { ballot, slot, value }));
            }
            DeviceEvent::Word(word) => protocol.later(Input::Device(word)),
            DeviceEvent::Use(cells) => protocol.later(Input::Offload { cells }),
            DeviceEvent::Returned(value) => protocol.later(Input::Propose { value, slots: 1 }),
        });
        self.completions.note_late_device(self.devices.late().is_some());
    }

    /// [offload-15] Submits a value of the core to the device. If the device cannot accept it, the
    /// value is returned to the core.
    fn submit_to_device(&mut self, now: Time, value: Value, plane: &mut dyn Plane) {
        let slot = SlotRange::one(Slot(0));
        let payload = self.contents.recent(&value, slot);
        let bytes = payload.as_deref().unwrap_or_default();
        if self.devices.submit(now, value, bytes).is_err() {
            self.on_refused(now, value, Refusal::Busy, plane);
        }
    }

    /// Sets the clock for the cases in which the turn's timestamp is too old. Called before the
    /// first turn.
    pub fn lend_clock(&mut self, clock: Clock) {
        self.clock = Some(clock);
    }

    /// Enables timestamps of commands' hops, stored in this ring.
    pub fn lend_hops(&mut self, hops: Hops) {
        self.hops = Some(Box::new(hops));
    }

    /// Returns the timestamps of hops, if enabled.
    pub fn hops(&mut self) -> Option<&mut Hops> {
        self.hops.as_deref_mut()
    }

    fn stamp(&mut self, hop: Hop, slot: Option<Slot>) {
        if let Some(hops) = &mut self.hops {
            hops.stamp(hop, slot);
        }
    }

    /// [read-4] Releases waiting reads without a request for confirmation while this node seems to
    /// hold a lease. The turn's timestamp may be old, so this is only an estimate; the clock is
    /// read again after the query.
    fn read_by_lease(&mut self, now: Time) {
        if !self.reading.wants_lease() || self.clock.is_none() {
            return;
        }
        if let Some(leased) = self.protocol.node().leased_read(now) {
            self.counters.reads_leased += self.reading.leased(leased);
            self.release_reads();
        }
    }

    fn release_reads_within(&mut self, now: Time) {
        if self.applying.answers() {
            let applied_to = self.applying.applied_to();
            self.reading.release_within(now, applied_to, &mut self.completions);
        }
    }

    fn ask_reads(&mut self, now: Time, plane: &mut dyn Plane) {
        self.read_by_lease(now);
        self.release_reads_within(now);
        if let Some(token) = self.reading.next_question(now) {
            self.step(now, Input::Read(token), plane);
            self.release_reads();
        }
        if let Some(token) = self.reading.next_probe_question(now) {
            self.step(now, Input::Read(token), plane);
        }
        self.look_at_access(now);
        if let Some(token) = self.reading.next_access_question(now) {
            self.step(now, Input::Read(token), plane);
        }
    }

    /// Serves peers that catch up, and sends this node's own requests, within a budget per turn.
    fn help_peers(&mut self, now: Time, plane: &mut dyn Plane) {
        let mut out = Outbox::new(self.member, plane, &mut self.counters);
        self.contents.ask(now, &self.peers, &mut out);
        self.catching_up.ask(now, &self.peers, &mut self.protocol, &mut out);
        self.catching_up.read_for_peers(now, &mut self.storing);
        let from = (self.applying.history(), &self.contents);
        self.catching_up.serve(now, &self.peers, from, &mut self.storing, &mut out);
    }

    /// Takes, sends, receives and loads snapshots, and trims the log, as each is due.
    fn keep_snapshots(&mut self, now: Time, plane: &mut dyn Plane) {
        let others = self.keep_streams(now, plane);
        let streams_kept_to = self.streaming.keeping.kept_to(self.applying.streams());
        self.with_snapshots(now, plane, |snapshots, around| {
            snapshots.advance(others, streams_kept_to, around);
        });
        if self.snapshots.waits_to_follow(self.storing.log().start()) && self.protocol.leads() {
            self.give_way(now);
        }
        if self.applying.take_loaded() {
            self.streams_loaded(now);
        }
        self.checkpoint_streams(self.snapshots.wants_streams_kept_to());
    }

    /// Calls `act` with the snapshots and the parts that they need.
    fn with_snapshots(
        &mut self,
        now: Time,
        plane: &mut dyn Plane,
        act: impl FnOnce(&mut Snapshots, &mut ReplicaParts<'_, '_, D, S>),
    ) {
        let mut out = Outbox::new(self.member, plane, &mut self.counters);
        let mut around = ReplicaParts {
            now,
            storing: &mut self.storing,
            applying: &mut self.applying,
            origin: self.proposing.origin(),
            completions: &mut self.completions,
            catching_up: &mut self.catching_up,
            protocol: &mut self.protocol,
            peers: &self.peers,
            observing: &mut self.observing,
            out: &mut out,
        };
        act(&mut self.snapshots, &mut around);
    }

    /// Compares applied states with the peers, so that nodes that applied different values do not
    /// continue unnoticed.
    fn compare_histories(&mut self, now: Time, plane: &mut dyn Plane) {
        let logged = self.says_of_log();
        let mut out = Outbox::new(self.member, plane, &mut self.counters).saying(logged);
        let own = self.applying.digest();
        if let Some(alarm) = self.peers.compare(now, own, &mut out) {
            self.observing.raise(alarm, &mut self.counters);
        }
        self.look_at_doubt();
    }

    fn advance_stop(&mut self, now: Time) {
        let idle = || self.completions.open() == 0 && self.proposing.own().is_idle();
        let ends = self.ending.advance(
            now,
            idle,
            self.peers.is_empty(),
            &mut self.protocol,
            &mut self.storing,
            &mut self.devices,
        );
        if ends {
            self.end_requests(Failure::Stopping);
        }
    }

    /// Fails all open requests with this failure.
    fn end_requests(&mut self, failure: Failure) {
        let origin = self.proposing.origin();
        origin.expire_all(failure, &mut self.completions);
        self.reading.expire(Time(u64::MAX), &mut self.completions);
        self.completions.expire_lasting(Time(u64::MAX));
        self.streaming.end_all(failure);
    }

    /// Checks this replica at intervals, and reports events to the operator.
    fn watch(&mut self, now: Time) {
        if !self.observing.take_look(now) {
            return;
        }
        let log = self.storing.log();
        let configuration = self.protocol.node().configuration();
        let sight = ReplicaView {
            standing: self.standing(),
            stops: self.ending.is_requested(),
            oldest_write: self.tuning.oldest_write(),
            written_bytes: log.counters().write_bytes,
            segment_failure: log.segment_failure(),
            reachable: self.peers.reachable(self.member, configuration),
        };
        self.observing.look(now, &sight);
    }

    /// Returns the pressure that decides whether clients should be read. Without a leader they
    /// should be, because their requests may have to fail in time.
    pub fn pressure(&self) -> Pressure {
        if self.protocol.node().leader().is_none() {
            return Pressure::Low;
        }
        self.proposing.pressure().max(self.reading.pressure())
    }

    /// Starts a probe of whether a linearizable read would be served here now. The caller takes the
    /// result with [`Replica::take_probe`].
    pub fn probe(&mut self, now: Time) {
        let condition = self.applying.condition();
        let refused = if self.is_open().is_err() {
            Some(Probed::Closed)
        } else {
            let cannot = condition.is_stuck() || condition.doubt().is_some();
            cannot.then_some(Probed::Unavailable)
        };
        self.reading.probe(now, refused);
    }

    /// Takes the result of the probe, once it has ended.
    pub fn take_probe(&mut self) -> Option<Probed> {
        self.reading.take_probe()
    }

    /// Begins a clean stop, after which no new requests are accepted. The caller continues to drive
    /// the replica until [`Replica::is_stopped`], and only then marks the stop as clean.
    pub fn stop(&mut self, now: Time) {
        self.ending.begin(now);
    }

    /// Returns whether a clean stop has ended, with every vote and promise on disk.
    pub fn is_stopped(&self) -> bool {
        self.ending.is_done()
    }

    /// Returns whether a finished stop may be marked as clean. It may not if the log failed, or if
    /// votes were or may have been forgotten.
    pub fn stopped_cleanly(&self) -> bool {
        self.ending.is_clean() && self.storing.failure().is_none()
    }

    /// Hands leadership to this node, or to the most advanced follower ([live-4]). The caller takes
    /// the result with [`Replica::take_transfer_result`].
    pub fn transfer(&mut self, _now: Time, to: Option<NodeId>) {
        self.ending.transfer(to, &mut self.protocol);
    }

    /// Takes the result of a transfer, once it has ended.
    pub fn take_transfer_result(&mut self) -> Option<Result<NodeId, Refusal>> {
        self.ending.take_transfer_result()
    }

    /// Takes a snapshot at or after this slot, by default at the applied position, even if the
    /// service persists itself on a disk. The caller takes the result with
    /// [`Replica::take_snapshot_answer`].
    pub fn snapshot_now(&mut self, at: Option<Slot>) {
        let applied_to = self.applying.applied_to();
        let refused = if self.ending.is_requested() {
            Some("this node stops".to_owned())
        } else if let Some(error) = self.storing.failure() {
            Some(error.to_owned())
        } else if applied_to == Slot::FIRST {
            Some("nothing is applied here yet".to_owned())
        } else {
            None
        };
        match refused {
            Some(why) => self.snapshots.refuse_ask(why),
            None => {
                let at = at.map_or(applied_to, |at| at.min(applied_to));
                self.snapshots.ask(at);
            }
        }
    }

    /// Takes the result of a requested snapshot: the complete snapshot, referenced by the base of
    /// the log, or an error.
    pub fn take_snapshot_answer(&mut self) -> Option<Result<Snapshot, String>> {
        self.snapshots.take_answer()
    }

    /// Returns this node's snapshot, if it has one, to be read by another thread. Its files are not
    /// deleted while the value lives.
    pub fn hold_snapshot(&mut self) -> Option<Held> {
        self.snapshots.hold()
    }

    /// Fixes batch and window at these values, or the nearest possible ones, until `until`,
    /// overriding the tuner; `None` releases them.
    pub fn hold_setting(&mut self, now: Time, setting: Option<Setting>, until: Time) {
        self.tuning.hold(now, setting, until);
    }
}
