//! Watch events from a given revision on, read in pages.

use std::ops::ControlFlow;

use bytes::Bytes;

use super::{
    base::Mvcc,
    layout::{
        Change, Record, Revision, current_place, history_place_at, parse_revision, revision_place,
    },
    read::{FoundRecord, KeySelection},
};
use crate::{
    command::{Events, EventsRequest},
    proto::mvccpb::{Event, KeyValue, event::EventType},
    refusal::Refusal,
};

/// Maximum number of changes visited per page, unless a single transaction has more.
const VISITS_MAX: usize = 5_000;
/// Approximate maximum size of a page.
const PAGE_BYTES: usize = 1 << 20;

impl Mvcc {
    /// Returns the events from the requested revision on: as many whole transactions as fit on a
    /// page, but at least one.
    pub fn events(&self, request: &EventsRequest) -> Result<Events, Refusal> {
        if request.from < self.state.compacted_revision {
            return Err(Refusal::Compacted);
        }
        let keys = (!request.key.is_empty())
            .then(|| KeySelection::from_range(&request.key, &request.range_end));
        let (mut visits, mut bytes) = (0, 0);
        let mut events = Vec::new();
        let mut last = request.from.saturating_sub(1);
        let mut next = self.state.revision.saturating_add(1).max(request.from);
        let from = revision_place(Revision::first_of(request.from.max(0)));
        let to = revision_place(Revision::first_of(i64::MAX));
        self.store.scan(&from, &to, &mut |place, change| {
            let (Some(at), Some(change)) = (parse_revision(place), Change::decode(change)) else {
                return ControlFlow::Continue(());
            };
            if at.main != last && (visits >= VISITS_MAX || bytes >= PAGE_BYTES) {
                next = at.main;
                return ControlFlow::Break(());
            }
            (last, visits) = (at.main, visits + 1);
            if keys.is_none_or(|keys| keys.contains(&change.key))
                && let Some(event) = self.event(at, &change, request.prev_kv)
            {
                let prev = event.prev_kv.as_ref().map_or(0, |prev| prev.value.len());
                let value = event.kv.as_ref().map_or(0, |kv| kv.value.len());
                bytes += 64 + 2 * change.key.len() + value + prev;
                events.push(event);
            }
            ControlFlow::Continue(())
        });
        Ok(Events { revision: self.state.revision, next, events })
    }

    fn event(&self, at: Revision, change: &Change, prev_kv: bool) -> Option<Event> {
        let key = &change.key;
        let kv = match change.is_deletion {
            true => KeyValue { key: key.clone(), mod_revision: at.main, ..KeyValue::default() },
            false => {
                let record = self.record_at(key, at)?;
                let key = key.clone();
                FoundRecord { key, record }.into()
            }
        };
        let is_new = !change.is_deletion && kv.create_revision == at.main;
        // The previous record may have been removed by compaction.
        let known = at.main > self.state.compacted_revision;
        let before = (prev_kv && known && !is_new)
            .then(|| self.record_at_revision(key, at.main.saturating_sub(1)));
        let prev_kv = before.flatten().map(|record| {
            let key = key.clone();
            FoundRecord { key, record }.into()
        });
        let kind = match change.is_deletion {
            true => EventType::Delete,
            false => EventType::Put,
        };
        Some(Event { r#type: kind.into(), kv: Some(kv), prev_kv })
    }

    /// Returns the record that a change made, unless it deleted the key.
    pub(super) fn record_at(&self, key: &Bytes, at: Revision) -> Option<Record> {
        let now = self.store.get(&current_place(key));
        let now = now.as_ref().and_then(Record::decode);
        now.filter(|record| record.revision == at)
            .or_else(|| Record::decode(&self.store.get(&history_place_at(key, at))?))
    }
}
