//! The databases of a store: each is a keyspace of its own, whatever is done to the others.

use std::{
    collections::BTreeMap,
    iter,
    ops::ControlFlow,
    path::{Path, PathBuf},
};

use quorate_core::slot::Slot;
use quorate_kv::{
    key::Key,
    store::{
        Database, DeadlineKind, Position, Span, Stamp, Store, Version,
        collection::{FieldDeadlines, Header, Id, Kind},
        digest,
        image::{ImageChecker, ImagePart, LoadedPart, encode_head, encode_part},
        lsm::{Limits, LsmStore},
        memory::MemoryStore,
    },
};
use quorate_replica::service::{Health, Imaged};

use crate::{common::Random, failing::until};

fn key_of(bytes: &[u8]) -> Key<'_> {
    Key::new(bytes).unwrap()
}

fn database(number: u64) -> Database {
    Database::new(number).unwrap()
}

fn encoded(part: ImagePart<'_>) -> Vec<u8> {
    let mut item = Vec::new();
    encode_part(part, &mut item);
    item
}

/// Returns the items of a snapshot of the selected database, without the one that begins it.
fn items_of(store: &dyn Store) -> Vec<Vec<u8>> {
    let mut items = Vec::new();
    store.scan(Position::START, &mut |key, entry| {
        items.push(encoded(ImagePart::Key(key, entry)));
        if entry.kind == Kind::Hash {
            let header = Header::from_bytes(&entry.value).unwrap();
            store.rows(header.id, Span::ALL, &mut |name, value| {
                items.push(encoded(ImagePart::Row(name, value)));
                ControlFlow::Continue(())
            });
        }
        ControlFlow::Continue(())
    });
    items
}

fn deadlines_of(store: &dyn Store) -> Vec<(u64, Vec<u8>)> {
    let mut found = Vec::new();
    for of in [DeadlineKind::Keys, DeadlineKind::Fields] {
        store.deadlines(of, 0, u64::MAX - 1, &mut |deadline, key| {
            found.push((deadline, key.to_vec()));
            ControlFlow::Continue(())
        });
    }
    found
}

/// Loads a snapshot.
fn load(store: &mut dyn Store, items: &[Vec<u8>], at: u64) {
    let checker = begin_load(store, items);
    checker.end(Slot(at)).unwrap();
    store.finish_load(Slot(at), &[]).unwrap();
    assert_eq!(store.selected(), Database::ZERO);
}

/// Loads the items of a snapshot without finishing the load.
fn begin_load(store: &mut dyn Store, items: &[Vec<u8>]) -> ImageChecker {
    let mut checker = ImageChecker::default();
    store.begin_load().unwrap();
    for item in items {
        until("room", || (store.health() == Health::Well).then_some(()));
        match checker.check_item(item).unwrap() {
            None => {}
            Some(LoadedPart::Database(database, since)) => {
                store.load_database(database, since).unwrap();
            }
            Some(LoadedPart::Key(key, entry)) => {
                store.load(key, &entry.value, entry.stamp()).unwrap();
            }
            Some(LoadedPart::Row(id, name, value)) => store.load_row(id, name, value).unwrap(),
        }
    }
    checker
}

/// Snapshot in progress, with the items that it must have and those that it has returned.
struct OpenImage {
    at: u64,
    expected: Vec<Vec<u8>>,
    seen: Vec<Vec<u8>>,
}

/// Numbers of the databases that have contents.
const USED: [u64; 5] = [0, 1, 2, 7, 15];

/// Store under test, and a model of it: for each database a store of its own that has no others.
struct Harness<S> {
    store: S,
    models: Vec<MemoryStore>,
    since: [Version; Database::COUNT],
    random: Random,
    version: Version,
    image: Option<OpenImage>,
    images: u32,
}

impl<S: Store> Harness<S> {
    fn new(store: S, seed: u64) -> Self {
        Self {
            store,
            models: iter::repeat_with(MemoryStore::new).take(Database::COUNT).collect(),
            since: <[Version; Database::COUNT]>::default(),
            random: Random::new(seed),
            version: Version { slot: 1, index: 0 },
            image: None,
            images: 0,
        }
    }

    /// Selects a database and returns its model.
    fn select(&mut self) -> &mut MemoryStore {
        let number = [0, 0, 1, 7, 15][self.random.below(5)];
        self.store.select(database(number));
        &mut self.models[number as usize]
    }

    fn used(&self) -> impl Iterator<Item = (Database, &MemoryStore)> {
        USED.into_iter().map(|number| (database(number), &self.models[number as usize]))
    }

    fn selected(&self) -> &MemoryStore {
        &self.models[self.store.selected().index()]
    }

    /// Changes the selected database and its model alike.
    fn each(&mut self, mut act: impl FnMut(&mut dyn Store)) {
        act(&mut self.store);
        act(&mut self.models[self.store.selected().index()]);
    }

    fn key(&mut self) -> Vec<u8> {
        vec![b'k', self.random.below(30) as u8]
    }

    fn hash(&self, key: &[u8]) -> Option<Header> {
        let model = self.selected();
        let entry = model.stored(key_of(key)).filter(|entry| entry.kind == Kind::Hash)?;
        Header::from_bytes(&entry.value)
    }

    fn put(&mut self) {
        let (key, version) = (self.key(), self.version);
        let value = vec![self.random.next() as u8; self.random.below(3) * 300];
        let deadline = (self.random.below(3) == 0).then(|| 1 + self.random.next() % 30);
        self.each(|store| store.put(key_of(&key), &value, version, deadline));
    }

    /// Sets or removes a field of a hash. Its number of rows is that in its header.
    fn put_field(&mut self) {
        let (key, version) = (self.key(), self.version);
        let known = self.hash(&key);
        let id = known.map_or(Id { version, number: 0 }, |header| header.id);
        let field = [self.random.below(9) as u8];
        let value = vec![self.random.next() as u8; self.random.below(9)];
        let is_removal = known.is_some() && self.random.below(3) == 0;
        self.each(|store| match is_removal {
            true => store.remove_row(id, &field),
            false => store.put_row(id, &field, &value),
        });
        let mut count = 0;
        self.selected().rows(id, Span::ALL, &mut |_, _| {
            count += 1;
            ControlFlow::Continue(())
        });
        if count == 0 {
            self.each(|store| store.detach(key_of(&key)));
            return;
        }
        let next = 1 + self.random.next() % 30;
        let timed = FieldDeadlines { fields: 1, next, deadline: None, removed: 0 };
        // A field with a deadline takes two rows more.
        let is_timed = count > 2 && self.random.below(3) == 0;
        let header = Header {
            id,
            count: if is_timed { count - 2 } else { count },
            bytes: 9,
            first: 0,
            field_deadlines: is_timed.then_some(timed),
            log: None,
        };
        let stamp = Stamp { version, deadline: None, kind: Kind::Hash };
        self.each(|store| store.set(key_of(&key), &header.to_bytes(), stamp));
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

    fn take(&mut self) {
        let key = self.key();
        let mut taken = Vec::new();
        self.each(|store| taken.push(store.take(key_of(&key))));
        assert_eq!(taken[0], taken[1]);
    }

    fn swap(&mut self) {
        let [a, b] = [0, 1].map(|_| USED[self.random.below(5)]);
        self.store.swap(database(a), database(b), self.version);
        if a != b {
            self.models.swap(a as usize, b as usize);
            self.since[a as usize] = self.version;
            self.since[b as usize] = self.version;
        }
    }

    fn set_time(&mut self) {
        let time = self.store.time().saturating_sub(3) + self.random.next() % 9;
        self.store.set_time(time);
        self.models.iter_mut().for_each(|model| model.set_time(time));
    }

    fn act(&mut self) {
        self.select();
        match self.random.below(80) {
            0..2 => self.each(|store| store.clear()),
            2..4 => self.swap(),
            4 => {
                let (version, at) = (self.version, self.store.selected().index());
                self.store.raise_since(version);
                self.store.raise_since(Version { slot: 0, index: 7 });
                self.since[at] = version;
            }
            5 => self.set_time(),
            6 => {
                let most = self.random.below(4);
                let mut swept = Vec::new();
                self.each(|store| swept.push(store.sweep(most)));
                assert_eq!(swept[0], swept[1]);
            }
            7 => assert_eq!(self.store.len(), self.selected().len()),
            8..24 => self.take(),
            24..40 => self.put_field(),
            40..44 => self.rename(),
            _ => self.put(),
        }
    }

    /// Executes some commands in one slot, and compares each database with its model.
    fn run_slot(&mut self) {
        for index in 0..4 {
            self.version.index = index;
            self.act();
        }
        self.version.slot += 1;
        let slot = Slot(self.version.slot);
        self.store.select(Database::ZERO);
        self.store.commit(slot, &[]);
        self.models.iter_mut().for_each(|model| model.commit(slot, &[]));
        self.compare();
    }

    fn compare(&mut self) {
        for (database, model) in self.used() {
            self.store.select(database);
            assert_eq!(self.store.since(), self.since[database.index()]);
            assert_eq!(items_of(&self.store), items_of(model), "{database:?}");
            assert_eq!(deadlines_of(&self.store), deadlines_of(model), "{database:?}");
        }
        self.store.select(Database::ZERO);
        let until_ms = self.store.time() + self.random.next() % 20;
        let next = self.models.iter().filter_map(|model| model.next_deadline(until_ms)).min();
        assert_eq!(self.store.next_deadline(until_ms), next);
    }

    /// Compares the exact numbers of keys, for which a store may have to look up some.
    fn compare_counts(&self) {
        for (database, model) in Database::all().zip(&self.models) {
            self.store.select(database);
            assert_eq!(self.store.len(), model.len(), "{database:?}");
        }
        self.store.select(Database::ZERO);
    }

    /// Returns the items of a snapshot taken now.
    fn expected_items(&self) -> Vec<Vec<u8>> {
        let mut items = vec![Vec::new()];
        let mut keys = 0;
        for (database, model) in self.used() {
            let (since, own) = (self.since[database.index()], items_of(model));
            model.scan(Position::START, &mut |_, _| {
                keys += 1;
                ControlFlow::Continue(())
            });
            let is_named = database != Database::ZERO && !own.is_empty();
            if is_named || since != Version::ABSENT {
                items.push(encoded(ImagePart::Database(database, since)));
            }
            items.extend(own);
        }
        encode_head(keys, &mut items[0]);
        items
    }

    fn begin_image(&mut self) {
        let expected = self.expected_items();
        let keys = self.store.begin_image().unwrap();
        let mut head = Vec::new();
        encode_head(keys, &mut head);
        assert_eq!(head, expected[0]);
        self.image = Some(OpenImage { at: self.version.slot, expected, seen: vec![head] });
    }

    /// Takes a step of the snapshot. At its end, compares it with what the store was at its
    /// beginning, and loads it into another store.
    fn continue_image(&mut self) {
        let Some(image) = &mut self.image else {
            return;
        };
        let bytes = self.random.below(600);
        let left = self.store.next_image(bytes, &mut |part| image.seen.push(encoded(part)));
        assert_ne!(left, Imaged::Failed);
        if left == Imaged::End {
            let OpenImage { at, expected, seen } = self.image.take().unwrap();
            assert_eq!(seen, expected);
            load(&mut MemoryStore::new(), &seen, at);
            self.images += 1;
        }
    }

    fn run(&mut self, slots: u32) {
        for _ in 0..slots {
            self.run_slot();
            match self.random.below(4) {
                0 if self.image.is_none() => self.begin_image(),
                1.. => self.continue_image(),
                _ => {}
            }
        }
    }

    /// Returns the digest of a store that loads a snapshot taken now.
    fn digest_of_loaded(&self) -> u128 {
        let mut other = MemoryStore::new();
        load(&mut other, &self.expected_items(), self.version.slot);
        digest(&other)
    }
}

/// Each database is like a store of its own, and a snapshot is of the moment of its beginning,
/// whatever is swapped and flushed meanwhile.
#[test]
fn databases_in_memory_are_keyspaces_of_their_own() {
    for seed in 0..6 {
        let mut harness = Harness::new(MemoryStore::new(), seed);
        for _ in 0..30 {
            harness.run(20);
            harness.compare_counts();
            assert_eq!(digest(&harness.store), harness.digest_of_loaded(), "seed {seed}");
        }
        assert!(harness.images > 8, "{}", harness.images);
    }
}

/// A store with database 0 alone has the digest that it had before there were others.
#[test]
fn digest_names_databases_only_if_there_are_others() {
    let version = Version { slot: 3, index: 1 };
    let mut store = MemoryStore::new();
    store.put(b"k".into(), b"v", version, None);
    let alone = digest(&store);
    let mut bytes = Vec::new();
    for part in [b"k", b"v"] {
        bytes.extend_from_slice(&1_u64.to_le_bytes());
        bytes.extend_from_slice(part);
    }
    bytes.extend_from_slice(&version.slot.to_le_bytes());
    bytes.extend_from_slice(&version.index.to_le_bytes());
    // No deadline.
    bytes.extend_from_slice(&[0; 9]);
    assert_eq!(alone, xxhash_rust::xxh3::xxh3_128(&bytes));
    let mut digests = vec![alone];
    store.select(database(1));
    assert_eq!(digest(&store), alone);
    store.put(b"k".into(), b"v", version, None);
    digests.push(digest(&store));
    store.swap(database(1), database(2), Version::ABSENT);
    digests.push(digest(&store));
    store.select(database(2));
    store.clear();
    assert_eq!(digest(&store), alone);
    store.raise_since(version);
    digests.push(digest(&store));
    store.select(Database::ZERO);
    store.raise_since(version);
    digests.push(digest(&store));
    digests.sort_unstable();
    digests.dedup();
    assert_eq!(digests.len(), 5);
    assert_eq!(store.selected(), Database::ZERO);
}

fn open(path: &Path, limits: Limits) -> LsmStore {
    let (store, note) = LsmStore::open_with(path, limits).unwrap();
    assert_eq!(note, None);
    store
}

/// Store on disk that is closed and opened.
struct OnDisk {
    path: PathBuf,
    limits: Limits,
    closed: u32,
    harness: Harness<LsmStore>,
    /// Digests at each position.
    history: BTreeMap<Slot, u128>,
}

impl OnDisk {
    fn run(&mut self, slots: u32) {
        for _ in 0..slots {
            self.harness.run(1);
            let at = Slot(self.harness.version.slot);
            self.history.insert(at, digest(&self.harness.store));
        }
    }

    /// Opens the store again, at a commit that has survived.
    fn reopen(&mut self) {
        // Opens another folder first, because a folder can be open only once.
        self.closed += 1;
        let other = self.path.with_extension(self.closed.to_string());
        self.harness.store = open(&other, self.limits);
        self.harness.store = open(&self.path, self.limits);
        self.harness.image = None;
        self.harness.store.set_time(self.harness.models[0].time());
        let (at, _) = self.harness.store.recovered();
        let digested = self.history.get(&at).copied();
        assert_eq!(digest(&self.harness.store), digested.unwrap_or(EMPTY), "{at:?}");
    }

    fn load(&mut self) {
        let items = self.harness.expected_items();
        load(&mut self.harness.store, &items, self.harness.version.slot);
        self.harness.image = None;
        self.harness.compare();
    }

    /// Opens the store at an earlier commit, as after a crash.
    fn crash(&mut self) {
        self.harness.store.logged(Slot(self.harness.version.slot));
        self.run(5);
        if self.harness.random.below(2) == 0 {
            // The crash is during a load.
            self.harness.store.logged(Slot(u64::MAX));
            let items = self.harness.expected_items();
            begin_load(&mut self.harness.store, &items);
        }
        self.reopen();
        self.load();
    }

    /// Waits until the tree contains nothing but the data of the databases, and up to four entries
    /// for the state.
    fn wait_for_purge(&mut self) {
        let mut expected = 0;
        for (_, model) in self.harness.used() {
            expected += items_of(model).len() + deadlines_of(model).len();
            model.scan(Position::START, &mut |_, entry| {
                // The header of a value that is in a separate file, and has a deadline.
                let is_apart = entry.value.len() + 20 >= 512;
                expected += usize::from(is_apart && entry.deadline.is_some());
                ControlFlow::Continue(())
            });
        }
        self.harness.store.persist().unwrap();
        until("the purge", || {
            let stored = self.harness.store.stored_entries();
            assert!(stored > expected);
            (stored <= expected + 4).then_some(())
        });
    }
}

/// Digest of a store without keys.
const EMPTY: u128 = 0x99aa_06d3_0147_98d8_6001_c324_468d_497f;

/// The databases on disk are those in memory, also after restarts, crashes and loads. Nothing is
/// left of flushed ones.
#[test]
fn databases_on_disk_are_keyspaces_of_their_own() {
    for (seed, held_bytes) in [500, 3000, 20_000, 1 << 20].into_iter().enumerate() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("kv");
        let limits = Limits { held_bytes, blind_keys: 4 << seed, ..Limits::default() };
        let harness = Harness::new(open(&path, limits), seed as u64);
        let mut disk = OnDisk { path, limits, closed: 0, harness, history: BTreeMap::new() };
        for _ in 0..50 {
            disk.run(10);
            match disk.harness.random.below(12) {
                0..2 => disk.harness.compare_counts(),
                2..5 => disk.reopen(),
                5 => disk.load(),
                6 => disk.crash(),
                7 => disk.wait_for_purge(),
                _ => {}
            }
        }
        disk.harness.compare_counts();
        assert_eq!(digest(&disk.harness.store), disk.harness.digest_of_loaded());
        assert!(disk.harness.images > 3, "{}", disk.harness.images);
        for number in USED {
            disk.harness.store.select(database(number));
            disk.harness.each(|store| store.clear());
        }
        disk.harness.store.select(Database::ZERO);
        disk.harness.store.commit(Slot(disk.harness.version.slot + 1), &[]);
        disk.wait_for_purge();
    }
}
