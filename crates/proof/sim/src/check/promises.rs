//! Promises never decrease, no vote contradicts a promise, and a restart forgets neither votes nor
//! promises ([p1-2], [p2-1], [volatile-1]).

use std::collections::BTreeMap;

use quorate_core::{ballot::Ballot, node_id::Member};

use super::{Verdict, Violation};

/// Highest promise that each member sent or made durable.
#[derive(Debug, Default)]
pub struct Promises {
    sent: BTreeMap<Member, Ballot>,
    durable: BTreeMap<Member, Ballot>,
}

impl Promises {
    /// Records that a member sent a promise or a vote in this ballot.
    pub fn record_sent(&mut self, member: Member, ballot: Ballot) {
        let known = self.sent.entry(member).or_default();
        *known = (*known).max(ballot);
    }

    /// Checks that a promise or vote that became durable is not below an earlier one. Records
    /// arrive in log order.
    pub fn check_durable(&mut self, member: Member, ballot: Ballot) -> Verdict {
        let known = self.durable.entry(member).or_default();
        if ballot < *known {
            let detail = format!("node {member} wrote {ballot} behind a promise of {known}");
            return Err(Violation::new("promises", detail));
        }
        *known = ballot;
        Ok(())
    }

    /// Checks that a restarted member remembers a promise no lower than any that it sent.
    pub fn check_recovered(&self, member: Member, promised: Ballot) -> Verdict {
        let spoken = self.sent.get(&member).copied().unwrap_or_default();
        if promised >= spoken {
            return Ok(());
        }
        let detail = format!("node {member} remembers {promised}, but had promised {spoken}");
        Err(Violation::new("promises", detail))
    }
}
