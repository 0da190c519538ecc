//! Promises only rise, no vote contradicts one, and a restart forgets neither ([p1-2], [p2-1],
//! [volatile-1]).

use std::collections::BTreeMap;

use quorate_core::{ballot::Ballot, node_id::Member};

use super::{Verdict, Violation};

/// Highest promise that each member sent or wrote down.
#[derive(Debug, Default)]
pub struct Promises {
    spoken: BTreeMap<Member, Ballot>,
    written: BTreeMap<Member, Ballot>,
}

impl Promises {
    /// Records that a member reported a promise or a vote in this ballot.
    pub fn record_sent(&mut self, member: Member, ballot: Ballot) {
        let known = self.spoken.entry(member).or_default();
        *known = (*known).max(ballot);
    }

    /// Checks a promise or vote that became durable; records arrive in log order.
    ///
    /// # Errors
    /// It is below an earlier one.
    pub fn wrote(&mut self, member: Member, ballot: Ballot) -> Verdict {
        let known = self.written.entry(member).or_default();
        if ballot < *known {
            let detail = format!("node {member} wrote {ballot} behind a promise of {known}");
            return Err(Violation::new("promises", detail));
        }
        *known = ballot;
        Ok(())
    }

    /// Checks the promise that a member remembers after a restart.
    ///
    /// # Errors
    /// The member had reported a higher one.
    pub fn recovered(&self, member: Member, promised: Ballot) -> Verdict {
        let spoken = self.spoken.get(&member).copied().unwrap_or_default();
        if promised >= spoken {
            return Ok(());
        }
        let detail = format!("node {member} remembers {promised}, but had promised {spoken}");
        Err(Violation::new("promises", detail))
    }
}
