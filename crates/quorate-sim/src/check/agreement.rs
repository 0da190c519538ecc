//! Per slot one chosen value, computed from what all disks together hold; nothing else is applied.
//!
//! A god's-eye view: it reads every record that any node made durable, in the order of the log, and
//! counts votes as no node can. [ballot-2], [class-1], [decide-1].

use std::collections::BTreeMap;

use quorate_core::{
    ballot::Ballot,
    configuration::Configuration,
    quorum::QuorumRule,
    slot::{Slot, SlotRange},
    value::Value,
};

use super::{Verdict, Violation};

/// Votes for one slot in one ballot.
#[derive(Clone, Copy, Debug)]
struct Votes {
    value: Value,
    /// Voters, by index, as bits.
    by: u32,
}

/// All durable votes.
#[derive(Debug)]
pub struct Agreement {
    founding: Configuration,
    votes: BTreeMap<Slot, BTreeMap<Ballot, Votes>>,
    chosen: BTreeMap<Slot, (Ballot, Value)>,
    /// Every slot below is chosen.
    chosen_to: Slot,
}

impl Agreement {
    /// Nobody voted yet; members have equal weight, and are in the order of the nodes.
    pub fn new(founding: Configuration) -> Self {
        Self {
            founding,
            votes: BTreeMap::new(),
            chosen: BTreeMap::new(),
            chosen_to: Slot::FIRST,
        }
    }

    /// A vote became durable.
    ///
    /// # Errors
    /// Two values in one ballot, or two chosen values.
    pub fn vote(&mut self, node: usize, ballot: Ballot, range: SlotRange, value: Value) -> Verdict {
        for slot in range.from.0..range.to.0 {
            self.vote_one(node, ballot, Slot(slot), value)?;
        }
        while self.chosen.contains_key(&self.chosen_to) {
            self.chosen_to = self.chosen_to.next();
        }
        Ok(())
    }

    fn vote_one(&mut self, node: usize, ballot: Ballot, slot: Slot, value: Value) -> Verdict {
        let votes = self.votes.entry(slot).or_default();
        let votes = votes.entry(ballot).or_insert(Votes { value, by: 0 });
        if votes.value != value {
            let detail = format!("slot {slot}, ballot {ballot}: {} and {value}", votes.value);
            return Err(Violation::new("agreement", detail));
        }
        votes.by |= 1 << node;
        // By arithmetic of its own.
        let (by, all) = (votes.by.count_ones(), self.founding.members().len());
        let chosen = match self.founding.rule() {
            QuorumRule::Flexible { phase2, .. } => by >= phase2,
            QuorumRule::Majority | QuorumRule::Grid { .. } => 2 * by as usize > all,
        };
        if !chosen {
            return Ok(());
        }
        let (first, chosen) = *self.chosen.entry(slot).or_insert((ballot, value));
        if chosen == value {
            return Ok(());
        }
        let detail = format!("slot {slot}: {chosen} was chosen in {first}, {value} in {ballot}");
        Err(Violation::new("agreement", detail))
    }

    /// A node learned a decision from another and made it durable.
    ///
    /// # Errors
    /// Something else was chosen.
    pub fn learned(&self, node: usize, range: SlotRange, value: Value) -> Verdict {
        for slot in range.from.0..range.to.0 {
            if let Some((ballot, chosen)) = self.chosen.get(&Slot(slot))
                && *chosen != value
            {
                let who = node + 1;
                let detail = format!(
                    "node {who} learned {value} in slot {slot}; {chosen} was chosen in {ballot}"
                );
                return Err(Violation::new("agreement", detail));
            }
        }
        Ok(())
    }

    /// A node applied every slot below `applied_to`; in a durable group all of them are chosen by
    /// votes on stable storage ([class-1], [p2-4]).
    ///
    /// # Errors
    /// One of them is not.
    pub fn applied(&self, node: usize, applied_to: Slot) -> Verdict {
        if applied_to <= self.chosen_to {
            return Ok(());
        }
        let detail = format!(
            "node {} applied slots below {applied_to}, but slot {} is not on stable storage at a quorum",
            node + 1,
            self.chosen_to
        );
        Err(Violation::new("acknowledged", detail))
    }

    /// What was chosen in a slot.
    pub fn chosen(&self, slot: Slot) -> Option<Value> {
        self.chosen.get(&slot).map(|(_, value)| *value)
    }

    /// Every slot below is chosen.
    pub fn chosen_to(&self) -> Slot {
        self.chosen_to
    }
}
