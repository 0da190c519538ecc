//! The main loop of a replica: its parts and the order of a turn, without socket or clock.
//!
//! The caller passes frames, requests and the time, calls [`Replica::poll`], delivers the
//! completions, flushes the plane's buffers, and then calls [`Replica::submit_records`]. The leader
//! thus sends before it writes: the disks of leader and followers work in parallel, and a client
//! does not wait for one after the other.
//!
//! Each part owns its state, and borrows what it needs from the others for one call. The parts are
//! joined here. Each source of input has a file of its own: peers' frames (`ingress`), effects of
//! the core (`egress`), completions of the disk (`disk`), and clients' requests (`requests`).
//! `rollback` handles other nodes' statements about their logs, `report` the status of the replica,
//! and `start` and `ending` its start and end.

mod disk;
mod egress;
mod frame_clients;
mod ingress;
mod operators;
mod report;
pub(crate) mod requests;
mod scrub;

mod start;
mod stream_requests;

use quorate_core::{
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
use quorate_log::disk::{Completed, Disk};
use quorate_stream::store::Store;

use crate::{
    applying::{Applying, applier::ApplyContext},
    catching_up::CatchingUp,
    clock::Clock,
    contents::Contents,
    devices::{DeviceEvent, Devices, report_bytes},
    differing::StateSuspicion,
    ending::Ending,
    fitness::FitnessState,
    hops::{Hop, HopRing},
    idling::GroupView,
    members::{MembersView, MembersWork, driver::MembershipDriver},
    observing::{events::Event, watch::ReplicaView},
    offers::Offer,
    outbox::Outbox,
    ports::{
        device::DeviceSource,
        front::{Failure, Front},
        plane::Plane,
        service::StateMachine,
        status::Addresses,
    },
    proposing::LeaderPaths,
    reading::Reading,
    rollback::Rollback,
    scrubbing::Scrubbing,
    snapshots::{Snapshots, turn::ReplicaParts},
    spine::Spine,
    storing::{largest_command, reads::Purpose},
    streaming::{Streaming, work::StreamWork},
    tuning::Tuning,
    turns::Turns,
    wake::earliest_time,
};

/// Number of slots above the decided prefix for which decisions received by frames are used.
const DECISIONS_AHEAD_MAX: u64 = 1 << 12;

/// One replica: the spine, which orders, stores and executes commands, and a wing for each further
/// subject.
pub struct Replica<D: Disk, S: StateMachine> {
    spine: Spine<D, S>,
    streaming: Streaming,
    reading: Reading,
    catching_up: CatchingUp,
    snapshots: Snapshots,
    scrubbing: Scrubbing,
    members: MembershipDriver,
    rollback: Rollback,
    suspicion: StateSuspicion,
    /// This node's device, if any, which may run phase 2.
    devices: Devices,
    tuning: Tuning,
    fitness: FitnessState,
    ending: Ending,
    turns: Turns,
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
        if member.node == self.spine.identity.member.node {
            return;
        }
        self.peer_down(now, member.node);
        self.spine.peers.connect(member, addresses);
        self.members.level_raises_mut().record_connection(now, member.node, boot, newest);
        let understands = self.members.level_raises().can_remind(member.node);
        self.rollback.handle_connection(&self.spine, (member, boot), understands);
        self.tuning.on_peers_changed();
        self.spine.protocol.queue_input(Input::Connected(member));
        self.streaming.peer_up(member.node, boot);
        if self.spine.node().leader() == Some(member.node) {
            // Offers sent over the old connection may be lost.
            self.spine.proposing.origin_mut().on_new_ballot();
        }
    }

    pub fn peer_down(&mut self, _now: Time, node: NodeId) {
        if self.spine.peers.disconnect(node) {
            self.members.level_raises_mut().record_disconnection(node);
            self.catching_up.stop_serving(node);
            self.snapshots.drop_transfers(node);
            self.streaming.peer_down(node);
            self.tuning.on_peers_changed();
            self.spine.protocol.queue_input(Input::Disconnected(node));
        }
    }

    /// Does all work that is due: timers, completed writes, decisions, new proposals. Reads that
    /// are ordered among the commands run in `front`; all other results are reported by
    /// [`Replica::deliver_completions`]. `wall_ms` is Unix time in milliseconds.
    pub fn poll(&mut self, now: Time, wall_ms: u64, plane: &mut dyn Plane, front: &mut dyn Front) {
        let wall_ms = self.spine.check_clocks(now, wall_ms);
        self.rollback.send_reminders(&mut self.spine, plane);
        self.begin_turn(now);
        self.catching_up.begin_turn();
        self.tuning.begin_turn(now);
        self.poll_log(now, wall_ms, plane, front);
        if self.is_silent() {
            self.reading.settle_probe(now, self.spine.applying.applied_to());
            self.advance_stop(now);
            return;
        }
        let node = self.spine.node();
        plane.note_decided(node.ballot(), node.decided_to());
        if let Some(voters) = self.spine.protocol.take_new_voters() {
            plane.set_voters(voters);
        }
        self.run_device_turn(now);
        self.check_fitness(now);
        self.drain_inbox(now, plane);
        self.check_promise(now);
        self.tick(now, plane);
        self.fail_expired(now);
        self.apply_decided(now, wall_ms, false, front);
        self.propose_due_commands(now, plane);
        self.run_leader_duties(now, plane);
        self.propose(now, plane);
        self.streams_work().send_client_bytes(now, wall_ms, plane);
        self.propose_streams(now, plane);
        self.request_confirmations(now, plane);
        self.drain_inbox(now, plane);
        self.run_device_turn(now);
        // In a volatile group of one, the latest proposal is already decided.
        self.apply_decided(now, wall_ms, true, front);
        self.check_requests(now);
        self.members_work().answer_raises(now);
        self.release_bounded_reads(now);
        self.reading.settle_probe(now, self.spine.applying.applied_to());
        self.serve_and_request(now, plane);
        self.advance_snapshots(now, plane);
        self.advance_scrub(now, wall_ms, plane);
        self.compare_histories(now, plane);
        self.advance_stop(now);
    }

    /// [live-5] Reports a late turn to the core before any message that arrived in the meantime.
    pub(super) fn begin_turn(&mut self, now: Time) {
        if let Some(us) = self.turns.begin_turn(now)
            && !self.is_silent()
        {
            self.spine.protocol.queue_input(Input::LateTurn { delay_us: us });
        }
    }

    /// [access-4] Starts a linearizable read if the access rules are needed and not known to be
    /// current. Its completion shows that everything on which this node may have acted before the
    /// restart is applied.
    fn check_access(&mut self, now: Time) {
        if !self.spine.applying.access().is_awaited() || self.check_open().is_err() {
            return;
        }
        if self.reading.take_access_confirmation(now, self.spine.applying.applied_to()) {
            self.spine.applying.mark_access_current();
        }
    }

    /// Starts writing the appended records. Called once the plane's buffers have been flushed.
    pub fn submit_records(&mut self, now: Time) {
        self.spine.storing.submit(now, self.spine.node().awaits_disk());
        self.report_writes(now);
    }

    /// Ends the turn at time `now`. Returns the time at which [`Replica::poll`] is due, like
    /// [`Replica::wake_at`].
    pub fn end_turn(&mut self, now: Time) -> Option<Time> {
        self.check_at_intervals(now);
        self.choose_route(now);
        let wake_by = self.wake_at(now);
        let origin = self.spine.proposing.origin_mut();
        for completed in origin.take_completed() {
            self.spine.counters.on_answered(now, &completed);
            self.tuning.on_completed(now, &completed);
        }
        let (waiting, in_flight) = origin.queued_counts();
        let totals = origin.totals();
        let setting = self.tuning.end_turn(now, wake_by, totals, waiting, in_flight);
        // [offload-15] The coordinator need not be revoked for a batch that fits into a frame.
        let refitted = origin.set_frame_value_bytes(now, self.devices.frame_value_bytes());
        let batch_bytes = setting.batch_bytes.min(self.spine.applying.batch_bytes_max());
        let changed = origin.set_batching(batch_bytes, setting.window) || refitted;
        // A waiting command may be small enough for a batch now.
        if changed && waiting > 0 {
            self.turns.end_turn(now, Some(now));
            return Some(now);
        }
        self.turns.end_turn(now, wake_by);
        wake_by
    }

    /// [plane-3] Chooses the route by which votes travel.
    fn choose_route(&mut self, now: Time) {
        let node = self.spine.node();
        let leads = node.role() == Role::Leader;
        let voters = node.configuration().members().len();
        if let Some(route) = self.tuning.choose_route(leads, voters, now) {
            self.spine.protocol.queue_input(Input::Route(route));
        }
    }

    /// Returns the latest time at which [`Replica::poll`] is due; in the past if work is left.
    pub fn wake_at(&self, now: Time) -> Option<Time> {
        if self.ending.is_silent() {
            // Only disk writes are pending.
            return match self.ending.is_writing() {
                true if self.spine.storing.all_written() => Some(now),
                true => self.spine.storing.shortage_retry_at(),
                false => None,
            };
        }
        let (read_at, short_retry) =
            (self.spine.storing.read_at(now), self.spine.storing.shortage_retry_at());
        if self.catching_up.unread_votes().is_some() {
            return earliest_time([read_at, self.reading.probe_at(), short_retry]);
        }
        if self.has_work() {
            return Some(now);
        }
        let leading =
            self.spine.protocol.is_leader().then_some(self.spine.proposing.next_due_check_at());
        earliest_time([
            Some(self.spine.protocol.next_tick_at()),
            leading,
            self.spine.proposing.own_origin().wake_at(now),
            self.spine.contents.wake_at(),
            self.spine.storing.write_deadline(),
            read_at,
            short_retry,
            self.spine.applying.condition().wake_at(now),
            self.spine.completions.next_reply_deadline(),
            self.reading.wake_at(now),
            self.reading.probe_at(),
            self.catching_up.retry_at(),
            self.catching_up.repair_at(),
            self.snapshots.wake_at(now),
            self.scrubbing.wake_at(now),
            self.should_steer().then(|| self.members_view().steer_at()).flatten(),
            self.ending.deadline(),
            self.devices.wake_at(),
            self.streaming.wake_at(now),
            self.spine.protocol.is_leader().then(|| self.streaming.retain_at()).flatten(),
        ])
    }

    fn has_work(&self) -> bool {
        let decided_to = self.spine.executable_to();
        self.spine.protocol.has_input()
            || self.streaming.has_fresh_bytes()
            || (self.streaming.stream_storage.has_room()
                && self.spine.applying.has_work(
                    decided_to,
                    &self.spine.contents,
                    &self.spine.completions,
                ))
    }

    /// Returns whether the node must not send: its earlier votes have not been read yet, or its
    /// last records are being written.
    fn is_silent(&self) -> bool {
        self.catching_up.unread_votes().is_some() || self.ending.is_silent()
    }

    fn drain_inbox(&mut self, now: Time, plane: &mut dyn Plane) {
        while let Some(input) = self.spine.protocol.next_input() {
            self.step(now, input, plane);
        }
    }

    fn check_promise(&mut self, now: Time) {
        let node = self.spine.node();
        self.spine.observing.record_promise(now, node.acceptor().promised(), node.era());
    }

    fn tick(&mut self, now: Time, plane: &mut dyn Plane) {
        if self.spine.protocol.take_tick(now) {
            self.step(now, Input::Tick, plane);
        }
    }

    fn fail_expired(&mut self, now: Time) {
        let origin = self.spine.proposing.origin_mut();
        origin.repeat_if_silent(now);
        let commands = origin.fail_expired(now, &mut self.spine.completions);
        let reads = self.reading.fail_expired(now, &mut self.spine.completions);
        let lasting = self.spine.completions.fail_overdue_replies(now);
        self.spine.counters.requests_timed_out += commands + reads + lasting;
    }

    /// Applies the decided slots, within a budget, and releases the reads that waited for them.
    /// `again` means that slots may already have been applied in this turn.
    fn apply_decided(&mut self, now: Time, wall_ms: u64, again: bool, front: &mut dyn Front) {
        self.check_service_health();
        if !self.streaming.stream_storage.has_room() {
            return;
        }
        let decided_to = self.spine.executable_to();
        let (applying, contents, mut listeners) = self.applying_parts(now, wall_ms, front);
        let before = applying.applied_to();
        let unread = applying.apply_decided(decided_to, contents, again, &mut listeners);
        let applied_to = applying.applied_to();
        if applied_to > before {
            self.spine.stamp(Hop::Applied, Some(Slot(applied_to.0 - 1)));
        }
        if let Some(range) = unread {
            self.read_to_apply(now, range);
        }
        self.process_applied(now, front);
    }

    /// Borrows the applier's input and the listeners for its output.
    fn applying_parts<'a>(
        &'a mut self,
        now: Time,
        wall_ms: u64,
        front: &'a mut dyn Front,
    ) -> (&'a mut Applying<S>, &'a Contents, ApplyContext<'a>) {
        let listeners = ApplyContext {
            now,
            clock: self.spine.clocks.steady_clock(),
            wall_ms,
            front,
            origin: self.spine.proposing.origin_mut(),
            completions: &mut self.spine.completions,
            counters: &mut self.spine.counters,
            appended_bytes: &mut self.streaming.appended_bytes,
            applied_runs: &mut self.streaming.applied_runs,
            executed_stream_commands: &mut self.streaming.executed_commands,
        };
        (&mut self.spine.applying, &self.spine.contents, listeners)
    }

    /// Processes the effects of applied slots, if any.
    fn process_applied(&mut self, now: Time, front: &mut dyn Front) {
        if let Some(why) = self.rollback.find_later_names(&self.spine) {
            self.fail_storage(why);
        }
        self.streams_work().process_applied(now);
        let node = self.spine.node();
        let durable = node.configuration().class() == Class::Durable;
        let logged = durable.then(|| node.durable_to());
        self.spine.applying.commit(logged, front);
        self.spine.contents.release_below(self.spine.needed_from());
        self.query_durable_slots();
        self.release_reads();
    }

    /// [class-2] Queries the members about their disks while clients wait until applied commands
    /// are on stable storage at a quorum.
    fn query_durable_slots(&mut self) {
        if self.spine.completions.held_replies().is_empty() {
            return;
        }
        // Slots confirmed earlier may have been applied since.
        self.spine.completions.release_durable(Slot(0));
        if let Some(to) = self.spine.completions.held_replies().next_query() {
            self.spine.protocol.queue_input(Input::AwaitDurable { to });
        }
    }

    fn release_reads(&mut self) {
        if self.spine.applying.can_answer_queries() {
            self.reading
                .release_applied(self.spine.applying.applied_to(), &mut self.spine.completions);
        }
    }

    /// Checks the service's health. The node votes even if the service has failed.
    fn check_service_health(&mut self) {
        if let Some(why) = self.spine.applying.check_health() {
            self.spine.observing.queue_event(Event::ServiceRestarted { why });
        }
        if self.spine.applying.take_rolled_back() {
            self.streaming.stream_storage.on_rollback();
        }
        if let Some(event) = self.spine.applying.next_health_event() {
            self.spine.observing.queue_event(event);
        }
        if !self.spine.applying.condition().is_stuck() {
            return;
        }
        // Decided values are in the log, and are read from there when they can be applied. The
        // memory that they use must not keep this node from voting.
        self.spine.contents.release_below(self.spine.node().decided_to());
    }

    /// Reports to the core whether this node is fit to lead ([live-3], [live-6]).
    fn check_fitness(&mut self, now: Time) {
        let (applying, keeping) = (&self.spine.applying, &self.streaming.stream_storage);
        let device = self.devices.late_reason();
        let service = || {
            let condition = applying.condition();
            let cannot = condition.is_stuck() || condition.doubt_reason().is_some();
            let trouble = cannot.then(|| applying.trouble_reason()).flatten();
            // A leader without free space for streams assigns them no slots.
            let waits = keeping.is_full() || !keeping.has_room();
            let streams = keeping.shortage().filter(|_| waits);
            let streams = streams.map(|why| format!("no room for byte streams: {why}"));
            device.map(str::to_owned).or(trouble).or(streams)
        };
        let known_to = self.spine.node().known_decided_to();
        let lag = self.fitness.measure_lag(now, known_to, self.caught_up_to());
        let log = self.spine.storing.write_obstacle(now);
        if let Some(fitness) = self.fitness.update_fitness(now, log, service, lag) {
            self.spine.protocol.queue_input(Input::Fitness(fitness));
        }
    }

    /// [session-3] If this node leads, proposes the commands that are due. Time reaches the service
    /// only through the log, stamped by the leader.
    fn propose_due_commands(&mut self, now: Time, plane: &mut dyn Plane) {
        if !self.spine.protocol.is_leader() || !self.spine.proposing.take_due_check(now) {
            return;
        }
        if self.ending.is_requested() || self.spine.applying.condition().is_down() {
            return;
        }
        let group_ms = self.spine.applying.time().ms();
        if self.spine.proposing.can_stamp(now, group_ms)
            && self.may_propose(0)
            && let Some(clock_ms) = self.spine.clocks.confirmed_group_ms(now)
            && let Some(ms) = self.spine.applying.time_to_propose(clock_ms)
        {
            self.spine.proposing.record_stamp(now, ms);
            let value = Value::Now { ms };
            let payload = None;
            self.propose_value(now, Offer { value, payload }, plane);
        }
        let origin = self.spine.proposing.origin_mut();
        // This limit does not depend on the one for clients' commands, since housekeeping must be
        // able to complete what an accepted command began.
        let max = largest_command(self.spine.storing.log());
        self.spine.applying.visit_due_commands(&mut |command| {
            if command.len() <= max {
                origin.accept_service_command(now, command);
            }
        });
    }

    /// Returns whether this node leads and is not stopping.
    fn should_steer(&self) -> bool {
        self.spine.protocol.is_leader() && !self.ending.is_requested()
    }

    /// As leader, continues the plan, readmits members that forgot their votes, and hands
    /// leadership to the member that should have it.
    fn run_leader_duties(&mut self, now: Time, plane: &mut dyn Plane) {
        if !self.should_steer() {
            return;
        }
        if self.members_view().is_plan_due(now) {
            if let Some(value) = self.members_work().follow_plan(now) {
                self.step(now, Input::Propose { value, slots: 1 }, plane);
            }
            self.hand_over_to_heir();
        }
        if self.members.take_due_check(now) {
            let may_propose = self.may_propose(0);
            if let Some(value) = self.members_work().raise_to_propose(now, may_propose) {
                self.propose_value(now, Offer { value, payload: None }, plane);
            }
            self.members_work().readmit_node(now);
            self.members_work().hand_over_by_priority(now);
            self.hand_over_to_heir();
        }
    }

    /// Hands leadership to the node that should have it, if any.
    fn hand_over_to_heir(&mut self) {
        if let Some(to) = self.members.take_heir() {
            self.ending.start_transfer(Some(to), &mut self.spine.protocol);
        }
    }

    fn members_view(&self) -> MembersView<'_, D, S> {
        MembersView { driver: &self.members, spine: &self.spine }
    }

    fn members_work(&mut self) -> MembersWork<'_, D, S> {
        MembersWork { driver: &mut self.members, spine: &mut self.spine }
    }

    fn streams_work(&mut self) -> StreamWork<'_, D, S> {
        StreamWork { streaming: &mut self.streaming, spine: &mut self.spine }
    }

    /// As leader, closes streams whose owners are lost, and assigns slots to available bytes.
    fn propose_streams(&mut self, now: Time, plane: &mut dyn Plane) {
        if !self.spine.protocol.is_leader() {
            return;
        }
        while self.may_propose(0)
            && let Some(value) = self.streams_work().next_lost(now)
        {
            self.step(now, Input::Propose { value, slots: 1 }, plane);
        }
        self.fitness.full_disks.check_own_disk(now, &mut self.spine);
        while self.fitness.full_disks.refusing_member(now, &self.spine).is_none()
            && self.may_propose(0)
            && let Some((value, slots)) = self.streams_work().next_run()
        {
            self.step(now, Input::Propose { value, slots }, plane);
        }
    }

    /// Hands completed disk operations to their owners, and advances the store of streams. Returns
    /// the operations that belong to snapshots.
    fn advance_streams(&mut self, now: Time, plane: &mut dyn Plane) -> Vec<Completed> {
        let mut others = Vec::new();
        while let Some(completed) = self.spine.storing.log_mut().next_other_completion() {
            if let Completed::SmallFileRead { name, result, .. } = completed {
                self.scrubbing.read_back_file = Some((name, result));
            } else if Store::is_store_completion(&completed) {
                self.streams_work().on_completed(completed);
            } else {
                others.push(completed);
            }
        }
        if let Some(range) = self.streams_work().replay_range() {
            let range = self.catching_up.readable_part(range);
            if !range.is_empty() {
                self.spine.storing.read(now, Purpose::Streams, range);
            }
        }
        if let Some(why) = self.streams_work().advance_store(now, plane) {
            self.fail_storage(why);
        }
        self.streams_work().report_lacking();
        others
    }

    fn propose(&mut self, now: Time, plane: &mut dyn Plane) {
        self.spine.proposing.origin_mut().end_wait_if_over(now);
        match self.spine.node().leader() {
            _ if self.spine.protocol.is_leader() => {
                self.devices.forget_offers();
                self.propose_forwarded(now, plane);
                self.propose_own(now, plane);
                self.members.set_pausing(self.spine.node().pauses_for_era());
            }
            Some(leader) if leader != self.spine.identity.member.node => {
                let mut out =
                    Outbox::new(self.spine.identity.member, plane, &mut self.spine.counters);
                let mut ways = LeaderPaths {
                    leader,
                    ballot: self.spine.protocol.node().ballot(),
                    devices: &mut self.devices,
                    contents: &mut self.spine.contents,
                    outbox: &mut out,
                };
                self.spine.proposing.forward_batches(now, &mut ways);
            }
            _ => self.devices.forget_offers(),
        }
    }

    fn propose_forwarded(&mut self, now: Time, plane: &mut dyn Plane) {
        while let Some(bytes) = self.spine.proposing.next_forwarded_bytes()
            && self.may_propose(bytes)
            && let Some(offer) = self.spine.proposing.pop_forwarded()
        {
            self.propose_value(now, offer, plane);
        }
    }

    fn propose_own(&mut self, now: Time, plane: &mut dyn Plane) {
        while let Some(bytes) = self.spine.proposing.own_origin().next_bytes(now)
            && self.may_propose(bytes)
            && let Some(offer) = self.spine.proposing.origin_mut().take_offer(now)
        {
            if !self.spine.proposing.has_pending(&offer.value) {
                self.propose_value(now, offer, plane);
            }
        }
    }

    fn may_propose(&self, bytes: usize) -> bool {
        let node = self.spine.node();
        node.can_propose()
            && self.devices.has_room()
            && !self.spine.is_overloaded()
            && self.spine.contents.has_room(bytes)
    }

    fn propose_value(&mut self, now: Time, offer: Offer, plane: &mut dyn Plane) {
        let Offer { value, payload } = offer;
        self.spine.counters.slots_waited_for_era += u64::from(self.members.is_pausing());
        if let Some(payload) = payload {
            self.devices.note_proposed(now, payload.len());
            self.spine.contents.store_offered(&value, payload);
            self.spine.handle_arrival(now, value);
        }
        self.step(now, Input::Propose { value, slots: 1 }, plane);
    }

    /// Sets the devices to choose from, on which phase 2 of the group may run ([offload-5]).
    pub fn set_device_source(&mut self, devices: Box<dyn DeviceSource>) {
        self.devices.set_source(devices);
    }

    /// Processes the device's messages, and lets its owner do the work that is due.
    fn run_device_turn(&mut self, now: Time) {
        if self.devices.is_none() {
            return;
        }
        let (contents, protocol) = (&mut self.spine.contents, &mut self.spine.protocol);
        let node = protocol.node();
        let (role, decided_to) = (node.role(), node.decided_to());
        let group = GroupView {
            has_vote: role != Role::Learner,
            is_durable: node.configuration().class() == Class::Durable,
            is_leader: role == Role::Leader,
            leader: node.leader(),
            decided_to,
        };
        self.devices.run_turn(now, &group, |news| match news {
            DeviceEvent::ValueBytes(value, range, payload) => {
                contents.insert(&value, range, payload)
            }
            DeviceEvent::Decision(ballot, held) => {
                // Decisions far ahead are learned later, in order.
                if !(decided_to..decided_to.plus(DECISIONS_AHEAD_MAX)).contains(&held.slot) {
                    return;
                }
                let (slot, value) = report_bytes(held, &mut |news| {
                    if let DeviceEvent::ValueBytes(value, range, payload) = news {
                        contents.insert(&value, range, payload);
                    }
                });
                protocol.queue_input(Input::Device(DeviceReport::CountedValue {
                    ballot,
                    slot,
                    value,
                }));
            }
            DeviceEvent::Report(word) => protocol.queue_input(Input::Device(word)),
            DeviceEvent::Capacity(cells) => protocol.queue_input(Input::Offload { cells }),
            DeviceEvent::Returned(value) => {
                protocol.queue_input(Input::Propose { value, slots: 1 })
            }
        });
        self.spine.completions.set_device_late(self.devices.late_reason().is_some());
    }

    /// [offload-15] Submits a value of the core to the device. If the device cannot accept it, the
    /// value is returned to the core.
    fn submit_to_device(&mut self, now: Time, value: Value, plane: &mut dyn Plane) {
        let slot = SlotRange::one(Slot(0));
        let payload = self.spine.contents.bytes_for_peer(&value, slot);
        let bytes = payload.as_deref().unwrap_or_default();
        if self.devices.submit_value(now, value, bytes).is_err() {
            self.on_refused(now, value, Refusal::Busy, plane);
        }
    }

    /// Sets the clock to read when a turn's timestamp is too old. Called before the first turn.
    pub fn set_clock(&mut self, clock: Clock) {
        self.spine.clocks.set_steady_clock(clock);
    }

    /// Enables timestamps of commands' hops, stored in the ring `hops`.
    pub fn set_hops(&mut self, hops: HopRing) {
        self.spine.hops = Some(Box::new(hops));
    }

    pub fn hops(&mut self) -> Option<&mut HopRing> {
        self.spine.hops.as_deref_mut()
    }

    /// [read-4] Releases waiting reads without a request for confirmation while this node seems to
    /// hold a lease. The turn's timestamp may be old, so this is only an estimate; the clock is
    /// read again after the query.
    fn read_by_lease(&mut self, now: Time) {
        if !self.reading.wants_lease() || self.spine.clocks.steady_clock().is_none() {
            return;
        }
        if let Some(leased) = self.spine.node().leased_read(now) {
            self.spine.counters.reads_leased += self.reading.release_leased(leased);
            self.release_reads();
        }
    }

    /// [read-9] Returns whether nothing that this leader has proposed and not yet applied can
    /// change the answer to a query.
    fn may_read_ahead(&self, query: &[u8]) -> bool {
        let (node, applying) = (self.spine.node(), &self.spine.applying);
        let level = node.decided_to() == applying.applied_to();
        let Some(mut undecided) = node.undecided_proposals().filter(|_| level) else {
            return false;
        };
        undecided.all(|proposal| match proposal.value {
            Value::NoOp | Value::RegisterSession { .. } => true,
            Value::Batch(_) => {
                let batch = self.spine.contents.bytes_for_peer(&proposal.value, proposal.range);
                batch.is_some_and(|batch| !applying.may_change(&batch, query))
            }
            _ => false,
        })
    }

    fn release_bounded_reads(&mut self, now: Time) {
        if self.spine.applying.can_answer_queries() {
            let applied_to = self.spine.applying.applied_to();
            self.reading.release_bounded(now, applied_to, &mut self.spine.completions);
        }
    }

    fn request_confirmations(&mut self, now: Time, plane: &mut dyn Plane) {
        self.read_by_lease(now);
        self.release_bounded_reads(now);
        if let Some(token) = self.reading.next_question(now) {
            self.step(now, Input::Read(token), plane);
            self.release_reads();
        }
        if let Some(token) = self.reading.next_probe_question(now) {
            self.step(now, Input::Read(token), plane);
        }
        let (node, applying) = (self.spine.node(), &self.spine.applying);
        let level = node.decided_to() == applying.applied_to();
        let ahead = level && node.awaits_old_leases(now) && applying.can_answer_queries();
        self.reading.release_ahead(now, ahead, &mut self.spine.completions);
        self.check_access(now);
        if let Some(token) = self.reading.next_access_question(now) {
            self.step(now, Input::Read(token), plane);
        }
    }

    /// Serves peers that catch up, and sends this node's own requests, within a budget per turn.
    fn serve_and_request(&mut self, now: Time, plane: &mut dyn Plane) {
        let mut out = Outbox::new(self.spine.identity.member, plane, &mut self.spine.counters);
        self.spine.contents.send_requests(now, &self.spine.peers, &mut out);
        self.catching_up.request_lost_slots(
            now,
            &self.spine.peers,
            &mut self.spine.protocol,
            &mut out,
        );
        self.catching_up.read_for_peers(now, &mut self.spine.storing);
        let from = (self.spine.applying.history(), &self.spine.contents);
        self.catching_up.serve_peers(
            now,
            &self.spine.peers,
            from,
            &mut self.spine.storing,
            &mut out,
        );
    }

    /// Takes, sends, receives and loads snapshots, and trims the log, as each is due.
    fn advance_snapshots(&mut self, now: Time, plane: &mut dyn Plane) {
        let others = self.advance_streams(now, plane);
        let streams_kept_to = self.streaming.stream_storage.kept_to(self.spine.applying.streams());
        self.with_snapshots(now, plane, |snapshots, around| {
            snapshots.advance(others, streams_kept_to, around);
        });
        if self.snapshots.waits_to_lose_leadership(self.spine.storing.log().start())
            && self.spine.protocol.is_leader()
        {
            self.members_work().hand_over_leadership(now);
            self.hand_over_to_heir();
        }
        if self.spine.applying.take_loaded() {
            self.streams_work().on_loaded(now);
        }
        let wanted = self.snapshots.wants_streams_kept_to();
        self.streams_work().checkpoint(wanted);
    }

    /// Calls `act` with the snapshots and the parts that they need.
    fn with_snapshots(
        &mut self,
        now: Time,
        plane: &mut dyn Plane,
        act: impl FnOnce(&mut Snapshots, &mut ReplicaParts<'_, '_, D, S>),
    ) {
        let mut out = Outbox::new(self.spine.identity.member, plane, &mut self.spine.counters);
        let mut around = ReplicaParts {
            now,
            storing: &mut self.spine.storing,
            applying: &mut self.spine.applying,
            origin: self.spine.proposing.origin_mut(),
            completions: &mut self.spine.completions,
            catching_up: &mut self.catching_up,
            protocol: &mut self.spine.protocol,
            peers: &self.spine.peers,
            observing: &mut self.spine.observing,
            outbox: &mut out,
        };
        act(&mut self.snapshots, &mut around);
    }

    /// Compares applied states with the peers, so that different ones do not go unnoticed.
    fn compare_histories(&mut self, now: Time, plane: &mut dyn Plane) {
        let logged = self.stated_log_end();
        let mut out = Outbox::new(self.spine.identity.member, plane, &mut self.spine.counters)
            .with_logged_to(logged);
        let own = self.spine.applying.digest();
        if let Some(alarm) = self.spine.peers.exchange_claims(now, own, &mut out) {
            self.spine.observing.raise_alarm(alarm, &mut self.spine.counters);
        }
        self.suspicion.update_record(&mut self.spine);
    }

    /// [lie-1] Returns the end of this node's log to state in frames. While a connected node would
    /// not understand such a statement, returns 0, which states nothing.
    fn stated_log_end(&self) -> u64 {
        match self.members.level_raises().all_support_log_statements() {
            true => self.spine.storing.log().intact_to(),
            false => 0,
        }
    }

    fn advance_stop(&mut self, now: Time) {
        let idle = || {
            self.spine.completions.open_count() == 0 && self.spine.proposing.own_origin().is_idle()
        };
        let ends = self.ending.advance_stop(
            now,
            idle,
            self.spine.peers.is_empty(),
            &mut self.spine.protocol,
            &mut self.spine.storing,
            &mut self.devices,
        );
        if ends {
            self.end_requests(Failure::Stopping);
        }
    }

    fn end_requests(&mut self, failure: Failure) {
        let origin = self.spine.proposing.origin_mut();
        origin.fail_all(failure, &mut self.spine.completions);
        self.reading.fail_expired(Time(u64::MAX), &mut self.spine.completions);
        self.spine.completions.fail_overdue_replies(Time(u64::MAX));
        self.streaming.end_all(failure);
    }

    /// Checks this replica at intervals, and reports events to the operator.
    fn check_at_intervals(&mut self, now: Time) {
        if !self.spine.observing.take_due_check(now) {
            return;
        }
        let log = self.spine.storing.log();
        let configuration = self.spine.node().configuration();
        let sight = ReplicaView {
            progress: self.node_progress(),
            is_leaving: self.ending.is_requested() || self.is_removed(),
            oldest_write: self.tuning.oldest_write(),
            written_bytes: log.counters().write_bytes,
            segment_failure: log.segment_failure(),
            reachable_members: self
                .spine
                .peers
                .count_reachable(self.spine.identity.member, configuration),
        };
        self.spine.observing.check_replica(now, &sight);
    }
}
