//! Phase 1 of this node's own ballots, from the choice of a ballot to the first proposal in it.

use crate::{
    ballot::Ballot,
    effect::{Alarm, Effects},
    explanation::{BallotEnd, Campaign, Explanation},
    leader::{InheritedProposal, Phase1, Phase1Stage, Phase2, PromiseTargets},
    learner::Tally,
    message::{Message, Phase1b},
    node::Node,
    node_id::Member,
    record::Record,
    time::Time,
    value::Value,
};

impl Node {
    /// Returns the next ballot of this node; `None` if it may not start one ([ballot-1],
    /// [ballot-3]).
    pub(super) fn next_ballot(&self) -> Option<Ballot> {
        let era = self.spine.learner.eras().era();
        let seen = self.spine.election.highest_round_seen(era);
        self.spine.rounds.next_ballot(era, self.spine.acceptor.promised(), seen)
    }

    /// Starts phase 1. In every group, the round of the ballot is recorded first ([ballot-2],
    /// [class-3]).
    pub(in crate::node) fn campaign(
        &mut self,
        asked: PromiseTargets,
        why: Campaign,
        effects: &mut Effects,
    ) {
        let Some(ballot) = self.next_ballot() else {
            return;
        };
        // [ballot-2] A node that finds the round in its log must find its era there too, or it
        // would start from round 1 when it enters that era again. If this step's own votes began
        // the era, the campaign waits for the next step.
        let decided_to = self.spine.learner.decided_to();
        if self.spine.pending.restatable_to(decided_to) < decided_to {
            return;
        }
        if self.devices.assigns_slots() {
            // [offload-12] The slots that the device assigned must be known first, or the device
            // must have stopped.
            return self.take_back(effects);
        }
        if asked == PromiseTargets::AllMembers && !self.is_fenced_for(ballot, effects) {
            return self.devices.wait_to_campaign(asked, why);
        }
        effects.slow.campaigns += 1;
        effects.explain(Explanation::Campaigns { ballot, why });
        self.spine.rounds.record_used(ballot);
        let record = self.spine.pending.append(Record::Round { ballot }, effects);
        let from = self.spine.learner.decided_to();
        if asked == PromiseTargets::AllMembers {
            self.promise(ballot, effects);
            self.park_promise(self.spine.options.member.node, ballot, from);
        }
        self.spine.phase1 = Some(Phase1::new(ballot, from, asked, record));
    }

    pub(in crate::node) fn on_phase1b(
        &mut self,
        _now: Time,
        from: Member,
        promise: Phase1b,
        effects: &mut Effects,
    ) {
        // This node's own acceptor promises directly, and never by message.
        if from.node != self.spine.options.member.node && promise.is_well_formed() {
            self.add_promise(from, promise, effects);
        }
    }

    pub(super) fn add_promise(&mut self, from: Member, promise: Phase1b, effects: &mut Effects) {
        let Some(phase1) = self.spine.phase1.as_mut().filter(|p| p.ballot == promise.ballot) else {
            return;
        };
        if let Err(slot) = phase1.promise(from, promise) {
            let ballot = phase1.ballot;
            self.end_phase1(BallotEnd::Alarm, effects);
            self.alarm(Alarm::ConflictingProposals { ballot, slot }, effects);
        }
    }

    /// Advances phase 1 as far as possible. Returns whether a statement may have been parked.
    pub(in crate::node) fn advance_phase1(&mut self, now: Time, effects: &mut Effects) -> bool {
        let Some(phase1) = self.spine.phase1.as_mut() else {
            return false;
        };
        match phase1.stage {
            Phase1Stage::Recording(record) => {
                if !self.spine.pending.is_durable(record) {
                    return false;
                }
                phase1.stage = Phase1Stage::AwaitingPromises;
                self.send_phase1a(now, effects);
                true
            }
            Phase1Stage::AwaitingPromises if phase1.all_answered() => {
                let own = self.spine.options.member;
                let judge = self.spine.learner.eras().configuration_of(phase1.ballot.era);
                if judge.is_some_and(|judge| phase1.has_quorum_with(own, judge)) {
                    return self.cast_own_promise(effects);
                }
                // [cast-5] A node that replied is no longer a member, or has a new incarnation.
                self.spine.phase1 = None;
                self.campaign(PromiseTargets::AllMembers, Campaign::AskedAgain, effects);
                true
            }
            Phase1Stage::AwaitingPromises | Phase1Stage::Casting => {
                let own_is_in = phase1.has_promised(self.spine.options.member);
                if phase1.promise_targets != PromiseTargets::AllMembers && !own_is_in {
                    return false;
                }
                let Some(judge) = self.spine.learner.eras().configuration_of(phase1.ballot.era)
                else {
                    self.end_phase1(BallotEnd::NoMember, effects);
                    return false;
                };
                if !phase1.has_quorum(judge) {
                    return false;
                }
                phase1.stage = Phase1Stage::CatchingUp;
                let (floor, at) = (phase1.floor, phase1.floor_source);
                self.spine.catchup.record_source(floor, at);
                // [p1-5] A node that needs a snapshot installs it first, and campaigns afterwards.
                let log_start = phase1.unreachable_log_start(self.spine.learner.decided_to());
                if let Some(log_start) = log_start {
                    self.need_snapshot(now, at, log_start, effects);
                }
                true
            }
            Phase1Stage::CatchingUp => {
                if self.spine.learner.decided_to() < phase1.floor {
                    return false;
                }
                self.complete_phase1(now, effects);
                true
            }
        }
    }

    /// Returns whether phase 1 has sent its 1A messages and still waits for promises.
    pub(super) fn is_asking(&self) -> bool {
        let stage = self.spine.phase1.as_ref().map(|phase1| phase1.stage);
        stage == Some(Phase1Stage::AwaitingPromises)
    }

    /// Sends 1A to all connected nodes whose promises are missing.
    pub(super) fn send_phase1a(&mut self, now: Time, effects: &mut Effects) {
        let Some(phase1) =
            self.spine.phase1.as_ref().filter(|p| p.stage == Phase1Stage::AwaitingPromises)
        else {
            return;
        };
        self.timers.phase1a_sent(now, self.spine.options.heartbeat_ms);
        let (ballot, from) = (phase1.ballot, phase1.from);
        let missing = self.spine.peers.iter().filter(|peer| {
            let wanted = peer.connected && phase1.sends_1a_to(peer.member.node);
            wanted && !phase1.has_promised(peer.member)
        });
        let missing = missing.map(|peer| peer.member.node);
        effects.send_all(missing, &Message::Phase1a { ballot, from });
    }

    /// [cast-3] Makes this node's own promise, which is the last one, in a separate record. After
    /// that record, this node casts no vote in the old ballot.
    fn cast_own_promise(&mut self, effects: &mut Effects) -> bool {
        let Some(phase1) = &self.spine.phase1 else {
            return false;
        };
        let (ballot, from) = (phase1.ballot, phase1.from);
        if !self.is_fenced_for(ballot, effects) {
            // [offload-8] The casting vote waits for the fence.
            return false;
        }
        let Some(phase1) = self.spine.phase1.as_mut() else {
            return false;
        };
        phase1.stage = Phase1Stage::Casting;
        if self.spine.acceptor.may_promise(ballot) != Ok(true) {
            let promised = self.spine.acceptor.promised();
            self.end_phase1(BallotEnd::HigherBallot { ballot: promised }, effects);
            return false;
        }
        self.promise(ballot, effects);
        self.park_promise(self.spine.options.member.node, ballot, from);
        true
    }

    /// Handles a refusal of this node's ballot. Phase 1 continues as long as the other members may
    /// form a quorum. Otherwise a node without weight, or one that reconnects with an old promise,
    /// could stop it.
    pub(in crate::node) fn on_preempted(
        &mut self,
        now: Time,
        from: Member,
        ballot: Ballot,
        promised: Ballot,
        effects: &mut Effects,
    ) {
        self.record_ballot(from.node, promised);
        let own = [
            self.spine.phase1.as_ref().map(|phase1| phase1.ballot),
            self.spine.phase2.as_ref().map(Phase2::ballot),
        ];
        // No round of this era can exceed a promise in a later era.
        let reachable = self.next_ballot().is_some_and(|next| next > promised);
        if let Some(phase1) = self.spine.phase1.as_mut().filter(|p| p.ballot == ballot)
            && promised > ballot
        {
            phase1.record_refusal(from);
            let leads = self.spine.phase2.is_some();
            let over = self.spine.learner.eras().configuration_of(ballot.era).is_none_or(|judge| {
                // A leader has no timeout that would trigger a retry. A higher round includes this
                // member.
                let counts = judge.position(from).is_some();
                (leads && counts && reachable) || phase1.is_hopeless(judge)
            });
            if over {
                self.end_phase1(BallotEnd::HigherBallot { ballot: promised }, effects);
                if !leads {
                    self.spine.election.restart_timeout(now);
                }
            }
        }
        if own.contains(&Some(ballot))
            && let Some(peer) = self.spine.peers.find(from.node)
        {
            peer.promised = peer.promised.max(promised);
        }
    }

    /// Completes phase 1. Proposes the values that may have been chosen, before any new value
    /// ([p1-6]).
    fn complete_phase1(&mut self, now: Time, effects: &mut Effects) {
        let Some(phase1) = self.spine.phase1.take() else {
            return;
        };
        let ballot = phase1.ballot;
        let decided_to = self.spine.learner.decided_to();
        if self.spine.acceptor.promised() > ballot
            || !self.may_lead()
            || !self.spine.learner.eras().counts_ballot(ballot)
        {
            let why = match self.spine.acceptor.promised() {
                higher if higher > ballot => BallotEnd::HigherBallot { ballot: higher },
                _ => BallotEnd::NoMember,
            };
            effects.explain(Explanation::NotElected { ballot, why });
            return self.step_down(now, why, effects);
        }
        // [era-6] A ballot proposes only after the slot that began its era. The ballot was started
        // after that slot was decided on this node, and proposes from the first undecided slot
        // onwards.
        assert!(ballot.era <= self.spine.learner.eras().era(), "ballot {ballot} of an era to come");
        let before = self.spine.phase2.take().map(|leading| leading.tally);
        let again = before.is_some();
        let inherited = phase1.inheritance(decided_to, before.as_ref());
        let tally = Tally::new(ballot, decided_to, self.spine.options.inflight_max);
        self.spine.phase2 = Some(Phase2 {
            tally,
            // A tally without undecided proposals needs no late votes, and no later decision would
            // drop it.
            previous_tally: before.filter(|before| !before.is_empty()),
            first_slot: decided_to,
            undecided_change: None,
        });
        self.spine.waiting_proposals.clear();
        self.spine.peers.reset_for_ballot(now, decided_to);
        self.begin_engaging(now, again);
        self.ring.begin_ballot(now, decided_to);
        self.devices.restart(now, decided_to);
        self.spine.election.record_own_leadership(self.spine.options.member.node, ballot);
        effects.explain(Explanation::Leads { ballot });
        for InheritedProposal { range, value, reporter } in inherited {
            let own_vote = self
                .spine
                .acceptor
                .vote(range.from)
                .is_some_and(|vote| vote.value == value && vote.range.to >= range.to);
            let held = own_vote || !value.has_bytes();
            // [value-4] No member that promised has voted for the value, and its bytes were never
            // on this node. So the slot is free, and waiting for the bytes would never end.
            let (value, held) = match reporter {
                None if !held => (Value::NoOp, true),
                _ => (value, held),
            };
            let source = reporter.unwrap_or(self.spine.options.member.node);
            // [value-4], [cast-4] The bytes are where the votes are, so they need not be sent
            // again.
            self.propose(now, value, range.len(), held, source, effects);
        }
        if let Some(leading) = &self.spine.phase2 {
            self.reading.restart(leading.tally.next());
        }
        self.timers.check_done(now, self.spine.options.heartbeat_ms);
        self.send_heartbeat(now, effects);
    }

    /// Ends this node's phase 1 without success, if it is in progress.
    pub(super) fn end_phase1(&mut self, why: BallotEnd, effects: &mut Effects) {
        if let Some(Phase1 { ballot, .. }) = self.spine.phase1.take() {
            effects.explain(Explanation::NotElected { ballot, why });
        }
    }
}
