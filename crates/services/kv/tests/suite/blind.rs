//! Blind writes in the store on disk: SET reads nothing, and all counts stay exact.

use std::{
    collections::BTreeMap,
    fs, io,
    ops::ControlFlow,
    path::{Path, PathBuf},
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    thread::{self, ThreadId},
};

use quorate_core::slot::Slot;
use quorate_kv::{
    key::Key,
    store::{
        DeadlineKind, Stamp, Store, Version,
        collection::{FieldDeadlines, Header, Id, Kind},
        digest,
        image::ImagePart,
        lsm::{Access, Disk, DiskSpace, Limits, LsmStore, Options, RealDisk},
        memory::MemoryStore,
    },
};
use quorate_replica::service::{Health, Imaged};

use crate::{common::Random, failing::until};

/// Disk that counts the reads on one thread.
#[derive(Debug)]
pub(crate) struct Counting {
    thread: ThreadId,
    pub(crate) reads: AtomicU64,
}

impl Counting {
    pub(crate) fn of_this_thread() -> Self {
        Self { thread: thread::current().id(), reads: AtomicU64::new(0) }
    }
}

impl Disk for Counting {
    fn free_space(&self, folder: &Path) -> io::Result<DiskSpace> {
        RealDisk.free_space(folder)
    }

    fn try_writing(&self, folder: &Path) -> io::Result<()> {
        RealDisk.try_writing(folder)
    }

    fn allows(&self, access: Access) -> io::Result<()> {
        if access == Access::Read && thread::current().id() == self.thread {
            self.reads.fetch_add(1, Ordering::SeqCst);
        }
        Ok(())
    }
}

/// Creates a tree with small tables, and with values in separate files.
fn make(path: &Path) {
    let database = fjall::Database::builder(path).open().unwrap();
    let apart = || {
        let values = fjall::KvSeparationOptions::default().separation_threshold(512);
        let options = fjall::KeyspaceCreateOptions::default().max_memtable_size(20_000);
        options.with_kv_separation(Some(values))
    };
    database.keyspace("kv", apart).unwrap();
}

fn open(path: &Path, options: impl Into<Options>) -> LsmStore {
    let (store, note) = LsmStore::open_with(path, options).unwrap();
    assert_eq!(note, None);
    store
}

fn key_of(bytes: &[u8]) -> Key<'_> {
    Key::new(bytes).unwrap()
}

/// Returns the value files below a folder.
fn value_files(folder: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    entries
        .flat_map(|path| match path.is_dir() {
            true => value_files(&path),
            false if path.parent().is_some_and(|folder| folder.ends_with("blobs")) => vec![path],
            false => Vec::new(),
        })
        .collect()
}

fn overdue(store: &dyn Store, of: DeadlineKind) -> Vec<(u64, Vec<u8>)> {
    let mut found = Vec::new();
    store.deadlines(of, 0, u64::MAX - 1, &mut |deadline, key| {
        found.push((deadline, key.to_vec()));
        ControlFlow::Continue(())
    });
    found
}

/// A SET of a stored or an absent key costs no read on the thread that executes commands, and no
/// read of a value on any thread.
#[test]
fn a_set_reads_nothing() {
    const KEYS: u64 = 1000;
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("kv");
    make(&path);
    let version = |slot| Version { slot, index: 0 };
    let mut store = open(&path, Limits::default());
    let mut random = Random::new(1);
    for number in 0..KEYS {
        let bytes = if number % 4 == 0 { 50 } else { 600 };
        // Incompressible value.
        let value: Vec<u8> = (0..bytes).map(|_| random.next() as u8).collect();
        let deadline = (number % 3 == 0).then_some(1000 + number);
        store.put(key_of(&number.to_be_bytes()), &value, version(1), deadline);
    }
    store.commit(Slot(2), &[]);
    drop(store);
    // Nearly all bytes of the value files are damaged, so almost any read of an old value fails.
    let files = value_files(&path);
    assert!(!files.is_empty());
    for file in files {
        let mut bytes = fs::read(&file).unwrap();
        let most = bytes.len() * 9 / 10;
        bytes[..most].fill(0);
        fs::write(&file, bytes).unwrap();
    }
    let disk = Arc::new(Counting::of_this_thread());
    let counting = Options { disk: Arc::clone(&disk) as Arc<dyn Disk>, ..Options::default() };
    let mut store = open(&path, counting);
    let before = disk.reads.load(Ordering::SeqCst);
    // Only some of the keys, because fjall reads values once a large part of a file is dead.
    for number in (0..KEYS).step_by(8).chain(KEYS..KEYS + 50).flat_map(|key| [key, key + 1]) {
        let deadline = (number % 5 == 0).then_some(5000 + number);
        store.put(key_of(&number.to_be_bytes()), &[7; 700], version(2), deadline);
    }
    store.commit(Slot(3), &[]);
    assert_eq!(disk.reads.load(Ordering::SeqCst), before);
    store.persist().unwrap();
    assert_eq!(disk.reads.load(Ordering::SeqCst), before);
    assert_eq!((store.health(), store.len()), (Health::Well, KEYS + 51));
    let set = |number: u64| number % 8 < 2 || number >= KEYS;
    let expected = (0..=KEYS + 50).filter_map(|number| match set(number) {
        true => (number % 5 == 0).then_some(5000 + number),
        false => (number % 3 == 0).then_some(1000 + number),
    });
    let mut expected: Vec<u64> = expected.collect();
    expected.sort_unstable();
    let found: Vec<u64> = overdue(&store, DeadlineKind::Keys).iter().map(|(at, _)| *at).collect();
    assert_eq!(found, expected);
    // The removal of expired keys does not read their values.
    store.set_time(10_000);
    assert_eq!(store.sweep(usize::MAX), expected.len());
    store.commit(Slot(4), &[]);
    store.persist().unwrap();
    assert_eq!(overdue(&store, DeadlineKind::Keys), []);
    assert_eq!((store.health(), store.has_failed()), (Health::Well, false));
    assert!((0..KEYS).any(|number| {
        store.get(key_of(&number.to_be_bytes()));
        store.has_failed()
    }));
    assert!(store.get(key_of(&2_u64.to_be_bytes())).is_none() && store.has_failed());
}

/// Two stores, whose contents must stay equal.
struct Pair {
    path: PathBuf,
    limits: Limits,
    lsm: LsmStore,
    model: MemoryStore,
    random: Random,
    version: Version,
    closed: u32,
    /// Digest and number of stored keys at each position.
    history: BTreeMap<Slot, (u128, u64)>,
}

impl Pair {
    fn each(&mut self, mut act: impl FnMut(&mut dyn Store)) {
        act(&mut self.lsm);
        act(&mut self.model);
    }

    fn key(&mut self) -> Vec<u8> {
        vec![b'k', self.random.below(40) as u8]
    }

    fn hash(&self, key: &[u8]) -> Option<Header> {
        let entry = self.model.stored(key_of(key)).filter(|entry| entry.kind == Kind::Hash)?;
        Header::from_bytes(&entry.value)
    }

    fn put(&mut self) {
        let key = self.key();
        let bytes = self.random.below(3) * 300 + self.random.below(20);
        let value = vec![self.random.next() as u8; bytes];
        // Few distinct deadlines, so that one is set repeatedly.
        let deadline = (self.random.below(3) == 0).then(|| 1 + self.random.next() % 30);
        let version = self.version;
        self.each(|store| store.put(key_of(&key), &value, version, deadline));
    }

    fn put_field(&mut self) {
        let (key, version) = (self.key(), self.version);
        let new = Header {
            id: Id { version, number: 0 },
            count: 1,
            bytes: 9,
            first: 0,
            field_deadlines: None,
            log: None,
        };
        let mut header = self.hash(&key).unwrap_or(new);
        let next = 1 + self.random.next() % 30;
        let timed = FieldDeadlines { fields: 1, next, deadline: None, removed: 0 };
        header.field_deadlines = (self.random.below(3) == 0).then_some(timed);
        let field = [self.random.below(9) as u8];
        let stamp = Stamp { version, deadline: None, kind: Kind::Hash };
        self.each(|store| {
            store.put_row(header.id, &field, b"value");
            store.set(key_of(&key), &header.to_bytes(), stamp);
        });
    }

    fn rename(&mut self) {
        let (from, to) = (self.key(), self.key());
        let Some(header) = self.hash(&from).filter(|_| from != to) else {
            return;
        };
        let stamp = Stamp { version: self.version, deadline: None, kind: Kind::Hash };
        self.each(|store| {
            store.detach(key_of(&from));
            store.set(key_of(&to), &header.to_bytes(), stamp);
        });
    }

    fn remove(&mut self) {
        let key = self.key();
        assert_eq!(self.lsm.take(key_of(&key)), self.model.take(key_of(&key)));
    }

    fn act(&mut self) {
        match self.random.below(60) {
            0 if self.random.below(4) == 0 => self.each(|store| store.clear()),
            1..20 => self.remove(),
            20..28 => self.put_field(),
            28..32 => self.rename(),
            32 => {
                let most = self.random.below(4);
                assert_eq!(self.lsm.sweep(most), self.model.sweep(most));
            }
            33 => {
                let time = self.model.time().saturating_sub(3) + self.random.next() % 9;
                self.each(|store| store.set_time(time));
            }
            34 => assert_eq!(self.lsm.len(), self.model.len()),
            _ => self.put(),
        }
    }

    /// Executes some commands in one slot and compares the stores. Skips the number of keys,
    /// because a query for it would look up the replaced entries.
    fn run_slot(&mut self) {
        for index in 0..4 {
            self.version.index = index;
            self.act();
        }
        self.version.slot += 1;
        let slot = Slot(self.version.slot);
        self.each(|store| store.commit(slot, &[]));
        let digested = digest(&self.model);
        assert_eq!(digest(&self.lsm), digested);
        for of in [DeadlineKind::Keys, DeadlineKind::Fields] {
            assert_eq!(overdue(&self.lsm, of), overdue(&self.model, of));
        }
        self.history.insert(slot, (digested, self.model.begin_image().unwrap()));
        self.model.end_image();
    }

    /// Compares snapshots.
    fn image(&mut self) -> Vec<Item> {
        let keys = self.model.begin_image();
        assert_eq!(self.lsm.begin_image(), keys);
        let items = items(&mut self.model);
        assert_eq!(self::items(&mut self.lsm), items);
        items
    }

    /// Loads a snapshot of the model into the store on disk, without finishing the load.
    fn begin_load(&mut self) {
        self.model.begin_image().unwrap();
        let mut within = None;
        self.lsm.begin_load().unwrap();
        for item in items(&mut self.model) {
            until("room", || (self.lsm.health() == Health::Well).then_some(()));
            match item {
                Item::Key(key, value, stamp) => {
                    within = Header::from_bytes(&value).map(|header| header.id);
                    self.lsm.load(key_of(&key), &value, stamp).unwrap();
                }
                Item::Row(name, value) => {
                    self.lsm.load_row(within.unwrap(), &name, &value).unwrap();
                }
            }
        }
    }

    fn load(&mut self) {
        self.begin_load();
        self.lsm.finish_load(Slot(self.version.slot), &[]).unwrap();
    }

    fn close(&mut self) {
        // Opens another folder instead, because a folder can be open only once.
        self.closed += 1;
        self.lsm = open(&self.path.with_extension(self.closed.to_string()), self.limits);
    }

    fn reopen(&mut self) -> Slot {
        self.close();
        self.lsm = open(&self.path, self.limits);
        self.lsm.set_time(self.model.time());
        self.lsm.recovered().0
    }

    /// Opens the store at an earlier commit, as after a crash, possibly during a load.
    fn crash(&mut self) {
        self.lsm.logged(Slot(self.version.slot));
        for _ in 0..5 {
            self.run_slot();
        }
        if self.random.below(2) == 0 {
            self.lsm.logged(Slot(u64::MAX));
            self.run_slot();
            self.begin_load();
        }
        let position = self.reopen();
        if let Some((digested, keys)) = self.history.get(&position) {
            assert_eq!((digest(&self.lsm), self.lsm.begin_image()), (*digested, Some(*keys)));
            self.lsm.end_image();
        }
        self.load();
    }

    /// Leaves the folder as an older release does, which does not maintain the index of deadlines.
    fn forget_index(&mut self, wholly: bool) {
        self.close();
        let database = fjall::Database::builder(&self.path).open().unwrap();
        let tree = database.keyspace("kv", fjall::KeyspaceCreateOptions::default).unwrap();
        let forgotten: Vec<_> = tree.range([7]..[8]).map(|guard| guard.key().unwrap()).collect();
        for key in forgotten.into_iter().filter(|_| wholly || self.random.below(2) == 0) {
            tree.remove(key).unwrap();
        }
        tree.remove([0, 2]).unwrap();
    }
}

#[derive(Debug, PartialEq)]
enum Item {
    Key(Vec<u8>, Vec<u8>, Stamp),
    Row(Vec<u8>, Vec<u8>),
}

fn items(store: &mut dyn Store) -> Vec<Item> {
    let mut items = Vec::new();
    let mut each = |part: ImagePart<'_>| {
        items.push(match part {
            ImagePart::Database(..) => panic!("there is one database"),
            ImagePart::Key(key, entry) => {
                Item::Key(key.to_vec(), entry.value.to_vec(), entry.stamp())
            }
            ImagePart::Row(name, value) => Item::Row(name.to_vec(), value.to_vec()),
        });
    };
    while store.next_image(300, &mut each) == Imaged::More {}
    items
}

/// Random commands give the same data, deadlines, snapshots and key counts as the store in memory,
/// even after restarts, crashes, loads and use by older releases. At the end, no entries are left.
#[test]
fn nothing_depends_on_when_replaced_entries_are_looked_up() {
    for (seed, held_bytes) in [500, 3000, 20_000, 1 << 20].into_iter().cycle().take(8).enumerate() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("kv");
        make(&path);
        let limits = Limits { held_bytes, blind_keys: 1 << seed, ..Limits::default() };
        let mut pair = Pair {
            lsm: open(&path, limits),
            path,
            limits,
            model: MemoryStore::new(),
            random: Random::new(seed as u64),
            version: Version { slot: 1, index: 0 },
            closed: 0,
            history: BTreeMap::new(),
        };
        for _ in 0..200 {
            pair.run_slot();
            match pair.random.below(150) {
                0..2 => drop(pair.image()),
                2 => pair.load(),
                3..6 => assert_eq!(pair.reopen(), Slot(pair.version.slot)),
                6..8 => pair.crash(),
                8 => {
                    let wholly = pair.random.below(2) == 0;
                    pair.forget_index(wholly);
                    pair.reopen();
                }
                _ => {}
            }
        }
        assert_eq!(pair.lsm.len(), pair.model.len());
        for number in 0..40 {
            pair.each(|store| {
                store.take(key_of(&[b'k', number]));
            });
        }
        pair.lsm.commit(Slot(pair.version.slot + 1), &[]);
        // Only the state, its copy and the highest generation are left.
        until("an empty tree", || {
            pair.lsm.persist().unwrap();
            (pair.lsm.stored_entries() <= 3).then_some(())
        });
        assert_eq!(pair.lsm.len(), 0);
    }
}
