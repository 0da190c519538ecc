//! First starts: refusals, and the state that interrupted starts leave.

use std::collections::{BTreeMap, BTreeSet};

use quorate_core::{node_id::NodeId, record::Class};
use quorate_log::disk::{Family, FileId, MemoryDisk};
use quorate_replica::group::MemberRole;

use crate::{
    LockedFolder,
    founding::{
        FirstStartRole, FoundingSettings, Joined, JoiningError, JoiningNode, Newcomer,
        found_cluster,
    },
    home::Home,
    host::Founded,
    identity::{AddressBook, ExpectedIdentity, Identity, IdentityError, LastStop},
};

fn wanted(node: u32) -> FoundingSettings {
    let member = |node| (NodeId(node), format!("10.0.0.{node}:7451"));
    FoundingSettings {
        expected: ExpectedIdentity { node: Some(NodeId(node)), ..ExpectedIdentity::default() },
        cluster: (1..=3).map(member).collect(),
        store_default: "memory".to_owned(),
        terms: Default::default(),
    }
}

fn founded() -> Founded {
    Founded {
        cluster: 7,
        class: Class::Durable,
        store: "memory".to_owned(),
        members: wanted(2).cluster.into_iter().collect(),
        terms: Default::default(),
    }
}

fn joined() -> Joined {
    let mut book = AddressBook::from_founding(&wanted(1).cluster);
    book.peers.insert(NodeId(4), "10.0.0.4:7451".to_owned());
    Joined { node: NodeId(4), founded: founded(), address_book: book, is_learner: false }
}

/// Returns settings that accept any cluster and any id.
fn anything() -> FoundingSettings {
    FoundingSettings { store_default: "lsm".to_owned(), ..FoundingSettings::default() }
}

#[test]
fn the_lowest_of_the_list_founds_and_the_others_ask_it() {
    let founder = |node| Some(FirstStartRole::Founder { node: NodeId(node) });
    let joiner = FirstStartRole::Joiner { node: NodeId(3), founder: "10.0.0.1:7451".to_owned() };
    assert_eq!(wanted(1).role(), founder(1));
    assert_eq!(wanted(3).role(), Some(joiner));
    let mut unnamed = wanted(1);
    unnamed.expected.node = None;
    assert_eq!(unnamed.role(), None, "which of the three?");
    unnamed.cluster = BTreeMap::from([(NodeId(5), "e:1".to_owned())]);
    assert_eq!(unnamed.role(), founder(5));
    unnamed.cluster.clear();
    assert_eq!(unnamed.role(), founder(1));
}

/// [join-2] A folder keeps its nonce, so a crash between the founder's answer and the identity does
/// not turn it into an unknown folder.
#[test]
fn a_folder_keeps_its_nonce() {
    let folder = tempfile::tempdir().unwrap();
    let nonce = |name: &str, fresh| {
        let home = LockedFolder::create(&folder.path().join(name)).unwrap();
        let joining = JoiningNode::prepare(home, NodeId(2), fresh).unwrap();
        joining.request(&wanted(2)).nonce
    };
    assert_eq!(nonce("n", 1), 1);
    assert_eq!(nonce("n", 2), 1);
    assert_eq!(nonce("m", 3), 3);
}

#[test]
fn two_processes_cannot_join_with_one_folder() {
    let folder = tempfile::tempdir().unwrap();
    let home = LockedFolder::create(folder.path()).unwrap();
    let _joining = JoiningNode::prepare(home, NodeId(2), 1).unwrap();
    let problem = LockedFolder::create(folder.path()).unwrap_err();
    assert!(matches!(problem, IdentityError::InUse { .. }), "{problem}");
}

/// [join-2] The nonce sent to a founder stays the same, however often power is lost.
#[test]
fn nonce_sent_to_a_founder_never_changes() {
    for seed in 0..200 {
        let disk = MemoryDisk::new();
        let mut spoken = BTreeSet::new();
        for attempt in 0..6 {
            let home = disk.reopen_after_crash();
            home.die_after_changes((seed + attempt) % 4);
            if seed % 2 == 0 {
                if let Ok(joining) = JoiningNode::prepare(home, NodeId(2), attempt + 1) {
                    spoken.insert(joining.request(&wanted(2)).nonce);
                }
            } else if let Ok(newcomer) = Newcomer::prepare(home, attempt + 1) {
                spoken.insert(newcomer.nonce());
            }
            disk.crash(seed * 7 + attempt);
        }
        assert!(spoken.len() <= 1, "seed {seed}: {spoken:?}");
    }
}

#[test]
fn node_with_other_expectations_does_not_join() {
    let mut wanted = wanted(2);
    wanted.expected.class = Some(Class::Volatile);
    let joining = JoiningNode::prepare(MemoryDisk::new(), NodeId(2), 1).unwrap();
    let refused = joining.finish(&wanted, founded()).unwrap_err();
    let said = "the cluster has durability durable, not volatile";
    assert_eq!(refused.to_string(), said);
    wanted.expected.class = None;
    wanted.expected.store = Some("lsm".to_owned());
    let joining = JoiningNode::prepare(MemoryDisk::new(), NodeId(2), 1).unwrap();
    let refused = joining.finish(&wanted, founded()).unwrap_err();
    assert!(matches!(refused, JoiningError::SettingDiffers { setting: "store", .. }));
}

/// A newcomer joins only under the id that its operator named, if any.
#[test]
fn newcomer_joins_only_as_its_operator_expects() {
    let prepare = || Newcomer::prepare(MemoryDisk::new(), 1).unwrap();
    let identity = prepare().finish(&anything(), MemberRole::Voter, joined()).unwrap();
    assert_eq!(identity.founding().node, NodeId(4));
    assert_eq!(identity.founding().store, "memory", "what the cluster has");
    assert!(!identity.founding().members.contains_key(&NodeId(4)));
    let mut differs = [anything(), anything(), anything()];
    differs[0].expected.node = Some(NodeId(5));
    differs[1].expected.class = Some(Class::Volatile);
    differs[2].expected.store = Some("lsm".to_owned());
    for (wanted, named) in differs.iter().zip(["node", "durability", "store"]) {
        let refused = prepare().finish(wanted, MemberRole::Voter, joined()).unwrap_err();
        assert!(
            matches!(refused, JoiningError::SettingDiffers { setting, .. } if setting == named),
            "{refused}"
        );
    }
}

/// A founding or joining killed at any point leaves no owner, or a node that never ran.
#[test]
fn interrupted_first_start_is_repeated_or_complete() {
    let found = |home| found_cluster(home, &wanted(1), NodeId(1), "", 7, 9).ok();
    let join = |home| {
        let joining = JoiningNode::prepare(home, NodeId(2), 9).ok()?;
        joining.finish(&wanted(2), founded()).ok()
    };
    let newcomer = |home| {
        let newcomer = Newcomer::prepare(home, 9).ok()?;
        newcomer.finish(&anything(), MemberRole::Voter, joined()).ok()
    };
    let firsts: [&dyn Fn(MemoryDisk) -> Option<Identity<MemoryDisk>>; 3] =
        [&found, &join, &newcomer];
    for first in firsts {
        let mut outcomes = BTreeSet::new();
        for steps in 0..16 {
            for seed in 0..20 {
                let disk = MemoryDisk::new();
                disk.reopen_after_crash().die_after_changes(steps);
                first(disk.reopen_after_crash());
                disk.crash(seed);
                let reopened =
                    Identity::open(disk.reopen_after_crash(), &ExpectedIdentity::default());
                outcomes.insert(reopened.is_ok());
                let mut identity = match reopened {
                    Ok(identity) => identity,
                    Err(error) => {
                        assert!(matches!(error, IdentityError::Missing { .. }), "{error}");
                        first(disk.reopen_after_crash()).expect("nothing is in its way")
                    }
                };
                assert_eq!(identity.founding().cluster, 7);
                if identity.joining_role().is_some() {
                    assert_eq!(identity.address_book(), &joined().address_book);
                }
                assert_eq!(identity.begin_boot(), Ok(LastStop::Never));
                // The folder of the log is known to be new.
                let mut disk = identity.home_mut().open_disk(&mut |_| {}).unwrap();
                let made =
                    quorate_log::disk::Source::newest_created(&mut disk, Family::Log).unwrap();
                assert_eq!(made, Some(FileId::new(Family::Log, 0)));
            }
        }
        assert_eq!(outcomes, [false, true].into());
    }
}
