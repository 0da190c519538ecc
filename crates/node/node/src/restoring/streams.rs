//! Byte stream store of a node that is being restored. It is filled with a backup's bytes and
//! completed by a checkpoint.
//!
//! It is the node's own store on the node's own disk. Nothing else runs during a restore, so this
//! code blocks where a reactor would do other work.

use std::{io, path::PathBuf};

use quorate_core::{slot::Slot, value::StreamName};
use quorate_log::disk::{Disk as _, Family, FileDisk};
use quorate_stream::store::{Layout, Store, StoreLimits};
use rustix::{
    event::{PollFd, PollFlags, Timespec, poll},
    io::Errno,
};

use crate::{
    folder::{LockedFolder, io_failure},
    home::Home as _,
    identity::IdentityError,
};

/// Maximum duration of one wait for the disk.
const DISK_WAIT_MAX: Timespec = Timespec { tv_sec: 0, tv_nsec: 50_000_000 };
/// Number of consecutive waits after which a disk without free space counts as full.
const IDLE_WAITS_MAX: u32 = 60;

/// The store of byte streams while it is being filled.
pub(super) struct RestoredStreams {
    disk: FileDisk,
    store: Store,
    /// Number of consecutive waits without progress while the disk lacks space.
    idle_waits: u32,
    folder: PathBuf,
}

impl RestoredStreams {
    /// Creates the store in a folder that does not have one.
    pub(super) fn open(home: &mut LockedFolder) -> Result<Self, IdentityError> {
        let folder = home.path().join(Family::Stream.folder());
        let mut disk = home.open_disk(&mut |_| {})?;
        let store = Store::open(&mut disk, StoreLimits::DEFAULT, Layout::DEFAULT);
        let store = store.map_err(|error| io_failure("use", &folder, &io::Error::other(error)))?;
        Ok(Self { disk, store, idle_waits: 0, folder })
    }

    /// Appends bytes to a stream, waiting for the disk if necessary.
    pub(super) fn append_bytes(
        &mut self,
        stream: StreamName,
        position: u64,
        bytes: &[u8],
    ) -> Result<(), IdentityError> {
        while !self.store.has_room() {
            self.wait_for_disk()?;
        }
        self.store.put_bytes(stream, position, bytes, &mut self.disk);
        self.advance_store()?;
        Ok(())
    }

    /// Makes everything durable. The store then has the state after all slots below `at`.
    pub(super) fn make_durable(mut self, at: Slot) -> Result<(), IdentityError> {
        while !self.store.start_checkpoint(at, &mut self.disk) {
            self.wait_for_disk()?;
        }
        while self.store.checkpointed_to() < at {
            self.wait_for_disk()?;
        }
        Ok(())
    }

    fn wait_for_disk(&mut self) -> Result<(), IdentityError> {
        if self.advance_store()? && self.store.shortage().is_none() {
            return Ok(());
        }
        // An access that lacks space is retried and fails at once; only waiting can help.
        let is_short = self.store.shortage().is_some();
        self.idle_waits += u32::from(is_short);
        let descriptor = self.disk.wait_fd().filter(|_| !is_short);
        let polled = descriptor.as_ref().map(|fd| PollFd::new(fd, PollFlags::IN));
        let mut polled: Vec<PollFd<'_>> = polled.into_iter().collect();
        match poll(&mut polled, Some(&DISK_WAIT_MAX)) {
            Ok(_) | Err(Errno::INTR) => Ok(()),
            Err(error) => Err(io_failure("wait for", &self.folder, &error.into())),
        }
    }

    /// Runs the store's next steps. Returns whether the disk made progress.
    fn advance_store(&mut self) -> Result<bool, IdentityError> {
        let mut more = false;
        while let Some(completed) = self.disk.poll() {
            if Store::is_store_completion(&completed) {
                self.store.on_completed(completed, &mut self.disk);
            }
            more = true;
        }
        self.store.advance(&mut self.disk);
        let failed =
            |why: &str| io_failure("write to", &self.folder, &io::Error::other(why.to_owned()));
        if let Some(why) = self.store.failure() {
            return Err(failed(why));
        }
        match self.store.shortage() {
            Some(why) if self.idle_waits >= IDLE_WAITS_MAX => Err(failed(why)),
            Some(_) => Ok(more),
            None => {
                self.idle_waits = 0;
                Ok(more)
            }
        }
    }
}
