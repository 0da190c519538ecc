//! State of all keys: the store, and data cached in memory.

use std::cell::Cell;

use quorate::LoadError;

use super::layout::{STATE, State};
use crate::store::{Store, counted::Counted};

/// All keys, with their history since the last compaction.
pub struct Mvcc {
    pub(super) store: Counted,
    pub(super) state: State,
    /// A member has raised the alarm that it lacks space.
    pub(super) lacks_space: bool,
    pub(super) ends: Ends,
    /// Group's time in Unix milliseconds.
    pub(super) time: u64,
}

impl Mvcc {
    /// Reads the state from a store, which may be empty.
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

    /// Reads the state again after a load.
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

    /// Returns the compacted revision; -1 if history has never been compacted.
    pub const fn compacted(&self) -> i64 {
        self.state.compacted
    }

    /// Returns the number of stored leases, including expired ones.
    pub const fn leases_stored(&self) -> u64 {
        self.state.leases
    }

    /// Returns the total size of all entries.
    pub const fn bytes(&self) -> u64 {
        self.store.bytes()
    }

    pub fn store(&self) -> &dyn Store {
        &*self.store
    }

    /// Returns the store, for calls that do not change entries.
    pub(crate) fn below(&mut self) -> &mut dyn Store {
        self.store.below()
    }

    pub(crate) const fn store_mut(&mut self) -> &mut Counted {
        &mut self.store
    }
}

/// Cached bounds of deadlines. Keeping a lease alive removes its old deadline. In a store on disk,
/// removed deadlines precede the existing ones until they are merged away, and the search for the
/// first deadline must not walk over them each time.
#[derive(Debug, Default)]
pub(super) struct Ends {
    /// Lower bound of all pairs of deadline and lease, whose ids are ordered as unsigned numbers.
    /// At most one above the group's time, because new deadlines are later.
    pub(super) earliest: Cell<(u64, u64)>,
    /// There is no deadline between the group's time and this time, in Unix milliseconds.
    pub(super) next: Cell<u64>,
}
