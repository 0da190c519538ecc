//! A leader's term: heartbeats, whose replies let it remain leader, and promises to higher ballots
//! (strays), which may end the term.

use alloc::vec::Vec;

use crate::{
    configuration::Configuration,
    effect::{Effect, Effects},
    explanation::{BallotEnd, Campaign, Explanation},
    flow::Peer,
    leader::{Phase1Stage, PromiseTargets, member_set_of},
    lease::Lease,
    message::{Heartbeat, HeartbeatReply, HeldSlots, Message},
    node::Node,
    node_id::Member,
    quorum::{MemberSet, Phase},
    reads::Reader,
    slot::Slot,
    time::Time,
};

impl Node {
    /// Sends a heartbeat to all nodes. Their replies let this node remain leader.
    pub(in crate::node) fn send_heartbeat(&mut self, now: Time, effects: &mut Effects) {
        if self.auxiliary.is_due(now, self.spine.options.heartbeat_ms) {
            self.check_replies(now, effects);
        }
        self.set_tolerated_silence(now);
        let late_us = self.pauses.worst_lateness_us(now);
        let Some(leading) = &self.spine.phase2 else { return };
        self.timers.heartbeat_sent(now, self.spine.options.heartbeat_ms);
        let (ballot, decided_to) = (leading.ballot(), self.spine.learner.decided_to());
        self.spine.peers.record_announced(decided_to);
        let read_round = self.reading.confirmation_round();
        let held = self.spine.peers.held_slots(
            self.spine.learner.eras(),
            self.spine.options.member,
            self.held_to(),
        );
        self.note_held(held);
        let HeldSlots { all, quorum } = self.held_slots();
        let lease = self.next_lease_request(now);
        let kept = self.kept_by_quorum();
        let configuration = self.spine.learner.eras().current();
        for peer in self.spine.peers.iter().filter(|peer| peer.connected) {
            let auxiliary = configuration.is_auxiliary(peer.member);
            let beat = Heartbeat {
                ballot,
                decided_to,
                sent_to: peer.sent_to,
                read_round,
                held_by_all: all,
                lease,
                held_by_quorum: if auxiliary { kept } else { quorum },
                auxiliary,
                clock_ms: 0,
                late_us,
                full_disk: None,
            };
            effects.send(peer.member.node, Message::Heartbeat(beat));
        }
        self.ring.record_heartbeat(now, self.spine.options.heartbeat_ms, decided_to);
        if let Some(message) = self.ring_announcement() {
            effects.send_all(self.spine.peers.connected(), &message);
        }
        // Reads may trigger heartbeats so often that no heartbeat ever becomes due by time.
        if self.devices.is_due(now, self.spine.options.heartbeat_ms) {
            self.offload(now, effects);
        }
    }

    /// [trim-1] Returns the end of the slots that auxiliaries may forget.
    fn kept_by_quorum(&self) -> Slot {
        let own = self.spine.options.member;
        self.spine.peers.kept_by_quorum(self.spine.learner.eras(), own, self.kept_to())
    }

    pub(in crate::node) fn on_heartbeat_reply(
        &mut self,
        now: Time,
        from: Member,
        reply: HeartbeatReply,
        effects: &mut Effects,
    ) {
        let Some(leading) = self.spine.phase2.as_ref().filter(|l| l.ballot() == reply.ballot)
        else {
            return;
        };
        let (ballot, next) = (leading.ballot(), leading.tally.next());
        self.record_ballot(from.node, reply.promised);
        let Some(peer) = self.spine.peers.find(from.node).filter(|peer| peer.member == from) else {
            return;
        };
        peer.last_reply_at = Some(now);
        peer.promised = peer.promised.max(reply.promised);
        peer.decided_to = peer.decided_to.max(reply.decided_to);
        peer.held_to = peer.held_to.max(reply.held_to);
        peer.kept_to = peer.kept_to.max(reply.kept_to);
        peer.is_caught_up = reply.held_to >= self.ring.caught_up_to();
        peer.is_unfit = reply.unfit;
        peer.late_us = reply.late_us;
        // A follower that learned of a decision from the previous leader does not vote for it
        // again, so this leader must learn it too.
        self.spine.catchup.record_source(reply.decided_to, from.node);
        if reply.promised <= ballot {
            self.reading.confirm(reply.read_round, from);
            self.leasing.record_grant(ballot, from, reply.lease);
        }
        // Everything below `sent_to` was sent before the heartbeat. Slots that the reply shows
        // neither as voted for nor as decided were lost, or temporarily refused.
        let resume = reply.voted_to.max(reply.decided_to).max(self.spine.learner.decided_to());
        let spared = self.auxiliary.bypassed_nodes().contains(from.node);
        if !spared
            && resume < reply.sent_to
            && reply.sent_to <= peer.sent_to
            && reply.sent_to <= next
        {
            peer.sent_to = resume;
            effects.slow.rewinds += 1;
            self.resend(from.node, effects);
        }
    }

    pub(in crate::node) fn on_connected(
        &mut self,
        now: Time,
        member: Member,
        effects: &mut Effects,
    ) {
        if member.node == self.spine.options.member.node {
            return;
        }
        let decided_to = self.spine.learner.decided_to();
        let Some(peer) = self.spine.peers.connect(member) else {
            return;
        };
        peer.sent_to = decided_to;
        peer.voted_to = Slot(0);
        self.devices.record_disarmed(member);
        self.resend(member.node, effects);
        if let Some(leading) = &self.spine.phase2 {
            let sent_to = leading.tally.next();
            let read_round = self.reading.confirmation_round();
            let auxiliary = self.spine.learner.eras().current().is_auxiliary(member);
            let held_by_quorum = match auxiliary {
                true => self.kept_by_quorum(),
                false => self.held_slots().quorum,
            };
            let beat = Heartbeat {
                ballot: leading.ballot(),
                decided_to,
                sent_to,
                read_round,
                held_by_all: self.held_slots().all,
                lease: Lease::default(),
                held_by_quorum,
                auxiliary,
                clock_ms: 0,
                late_us: self.pauses.worst_lateness_us(now),
                full_disk: None,
            };
            effects.send(member.node, Message::Heartbeat(beat));
            if let Some(message) = self.ring_announcement() {
                effects.send(member.node, message);
            }
        }
        if let Some(phase1) =
            self.spine.phase1.as_ref().filter(|p| p.stage == Phase1Stage::AwaitingPromises)
            && phase1.sends_1a_to(member.node)
            && !phase1.has_promised(member)
        {
            let message = Message::Phase1a { ballot: phase1.ballot, from: phase1.from };
            effects.send(member.node, message);
        }
    }

    /// [live-2] Handles a promise of a ballot higher than this leader's. If the other members are
    /// enough to lead, this leader starts a ballot above the higher one. Otherwise a new leader is
    /// likely, and this one steps down.
    pub(super) fn resolve_stray_promise(&mut self, now: Time, effects: &mut Effects) {
        let Some(leading) = &self.spine.phase2 else { return };
        if self.spine.phase1.is_some() {
            return;
        }
        let ballot = leading.ballot();
        let stray = self.spine.peers.iter().map(|peer| peer.promised).max().unwrap_or_default();
        let own_stray = self.spine.acceptor.promised();
        if stray <= ballot && own_stray <= ballot {
            return;
        }
        let configuration = self.spine.learner.eras().current();
        let level = self.spine.peers.set(configuration, self.spine.options.member, |peer| {
            peer.promised <= ballot && peer.connected
        });
        let enough = configuration.is_quorum(Phase::Two, level);
        if own_stray <= ballot && self.yields_to_target(now, stray, enough, effects) {
            return;
        }
        match self.next_ballot() {
            Some(next) if enough && next > stray => {
                let promised = stray.max(own_stray);
                self.campaign(PromiseTargets::AllMembers, Campaign::Stray { promised }, effects);
            }
            // The ballot belongs to an era that this node does not know yet. Until it does, the
            // other members are enough.
            _ if enough && own_stray <= ballot => {}
            _ => {
                let promised = stray.max(own_stray);
                self.step_down(now, BallotEnd::Strays { promised }, effects);
            }
        }
    }

    /// [disk-8] Steps down if this node cannot read back a value that it decided, and no connected
    /// peer has decided that value. Peers that voted for the value in an earlier ballot are waiting
    /// for a leader that cannot supply it ([decide-2]). Without this leader, which then neither
    /// campaigns nor promises, they decide the value again and can then supply it.
    ///
    /// This node remains leader if those peers are not enough by themselves. It also remains leader
    /// if the slot that they lack began the current era, because they promised a ballot of that era
    /// and could not lead in the previous one.
    pub(in crate::node) fn on_found_nowhere(&mut self, now: Time, effects: &mut Effects) {
        let slot = self.spine.learner.readable_to();
        let known_era = slot >= self.spine.learner.eras().era_start();
        let leads = self.spine.phase2.is_some() && !self.spine.learner.is_all_readable();
        if leads && known_era && self.others_can_decide(now, slot) {
            self.step_down(now, BallotEnd::FoundNowhere { slot }, effects);
        }
    }

    /// Returns whether the members that reply to this leader, and never reported this slot as
    /// decided, could elect one of themselves and decide the slot. A peer that decided the slot and
    /// also lost it may not promise. A peer that has not reached the slot could not lead.
    fn others_can_decide(&self, now: Time, slot: Slot) -> bool {
        let configuration = self.spine.learner.eras().current();
        let patience = self.spine.election.leader_silence_max_us();
        let answer = |peer: &&Peer| {
            let lately = peer.last_reply_at.is_some_and(|at| now.since_us(at) <= patience);
            peer.connected && lately && peer.decided_to <= slot
        };
        let others: Vec<&Peer> = self.spine.peers.iter().filter(answer).collect();
        let may_lead = |peer: &&Peer| {
            let full = !configuration.is_auxiliary(peer.member);
            full && peer.decided_to == slot && configuration.position(peer.member).is_some()
        };
        let able = others.iter().any(may_lead);
        let others: Vec<Member> = others.iter().map(|peer| peer.member).collect();
        let set = member_set_of(configuration, &others);
        able && configuration.is_quorum(Phase::One, set) && configuration.is_quorum(Phase::Two, set)
    }

    /// Steps down. This node does not try to become leader again at once.
    pub(in crate::node) fn step_down(&mut self, now: Time, why: BallotEnd, effects: &mut Effects) {
        let led = self.spine.phase2.take().map(|leading| leading.ballot());
        let tried = self.spine.phase1.is_some();
        self.end_phase1(why, effects);
        if let Some(ballot) = led {
            self.stop_device(effects);
            effects.explain(Explanation::StepsDown { ballot, why });
        }
        if led.is_none() && !tried {
            return;
        }
        for reader in self.reading.fail() {
            if let Reader::Local(token) = reader {
                effects.push(Effect::ReadFailed { token });
            }
        }
        self.spine.election.forget_leader(now);
    }

    /// Returns the peers that could lead instead of this node.
    pub(in crate::node) fn successors(&self) -> impl Iterator<Item = &Peer> {
        let configuration = self.spine.learner.eras().current();
        let able = |member: Member| {
            configuration.position(member).is_some_and(|at| !configuration.members()[at].auxiliary)
        };
        let peers = self.spine.peers.iter();
        peers.filter(move |peer| peer.connected && able(peer.member))
    }

    /// Returns the most advanced peer that could lead, preferring a fit one.
    pub(in crate::node) fn best_successor(&self) -> Option<&Peer> {
        self.successors().max_by_key(|peer| (!peer.is_unfit, peer.voted_to, peer.decided_to))
    }

    /// Returns whether every quorum of `phase` that another node may need for a higher ballot
    /// includes a member that satisfies `by`, whatever era that ballot or its slots belong to.
    pub(in crate::node) fn blocks_others(&self, phase: Phase, by: impl Fn(Member) -> bool) -> bool {
        let Some(leading) = &self.spine.phase2 else {
            return false;
        };
        let eras = self.spine.learner.eras();
        let blocks = |configuration: &Configuration| {
            let members = configuration.members().iter().enumerate();
            let inside = members.filter(|(_, voter)| by(voter.member));
            let set = inside.fold(MemberSet::default(), |set, (at, _)| set.with(at));
            configuration.blocks_quorums(phase, set)
        };
        let era = leading.ballot().era;
        if !eras.configuration_of(era).is_some_and(blocks) || !blocks(eras.current()) {
            return false;
        }
        if leading.undecided_change.is_none() {
            return true;
        }
        // Reconfigurations that this ballot proposed may be decided in sequence, and another node
        // may use them for phase 1 before this leader knows. The leader proposes one at a time, but
        // may have inherited several.
        let mut coming = eras.clone();
        for proposal in leading.tally.proposals_from(self.spine.learner.decided_to()) {
            // [era-4] A reconfiguration that names another era, or is invalid, changes nothing.
            if coming.apply_decided(proposal.range.from, &proposal.value)
                && !blocks(coming.current())
            {
                return false;
            }
        }
        true
    }
}
