//! The LSM tree: opening, reading, writing, and classification of failures.

mod batch;
mod footprint;

use std::{
    fs, io,
    ops::Range,
    panic::{self, AssertUnwindSafe},
    path::{Path, PathBuf},
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
};

use fjall::{
    AbstractTree as _, CompressionType, Database, Keyspace, KeyspaceCreateOptions,
    KvSeparationOptions, PersistMode, Readable as _, Slice, Snapshot, compaction::filter,
    config::PartitioningPolicy,
};

use super::{
    databases,
    disk::{Access, Disk, DiskSpace},
    failure::Failure,
    journal,
    layout::{
        DATABASES_KEY, FORMAT, GENERATIONS_END, INDEXED_KEY, NEWEST_KEY, STATE_KEY, State,
        generation_of,
    },
};

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct TreeFile {
    pub(super) path: PathBuf,
    pub(super) checksum: u128,
}

/// Maximum number of sealed memtables before another batch, which can add two. At four or more,
/// fjall blocks, and permanently so if its threads have failed.
const WAITING_TABLES_MAX: usize = 1;
/// Maximum number of level-0 runs before another batch. fjall blocks at thirty or more.
const RUNS_MAX: usize = 20;
/// Minimum number of open files that fjall requires.
const FILES_MIN: usize = 10;
/// Minimum size in bytes of a value that is stored in a separate file.
const APART_BYTES: u32 = 512;
/// Fraction of dead data at which an old value file is rewritten.
const DEAD_PART: f32 = 0.5;
/// Fraction of the value files, oldest first, that count as old.
const OLD_PART: f32 = 0.5;
/// File present in the folder of every complete tree.
const MARKER: &str = "version";
/// Folder that contains a subfolder for each of fjall's keyspaces.
const KEYSPACES: &str = "keyspaces";
/// Default size of the block cache.
pub(super) const CACHE_BYTES: u64 = 64 << 20;

#[derive(Clone, Debug)]
pub(super) struct TreeLocation {
    pub(super) path: PathBuf,
    pub(super) disk: Arc<dyn Disk>,
    /// Maximum number of files kept open between reads.
    pub(super) files_max: usize,
    pub(super) cache_bytes: u64,
}

/// Open tree. Clones share it.
#[derive(Clone)]
pub(super) struct Tree {
    database: Database,
    keyspace: Keyspace,
    disk: Arc<dyn Disk>,
    /// Number of open snapshots.
    pins: Arc<AtomicUsize>,
    /// Generations that compactions drop.
    dropped_generations: Arc<DroppedGenerations>,
    entry_kinds: Arc<EntryKinds>,
}

/// Kinds of entries that the tree may contain in any generation.
#[derive(Debug, Default)]
struct EntryKinds {
    deadlines: AtomicBool,
    rows: AtomicBool,
}

pub(super) struct OpenedTree {
    pub(super) tree: Tree,
    pub(super) state: State,
    /// Highest generation ever begun.
    pub(super) newest_generation: u64,
    /// Description of data that was cut off or set aside as damaged.
    pub(super) loss_description: Option<String>,
    /// Path to which damaged data was moved.
    pub(super) aside: Option<PathBuf>,
}

impl Tree {
    /// Opens or creates the tree. If a power loss damaged the end of the journal, cuts it after the
    /// last whole batch. Sets the tree aside if it has other damage, or for the reason given in
    /// `distrusted`.
    pub(super) fn open(
        home: &TreeLocation,
        distrusted: Option<&str>,
    ) -> Result<OpenedTree, Failure> {
        let path = &home.path;
        let damage = match distrusted {
            Some(why) => why.to_owned(),
            None if path.try_exists()? => match Self::open_as_it_is(home) {
                Err(Failure::Damaged(detail)) => match Self::open_cut(home, detail.to_string()) {
                    Err(Failure::Damaged(detail)) => detail.to_string(),
                    opened => return opened,
                },
                opened => return opened,
            },
            None => return Self::make(home),
        };
        let aside = set_aside(path)?;
        let opened = Self::make(home)?;
        let note = aside.as_ref().map(|aside| {
            let aside = aside.display();
            format!("{damage}; moved to {aside}, to be rebuilt from the log")
        });
        Ok(OpenedTree { loss_description: note, aside, ..opened })
    }

    /// [store-1] Repairs and opens a tree with damage at the end of its journal.
    fn open_cut(home: &TreeLocation, damage: String) -> Result<OpenedTree, Failure> {
        let Some(cut) = journal::truncate_newest_journal(&home.path)? else {
            return Err(Failure::Damaged(damage.into()));
        };
        let opened = Self::open_as_it_is(home)?;
        let note = Some(format!("{damage}; {cut}"));
        Ok(OpenedTree { loss_description: note, ..opened })
    }

    /// Creates a tree. Damage in a new tree is reported as a fault of the disk.
    fn make(home: &TreeLocation) -> Result<OpenedTree, Failure> {
        Self::open_as_it_is(home).map_err(|failure| match failure {
            Failure::Damaged(detail) => {
                // The folder has no data, and the next attempt must not set it aside.
                let _ = fs::remove_dir_all(&home.path);
                Failure::NewDataDamaged(detail)
            }
            failure => failure,
        })
    }

    fn open_as_it_is(home: &TreeLocation) -> Result<OpenedTree, Failure> {
        let TreeLocation { path, disk, files_max, cache_bytes } = home;
        disk.allows(Access::Open)?;
        if is_unfinished(path)? {
            // An unfinished folder contains no data yet.
            fs::remove_dir_all(path)?;
        }
        let dropped_generations = Arc::default();
        let (database, keyspace) = recover(path, *files_max, *cache_bytes, &dropped_generations)?;
        sync_names(path, disk.as_ref())?;
        let disk = Arc::clone(disk);
        let tree = Self {
            database,
            keyspace,
            disk,
            pins: Arc::default(),
            dropped_generations,
            entry_kinds: Arc::default(),
        };
        let state = tree.read_state()?;
        let begun = tree.get(&NEWEST_KEY)?;
        let begun = begun.and_then(|bytes| Some(u64::from_le_bytes(*bytes.first_chunk()?)));
        if begun.is_some_and(|begun| begun >= GENERATIONS_END) {
            return Err(Failure::damaged("the number of a load makes no sense"));
        }
        Ok(OpenedTree {
            tree,
            state,
            newest_generation: state.newest.max(begun.unwrap_or(0)),
            loss_description: None,
            aside: None,
        })
    }

    fn read_state(&self) -> Result<State, Failure> {
        let has_deadlines = self.find_kinds()?;
        let Some(bytes) = self.get(&STATE_KEY)? else {
            return Ok(State::EMPTY);
        };
        let mut state = State::from_bytes(&bytes).ok_or_else(|| match bytes.first() {
            Some(&FORMAT) => Failure::damaged("the state makes no sense"),
            other => Failure::Format(other.copied().unwrap_or(0)),
        })?;
        if let Some(table) = self.get(&DATABASES_KEY)? {
            databases::read(&table, &mut state)?;
        }
        match has_deadlines {
            true => {
                let indexed = self.get(&INDEXED_KEY)?;
                state.first_mut().indexed = indexed.is_some_and(|indexed| indexed == bytes);
            }
            // Without deadlines there is nothing to index.
            false => state.spaces.iter_mut().flatten().for_each(|space| space.indexed = true),
        }
        Ok(state)
    }

    pub(super) fn get(&self, key: &[u8]) -> Result<Option<Slice>, Failure> {
        self.disk.allows(Access::Read)?;
        Ok(self.keyspace.get(key)?)
    }

    pub(super) fn range(
        &self,
        range: Range<Vec<u8>>,
    ) -> impl Iterator<Item = Result<(Slice, Slice), Failure>> + 'static {
        let disk = Arc::clone(&self.disk);
        self.keyspace.range::<Vec<u8>, _>(range).map(move |guard| {
            disk.allows(Access::Read)?;
            Ok(guard.into_inner()?)
        })
    }

    pub(super) fn range_back(
        &self,
        range: Range<Vec<u8>>,
    ) -> impl Iterator<Item = Result<(Slice, Slice), Failure>> + 'static {
        let disk = Arc::clone(&self.disk);
        let found = self.keyspace.range::<Vec<u8>, _>(range).rev();
        found.map(move |guard| {
            disk.allows(Access::Read)?;
            Ok(guard.into_inner()?)
        })
    }

    pub(super) fn keys(
        &self,
        range: Range<Vec<u8>>,
    ) -> impl Iterator<Item = Result<Slice, Failure>> + 'static {
        let disk = Arc::clone(&self.disk);
        self.keyspace.range::<Vec<u8>, _>(range).map(move |guard| {
            disk.allows(Access::Read)?;
            Ok(guard.key()?)
        })
    }

    /// Returns the sizes in bytes of the values in a range, without reading those in separate
    /// files.
    pub(super) fn value_sizes(
        &self,
        range: Range<Vec<u8>>,
    ) -> impl Iterator<Item = Result<u32, Failure>> + 'static {
        let disk = Arc::clone(&self.disk);
        self.keyspace.range::<Vec<u8>, _>(range).map(move |guard| {
            disk.allows(Access::Read)?;
            Ok(guard.size()?)
        })
    }

    /// Returns whether a batch can be written without a wait for fjall's threads. Fails if they
    /// have failed.
    pub(super) fn is_free(&self) -> Result<bool, Failure> {
        // Writes a buffer at most, and reports an earlier failure.
        self.database.persist(PersistMode::Buffer)?;
        let tree = &self.keyspace.tree;
        Ok(tree.sealed_memtable_count() <= WAITING_TABLES_MAX && tree.l0_run_count() < RUNS_MAX)
    }

    #[cfg(test)]
    pub(super) fn insert(&self, key: Vec<u8>, value: &[u8]) {
        self.keyspace.insert(key, value).unwrap();
    }

    /// Removes keys. A crash may undo the last removal.
    pub(super) fn remove(&self, keys: Vec<Slice>) -> Result<(), Failure> {
        self.disk.allows(Access::Write)?;
        let mut batch = self.database.batch();
        for key in keys {
            batch.remove(&self.keyspace, key);
        }
        Ok(batch.commit()?)
    }

    pub(super) fn sync(&self) -> Result<(), Failure> {
        self.disk.allows(Access::Sync)?;
        Ok(self.database.persist(PersistMode::SyncAll)?)
    }

    /// Starts to write fjall's in-memory data to tables, which are files other than the journal.
    pub(super) fn start_tables(&self) -> Result<(), Failure> {
        self.keyspace.rotate_memtable()?;
        Ok(())
    }

    /// Returns whether all tables have been written. Fails if fjall's threads have failed.
    pub(super) fn has_tables(&self) -> Result<bool, Failure> {
        self.database.persist(PersistMode::Buffer)?;
        Ok(self.keyspace.tree.sealed_memtable_count() == 0)
    }

    /// Returns a snapshot, which keeps the tree open.
    pub(super) fn tree_snapshot(&self) -> TreeSnapshot {
        TreeSnapshot {
            snapshot: self.database.snapshot(),
            keyspace: self.keyspace.clone(),
            disk: Arc::clone(&self.disk),
            _pin: SnapshotPin::new(&self.pins),
        }
    }

    /// Returns whether snapshots exist, which keep removed data.
    pub(super) fn is_pinned(&self) -> bool {
        self.pins.load(Ordering::Acquire) > 0
    }

    /// Drops the tables that lie within a range, and value files without other references. Durable
    /// at once, unlike earlier batches. Older versions of the keys in other tables may reappear.
    /// Snapshots keep what they need until they end.
    ///
    /// Waits for running compactions, so that no table of the range is in use and lsm-tree drops
    /// all of them.
    pub(super) fn drop_tables(&self, range: Range<Vec<u8>>) -> Result<(), Failure> {
        self.disk.allows(Access::Write)?;
        Ok(self.keyspace.tree.drop_range(range).map_err(fjall::Error::from)?)
    }

    /// Returns whether a table lies within a range, so that [`Self::drop_tables`] would drop it.
    pub(super) fn has_table_within(&self, range: &Range<Vec<u8>>) -> bool {
        let version = self.keyspace.tree.current_version();
        version.iter_tables().any(|table| {
            let keys = &table.metadata.key_range;
            *range.start <= **keys.min() && **keys.max() < *range.end
        })
    }

    /// Lets compactions omit all generations below the last one in `live` that are not in it. As
    /// with dropped tables, their entries are gone at once, except from snapshots.
    pub(super) fn drop_generations_except(&self, live: &[u64]) {
        self.dropped_generations.set(live);
    }

    /// Merges all tables into new ones.
    pub(super) fn merge_tables(&self) -> Result<(), Failure> {
        self.disk.allows(Access::Write)?;
        Ok(self.keyspace.major_compact()?)
    }

    /// Returns the total size of the tables, without the value files.
    pub(super) fn table_bytes(&self) -> u64 {
        let version = self.keyspace.tree.current_version();
        version.iter_tables().map(|table| table.metadata.file_size).sum()
    }

    /// Returns the files of the tree, except its journal and the lists of files.
    pub(super) fn files(&self) -> Vec<TreeFile> {
        let version = self.keyspace.tree.current_version();
        let tables = version.iter_tables().map(|table| TreeFile {
            path: table.path.to_path_buf(),
            checksum: table.checksum().into_u128(),
        });
        let values = version.blob_files.iter().map(|file| TreeFile {
            path: file.path().to_owned(),
            checksum: file.checksum().into_u128(),
        });
        tables.chain(values).collect()
    }

    pub(super) fn room(&self, folder: &Path) -> io::Result<DiskSpace> {
        self.disk.free_space(folder)
    }

    /// Returns the size of the tree's files without the journal.
    pub(super) fn disk_space(&self) -> u64 {
        self.keyspace.tree.disk_space()
    }

    /// Returns the number of entries of all kinds. Reads all data.
    pub(super) fn entries(&self) -> Result<usize, Failure> {
        Ok(self.keyspace.len()?)
    }
}

pub(super) struct TreeSnapshot {
    snapshot: Snapshot,
    keyspace: Keyspace,
    disk: Arc<dyn Disk>,
    _pin: SnapshotPin,
}

/// Reference of a snapshot, counted while it exists.
struct SnapshotPin(Arc<AtomicUsize>);

impl SnapshotPin {
    fn new(pins: &Arc<AtomicUsize>) -> Self {
        pins.fetch_add(1, Ordering::AcqRel);
        Self(Arc::clone(pins))
    }
}

impl Drop for SnapshotPin {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::AcqRel);
    }
}

impl TreeSnapshot {
    pub(super) fn range(
        &self,
        range: Range<Vec<u8>>,
    ) -> impl Iterator<Item = Result<(Slice, Slice), Failure>> + 'static {
        let disk = Arc::clone(&self.disk);
        let found = self.snapshot.range::<Vec<u8>, _>(&self.keyspace, range);
        found.map(move |guard| {
            disk.allows(Access::Read)?;
            Ok(guard.into_inner()?)
        })
    }
}

/// Returns the options of a new tree. An existing tree retains its own. Values are stored in
/// separate files, so compaction moves keys, and moves values only once half of their file is dead
/// ([decision 20](../../../../../../docs/decisions/0020-values-lie-apart.md)).
fn options() -> KeyspaceCreateOptions {
    let values = KvSeparationOptions::default()
        .separation_threshold(APART_BYTES)
        .staleness_threshold(DEAD_PART)
        .age_cutoff(OLD_PART);
    // In a table of small rows, the filter and the index take several megabytes each. Below the
    // first level, where they are not cached as a whole, partitions let a lookup read only what it
    // needs.
    let in_parts = PartitioningPolicy::new([false, true]);
    KeyspaceCreateOptions::default()
        .filter_block_partitioning_policy(in_parts.clone())
        .index_block_partitioning_policy(in_parts)
        .with_kv_separation(Some(values))
}

/// Opens an existing tree. With debug assertions, fjall asserts that the two lengths in a journal
/// item are equal. A process killed between the two writes leaves zeros in one of them. That is
/// treated as damage, since the assertion would fail at every start.
fn recover(
    path: &Path,
    files_max: usize,
    cache_bytes: u64,
    dropped_generations: &Arc<DroppedGenerations>,
) -> Result<(Database, Keyspace), Failure> {
    let filter: Arc<dyn filter::Factory> =
        Arc::new(GenerationFilterFactory(Arc::clone(dropped_generations)));
    let opened = panic::catch_unwind(AssertUnwindSafe(|| {
        // The default of fjall is 900 open files, whatever the process limit.
        let files_max = files_max.max(FILES_MIN);
        let database = Database::builder(path)
            .max_cached_files(Some(files_max))
            .cache_size(cache_bytes)
            // A second thread would only write tables, and spin during a compaction by the first.
            .worker_threads(1)
            .journal_compression(CompressionType::None)
            .with_compaction_filter_factories(Arc::new(move |_| Some(Arc::clone(&filter))))
            .open()?;
        let keyspace = database.keyspace("kv", options)?;
        Ok::<_, fjall::Error>((database, keyspace))
    }));
    let stopped = |_| Failure::damaged("its recovery stopped at a failed assertion");
    Ok(opened.map_err(stopped)??)
}

/// Generations that compactions drop, given by the ones that they keep.
#[derive(Debug, Default)]
struct DroppedGenerations(Mutex<Arc<[u64]>>);

impl DroppedGenerations {
    fn set(&self, live: &[u64]) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = live.into();
    }

    fn live(&self) -> Arc<[u64]> {
        Arc::clone(&self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

/// Maker of compaction filters that drop ended generations.
struct GenerationFilterFactory(Arc<DroppedGenerations>);

impl filter::Factory for GenerationFilterFactory {
    fn name(&self) -> &'static str {
        "ended generations"
    }

    fn make_filter(&self, _: &filter::Context) -> Box<dyn filter::CompactionFilter> {
        Box::new(GenerationFilter { live: self.0.live() })
    }
}

struct GenerationFilter {
    /// Generations to keep, in ascending order. Later ones are kept too.
    live: Arc<[u64]>,
}

impl GenerationFilter {
    fn has_ended(&self, generation: u64) -> bool {
        self.live.last().is_some_and(|last| generation < *last) && !self.live.contains(&generation)
    }
}

impl filter::CompactionFilter for GenerationFilter {
    fn filter_item(
        &mut self,
        item: filter::ItemAccessor<'_>,
        _: &filter::Context,
    ) -> filter::CompactionFilterResult {
        let ended = generation_of(item.key()).is_some_and(|generation| self.has_ended(generation));
        Ok(if ended { filter::Verdict::Destroy } else { filter::Verdict::Keep })
    }
}

/// [store-1] Syncs the folders that fjall does not sync. fjall 3.1 syncs the folders in which it
/// creates files, but neither the one in which it creates a keyspace's folder nor the parent of the
/// tree. A power loss could remove either with all synced data in it, and leave no sign of damage.
/// Also syncs entries that an earlier process left unsynced.
fn sync_names(path: &Path, disk: &dyn Disk) -> io::Result<()> {
    disk.sync_names(&path.join(KEYSPACES))?;
    disk.sync_names(path)?;
    match path.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => disk.sync_names(parent),
        _ => disk.sync_names(Path::new(".")),
    }
}

/// Returns whether a crash or a full disk interrupted the creation of a tree here.
fn is_unfinished(path: &Path) -> io::Result<bool> {
    if path.join(MARKER).try_exists()? {
        return Ok(false);
    }
    match fs::read_dir(path) {
        Ok(mut entries) => Ok(entries.next().is_some()),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
        Err(error) => Err(error),
    }
}

/// Renames a damaged folder to an unused name. Returns `None` if there was no folder.
fn set_aside(path: &Path) -> io::Result<Option<PathBuf>> {
    if !path.try_exists()? {
        return Ok(None);
    }
    let mut number = 1;
    loop {
        let mut name = path.as_os_str().to_owned();
        name.push(format!(".damaged-{number}"));
        let aside = PathBuf::from(name);
        if !aside.try_exists()? {
            fs::rename(path, &aside)?;
            return Ok(Some(aside));
        }
        number += 1;
    }
}

#[cfg(test)]
mod tests {
    use std::{
        thread,
        time::{Duration, Instant},
    };

    use super::*;
    use crate::store::lsm::disk::RealDisk;

    /// Returns the bytes that this thread has read from the disk or the page cache.
    fn read_bytes() -> u64 {
        let text = fs::read_to_string("/proc/thread-self/io").unwrap();
        let line = text.lines().find_map(|line| line.strip_prefix("rchar: "));
        line.unwrap().parse().unwrap()
    }

    #[test]
    #[expect(
        clippy::disallowed_methods,
        reason = "how long to wait for the library's thread is asked of the clock"
    )]
    fn look_up_reads_only_parts_of_filters_and_indexes() {
        const ROWS: u32 = 100_000;
        const PARTS: u32 = 8;
        let folder = tempfile::tempdir().unwrap();
        let home = TreeLocation {
            path: folder.path().to_owned(),
            disk: Arc::new(RealDisk),
            files_max: 16,
            cache_bytes: 1 << 10,
        };
        let Ok(OpenedTree { tree, .. }) = Tree::open(&home, None) else {
            panic!("a new folder can be opened")
        };
        let key = |number: u32| [b"row ", &number.to_be_bytes()[..]].concat();
        // Tables of the first level overlap until they are merged into the next.
        for part in 0..PARTS {
            for number in (part..ROWS).step_by(PARTS as usize) {
                tree.keyspace.insert(key(2 * number), "value").unwrap();
            }
            tree.keyspace.rotate_memtable_and_wait().unwrap();
        }
        let began = Instant::now();
        while tree.keyspace.tree.l0_run_count() >= 4 {
            assert!(began.elapsed() < Duration::from_secs(60), "never merged");
            thread::yield_now();
        }
        let before = read_bytes();
        // Existing and absent rows alternate.
        let asked = (0..2 * ROWS).step_by(1999);
        for number in asked.clone() {
            let found = tree.get(&key(number)).unwrap();
            assert_eq!(found.is_some(), number % 2 == 0);
        }
        let each = (read_bytes() - before) / asked.count() as u64;
        // Unpartitioned filters and indexes have 65 KB.
        assert!((1000..30_000).contains(&each), "{each} bytes for a row");
    }
}
