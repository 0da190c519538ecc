//! [store-1] Power loss: whatever remains of unsynced data, the store is at the synced position or
//! a later one, with exactly the data of that position.

use std::{
    collections::{BTreeMap, BTreeSet},
    io,
    ops::ControlFlow,
    path::{Path, PathBuf},
    sync::{Arc, Mutex, mpsc::channel},
    time::Duration,
};

use quorate_core::slot::Slot;
use quorate_kv::{
    key::Key,
    store::{
        Database, Position, Store, Version, digest,
        lsm::{Disk, DiskSpace, Limits, LsmStore, Options, RealDisk},
    },
};

use crate::{
    common::{Random, copy},
    failing::until,
};

fn limits() -> Limits {
    Limits { held_bytes: 600, ..Limits::default() }
}

fn make(path: &Path, table_bytes: u64) -> LsmStore {
    {
        let database = fjall::Database::builder(path).open().unwrap();
        let options = || fjall::KeyspaceCreateOptions::default().max_memtable_size(table_bytes);
        database.keyspace("kv", options).unwrap();
    }
    LsmStore::open_with(path, limits()).unwrap().0
}

fn step(store: &mut LsmStore, random: &mut Random, slot: u64) {
    let databases = [0, 0, 0, 1, 9].map(|number| Database::new(number).unwrap());
    let version = Version { slot, index: 0 };
    store.select(databases[random.below(5)]);
    for _ in 0..1 + random.below(6) {
        let key = random.below(300).to_string();
        let key = Key::new(key.as_bytes()).unwrap();
        if random.below(4) == 0 {
            store.remove(key);
        } else {
            // Incompressible value, so that a hole is noticed.
            let count = random.below(300);
            let value: Vec<u8> = (0..count).map(|_| random.next().to_le_bytes()[0]).collect();
            store.put(key, &value, version, None);
        }
    }
    if random.below(150) == 0 {
        store.clear();
    }
    if random.below(60) == 0 {
        store.swap(databases[random.below(5)], databases[random.below(5)], version);
    }
    store.select(Database::ZERO);
    store.commit(Slot(slot + 1), &[]);
}

fn sync(store: &mut LsmStore, to: Slot) {
    store.start_sync();
    // A replica does this in every turn.
    until("a sync", || {
        store.health();
        (store.synced_to() >= Some(to)).then_some(())
    });
    assert_eq!(store.synced_to(), Some(to));
}

fn pause(ms: u64) {
    let (_alive, never) = channel::<()>();
    let _ = never.recv_timeout(Duration::from_millis(ms));
}

fn newest_journal(path: &Path) -> PathBuf {
    let files = std::fs::read_dir(path).unwrap();
    let journals = files.filter_map(|file| {
        let path = file.unwrap().path();
        let name = path.file_name()?.to_str()?.strip_suffix(".jnl")?;
        Some((name.parse::<u64>().ok()?, path))
    });
    journals.max().unwrap().1
}

fn used(path: &Path) -> usize {
    let bytes = std::fs::read(path).unwrap();
    bytes.iter().rposition(|byte| *byte != 0).map_or(0, |last| last + 1)
}

/// Damages unsynced bytes in a way that a power loss may.
fn lose(bytes: &mut Vec<u8>, from: usize, random: &mut Random) {
    let length = bytes.len();
    if from >= length {
        return;
    }
    let place = |random: &mut Random| from + random.below(length - from);
    match random.below(5) {
        0 => bytes.truncate(place(random)),
        // Some blocks have not been written.
        1 | 2 => {
            for _ in 0..=random.below(3) {
                let at = (place(random) & !511).max(from);
                let end = (at + 512 * (1 + random.below(9))).min(length);
                bytes[at..end].fill(0);
            }
        }
        // Only the last block has been written.
        3 => {
            let at = place(random);
            bytes[from..at].fill(0);
        }
        // Some bytes are arbitrary.
        _ => {
            let at = place(random);
            let end = (at + 1 + random.below(2000)).min(length);
            for byte in &mut bytes[at..end] {
                *byte = random.next().to_le_bytes()[0];
            }
        }
    }
}

fn lose_power_after_syncs(seed: u64, table_bytes: u64) -> (u32, u32, u32) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("kv");
    let mut store = make(&path, table_bytes);
    let mut random = Random::new(seed);
    let mut digests = BTreeMap::from([(1, digest(&store))]);
    let mut slot = 1;
    let (mut cut, mut exact, mut later) = (0, 0, 0);
    for round in 0..5 {
        for _ in 0..20 + random.below(60) {
            step(&mut store, &mut random, slot);
            slot += 1;
            digests.insert(slot, digest(&store));
        }
        sync(&mut store, Slot(slot));
        let synced = slot;
        let journal = newest_journal(&path);
        let safe = used(&journal);
        for _ in 0..30 + random.below(60) {
            step(&mut store, &mut random, slot);
            slot += 1;
            digests.insert(slot, digest(&store));
        }
        // A copy made while fjall's threads are busy would be inconsistent.
        pause(60);
        let whole = folder.path().join("whole");
        copy(&path, &whole);
        if newest_journal(&whole).file_name() != journal.file_name() {
            continue;
        }
        let name = journal.file_name().unwrap();
        let bytes = std::fs::read(whole.join(name)).unwrap();
        let end = bytes.iter().rposition(|byte| *byte != 0).map_or(0, |last| last + 1);
        for _ in 0..10 {
            let other = folder.path().join("other");
            copy(&whole, &other);
            let mut left = bytes[..end].to_vec();
            lose(&mut left, safe, &mut random);
            // Sometimes, preallocated zeros remain at the end.
            if random.below(2) == 0 {
                left.resize(left.len() + 5000, 0);
            }
            std::fs::write(other.join(name), &left).unwrap();
            let (mut opened, note) = LsmStore::open_with(&other, limits()).unwrap();
            let (at, _) = opened.recovered();
            let what = format!("seed {seed} round {round}: {at} of {synced}..{slot}, {note:?}");
            assert!(at.0 >= synced, "{what}");
            assert_eq!(opened.synced_to(), Some(at), "{what}");
            assert_eq!(Some(&digest(&opened)), digests.get(&at.0), "{what}");
            if let Some(note) = note {
                assert!(note.contains("were cut off"), "{what}");
                cut += 1;
            }
            if at.0 == synced {
                exact += 1;
            } else {
                later += 1;
            }
            // The store continues from that position.
            step(&mut opened, &mut random, at.0);
            let expected = digest(&opened);
            drop(opened);
            let (mut opened, note) = LsmStore::open_with(&other, limits()).unwrap();
            assert_eq!((opened.recovered().0, note), (at.next(), None), "{what}");
            assert_eq!(digest(&opened), expected, "{what}");
            drop(opened);
            std::fs::remove_dir_all(&other).unwrap();
        }
        std::fs::remove_dir_all(&whole).unwrap();
    }
    (cut, exact, later)
}

#[test]
fn a_loss_of_power_takes_nothing_that_was_synced() {
    let (mut cut, mut exact, mut later) = (0, 0, 0);
    for seed in 1..=2 {
        // First with all data in the journal, then with much of it in tables.
        for table_bytes in [64 << 20, 60_000] {
            let (c, e, l) = lose_power_after_syncs(seed, table_bytes);
            (cut, exact, later) = (cut + c, exact + e, later + l);
        }
    }
    // The number of cut journals depends on the progress of the writer, but there are some.
    assert!(cut > 0 && exact > 10 && later > 50, "{cut} {exact} {later}");
}

/// The tree never has a position beyond the log, so no such position is synced.
#[test]
fn what_the_log_does_not_have_yet_is_synced_later() {
    let folder = tempfile::tempdir().unwrap();
    let mut store = make(&folder.path().join("kv"), 64 << 20);
    let mut random = Random::new(1);
    assert_eq!(store.synced_to(), Some(Slot(1)));
    store.logged(Slot(5));
    for slot in 1..9 {
        step(&mut store, &mut random, slot);
    }
    store.start_sync();
    for _ in 0..50 {
        store.health();
        assert!(store.synced_to() <= Some(Slot(5)));
        pause(1);
    }
    store.logged(Slot(9));
    sync(&mut store, Slot(9));
    let mut keys = 0;
    store.scan(Position::START, &mut |_, _| {
        keys += 1;
        ControlFlow::Continue(())
    });
    assert_eq!(store.len(), keys);
}

/// Disk that records the names in each folder at its last sync.
#[derive(Debug, Default)]
struct Noting(Mutex<BTreeMap<PathBuf, BTreeSet<PathBuf>>>);

impl Disk for Noting {
    fn free_space(&self, folder: &Path) -> io::Result<DiskSpace> {
        RealDisk.free_space(folder)
    }

    fn try_writing(&self, folder: &Path) -> io::Result<()> {
        RealDisk.try_writing(folder)
    }

    fn sync_names(&self, folder: &Path) -> io::Result<()> {
        let names: io::Result<BTreeSet<_>> =
            std::fs::read_dir(folder)?.map(|entry| Ok(entry?.path())).collect();
        self.0.lock().unwrap().insert(folder.to_owned(), names?);
        RealDisk.sync_names(folder)
    }
}

/// fjall syncs the folders that contain its files, but not the parents of these.
#[test]
fn a_store_has_durable_folders_before_anything_is_built_on_it() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("kv");
    for _ in ["a new one", "one that another process has left"] {
        let disk = Arc::new(Noting::default());
        let options = Options { disk: Arc::clone(&disk) as Arc<dyn Disk>, ..Options::default() };
        let (_store, note) = LsmStore::open_with(&path, options).unwrap();
        assert_eq!(note, None);
        let noted = disk.0.lock().unwrap();
        let keyspaces = path.join("keyspaces");
        let mut folders = vec![path.clone(), keyspaces.clone()];
        let trees = std::fs::read_dir(&keyspaces).unwrap();
        folders.extend(trees.map(|tree| tree.unwrap().path()));
        assert!(folders.len() > 3, "no tree of keys: {folders:?}");
        for made in folders {
            let within = noted.get(made.parent().unwrap());
            let durable = within.is_some_and(|names| names.contains(&made));
            assert!(durable, "{} may be lost", made.display());
        }
    }
}
