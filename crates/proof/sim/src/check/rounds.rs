//! No ballot is used by two lives of a node ([ballot-2]), and eras never decrease within a life.

use std::collections::BTreeMap;

use quorate_core::{
    ballot::{Ballot, Era},
    slot::Slot,
};

use super::{Verdict, Violation};

/// Life that used each ballot, and the latest era and decided prefix of each life.
#[derive(Debug, Default)]
pub struct BallotUse {
    ballot_lives: BTreeMap<Ballot, u64>,
    eras: BTreeMap<(usize, u64), Era>,
    decided_to: BTreeMap<(usize, u64), Slot>,
}

impl BallotUse {
    /// Checks a ballot in which a node requested promises or proposed values: it is the node's own,
    /// and no earlier life used it.
    pub fn check_ballot(&mut self, node: usize, life: u64, ballot: Ballot) -> Verdict {
        if usize::try_from(ballot.node.0) != Ok(node + 1) {
            return Err(Violation::new(
                "rounds",
                format!("node {} used ballot {ballot}", node + 1),
            ));
        }
        let known = *self.ballot_lives.entry(ballot).or_insert(life);
        if known == life {
            return Ok(());
        }
        Err(Violation::new("rounds", format!("ballot {ballot} was used in two lives of its node")))
    }

    /// Checks that the era and the decided prefix that a node reports do not decrease within a
    /// life.
    pub fn check_status(&mut self, node: usize, life: u64, era: Era, decided_to: Slot) -> Verdict {
        let known = self.eras.entry((node, life)).or_default();
        if era < *known {
            return Err(Violation::new(
                "rounds",
                format!("node {} went back to era {era}", node + 1),
            ));
        }
        *known = era;
        let known = self.decided_to.entry((node, life)).or_default();
        if decided_to < *known {
            let detail = format!("node {} went back to slot {decided_to} from {known}", node + 1);
            return Err(Violation::new("rounds", detail));
        }
        *known = decided_to;
        Ok(())
    }
}
