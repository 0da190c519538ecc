//! Rows of collections in memory. Rows without a key are freed gradually.

use std::{borrow::Cow, collections::BTreeMap, ops::ControlFlow};

use super::{
    text::Text,
    tree::{Row, RowRef, Tree},
};
use crate::store::{Bytes, Span, VisitRow, collection::Id};

/// Approximate memory of a row in a node that is three quarters full.
const ROW_BYTES: usize = size_of::<Row>() * 4 / 3;
/// Maximum number of rows of dropped collections freed per step.
pub(super) const FREED_MAX: usize = 1024;

#[derive(Debug, Default)]
pub(super) struct Rows {
    rows: Tree,
    /// Number of the last snapshot that does not need these rows.
    pub(super) image_done: u64,
}

impl Rows {
    pub(super) fn get(&self, name: &[u8]) -> Option<&[u8]> {
        self.rows.get(name)
    }
}

/// Returns the approximate memory of a row, given the lengths of its name and value.
const fn size(name: usize, value: usize) -> u64 {
    (ROW_BYTES + Text::heap_bytes(name) + Text::heap_bytes(value)) as u64
}

fn size_of_row(row: &Row) -> u64 {
    let (name, value) = row.show();
    size(name.len(), value.len())
}

/// Returns the rows in order of name, from `from` on.
pub(super) fn in_order<'a>(
    rows: &'a Rows,
    from: &[u8],
) -> impl Iterator<Item = (Cow<'a, [u8]>, Bytes<'a>)> + use<'a> {
    let rows = rows.rows.from(from);
    rows.map(|(name, value)| (Cow::Borrowed(name), Bytes::Borrowed(value)))
}

#[derive(Debug, Default)]
pub(super) struct Collections {
    live: BTreeMap<Id, Rows>,
    /// Dropped collections: no key refers to their ids.
    dropped_rows: BTreeMap<Id, Rows>,
    /// Approximate memory of all rows in bytes.
    bytes: u64,
}

impl Collections {
    pub(super) const fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Returns the rows of a collection. It may be a dropped one that is not completely freed yet.
    pub(super) fn get(&self, id: Id) -> Option<&Rows> {
        self.live.get(&id).or_else(|| self.dropped_rows.get(&id))
    }

    /// Marks a collection as not needed by the snapshot `image`. Returns `false` if it has no rows.
    pub(super) fn mark_passed(&mut self, id: Id, image: u64) -> bool {
        let rows = self.live.get_mut(&id);
        if let Some(rows) = rows {
            rows.image_done = image;
            return true;
        }
        self.dropped_rows.contains_key(&id)
    }

    pub(super) fn row(&self, id: Id, name: &[u8]) -> Option<&[u8]> {
        self.live.get(&id)?.get(name)
    }

    /// Sets a row. Marks a new collection as not needed by the snapshot `image`.
    pub(super) fn put(&mut self, id: Id, name: &[u8], value: &[u8], image: u64) {
        let rows = self
            .live
            .entry(id)
            .or_insert_with(|| Rows { rows: Tree::default(), image_done: image });
        if let Some(before) = rows.rows.put(name, value) {
            self.bytes = self.bytes.saturating_sub(size(name.len(), before));
        }
        self.bytes += size(name.len(), value.len());
    }

    pub(super) fn remove(&mut self, id: Id, name: &[u8]) {
        let Some(rows) = self.live.get_mut(&id) else {
            return;
        };
        if let Some(row) = rows.rows.remove(name) {
            self.bytes = self.bytes.saturating_sub(size_of_row(&row));
        }
    }

    /// Removes a collection whose key was removed, if it has no rows left.
    pub(super) fn detached(&mut self, id: Id) {
        if self.live.get(&id).is_some_and(|rows| rows.rows.is_empty()) {
            self.live.remove(&id);
        }
    }

    pub(super) fn end(&mut self, id: Id) {
        if let Some(rows) = self.live.remove(&id) {
            self.dropped_rows.insert(id, rows);
        }
    }

    /// Frees up to `most` rows of dropped collections, and returns how many more there could have
    /// been. A collection without rows counts as one.
    pub(super) fn free_dropped_rows(&mut self, most: usize) -> usize {
        let mut left = most;
        while left > 0
            && let Some(mut first) = self.dropped_rows.first_entry()
        {
            let rows = first.get_mut();
            while left > 0
                && let Some(row) = rows.rows.pop_first()
            {
                left -= 1;
                self.bytes = self.bytes.saturating_sub(size_of_row(&row));
            }
            if rows.rows.is_empty() {
                first.remove();
                left = left.saturating_sub(1);
            }
        }
        left
    }

    /// Frees some rows of any collection, dropped or not. Returns whether any are left.
    pub(super) fn free_any_rows(&mut self) -> bool {
        for _ in 0..FREED_MAX {
            if let Some((id, rows)) = self.live.pop_first() {
                self.dropped_rows.insert(id, rows);
            }
        }
        self.free_dropped_rows(FREED_MAX);
        !self.live.is_empty() || !self.dropped_rows.is_empty()
    }

    #[cfg(test)]
    pub(super) fn dropped_row_count(&self) -> usize {
        self.dropped_rows.values().map(|rows| rows.rows.len()).sum()
    }

    pub(super) fn visit_rows(&self, id: Id, span: Span<'_>, visit: &mut VisitRow<'_>) {
        let Some(rows) = self.live.get(&id) else {
            return;
        };
        if span.is_empty() {
            return;
        }
        let mut visit = |(name, value): RowRef<'_>| match span.contains(name) {
            true => visit(name, value),
            false => ControlFlow::Break(()),
        };
        // It makes no difference whether the visitor stops early.
        let _ = match span.is_backward {
            false => rows.rows.from(span.from).try_for_each(&mut visit),
            true => rows.rows.iterate_before(span.to).try_for_each(&mut visit),
        };
    }

    pub(super) fn rank(&self, id: Id, name: &[u8]) -> u64 {
        self.live.get(&id).map_or(0, |rows| rows.rows.rank(name) as u64)
    }

    pub(super) fn nth(&self, id: Id, number: u64) -> Option<&[u8]> {
        let number = usize::try_from(number).ok()?;
        let row = self.live.get(&id)?.rows.nth(number)?;
        Some(row.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::Version;

    const ID: Id = Id { version: Version { slot: 1, index: 0 }, number: 0 };

    #[test]
    fn ended_collections_are_freed_in_bounded_steps() {
        let mut collections = Collections::default();
        let rows = 3 * FREED_MAX + 7;
        for number in 0..rows {
            collections.put(ID, &number.to_be_bytes(), b"value", 0);
        }
        assert!(collections.bytes() > 0);
        collections.end(ID);
        assert_eq!(collections.row(ID, &0_usize.to_be_bytes()), None);
        let mut bites = 0;
        while collections.dropped_row_count() > 0 {
            let before = collections.dropped_row_count();
            collections.free_dropped_rows(FREED_MAX);
            assert!(before - collections.dropped_row_count() <= FREED_MAX);
            bites += 1;
        }
        assert_eq!(bites, 4);
        assert_eq!(collections.bytes(), 0);
    }
}
