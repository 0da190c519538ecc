//! Stores of the key-value service: selection of the store in a data folder, and opening it.

use std::path::Path;

use quorate_kv::store::{
    Store as KvStore,
    lsm::{Failure, Limits, LsmStore},
    memory::MemoryStore,
};
use quorate_node::{Identity, LockedFolder};

use crate::{
    config::Store,
    output::{Exit, Problem},
};

pub(crate) fn select_store(identity: &Identity<LockedFolder>) -> Result<Store, Problem> {
    let name = &identity.founding().store;
    Store::parse_name(name).ok_or_else(|| {
        let what = format_args!("the folder uses an unknown store, {name}");
        Problem::new(Exit::Failed, "unknown_store", what)
            .with_hint("start the version that created it")
    })
}

pub(crate) fn open_store(
    folder: &Path,
    store: Store,
    files_max: usize,
) -> Result<Box<dyn KvStore>, Problem> {
    match store {
        Store::Lsm => Ok(Box::new(open_engine(&folder.join("kv"), files_max)?)),
        // The stateless service stores nothing, and the etcd service opens its own stores.
        _ => Ok(Box::new(MemoryStore::new())),
    }
}

pub(crate) fn open_engine(folder: &Path, files_max: usize) -> Result<LsmStore, Problem> {
    // The library creates files with the default permissions, so the mask restricts them.
    rustix::process::umask(rustix::fs::Mode::RWXG | rustix::fs::Mode::RWXO);
    let limits = Limits { files_max, ..Limits::default() };
    let opened = LsmStore::open_with(folder, limits);
    let (opened, set_aside) = opened.map_err(|error| {
        let hint = store_hint(&error.failure);
        Problem::new(Exit::Failed, "store", error).with_hint(hint)
    })?;
    if let Some(why) = set_aside {
        tracing::warn!(%why, "the store is damaged: rebuilding it from the log");
    }
    Ok(opened)
}

/// Returns the hint for a store that cannot be opened. Damaged files have already been set aside,
/// so the hint never suggests changing a file.
fn store_hint(failure: &Failure) -> &'static str {
    match failure {
        Failure::Format(_) | Failure::LibraryVersion(_) => "start the version that created it",
        _ => {
            "check that the disk is there, has room, and may be written; nothing is lost: the log has \
             everything that was acknowledged"
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io;

    use super::*;

    /// No hint suggests that the operator move or delete files that the node needs.
    #[test]
    fn a_store_that_does_not_open_is_left_alone() {
        for (failure, expected) in [
            (Failure::Format(9), "version"),
            (Failure::Disk(io::ErrorKind::Other.into()), "nothing is lost"),
            (Failure::InUse, "nothing is lost"),
        ] {
            let hint = store_hint(&failure);
            assert!(hint.contains(expected), "{hint}");
            assert!(!hint.contains("aside"), "{hint}");
        }
    }
}
