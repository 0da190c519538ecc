//! Learning decisions from a leader, or from any node that has the missing slots.

use alloc::vec::Vec;

use crate::{
    ballot::Ballot,
    effect::{Effect, Effects},
    explanation::BallotEnd,
    lease::Lease,
    message::{Heartbeat, HeartbeatReply, HeldSlots, Message},
    node::Node,
    node_id::NodeId,
    record::Record,
    slot::{Slot, SlotRange},
    time::Time,
    value::Value,
};

/// Number of heartbeat intervals without progress after which a catch-up request is repeated.
const RETRY_HEARTBEATS: u64 = 4;

impl Node {
    /// Records that `from` used this ballot, so that this node's next ballot is above it.
    /// [ballot-3] If this node does not know the era of the ballot, the slot that began it is
    /// decided on another node and missing on this one.
    pub(in crate::node) fn record_ballot(&mut self, from: NodeId, ballot: Ballot) {
        if ballot.era <= self.spine.learner.eras().era() {
            self.spine.election.record_ballot(ballot);
        }
        self.record_era(from, ballot);
    }

    /// Records only the era of a ballot, because the ballot of a pre-vote does not use up its
    /// round.
    pub(super) fn record_era(&mut self, from: NodeId, ballot: Ballot) {
        if ballot.era > self.spine.learner.eras().era() {
            self.spine.catchup.note_era(ballot.era, self.spine.learner.decided_to(), from);
        }
    }

    /// Yields to a promised ballot of another node, which ends this node's lower ballots.
    pub(super) fn yield_to(&mut self, now: Time, ballot: Ballot, effects: &mut Effects) {
        let lower = |own: Option<Ballot>| own.is_some_and(|own| own < ballot);
        let leading = self.spine.phase2.as_ref().map(|leading| leading.ballot());
        let trying = self.spine.phase1.as_ref().map(|phase1| phase1.ballot);
        if lower(leading) || lower(trying) {
            self.step_down(now, BallotEnd::HigherBallot { ballot }, effects);
        }
        self.spine.election.end_pre_vote();
        self.spine.election.restart_timeout(now);
    }

    /// Records that the leader of `ballot` is alive.
    pub(in crate::node) fn follow_leader(
        &mut self,
        now: Time,
        ballot: Ballot,
        effects: &mut Effects,
    ) {
        if ballot.node == self.spine.options.member.node {
            return;
        }
        let lower = |own: Option<Ballot>| own.is_some_and(|own| own < ballot);
        let leading = self.spine.phase2.as_ref().map(|leading| leading.ballot());
        let trying = self.spine.phase1.as_ref().map(|phase1| phase1.ballot);
        if lower(leading) || lower(trying) {
            self.step_down(now, BallotEnd::HigherBallot { ballot }, effects);
        }
        if self.spine.phase2.is_some() || !self.spine.election.record_leader_message(now, ballot) {
            return;
        }
        // The leader is new, so the previous one will not answer outstanding requests.
        for token in self.reading.fail_requests() {
            effects.push(Effect::ReadFailed { token });
        }
        if self.handover.end_transfer() {
            effects.push(Effect::TransferEnded(Ok(ballot.node)));
        }
    }

    /// [decide-2] Decides the values that this node voted for in `ballot`, and requests the rest.
    pub(in crate::node) fn decide_reported(
        &mut self,
        ballot: Ballot,
        decided_to: Slot,
        effects: &mut Effects,
    ) {
        if decided_to <= self.spine.learner.decided_to() || self.spine.phase2.is_some() {
            return;
        }
        let mut each = |range, value| effects.push(Effect::Decided { range, value });
        let all =
            self.spine.learner.decide_reported(ballot, decided_to, &self.spine.acceptor, &mut each);
        self.spine.acceptor.advance_floor(self.spine.learner.decided_to());
        if !all {
            self.spine.catchup.record_source(decided_to, ballot.node);
        }
    }

    pub(in crate::node) fn on_decided(
        &mut self,
        now: Time,
        ballot: Ballot,
        decided_to: Slot,
        effects: &mut Effects,
    ) {
        if ballot >= self.spine.acceptor.promised() && !self.spine.pending.has_failed() {
            self.follow_leader(now, ballot, effects);
        }
        self.decide_reported(ballot, decided_to, effects);
    }

    pub(in crate::node) fn on_heartbeat(
        &mut self,
        now: Time,
        from: NodeId,
        beat: Heartbeat,
        effects: &mut Effects,
    ) {
        self.record_ballot(from, beat.ballot);
        self.decide_reported(beat.ballot, beat.decided_to, effects);
        // [disk-9] A node that cannot vote does not confirm a leader.
        if self.spine.pending.has_failed() {
            return;
        }
        let mut lease = Lease::default();
        if beat.ballot >= self.spine.acceptor.promised() {
            self.pauses.record_leader_lateness(beat.late_us);
            self.set_tolerated_silence(now);
            self.follow_leader(now, beat.ballot, effects);
            self.note_role(&beat);
            // An auxiliary does not trim by policy, but the reported values are true for it too.
            let (all, quorum) = (beat.held_by_all, beat.held_by_quorum);
            self.note_held(HeldSlots { all, quorum });
        }
        // [read-8] A leader may give a lease back although another ballot has been promised.
        if beat.ballot >= self.spine.acceptor.promised() || beat.lease.duration_us == 0 {
            lease = self.on_lease_request(now, from, &beat);
        }
        if self.spine.own_votes.newest_run().voted_to(beat.ballot) > beat.decided_to {
            // The leader does not know this node's latest votes. Their report may be lost, and
            // after the last proposal no later report repeats it.
            self.report_run(effects);
        }
        let reply = HeartbeatReply {
            ballot: beat.ballot,
            promised: self.spine.acceptor.promised(),
            // [aux-1] An auxiliary reports nothing below the start of its log, but must report
            // everything above it.
            decided_to: self.spine.learner.readable_to(),
            held_to: self.held_to(),
            kept_to: self.kept_to(),
            voted_to: self.spine.own_votes.newest_run().voted_to(beat.ballot),
            sent_to: beat.sent_to,
            read_round: beat.read_round,
            lease,
            unfit: self.handover.is_unfit(),
            clock_ms: 0,
            group_ms: 0,
            late_us: self.pauses.worst_lateness_us(now),
            disk_full: false,
        };
        effects.send(from, Message::HeartbeatReply(reply));
    }

    /// [catch-1] Learns a decided value, with its bytes.
    pub(in crate::node) fn on_learn(
        &mut self,
        now: Time,
        range: SlotRange,
        value: Value,
        held: bool,
        effects: &mut Effects,
    ) {
        let hollow = value.has_bytes() && !held;
        let odd = range.len() > 1 && !value.may_span();
        let news = range.contains(self.spine.learner.decided_to());
        if self.spine.pending.has_failed() || hollow || odd || !news {
            return;
        }
        let mut range = range;
        if let Some(leading) = &self.spine.phase2
            && self.devices.assigns_slots()
            && range.from >= leading.tally.next()
        {
            // [offload-10] The device will soon report the slots that it assigned.
            return;
        }
        if let Some(leading) = &self.spine.phase2 {
            // Followers rely on a leader's report of decisions for their votes in its ballot
            // ([decide-2]). So a decision that the leader learned elsewhere must equal the leader's
            // own proposal.
            let own = leading.tally.proposals_from(self.spine.learner.decided_to()).next().copied();
            let slot = range.from;
            match own.filter(|own| own.value == value) {
                Some(own) => range.to = range.to.min(own.range.to),
                None => self.step_down(now, BallotEnd::OtherDecision { slot }, effects),
            }
        }
        let mut each = |range, value| effects.push(Effect::Decided { range, value });
        let Some(range) = self.spine.learner.learn(range, value, &mut each) else {
            return;
        };
        self.spine.catchup.record_learned(range.len());
        let record = self.append_about(range, Record::Decided { range, value }, effects);
        // If this closed a gap, the slots that the log holds after it were already on stable
        // storage.
        self.spine.pending.park_decided(record, self.spine.learner.decided_to());
        self.drop_decided();
    }

    /// [disk-8] Records that more slots decided before this process started cannot be read back.
    pub(in crate::node) fn on_lost(&mut self, range: SlotRange) {
        self.spine.learner.mark_lost(range, self.spine.acceptor.floor());
    }

    pub(in crate::node) fn on_catchup_request(
        &mut self,
        from: NodeId,
        wanted: SlotRange,
        effects: &mut Effects,
    ) {
        // [snap-3] Slots below the start of the log do not count, even if the log still holds some
        // of them. Every slot below the floor is decided, and is in the log unless lost.
        let log_start = self.spine.learner.log_start();
        if wanted.from < log_start && self.is_hollow() {
            // [aux-1] This node has no snapshot of the slots below either, so it does not answer.
            return;
        }
        if wanted.from < log_start {
            effects.send(from, Message::BelowStart { log_start });
            return;
        }
        let here = SlotRange::new(log_start, self.spine.acceptor.floor());
        let range = wanted.intersect(here);
        if !range.is_empty() {
            effects.push(Effect::ServeDecided { to: from, range });
        }
    }

    /// Requests decided values that this node lacks.
    pub(in crate::node) fn ask_for_missing(&mut self, now: Time, effects: &mut Effects) {
        let decided_to = self.spine.learner.decided_to();
        let promised = self.spine.acceptor.promised();
        if promised.era > self.spine.learner.eras().era() {
            // [ballot-3], [ballot-5] This node voted in an era that others had entered before it.
            // Its own ballots are below the promise, so it cannot announce that era to others. The
            // reconfiguration that began the era is decided on another node.
            self.spine.catchup.record_source(decided_to.next(), promised.node);
        }
        if self.needs_snapshot() {
            let leader = self.spine.election.leader().unwrap_or(self.spine.options.member.node);
            return self.need_snapshot(now, leader, self.spine.learner.log_start(), effects);
        }
        if self.spine.pending.has_failed() || !self.is_behind() {
            return;
        }
        let retry_us = self.catchup_retry_us();
        let peers: Vec<NodeId> = self.spine.peers.connected().collect();
        let gap_to = self.spine.learner.lost_slots().first_to().unwrap_or(Slot(u64::MAX));
        let gap_to = Some(gap_to.min(self.learn_target()));
        let question = self.spine.catchup.next_request(now, decided_to, gap_to, retry_us, &peers);
        if let Some((to, range)) = question {
            effects.slow.catchups += 1;
            effects.send(to, Message::CatchupRequest { range });
        }
    }

    pub(in crate::node) fn catchup_retry_us(&self) -> u64 {
        self.spine.options.heartbeat_ms * 1000 * RETRY_HEARTBEATS
    }
}
