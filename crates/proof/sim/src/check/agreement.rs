//! Agreement: at most one value is chosen in each slot, and only chosen values are applied. The
//! checker computes the chosen values from all disks together.
//!
//! This is a global view: the checker reads every record that any node made durable, in log order,
//! and counts votes as no single node can. [ballot-2], [class-1], [decide-1].

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

/// Votes of all members in one ballot.
#[derive(Clone, Debug)]
struct BallotVotes {
    value: Value,
    members: BTreeSet<Member>,
}

/// Consecutive slots with identical votes. A run of a stream has one slot per byte.
#[derive(Clone, Debug)]
struct Extent {
    end: Slot,
    votes: BTreeMap<Ballot, BallotVotes>,
    chosen_value: Option<(Ballot, Value)>,
}

/// Durable votes of all members, and the values chosen by them.
#[derive(Debug)]
pub struct Agreement {
    /// Eras by the slot at which they begin. For each slot, the last entry at or below it applies.
    eras: Vec<(Slot, Eras)>,
    /// Extents by first slot. Together they cover every slot that has a vote.
    extents: BTreeMap<Slot, Extent>,
    /// End of the chosen prefix. All slots below it are chosen.
    chosen_to: Slot,
}

impl Agreement {
    pub fn new(founding: Configuration) -> Self {
        Self {
            eras: vec![(Slot::FIRST, Eras::founded(founding))],
            extents: BTreeMap::new(),
            chosen_to: Slot::FIRST,
        }
    }

    /// Records a durable vote. Fails if a ballot has votes for two values, or a slot has two chosen
    /// values.
    pub fn record_vote(
        &mut self,
        member: Member,
        ballot: Ballot,
        range: SlotRange,
        value: Value,
    ) -> Verdict {
        self.split_extents(range);
        for (from, extent) in self.extents.range_mut(range.from..range.to) {
            let votes = extent
                .votes
                .entry(ballot)
                .or_insert_with(|| BallotVotes { value, members: BTreeSet::new() });
            if votes.value != value {
                let detail = format!("slot {from}, ballot {ballot}: {} and {value}", votes.value);
                return Err(Violation::new("agreement", detail));
            }
            votes.members.insert(member);
        }
        for (from, extent) in self.extents.range(range.from..range.to) {
            let Some((first, chosen)) = extent.chosen_value else {
                continue;
            };
            if chosen != value && self.is_quorum(*from, extent, ballot) {
                let detail =
                    format!("slot {from}: {chosen} was chosen in {first}, {value} in {ballot}");
                return Err(Violation::new("agreement", detail));
            }
        }
        self.advance_prefix();
        Ok(())
    }

    /// [decide-1] Advances the chosen prefix. The configuration for a slot is known once all slots
    /// before it are chosen.
    fn advance_prefix(&mut self) {
        while let Some(extent) = self.extents.get(&self.chosen_to)
            && let Some((ballot, value)) = self.quorum_ballot(self.chosen_to, extent)
        {
            let (first, to) = (self.chosen_to, extent.end);
            let extent = self.extents.get_mut(&first).expect("just seen");
            extent.chosen_value = Some((ballot, value));
            self.chosen_to = to;
            let (_, last) = self.eras.last().expect("the founding is one");
            let mut eras = last.clone();
            // A change of configuration occupies one slot, and therefore its own extent.
            if eras.apply_decided(first, &value) {
                self.eras.push((to, eras));
            }
        }
    }

    /// Splits and adds extents so that a set of whole extents covers exactly this range.
    fn split_extents(&mut self, range: SlotRange) {
        for at in [range.from, range.to] {
            if let Some((_, extent)) = self.extents.range_mut(..at).next_back()
                && extent.end > at
            {
                let behind = extent.clone();
                extent.end = at;
                self.extents.insert(at, behind);
            }
        }
        let mut at = range.from;
        while at < range.to {
            let next = self.extents.range(at..range.to).next();
            match next.map(|(from, extent)| (*from, extent.end)) {
                Some((from, to)) if from == at => at = to,
                next => {
                    let to = next.map_or(range.to, |(from, _)| from);
                    let (votes, chosen) = (BTreeMap::new(), None);
                    self.extents.insert(at, Extent { end: to, votes, chosen_value: chosen });
                    at = to;
                }
            }
        }
    }

    /// Returns the ballot in which the votes of an extent form a quorum, and the value of those
    /// votes.
    fn quorum_ballot(&self, from: Slot, extent: &Extent) -> Option<(Ballot, Value)> {
        let mut ballots = extent.votes.iter();
        let decided = ballots.find(|(ballot, _)| self.is_quorum(from, extent, **ballot));
        decided.map(|(ballot, votes)| (*ballot, votes.value))
    }

    /// [era-5], [class-4] Returns whether the votes in this ballot decide the slots of an extent,
    /// provided that all slots below are chosen.
    fn is_quorum(&self, from: Slot, extent: &Extent, ballot: Ballot) -> bool {
        let at = self.eras.partition_point(|(begin, _)| *begin <= from);
        let (_, eras) = &self.eras[at - 1];
        let votes = extent.votes.get(&ballot);
        let voted =
            |voter: &Voter| votes.is_some_and(|votes| votes.members.contains(&voter.member));
        eras.counts_ballot(ballot) && is_quorum(eras.current(), voted)
    }

    /// Checks that a decision that a node learned and made durable is not at odds with a chosen
    /// value.
    pub fn check_learned(&self, node: usize, range: SlotRange, value: Value) -> Verdict {
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

    /// Returns the extents that overlap this range, by first slot, with their chosen values.
    fn chosen_in(
        &self,
        range: SlotRange,
    ) -> impl Iterator<Item = (Slot, Option<(Ballot, Value)>)> + '_ {
        let before = self.extents.range(..range.from).next_back();
        let before = before.filter(move |(_, extent)| extent.end > range.from);
        let within = self.extents.range(range.from..range.to);
        let all = before.into_iter().chain(within);
        all.map(|(from, extent)| (*from, extent.chosen_value))
    }

    /// Checks that every slot below `applied_to` is chosen. In a durable group, only votes on
    /// stable storage count ([class-1], [p2-4]).
    pub fn check_applied(&self, node: usize, applied_to: Slot) -> Verdict {
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

    /// Returns the value chosen in a slot; `None` if no value is chosen.
    pub fn chosen_value(&self, slot: Slot) -> Option<Value> {
        let mut chosen = self.chosen_in(SlotRange::new(slot, slot.next()));
        chosen.find_map(|(_, chosen)| Some(chosen?.1))
    }

    pub fn chosen_to(&self) -> Slot {
        self.chosen_to
    }
}
