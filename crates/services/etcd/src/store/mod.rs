//! The store interface: ordered maps from bytes to bytes.

pub(crate) mod counted;
pub mod lsm;
pub mod memory;

use std::ops::ControlFlow;

use bytes::Bytes;
use quorate::{Health, Imaged, LoadError, MetaChange, Metadata, Scrubbed, Slot};

/// A visitor of entries.
pub type EntryVisitor<'v> = dyn FnMut(&[u8], &Bytes) -> ControlFlow<()> + 'v;

/// A map ordered by key, used by one thread.
///
/// Values are shared, so a value that was read does not change. A store on disk reports with
/// [`Store::health`] whether it can continue, and with [`Store::has_failed`] whether the results
/// since the last commit are invalid.
pub trait Store: Send {
    fn get(&self, key: &[u8]) -> Option<Bytes>;

    /// Visits the entries from `from` (inclusive) to `to` (exclusive), in order. The range is empty
    /// if `to` is not after `from`.
    fn scan(&self, from: &[u8], to: &[u8], visit: &mut EntryVisitor<'_>);

    /// Returns the first entry from `from` (inclusive) to `to` (exclusive).
    fn first(&self, from: &[u8], to: &[u8]) -> Option<(Vec<u8>, Bytes)> {
        let mut found = None;
        self.scan(from, to, &mut |key, value| {
            found = Some((key.to_vec(), value.clone()));
            ControlFlow::Break(())
        });
        found
    }

    fn put(&mut self, key: &[u8], value: Bytes);

    /// Removes the entry of `key`, if there is one.
    fn remove(&mut self, key: &[u8]);

    /// Commits all changes since the last call, the slot and `meta` atomically.
    fn commit(&mut self, applied_to: Slot, meta: &[MetaChange]);

    /// See [`StateMachine::recovered`](quorate::StateMachine::recovered).
    fn recovered(&mut self) -> (Slot, Metadata);

    /// See [`StateMachine::health`](quorate::StateMachine::health).
    fn health(&mut self) -> Health;

    /// See [`StateMachine::has_failed`](quorate::StateMachine::has_failed).
    fn has_failed(&self) -> bool {
        false
    }

    /// See [`StateMachine::logged`](quorate::StateMachine::logged).
    fn logged(&mut self, to: Slot) {
        let _ = to;
    }

    /// Starts an image of all entries, with everything committed; see
    /// [`StateMachine::begin_image`](quorate::StateMachine::begin_image).
    fn begin_image(&mut self) -> bool;

    /// Passes the next entries of the image to `each`; see
    /// [`StateMachine::next_image`](quorate::StateMachine::next_image).
    fn next_image(&mut self, bytes: usize, each: &mut dyn FnMut(&[u8], &[u8])) -> Imaged;

    fn end_image(&mut self);

    /// Starts to replace all entries; see
    /// [`StateMachine::begin_load`](quorate::StateMachine::begin_load).
    fn begin_load(&mut self) -> Result<(), LoadError>;

    /// Loads an entry. Entries must be loaded in order.
    fn load(&mut self, key: &[u8], value: Bytes) -> Result<(), LoadError>;

    /// See [`StateMachine::finish_load`](quorate::StateMachine::finish_load).
    fn finish_load(&mut self, at: Slot, meta: &[MetaChange]) -> Result<(), LoadError>;

    /// See [`StateMachine::synced_to`](quorate::StateMachine::synced_to).
    fn synced_to(&mut self) -> Option<Slot> {
        None
    }

    /// See [`StateMachine::start_sync`](quorate::StateMachine::start_sync).
    fn start_sync(&mut self) {}

    /// See [`StateMachine::start_scrub`](quorate::StateMachine::start_scrub).
    fn start_scrub(&mut self, bytes_per_second: u64) {
        let _ = bytes_per_second;
    }

    /// See [`StateMachine::take_scrubbed`](quorate::StateMachine::take_scrubbed).
    fn take_scrubbed(&mut self) -> Scrubbed {
        Scrubbed::default()
    }

    /// See [`StateMachine::wants_scrub`](quorate::StateMachine::wants_scrub).
    fn wants_scrub(&mut self) -> bool {
        false
    }

    /// See [`StateMachine::kept_bytes`](quorate::StateMachine::kept_bytes).
    fn kept_bytes(&self) -> u64 {
        0
    }

    /// See [`StateMachine::renew`](quorate::StateMachine::renew).
    fn renew(&mut self) -> Result<(), String> {
        Err("there is nothing on disk".to_owned())
    }
}
