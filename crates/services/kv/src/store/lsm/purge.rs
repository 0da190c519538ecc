//! Purge: removes generations ended by a flush or a load, remains of failed loads, and rows of
//! dropped collections. Readers cannot observe the removal, so it need not be atomic.
//!
//! **Space.** Compaction would reach the data of a generation only after further writes, which a
//! full disk does not accept. Tables within a generation are therefore dropped whole. The other
//! tables are merged without its data if they are small. Both need less space than removing keys
//! one by one, which is left for the rest.

use std::{
    iter,
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

/// Stage in the removal of generations.
#[derive(Clone, Copy, PartialEq, Eq)]
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

pub(super) struct Purge {
    stage: Stage,
    /// True if tables were dropped, so there are files to free.
    dropped: bool,
    /// Stored key from which to continue with ended generations.
    from: Vec<u8>,
    /// Generations that have not ended, in ascending order. There is at least one.
    live: Vec<u64>,
    /// Highest ended generation above the live ones, of a failed load or a flushed database.
    left: Option<u64>,
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
    /// Keys of ended generations were removed. Contains the stored key from which to continue.
    Generations(Vec<u8>),
    /// Rows of a dropped collection were removed. Contains the stored keys from which to continue:
    /// of the collection's marker, and of its row (empty if no rows are left).
    Rows(Vec<u8>, Vec<u8>),
    /// No dropped collections are left after the current position.
    NoneLeft,
}

impl Purge {
    /// Creates the purge for a tree in a state. `newest` is the highest generation ever begun.
    pub(super) fn new(state: &State, newest: u64, purged: Arc<Purged>) -> Self {
        let live = state.live_generations();
        let left = left_above(&live, newest);
        Self {
            stage: Stage::Drop,
            dropped: false,
            from: Vec::new(),
            live,
            left,
            purged,
            may_have_dropped: true,
            continue_from: Vec::new(),
            rows_from: Vec::new(),
            has_given_up: false,
        }
    }

    pub(super) fn is_done(&self) -> bool {
        self.has_given_up || (!self.may_have_dropped && self.generations_are_done())
    }

    pub(super) fn give_up(&mut self) {
        self.has_given_up = true;
    }

    /// Returns the highest generation that has not ended.
    fn last_live(&self) -> u64 {
        self.live.last().copied().unwrap_or(0)
    }

    fn generations_are_done(&self) -> bool {
        self.left.is_none() && self.purged.below(&self.live) >= self.last_live()
    }

    /// Starts to purge the generations that are not those of a written state. If collections were
    /// dropped, their search starts over, as they may precede the current position.
    pub(super) fn begin(&mut self, state: &State, ended: bool) {
        let live = state.live_generations();
        if ended || self.live != live {
            self.look_for_dropped();
        }
        if self.live != live {
            self.left = self.left.max(Some(state.newest)).and_then(|left| left_above(&live, left));
            self.live = live;
            self.begin_generations();
        }
    }

    fn begin_generations(&mut self) {
        (self.stage, self.dropped) = (Stage::Drop, false);
        self.from.clear();
    }

    fn look_for_dropped(&mut self) {
        self.may_have_dropped = true;
        self.continue_from.clear();
        self.rows_from.clear();
    }

    /// Restarts the purge for a newly opened tree.
    pub(super) fn restart(&mut self, state: &State, newest: u64) {
        self.look_for_dropped();
        self.has_given_up = false;
        self.begin_generations();
        self.live = state.live_generations();
        self.left = left_above(&self.live, newest);
        self.purged.set(&self.live, state.oldest);
    }

    fn is_at(&self, stage: Stage) -> bool {
        !self.generations_are_done() && self.stage == stage
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
        let next = match self.stage {
            _ if self.generations_are_done() => return self.step_rows(tree),
            Stage::Drop if trusted && tree.disk_space() >= SMALL_BYTES => {
                self.drop_tables(tree)?;
                Some(Stage::MergeTables)
            }
            Stage::Drop => Some(Stage::Keys),
            Stage::MergeTables => {
                if tree.table_bytes() <= MERGED_BYTES_MAX.min(room) {
                    tree.merge_tables()?;
                    // lsm-tree drops only those value files that were dead before the merge.
                    tree.merge_tables()?;
                }
                Some(Stage::Keys)
            }
            Stage::Keys => return self.step_generations(tree),
            Stage::Free => {
                // fjall keeps the files until a later write, so remove a key that no entry has.
                tree.remove(vec![prefix(kind::DATA, 0).into()])?;
                tree.start_tables()?;
                None
            }
        };
        Ok(PurgeStep::Stage(next))
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
        self.ranges().try_for_each(|range| tree.drop_tables(range))
    }

    /// Iterates over the key ranges of ended generations, in the order of the tree.
    fn ranges(&self) -> impl Iterator<Item = Range<Vec<u8>>> {
        let starts = iter::once(0).chain(self.live.iter().map(|live| live + 1));
        let end = self.left.map_or(0, |left| left + 1);
        let ends = self.live.iter().copied().chain(iter::once(end));
        // Between two live generations, and above the last one.
        let generations: Vec<Range<u64>> =
            starts.zip(ends).map(|(start, end)| start..end).collect();
        let kinds = [
            kind::DEADLINE,
            kind::DATA,
            kind::ROW,
            kind::DROPPED,
            kind::FIELD_DEADLINE,
            kind::APART_HEADER,
        ];
        let each = move |kind| {
            let generations = generations.clone().into_iter().filter(|range| !range.is_empty());
            generations.map(move |range| prefix(kind, range.start)..prefix(kind, range.end))
        };
        kinds.into_iter().flat_map(each)
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
        let mut keys = Vec::with_capacity(PURGED_MAX);
        for range in self.ranges() {
            let from = range.start.max(self.from.clone());
            if from >= range.end {
                continue;
            }
            let room = PURGED_MAX - keys.len();
            for key in tree.keys(from..range.end).take(room) {
                keys.push(key?);
            }
        }
        let last = (keys.len() == PURGED_MAX).then(|| keys.last().map(|key| key.to_vec()));
        tree.remove(keys)?;
        Ok(match last.flatten() {
            Some(last) => PurgeStep::Generations(last),
            None => PurgeStep::Stage(self.dropped.then_some(Stage::Free)),
        })
    }

    pub(super) fn record_step(&mut self, to: PurgeStep) {
        match to {
            PurgeStep::NoneLeft => self.may_have_dropped = false,
            PurgeStep::Rows(ended_from, rows_from) => {
                (self.continue_from, self.rows_from) = (ended_from, rows_from);
            }
            PurgeStep::Generations(key) => self.from = key,
            PurgeStep::Stage(Some(stage)) => {
                self.stage = stage;
                self.dropped |= stage == Stage::MergeTables;
            }
            PurgeStep::Stage(None) => {
                self.begin_generations();
                self.left = None;
                self.purged.set(&self.live, self.last_live());
            }
        }
    }
}

/// Returns `newest` if it is above the live generations.
fn left_above(live: &[u64], newest: u64) -> Option<u64> {
    live.last().is_none_or(|last| newest > *last).then_some(newest)
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

    /// The generations of several databases survive, whatever ends below, between and above them, and
    /// whether tables are dropped or keys removed.
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
        assert_eq!(purge.from.first(), Some(&kind::DATA));
        fill(&tree, 1, 10);
        fill(&tree, 2, 3);
        purge.begin(&state(&[2]), false);
        while !purge.is_done() {
            step(&mut purge);
        }
        assert_eq!(tree.entries().unwrap(), 6, "what is not ended stays");
    }
}
