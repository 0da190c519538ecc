//! Early acknowledgements: notifies clients that accept less than the group's class once a phase-2
//! quorum has their command in memory, before any disk has written it ([class-2], [less-1] to
//! [less-3]).

use crate::{
    ballot::Ballot,
    configuration::Voter,
    effect::{Effect, Effects},
    flow::Peer,
    message::{EarlyVotesQuery, Message},
    node::Node,
    node_id::{Member, NodeId},
    quorum::Phase,
    slot::{Slot, SlotRange},
    time::Time,
    value::{Value, range_check},
};

impl Node {
    /// Answers peers that wait for this node's votes, notifies this node's clients, and requests
    /// votes from other members.
    pub(in crate::node) fn serve_early(&mut self, now: Time, effects: &mut Effects) {
        if self.acks.early_votes.is_idle() {
            return;
        }
        self.answer_early(effects);
        let Some((ballot, _)) = self.acks.early_votes.awaited_votes() else {
            return;
        };
        if self.spine.own_votes().newest_run().ballot != ballot || self.spine.pending().has_failed()
        {
            // The awaited slots may get votes in another ballot. Clients then ask for them again.
            return self.acks.early_votes.stop_waiting();
        }
        let to = self.voted_in_memory_to(ballot);
        if self.acks.early_votes.advance_notified(to) {
            effects.push(Effect::VotedInMemory { ballot, to });
        }
        self.ask_early(now, effects);
    }

    /// [less-1] Answers requests, each only for slots that this node has voted for, and only to the
    /// peer that sent it.
    fn answer_early(&mut self, effects: &mut Effects) {
        let run = *self.spine.own_votes().newest_run();
        let promised = self.spine.acceptor().promised();
        while let Some((to, question)) = self.acks.early_votes.next_answerable(&run, promised) {
            let same = run.ballot == question.ballot && run.from < question.to;
            // [disk-9] After a log failure, in-memory votes are no longer reported.
            if same
                && !self.spine.pending().has_failed()
                && self.prefix_sum_at(question.to) == Some(question.check)
            {
                let reply =
                    Message::EarlyReply { ballot: run.ballot, from: run.from, to: question.to };
                effects.send(to, reply);
            }
        }
    }

    /// [less-2] Returns the end of the slots for which a phase-2 quorum is known to have voted in
    /// this ballot. It must be the ballot of this node's run.
    fn voted_in_memory_to(&self, ballot: Ballot) -> Slot {
        let (eras, decided_to) = (self.spine.learner().eras(), self.spine.learner().decided_to());
        let (own, run) = (self.spine.options().member, self.spine.own_votes().newest_run());
        // [less-3] This node does not know the slots in between, and one may be a reconfiguration.
        if !eras.counts_ballot(ballot) || run.from > decided_to {
            return Slot(0);
        }
        let of = |voter: &Voter| match voter.member == own {
            true => run.to,
            false => self.acks.early_votes.reported_to(voter.member, ballot, decided_to),
        };
        let reached = eras.current().reached_by_quorum(Phase::Two, of);
        // [less-3] After an undecided reconfiguration another configuration may apply.
        let change = self
            .spine
            .acceptor()
            .votes()
            .find(|vote| matches!(vote.value, Value::Reconfigure { .. }));
        reached.min(change.map_or(run.to, |vote| vote.range.from.next()))
    }

    fn ask_early(&mut self, now: Time, effects: &mut Effects) {
        let retry_us = self.catchup_retry_us();
        let Some((ballot, to)) = self.acks.early_votes.next_request(now, retry_us) else {
            return;
        };
        let Some(check) = self.prefix_sum_at(to) else {
            return;
        };
        let (configuration, decided_to) =
            (self.spine.learner().eras().current(), self.spine.learner().decided_to());
        let lacks = |peer: &&Peer| {
            let counts = configuration.position(peer.member).is_some();
            peer.connected
                && counts
                && self.acks.early_votes.reported_to(peer.member, ballot, decided_to) < to
        };
        let asked = self.spine.peers().iter().filter(lacks);
        let asked = asked.map(|peer| peer.member.node);
        let question = EarlyVotesQuery { ballot, to, check };
        effects.send_all(asked, &Message::EarlyRequest(question));
    }

    /// Returns the prefix sum of this node's run at a slot within it, if the votes after that slot
    /// are still stored.
    fn prefix_sum_at(&self, to: Slot) -> Option<u64> {
        let run = self.spine.own_votes().newest_run();
        if to < run.from.max(self.spine.acceptor().floor()) || to > run.to {
            return None;
        }
        let behind = self.spine.acceptor().votes().filter_map(|vote| {
            let range = SlotRange::new(vote.range.from.max(to), vote.range.to.min(run.to));
            (range.from < range.to).then(|| range_check(range, &vote.value))
        });
        Some(behind.fold(run.check, u64::wrapping_sub))
    }

    /// [less-2] Records a member's report that it has voted in `ballot` from `from` up to `to`.
    pub(in crate::node) fn on_early_reply(
        &mut self,
        by: Member,
        ballot: Ballot,
        from: Slot,
        to: Slot,
    ) {
        self.acks.early_votes.on_reply(by, ballot, from, to);
    }

    /// Records that a peer waits for this node to vote for the slots in `question`.
    pub(in crate::node) fn on_early_request(&mut self, from: NodeId, question: EarlyVotesQuery) {
        self.acks.early_votes.on_request(from, question);
    }
}
