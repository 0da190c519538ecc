//! Exceptions for an auxiliary: the slots that it does not learn, and those that it may forget
//! ([aux-1], [trim-1]).
//!
//! An auxiliary that was activated keeps its votes, bytes included, in its log. From the start of
//! its log onwards, it learns that slots are decided in the same way as any follower ([decide-2]).
//! It knows nothing about earlier slots: it is *hollow*. It learns only the slots between those
//! that full replicas hold and its own votes.

use crate::{
    effect::{Effect, Effects},
    message::Heartbeat,
    node::Node,
    slot::Slot,
};

/// Maximum number of slots that an auxiliary learns in order to reach its votes.
const NEAR_SLOTS_MAX: u64 = 4096;

impl Node {
    /// Returns whether this node is an auxiliary, as far as it knows.
    pub fn is_auxiliary(&self) -> bool {
        self.auxiliary.view.reported_role().unwrap_or_else(|| {
            let configuration = self.spine.learner().eras().current();
            configuration.is_auxiliary(self.spine.options().member)
        })
    }

    /// Records the leader's report about this node's role and about the slots that full replicas
    /// hold.
    pub(in crate::node) fn note_role(&mut self, beat: &Heartbeat) {
        self.auxiliary.view.record_role(beat.auxiliary, beat.held_by_quorum);
        self.auxiliary.view.record_announced(beat.decided_to);
    }

    /// [p2-3] Returns the end of the slots known to be decided, including those that this acceptor
    /// did not learn. Votes for these slots are not needed.
    pub(in crate::node) fn announced_to(&self) -> Slot {
        let (decided_to, announced) =
            (self.spine.learner().decided_to(), self.auxiliary.view.announced_to());
        if announced > decided_to && self.is_auxiliary() { announced } else { decided_to }
    }

    /// [aux-3], [trim-1] Starts to forget slots that full replicas hold: either everything that
    /// this node has stored, or the slots before its votes, which it would otherwise have to learn.
    pub(in crate::node) fn forget_held(&mut self, effects: &mut Effects) {
        if let Some(to) = self.forgettable_to() {
            self.auxiliary.view.begin_trim(to);
            effects.push(Effect::Forget { to });
        }
    }

    fn forgettable_to(&self) -> Option<Slot> {
        let learner = self.spine.learner();
        let to = self.auxiliary.view.quorum_held_to();
        let (log_start, decided_to) = (learner.log_start(), learner.decided_to());
        if to <= log_start || self.auxiliary.view.is_trimming() || !self.is_auxiliary() {
            return None;
        }
        let first = self.spine.acceptor().votes().next().map(|vote| vote.range.from);
        let enters = self.deferred_promise_slot() > decided_to;
        let apart = enters || first.is_some_and(|first| first > decided_to);
        let apart = apart && to > decided_to;
        let kept = learner.is_hollow() && (first.is_some() || decided_to > log_start);
        let some = to.0 - log_start.0 >= self.spine.options().inflight_max as u64;
        let served = to >= self.spine.acceptor().voted_to();
        (apart || (kept && (some || served))).then_some(to)
    }

    /// Records that the log now starts at `to`, durably, without a snapshot of the slots below.
    pub(in crate::node) fn on_forgotten(&mut self, to: Slot) {
        self.auxiliary.view.record_log_start(to);
        self.spine.trim_to(to);
    }

    /// Returns the end of the decided slots that this node should learn. An auxiliary learns only
    /// up to its own votes, and usually only if they are near. It learns further if it must in
    /// order to enter an era ([ballot-5]).
    pub(in crate::node) fn learn_target(&self) -> Slot {
        if !self.is_auxiliary() {
            return Slot(u64::MAX);
        }
        if self.auxiliary.view.is_trimming() {
            return self.spine.learner().decided_to();
        }
        self.learnable_votes_to().max(self.deferred_promise_slot())
    }

    fn learnable_votes_to(&self) -> Slot {
        let decided_to = self.spine.learner().decided_to();
        let Some(first) = self.spine.acceptor().votes().next() else {
            return decided_to;
        };
        let gap = first.range.from.0.saturating_sub(decided_to.0);
        let near = gap <= self.spine.options().window_slots.min(NEAR_SLOTS_MAX);
        let pressed = self.spine.acceptor().runs() * 2 >= self.spine.options().inflight_max;
        if !(near || pressed) {
            decided_to
        } else if gap > 0 {
            first.range.from
        } else {
            self.spine.acceptor().voted_to()
        }
    }

    /// Returns whether this node is to become a full replica but needs a snapshot first, because it
    /// forgot slots while it was an auxiliary.
    pub(in crate::node) fn needs_snapshot(&self) -> bool {
        self.is_hollow() && !self.is_auxiliary()
    }

    /// Returns whether this node lacks slots that it should learn and that another node's log may
    /// have.
    pub(in crate::node) fn is_behind(&self) -> bool {
        let decided_to = self.spine.learner().decided_to();
        self.spine.catchup().is_behind(decided_to)
            && decided_to < self.learn_target()
            && !self.needs_snapshot()
    }
}
