//! Joins the roles: `step(now, input, &mut effects)`. Dispatch only.

use alloc::vec::Vec;

use crate::{
    ballot::{Ballot, Era},
    configuration::Configuration,
    effect::{Effects, Role},
    input::Input,
    message::Extent,
    node_id::{Member, NodeId},
    record::HardState,
    slot::Slot,
    time::Time,
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
    /// As restated by the last batch of the log.
    pub hard: HardState,
    /// The configuration in force at `hard.decided_to`,
    pub configuration: Configuration,
    /// its era,
    pub era: Era,
    /// and the one before it, for ballots of that era.
    pub previous: Option<Configuration>,
    /// Votes from `hard.decided_to` on, in slot order; the highest ballot per slot.
    pub votes: Vec<Extent>,
}

impl Recovered {
    /// A node at the beginning of the log, with the founding configuration ([era-11]).
    pub fn founded(configuration: Configuration) -> Self {
        let hard = HardState { decided_to: Slot::FIRST, voted_to: Slot::FIRST, ..HardState::default() };
        Self { hard, configuration, era: Era(0), previous: None, votes: Vec::new() }
    }
}

/// One node of the protocol.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Node {}

impl Node {
    /// A node with what it remembers. The first `Input::Tick` starts its clocks.
    pub fn new(_options: Options, _recovered: Recovered) -> Self {
        unimplemented!()
    }

    /// One event in, a list of things to do out. Equal inputs give equal effects.
    pub fn step(&mut self, _now: Time, _input: Input, _effects: &mut Effects) {
        unimplemented!()
    }

    /// What this node is at the moment.
    pub fn role(&self) -> Role {
        unimplemented!()
    }

    /// Who leads, as far as this node knows.
    pub fn leader(&self) -> Option<NodeId> {
        unimplemented!()
    }

    /// Whether a proposal would be taken now: this node leads, hands nothing over, has room.
    pub fn can_propose(&self) -> bool {
        unimplemented!()
    }

    /// The ballot that this node leads or follows.
    pub fn ballot(&self) -> Ballot {
        unimplemented!()
    }

    /// The era that `decided_to` is in.
    pub fn era(&self) -> Era {
        unimplemented!()
    }

    /// The configuration in force at `decided_to`.
    pub fn configuration(&self) -> &Configuration {
        unimplemented!()
    }

    /// Every slot below is decided, and its value with bytes is here.
    pub fn decided_to(&self) -> Slot {
        unimplemented!()
    }

    /// Every slot below is decided, or voted for here, by records on stable storage.
    pub fn durable_to(&self) -> Slot {
        unimplemented!()
    }

    /// What the log restates with each batch. Pair it with each record as it is appended.
    pub fn hard_state(&self) -> HardState {
        unimplemented!()
    }

    /// How far each peer's votes are behind what this leader has proposed: ⟨node, heard of within
    /// the election time-out, slots behind⟩. Empty unless leading.
    pub fn followers(&self, _now: Time) -> Vec<(NodeId, bool, u64)> {
        unimplemented!()
    }
}
