//! Access of write commands to a collection: its header and its rows.
//!
//! Every change of rows also writes the header in the same atomic unit, because the header contains
//! the count, and WATCH compares its version.

use std::ops::ControlFlow;

pub(super) use super::view::{View, lock_record, view};
use super::{
    ends::{by_field, by_time, updated_header},
    events::class,
    selection::within,
    state::{WriteContext, WrongType},
    view::entry,
};
use crate::{
    encode::Fault,
    key::Key,
    resp::reply::Reply,
    store::{
        Database, Position, Span, VisitRow,
        collection::{FieldDeadlines, Header, Kind},
    },
};

/// Budget charge, beyond its bytes, for a changed row that is not an argument of the command.
const ROW_BYTES: u64 = 96;
/// Number of rows copied at a time.
const COPIED_ROWS: usize = 1024;

/// Returns the budget charge for `rows` rows with `bytes` bytes in total.
pub(super) fn cost(rows: u64, bytes: u64) -> usize {
    let cost = rows.saturating_mul(ROW_BYTES).saturating_add(bytes);
    usize::try_from(cost).unwrap_or(usize::MAX)
}

/// Collection that is being changed. [`Change::close`] must be called to write the header.
pub(super) struct Change<'w, 'a> {
    pub(super) state: &'w mut WriteContext<'a>,
    key: Key<'w>,
    kind: Kind,
    pub(super) header: Header,
    /// Deadline of the key itself, as opposed to those of its fields.
    deadline: Option<u64>,
    existed: bool,
}

impl<'w, 'a> Change<'w, 'a> {
    /// Opens the collection at a key, if there is one.
    pub(super) fn find(
        state: &'w mut WriteContext<'a>,
        key: Key<'w>,
        kind: Kind,
        reply: &mut Reply<'_>,
    ) -> Result<Option<Self>, WrongType> {
        let entry = entry(state.store, key, kind, reply)?;
        let found = entry.and_then(|entry| {
            let header = Header::from_bytes(&entry.value)?;
            let deadline = header.field_deadlines.map_or(entry.deadline, |timed| timed.deadline);
            Some((header, deadline))
        });
        Ok(found.map(|(header, deadline)| Self {
            state,
            key,
            kind,
            header,
            deadline,
            existed: true,
        }))
    }

    pub(super) fn open(
        state: &'w mut WriteContext<'a>,
        key: Key<'w>,
        kind: Kind,
        reply: &mut Reply<'_>,
    ) -> Result<Self, WrongType> {
        let entry = entry(state.store, key, kind, reply)?;
        let found = entry.and_then(|entry| {
            let header = Header::from_bytes(&entry.value)?;
            let deadline = header.field_deadlines.map_or(entry.deadline, |timed| timed.deadline);
            Some((header, deadline))
        });
        if let Some((header, deadline)) = found {
            return Ok(Self { state, key, kind, header, deadline, existed: true });
        }
        Ok(Self::new(state, key, kind))
    }

    /// Creates a collection. It will replace any value of the key.
    pub(super) fn new(state: &'w mut WriteContext<'a>, key: Key<'w>, kind: Kind) -> Self {
        let header = Header {
            id: state.begin(),
            count: 0,
            bytes: 0,
            first: if kind == Kind::List { 1 << 63 } else { 0 },
            field_deadlines: None,
            log: None,
        };
        Self { state, key, kind, header, deadline: None, existed: false }
    }

    pub(super) const fn deadline(&self) -> Option<u64> {
        self.deadline
    }

    pub(super) const fn until(mut self, deadline: Option<u64>) -> Self {
        self.deadline = deadline;
        self
    }

    pub(super) fn event(&mut self, class: u32, name: &str) {
        self.state.event(class, name, self.key);
    }

    pub(super) fn view(&self) -> View<'_> {
        View { store: self.state.store, header: self.header }
    }

    /// Sets the row of an element and removes its deadline. Returns whether the element is new.
    pub(super) fn put(&mut self, name: &[u8], value: &[u8]) -> bool {
        self.remove_if_expired(name);
        self.clear_deadline(name);
        let old = self.view().row(name).map(|old| old.len());
        self.put_known(name, value, old);
        old.is_none()
    }

    /// Sets the row of an element and keeps its deadline. `old` is the length of the replaced
    /// value.
    pub(super) fn put_known(&mut self, name: &[u8], value: &[u8], old: Option<usize>) {
        let added = match old {
            None => {
                self.remove_if_expired(name);
                self.header.count += 1;
                (name.len() + value.len()) as u64
            }
            Some(old) => {
                self.header.bytes = self.header.bytes.saturating_sub(old as u64);
                value.len() as u64
            }
        };
        self.header.bytes = self.header.bytes.saturating_add(added);
        self.state.store.meter().count_moved(value.len());
        self.state.store.put_row(self.header.id, name, value);
    }

    /// Removes the row of an element and returns whether it existed.
    pub(super) fn remove(&mut self, name: &[u8]) -> bool {
        let old = self.view().row(name).map(|old| old.len());
        if let Some(old) = old {
            self.clear_deadline(name);
            self.remove_known(name, old);
        }
        old.is_some()
    }

    /// Removes the row of an element whose value has `old` bytes.
    pub(super) fn remove_known(&mut self, name: &[u8], old: usize) {
        let bytes = (name.len() + old) as u64;
        self.header.count = self.header.count.saturating_sub(1);
        self.header.bytes = self.header.bytes.saturating_sub(bytes);
        self.state.store.remove_row(self.header.id, name);
    }

    pub(super) fn put_extra(&mut self, name: &[u8], value: &[u8]) {
        self.state.store.put_row(self.header.id, name, value);
    }

    pub(super) fn remove_extra(&mut self, name: &[u8]) {
        self.state.store.remove_row(self.header.id, name);
    }

    /// Removes the deadline of a field and returns it.
    pub(super) fn clear_deadline(&mut self, name: &[u8]) -> Option<u64> {
        let deadline = self.view().field_deadline(name)?;
        self.remove_extra(&by_field(name));
        self.remove_extra(&by_time(deadline, name));
        if let Some(timed) = &mut self.header.field_deadlines {
            timed.fields = timed.fields.saturating_sub(1);
        }
        Some(deadline)
    }

    pub(super) fn end_at(&mut self, name: &[u8], deadline: u64) {
        self.clear_deadline(name);
        self.put_extra(&by_field(name), &deadline.to_le_bytes());
        self.put_extra(&by_time(deadline, name), b"");
        let timed = self.header.field_deadlines.get_or_insert_default();
        timed.next = match timed.fields {
            0 => deadline,
            _ => timed.next.min(deadline),
        };
        timed.fields += 1;
    }

    pub(super) fn remove_if_expired(&mut self, name: &[u8]) {
        if !self.view().has_expired_field() || !self.view().is_expired(name) {
            return;
        }
        self.clear_deadline(name);
        let old = self.view().stored_row(name).map(|old| old.len());
        if let Some(old) = old {
            self.remove_known(name, old);
            self.event(class::HASH, "hexpired");
        }
    }

    /// Writes the header, or removes the key if the collection is empty.
    pub(super) fn close(self) {
        let Self { state, key, kind, header, deadline, existed } = self;
        if header.count > 0 {
            let timed = header.field_deadlines.map(|timed| FieldDeadlines { removed: 0, ..timed });
            let header = Header { field_deadlines: timed, ..header };
            let (header, end) = updated_header(state.store, header, deadline);
            state.set(key, &header.to_bytes(), end, kind);
        } else if existed {
            state.detach(key);
            state.event(class::GENERIC, "del", key);
        }
    }

    /// Writes the header of a new collection that replaces any value of the key.
    pub(super) fn close_in_place(self) {
        if self.header.count == 0 {
            self.state.delete(self.key);
        } else {
            self.close();
        }
    }
}

/// Copies all rows of a collection of the selected database to the database `to`, and returns the
/// header of the copy.
pub(super) fn copy_rows(
    state: &mut WriteContext<'_>,
    header: Header,
    to: Database,
) -> Result<Header, Fault> {
    // An element of any type has at most two rows, and a deadline has two.
    let deadlines = header.field_deadlines.map_or(0, |timed| timed.fields);
    let times = if deadlines > 0 { 4 } else { 2 };
    let rows = header.count.saturating_add(deadlines).saturating_mul(2);
    let rows = rows.saturating_add(header.log.map_or(0, |log| log.group_rows));
    state.budget.charge_bytes(cost(rows, header.bytes.saturating_mul(times)))?;
    let copy = Header { id: state.begin(), ..header };
    let mut from = Vec::new();
    loop {
        let mut rows: Vec<(Vec<u8>, Vec<u8>)> = Vec::new();
        let span = Span::from(&from);
        state.store.rows(header.id, span, &mut |name, value| {
            rows.push((name.to_vec(), value.to_vec()));
            match rows.len() < COPIED_ROWS {
                true => ControlFlow::Continue(()),
                false => ControlFlow::Break(()),
            }
        });
        within(state, to, |state| {
            rows.iter().for_each(|(name, value)| state.store.put_row(copy.id, name, value));
        });
        match rows.pop() {
            Some((last, _)) if rows.len() + 1 == COPIED_ROWS => from = after(last),
            _ => return Ok(copy),
        }
    }
}

pub(super) fn after(mut name: Vec<u8>) -> Vec<u8> {
    name.push(0);
    name
}

/// Returns the row name of a field or member. The name contains a position, computed as for keys,
/// so cursors are the same for keys and elements, and a draw can start anywhere. Part of the stored
/// format.
pub(super) fn placed(prefix: &[u8], member: &[u8]) -> Vec<u8> {
    [prefix, &Position::of(member).to_bytes(), member].concat()
}

pub(super) fn member_of<'n>(prefix: &[u8], name: &'n [u8]) -> &'n [u8] {
    name.get(prefix.len() + Position::BYTES..).unwrap_or_default()
}

/// Returns the exclusive upper bound of all names that start with `prefix`.
pub(super) fn behind(prefix: &[u8]) -> Option<Vec<u8>> {
    let (last, rest) = prefix.split_last()?;
    Some([rest, &[last.saturating_add(1)]].concat())
}

/// Visits the elements in order of position, without expired ones.
pub(super) fn each_placed(view: &View<'_>, prefix: &[u8], from: Position, each: &mut VisitRow<'_>) {
    let has_ended = view.has_expired_field();
    each_stored(view, prefix, from, &mut |name, value| {
        if has_ended && view.is_expired(name) {
            return ControlFlow::Continue(());
        }
        each(member_of(prefix, name), value)
    });
}

/// Visits the elements in order of position, with expired ones.
pub(super) fn each_stored(view: &View<'_>, prefix: &[u8], from: Position, each: &mut VisitRow<'_>) {
    // Rows below the first position contain deadlines.
    let from = [prefix, &from.max(Position::FIRST).to_bytes()].concat();
    let behind = behind(prefix);
    let span = Span { from: &from, to: behind.as_deref(), is_backward: false };
    view.rows(span, each);
}
