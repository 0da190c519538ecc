//! Keys with all their revisions: etcd's MVCC store, over a [`Store`].
//!
//! A transaction that changes something is one revision, and its changes are numbered within it
//! ([`layout`]). Reads see the present or a past revision ([`read`], [`range`], [`paging`]),
//! [`write`] changes, [`txn`] compares and then does either, [`compact`] removes the past in small
//! steps, [`events`] reads it, keys with a [`lease`] are deleted at its end, an [`alarm`] reports a
//! fault of a member, and a [`hash`] compares the data of nodes. Nothing here knows a clock, a
//! socket or a node: time comes from the log.

mod alarm;
pub(crate) mod bring;
mod budget;
mod compact;
mod compare;
mod events;
mod hash;
mod layout;
mod lease;
mod paging;
mod range;
mod read;
mod txn;
mod write;

pub(crate) use self::layout::{PLACE_BYTES_MAX, is_place};
pub use self::{
    budget::{Budget, COMMAND_BYTES_MAX, COMMAND_VISITS_MAX, QUERY_BYTES_MAX},
    compact::SCRUB_MAX,
    layout::{KEY_BYTES_MAX, Lease, Record, Revision},
    lease::{LEASE_KEYS_MAX, LEASES_MAX, TTL_MAX, TTL_MIN},
    paging::{PAGE_VISITS_MAX, Paging},
    read::{Found, Keys},
    txn::{is_readonly, is_serializable},
};
use self::{
    layout::{STATE, State},
    lease::Ends,
};
use crate::store::{Store, counted::Counted};
use quorate::LoadError;

/// All keys, with their history since the compaction.
pub struct Mvcc {
    store: Counted,
    state: State,
    /// There is an alarm that a member has no space.
    lacks_space: bool,
    ends: Ends,
    /// The group's time, Unix time in milliseconds.
    time: u64,
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

    fn set_state(&mut self, state: State) {
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
