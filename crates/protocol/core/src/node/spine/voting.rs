//! Responses to proposers: promises and votes, released once they are safe.

use crate::{
    acceptor::{ProposalEffect, Refused, Run},
    ballot::Ballot,
    class::Class,
    durable::statement::{Durable, Statement},
    effect::{Alarm, Effect, Effects},
    message::{Message, Phase1b, Phase2a},
    node::Node,
    node_id::NodeId,
    record::{Record, RecordSeq},
    slot::{Slot, SlotRange},
    time::Time,
};

impl Node {
    /// [p1-2] Handles a 1A message from any node, whether or not it is a member ([ballot-4]).
    pub(in crate::node) fn on_phase1a(
        &mut self,
        now: Time,
        from: NodeId,
        ballot: Ballot,
        slot: Slot,
        effects: &mut Effects,
    ) {
        if self.spine.pending.has_failed() || ballot.node != from {
            return;
        }
        self.record_ballot(from, ballot);
        if !self.spine.learner.is_all_readable() && slot < self.spine.acceptor.floor() {
            // [disk-8] The candidate is better off with promises from other members. Not replying
            // is always safe.
            return;
        }
        if self.lease_refuses_promise(now, ballot) {
            // [read-8] The candidate repeats its request, and the lease may be over by then.
            return;
        }
        match self.spine.acceptor.may_promise(ballot) {
            Err(promised) => effects.send(from, Message::Preempted { ballot, promised }),
            Ok(raises) => {
                if raises && !self.is_fenced_for(ballot, effects) {
                    // [offload-8] The reply waits until the device's votes have become this
                    // acceptor's votes.
                    return self.wait_for_fence(from, ballot, slot);
                }
                if raises && !self.may_enter(ballot, slot) {
                    // [ballot-5] The candidate repeats its request. By then this node may have
                    // learned the missing slots from it.
                    return self.defer_promise(from, ballot, slot);
                }
                if raises {
                    self.promise(ballot, effects);
                    if from != self.spine.options.member.node {
                        // Another node leads or campaigns, so do not compete with it at once.
                        self.yield_to(now, ballot, effects);
                    }
                }
                self.park_promise(from, ballot, slot);
            }
        }
    }

    /// Raises the acceptor's promise, and appends the record of the promise.
    pub(in crate::node) fn promise(&mut self, ballot: Ballot, effects: &mut Effects) {
        let record = self.spine.pending.append(Record::Promise { ballot }, effects);
        self.spine.acceptor.promise(ballot, record);
    }

    /// Parks the reply to a 1A message until the promise has reached the group's class.
    pub(super) fn park_promise(&mut self, to: NodeId, ballot: Ballot, from: Slot) {
        let floor = self.spine.acceptor.floor();
        // [aux-1] A candidate that needs slots that this node forgot must get them elsewhere,
        // because this node has no snapshot of them.
        let log_start = if self.is_hollow() && from < self.spine.learner.log_start() {
            floor.next()
        } else {
            self.spine.learner.log_start()
        };
        let promise = Phase1b {
            ballot,
            from,
            floor,
            log_start,
            decided_to: self.spine.learner.decided_to(),
            extents: self.spine.acceptor.votes_from(from, self.spine.pending.persisted_to()),
        };
        self.spine.pending.park_promise(self.spine.acceptor.promised_by(), to, promise);
    }

    /// Handles a proposal: follows its leader, applies its decisions, and votes or queues it.
    pub(in crate::node) fn on_phase2a(
        &mut self,
        now: Time,
        from: NodeId,
        m: Phase2a,
        held: bool,
        effects: &mut Effects,
    ) {
        if self.spine.pending.has_failed() || m.range.is_empty() || m.range.to == Slot(u64::MAX) {
            return;
        }
        if m.range.len() > 1 && !m.value.may_span() {
            return;
        }
        self.record_ballot(from, m.ballot);
        let promised = self.spine.acceptor.promised();
        if m.ballot < promised {
            effects.send(from, Message::Preempted { ballot: m.ballot, promised });
            return;
        }
        // Only bytes of slots within the window are retained. The decisions below may bring a later
        // slot into the window, but its bytes may be released at any time.
        let stays = held && self.is_in_window(&m);
        self.follow_leader(now, m.ballot, effects);
        self.auxiliary.record_announced(m.decided_to);
        self.decide_reported(m.ballot, m.decided_to, effects);
        if self.spine.waiting_proposals.ballot().is_some_and(|ballot| ballot != m.ballot) {
            self.spine.waiting_proposals.clear();
        }
        if !self.spine.waiting_proposals.is_empty() {
            return self.queue_proposal(now, from, m, stays, effects);
        }
        self.vote(now, from, m, (held, stays), effects);
    }

    /// [p2-1] Votes, if promise, order, capacity and bytes allow it. `held` means that the bytes
    /// are present now, and `stays` that they are retained for a later vote.
    pub(in crate::node) fn vote(
        &mut self,
        now: Time,
        from: NodeId,
        m: Phase2a,
        (held, stays): (bool, bool),
        effects: &mut Effects,
    ) {
        if self.lease_refuses_vote(now, m.ballot) {
            // [read-4] The leader resends proposals that got no vote.
            return;
        }
        if !self.is_fenced_for(m.ballot, effects) {
            // [offload-8] A vote is also a promise, so it must wait until the device is fenced.
            return;
        }
        let (wanted, mut run) = match self
            .spine
            .own_votes
            .newest_run()
            .effect_of(&m, self.spine.learner.decided_to())
        {
            ProposalEffect::Vote(range, run) => (range, run),
            ProposalEffect::Repeat => return self.report_run(effects),
            ProposalEffect::Gap => {
                // [gap-1] The proposal is queued, not voted for. A leader's own proposals that
                // do not fit are in its tally.
                effects.slow.proposal_gaps += 1;
                if m.ballot.node != self.spine.options.member.node && self.is_in_window(&m) {
                    self.queue_proposal(now, from, m, stays, effects);
                }
                return;
            }
            ProposalEffect::Conflict(slot) => {
                return self.alarm(Alarm::ConflictingProposals { ballot: m.ballot, slot }, effects);
            }
        };
        let announced = self.announced_to();
        let range = match self.spine.acceptor.may_vote(m.ballot, wanted, &m.value, announced) {
            Ok(range) => range,
            Err(Refused::Decided) => return,
            Err(Refused::Busy) => {
                effects.slow.busy_refusals += 1;
                return;
            }
            Err(Refused::Preempted(promised)) => {
                return effects.send(from, Message::Preempted { ballot: m.ballot, promised });
            }
            Err(Refused::Conflict(slot)) => {
                return self.alarm(Alarm::ConflictingProposals { ballot: m.ballot, slot }, effects);
            }
        };
        if m.value.has_bytes() && !held {
            // [value-3] Without the bytes there is no vote.
            effects.slow.missing_bytes += 1;
            return self.queue_proposal(now, from, m, false, effects);
        }
        if range.from != wanted.from {
            // The slots below are decided, but not by a vote of this node in this ballot.
            run.from = range.from;
        }
        let record = Record::Vote { ballot: m.ballot, range, value: m.value };
        let record = self.append_about(range, record, effects);
        effects.slow.vote_rewrites +=
            u64::from(self.spine.acceptor.cast_vote(m.ballot, range, m.value, record));
        self.record_run(now, run, record, effects);
    }

    /// Appends a record about slots. [era-12] While the record is being written, stable storage may
    /// hold votes for other values in these slots, so this node does not count as holding the
    /// values decided there.
    pub(in crate::node) fn append_about(
        &mut self,
        range: SlotRange,
        record: Record,
        effects: &mut Effects,
    ) -> RecordSeq {
        let seq = self.spine.pending.append(record, effects);
        if range.from < self.spine.acceptor.voted_to() {
            self.spine.pending.record_replacement(seq, range.from);
        }
        seq
    }

    /// Records `run` as this node's votes in the newest ballot. `record`, the last record of the
    /// run, is still being written.
    pub(in crate::node) fn record_run(
        &mut self,
        now: Time,
        run: Run,
        record: RecordSeq,
        effects: &mut Effects,
    ) {
        if run.from > self.spine.own_votes.durable_to()
            && run.from <= self.spine.learner.decided_to()
        {
            // The run is not contiguous with the slots known to be on stable storage. Everything
            // before the run is decided on this node, and its records are on stable storage once
            // this one is.
            self.spine.pending.park_decided(record, run.from);
        }
        self.spine.own_votes.replace_run(run);
        self.spine.pending.park_vote(record, run);
        if self.spine.pending.class() == Class::Volatile {
            self.report_new_votes(now, effects);
        }
    }

    /// Returns whether a proposal is within the window, so that its bytes are retained.
    fn is_in_window(&self, m: &Phase2a) -> bool {
        m.range.from < self.spine.learner.decided_to().plus(self.spine.options.window_slots)
    }

    /// Queues a proposal until its bytes are present and all proposals before it have been voted
    /// for.
    pub(super) fn queue_proposal(
        &mut self,
        now: Time,
        source: NodeId,
        m: Phase2a,
        held: bool,
        effects: &mut Effects,
    ) {
        // Bytes for slots beyond the window are not retained for a later vote unless requested.
        let held = held && self.is_in_window(&m);
        self.spine.waiting_proposals.push(now, m, held, self.spine.options.inflight_max);
        if m.value.has_bytes() && !held {
            effects.push(Effect::Fetch { from: source, value: m.value, range: m.range });
        }
    }

    /// Votes for queued proposals whose bytes are present and whose predecessors have arrived. A
    /// reply, a repeated proposal or a decision may have supplied either.
    pub(in crate::node) fn vote_waiting(&mut self, now: Time, effects: &mut Effects) {
        if self.spine.waiting_proposals.is_empty() {
            return;
        }
        loop {
            let (run, decided_to) =
                (self.spine.own_votes.newest_run(), self.spine.learner.decided_to());
            self.spine.waiting_proposals.drop_below(now, decided_to);
            let in_turn = |m: &Phase2a| run.effect_of(m, decided_to) != ProposalEffect::Gap;
            match self.spine.waiting_proposals.next_proposal(now, in_turn) {
                Some(m)
                    if m.ballot >= self.spine.acceptor.promised()
                        && !self.spine.pending.has_failed() =>
                {
                    self.vote(now, m.ballot.node, m, (true, true), effects);
                }
                Some(_) => {}
                None if self
                    .spine
                    .waiting_proposals
                    .stop_waiting_below(now, self.announced_to()) => {}
                None => return,
            }
        }
    }

    pub(in crate::node) fn on_persisted(&mut self, seq: RecordSeq) {
        self.spine.pending.persisted(seq);
    }

    /// Sends the promises and votes whose records are now safe.
    pub(in crate::node) fn release(&mut self, now: Time, effects: &mut Effects) {
        while let Some((to, promise)) = self.spine.pending.next_promise() {
            if to == self.spine.options.member.node {
                self.count_own_statement(promise.into_inner(), effects);
            } else {
                effects.send_statement(to, promise);
            }
        }
        let mut current = false;
        while let Some(run) = self.spine.pending.next_durable_vote() {
            if self.spine.own_votes.record_persisted(&run) {
                current = true;
            } else if let Some(vote) = self.spine.pending.releasable_vote(&run, run.to) {
                // A newer run has replaced this one, so it is reported once, in its final state.
                self.send_vote(run.ballot.node, vote, effects);
            }
        }
        if current {
            self.report_durable(now, effects);
        }
        while let Some(to) = self.spine.pending.next_durable_decision() {
            self.spine.own_votes.record_decisions_persisted(to);
        }
        self.spine.own_votes.join_run();
    }

    /// Reports this node's votes in the newest ballot, if they count. Only the ballot's leader
    /// receives the report ([p2-7]).
    pub(in crate::node) fn report_run(&mut self, effects: &mut Effects) {
        let leader = self.spine.own_votes.newest_run().ballot.node;
        if let Some(vote) = self.own_statement().filter(|_| self.is_counted()) {
            self.send_vote(leader, vote, effects);
        }
    }

    fn send_vote(&mut self, to: NodeId, vote: Durable<Statement>, effects: &mut Effects) {
        if to == self.spine.options.member.node {
            self.count_own_statement(vote.into_inner(), effects);
        } else {
            effects.send_statement(to, vote);
        }
    }

    /// Counts this node's own promise or vote, which is not sent as a message.
    fn count_own_statement(&mut self, statement: Statement, effects: &mut Effects) {
        let own = self.spine.options.member;
        match statement {
            Statement::Promise(promise) => self.add_promise(own, promise, effects),
            Statement::Vote(vote) => self.on_phase2b(own, vote, effects),
        }
    }

    /// Returns the statement that this node may make now about its votes in the newest ballot.
    pub(in crate::node) fn own_statement(&self) -> Option<Durable<Statement>> {
        let run = self.spine.own_votes.newest_run();
        self.spine.pending.releasable_vote(run, self.spine.own_votes.run_durable_to())
    }

    /// Returns the end of this node's votes in the newest ballot, at the group's class.
    pub(in crate::node) fn own_voted_to(&self) -> Slot {
        match self.spine.pending.class() {
            Class::Volatile => self.spine.own_votes.newest_run().to,
            Class::Durable => self.spine.own_votes.run_durable_to(),
        }
    }

    /// [learn-1] Returns whether this node's votes count. A node without weight votes silently. An
    /// auxiliary may not have learned that it has weight ([aux-1]), so it counts itself in if a
    /// leader has reported its role, or if it lacks the part of the log that would show its weight.
    pub(in crate::node) fn is_counted(&self) -> bool {
        let configuration = self.spine.learner.eras().current();
        let member = configuration.position(self.spine.options.member).is_some();
        member || self.is_auxiliary() || self.is_hollow()
    }
}

#[cfg(test)]
mod tests {
    use alloc::vec::Vec;

    use super::*;
    use crate::{
        ballot::{Ballot, Era},
        class::Class,
        configuration::Configuration,
        effect::Effects,
        input::Input,
        node::{Options, Recovered},
        node_id::Member,
        slot::SlotRange,
        value::{BatchName, Value},
    };

    const WINDOW: u64 = 4;

    /// Returns a proposal of node 2, whose batch is named after its slot.
    fn proposal(slot: u64, decided_to: u64) -> Message {
        let ballot = Ballot { era: Era(0), round: 1, node: NodeId(2) };
        Message::Phase2a(Phase2a {
            ballot,
            range: SlotRange::one(Slot(slot)),
            value: Value::Batch(BatchName { counter: slot, ..BatchName::default() }),
            prefix: 0,
            decided_to: Slot(decided_to),
            own_volatile_to: Slot(0),
            own_durable_to: Slot(0),
            with_bytes: true,
        })
    }

    /// Returns the slots for which a node fetches bytes. It has voted in slot 1, and receives a
    /// proposal after a gap, with its bytes and the report that slot 1 is decided.
    fn looked_for(slot: u64) -> Vec<u64> {
        let members = [1, 2, 3].map(Member::first);
        let options = Options {
            member: members[0],
            heartbeat_ms: 20,
            election_min_ms: 100,
            election_max_ms: 200,
            inflight_max: 4,
            window_slots: WINDOW,
            leases: None,
            earlier_lease_us: 0,
            lead_alone_wait_us: 0,
            thrifty: false,
            route: crate::laying::Route::Star,
            seed: 1,
        };
        let founding = Configuration::majority_of(members, Class::Durable).unwrap();
        let mut node = Node::new(options, Recovered::for_new_node(founding));
        let mut effects = Effects::default();
        let mut found = Vec::new();
        for message in [proposal(1, 1), proposal(slot, 2)] {
            let input = Input::Message { from: members[1], message, bytes_held: true };
            node.step(Time(1_000), input, &mut effects);
            for effect in effects.drain() {
                if let Effect::Fetch { range, .. } = effect {
                    found.push(range.from.0);
                }
            }
        }
        assert_eq!(node.decided_to(), Slot(2));
        found
    }

    /// [gap-1], [value-3] Bytes of a slot beyond the window are not retained. If the proposal
    /// itself reports decisions that bring its slot into the window, its bytes must be fetched all
    /// the same: they may be released before the vote.
    #[test]
    fn bytes_for_a_slot_beyond_the_window_are_fetched_again() {
        assert_eq!(looked_for(WINDOW), [0; 0], "within it they stay");
        assert_eq!(looked_for(1 + WINDOW), [1 + WINDOW]);
        assert_eq!(looked_for(2 + WINDOW), [0; 0], "still beyond: not queued");
    }
}
