//! Discards a folder's contents when a node starts. They are moved aside until the new node is
//! founded or admitted, and moved back if that fails, because a node must not lose its votes to a
//! start that its peers refuse.

use std::{
    fs,
    path::{Path, PathBuf},
};

use quorate_node::{LOCK, LockedFolder};

use crate::error::Error;

/// Former contents of a folder, moved aside.
#[derive(Debug)]
pub(crate) struct Discarded {
    folder: PathBuf,
    aside: PathBuf,
    settled: bool,
}

impl Discarded {
    /// Moves the contents of a node's folder aside, if it has any. The node must not be running.
    pub(crate) fn take(folder: &Path) -> Result<Self, Error> {
        let mut aside = folder.as_os_str().to_owned();
        aside.push(".discarded");
        let discarded = Self { folder: folder.to_owned(), aside: aside.into(), settled: false };
        if LockedFolder::holds_identity(folder)? {
            let _locked = LockedFolder::open(folder)?;
            // These are left over from a start that was interrupted after the founding.
            discarded.forget()?;
            fs::rename(folder, &discarded.aside)
                .map_err(|error| Error::io("move the folder aside", &error))?;
        }
        Ok(discarded)
    }

    fn forget(&self) -> Result<(), Error> {
        match fs::remove_dir_all(&self.aside) {
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
                let aside = self.aside.display();
                Err(Error::io(format_args!("remove {aside}"), &error))
            }
            _ => Ok(()),
        }
    }

    /// Removes the former contents, because the folder now belongs to a new node.
    pub(crate) fn settled(mut self) -> Result<(), Error> {
        self.settled = true;
        self.forget()
    }
}

impl Drop for Discarded {
    fn drop(&mut self) {
        if self.settled || !self.aside.exists() {
            return;
        }
        let _ = fs::remove_file(self.folder.join(LOCK));
        let _ = fs::remove_dir(&self.folder);
        if let Err(error) = fs::rename(&self.aside, &self.folder) {
            let aside = self.aside.display();
            tracing::error!(%error, "cannot move {aside} back: do so by hand before the next start");
        }
    }
}
