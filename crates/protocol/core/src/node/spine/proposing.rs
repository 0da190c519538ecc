//! Phase 2 of this node's own ballot: proposing values, counting votes, announcing decisions.

use alloc::vec::Vec;

use crate::{
    class::Class,
    configuration::Configuration,
    effect::{Alarm, Effect, Effects, Refusal},
    flow::Peer,
    leader::Phase2,
    learner::Proposal,
    message::{Message, Phase2a, Phase2b},
    node::Node,
    node_id::{Member, NodeId},
    quorum::MemberSet,
    slot::Slot,
    time::Time,
    value::Value,
};

impl Node {
    pub(in crate::node) fn on_propose(
        &mut self,
        now: Time,
        value: Value,
        slots: u64,
        effects: &mut Effects,
    ) {
        assert!(slots == 1 || (slots > 1 && value.may_span()), "{slots} slots of {value}");
        let refusal = self
            .proposal_refusal()
            .or_else(|| self.change_refusal(&value))
            .or_else(|| (!self.has_room(slots)).then_some(Refusal::Busy));
        match refusal {
            Some(why) => effects.push(Effect::Refused { value, why }),
            None if self.devices.assigns_slots() => {
                if let Some(why) = self.submit_to_device(value, slots, effects) {
                    effects.push(Effect::Refused { value, why });
                }
            }
            None => self.propose(now, value, slots, true, self.spine.options.member.node, effects),
        }
    }

    /// Returns the reason for refusing a proposal now; `None` if it would be accepted.
    pub(super) fn proposal_refusal(&self) -> Option<Refusal> {
        let Some(leading) = &self.spine.phase2 else {
            return Some(Refusal::NotLeader);
        };
        if self.handover.pauses_proposals() {
            return Some(Refusal::Transferring);
        }
        // [cast-3] Between its casting promise and the new ballot this node casts no vote.
        let casting = self.spine.acceptor.promised() > leading.ballot();
        let full = leading.tally.len() >= self.spine.options.inflight_max;
        // [offload-12] No slots are assigned until the device has been read out.
        let away = self.devices.is_withdrawing();
        (casting || full || away).then_some(Refusal::Busy)
    }

    /// [p2-3] Returns whether the next `slots` slots are within the window of acceptors that are
    /// caught up with this leader.
    pub(super) fn has_room(&self, slots: u64) -> bool {
        let end = self.spine.learner.decided_to().plus(self.spine.options.window_slots);
        let next = self.spine.phase2.as_ref().map(|leading| leading.tally.next());
        next.is_some_and(|next| next.plus(slots) <= end)
    }

    /// [era-8] Returns the reason for refusing a reconfiguration now; `None` if it would be
    /// accepted. Only one may be undecided at a time. It must name the era of this ballot and of
    /// everything undecided in it, and be valid under the current configuration. [era-12] No
    /// decided slot may depend only on members that lose weight.
    fn change_refusal(&self, value: &Value) -> Option<Refusal> {
        let Value::Reconfigure { era, change } = *value else {
            return None;
        };
        let leading = self.spine.phase2.as_ref()?;
        let eras = self.spine.learner.eras();
        let in_order = era == leading.ballot().era
            && era == eras.era()
            && leading.undecided_change.is_none()
            && self.spine.phase1.is_none();
        let Some(next) = eras.after_change(change).ok().filter(|_| in_order) else {
            return Some(Refusal::InvalidChange);
        };
        (!self.is_held_past(&next, eras.era_start())).then_some(Refusal::SlotsNotHeld)
    }

    /// [era-12] Returns whether full replicas that intersect every phase-1 quorum of `next` hold
    /// everything below `since`, the first slot of the era in force. Quorums of an era intersect
    /// those of the following era, but not those of the era after that.
    fn is_held_past(&self, next: &Configuration, since: Slot) -> bool {
        if since <= Slot::FIRST {
            return true;
        }
        let own = self.spine.options.member;
        let holders = next.members().iter().enumerate().filter(|(_, voter)| {
            let held_to = if voter.member == own {
                self.held_to()
            } else {
                let peer = self.spine.peers.peer(voter.member.node);
                let peer = peer.filter(|peer| peer.member == voter.member);
                peer.map_or(Slot(0), |peer| peer.held_to)
            };
            // [trim-1] Slots that an auxiliary reports as held do not count.
            held_to >= since && !voter.auxiliary
        });
        let holders = holders.fold(MemberSet::default(), |set, (at, _)| set.with(at));
        next.blocks_phase1(holders)
    }

    /// Binds the next slots of this ballot to a value and requests votes, first from the other
    /// members and then from this node's own acceptor, so that no proposal waits for two disks in
    /// sequence ([p2-4]). This node's acceptor is treated like any other: if its disk is slow, the
    /// other members decide ([p2-5]).
    pub(in crate::node) fn propose(
        &mut self,
        now: Time,
        value: Value,
        slots: u64,
        held: bool,
        source: NodeId,
        effects: &mut Effects,
    ) {
        let Some(leading) = self.spine.phase2.as_mut() else {
            return;
        };
        let proposal = leading.tally.propose(slots, value);
        if matches!(value, Value::Reconfigure { .. }) {
            leading.undecided_change = Some(proposal.range.from);
        }
        let with_bytes = source == self.spine.options.member.node && held;
        let message = self.phase2a(&proposal, with_bytes);
        self.spine.peers.record_announced(message.decided_to);
        let idle = self.auxiliary.bypassed_nodes();
        let level = self.spine.peers.iter_mut().filter_map(|peer| {
            let asked = peer.connected && !idle.contains(peer.member.node);
            let asked = asked && !self.devices.device_reaches(peer.member);
            let level = asked && peer.sent_to == proposal.range.from;
            level.then(|| {
                peer.sent_to = proposal.range.to;
                peer.member.node
            })
        });
        effects.send_all(level, &Message::Phase2a(message));
        self.ring.record_proposal(now, proposal.range, message.decided_to);
        if self.spine.waiting_proposals.is_empty() {
            self.vote(now, source, message, (held, held), effects);
        } else {
            self.queue_proposal(now, source, message, held, effects);
        }
        let voted = self.spine.own_votes.newest_run().voted_to(message.ballot) >= proposal.range.to;
        if with_bytes && value.has_bytes() && !voted {
            // [value-3] This node votes later, and no other node may have the bytes by then.
            effects.push(Effect::Fetch { from: source, value, range: proposal.range });
        }
    }

    fn phase2a(&self, proposal: &Proposal, with_bytes: bool) -> Phase2a {
        let ballot = self.spine.phase2.as_ref().map(Phase2::ballot).unwrap_or_default();
        let (own_volatile_to, own_durable_to) = self.spine.own_votes.voted_to_in(ballot);
        Phase2a {
            ballot,
            range: proposal.range,
            value: proposal.value,
            prefix: proposal.prefix,
            decided_to: self.spine.learner.decided_to(),
            own_volatile_to,
            own_durable_to,
            with_bytes,
        }
    }

    /// Resends all undecided proposals from the peer's `sent_to` onwards, bytes included.
    pub(in crate::node) fn resend(&mut self, node: NodeId, effects: &mut Effects) {
        let Some(leading) = &self.spine.phase2 else { return };
        let asked =
            |peer: &&Peer| peer.connected && !self.auxiliary.bypassed_nodes().contains(node);
        let Some(peer) = self.spine.peers.peer(node).filter(asked) else {
            return;
        };
        for proposal in leading.tally.proposals_from(peer.sent_to) {
            effects.send(node, Message::Phase2a(self.phase2a(proposal, true)));
        }
        let next = leading.tally.next();
        if let Some(peer) = self.spine.peers.find(node) {
            peer.sent_to = next;
        }
    }

    pub(in crate::node) fn on_phase2b(
        &mut self,
        from: Member,
        vote: Phase2b,
        effects: &mut Effects,
    ) {
        let class = self.spine.pending.class();
        let decided_to = self.spine.learner.decided_to();
        let Some(leading) = self.spine.phase2.as_mut() else {
            return;
        };
        let Some(tally) = leading.tally_of(vote.ballot) else {
            return;
        };
        if self.devices.assigns_slots() && vote.volatile_to > tally.next() {
            // [offload-10] The device has assigned more slots than it has reported.
            return self.devices.store_early_vote(from, vote);
        }
        if let Err(mismatch) = tally.add_vote(from, &vote, class) {
            let alarm =
                Alarm::ConflictingVotes { from: from.node, ballot: vote.ballot, to: mismatch.to };
            return self.alarm(alarm, effects);
        }
        if vote.ballot == leading.tally.ballot()
            && let Some(peer) = self.spine.peers.find(from.node)
        {
            let to = if class == Class::Volatile { vote.volatile_to } else { vote.durable_to };
            peer.voted_to = peer.voted_to.max(to);
            // [value-3], [decide-2] The peer voted for the values of this ballot, bytes included.
            // So it holds the values that are now decided.
            if peer.member == from && vote.from <= peer.held_to {
                peer.held_to = peer.held_to.max(to.min(decided_to));
            }
        }
    }

    /// Decides as many slots as the votes allow.
    pub(in crate::node) fn decide_counted(&mut self, now: Time, effects: &mut Effects) {
        loop {
            let counted = self.count_once(effects);
            let voted = self.vote_for_own(now, effects);
            if voted {
                self.release(now, effects);
            }
            if !counted && !voted {
                return;
            }
        }
    }

    fn count_once(&mut self, effects: &mut Effects) -> bool {
        let Some(leading) = self.spine.phase2.as_mut() else {
            return false;
        };
        let before = self.spine.learner.decided_to();
        let mut each = |range, value| effects.push(Effect::Decided { range, value });
        if let Some(tally) = leading.previous_tally.as_mut() {
            self.spine.learner.decide_counted(tally, &self.spine.acceptor, &mut each);
        }
        self.spine.learner.decide_counted(&mut leading.tally, &self.spine.acceptor, &mut each);
        let more = self.spine.learner.decided_to() > before;
        if more {
            self.drop_decided();
        }
        more
    }

    /// Votes for proposals of this leader that did not fit into its own acceptor earlier. Returns
    /// whether it cast a vote.
    fn vote_for_own(&mut self, now: Time, effects: &mut Effects) -> bool {
        let Some(leading) = &self.spine.phase2 else {
            return false;
        };
        let ballot = leading.ballot();
        let voted_to =
            self.spine.own_votes.newest_run().voted_to(ballot).max(self.spine.learner.decided_to());
        let casting = self.spine.acceptor.promised() > ballot;
        if voted_to >= leading.tally.next() || casting || !self.spine.waiting_proposals.is_empty() {
            return false;
        }
        let left: Vec<Proposal> = leading.tally.proposals_from(voted_to).copied().collect();
        for proposal in left {
            // The bytes are looked for as with any proposal that lacks them.
            let held = !proposal.value.has_bytes();
            let message = self.phase2a(&proposal, false);
            if self.spine.waiting_proposals.is_empty() {
                self.vote(now, ballot.node, message, (held, held), effects);
            } else {
                self.queue_proposal(now, ballot.node, message, held, effects);
            }
        }
        self.spine.own_votes.newest_run().voted_to(ballot) > voted_to
    }

    pub(super) fn drop_decided(&mut self) {
        let decided_to = self.spine.learner.decided_to();
        self.spine.acceptor.advance_floor(decided_to);
        if let Some(leading) = self.spine.phase2.as_mut() {
            leading.drop_below(decided_to);
        }
    }

    /// Announces decisions. Followers usually learn of decisions with the next proposal. If no
    /// proposal is outstanding, they are notified at once. They are also notified at once of a new
    /// era, because they enter an era only after deciding the slot that began it ([ballot-5]).
    pub(in crate::node) fn announce_decisions(&mut self, effects: &mut Effects) {
        let Some(leading) = &self.spine.phase2 else { return };
        let decided_to = self.spine.learner.decided_to();
        let told = self.spine.peers.announced_to();
        let began = self.spine.learner.eras().era_start() > told;
        if decided_to <= told || !(leading.tally.is_empty() || began) {
            return;
        }
        self.spine.peers.record_announced(decided_to);
        let ballot = leading.ballot();
        let message = Message::Decided { ballot, decided_to };
        effects.send_all(self.spine.peers.connected(), &message);
    }
}
