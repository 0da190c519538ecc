//! Full, failing and recovering disks: the node keeps voting, loses nothing, and resumes without an
//! operator.

use std::{
    fmt, io,
    path::Path,
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, AtomicU64, Ordering},
        mpsc::channel,
    },
    time::Duration,
};

use quorate_core::{node_id::NodeId, record::Class, slot::Slot};
use quorate_kv::{
    key::Key,
    service::Service,
    store::{
        Stamp, Store, Version, digest,
        lsm::{Access, Delays, Disk, DiskSpace, Limits, LsmStore, Options},
        memory::MemoryStore,
    },
};
use quorate_replica::{
    front::Failure,
    service::{Health, Imaged, LoadError},
    testing::{Cluster, Outcome},
};

use crate::common::Random;

/// Interval between checks of a condition, and the maximum number of checks.
const LOOK: Duration = Duration::from_millis(1);
const LOOKS: u32 = 60_000;
const TOTAL: u64 = 1 << 40;

/// Disk whose failures the test controls.
#[derive(Default)]
struct Moody {
    full: AtomicBool,
    /// Kinds of access that fail, with their errors.
    fails: Mutex<Vec<(Access, io::ErrorKind)>>,
    /// Error that every write returns; `None` if writes succeed.
    sealed: Mutex<Option<io::ErrorKind>>,
    panics: AtomicBool,
    /// Number of failed accesses.
    failed: AtomicU64,
    /// Number of failed test writes.
    tried: AtomicU64,
}

impl fmt::Debug for Moody {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Moody")
    }
}

impl Moody {
    fn fail(&self, access: Access, kind: io::ErrorKind) {
        self.fails.lock().unwrap().push((access, kind));
    }

    fn seal(&self, kind: Option<io::ErrorKind>) {
        *self.sealed.lock().unwrap() = kind;
    }

    fn fill(&self, full: bool) {
        self.full.store(full, Ordering::SeqCst);
    }

    fn heal(&self) {
        self.fill(false);
        self.seal(None);
        self.fails.lock().unwrap().clear();
    }

    fn failures(&self) -> u64 {
        self.failed.load(Ordering::SeqCst)
    }
}

impl Disk for Moody {
    fn free_space(&self, _: &Path) -> io::Result<DiskSpace> {
        let free = if self.full.load(Ordering::SeqCst) { 1 << 20 } else { TOTAL / 2 };
        Ok(DiskSpace { free, total: TOTAL })
    }

    fn try_writing(&self, _: &Path) -> io::Result<()> {
        match *self.sealed.lock().unwrap() {
            Some(kind) => {
                self.tried.fetch_add(1, Ordering::SeqCst);
                Err(kind.into())
            }
            None => Ok(()),
        }
    }

    fn allows(&self, access: Access) -> io::Result<()> {
        if access == Access::Write && self.panics.swap(false, Ordering::SeqCst) {
            self.failed.fetch_add(1, Ordering::SeqCst);
            panic!("as the test wants it");
        }
        let sealed = *self.sealed.lock().unwrap();
        let kind = sealed.filter(|_| access == Access::Write).or_else(|| {
            let fails = self.fails.lock().unwrap();
            let fault = fails.iter().find(|(of, _)| *of == access);
            fault.map(|(_, kind)| *kind)
        });
        match kind {
            Some(kind) => {
                self.failed.fetch_add(1, Ordering::SeqCst);
                Err(kind.into())
            }
            None => Ok(()),
        }
    }
}

/// Options with minimal delays.
fn options(disk: &Arc<Moody>, held_bytes: usize) -> Options {
    let soon = Duration::from_millis(1);
    Options {
        limits: Limits { held_bytes, ..Limits::default() },
        delays: Delays { busy: soon, while_full: soon, retry_min: soon, retry_max: soon },
        disk: Arc::clone(disk) as Arc<dyn Disk>,
    }
}

fn open(path: &Path, disk: &Arc<Moody>) -> LsmStore {
    let (store, note) = LsmStore::open_with(path, options(disk, 300)).unwrap();
    assert_eq!(note, None);
    store
}

/// Waits for a condition that the stores' threads bring about.
pub(crate) fn until<T>(what: &str, mut condition: impl FnMut() -> Option<T>) -> T {
    let (_alive, never) = channel::<()>();
    for _ in 0..LOOKS {
        if let Some(met) = condition() {
            return met;
        }
        let _ = never.recv_timeout(LOOK);
    }
    panic!("waited for {what}");
}

fn until_health(store: &mut LsmStore, wanted: fn(&Health) -> bool) -> Health {
    until("a state of health", || Some(store.health()).filter(wanted))
}

/// Writes one more key to both stores, in a new slot.
fn step(store: &mut LsmStore, model: &mut MemoryStore, slot: u64) {
    let name = slot.to_string();
    let key = Key::new(name.as_bytes()).unwrap();
    let version = Version { slot, index: 0 };
    let deadline = slot.is_multiple_of(3).then_some(slot);
    for side in [store as &mut dyn Store, model] {
        side.put(key, &[b'v'; 100], version, deadline);
        side.commit(Slot(slot + 1), &[]);
    }
}

/// Replays slots on a store that has reopened its tree.
fn replay(store: &mut LsmStore, to: u64) {
    let (from, _) = store.recovered();
    let mut unused = MemoryStore::new();
    for slot in from.0..to {
        until("room in memory", || store.health().eq(&Health::Well).then_some(()));
        step(store, &mut unused, slot);
    }
}

#[test]
fn a_full_disk_stops_commits_and_not_reads_and_it_goes_on_with_room() {
    let folder = tempfile::tempdir().unwrap();
    let (path, disk) = (folder.path().join("kv"), Arc::new(Moody::default()));
    let (mut store, mut model) = (open(&path, &disk), MemoryStore::new());
    let mut slot = 1;
    for _ in 0..30 {
        step(&mut store, &mut model, slot);
        slot += 1;
    }
    disk.fill(true);
    // Commits continue in memory, and the health states what will stop them.
    let (mut strained, mut stuck) = (0, String::new());
    while stuck.is_empty() {
        match store.health() {
            Health::Well | Health::Behind => {}
            Health::Strained(why) => {
                assert!(why.contains("no room on the disk: 1 MiB are free"), "{why}");
                strained += 1;
            }
            Health::Stuck(why) => {
                stuck = why;
                break;
            }
            other => panic!("{other:?}"),
        }
        step(&mut store, &mut model, slot);
        slot += 1;
    }
    assert!(strained > 0 && stuck.contains("no room"), "{strained} {stuck}");
    assert_eq!(digest(&store), digest(&model));
    assert!(!store.has_failed());
    assert!(store.persist().is_err());
    disk.fill(false);
    until_health(&mut store, |health| *health == Health::Well);
    step(&mut store, &mut model, slot);
    store.persist().unwrap();
    assert_eq!(disk.failures(), 0, "nothing was tried in vain");
    drop(store);
    let store = open(&path, &disk);
    assert_eq!(digest(&store), digest(&model));
}

/// The disk fills up unnoticed, becomes read-only, or fails. The tree is reopened, and the log
/// replays the missing part.
#[test]
fn a_failed_write_is_survived_by_opening_the_tree_again() {
    use io::ErrorKind::{Other, QuotaExceeded, ReadOnlyFilesystem, StorageFull};
    for kind in [StorageFull, QuotaExceeded, ReadOnlyFilesystem, Other] {
        let folder = tempfile::tempdir().unwrap();
        let (path, disk) = (folder.path().join("kv"), Arc::new(Moody::default()));
        let (mut store, mut model) = (open(&path, &disk), MemoryStore::new());
        for slot in 1..40 {
            step(&mut store, &mut model, slot);
        }
        store.persist().unwrap();
        disk.seal(Some(kind));
        let mut slot = 40;
        let why = loop {
            match store.health() {
                Health::Stuck(why) => break why,
                Health::Well | Health::Behind => {}
                other => panic!("{kind}: {other:?}"),
            }
            step(&mut store, &mut model, slot);
            slot += 1;
        };
        assert!(why.contains("cannot write"), "{why}");
        // The data can be read even while the disk rejects writes.
        until("attempts", || {
            assert!(matches!(store.health(), Health::Stuck(_)));
            (disk.tried.load(Ordering::SeqCst) > 5).then_some(())
        });
        assert_eq!(digest(&store), digest(&model));
        assert!(!store.has_failed());
        disk.heal();
        until("a tree", || store.persist().ok());
        assert!(store.has_failed(), "it is not known where it goes on");
        let back = until_health(&mut store, |health| matches!(health, Health::Back(_)));
        assert_eq!(back, Health::Back(None), "nothing was set aside");
        let (position, _) = store.recovered();
        assert!(position >= Slot(40) && position <= Slot(slot), "{position}");
        replay(&mut store, slot);
        assert_eq!(digest(&store), digest(&model), "{kind}");
        drop(store);
        assert_eq!(digest(&open(&path, &disk)), digest(&model), "{kind}");
    }
}

/// A failed read voids all results, and the tree is reopened. After a second failed read, an empty
/// tree replaces it.
#[test]
fn a_failed_read_is_survived_and_the_second_one_begins_anew() {
    let folder = tempfile::tempdir().unwrap();
    let (path, disk) = (folder.path().join("kv"), Arc::new(Moody::default()));
    let (mut store, mut model) = (open(&path, &disk), MemoryStore::new());
    for slot in 1..40 {
        step(&mut store, &mut model, slot);
    }
    for attempt in 1..=3 {
        store.persist().unwrap();
        let kind = if attempt < 3 { io::ErrorKind::Other } else { io::ErrorKind::InvalidInput };
        disk.fail(Access::Read, kind);
        assert!(store.get(b"1".into()).is_none() && store.has_failed());
        // Changes from here on are lost.
        store.put(b"1".into(), b"wrong", Version { slot: 99, index: 0 }, None);
        store.commit(Slot(100), &[]);
        let down = store.health();
        assert!(matches!(down, Health::Down(_)), "{down:?}");
        disk.heal();
        let back = until_health(&mut store, |health| matches!(health, Health::Back(_)));
        assert!(!store.has_failed());
        let aside = path.with_extension(format!("damaged-{}", attempt - 1));
        match (attempt, back) {
            (1, Health::Back(None)) => assert_eq!(store.recovered().0, Slot(40)),
            (_, Health::Back(Some(note))) => {
                assert!(note.contains("to be rebuilt from the log"), "{note}");
                assert_eq!(store.recovered().0, Slot::FIRST);
                assert!(aside.exists());
            }
            (_, other) => panic!("{attempt}: {other:?}"),
        }
        replay(&mut store, 40);
        assert_eq!(digest(&store), digest(&model), "{attempt}");
    }
}

/// [store-1] After a failure, a sync of the same file may report success although data was lost.
/// Later syncs therefore use new files.
#[test]
fn what_was_synced_stays_so_and_more_is_synced_after_a_failure() {
    let folder = tempfile::tempdir().unwrap();
    let (path, disk) = (folder.path().join("kv"), Arc::new(Moody::default()));
    let (mut store, mut model) = (open(&path, &disk), MemoryStore::new());
    let sync = |store: &mut LsmStore, to: Slot| {
        store.start_sync();
        until("a sync", || {
            store.health();
            (store.synced_to() == Some(to)).then_some(())
        });
    };
    let tables = || {
        let kinds = std::fs::read_dir(path.join("keyspaces/1/tables")).unwrap();
        kinds.count()
    };
    for slot in 1..40 {
        step(&mut store, &mut model, slot);
    }
    sync(&mut store, Slot(40));
    assert_eq!(tables(), 0, "a sync of the journal is enough");
    disk.seal(Some(io::ErrorKind::Other));
    let mut slot = 40;
    while !matches!(store.health(), Health::Stuck(_)) {
        step(&mut store, &mut model, slot);
        slot += 1;
    }
    store.start_sync();
    assert_eq!(store.synced_to(), Some(Slot(40)));
    disk.heal();
    until_health(&mut store, |health| matches!(health, Health::Back(_)));
    assert_eq!(store.synced_to(), Some(Slot(40)));
    replay(&mut store, slot);
    sync(&mut store, Slot(slot));
    assert!(tables() > 0, "all of it is in new files");
    assert_eq!(digest(&store), digest(&model));
}

#[test]
fn a_load_that_the_disk_ends_is_begun_again() {
    let version = Version { slot: 1, index: 0 };
    let keys: Vec<_> = (0..100_u32).map(u32::to_be_bytes).collect();
    let folder = tempfile::tempdir().unwrap();
    let (path, disk) = (folder.path().join("kv"), Arc::new(Moody::default()));
    let (mut store, mut model) = (open(&path, &disk), MemoryStore::new());
    for slot in 1..40 {
        step(&mut store, &mut model, slot);
    }
    store.persist().unwrap();
    store.begin_load().unwrap();
    for (number, key) in keys.iter().enumerate() {
        if number == 50 {
            disk.seal(Some(io::ErrorKind::Other));
        }
        match store.health() {
            Health::Well => store.load(key.into(), b"new", Stamp::string(version, None)).unwrap(),
            Health::Behind => {}
            Health::Stuck(_) => break,
            other => panic!("{other:?}"),
        }
    }
    until_health(&mut store, |health| matches!(health, Health::Stuck(_)));
    disk.heal();
    until_health(&mut store, |health| matches!(health, Health::Back(_)));
    let load = store.load(b"a".into(), b"new", Stamp::string(version, None));
    assert_eq!(load, Err(LoadError::NotLoading));
    assert_eq!(store.finish_load(Slot(50), &[]), Err(LoadError::NotLoading));
    assert_eq!(store.recovered().0, Slot(40));
    assert_eq!(digest(&store), digest(&model));
    store.begin_load().unwrap();
    let mut loaded = MemoryStore::new();
    for key in &keys {
        until_health(&mut store, |health| *health == Health::Well);
        store.load(key.into(), b"new", Stamp::string(version, None)).unwrap();
        loaded.put(key.into(), b"new", version, None);
    }
    store.finish_load(Slot(50), &[]).unwrap();
    assert_eq!(digest(&store), digest(&loaded));
    store.persist().unwrap();
    drop(store);
    let mut store = open(&path, &disk);
    assert_eq!(store.recovered().0, Slot(50));
    assert_eq!(digest(&store), digest(&loaded));
}

#[test]
fn an_image_fails_with_the_tree_and_another_one_is_begun() {
    let folder = tempfile::tempdir().unwrap();
    let (path, disk) = (folder.path().join("kv"), Arc::new(Moody::default()));
    let (mut store, mut model) = (open(&path, &disk), MemoryStore::new());
    for slot in 1..200 {
        until_health(&mut store, |health| *health == Health::Well);
        step(&mut store, &mut model, slot);
    }
    store.persist().unwrap();
    let next = |store: &mut LsmStore| store.next_image(1, &mut |_| {});
    assert_eq!(store.begin_image(), Some(199));
    assert_eq!(next(&mut store), Imaged::More);
    disk.fail(Access::Read, io::ErrorKind::Other);
    assert_eq!(next(&mut store), Imaged::Failed);
    // [scrub-2] The failure discards no data.
    assert!(!store.has_failed());
    assert_eq!(next(&mut store), Imaged::Failed);
    disk.heal();
    assert_eq!(store.health(), Health::Well);
    // The tree must be reopened although a snapshot keeps it open.
    assert_eq!(store.begin_image(), Some(199));
    disk.seal(Some(io::ErrorKind::Other));
    let mut slot = 200;
    while !matches!(store.health(), Health::Stuck(_)) {
        step(&mut store, &mut model, slot);
        slot += 1;
    }
    disk.heal();
    until_health(&mut store, |health| matches!(health, Health::Back(None)));
    assert_eq!(next(&mut store), Imaged::Failed);
    replay(&mut store, slot);
    assert_eq!(store.begin_image(), Some(slot - 1));
    let mut keys = 0;
    while store.next_image(300, &mut |_| keys += 1) == Imaged::More {}
    assert_eq!(keys, slot - 1);
}

#[test]
fn a_store_that_cannot_be_opened_yet_is_opened_later() {
    let folder = tempfile::tempdir().unwrap();
    let (path, disk) = (folder.path().join("kv"), Arc::new(Moody::default()));
    let (mut store, mut model) = (open(&path, &disk), MemoryStore::new());
    for slot in 1..40 {
        step(&mut store, &mut model, slot);
    }
    drop(store);
    for kind in [io::ErrorKind::StorageFull, io::ErrorKind::Other] {
        disk.fail(Access::Open, kind);
        let mut store = open(&path, &disk);
        assert!(matches!(store.health(), Health::Down(_)) && store.has_failed());
        assert_eq!(store.recovered(), (Slot::FIRST, Vec::new()));
        let before = disk.failures();
        until("more attempts", || (disk.failures() > before + 2).then_some(()));
        disk.heal();
        until_health(&mut store, |health| *health == Health::Back(None));
        assert_eq!(store.recovered().0, Slot(40));
        assert_eq!(digest(&store), digest(&model));
    }
}

#[test]
fn a_panic_of_the_library_while_it_writes_is_a_failed_write() {
    let folder = tempfile::tempdir().unwrap();
    let (path, disk) = (folder.path().join("kv"), Arc::new(Moody::default()));
    let (mut store, mut model) = (open(&path, &disk), MemoryStore::new());
    for slot in 1..10 {
        step(&mut store, &mut model, slot);
    }
    store.persist().unwrap();
    disk.panics.store(true, Ordering::SeqCst);
    for slot in 10..20 {
        step(&mut store, &mut model, slot);
    }
    until_health(&mut store, |health| matches!(health, Health::Back(_)));
    replay(&mut store, 20);
    assert_eq!(digest(&store), digest(&model));
}

/// Dropping a store does not wait for a failing disk.
#[test]
fn a_store_in_trouble_can_be_dropped() {
    for trouble in 0..4 {
        let folder = tempfile::tempdir().unwrap();
        let (path, disk) = (folder.path().join("kv"), Arc::new(Moody::default()));
        let (mut store, mut model) = (open(&path, &disk), MemoryStore::new());
        step(&mut store, &mut model, 1);
        store.persist().unwrap();
        match trouble {
            0 => disk.fill(true),
            1 => disk.seal(Some(io::ErrorKind::StorageFull)),
            2 => disk.fail(Access::Read, io::ErrorKind::Other),
            _ => {
                disk.fail(Access::Read, io::ErrorKind::Other);
                disk.fail(Access::Open, io::ErrorKind::Other);
            }
        }
        for slot in 2..30 {
            step(&mut store, &mut model, slot);
            store.health();
        }
        drop(store);
        disk.heal();
        let mut store = open(&path, &disk);
        assert!(store.recovered().0 >= Slot(2));
    }
}

/// A store that was recreated empty removes flushed data again after the replay.
#[test]
fn a_store_begun_anew_removes_what_was_flushed_again() {
    let folder = tempfile::tempdir().unwrap();
    let (path, disk) = (folder.path().join("kv"), Arc::new(Moody::default()));
    let (mut store, mut model) = (open(&path, &disk), MemoryStore::new());
    for round in 0..2 {
        for slot in 1..50 {
            step(&mut store, &mut model, slot);
        }
        store.clear();
        store.commit(Slot(51), &[]);
        until("an empty tree", || {
            store.persist().unwrap();
            (store.stored_entries() <= 2).then_some(())
        });
        if round == 0 {
            disk.fail(Access::Read, io::ErrorKind::InvalidData);
            assert!(store.get(b"1".into()).is_none());
            assert!(matches!(store.health(), Health::Down(_)));
            disk.heal();
            until_health(&mut store, |health| matches!(health, Health::Back(_)));
            assert_eq!(store.recovered().0, Slot::FIRST);
        }
    }
}

/// Flushed generations are removed even if the store fails from time to time.
#[test]
fn what_a_flush_leaves_is_removed_all_the_same() {
    let folder = tempfile::tempdir().unwrap();
    let (path, disk) = (folder.path().join("kv"), Arc::new(Moody::default()));
    let (mut store, mut model) = (open(&path, &disk), MemoryStore::new());
    for slot in 1..3000 {
        step(&mut store, &mut model, slot);
    }
    store.persist().unwrap();
    disk.fill(true);
    store.clear();
    store.commit(Slot(3001), &[]);
    until_health(&mut store, |health| matches!(health, Health::Strained(_)));
    disk.fill(false);
    until_health(&mut store, |health| *health == Health::Well);
    disk.seal(Some(io::ErrorKind::StorageFull));
    let mut slot = 3001;
    while !matches!(store.health(), Health::Stuck(_)) {
        slot += 1;
        store.commit(Slot(slot), &[]);
    }
    disk.heal();
    until_health(&mut store, |health| matches!(health, Health::Back(_)));
    if store.recovered().0 <= Slot(3000) {
        store.clear();
    }
    until("an empty tree", || {
        slot += 1;
        store.commit(Slot(slot), &[]);
        store.health();
        (store.stored_entries() <= 2).then_some(())
    });
    assert_eq!(store.len(), 0);
}

/// [scrub-2] If flushed data cannot be read, its removal stops and sound data stays.
#[test]
fn what_is_to_be_removed_and_cannot_be_read_takes_nothing_away() {
    let folder = tempfile::tempdir().unwrap();
    let (path, disk) = (folder.path().join("kv"), Arc::new(Moody::default()));
    let (mut store, mut model) = (open(&path, &disk), MemoryStore::new());
    for slot in 1..50 {
        step(&mut store, &mut model, slot);
    }
    store.persist().unwrap();
    disk.fail(Access::Read, io::ErrorKind::InvalidData);
    store.clear();
    store.commit(Slot(51), &[]);
    until("a removal that meets it", || {
        store.health();
        (disk.failures() > 0).then_some(())
    });
    let met = disk.failures();
    for slot in 52..100 {
        store.commit(Slot(slot), &[]);
        assert!(matches!(store.health(), Health::Well | Health::Behind));
        store.persist().unwrap();
    }
    assert_eq!(disk.failures(), met, "it is not tried again");
    disk.heal();
    drop(store);
    let mut store = open(&path, &disk);
    assert_eq!(store.recovered().0, Slot(99));
    until("an empty tree", || {
        store.health();
        (store.stored_entries() <= 2).then_some(())
    });
    assert!(!path.with_extension("damaged-1").exists());
}

/// [scrub-8] If a second store does not fit on the disk, the old one stays: a new one that ran out
/// of space would serve nothing.
#[test]
fn a_store_is_not_built_anew_without_room_for_another() {
    let folder = tempfile::tempdir().unwrap();
    let (path, disk) = (folder.path().join("kv"), Arc::new(Moody::default()));
    let (mut store, mut model) = (open(&path, &disk), MemoryStore::new());
    for slot in 1..50 {
        step(&mut store, &mut model, slot);
    }
    store.persist().unwrap();
    disk.fill(true);
    let why = store.renew().unwrap_err();
    assert!(why.contains("no room for another store"), "{why}");
    let aside = path.with_extension("damaged-1");
    assert!(!aside.exists() && !store.has_failed());
    assert_eq!(digest(&store), digest(&model), "it serves as it is");
    disk.fill(false);
    store.renew().unwrap();
    until_health(&mut store, |health| matches!(health, Health::Back(_)));
    assert_eq!(store.recovered().0, Slot::FIRST);
    assert!(aside.exists());
}

// Tests in a cluster.

const NODES: [NodeId; 3] = [NodeId(1), NodeId(2), NodeId(3)];

struct Group {
    cluster: Cluster<Service>,
    disks: Vec<Arc<Moody>>,
    _folder: tempfile::TempDir,
}

impl Group {
    /// Creates nodes with stores on disk. A fourth node has a store in memory and is the model.
    fn new(seed: u64) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let disks: Vec<_> = NODES.iter().map(|_| Arc::new(Moody::default())).collect();
        let (path, given) = (folder.path().to_owned(), disks.clone());
        let make = move |node: NodeId| -> Service {
            let Some(disk) = given.get(node.0 as usize - 1) else {
                return Service::new(Box::new(MemoryStore::new()));
            };
            let options = options(disk, 600);
            let (store, _) = LsmStore::open_with(&path.join(node.to_string()), options).unwrap();
            Service::new(Box::new(store))
        };
        let mut options = Cluster::<Service>::options(4, Class::Durable);
        options.client_timeout_ms = 500;
        let mut cluster = Cluster::with_options(options, seed, make);
        for node in 1..=4 {
            cluster.start(NodeId(node));
        }
        let mut group = Self { cluster, disks, _folder: folder };
        group.until("a leader", |group| group.cluster.leader().is_some());
        group
    }

    fn disk(&self, node: NodeId) -> &Moody {
        &self.disks[node.0 as usize - 1]
    }

    /// Runs the cluster until a condition holds. The stores' threads run in real time, not in
    /// simulated time.
    fn until(&mut self, what: &str, mut condition: impl FnMut(&mut Self) -> bool) {
        until(what, || {
            self.cluster.run_ms(5);
            condition(self).then_some(())
        });
    }

    /// Writes a key with SET, encoded as in the log.
    fn set(&mut self, node: NodeId, key: &str, value: usize) -> Outcome {
        let mut command = vec![64, 0, 0];
        for field in [key.as_bytes(), &vec![b'v'; value]] {
            quorate_kv::encode::Encoder(&mut command).bytes(field);
        }
        let tag = self.cluster.write(node, &command);
        self.until("an outcome", |group| group.cluster.outcome(node, tag).is_some());
        self.cluster.outcome(node, tag).unwrap().clone()
    }

    fn get(&mut self, node: NodeId, key: &str) -> Outcome {
        let mut query = vec![2];
        quorate_kv::encode::Encoder(&mut query).bytes(key.as_bytes());
        let tag = self.cluster.read(node, &query);
        self.until("an answer", |group| group.cluster.outcome(node, tag).is_some());
        self.cluster.outcome(node, tag).unwrap().clone()
    }

    fn error(&self, node: NodeId) -> Option<String> {
        self.cluster.replica(node).error()
    }

    fn level(&mut self) {
        self.until("level nodes", |group| {
            let all = [1, 2, 3, 4].map(NodeId);
            let applied = all.map(|node| group.cluster.replica(node).applied_to());
            let well = all.map(|node| group.error(node)).iter().all(Option::is_none);
            well && applied.iter().all(|at| *at == applied[0])
        });
        let model = self.cluster.replica(NodeId(4));
        let (state, sessions) = (model.service().digest(), model.sessions());
        for node in NODES {
            let replica = self.cluster.replica(node);
            assert_eq!(replica.service().digest(), state, "node {node}");
            assert_eq!(replica.sessions(), sessions, "node {node}");
        }
    }
}

/// A node whose store accepts no writes keeps voting.
#[test]
fn a_node_whose_store_is_full_goes_on_voting() {
    let mut group = Group::new(1);
    let [one, two, three] = NODES;
    assert!(matches!(group.set(one, "a", 10), Outcome::Written(_)));
    group.level();
    group.disk(three).fill(true);
    let mut number = 0;
    while !group.error(three).is_some_and(|why| why.contains("waits to write")) || {
        let replica = group.cluster.replica(three);
        replica.applied_to() >= group.cluster.replica(two).applied_to()
    } {
        number += 1;
        assert!(matches!(group.set(two, &number.to_string(), 300), Outcome::Written(_)));
    }
    assert_eq!(group.set(three, "b", 1), Outcome::Failed(Failure::Unavailable));
    let error = group.cluster.replica(three).error();
    assert!(error.is_some_and(|why| why.contains("no room on the disk")));
    // Four nodes have no quorum without its vote.
    group.cluster.crash(one);
    group.until("a leader", |group| group.cluster.leader().is_some_and(|leader| leader != one));
    for more in 0..40 {
        let outcome = group.set(two, &format!("more {more}"), 300);
        assert!(matches!(outcome, Outcome::Written(_)), "{outcome:?}");
    }
    group.disk(three).fill(false);
    group.cluster.start(one);
    group.level();
    assert!(matches!(group.set(three, "b", 1), Outcome::Written(_)));
    assert_eq!(group.get(three, "b"), Outcome::Read(b"$1\r\nv\r\n".to_vec()));
}

/// A leader that cannot read its store hands over and redirects its clients.
#[test]
fn a_leader_whose_store_is_down_hands_over() {
    let mut group = Group::new(2);
    for node in NODES {
        assert!(matches!(group.set(node, "a", 10), Outcome::Written(_)));
    }
    group.level();
    group.until("a leader with a disk", |group| {
        let leader = group.cluster.leader();
        if leader == Some(NodeId(4)) {
            let now = group.cluster.now();
            group.cluster.replica_mut(NodeId(4)).transfer(now, Some(NodeId(1)));
        }
        leader.is_some_and(|leader| leader != NodeId(4))
    });
    let leader = group.cluster.leader().unwrap();
    let other = NodeId(1 + leader.0 % 3);
    // All data is in the tree, so a query must read it.
    for number in 0..60 {
        assert!(matches!(group.set(other, &number.to_string(), 300), Outcome::Written(_)));
    }
    group.disk(leader).fail(Access::Read, io::ErrorKind::Other);
    group.disk(leader).fail(Access::Open, io::ErrorKind::Other);
    group.until("a question that fails", |group| {
        group.get(leader, "a") == Outcome::Failed(Failure::Unavailable)
    });
    assert_eq!(group.set(leader, "b", 1), Outcome::Failed(Failure::Unavailable));
    group.until("another leader", |group| group.cluster.leader().is_some_and(|now| now != leader));
    assert!(matches!(group.set(other, "b", 1), Outcome::Written(_)));
    group.disk(leader).heal();
    group.level();
    assert!(matches!(group.get(leader, "b"), Outcome::Read(_)));
}

/// After random failures at any time on any node, all nodes agree and no acknowledged write is
/// lost.
#[test]
fn whatever_fails_when_all_nodes_agree_and_nothing_acknowledged_is_lost() {
    use io::ErrorKind::{InvalidData, Other, ReadOnlyFilesystem, StorageFull};
    for seed in 0..4 {
        let mut random = Random::new(7000 + seed);
        let mut group = Group::new(100 + seed);
        let (mut acknowledged, mut refused) = (Vec::new(), 0);
        for number in 0..250 {
            let node = *random.pick(&NODES);
            match random.below(24) {
                0 => group.disk(node).fill(true),
                1 => group.disk(node).seal(Some(*random.pick(&[StorageFull, ReadOnlyFilesystem]))),
                2 => group.disk(node).fail(Access::Read, *random.pick(&[Other, InvalidData])),
                3 => group.disk(node).fail(Access::Open, *random.pick(&[Other, StorageFull])),
                4 => group.disk(node).panics.store(true, Ordering::SeqCst),
                5..12 => group.disk(node).heal(),
                12 if group.cluster.runs(node) => {
                    group.cluster.crash(node);
                    group.cluster.start(node);
                }
                _ => {}
            }
            let key = format!("key {}", random.below(60));
            if random.below(3) == 0 {
                group.get(node, &key);
                continue;
            }
            match group.set(node, &key, number) {
                Outcome::Written(_) => {
                    acknowledged.retain(|(known, _)| *known != key);
                    acknowledged.push((key, number));
                }
                Outcome::Failed(Failure::Unknown) => {
                    // The write may still succeed, so the value of the key is unknown from here on.
                    acknowledged.retain(|(known, _)| *known != key);
                }
                Outcome::Failed(_) => refused += 1,
                other => panic!("{other:?}"),
            }
        }
        group.disks.iter().for_each(|disk| disk.heal());
        group.level();
        for (key, bytes) in &acknowledged {
            let node = *random.pick(&NODES);
            // The last injected panic may not have occurred yet in a store's thread.
            let mut answer = Vec::new();
            group.until("an answer", |group| match group.get(node, key) {
                Outcome::Read(read) => {
                    answer = read;
                    true
                }
                Outcome::Failed(Failure::Unavailable) => false,
                other => panic!("seed {seed}: node {node} does not answer: {other:?}"),
            });
            let expected = format!("${bytes}\r\n");
            assert!(answer.starts_with(expected.as_bytes()), "seed {seed}, {key}");
        }
        let failures: u64 = group.disks.iter().map(|disk| disk.failures()).sum();
        assert!(failures > 5 && acknowledged.len() > 20, "{failures} {refused}");
    }
}
