//! State of all keys: the store that contains them, and data about it that is cached in memory.

use std::cell::Cell;

use quorate::LoadError;

use super::layout::{STATE, State};
use crate::store::{Store, counted::Counted};

/// All keys, with their history since the last compaction.
pub struct Mvcc {
    pub(super) store: Counted,
    pub(super) state: State,
    /// Set if a member has raised the alarm that it lacks space.
    pub(super) lacks_space: bool,
    pub(super) ends: Ends,
    /// The group's time, in Unix milliseconds.
    pub(super) time: u64,
}

impl Mvcc {
    /// Reads the state from a store. A store without a state is treated as empty.
    pub fn new(store: Box<dyn Store>) -> Self {
        let mut mvcc = Self {
            store: Counted::new(store),
            state: State::EMPTY,
            lacks_space: false,
            ends: Ends::default(),
            time: 0,
        };
        // The service checks the store at its start and after a load.
        let _ = mvcc.read_state();
        mvcc
    }

    /// Reads the state again after all entries of the store have been replaced.
    pub(crate) fn read_state(&mut self) -> Result<(), LoadError> {
        self.lacks_space = self.has_alarm_of_space();
        self.ends = Ends::default();
        self.state = match self.store.get(STATE) {
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
            self.store.put(STATE, state.encode());
        }
    }

    /// Returns the revision of the last transaction that changed something.
    pub const fn revision(&self) -> i64 {
        self.state.revision
    }

    /// Returns the revision before which history is compacted; -1 if history has never been
    /// compacted.
    pub const fn compacted(&self) -> i64 {
        self.state.compacted
    }

    /// Returns the number of stored leases, including expired ones.
    pub const fn leases_stored(&self) -> u64 {
        self.state.leases
    }

    /// Returns the total size of all entries, in bytes.
    pub const fn bytes(&self) -> u64 {
        self.store.bytes()
    }

    /// Returns the store that contains the entries.
    pub fn store(&self) -> &dyn Store {
        &*self.store
    }

    /// Returns the store that contains the entries, for calls that do not change entries.
    pub(crate) fn below(&mut self) -> &mut dyn Store {
        self.store.below()
    }

    pub(crate) const fn store_mut(&mut self) -> &mut Counted {
        &mut self.store
    }
}

/// Cached bounds of deadlines. Keeping a lease alive removes its old deadline. In a store on disk,
/// removed deadlines precede the existing ones until they are merged away, and a search for the
/// first deadline must not walk over them each time.
#[derive(Debug, Default)]
pub(super) struct Ends {
    /// Lower bound of all deadlines, as a deadline and a lease. Leases with the same deadline are
    /// ordered by their ids as unsigned numbers. The bound is at most one above the group's time,
    /// because new deadlines are later.
    pub(super) earliest: Cell<(u64, u64)>,
    /// Time in Unix milliseconds. There is no deadline between the group's time and this time.
    pub(super) next: Cell<u64>,
}
