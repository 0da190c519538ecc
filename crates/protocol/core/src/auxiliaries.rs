//! Auxiliaries (Cheap Paxos): which members the leader sends no proposals, and what an auxiliary
//! knows about its role.
//!
//! An auxiliary has weight, makes promises, and votes for what it is sent. While the full replicas
//! can decide without it, it is sent nothing ([aux-1]). The choice of receivers affects only
//! liveness: an acceptor without a proposal has not voted. Safety depends on one thing: what an
//! auxiliary may forget ([trim-1]).

use crate::{ballot::Era, node_set::NodeSet, slot::Slot, time::Time};

/// Minimum time, in maximum election timeouts, for which activated auxiliaries stay active.
const ENGAGED_TIMEOUTS: u64 = 1;
/// Time, in election timeouts, for which proposals go to all nodes after a late reply.
const GENEROUS_TIMEOUTS: u64 = 10;

/// Leader's side: which nodes receive no proposals, and how decisions progress without them.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct ProposalReceivers {
    /// Time at which auxiliaries were activated; they are sent everything undecided. `None` while
    /// they are bypassed.
    engaged: Option<Time>,
    /// Nodes that receive no proposals.
    idle: NodeSet,
    /// The era whose roles `idle` reflects.
    era: Era,
    /// Last decided prefix, and the time of the last progress. The time also advances while no
    /// proposal is outstanding.
    progress: (Slot, Time),
    /// End of the time during which proposals go to all nodes instead of a quorum only.
    generous_until: Time,
    /// Time of the next check for late replies.
    look_at: Time,
}

impl ProposalReceivers {
    /// Starts the term of a new leader. `engaged` means that it needs its auxiliaries from the
    /// start.
    pub fn begin(&mut self, now: Time, decided_to: Slot, engaged: bool) {
        *self = Self {
            engaged: engaged.then_some(now),
            progress: (decided_to, now),
            ..Self::default()
        };
    }

    /// Returns whether a check for late replies is due; at most one every `every_ms`.
    pub fn is_due(&mut self, now: Time, every_ms: u64) -> bool {
        let due = now >= self.look_at;
        if due {
            self.look_at = now.plus_ms(every_ms);
        }
        due
    }

    /// Returns whether auxiliaries receive proposals.
    pub fn is_engaged(&self) -> bool {
        self.engaged.is_some()
    }

    /// Activates the auxiliaries.
    pub fn engage(&mut self, now: Time) {
        self.engaged = Some(now);
    }

    /// Deactivates the auxiliaries: the full replicas suffice again.
    pub fn retire(&mut self) {
        self.engaged = None;
    }

    /// Returns whether the auxiliaries have been active long enough to be deactivated.
    pub fn may_retire(&self, now: Time, patience_us: u64) -> bool {
        let long = |since: Time| now.since_us(since) >= ENGAGED_TIMEOUTS * patience_us;
        self.engaged.is_some_and(long)
    }

    /// Returns how long `open` proposals have waited for the next decision, in microseconds.
    pub fn late_us(&mut self, now: Time, decided_to: Slot, open: bool) -> u64 {
        if !open || decided_to > self.progress.0 {
            self.progress = (decided_to, now);
        }
        now.since_us(self.progress.1)
    }

    /// Sends proposals to all nodes for a while, because a reply is late.
    pub fn be_generous(&mut self, now: Time, patience_us: u64) {
        self.generous_until = now.plus_us(GENEROUS_TIMEOUTS * patience_us);
    }

    /// Returns whether proposals may be sent to a quorum only.
    pub fn may_be_thrifty(&self, now: Time) -> bool {
        now >= self.generous_until
    }

    /// Returns the nodes that receive no proposals.
    pub fn idle(&self) -> NodeSet {
        self.idle
    }

    /// Returns whether `idle` reflects the roles of `era`.
    pub fn is_of(&self, era: Era) -> bool {
        self.era == era
    }

    /// Sets the nodes that receive no proposals from now on. Returns those that receive them again.
    pub fn set_idle(&mut self, era: Era, idle: NodeSet) -> NodeSet {
        self.era = era;
        let before = core::mem::replace(&mut self.idle, idle);
        before.filtered(|node| !idle.contains(node))
    }
}

/// An auxiliary's side: what leaders reported about its role and about the slots it may forget.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct AuxiliaryView {
    /// This node's role in the leader's configuration; `None` before the first leader message. An
    /// auxiliary decides nothing, so it cannot learn of a role change by itself.
    told: Option<bool>,
    /// Full replicas that form a phase-2 quorum of the reporting leader's era hold everything below
    /// ([trim-1]). This node is not one of them.
    held_to: Slot,
    /// Everything below is decided, according to leaders ([p2-3]).
    announced: Slot,
    /// Requested new start of the log, until the log starts there.
    forgetting: Option<Slot>,
}

impl AuxiliaryView {
    /// Records a leader's report: this node's role, and the prefix that full replicas hold without
    /// it.
    pub fn record_role(&mut self, auxiliary: bool, held_by_quorum: Slot) {
        self.told = Some(auxiliary);
        if auxiliary {
            self.held_to = self.held_to.max(held_by_quorum);
        }
    }

    /// Records a leader's report that everything below `decided_to` is decided.
    pub fn announce(&mut self, decided_to: Slot) {
        self.announced = self.announced.max(decided_to);
    }

    /// Returns the slot below which leaders reported everything as decided.
    pub fn announced(&self) -> Slot {
        self.announced
    }

    /// Returns the role that the leader assigned to this node.
    pub fn reported_role(&self) -> Option<bool> {
        self.told
    }

    /// [trim-1] Returns the slot below which this auxiliary may forget everything.
    pub fn held_to(&self) -> Slot {
        self.held_to
    }

    /// Records that the log is being trimmed to start at this slot.
    pub fn forget(&mut self, to: Slot) {
        assert!(
            to <= self.held_to,
            "forgets below {to}, full replicas hold what is below {}",
            self.held_to
        );
        self.forgetting = Some(to);
    }

    /// Records that the log now starts at `log_start`.
    pub fn begins_at(&mut self, log_start: Slot) {
        self.forgetting = self.forgetting.filter(|to| *to > log_start);
    }

    /// Returns whether a trim is in progress: slots below may already be gone.
    pub fn is_forgetting(&self) -> bool {
        self.forgetting.is_some()
    }
}
