//! Access of read commands to a collection: its header and its stored rows.

use super::{
    lock::is_lock,
    state::{WRONG_TYPE, WrongType},
};
use crate::{
    key::Key,
    resp::reply::Reply,
    store::{
        Bytes, Entry, Span, Store, VisitRow,
        collection::{Header, Kind, NAME_BYTES_MAX},
    },
};

/// Read-only view of a collection.
#[derive(Clone, Copy)]
pub(super) struct View<'s> {
    pub(super) store: &'s dyn Store,
    pub(super) header: Header,
}

impl<'s> View<'s> {
    /// Returns the collection at a key if it has this type.
    pub(super) fn at(store: &'s dyn Store, key: Key<'_>, kind: Kind) -> Option<Self> {
        let entry = store.get(key).filter(|entry| entry.kind == kind)?;
        let header = Header::from_bytes(&entry.value)?;
        Some(View { store, header })
    }

    /// Returns a stored row, even of an expired element; `None` if absent or the name is too long.
    pub(super) fn stored_row(&self, name: &[u8]) -> Option<Bytes<'s>> {
        if name.len() > NAME_BYTES_MAX {
            return None;
        }
        self.store.meter().count_visits(2);
        let row = self.store.row(self.header.id, name)?;
        self.store.meter().count_moved(row.len());
        Some(row)
    }

    pub(super) fn rows(&self, span: Span<'_>, visit: &mut VisitRow<'_>) {
        self.store.rows(self.header.id, span, visit);
    }
}

/// Returns the entry of a key, if any. If the value is of another type, replies with an error.
pub(super) fn entry<'s>(
    store: &'s dyn Store,
    key: Key<'_>,
    kind: Kind,
    reply: &mut Reply<'_>,
) -> Result<Option<Entry<'s>>, WrongType> {
    let entry = store.get(key);
    if entry.as_ref().is_some_and(|entry| entry.kind != kind) {
        reply.error(WRONG_TYPE);
        return Err(WrongType);
    }
    Ok(entry)
}

/// Returns the collection at a key, if any. If the value is of another type, replies with an error.
pub(super) fn view<'s>(
    store: &'s dyn Store,
    key: Key<'_>,
    kind: Kind,
    reply: &mut Reply<'_>,
) -> Result<Option<View<'s>>, WrongType> {
    let entry = entry(store, key, kind, reply)?;
    let header = entry.and_then(|entry| Header::from_bytes(&entry.value));
    Ok(header.map(|header| View { store, header }))
}

/// Returns the lock record at a key. Commands that read hashes see it as a hash with one field.
pub(super) fn lock_record<'s>(store: &'s dyn Store, key: Key<'_>) -> Option<Bytes<'s>> {
    let entry = store.get(key)?;
    (entry.kind == Kind::String && is_lock(&entry.value)).then_some(entry.value)
}
