//! A node's home: its small files, and the disk for its log.

use std::path::Path;

use quorate_log::disk::{Disk, DiskError, MemoryDisk, SmallFiles};

/// Storage that permanently belongs to one node and is used by one process at a time. In production
/// it is a locked folder, in tests and in the simulator a disk in memory.
pub trait Home: SmallFiles {
    /// Disk that stores the log.
    type Disk: Disk;

    /// Returns the path to show in messages.
    fn path(&self) -> &Path;

    /// Opens the log's disk, once. `tell` receives the driver and the reason for its choice.
    ///
    /// # Errors
    ///
    /// Returns an error if the disk cannot be used.
    fn open_disk(&mut self, tell: &mut dyn FnMut(&str)) -> Result<Self::Disk, DiskError>;

    /// Returns the nonce, if there is one, that distinguishes this home from others with the same
    /// node id ([era-11]). It may not be durable if the process that wrote it was killed.
    ///
    /// # Errors
    ///
    /// Returns an error if a nonce may exist but cannot be read.
    fn nonce(&self) -> Result<Option<u64>, DiskError>;

    /// Writes the nonce durably. A crash during the write may leave no nonce.
    ///
    /// # Errors
    ///
    /// After an error the result of [`Home::nonce`] is undefined until a call succeeds.
    fn keep_nonce(&mut self, nonce: u64) -> Result<(), DiskError>;
}

/// Name of the small file that stores the nonce on a disk in memory.
const NONCE_FILE: &str = "nonce";

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
        let bytes = self.read(NONCE_FILE)?;
        Ok(bytes.and_then(|bytes| bytes.try_into().map(u64::from_le_bytes).ok()))
    }

    fn keep_nonce(&mut self, nonce: u64) -> Result<(), DiskError> {
        self.replace(NONCE_FILE, &nonce.to_le_bytes())
    }
}
