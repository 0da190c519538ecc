//! Small files in a node's data folder that are replaced as a whole, never edited: the port, and
//! its implementation on a real folder.
//!
//! A change is written to a temporary file, synced, and renamed over the old one, and the folder is
//! synced. A crash leaves the old contents or the new ones, and possibly the temporary file.

use std::{
    fs::{self, File},
    io::{self, Read as _, Write as _},
    path::{Path, PathBuf},
};

use crate::disk::{DiskError, private_file};

/// Maximum number of bytes read, far above the size of any valid file.
pub(crate) const BYTES_MAX: usize = 1 << 20;
const TEMPORARY: &str = ".new";

/// Access to small files by name. All calls block until done.
pub trait SmallFiles {
    /// Returns the contents of a file, or `None` if it does not exist. Reads at most 1 MiB. After
    /// an error, the file may exist.
    fn read(&self, name: &str) -> Result<Option<Vec<u8>>, DiskError>;

    /// Replaces the contents of a file, durably. After an error, the file has its old or its new
    /// contents, and the next crash may switch between them. Only a later successful call settles
    /// the contents.
    fn replace(&mut self, name: &str, bytes: &[u8]) -> Result<(), DiskError>;
}

/// Returns the name of the temporary file for replacing `name`. A crash may leave this file.
pub fn temporary_name(name: &str) -> String {
    format!("{name}{TEMPORARY}")
}

#[derive(Clone, Debug)]
pub struct DataFolder {
    path: PathBuf,
}

impl DataFolder {
    pub fn new(path: &Path) -> Self {
        let path = path.to_owned();
        Self { path }
    }

    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Like [`SmallFiles::read`], but advises the system to drop its cached pages first. The system
    /// may ignore the advice.
    #[cfg(target_os = "linux")]
    pub(crate) fn read_uncached(&self, name: &str) -> Result<Option<Vec<u8>>, DiskError> {
        if let Ok(file) = File::open(self.path.join(name)) {
            let _ = rustix::fs::fadvise(&file, 0, None, rustix::fs::Advice::DontNeed);
        }
        self.read(name)
    }

    pub(crate) fn sync(&self) -> Result<(), DiskError> {
        let sync = || File::open(&self.path)?.sync_all();
        sync().map_err(|error| DiskError::new("sync", self.path.display(), &error))
    }
}

impl SmallFiles for DataFolder {
    fn read(&self, name: &str) -> Result<Option<Vec<u8>>, DiskError> {
        let file = self.path.join(name);
        let mut bytes = Vec::new();
        let read =
            File::open(&file).and_then(|open| open.take(BYTES_MAX as u64).read_to_end(&mut bytes));
        match read {
            Ok(_) => Ok(Some(bytes)),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(DiskError::new("read", file.display(), &error)),
        }
    }

    fn replace(&mut self, name: &str, bytes: &[u8]) -> Result<(), DiskError> {
        let (file, temporary) = (self.path.join(name), self.path.join(temporary_name(name)));
        let failed = |action, file: &Path| {
            let file = file.to_owned();
            move |error| DiskError::new(action, file.display(), &error)
        };
        let new = private_file().write(true).create(true).truncate(true).open(&temporary);
        let mut new = new.map_err(failed("create", &temporary))?;
        new.write_all(bytes).map_err(failed("write", &temporary))?;
        new.sync_all().map_err(failed("sync", &temporary))?;
        fs::rename(&temporary, &file).map_err(failed("rename to", &file))?;
        self.sync()
    }
}
