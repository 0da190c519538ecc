//! Votes by slot: an ordered list of runs that mostly changes at its ends.
//!
//! In steady state a vote extends or follows the last run, and a decision drops the first. Both
//! cost the same however many slots they cover. Everything else is a slow path.

use alloc::{collections::VecDeque, vec::Vec};

use crate::{
    ballot::Ballot,
    record::RecordSeq,
    slot::{Slot, SlotRange},
    value::Value,
};

/// A run of slots with one vote.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Vote {
    /// Slots that share this vote.
    pub range: SlotRange,
    /// Ballot in which the votes were cast.
    pub ballot: Ballot,
    /// Value voted for in each slot.
    pub value: Value,
    /// Last record that contains a part of this vote.
    pub record: RecordSeq,
}

impl Vote {
    fn clipped_to(self, range: SlotRange) -> Self {
        Self { range: self.range.intersect(range), ..self }
    }

    /// Returns whether `next` continues this run, so that both fit into one entry.
    fn continues_in(&self, next: &Self) -> bool {
        self.range.to == next.range.from
            && self.ballot == next.ballot
            && self.value == next.value
            && self.value.may_span()
    }
}

/// Runs of votes in slot order. Invariant: runs do not overlap.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Extents {
    runs: VecDeque<Vote>,
}

impl Extents {
    /// Creates an empty list with capacity for `capacity` runs.
    pub fn with_capacity(capacity: usize) -> Self {
        Self { runs: VecDeque::with_capacity(capacity) }
    }

    /// Returns the number of runs.
    pub fn len(&self) -> usize {
        self.runs.len()
    }

    /// Returns whether there are no runs.
    pub fn is_empty(&self) -> bool {
        self.runs.is_empty()
    }

    /// Returns the vote for a slot; `None` if there is none.
    pub fn get(&self, slot: Slot) -> Option<&Vote> {
        let at = self.runs.partition_point(|run| run.range.to <= slot);
        self.runs.get(at).filter(|run| run.range.contains(slot))
    }

    /// Returns the end of the last run, exclusive; slot 0 if there is no run.
    pub fn end(&self) -> Slot {
        self.runs.back().map_or(Slot(0), |last| last.range.to)
    }

    /// Returns the first run. Decisions in slot order affect no other run.
    pub fn first(&self) -> Option<&Vote> {
        self.runs.front()
    }

    /// Returns all runs, clipped so that none starts below `from`.
    pub fn iter_from(&self, from: Slot) -> impl Iterator<Item = Vote> + '_ {
        let start = self.runs.partition_point(|run| run.range.to <= from);
        let rest = SlotRange::new(from, Slot(u64::MAX));
        self.runs.range(start..).map(move |run| run.clipped_to(rest))
    }

    /// Sets the vote for all slots of its range. Runs that it covers in part are clipped, which
    /// does not change their remaining votes ([p2-2]). Returns whether the change was more than an
    /// append.
    pub fn set(&mut self, vote: Vote) -> bool {
        let appends = self.runs.back().is_none_or(|last| last.range.to <= vote.range.from);
        if appends {
            push(&mut self.runs, vote);
            return false;
        }
        let mut runs = VecDeque::with_capacity(self.runs.capacity().max(self.runs.len() + 2));
        let mut pending = Some(vote);
        for run in self.runs.drain(..) {
            let before = run.clipped_to(SlotRange::new(Slot(0), vote.range.from));
            if !before.range.is_empty() {
                push(&mut runs, before);
            }
            if run.range.to > vote.range.from
                && let Some(vote) = pending.take()
            {
                push(&mut runs, vote);
            }
            let after = run.clipped_to(SlotRange::new(vote.range.to, Slot(u64::MAX)));
            if !after.range.is_empty() {
                push(&mut runs, after);
            }
        }
        self.runs = runs;
        true
    }

    /// Drops the votes below `slot`.
    pub fn drop_below(&mut self, slot: Slot) {
        while let Some(first) = self.runs.front_mut() {
            if first.range.to > slot {
                first.range.from = first.range.from.max(slot);
                return;
            }
            self.runs.pop_front();
        }
    }
}

fn push(runs: &mut VecDeque<Vote>, vote: Vote) {
    match runs.back_mut() {
        Some(last) if last.continues_in(&vote) => {
            last.range.to = vote.range.to;
            last.record = last.record.max(vote.record);
        }
        _ => runs.push_back(vote),
    }
}

/// A reported vote and its reporter, which can supply the value's bytes ([value-4]).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct ReportedVote<W> {
    /// Slots that share this vote.
    pub range: SlotRange,
    /// Ballot in which the votes were cast.
    pub ballot: Ballot,
    /// Value voted for in each slot.
    pub value: Value,
    /// The acceptor that reported the vote.
    pub acceptor: W,
}

/// [p1-6] Merges two lists of reports, each in slot order, and keeps the highest ballot of each
/// slot. Fails with a slot for which one ballot has two values ([count-1]).
pub fn merge_highest<W: Copy>(
    a: &[ReportedVote<W>],
    b: &[ReportedVote<W>],
) -> Result<Vec<ReportedVote<W>>, Slot> {
    let mut out: Vec<ReportedVote<W>> = Vec::with_capacity(a.len() + b.len());
    let (mut a, mut b) = (a.iter().copied(), b.iter().copied());
    let (mut left, mut right) = (a.next(), b.next());
    loop {
        let (Some(x), Some(y)) = (&mut left, &mut right) else {
            out.extend(left.into_iter().chain(a));
            out.extend(right.into_iter().chain(b));
            return Ok(out);
        };
        if x.range.from != y.range.from {
            // The part of the earlier run before the start of the other.
            let (first, border) =
                if x.range.from < y.range.from { (x, y.range.from) } else { (y, x.range.from) };
            let to = first.range.to.min(border);
            out.push(ReportedVote { range: SlotRange::new(first.range.from, to), ..*first });
            first.range.from = to;
        } else {
            let to = x.range.to.min(y.range.to);
            if x.ballot == y.ballot && x.value != y.value {
                return Err(x.range.from);
            }
            let winner = if x.ballot >= y.ballot { *x } else { *y };
            out.push(ReportedVote { range: SlotRange::new(x.range.from, to), ..winner });
            x.range.from = to;
            y.range.from = to;
        }
        if left.is_some_and(|run| run.range.is_empty()) {
            left = a.next();
        }
        if right.is_some_and(|run| run.range.is_empty()) {
            right = b.next();
        }
    }
}

#[cfg(test)]
mod tests {
    extern crate std;
    use std::collections::BTreeMap;

    use super::*;
    use crate::{ballot::Era, dice::Dice, node_id::NodeId, value::BatchName};

    fn ballot(round: u32) -> Ballot {
        Ballot { era: Era(0), round, node: NodeId(1) }
    }

    fn value(counter: u64) -> Value {
        if counter == 0 {
            Value::NoOp
        } else {
            Value::Batch(BatchName { counter, ..BatchName::default() })
        }
    }

    fn vote(from: u64, to: u64, round: u32, counter: u64) -> Vote {
        let range = SlotRange::new(Slot(from), Slot(to));
        Vote { range, ballot: ballot(round), value: value(counter), record: RecordSeq(0) }
    }

    fn as_map(runs: impl Iterator<Item = Vote>) -> BTreeMap<u64, (Ballot, Value)> {
        let slots = |run: Vote| (run.range.from.0..run.range.to.0).map(move |slot| (slot, run));
        runs.flat_map(slots).map(|(slot, run)| (slot, (run.ballot, run.value))).collect()
    }

    /// Runs behave like a map from slots to votes, in any sequence of sets and drops.
    #[test]
    fn runs_agree_with_a_plain_map() {
        for seed in 0..500 {
            let mut dice = Dice::new(seed);
            let (mut extents, mut map) = (Extents::default(), BTreeMap::new());
            for _ in 0..20 {
                let from = 1 + dice.below(12);
                let to = from + 1 + dice.below(5);
                #[expect(clippy::cast_possible_truncation, reason = "small dice")]
                let vote = vote(from, to, dice.below(3) as u32, dice.below(3));
                extents.set(vote);
                map.extend((from..to).map(|slot| (slot, (vote.ballot, vote.value))));
                if dice.below(6) == 0 {
                    let below = dice.below(8);
                    extents.drop_below(Slot(below));
                    map.retain(|slot, _| *slot >= below);
                }
                assert_eq!(as_map(extents.iter_from(Slot(0))), map, "seed {seed}");
                let ordered: Vec<_> = extents.runs.iter().map(|run| run.range).collect();
                assert!(ordered.windows(2).all(|pair| pair[0].to <= pair[1].from));
                for slot in 0..20 {
                    let got = extents.get(Slot(slot)).map(|vote| (vote.ballot, vote.value));
                    assert_eq!(got, map.get(&slot).copied());
                }
            }
        }
    }

    #[test]
    fn set_reports_rewrites_but_not_appends() {
        let mut extents = Extents::with_capacity(4);
        assert!(!extents.set(vote(1, 2, 1, 1)));
        assert!(!extents.set(vote(2, 9, 1, 0)));
        assert!(!extents.set(vote(9, 12, 1, 0)));
        assert_eq!(extents.len(), 2, "a no-op range grows instead of repeating");
        assert!(extents.set(vote(3, 4, 2, 7)));
        assert_eq!(extents.len(), 4);
    }

    #[test]
    fn highest_ballot_wins_per_slot() {
        for seed in 0..500 {
            let mut dice = Dice::new(seed);
            let mut list = |who: u8| {
                let mut at = 1;
                let mut out = Vec::new();
                for _ in 0..6 {
                    let from = at + dice.below(3);
                    let to = from + 1 + dice.below(4);
                    at = to;
                    // The value depends only on the ballot and the parity of the slot, so there are
                    // no conflicts.
                    #[expect(clippy::cast_possible_truncation, reason = "small dice")]
                    let round = dice.below(4) as u32;
                    out.push(ReportedVote {
                        range: SlotRange::new(Slot(from), Slot(to)),
                        ballot: ballot(round),
                        value: value(u64::from(round) + 1),
                        acceptor: who,
                    });
                }
                out
            };
            let (a, b) = (list(1), list(2));
            let merged = merge_highest(&a, &b).expect("no conflicts were made");
            for slot in 0..40 {
                let in_list = |list: &[ReportedVote<u8>]| {
                    list.iter().find(|r| r.range.contains(Slot(slot))).map(|r| r.ballot)
                };
                assert_eq!(in_list(&merged), in_list(&a).max(in_list(&b)), "seed {seed}");
            }
            assert!(merged.windows(2).all(|pair| pair[0].range.to <= pair[1].range.from));
        }
    }

    /// [count-1] Two values for one slot in one ballot are a conflict.
    #[test]
    fn two_values_for_a_slot_in_one_ballot_are_a_conflict() {
        let report = |counter| ReportedVote {
            range: SlotRange::one(Slot(4)),
            ballot: ballot(1),
            value: value(counter),
            acceptor: (),
        };
        assert_eq!(merge_highest(&[report(1)], &[report(2)]), Err(Slot(4)));
        assert!(merge_highest(&[report(1)], &[report(1)]).is_ok());
    }
}
