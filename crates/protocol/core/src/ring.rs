//! Ring: the route of votes to a leader, and what a member passes on. Liveness only.
//!
//! Members that form a phase-2 quorum pass their votes along, the leader last. Each adds its own
//! vote to those it received, unchanged, so one small message per member carries all of them (Ring
//! Paxos, §3). The others vote silently. A vote counts by whatever route it arrives: no acceptor
//! speaks for another, and nothing received becomes a vote by itself ([ring-2], [ring-4]).

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
/// Time in microseconds that a member waits for its predecessor's vote, or for its own, before it
/// sends what it has ([ring-6]).
pub const HOLD_US: u64 = 300;

/// A message to send on the ring, and its receiver.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RelayAction {
    /// Nothing now.
    Nothing,
    /// This node's vote, directly to the leader.
    Straight,
    /// The received votes and this node's, to this node.
    Onward(NodeId),
}

/// A member's side: the ring announced by the leader, and votes that pass through this member.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Relay {
    ballot: Ballot,
    number: u32,
    members: Vec<Member>,
    /// The newest votes of other members in this ballot ([ring-2]).
    heard: Vec<RingEntry>,
    /// End of the votes received but not passed on; this node's vote should reach it before they
    /// are sent.
    goal: Option<Slot>,
    /// This node's vote has grown since it was last sent.
    own: bool,
    /// Time since which something waits to be sent.
    since: Option<Time>,
}

impl Relay {
    /// Sets the ring of `ballot`, or none if `members` is empty. Returns whether it was newer than
    /// the known one. Votes that travelled along an older ring remain valid ([ring-1]).
    pub fn lay(&mut self, ballot: Ballot, number: u32, members: &[Member]) -> bool {
        if (ballot, number) <= (self.ballot, self.number) {
            return false;
        }
        if ballot != self.ballot {
            self.heard.clear();
            self.goal = None;
        }
        self.ballot = ballot;
        self.number = number;
        self.members.clear();
        self.members.extend_from_slice(members);
        true
    }

    /// Returns whether votes in `ballot` travel along a ring that does not include this member,
    /// which then votes silently ([ring-8]).
    pub fn spares(&self, ballot: Ballot, own: Member) -> bool {
        self.is_laid(ballot) && !self.members.contains(&own)
    }

    /// Returns whether votes in `ballot` travel along a ring.
    pub fn is_laid(&self, ballot: Ballot) -> bool {
        self.ballot == ballot && !self.members.is_empty()
    }

    /// Returns the ring of `ballot`, the leader last; empty if votes are sent directly.
    pub fn members(&self, ballot: Ballot) -> &[Member] {
        if self.ballot == ballot { &self.members } else { &[] }
    }

    /// Records that this node's vote has grown.
    pub fn votes(&mut self, now: Time) {
        self.own = true;
        self.since.get_or_insert(now);
    }

    /// Records votes of other members, in a ballot for which this member knows a ring. The newest
    /// entry per member is kept, unchanged; `class` selects the end that must grow.
    pub fn hear(&mut self, now: Time, own: Member, vote: &RingVote, class: Class) {
        if vote.ballot != self.ballot {
            return;
        }
        let mut goal = None;
        for entry in vote.entries.iter().filter(|entry| entry.member != own) {
            let known = self.heard.iter().position(|old| old.member == entry.member);
            match known {
                Some(at) if self.heard[at].ends() < entry.ends() => self.heard[at] = *entry,
                None if self.heard.len() < RING_MAX - 1 => self.heard.push(*entry),
                _ => continue,
            }
            goal = goal.max(Some(entry.to(class)));
        }
        if let Some(goal) = goal {
            // The first entry sets the goal; otherwise a member that always lags a little would
            // always wait.
            self.goal.get_or_insert(goal);
            self.since.get_or_insert(now);
        }
    }

    /// [ring-6], [ring-7] Returns what to send now, given that this node's vote extends to
    /// `own_to`. The caller sends it.
    pub fn turn(&mut self, now: Time, own: Member, own_to: Slot) -> RelayAction {
        if !self.own && self.goal.is_none() {
            return RelayAction::Nothing;
        }
        let place = self.members.iter().position(|member| *member == own);
        let say = match (place, self.goal) {
            // No ring, or not a member of it: received votes go to the leader.
            (None, Some(_)) => RelayAction::Onward(self.ballot.node),
            (None, None) if self.members.is_empty() => RelayAction::Straight,
            (None, None) => RelayAction::Nothing,
            (Some(at), goal) => {
                let covered = at == 0 || goal.is_some_and(|goal| own_to >= goal);
                let overdue = self.since.is_some_and(|since| now.since_us(since) >= HOLD_US);
                let next = self.members.get(at + 1).map_or(self.ballot.node, |member| member.node);
                match goal {
                    _ if covered => RelayAction::Onward(next),
                    Some(_) if overdue => RelayAction::Onward(next),
                    None if overdue => RelayAction::Straight,
                    _ => return RelayAction::Nothing,
                }
            }
        };
        self.own = false;
        self.goal = None;
        self.since = None;
        say
    }

    /// Returns the latest time at which [`Relay::turn`] must be called.
    pub fn wake_at(&self) -> Option<Time> {
        let waits = self.own || self.goal.is_some();
        let since = self.since.filter(|_| waits && !self.members.is_empty());
        since.map(|since| since.plus_us(HOLD_US))
    }

    /// Returns the votes released by other members, unchanged.
    pub fn bundle(&self) -> RingVote {
        RingVote { ballot: self.ballot, entries: self.heard.clone() }
    }
}
