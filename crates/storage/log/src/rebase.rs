//! Advances the start of the log: the base is replaced, one change at a time, and only then are the
//! segments before the new start freed ([trim-3]).

use crate::disk::{Disk, DiskError};
use quorate_core::slot::Slot;

use crate::{
    base::{BASE_FILE, Base, BaseFile, NOTE_BYTES_MAX},
    holdings::Holdings,
    log_write::Owner,
    patience::Backoff,
};

/// Maximum number of calls between two attempts to replace the base.
const RETRY_SKIPS_MAX: u32 = 1024;

#[derive(Debug)]
pub(crate) struct Rebase {
    owner: Owner,
    /// Newest requested start. Invariant: never decreases.
    start: Slot,
    /// Newest requested base, if it is not in flight yet.
    requested: Option<Base>,
    in_flight: Option<BaseFile>,
    new_start: Option<Slot>,
    failure: Option<DiskError>,
    retry_backoff: Backoff,
}

impl Rebase {
    pub(crate) fn new(owner: Owner, start: Slot) -> Self {
        Self {
            owner,
            start,
            requested: None,
            in_flight: None,
            new_start: None,
            failure: None,
            retry_backoff: Backoff::default(),
        }
    }

    pub(crate) fn request_base(&mut self, start: Slot, note: Vec<u8>) {
        assert!(note.len() <= NOTE_BYTES_MAX, "a note has at most {NOTE_BYTES_MAX} bytes");
        self.start = self.start.max(start);
        let start = self.start;
        self.requested = Some(Base { start, note });
    }

    /// Starts the pending change, if none is in flight. `complete_to` is the number of the last
    /// complete log write.
    pub(crate) fn start_pending<D: Disk>(
        &mut self,
        disk: &mut D,
        holdings: &Holdings,
        complete_to: u64,
    ) -> Option<&BaseFile> {
        if self.in_flight.is_some() || self.requested.is_none() || !self.retry_backoff.try_or_skip()
        {
            return None;
        }
        let base = self.requested.take()?;
        let file = BaseFile { anchor: holdings.anchor_to_retain(base.start), base, complete_to };
        disk.start_replace_small_file(0, BASE_FILE, file.encode(self.owner));
        Some(self.in_flight.insert(file))
    }

    /// Handles the replacement of the base, or its failure. Returns the base if a new one is in
    /// force.
    pub(crate) fn on_replaced(&mut self, result: Result<(), DiskError>) -> Option<BaseFile> {
        let file = self.in_flight.take()?;
        match result {
            Ok(()) => {
                self.failure = None;
                self.retry_backoff.record_success();
                self.new_start = Some(file.base.start);
                Some(file)
            }
            Err(error) => {
                // It is unknown whether the file was replaced. Both contents are valid, because
                // nothing relies on the new one yet.
                self.failure = Some(error);
                self.retry_backoff.record_failure(RETRY_SKIPS_MAX);
                self.requested.get_or_insert(file.base);
                None
            }
        }
    }

    pub(crate) const fn take_new_start(&mut self) -> Option<Slot> {
        self.new_start.take()
    }

    /// Returns the error of the last attempt to replace the base, until a retry succeeds.
    pub(crate) const fn failure(&self) -> Option<&DiskError> {
        self.failure.as_ref()
    }

    pub(crate) const fn retry_now(&mut self) {
        self.retry_backoff.end_wait();
    }
}
