//! Entry into a new era: a node may promise in it only once it has decided the reconfiguration that
//! began it ([ballot-5]).
//!
//! A promise binds a node to the era of its ballot. Suppose that only a leader had decided the
//! reconfiguration, and that the leader was lost permanently. The nodes that had promised could
//! then follow no ballot of either era: in the new one no node may campaign ([ballot-3]), and
//! ballots of the old one are below the promise. So phase 1 waits until the nodes that promise know
//! of the era themselves. Any phase-2 quorum that continues without that leader then includes one
//! of them. Votes need not wait, because a ballot that proposes already has a quorum of such
//! promises.

use crate::{ballot::Ballot, effect::Effects, node::Node, node_id::NodeId, slot::Slot, time::Time};

impl Node {
    /// [ballot-5] Returns whether this acceptor may promise this ballot, whose node has decided
    /// everything below `from`. The acceptor must be in the ballot's era already, or have decided
    /// the reconfiguration that began it.
    ///
    /// An auxiliary may not know the number of an era. It must have decided everything below
    /// `from`, or have been notified that a quorum of full replicas holds those slots.
    pub(in crate::node) fn may_enter(&self, ballot: Ballot, from: Slot) -> bool {
        let known = self.spine.learner.eras().era().max(self.spine.acceptor.promised().era);
        let spared = self.is_auxiliary() || self.is_hollow();
        let told = self.spine.learner.decided_to().max(self.auxiliary.quorum_held_to());
        ballot.era <= known || (spared && told >= from)
    }

    /// Makes a promise wait until this node has learned the slots that it needs, if necessary from
    /// the candidate.
    pub(in crate::node) fn defer_promise(&mut self, who: NodeId, ballot: Ballot, from: Slot) {
        self.spine.catchup.defer_promise(ballot, from, who);
    }

    /// Returns the end of the slots that this node must decide before it can make the waiting
    /// promise; slot 0 if no promise waits.
    pub(in crate::node) fn deferred_promise_slot(&self) -> Slot {
        self.spine.catchup.deferred_promise().map_or(Slot(0), |(_, from)| from)
    }

    /// Makes the waiting promise if it is now allowed.
    pub(in crate::node) fn make_deferred_promise(&mut self, now: Time, effects: &mut Effects) {
        let Some((ballot, from)) = self.spine.catchup.deferred_promise() else {
            return;
        };
        // [decide-3] A restart that finds the promise in the log must find the decision there too.
        // If the decision is in this step's own records, the promise waits for the next step.
        let decided_to = self.spine.learner.decided_to();
        if self.spine.pending.restatable_to(decided_to) < decided_to {
            return;
        }
        if self.may_enter(ballot, from) {
            self.spine.catchup.clear_deferred_promise();
            self.on_phase1a(now, ballot.node, ballot, from, effects);
        }
    }
}
