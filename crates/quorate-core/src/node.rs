//! Joins the roles: `step(now, input, &mut effects)`. Dispatch only.
//!
//! What a step does is in the files below, sorted by whom this node is talking to:
//! `voting` answers proposers; `phase1` and `proposing` talk to acceptors; `leading` keeps a leader
//! in office, `moving` takes it to the next era, `handover` hands leadership on; `following` learns
//! from a leader; `reading` is both sides of a read; `timing` is what happens when nothing happens.

mod following;
mod handover;
mod leading;
mod moving;
mod phase1;
mod proposing;
mod reading;
mod timing;
mod voting;

use alloc::vec::Vec;

use crate::{
    acceptor::Acceptor,
    ballot::{Ballot, Era},
    catchup::Catchup,
    configuration::Configuration,
    durable::Pending,
    effect::{Alarm, Effect, Effects, Role},
    election::Election,
    explanation::End,
    flow::Peers,
    input::Input,
    leader::{Leading, Phase1},
    learner::Learner,
    lost::Lost,
    message::{Extent, Message},
    node_id::{Member, NodeId},
    reads::{Asked, Reads},
    reconfigure::{self, Eras},
    record::{HardState, RecordSeq},
    slot::{Slot, SlotRange},
    time::Time,
    transfer::Transfer,
    value::{Value, mix},
    voted::Run,
    waiting::Waiting,
};

/// What the caller chooses for a node; constant while it runs.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Options {
    /// Who this is.
    pub member: Member,
    /// A leader speaks at least this often.
    pub heartbeat_ms: u64,
    /// An election starts after a silence drawn from this range,
    pub election_min_ms: u64,
    /// up to here.
    pub election_max_ms: u64,
    /// Most proposals in flight.
    pub inflight_max: usize,
    /// Slots at or above `decided_to + window` are refused ([p2-3]).
    pub window_slots: u64,
    /// Where randomised time-outs come from; different on every node and start.
    pub seed: u64,
}

/// What the log gave back. [`Recovered::founded`] is a node that has never run.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Recovered {
    /// As restated by the last batch of the log. Below `hard.decided_to` everything was decided
    /// here, and votes are forgotten.
    pub hard: HardState,
    /// Slots below are decided, and their values are here: `hard.decided_to`, or the first slot
    /// that is lost ([disk-8]).
    pub decided_to: Slot,
    /// What was decided here and must be learned again.
    pub lost: Lost,
    /// The configuration in force at `decided_to`,
    pub configuration: Configuration,
    /// its era,
    pub era: Era,
    /// and the one before it, for ballots of that era.
    pub previous: Option<Configuration>,
    /// Votes from `hard.decided_to` on, in slot order; the highest ballot per slot.
    pub votes: Vec<Extent>,
}

impl Recovered {
    /// What a log from the founding on leads to: `changes` are the reconfigurations that it holds
    /// below `hard.decided_to`, in order; `lost` the slots there that it has lost.
    pub fn replayed(
        hard: HardState,
        founding: Configuration,
        changes: Vec<(Slot, Value)>,
        lost: Vec<SlotRange>,
        votes: Vec<Extent>,
    ) -> Self {
        let decided_to = lost.first().map_or(hard.decided_to, |range| range.from);
        let before = changes.iter().filter(|(slot, _)| *slot < decided_to);
        let eras = reconfigure::replay(founding, before);
        Self {
            hard,
            decided_to,
            lost: Lost::new(lost, changes, hard.decided_to),
            configuration: eras.current().clone(),
            era: eras.era(),
            previous: eras.previous().cloned(),
            votes,
        }
    }

    /// A node at the beginning of the log, with the founding configuration ([era-11]).
    pub fn founded(configuration: Configuration) -> Self {
        let hard = HardState {
            decided_to: Slot::FIRST,
            voted_to: Slot::FIRST,
            ..HardState::default()
        };
        Self {
            hard,
            decided_to: Slot::FIRST,
            lost: Lost::default(),
            configuration,
            era: Era(0),
            previous: None,
            votes: Vec::new(),
        }
    }
}

/// One node of the protocol.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Node {
    options: Options,
    // Safety.
    acceptor: Acceptor,
    pending: Pending,
    learner: Learner,
    /// Decided in this process, and not readable any more: as `Input::Missing` said.
    missing: Option<Slot>,
    phase1: Option<Phase1>,
    leading: Option<Leading>,
    /// The highest ballot of its own that it recorded ([ballot-2]).
    spoken: Ballot,
    /// The acceptor's votes in the newest ballot,
    run: Run,
    /// and how far they are on stable storage.
    run_durable_to: Slot,
    /// Slots below are decided or voted for, by records on stable storage.
    durable_to: Slot,
    // Liveness.
    election: Election,
    peers: Peers,
    catchup: Catchup,
    waiting: Waiting,
    reads: Reads,
    asked: Asked,
    transfer: Option<Transfer>,
    /// When a leader asked this node to take over, last.
    token_at: Option<Time>,
    /// Followers were told that slots below are decided.
    announced_to: Slot,
    next_heartbeat: Time,
    /// When those who have not answered a 1A are asked again. Apart from `next_heartbeat`, which a
    /// leader that moves to another ballot of its own keeps pushing on ([cast-2]).
    next_phase1a: Time,
    started: bool,
    told_role: (Role, Option<Ballot>),
    told_wake: Time,
}

impl Node {
    /// A node with what it remembers. The first `Input::Tick` starts its clocks.
    pub fn new(options: Options, recovered: Recovered) -> Self {
        let Recovered {
            hard,
            decided_to,
            lost,
            configuration,
            era,
            previous,
            votes,
        } = recovered;
        let class = configuration.class();
        let mut durable_to = decided_to;
        for vote in &votes {
            if vote.range.from <= durable_to {
                durable_to = durable_to.max(vote.range.to);
            }
        }
        // A vote is a promise too, should the promise itself be known only from the vote.
        let voted = votes
            .iter()
            .map(|vote| vote.ballot)
            .max()
            .unwrap_or_default();
        let promised = hard.promised.max(voted);
        let acceptor = Acceptor::new(
            promised,
            hard.decided_to,
            hard.voted_to,
            votes,
            options.window_slots,
            options.inflight_max,
        );
        let election = Election::new(
            options.election_min_ms,
            options.election_max_ms,
            options.seed,
        );
        Self {
            acceptor,
            pending: Pending::new(class, options.inflight_max + 2),
            learner: Learner::new(decided_to, Eras::new(era, configuration, previous), lost),
            missing: None,
            phase1: None,
            leading: None,
            spoken: hard.spoken,
            run: Run::default(),
            run_durable_to: Slot(0),
            durable_to,
            election,
            peers: Peers::default(),
            // [disk-8] What was decided here once is decided somewhere.
            catchup: Catchup::starting_at(hard.decided_to),
            waiting: Waiting::default(),
            reads: Reads::default(),
            asked: Asked::starting_at(mix(options.seed)),
            transfer: None,
            token_at: None,
            announced_to: decided_to,
            next_heartbeat: Time(0),
            next_phase1a: Time(0),
            started: false,
            told_role: (Role::Follower, None),
            told_wake: Time(0),
            options,
        }
    }

    /// One event in, a list of things to do out. Equal inputs give equal effects.
    pub fn step(&mut self, now: Time, input: Input, effects: &mut Effects) {
        self.pending.begin_step(self.acceptor.floor());
        match input {
            Input::Message {
                from,
                message,
                held,
            } => {
                self.on_message(now, from, message, held, effects);
            }
            Input::Propose { value, slots } => self.on_propose(now, value, slots, effects),
            Input::Held(value) => self.on_held(value),
            Input::Persisted(seq) => self.on_persisted(seq),
            Input::StorageFailed => self.on_storage_failed(now, effects),
            Input::Lost(range) => self.on_lost(range),
            Input::Missing(first) => self.missing = first,
            Input::Connected(member) => self.on_connected(member, effects),
            Input::Disconnected(node) => self.on_disconnected(now, node, effects),
            Input::Read(token) => self.on_read(now, token, effects),
            Input::Transfer { to } => self.on_transfer_wanted(now, to, effects),
            Input::Tick => self.on_tick(now, effects),
        }
        self.settle(now, effects);
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
            Message::Decided { ballot, decided_to } => {
                self.on_decided(now, ballot, decided_to, effects);
            }
            Message::Heartbeat(beat) => self.on_heartbeat(now, from.node, beat, effects),
            Message::HeartbeatReply(reply) => self.on_heartbeat_reply(now, from, reply, effects),
            Message::PreVote { ballot } => self.on_pre_vote(now, from.node, ballot, effects),
            Message::PreVoteReply {
                ballot,
                granted,
                promised,
            } => {
                self.on_pre_vote_reply(now, from, ballot, granted, promised, effects);
            }
            Message::Transfer { ballot } => self.on_transfer(now, from.node, ballot, effects),
            Message::CatchupRequest { range } => {
                self.on_catchup_request(from.node, range, effects);
            }
            Message::Learn { range, value } => self.on_learn(now, range, value, held, effects),
            Message::ReadRequest { id } => self.on_read_request(from.node, id),
            Message::ReadReply { id, slot } => self.on_read_reply(id, slot, effects),
        }
    }

    /// What follows from whatever just happened.
    fn settle(&mut self, now: Time, effects: &mut Effects) {
        self.vote_waiting(now, effects);
        self.release(effects);
        while self.advance_phase1(now, effects) {
            self.release(effects);
        }
        self.count(now, effects);
        self.move_on(now, effects);
        self.confirm_reads(now, effects);
        self.announce(effects);
        self.ask_for_missing(now, effects);
        self.tell(effects);
    }

    /// Tells the caller what changed about this node: its role, and when it wants to be woken.
    fn tell(&mut self, effects: &mut Effects) {
        let role = (self.role(), self.election.leader_ballot());
        if role != self.told_role {
            self.told_role = role;
            effects.push(Effect::Role {
                role: role.0,
                leader: role.1,
            });
        }
        let wake = self.wake_at();
        if wake != self.told_wake {
            self.told_wake = wake;
            effects.push(Effect::WakeAt(wake));
        }
    }

    fn alarm(&mut self, alarm: Alarm, effects: &mut Effects) {
        effects.push(Effect::Alarm(alarm));
    }

    /// [disk-9] No vote, no promise, no ballot any more; reads of what is here go on.
    fn on_storage_failed(&mut self, now: Time, effects: &mut Effects) {
        self.pending.fail();
        self.waiting.clear();
        self.step_down(now, End::StorageFailed, effects);
    }

    /// [disk-8] Whether this node has every value that it ever decided. One that has not learns, and
    /// votes above; it answers no 1A for what it lost, and does not campaign: it could not tell the
    /// values of slots that it knows to be decided, and nobody else might know that they are.
    fn is_whole(&self) -> bool {
        self.learner.lost().is_empty() && self.missing.is_none()
    }

    /// [catch-1] Slots below are decided, and their values are here.
    fn holds_to(&self) -> Slot {
        let decided_to = self.learner.decided_to();
        self.missing.map_or(decided_to, |slot| slot.min(decided_to))
    }

    /// Whether this node may lead ([aux-3]).
    fn may_lead(&self) -> bool {
        let own = self.learner.eras().current().position(self.options.member);
        let auxiliary = |at: usize| self.learner.eras().current().members()[at].auxiliary;
        own.is_some_and(|at| !auxiliary(at))
            && !self.pending.failed()
            && self.learner.lost().is_empty()
    }

    /// What this node is at the moment.
    pub fn role(&self) -> Role {
        let configuration = self.learner.eras().current();
        match configuration.position(self.options.member) {
            None => Role::Learner,
            Some(_) if self.leading.is_some() => Role::Leader,
            Some(at) if configuration.members()[at].auxiliary => Role::Auxiliary,
            Some(_) if self.phase1.is_some() || self.election.is_asking() => Role::Candidate,
            Some(_) => Role::Follower,
        }
    }

    /// Who leads, as far as this node knows.
    pub fn leader(&self) -> Option<NodeId> {
        self.election.leader()
    }

    /// Whether a proposal would be taken now: this node leads, hands nothing over, has room.
    pub fn can_propose(&self) -> bool {
        self.refusal().is_none() && self.has_room(1)
    }

    /// The ballot that this node leads or follows.
    pub fn ballot(&self) -> Ballot {
        self.election
            .leader_ballot()
            .unwrap_or_else(|| self.acceptor.promised())
    }

    /// The era that `decided_to` is in.
    pub fn era(&self) -> Era {
        self.learner.eras().era()
    }

    /// The configuration in force at `decided_to`.
    pub fn configuration(&self) -> &Configuration {
        self.learner.eras().current()
    }

    /// Every slot below is decided, and its value with bytes is here.
    pub fn decided_to(&self) -> Slot {
        self.learner.decided_to()
    }

    /// How many slots [`Node::relearning`] speaks of. The first may have been learned in part.
    pub fn lost_slots(&self) -> u64 {
        self.learner.lost().slots()
    }

    /// What this node decided before it was started, lost, and is learning again: the first slot of
    /// it, and how many questions for that nobody answered.
    pub fn relearning(&self) -> Option<(Slot, u32)> {
        let lost = !self.learner.lost().is_empty();
        lost.then(|| (self.learner.decided_to(), self.catchup.fruitless()))
    }

    /// Every slot below is known to be decided, here or elsewhere.
    pub fn known_to(&self) -> Slot {
        self.decided_to().max(self.catchup.target())
    }

    /// Every slot below is decided, or voted for here, by records on stable storage.
    pub fn durable_to(&self) -> Slot {
        self.durable_to
    }

    /// The last record on stable storage.
    pub fn persisted_to(&self) -> RecordSeq {
        self.pending.persisted_to()
    }

    /// The acceptor, for invariants.
    pub fn acceptor(&self) -> &Acceptor {
        &self.acceptor
    }

    /// The votes in the newest ballot, for invariants.
    pub fn run(&self) -> &Run {
        &self.run
    }

    /// Phase 2, while this node leads, for invariants.
    pub fn leading(&self) -> Option<&Leading> {
        self.leading.as_ref()
    }

    /// Phase 1 under way, for invariants.
    pub fn phase1(&self) -> Option<&Phase1> {
        self.phase1.as_ref()
    }

    /// What the log restates with each batch. Pair it with each record as it is appended.
    ///
    /// [disk-8] What was decided stays decided for the log, lost or not: below it votes are forgotten.
    pub fn hard_state(&self) -> HardState {
        HardState {
            spoken: self.spoken,
            promised: self.acceptor.promised(),
            decided_to: self.pending.restates(self.acceptor.floor()),
            voted_to: self.acceptor.voted_to(),
        }
    }

    /// How far each peer's votes are behind what this leader has proposed: ⟨node, heard of within
    /// the election time-out, slots behind⟩. Empty unless leading.
    pub fn followers(&self, now: Time) -> Vec<(NodeId, bool, u64)> {
        let Some(leading) = &self.leading else {
            return Vec::new();
        };
        let patience = self.election.patience_us();
        let next = leading.tally.next();
        let one = |peer: &crate::flow::Peer| {
            let heard = peer.heard.is_some_and(|at| now.since_us(at) <= patience);
            let at = peer.voted_to.max(peer.decided_to);
            (
                peer.member.node,
                peer.connected && heard,
                next.0.saturating_sub(at.0),
            )
        };
        self.peers.iter().map(one).collect()
    }
}
