//! Files that are not snapshots, are truncated, have flipped bits, or are crafted to be costly.

use std::collections::BTreeMap;

use prost::Message as _;
use quorate::{Slot, StateMachine as _};
use quorate_etcd::{
    command::Command, import::ImportError, mvcc::KEY_BYTES_MAX, proto::mvccpb::KeyValue,
};

use super::{
    file::{Bucket, Buckets, buckets, lease, saved, write},
    import,
};
use crate::{
    common::{apply_bytes, service},
    dice::Dice,
    random,
};

fn sample(page: usize) -> Vec<u8> {
    let mut service = service();
    let mut dice = Dice::new(3);
    for _ in 0..60 {
        let command = Command::Put(random::put(&mut dice));
        apply_bytes(&mut service, &command.encode());
        let command = Command::Delete(random::delete(&mut dice));
        apply_bytes(&mut service, &command.encode());
    }
    let mut buckets = buckets(&service, None);
    buckets.insert("lease", Bucket::from([lease(1, 5), lease(2, 5)]));
    write(&buckets, page)
}

/// Checks that a file is refused or imported whole, and returns whether it was imported.
fn survive(file: &Vec<u8>) -> bool {
    let Ok(items) = import(file) else {
        return false;
    };
    let mut service = service();
    service.begin_load().unwrap();
    for item in &items {
        service.load(item).unwrap();
    }
    service.finish_load(Slot(2), &[]).unwrap();
    true
}

#[test]
fn a_file_cut_short_anywhere_is_refused() {
    let file = sample(512);
    assert!(survive(&file));
    for length in 0..file.len() {
        let cut = file[..length].to_vec();
        assert!(import(&cut).is_err(), "{length}");
    }
    let cut = file[..file.len() - 512].to_vec();
    assert!(matches!(import(&cut), Err(ImportError::Truncated { .. })));
    // An extra page is unused.
    assert!(survive(&[file, vec![9; 512]].concat()));
}

#[test]
fn a_checksum_counts_if_there_is_one() {
    let file = saved(sample(512));
    assert!(survive(&file));
    let mut dice = Dice::new(8);
    for _ in 0..200 {
        let mut file = file.clone();
        let at = dice.below(file.len());
        file[at] ^= 1 << dice.below(8);
        assert!(matches!(import(&file), Err(ImportError::Checksum)), "{at}");
    }
}

#[test]
fn what_is_no_snapshot_is_named() {
    for nothing in [vec![], vec![0; 100], vec![7; 8192], b"qrtbckup".repeat(901)] {
        assert!(matches!(import(&nothing), Err(ImportError::NotASnapshot)));
    }
    let other = write(&Buckets::from([("widgets", Bucket::new())]), 4096);
    assert!(matches!(import(&other), Err(ImportError::NotEtcd("key"))));
    assert!(import(&write(&Buckets::new(), 4096)).is_err());
}

/// One intact meta page is enough.
#[test]
fn a_torn_first_page_is_made_up_for() {
    for page in [512, 4096] {
        for torn in [0, page] {
            let mut file = sample(page);
            file[torn + 40] ^= 1;
            assert!(survive(&file), "{page}, {torn}");
        }
        let mut file = sample(page);
        file[40] ^= 1;
        file[page + 40] ^= 1;
        assert!(matches!(import(&file), Err(ImportError::NotASnapshot)));
    }
}

#[test]
fn no_mutation_of_a_file_makes_it_panic() {
    let mut dice = Dice::new(11);
    let good = sample(512);
    let (mut taken, mut refused) = (0, 0);
    for _ in 0..6_000 {
        let mut file = good.clone();
        for _ in 0..=dice.below(3) {
            // The first pages have checksums of their own.
            let at = 1024 + dice.below(file.len() - 1024);
            match dice.below(5) {
                0 => file[at] ^= 1 << dice.below(8),
                1 => file[at] = u8::try_from(dice.below(256)).unwrap(),
                2 => {
                    let number = dice.of(&[0_u32, 1, 0xffff, 0x7fff_ffff, u32::MAX]);
                    let at = at.min(file.len() - 4) & !3;
                    file[at..at + 4].copy_from_slice(&number.to_le_bytes());
                }
                3 => {
                    // A number in the header of a page, or in its elements.
                    let page = at & !511;
                    file[page + dice.below(64)] = u8::try_from(dice.below(256)).unwrap();
                }
                _ => {
                    let from = (1024 + dice.below(file.len() - 1024)) & !511;
                    let page = at & !511;
                    file.copy_within(from..from + 512, page);
                }
            }
        }
        match survive(&file) {
            true => taken += 1,
            false => refused += 1,
        }
    }
    assert!(taken > 100 && refused > 1000, "{taken} taken, {refused} refused");
}

/// Pages referenced twice are refused: the work would multiply with the references.
#[test]
fn pages_that_are_in_use_twice_are_refused() {
    let mut file = sample(512);
    let branch = (2..file.len() / 512).map(|page| page * 512).find(|at| file[at + 8] == 1);
    let first = branch.unwrap() + 16;
    // The second element refers to the page of the first one.
    file.copy_within(first + 8..first + 16, first + 16 + 8);
    match import(&file) {
        Err(ImportError::Damaged { description: what, .. }) => {
            assert_eq!(what, "a page is in use twice")
        }
        other => panic!("{other:?}"),
    }
    // A branch that refers to itself.
    let mut file = sample(512);
    let id = (first / 512) as u64;
    file[first + 8..first + 16].copy_from_slice(&id.to_le_bytes());
    assert!(import(&file).is_err());
}

/// Overlapping elements are refused: they would have more bytes than the file.
#[test]
fn elements_over_each_other_are_refused() {
    let elements = (0..9_u8).map(|key| (vec![key], vec![key; 40])).collect();
    // A bucket that is only hashed, so that no other check fails.
    let buckets = [("cluster", elements), ("key", Bucket::new()), ("meta", Bucket::new())];
    let mut file = write(&Buckets::from(buckets), 1024);
    assert!(import(&file).is_ok());
    let leaf = (2..file.len() / 1024).map(|page| page * 1024);
    let leaf = leaf.clone().find(|at| file[at + 10] == 9).unwrap();
    for element in 0..9 {
        let at = leaf + 16 + element * 16;
        // Each element claims all bytes after it.
        let left = u32::try_from(1024 - 16 - 9 * 16 - element * 41 - 1).unwrap();
        file[at + 12..at + 16].copy_from_slice(&left.to_le_bytes());
    }
    match import(&file) {
        Err(ImportError::Damaged { description: what, .. }) => {
            assert_eq!(what, "a leaf is cut off")
        }
        other => panic!("{other:?}"),
    }
}

#[test]
fn records_that_contradict_themselves_are_refused() {
    let good = KeyValue {
        key: "a".into(),
        create_revision: 2,
        mod_revision: 2,
        version: 1,
        ..KeyValue::default()
    };
    let revision =
        |main: i64, sub: i64| [&main.to_be_bytes()[..], b"_", &sub.to_be_bytes()].concat();
    let with = |key: Vec<u8>, kv: &KeyValue| {
        let keys = BTreeMap::from([(key, kv.encode_to_vec())]);
        import(&write(&Buckets::from([("key", keys), ("meta", Bucket::new())]), 4096))
    };
    assert!(with(revision(2, 0), &good).is_ok());
    let bad = [
        KeyValue { key: "".into(), ..good.clone() },
        KeyValue { mod_revision: 3, ..good.clone() },
        KeyValue { version: 0, ..good.clone() },
        KeyValue { create_revision: i64::MAX, ..good.clone() },
    ];
    for kv in &bad {
        assert!(with(revision(2, 0), kv).is_err(), "{kv:?}");
    }
    for key in [revision(0, 0), revision(-5, 0), revision(2, -1), b"short".to_vec()] {
        assert!(with(key.clone(), &good).is_err(), "{key:?}");
    }
    let last = KeyValue { mod_revision: i64::MAX, ..good.clone() };
    assert!(with(revision(i64::MAX, 0), &last).is_err());
    let of_length = |bytes| KeyValue { key: vec![b'k'; bytes].into(), ..good.clone() };
    assert!(with(revision(2, 0), &of_length(KEY_BYTES_MAX)).is_ok());
    let long = with(revision(2, 0), &of_length(KEY_BYTES_MAX + 1));
    let why = long.err().map(|bad| bad.to_string());
    assert_eq!(why.as_deref(), Some("it has a key of 16385 bytes, more than 16384"));
    let marked = [revision(2, 0), b"x".to_vec()].concat();
    assert!(with(marked, &good).is_err());
}
