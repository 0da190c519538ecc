//! Sets of packet numbers as disjoint ranges.

use std::{collections::BTreeMap, ops::Range};

/// A set of numbers, stored as disjoint, non-adjacent ranges.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NumberSet(BTreeMap<u64, u64>);

impl NumberSet {
    pub fn add(&mut self, range: Range<u64>) {
        let Range { mut start, mut end } = range;
        if start >= end {
            return;
        }
        if let Some((&before, &until)) = self.0.range(..=start).next_back()
            && until >= start
        {
            start = before;
            end = end.max(until);
        }
        while let Some((&next, &until)) = self.0.range(start..=end).next() {
            end = end.max(until);
            self.0.remove(&next);
        }
        self.0.insert(start, end);
    }

    pub fn remove(&mut self, range: Range<u64>) {
        if range.is_empty() {
            return;
        }
        if let Some((&before, &until)) = self.0.range(..range.start).next_back()
            && until > range.start
        {
            self.0.insert(before, range.start);
            if until > range.end {
                self.0.insert(range.end, until);
            }
        }
        while let Some((&next, &until)) = self.0.range(range.clone()).next() {
            self.0.remove(&next);
            if until > range.end {
                self.0.insert(range.end, until);
            }
        }
    }

    pub fn has(&self, number: u64) -> bool {
        let before = self.0.range(..=number).next_back();
        before.is_some_and(|(_, &until)| number < until)
    }

    /// Returns whether the set contains any number in the range.
    pub fn intersects(&self, range: Range<u64>) -> bool {
        let before = self.0.range(..range.end).next_back();
        !range.is_empty() && before.is_some_and(|(_, &until)| until > range.start)
    }

    /// Returns the parts of `range` that are not in the set, in order.
    pub fn missing_in(&self, range: Range<u64>) -> Vec<Range<u64>> {
        let mut missing = Vec::new();
        if range.is_empty() {
            return missing;
        }
        let mut at = range.start;
        let before = self.0.range(..=at).next_back();
        if let Some((_, &until)) = before {
            at = at.max(until);
        }
        while at < range.end {
            let next = self.0.range(at..range.end).next();
            let (start, until) = next.map_or((range.end, range.end), |(&start, &end)| (start, end));
            if start > at {
                missing.push(at..start);
            }
            at = until;
        }
        missing
    }

    /// Removes the first range if it begins at or below `number`, and returns its end.
    pub fn take_first(&mut self, number: u64) -> Option<u64> {
        let entry = self.0.first_entry()?;
        (*entry.key() <= number).then(|| entry.remove())
    }

    pub fn len(&self) -> usize {
        self.0.len()
    }

    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub fn iter(&self) -> impl Iterator<Item = Range<u64>> + '_ {
        self.0.iter().map(|(&start, &end)| start..end)
    }

    pub fn clear(&mut self) {
        self.0.clear();
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use quorate_core::dice::Dice;

    use super::*;

    /// The spans agree with a plain set of numbers.
    #[test]
    fn spans_agree_with_a_plain_set() {
        for seed in 0..200 {
            let mut dice = Dice::new(seed);
            let (mut spans, mut plain) = (NumberSet::default(), BTreeSet::new());
            for _ in 0..60 {
                let start = dice.below(40);
                let range = start..start + dice.below(9);
                if dice.chance(2, 3) {
                    spans.add(range.clone());
                    plain.extend(range);
                } else {
                    spans.remove(range.clone());
                    plain.retain(|number| !range.contains(number));
                }
                let flat: BTreeSet<u64> = spans.iter().flatten().collect();
                assert_eq!(flat, plain, "seed {seed}");
                let apart: Vec<_> = spans.iter().collect();
                assert!(apart.windows(2).all(|pair| pair[0].end < pair[1].start));
                let from = dice.below(50);
                let asked = from..from + dice.below(12);
                let lacking: Vec<u64> =
                    spans.missing_in(asked.clone()).into_iter().flatten().collect();
                let expected = asked.clone().filter(|number| !plain.contains(number));
                assert_eq!(lacking, expected.collect::<Vec<_>>(), "seed {seed}");
                assert_eq!(
                    spans.intersects(asked.clone()),
                    asked.clone().any(|n| plain.contains(&n))
                );
                assert_eq!(spans.has(from), plain.contains(&from));
            }
        }
    }

    #[test]
    fn take_first_returns_a_span_that_begins_low_enough() {
        let mut spans = NumberSet::default();
        spans.add(3..5);
        spans.add(7..9);
        assert_eq!(spans.take_first(2), None);
        assert_eq!(spans.take_first(3), Some(5));
        assert_eq!(spans.take_first(9), Some(9));
        assert!(spans.is_empty());
    }
}
