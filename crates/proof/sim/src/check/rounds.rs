//! No ballot is used in two lives of a node ([ballot-2]), and within a life eras only grow.

use std::collections::BTreeMap;

use quorate_core::{
    ballot::{Ballot, Era},
    slot::Slot,
};

use super::{Verdict, Violation};

/// Owner of each used ballot, and the last positions of each node.
#[derive(Debug, Default)]
pub struct Rounds {
    used: BTreeMap<Ballot, u64>,
    eras: BTreeMap<(usize, u64), Era>,
    decided: BTreeMap<(usize, u64), Slot>,
}

impl Rounds {
    /// A node, in this life, asked for promises in a ballot or proposed in it.
    ///
    /// # Errors
    /// An earlier life of it did, or the ballot is not its own.
    pub fn used(&mut self, node: usize, life: u64, ballot: Ballot) -> Verdict {
        if usize::try_from(ballot.node.0) != Ok(node + 1) {
            return Err(Violation::new(
                "rounds",
                format!("node {} used ballot {ballot}", node + 1),
            ));
        }
        let known = *self.used.entry(ballot).or_insert(life);
        if known == life {
            return Ok(());
        }
        Err(Violation::new("rounds", format!("ballot {ballot} was used in two lives of its node")))
    }

    /// Checks a node's report of its own state.
    ///
    /// # Errors
    /// Its era or its decided prefix went back.
    pub fn status(&mut self, node: usize, life: u64, era: Era, decided_to: Slot) -> Verdict {
        let known = self.eras.entry((node, life)).or_default();
        if era < *known {
            return Err(Violation::new(
                "rounds",
                format!("node {} went back to era {era}", node + 1),
            ));
        }
        *known = era;
        let known = self.decided.entry((node, life)).or_default();
        if decided_to < *known {
            let detail = format!("node {} went back to slot {decided_to} from {known}", node + 1);
            return Err(Violation::new("rounds", detail));
        }
        *known = decided_to;
        Ok(())
    }
}
