//! Auxiliaries (Cheap Paxos): the leader's choice of nodes without proposals, and an auxiliary's
//! view of its role.
//!
//! An auxiliary has weight, promises, and votes for what it is sent. That is nothing while full
//! replicas decide by themselves ([aux-1]). The receivers of proposals are a matter of liveness: an
//! acceptor that was not asked has not voted. Safety hangs on one thing: what an auxiliary may
//! forget ([trim-1]).

use crate::{ballot::Era, node_set::NodeSet, slot::Slot, time::Time};

/// Number of longest election time-outs for which a leader that engaged its auxiliaries keeps them,
/// at least.
const ENGAGED_TIMEOUTS: u64 = 1;
/// After a late answer all proposals go to all nodes for this many time-outs.
const GENEROUS_TIMEOUTS: u64 = 10;

/// A leader's side: the nodes without proposals at present, and the progress without them.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Engaging {
    /// Start of the time in which auxiliaries are sent everything undecided; `None` while they are
    /// spared.
    engaged: Option<Time>,
    /// Proposals do not go to these.
    idle: NodeSet,
    /// The era whose roles `idle` follows.
    era: Era,
    /// Slots below were decided at this time; the time also advances while nothing is open.
    progress: (Slot, Time),
    /// Thrifty sending is off until then.
    generous_until: Time,
    /// When that is looked at next.
    look_at: Time,
}

impl Engaging {
    /// Begins the term of a new leader; `engaged`: it cannot do without auxiliaries.
    pub fn begin(&mut self, now: Time, decided_to: Slot, engaged: bool) {
        *self = Self {
            engaged: engaged.then_some(now),
            progress: (decided_to, now),
            ..Self::default()
        };
    }

    /// Returns whether the answers are due to be checked; once every `every_ms`.
    pub fn is_due(&mut self, now: Time, every_ms: u64) -> bool {
        let due = now >= self.look_at;
        if due {
            self.look_at = now.plus_ms(every_ms);
        }
        due
    }

    /// Returns whether auxiliaries are sent proposals.
    pub fn is_engaged(&self) -> bool {
        self.engaged.is_some()
    }

    /// Auxiliaries are needed.
    pub fn engage(&mut self, now: Time) {
        self.engaged = Some(now);
    }

    /// Retires the auxiliaries: full replicas suffice again.
    pub fn retire(&mut self) {
        self.engaged = None;
    }

    /// Returns whether auxiliaries were first needed long enough ago to be retired.
    pub fn may_retire(&self, now: Time, patience_us: u64) -> bool {
        let long = |since: Time| now.since_us(since) >= ENGAGED_TIMEOUTS * patience_us;
        self.engaged.is_some_and(long)
    }

    /// Returns how long `open` proposals have waited for the next decision.
    pub fn late_us(&mut self, now: Time, decided_to: Slot, open: bool) -> u64 {
        if !open || decided_to > self.progress.0 {
            self.progress = (decided_to, now);
        }
        now.since_us(self.progress.1)
    }

    /// Sends to all nodes for a while, since an answer is late.
    pub fn be_generous(&mut self, now: Time, patience_us: u64) {
        self.generous_until = now.plus_us(GENEROUS_TIMEOUTS * patience_us);
    }

    /// Returns whether sending to a quorum is enough.
    pub fn may_be_thrifty(&self, now: Time) -> bool {
        now >= self.generous_until
    }

    /// Returns the nodes that get no proposals.
    pub fn idle(&self) -> NodeSet {
        self.idle
    }

    /// Returns whether the roles are those of this era.
    pub fn is_of(&self, era: Era) -> bool {
        self.era == era
    }

    /// Sets the nodes that get no proposals from now on. Returns those that get them again.
    pub fn set_idle(&mut self, era: Era, idle: NodeSet) -> NodeSet {
        self.era = era;
        let before = core::mem::replace(&mut self.idle, idle);
        before.filtered(|node| !idle.contains(node))
    }
}

/// An auxiliary's side: notifications from a leader.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Spared {
    /// Role of this node in the leader's configuration; `None` before a leader's first message. An
    /// auxiliary does not decide, so it would not learn of a change by itself.
    told: Option<bool>,
    /// Full replicas that form a phase-2 quorum of the teller's era hold everything below
    /// ([trim-1]); this node was none of them.
    held_to: Slot,
    /// Everything below is decided, by what leaders say ([p2-3]).
    announced: Slot,
    /// The log is made to begin there.
    forgetting: Option<Slot>,
}

impl Spared {
    /// Notes the leader's message: this node's role, and what full replicas hold without it.
    pub fn tell(&mut self, auxiliary: bool, held_by_quorum: Slot) {
        self.told = Some(auxiliary);
        if auxiliary {
            self.held_to = self.held_to.max(held_by_quorum);
        }
    }

    /// Notes a leader's message that everything below is decided.
    pub fn announce(&mut self, decided_to: Slot) {
        self.announced = self.announced.max(decided_to);
    }

    /// Returns the slot below which everything is decided somewhere.
    pub fn announced(&self) -> Slot {
        self.announced
    }

    /// Returns the role that the leader assigned to this node.
    pub fn told(&self) -> Option<bool> {
        self.told
    }

    /// [trim-1] Returns the slot below which nothing that an auxiliary keeps is needed.
    pub fn held_to(&self) -> Slot {
        self.held_to
    }

    /// Notes that the log is being made to begin at this slot.
    pub fn forget(&mut self, to: Slot) {
        assert!(
            to <= self.held_to,
            "forgets below {to}, full replicas hold what is below {}",
            self.held_to
        );
        self.forgetting = Some(to);
    }

    /// Notes that the log begins at `log_start` now.
    pub fn begins_at(&mut self, log_start: Slot) {
        self.forgetting = self.forgetting.filter(|to| *to > log_start);
    }

    /// Returns whether the log is being trimmed: slots below may be gone already.
    pub fn is_forgetting(&self) -> bool {
        self.forgetting.is_some()
    }
}
