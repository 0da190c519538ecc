//! Invariants that hold for any contents of an identity file.

use std::{fs, path::Path};

use quorate_node::{
    LockedFolder,
    identity::{ExpectedIdentity, Identity, IdentityError},
};

/// Checks the bytes unchanged, and with the checksum at the end corrected.
pub(crate) fn check(bytes: &[u8]) {
    // In memory if possible, because saving syncs.
    let memory = Path::new("/dev/shm");
    let folder = if memory.is_dir() { tempfile::tempdir_in(memory) } else { tempfile::tempdir() };
    let folder = folder.expect("a folder of our own");
    read(folder.path(), bytes);
    read(folder.path(), &sealed(bytes));
}

fn open(folder: &Path) -> Result<Identity<LockedFolder>, IdentityError> {
    Identity::open(LockedFolder::open(folder)?, &ExpectedIdentity::default())
}

fn read(folder: &Path, bytes: &[u8]) {
    fs::write(folder.join("identity"), bytes).expect("a file of our own");
    let peeked = LockedFolder::read_founding(folder);
    let mut identity = match open(folder) {
        Ok(identity) => identity,
        // A removed node does not start, but its founding record can still be read.
        Err(error @ IdentityError::Removed { .. }) => {
            assert!(peeked.is_ok() && !error.hint().is_empty());
            return;
        }
        Err(error) => {
            assert!(!error.to_string().is_empty() && !error.hint().is_empty());
            assert_eq!(peeked, Err(error), "both readers say the same");
            return;
        }
    };
    let (founding, boot) = (identity.founding().clone(), identity.boot());
    assert_eq!(peeked.as_ref(), Ok(&founding), "both readers say the same");
    // The next start is counted, and writing and reading leaves the identity unchanged.
    let last = identity.begin_boot();
    assert_eq!(last.is_err(), boot == u32::MAX, "{last:?}");
    let (incarnation, admitted) = (identity.incarnation(), identity.admitted_nodes().clone());
    drop(identity);
    let again = open(folder).expect("what was saved opens");
    assert_eq!(again.founding(), &founding);
    assert_eq!(again.boot(), boot.saturating_add(1));
    assert_eq!((again.incarnation(), again.admitted_nodes()), (incarnation, &admitted));
}

/// Returns the text up to the last line that begins with `checksum`, and the correct such line.
fn sealed(bytes: &[u8]) -> Vec<u8> {
    let mark = b"checksum ";
    let at = bytes.windows(mark.len()).rposition(|window| window == mark);
    let covered = &bytes[..at.unwrap_or(bytes.len())];
    let line = format!("checksum {:08x}\n", crc32c::crc32c(covered));
    [covered, line.as_bytes()].concat()
}
