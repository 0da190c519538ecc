//! A store of which files are damaged is built anew: set aside when what replaces it is on this
//! node's disk ([scrub-8]), and removed when the new one is as far, and synced.
//!
//! Until then the old folder is there for a person, whatever becomes of the new one.

use std::{
    fs, io,
    os::unix::fs::MetadataExt as _,
    path::{Path, PathBuf},
};

use quorate_core::slot::Slot;

use super::LsmStore;
use crate::store::Store as _;

/// Why the tree is set aside.
const WHY: &str = "a scrub found damaged files";
/// Space that is left free, in addition to that for a new tree of this size.
const RESERVE_BYTES: u64 = 64 << 20;

/// Progress of a renewal.
#[derive(Debug)]
pub(super) struct Renewal {
    /// The old store was there.
    to: Slot,
    /// Present path of the old store.
    aside: Option<PathBuf>,
}

impl LsmStore {
    /// Closes the tree, and begins an empty one in its place.
    pub(super) fn begin_renewal(&mut self) -> Result<(), String> {
        self.hear();
        let tree = match &self.tree {
            Some(tree) if !self.has_failed() => tree,
            _ => return Err(self.condition.to_string()),
        };
        // It must not stand still half-way, while the old one served.
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
        self.renewal = Some(Renewal { to: self.state.applied_to, aside: None });
        // [store-1] What was synced is in the old one.
        self.synced = None;
        self.let_go(WHY.to_owned(), Some(WHY.to_owned()));
        Ok(())
    }

    /// Notes where a tree was set aside, if one was.
    pub(super) fn set_aside(&mut self, aside: Option<PathBuf>) {
        match &mut self.renewal {
            Some(renewal) if renewal.aside.is_none() => renewal.aside = aside,
            // Another one is damaged by now: the first is the last that was whole.
            Some(_) if aside.is_some() => self.renewal = None,
            _ => {}
        }
    }

    /// Syncs the new store when it is as far as the old one was.
    pub(super) fn go_on_renewing(&mut self) {
        let far =
            |renewal: &Renewal| renewal.aside.is_some() && self.state.applied_to >= renewal.to;
        if self.renewal.as_ref().is_some_and(|renewal| far(renewal) && self.wanted < renewal.to) {
            self.want_sync();
        }
    }

    /// Ends the renewal once positions below this one are synced: the old store is not needed any
    /// more.
    pub(super) fn end_renewal(&mut self, synced_to: Slot) {
        let ended =
            self.renewal.take_if(|renewal| renewal.aside.is_some() && synced_to >= renewal.to);
        if let Some(aside) = ended.and_then(|renewal| renewal.aside) {
            self.writer.remove(aside);
        }
    }
}

/// Checks that the folder can be set aside: it is not a file system of its own, and its parent is
/// writable.
fn may_be_renamed(folder: &Path) -> io::Result<()> {
    let parent = match folder.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent,
        _ => Path::new("."),
    };
    if fs::metadata(folder)?.dev() != fs::metadata(parent)?.dev() {
        return Err(io::Error::other("its folder is a file system of its own"));
    }
    let probe = folder.with_extension("probe");
    // A process that ended here before may have left it.
    match fs::create_dir(&probe) {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
        made => made?,
    }
    fs::remove_dir(&probe)
}
