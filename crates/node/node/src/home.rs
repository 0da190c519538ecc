//! Home of a node: its small files, and the disk of its log.

use std::path::Path;

use quorate_log::disk::{Disk, DiskError, MemoryDisk, SmallFiles};

/// A place that belongs permanently to one node, and to one process at a time. In production it is
/// a locked folder; in tests and in the simulator, a disk in memory.
pub trait Home: SmallFiles {
    /// The disk of the log.
    type Disk: Disk;

    /// Returns the path for messages.
    fn path(&self) -> &Path;

    /// Opens the disk of the log, which must not be open. `tell` receives the driver and the reason
    /// for its choice.
    ///
    /// # Errors
    /// If the disk cannot be used.
    fn open_disk(&mut self, tell: &mut dyn FnMut(&str)) -> Result<Self::Disk, DiskError>;

    /// Returns the nonce by which the founder distinguishes this home from others with the same
    /// node id ([era-11]), if there is one. It may not be durable if the process that wrote it was
    /// killed.
    ///
    /// # Errors
    /// If there may be a nonce that cannot be read.
    fn nonce(&self) -> Result<Option<u64>, DiskError>;

    /// Writes the nonce, durably when this returns. After a crash during the write there may be
    /// none.
    ///
    /// # Errors
    /// After an error the result of [`Home::nonce`] is undefined until a call succeeds.
    fn keep_nonce(&mut self, nonce: u64) -> Result<(), DiskError>;
}

/// The small file with the nonce on a disk in memory.
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
