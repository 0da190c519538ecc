//! Entry into a new era, as an acceptor and as the leader: a node may promise in it only once it
//! has decided the reconfiguration that began it ([ballot-5]), and a leader moves to a ballot of it
//! ([era-8]).
//!
//! A promise binds a node to the era of its ballot. Suppose that only a leader had decided the
//! reconfiguration, and that the leader was lost permanently. The nodes that had promised could
//! then follow no ballot of either era: in the new one no node may campaign ([ballot-3]), and
//! ballots of the old one are below the promise. So phase 1 waits until the nodes that promise know
//! of the era themselves. Any phase-2 quorum that continues without that leader then includes one
//! of them. Votes need not wait, because a ballot that proposes already has a quorum of such
//! promises.

use crate::{
    ballot::Ballot,
    effect::Effects,
    explanation::{BallotEnd, Campaign},
    leader::{Phase1Stage, PromiseTargets, split_preferring},
    node::Node,
    node_id::{Member, NodeId},
    quorum::Phase,
    slot::Slot,
    time::Time,
};

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
