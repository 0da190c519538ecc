//! A node's home in a real folder: its permitted contents, its lock, and its disk.

use std::{
    fs::{self, File},
    io::{self, Read as _, Seek as _, Write as _},
    path::Path,
    time::Duration,
};

use quorate_log::disk::{
    DataFolder, DiskError, DriverChoice, Family, FileDisk, SmallFiles, create_private_folder,
    private_file, temporary_name,
};
use rustix::fs::{FlockOperation, flock};

use crate::{
    home::Home,
    identity::{self, Founding, IdentityError},
};

/// Name of the file that a process locks while it uses the folder.
pub const LOCK_FILE: &str = "lock";
/// Name of the file that marks a folder whose contents are being replaced during a recovery.
pub(crate) const RECOVERY_MARK_FILE: &str = "recovering";
/// Name of the file that marks a folder being restored, until its identity is written.
pub(crate) const RESTORE_MARK_FILE: &str = "restoring";

/// A data folder, locked until this value is dropped.
#[derive(Debug)]
pub struct LockedFolder {
    files: DataFolder,
    lock: File,
    /// Minimum duration of a flush. Zero except in measurements.
    flush: Duration,
    /// Driver with which the log's disk is opened.
    engine: DriverChoice,
}

impl LockedFolder {
    /// Returns whether a folder contains an identity. A missing folder contains none.
    pub fn holds_identity(folder: &Path) -> Result<bool, IdentityError> {
        let file = folder.join(identity::IDENTITY_FILE);
        file.try_exists().map_err(|error| io_failure("look for", &file, &error))
    }

    /// Fails if a folder has contents that a node's folder must not have. Writes nothing.
    pub fn refuse_foreign(folder: &Path) -> Result<(), IdentityError> {
        if folder.exists() {
            refuse_foreign(folder)?;
        }
        Ok(())
    }

    /// Fails if no backup can be restored into a folder because it belongs to a node, or has
    /// contents other than those of an unfinished restore. Writes nothing.
    pub fn refuse_used(folder: &Path) -> Result<(), IdentityError> {
        if Self::holds_identity(folder)? {
            let folder = folder.to_owned();
            return Err(IdentityError::AlreadyExists { folder });
        }
        match folder.join(RESTORE_MARK_FILE).exists() {
            true => Ok(()),
            false => Self::refuse_foreign(folder),
        }
    }

    /// Locks a folder like [`LockedFolder::create`], or one with an interrupted restore.
    pub(crate) fn create_to_restore(folder: &Path) -> Result<Self, IdentityError> {
        if !folder.join(RESTORE_MARK_FILE).exists() {
            return Self::create(folder);
        }
        let locked = Self::open_locked(folder)?;
        Self::refuse_used(folder)?;
        Ok(locked)
    }

    /// Locks a folder that belongs to a node.
    pub fn open(folder: &Path) -> Result<Self, IdentityError> {
        if !Self::holds_identity(folder)? {
            Self::refuse_foreign(folder)?;
            let folder = folder.to_owned();
            return Err(IdentityError::Missing { folder });
        }
        refuse_recovering(folder)?;
        Self::open_locked(folder)
    }

    /// Creates the folder if it is missing, and locks it. The folder may only contain leftovers of
    /// an unfinished attempt to create a node.
    pub fn create(folder: &Path) -> Result<Self, IdentityError> {
        if !folder.exists() {
            let parent = folder.parent().filter(|parent| !parent.as_os_str().is_empty());
            let parent = parent.unwrap_or(Path::new("."));
            fs::create_dir_all(parent)
                .and_then(|()| create_private_folder(folder))
                .map_err(|error| io_failure("create", folder, &error))?;
            sync_folder(parent)?;
        }
        let exists = || IdentityError::AlreadyExists { folder: folder.to_owned() };
        if Self::holds_identity(folder)? {
            return Err(exists());
        }
        refuse_foreign(folder)?;
        let locked = Self::open_locked(folder)?;
        // Another process may have created an identity between the check and the lock.
        if Self::holds_identity(folder)? {
            return Err(exists());
        }
        Ok(locked)
    }

    pub(crate) fn open_locked(folder: &Path) -> Result<Self, IdentityError> {
        Ok(Self {
            files: DataFolder::new(folder),
            lock: lock_folder(folder)?,
            flush: Duration::ZERO,
            engine: DriverChoice::Auto,
        })
    }

    /// Sets the disk driver and, for measurements, the minimum duration of a flush.
    #[must_use]
    pub fn with_disk(self, engine: DriverChoice, flush: Duration) -> Self {
        Self { flush, engine, ..self }
    }

    /// Reads a folder's founding record for the offline tools, without a lock or a change.
    pub fn read_founding(folder: &Path) -> Result<Founding, IdentityError> {
        identity::read_founding(&DataFolder::new(folder), folder)
    }
}

impl SmallFiles for LockedFolder {
    fn read(&self, name: &str) -> Result<Option<Vec<u8>>, DiskError> {
        self.files.read(name)
    }

    fn replace(&mut self, name: &str, bytes: &[u8]) -> Result<(), DiskError> {
        self.files.replace(name, bytes)
    }
}

impl Home for LockedFolder {
    type Disk = FileDisk;

    fn path(&self) -> &Path {
        self.files.path()
    }

    fn open_disk(&mut self, tell: &mut dyn FnMut(&str)) -> Result<FileDisk, DiskError> {
        let (disk, reason) = quorate_log::disk::open(self.path(), self.engine)?;
        tell(&reason);
        let disk = disk.with_min_flush_time(self.flush)?;
        if !self.flush.is_zero() {
            tell(&format!("disk: {disk}"));
        }
        Ok(disk)
    }

    /// Reads the nonce from the lock file. That file exists even in a folder without an identity.
    fn nonce(&self) -> Result<Option<u64>, DiskError> {
        let mut bytes = Vec::new();
        let mut file = &self.lock;
        file.rewind().and_then(|()| file.take(64).read_to_end(&mut bytes)).map_err(|error| {
            DiskError::new("read", self.path().join(LOCK_FILE).display(), &error)
        })?;
        Ok(bytes.try_into().map(u64::from_le_bytes).ok())
    }

    /// Overwrites the nonce in place, because replacing the file would lose its lock. A crash may
    /// leave a partial nonce, which counts as none.
    fn keep_nonce(&mut self, nonce: u64) -> Result<(), DiskError> {
        let path = self.path().join(LOCK_FILE);
        let mut file = &self.lock;
        file.rewind()
            .and_then(|()| file.set_len(0))
            .and_then(|()| file.write_all(&nonce.to_le_bytes()))
            .and_then(|()| file.sync_all())
            .and_then(|()| File::open(self.path())?.sync_all())
            .map_err(|error| DiskError::new("write", path.display(), &error))
    }
}

pub(crate) fn io_failure(action: &str, file: &Path, error: &io::Error) -> IdentityError {
    IdentityError::Io {
        detail: format!("{action} {}: {error}", file.display()),
        kind: error.kind(),
    }
}

pub(crate) fn sync_folder(folder: &Path) -> Result<(), IdentityError> {
    let sync = || File::open(folder)?.sync_all();
    sync().map_err(|error| io_failure("sync", folder, &error))
}

/// Takes the kernel's lock on the folder. It is released however the process ends.
fn lock_folder(folder: &Path) -> Result<File, IdentityError> {
    let file = folder.join(LOCK_FILE);
    let lock = private_file().create(true).truncate(false).read(true).write(true).open(&file);
    let lock = lock.map_err(|error| io_failure("open", &file, &error))?;
    match flock(&lock, FlockOperation::NonBlockingLockExclusive) {
        Ok(()) => Ok(lock),
        Err(rustix::io::Errno::WOULDBLOCK) => {
            Err(IdentityError::InUse { folder: folder.to_owned() })
        }
        Err(error) => Err(io_failure("lock", &file, &error.into())),
    }
}

fn refuse_recovering(folder: &Path) -> Result<(), IdentityError> {
    match folder.join(RECOVERY_MARK_FILE).exists() {
        false => Ok(()),
        true => Err(IdentityError::Foreign {
            folder: folder.to_owned(),
            found_entry: "it is being recovered, and not to the end: give `quorate recover` again"
                .to_owned(),
        }),
    }
}

/// Fails if a folder has contents other than leftovers of an attempt to create an identity.
fn refuse_foreign(folder: &Path) -> Result<(), IdentityError> {
    let foreign =
        |found| Err(IdentityError::Foreign { folder: folder.to_owned(), found_entry: found });
    if !folder.is_dir() {
        return foreign("it is a file".to_owned());
    }
    refuse_recovering(folder)?;
    if folder.join(RESTORE_MARK_FILE).exists() {
        return foreign("a backup was being restored into it, and not to the end".to_owned());
    }
    let entries = fs::read_dir(folder).map_err(|error| io_failure("read", folder, &error))?;
    for entry in entries {
        let name = entry.map_err(|error| io_failure("read", folder, &error))?.file_name();
        let made = Family::all().map(Family::newest_record_name);
        // A temporary file of a mark that was not renamed has no meaning.
        let mut replaced = [identity::IDENTITY_FILE, identity::BOOK_FILE, RESTORE_MARK_FILE]
            .into_iter()
            .chain(made);
        let ours = [LOCK_FILE, "lost+found"].iter().any(|ours| name == *ours)
            || replaced.any(|file| name == file || name == *temporary_name(file));
        if !ours {
            return foreign(format!("it holds {}", name.to_string_lossy()));
        }
    }
    Ok(())
}
