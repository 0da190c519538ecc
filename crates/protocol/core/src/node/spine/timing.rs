//! Actions triggered by time alone: heartbeats, timeouts, elections ([live-1]–[live-4]).

use super::Node;
use crate::{
    ballot::Ballot,
    effect::{Effect, Effects, Refusal},
    explanation::{Campaign, End, Explanation},
    fitness::Fitness,
    leader::{Asked, Stage, set_of},
    message::Message,
    node_id::{Member, NodeId},
    quorum::Phase,
    slot::Slot,
    time::Time,
};

/// Number of unanswered requests up to which a node that needs a snapshot leaves elections to
/// others. After that many, no leader could send it a snapshot, or no node has one, and votes may
/// show what the log does not.
const QUESTIONS_IN_VAIN: u32 = 32;

/// [live-6] Number of timeouts that a node with low fitness leaves to other nodes. The second
/// timeout is twice as long, so a fit node has campaigned by then.
const LEFT_TO_OTHERS: u32 = 1;

impl Node {
    pub(super) fn on_tick(&mut self, now: Time, effects: &mut Effects) {
        self.told.woken();
        if self.timers.start() {
            self.granter.start(now, self.options.silent_us);
            self.election.rearm(now);
            self.timers.wait_alone(now, self.options.alone_us);
            if self.is_quorum_alone() && self.granter.bound_until(now).is_none() {
                self.lead_alone(now, effects);
            }
            return;
        }
        self.end_overdue(now, effects);
        if self.leading.is_some() {
            self.tick_leading(now, effects);
        } else {
            self.tick_following(now, effects);
        }
        if self.is_asking() && now >= self.timers.phase1a() {
            self.send_phase1a(now, effects);
        }
    }

    /// [live-5] Excuses other nodes for messages that this node did not read while it was paused.
    pub(super) fn on_late(&mut self, now: Time, us: u64) {
        self.pauses.note(now, us);
        self.election.excuse(now, us);
        self.peers.excuse(now, us);
        self.bear_pauses(now);
    }

    /// [live-5] Tolerates silence for as long as nodes run late: a leader considers all peers, a
    /// follower its leader.
    pub(super) fn bear_pauses(&mut self, now: Time) {
        let others_us = match &self.leading {
            Some(_) => self.peers.late_us(),
            None => self.pauses.leader_us(),
        };
        let timeout_us = self.election.timeout_us();
        let us = self.pauses.patience_us(now, others_us, timeout_us);
        self.election.bear(us);
    }

    /// Returns whether this node is a phase-1 quorum by itself, as far as it knows.
    fn is_quorum_alone(&self) -> bool {
        let configuration = self.learner.eras().current();
        let own = set_of(configuration, &[self.options.member]);
        self.may_lead() && configuration.is_quorum(Phase::One, own)
    }

    /// [lie-6] Campaigns as a quorum by itself, without asking another node. It first waits for
    /// nodes that may know more to connect, and it does not campaign while one of them does.
    fn lead_alone(&mut self, now: Time, effects: &mut Effects) {
        if let Some(until) = self.timers.waits_alone(now) {
            effects.explain(Explanation::WaitsAlone { us: until.since_us(now) });
            return self.election.defer(until);
        }
        if !self.lacks_decided_votes() {
            self.campaign(Asked::AllMembers, Campaign::Alone, effects);
        }
    }

    /// [lie-6] Returns whether another node knows a decided slot for which this node has no vote. A
    /// member that is a phase-1 quorum by itself voted for everything ever decided, so its log must
    /// have been set back. If it has the votes, it needs no other node.
    fn lacks_decided_votes(&self) -> bool {
        let decided_to = self.learner.decided_to();
        if !self.catchup.is_behind_another(decided_to, self.options.member.node) {
            return false;
        }
        let mut missing = decided_to.0..self.catchup.target().0;
        self.catchup.era() > self.learner.eras().era()
            || missing.any(|slot| self.acceptor.vote(Slot(slot)).is_none())
    }

    /// Ends reads and transfers that have waited too long.
    fn end_overdue(&mut self, now: Time, effects: &mut Effects) {
        let patience = self.election.patience_us();
        while let Some(token) = self.asked.overdue(now, patience) {
            effects.push(Effect::ReadFailed { token });
        }
        if self.transfer.is_some_and(|transfer| now >= transfer.deadline) {
            self.transfer = None;
            effects.push(Effect::TransferEnded(Err(Refusal::TimedOut)));
        }
    }

    fn tick_leading(&mut self, now: Time, effects: &mut Effects) {
        let patience = self.election.patience_us();
        let configuration = self.learner.eras().current();
        if !self.peers.quorum_heard(configuration, self.options.member, now, patience) {
            return self.step_down(now, End::QuorumSilent, effects);
        }
        // [value-4] No peer supplies the bytes of an inherited value. A new ballot may get a quorum
        // without the peer that reported it.
        let stuck = self.waiting.since().is_some_and(|at| now.since_us(at) > patience);
        // [cast-5] A casting phase 1 may itself wait for what those bytes would decide: an asked
        // node has lost votes there, and replies only once it has learned what the slot decided.
        let promised_soon = self.phase1.as_ref().is_some_and(|phase1| {
            phase1.asked == Asked::AllMembers || phase1.stage != Stage::Asking
        });
        if stuck && !promised_soon {
            self.waiting.clear();
            self.phase1 = None;
            self.campaign(Asked::AllMembers, Campaign::MissingBytes, effects);
        }
        // [p1-5] Likewise for slots that a member that promised had dropped as decided: all peers
        // were asked for them twice.
        let waits = self.phase1.as_ref().map(|phase1| phase1.stage) == Some(Stage::CatchingUp);
        if waits && self.catchup.fruitless() as usize > 2 * self.peers.connected().count() {
            self.catchup.start_over();
            self.phase1 = None;
            self.campaign(Asked::AllMembers, Campaign::Untaught, effects);
        }
        if now >= self.timers.look() {
            self.timers.looked(now, self.options.heartbeat_ms);
            self.reabsorb(now, effects);
            if now >= self.timers.heartbeat() {
                self.heartbeat(now, effects);
            }
            self.give_way(now, effects);
            self.repeat_token(effects);
        }
    }

    fn tick_following(&mut self, now: Time, effects: &mut Effects) {
        if now < self.election.deadline() {
            return;
        }
        if let Some(until) = self.granter.bound_until(now) {
            // [read-4] This node's own promise would be one to another node than the leader.
            return self.election.defer(until);
        }
        if self.records_by_token(now) {
            return self.election.rearm(now);
        }
        self.end_phase1(End::TooFewPromises, effects);
        if let Some(leader) = self.election.leader() {
            let silent_us = self.election.silent_us(now);
            effects.explain(Explanation::LeaderSilent { leader, silent_us });
            self.election.forget_leader(now);
        }
        self.election.attempt(now);
        if !self.may_lead() || !self.learner.is_whole() {
            return;
        }
        let (decided_to, lately_us) = (self.learner.decided_to(), 2 * self.catchup_retry_us());
        if self.catchup.fruitless() < QUESTIONS_IN_VAIN
            && self.catchup.needs_snapshot(now, decided_to, lately_us)
        {
            // [p1-5] The node could not propose before it has installed a snapshot, so others go
            // first. While the peer that reported the need is connected, it keeps reporting it.
            return;
        }
        if self.is_quorum_alone() {
            return self.lead_alone(now, effects);
        }
        if self.fitness == Fitness::CannotWrite {
            return;
        }
        if self.fitness.gives_way() && self.election.attempts() <= LEFT_TO_OTHERS {
            return;
        }
        let Some(ballot) = self.next_ballot() else {
            return;
        };
        self.election.start_pre_vote(ballot, self.options.member);
        effects.send_all(self.peers.connected(), &Message::PreVote { ballot });
    }

    /// [live-1] Responds to a pre-vote with whether this node would promise the ballot. The request
    /// changes no state.
    pub(super) fn on_pre_vote(
        &mut self,
        now: Time,
        from: NodeId,
        ballot: Ballot,
        effects: &mut Effects,
    ) {
        if self.pending.failed() {
            return;
        }
        self.saw_era(from, ballot);
        let promised = self.acceptor.promised();
        let content = self.leading.is_some() || self.election.leader_is_fresh(now);
        let bound = self.lease_refuses(now, ballot);
        let granted = ballot > promised && !content && !bound;
        effects.send(from, Message::PreVoteReply { ballot, granted, promised });
    }

    pub(super) fn on_pre_vote_reply(
        &mut self,
        now: Time,
        from: Member,
        ballot: Ballot,
        granted: bool,
        promised: Ballot,
        effects: &mut Effects,
    ) {
        self.saw(from.node, promised);
        let bound = self.granter.bound_until(now).is_some();
        if !granted || bound || self.leading.is_some() || self.phase1.is_some() {
            return;
        }
        if self.fitness == Fitness::CannotWrite {
            return self.election.end_pre_vote();
        }
        let configuration = self.learner.eras().current();
        let Some(by) = self.election.granted(ballot, from) else {
            return;
        };
        if configuration.is_quorum(Phase::One, set_of(configuration, by)) && self.may_lead() {
            self.election.end_pre_vote();
            self.campaign(Asked::AllMembers, Campaign::PreVotes, effects);
        }
    }

    pub(super) fn on_disconnected(&mut self, now: Time, node: NodeId, effects: &mut Effects) {
        self.peers.disconnect(node);
        self.lasting.disconnect(node);
        self.early.disconnect(node);
        if self.election.leader() == Some(node) {
            effects.explain(Explanation::LeaderUnreachable { leader: node });
            self.election.lost(now);
        }
    }

    /// Returns the time of the next `Input::Tick`.
    pub(super) fn wake_at(&self) -> Time {
        let patience = self.election.patience_us();
        let turn = match &self.leading {
            Some(_) => self.timers.look(),
            None => self.election.deadline(),
        };
        let phase1a = self.is_asking().then_some(self.timers.phase1a());
        let behind = self.is_behind();
        let catchup = self.catchup.wake_at(self.catchup_retry_us()).filter(|_| behind);
        let leads = self.leading.is_some();
        let transfer = self.transfer.map(|transfer| transfer.wake_at(leads));
        let open = self.leading.as_ref().map(|leading| !leading.tally.is_empty());
        let ring = open.and_then(|open| self.laying.wake_at(open));
        let relay = self.relay.wake_at();
        let asked = self.asked.wake_at(patience);
        let lasting = self.lasting.wake_at(self.catchup_retry_us());
        let early = self.early.wake_at(self.catchup_retry_us());
        let others = [phase1a, catchup, transfer, ring, relay, asked, lasting, early];
        others.into_iter().flatten().fold(turn, Time::min)
    }
}
