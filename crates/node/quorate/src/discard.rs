//! Discards a folder's contents when a node starts. They are moved aside until the new node is
//! founded or admitted, and moved back if that fails, because a node must not lose its votes to a
//! start that its peers refuse.

use std::{
    fs,
    path::{Path, PathBuf},
};

use quorate_node::{LOCK_FILE, LockedFolder};

use crate::error::Error;

/// Former contents of a folder, moved aside.
#[derive(Debug)]
pub(crate) struct DiscardedContents {
    folder: PathBuf,
    moved_to: PathBuf,
    is_settled: bool,
}

impl DiscardedContents {
    /// Moves the contents of a node's folder aside, if it has any. The node must not be running.
    pub(crate) fn move_aside(folder: &Path) -> Result<Self, Error> {
        let mut aside = folder.as_os_str().to_owned();
        aside.push(".discarded");
        let discarded =
            Self { folder: folder.to_owned(), moved_to: aside.into(), is_settled: false };
        if LockedFolder::holds_identity(folder)? {
            let _locked = LockedFolder::open(folder)?;
            // These are left over from a start that was interrupted after the founding.
            discarded.delete_contents()?;
            fs::rename(folder, &discarded.moved_to)
                .map_err(|error| Error::from_io("move the folder aside", &error))?;
        }
        Ok(discarded)
    }

    fn delete_contents(&self) -> Result<(), Error> {
        match fs::remove_dir_all(&self.moved_to) {
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
                let aside = self.moved_to.display();
                Err(Error::from_io(format_args!("remove {aside}"), &error))
            }
            _ => Ok(()),
        }
    }

    /// Removes the former contents, because the folder now belongs to a new node.
    pub(crate) fn finish_discard(mut self) -> Result<(), Error> {
        self.is_settled = true;
        self.delete_contents()
    }
}

impl Drop for DiscardedContents {
    fn drop(&mut self) {
        if self.is_settled || !self.moved_to.exists() {
            return;
        }
        let _ = fs::remove_file(self.folder.join(LOCK_FILE));
        let _ = fs::remove_dir(&self.folder);
        if let Err(error) = fs::rename(&self.moved_to, &self.folder) {
            let aside = self.moved_to.display();
            tracing::error!(%error, "cannot move {aside} back: do so by hand before the next start");
        }
    }
}
