//! Snapshots of both stores, loaded into both: equal items and states, whatever happens meanwhile.

use std::{collections::BTreeMap, io, ops::ControlFlow, path::Path, sync::Arc};

use quorate_core::slot::Slot;
use quorate_kv::{
    key::Key,
    service::Service,
    store::{
        Position, Stamp, Store, Version, digest,
        image::ImagePart,
        lsm::{Disk, DiskSpace, Limits, LsmStore, Options},
        memory::MemoryStore,
    },
};
use quorate_replica::service::{
    CommandId, Health, Imaged, LoadError, MetaChange, StateMachine as _,
};

use crate::{
    common::{Random, copy},
    differential::{log, time_of},
    failing::until,
};

fn small() -> Limits {
    Limits { held_bytes: 1500, ..Limits::default() }
}

fn lsm(path: &Path) -> LsmStore {
    if !path.exists() {
        let database = fjall::Database::builder(path).open().unwrap();
        let small = || fjall::KeyspaceCreateOptions::default().max_memtable_size(20_000);
        database.keyspace("kv", small).unwrap();
    }
    let (store, note) = LsmStore::open_with(path, small()).unwrap();
    assert_eq!(note, None);
    store
}

fn changes(of: &[(&str, &str)]) -> Vec<MetaChange> {
    let change = |(key, value): &(&str, &str)| MetaChange {
        key: key.as_bytes().to_vec(),
        value: Some(value.as_bytes().to_vec()),
    };
    of.iter().map(change).collect()
}

/// Executes slots, with a commit after each, and returns the replies.
fn run(service: &mut Service, slots: &[Vec<Vec<u8>>], from: usize, to: usize) -> Vec<Vec<u8>> {
    let mut replies = Vec::new();
    for (at, batch) in slots.iter().enumerate().take(to).skip(from) {
        let slot = at as u64 + 1;
        service.set_time(time_of(slot));
        for (index, command) in batch.iter().enumerate() {
            let id = CommandId { slot: Slot(slot), index: u32::try_from(index).unwrap() };
            let mut reply = Vec::new();
            service.apply(id, command, &mut reply);
            replies.push(reply);
        }
        service.commit(Slot(slot + 1), &changes(&[("at", &slot.to_string())]));
    }
    replies
}

fn take_items(service: &mut Service, bytes: usize, items: &mut Vec<Vec<u8>>) -> Imaged {
    service.next_image(bytes, &mut |item| items.push(item.to_vec()))
}

/// Loads items as a replica does: only while the service is healthy.
fn load(service: &mut Service, items: &[Vec<u8>], at: Slot, meta: &[MetaChange]) {
    service.begin_load().unwrap();
    for item in items {
        until("room", || (service.health() == Health::Well).then_some(()));
        service.load(item).unwrap();
    }
    service.finish_load(at, meta).unwrap();
}

/// A load without items, at a position before the first slot, leaves an empty store. A service does
/// this to start over from the log after a damaged snapshot.
#[test]
fn a_load_of_nothing_before_the_first_slot_leaves_an_empty_store() {
    let folder = tempfile::tempdir().unwrap();
    let stores: [Box<dyn Store>; 2] = [Box::new(MemoryStore::new()), Box::new(lsm(folder.path()))];
    for store in stores {
        let mut service = Service::new(store);
        let slots = log(3, 60);
        run(&mut service, &slots, 0, slots.len());
        assert!(!service.store().is_empty());
        service.begin_load().unwrap();
        let nothing = service.finish_load(Slot(2), &[]);
        assert!(nothing.is_err(), "that is no image of a state");
        load(&mut service, &[], Slot::FIRST, &[]);
        assert_eq!(service.store().len(), 0);
        run(&mut service, &slots, 0, slots.len());
        assert!(!service.store().is_empty(), "it goes on");
    }
}

/// A snapshot from the middle of a log and the rest of the log lead to the same state as the whole
/// log, for every combination of stores.
#[test]
fn an_image_and_the_rest_of_the_log_are_the_whole_log() {
    for seed in 1..=12 {
        let slots = log(seed, 120);
        let mut random = Random::new(seed);
        let folder = tempfile::tempdir().unwrap();
        let middle = 20 + random.below(slots.len() - 40);
        let fresh = |name: &str, on_disk: bool| {
            Service::new(if on_disk {
                Box::new(lsm(&folder.path().join(name))) as Box<dyn Store>
            } else {
                Box::new(MemoryStore::new())
            })
        };
        let mut images = Vec::new();
        let mut results = Vec::new();
        for on_disk in [false, true] {
            let mut service = fresh("from", on_disk);
            run(&mut service, &slots, 0, middle);
            assert!(service.begin_image());
            let (mut items, mut replies, mut done) = (Vec::new(), Vec::new(), middle);
            while done < slots.len() {
                let next = (done + 1 + random.below(6)).min(slots.len());
                replies.extend(run(&mut service, &slots, done, next));
                done = next;
                if items.is_empty() || random.below(3) == 0 {
                    let bytes = random.below(200);
                    take_items(&mut service, bytes, &mut items);
                }
            }
            while take_items(&mut service, 100, &mut items) == Imaged::More {}
            results.push((service.digest(), replies));
            images.push(items);
        }
        assert_eq!(results[0], results[1]);
        let (whole, replies) = &results[0];
        let [of_memory, of_disk] = &images[..] else { unreachable!() };
        assert_eq!(of_memory, of_disk, "seed {seed}");
        for (name, items) in [("memory", of_memory), ("disk", of_disk)] {
            for on_disk in [false, true] {
                let mut service = fresh(name, on_disk);
                // The service has other contents before the load.
                run(&mut service, &slots, 0, middle / 2);
                load(&mut service, items, Slot(middle as u64 + 1), &changes(&[("a", "b")]));
                assert_eq!(&run(&mut service, &slots, middle, slots.len()), replies, "seed {seed}");
                assert_eq!(service.digest(), *whole, "seed {seed}");
                if on_disk {
                    drop(service);
                    let mut service = fresh(name, true);
                    let (at, meta) = service.recovered();
                    assert_eq!(at, Slot(slots.len() as u64 + 1));
                    let last = slots.len().to_string();
                    let expected = [("a", "b"), ("at", &last)];
                    let expected = expected.map(|(key, value)| (key.into(), value.into()));
                    assert_eq!(meta, expected);
                    assert_eq!(service.digest(), *whole, "seed {seed}");
                }
            }
        }
    }
}

#[test]
fn what_is_not_committed_is_not_imaged_and_what_is_over_has_failed() {
    let mut service = Service::new(Box::new(MemoryStore::new()));
    let slots = log(1, 10);
    run(&mut service, &slots, 0, 5);
    let mut items = Vec::new();
    assert_eq!(take_items(&mut service, 1, &mut items), Imaged::Failed);
    let id = CommandId { slot: Slot(6), index: 0 };
    service.apply(id, &slots[5][0], &mut Vec::new());
    assert!(!service.begin_image());
    service.commit(Slot(7), &[]);
    assert!(service.begin_image());
    assert_eq!(take_items(&mut service, 0, &mut items), Imaged::More);
    service.end_image();
    assert_eq!(take_items(&mut service, 1, &mut items), Imaged::Failed);
    assert!(service.begin_image());
    service.begin_load().unwrap();
    assert_eq!(take_items(&mut service, 1, &mut items), Imaged::Failed);
}

type Contents = Vec<(Vec<u8>, Vec<u8>, Version, Option<u64>)>;

fn contents(store: &dyn Store) -> Contents {
    let mut found = Vec::new();
    store.scan(Position::START, &mut |key, entry| {
        let value = entry.value.to_vec();
        found.push((key.to_vec(), value, entry.version, entry.deadline));
        ControlFlow::Continue(())
    });
    found
}

/// Checks that a snapshot contains the state at its beginning, while keys are written, removed and
/// flushed.
fn images_are_of_their_moment(store: &mut dyn Store, seed: u64, rounds: u64) -> u64 {
    let mut random = Random::new(seed);
    let mut images: u64 = 0;
    let mut open: Option<(Contents, Contents)> = None;
    let mut slot = 1;
    for _ in 0..rounds {
        for _ in 0..random.below(12) {
            let key = random.below(400).to_string();
            let key = Key::new(key.as_bytes()).unwrap();
            let version = Version { slot, index: 0 };
            match random.below(100) {
                0 if random.below(10) == 0 => store.clear(),
                1..=25 => drop(store.remove(key)),
                _ => {
                    let value = vec![b'v'; random.below(60)];
                    let deadline = (random.below(3) == 0).then(|| random.next() >> 1);
                    store.put(key, &value, version, deadline);
                }
            }
        }
        slot += 1;
        store.commit(Slot(slot), &[]);
        if open.is_none() || random.below(200) == 0 {
            let keys = store.begin_image();
            let expected = contents(store);
            assert_eq!(keys, Some(expected.len() as u64));
            open = Some((expected, Vec::new()));
        }
        if random.below(3) == 0
            && let Some((expected, seen)) = &mut open
        {
            let before = seen.len();
            let left = store.next_image(random.below(1500), &mut |part| {
                let ImagePart::Key(key, entry) = part else { panic!("there are strings only") };
                let value = entry.value.to_vec();
                seen.push((key.to_vec(), value, entry.version, entry.deadline));
            });
            match left {
                Imaged::More => assert!(seen.len() > before),
                Imaged::End => {
                    assert!(seen == expected, "seed {seed}: image {images}");
                    images += 1;
                    open = None;
                }
                Imaged::Failed => panic!("nothing is wrong"),
            }
        }
    }
    images
}

#[test]
fn an_image_is_of_the_moment_when_it_was_begun() {
    for seed in 1..=20 {
        let images = images_are_of_their_moment(&mut MemoryStore::new(), seed, 3000);
        assert!(images > 30, "{images}");
    }
    for seed in 1..=4 {
        let folder = tempfile::tempdir().unwrap();
        let mut store = lsm(&folder.path().join("kv"));
        let images = images_are_of_their_moment(&mut store, seed, 3000);
        assert!(images > 30, "{images}");
    }
}

/// Returns the items of a snapshot and the digest of its state.
fn made(seed: u64, keys: usize) -> (Vec<Vec<u8>>, u128) {
    let mut store = MemoryStore::new();
    let mut random = Random::new(seed);
    for number in 0..keys {
        let key = format!("{seed}-{number}");
        let value = vec![b'v'; random.below(100)];
        let deadline = (random.below(2) == 0).then(|| random.next() >> 1);
        let version = Version { slot: 1, index: 7 };
        store.put(Key::new(key.as_bytes()).unwrap(), &value, version, deadline);
    }
    let mut service = Service::new(Box::new(store));
    assert!(service.begin_image());
    let mut items = Vec::new();
    while take_items(&mut service, 1000, &mut items) == Imaged::More {}
    (items, service.digest())
}

/// A process killed during a load leaves either the old or the new state. A failed load leaves
/// nothing visible.
#[test]
fn a_load_is_whole_or_was_not() {
    let folder = tempfile::tempdir().unwrap();
    let (old, old_digest) = made(1, 300);
    let (new, new_digest) = made(2, 900);
    let path = folder.path().join("kv");
    // fjall's threads must not change files while they are copied.
    let open = || Service::new(Box::new(LsmStore::open_with(&path, small()).unwrap().0));
    let mut service = open();
    load(&mut service, &old, Slot(5), &changes(&[("old", "1"), ("both", "1")]));
    drop(service);
    let mut service = open();
    assert_eq!(service.recovered().0, Slot(5));
    let mut random = Random::new(3);
    let mut copies = 0;
    let keep = |copies: &mut u32| {
        *copies += 1;
        copy(&path, &folder.path().join(copies.to_string()));
    };
    service.begin_load().unwrap();
    for item in &new {
        until("room", || (service.health() == Health::Well).then_some(()));
        service.load(item).unwrap();
        if random.below(60) == 0 {
            keep(&mut copies);
        }
    }
    keep(&mut copies);
    service.finish_load(Slot(9), &changes(&[("both", "2"), ("new", "2")])).unwrap();
    keep(&mut copies);
    drop(service);
    keep(&mut copies);
    let (mut olds, mut news) = (0, 0);
    for number in 1..=copies {
        let path = folder.path().join(number.to_string());
        let store = LsmStore::open_with(&path, small()).unwrap().0;
        let mut service = Service::new(Box::new(store));
        let (at, meta) = service.recovered();
        let keys: Vec<_> = meta.iter().map(|(key, _)| key.as_slice()).collect();
        if at == Slot(5) {
            assert_eq!((keys, service.digest()), (vec![&b"both"[..], b"old"], old_digest));
            olds += 1;
        } else {
            assert_eq!(at, Slot(9));
            assert_eq!((keys, service.digest()), (vec![&b"both"[..], b"new"], new_digest));
            news += 1;
        }
        drop(service);
        let mut store = LsmStore::open_with(&path, small()).unwrap().0;
        // Expected entries after the remains are removed: the state and its copy, the metadata, the
        // mark, the keys, and the deadlines.
        let deadlines = contents(&store).iter().filter(|(.., deadline)| deadline.is_some()).count();
        let expected = 5 + contents(&store).len() + deadlines;
        until("what is left to be removed", || (store.stored_entries() <= expected).then_some(()));
        store.clear();
        store.put(b"only".into(), b"1", Version { slot: 9, index: 0 }, None);
        store.commit(Slot(10), &[]);
        assert_eq!(contents(&store).len(), 1, "copy {number}");
        drop(store);
        let store = LsmStore::open_with(&path, small()).unwrap().0;
        assert_eq!(contents(&store).len(), 1, "copy {number}");
    }
    assert!(olds > 5 && news > 0, "{olds} {news}");
}

#[derive(Debug)]
struct NoRoom;

impl Disk for NoRoom {
    fn free_space(&self, _: &Path) -> io::Result<DiskSpace> {
        Ok(DiskSpace { free: 0, total: 1 << 40 })
    }

    fn try_writing(&self, _: &Path) -> io::Result<()> {
        Ok(())
    }
}

/// The generation of a failed load is never used again, even before its remains are removed.
#[test]
fn a_flush_after_a_load_that_ended_early_is_empty() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("kv");
    let (items, _) = made(1, 3000);
    let mut service = Service::new(Box::new(lsm(&path)));
    service.begin_load().unwrap();
    for item in &items[..items.len() - 1] {
        until("room", || (service.health() == Health::Well).then_some(()));
        service.load(item).unwrap();
    }
    drop(service);
    let options = Options { disk: Arc::new(NoRoom), ..Options::from(small()) };
    let (mut store, _) = LsmStore::open_with(&path, options).unwrap();
    assert_eq!((store.recovered().0, store.len()), (Slot::FIRST, 0));
    store.clear();
    assert!(store.stored_entries() > 2, "nothing is removed without room");
    assert_eq!(contents(&store), Contents::new());
}

/// Invalid items end a load, calls outside a load are refused, and another load can begin.
#[test]
fn items_that_make_no_sense_end_a_load_and_another_one_can_be_begun() {
    let (items, whole) = made(4, 50);
    let folder = tempfile::tempdir().unwrap();
    let stores: [Box<dyn Store>; 2] =
        [Box::new(MemoryStore::new()), Box::new(lsm(&folder.path().join("kv")))];
    for store in stores {
        let mut service = Service::new(store);
        assert_eq!(service.load(&items[0]), Err(LoadError::NotLoading));
        assert_eq!(service.finish_load(Slot(2), &[]), Err(LoadError::NotLoading));
        let mut random = Random::new(7);
        let mut refused = 0;
        for _ in 0..400 {
            service.begin_load().unwrap();
            let mut result = Ok(());
            let broken = random.below(items.len());
            for (at, item) in items.iter().enumerate() {
                let mut item = item.clone();
                if at == broken {
                    for _ in 0..=random.below(3) {
                        match random.below(3) {
                            0 => item.truncate(random.below(item.len() + 1)),
                            1 => item.push(random.next().to_le_bytes()[0]),
                            _ => {
                                let place = random.below(item.len().max(1));
                                if let Some(byte) = item.get_mut(place) {
                                    *byte ^= 1 << random.below(8);
                                }
                            }
                        }
                    }
                }
                result = service.load(&item);
                if result.is_err() {
                    break;
                }
            }
            // Longer values and other versions are valid too; the digest detects them.
            let result = result.and_then(|()| service.finish_load(Slot(2), &[]));
            if result.is_err() {
                assert_eq!(service.finish_load(Slot(2), &[]), Err(LoadError::NotLoading));
                refused += 1;
            }
        }
        assert!(refused > 100, "{refused}");
        load(&mut service, &items, Slot(2), &[]);
        assert_eq!(service.digest(), whole);
        assert_eq!(digest(service.store()), whole);
    }
}

/// A commit during a load would mix two states, so neither is kept.
#[test]
fn nothing_is_committed_within_a_load() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("kv");
    let mut store = lsm(&path);
    let version = Version { slot: 1, index: 0 };
    store.put(b"old".into(), b"1", version, None);
    store.commit(Slot(2), &[]);
    store.persist().unwrap();
    store.begin_load().unwrap();
    let stamp = Stamp::string(version, None);
    store.load(b"new".into(), b"1", stamp).unwrap();
    store.commit(Slot(3), &[]);
    drop(store);
    let mut store = lsm(&path);
    assert_eq!(store.recovered().0, Slot(2));
    let keys: BTreeMap<_, _> =
        contents(&store).into_iter().map(|(key, value, ..)| (key, value)).collect();
    assert_eq!(keys, BTreeMap::from([(b"old".to_vec(), b"1".to_vec())]));
}
