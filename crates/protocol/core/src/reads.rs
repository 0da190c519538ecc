//! Linearizable reads without a slot. One round of confirmations serves all waiting reads
//! ([read-1]–[read-3]).

use alloc::vec::Vec;

use crate::{
    input::ReadToken,
    node_id::{Member, NodeId},
    slot::Slot,
    time::Time,
};

/// Maximum number of reads that wait at a leader, from its own clients and from followers. One read
/// of a follower may stand for many.
pub const WAITING_READS_MAX: usize = 1024;

/// A reader that waits for a read index.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Reader {
    /// A client that is connected to this node.
    Local(ReadToken),
    /// A follower, with the id of its request.
    Remote(NodeId, u64),
}

/// Reads that wait at a leader.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Reads {
    /// Number of the last round that was started. Rounds of the same ballot never share a number.
    round: u64,
    /// Reads that the current round confirms, each with its index.
    confirming_reads: Vec<(Reader, Slot)>,
    /// Reads that arrived since the current round started.
    gathered_reads: Vec<(Reader, Slot)>,
    /// Members that have confirmed "promised ≤ b" in the current round.
    confirmed_by: Vec<Member>,
}

impl Reads {
    /// Adds a read. `slot` is one past the last proposed slot ([read-1]). Returns `false` if too
    /// many reads wait.
    pub fn add_read(&mut self, reader: Reader, slot: Slot) -> bool {
        let room = self.gathered_reads.len() < WAITING_READS_MAX;
        if room {
            self.gathered_reads.push((reader, slot));
        }
        room
    }

    /// Starts a round if reads wait and no round is in progress, and returns its number. Heartbeats
    /// sent from now on carry the number ([read-2]).
    pub fn start_round(&mut self, own: Member) -> Option<u64> {
        if !self.confirming_reads.is_empty() || self.gathered_reads.is_empty() {
            return None;
        }
        core::mem::swap(&mut self.confirming_reads, &mut self.gathered_reads);
        self.confirmed_by.clear();
        self.confirmed_by.push(own);
        self.round += 1;
        Some(self.round)
    }

    /// Returns the number of the current round; 0 if there is none.
    pub fn round(&self) -> u64 {
        if self.confirming_reads.is_empty() { 0 } else { self.round }
    }

    /// Records that a member confirmed a round.
    pub fn confirm(&mut self, round: u64, by: Member) {
        let counts = round == self.round() && round != 0;
        if counts && !self.confirmed_by.contains(&by) {
            self.confirmed_by.push(by);
        }
    }

    /// Returns the members that have confirmed the current round.
    pub fn confirmed_by(&self) -> &[Member] {
        &self.confirmed_by
    }

    /// Ends the confirmed round, and returns its reads and their indexes.
    pub fn finish_round(&mut self) -> impl Iterator<Item = (Reader, Slot)> + '_ {
        self.confirmed_by.clear();
        self.confirming_reads.drain(..)
    }

    /// Restarts the reads after the leader has moved to another ballot of its own and has proposed
    /// everything that it inherited, below `slot`. Unconfirmed reads are confirmed in the new
    /// ballot with a new index, because a leader between the two ballots may have decided more than
    /// was known when the read arrived.
    pub fn restart(&mut self, slot: Slot) {
        self.confirmed_by.clear();
        self.gathered_reads.append(&mut self.confirming_reads);
        for (_, index) in &mut self.gathered_reads {
            *index = slot.max(*index);
        }
    }

    /// Removes and returns all readers, because this node no longer leads.
    pub fn fail(&mut self) -> impl Iterator<Item = Reader> + '_ {
        self.confirmed_by.clear();
        self.confirming_reads
            .drain(..)
            .chain(self.gathered_reads.drain(..))
            .map(|(reader, _)| reader)
    }
}

/// A follower's outstanding requests for read indexes.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct ReadRequests {
    last_id: u64,
    open: Vec<PendingRequest>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct PendingRequest {
    id: u64,
    token: ReadToken,
    requested_at: Time,
}

impl ReadRequests {
    /// Creates an empty list whose ids begin after `last`. No earlier process of this node may have
    /// used these ids. Otherwise a reply to its request could be mistaken for a reply to this
    /// process.
    pub fn starting_at(last: u64) -> Self {
        Self { last_id: last, open: Vec::new() }
    }

    /// Returns whether no request waits for its reply.
    pub fn is_empty(&self) -> bool {
        self.open.is_empty()
    }

    /// Adds a request to the leader and returns its id; `None` if too many are outstanding.
    pub fn add_request(&mut self, now: Time, token: ReadToken) -> Option<u64> {
        if self.open.len() >= WAITING_READS_MAX {
            return None;
        }
        self.last_id = self.last_id.wrapping_add(1);
        self.open.push(PendingRequest { id: self.last_id, token, requested_at: now });
        Some(self.last_id)
    }

    /// Removes and returns the read whose request the leader answered.
    pub fn take_answered(&mut self, id: u64) -> Option<ReadToken> {
        let at = self.open.iter().position(|open| open.id == id)?;
        Some(self.open.remove(at).token)
    }

    /// Removes and returns all reads, because the leader has changed and will not answer them.
    pub fn fail(&mut self) -> impl Iterator<Item = ReadToken> + '_ {
        self.open.drain(..).map(|question| question.token)
    }

    /// Removes and returns the oldest read if it has waited for `patience_us`, because its request
    /// or the reply was lost.
    pub fn take_overdue(&mut self, now: Time, patience_us: u64) -> Option<ReadToken> {
        let first = self.open.first()?;
        (now.since_us(first.requested_at) > patience_us).then(|| self.open.remove(0).token)
    }

    /// Returns the time at which the oldest request becomes overdue.
    pub fn wake_at(&self, patience_us: u64) -> Option<Time> {
        self.open.first().map(|question| question.requested_at.plus_us(patience_us + 1))
    }
}
