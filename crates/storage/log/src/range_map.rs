//! A map from slots to values that stores ranges.

use std::collections::BTreeMap;

use quorate_core::slot::{Slot, SlotRange};

/// Disjoint ranges of slots, each with a value. A later range replaces what it overlaps.
#[derive(Clone, Debug)]
pub(crate) struct RangeMap<T> {
    runs: BTreeMap<Slot, (Slot, T)>,
}

impl<T> Default for RangeMap<T> {
    fn default() -> Self {
        Self { runs: BTreeMap::new() }
    }
}

impl<T: Clone> RangeMap<T> {
    pub(crate) fn remove(&mut self, range: SlotRange) {
        if range.is_empty() {
            return;
        }
        // The run that begins before the range may extend into it and beyond its end.
        if let Some((_, (to, value))) = self.runs.range_mut(..range.from).next_back()
            && *to > range.from
        {
            let (end, value) = (*to, value.clone());
            *to = range.from;
            if end > range.to {
                self.runs.insert(range.to, (end, value));
            }
        }
        while let Some((&from, &(to, _))) = self.runs.range(range.from..range.to).next() {
            let (_, value) = self.runs.remove(&from).expect("just found");
            if to > range.to {
                self.runs.insert(range.to, (to, value));
            }
        }
    }

    /// Sets the value of the slots in `range`, replacing earlier values.
    pub(crate) fn insert(&mut self, range: SlotRange, value: T) {
        self.remove(range);
        if !range.is_empty() {
            self.runs.insert(range.from, (range.to, value));
        }
    }

    pub(crate) fn find(&self, slot: Slot) -> Option<(SlotRange, &T)> {
        let (from, (to, value)) = self.runs.range(..=slot).next_back()?;
        (slot < *to).then_some((SlotRange::new(*from, *to), value))
    }

    pub(crate) fn within(&self, range: SlotRange) -> impl Iterator<Item = (SlotRange, &T)> {
        let first = self.find(range.from).map_or(range.from, |(run, _)| run.from);
        let runs = self.runs.range(first..range.to.max(first));
        runs.map(|(from, (to, value))| (SlotRange::new(*from, *to), value))
    }

    /// Returns the end and the value of the run that ends right before `slot`, so that it can be
    /// extended.
    pub(crate) fn ending_at_mut(&mut self, slot: Slot) -> Option<(&mut Slot, &mut T)> {
        let (_, (to, value)) = self.runs.range_mut(..slot).next_back()?;
        (*to == slot).then_some((to, value))
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = (SlotRange, &T)> {
        self.runs.iter().map(|(from, (to, value))| (SlotRange::new(*from, *to), value))
    }

    /// Returns the parts of `range` without a value.
    pub(crate) fn gaps(&self, range: SlotRange) -> Vec<SlotRange> {
        let mut gaps = Vec::new();
        let mut at = range.from;
        while at < range.to {
            if let Some((run, _)) = self.find(at) {
                at = run.to;
                continue;
            }
            let next = self.runs.range(at..range.to).next().map_or(range.to, |(from, _)| *from);
            gaps.push(SlotRange::new(at, next));
            at = next;
        }
        gaps
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The map agrees with a plain table after many random insertions and removals.
    #[test]
    fn latest_value_of_every_slot_is_retained() {
        let mut state = 7_u64;
        let mut next = |below: u64| {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            (state >> 33) % below
        };
        for _ in 0..300 {
            let mut map = RangeMap::default();
            let mut table = [None; 24];
            for word in 0..40 {
                let (from, length) = (next(20), next(5));
                let range = SlotRange::new(Slot(from), Slot(from + length));
                let keep = next(4) > 0;
                if keep {
                    map.insert(range, word)
                } else {
                    map.remove(range)
                }
                for slot in from..from + length {
                    table[usize::try_from(slot).unwrap()] = keep.then_some(word);
                }
                for (slot, word) in (0..).zip(&table) {
                    assert_eq!(map.find(Slot(slot)).map(|(_, word)| *word), *word);
                }
                let missing = table.iter().filter(|word| word.is_none()).count();
                let gaps = map.gaps(SlotRange::new(Slot(0), Slot(24)));
                assert_eq!(gaps.iter().map(|gap| gap.len()).sum::<u64>(), missing as u64);
            }
        }
    }
}
