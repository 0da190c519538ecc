//! What a ring carries of a member is, word for word, what that member released ([ring-2]).

use std::collections::BTreeSet;

use quorate_core::{
    ballot::Ballot,
    message::{RingEntry, RingVote},
    node_id::Member,
};

use super::{Verdict, Violation};

/// What members released to rings.
#[derive(Debug, Default)]
pub struct Rings {
    released: BTreeSet<(Ballot, RingEntry)>,
    /// How many votes of others were passed on.
    relayed: u64,
}

impl Rings {
    /// A member said this.
    ///
    /// # Errors
    /// It carries a vote that nobody released.
    pub fn carries(&mut self, member: Member, vote: &RingVote) -> Verdict {
        for entry in &vote.entries {
            let said = (vote.ballot, *entry);
            if entry.member == member {
                self.released.insert(said);
            } else if self.released.contains(&said) {
                self.relayed += 1;
            } else {
                let detail = format!(
                    "node {member} carries {entry:?} in ballot {}, which nobody released",
                    vote.ballot
                );
                return Err(Violation::new("rings", detail));
            }
        }
        Ok(())
    }

    /// How many votes of others were passed on.
    pub const fn relayed(&self) -> u64 {
        self.relayed
    }
}
