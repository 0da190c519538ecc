//! Actions triggered by time alone: heartbeats, timeouts, elections ([live-1]–[live-4]).

use crate::{
    ballot::Ballot,
    effect::{Effect, Effects, Refusal},
    explanation::{BallotEnd, Campaign, Explanation},
    leader::{Phase1Stage, PromiseTargets, member_set_of},
    message::Message,
    node::Node,
    node_id::{Member, NodeId},
    quorum::Phase,
    slot::SlotRange,
    time::Time,
};

/// Number of unanswered requests after which a node that needs a snapshot no longer leaves
/// elections to others. By then no leader can send it a snapshot, or no node has one, and votes may
/// show values that the log lacks.
const UNANSWERED_REQUESTS_MAX: u32 = 32;

/// [live-6] Number of election timeouts that a node of low fitness leaves to other nodes. The
/// second timeout is twice as long, so a fit node has campaigned by then.
const UNFIT_TIMEOUTS: u32 = 1;

/// [lie-6] Maximum number of slots that a quorum of one requests at a time.
const ALONE_REQUEST_SLOTS_MAX: u64 = 4096;

impl Node {
    pub(in crate::node) fn on_tick(&mut self, now: Time, effects: &mut Effects) {
        self.last_notified.record_woken();
        if self.timers.record_reading() {
            self.leasing.start(now, self.spine.options.earlier_lease_us);
            self.spine.election.restart_timeout(now);
            self.timers.wait_alone(now, self.spine.options.lead_alone_wait_us);
            if self.is_quorum_alone() && self.leasing.bound_until(now).is_none() {
                self.lead_alone(now, effects);
            }
            return;
        }
        self.fail_overdue(now, effects);
        if self.spine.phase2.is_some() {
            self.tick_leading(now, effects);
        } else {
            self.tick_following(now, effects);
        }
        if self.is_asking() && now >= self.timers.phase1a_resend_at() {
            self.send_phase1a(now, effects);
        }
    }

    /// [live-5] Extends the timeouts for other nodes, whose messages this node could not read while
    /// it was paused.
    pub(in crate::node) fn on_late_turn(&mut self, now: Time, us: u64) {
        self.pauses.record_lateness(now, us);
        self.spine.election.excuse_own_pause(now, us);
        self.spine.peers.excuse_own_pause(now, us);
        self.set_tolerated_silence(now);
    }

    /// [live-5] Sets the tolerated silence according to how late nodes run. A leader considers all
    /// peers, a follower only its leader.
    pub(super) fn set_tolerated_silence(&mut self, now: Time) {
        let others_us = match &self.spine.phase2 {
            Some(_) => self.spine.peers.late_us(),
            None => self.pauses.leader_lateness_us(),
        };
        let timeout_us = self.spine.election.timeout_us();
        let us = self.pauses.tolerated_silence_us(now, others_us, timeout_us);
        self.spine.election.tolerate_lateness(us);
    }

    /// Returns whether this node is a phase-1 quorum by itself, as far as it knows.
    fn is_quorum_alone(&self) -> bool {
        let configuration = self.spine.learner.eras().current();
        let own = member_set_of(configuration, &[self.spine.options.member]);
        self.may_lead() && configuration.is_quorum(Phase::One, own)
    }

    /// [lie-6] Campaigns as a quorum by itself, without another node's promise. First waits for
    /// other nodes to connect, and requests their decided slots until no reply brings more. Does
    /// not campaign while one of them knows a decision for which this node has no vote.
    fn lead_alone(&mut self, now: Time, effects: &mut Effects) {
        let decided_to = self.spine.learner.decided_to();
        let others =
            self.spine.options.lead_alone_wait_us > 0 && self.spine.peers.connected().count() > 0;
        if self.timers.alone_wait_end(now).is_none()
            && others
            && self.timers.record_alone_request(decided_to)
        {
            let range = SlotRange::new(decided_to, decided_to.plus(ALONE_REQUEST_SLOTS_MAX));
            effects.send_all(self.spine.peers.connected(), &Message::CatchupRequest { range });
            self.timers.wait_alone(now, self.catchup_retry_us());
        }
        if let Some(until) = self.timers.alone_wait_end(now) {
            effects.explain(Explanation::WaitsAlone { us: until.since_us(now) });
            return self.spine.election.defer(until);
        }
        if !self.lacks_decided_votes() {
            self.campaign(PromiseTargets::AllMembers, Campaign::Alone, effects);
        }
    }

    /// [lie-6] Returns whether another node knows a decided slot, or the change that began a later
    /// era, for which this quorum of one has no vote. If so, its log was set back.
    fn lacks_decided_votes(&self) -> bool {
        let catchup = &self.spine.catchup;
        let mut voted_to = self.spine.learner.decided_to();
        let behind = catchup.is_behind_another(voted_to, self.spine.options.member.node);
        let mut eras = self.spine.learner.eras().clone();
        for vote in self.spine.acceptor.votes() {
            if vote.range.from == voted_to {
                eras.apply_decided(voted_to, &vote.value);
                voted_to = vote.range.to;
            }
        }
        behind && (catchup.era() > eras.era() || catchup.is_behind(voted_to))
    }

    /// Fails reads and transfers that have waited too long.
    fn fail_overdue(&mut self, now: Time, effects: &mut Effects) {
        let patience = self.spine.election.leader_silence_max_us();
        while let Some(token) = self.reading.take_overdue(now, patience) {
            effects.push(Effect::ReadFailed { token });
        }
        if self.handover.is_overdue(now) {
            self.handover.end_transfer();
            effects.push(Effect::TransferEnded(Err(Refusal::TimedOut)));
        }
    }

    fn tick_leading(&mut self, now: Time, effects: &mut Effects) {
        let patience = self.spine.election.leader_silence_max_us();
        let configuration = self.spine.learner.eras().current();
        if !self.spine.peers.quorum_heard(configuration, self.spine.options.member, now, patience) {
            return self.step_down(now, BallotEnd::QuorumSilent, effects);
        }
        // [value-4] No peer supplies the bytes of an inherited value. A new ballot may get a quorum
        // without the peer that reported it.
        let stuck = self
            .spine
            .waiting_proposals
            .first_since()
            .is_some_and(|at| now.since_us(at) > patience);
        // [cast-5] A casting phase 1 may itself be waiting for a decision that needs those bytes,
        // because one of the nodes in it has lost votes for the slot and replies only once it has
        // learned the decision.
        let promised_soon = self.spine.phase1.as_ref().is_some_and(|phase1| {
            phase1.promise_targets == PromiseTargets::AllMembers
                || phase1.stage != Phase1Stage::AwaitingPromises
        });
        if stuck && !promised_soon {
            self.spine.waiting_proposals.clear();
            self.spine.phase1 = None;
            self.campaign(PromiseTargets::AllMembers, Campaign::MissingBytes, effects);
        }
        // [p1-5] The same applies to decided slots for which a member that promised had dropped its
        // votes. All peers were asked for these slots twice.
        let waits =
            self.spine.phase1.as_ref().map(|phase1| phase1.stage) == Some(Phase1Stage::CatchingUp);
        if waits
            && self.spine.catchup.unanswered_count() as usize
                > 2 * self.spine.peers.connected().count()
        {
            self.spine.catchup.reset_unanswered();
            self.spine.phase1 = None;
            self.campaign(PromiseTargets::AllMembers, Campaign::Untaught, effects);
        }
        if now >= self.timers.next_check_at() {
            self.timers.check_done(now, self.spine.options.heartbeat_ms);
            self.resolve_stray_promise(now, effects);
            if now >= self.timers.next_heartbeat_at() {
                self.send_heartbeat(now, effects);
            }
            self.hand_over_if_unfit(now, effects);
            self.repeat_transfer(effects);
        }
    }

    fn tick_following(&mut self, now: Time, effects: &mut Effects) {
        if now < self.spine.election.next_attempt_at() {
            return;
        }
        if let Some(until) = self.leasing.bound_until(now) {
            // [read-4] This node's own promise would be to a node other than the leader.
            return self.spine.election.defer(until);
        }
        if self.is_recording_takeover(now) {
            return self.spine.election.restart_timeout(now);
        }
        self.end_phase1(BallotEnd::TooFewPromises, effects);
        if let Some(leader) = self.spine.election.leader() {
            let silent_us = self.spine.election.silent_us(now);
            effects.explain(Explanation::LeaderSilent { leader, silent_us });
            self.spine.election.forget_leader(now);
        }
        self.spine.election.attempt(now);
        if !self.may_lead() || !self.spine.learner.is_all_readable() {
            return;
        }
        let (decided_to, lately_us) =
            (self.spine.learner.decided_to(), 2 * self.catchup_retry_us());
        if self.spine.catchup.unanswered_count() < UNANSWERED_REQUESTS_MAX
            && self.spine.catchup.needs_snapshot(now, decided_to, lately_us)
        {
            // [p1-5] The node could not propose before it has installed a snapshot, so other nodes
            // campaign first. As long as the peer that reported the need is connected, it repeats
            // the report.
            return;
        }
        if self.is_quorum_alone() {
            return self.lead_alone(now, effects);
        }
        if self.handover.cannot_write() {
            return;
        }
        if self.handover.should_hand_over() && self.spine.election.attempts() <= UNFIT_TIMEOUTS {
            return;
        }
        let Some(ballot) = self.next_ballot() else {
            return;
        };
        self.spine.election.start_pre_vote(ballot, self.spine.options.member);
        effects.send_all(self.spine.peers.connected(), &Message::PreVote { ballot });
    }

    /// [live-1] Responds to a pre-vote. The response says whether this node would promise the
    /// ballot. The request changes no state.
    pub(in crate::node) fn on_pre_vote(
        &mut self,
        now: Time,
        from: NodeId,
        ballot: Ballot,
        effects: &mut Effects,
    ) {
        if self.spine.pending.has_failed() {
            return;
        }
        self.record_era(from, ballot);
        let promised = self.spine.acceptor.promised();
        let content = self.spine.phase2.is_some() || self.spine.election.leader_is_fresh(now);
        let bound = self.lease_refuses_promise(now, ballot);
        let granted = ballot > promised && !content && !bound;
        effects.send(from, Message::PreVoteReply { ballot, granted, promised });
    }

    pub(in crate::node) fn on_pre_vote_reply(
        &mut self,
        now: Time,
        from: Member,
        ballot: Ballot,
        granted: bool,
        promised: Ballot,
        effects: &mut Effects,
    ) {
        self.record_ballot(from.node, promised);
        let bound = self.leasing.bound_until(now).is_some();
        if !granted || bound || self.spine.phase2.is_some() || self.spine.phase1.is_some() {
            return;
        }
        if self.handover.cannot_write() {
            return self.spine.election.end_pre_vote();
        }
        let configuration = self.spine.learner.eras().current();
        let Some(by) = self.spine.election.record_grant(ballot, from) else {
            return;
        };
        if configuration.is_quorum(Phase::One, member_set_of(configuration, by)) && self.may_lead()
        {
            self.spine.election.end_pre_vote();
            self.campaign(PromiseTargets::AllMembers, Campaign::PreVotes, effects);
        }
    }

    pub(in crate::node) fn on_disconnected(
        &mut self,
        now: Time,
        node: NodeId,
        effects: &mut Effects,
    ) {
        self.spine.peers.disconnect(node);
        self.acks.disconnect(node);
        if self.spine.election.leader() == Some(node) {
            effects.explain(Explanation::LeaderUnreachable { leader: node });
            self.spine.election.record_lost_connection(now);
        }
    }

    /// Returns the time of the next `Input::Tick`.
    pub(in crate::node) fn wake_at(&self) -> Time {
        let patience = self.spine.election.leader_silence_max_us();
        let turn = match &self.spine.phase2 {
            Some(_) => self.timers.next_check_at(),
            None => self.spine.election.next_attempt_at(),
        };
        let phase1a = self.is_asking().then_some(self.timers.phase1a_resend_at());
        let behind = self.is_behind();
        let catchup = self.spine.catchup.wake_at(self.catchup_retry_us()).filter(|_| behind);
        let leads = self.spine.phase2.is_some();
        let transfer = self.handover.wake_at(leads);
        let open = self.spine.phase2.as_ref().map(|leading| !leading.tally.is_empty());
        let ring = self.ring.wake_at(open);
        let asked = self.reading.wake_at(patience);
        let acks = self.acks.wake_at(self.catchup_retry_us());
        let others = [phase1a, catchup, transfer, ring, asked, acks];
        others.into_iter().flatten().fold(turn, Time::min)
    }
}
