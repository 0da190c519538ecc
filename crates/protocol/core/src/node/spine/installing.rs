//! Snapshots in place of missing slots: requesting and installing them.

use alloc::vec::Vec;

use crate::{
    effect::{Effect, Effects},
    explanation::BallotEnd,
    node::Node,
    node_id::NodeId,
    reconfigure::Eras,
    slot::Slot,
    time::Time,
};

impl Node {
    /// [catch-2] Records that the log of `from` no longer has the slots that this node lacks. The
    /// log of another node may have them.
    pub(in crate::node) fn on_below_start(
        &mut self,
        now: Time,
        from: NodeId,
        log_start: Slot,
        effects: &mut Effects,
    ) {
        let decided_to = self.spine.learner.decided_to();
        if log_start > decided_to {
            self.spine.catchup.record_source(log_start, from);
            // [aux-1] An auxiliary has nothing to supply, so catch-up does not wait for it.
            let configuration = self.spine.learner.eras().current();
            let full = |node: &NodeId| {
                let voter = configuration.member_of(*node);
                voter.is_none_or(|voter| !voter.auxiliary)
            };
            let peers: Vec<NodeId> = self.spine.peers.connected().filter(full).collect();
            let no_peer_has_it =
                self.spine.catchup.on_below_start(from, log_start, decided_to, &peers);
            match no_peer_has_it {
                Some(log_start) => self.need_snapshot(now, from, log_start, effects),
                None => self.ask_for_missing(now, effects),
            }
        }
    }

    /// Requests a snapshot from the caller, at most as often as catch-up repeats a request.
    pub(super) fn need_snapshot(
        &mut self,
        now: Time,
        from: NodeId,
        log_start: Slot,
        effects: &mut Effects,
    ) {
        let retry_us = self.catchup_retry_us();
        if !self.spine.pending.has_failed()
            && self.spine.catchup.record_log_start(now, log_start, retry_us)
        {
            effects.slow.snapshots += 1;
            effects.push(Effect::NeedSnapshot { from, log_start });
        }
    }

    /// Returns whether a snapshot of everything below `to`, with `eras`, is useful to this node and
    /// does not contradict its state. The caller must check this before it installs the snapshot
    /// durably.
    pub fn may_install(&self, to: Slot, eras: &Eras) -> bool {
        let own = self.spine.learner.eras();
        let later = eras.era() > own.era() || (eras.era() == own.era() && eras == own);
        let news = match self.is_hollow() {
            // The node learns the slots from `to` onwards again, even those that its log holds.
            true => to >= self.spine.learner.log_start(),
            false => to > self.spine.learner.decided_to(),
        };
        news && to < Slot(u64::MAX)
            && eras.era_start() <= to
            && eras.current().class() == own.current().class()
            && later
    }

    /// [trim-3] Records that the log now starts at `log_start`, which may complete a requested
    /// trim.
    pub(in crate::node) fn on_trimmed(&mut self, log_start: Slot) {
        self.auxiliary.record_log_start(log_start);
        self.spine.learner.trim(log_start);
    }

    /// [snap-2] Continues after a snapshot of everything below `to` has been installed durably. The
    /// promise remains, and so do the votes from `to` onwards.
    ///
    /// A leader that continued would report slots as decided that it did not propose in its ballot
    /// ([decide-2]). A candidate would fill slots with no-ops because it wrongly considers them
    /// undecided.
    pub(in crate::node) fn on_installed(
        &mut self,
        now: Time,
        to: Slot,
        eras: Eras,
        effects: &mut Effects,
    ) {
        if to <= self.spine.learner.decided_to() && !self.is_hollow() {
            // Catch-up was faster, but the log still starts at `to` now.
            return self.on_trimmed(to);
        }
        assert!(
            self.may_install(to, &eras),
            "a snapshot at {to} that contradicts what is known here was installed"
        );
        self.step_down(now, BallotEnd::Installed { to }, effects);
        self.spine.election.end_pre_vote();
        self.auxiliary.record_log_start(to);
        self.spine.learner.install(to, eras);
        // The snapshot is on stable storage, and so is the log that follows it.
        self.spine.advance_to_decided();
        self.spine.pending.record_durable_decided(to);
        self.spine.catchup.reset_after_install();
    }
}
