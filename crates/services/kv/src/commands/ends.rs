//! Deadlines of hash fields: their storage, and the removal of expired fields.
//!
//! The deadline of a field has two rows, one by field and one by time. Both sort before the rows of
//! fields: those begin with a position, which is never 0. A field whose deadline is at or before
//! the group's time does not exist ([time-2]), although it stays stored until a command overwrites
//! it or [`remove_expired_fields`] removes it.

use std::ops::ControlFlow;

use super::{events::class, state::WriteContext, view::View};
use crate::{
    key::Key,
    store::{
        Bytes, DeadlineKind, Span, Stamp, Store,
        collection::{FieldDeadlines, Header},
    },
};

/// Prefix of deadline rows by field, followed by the name of the field's row.
const BY_FIELD: [u8; 7] = [0, 0, 0, 0, 0, 0, 0];
/// Prefix of deadline rows by time, followed by the deadline and the name of the field's row.
const BY_TIME: [u8; 7] = [0, 0, 0, 0, 0, 0, 1];
/// Exclusive upper bound of all deadline rows.
const AFTER_DEADLINES: [u8; 7] = [0, 0, 0, 0, 0, 0, 2];

pub(super) fn by_field(name: &[u8]) -> Vec<u8> {
    [&BY_FIELD, name].concat()
}

pub(super) fn by_time(deadline: u64, name: &[u8]) -> Vec<u8> {
    [&BY_TIME[..], &deadline.to_be_bytes(), name].concat()
}

/// Splits the name of a row by time into the deadline and the name of the field's row. Missing
/// bytes of a name count as zeros, as they do in the sort order; no such name is ever written.
fn parse(by_time: &[u8]) -> (u64, &[u8]) {
    let rest = by_time.get(BY_TIME.len()..).unwrap_or_default();
    let (deadline, name) = rest.split_at(rest.len().min(8));
    let mut bytes = [0; 8];
    bytes[..deadline.len()].copy_from_slice(deadline);
    (u64::from_be_bytes(bytes), name)
}

impl<'s> View<'s> {
    /// Returns the row of an element. Returns `None` if the element is absent or expired.
    pub(super) fn row(&self, name: &[u8]) -> Option<Bytes<'s>> {
        if self.has_expired_field() && self.is_expired(name) {
            return None;
        }
        self.stored_row(name)
    }

    /// Returns the number of elements that have not expired.
    pub(super) fn count(&self) -> u64 {
        self.header.count.saturating_sub(self.count_expired())
    }

    fn is_timed(&self) -> bool {
        self.header.field_deadlines.is_some_and(|timed| timed.fields > 0)
    }

    /// Returns whether any stored field has expired.
    pub(super) fn has_expired_field(&self) -> bool {
        let timed = self.header.field_deadlines.filter(|timed| timed.fields > 0);
        timed.is_some_and(|timed| timed.next <= self.store.time())
    }

    pub(super) fn field_deadline(&self, name: &[u8]) -> Option<u64> {
        if !self.is_timed() {
            return None;
        }
        let row = self.stored_row(&by_field(name))?;
        Some(u64::from_le_bytes(*row.first_chunk()?))
    }

    /// [time-2] Returns whether the stored field with row name `name` has expired.
    pub(super) fn is_expired(&self, name: &[u8]) -> bool {
        let deadline = self.field_deadline(name);
        deadline.is_some_and(|deadline| deadline <= self.store.time())
    }

    /// Visits the deadline rows of expired fields, earliest first.
    fn visit_expired(&self, visit: &mut dyn FnMut(&[u8]) -> ControlFlow<()>) {
        let Some(timed) = self.header.field_deadlines.filter(|_| self.has_expired_field()) else {
            return;
        };
        let from = by_time(timed.next, b"");
        let behind = match self.store.time().checked_add(1) {
            Some(later) => by_time(later, b""),
            None => AFTER_DEADLINES.to_vec(),
        };
        let span = Span { from: &from, to: Some(&behind), is_backward: false };
        self.rows(span, &mut |name, _| visit(name));
    }

    /// Counts the expired fields that are still stored. Walks over all of them.
    pub(super) fn count_expired(&self) -> u64 {
        let mut ended = 0;
        self.visit_expired(&mut |_| {
            ended += 1;
            ControlFlow::Continue(())
        });
        ended
    }

    /// Returns the earliest deadline at or after `from`, or the latest of all if `back`.
    fn outermost(&self, from: u64, back: bool) -> Option<u64> {
        let from = by_time(from, b"");
        let span = Span { from: &from, to: Some(&AFTER_DEADLINES), is_backward: back };
        let mut found = None;
        self.rows(span, &mut |name, _| {
            found = Some(parse(name).0);
            ControlFlow::Break(())
        });
        found
    }
}

/// Updates the header after a change to the deadlines of fields. Returns it with the effective
/// deadline of the key, given the deadline `own` set on the key itself.
pub(super) fn updated_header(
    store: &dyn Store,
    header: Header,
    own: Option<u64>,
) -> (Header, Option<u64>) {
    let Some(timed) = header.field_deadlines else {
        return (header, own);
    };
    let view = View { store, header };
    let first = (timed.fields > 0).then(|| view.outermost(timed.next, false));
    let timed = match first.flatten() {
        Some(next) => FieldDeadlines { next, ..timed },
        None => FieldDeadlines { fields: 0, next: 0, ..timed },
    };
    // If all fields have deadlines, the hash expires with the last one.
    let all = timed.fields > 0 && timed.fields >= header.count;
    let last = all.then(|| view.outermost(timed.next, true)).flatten();
    let end = [own, last].into_iter().flatten().min();
    let timed = FieldDeadlines { deadline: own, ..timed };
    let is_timed = timed.fields > 0 || timed.removed > 0;
    let timed = is_timed.then_some(timed);
    (Header { field_deadlines: timed, ..header }, end)
}

/// Removes up to `most` expired fields, beginning with the hash that has the earliest deadline.
/// Returns the number of removed fields. The choice depends only on the data and the group's time.
pub(super) fn remove_expired_fields(state: &mut WriteContext<'_>, most: usize) -> usize {
    let mut hashes: Vec<Box<[u8]>> = Vec::new();
    if most > 0 {
        let now_ms = state.store.time();
        state.store.deadlines(DeadlineKind::Fields, 0, now_ms, &mut |_, key| {
            hashes.push(key.into());
            match hashes.len() < most {
                true => ControlFlow::Continue(()),
                false => ControlFlow::Break(()),
            }
        });
    }
    let mut removed = 0;
    for key in &hashes {
        if removed < most
            && let Ok(key) = Key::new(key)
        {
            removed += remove_expired_of(state, key, most - removed);
        }
    }
    removed
}

/// Removes up to `most` expired fields of a hash and returns their number. The hash keeps its
/// version, because the removal is invisible to clients.
fn remove_expired_of(state: &mut WriteContext<'_>, key: Key<'_>, most: usize) -> usize {
    let store = &mut *state.store;
    let Some(entry) = store.stored(key) else {
        return 0;
    };
    let (version, kind) = (entry.version, entry.kind);
    let Some(mut header) = Header::from_bytes(&entry.value) else {
        return 0;
    };
    drop(entry);
    let Some(mut timed) = header.field_deadlines else {
        return 0;
    };
    let mut ended: Vec<Vec<u8>> = Vec::new();
    View { store, header }.visit_expired(&mut |name| {
        ended.push(name.to_vec());
        match ended.len() < most {
            true => ControlFlow::Continue(()),
            false => ControlFlow::Break(()),
        }
    });
    for by_time in &ended {
        let (_, name) = parse(by_time);
        store.remove_row(header.id, by_time);
        store.remove_row(header.id, &by_field(name));
        let old = View { store, header }.stored_row(name).map(|old| old.len());
        if let Some(old) = old {
            store.remove_row(header.id, name);
            header.count = header.count.saturating_sub(1);
            let bytes = (name.len() + old) as u64;
            header.bytes = header.bytes.saturating_sub(bytes);
        }
        timed.fields = timed.fields.saturating_sub(1);
        timed.removed = timed.removed.saturating_add(1);
    }
    header.field_deadlines = Some(timed);
    let (header, deadline) = updated_header(store, header, timed.deadline);
    if header.count == 0 {
        store.take(key);
    } else {
        let stamp = Stamp { version, deadline, kind };
        store.set(key, &header.to_bytes(), stamp);
    }
    if !ended.is_empty() {
        state.notify_changed(key);
        state.event(class::HASH, "hexpired", key);
    }
    ended.len()
}
