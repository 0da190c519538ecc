//! Leader steps that no message triggers: the move to a new era, and a leadership transfer.

use crate::{
    effect::Effects,
    explanation::{BallotEnd, Campaign},
    leader::{Phase1Stage, PromiseTargets, split_preferring},
    node::Node,
    node_id::Member,
    quorum::Phase,
    slot::Slot,
    time::Time,
};

impl Node {
    /// Continues a move to a new era and a transfer. Steps down if this node may no longer lead.
    pub(in crate::node) fn move_on(&mut self, now: Time, effects: &mut Effects) {
        if self.spine.phase2.is_none() {
            return;
        }
        if !self.may_lead() {
            return self.step_down(now, BallotEnd::NoMember, effects);
        }
        self.move_to_new_era(effects);
        self.hand_over(now, effects);
    }

    /// Returns whether this member has voted for everything below this slot, so that it is close to
    /// deciding it. Always `true` for an auxiliary, which need not decide it.
    fn has_voted_below(&self, member: Member, slot: Slot) -> bool {
        let peer = self.spine.peers.peer(member.node);
        let peer = peer.filter(|peer| peer.member == member);
        let auxiliary = self.spine.learner.eras().current().is_auxiliary(member);
        auxiliary || peer.is_some_and(|peer| peer.voted_to.max(peer.decided_to) >= slot)
    }

    /// [era-8] Moves the leader to a ballot of the era in force, before the next reconfiguration.
    /// It uses its casting vote if the weights allow it ([cast-1], [cast-5]).
    fn move_to_new_era(&mut self, effects: &mut Effects) {
        let Some(leading) = &self.spine.phase2 else { return };
        let eras = self.spine.learner.eras();
        if leading.ballot().era == eras.era() {
            return;
        }
        let configuration = eras.current();
        let reachable = |member: Member| {
            self.spine.peers.iter().any(|peer| peer.member == member && peer.connected)
        };
        match &self.spine.phase1 {
            None => {
                // Members that promised a higher ballot would refuse. Whether the others are enough
                // to lead at all is decided in `resolve_stray_promise`.
                let next = self.next_ballot();
                let willing =
                    self.spine.peers.set(configuration, self.spine.options.member, |peer| {
                        next.is_some_and(|next| peer.promised < next)
                    });
                if !configuration.is_quorum(Phase::One, willing) {
                    return;
                }
                let own = self.spine.options.member;
                let asked = |member| self.receives_proposals(member);
                let level = |member: Member| self.has_voted_below(member, eras.era_start());
                let asked = split_preferring(configuration, own, reachable, asked, level)
                    .filter(|l| !l.is_empty())
                    .map_or(PromiseTargets::AllMembers, PromiseTargets::Only);
                self.campaign(asked, Campaign::Era, effects);
            }
            Some(phase1)
                if phase1.ballot.era < eras.era()
                    && phase1.stage == Phase1Stage::AwaitingPromises =>
            {
                // The era began during phase 1 of a ballot of the previous era. Quorums of that era
                // may be gone permanently, and a leader has no timeout that would trigger a retry.
                self.spine.phase1 = None;
                self.campaign(PromiseTargets::AllMembers, Campaign::AskedAgain, effects);
            }
            Some(phase1) => {
                // [cast-5] A needed member was lost while waiting, so ask all members, and cast at
                // once.
                let PromiseTargets::Only(nodes) = &phase1.promise_targets else {
                    return;
                };
                let r = self.spine.peers.set(configuration, self.spine.options.member, |peer| {
                    peer.connected
                        && self.receives_proposals(peer.member)
                        && !nodes.contains(&peer.member.node)
                });
                let waiting = phase1.stage == Phase1Stage::AwaitingPromises;
                let lost = !configuration.is_quorum(Phase::Two, r)
                    || nodes.iter().any(|node| {
                        !self.spine.peers.peer(*node).is_some_and(|p| reachable(p.member))
                    });
                if waiting && lost {
                    self.spine.phase1 = None;
                    self.campaign(PromiseTargets::AllMembers, Campaign::AskedAgain, effects);
                }
            }
        }
    }
}
