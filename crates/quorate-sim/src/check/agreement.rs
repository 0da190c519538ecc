//! Per slot one chosen value, computed from what all disks together hold; nothing else is applied.
//!
//! A god's-eye view: it reads every record that any node made durable, in the order of the log, and
//! counts votes as no node can. [ballot-2], [class-1], [decide-1].

use std::collections::{BTreeMap, BTreeSet};

use quorate_core::{
    ballot::Ballot,
    configuration::Configuration,
    node_id::Member,
    quorum::{MemberSet, Phase},
    reconfigure::Eras,
    slot::{Slot, SlotRange},
    value::Value,
};

use super::{Verdict, Violation};

/// Votes for one slot in one ballot.
#[derive(Clone, Debug)]
struct Votes {
    value: Value,
    by: BTreeSet<Member>,
}

/// All durable votes.
#[derive(Debug)]
pub struct Agreement {
    /// The eras from each slot on that began one; what judges a slot is the last at or below it.
    eras: Vec<(Slot, Eras)>,
    votes: BTreeMap<Slot, BTreeMap<Ballot, Votes>>,
    chosen: BTreeMap<Slot, (Ballot, Value)>,
    /// Every slot below is chosen.
    chosen_to: Slot,
}

impl Agreement {
    /// Nobody voted yet.
    pub fn new(founding: Configuration) -> Self {
        Self {
            eras: vec![(Slot::FIRST, Eras::founded(founding))],
            votes: BTreeMap::new(),
            chosen: BTreeMap::new(),
            chosen_to: Slot::FIRST,
        }
    }

    /// A vote became durable.
    ///
    /// # Errors
    /// Two values in one ballot, or two chosen values.
    pub fn vote(
        &mut self,
        member: Member,
        ballot: Ballot,
        range: SlotRange,
        value: Value,
    ) -> Verdict {
        for slot in range.from.0..range.to.0 {
            self.vote_one(member, ballot, Slot(slot), value)?;
        }
        // [decide-1] What judges a slot is known when all before it are chosen.
        while let Some((ballot, value)) = self.quorum_in(self.chosen_to) {
            let slot = self.chosen_to;
            self.chosen.insert(slot, (ballot, value));
            self.chosen_to = slot.next();
            let (_, last) = self.eras.last().expect("the founding is one");
            let mut eras = last.clone();
            if eras.decide(slot, &value) {
                self.eras.push((slot.next(), eras));
            }
        }
        Ok(())
    }

    fn vote_one(&mut self, member: Member, ballot: Ballot, slot: Slot, value: Value) -> Verdict {
        let votes = self.votes.entry(slot).or_default();
        let votes = votes.entry(ballot).or_insert_with(|| Votes {
            value,
            by: BTreeSet::new(),
        });
        if votes.value != value {
            let detail = format!("slot {slot}, ballot {ballot}: {} and {value}", votes.value);
            return Err(Violation::new("agreement", detail));
        }
        votes.by.insert(member);
        let Some((first, chosen)) = self.chosen.get(&slot) else {
            return Ok(());
        };
        if *chosen == value || !self.is_quorum(slot, ballot) {
            return Ok(());
        }
        let detail = format!("slot {slot}: {chosen} was chosen in {first}, {value} in {ballot}");
        Err(Violation::new("agreement", detail))
    }

    /// The ballot in which a slot's votes are a quorum, and for what.
    fn quorum_in(&self, slot: Slot) -> Option<(Ballot, Value)> {
        let mut ballots = self.votes.get(&slot)?.iter();
        let decided = ballots.find(|(ballot, _)| self.is_quorum(slot, **ballot));
        decided.map(|(ballot, votes)| (*ballot, votes.value))
    }

    /// [era-5], [class-4] Whether the votes of this ballot decide a slot below which all is chosen.
    fn is_quorum(&self, slot: Slot, ballot: Ballot) -> bool {
        let at = self.eras.partition_point(|(from, _)| *from <= slot);
        let (_, eras) = &self.eras[at - 1];
        let votes = self.votes.get(&slot).and_then(|votes| votes.get(&ballot));
        let members = eras.current().members().iter().enumerate();
        let voted = members
            .filter(|(_, voter)| votes.is_some_and(|votes| votes.by.contains(&voter.member)));
        let set = voted.fold(MemberSet::default(), |set, (index, _)| set.with(index));
        eras.counts(ballot) && eras.current().is_quorum(Phase::Two, set)
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
