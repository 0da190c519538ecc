//! Invariants that hold for any contents of the address book, the file `peers`.

use std::{fs, path::Path};

use quorate_core::{node_id::NodeId, record::Class};
use quorate_node::{
    LockedFolder,
    identity::{AddressBook, ExpectedIdentity, Founding, Identity},
};

/// Checks the bytes unchanged, and with the checksum at the end corrected.
pub(crate) fn check(bytes: &[u8]) {
    // In memory if possible, because saving syncs.
    let memory = Path::new("/dev/shm");
    let folder = if memory.is_dir() { tempfile::tempdir_in(memory) } else { tempfile::tempdir() };
    let folder = folder.expect("a folder of our own");
    let founding = Founding {
        cluster: 7,
        node: NodeId(1),
        class: Class::Durable,
        store: "lsm".to_owned(),
        members: [(NodeId(1), "founder:1".to_owned())].into(),
        join_nonce: 99,
        terms: Default::default(),
    };
    let home = LockedFolder::create(folder.path()).expect("an empty folder");
    drop(Identity::create(home, founding).expect("an empty folder"));
    read(folder.path(), bytes);
    read(folder.path(), &sealed(bytes));
}

fn open(folder: &Path) -> Identity<LockedFolder> {
    let home = LockedFolder::open(folder).expect("it is there");
    // The book is a hint: the node starts with any contents.
    Identity::open(home, &ExpectedIdentity::default()).expect("a book never stops a start")
}

fn read(folder: &Path, bytes: &[u8]) {
    fs::write(folder.join("peers"), bytes).expect("a file of our own");
    let mut identity = open(folder);
    let book = identity.address_book().clone();
    match identity.address_book_damage() {
        Some(why) => {
            assert!(!why.is_empty());
            let founding = &identity.founding().members;
            assert_eq!(book, AddressBook::from_founding(founding), "no other source is believed");
        }
        None => assert_eq!(book.check_limits(), Ok(())),
    }
    // Writing and reading leaves the book unchanged.
    identity.set_address_book(book.clone());
    identity.save_address_book().expect("a folder of our own");
    drop(identity);
    let again = open(folder);
    assert_eq!((again.address_book(), again.address_book_damage()), (&book, None));
}

/// Returns the text up to the last line that begins with `checksum`, and the correct such line.
fn sealed(bytes: &[u8]) -> Vec<u8> {
    let mark = b"checksum ";
    let at = bytes.windows(mark.len()).rposition(|window| window == mark);
    let covered = &bytes[..at.unwrap_or(bytes.len())];
    let line = format!("checksum {:08x}\n", crc32c::crc32c(covered));
    [covered, line.as_bytes()].concat()
}
