//! Per slot one chosen value, computed from what all disks together hold; nothing else is applied.
//!
//! A god's-eye view: it reads every record that any node made durable, in the order of the log, and
//! counts votes as no node can. [ballot-2], [class-1], [decide-1].

use std::collections::{BTreeMap, BTreeSet};

use quorate_core::{
    ballot::Ballot,
    configuration::{Configuration, Voter},
    node_id::Member,
    reconfigure::Eras,
    slot::{Slot, SlotRange},
    value::Value,
};

use super::{Verdict, Violation, is_quorum};

/// Votes in one ballot.
#[derive(Clone, Debug)]
struct Votes {
    value: Value,
    by: BTreeSet<Member>,
}

/// Slots that always had the same votes: a run of a stream has a slot for each byte.
#[derive(Clone, Debug)]
struct Extent {
    to: Slot,
    votes: BTreeMap<Ballot, Votes>,
    chosen: Option<(Ballot, Value)>,
}

/// All durable votes.
#[derive(Debug)]
pub struct Agreement {
    /// The eras from each slot on that began one; what judges a slot is the last at or below it.
    eras: Vec<(Slot, Eras)>,
    /// By their first slots; together they are all slots with a vote.
    extents: BTreeMap<Slot, Extent>,
    /// Every slot below is chosen.
    chosen_to: Slot,
}

impl Agreement {
    /// Returns the state before any vote.
    pub fn new(founding: Configuration) -> Self {
        Self {
            eras: vec![(Slot::FIRST, Eras::founded(founding))],
            extents: BTreeMap::new(),
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
        self.cut(range);
        for (from, extent) in self.extents.range_mut(range.from..range.to) {
            let votes =
                extent.votes.entry(ballot).or_insert_with(|| Votes { value, by: BTreeSet::new() });
            if votes.value != value {
                let detail = format!("slot {from}, ballot {ballot}: {} and {value}", votes.value);
                return Err(Violation::new("agreement", detail));
            }
            votes.by.insert(member);
        }
        for (from, extent) in self.extents.range(range.from..range.to) {
            let Some((first, chosen)) = extent.chosen else {
                continue;
            };
            if chosen != value && self.is_quorum(*from, extent, ballot) {
                let detail =
                    format!("slot {from}: {chosen} was chosen in {first}, {value} in {ballot}");
                return Err(Violation::new("agreement", detail));
            }
        }
        self.choose();
        Ok(())
    }

    /// [decide-1] Advances the chosen prefix: the configuration that judges a slot is known when
    /// all before it are chosen.
    fn choose(&mut self) {
        while let Some(extent) = self.extents.get(&self.chosen_to)
            && let Some((ballot, value)) = self.quorum_in(self.chosen_to, extent)
        {
            let (first, to) = (self.chosen_to, extent.to);
            let extent = self.extents.get_mut(&first).expect("just seen");
            extent.chosen = Some((ballot, value));
            self.chosen_to = to;
            let (_, last) = self.eras.last().expect("the founding is one");
            let mut eras = last.clone();
            // What changes a configuration has one slot, and so an extent of its own.
            if eras.decide(first, &value) {
                self.eras.push((to, eras));
            }
        }
    }

    /// Sees to it that extents begin and end where this range does, and cover it.
    fn cut(&mut self, range: SlotRange) {
        for at in [range.from, range.to] {
            if let Some((_, extent)) = self.extents.range_mut(..at).next_back()
                && extent.to > at
            {
                let behind = extent.clone();
                extent.to = at;
                self.extents.insert(at, behind);
            }
        }
        let mut at = range.from;
        while at < range.to {
            let next = self.extents.range(at..range.to).next();
            match next.map(|(from, extent)| (*from, extent.to)) {
                Some((from, to)) if from == at => at = to,
                next => {
                    let to = next.map_or(range.to, |(from, _)| from);
                    let (votes, chosen) = (BTreeMap::new(), None);
                    self.extents.insert(at, Extent { to, votes, chosen });
                    at = to;
                }
            }
        }
    }

    /// Returns the ballot in which the votes of these slots are a quorum, and the value.
    fn quorum_in(&self, from: Slot, extent: &Extent) -> Option<(Ballot, Value)> {
        let mut ballots = extent.votes.iter();
        let decided = ballots.find(|(ballot, _)| self.is_quorum(from, extent, **ballot));
        decided.map(|(ballot, votes)| (*ballot, votes.value))
    }

    /// [era-5], [class-4] Returns whether the votes of this ballot decide slots below which all is
    /// chosen.
    fn is_quorum(&self, from: Slot, extent: &Extent, ballot: Ballot) -> bool {
        let at = self.eras.partition_point(|(begin, _)| *begin <= from);
        let (_, eras) = &self.eras[at - 1];
        let votes = extent.votes.get(&ballot);
        let voted = |voter: &Voter| votes.is_some_and(|votes| votes.by.contains(&voter.member));
        eras.counts(ballot) && is_quorum(eras.current(), voted)
    }

    /// A node learned a decision from another and made it durable.
    ///
    /// # Errors
    /// Something else was chosen.
    pub fn learned(&self, node: usize, range: SlotRange, value: Value) -> Verdict {
        for (from, chosen) in self.chosen_in(range) {
            if let Some((ballot, chosen)) = chosen
                && chosen != value
            {
                let (who, slot) = (node + 1, from.max(range.from));
                let detail = format!(
                    "node {who} learned {value} in slot {slot}; {chosen} was chosen in {ballot}"
                );
                return Err(Violation::new("agreement", detail));
            }
        }
        Ok(())
    }

    /// Extents that have slots in this range, by their first slots, and what was chosen in them.
    fn chosen_in(
        &self,
        range: SlotRange,
    ) -> impl Iterator<Item = (Slot, Option<(Ballot, Value)>)> + '_ {
        let before = self.extents.range(..range.from).next_back();
        let before = before.filter(move |(_, extent)| extent.to > range.from);
        let within = self.extents.range(range.from..range.to);
        let all = before.into_iter().chain(within);
        all.map(|(from, extent)| (*from, extent.chosen))
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

    /// Returns the value chosen in a slot.
    pub fn chosen(&self, slot: Slot) -> Option<Value> {
        let mut chosen = self.chosen_in(SlotRange::new(slot, slot.next()));
        chosen.find_map(|(_, chosen)| Some(chosen?.1))
    }

    /// Returns the end of the chosen prefix.
    pub fn chosen_to(&self) -> Slot {
        self.chosen_to
    }
}
