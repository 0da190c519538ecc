//! A set of positions, stored as ranges that neither overlap nor touch.

use std::{
    collections::BTreeMap,
    ops::{Bound, Range},
};

/// A set of positions in one stream.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Ranges {
    /// Maps the start of each range to its end.
    ranges: BTreeMap<u64, u64>,
}

impl Ranges {
    /// Adds a range, which may overlap the set.
    pub fn insert(&mut self, range: Range<u64>) {
        if range.is_empty() {
            return;
        }
        let (mut from, mut to) = (range.start, range.end);
        if let Some((start, end)) = self.ranges.range(..=from).next_back()
            && *end >= from
        {
            if *end >= to {
                return;
            }
            from = *start;
        }
        let behind = |from, to| (Bound::Excluded(from), Bound::Included(to));
        while let Some((&next, &end)) = self.ranges.range(behind(from, to)).next() {
            self.ranges.remove(&next);
            to = to.max(end);
        }
        self.ranges.insert(from, to);
    }

    /// Removes a range. Only parts of it may be in the set.
    pub fn remove(&mut self, range: Range<u64>) {
        if range.is_empty() {
            return;
        }
        while let Some((&start, &end)) = self.ranges.range(..range.end).next_back()
            && end > range.start
        {
            self.ranges.remove(&start);
            if end > range.end {
                self.ranges.insert(range.end, end);
            }
            if start < range.start {
                self.ranges.insert(start, range.start);
            }
        }
    }

    pub fn contains(&self, position: u64) -> bool {
        self.end_of_range_at(position) > position
    }

    /// Returns the end of the range that contains `position`, or `position` itself if it is not in
    /// the set.
    pub fn end_of_range_at(&self, position: u64) -> u64 {
        let before = self.ranges.range(..=position).next_back();
        before.map_or(position, |(_, end)| (*end).max(position))
    }

    /// Returns the first part of `range` that is not in the set.
    pub fn first_missing(&self, range: Range<u64>) -> Option<Range<u64>> {
        let from = self.end_of_range_at(range.start);
        let next = self.ranges.range(from..).next();
        let to = next.map_or(range.end, |(start, _)| (*start).min(range.end));
        (from < to).then_some(from..to)
    }

    /// Returns the lowest position in the set that is at least `position`.
    pub fn first_held_from(&self, position: u64) -> Option<u64> {
        if self.contains(position) {
            return Some(position);
        }
        let mut behind = self.ranges.range(position..);
        behind.next().map(|(start, _)| *start)
    }

    pub fn is_empty(&self) -> bool {
        self.ranges.is_empty()
    }

    /// Returns all parts of `range` that are not in the set.
    pub fn missing(&self, mut range: Range<u64>) -> Vec<Range<u64>> {
        let mut missing = Vec::new();
        while let Some(part) = self.first_missing(range.clone()) {
            range.start = part.end;
            missing.push(part);
        }
        missing
    }

    #[cfg(test)]
    fn iter(&self) -> impl Iterator<Item = Range<u64>> {
        self.ranges.iter().map(|(from, to)| *from..*to)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use quorate_core::dice::Dice;

    use super::*;

    #[test]
    fn ranges_agree_with_a_plain_set_of_positions() {
        for seed in 0..300 {
            let mut dice = Dice::new(seed);
            let (mut ranges, mut plain) = (Ranges::default(), BTreeSet::new());
            for _ in 0..60 {
                let from = dice.below(40);
                let to = from + dice.below(12);
                if dice.below(3) == 0 {
                    ranges.remove(from..to);
                    plain.retain(|at| !(from..to).contains(at));
                } else {
                    ranges.insert(from..to);
                    plain.extend(from..to);
                }
                let positions: Vec<u64> = ranges.iter().flatten().collect();
                assert_eq!(positions, plain.iter().copied().collect::<Vec<_>>());
                let all: Vec<_> = ranges.iter().collect();
                assert!(all.windows(2).all(|pair| pair[0].end < pair[1].start));
                let missing: Vec<u64> = ranges.missing(5..30).into_iter().flatten().collect();
                assert_eq!(missing, (5..30).filter(|at| !plain.contains(at)).collect::<Vec<_>>());
                for at in 0..55 {
                    let end = (at..).find(|at| !plain.contains(at)).unwrap();
                    assert_eq!(ranges.end_of_range_at(at), end, "{at} in {ranges:?}");
                    assert_eq!(ranges.contains(at), plain.contains(&at));
                    assert_eq!(ranges.first_held_from(at), plain.range(at..).next().copied());
                }
            }
        }
    }

    #[test]
    fn positions_at_the_limits_of_u64_are_supported() {
        let mut ranges = Ranges::default();
        ranges.insert(u64::MAX - 3..u64::MAX);
        ranges.insert(0..1);
        assert_eq!(ranges.missing(0..u64::MAX), vec![1..u64::MAX - 3; 1]);
        assert_eq!(ranges.end_of_range_at(u64::MAX), u64::MAX);
        ranges.remove(0..u64::MAX);
        assert_eq!(ranges, Ranges::default());
    }
}
