//! Disk functions that the store needs apart from the tree: the place where tests let it fill up
//! and fail.

use std::{
    fmt,
    fs::{self, File},
    io::{self, Write as _},
    path::Path,
};

/// Bytes that an attempt to write takes.
const TRIED_BYTES: usize = 64 << 10;

/// Access to the tree that is about to be made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Access {
    /// A folder becomes a tree again, or a new one.
    Open,
    /// Something is looked up.
    Read,
    /// A unit of changes goes in.
    Write,
}

/// Bytes of a file system.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Room {
    /// Bytes that may still be written.
    pub free: u64,
    /// In all.
    pub total: u64,
}

/// The disk under a store.
pub trait Disk: fmt::Debug + Send + Sync {
    /// Returns the space of the file system of this folder.
    fn room(&self, folder: &Path) -> io::Result<Room>;

    /// Checks that the file system takes writes: writes a little, and removes it.
    fn try_writing(&self, folder: &Path) -> io::Result<()>;

    /// Makes the names in a folder durable.
    fn sync_names(&self, folder: &Path) -> io::Result<()> {
        File::open(folder)?.sync_all()
    }

    /// Asked before each access; an error takes its place.
    fn allows(&self, access: Access) -> io::Result<()> {
        let _ = access;
        Ok(())
    }
}

/// The one that the machine has.
#[derive(Clone, Copy, Debug, Default)]
pub struct RealDisk;

impl Disk for RealDisk {
    fn room(&self, folder: &Path) -> io::Result<Room> {
        let of = rustix::fs::statvfs(folder)?;
        Ok(Room {
            free: of.f_bavail.saturating_mul(of.f_frsize),
            total: of.f_blocks.saturating_mul(of.f_frsize),
        })
    }

    fn try_writing(&self, folder: &Path) -> io::Result<()> {
        // In it, if it is there: it may be a file system of its own. The library ignores the file.
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
