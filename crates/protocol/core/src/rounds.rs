//! Round numbers for a node's own ballots. No round is ever used twice. Safety lives here.

use crate::{
    ballot::{Ballot, Era},
    node_id::Member,
};

/// Number of rounds reserved for one incarnation in an era, so that its rounds never overlap those
/// of the next incarnation.
const ROUNDS_PER_INCARNATION: u32 = 1 << 20;

/// State that determines the next ballot of this node.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Rounds {
    own_member: Member,
    /// Highest of the node's own ballots that has been recorded ([ballot-2]).
    last_used_ballot: Ballot,
}

impl Rounds {
    /// Creates the rounds of `own`. `spoken` is the highest of the member's ballots that has been
    /// recorded.
    pub fn new(own: Member, spoken: Ballot) -> Self {
        Self { own_member: own, last_used_ballot: spoken }
    }

    /// Returns the highest of this node's own ballots that has been recorded.
    pub fn last_used_ballot(&self) -> Ballot {
        self.last_used_ballot
    }

    /// Records that this ballot is now used.
    pub fn record_used(&mut self, ballot: Ballot) {
        self.last_used_ballot = ballot;
    }

    /// [ballot-2] Returns the end of the rounds that earlier incarnations may have used and
    /// forgotten; `None` if all rounds are used up. New rounds must be above it.
    fn possibly_used_to(&self) -> Option<u32> {
        let incarnation = self.own_member.incarnation.0;
        incarnation.checked_mul(ROUNDS_PER_INCARNATION)
    }

    /// [ballot-1] Returns whether this node has used up its rounds and can never campaign again, in
    /// any era.
    pub fn are_used_up(&self) -> bool {
        self.possibly_used_to().is_none()
    }

    /// Returns this node's next ballot in `era`; `None` if it may not start one ([ballot-1],
    /// [ballot-3]). The ballot is above the node's promise and above `seen`, the highest round seen
    /// in this era.
    pub fn next_ballot(&self, era: Era, promised: Ballot, seen: u32) -> Option<Ballot> {
        let of = |ballot: Ballot| if ballot.era == era { ballot.round } else { 0 };
        let forgotten = self.possibly_used_to()?;
        let used = of(self.last_used_ballot).max(of(promised)).max(seen).max(forgotten);
        let round = used.checked_add(1)?;
        let ballot = Ballot { era, round, node: self.own_member.node };
        (ballot > promised && ballot > self.last_used_ballot).then_some(ballot)
    }
}
