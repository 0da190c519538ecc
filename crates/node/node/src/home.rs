//! Home of a node: its small files, and the disk of its log.

use std::path::Path;

use quorate_log::disk::{Disk, DiskError, MemoryDisk, SmallFiles};

/// A place that belongs to one node for good, and to one process at a time. Production has a locked
/// folder, tests and the simulator a disk in memory.
pub trait Home: SmallFiles {
    /// The disk of the log.
    type Disk: Disk;

    /// Returns the path, for messages.
    fn path(&self) -> &Path;

    /// Opens the disk of the log, which is not open. `tell` is given the driver and the reason for
    /// its choice.
    ///
    /// # Errors
    /// The disk cannot be used.
    fn open_disk(&mut self, tell: &mut dyn FnMut(&str)) -> Result<Self::Disk, DiskError>;

    /// Returns the number by which the founder distinguishes this home from others with the same
    /// node id ([era-11]), if there is one. It may not be durable, if the process that wrote it did
    /// not end well.
    ///
    /// # Errors
    /// There may be one, but it cannot be read.
    fn nonce(&self) -> Result<Option<u64>, DiskError>;

    /// Writes that number, durably when this returns. After a crash within there may be none.
    ///
    /// # Errors
    /// The result of [`Home::nonce`] is unknown from now on, until a call succeeds.
    fn keep_nonce(&mut self, nonce: u64) -> Result<(), DiskError>;
}

/// The small file that holds the nonce on a disk in memory.
const NONCE: &str = "nonce";

impl Home for MemoryDisk {
    type Disk = Self;

    fn path(&self) -> &Path {
        Path::new("memory")
    }

    fn open_disk(&mut self, _: &mut dyn FnMut(&str)) -> Result<Self, DiskError> {
        self.close();
        Ok(self.clone())
    }

    fn nonce(&self) -> Result<Option<u64>, DiskError> {
        let bytes = self.read(NONCE)?;
        Ok(bytes.and_then(|bytes| bytes.try_into().map(u64::from_le_bytes).ok()))
    }

    fn keep_nonce(&mut self, nonce: u64) -> Result<(), DiskError> {
        self.replace(NONCE, &nonce.to_le_bytes())
    }
}
