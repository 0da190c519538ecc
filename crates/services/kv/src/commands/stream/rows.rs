//! Rows of a stream.
//!
//! An entry is a row named by its id. A group, a consumer and a pending entry are rows as well,
//! whose names begin with a byte of their own (`groups::rows`), so a command touches only what it
//! needs. Unlike other collections, a stream without entries exists.

use std::ops::ControlFlow;

use crate::{
    commands::{
        state::{WriteContext, WrongType},
        view::entry,
    },
    key::Key,
    resp::reply::Reply,
    store::{
        Bytes, Span, Store,
        collection::{Header, Kind},
        stream::{EntryId, Log},
    },
};

/// First byte of the names of entries' rows. Part of the stored format.
const ENTRY: u8 = b'e';
const NAME_BYTES: usize = 1 + EntryId::BYTES;

fn entry_name(id: EntryId) -> [u8; NAME_BYTES] {
    let mut name = [ENTRY; NAME_BYTES];
    name[1..].copy_from_slice(&id.to_bytes());
    name
}

/// Read-only view of a stream.
#[derive(Clone, Copy)]
pub(crate) struct View<'s> {
    pub(super) store: &'s dyn Store,
    pub(super) header: Header,
    pub(super) log: Log,
}

impl<'s> View<'s> {
    /// Returns the stream at a key, if any. Replies with an error for another type.
    pub(super) fn find(
        store: &'s dyn Store,
        key: Key<'_>,
        reply: &mut Reply<'_>,
    ) -> Result<Option<Self>, WrongType> {
        let header = entry(store, key, Kind::Stream, reply)?;
        let header = header.and_then(|entry| Header::from_bytes(&entry.value));
        Ok(header.and_then(|header| Some(View { store, header, log: header.log? })))
    }

    /// Returns the stream at a key, if it has one.
    pub(super) fn at(store: &'s dyn Store, key: Key<'_>) -> Option<Self> {
        let entry = store.get(key).filter(|entry| entry.kind == Kind::Stream)?;
        let header = Header::from_bytes(&entry.value)?;
        Some(View { store, header, log: header.log? })
    }

    /// Returns the encoded fields of an entry.
    pub(super) fn entry(&self, id: EntryId) -> Option<Bytes<'s>> {
        self.row(&entry_name(id))
    }

    /// Returns a stored row.
    pub(super) fn row(&self, name: &[u8]) -> Option<Bytes<'s>> {
        self.store.meter().count_visits(2);
        let row = self.store.row(self.header.id, name)?;
        self.store.meter().count_moved(row.len());
        Some(row)
    }

    /// Visits the entries with ids from `from` to `to`, both inclusive, with their encoded fields;
    /// the last first if `back`.
    pub(super) fn entries(
        &self,
        (from, to): (EntryId, EntryId),
        back: bool,
        visit: &mut dyn FnMut(EntryId, &[u8]) -> ControlFlow<()>,
    ) {
        if self.header.count == 0 {
            return;
        }
        let from = entry_name(from.max(self.log.first));
        // All names of entries have one length, so this is the next one.
        let behind = [&entry_name(to)[..], &[0]].concat();
        let span = Span { from: &from, to: Some(&behind), is_backward: back };
        self.store.rows(self.header.id, span, &mut |name, fields| match EntryId::from_bytes(
            &name[1..],
        ) {
            Some(id) => visit(id, fields),
            None => ControlFlow::Continue(()),
        });
    }

    /// Returns the id of the first entry, or of the last if `back`.
    fn end(&self, back: bool) -> Option<EntryId> {
        let mut end = None;
        self.entries((EntryId::MIN, EntryId::MAX), back, &mut |id, _| {
            end = Some(id);
            ControlFlow::Break(())
        });
        end
    }

    pub(super) fn first_id(&self) -> Option<EntryId> {
        self.end(false)
    }

    pub(super) fn last_id(&self) -> Option<EntryId> {
        self.end(true)
    }
}

/// Stream being changed. [`Change::close`] must write the header.
pub(crate) struct Change<'w, 'a> {
    pub(super) state: &'w mut WriteContext<'a>,
    key: Key<'w>,
    header: Header,
    pub(super) log: Log,
    deadline: Option<u64>,
    /// Clients that wait for entries have to try again.
    wakes: bool,
}

impl<'w, 'a> Change<'w, 'a> {
    /// Opens the stream at a key, if it exists.
    pub(super) fn find(
        state: &'w mut WriteContext<'a>,
        key: Key<'w>,
        reply: &mut Reply<'_>,
    ) -> Result<Option<Self>, WrongType> {
        let entry = entry(state.store, key, Kind::Stream, reply)?;
        let found = entry.and_then(|entry| {
            let header = Header::from_bytes(&entry.value)?;
            Some((header, header.log?, entry.deadline))
        });
        Ok(found.map(|(header, log, deadline)| {
            let wakes = false;
            Self { state, key, header, log, deadline, wakes }
        }))
    }

    /// Creates an empty stream at a key that has no value.
    pub(super) fn new(state: &'w mut WriteContext<'a>, key: Key<'w>) -> Self {
        let log = Log::default();
        let id = state.begin();
        let header =
            Header { id, count: 0, bytes: 0, first: 0, field_deadlines: None, log: Some(log) };
        Self { state, key, header, log, deadline: None, wakes: false }
    }

    /// Makes clients that wait for entries try again.
    pub(super) const fn wake(&mut self) {
        self.wakes = true;
    }

    pub(super) fn view(&self) -> View<'_> {
        View { store: self.state.store, header: self.header, log: self.log }
    }

    pub(super) fn event(&mut self, name: &str) {
        self.state.event(crate::commands::events::class::STREAM, name, self.key);
    }

    /// Adds an entry, whose id must be higher than that of any entry before.
    pub(super) fn add(&mut self, id: EntryId, fields: &[u8]) {
        debug_assert!(id > self.log.last, "ids increase");
        if self.header.count == 0 {
            self.log.first = id;
        }
        self.wakes = true;
        self.log.last = id;
        self.log.added += 1;
        self.header.count += 1;
        self.put(&entry_name(id), fields, None);
    }

    /// Removes an entry whose encoded fields have `bytes` bytes. The caller sets [`Log::first`] if
    /// that was the first one.
    pub(super) fn remove(&mut self, id: EntryId, bytes: usize) {
        self.header.count = self.header.count.saturating_sub(1);
        self.take(&entry_name(id), bytes);
    }

    /// Sets a row of a group. `old` is the length of its previous value; `None` if it is new.
    pub(super) fn put_group_row(&mut self, name: &[u8], value: &[u8], old: Option<usize>) {
        if old.is_none() {
            self.log.group_rows += 1;
        }
        self.put(name, value, old);
    }

    /// Removes a row of a group, whose value has `bytes` bytes.
    pub(super) fn remove_group_row(&mut self, name: &[u8], bytes: usize) {
        self.log.group_rows = self.log.group_rows.saturating_sub(1);
        self.take(name, bytes);
    }

    fn put(&mut self, name: &[u8], value: &[u8], old: Option<usize>) {
        let old = old.map_or(0, |old| name.len() + old) as u64;
        let new = (name.len() + value.len()) as u64;
        self.header.bytes = self.header.bytes.saturating_sub(old).saturating_add(new);
        self.state.store.meter().count_moved(value.len());
        self.state.store.put_row(self.header.id, name, value);
    }

    fn take(&mut self, name: &[u8], bytes: usize) {
        let bytes = (name.len() + bytes) as u64;
        self.header.bytes = self.header.bytes.saturating_sub(bytes);
        self.state.store.remove_row(self.header.id, name);
    }

    /// Writes the header, which gives the key the command's version.
    pub(super) fn close(self) {
        let Self { state, key, header, log, deadline, wakes } = self;
        let header = Header { log: Some(log), ..header };
        state.set(key, &header.to_bytes(), deadline, Kind::Stream);
        if wakes {
            state.notify_blocked_readers(key);
        }
    }
}
