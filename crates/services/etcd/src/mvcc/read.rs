//! Lookup of key records at the current or an earlier revision.

use std::ops::ControlFlow;

use bytes::Bytes;

use super::{
    base::Mvcc,
    layout::{
        Record, Revision, current_end, current_key, current_place, history_end, history_end_of,
        history_place, history_place_at, parse_history,
    },
};
use crate::proto::mvccpb::KeyValue;

/// Keys that a request selects.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KeySelection<'k> {
    Single(&'k [u8]),
    /// Start key and exclusive end; `None` if the range has no end.
    Span(&'k [u8], Option<&'k [u8]>),
}

impl<'k> KeySelection<'k> {
    /// Decodes the range of a request: a single key without a range end, unbounded with a range end
    /// of one zero byte.
    pub fn from_range(key: &'k [u8], range_end: &'k [u8]) -> Self {
        match range_end {
            [] => Self::Single(key),
            [0] => Self::Span(key, None),
            end => Self::Span(key, Some(end)),
        }
    }
}

impl KeySelection<'_> {
    pub fn contains(&self, key: &[u8]) -> bool {
        match *self {
            Self::Single(one) => key == one,
            Self::Span(from, to) => key >= from && to.is_none_or(|to| key < to),
        }
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FoundRecord {
    pub key: Bytes,
    pub record: Record,
}

impl From<FoundRecord> for KeyValue {
    fn from(found: FoundRecord) -> Self {
        let FoundRecord { key, record } = found;
        Self {
            key,
            create_revision: record.created_revision,
            mod_revision: record.revision.main,
            version: record.version,
            value: record.value,
            lease: record.lease,
        }
    }
}

/// A visitor of keys and records.
pub(super) type RecordVisitor<'v> = dyn FnMut(&[u8], Record) -> ControlFlow<()> + 'v;
/// A visitor that is also called for keys without a record at the revision, so that they count as
/// work.
pub(super) type PastRecordVisitor<'v> = dyn FnMut(&[u8], Option<Record>) -> ControlFlow<()> + 'v;

impl Mvcc {
    pub(super) fn current_record(&self, key: &[u8]) -> Option<Record> {
        Record::decode(&self.store.get(&current_place(key))?)
    }

    /// Returns the record of a key at the end of `revision`, if it exists then.
    pub(super) fn record_at_revision(&self, key: &[u8], revision: i64) -> Option<Record> {
        match self.current_record(key) {
            Some(record) if record.revision.main <= revision => Some(record),
            _ => self.past_record(key, revision),
        }
    }

    /// Looks up the record of a key at the end of `revision` in its history.
    fn past_record(&self, key: &[u8], revision: i64) -> Option<Record> {
        let newest = Revision { main: revision, sub: u64::MAX };
        let (_, bytes) = self.store.first(&history_place_at(key, newest), &history_end_of(key))?;
        Record::decode(&bytes)
    }

    /// Visits the current keys, in order.
    pub(super) fn visit_current(&self, keys: KeySelection<'_>, visit: &mut RecordVisitor<'_>) {
        match keys {
            KeySelection::Single(key) => {
                if let Some(record) = self.current_record(key) {
                    let _ = visit(key, record);
                }
            }
            KeySelection::Span(from, to) => {
                let to = to.map_or_else(|| current_end().to_vec(), current_place);
                self.store.scan(
                    &current_place(from),
                    &to,
                    &mut |place, bytes| match Record::decode(bytes) {
                        Some(record) => visit(current_key(place), record),
                        None => ControlFlow::Continue(()),
                    },
                );
            }
        }
    }

    /// Visits all present and former keys, in order, with their records at the end of `revision`.
    pub(super) fn visit_at_revision(
        &self,
        keys: KeySelection<'_>,
        revision: i64,
        visit: &mut PastRecordVisitor<'_>,
    ) {
        let (from, to) = match keys {
            KeySelection::Single(key) => {
                let _ = visit(key, self.record_at_revision(key, revision));
                return;
            }
            KeySelection::Span(from, to) => (from, to),
        };
        // The current keys, and before each of them the keys with only history.
        let mut next = self.next_historic_key(&history_place(from), to);
        let mut over = false;
        let mut visit_until = |before: Option<&[u8]>, visit: &mut PastRecordVisitor<'_>| {
            while let Some(key) = next.take_if(|key| before.is_none_or(|before| &**key < before)) {
                let record = self.past_record(&key, revision);
                next = self.next_historic_key(&history_end_of(&key), to);
                if visit(&key, record).is_break() {
                    return ControlFlow::Break(());
                }
            }
            // A current key with history is visited once, as a current key.
            if let Some(before) = before
                && next.as_deref() == Some(before)
            {
                next = self.next_historic_key(&history_end_of(before), to);
            }
            ControlFlow::Continue(())
        };
        let end = to.map_or_else(|| current_end().to_vec(), current_place);
        self.store.scan(&current_place(from), &end, &mut |place, bytes| {
            let key = current_key(place);
            if visit_until(Some(key), visit).is_break() {
                over = true;
                return ControlFlow::Break(());
            }
            let record = Record::decode(bytes)
                .filter(|record| record.revision.main <= revision)
                .or_else(|| self.past_record(key, revision));
            let step = visit(key, record);
            over = step.is_break();
            step
        });
        if !over {
            let _ = visit_until(None, visit);
        }
    }

    /// Returns the first key with history from `from` (inclusive) to `to` (exclusive).
    fn next_historic_key(&self, from: &[u8], to: Option<&[u8]>) -> Option<Vec<u8>> {
        let end = to.map_or_else(|| history_end().to_vec(), history_place);
        let (place, _) = self.store.first(from, &end)?;
        parse_history(&place).map(|(key, _)| key)
    }
}
