//! Progress of a group: how many entries it has read, and its lag, as Redis computes them.
//!
//! The position of an id among all entries ever added is known at both ends of the stream. In
//! between it is known only by counting deliveries, until XDEL leaves a gap ahead.

use super::{super::rows::View, rows::Group};
use crate::store::stream::EntryId;

/// State of a stream that decides which positions are known.
#[derive(Clone, Copy, Debug)]
pub(super) struct Positions {
    /// Id of the first stored entry, [`EntryId::MIN`] if there is none.
    first: EntryId,
    last: EntryId,
    /// Highest id removed by XDEL.
    deleted: EntryId,
    count: u64,
    added: u64,
}

impl Positions {
    pub(super) fn of(view: &View<'_>) -> Self {
        let first = view.first_id().unwrap_or(EntryId::MIN);
        let (count, log) = (view.header.count, view.log);
        Self { first, last: log.last, deleted: log.deleted, count, added: log.added }
    }

    /// Returns whether XDEL may have removed an entry from `id` on.
    fn has_gap_from(&self, id: EntryId) -> bool {
        let some = self.count > 0 && self.deleted > EntryId::MIN && self.first <= self.deleted;
        some && id <= self.deleted
    }

    /// Returns the number of entries ever added up to `id`; `None` if unknown.
    fn position(&self, id: EntryId) -> Option<u64> {
        if self.added == 0 {
            return Some(0);
        }
        if id == self.last || (self.count == 0 && id < self.last) {
            return Some(self.added);
        }
        if id > self.last || (self.deleted > EntryId::MIN && self.deleted >= self.first) {
            return None;
        }
        let removed = self.added.saturating_sub(self.count);
        match id.cmp(&self.first) {
            std::cmp::Ordering::Less => Some(removed),
            std::cmp::Ordering::Equal => Some(removed.saturating_add(1)),
            std::cmp::Ordering::Greater => None,
        }
    }

    /// Returns the number of entries that a group has read once it has read `id`, the next entry.
    pub(super) fn advance(&self, read: Option<u64>, id: EntryId) -> Option<u64> {
        match read {
            Some(read) if !self.has_gap_from(id) => read.checked_add(1),
            _ if self.added > 0 => self.position(id),
            read => read,
        }
    }

    /// Returns the number of entries that a group has not read; `None` if unknown.
    pub(super) fn lag(&self, group: &Group) -> Option<i64> {
        if self.added == 0 {
            return Some(0);
        }
        let known = group.read.filter(|_| !self.has_gap_from(group.last));
        let read = known.or_else(|| self.position(group.last))?;
        Some(self.added.wrapping_sub(read).cast_signed())
    }
}
