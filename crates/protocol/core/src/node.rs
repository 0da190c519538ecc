//! The node: `step(now, input, &mut effects)` dispatches each input to the part that handles it.
//!
//! `spine` orders commands: promises and votes, both phases, learning, elections, catch-up. Each
//! other folder or file is a wing with one subject: `leasing` lets a leader read alone, `auxiliary`
//! bypasses members that are not needed, `ring` forwards votes, `devices` runs phase 2 outside this
//! node, `reading` serves linearizable reads, `acks` answers clients earlier or later than the
//! group's class does, `handover` hands leadership over. `recovered` is a node's initial state.
//!
//! `docs/spec/structure.md` defines which part owns which state, and explains the order of a step.

mod acks;
mod auxiliary;
mod devices;
mod handover;
mod leasing;
mod options;
mod reading;
mod recovered;
mod ring;
mod spine;
mod timers;
mod told;

use self::{
    acks::Acks, auxiliary::Auxiliary, devices::Devices, handover::Handover, leasing::Leasing,
    reading::Reading, ring::Ring, spine::Spine, timers::Timers, told::LastNotified,
};
pub use self::{leasing::LeasedRead, options::Options, recovered::Recovered};
use crate::{
    dice::mix,
    effect::{Alarm, Effect, Effects},
    explanation::BallotEnd,
    fence::RunBegin,
    input::Input,
    message::Message,
    node_id::Member,
    pauses::Pauses,
    time::Time,
};

/// A node of the protocol: the spine, which orders commands, and its wings. A wing changes its own
/// fields directly, and the spine only through the spine's methods.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Node {
    spine: Spine,
    leasing: Leasing,
    auxiliary: Auxiliary,
    ring: Ring,
    devices: Devices,
    reading: Reading,
    acks: Acks,
    handover: Handover,
    pauses: Pauses,
    timers: Timers,
    last_notified: LastNotified,
}

impl Node {
    /// Creates a node from its recovered state. The first `Input::Tick` starts its clocks.
    pub fn new(options: Options, recovered: Recovered) -> Self {
        Self {
            leasing: Leasing::new(&options, &recovered),
            auxiliary: Auxiliary::default(),
            ring: Ring::new(options.route.clone()),
            devices: Devices::default(),
            reading: Reading::starting_at(mix(options.seed)),
            acks: Acks::default(),
            handover: Handover::default(),
            pauses: Pauses::default(),
            timers: Timers::default(),
            last_notified: LastNotified::default(),
            spine: Spine::new(options, recovered),
        }
    }

    /// Processes one input, and adds the resulting effects. Equal inputs produce equal effects.
    pub fn step(&mut self, now: Time, input: Input, effects: &mut Effects) {
        self.spine.begin_step();
        match input {
            Input::Message { from, message, bytes_held: held } => {
                self.on_message(now, from, message, held, effects);
            }
            Input::Propose { value, slots } => self.on_propose(now, value, slots, effects),
            Input::BytesHeld { value, range } => self.spine.mark_bytes_present(&value, range),
            Input::Persisted(seq) => self.on_persisted(seq),
            Input::StorageFailed => self.on_storage_failed(now, effects),
            Input::Fitness(fitness) => self.on_fitness(now, fitness, effects),
            Input::SlotsLost(range) => self.on_lost(range),
            Input::FirstUnreadable(first) => self.spine.set_first_unreadable(first),
            Input::StreamBytesLacking(lacking) => self.spine.set_lacks_stream_bytes(lacking),
            Input::FoundNowhere => self.on_found_nowhere(now, effects),
            Input::Installed { to, eras } => self.on_installed(now, to, eras, effects),
            Input::Trimmed(log_start) => self.on_trimmed(log_start),
            Input::Forgotten(to) => self.on_forgotten(to),
            Input::Connected(member) => self.on_connected(now, member, effects),
            Input::Disconnected(node) => self.on_disconnected(now, node, effects),
            Input::Read(token) => self.on_read(now, token, effects),
            Input::AwaitDurable { to } => self.acks.await_durable(to),
            Input::AwaitEarlyVotes { ballot, to } => self.acks.await_early(ballot, to),
            Input::Transfer { to } => self.on_transfer_request(now, to, effects),
            Input::Route(wish) => self.on_route(now, wish),
            Input::Offload { cells } => self.on_offload(cells, effects),
            Input::Device(word) => self.on_device_report(now, word, effects),
            Input::LateTurn { delay_us: us } => self.on_late_turn(now, us),
            Input::Tick => self.on_tick(now, effects),
        }
        self.settle(now, effects);
        self.spine.end_step();
    }

    fn on_message(
        &mut self,
        now: Time,
        from: Member,
        message: Message,
        held: bool,
        effects: &mut Effects,
    ) {
        match message {
            Message::Phase1a { ballot, from: slot } => {
                self.on_phase1a(now, from.node, ballot, slot, effects);
            }
            Message::Phase1b(promise) => self.on_phase1b(now, from, promise, effects),
            Message::Preempted { ballot, promised } => {
                self.on_preempted(now, from, ballot, promised, effects);
            }
            Message::Phase2a(proposal) => self.on_phase2a(now, from.node, proposal, held, effects),
            Message::Phase2b(vote) => self.on_phase2b(from, vote, effects),
            Message::Lay { ballot, number, members } => {
                self.on_lay(from.node, ballot, number, &members, effects)
            }
            Message::RingVote(vote) => self.on_ring_vote(now, &vote, effects),
            Message::Arm { ballot, slot, prefix } => {
                let begin = RunBegin { ballot, slot, prefix };
                self.on_arm(now, from.node, begin, effects);
            }
            Message::Armed { ballot, floor } => self.on_armed(from, ballot, floor),
            Message::Decided { ballot, decided_to } => {
                self.on_decided(now, ballot, decided_to, effects);
            }
            Message::Heartbeat(beat) => self.on_heartbeat(now, from.node, beat, effects),
            Message::HeartbeatReply(reply) => self.on_heartbeat_reply(now, from, reply, effects),
            Message::PreVote { ballot } => self.on_pre_vote(now, from.node, ballot, effects),
            Message::PreVoteReply { ballot, granted, promised } => {
                self.on_pre_vote_reply(now, from, ballot, granted, promised, effects);
            }
            Message::Transfer { ballot } => self.on_transfer(now, from.node, ballot, effects),
            Message::CatchupRequest { range } => {
                self.on_catchup_request(from.node, range, effects);
            }
            Message::Learn { range, value } => self.on_learn(now, range, value, held, effects),
            Message::BelowStart { log_start } => {
                self.on_below_start(now, from.node, log_start, effects);
            }
            Message::ReadRequest { id } => self.on_read_request(from.node, id, effects),
            Message::ReadReply { id, slot } => self.on_read_reply(id, slot, effects),
            Message::LastingRequest { to } => self.on_lasting_request(from.node, to),
            Message::LastingReply { to } => self.on_lasting_reply(from, to),
            Message::EarlyRequest(question) => self.on_early_request(from.node, question),
            Message::EarlyReply { ballot, from: start, to } => {
                self.on_early_reply(from, ballot, start, to)
            }
        }
    }

    /// Takes every action that the current input has made possible. The order of the calls matters.
    fn settle(&mut self, now: Time, effects: &mut Effects) {
        self.make_deferred_promise(now, effects);
        self.vote_waiting(now, effects);
        self.release(now, effects);
        while self.advance_phase1(now, effects) {
            self.release(now, effects);
        }
        self.decide_counted(now, effects);
        self.decide_device_counted(effects);
        self.follow_roles(now, effects);
        self.report_silent_votes(effects);
        self.update_ring(now, effects);
        self.send_ring_messages(now, effects);
        self.move_on(now, effects);
        self.allow_more_slots(effects);
        self.raise_device_floor(effects);
        self.confirm_reads(now, effects);
        self.announce_decisions(effects);
        self.serve_lasting(now, effects);
        self.serve_early(now, effects);
        self.forget_held(effects);
        self.ask_for_missing(now, effects);
        self.notify_caller(effects);
    }

    /// Notifies the caller of changes in this node's role and in its next wake-up time.
    fn notify_caller(&mut self, effects: &mut Effects) {
        let (role, leader) = (self.role(), self.spine.election().leader_ballot());
        if self.last_notified.record_role(role, leader) {
            effects.push(Effect::Role { role, leader });
        }
        let wake = self.wake_at();
        if self.last_notified.record_wake_at(wake) {
            effects.push(Effect::WakeAt(wake));
        }
    }

    fn alarm(&mut self, alarm: Alarm, effects: &mut Effects) {
        effects.push(Effect::Alarm(alarm));
    }

    /// [disk-9] Stops promises, votes and campaigns permanently. Reads of stored slots continue.
    fn on_storage_failed(&mut self, now: Time, effects: &mut Effects) {
        let led = self.spine.storage_failed();
        // [offload-8] Votes that the device casts from now on could not be recorded.
        self.fence_device(effects);
        self.step_down(now, BallotEnd::StorageFailed, effects);
        if let Some(ballot) = led {
            // [live-4] The next leader can finish what this one could not, and should not have to
            // wait for a timeout.
            self.regain_leadership(ballot, effects);
        }
    }
}
