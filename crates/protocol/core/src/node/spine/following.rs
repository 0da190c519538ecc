//! Learning from a leader, and from any node that has missing slots.

use alloc::vec::Vec;

use super::Node;
use crate::{
    ballot::Ballot,
    effect::{Effect, Effects},
    explanation::End,
    fitness::Fitness,
    lease::Lease,
    message::{Heartbeat, HeartbeatReply, Held, Message},
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
    /// [ballot-3] If its era is unknown here, the slot that began it is decided on another node and
    /// missing on this one.
    pub(super) fn saw(&mut self, from: NodeId, ballot: Ballot) {
        if ballot.era <= self.learner.eras().era() {
            self.election.saw(ballot);
        }
        self.saw_era(from, ballot);
    }

    /// Records only the era of a ballot: a ballot of a pre-vote does not use up its round.
    pub(super) fn saw_era(&mut self, from: NodeId, ballot: Ballot) {
        if ballot.era > self.learner.eras().era() {
            self.catchup.note_era(ballot.era, self.learner.decided_to(), from);
        }
    }

    /// Yields to another node's promised ballot, which ends this node's lower ballots.
    pub(super) fn yield_to(&mut self, now: Time, ballot: Ballot, effects: &mut Effects) {
        let lower = |own: Option<Ballot>| own.is_some_and(|own| own < ballot);
        let leading = self.leading.as_ref().map(|leading| leading.ballot());
        let trying = self.phase1.as_ref().map(|phase1| phase1.ballot);
        if lower(leading) || lower(trying) {
            self.step_down(now, End::HigherBallot { ballot }, effects);
        }
        self.election.end_pre_vote();
        self.election.rearm(now);
    }

    /// Records that the leader of `ballot` is alive.
    pub(super) fn follow_leader(&mut self, now: Time, ballot: Ballot, effects: &mut Effects) {
        if ballot.node == self.options.member.node {
            return;
        }
        let lower = |own: Option<Ballot>| own.is_some_and(|own| own < ballot);
        let leading = self.leading.as_ref().map(|leading| leading.ballot());
        let trying = self.phase1.as_ref().map(|phase1| phase1.ballot);
        if lower(leading) || lower(trying) {
            self.step_down(now, End::HigherBallot { ballot }, effects);
        }
        if self.leading.is_some() || !self.election.heard(now, ballot) {
            return;
        }
        // The leader is new, so the previous one will not answer outstanding requests.
        for token in self.asked.fail() {
            effects.push(Effect::ReadFailed { token });
        }
        if self.transfer.take().is_some() {
            effects.push(Effect::TransferEnded(Ok(ballot.node)));
        }
    }

    /// [decide-2] Decides the values that this node voted for in `ballot`, and requests the rest.
    pub(super) fn follow(&mut self, ballot: Ballot, decided_to: Slot, effects: &mut Effects) {
        if decided_to <= self.learner.decided_to() || self.leading.is_some() {
            return;
        }
        let mut each = |range, value| effects.push(Effect::Decided { range, value });
        let all = self.learner.follow(ballot, decided_to, &self.acceptor, &mut each);
        self.acceptor.advance_floor(self.learner.decided_to());
        if !all {
            self.catchup.note(decided_to, ballot.node);
        }
    }

    pub(super) fn on_decided(
        &mut self,
        now: Time,
        ballot: Ballot,
        decided_to: Slot,
        effects: &mut Effects,
    ) {
        if ballot >= self.acceptor.promised() && !self.pending.failed() {
            self.follow_leader(now, ballot, effects);
        }
        self.follow(ballot, decided_to, effects);
    }

    pub(super) fn on_heartbeat(
        &mut self,
        now: Time,
        from: NodeId,
        beat: Heartbeat,
        effects: &mut Effects,
    ) {
        self.saw(from, beat.ballot);
        self.follow(beat.ballot, beat.decided_to, effects);
        // [disk-9] A node that cannot vote does not keep a leader in office.
        if self.pending.failed() {
            return;
        }
        let mut lease = Lease::default();
        if beat.ballot >= self.acceptor.promised() {
            self.pauses.on_leader(beat.late_us);
            self.bear_pauses(now);
            self.follow_leader(now, beat.ballot, effects);
            lease = self.lease_asked(now, from, &beat);
            self.note_role(&beat);
            // An auxiliary does not trim by policy, but the reported values are valid for it too.
            let (all, quorum) = (beat.held_by_all, beat.held_by_quorum);
            self.note_held(Held { all, quorum });
        }
        if self.voted.run().voted_to(beat.ballot) > beat.decided_to {
            // The leader does not know of this node's latest votes: their report may be lost, and
            // after the last proposal no later report repeats it.
            self.report_run(effects);
        }
        let reply = HeartbeatReply {
            ballot: beat.ballot,
            promised: self.acceptor.promised(),
            // [aux-1] An auxiliary reports nothing below the start of its log, but must report what
            // is above.
            decided_to: self.learner.knows_to(),
            held_to: self.held_to(),
            kept_to: self.keeps_to(),
            voted_to: self.voted.run().voted_to(beat.ballot),
            sent_to: beat.sent_to,
            read_round: beat.read_round,
            lease,
            unfit: self.fitness != Fitness::Fit,
            clock_ms: 0,
            group_ms: 0,
            late_us: self.pauses.worst_us(now),
        };
        effects.send(from, Message::HeartbeatReply(reply));
    }

    /// [catch-1] Learns a decided value, with its bytes.
    pub(super) fn on_learn(
        &mut self,
        now: Time,
        range: SlotRange,
        value: Value,
        held: bool,
        effects: &mut Effects,
    ) {
        let hollow = value.has_bytes() && !held;
        let odd = range.len() > 1 && !value.may_span();
        let news = range.contains(self.learner.decided_to());
        if self.pending.failed() || hollow || odd || !news {
            return;
        }
        let mut range = range;
        if let Some(leading) = &self.leading
            && self.offload.is_out()
            && range.from >= leading.tally.next()
        {
            // [offload-10] The device will soon report the slots it assigned.
            return;
        }
        if let Some(leading) = &self.leading {
            // Followers take a leader's report of decisions as true for their votes in its ballot
            // ([decide-2]). So a decision learned elsewhere must equal the leader's own proposal.
            let own = leading.tally.proposals_from(self.learner.decided_to()).next().copied();
            let slot = range.from;
            match own.filter(|own| own.value == value) {
                Some(own) => range.to = range.to.min(own.range.to),
                None => self.step_down(now, End::OtherDecision { slot }, effects),
            }
        }
        let mut each = |range, value| effects.push(Effect::Decided { range, value });
        let Some(range) = self.learner.learn(range, value, &mut each) else {
            return;
        };
        self.catchup.learned(range.len());
        let record = self.append_about(range, Record::Decided { range, value }, effects);
        // If this closed a gap, the slots that the log holds after it were already on stable
        // storage.
        self.pending.park_decided(record, self.learner.decided_to());
        self.drop_decided();
    }

    /// [disk-8] Records that more slots decided before this process started cannot be read back.
    pub(super) fn on_lost(&mut self, range: SlotRange) {
        self.learner.lose(range, self.acceptor.floor());
    }

    pub(super) fn on_catchup_request(
        &mut self,
        from: NodeId,
        wanted: SlotRange,
        effects: &mut Effects,
    ) {
        // [snap-3] Below its start the log does not count, whatever remains of it. Below the floor
        // everything is decided, and in the log unless lost.
        let log_start = self.learner.log_start();
        if wanted.from < log_start && self.is_hollow() {
            // [aux-1] This node has no snapshot of the slots below either, so it does not answer.
            return;
        }
        if wanted.from < log_start {
            effects.send(from, Message::BelowStart { log_start });
            return;
        }
        let here = SlotRange::new(log_start, self.acceptor.floor());
        let range = wanted.intersect(here);
        if !range.is_empty() {
            effects.push(Effect::Serve { to: from, range });
        }
    }

    /// Requests decided values that this node lacks.
    pub(super) fn ask_for_missing(&mut self, now: Time, effects: &mut Effects) {
        let decided_to = self.learner.decided_to();
        let promised = self.acceptor.promised();
        if promised.era > self.learner.eras().era() {
            // [ballot-3], [ballot-5] This node voted in an era that others had entered before it.
            // Its own ballots are below the promise, so it cannot announce that era to others. What
            // began the era is decided on another node.
            self.catchup.note(decided_to.next(), promised.node);
        }
        if self.needs_state() {
            let leader = self.election.leader().unwrap_or(self.options.member.node);
            return self.need_snapshot(now, leader, self.learner.log_start(), effects);
        }
        if self.pending.failed() || !self.is_behind() {
            return;
        }
        let retry_us = self.catchup_retry_us();
        let peers: Vec<NodeId> = self.peers.connected().collect();
        let gap_to = self.learner.lost().first_to().unwrap_or(Slot(u64::MAX));
        let gap_to = Some(gap_to.min(self.learns_to()));
        let question = self.catchup.next(now, decided_to, gap_to, retry_us, &peers);
        if let Some((to, range)) = question {
            effects.slow.catchups += 1;
            effects.send(to, Message::CatchupRequest { range });
        }
    }

    pub(super) fn catchup_retry_us(&self) -> u64 {
        self.options.heartbeat_ms * 1000 * RETRY_HEARTBEATS
    }
}
