//! The keys as a whole: the store below them, and what is known of it without a look-up.

use std::cell::Cell;

use quorate::LoadError;

use super::layout::{STATE, State};
use crate::store::{Store, counted::Counted};

/// All keys, with their history since the compaction.
pub struct Mvcc {
    pub(super) store: Counted,
    pub(super) state: State,
    /// There is an alarm that a member has no space.
    pub(super) lacks_space: bool,
    pub(super) ends: Ends,
    /// The group's time, Unix time in milliseconds.
    pub(super) time: u64,
}

impl Mvcc {
    /// Reads the state from a store; a store without a state is empty.
    pub fn new(store: Box<dyn Store>) -> Self {
        let mut mvcc = Self {
            store: Counted::new(store),
            state: State::EMPTY,
            lacks_space: false,
            ends: Ends::default(),
            time: 0,
        };
        // The store's own check is at its start and its load.
        let _ = mvcc.read_state();
        mvcc
    }

    /// Reads the state from the store, after that was replaced as a whole.
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

    /// The revision of the last transaction that changed something.
    pub const fn revision(&self) -> i64 {
        self.state.revision
    }

    /// Returns the revision before which history is discarded; -1 if none ever was.
    pub const fn compacted(&self) -> i64 {
        self.state.compacted
    }

    /// Leases that are stored.
    pub const fn leases_stored(&self) -> u64 {
        self.state.leases
    }

    /// Bytes of all entries.
    pub const fn bytes(&self) -> u64 {
        self.store.bytes()
    }

    /// The store below.
    pub fn store(&self) -> &dyn Store {
        &*self.store
    }

    /// Returns the store below for writes that change no entry.
    pub(crate) fn below(&mut self) -> &mut dyn Store {
        self.store.below()
    }

    pub(crate) const fn store_mut(&mut self) -> &mut Counted {
        &mut self.store
    }
}

/// Cached bounds of deadlines. Old deadlines of leases that were kept alive since precede the
/// others until a store on disk has merged them away; finding the first one must not walk over them
/// each time.
#[derive(Debug, Default)]
pub(super) struct Ends {
    /// Lower bound of all deadlines; leases with the same deadline are in the order of their ids as
    /// unsigned numbers. At most one above the group's time: new deadlines are later.
    pub(super) earliest: Cell<(u64, u64)>,
    /// No deadline is above the group's time and below this one.
    pub(super) next: Cell<u64>,
}
