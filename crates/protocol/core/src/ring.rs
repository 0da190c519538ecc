//! Ring: the route of votes to a leader, and what a member of it passes on. Liveness only.
//!
//! Members that form a phase-2 quorum hand their votes along, the leader last: each adds its own to
//! those that it received, word for word, so that one small message per member carries all of them
//! (Ring Paxos, §3). The others vote silently. A vote counts by whatever route it arrives: no
//! acceptor speaks for another, and nothing received becomes a vote by itself ([ring-2], [ring-4]).

use alloc::vec::Vec;

use crate::{
    ballot::Ballot,
    class::Class,
    message::{RingEntry, RingVote},
    node_id::{Member, NodeId},
    slot::Slot,
    time::Time,
};

/// Most members of a ring, and so entries of a ring vote.
pub const RING_MAX: usize = 16;
/// Time that a member waits for its predecessor's vote, or for its own, before it sends what it has
/// ([ring-6]).
pub const HOLD_US: u64 = 300;

/// Receiver of a vote.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Say {
    /// Nothing now.
    Nothing,
    /// The own vote, straight to the leader.
    Straight,
    /// The received votes, and the own vote with them, to this node.
    Onward(NodeId),
}

/// A member's side: the ring as its leader announced it, and votes on their way through this
/// member.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Relay {
    ballot: Ballot,
    number: u32,
    members: Vec<Member>,
    /// The newest votes of others in this ballot ([ring-2]).
    heard: Vec<RingEntry>,
    /// End of the votes that were received and not passed on: the own vote should cover this before
    /// they go.
    goal: Option<Slot>,
    /// The own vote is news.
    own: bool,
    /// Since when something waits.
    since: Option<Time>,
}

impl Relay {
    /// Lays the ring of `ballot`, or none: returns whether that was news. An older one is void;
    /// votes that took it are not ([ring-1]).
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

    /// Returns whether votes in `ballot` go along a ring that this member is not in: it votes
    /// silently ([ring-8]).
    pub fn spares(&self, ballot: Ballot, own: Member) -> bool {
        self.is_laid(ballot) && !self.members.contains(&own)
    }

    /// Returns whether votes in `ballot` go along a ring.
    pub fn is_laid(&self, ballot: Ballot) -> bool {
        self.ballot == ballot && !self.members.is_empty()
    }

    /// Returns the ring of `ballot`, leader last; empty if votes go directly.
    pub fn members(&self, ballot: Ballot) -> &[Member] {
        if self.ballot == ballot { &self.members } else { &[] }
    }

    /// Notes that the own vote has grown.
    pub fn votes(&mut self, now: Time) {
        self.own = true;
        self.since.get_or_insert(now);
    }

    /// Notes votes of others that came by, in a ballot that this member knows a ring of. Of each
    /// the newest is kept, whole; `class` chooses the end that counts as news.
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
            // The need of the first of them: a member that always lags a little would else always
            // wait.
            self.goal.get_or_insert(goal);
            self.since.get_or_insert(now);
        }
    }

    /// [ring-6], [ring-7] Returns what is to be sent now, the own vote being as far as `own_to`.
    /// The caller sends it.
    pub fn turn(&mut self, now: Time, own: Member, own_to: Slot) -> Say {
        if !self.own && self.goal.is_none() {
            return Say::Nothing;
        }
        let place = self.members.iter().position(|member| *member == own);
        let say = match (place, self.goal) {
            // No ring, or not in it: what came here all the same goes where it has to.
            (None, Some(_)) => Say::Onward(self.ballot.node),
            (None, None) if self.members.is_empty() => Say::Straight,
            (None, None) => Say::Nothing,
            (Some(at), goal) => {
                let covered = at == 0 || goal.is_some_and(|goal| own_to >= goal);
                let overdue = self.since.is_some_and(|since| now.since_us(since) >= HOLD_US);
                let next = self.members.get(at + 1).map_or(self.ballot.node, |member| member.node);
                match goal {
                    _ if covered => Say::Onward(next),
                    Some(_) if overdue => Say::Onward(next),
                    None if overdue => Say::Straight,
                    _ => return Say::Nothing,
                }
            }
        };
        self.own = false;
        self.goal = None;
        self.since = None;
        say
    }

    /// Returns when [`Relay::turn`] is due at the latest.
    pub fn wake_at(&self) -> Option<Time> {
        let waits = self.own || self.goal.is_some();
        let since = self.since.filter(|_| waits && !self.members.is_empty());
        since.map(|since| since.plus_us(HOLD_US))
    }

    /// Bundles the votes that others released, word for word.
    pub fn bundle(&self) -> RingVote {
        RingVote { ballot: self.ballot, entries: self.heard.clone() }
    }
}
