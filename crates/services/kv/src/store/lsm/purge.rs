//! Purge: removes generations ended by a flush or a load, remains of failed loads, and rows of
//! dropped collections. Readers cannot observe the removal, so it need not be atomic.
//!
//! **Space.** Compaction would reach the data of a generation only after further writes, which a
//! full disk does not accept. Tables within a generation are therefore dropped whole. The other
//! tables are merged without its data if they are small and it is a good part of them. Both need
//! less space than removing keys one by one, which is left for the rest.
//!
//! **Work.** Only generations that have ended since the last complete purge are visited. A database
//! that begins a generation causes no work, and a small one that ends no merge.

use std::{
    mem,
    ops::Range,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use fjall::Slice;

use super::{
    failure::Failure,
    layout::{
        State, dropped_collection_key, kind, parse_dropped_collection_key, prefix, row_key,
        rows_end,
    },
    tree::Tree,
};

/// Maximum number of keys removed per step.
const PURGED_MAX: usize = 1024;
/// Size of a tree in bytes below which purged space is left to later compactions.
const SMALL_BYTES: u64 = 8 << 20;
/// Maximum total size of tables merged at once, as the writer waits for the merge. A tree exceeds
/// it if the live generations have much data, as after a load, or many small keys.
const MERGED_BYTES_MAX: u64 = 256 << 20;
/// Number of bytes of tables that are merged rather than removing one more key.
const MERGED_BYTES_PER_KEY: u64 = 1 << 10;
/// Part of the tree, in values, that ended generations must have to be worth a merge.
const MERGED_PART: u64 = 8;

/// Kinds of stored keys that contain a generation, in the order of the tree.
const KINDS: [u8; 6] = [
    kind::DEADLINE,
    kind::DATA,
    kind::ROW,
    kind::DROPPED,
    kind::FIELD_DEADLINE,
    kind::APART_HEADER,
];

/// Stage in the removal of generations.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Stage {
    /// Drop whole tables.
    Drop,
    /// Merge the other tables.
    MergeTables,
    /// Remove the remaining keys.
    Keys,
    /// Free the files of the former tables.
    Free,
}

/// Result of the last complete purge, which the owner of the store reads.
#[derive(Debug)]
pub(super) struct Purged(Mutex<PurgedGenerations>);

#[derive(Debug)]
struct PurgedGenerations {
    /// Generations that were live, in ascending order.
    live: Vec<u64>,
    /// Generation below which the others had no data.
    below: u64,
}

impl Purged {
    pub(super) fn new(state: &State) -> Self {
        let live = state.live_generations();
        Self(Mutex::new(PurgedGenerations { live, below: state.oldest }))
    }

    /// Returns the lowest generation that may have data without being one of those in `live`, which
    /// are the present ones: one that was live during the purge may have ended since.
    pub(super) fn below(&self, live: &[u64]) -> u64 {
        let purged = self.lock();
        let ended = purged.live.iter().find(|generation| !live.contains(generation));
        ended.map_or(purged.below, |ended| purged.below.min(*ended))
    }

    fn set(&self, live: &[u64], below: u64) {
        *self.lock() = PurgedGenerations { live: live.to_owned(), below };
    }

    fn lock(&self) -> MutexGuard<'_, PurgedGenerations> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Generations that have ended and may have data.
struct Ended {
    generations: Range<u64>,
    /// Stored key from which to continue.
    from: Vec<u8>,
}

impl Ended {
    /// Returns the ranges of stored keys that may still exist, in the order of the tree.
    fn ranges(&self) -> impl Iterator<Item = Range<Vec<u8>>> {
        let Range { start, end } = self.generations;
        let ranges = KINDS.into_iter().map(move |kind| {
            let range = prefix(kind, start)..prefix(kind, end);
            range.start.max(self.from.clone())..range.end
        });
        ranges.filter(|range| range.start < range.end)
    }
}

pub(super) struct Purge {
    /// Stage in the removal of `ended`, if there are any.
    stage: Stage,
    /// True if tables were dropped, so there are files to free.
    dropped: bool,
    ended: Vec<Ended>,
    /// Generations that have not ended, in ascending order. There is at least one.
    live: Vec<u64>,
    /// Highest generation begun so far, apart from those of a load in progress.
    newest: u64,
    purged: Arc<Purged>,
    /// True if the live generations may have dropped collections.
    may_have_dropped: bool,
    /// Dropped collection from which to continue. Starting over would be slow, as searches walk
    /// over removed entries for a while.
    continue_from: Vec<u8>,
    /// Row of that collection from which to continue.
    rows_from: Vec<u8>,
    /// True if the purge stopped because the data to remove cannot be read.
    has_given_up: bool,
}

pub(super) enum PurgeStep {
    /// A stage in the removal of generations is complete. Contains the next one, if any.
    Stage(Option<Stage>),
    /// Keys of the first ended generations were removed. Contains the stored key from which to
    /// continue; `None` if they have no more.
    Generations(Option<Vec<u8>>),
    /// Rows of a dropped collection were removed. Contains the stored keys from which to continue:
    /// of the collection's marker, and of its row (empty if no rows are left).
    Rows(Vec<u8>, Vec<u8>),
    /// No dropped collections are left after the current position.
    NoneLeft,
}

impl Purge {
    /// Creates the purge for a tree in a state. `newest` is the highest generation ever begun.
    pub(super) fn new(state: &State, newest: u64, purged: Arc<Purged>) -> Self {
        let mut purge = Self {
            stage: Stage::Drop,
            dropped: false,
            ended: Vec::new(),
            live: state.live_generations(),
            newest,
            purged,
            may_have_dropped: true,
            continue_from: Vec::new(),
            rows_from: Vec::new(),
            has_given_up: false,
        };
        purge.add_ended(state.oldest..newest + 1);
        purge
    }

    pub(super) fn is_done(&self) -> bool {
        self.has_given_up || (!self.may_have_dropped && self.current_stage().is_none())
    }

    pub(super) fn give_up(&mut self) {
        self.has_given_up = true;
    }

    /// Returns the highest generation that has not ended.
    fn last_live(&self) -> u64 {
        self.live.last().copied().unwrap_or(0)
    }

    /// Returns the stage in the removal of generations; `None` if it is complete.
    fn current_stage(&self) -> Option<Stage> {
        match self.ended.is_empty() {
            false => Some(self.stage),
            true => self.dropped.then_some(Stage::Free),
        }
    }

    /// Adds those of some generations that are not live. If there are any, tables are dropped next.
    fn add_ended(&mut self, generations: Range<u64>) {
        let mut start = generations.start;
        let live = self.live.iter().copied().filter(|live| generations.contains(live));
        let ends: Vec<u64> = live.chain([generations.end]).collect();
        for end in ends {
            if start < end {
                self.stage = Stage::Drop;
                match self.ended.last_mut() {
                    Some(last) if last.generations.end == start && last.from.is_empty() => {
                        last.generations.end = end;
                    }
                    _ => self.ended.push(Ended { generations: start..end, from: Vec::new() }),
                }
            }
            start = end + 1;
        }
    }

    /// Starts to purge the generations that are not those of a written state. What is left of
    /// those that ended earlier is purged with them, from where it was. If collections were
    /// dropped, their search starts over, as they may precede the current position.
    pub(super) fn begin(&mut self, state: &State, drops_collections: bool) {
        if drops_collections {
            self.look_for_dropped();
        }
        let live = state.live_generations();
        if self.live == live {
            return;
        }
        let earlier = mem::replace(&mut self.live, live);
        for generation in earlier {
            self.add_ended(generation..generation + 1);
        }
        // A failed load leaves generations that no state has had.
        let begun = self.newest + 1;
        self.newest = self.newest.max(state.newest);
        self.add_ended(begun..self.newest + 1);
        self.note_purged();
    }

    /// Publishes that only live generations have data, if that is so.
    fn note_purged(&self) {
        if self.ended.is_empty() {
            self.purged.set(&self.live, self.last_live());
        }
    }

    fn look_for_dropped(&mut self) {
        self.may_have_dropped = true;
        self.continue_from.clear();
        self.rows_from.clear();
    }

    /// Restarts the purge for a newly opened tree.
    pub(super) fn restart(&mut self, state: &State, newest: u64) {
        *self = Self::new(state, newest, Arc::clone(&self.purged));
        self.purged.set(&self.live, state.oldest);
    }

    fn is_at(&self, stage: Stage) -> bool {
        self.current_stage() == Some(stage)
    }

    /// Returns whether the next step needs more space than a list of tables.
    pub(super) fn needs_free_space(&self) -> bool {
        !self.is_at(Stage::Drop)
    }

    /// Returns whether the tree is ready for the next step.
    pub(super) fn is_ready(&self, tree: &Tree) -> Result<bool, Failure> {
        Ok(tree.is_free()?
            // A table that is being written would not be merged.
            && (!self.is_at(Stage::MergeTables) || tree.has_tables()?)
            // A snapshot would keep the files.
            && !(self.is_at(Stage::Free) && tree.is_pinned()))
    }

    /// Takes one step. `trusted` means that a sync of the tree is reliable; `room` is the number of
    /// free bytes.
    pub(super) fn step(&self, tree: &Tree, trusted: bool, room: u64) -> Result<PurgeStep, Failure> {
        let next = match self.current_stage() {
            None => return self.step_rows(tree),
            Some(Stage::Drop) if trusted && self.should_drop_tables(tree)? => {
                self.drop_tables(tree)?;
                Some(Stage::MergeTables)
            }
            Some(Stage::Drop) => Some(Stage::Keys),
            Some(Stage::MergeTables) => {
                if tree.table_bytes() <= MERGED_BYTES_MAX.min(room) && self.is_large(tree)? {
                    tree.merge_tables()?;
                    // lsm-tree drops only those value files that were dead before the merge.
                    tree.merge_tables()?;
                }
                Some(Stage::Keys)
            }
            Some(Stage::Keys) => return self.step_generations(tree),
            Some(Stage::Free) => {
                // fjall keeps the files until a later write, so remove a key that no entry has.
                tree.remove(vec![prefix(kind::DATA, 0).into()])?;
                tree.start_tables()?;
                None
            }
        };
        Ok(PurgeStep::Stage(next))
    }

    fn should_drop_tables(&self, tree: &Tree) -> Result<bool, Failure> {
        Ok(tree.disk_space() >= SMALL_BYTES
            && (self.ranges().any(|range| tree.has_table_within(&range)) || self.is_large(tree)?))
    }

    /// Returns whether the ended generations are so large that a merge of all tables costs less
    /// than the removal of their keys, or frees a good part of the tree. Visits no more keys than
    /// the answer needs. Data that cannot be read counts as large, because a table may be dropped
    /// unread.
    fn is_large(&self, tree: &Tree) -> Result<bool, Failure> {
        let merged = tree.table_bytes().min(MERGED_BYTES_MAX);
        let keys_max = (merged / MERGED_BYTES_PER_KEY).max(PURGED_MAX as u64);
        let bytes_max = tree.disk_space() / MERGED_PART;
        let (mut keys, mut bytes) = (0, 0_u64);
        for size in self.ranges().flat_map(|range| tree.value_sizes(range)) {
            match size {
                Ok(size) => bytes = bytes.saturating_add(size.into()),
                Err(Failure::Damaged(_)) => return Ok(true),
                Err(failure) => return Err(failure),
            }
            keys += 1;
            if keys > keys_max || bytes > bytes_max {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Drops the tables of ended generations, and lets compactions omit the rest of their data.
    /// Both are durable at once, so the journal is synced first. Otherwise, a power loss could
    /// restore the state of a generation without its data.
    ///
    /// Data of failed loads needs no sync, because no state refers to its generation. Older entries
    /// that reappear belong to generations that are never read again, and are removed later.
    fn drop_tables(&self, tree: &Tree) -> Result<(), Failure> {
        tree.sync()?;
        tree.drop_generations_except(&self.live);
        // Each drop syncs several files, whether or not there is a table.
        let mut ranges = self.ranges().filter(|range| tree.has_table_within(range));
        ranges.try_for_each(|range| tree.drop_tables(range))
    }

    /// Iterates over the ranges of stored keys of ended generations.
    fn ranges(&self) -> impl Iterator<Item = Range<Vec<u8>>> {
        self.ended.iter().flat_map(Ended::ranges)
    }

    /// Returns the next mark of a dropped collection, with its generation.
    fn next_dropped(&self, tree: &Tree) -> Result<Option<(u64, Slice)>, Failure> {
        for generation in &self.live {
            let first = prefix(kind::DROPPED, *generation).max(self.continue_from.clone());
            let end = prefix(kind::DROPPED, generation + 1);
            if first < end
                && let Some(marker) = tree.keys(first..end).next().transpose()?
            {
                return Ok(Some((*generation, marker)));
            }
        }
        Ok(None)
    }

    fn step_rows(&self, tree: &Tree) -> Result<PurgeStep, Failure> {
        let Some((generation, marker)) = self.next_dropped(tree)? else {
            return Ok(PurgeStep::NoneLeft);
        };
        let id = parse_dropped_collection_key(&marker)
            .ok_or_else(|| Failure::damaged("an ended collection makes no sense"))?;
        let first = row_key(generation, id, b"").max(self.rows_from.clone());
        let rows = tree.keys(first..rows_end(generation, id));
        let mut keys: Vec<Slice> = rows.take(PURGED_MAX).collect::<Result<_, _>>()?;
        let marker = dropped_collection_key(generation, id);
        let last = keys.last().map(|key| key.to_vec());
        let rows_from = match last {
            Some(last) if keys.len() == PURGED_MAX => last,
            _ => {
                // The mark is removed with the last rows or later, never earlier.
                keys.push(Slice::from(marker.as_slice()));
                Vec::new()
            }
        };
        tree.remove(keys)?;
        Ok(PurgeStep::Rows(marker, rows_from))
    }

    fn step_generations(&self, tree: &Tree) -> Result<PurgeStep, Failure> {
        let ranges = self.ended.first().into_iter().flat_map(Ended::ranges);
        let keys = ranges.flat_map(|range| tree.keys(range)).take(PURGED_MAX);
        let keys: Vec<Slice> = keys.collect::<Result<_, _>>()?;
        let is_full = keys.len() == PURGED_MAX;
        let last = keys.last().filter(|_| is_full).map(|key| key.to_vec());
        if !keys.is_empty() {
            tree.remove(keys)?;
        }
        Ok(PurgeStep::Generations(last))
    }

    pub(super) fn record_step(&mut self, to: PurgeStep) {
        match to {
            PurgeStep::NoneLeft => self.may_have_dropped = false,
            PurgeStep::Rows(ended_from, rows_from) => {
                (self.continue_from, self.rows_from) = (ended_from, rows_from);
            }
            PurgeStep::Generations(Some(key)) => {
                if let Some(first) = self.ended.first_mut() {
                    first.from = key;
                }
            }
            PurgeStep::Generations(None) => {
                self.ended.remove(0);
                self.note_purged();
            }
            PurgeStep::Stage(Some(stage)) => {
                self.stage = stage;
                self.dropped |= stage == Stage::MergeTables;
            }
            PurgeStep::Stage(None) => self.dropped = false,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::{
        fs,
        path::{Path, PathBuf},
        sync::Mutex,
        thread,
        time::{Duration, Instant},
    };

    use quorate_core::slot::Slot;

    use super::*;
    use crate::{
        key::Key,
        store::{
            DeadlineKind, Position, Store as _, Version,
            collection::Id,
            lsm::{
                LsmStore,
                disk::{Access, Disk, DiskSpace, RealDisk},
                layout::{STATE_KEY, Space, data_key, deadline_key},
                tree::{OpenedTree, TreeLocation},
            },
        },
    };

    fn opened_on(folder: &tempfile::TempDir, disk: Arc<dyn Disk>) -> OpenedTree {
        let path = folder.path().join("tree");
        let home = TreeLocation { path, disk, files_max: 16, cache_bytes: 1 << 20 };
        Tree::open(&home, None).unwrap_or_else(|failure| panic!("{failure}"))
    }

    fn opened(folder: &tempfile::TempDir) -> Tree {
        opened_on(folder, Arc::new(RealDisk)).tree
    }

    #[expect(clippy::disallowed_methods, reason = "a test waits for other threads")]
    fn until(what: &str, mut is_so: impl FnMut() -> bool) {
        let began = Instant::now();
        while !is_so() {
            assert!(began.elapsed() < Duration::from_secs(60), "never: {what}");
            thread::sleep(Duration::from_millis(1));
        }
    }

    /// Returns a state whose databases have these generations.
    fn state(generations: &[u64]) -> State {
        let mut state = State::EMPTY;
        for (space, generation) in state.spaces.iter_mut().zip(generations) {
            *space = Some(Space::new(*generation));
        }
        state.newest = state.live_generations().last().copied().unwrap_or(0);
        state
    }

    fn purge(generation: u64) -> Purge {
        let state = state(&[generation]);
        Purge::new(&state, generation, Arc::new(Purged::new(&state)))
    }

    fn flush(tree: &Tree) {
        tree.start_tables().unwrap();
        until("tables", || tree.has_tables().unwrap());
    }

    const LARGE: usize = 6000;

    /// Returns bytes that cannot be compressed.
    fn value(number: usize, bytes: usize) -> Vec<u8> {
        let digests = (0..).map(|part| {
            xxhash_rust::xxh3::xxh3_128(&[number, part].map(usize::to_le_bytes).concat())
        });
        digests.flat_map(u128::to_le_bytes).take(bytes).collect()
    }

    /// Writes the state of a generation, then its data to a table that does not contain the state.
    fn fill_tables(tree: &Tree) {
        tree.insert(STATE_KEY.to_vec(), &State::EMPTY.to_bytes());
        flush(tree);
        for number in 0..LARGE {
            let key = number.to_be_bytes();
            tree.insert(data_key(0, Position::of(&key), &key), &value(number, 2000));
        }
        flush(tree);
    }

    fn data() -> Range<Vec<u8>> {
        prefix(kind::DATA, 0)..prefix(kind::DATA, 1)
    }

    fn folder_bytes(folder: &Path) -> u64 {
        let entries = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap());
        // The file may have been removed meanwhile.
        let bytes = |path: &Path| fs::metadata(path).map_or(0, |file| file.len());
        entries
            .map(|entry| match entry.path() {
                path if path.is_dir() => folder_bytes(&path),
                path => bytes(&path),
            })
            .sum()
    }

    /// A flushed store frees its files without further commits, but not before a snapshot in
    /// progress ends.
    #[test]
    fn space_is_freed_once_no_snapshot_needs_it() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("kv");
        let (mut store, _) = LsmStore::open(&path).unwrap();
        // Values inside the tables, and in separate files.
        for bytes in [3000, 300] {
            for number in 0..4000_usize {
                let key = [number, bytes].map(usize::to_be_bytes).concat();
                let version = Version { slot: 1, index: 0 };
                store.put(Key::new(&key).unwrap(), &value(number, bytes), version, None);
            }
            store.commit(Slot(2), &[]);
            store.persist().unwrap();
            flush(&store.tree.clone().unwrap());
        }
        let tables = path.join("keyspaces");
        let before = folder_bytes(&tables);
        assert!(before > SMALL_BYTES);
        assert_eq!(store.begin_image(), Some(8000));
        store.clear();
        store.commit(Slot(3), &[]);
        until("the keys are removed", || {
            store.health();
            store.stored_entries() == 1
        });
        let mut keys = 0;
        while let quorate_replica::service::Imaged::More =
            store.next_image(1 << 16, &mut |_| keys += 1)
        {}
        assert_eq!(keys, 8000);
        store.end_image();
        until("the space is free", || folder_bytes(&tables) < before / 10);
    }

    #[test]
    fn snapshot_retains_dropped_tables() {
        let folder = tempfile::tempdir().unwrap();
        let tree = opened(&folder);
        fill_tables(&tree);
        let before = tree.disk_space();
        let past = tree.tree_snapshot();
        let mut purge = purge(1);
        purge.record_step(purge.step(&tree, true, u64::MAX).unwrap());
        assert!(tree.disk_space() < before / 100, "tables and values are dropped at once");
        assert_eq!(tree.range(data()).count(), 0);
        flush(&tree);
        let values = past.range(data()).map(|read| read.unwrap().1.len());
        assert_eq!(values.sum::<usize>(), 2000 * LARGE);
    }

    /// The generations of several databases survive, whatever ends below, between and above them,
    /// and whether tables are dropped or keys removed.
    #[test]
    fn live_generations_survive_among_ended_ones() {
        const EACH: usize = LARGE / 5;
        for trusted in [false, true] {
            let folder = tempfile::tempdir().unwrap();
            let tree = opened(&folder);
            for number in 0..5 * EACH {
                let key = number.to_be_bytes();
                // Each table has keys of all generations.
                let generation = number as u64 % 5;
                let key = data_key(generation, Position::of(&key), &key);
                tree.insert(key, &value(number, 2000));
                if number == EACH {
                    flush(&tree);
                }
            }
            flush(&tree);
            assert!(tree.disk_space() >= SMALL_BYTES);
            let state = state(&[3, 1]);
            let purged = Arc::new(Purged::new(&state));
            let mut purge = Purge::new(&state, 4, Arc::clone(&purged));
            while !purge.is_done() {
                until("room", || purge.is_ready(&tree).unwrap());
                purge.record_step(purge.step(&tree, trusted, u64::MAX).unwrap());
            }
            tree.merge_tables().unwrap();
            for generation in 0..5 {
                let range = prefix(kind::DATA, generation)..prefix(kind::DATA, generation + 1);
                let expected = if matches!(generation, 1 | 3) { EACH } else { 0 };
                assert_eq!(tree.keys(range).count(), expected, "{generation}");
            }
            // A generation that has ended since the purge may have data.
            assert_eq!(
                [&[1, 3][..], &[3], &[1], &[3, 5]].map(|live| purged.below(live)),
                [3, 1, 3, 1]
            );
        }
    }

    /// Runs a purge to its end and returns the stages that it reached.
    fn run(tree: &Tree, purge: &mut Purge) -> Vec<Stage> {
        let mut stages = Vec::new();
        while !purge.is_done() {
            until("room", || purge.is_ready(tree).unwrap());
            let step = purge.step(tree, true, u64::MAX).unwrap();
            if let PurgeStep::Stage(Some(stage)) = step {
                stages.push(stage);
            }
            purge.record_step(step);
        }
        stages
    }

    /// Returns a purge with nothing to do for a large tree of generation 0.
    fn purge_of_large(tree: &Tree) -> (Purge, Arc<Purged>) {
        fill_tables(tree);
        assert!(tree.disk_space() >= SMALL_BYTES);
        let purged = Arc::new(Purged::new(&State::EMPTY));
        let mut purge = Purge::new(&State::EMPTY, 0, Arc::clone(&purged));
        assert_eq!(run(tree, &mut purge), []);
        (purge, purged)
    }

    #[test]
    fn begun_generations_need_no_work() {
        let folder = tempfile::tempdir().unwrap();
        let tree = opened(&folder);
        let (mut purge, purged) = purge_of_large(&tree);
        // As after the first write in two databases, and after a swap with an empty one.
        for live in [&[0, 1, 2][..], &[2, 1, 0, 3]] {
            purge.begin(&state(live), false);
            assert!(purge.is_done());
            let mut live = live.to_vec();
            live.sort_unstable();
            assert_eq!(purged.below(&live), *live.last().unwrap());
        }
        // A failed load has left something in between.
        fill(&tree, 4, 7);
        purge.begin(&state(&[2, 1, 0, 3, 5]), false);
        assert_eq!(run(&tree, &mut purge), [Stage::Keys]);
        assert_eq!(tree.entries().unwrap(), LARGE + 1);
    }

    /// Only what ended is visited, and its keys are removed if it is small.
    #[test]
    fn small_ended_generation_causes_no_merge() {
        let folder = tempfile::tempdir().unwrap();
        let tree = opened(&folder);
        let (mut purge, purged) = purge_of_large(&tree);
        purge.begin(&state(&[0, 1, 2]), false);
        fill(&tree, 1, 1);
        fill(&tree, 2, 1);
        flush(&tree);
        let files = tree.files();
        purge.begin(&state(&[0, 2]), false);
        assert_eq!(purged.below(&[0, 2]), 1);
        assert_eq!(purge.ended.len(), 1);
        assert_eq!(purge.ended[0].generations, 1..2);
        assert_eq!(run(&tree, &mut purge), [Stage::Keys]);
        assert_eq!(tree.entries().unwrap(), LARGE + 1 + 2);
        assert_eq!(purged.below(&[0, 2]), 2);
        purge.begin(&state(&[0]), false);
        assert_eq!(run(&tree, &mut purge), [Stage::Keys]);
        assert_eq!(tree.entries().unwrap(), LARGE + 1);
        assert!(tree.files() == files, "tables were merged or dropped");
    }

    /// A large generation is merged away, also if a small one ends or begins in the middle of it.
    #[test]
    fn large_generation_is_not_forgotten_for_a_small_one() {
        let folder = tempfile::tempdir().unwrap();
        let tree = opened(&folder);
        for number in 0..LARGE {
            let key = number.to_be_bytes();
            let key = data_key(u64::from(number % 5 > 0), Position::of(&key), &key);
            tree.insert(key, &value(number, 2000));
        }
        fill(&tree, 2, 1);
        flush(&tree);
        let mut purge = Purge::new(&State::EMPTY, 0, Arc::new(Purged::new(&State::EMPTY)));
        run(&tree, &mut purge);
        purge.begin(&state(&[0, 1, 2]), false);
        let before = tree.table_bytes();
        // Generation 1 ends, then 2 in the middle of its removal, and 3 begins.
        purge.begin(&state(&[0, 2]), false);
        purge.record_step(purge.step(&tree, true, u64::MAX).unwrap());
        assert!(purge.is_at(Stage::MergeTables));
        purge.begin(&state(&[0, 2, 3]), false);
        assert!(purge.is_at(Stage::MergeTables), "a begun generation changes nothing");
        purge.begin(&state(&[0, 3]), false);
        assert_eq!(run(&tree, &mut purge), [Stage::MergeTables, Stage::Keys]);
        assert_eq!(tree.entries().unwrap(), LARGE / 5);
        assert!(tree.table_bytes() < before / 2);
    }

    /// Disk that records the synced part of the journal.
    #[derive(Debug)]
    struct Syncs {
        path: PathBuf,
        synced: Mutex<Vec<u8>>,
    }

    impl Disk for Syncs {
        fn free_space(&self, folder: &Path) -> std::io::Result<DiskSpace> {
            RealDisk.free_space(folder)
        }

        fn try_writing(&self, folder: &Path) -> std::io::Result<()> {
            RealDisk.try_writing(folder)
        }

        fn allows(&self, access: Access) -> std::io::Result<()> {
            if access == Access::Sync {
                *self.synced.lock().unwrap() = fs::read(&self.path)?;
            }
            Ok(())
        }
    }

    /// A power loss never restores a state whose generation has lost its tables.
    #[test]
    fn tables_are_dropped_after_the_next_state_is_synced() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("tree/0.jnl");
        let disk = Arc::new(Syncs { path: path.clone(), synced: Mutex::default() });
        for trusted in [false, true] {
            let tree = opened_on(&folder, Arc::clone(&disk) as Arc<dyn Disk>).tree;
            fill_tables(&tree);
            tree.sync().unwrap();
            let before = tree.disk_space();
            tree.insert(STATE_KEY.to_vec(), &state(&[1]).to_bytes());
            purge(1).step(&tree, trusted, u64::MAX).unwrap();
            assert_eq!(tree.disk_space() < before / 100, trusted);
            drop(tree);
            fs::write(&path, &*disk.synced.lock().unwrap()).unwrap();
            let OpenedTree { tree, state, .. } = opened_on(&folder, Arc::new(RealDisk));
            assert_eq!(state.first().generation, u64::from(trusted));
            assert!(trusted || tree.keys(data()).count() == LARGE);
        }
    }

    #[test]
    fn rows_of_ended_collections_are_removed_and_no_others() {
        let folder = tempfile::tempdir().unwrap();
        let tree = opened(&folder);
        let id = |slot| Id { version: Version { slot, index: 0 }, number: 0 };
        // Rows of neighbouring collections survive.
        for slot in 1..=5 {
            let rows = if slot == 3 { 3 * PURGED_MAX } else { 7 };
            for number in 0..rows {
                tree.insert(row_key(4, id(slot), &number.to_be_bytes()), &[]);
            }
        }
        let purged = || {
            let state = State { oldest: 4, ..state(&[4]) };
            Purge::new(&state, 4, Arc::new(Purged::new(&state)))
        };
        let mut purge = purged();
        let run = |purge: &mut Purge| {
            let mut steps = 0;
            while !purge.is_done() {
                let went = purge.step(&tree, true, u64::MAX).unwrap();
                purge.record_step(went);
                steps += 1;
            }
            steps
        };
        assert_eq!(run(&mut purge), 1, "nothing ended");
        tree.insert(dropped_collection_key(4, id(2)), &[]);
        tree.insert(dropped_collection_key(4, id(3)), &[]);
        tree.insert(dropped_collection_key(4, id(5)), &[]);
        purge.begin(&state(&[4]), true);
        assert_eq!(run(&mut purge), 1 + 4 + 1 + 1);
        assert_eq!(tree.entries().unwrap(), 2 * 7);
        // Collections created early may be dropped late.
        tree.insert(dropped_collection_key(4, id(1)), &[]);
        purge.begin(&state(&[4]), true);
        run(&mut purge);
        assert_eq!(tree.entries().unwrap(), 7);
        // A purge created after a restart also finds such a collection.
        tree.insert(dropped_collection_key(4, id(4)), &[]);
        run(&mut purged());
        assert_eq!(tree.entries().unwrap(), 0);
    }

    fn fill(tree: &Tree, generation: u64, keys: u64) {
        for number in 1..=keys {
            let key = number.to_be_bytes();
            let stored = [
                deadline_key(generation, DeadlineKind::Keys, number, &key),
                data_key(generation, Position::of(&key), &key),
            ];
            for key in stored {
                tree.insert(key, &[]);
            }
        }
    }

    #[test]
    fn generation_ended_during_a_removal_is_removed_completely() {
        let folder = tempfile::tempdir().unwrap();
        let tree = opened(&folder);
        let mut purge = purge(1);
        let step = |purge: &mut Purge| {
            let last = purge.step(&tree, true, u64::MAX).unwrap();
            purge.record_step(last);
        };
        // The first steps remove all deadlines of the first generation, then some of its keys.
        fill(&tree, 0, PURGED_MAX as u64 + 1);
        purge.stage = Stage::Keys;
        step(&mut purge);
        step(&mut purge);
        assert_eq!(purge.ended[0].from.first(), Some(&kind::DATA));
        fill(&tree, 1, 10);
        fill(&tree, 2, 3);
        purge.begin(&state(&[2]), false);
        while !purge.is_done() {
            step(&mut purge);
        }
        assert_eq!(tree.entries().unwrap(), 6, "what is not ended stays");
    }
}
