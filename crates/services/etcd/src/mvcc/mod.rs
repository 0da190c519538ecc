//! Keys with all their revisions: etcd's MVCC store, over a [`Store`](crate::store::Store).
//!
//! Each transaction that changes something gets a revision, and its changes are numbered within it
//! ([`layout`]). On top of the state and the store ([`base`]), reads see the current revision or an
//! earlier one ([`read`], [`range`], [`paging`]), [`write`] makes changes, and [`txn`] evaluates
//! comparisons and executes a branch. [`compact`] removes history in small steps, and [`events`]
//! reads it. Keys with a [`lease`] are deleted when it ends, an [`alarm`] records a fault of a
//! member, and a [`hash`] is compared between nodes. Nothing here depends on a clock, a socket or a
//! node: time comes from the log.

mod alarm;
mod base;
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

pub use self::{
    base::Mvcc,
    budget::{Budget, COMMAND_BYTES_MAX, COMMAND_VISITS_MAX, QUERY_BYTES_MAX},
    compact::SCRUBBED_CHANGES_MAX,
    layout::{KEY_BYTES_MAX, Lease, Record, Revision},
    lease::{LEASE_KEYS_MAX, LEASES_MAX, TTL_S_MAX, TTL_S_MIN},
    paging::{PAGE_VISITS_MAX, Paging},
    read::{FoundRecord, KeySelection},
    txn::{is_readonly, is_serializable},
};
pub(crate) use self::{
    layout::{STORE_KEY_BYTES_MAX, is_valid_entry},
    range::sort_order,
};
