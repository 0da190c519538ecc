//! The watchers of one stream, with their keys and progress.

use std::{
    collections::{BTreeMap, BTreeSet},
    ops::Bound,
};

use bytes::Bytes;
use prost::Message as _;

use crate::{
    front::{
        counters::CountGuard,
        hub::{EventBatch, PrevRegistration},
        memory::MemoryShare,
        settings::REQUEST_BYTES_MAX,
    },
    mvcc::KeySelection,
    proto::{
        etcdserverpb::{WatchCreateRequest, watch_create_request::FilterType},
        mvccpb::{Event, event::EventType},
    },
};

#[derive(Debug)]
pub(super) struct Watcher {
    key: Bytes,
    range_end: Bytes,
    skips_puts: bool,
    skips_deletes: bool,
    /// Registration as a recipient of previous key-value pairs, if requested.
    prev_registration: Option<PrevRegistration>,
    /// Set if the client accepts the events of a revision in fragments.
    accepts_fragments: bool,
    /// Set if the client requested progress notifications.
    wants_progress: bool,
    /// Set if no event has been sent since the last check.
    pub(super) is_quiet: bool,
    /// First revision that has not been sent.
    next: i64,
    /// Memory of the watcher, and the guard that counts it.
    _held: (MemoryShare, CountGuard),
}

/// Approximate memory of a watcher without its keys, in bytes.
const WATCHER_MEMORY_BYTES: usize = 512;

/// Returns the approximate memory of a requested watcher, in bytes.
pub(super) fn watcher_bytes(request: &WatchCreateRequest) -> usize {
    WATCHER_MEMORY_BYTES + request.key.len() + request.range_end.len()
}

impl Watcher {
    pub(super) fn new(
        request: &WatchCreateRequest,
        next: i64,
        prev: Option<PrevRegistration>,
        held: (MemoryShare, CountGuard),
    ) -> Result<Self, &'static str> {
        // A watcher without a key covers all keys.
        let key = match request.key.is_empty() {
            true => Bytes::from_static(&[0]),
            // Copied, so that the request's buffer can be released.
            false => Bytes::copy_from_slice(&request.key),
        };
        let range_end = Bytes::copy_from_slice(&request.range_end);
        if let KeySelection::Span(from, Some(to)) = KeySelection::from_range(&key, &range_end)
            && from >= to
        {
            return Err("mvcc: watcher range is empty");
        }
        let has = |filter: FilterType| request.filters.contains(&filter.into());
        Ok(Self {
            skips_puts: has(FilterType::Noput),
            skips_deletes: has(FilterType::Nodelete),
            prev_registration: prev,
            accepts_fragments: request.fragment,
            wants_progress: request.progress_notify,
            is_quiet: true,
            next,
            key,
            range_end,
            _held: held,
        })
    }

    fn keys(&self) -> KeySelection<'_> {
        KeySelection::from_range(&self.key, &self.range_end)
    }

    /// Returns whether the watcher needs previous key-value pairs that the batch lacks.
    const fn lacks_previous(&self, batch: &EventBatch) -> bool {
        self.prev_registration.is_some() && !batch.has_previous
    }

    /// Returns the event as sent to the watcher, unless the watcher filters it out.
    fn filter_event(&self, event: &Event) -> Option<Event> {
        let kv = event.kv.as_ref()?;
        let deletes = event.r#type == i32::from(EventType::Delete);
        let filtered = match deletes {
            true => self.skips_deletes,
            false => self.skips_puts,
        };
        if filtered || kv.mod_revision < self.next || !self.keys().contains(&kv.key) {
            return None;
        }
        let mut event = event.clone();
        if self.prev_registration.is_none() {
            event.prev_kv = None;
        }
        Some(event)
    }

    /// Splits events into responses: a single one, unless they are large and the client accepts
    /// fragments.
    pub(super) fn split_responses(&self, events: Vec<Event>) -> Vec<Vec<Event>> {
        if !self.accepts_fragments {
            return vec![events];
        }
        let (mut parts, mut part, mut bytes) = (Vec::new(), Vec::new(), 0);
        for event in events {
            let length = event.encoded_len() + 8;
            if !part.is_empty() && bytes + length > REQUEST_BYTES_MAX {
                parts.push(std::mem::take(&mut part));
                bytes = 0;
            }
            bytes += length;
            part.push(event);
        }
        parts.push(part);
        parts
    }
}

/// Index of events by key, so that a watcher finds its events without visiting all of them.
#[derive(Debug)]
pub(super) struct EventsByKey<'e> {
    events: &'e [Event],
    indexes: BTreeMap<&'e [u8], Vec<usize>>,
}

impl<'e> EventsByKey<'e> {
    pub(super) fn new(events: &'e [Event]) -> Self {
        let mut indexes = BTreeMap::<&[u8], Vec<usize>>::new();
        for (at, event) in events.iter().enumerate() {
            if let Some(kv) = &event.kv {
                indexes.entry(&kv.key).or_default().push(at);
            }
        }
        Self { events, indexes }
    }

    fn keys(&self) -> impl Iterator<Item = &'e [u8]> {
        self.indexes.keys().copied()
    }

    fn events_for(&self, keys: KeySelection<'_>) -> Vec<&'e Event> {
        let mut places: Vec<usize> = match keys {
            KeySelection::Single(key) => self.indexes.get(key).cloned().unwrap_or_default(),
            KeySelection::Span(from, to) => {
                let to = to.map_or(Bound::Unbounded, Bound::Excluded);
                let range = self.indexes.range::<[u8], _>((Bound::Included(from), to));
                range.flat_map(|(_, places)| places).copied().collect()
            }
        };
        places.sort_unstable();
        let found = places.into_iter();
        found.filter_map(|at| self.events.get(at)).collect()
    }
}

/// Range of events that lagging watchers have to read from history.
#[derive(Debug)]
pub(super) struct MissingEvents {
    /// First revision whose events are needed.
    pub(super) next: i64,
    /// Set if previous key-value pairs are needed.
    pub(super) needs_previous: bool,
    /// First key of the range; empty for all keys.
    pub(super) key: Bytes,
    pub(super) range_end: Bytes,
    /// Watchers that need these events.
    pub(super) watcher_ids: Vec<i64>,
}

#[derive(Debug, Default)]
pub(super) struct Watchers {
    by_id: BTreeMap<i64, Watcher>,
    /// Watchers of single keys, by key.
    single_key_watchers: BTreeMap<Bytes, BTreeSet<i64>>,
    /// Watchers of ranges.
    range_watchers: BTreeSet<i64>,
    /// All watchers by progress, as pairs of next revision and id.
    by_next_revision: BTreeSet<(i64, i64)>,
    last_id: i64,
}

impl Watchers {
    pub(super) fn len(&self) -> usize {
        self.by_id.len()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.by_id.is_empty()
    }

    pub(super) fn ranges(&self) -> Vec<(i64, (Bytes, Bytes))> {
        let ranges = self.by_id.iter();
        let ranges = ranges.map(|(id, one)| (*id, (one.key.clone(), one.range_end.clone())));
        ranges.collect()
    }

    /// Adds a watcher under `id`, or under an unused id if `id` is 0.
    pub(super) fn add(&mut self, id: i64, watcher: Watcher) -> Result<i64, &'static str> {
        let id = match id {
            0 => {
                // The first id is 0, as clients expect.
                while self.by_id.contains_key(&self.last_id) {
                    self.last_id += 1;
                }
                let free = self.last_id;
                self.last_id += 1;
                free
            }
            id if self.by_id.contains_key(&id) => {
                return Err("mvcc: duplicate watch ID provided on the WatchStream");
            }
            id => id,
        };
        match watcher.keys() {
            KeySelection::Single(_) => {
                let same = self.single_key_watchers.entry(watcher.key.clone()).or_default();
                same.insert(id);
            }
            KeySelection::Span(..) => {
                self.range_watchers.insert(id);
            }
        }
        self.by_next_revision.insert((watcher.next, id));
        self.by_id.insert(id, watcher);
        Ok(id)
    }

    pub(super) fn get_mut(&mut self, id: i64) -> Option<&mut Watcher> {
        self.by_id.get_mut(&id)
    }

    pub(super) fn remove(&mut self, id: i64) -> Option<Watcher> {
        let watcher = self.by_id.remove(&id)?;
        self.by_next_revision.remove(&(watcher.next, id));
        self.range_watchers.remove(&id);
        if let Some(same) = self.single_key_watchers.get_mut(&watcher.key) {
            same.remove(&id);
            if same.is_empty() {
                self.single_key_watchers.remove(&watcher.key);
            }
        }
        Some(watcher)
    }

    /// Records that all events before revision `next` have been sent to a watcher.
    pub(super) fn advance_watcher(&mut self, id: i64, next: i64) {
        if let Some(watcher) = self.by_id.get_mut(&id)
            && watcher.next < next
        {
            self.by_next_revision.remove(&(watcher.next, id));
            watcher.next = next;
            self.by_next_revision.insert((next, id));
        }
    }

    /// Returns whether any watcher lags behind revision `seen`.
    pub(super) fn has_lagging(&self, seen: i64) -> bool {
        self.by_next_revision.first().is_some_and(|(next, _)| *next <= seen)
    }

    /// Returns the events to read next for watchers that lag behind revision `seen`: those of all
    /// watchers at the lowest revision.
    pub(super) fn next_missing(&self, seen: i64) -> Option<MissingEvents> {
        let (next, _) = *self.by_next_revision.first().filter(|(next, _)| *next <= seen)?;
        let level = self.by_next_revision.range((next, i64::MIN)..=(next, i64::MAX));
        let ids: Vec<i64> = level.map(|(_, id)| *id).collect();
        let first = self.by_id.get(ids.first()?)?;
        // A single watcher reads only its own keys.
        let (key, range_end) = match ids.len() {
            1 => (first.key.clone(), first.range_end.clone()),
            _ => (Bytes::new(), Bytes::new()),
        };
        let prev = ids.iter().filter_map(|id| self.by_id.get(id));
        Some(MissingEvents {
            next,
            needs_previous: prev.into_iter().any(|watcher| watcher.prev_registration.is_some()),
            key,
            range_end,
            watcher_ids: ids,
        })
    }

    /// Returns the watchers that need events before `revision`.
    pub(super) fn watchers_behind(&self, revision: i64) -> Vec<i64> {
        let before = self.by_next_revision.range(..(revision, i64::MIN));
        before.map(|(_, id)| *id).collect()
    }

    /// Returns the caught-up watchers with events in a batch. One that needs previous key-value
    /// pairs that the batch lacks is omitted, and reads history instead.
    pub(super) fn watchers_to_notify(
        &self,
        batch: &EventBatch,
        events: &EventsByKey<'_>,
        seen: i64,
    ) -> Vec<i64> {
        let single = events.keys().filter_map(|key| self.single_key_watchers.get(key));
        let ids = single.flatten().chain(&self.range_watchers).copied();
        let is_told = |id: &i64| {
            let watcher = self.by_id.get(id);
            watcher.is_some_and(|watcher| watcher.next > seen && !watcher.lacks_previous(batch))
        };
        ids.filter(is_told).collect()
    }

    /// Returns a watcher's events in a batch.
    pub(super) fn watcher_events(&self, id: i64, events: &EventsByKey<'_>) -> Vec<Event> {
        let Some(watcher) = self.by_id.get(&id) else {
            return Vec::new();
        };
        let found = events.events_for(watcher.keys()).into_iter();
        found.filter_map(|event| watcher.filter_event(event)).collect()
    }

    /// Advances the caught-up watchers to the end of a batch that has been sent.
    pub(super) fn advance_caught_up(&mut self, batch: &EventBatch, seen: i64) {
        let level = self.by_next_revision.range((seen + 1, i64::MIN)..);
        let level = level.filter(|(next, id)| {
            let watcher = self.by_id.get(id);
            *next <= batch.to && watcher.is_some_and(|watcher| !watcher.lacks_previous(batch))
        });
        let level: Vec<i64> = level.map(|(_, id)| *id).collect();
        for id in level {
            self.advance_watcher(id, batch.to + 1);
        }
    }

    /// Returns the caught-up watchers that requested progress notifications and received no events
    /// since the last call.
    pub(super) fn take_idle(&mut self, seen: i64) -> Vec<i64> {
        let mut quiet = Vec::new();
        for (id, watcher) in &mut self.by_id {
            if watcher.wants_progress && watcher.is_quiet && watcher.next > seen {
                quiet.push(*id);
            }
            watcher.is_quiet = true;
        }
        quiet
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::{front::memory::MemoryBudget, proto::mvccpb::KeyValue};

    fn put(key: &str, mod_revision: i64) -> Event {
        Event {
            kv: Some(KeyValue { key: key.to_owned().into(), mod_revision, ..KeyValue::default() }),
            ..Event::default()
        }
    }

    fn watchers(of: &[(&str, &str, i64)]) -> Watchers {
        let memory = MemoryBudget::new(1 << 20);
        let mut all = Watchers::default();
        for (key, end, next) in of {
            let request = WatchCreateRequest {
                key: (*key).to_owned().into(),
                range_end: (*end).to_owned().into(),
                ..WatchCreateRequest::default()
            };
            let share = memory.try_reserve(watcher_bytes(&request)).expect("there is room");
            let counted = CountGuard::count_up(&Arc::default(), |counters| &counters.watcher_count);
            let watcher =
                Watcher::new(&request, *next, None, (share, counted)).expect("it makes sense");
            all.add(0, watcher).expect("the id is free");
        }
        all
    }

    /// Each watcher receives only its own events of a batch, in order, without visiting the others.
    #[test]
    fn watchers_receive_only_their_events_in_order() {
        let mut all = watchers(&[("a", "", 5), ("a", "c", 5), ("", "\0", 7), ("x", "", 5)]);
        let events = vec![put("b", 5), put("a", 5), put("a", 6), put("d", 7)];
        let batch = EventBatch { from: 5, to: 7, events, has_previous: false, memory_share: None };
        let events = EventsByKey::new(&batch.events);
        let told = |all: &Watchers, id| {
            let told = all.watcher_events(id, &events).into_iter().filter_map(|event| event.kv);
            let said =
                told.map(|kv| (String::from_utf8(kv.key.to_vec()).expect("text"), kv.mod_revision));
            said.collect::<Vec<_>>()
        };
        let said = |key: &str, revision| (key.to_owned(), revision);
        let mut concerned = all.watchers_to_notify(&batch, &events, 4);
        concerned.sort_unstable();
        assert_eq!(concerned, [0, 1, 2], "x concerns none of them");
        assert_eq!(told(&all, 0), [said("a", 5), said("a", 6)]);
        assert_eq!(told(&all, 1), [said("b", 5), said("a", 5), said("a", 6)]);
        assert_eq!(told(&all, 2), [said("d", 7)]);
        all.advance_caught_up(&batch, 4);
        assert!(!all.has_lagging(7));
        assert!(all.has_lagging(8));
        // A lagging watcher does not get a batch.
        let later = watchers(&[("a", "", 3)]);
        assert_eq!(later.watchers_to_notify(&batch, &events, 4), [0_i64; 0]);
        assert!(later.has_lagging(4));
    }
}
