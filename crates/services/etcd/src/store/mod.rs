//! The interface to stores, which are ordered maps from bytes to bytes.

pub(crate) mod counted;
pub mod lsm;
pub mod memory;

use std::ops::ControlFlow;

use bytes::Bytes;
use quorate::{Health, Imaged, LoadError, MetaChange, Metadata, Scrubbed, Slot};

/// Callback that a scan calls for each entry.
pub type Visit<'v> = dyn FnMut(&[u8], &Bytes) -> ControlFlow<()> + 'v;

/// A map with entries ordered by key. All calls come from one thread.
///
/// Values are shared, not copied, so a value that was read does not change. For a store on disk,
/// [`Store::health`] reports whether the store can continue, and [`Store::has_failed`] whether its
/// results since the last commit are void.
pub trait Store: Send {
    /// Returns the value of `key`.
    fn get(&self, key: &[u8]) -> Option<Bytes>;

    /// Visits the entries from `from` (inclusive) to `to` (exclusive), in order. There are none if
    /// `to` is not after `from`.
    fn scan(&self, from: &[u8], to: &[u8], visit: &mut Visit<'_>);

    /// Returns the first entry from `from` (inclusive) to `to` (exclusive); `None` if there is
    /// none.
    fn first(&self, from: &[u8], to: &[u8]) -> Option<(Vec<u8>, Bytes)> {
        let mut found = None;
        self.scan(from, to, &mut |key, value| {
            found = Some((key.to_vec(), value.clone()));
            ControlFlow::Break(())
        });
        found
    }

    /// Sets the value of `key`.
    fn put(&mut self, key: &[u8], value: Bytes);

    /// Removes the entry of `key`, if there is one.
    fn remove(&mut self, key: &[u8]);

    /// Commits all changes since the last call, the slot and `meta` as one atomic unit.
    fn commit(&mut self, applied_to: Slot, meta: &[MetaChange]);

    /// Returns the state of the last surviving commit, like
    /// [`StateMachine::recovered`](quorate::StateMachine::recovered).
    fn recovered(&mut self) -> (Slot, Metadata);

    /// Returns the health of the store, like
    /// [`StateMachine::health`](quorate::StateMachine::health).
    fn health(&mut self) -> Health;

    /// Returns whether the store has failed, like
    /// [`StateMachine::has_failed`](quorate::StateMachine::has_failed).
    fn has_failed(&self) -> bool {
        false
    }

    /// Records that the log is durable, like
    /// [`StateMachine::logged`](quorate::StateMachine::logged).
    fn logged(&mut self, to: Slot) {
        let _ = to;
    }

    /// Starts an image of all current entries, like
    /// [`StateMachine::begin_image`](quorate::StateMachine::begin_image). Called only when
    /// everything is committed.
    fn begin_image(&mut self) -> bool;

    /// Passes the next entries of the image to `each`, in order, like
    /// [`StateMachine::next_image`](quorate::StateMachine::next_image).
    fn next_image(&mut self, bytes: usize, each: &mut dyn FnMut(&[u8], &[u8])) -> Imaged;

    /// Ends the image in progress, if there is one.
    fn end_image(&mut self);

    /// Starts to replace all entries, like
    /// [`StateMachine::begin_load`](quorate::StateMachine::begin_load).
    fn begin_load(&mut self) -> Result<(), LoadError>;

    /// Loads an entry. Entries must be loaded in order.
    fn load(&mut self, key: &[u8], value: Bytes) -> Result<(), LoadError>;

    /// Ends a load, like [`StateMachine::finish_load`](quorate::StateMachine::finish_load).
    fn finish_load(&mut self, at: Slot, meta: &[MetaChange]) -> Result<(), LoadError>;

    /// Returns the slot up to which data is synced, like
    /// [`StateMachine::synced_to`](quorate::StateMachine::synced_to).
    fn synced_to(&mut self) -> Option<Slot> {
        None
    }

    /// Starts a sync, like [`StateMachine::start_sync`](quorate::StateMachine::start_sync).
    fn start_sync(&mut self) {}

    /// Starts a scrub, like [`StateMachine::start_scrub`](quorate::StateMachine::start_scrub).
    fn start_scrub(&mut self, bytes_per_second: u64) {
        let _ = bytes_per_second;
    }

    /// Returns the progress of the scrub, like
    /// [`StateMachine::take_scrubbed`](quorate::StateMachine::take_scrubbed).
    fn take_scrubbed(&mut self) -> Scrubbed {
        Scrubbed::default()
    }

    /// Returns whether a scrub is needed, like
    /// [`StateMachine::wants_scrub`](quorate::StateMachine::wants_scrub).
    fn wants_scrub(&mut self) -> bool {
        false
    }

    /// Returns the size of the data, like
    /// [`StateMachine::kept_bytes`](quorate::StateMachine::kept_bytes).
    fn kept_bytes(&self) -> u64 {
        0
    }

    /// Discards all data and starts over, like
    /// [`StateMachine::renew`](quorate::StateMachine::renew).
    fn renew(&mut self) -> Result<(), String> {
        Err("there is nothing on disk".to_owned())
    }
}
