//! Store entries for an image of data imported from another cluster.

use bytes::Bytes;

use super::layout::{self, Change, Lease, Record, Revision, STATE_TAG, State};

/// Key and value of an entry in the store.
pub(crate) type StoreEntry = (Vec<u8>, Bytes);

/// Returns the entry of the current record of a key.
pub(crate) fn current_entry(key: &[u8], record: &Record) -> StoreEntry {
    (layout::current_place(key), record.encode())
}

/// Returns the entry of an earlier record of a key. `None` means that the change deleted the key.
pub(crate) fn history_entry(key: &[u8], at: Revision, record: Option<&Record>) -> StoreEntry {
    let record = record.map_or_else(Bytes::new, Record::encode);
    (layout::history_place_at(key, at), record)
}

/// Returns the entry of a change, which is stored under its revision.
pub(crate) fn revision_entry(at: Revision, deletes: bool, key: &[u8]) -> StoreEntry {
    (layout::revision_place(at), Change::encode(deletes, key))
}

pub(crate) fn lease_entry(id: i64, granted: i64, deadline: u64, keys: u64) -> StoreEntry {
    let lease = Lease { granted_ttl_s: granted, deadline_ms: deadline, key_count: keys };
    (layout::lease_place(id), lease.encode())
}

/// Returns the entry that attaches a key to a lease.
pub(crate) fn attachment_entry(id: i64, key: &[u8]) -> StoreEntry {
    (layout::attachment_place(id, key), Bytes::new())
}

/// Returns the entry of a lease in the index by deadline.
pub(crate) fn deadline_entry(at: u64, id: i64) -> StoreEntry {
    (layout::deadline_place(at, id), Bytes::new())
}

/// Returns the revision in an entry if it is the state.
pub(crate) fn entry_revision(place: &[u8], value: &[u8]) -> Option<i64> {
    State::decode(value).filter(|_| place == STATE_TAG).map(|state| state.revision)
}

/// Returns the state row with its revision raised by `by` and all earlier history compacted, or
/// `None` if that overflows the range of revisions.
pub(crate) fn raise_revision(value: &[u8], by: u64) -> Option<Bytes> {
    let mut state = State::decode(value)?;
    state.revision = state.revision.checked_add_unsigned(by)?;
    state.compacted_revision = state.revision;
    let raised = state.encode();
    State::decode(&raised).map(|_| raised)
}

/// Returns the entry of the state. Compacted history before `scrubbed` has been removed.
pub(crate) fn state_entry(revision: i64, compacted: i64, scrubbed: i64, leases: u64) -> StoreEntry {
    let state = State {
        revision,
        compacted_revision: compacted,
        scrubbed_revision: Revision::first_of(scrubbed),
        lease_count: leases,
    };
    (STATE_TAG.to_vec(), state.encode())
}
