//! Disk operations of the store apart from the tree; tests simulate a full or failing disk here.

use std::{
    fmt,
    fs::{self, File},
    io::{self, Write as _},
    path::Path,
};

/// Bytes written by a test write.
const TRIED_BYTES: usize = 64 << 10;

/// Kind of access to the tree.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Access {
    /// A folder is opened as a tree, or a new tree is created.
    Open,
    /// A lookup.
    Read,
    /// A write of a batch of changes.
    Write,
}

/// Space of a file system, in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DiskSpace {
    /// Bytes available for writing.
    pub free: u64,
    /// Total bytes.
    pub total: u64,
}

/// The disk of a store.
pub trait Disk: fmt::Debug + Send + Sync {
    /// Returns the space of the file system of this folder.
    fn room(&self, folder: &Path) -> io::Result<DiskSpace>;

    /// Checks that the file system accepts writes: writes a little and removes it.
    fn try_writing(&self, folder: &Path) -> io::Result<()>;

    /// Makes the entries of a folder durable.
    fn sync_names(&self, folder: &Path) -> io::Result<()> {
        File::open(folder)?.sync_all()
    }

    /// Called before each access; an error replaces the access.
    fn allows(&self, access: Access) -> io::Result<()> {
        let _ = access;
        Ok(())
    }
}

/// The machine's disk.
#[derive(Clone, Copy, Debug, Default)]
pub struct RealDisk;

impl Disk for RealDisk {
    fn room(&self, folder: &Path) -> io::Result<DiskSpace> {
        let of = rustix::fs::statvfs(folder)?;
        Ok(DiskSpace {
            free: of.f_bavail.saturating_mul(of.f_frsize),
            total: of.f_blocks.saturating_mul(of.f_frsize),
        })
    }

    fn try_writing(&self, folder: &Path) -> io::Result<()> {
        // Inside the folder if it exists, since it may be a file system of its own. The library
        // ignores the file.
        let place = if folder.is_dir() { folder.join("try") } else { folder.with_extension("try") };
        let written = write_some(&place);
        let removed = fs::remove_file(&place);
        written.and(removed)
    }
}

fn write_some(path: &Path) -> io::Result<()> {
    let mut file = File::create(path)?;
    file.write_all(&[0; TRIED_BYTES])?;
    file.sync_all()
}
