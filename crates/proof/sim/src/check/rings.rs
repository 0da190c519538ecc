//! Votes forwarded by a ring are identical to those that the voting members released, byte for byte
//! ([ring-2]).

use std::collections::BTreeSet;

use quorate_core::{
    ballot::Ballot,
    message::{RingEntry, RingVote},
    node_id::Member,
};

use super::{Verdict, Violation};

/// Votes that members released into rings.
#[derive(Debug, Default)]
pub struct RingVotes {
    released: BTreeSet<(Ballot, RingEntry)>,
    /// Number of votes forwarded for other members.
    relayed_count: u64,
}

impl RingVotes {
    /// Checks that each vote in a ring message is one that its voter released.
    pub fn check_carried(&mut self, member: Member, vote: &RingVote) -> Verdict {
        for entry in &vote.entries {
            let said = (vote.ballot, *entry);
            if entry.member == member {
                self.released.insert(said);
            } else if self.released.contains(&said) {
                self.relayed_count += 1;
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

    pub const fn relayed_count(&self) -> u64 {
        self.relayed_count
    }
}
