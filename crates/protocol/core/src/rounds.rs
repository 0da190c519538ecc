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
    own: Member,
    /// Highest of the node's own ballots that has been recorded ([ballot-2]).
    spoken: Ballot,
}

impl Rounds {
    /// Creates the rounds of `own`. `spoken` is the highest of the member's ballots that has been
    /// recorded.
    pub fn new(own: Member, spoken: Ballot) -> Self {
        Self { own, spoken }
    }

    /// Returns the highest of this node's own ballots that has been recorded.
    pub fn spoken(&self) -> Ballot {
        self.spoken
    }

    /// Records that this ballot is now used.
    pub fn speak(&mut self, ballot: Ballot) {
        self.spoken = ballot;
    }

    /// [ballot-2] Returns the end of the rounds that earlier incarnations may have used and
    /// forgotten; `None` if all rounds are used up. New rounds must be above it.
    fn forgotten(&self) -> Option<u32> {
        let incarnation = self.own.incarnation.0;
        incarnation.checked_mul(ROUNDS_PER_INCARNATION)
    }

    /// [ballot-1] Returns whether this node has used up its rounds and can never campaign again, in
    /// any era.
    pub fn are_used_up(&self) -> bool {
        self.forgotten().is_none()
    }

    /// Returns this node's next ballot in `era`; `None` if it may not start one ([ballot-1],
    /// [ballot-3]). The ballot is above the node's promise and above `seen`, the highest round seen
    /// in this era.
    pub fn next_ballot(&self, era: Era, promised: Ballot, seen: u32) -> Option<Ballot> {
        let of = |ballot: Ballot| if ballot.era == era { ballot.round } else { 0 };
        let forgotten = self.forgotten()?;
        let used = of(self.spoken).max(of(promised)).max(seen).max(forgotten);
        let round = used.checked_add(1)?;
        let ballot = Ballot { era, round, node: self.own.node };
        (ballot > promised && ballot > self.spoken).then_some(ballot)
    }
}
