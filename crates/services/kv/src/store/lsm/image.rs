//! Snapshot of the store on disk: fjall's snapshot of the tree, and the layers then above it.

use std::{borrow::Cow, cell::OnceCell, collections::VecDeque, ops::Bound, sync::Arc};

use fjall::Slice;
use quorate_replica::service::Imaged;

use super::{
    changes::{Changes, Part},
    failure::Failure,
    layout::{data_key, entry, kind, parse_data_key, parse_row_key, prefix, row_key, rows_end},
    tree::TreeSnapshot,
};
use crate::store::{
    Bytes, Database, Version,
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

/// Database of a snapshot.
#[derive(Clone, Copy, Debug)]
pub(super) struct ImagedDatabase {
    pub(super) database: Database,
    pub(super) since: Version,
    /// Generation of its keys, if it has any.
    pub(super) generation: Option<u64>,
}

/// Snapshot in progress. Keeps the tree open.
pub(super) struct Image {
    /// Databases that have not begun.
    databases: VecDeque<ImagedDatabase>,
    /// Database that has begun.
    current: Option<Keys>,
    /// Immutable layers above the tree, uppermost first.
    layers: Vec<Arc<Changes>>,
    tree: TreeSnapshot,
}

/// Keys of a database that have not been passed.
struct Keys {
    keys: TreeEntries,
    /// Remaining rows of the current collection.
    rows: Option<TreeEntries>,
    cursor: Cursor,
    generation: u64,
}

fn nonsense() -> Failure {
    Failure::damaged("an entry makes no sense")
}

impl Image {
    pub(super) fn new(
        tree: TreeSnapshot,
        layers: Vec<Arc<Changes>>,
        databases: Vec<ImagedDatabase>,
    ) -> Self {
        Self { databases: databases.into(), current: None, layers, tree }
    }

    /// Passes the next keys and rows to `each`, about `bytes` bytes of them.
    pub(super) fn next(
        &mut self,
        bytes: usize,
        each: &mut VisitPart<'_>,
    ) -> Result<Imaged, Failure> {
        let mut turn = StepBudget::of(bytes);
        loop {
            let Some(keys) = &mut self.current else {
                let Some(next) = self.databases.pop_front() else {
                    return Ok(Imaged::End);
                };
                turn.pass_database(next.database, next.since, each);
                self.current = next.generation.map(|generation| Keys::new(&self.tree, generation));
                continue;
            };
            match keys.pass(&self.tree, &self.layers, &mut turn, each)? {
                PassEnd::Rows => {}
                PassEnd::BudgetExhausted => return Ok(Imaged::More),
                PassEnd::ImageComplete => self.current = None,
            }
        }
    }
}

impl Keys {
    fn new(tree: &TreeSnapshot, generation: u64) -> Self {
        let cursor = Cursor::default();
        let first = data_key(generation, cursor.position(), b"");
        let before = prefix(kind::DATA, generation + 1);
        let keys = TreeEntries::new(tree.range(first..before));
        Self { keys, rows: None, cursor, generation }
    }

    fn pass(
        &mut self,
        tree: &TreeSnapshot,
        layers: &[Arc<Changes>],
        turn: &mut StepBudget,
        each: &mut VisitPart<'_>,
    ) -> Result<PassEnd, Failure> {
        let layers = layers.iter().filter_map(|layer| layer.part(self.generation));
        let layers: Vec<&Part> = layers.collect();
        match self.cursor.open_collection() {
            None => self.pass_keys(&layers, turn, each),
            Some(_) => self.pass_rows(tree, &layers, turn, each),
        }
    }

    fn pass_keys(
        &mut self,
        layers: &[&Part],
        turn: &mut StepBudget,
        each: &mut VisitPart<'_>,
    ) -> Result<PassEnd, Failure> {
        let from = self.cursor.position();
        let failed = OnceCell::new();
        let mut merge = Merge::new();
        for layer in layers {
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
        tree: &TreeSnapshot,
        layers: &[&Part],
        turn: &mut StepBudget,
        each: &mut VisitPart<'_>,
    ) -> Result<PassEnd, Failure> {
        let Some(within) = self.cursor.open_collection().cloned() else {
            return Ok(PassEnd::Rows);
        };
        let generation = self.generation;
        let rows = self.rows.get_or_insert_with(|| {
            let first = row_key(generation, within.id, b"");
            TreeEntries::new(tree.range(first..rows_end(generation, within.id)))
        });
        let failed = OnceCell::new();
        let mut merge = Merge::new();
        for layer in layers {
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
