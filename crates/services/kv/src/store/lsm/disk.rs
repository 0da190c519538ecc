//! Disk operations of the store outside of the tree.

use std::{
    fmt,
    fs::{self, File},
    io::{self, Write as _},
    path::Path,
};

/// Size in bytes of the file that tests whether the disk accepts writes.
const TRIED_BYTES: usize = 64 << 10;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Access {
    Open,
    Read,
    Write,
    Sync,
}

/// Space of a file system in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DiskSpace {
    pub free: u64,
    pub total: u64,
}

/// Disk operations of a store. Tests implement them to simulate a full or failing disk.
pub trait Disk: fmt::Debug + Send + Sync {
    /// Returns the space of the file system that contains `folder`.
    fn free_space(&self, folder: &Path) -> io::Result<DiskSpace>;

    /// Checks that the file system accepts writes, by writing a small file.
    fn try_writing(&self, folder: &Path) -> io::Result<()>;

    /// Makes the directory entries of a folder durable.
    fn sync_names(&self, folder: &Path) -> io::Result<()> {
        File::open(folder)?.sync_all()
    }

    /// Returns an error if the access must fail. Called before each access.
    fn allows(&self, access: Access) -> io::Result<()> {
        let _ = access;
        Ok(())
    }
}

#[derive(Clone, Copy, Debug, Default)]
pub struct RealDisk;

impl Disk for RealDisk {
    fn free_space(&self, folder: &Path) -> io::Result<DiskSpace> {
        let of = rustix::fs::statvfs(folder)?;
        Ok(DiskSpace {
            free: of.f_bavail.saturating_mul(of.f_frsize),
            total: of.f_blocks.saturating_mul(of.f_frsize),
        })
    }

    fn try_writing(&self, folder: &Path) -> io::Result<()> {
        // Writes to the folder itself if it exists, since it may be a mount point. fjall ignores
        // the file.
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
