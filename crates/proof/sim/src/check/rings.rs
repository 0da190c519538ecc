//! A member's votes carried by a ring are, word for word, those that it released ([ring-2]).

use std::collections::BTreeSet;

use quorate_core::{
    ballot::Ballot,
    message::{RingEntry, RingVote},
    node_id::Member,
};

use super::{Verdict, Violation};

/// Votes released to rings by members.
#[derive(Debug, Default)]
pub struct Rings {
    released: BTreeSet<(Ballot, RingEntry)>,
    /// Number of votes of others passed on.
    relayed: u64,
}

impl Rings {
    /// Checks a message of a member.
    ///
    /// # Errors
    /// It carries a vote that its member never released.
    pub fn carries(&mut self, member: Member, vote: &RingVote) -> Verdict {
        for entry in &vote.entries {
            let said = (vote.ballot, *entry);
            if entry.member == member {
                self.released.insert(said);
            } else if self.released.contains(&said) {
                self.relayed += 1;
            } else {
                let detail = format!(
                    "node {member} carries {entry:?} in ballot {}, which no member released",
                    vote.ballot
                );
                return Err(Violation::new("rings", detail));
            }
        }
        Ok(())
    }

    /// Returns the number of votes of others passed on.
    pub const fn relayed(&self) -> u64 {
        self.relayed
    }
}
