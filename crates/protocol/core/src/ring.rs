//! Ring: the route along which votes reach the leader, and the votes that each member forwards.
//! Liveness only.
//!
//! Members that form a phase-2 quorum forward votes along the ring, with the leader last. Each adds
//! its own vote to the unchanged votes that it has received, so one small message per member
//! carries all of them (Ring Paxos, §3). The other members vote silently. A vote counts whichever
//! route it takes. No acceptor speaks for another, and a received vote never becomes this node's
//! own ([ring-2], [ring-4]).

use alloc::vec::Vec;

use crate::{
    ballot::Ballot,
    class::Class,
    message::{RingEntry, RingVote},
    node_id::{Member, NodeId},
    slot::Slot,
    time::Time,
};

/// Maximum number of members of a ring, and so of entries in a ring vote.
pub const RING_MAX: usize = 16;
/// Maximum time in microseconds that a member waits for its predecessor's vote, or for its own,
/// before it sends the votes that it has ([ring-6]).
pub const VOTE_HOLD_US_MAX: u64 = 300;

/// A message to send on the ring, and its receiver.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RelayAction {
    /// Send nothing now.
    Nothing,
    /// Send this node's vote directly to the leader.
    ToLeader,
    /// Send the received votes, together with this node's own, to this node.
    Forward(NodeId),
}

/// A member's view of the ring: the ring that the leader announced, and the votes that pass through
/// this member.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Relay {
    ballot: Ballot,
    number: u32,
    members: Vec<Member>,
    /// The newest votes of other members in this ballot ([ring-2]).
    member_votes: Vec<RingEntry>,
    /// End of the received votes that have not been forwarded. They are sent once this node's own
    /// vote reaches this slot.
    own_vote_goal: Option<Slot>,
    /// This node's vote has grown since it was last sent.
    own_is_unsent: bool,
    /// Time since which a vote has been waiting to be sent.
    waiting_since: Option<Time>,
}

impl Relay {
    /// Sets the ring of `ballot`, or removes it if `members` is empty. Returns whether the ring is
    /// newer than the known one. Votes that travelled along an older ring remain valid ([ring-1]).
    pub fn set_ring(&mut self, ballot: Ballot, number: u32, members: &[Member]) -> bool {
        if (ballot, number) <= (self.ballot, self.number) {
            return false;
        }
        if ballot != self.ballot {
            self.member_votes.clear();
            self.own_vote_goal = None;
        }
        self.ballot = ballot;
        self.number = number;
        self.members.clear();
        self.members.extend_from_slice(members);
        true
    }

    /// Returns whether votes in `ballot` travel along a ring that does not include this member,
    /// which then votes silently ([ring-8]).
    pub fn bypasses(&self, ballot: Ballot, own: Member) -> bool {
        self.is_laid(ballot) && !self.members.contains(&own)
    }

    /// Returns whether votes in `ballot` travel along a ring.
    pub fn is_laid(&self, ballot: Ballot) -> bool {
        self.ballot == ballot && !self.members.is_empty()
    }

    /// Returns the ring of `ballot`, with the leader last; empty if votes are sent directly.
    pub fn members(&self, ballot: Ballot) -> &[Member] {
        if self.ballot == ballot { &self.members } else { &[] }
    }

    /// Records that this node's vote has grown.
    pub fn votes(&mut self, now: Time) {
        self.own_is_unsent = true;
        self.waiting_since.get_or_insert(now);
    }

    /// Records votes of other members, in a ballot for which this member knows a ring. Only the
    /// newest entry of each member is stored, unchanged. The end of the newest votes of `class`
    /// becomes the goal for this node's own vote, unless there is a goal already.
    pub fn record_votes(&mut self, now: Time, own: Member, vote: &RingVote, class: Class) {
        if vote.ballot != self.ballot {
            return;
        }
        let mut goal = None;
        for entry in vote.entries.iter().filter(|entry| entry.member != own) {
            let known = self.member_votes.iter().position(|old| old.member == entry.member);
            match known {
                Some(at) if self.member_votes[at].ends() < entry.ends() => {
                    self.member_votes[at] = *entry
                }
                None if self.member_votes.len() < RING_MAX - 1 => self.member_votes.push(*entry),
                _ => continue,
            }
            goal = goal.max(Some(entry.to(class)));
        }
        if let Some(goal) = goal {
            // The first entry sets the goal. Otherwise, a member that always lags a little would
            // always wait.
            self.own_vote_goal.get_or_insert(goal);
            self.waiting_since.get_or_insert(now);
        }
    }

    /// [ring-6], [ring-7] Returns the action to take now, given that this node's vote extends to
    /// `own_to`. The caller sends the messages.
    pub fn next_action(&mut self, now: Time, own: Member, own_to: Slot) -> RelayAction {
        if !self.own_is_unsent && self.own_vote_goal.is_none() {
            return RelayAction::Nothing;
        }
        let place = self.members.iter().position(|member| *member == own);
        let say = match (place, self.own_vote_goal) {
            // There is no ring, or this node is not a member of it, so received votes go to the
            // leader.
            (None, Some(_)) => RelayAction::Forward(self.ballot.node),
            (None, None) if self.members.is_empty() => RelayAction::ToLeader,
            (None, None) => RelayAction::Nothing,
            (Some(at), goal) => {
                let covered = at == 0 || goal.is_some_and(|goal| own_to >= goal);
                let overdue =
                    self.waiting_since.is_some_and(|since| now.since_us(since) >= VOTE_HOLD_US_MAX);
                let next = self.members.get(at + 1).map_or(self.ballot.node, |member| member.node);
                match goal {
                    _ if covered => RelayAction::Forward(next),
                    Some(_) if overdue => RelayAction::Forward(next),
                    None if overdue => RelayAction::ToLeader,
                    _ => return RelayAction::Nothing,
                }
            }
        };
        self.own_is_unsent = false;
        self.own_vote_goal = None;
        self.waiting_since = None;
        say
    }

    /// Returns the latest time at which [`Relay::next_action`] must be called.
    pub fn wake_at(&self) -> Option<Time> {
        let waits = self.own_is_unsent || self.own_vote_goal.is_some();
        let since = self.waiting_since.filter(|_| waits && !self.members.is_empty());
        since.map(|since| since.plus_us(VOTE_HOLD_US_MAX))
    }

    /// Returns the votes that other members released, unchanged.
    pub fn received_votes(&self) -> RingVote {
        RingVote { ballot: self.ballot, entries: self.member_votes.clone() }
    }
}
