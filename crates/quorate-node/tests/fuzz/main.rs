//! Hostile identity files: the corpus of the fuzz target `identity`, and mutations of it.

mod identity;

use std::fs;

use quorate_core::{
    node_id::{Incarnation, NodeId},
    record::Class,
};
use quorate_fuzz_driver::{self as driver, Seed};
use quorate_node::{
    LockedFolder,
    identity::{Founding, Identity},
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
            identity
                .admit(NodeId(node), u64::from(node) << 40)
                .expect("new nodes");
        }
        if clean {
            assert_eq!(identity.new_incarnation(), Ok(Incarnation(1)));
            identity.mark_clean().expect("a folder of our own");
        }
        let bytes = fs::read(folder.path().join("identity")).expect("it was saved");
        seeds.push(Seed {
            name: name.to_owned(),
            bytes,
        });
    }
    let text = |name: &str, text: &str| Seed {
        name: name.to_owned(),
        bytes: text.into(),
    };
    seeds.push(text("newer", "quorate identity 2\nwhatever\n"));
    seeds.push(text("empty", ""));
    seeds.push(text(
        "no-checksum",
        "quorate identity 1\ncluster 1\nnode 1\n",
    ));
    seeds.push(text("numbers", "quorate identity 1\ncluster ffffffffffffffffffffffffffffffff\nnode 4294967295\ndurability durable\nstore x\nboot 4294967295\nincarnation 4294967295\nclean 2\nnonce ffffffffffffffff\nmember 0 x\nadmitted 0 0\nchecksum 0\n"));
    seeds
}

#[test]
fn no_bytes_of_a_file_break_the_identity() {
    driver::run("identity", &identities(), 20_000, identity::check);
}
