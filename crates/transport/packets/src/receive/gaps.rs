//! Missing packet numbers, and when to request them: after a grace period, one request per range at
//! doubling intervals, until the range is given up ([pkt-7]).

use std::{collections::BTreeMap, ops::Range};

use quorate_core::time::Time;

/// Timing of requests for missing numbers.
#[derive(Clone, Copy, Debug)]
pub struct RequestTiming {
    /// Wait before the first request, in microseconds.
    pub grace_us: u64,
    /// Wait after the first request, in microseconds. Doubles after each further request.
    pub retry_us: u64,
    /// Number of requests before a range is given up.
    pub tries_max: u32,
}

/// Missing numbers, as ranges with a common schedule each.
#[derive(Clone, Debug, Default)]
pub struct Gaps(BTreeMap<u64, Gap>);

#[derive(Clone, Copy, Debug)]
struct Gap {
    end: u64,
    due_at: Time,
    /// Number of requests made.
    requests_made: u32,
}

/// Action for a range that is due.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum DueAction {
    /// Request the range. Contains the number of earlier requests.
    Request(Range<u64>, u32),
    /// Give the range up, because all requests have failed.
    GiveUp(Range<u64>),
}

impl Gaps {
    /// Adds missing numbers, none of which may be in the set already.
    pub fn add_missing(&mut self, range: Range<u64>, now: Time, patience: &RequestTiming) {
        if !range.is_empty() {
            let gap =
                Gap { end: range.end, due_at: now.plus_us(patience.grace_us), requests_made: 0 };
            self.0.insert(range.start, gap);
        }
    }

    /// Removes numbers that are no longer missing. The rest of their ranges keep their times.
    pub fn remove_found(&mut self, range: Range<u64>) {
        if range.is_empty() {
            return;
        }
        if let Some((&start, &gap)) = self.0.range(..range.start).next_back()
            && gap.end > range.start
        {
            self.0.insert(start, Gap { end: range.start, ..gap });
            if gap.end > range.end {
                self.0.insert(range.end, gap);
            }
        }
        while let Some((&start, &gap)) = self.0.range(range.clone()).next() {
            self.0.remove(&start);
            if gap.end > range.end {
                self.0.insert(range.end, gap);
            }
        }
    }

    /// Returns whether packet `number` is missing.
    pub fn has(&self, number: u64) -> bool {
        let before = self.0.range(..=number).next_back();
        before.is_some_and(|(_, gap)| number < gap.end)
    }

    pub fn ranges_within(&self, range: &Range<u64>) -> Vec<Range<u64>> {
        let before = self.0.range(..range.start).next_back();
        let inside = self.0.range(range.start..range.end.max(range.start));
        let both = before.into_iter().chain(inside);
        let cut = both.map(|(&start, gap)| start.max(range.start)..gap.end.min(range.end));
        cut.filter(|cut| !cut.is_empty()).collect()
    }

    /// Makes ranges due at once if `too_few` returns true for the number of requests made. Used
    /// when a node has replied that it lacks the datagrams, or when another node needs them, too.
    /// At least one request counts as made.
    pub fn make_due_if(&mut self, range: &Range<u64>, too_few: impl Fn(u32) -> bool, now: Time) {
        for part in self.ranges_within(range) {
            let gap = self.0.range(..=part.start).next_back();
            let (_, &gap) = gap.expect("it is missing");
            if !too_few(gap.requests_made) {
                continue;
            }
            self.remove_found(part.clone());
            let hurried = Gap {
                end: part.end,
                due_at: gap.due_at.min(now),
                requests_made: gap.requests_made.max(1),
            };
            self.0.insert(part.start, hurried);
        }
    }

    /// Returns the ranges that are due, and schedules their next requests. Ranges that are given up
    /// are removed.
    pub fn take_due_actions(&mut self, now: Time, patience: &RequestTiming) -> Vec<DueAction> {
        let mut due = Vec::new();
        for (&start, gap) in &mut self.0 {
            if gap.due_at > now {
                continue;
            }
            if gap.requests_made >= patience.tries_max {
                due.push(DueAction::GiveUp(start..gap.end));
                continue;
            }
            due.push(DueAction::Request(start..gap.end, gap.requests_made));
            let wait = patience.retry_us.saturating_mul(1 << gap.requests_made.min(20));
            gap.due_at = now.plus_us(wait.max(1));
            gap.requests_made += 1;
        }
        for one in &due {
            if let DueAction::GiveUp(range) = one {
                self.0.remove(&range.start);
            }
        }
        due
    }

    pub fn next_due(&self) -> Option<Time> {
        self.0.values().map(|gap| gap.due_at).min()
    }

    pub fn first_range(&self) -> Option<Range<u64>> {
        let first = self.0.first_key_value();
        first.map(|(&start, gap)| start..gap.end)
    }

    pub fn len(&self) -> usize {
        self.0.len()
    }

    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub fn iter(&self) -> impl Iterator<Item = Range<u64>> + '_ {
        self.0.iter().map(|(&start, gap)| start..gap.end)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use quorate_core::dice::Dice;

    use super::*;

    const PATIENCE: RequestTiming = RequestTiming { grace_us: 200, retry_us: 100, tries_max: 5 };

    /// [pkt-7] A missing range is requested five times, each time after twice the previous delay.
    #[test]
    fn missing_range_is_requested_five_times() {
        let mut gaps = Gaps::default();
        gaps.add_missing(3..5, Time(0), &PATIENCE);
        let mut seen = Vec::new();
        while let Some(due) = gaps.next_due() {
            assert!(gaps.take_due_actions(Time(due.0 - 1), &PATIENCE).is_empty());
            let what = gaps.take_due_actions(due, &PATIENCE);
            seen.extend(what.into_iter().map(|what| (due.0, what)));
        }
        let ask = |tries| DueAction::Request(3..5, tries);
        assert_eq!(
            seen,
            [
                (200, ask(0)),
                (300, ask(1)),
                (500, ask(2)),
                (900, ask(3)),
                (1700, ask(4)),
                (3300, DueAction::GiveUp(3..5)),
            ]
        );
    }

    /// Numbers that arrive within the grace period are never requested. The rest of their range
    /// keeps its times.
    #[test]
    fn reordered_datagrams_are_not_requested() {
        let mut gaps = Gaps::default();
        gaps.add_missing(3..9, Time(0), &PATIENCE);
        gaps.remove_found(5..6);
        assert_eq!(
            gaps.take_due_actions(Time(200), &PATIENCE),
            [DueAction::Request(3..5, 0), DueAction::Request(6..9, 0)]
        );
        gaps.remove_found(1..20);
        assert!(gaps.is_empty() && gaps.next_due().is_none());
    }

    #[test]
    fn make_due_requests_at_once() {
        let mut gaps = Gaps::default();
        gaps.add_missing(3..9, Time(0), &PATIENCE);
        gaps.make_due_if(&(4..6), |_| false, Time(5));
        assert_eq!(gaps.next_due(), Some(Time(200)));
        gaps.make_due_if(&(4..6), |tries| tries < 2, Time(10));
        assert_eq!(gaps.take_due_actions(Time(10), &PATIENCE), [DueAction::Request(4..6, 1)]);
        let due = gaps.take_due_actions(Time(200), &PATIENCE);
        assert_eq!(due, [DueAction::Request(3..4, 0), DueAction::Request(6..9, 0)]);
    }

    #[test]
    fn gaps_agree_with_a_plain_set() {
        for seed in 0..200 {
            let mut dice = Dice::new(seed);
            let (mut gaps, mut plain, mut top) = (Gaps::default(), BTreeSet::new(), 0);
            for _ in 0..60 {
                let length = dice.below(9);
                match dice.below(3) {
                    0 => {
                        gaps.add_missing(top..top + length, Time(0), &PATIENCE);
                        plain.extend(top..top + length);
                        top += length + dice.below(3);
                    }
                    1 => {
                        let start = dice.below(top + 1);
                        gaps.remove_found(start..start + length);
                        plain.retain(|number| !(start..start + length).contains(number));
                    }
                    _ => {
                        let start = dice.below(top + 1);
                        gaps.make_due_if(&(start..start + length), |_| true, Time(0));
                    }
                }
                let flat: Vec<u64> = gaps.iter().flatten().collect();
                assert_eq!(flat, plain.iter().copied().collect::<Vec<_>>(), "seed {seed}");
                let asked = dice.below(top + 1);
                assert_eq!(gaps.has(asked), plain.contains(&asked));
                let part: Vec<u64> =
                    gaps.ranges_within(&(asked..asked + 5)).into_iter().flatten().collect();
                assert_eq!(part, plain.range(asked..asked + 5).copied().collect::<Vec<_>>());
            }
        }
    }
}
