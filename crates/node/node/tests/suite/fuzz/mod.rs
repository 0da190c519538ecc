//! Hostile identities, address books and backups: the fuzz targets' corpora, and mutations of them.

mod backup;
mod book;
mod identity;

use std::fs;

use crate::driver::{self, Seed};
use quorate_core::{
    node_id::{Incarnation, NodeId},
    quorum::QuorumRule,
    record::Class,
    slot::Slot,
};
use quorate_node::{
    LockedFolder,
    identity::{AddressBook, Founding, Identity},
    terms::FoundingTerms,
};
use quorate_replica::{
    group::MemberRole,
    testing::backups::{file_of, header_of, stream},
};

fn identities() -> Vec<Seed> {
    let mut seeds = Vec::new();
    for (name, class, members, boots, clean) in [
        ("new", Class::Durable, 1, 0, false),
        ("running", Class::Volatile, 3, 1, false),
        ("stopped", Class::Volatile, 3, 2, true),
        ("large", Class::Durable, 9, 3, false),
    ] {
        let folder = tempfile::tempdir().expect("a folder");
        let member = |node| (NodeId(node), format!("10.0.0.{node}:7451"));
        let founding = Founding {
            cluster: 0x1234_5678_9abc_def0,
            node: NodeId(1),
            class,
            store: if members > 1 { "lsm" } else { "memory" }.to_owned(),
            members: (1..=members).map(member).collect(),
            join_nonce: 99,
            terms: Default::default(),
        };
        let home = LockedFolder::create(folder.path()).expect("an empty folder");
        let mut identity = Identity::create(home, founding).expect("an empty folder");
        for _ in 0..boots {
            identity.begin_boot().expect("a folder of our own");
        }
        for node in 2..=members {
            identity.admit_node(NodeId(node), u64::from(node) << 40).expect("new nodes");
        }
        if clean {
            assert_eq!(identity.new_incarnation(), Ok(Incarnation(1)));
            identity.mark_clean().expect("a folder of our own");
        }
        let bytes = fs::read(folder.path().join("identity")).expect("it was saved");
        seeds.push(Seed { name: name.to_owned(), bytes });
    }
    seeds.extend(joined());
    let text = |name: &str, text: &str| Seed { name: name.to_owned(), bytes: text.into() };
    seeds.push(text("newer", "quorate identity 2\nwhatever\n"));
    seeds.push(text("empty", ""));
    seeds.push(text("no-checksum", "quorate identity 1\ncluster 1\nnode 1\n"));
    seeds.push(text("numbers", "quorate identity 1\ncluster ffffffffffffffffffffffffffffffff\nnode 4294967295\ndurability durable\nstore x\nboot 4294967295\nincarnation 4294967295\nclean 2\nnonce ffffffffffffffff\nmember 0 x\nadmitted 0 0\nchecksum 0\n"));
    seeds
}

fn book() -> AddressBook {
    let peer = |node: u32| (NodeId(node), format!("10.0.0.{node}:7451"));
    AddressBook {
        as_of_slot: Slot(77),
        peers: [1, 4, 9].map(peer).into(),
        removed_nodes: [2, 3].map(NodeId).into(),
    }
}

/// Returns identities in a group founded by others, on unusual terms: joining to removed.
fn joined() -> Vec<Seed> {
    let folder = tempfile::tempdir().expect("a folder");
    let member = |node| (NodeId(node), format!("10.0.0.{node}:7451"));
    let founding = Founding {
        cluster: 0x1234_5678_9abc_def0,
        node: NodeId(9),
        class: Class::Durable,
        store: "lsm".to_owned(),
        members: (1..=5).map(member).collect(),
        join_nonce: 99,
        terms: FoundingTerms {
            auxiliaries: [NodeId(5)].into(),
            quorum_rule: QuorumRule::parse("flexible:3,3").expect("it is one"),
        },
    };
    let home = LockedFolder::create(folder.path()).expect("an empty folder");
    let mut identity =
        Identity::join(home, founding, MemberRole::Voter, book()).expect("an empty folder");
    let mut seeds = Vec::new();
    let mut keep = |name: &str| {
        let bytes = fs::read(folder.path().join("identity")).expect("it was saved");
        let name = name.to_owned();
        seeds.push(Seed { name, bytes });
    };
    keep("joining");
    identity.mark_joined().expect("a folder of our own");
    identity.permit_leases(95_000).expect("a folder of our own");
    keep("leasing");
    identity.mark_removed().expect("a folder of our own");
    keep("removed");
    seeds
}

fn books() -> Vec<Seed> {
    let text = |name: &str, text: String| Seed { name: name.to_owned(), bytes: text.into() };
    let sealed = |name: &str, lines: String| {
        let sum = crc32c::crc32c(lines.as_bytes());
        text(name, format!("{lines}checksum {sum:08x}\n"))
    };
    let folder = tempfile::tempdir().expect("a folder");
    let founding = Founding {
        cluster: 7,
        node: NodeId(4),
        class: Class::Durable,
        store: "lsm".to_owned(),
        members: [(NodeId(1), "founder:1".to_owned())].into(),
        join_nonce: 99,
        terms: FoundingTerms::default(),
    };
    let home = LockedFolder::create(folder.path()).expect("an empty folder");
    drop(Identity::join(home, founding, MemberRole::Learner, book()).expect("an empty folder"));
    let bytes = fs::read(folder.path().join("peers")).expect("it was saved");
    let many = (0..40).map(|node| format!("peer {node} h{node}:7451\n"));
    vec![
        Seed { name: "book".to_owned(), bytes },
        text("empty", String::new()),
        text("no-checksum", "quorate peers 1\nat 7\n".to_owned()),
        sealed("newer", "quorate peers 2\nat 7\n".to_owned()),
        sealed("nobody", "quorate peers 1\nat 18446744073709551615\n".to_owned()),
        sealed("many", format!("quorate peers 1\nat 1\n{}", many.collect::<String>())),
        sealed(
            "twice",
            "quorate peers 1\nat 1\nat 2\npeer 1 a:1\npeer 1 b:1\nremoved 1\n".to_owned(),
        ),
    ]
}

fn backups() -> Vec<Seed> {
    let item = |at: usize| vec![at as u8; at * 37 % 300];
    let mut seeds = Vec::new();
    for (name, items, piece) in [("nothing", 0, 50), ("small", 3, 7), ("some", 12, 1000)] {
        let items: Vec<Vec<u8>> = (0..items).map(item).collect();
        let stream = stream(&items);
        let (bytes, _) = file_of(&header_of(&stream), &stream, piece);
        let cut = bytes[..bytes.len() - 41].to_vec();
        for (name, bytes) in [(name.to_owned(), bytes), (format!("{name}-cut"), cut)] {
            seeds.push(Seed { name, bytes });
        }
    }
    // An empty file, and one with the wrong contents.
    for (name, stream) in [("empty", &b""[..]), ("no-snapshot", b"whatever this may be")] {
        let (bytes, _) = file_of(&header_of(stream), stream, 5);
        let name = name.to_owned();
        seeds.push(Seed { name, bytes });
    }
    seeds
}

#[test]
fn no_bytes_of_a_book_stop_a_node() {
    driver::run("book", &books(), 5_000, book::check);
}

/// Resealing, as done after mutations, leaves a valid backup unchanged.
#[test]
fn a_whole_backup_is_sealed_already() {
    let whole = backups().into_iter().filter(|seed| !seed.name.ends_with("-cut"));
    let mut flipped = 0;
    for Seed { name, bytes } in whole {
        assert!(backup::sealed(&bytes) == bytes, "{name}");
        // A resealed backup with a flipped bit in its contents is accepted, although the checksum
        // alone would have detected the change.
        let mut damaged = bytes.clone();
        let last = damaged.len() - 41;
        damaged[last] ^= 1;
        let sealed = backup::sealed(&damaged);
        flipped += usize::from(sealed[last] == damaged[last] && sealed != damaged);
    }
    assert!(flipped >= 3, "{flipped}");
}

#[test]
fn no_bytes_of_a_backup_break_the_restore() {
    driver::run("backup", &backups(), 20_000, backup::check);
}

#[test]
fn no_bytes_of_a_file_break_the_identity() {
    driver::run("identity", &identities(), 20_000, identity::check);
}
