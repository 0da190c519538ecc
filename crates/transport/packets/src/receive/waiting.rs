//! Complete messages that cannot be delivered yet, because earlier ones are missing.

use std::{collections::BTreeMap, ops::Range};

use crate::receive::quota::MemoryQuota;

/// Overhead charged for each waiting message, in bytes.
const MESSAGE_OVERHEAD_BYTES: usize = 128;

/// Waiting messages by their first number, each with its end and its bytes.
#[derive(Default)]
pub(crate) struct WaitingMessages(BTreeMap<u64, (u64, Vec<u8>)>);

impl WaitingMessages {
    pub(crate) const fn charged_bytes(bytes: &[u8]) -> usize {
        bytes.len() + MESSAGE_OVERHEAD_BYTES
    }

    /// Adds a message. Its cost must already have been charged to the quota.
    pub(crate) fn add(&mut self, numbers: &Range<u64>, bytes: Vec<u8>) {
        self.0.insert(numbers.start, (numbers.end, bytes));
    }

    /// Removes and returns the message that begins at `first`, and credits its cost to the quota.
    pub(crate) fn remove_at(
        &mut self,
        first: u64,
        quota: &mut MemoryQuota,
    ) -> Option<(Range<u64>, Vec<u8>)> {
        let (end, bytes) = self.0.remove(&first)?;
        quota.release(0, Self::charged_bytes(&bytes));
        Some((first..end, bytes))
    }

    /// Returns the numbers of the last message that overlaps this range.
    pub(crate) fn last_overlapping(&self, range: &Range<u64>) -> Option<Range<u64>> {
        let (&first, &(end, _)) = self.0.range(..range.end).next_back()?;
        (end > range.start).then_some(first..end)
    }

    /// Returns the first number of the last message.
    pub(crate) fn last_start(&self) -> Option<u64> {
        self.0.last_key_value().map(|(first, _)| *first)
    }

    pub(crate) fn total_charged_bytes(&self) -> usize {
        self.0.values().map(|(_, bytes)| Self::charged_bytes(bytes)).sum()
    }

    #[cfg(test)]
    pub(crate) fn numbers(&self) -> impl Iterator<Item = Range<u64>> + '_ {
        self.0.iter().map(|(&first, &(end, _))| first..end)
    }
}
