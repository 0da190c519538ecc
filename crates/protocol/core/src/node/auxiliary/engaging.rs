//! Choice of the nodes that receive a leader's proposals, and activation and bypass of auxiliaries
//! ([aux-1]–[aux-4]).

use crate::{
    configuration::{Configuration, Voter},
    effect::Effects,
    explanation::Explanation,
    flow::Peer,
    node::Node,
    node_id::Member,
    node_set::NodeSet,
    quorum::{MemberSet, Phase},
    slot::Slot,
    time::Time,
};

impl Node {
    /// Decides, at the start of a ballot of this node, which nodes receive proposals. `again` means
    /// that the node already led in an earlier ballot, so it knows whether it needs auxiliaries.
    pub(in crate::node) fn begin_engaging(&mut self, now: Time, again: bool) {
        if !again {
            let configuration = self.spine.learner().eras().current();
            let there = self.full_replicas(configuration, |peer| peer.connected);
            let engaged = !configuration.is_quorum(Phase::Two, there);
            self.auxiliary.proposal_receivers.begin_term(
                now,
                self.spine.learner().decided_to(),
                engaged,
            );
        }
        let idle = self.nodes_to_bypass(now);
        // A new ballot starts by sending all proposals to all nodes, so that none has to be resent.
        let _ = self.auxiliary.proposal_receivers.set_bypassed(self.era(), idle);
    }

    /// Returns this node, and the full replicas that satisfy `is`.
    fn full_replicas(
        &self,
        configuration: &Configuration,
        is: impl Fn(&Peer) -> bool,
    ) -> MemberSet {
        let set = self.spine.peers().set(configuration, self.spine.options().member, is);
        MemberSet(set.0 & configuration.full_replicas().0)
    }

    /// At each heartbeat, checks whether the full replicas make progress by themselves.
    pub(in crate::node) fn check_replies(&mut self, now: Time, effects: &mut Effects) {
        let Some(leading) = self.spine.phase2() else { return };
        let open = !leading.tally.is_empty();
        let decided_to = self.spine.learner().decided_to();
        let late_us = self.auxiliary.proposal_receivers.stalled_us(now, decided_to, open);
        let patience_us = self.spine.election().leader_silence_max_us();
        if self.spine.options().thrifty && late_us >= self.spine.options().heartbeat_ms * 1000 {
            self.auxiliary.proposal_receivers.send_to_all(now, patience_us);
        }
        let configuration = self.spine.learner().eras().current();
        // A broken connection is an early sign of failure, unless it is restored at once.
        let short_us = self.spine.options().election_min_ms * 1000;
        let heard = self.full_replicas(configuration, |peer| {
            let within_us = if peer.connected { patience_us } else { short_us };
            peer.last_reply_at.is_some_and(|at| now.since_us(at) <= within_us)
        });
        let enough = configuration.is_quorum(Phase::Two, heard) && late_us < patience_us;
        let ballot = leading.ballot();
        if !self.auxiliary.proposal_receivers.is_engaged() {
            if !enough && self.has_auxiliaries() {
                self.auxiliary.proposal_receivers.engage(now);
                effects.explain(Explanation::Engages { ballot });
            }
        } else if enough
            && self.auxiliary.proposal_receivers.may_disengage(now, patience_us)
            && self.can_bypass_auxiliaries()
        {
            self.auxiliary.proposal_receivers.disengage();
            effects.explain(Explanation::Retires { ballot });
        }
        self.update_receivers(now, effects);
    }

    fn has_auxiliaries(&self) -> bool {
        let members = self.spine.learner().eras().current().members();
        members.iter().any(|voter| voter.auxiliary)
    }

    /// [aux-4] Returns whether full replicas that form a phase-2 quorum hold everything except what
    /// may be in flight.
    fn can_bypass_auxiliaries(&self) -> bool {
        let Some(leading) = self.spine.phase2() else {
            return false;
        };
        let configuration = self.spine.learner().eras().current();
        let held = configuration.reached_by_quorum(Phase::Two, |voter| self.slots_held_by(voter));
        held.plus(self.spine.options().inflight_max as u64) >= leading.tally.next()
    }

    fn slots_held_by(&self, voter: &Voter) -> Slot {
        if voter.auxiliary {
            return Slot(0);
        }
        if voter.member == self.spine.options().member {
            return self.held_to();
        }
        let peer = self.spine.peers().peer(voter.member.node);
        let peer = peer.filter(|peer| peer.member == voter.member);
        peer.map_or(Slot(0), |peer| peer.held_to)
    }

    /// Applies the roles of a new era, in which different members may be auxiliaries.
    pub(in crate::node) fn follow_roles(&mut self, now: Time, effects: &mut Effects) {
        if self.spine.phase2().is_some()
            && !self.auxiliary.proposal_receivers.reflects_era(self.era())
        {
            self.update_receivers(now, effects);
        }
    }

    /// Updates the choice of nodes that receive proposals. A node that receives them again is sent
    /// every undecided proposal ([aux-2]).
    fn update_receivers(&mut self, now: Time, effects: &mut Effects) {
        let idle = self.nodes_to_bypass(now);
        let again = self.auxiliary.proposal_receivers.set_bypassed(self.era(), idle);
        let decided_to = self.spine.learner().decided_to();
        for node in again.iter() {
            self.spine.rewind_peer(node, decided_to);
            self.resend(node, effects);
        }
    }

    /// Returns the nodes that need no proposals.
    fn nodes_to_bypass(&self, now: Time) -> NodeSet {
        let configuration = self.spine.learner().eras().current();
        let engaged = self.auxiliary.proposal_receivers.is_engaged();
        let mut asked = configuration.all_members();
        let mut idle = NodeSet::default();
        if !engaged {
            asked = configuration.full_replicas();
        }
        if self.spine.options().thrifty
            && !engaged
            && self.auxiliary.proposal_receivers.may_be_thrifty(now)
        {
            asked = self.thrifty_quorum(configuration).unwrap_or(asked);
        }
        for (index, voter) in configuration.members().iter().enumerate() {
            let spared = !asked.has(index) && voter.member != self.spine.options().member;
            // A set has room for all other members of a configuration.
            let _ = spared && idle.insert(voter.member.node);
        }
        idle
    }

    /// Returns the smallest set of connected full replicas that forms a phase-2 quorum with this
    /// node, preferring replicas that are ahead.
    fn thrifty_quorum(&self, configuration: &Configuration) -> Option<MemberSet> {
        let own = configuration.position(self.spine.options().member)?;
        let there = self.full_replicas(configuration, |peer| peer.connected);
        let mut set = MemberSet::default().with(own);
        while !configuration.is_quorum(Phase::Two, set) {
            let left = configuration.members().iter().enumerate();
            let left = left.filter(|(at, _)| there.has(*at) && !set.has(*at));
            let ahead = |(at, voter): &(usize, &Voter)| {
                let peer = self.spine.peers().peer(voter.member.node);
                let to = peer.map_or(Slot(0), |peer| peer.voted_to.max(peer.decided_to));
                // Nodes that already receive proposals are preferred, so that none is dropped for
                // lagging by a slot.
                let asked =
                    !self.auxiliary.proposal_receivers.bypassed_nodes().contains(voter.member.node);
                (voter.weight, asked, to, core::cmp::Reverse(*at))
            };
            let (at, _) = left.max_by_key(ahead)?;
            set = set.with(at);
        }
        Some(set)
    }

    /// [cast-1] Returns whether this member is sent the current proposals.
    pub(in crate::node) fn receives_proposals(&self, member: Member) -> bool {
        !self.auxiliary.proposal_receivers.bypassed_nodes().contains(member.node)
    }

    /// Returns whether this node leads and sends proposals to auxiliaries.
    pub fn auxiliaries_engaged(&self) -> bool {
        self.spine.phase2().is_some()
            && self.auxiliary.proposal_receivers.is_engaged()
            && self.has_auxiliaries()
    }

    /// Returns whether this node leads and sends proposals to `node`.
    pub fn proposes_to(&self, node: crate::node_id::NodeId) -> bool {
        self.spine.phase2().is_some()
            && !self.auxiliary.proposal_receivers.bypassed_nodes().contains(node)
    }
}
