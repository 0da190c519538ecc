//! Snapshot of the store on disk: fjall's snapshot of the tree, and the layers then above it.

use std::{borrow::Cow, cell::OnceCell, collections::VecDeque, ops::Bound, sync::Arc};

use fjall::Slice;
use quorate_replica::service::Imaged;

use super::{
    changes::Changes,
    failure::Failure,
    layout::{data_key, entry, kind, parse_data_key, parse_row_key, prefix, row_key, rows_end},
    tree::TreeSnapshot,
};
use crate::store::{
    Bytes,
    image::{Cursor, PassEnd, StepBudget, VisitPart, records},
    merge::Merge,
};

type Read = Result<(Slice, Slice), Failure>;

/// Entries of the tree in order. Some are read ahead of the cursor and kept, because seeking in the
/// tree again would read much of it.
struct TreeEntries {
    unread: Box<dyn Iterator<Item = Read> + Send>,
    ahead: VecDeque<(Slice, Slice)>,
}

impl TreeEntries {
    fn new(fresh: impl Iterator<Item = Read> + Send + 'static) -> Self {
        Self { unread: Box::new(fresh), ahead: VecDeque::new() }
    }

    /// Iterates over the entries from the cursor on. Adds newly read ones to `ahead`.
    fn not_passed(&mut self) -> impl Iterator<Item = Read> {
        let again: Vec<Read> = self.ahead.iter().cloned().map(Ok).collect();
        let ahead = &mut self.ahead;
        let fresh = self.unread.by_ref().inspect(|read| {
            if let Ok(entry) = read {
                ahead.push_back(entry.clone());
            }
        });
        again.into_iter().chain(fresh)
    }

    fn skip_passed(&mut self, passed: impl Fn(&[u8]) -> bool) {
        while self.ahead.front().is_some_and(|(key, _)| passed(key)) {
            self.ahead.pop_front();
        }
    }
}

/// Snapshot in progress. Keeps the tree open.
pub(super) struct Image {
    keys: TreeEntries,
    /// Remaining rows of the current collection.
    rows: Option<TreeEntries>,
    /// Immutable layers above the tree, uppermost first.
    layers: Vec<Arc<Changes>>,
    cursor: Cursor,
    generation: u64,
    tree: TreeSnapshot,
}

fn nonsense() -> Failure {
    Failure::damaged("an entry makes no sense")
}

impl Image {
    pub(super) fn new(tree: TreeSnapshot, layers: Vec<Arc<Changes>>, generation: u64) -> Self {
        let cursor = Cursor::default();
        let first = data_key(generation, cursor.position(), b"");
        let before = prefix(kind::DATA, generation + 1);
        Self {
            keys: TreeEntries::new(tree.range(first..before)),
            rows: None,
            layers,
            cursor,
            generation,
            tree,
        }
    }

    /// Passes the next keys and rows to `each`, about `bytes` bytes of them.
    pub(super) fn next(
        &mut self,
        bytes: usize,
        each: &mut VisitPart<'_>,
    ) -> Result<Imaged, Failure> {
        let mut turn = StepBudget::of(bytes);
        loop {
            let stop = match self.cursor.open_collection() {
                None => self.pass_keys(&mut turn, each)?,
                Some(_) => self.pass_rows(&mut turn, each)?,
            };
            match stop {
                PassEnd::Rows => {}
                PassEnd::BudgetExhausted => return Ok(Imaged::More),
                PassEnd::ImageComplete => return Ok(Imaged::End),
            }
        }
    }

    fn pass_keys(
        &mut self,
        turn: &mut StepBudget,
        each: &mut VisitPart<'_>,
    ) -> Result<PassEnd, Failure> {
        let from = self.cursor.position();
        let failed = OnceCell::new();
        let mut merge = Merge::new();
        for layer in &self.layers {
            merge.add(records(&layer.data, from));
        }
        merge.add(self.keys.not_passed().map_while(|read| {
            let parsed = read.and_then(|(key, value)| {
                let (position, key) = parse_data_key(&key).ok_or_else(nonsense)?;
                let entry = entry(value).ok_or_else(nonsense)?;
                Ok(((position, Cow::Owned(key.to_vec())), Some(entry)))
            });
            parsed.map_err(|failure| failed.set(failure)).ok()
        }));
        let stop = self.cursor.pass_keys(merge, turn, each);
        let cursor = &self.cursor;
        self.keys.skip_passed(|key| {
            parse_data_key(key).is_some_and(|(position, key)| cursor.has_passed(position, key))
        });
        failed.into_inner().map_or(Ok(stop), Err)
    }

    fn pass_rows(
        &mut self,
        turn: &mut StepBudget,
        each: &mut VisitPart<'_>,
    ) -> Result<PassEnd, Failure> {
        let Some(within) = self.cursor.open_collection().cloned() else {
            return Ok(PassEnd::Rows);
        };
        let (generation, tree) = (self.generation, &self.tree);
        let rows = self.rows.get_or_insert_with(|| {
            let first = row_key(generation, within.id, b"");
            TreeEntries::new(tree.range(first..rows_end(generation, within.id)))
        });
        let failed = OnceCell::new();
        let mut merge = Merge::new();
        for layer in &self.layers {
            if let Some(rows) = layer.rows.get(&within.id) {
                let from = (Bound::Included(within.from()), Bound::Unbounded);
                merge.add(changed(rows.range::<[u8], _>(from)));
            }
        }
        merge.add(rows.not_passed().map_while(|read| {
            let parsed = read.and_then(|(key, value)| {
                let name = parse_row_key(&key).ok_or_else(nonsense)?.to_vec();
                Ok((Cow::Owned(name), Some(Bytes::Shared(value, 0))))
            });
            parsed.map_err(|failure| failed.set(failure)).ok()
        }));
        let stop = self.cursor.pass_rows(merge, turn, each);
        match self.cursor.open_collection() {
            Some(within) => {
                rows.skip_passed(|key| {
                    parse_row_key(key).is_some_and(|name| within.has_passed(name))
                });
            }
            None => self.rows = None,
        }
        failed.into_inner().map_or(Ok(stop), Err)
    }
}

/// Returns the rows of a layer in order. `None` marks a removed row.
pub(super) fn changed<'a>(
    rows: impl Iterator<Item = (&'a Box<[u8]>, &'a Option<Box<[u8]>>)>,
) -> impl Iterator<Item = (Cow<'a, [u8]>, Option<Bytes<'a>>)> {
    rows.map(|(name, value)| {
        let value = value.as_deref().map(Bytes::Borrowed);
        (Cow::Borrowed(&**name), value)
    })
}
