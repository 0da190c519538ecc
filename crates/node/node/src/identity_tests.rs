//! Tests of identities: persistence, refusals, and their text format.

use std::{collections::BTreeMap, fs, path::Path};

use quorate_core::{
    level::Level,
    node_id::{Incarnation, NodeId},
    record::Class,
    slot::Slot,
    witness::{LogEnd, Memory},
};
use quorate_log::disk::SmallFiles as _;
use quorate_replica::group::MemberRole;

use crate::{
    folder::LockedFolder,
    identity::{AddressBook, ExpectedIdentity, Founding, Identity, IdentityError, LastStop},
};

fn founding() -> Founding {
    let members = (1..=3).map(|node| (NodeId(node), format!("127.0.0.1:{}", 7450 + node)));
    Founding {
        cluster: 0x1234,
        node: NodeId(2),
        class: Class::Volatile,
        store: "lsm".into(),
        members: members.collect(),
        join_nonce: 99,
        terms: Default::default(),
    }
}

fn create(folder: &Path, founding: Founding) -> Result<Identity<LockedFolder>, IdentityError> {
    Identity::create(LockedFolder::create(folder)?, founding)
}

fn open(
    folder: &Path,
    expected: &ExpectedIdentity,
) -> Result<Identity<LockedFolder>, IdentityError> {
    Identity::open(LockedFolder::open(folder)?, expected)
}

fn reopen(folder: &Path) -> Identity<LockedFolder> {
    open(folder, &ExpectedIdentity::default()).unwrap()
}

fn memory(incarnation: u32, boot: u32) -> Memory {
    let written = LogEnd { incarnation: Incarnation(incarnation), last_write: 1 };
    Memory { log_end: written, boot }
}

#[test]
fn identity_survives_a_restart() {
    let folder = tempfile::tempdir().unwrap();
    let mut identity = create(folder.path(), founding()).unwrap();
    assert_eq!(identity.begin_boot(), Ok(LastStop::Never));
    identity.admit_node(NodeId(7), 70).unwrap();
    identity.new_incarnation().unwrap();
    drop(identity);
    let identity = reopen(folder.path());
    assert_eq!(identity.founding(), &founding());
    assert_eq!((identity.boot(), identity.incarnation()), (1, Incarnation(1)));
    assert_eq!(identity.admitted_nodes(), &BTreeMap::from([(NodeId(7), 70)]));
    assert_eq!(LockedFolder::read_founding(folder.path()), Ok(founding()));
}

/// [lie-4] A new incarnation is above those that peers remember, even if the folder forgot them.
#[test]
fn new_incarnation_is_above_those_that_peers_remember() {
    let folder = tempfile::tempdir().unwrap();
    let mut identity = create(folder.path(), founding()).unwrap();
    let next = identity.renew_above(memory(4, 7)).unwrap();
    assert_eq!((next, identity.incarnation()), (Incarnation(5), next));
    assert_eq!(identity.renew_above(memory(2, 3)), Ok(Incarnation(6)));
    drop(identity);
    let identity = reopen(folder.path());
    assert_eq!((identity.incarnation(), identity.boot()), (Incarnation(6), 8));
}

/// [lie-5] The process keeps its incarnation, and the next process takes the reserved one.
#[test]
fn owed_incarnation_is_used_by_the_next_process() {
    let folder = tempfile::tempdir().unwrap();
    let mut identity = create(folder.path(), founding()).unwrap();
    identity.reserve_next_incarnation(memory(0, 7)).unwrap();
    identity.mark_level(Level::NEWEST).unwrap();
    assert_eq!((identity.incarnation(), identity.boot()), (Incarnation(0), 0));
    drop(identity);
    let mut identity = reopen(folder.path());
    identity.begin_boot().unwrap();
    assert_eq!((identity.incarnation(), identity.boot()), (Incarnation(1), 8));
}

/// [volatile-4] One start consumes the mark of a clean stop. If it were found twice, a node that
/// has forgotten votes could vote.
#[test]
fn clean_stop_mark_is_consumed_by_one_start() {
    let folder = tempfile::tempdir().unwrap();
    let mut identity = create(folder.path(), founding()).unwrap();
    identity.begin_boot().unwrap();
    identity.mark_clean().unwrap();
    drop(identity);
    let mut identity = reopen(folder.path());
    assert_eq!(identity.begin_boot(), Ok(LastStop::Clean));
    drop(identity); // killed right after
    let mut identity = reopen(folder.path());
    assert_eq!(identity.begin_boot(), Ok(LastStop::Unclean));
    assert_eq!(identity.boot(), 3);
}

#[test]
fn a_second_process_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let identity = create(folder.path(), founding()).unwrap();
    let refused = open(folder.path(), &ExpectedIdentity::default()).unwrap_err();
    assert!(matches!(refused, IdentityError::InUse { .. }));
    assert!(refused.to_string().contains("another process"));
    drop(identity);
    reopen(folder.path());
}

#[test]
fn folder_with_other_files_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("holiday.jpg"), "x").unwrap();
    for refused in [
        create(folder.path(), founding()).unwrap_err(),
        open(folder.path(), &ExpectedIdentity::default()).unwrap_err(),
    ] {
        assert!(matches!(refused, IdentityError::Foreign { .. }));
        assert!(refused.to_string().contains("holiday.jpg"));
    }
    let file = folder.path().join("holiday.jpg");
    let refused = create(&file, founding()).unwrap_err();
    assert!(matches!(refused, IdentityError::Io { .. } | IdentityError::Foreign { .. }));
}

#[test]
fn folder_without_a_node_is_reported() {
    let folder = tempfile::tempdir().unwrap();
    let missing = open(folder.path(), &ExpectedIdentity::default()).unwrap_err();
    assert!(matches!(missing, IdentityError::Missing { .. }));
    let nowhere = folder.path().join("a/b");
    let missing = open(&nowhere, &ExpectedIdentity::default()).unwrap_err();
    assert!(matches!(missing, IdentityError::Missing { .. }));
    drop(create(&nowhere, founding()).unwrap());
    let again = create(&nowhere, founding()).unwrap_err();
    assert!(matches!(again, IdentityError::AlreadyExists { .. }));
}

#[test]
fn another_node_class_or_store_is_refused_by_name() {
    let folder = tempfile::tempdir().unwrap();
    drop(create(folder.path(), founding()).unwrap());
    let refused = |expected| open(folder.path(), &expected).unwrap_err();
    let node = refused(ExpectedIdentity { node: Some(NodeId(3)), ..ExpectedIdentity::default() });
    assert_eq!(node.to_string(), "this folder has node 2, not 3");
    assert!(node.hint().contains("--node"));
    let class =
        refused(ExpectedIdentity { class: Some(Class::Durable), ..ExpectedIdentity::default() });
    assert_eq!(class.to_string(), "this folder has durability volatile, not durable");
    let store =
        refused(ExpectedIdentity { store: Some("memory".into()), ..ExpectedIdentity::default() });
    assert_eq!(store.to_string(), "this folder has store lsm, not memory");
    let same = ExpectedIdentity {
        node: Some(NodeId(2)),
        class: Some(Class::Volatile),
        store: Some("lsm".into()),
        supported_level: None,
    };
    assert!(open(folder.path(), &same).is_ok());
}

/// [era-11] A node that lost its folder has forgotten its votes, and may not return under its id.
#[test]
fn node_is_admitted_with_one_folder_only() {
    let folder = tempfile::tempdir().unwrap();
    let mut identity = create(folder.path(), founding()).unwrap();
    identity.admit_node(NodeId(3), 5).unwrap();
    drop(identity);
    let mut identity = reopen(folder.path());
    assert_eq!(identity.admit_node(NodeId(3), 5), Ok(()));
    let refused = IdentityError::AlreadyAdmitted { node: NodeId(3) };
    assert_eq!(identity.admit_node(NodeId(3), 6), Err(refused));
}

/// A crash at any point of a save leaves the old identity or the new one.
#[test]
fn a_crash_while_saving_changes_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let mut identity = create(folder.path(), founding()).unwrap();
    identity.begin_boot().unwrap();
    drop(identity);
    let text = fs::read(folder.path().join("identity")).unwrap();
    for cut in 0..text.len() {
        fs::write(folder.path().join("identity.new"), &text[..cut]).unwrap();
        assert_eq!(reopen(folder.path()).boot(), 1);
    }
    // During the very first save there is only the temporary file.
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("identity.new"), &text[..9]).unwrap();
    create(folder.path(), founding()).unwrap();
}

/// A failed save leaves the state in memory unchanged.
#[test]
fn change_that_cannot_be_saved_is_undone() {
    let folder = tempfile::tempdir().unwrap();
    let mut identity = create(folder.path(), founding()).unwrap();
    fs::create_dir(folder.path().join("identity.new")).unwrap();
    let error = identity.begin_boot().unwrap_err();
    assert!(error.to_string().contains("identity.new"), "{error}");
    assert_eq!(identity.boot(), 0);
    assert!(identity.admit_node(NodeId(3), 5).is_err());
    assert!(identity.admitted_nodes().is_empty());
}

#[test]
fn changed_byte_is_detected() {
    let folder = tempfile::tempdir().unwrap();
    drop(create(folder.path(), founding()).unwrap());
    let file = folder.path().join("identity");
    let text = fs::read(&file).unwrap();
    for at in 0..text.len() {
        let mut changed = text.clone();
        changed[at] ^= 1;
        fs::write(&file, &changed).unwrap();
        let error = open(folder.path(), &ExpectedIdentity::default()).unwrap_err();
        assert!(
            matches!(error, IdentityError::Damaged { .. } | IdentityError::NewerRelease { .. }),
            "byte {at}: {error}"
        );
    }
    fs::write(&file, b"\xff\xfe\x00").unwrap();
    let error = open(folder.path(), &ExpectedIdentity::default()).unwrap_err();
    assert!(matches!(error, IdentityError::Damaged { .. }));
}

#[test]
fn the_first_format_stays_readable() {
    let folder = tempfile::tempdir().unwrap();
    let text = include_bytes!("../testdata/formats/v1-identity");
    fs::write(folder.path().join("identity"), text).unwrap();
    let identity = reopen(folder.path());
    assert_eq!(identity.founding(), &founding());
    assert_eq!((identity.boot(), identity.incarnation()), (4, Incarnation(1)));
    assert_eq!(identity.admitted_nodes(), &BTreeMap::from([(NodeId(3), 5)]));
    let newer = String::from_utf8(text.to_vec()).unwrap().replace("identity 1", "identity 3");
    fs::write(folder.path().join("identity"), newer).unwrap();
    drop(identity);
    let error = open(folder.path(), &ExpectedIdentity::default()).unwrap_err();
    assert!(matches!(error, IdentityError::NewerRelease { .. }));
}

/// [level-8] A folder that requires a higher level is refused and left unchanged: an earlier
/// release stops at the first line, a later one at the level.
#[test]
fn folder_that_needs_a_higher_level_is_refused_unchanged() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("identity");
    let mut identity = create(folder.path(), founding()).unwrap();
    let before = fs::read(&file).unwrap();
    assert!(before.starts_with(b"quorate identity 1\n"));
    identity.mark_level(Level::BASE).unwrap();
    assert_eq!(fs::read(&file).unwrap(), before, "as every release wrote it");
    identity.mark_level(Level(9)).unwrap();
    let raised = fs::read(&file).unwrap();
    assert!(raised.starts_with(b"quorate identity 2\nlevel 9\n"));
    identity.mark_level(Level(8)).unwrap();
    assert_eq!(fs::read(&file).unwrap(), raised, "it never goes back");
    drop(identity);
    let supporting =
        |level| ExpectedIdentity { supported_level: Some(level), ..ExpectedIdentity::default() };
    let error = open(folder.path(), &supporting(Level(8))).unwrap_err();
    let expected = "this folder needs level 9, and this release supports 8 at most";
    assert!(error.to_string().ends_with(expected), "{error}");
    assert_eq!(fs::read(&file).unwrap(), raised);
    assert_eq!(open(folder.path(), &supporting(Level(9))).unwrap().level(), Level(9));
}

fn book() -> AddressBook {
    AddressBook {
        as_of_slot: Slot(12),
        peers: [(NodeId(3), "a:3".to_owned()), (NodeId(9), "a:9".to_owned())].into(),
        removed_nodes: [NodeId(1)].into(),
    }
}

/// [join-2] A node that joined is no founding member. Its folder has peers' addresses and its next
/// role.
#[test]
fn joined_node_has_peer_addresses_and_its_next_role() {
    let folder = tempfile::tempdir().unwrap();
    let founding = Founding { node: NodeId(9), ..founding() };
    let home = LockedFolder::create(folder.path()).unwrap();
    let joined = Identity::join(home, founding.clone(), MemberRole::Auxiliary, book()).unwrap();
    drop(joined);
    let mut identity = reopen(folder.path());
    assert_eq!(identity.founding(), &founding);
    assert_eq!(identity.joining_role(), Some(MemberRole::Auxiliary));
    assert_eq!((identity.address_book(), identity.address_book_damage()), (&book(), None));
    identity.mark_joined().unwrap();
    let moved = AddressBook { as_of_slot: Slot(99), ..AddressBook::default() };
    identity.set_address_book(moved.clone());
    identity.save_address_book().unwrap();
    drop(identity);
    let identity = reopen(folder.path());
    assert_eq!((identity.joining_role(), identity.address_book()), (None, &moved));
}

/// A damaged book does not prevent a start: it is a hint, and the founding members replace it.
#[test]
fn damaged_address_book_does_not_prevent_a_start() {
    let folder = tempfile::tempdir().unwrap();
    drop(create(folder.path(), founding()).unwrap());
    assert!(!folder.path().join("peers").exists(), "it says no more");
    fs::write(folder.path().join("peers"), "nonsense").unwrap();
    let identity = reopen(folder.path());
    assert_eq!(identity.address_book(), &AddressBook::from_founding(&founding().members));
    assert!(identity.address_book_damage().unwrap().contains("checksum"));
}

/// A crash between the two files of a joining node leaves a folder that can join again.
#[test]
fn address_book_without_an_identity_can_join_again() {
    let folder = tempfile::tempdir().unwrap();
    let mut home = LockedFolder::create(folder.path()).unwrap();
    home.replace("peers", b"x").unwrap();
    drop(home);
    create(folder.path(), founding()).unwrap();
}

/// [member-1] A removed node does not start again, and its folder belongs to no node any more.
#[test]
fn a_removed_node_does_not_start_again() {
    let folder = tempfile::tempdir().unwrap();
    let mut identity = create(folder.path(), founding()).unwrap();
    assert!(!identity.is_removed());
    identity.mark_removed().unwrap();
    assert!(identity.is_removed());
    drop(identity);
    let refused = open(folder.path(), &ExpectedIdentity::default()).unwrap_err();
    let expected = IdentityError::Removed { folder: folder.path().to_owned(), node: NodeId(2) };
    assert_eq!(refused, expected);
    assert!(refused.to_string().contains("was removed from its cluster"));
    assert!(refused.hint().contains("empty folder"), "{}", refused.hint());
    // The offline tools can still read it.
    assert_eq!(LockedFolder::read_founding(folder.path()), Ok(founding()));
}
