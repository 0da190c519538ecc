//! Transfers of leadership, from both sides ([live-4]).

use crate::{
    ballot::Ballot,
    effect::{Effect, Effects, Refusal},
    explanation::Campaign,
    fitness::Fitness,
    flow::Peer,
    leader::{Phase1Stage, PromiseTargets},
    message::Message,
    node::Node,
    node_id::NodeId,
    time::Time,
    transfer::{Transfer, TransferBounds},
};

/// Maximum duration of a transfer, as a multiple of the maximum election timeout.
const MAX_DURATION_TIMEOUTS: u64 = 10;

impl Node {
    pub(in crate::node) fn on_transfer_request(
        &mut self,
        now: Time,
        to: Option<NodeId>,
        effects: &mut Effects,
    ) {
        let end = |result| Effect::TransferEnded(result);
        let own = self.spine.options().member.node;
        if self.spine.phase2().is_none() {
            return effects.push(end(Err(Refusal::NotLeader)));
        }
        if to == Some(own) {
            return effects.push(end(Ok(own)));
        }
        if self.handover.transfer.is_some() {
            return effects.push(end(Err(Refusal::Transferring)));
        }
        let target = match to {
            Some(node) => self.successors().find(|peer| peer.member.node == node),
            None => self.best_successor(),
        };
        let Some(target) = target.map(|peer| peer.member.node) else {
            return effects.push(end(Err(Refusal::InvalidTarget)));
        };
        self.begin_transfer(now, target, effects);
    }

    fn begin_transfer(&mut self, now: Time, target: NodeId, effects: &mut Effects) {
        let deadline = now.plus_us(self.transfer_patience_us());
        self.handover.transfer = Some(Transfer::new(target, now, deadline));
        if self.leasing.is_enabled() {
            // [read-4] The lease ends first, so that its granters may promise the target.
            self.send_heartbeat(now, effects);
        }
    }

    /// [live-3] Handles a change in this node's fitness to lead.
    pub(in crate::node) fn on_fitness(
        &mut self,
        now: Time,
        fitness: Fitness,
        effects: &mut Effects,
    ) {
        self.handover.fitness = fitness;
        self.hand_over_if_unfit(now, effects);
    }

    /// Hands over to a fit member as soon as there is one, if this leader cannot write or apply, or
    /// has many decided slots left to apply ([live-6]). Until then it continues for as long as the
    /// votes of other members allow ([p2-5]).
    pub(in crate::node) fn hand_over_if_unfit(&mut self, now: Time, effects: &mut Effects) {
        if !self.handover.fitness.should_hand_over() || self.handover.transfer.is_some() {
            return;
        }
        let Some(leading) = self.spine.phase2() else { return };
        let (ballot, patience) = (leading.ballot(), self.spine.election().leader_silence_max_us());
        // A peer that has replied in this ballot has reported whether it is fit.
        let lives = |peer: &&Peer| {
            let lately = peer.last_reply_at.is_some_and(|at| now.since_us(at) <= patience);
            lately && peer.promised == ballot && !peer.is_unfit
        };
        let target =
            self.successors().filter(lives).max_by_key(|peer| (peer.voted_to, peer.decided_to));
        if let Some(target) = target.map(|peer| peer.member.node) {
            self.begin_transfer(now, target, effects);
        }
    }

    fn transfer_patience_us(&self) -> u64 {
        self.spine.options().election_max_ms * 1000 * MAX_DURATION_TIMEOUTS
    }

    /// Sends the transfer message once the target has everything that this leader has.
    pub(in crate::node) fn hand_over(&mut self, now: Time, effects: &mut Effects) {
        if self.handover.transfer.is_some() && self.devices.assigns_slots() {
            // [offload-13] The device must be read out before a transfer.
            return self.take_back(effects);
        }
        let (Some(leading), Some(transfer)) = (self.spine.phase2(), &mut self.handover.transfer)
        else {
            return;
        };
        let bounds = TransferBounds {
            pause_max_us: self.spine.options().election_min_ms * 1000,
            pause_interval_min_us: self.spine.options().election_max_ms * 1000,
            check_interval_us: self.spine.options().heartbeat_ms * 1000,
        };
        let next = leading.tally.next();
        let peer = self.spine.peers().peer(transfer.target);
        if self.handover.fitness.should_hand_over() && peer.is_some_and(|peer| peer.is_unfit) {
            // Another node may be able to lead.
            self.handover.transfer = None;
            return effects.push(Effect::TransferEnded(Err(Refusal::InvalidTarget)));
        }
        let peer = peer.filter(|peer| peer.connected);
        let reach = peer.map(|peer| peer.voted_to.max(peer.decided_to));
        let near =
            reach.is_some_and(|to| to.plus(self.spine.options().inflight_max as u64) >= next);
        let level = leading.tally.is_empty() && reach.is_some_and(|to| to >= next);
        if transfer.advance(now, near, level, bounds) {
            let ballot = leading.ballot();
            effects.send(transfer.target, Message::Transfer { ballot });
        }
    }

    /// Repeats the transfer message, which may have been lost. Stops once the target's promise has
    /// risen, which shows that the message arrived.
    pub(in crate::node) fn repeat_transfer(&mut self, effects: &mut Effects) {
        let (Some(leading), Some(transfer)) = (self.spine.phase2(), &self.handover.transfer) else {
            return;
        };
        let ballot = leading.ballot();
        let waits = |peer: &Peer| peer.connected && peer.promised <= ballot;
        if transfer.is_handed() && self.spine.peers().peer(transfer.target).is_some_and(waits) {
            effects.send(transfer.target, Message::Transfer { ballot });
        }
    }

    /// Returns whether this leader yields to the higher ballot `stray`, because that ballot's node
    /// is the target of the current transfer. The leader does not compete while the target is
    /// connected and the other members are `enough` for it to lead, nor for the duration of one
    /// election after that.
    pub(in crate::node) fn yields_to_target(
        &mut self,
        now: Time,
        stray: Ballot,
        enough: bool,
        effects: &mut Effects,
    ) -> bool {
        let election_us = self.spine.election().leader_silence_max_us();
        let Some(transfer) = &mut self.handover.transfer else {
            return false;
        };
        if !transfer.is_handed() || transfer.target != stray.node {
            return false;
        }
        let target = self.spine.peers().peer(transfer.target);
        let waits = enough && target.is_some_and(|peer| peer.connected);
        if !waits && transfer.has_failed(now, election_us) {
            self.handover.transfer = None;
            effects.push(Effect::TransferEnded(Err(Refusal::TimedOut)));
            return false;
        }
        true
    }

    /// Handles the leader's request to take over: campaigns at once, without a pre-vote.
    pub(in crate::node) fn on_transfer(
        &mut self,
        now: Time,
        from: NodeId,
        ballot: Ballot,
        effects: &mut Effects,
    ) {
        let stands = self.spine.election().leader_ballot() == Some(ballot) && ballot.node == from;
        let free = self.spine.phase2().is_none() && self.spine.phase1().is_none();
        let free = free && self.leasing.bound_until(now).is_none();
        let fit = self.handover.fitness.takes_over();
        if stands && free && fit && self.may_lead() && self.spine.learner().is_all_readable() {
            self.spine.restart_election_timeout(now);
            let why = Campaign::HandedOver { by: from };
            self.campaign(PromiseTargets::AllMembers, why, effects);
            self.spine.record_takeover_request(now);
        }
    }

    /// Returns whether a campaign that the leader requested is waiting for this node's own disk. A
    /// new campaign would only queue up after it.
    pub(in crate::node) fn is_recording_takeover(&self, now: Time) -> bool {
        let stage = self.spine.phase1().map(|phase1| phase1.stage);
        let asked = self.spine.election().takeover_asked_within(now, self.transfer_patience_us());
        asked && matches!(stage, Some(Phase1Stage::Recording(_)))
    }
}
