//! The store on disk: contents after restarts and crashes, and folders that it rejects.

use std::{
    path::{Path, PathBuf},
    time::Duration,
};

use quorate_core::slot::Slot;
use quorate_kv::{
    key::Key,
    store::{
        DeadlineKind, Position, Stamp, Store, Version,
        collection::{Header, Id, Kind},
        digest,
        lsm::{Delays, Limits, LsmStore, Options},
        memory::MemoryStore,
    },
};
use quorate_replica::service::{Health, MetaChange};

use crate::{
    common::{Random, copy},
    failing::until,
};

const VERSION: Version = Version { slot: 1, index: 0 };

fn open(path: &Path) -> LsmStore {
    let (store, damage) = LsmStore::open(path).unwrap();
    assert_eq!(damage, None);
    store
}

fn key_of(bytes: &[u8]) -> Key<'_> {
    Key::new(bytes).unwrap()
}

fn meta(key: &str, value: Option<&str>) -> MetaChange {
    MetaChange { key: key.into(), value: value.map(|value| value.into()) }
}

#[test]
fn position_data_and_metadata_survive_together() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("kv");
    let mut store = open(&path);
    assert_eq!(store.recovered(), (Slot::FIRST, Vec::new()));
    store.put(b"a".into(), b"1", VERSION, Some(7));
    store.commit(Slot(2), &[meta("x", Some("1")), meta("y", Some("2"))]);
    store.put(b"b".into(), b"2", VERSION, None);
    store.remove(b"a".into());
    store.commit(Slot(3), &[meta("x", None)]);
    store.persist().unwrap();
    store.put(b"lost".into(), b"not committed", VERSION, None);
    drop(store);
    let mut store = open(&path);
    assert_eq!(store.recovered(), (Slot(3), vec![(b"y".to_vec(), b"2".to_vec())]));
    assert_eq!(store.len(), 1);
    assert_eq!(&*store.get(b"b".into()).unwrap().value, b"2");
    assert!(!store.contains(b"a".into()) && !store.contains(b"lost".into()));
}

/// [volatile-1] A position beyond the end of the log is not stored: a log that ends before the
/// store's position counts as having lost data.
#[test]
fn position_that_the_log_does_not_have_yet_is_not_kept() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("kv");
    let limits = Limits { held_bytes: 1, ..Limits::default() };
    let open = || LsmStore::open_with(&path, limits).unwrap().0;
    let mut store = open();
    store.logged(Slot(3));
    store.put(b"a".into(), b"1", VERSION, None);
    store.commit(Slot(3), &[]);
    store.put(b"b".into(), b"2", VERSION, None);
    store.commit(Slot(4), &[]);
    drop(store);
    let mut store = open();
    assert_eq!(store.recovered().0, Slot(3));
    assert!(store.contains(b"a".into()) && !store.contains(b"b".into()));
    store.logged(Slot(3));
    store.put(b"b".into(), b"2", VERSION, None);
    store.commit(Slot(4), &[]);
    store.logged(Slot(9));
    drop(store);
    let mut store = open();
    assert_eq!(store.recovered().0, Slot(4));
    assert!(store.contains(b"b".into()));
}

#[test]
fn keys_of_a_flushed_store_do_not_come_back_and_are_removed_by_and_by() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("kv");
    let mut store = open(&path);
    for number in 0..3000u64 {
        let key = number.to_string();
        store.put(key_of(key.as_bytes()), b"old", VERSION, Some(number + 1));
    }
    store.commit(Slot(2), &[]);
    store.persist().unwrap();
    store.clear();
    store.put(b"5".into(), b"new", VERSION, None);
    assert_eq!(store.len(), 1);
    store.commit(Slot(3), &[]);
    drop(store);
    let mut store = open(&path);
    let mut slot = 4;
    while store.stored_entries() > 3 {
        let mut seen = 0;
        store.scan(Position::START, &mut |key, entry| {
            assert_eq!((key, &*entry.value), (&b"5"[..], &b"new"[..]));
            seen += 1;
            std::ops::ControlFlow::Continue(())
        });
        store.deadlines(DeadlineKind::Keys, 0, u64::MAX - 1, &mut |_, _| {
            panic!("no deadline is left")
        });
        assert_eq!((seen, store.len()), (1, 1));
        store.commit(Slot(slot), &[]);
        slot += 1;
    }
    assert_eq!(store.stored_entries(), 3, "the key, the state and its copy");
}

/// The tree contains whole commits only, at whatever time the process ends.
#[test]
fn a_store_that_ends_within_a_run_is_at_an_earlier_commit() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("kv");
    let mut store = open(&path);
    store.put(b"a".into(), b"1", VERSION, None);
    store.commit(Slot(2), &[meta("x", Some("1"))]);
    store.persist().unwrap();
    store.put(b"a".into(), b"2", VERSION, None);
    store.commit(Slot(3), &[meta("x", Some("2"))]);
    store.put(b"a".into(), b"3", VERSION, None);
    store.persist().unwrap();
    drop(store);
    let mut store = open(&path);
    let metadata = vec![(b"x".to_vec(), b"1".to_vec())];
    assert_eq!(store.recovered(), (Slot(2), metadata));
    assert_eq!(&*store.get(b"a".into()).unwrap().value, b"1");
}

/// Reads are the same whether data is in memory, in flight, in the tree, or in several of these.
#[test]
fn the_layers_are_one() {
    for held_bytes in [0, 200, 2000, usize::MAX] {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("kv");
        let limits = Limits { held_bytes, written_bytes: usize::MAX, ..Limits::default() };
        let (mut store, _) = LsmStore::open_with(&path, limits).unwrap();
        let mut model = MemoryStore::new();
        let mut random = Random::new(held_bytes as u64);
        for slot in 2..400u64 {
            for index in 0..4 {
                let key = [b'k', random.below(30).to_le_bytes()[0]];
                let version = Version { slot, index };
                let value = vec![b'v'; random.below(40)];
                let deadline = (random.below(3) == 0).then(|| 1 + random.next() % 50);
                match random.below(40) {
                    0 if index == 0 => {
                        store.clear();
                        model.clear();
                    }
                    1..12 => assert_eq!(store.remove(key_of(&key)), model.remove(key_of(&key))),
                    12 => {
                        // Time may go back too, when the service is rolled back.
                        let time = store.time().saturating_sub(20) + random.next() % 30;
                        store.set_time(time);
                        model.set_time(time);
                    }
                    13 | 14 => {
                        let most = random.below(5);
                        assert_eq!(store.sweep(most), model.sweep(most));
                    }
                    _ => {
                        store.put(key_of(&key), &value, version, deadline);
                        model.put(key_of(&key), &value, version, deadline);
                    }
                }
                assert_eq!(store.len(), model.len());
                assert_eq!(store.contains(key_of(&key)), model.contains(key_of(&key)));
            }
            store.commit(Slot(slot), &[]);
            assert_eq!(digest(&store), digest(&model), "{held_bytes} at {slot}");
            let wall_ms = random.next() % 60;
            assert_eq!(store.next_deadline(wall_ms), model.next_deadline(wall_ms));
            assert_eq!(overdue(&store, wall_ms), overdue(&model, wall_ms));
            if random.below(100) == 0 {
                drop(store);
                (store, _) = LsmStore::open_with(&path, limits).unwrap();
                store.set_time(model.time());
                assert_eq!(store.recovered().0, Slot(slot));
            }
        }
        assert!(store.stored_entries() > 1 || held_bytes == usize::MAX);
    }
}

fn overdue(store: &dyn Store, wall_ms: u64) -> Vec<(u64, Vec<u8>)> {
    let mut found = Vec::new();
    store.deadlines(DeadlineKind::Keys, 0, wall_ms, &mut |deadline, key| {
        found.push((deadline, key.to_vec()));
        std::ops::ControlFlow::Continue(())
    });
    found
}

#[test]
fn a_second_process_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("kv");
    let _first = open(&path);
    let error = LsmStore::open(&path).unwrap_err().to_string();
    assert!(error.contains("in use by another process"), "{error}");
}

/// A power loss can leave a hole in the unsynced part of the journal. All data before it survives.
#[test]
fn a_journal_with_a_hole_is_cut_before_it() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("kv");
    let mut store = open(&path);
    let mut random = Random::new(5);
    for slot in 2..40 {
        // Incompressible value.
        let value: Vec<u8> = (0..9000).map(|_| random.next().to_le_bytes()[0]).collect();
        store.put(key_of(format!("{slot}").as_bytes()), &value, VERSION, None);
        store.commit(Slot(slot), &[]);
        // One batch of the journal per commit.
        store.persist().unwrap();
    }
    drop(store);
    let journal = journal(&path);
    let mut bytes = std::fs::read(&journal).unwrap();
    bytes.truncate(1024 * 1024);
    let mut cut = 0;
    for n in 0..20 {
        let hole = 5000 + usize::try_from(n).unwrap() * 9001;
        let mut damaged = bytes.clone();
        damaged[hole..hole + 512].fill(0);
        let other = folder.path().join(format!("hole-{hole}"));
        copy(&path, &other);
        std::fs::write(other.join(journal.strip_prefix(&path).unwrap()), &damaged).unwrap();
        let (mut store, note) = LsmStore::open(&other).unwrap();
        let (applied_to, _) = store.recovered();
        assert_eq!((applied_to, store.len()), (Slot(n + 1), n), "{note:?}");
        if let Some(note) = note {
            assert!(note.contains("were cut off"), "{note}");
            cut += 1;
        }
        // The store continues from there, and the part that was cut off does not reappear.
        store.put(b"next".into(), b"1", VERSION, None);
        store.commit(Slot(n + 2), &[]);
        drop(store);
        let mut store = open(&other);
        assert_eq!((store.recovered().0, store.len()), (Slot(n + 2), n + 1));
    }
    assert!(cut > 10, "the library cuts the others by itself: {cut}");
}

/// A process killed during a write leaves a prefix of it, followed by zeros. Unless repaired, a cut
/// between the two lengths of an item would fail an assertion of fjall at every start.
#[test]
fn a_journal_cut_anywhere_in_a_commit_is_at_the_commit_before() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("kv");
    let mut store = open(&path);
    store.put(b"a".into(), b"1", VERSION, None);
    store.commit(Slot(2), &[]);
    let journal_path = journal(&path);
    let used = || {
        let bytes = std::fs::read(&journal_path).unwrap();
        let to = bytes.iter().rposition(|byte| *byte != 0).unwrap() + 1;
        (bytes, to)
    };
    store.persist().unwrap();
    let (_, from) = used();
    store.put(b"a".into(), b"22", VERSION, Some(7));
    store.put(b"b".into(), b"value", VERSION, None);
    store.commit(Slot(3), &[meta("x", Some("1"))]);
    store.persist().unwrap();
    let (mut bytes, to) = used();
    drop(store);
    bytes.truncate(to + 4096);
    std::fs::write(&journal_path, &bytes).unwrap();
    let mut stopped = 0;
    for cut in from..to {
        let other = folder.path().join("cut");
        copy(&path, &other);
        let mut torn = bytes.clone();
        torn[cut..].fill(0);
        std::fs::write(other.join(journal_path.strip_prefix(&path).unwrap()), &torn).unwrap();
        let (mut store, note) = LsmStore::open(&other).unwrap();
        let (applied_to, _) = store.recovered();
        assert_eq!((applied_to, store.len()), (Slot(2), 1), "cut at {cut}");
        assert_eq!(&*store.get(b"a".into()).unwrap().value, b"1");
        if let Some(note) = note {
            assert!(note.contains("failed assertion"), "cut at {cut}: {note}");
            assert!(note.contains("were cut off"), "cut at {cut}: {note}");
            stopped += 1;
        }
        drop(store);
        for opened in [other.clone(), other.with_extension("damaged-1")] {
            let _ = std::fs::remove_dir_all(opened);
        }
    }
    assert!(stopped * 10 < to - from, "{stopped} of {}", to - from);
}

/// A store with damage in any part of its files has its last state, that of an earlier commit, or
/// none. It never panics.
#[test]
fn a_store_damaged_anywhere_is_itself_or_begun_again() {
    const LAST: u64 = 820;
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("kv");
    {
        // Small memtables make several kinds of tables.
        let database = fjall::Database::builder(&path).open().unwrap();
        let small = || fjall::KeyspaceCreateOptions::default().max_memtable_size(100_000);
        database.keyspace("kv", small).unwrap();
    }
    let soon = Duration::from_millis(1);
    let options = || Options {
        limits: Limits { held_bytes: 20_000, ..Limits::default() },
        delays: Delays { busy: soon, while_full: soon, retry_min: soon, retry_max: soon },
        ..Options::default()
    };
    let (mut store, _) = LsmStore::open_with(&path, options()).unwrap();
    let mut random = Random::new(11);
    for slot in 2..800_u64 {
        // Incompressible value.
        let value: Vec<u8> = (0..800).map(|_| random.next().to_le_bytes()[0]).collect();
        store.put(key_of(&slot.to_be_bytes()), &value, VERSION, Some(slot));
        store.commit(Slot(slot + 1), &[]);
    }
    store.persist().unwrap();
    drop(store);
    let (mut store, _) = LsmStore::open_with(&path, options()).unwrap();
    // Separate batches of a journal, however much is in tables already.
    for slot in 800..LAST {
        store.put(key_of(&slot.to_be_bytes()), b"small", VERSION, Some(slot));
        store.commit(Slot(slot + 1), &[]);
        store.persist().unwrap();
    }
    let whole = digest(&store);
    drop(store);
    let files = files(&path);
    assert!(files.len() > 8, "{files:?}");
    let (mut as_it_was, mut earlier, mut begun_again) = (0, 0, 0);
    for round in 0..90 {
        let file = random.pick(&files).clone();
        // fjall's list of tables has no checksum, so a flipped bit may hide a table. The digests of
        // nodes then differ.
        let listed = file.file_name().unwrap().to_str().unwrap().starts_with('v');
        let bytes = std::fs::read(&file).unwrap();
        let Some(last) = bytes.iter().rposition(|byte| *byte != 0) else {
            continue;
        };
        let near_the_end = random.below(2) == 0;
        let at = last - random.below(if near_the_end { last.min(2000) } else { last } + 1);
        let other = folder.path().join(format!("other-{round}"));
        copy(&path, &other);
        let target = other.join(file.strip_prefix(&path).unwrap());
        let what = format!("{} at {at} of {last}", target.display());
        let mut damaged = bytes.clone();
        match random.below(3) {
            0 if !listed => damaged[at] ^= 1 << random.below(8),
            1 if !listed => damaged[at..bytes.len().min(at + 512)].fill(0),
            _ => damaged.truncate(at),
        }
        std::fs::write(&target, &damaged).unwrap();
        let (mut store, note) = match LsmStore::open_with(&other, options()) {
            Ok(opened) => opened,
            Err(error) => {
                // The folder appears to be from another version.
                assert!(target.ends_with("version"), "{what}: {error}");
                continue;
            }
        };
        let found = digest(&store);
        let _ = overdue(&store, u64::MAX - 1);
        if store.has_failed() {
            // The next turn of a replica does this too.
            let back = std::iter::repeat_with(|| store.health())
                .find(|health| matches!(health, Health::Back(_)));
            assert!(matches!(back, Some(Health::Back(Some(_)))), "{what}: {back:?}");
        }
        let (applied_to, _) = store.recovered();
        if applied_to == Slot(LAST) && found == whole {
            as_it_was += 1;
        } else if applied_to == Slot::FIRST {
            assert_eq!(store.len(), 0, "{what}");
            begun_again += 1;
        } else {
            let cut = |note: &String| note.contains("were cut off");
            assert!(note.as_ref().is_none_or(cut), "{what}: {note:?}");
            assert_eq!(store.len(), applied_to.0 - 2, "{what}");
            assert!(target.extension().is_some_and(|extension| extension == "jnl"));
            earlier += 1;
        }
        drop(store);
        for entry in std::fs::read_dir(folder.path()).unwrap() {
            let entry = entry.unwrap().path();
            if entry != path {
                std::fs::remove_dir_all(entry).unwrap();
            }
        }
    }
    assert!(begun_again > 10 && earlier > 0, "{as_it_was} {earlier} {begun_again}");
}

fn files(path: &Path) -> Vec<PathBuf> {
    let mut folders = vec![path.to_owned()];
    let mut files = Vec::new();
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                folders.push(path);
            } else if path.metadata().unwrap().len() > 0 {
                files.push(path);
            }
        }
    }
    files.sort();
    files
}

fn journal(path: &Path) -> PathBuf {
    let journal = |path: &PathBuf| path.extension().is_some_and(|extension| extension == "jnl");
    files(path).into_iter().find(journal).expect("there is a journal")
}

/// A kill or a full disk may leave only some files of a tree. The tree is then created again.
#[test]
fn a_tree_that_was_not_made_to_the_end_is_made_anew() {
    let folder = tempfile::tempdir().unwrap();
    let whole = folder.path().join("whole");
    drop(open(&whole));
    for left in ["lock", "0.jnl", "keyspaces"] {
        let path = folder.path().join(left);
        copy(&whole, &path);
        for entry in std::fs::read_dir(&path).unwrap() {
            let entry = entry.unwrap().path();
            if entry.is_dir() {
                std::fs::remove_dir_all(&entry).unwrap();
            } else if !entry.ends_with(left) {
                std::fs::remove_file(&entry).unwrap();
            }
        }
        let mut store = open(&path);
        store.put(b"a".into(), b"1", VERSION, None);
        store.commit(Slot(2), &[]);
        drop(store);
        assert_eq!(open(&path).recovered().0, Slot(2), "{left}");
    }
}

#[test]
fn a_folder_of_another_format_is_refused() {
    // The state, and the table of databases.
    for key in [&[0][..], &[0, 3]] {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("kv");
        let mut store = open(&path);
        store.commit(Slot(2), &[]);
        drop(store);
        {
            let database = fjall::Database::builder(&path).open().unwrap();
            let keyspace = database.keyspace("kv", fjall::KeyspaceCreateOptions::default).unwrap();
            keyspace.insert(key, [9, 9, 9]).unwrap();
        }
        let error = LsmStore::open(&path).unwrap_err().to_string();
        assert!(error.contains("format 9, but this version knows 1 only"), "{error}");
        let folders = std::fs::read_dir(folder.path()).unwrap();
        assert_eq!(folders.count(), 1, "the folder was set aside");
    }
}

/// A generation that stored keys have no room for is damage, as no store begins so many.
#[test]
fn impossible_generations_are_damage() {
    let most = (1_u64 << 48).to_le_bytes();
    let state = [&[1][..], &[0; 16], &most, &[0; 8]].concat();
    // The state, and the number of the last load.
    for (key, value) in [(&[0][..], &state[..]), (&[0, 1], &most)] {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("kv");
        let mut store = open(&path);
        store.commit(Slot(2), &[]);
        drop(store);
        {
            let database = fjall::Database::builder(&path).open().unwrap();
            let keyspace = database.keyspace("kv", fjall::KeyspaceCreateOptions::default).unwrap();
            keyspace.insert(key, value).unwrap();
        }
        let (mut store, note) = LsmStore::open(&path).unwrap();
        assert!(note.is_some_and(|note| note.contains("makes no sense")));
        assert_eq!(store.recovered().0, Slot::FIRST);
    }
}

#[test]
fn digests_do_not_depend_on_the_store() {
    let folder = tempfile::tempdir().unwrap();
    let mut disk = open(&folder.path().join("kv"));
    let mut memory = MemoryStore::new();
    for number in 0..200u64 {
        let key = number.to_string();
        let version = Version { slot: number, index: 3 };
        let deadline = (number % 3 == 0).then_some(number);
        disk.put(key_of(key.as_bytes()), key.as_bytes(), version, deadline);
        memory.put(key_of(key.as_bytes()), key.as_bytes(), version, deadline);
        if number == 100 {
            disk.commit(Slot(2), &[]);
        }
    }
    assert_eq!(digest(&disk), digest(&memory));
}

#[test]
fn deadlines_are_found_whatever_was_looked_for_before() {
    let folder = tempfile::tempdir().unwrap();
    let mut store = open(&folder.path().join("kv"));
    let overdue = |store: &LsmStore, wall_ms| {
        let found = overdue(store, wall_ms);
        found.iter().map(|(deadline, _)| *deadline).collect::<Vec<_>>()
    };
    for deadline in [30, 10, 20] {
        store.put(key_of(deadline.to_string().as_bytes()), b"", VERSION, Some(deadline));
        store.commit(Slot(deadline), &[]);
    }
    assert_eq!(overdue(&store, 20), [10, 20]);
    assert_eq!(overdue(&store, 5), [], "the clock jumped back");
    assert_eq!(overdue(&store, 20), [10, 20]);
    store.remove(b"10".into());
    assert_eq!(overdue(&store, 20), [20]);
    store.remove(b"20".into());
    assert_eq!(overdue(&store, 25), []);
    store.put(b"15".into(), b"", VERSION, Some(15));
    assert_eq!(overdue(&store, u64::MAX), [15, 30]);
    store.clear();
    assert_eq!(overdue(&store, u64::MAX), []);
    store.put(b"1".into(), b"", VERSION, Some(1));
    assert_eq!(overdue(&store, 1), [1]);
}

/// Returns a digest of all entries in a folder, apart from how far the purge got.
fn listing(path: &Path) -> u128 {
    let database = fjall::Database::builder(path).open().unwrap();
    let tree = database.keyspace("kv", fjall::KeyspaceCreateOptions::default).unwrap();
    let mut bytes = Vec::new();
    for entry in tree.iter() {
        let (key, value) = entry.into_inner().unwrap();
        // The state ends with the lowest generation that may have data.
        let is_state = matches!(key[..], [0] | [0, 2]);
        let value = &value[..value.len() - if is_state { 8 } else { 0 }];
        for part in [&key[..], value] {
            bytes.extend_from_slice(&(part.len() as u64).to_le_bytes());
            bytes.extend_from_slice(part);
        }
    }
    xxhash_rust::xxh3::xxh3_128(&bytes)
}

/// A folder in which database 0 alone was ever used has the bytes that release 0.2.0 wrote.
#[test]
fn folder_of_one_database_is_that_of_earlier_releases() {
    const ENTRIES: usize = 84;
    const LISTING: u128 = 295_826_034_202_670_029_239_358_591_357_130_394_706;
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("kv");
    let mut store = open(&path);
    let mut random = Random::new(7);
    for slot in 1..400 {
        for index in 0..3 {
            let version = Version { slot, index };
            let key = [b'k', random.below(60) as u8];
            let value = vec![slot as u8; random.below(3) * 300];
            let deadline = (random.below(3) == 0).then(|| 1 + random.next() % 1000);
            let id = Id { version, number: 0 };
            match random.below(8) {
                0 | 1 => drop(store.take(key_of(&key))),
                2 => {
                    let header = Header { id, count: 3, bytes: 9, ..HEADER };
                    for field in [b"a", b"b", b"c"] {
                        store.put_row(id, field, &value);
                    }
                    let stamp = Stamp { version, deadline: None, kind: Kind::Set };
                    store.set(key_of(&key), &header.to_bytes(), stamp);
                }
                _ => store.put(key_of(&key), &value, version, deadline),
            }
        }
        match slot {
            100 => store.clear(),
            200 => {
                store.commit(Slot(slot + 1), &[]);
                store.begin_load().unwrap();
                for number in 0..20 {
                    let stamp = Stamp::string(VERSION, (number % 2 == 0).then_some(5000));
                    let value = vec![number; 40 * usize::from(number)];
                    store.load(key_of(&[b'k', number]), &value, stamp).unwrap();
                }
                store.finish_load(Slot(slot + 1), &[meta("loaded", Some("yes"))]).unwrap();
            }
            250 => store.set_time(300),
            _ if slot > 250 => drop(store.sweep(2)),
            _ => {}
        }
        store.commit(Slot(slot + 1), &[meta("slot", Some(&slot.to_string()))]);
        if slot % 60 == 0 {
            store.persist().unwrap();
        }
    }
    store.persist().unwrap();
    // The old generations and the rows of dropped collections are removed in the background.
    until("the purge", || (store.stored_entries() == ENTRIES).then_some(()));
    drop(store);
    assert_eq!(listing(&path), LISTING);
}

const HEADER: Header = Header {
    id: Id { version: VERSION, number: 0 },
    count: 0,
    bytes: 0,
    first: 0,
    field_deadlines: None,
    log: None,
};
