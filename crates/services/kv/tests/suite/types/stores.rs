//! Collection rows in both stores: order, removal, and consistent snapshots.

use std::{collections::BTreeMap, ops::ControlFlow, path::Path};

use quorate_core::slot::Slot;
use quorate_kv::store::{
    Span, Stamp, Store, Version,
    collection::{EncodedHeader, Header, Id, Kind},
    digest,
    image::ImagePart,
    lsm::{Limits, LsmStore},
    memory::MemoryStore,
};
use quorate_replica::service::Imaged;

use crate::{common::Random, failing::until};

fn id(slot: u64) -> Id {
    Id { version: Version { slot, index: 0 }, number: 0 }
}

fn header(id: Id, count: u64) -> EncodedHeader {
    let header = Header { id, count, bytes: 0, first: 0, field_deadlines: None, log: None };
    header.to_bytes()
}

fn stamp(slot: u64) -> Stamp {
    Stamp { version: Version { slot, index: 0 }, deadline: None, kind: Kind::Hash }
}

fn lsm(path: &Path) -> LsmStore {
    let limits = Limits { held_bytes: 2000, ..Limits::default() };
    LsmStore::open_with(path, limits).unwrap().0
}

fn rows(store: &dyn Store, id: Id, span: Span<'_>) -> Vec<(Vec<u8>, Vec<u8>)> {
    let mut found = Vec::new();
    store.rows(id, span, &mut |name, value| {
        found.push((name.to_vec(), value.to_vec()));
        ControlFlow::Continue(())
    });
    found
}

/// Iteration merges the rows of all layers and of the tree into one sequence, in both directions.
#[test]
fn rows_are_in_the_order_of_their_names() {
    for seed in 0..6 {
        let folder = tempfile::tempdir().unwrap();
        let mut stores: [Box<dyn Store>; 2] =
            [Box::new(MemoryStore::new()), Box::new(lsm(folder.path()))];
        let mut model: BTreeMap<(u64, Vec<u8>), Vec<u8>> = BTreeMap::new();
        let mut random = Random::new(seed);
        for slot in 1..300 {
            for _ in 0..4 {
                let of = 1 + random.below(3) as u64;
                let name = vec![b'a' + random.below(9) as u8; random.below(4)];
                let value = random.below(100).to_string().into_bytes();
                let removes = random.below(3) == 0;
                for store in &mut stores {
                    match removes {
                        true => store.remove_row(id(of), &name),
                        false => store.put_row(id(of), &name, &value),
                    }
                }
                match removes {
                    true => drop(model.remove(&(of, name))),
                    false => drop(model.insert((of, name), value)),
                }
            }
            let of = 1 + random.below(3) as u64;
            let mut ends = [0, 1].map(|_| vec![b'a' + random.below(10) as u8; random.below(3)]);
            if random.below(4) > 0 {
                ends.sort();
            }
            let to = (random.below(3) > 0).then_some(ends[1].as_slice());
            for back in [false, true] {
                let span = Span { from: &ends[0], to, is_backward: back };
                let within =
                    |name: &[u8]| name >= ends[0].as_slice() && to.is_none_or(|to| name < to);
                let expected =
                    model.iter().filter(|((other, name), _)| *other == of && within(name));
                let mut expected: Vec<_> =
                    expected.map(|((_, name), value)| (name.clone(), value.clone())).collect();
                if back {
                    expected.reverse();
                }
                for store in &stores {
                    assert_eq!(rows(&**store, id(of), span), expected, "seed {seed}");
                }
            }
            for store in &mut stores {
                store.commit(Slot(slot + 1), &[]);
            }
        }
    }
}

/// Waits until the tree has at most `most` entries.
fn until_entries(store: &LsmStore, most: usize) {
    until("rows are removed", || (store.stored_entries() <= most).then_some(()));
}

/// The time to delete a key does not depend on its number of rows. They are removed in the
/// background, also after a restart.
#[test]
fn rows_that_no_key_names_are_removed_from_the_disk() {
    const ROWS: u64 = 5000;
    let folder = tempfile::tempdir().unwrap();
    let mut store = lsm(folder.path());
    let mut slot = 1;
    for (key, of) in [(b"gone", 1), (b"kept", 2), (b"late", 3)] {
        for number in 0..ROWS {
            store.put_row(id(of), &number.to_be_bytes(), b"value");
        }
        store.set(key.into(), &header(id(of), ROWS), stamp(of));
        slot += 1;
        store.commit(Slot(slot), &[]);
    }
    store.persist().unwrap();
    let full = store.stored_entries();
    assert!(full > 3 * 5000);
    let before = digest(&store);
    assert!(store.remove(b"gone".into()));
    assert_ne!(digest(&store), before);
    store.commit(Slot(slot + 1), &[]);
    store.persist().unwrap();
    until_entries(&store, full - 5000);
    // A renamed collection keeps its rows.
    store.detach(b"kept".into());
    store.set(b"renamed".into(), &header(id(2), ROWS), stamp(9));
    store.commit(Slot(slot + 2), &[]);
    store.persist().unwrap();
    assert_eq!(rows(&store, id(2), Span::ALL).len(), 5000);
    // Another value replaces the collection.
    store.put(b"late".into(), b"x", Version { slot: 9, index: 1 }, None);
    store.commit(Slot(slot + 3), &[]);
    store.persist().unwrap();
    drop(store);
    let store = lsm(folder.path());
    until_entries(&store, full - 10_000);
    assert_eq!(rows(&store, id(2), Span::ALL).len(), 5000);
    assert_eq!(rows(&store, id(3), Span::ALL).len(), 0);
}

/// A snapshot contains each row as it was when the snapshot began, even if the row is then changed,
/// its collection dropped or renamed, or all keys removed.
#[test]
fn images_have_rows_as_they_were() {
    for seed in 0..10 {
        let folder = tempfile::tempdir().unwrap();
        let mut stores: [Box<dyn Store>; 2] =
            [Box::new(MemoryStore::new()), Box::new(lsm(folder.path()))];
        let mut random = Random::new(seed);
        let keys: [&[u8; 1]; 4] = [b"a", b"b", b"c", b"d"];
        let mut open: Option<Vec<Vec<u8>>> = None;
        let mut seen: [Vec<Vec<u8>>; 2] = Default::default();
        let (mut images, mut done) = (0, [false; 2]);
        let mut live: BTreeMap<usize, u64> = BTreeMap::new();
        for slot in 1..1500 {
            let at = random.below(4);
            let (other, name) = (random.below(4), random.below(30).to_string());
            // A collection without rows does not exist, so it cannot be renamed.
            let rows_of = |id| rows(&*stores[0], id, Span::ALL).len();
            let what = match (random.below(40), live.get(&at)) {
                (2, Some(of)) if rows_of(id(*of)) == 0 => 4,
                (what, _) => what,
            };
            for store in &mut stores {
                let known = live.get(&at).copied();
                match (what, known) {
                    (0, _) => store.clear(),
                    (1, Some(_)) => drop(store.take(keys[at].into())),
                    (2, Some(of)) if other != at => {
                        store.detach(keys[at].into());
                        store.set(keys[other].into(), &header(id(of), 1), stamp(slot));
                    }
                    (3..10, Some(of)) => store.remove_row(id(of), name.as_bytes()),
                    (_, known) => {
                        let of = known.unwrap_or(slot);
                        store.put_row(id(of), name.as_bytes(), slot.to_string().as_bytes());
                        store.set(keys[at].into(), &header(id(of), 1), stamp(slot));
                    }
                }
                store.commit(Slot(slot + 1), &[]);
            }
            match (what, live.get(&at).copied()) {
                (0, _) => live.clear(),
                (1, Some(_)) => drop(live.remove(&at)),
                (2, Some(of)) if other != at => {
                    live.remove(&at);
                    live.insert(other, of);
                }
                (3..10, Some(_)) => {}
                (_, known) => drop(live.insert(at, known.unwrap_or(slot))),
            }
            if open.is_none() {
                open = Some(contents(&*stores[0]));
                (seen, done) = (Default::default(), [false; 2]);
                for store in &mut stores {
                    assert!(store.begin_image().is_some());
                }
            }
            for (side, store) in stores.iter_mut().enumerate() {
                if done[side] || random.below(2) == 0 {
                    continue;
                }
                let items = &mut seen[side];
                let left = store.next_image(random.below(400), &mut |part| items.push(item(part)));
                assert_ne!(left, Imaged::Failed);
                done[side] = left == Imaged::End;
            }
            if done == [true; 2] {
                let expected = open.take().unwrap();
                assert!(seen[0] == expected, "seed {seed} slot {slot}: in memory");
                assert!(seen[1] == expected, "seed {seed} slot {slot}: on disk");
                images += 1;
            }
        }
        assert!(images > 20, "{images}");
        assert_eq!(digest(&*stores[0]), digest(&*stores[1]));
    }
}

fn item(part: ImagePart<'_>) -> Vec<u8> {
    match part {
        ImagePart::Database(database, since) => format!("{database:?} {since:?}").into_bytes(),
        ImagePart::Key(key, entry) => [key, b"=", &entry.value].concat(),
        ImagePart::Row(name, value) => [b"  ", name, b"=", value].concat(),
    }
}

fn contents(store: &dyn Store) -> Vec<Vec<u8>> {
    let mut items = Vec::new();
    store.scan(quorate_kv::store::Position::START, &mut |key, entry| {
        items.push(item(ImagePart::Key(key, entry)));
        let header = Header::from_bytes(&entry.value).unwrap();
        store.rows(header.id, Span::ALL, &mut |name, value| {
            items.push(item(ImagePart::Row(name, value)));
            ControlFlow::Continue(())
        });
        ControlFlow::Continue(())
    });
    items
}
