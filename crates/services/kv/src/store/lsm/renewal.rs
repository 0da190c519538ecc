//! Renewal: replaces a store that has damaged files, once this node's disk has a snapshot to load
//! ([scrub-8]). The folder of the old store is set aside, where an operator finds it if the new one
//! fails too. It is removed once the new store has reached the old position and is synced.

use std::{
    fs, io,
    os::unix::fs::MetadataExt as _,
    path::{Path, PathBuf},
};

use quorate_core::slot::Slot;

use super::LsmStore;
use crate::store::Store as _;

/// Reason reported to operators.
const WHY: &str = "a scrub found damaged files";
/// Required free bytes, in addition to those for a new tree of the same size.
const RESERVE_BYTES: u64 = 64 << 20;

#[derive(Debug)]
pub(super) struct Renewal {
    /// Applied position of the old store.
    old_position: Slot,
    /// Path to which the old store was moved.
    aside: Option<PathBuf>,
}

impl LsmStore {
    /// Closes the tree and replaces it with an empty one.
    pub(super) fn begin_renewal(&mut self) -> Result<(), String> {
        self.handle_writer_events();
        let tree = match &self.tree {
            Some(tree) if !self.has_failed() => tree,
            _ => return Err(self.condition.to_string()),
        };
        // A renewal must not run out of space midway, as the old store can still serve clients.
        let needed = tree.disk_space().saturating_add(RESERVE_BYTES);
        let room = tree.room(&self.path).and_then(|room| {
            may_be_renamed(&self.path)?;
            Ok(room.free)
        });
        match room {
            Ok(free) if free >= needed => {}
            Ok(free) => {
                return Err(format!(
                    "no room for another store: {} MiB are free, {} MiB are needed",
                    free >> 20,
                    needed >> 20
                ));
            }
            Err(error) => return Err(format!("the store cannot be set aside: {error}")),
        }
        self.renewal = Some(Renewal { old_position: self.state.applied_position, aside: None });
        // [store-1] The synced data is only in the old store.
        self.synced_position = None;
        self.close_for_reopen(WHY.to_owned(), Some(WHY.to_owned()));
        Ok(())
    }

    /// Records the path to which the tree was moved, if it was.
    pub(super) fn set_aside(&mut self, aside: Option<PathBuf>) {
        match &mut self.renewal {
            Some(renewal) if renewal.aside.is_none() => renewal.aside = aside,
            // A further tree was damaged during the renewal. The first one was the last complete
            // tree, so it is retained.
            Some(_) if aside.is_some() => self.renewal = None,
            _ => {}
        }
    }

    /// Syncs the new store once it has reached the old position.
    pub(super) fn continue_renewal(&mut self) {
        let far = |renewal: &Renewal| {
            renewal.aside.is_some() && self.state.applied_position >= renewal.old_position
        };
        if self
            .renewal
            .as_ref()
            .is_some_and(|renewal| far(renewal) && self.requested_sync < renewal.old_position)
        {
            self.request_sync();
        }
    }

    /// Removes the old store and ends the renewal, if the new one is synced up to the old position.
    pub(super) fn end_renewal(&mut self, synced_to: Slot) {
        let ended = self
            .renewal
            .take_if(|renewal| renewal.aside.is_some() && synced_to >= renewal.old_position);
        if let Some(aside) = ended.and_then(|renewal| renewal.aside) {
            self.writer.remove(aside);
        }
    }
}

/// Checks that a folder can be renamed: it is not a mount point, and its parent is writable.
fn may_be_renamed(folder: &Path) -> io::Result<()> {
    let parent = match folder.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent,
        _ => Path::new("."),
    };
    if fs::metadata(folder)?.dev() != fs::metadata(parent)?.dev() {
        return Err(io::Error::other("its folder is a file system of its own"));
    }
    let probe = folder.with_extension("probe");
    // A process that ended here may have left the probe folder.
    match fs::create_dir(&probe) {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
        made => made?,
    }
    fs::remove_dir(&probe)
}
