//! In-memory votes, which no disk has written yet: clients that wait for a quorum of such votes,
//! other members' reports of such votes, and peers' open requests ([class-2], [less-1]).
//!
//! No report counts as a vote. Replies go to the requesting node and are never tallied, so an error
//! here cannot change a decision. A node sends requests only while a client waits.

use alloc::vec::Vec;

use crate::{
    acceptor::Run,
    ballot::Ballot,
    message::EarlyVotesQuery,
    node_id::{Member, NodeId, PEERS_MAX},
    slot::Slot,
    time::Time,
};

/// A member's report that it voted for a run of slots.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct VoteReport {
    member: Member,
    ballot: Ballot,
    from: Slot,
    voted_to: Slot,
}

/// Waiting clients and peers, and reports from other members.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct EarlyVotes {
    /// Ballot and slot for which clients of this node wait. A quorum must have voted in that
    /// ballot, in memory, for every slot below that slot.
    awaited_votes: Option<(Ballot, Slot)>,
    /// End of the slots reported to clients, in the ballot of `awaited_votes`.
    notified_to: Slot,
    /// End of the requested slots in that ballot, and the time of the request.
    last_request: Option<(Slot, Time)>,
    /// Reports of other members.
    member_reports: Vec<VoteReport>,
    /// Nodes that wait for this node's votes.
    waiting_nodes: Vec<(NodeId, EarlyVotesQuery)>,
}

impl EarlyVotes {
    /// Returns whether there are no waiting clients or nodes.
    pub fn is_idle(&self) -> bool {
        self.awaited_votes().is_none() && self.waiting_nodes.is_empty()
    }

    /// Records that clients of this node wait for everything below `to` in this ballot. A newer
    /// ballot replaces an older one.
    pub fn await_votes(&mut self, ballot: Ballot, to: Slot) {
        match &mut self.awaited_votes {
            Some((known, _)) if *known > ballot => {}
            Some((known, wanted)) if *known == ballot => *wanted = to.max(*wanted),
            _ => {
                self.awaited_votes = Some((ballot, to));
                (self.notified_to, self.last_request) = (Slot(0), None);
            }
        }
    }

    /// Returns the ballot and slot for which clients of this node still wait.
    pub fn awaited_votes(&self) -> Option<(Ballot, Slot)> {
        self.awaited_votes.filter(|(_, to)| *to > self.notified_to)
    }

    /// Stops waiting on behalf of clients.
    pub fn stop_waiting(&mut self) {
        self.awaited_votes = None;
        self.last_request = None;
    }

    /// Records that everything below `to` is in memory at a quorum, in the ballot that clients wait
    /// for. Returns whether clients should be notified, because `to` is new.
    pub fn advance_notified(&mut self, to: Slot) -> bool {
        let news = to > self.notified_to;
        if news {
            self.notified_to = to;
        }
        news
    }

    /// Returns the request to send to other members, if one is due. A request is due at once when a
    /// client waits for more, and again after `retry_us` without a reply.
    pub fn next_request(&mut self, now: Time, retry_us: u64) -> Option<(Ballot, Slot)> {
        let Some((ballot, to)) = self.awaited_votes() else {
            self.last_request = None;
            return None;
        };
        let open =
            self.last_request.is_some_and(|(asked, at)| asked >= to && now.since_us(at) < retry_us);
        if open {
            return None;
        }
        self.last_request = Some((to, now));
        Some((ballot, to))
    }

    /// Returns the time at which the request is to be repeated.
    pub fn wake_at(&self, retry_us: u64) -> Option<Time> {
        self.awaited_votes()?;
        self.last_request.map(|(_, at)| at.plus_us(retry_us))
    }

    /// Records that a peer waits for this node's votes. A later request replaces an earlier one.
    pub fn on_request(&mut self, from: NodeId, question: EarlyVotesQuery) {
        let room = self.waiting_nodes.len() < PEERS_MAX;
        match self.waiting_nodes.iter_mut().find(|(node, _)| *node == from) {
            Some((_, open)) => *open = question,
            None if room => self.waiting_nodes.push((from, question)),
            // The table is full, so the peer has to repeat its request.
            None => {}
        }
    }

    /// Records a member's report that it voted in `ballot` for slots `from` to `to`.
    pub fn on_reply(&mut self, by: Member, ballot: Ballot, from: Slot, to: Slot) {
        let word = VoteReport { member: by, ballot, from, voted_to: to };
        let room = self.member_reports.len() < PEERS_MAX;
        let mut known = self.member_reports.iter_mut();
        match known.find(|known| known.member.node == by.node) {
            Some(known) if known.member == by && (known.ballot, known.voted_to) >= (ballot, to) => {
            }
            Some(known) => *known = word,
            None if room => self.member_reports.push(word),
            None => {}
        }
    }

    /// Returns the end of the contiguous votes, starting at `from`, that this member reported in
    /// this ballot; slot 0 if there are none.
    pub fn reported_to(&self, by: Member, ballot: Ballot, from: Slot) -> Slot {
        let speaks =
            |word: &&VoteReport| word.member == by && word.ballot == ballot && word.from <= from;
        let word = self.member_reports.iter().find(speaks);
        word.map_or(Slot(0), |word| word.voted_to)
    }

    /// Drops a disconnected node's request and reports. The node sends a new request after
    /// reconnecting, and may have lost the votes that it reported.
    pub fn disconnect(&mut self, node: NodeId) {
        self.waiting_nodes.retain(|(waits, _)| *waits != node);
        self.member_reports.retain(|word| word.member.node != node);
    }

    /// Removes and returns a request that no longer needs to wait, because this node has voted for
    /// its slots or never will.
    pub fn next_answerable(
        &mut self,
        run: &Run,
        promised: Ballot,
    ) -> Option<(NodeId, EarlyVotesQuery)> {
        let is_ripe = |question: &EarlyVotesQuery| {
            let voted = run.ballot == question.ballot && run.to >= question.to;
            voted || promised > question.ballot
        };
        let at = self.waiting_nodes.iter().position(|(_, open)| is_ripe(open))?;
        Some(self.waiting_nodes.swap_remove(at))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{ballot::Era, node_id::Incarnation};

    const RETRY_US: u64 = 1000;

    fn ballot(round: u32) -> Ballot {
        Ballot { era: Era(0), round, node: NodeId(1) }
    }

    fn question(round: u32, to: u64) -> EarlyVotesQuery {
        EarlyVotesQuery { ballot: ballot(round), to: Slot(to), check: 0 }
    }

    #[test]
    fn request_is_sent_for_earlier_slots_and_repeated_unanswered() {
        let mut early = EarlyVotes::default();
        let ask = |early: &mut EarlyVotes, us| early.next_request(Time(us), RETRY_US);
        assert_eq!(ask(&mut early, 0), None);
        early.await_votes(ballot(1), Slot(5));
        assert_eq!(ask(&mut early, 0), Some((ballot(1), Slot(5))));
        early.await_votes(ballot(1), Slot(4));
        assert_eq!(ask(&mut early, 10), None, "that is asked for already");
        early.await_votes(ballot(1), Slot(7));
        assert_eq!(ask(&mut early, 20), Some((ballot(1), Slot(7))));
        assert_eq!(early.wake_at(RETRY_US), Some(Time(1020)));
        assert_eq!(ask(&mut early, 1019), None);
        assert_eq!(ask(&mut early, 1020), Some((ballot(1), Slot(7))));
        assert!(early.advance_notified(Slot(5)) && !early.advance_notified(Slot(5)));
        assert!(!early.is_idle());
        assert!(early.advance_notified(Slot(7)) && early.is_idle());
        assert_eq!(early.wake_at(RETRY_US), None);
    }

    /// [less-2] A report in one ballot counts neither for another ballot, nor for another
    /// incarnation, nor across a gap.
    #[test]
    fn reports_count_only_for_their_ballot_incarnation_and_run() {
        let first = Member::first(2);
        let second = Member { incarnation: Incarnation(1), ..first };
        let mut early = EarlyVotes::default();
        early.on_reply(first, ballot(2), Slot(4), Slot(9));
        early.on_reply(first, ballot(1), Slot(1), Slot(20));
        early.on_reply(first, ballot(2), Slot(4), Slot(6));
        assert_eq!(early.reported_to(first, ballot(2), Slot(4)), Slot(9));
        assert_eq!(early.reported_to(first, ballot(2), Slot(3)), Slot(0));
        assert_eq!(early.reported_to(first, ballot(1), Slot(4)), Slot(0));
        assert_eq!(early.reported_to(second, ballot(2), Slot(4)), Slot(0));
        early.disconnect(first.node);
        assert_eq!(early.reported_to(first, ballot(2), Slot(4)), Slot(0));
    }

    #[test]
    fn newer_ballot_replaces_the_awaited_one() {
        let mut early = EarlyVotes::default();
        early.await_votes(ballot(1), Slot(9));
        assert!(early.advance_notified(Slot(9)));
        early.await_votes(ballot(2), Slot(6));
        early.await_votes(ballot(1), Slot(12));
        assert_eq!(early.awaited_votes(), Some((ballot(2), Slot(6))));
        early.stop_waiting();
        assert!(early.is_idle());
    }

    /// [less-1] A peer's request waits for this node's vote, and is dropped once there can be none.
    #[test]
    fn peer_request_waits_for_a_vote_or_is_dropped() {
        let run = |round, to| Run { ballot: ballot(round), from: Slot(1), to: Slot(to), check: 0 };
        let mut early = EarlyVotes::default();
        early.on_request(NodeId(2), question(1, 4));
        early.on_request(NodeId(3), question(2, 3));
        early.on_request(NodeId(2), question(1, 5));
        assert_eq!(early.next_answerable(&run(1, 4), ballot(1)), None);
        let ripe = Some((NodeId(2), question(1, 5)));
        assert_eq!(early.next_answerable(&run(1, 5), ballot(1)), ripe);
        assert_eq!(early.next_answerable(&run(1, 5), ballot(2)), None);
        let void = Some((NodeId(3), question(2, 3)));
        assert_eq!(early.next_answerable(&run(2, 2), ballot(3)), void);
        assert!(early.is_idle());
    }
}
