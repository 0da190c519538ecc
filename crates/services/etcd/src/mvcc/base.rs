//! The MVCC state: the store, and data cached in memory.

use std::cell::Cell;

use quorate::LoadError;

use super::layout::{STATE_TAG, State};
use crate::store::{Store, counted::CountedStore};

/// All keys, with their history since the last compaction.
pub struct Mvcc {
    pub(super) store: CountedStore,
    pub(super) state: State,
    /// Set while an alarm for lack of space is raised.
    pub(super) lacks_space: bool,
    pub(super) deadline_bounds: LeaseDeadlineBounds,
    /// The group's time, in Unix milliseconds.
    pub(super) group_time_ms: u64,
}

impl Mvcc {
    /// Reads the state from a store, which may be empty.
    pub fn new(store: Box<dyn Store>) -> Self {
        let mut mvcc = Self {
            store: CountedStore::new(store),
            state: State::EMPTY,
            lacks_space: false,
            deadline_bounds: LeaseDeadlineBounds::default(),
            group_time_ms: 0,
        };
        // An error is ignored: the service checks the store again at start and after a load.
        let _ = mvcc.read_state();
        mvcc
    }

    /// Replaces the cached state with what the store contains. Fails if the stored state is
    /// malformed.
    pub(crate) fn read_state(&mut self) -> Result<(), LoadError> {
        self.lacks_space = self.has_alarm_of_space();
        self.deadline_bounds = LeaseDeadlineBounds::default();
        self.state = match self.store.get(STATE_TAG) {
            None => State::EMPTY,
            Some(bytes) => {
                State::decode(&bytes).ok_or(LoadError::Malformed("its state makes no sense"))?
            }
        };
        Ok(())
    }

    pub(super) fn set_state(&mut self, state: State) {
        if state != self.state {
            self.state = state;
            self.store.put(STATE_TAG, state.encode());
        }
    }

    /// Returns the revision of the last transaction that changed something.
    pub const fn revision(&self) -> i64 {
        self.state.revision
    }

    /// Returns the compacted revision; -1 if history has never been compacted.
    pub const fn compacted_revision(&self) -> i64 {
        self.state.compacted_revision
    }

    /// Returns the number of stored leases, including expired ones.
    pub const fn stored_lease_count(&self) -> u64 {
        self.state.lease_count
    }

    /// Returns the total size of all entries.
    pub const fn bytes(&self) -> u64 {
        self.store.bytes()
    }

    pub fn store(&self) -> &dyn Store {
        &*self.store
    }

    /// Returns the underlying store, for calls that do not change entries.
    pub(crate) fn underlying_store(&mut self) -> &mut dyn Store {
        self.store.underlying_store()
    }

    pub(crate) const fn store_mut(&mut self) -> &mut CountedStore {
        &mut self.store
    }
}

/// Cached bounds of lease deadlines. Each keep-alive replaces a deadline. A store on disk retains
/// removed deadlines until they are merged away; they precede the existing ones, and the search for
/// the first deadline must not scan them each time.
#[derive(Debug, Default)]
pub(super) struct LeaseDeadlineBounds {
    /// Lower bound of all (deadline, lease id) pairs, with ids ordered as unsigned numbers. At most
    /// one above the group's time, because new deadlines are later than that.
    pub(super) earliest: Cell<(u64, u64)>,
    /// Lower bound, in Unix milliseconds, for the next expiry of a lease that is alive at the
    /// group's time.
    pub(super) next: Cell<u64>,
}
