//! A snapshot that stands for what this node lacks: the request for one, and its effects.

use alloc::vec::Vec;

use super::Node;
use crate::{
    effect::{Effect, Effects},
    explanation::End,
    node_id::NodeId,
    reconfigure::Eras,
    slot::Slot,
    time::Time,
};

impl Node {
    /// [catch-2] Notes that the log of `from` does not have what this node lacks any more. Another
    /// node's log may.
    pub(super) fn on_below_start(
        &mut self,
        now: Time,
        from: NodeId,
        log_start: Slot,
        effects: &mut Effects,
    ) {
        let decided_to = self.learner.decided_to();
        if log_start > decided_to && self.is_behind() {
            // [aux-1] An auxiliary is no source, and is not waited for.
            let configuration = self.learner.eras().current();
            let full = |node: &NodeId| {
                let voter = configuration.member_of(*node);
                voter.is_none_or(|voter| !voter.auxiliary)
            };
            let peers: Vec<NodeId> = self.peers.connected().filter(full).collect();
            let no_peer_has_it = self.catchup.on_below_start(from, log_start, decided_to, &peers);
            match no_peer_has_it {
                Some(log_start) => self.need_snapshot(now, from, log_start, effects),
                None => self.ask_for_missing(now, effects),
            }
        }
    }

    /// Asks the caller for a snapshot, as often as catch-up repeats a question.
    pub(super) fn need_snapshot(
        &mut self,
        now: Time,
        from: NodeId,
        log_start: Slot,
        effects: &mut Effects,
    ) {
        let retry_us = self.catchup_retry_us();
        if !self.pending.failed() && self.catchup.starts_at(now, log_start, retry_us) {
            effects.slow.snapshots += 1;
            effects.push(Effect::NeedSnapshot { from, log_start });
        }
    }

    /// Returns whether a snapshot that stands for everything below `to`, with these eras there, is
    /// of any use to this node, and does not contradict what it knows. To be asked before the
    /// durable switch.
    pub fn may_install(&self, to: Slot, eras: &Eras) -> bool {
        let own = self.learner.eras();
        let later = eras.era() > own.era() || (eras.era() == own.era() && eras == own);
        let news = match self.is_hollow() {
            // What its log holds from there on it learns again.
            true => to >= self.learner.log_start(),
            false => to > self.learner.decided_to(),
        };
        news && to < Slot(u64::MAX)
            && eras.since() <= to
            && eras.current().class() == own.current().class()
            && later
    }

    /// [trim-3] Notes that the log begins there now; what was to be forgotten may be gone with
    /// that.
    pub(super) fn on_trimmed(&mut self, log_start: Slot) {
        self.spared.begins_at(log_start);
        self.learner.trim(log_start);
    }

    /// [snap-2] Continues after the durable switch: the snapshot stands for everything below `to`.
    /// The promise, and votes from there on, stay as they are.
    ///
    /// A leader that went on would announce in its ballot what it did not propose in it
    /// ([decide-2]); a candidate would fill with no-ops what it believes undecided.
    pub(super) fn on_installed(&mut self, now: Time, to: Slot, eras: Eras, effects: &mut Effects) {
        if to <= self.learner.decided_to() && !self.is_hollow() {
            // Catch-up was faster. The log starts there all the same.
            return self.on_trimmed(to);
        }
        assert!(
            self.may_install(to, &eras),
            "a snapshot at {to} that contradicts what is known here was installed"
        );
        self.step_down(now, End::Installed { to }, effects);
        self.election.end_pre_vote();
        self.spared.begins_at(to);
        self.learner.install(to, eras);
        self.acceptor.advance_floor(self.learner.decided_to());
        // The snapshot is on stable storage, and so is what the log holds after it.
        self.voted.decisions_persisted(self.learner.decided_to());
        self.voted.join_run();
        self.pending.known(to);
        self.catchup.installed();
    }
}
