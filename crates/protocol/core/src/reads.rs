//! Reads that need no slot: one round of confirmations serves all reads that wait
//! ([read-1]–[read-3]).

use alloc::vec::Vec;

use crate::{
    input::ReadToken,
    node_id::{Member, NodeId},
    slot::Slot,
    time::Time,
};

/// Most reads that gather at a leader, from this node's clients and from followers together. One
/// of a follower's stands for many.
pub const GATHERED_MAX: usize = 1024;

/// A reader that waits for a read index.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Reader {
    /// This node.
    Local(ReadToken),
    /// A follower, with its number for it.
    Remote(NodeId, u64),
}

/// Reads at a leader.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Reads {
    /// Number of the last round started; rounds of one ballot never share a number.
    round: u64,
    /// Reads that the round in progress confirms, each with its index.
    confirming: Vec<(Reader, Slot)>,
    /// Reads that arrived since it started.
    gathering: Vec<(Reader, Slot)>,
    /// Members that confirmed "promised ≤ b" in this round.
    confirmed_by: Vec<Member>,
}

impl Reads {
    /// Adds a read; `slot` is one past the last slot proposed ([read-1]). False if too many wait.
    pub fn gather(&mut self, reader: Reader, slot: Slot) -> bool {
        let room = self.gathering.len() < GATHERED_MAX;
        if room {
            self.gathering.push((reader, slot));
        }
        room
    }

    /// Starts a round if reads wait and none is in progress; its number goes out with heartbeats
    /// that are sent after this ([read-2]).
    pub fn start(&mut self, own: Member) -> Option<u64> {
        if !self.confirming.is_empty() || self.gathering.is_empty() {
            return None;
        }
        core::mem::swap(&mut self.confirming, &mut self.gathering);
        self.confirmed_by.clear();
        self.confirmed_by.push(own);
        self.round += 1;
        Some(self.round)
    }

    /// Returns the round in progress; 0 for none.
    pub fn round(&self) -> u64 {
        if self.confirming.is_empty() { 0 } else { self.round }
    }

    /// Notes that a member confirms a round.
    pub fn confirm(&mut self, round: u64, by: Member) {
        let counts = round == self.round() && round != 0;
        if counts && !self.confirmed_by.contains(&by) {
            self.confirmed_by.push(by);
        }
    }

    /// Returns the members that have confirmed.
    pub fn confirmed_by(&self) -> &[Member] {
        &self.confirmed_by
    }

    /// Finishes the confirmed round: returns its reads, with their indexes.
    pub fn finish(&mut self) -> impl Iterator<Item = (Reader, Slot)> + '_ {
        self.confirmed_by.clear();
        self.confirming.drain(..)
    }

    /// Restarts the reads after the leader moved to another ballot of its own, and proposed all
    /// that it inherited, below `slot`. Unconfirmed reads are asked again there, with a new index:
    /// a leader between the two ballots may have decided more than was known when the read arrived.
    pub fn restart(&mut self, slot: Slot) {
        self.confirmed_by.clear();
        self.gathering.append(&mut self.confirming);
        for (_, index) in &mut self.gathering {
            *index = slot.max(*index);
        }
    }

    /// Fails all reads: this node does not lead any more.
    pub fn fail(&mut self) -> impl Iterator<Item = Reader> + '_ {
        self.confirmed_by.clear();
        self.confirming.drain(..).chain(self.gathering.drain(..)).map(|(reader, _)| reader)
    }
}

/// Reads of a follower, asked of the leader.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Asked {
    last: u64,
    open: Vec<Question>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Question {
    id: u64,
    token: ReadToken,
    at: Time,
}

impl Asked {
    /// Creates an empty list; numbers begin after `last`, where no earlier process of this node has
    /// been: an answer to its question must not pass for one to ours.
    pub fn starting_at(last: u64) -> Self {
        Self { last, open: Vec::new() }
    }

    /// Creates a question for the leader. `None` if too many are open.
    pub fn ask(&mut self, now: Time, token: ReadToken) -> Option<u64> {
        if self.open.len() >= GATHERED_MAX {
            return None;
        }
        self.last = self.last.wrapping_add(1);
        self.open.push(Question { id: self.last, token, at: now });
        Some(self.last)
    }

    /// Takes the read that the leader answered.
    pub fn answered(&mut self, id: u64) -> Option<ReadToken> {
        let at = self.open.iter().position(|open| open.id == id)?;
        Some(self.open.remove(at).token)
    }

    /// Fails all questions: the leader is gone, or another one leads, and none will be answered.
    pub fn fail(&mut self) -> impl Iterator<Item = ReadToken> + '_ {
        self.open.drain(..).map(|question| question.token)
    }

    /// Takes the oldest question, if it has waited for `patience_us`: it or its answer was lost.
    pub fn overdue(&mut self, now: Time, patience_us: u64) -> Option<ReadToken> {
        let first = self.open.first()?;
        (now.since_us(first.at) > patience_us).then(|| self.open.remove(0).token)
    }

    /// Returns when the oldest question is overdue.
    pub fn wake_at(&self, patience_us: u64) -> Option<Time> {
        self.open.first().map(|question| question.at.plus_us(patience_us + 1))
    }
}
