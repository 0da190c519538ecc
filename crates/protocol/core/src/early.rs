//! Votes in memory, before any disk has written: clients that wait for a quorum with a vote in
//! memory, reports of other members about theirs, and their questions that are open here
//! ([class-2], [less-1]).
//!
//! None of this is a vote. It goes to the node that asked and into no tally, so an error in it
//! cannot change what is decided. No node asks unless a client waits.

use alloc::vec::Vec;

use crate::{
    ballot::Ballot,
    message::Question,
    node_id::{Member, NodeId, PEERS_MAX},
    slot::Slot,
    time::Time,
    voted::Run,
};

/// A member's report about its own run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Word {
    by: Member,
    ballot: Ballot,
    from: Slot,
    to: Slot,
}

/// The part.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Early {
    /// Clients of this node wait until everything below is in memory at a quorum, voted for in this
    /// ballot.
    wanted: Option<(Ballot, Slot)>,
    /// Clients were notified of everything below, in the ballot that is wanted.
    told: Slot,
    /// End of the slots asked for in that ballot, and when.
    asked: Option<(Slot, Time)>,
    /// Reports of other members.
    said: Vec<Word>,
    /// Nodes that wait for votes of this node.
    waiting: Vec<(NodeId, Question)>,
}

impl Early {
    /// Returns whether there are no waiting clients or nodes.
    pub fn is_idle(&self) -> bool {
        self.wanted().is_none() && self.waiting.is_empty()
    }

    /// Clients of this node wait for this. A newer ballot replaces an older one.
    pub fn want(&mut self, ballot: Ballot, to: Slot) {
        match &mut self.wanted {
            Some((known, _)) if *known > ballot => {}
            Some((known, wanted)) if *known == ballot => *wanted = to.max(*wanted),
            _ => {
                self.wanted = Some((ballot, to));
                (self.told, self.asked) = (Slot(0), None);
            }
        }
    }

    /// Returns the ballot and slot that clients of this node still wait for.
    pub fn wanted(&self) -> Option<(Ballot, Slot)> {
        self.wanted.filter(|(_, to)| *to > self.told)
    }

    /// Drops what clients waited for in this ballot.
    pub fn give_up(&mut self) {
        self.wanted = None;
        self.asked = None;
    }

    /// Notes that everything below is in memory at a quorum, in the ballot that is wanted. Returns
    /// whether that is news.
    pub fn is_news(&mut self, to: Slot) -> bool {
        let news = to > self.told;
        if news {
            self.told = to;
        }
        news
    }

    /// Returns the question to ask others now: at once when a client waits for more, and again
    /// without an answer.
    pub fn question(&mut self, now: Time, retry_us: u64) -> Option<(Ballot, Slot)> {
        let Some((ballot, to)) = self.wanted() else {
            self.asked = None;
            return None;
        };
        let open = self.asked.is_some_and(|(asked, at)| asked >= to && now.since_us(at) < retry_us);
        if open {
            return None;
        }
        self.asked = Some((to, now));
        Some((ballot, to))
    }

    /// Returns when the question is to be repeated.
    pub fn wake_at(&self, retry_us: u64) -> Option<Time> {
        self.wanted()?;
        self.asked.map(|(_, at)| at.plus_us(retry_us))
    }

    /// Notes that a peer waits for votes of this node. Its later question replaces the earlier one.
    pub fn on_request(&mut self, from: NodeId, question: Question) {
        let room = self.waiting.len() < PEERS_MAX;
        match self.waiting.iter_mut().find(|(node, _)| *node == from) {
            Some((_, open)) => *open = question,
            None if room => self.waiting.push((from, question)),
            // It asks again.
            None => {}
        }
    }

    /// Notes a member's report that in this ballot it has voted for these slots.
    pub fn on_reply(&mut self, by: Member, ballot: Ballot, from: Slot, to: Slot) {
        let word = Word { by, ballot, from, to };
        let room = self.said.len() < PEERS_MAX;
        let mut known = self.said.iter_mut();
        match known.find(|known| known.by.node == by.node) {
            Some(known) if known.by == by && (known.ballot, known.to) >= (ballot, to) => {}
            Some(known) => *known = word,
            None if room => self.said.push(word),
            None => {}
        }
    }

    /// Returns the end of this member's votes by its own report, in this ballot and without a hole
    /// from `from` on; slot 0 for none.
    pub fn said(&self, by: Member, ballot: Ballot, from: Slot) -> Slot {
        let speaks = |word: &&Word| word.by == by && word.ballot == ballot && word.from <= from;
        let word = self.said.iter().find(speaks);
        word.map_or(Slot(0), |word| word.to)
    }

    /// Forgets the questions of a disconnected node and its reports. It asks again after
    /// reconnecting, and may have lost what it reported by then.
    pub fn disconnect(&mut self, node: NodeId) {
        self.waiting.retain(|(waits, _)| *waits != node);
        self.said.retain(|word| word.by.node != node);
    }

    /// Takes out the next question that needs no more waiting: by what this node has voted for, or
    /// because it will not vote for that any more.
    pub fn next_question(&mut self, run: &Run, promised: Ballot) -> Option<(NodeId, Question)> {
        let is_ripe = |question: &Question| {
            let voted = run.ballot == question.ballot && run.to >= question.to;
            voted || promised > question.ballot
        };
        let at = self.waiting.iter().position(|(_, open)| is_ripe(open))?;
        Some(self.waiting.swap_remove(at))
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

    fn question(round: u32, to: u64) -> Question {
        Question { ballot: ballot(round), to: Slot(to), check: 0 }
    }

    #[test]
    fn questions_go_out_when_more_is_wanted_and_again_without_an_answer() {
        let mut early = Early::default();
        let ask = |early: &mut Early, us| early.question(Time(us), RETRY_US);
        assert_eq!(ask(&mut early, 0), None);
        early.want(ballot(1), Slot(5));
        assert_eq!(ask(&mut early, 0), Some((ballot(1), Slot(5))));
        early.want(ballot(1), Slot(4));
        assert_eq!(ask(&mut early, 10), None, "that is asked for already");
        early.want(ballot(1), Slot(7));
        assert_eq!(ask(&mut early, 20), Some((ballot(1), Slot(7))));
        assert_eq!(early.wake_at(RETRY_US), Some(Time(1020)));
        assert_eq!(ask(&mut early, 1019), None);
        assert_eq!(ask(&mut early, 1020), Some((ballot(1), Slot(7))));
        assert!(early.is_news(Slot(5)) && !early.is_news(Slot(5)));
        assert!(!early.is_idle());
        assert!(early.is_news(Slot(7)) && early.is_idle());
        assert_eq!(early.wake_at(RETRY_US), None);
    }

    /// [less-2] A report in one ballot is no evidence for another, nor for another incarnation, nor
    /// across a hole.
    #[test]
    fn words_are_those_of_a_ballot_an_incarnation_and_a_run() {
        let first = Member::first(2);
        let second = Member { incarnation: Incarnation(1), ..first };
        let mut early = Early::default();
        early.on_reply(first, ballot(2), Slot(4), Slot(9));
        early.on_reply(first, ballot(1), Slot(1), Slot(20));
        early.on_reply(first, ballot(2), Slot(4), Slot(6));
        assert_eq!(early.said(first, ballot(2), Slot(4)), Slot(9));
        assert_eq!(early.said(first, ballot(2), Slot(3)), Slot(0));
        assert_eq!(early.said(first, ballot(1), Slot(4)), Slot(0));
        assert_eq!(early.said(second, ballot(2), Slot(4)), Slot(0));
        early.disconnect(first.node);
        assert_eq!(early.said(first, ballot(2), Slot(4)), Slot(0));
    }

    #[test]
    fn a_newer_ballot_takes_the_place_of_an_older_one() {
        let mut early = Early::default();
        early.want(ballot(1), Slot(9));
        assert!(early.is_news(Slot(9)));
        early.want(ballot(2), Slot(6));
        early.want(ballot(1), Slot(12));
        assert_eq!(early.wanted(), Some((ballot(2), Slot(6))));
        early.give_up();
        assert!(early.is_idle());
    }

    /// [less-1] A question waits for the vote, and is dropped once there cannot be one.
    #[test]
    fn a_peer_is_answered_when_there_is_a_vote_or_never_will_be() {
        let run = |round, to| Run { ballot: ballot(round), from: Slot(1), to: Slot(to), check: 0 };
        let mut early = Early::default();
        early.on_request(NodeId(2), question(1, 4));
        early.on_request(NodeId(3), question(2, 3));
        early.on_request(NodeId(2), question(1, 5));
        assert_eq!(early.next_question(&run(1, 4), ballot(1)), None);
        let ripe = Some((NodeId(2), question(1, 5)));
        assert_eq!(early.next_question(&run(1, 5), ballot(1)), ripe);
        assert_eq!(early.next_question(&run(1, 5), ballot(2)), None);
        let void = Some((NodeId(3), question(2, 3)));
        assert_eq!(early.next_question(&run(2, 2), ballot(3)), void);
        assert!(early.is_idle());
    }
}
