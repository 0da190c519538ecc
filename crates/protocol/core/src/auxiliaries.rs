//! Auxiliaries (Cheap Paxos): the members that receive no proposals from the leader, and an
//! auxiliary's knowledge of its role.
//!
//! An auxiliary has weight, makes promises, and votes for the proposals that it receives. It
//! receives none while the full replicas can decide without it ([aux-1]). The choice of receivers
//! affects only liveness, because an acceptor without a proposal has not voted. Safety depends on
//! one thing: what an auxiliary may forget ([trim-1]).

use crate::{ballot::Era, node_set::NodeSet, slot::Slot, time::Time};

/// Minimum time for which activated auxiliaries stay active, as a multiple of the maximum election
/// timeout.
const ENGAGED_TIMEOUTS_MIN: u64 = 1;
/// Time for which proposals go to all nodes after a late reply, as a multiple of the election
/// timeout.
const SEND_TO_ALL_TIMEOUTS: u64 = 10;

/// The leader's choice of the nodes that receive no proposals, and its check that decisions
/// progress without them.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct ProposalReceivers {
    /// Time at which the auxiliaries were activated; `None` while they are bypassed. Active
    /// auxiliaries are sent every undecided proposal.
    engaged_since: Option<Time>,
    /// Nodes that receive no proposals.
    bypassed_nodes: NodeSet,
    /// Era whose roles `bypassed_nodes` reflects.
    era: Era,
    /// End of the decided prefix, and the time of the last progress. The time also advances while
    /// no proposal is outstanding.
    progress: (Slot, Time),
    /// Until this time, proposals go to all nodes instead of only a quorum.
    send_to_all_until: Time,
    /// Time of the next check for late replies.
    next_check_at: Time,
}

impl ProposalReceivers {
    /// Starts the term of a new leader. `engaged` means that the leader needs its auxiliaries from
    /// the start.
    pub fn begin_term(&mut self, now: Time, decided_to: Slot, engaged: bool) {
        *self = Self {
            engaged_since: engaged.then_some(now),
            progress: (decided_to, now),
            ..Self::default()
        };
    }

    /// Returns whether a check for late replies is due, and schedules the next one `every_ms`
    /// later.
    pub fn is_due(&mut self, now: Time, every_ms: u64) -> bool {
        let due = now >= self.next_check_at;
        if due {
            self.next_check_at = now.plus_ms(every_ms);
        }
        due
    }

    /// Returns whether auxiliaries receive proposals.
    pub fn is_engaged(&self) -> bool {
        self.engaged_since.is_some()
    }

    /// Activates the auxiliaries.
    pub fn engage(&mut self, now: Time) {
        self.engaged_since = Some(now);
    }

    /// Deactivates the auxiliaries, because the full replicas suffice again.
    pub fn disengage(&mut self) {
        self.engaged_since = None;
    }

    /// Returns whether the auxiliaries have been active long enough to be deactivated.
    /// `patience_us` is the maximum election timeout.
    pub fn may_disengage(&self, now: Time, patience_us: u64) -> bool {
        let long = |since: Time| now.since_us(since) >= ENGAGED_TIMEOUTS_MIN * patience_us;
        self.engaged_since.is_some_and(long)
    }

    /// Returns how long proposals have waited for the next decision, in microseconds. `open` means
    /// that a proposal is outstanding.
    pub fn stalled_us(&mut self, now: Time, decided_to: Slot, open: bool) -> u64 {
        if !open || decided_to > self.progress.0 {
            self.progress = (decided_to, now);
        }
        now.since_us(self.progress.1)
    }

    /// Sends proposals to all nodes for a while after a late reply.
    pub fn send_to_all(&mut self, now: Time, patience_us: u64) {
        self.send_to_all_until = now.plus_us(SEND_TO_ALL_TIMEOUTS * patience_us);
    }

    /// Returns whether it is enough to send proposals to a quorum.
    pub fn may_be_thrifty(&self, now: Time) -> bool {
        now >= self.send_to_all_until
    }

    /// Returns the nodes that receive no proposals.
    pub fn bypassed_nodes(&self) -> NodeSet {
        self.bypassed_nodes
    }

    /// Returns whether `bypassed_nodes` reflects the roles of `era`.
    pub fn reflects_era(&self, era: Era) -> bool {
        self.era == era
    }

    /// Sets the nodes that receive no proposals from now on. Returns the nodes that start to
    /// receive proposals again.
    pub fn set_bypassed(&mut self, era: Era, idle: NodeSet) -> NodeSet {
        self.era = era;
        let before = core::mem::replace(&mut self.bypassed_nodes, idle);
        before.filtered(|node| !idle.contains(node))
    }
}

/// An auxiliary's knowledge of its role and of the slots it may forget, as reported by leaders.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct AuxiliaryView {
    /// `Some(true)` if this node is an auxiliary in the leader's configuration; `None` before the
    /// first leader message. An auxiliary decides nothing, so it cannot learn of a role change by
    /// itself.
    is_auxiliary: Option<bool>,
    /// Full replicas that form a phase-2 quorum of the reporting leader's era hold every slot below
    /// this one ([trim-1]). This node is not one of them.
    quorum_held_to: Slot,
    /// Every slot below this one is decided, according to leaders ([p2-3]).
    announced_to: Slot,
    /// Slot to which the log is being trimmed; `None` if no trim is in progress.
    trimming_to: Option<Slot>,
}

impl AuxiliaryView {
    /// Returns whether this node has never been an auxiliary.
    pub fn is_unused(&self) -> bool {
        let told = self.is_auxiliary.filter(|auxiliary| !auxiliary);
        *self == Self { is_auxiliary: told, announced_to: self.announced_to, ..Self::default() }
    }

    /// Records a leader's report about this node's role and about the prefix that full replicas
    /// hold without it.
    pub fn record_role(&mut self, auxiliary: bool, held_by_quorum: Slot) {
        self.is_auxiliary = Some(auxiliary);
        if auxiliary {
            self.quorum_held_to = self.quorum_held_to.max(held_by_quorum);
        }
    }

    /// Records a leader's report that everything below `decided_to` is decided.
    pub fn record_announced(&mut self, decided_to: Slot) {
        self.announced_to = self.announced_to.max(decided_to);
    }

    /// Returns the slot below which leaders reported everything as decided.
    pub fn announced_to(&self) -> Slot {
        self.announced_to
    }

    /// Returns whether the leader reported this node to be an auxiliary; `None` before the first
    /// report.
    pub fn reported_role(&self) -> Option<bool> {
        self.is_auxiliary
    }

    /// [trim-1] Returns the slot below which this auxiliary may forget everything.
    pub fn quorum_held_to(&self) -> Slot {
        self.quorum_held_to
    }

    /// Records that the log is being trimmed to start at this slot.
    pub fn begin_trim(&mut self, to: Slot) {
        assert!(
            to <= self.quorum_held_to,
            "forgets below {to}, full replicas hold what is below {}",
            self.quorum_held_to
        );
        self.trimming_to = Some(to);
    }

    /// Records that the log now starts at `log_start`.
    pub fn record_log_start(&mut self, log_start: Slot) {
        self.trimming_to = self.trimming_to.filter(|to| *to > log_start);
    }

    /// Returns whether a trim is in progress. The slots below its end may already be gone.
    pub fn is_trimming(&self) -> bool {
        self.trimming_to.is_some()
    }
}
