//! The watchers of a stream: which events are for whom, and how far each is.

use std::collections::{BTreeMap, BTreeSet};

use bytes::Bytes;
use prost::Message as _;

use crate::{
    command::Events,
    front::{
        REQUEST_BYTES_MAX,
        hub::{Batch, WantsPrev},
    },
    mvcc::Keys,
    proto::{
        etcdserverpb::{WatchCreateRequest, watch_create_request::FilterType},
        mvccpb::{Event, event::EventType},
    },
};

/// One watcher.
#[derive(Debug)]
pub(super) struct Watcher {
    key: Bytes,
    range_end: Bytes,
    no_puts: bool,
    no_deletes: bool,
    /// It wants to know what keys had before.
    prev: Option<WantsPrev>,
    /// It takes the events of one revision in parts.
    fragment: bool,
    /// It wants to hear how far it is.
    progress: bool,
    /// It has heard nothing since it was looked at last.
    pub(super) is_quiet: bool,
    /// The first revision of which it was told nothing.
    next: i64,
}

impl Watcher {
    pub(super) fn new(
        request: &WatchCreateRequest,
        next: i64,
        prev: Option<WantsPrev>,
    ) -> Result<Self, &'static str> {
        // A watcher without a key is of all from the first one on.
        let key = match request.key.is_empty() {
            true => Bytes::from_static(&[0]),
            false => request.key.clone(),
        };
        let range_end = request.range_end.clone();
        if let Keys::Span(from, Some(to)) = Keys::of(&key, &range_end)
            && from >= to
        {
            return Err("mvcc: watcher range is empty");
        }
        let has = |filter: FilterType| request.filters.contains(&filter.into());
        Ok(Self {
            no_puts: has(FilterType::Noput),
            no_deletes: has(FilterType::Nodelete),
            prev,
            fragment: request.fragment,
            progress: request.progress_notify,
            is_quiet: true,
            next,
            key,
            range_end,
        })
    }

    fn keys(&self) -> Keys<'_> {
        Keys::of(&self.key, &self.range_end)
    }

    /// The event as this watcher is told of it, if it is.
    fn of(&self, event: &Event) -> Option<Event> {
        let kv = event.kv.as_ref()?;
        let deletes = event.r#type == i32::from(EventType::Delete);
        let filtered = match deletes {
            true => self.no_deletes,
            false => self.no_puts,
        };
        if filtered || kv.mod_revision < self.next || !self.keys().contain(&kv.key) {
            return None;
        }
        let mut event = event.clone();
        if self.prev.is_none() {
            event.prev_kv = None;
        }
        Some(event)
    }

    /// Events as answers that the client takes: one, unless it takes parts and they are large.
    pub(super) fn parts(&self, events: Vec<Event>) -> Vec<Vec<Event>> {
        if !self.fragment {
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

/// What those that are behind need.
#[derive(Debug)]
pub(super) struct Behind {
    /// From this revision on.
    pub(super) next: i64,
    /// What keys had before, too.
    pub(super) prev: bool,
    /// Of these keys; without a key, of all.
    pub(super) key: Bytes,
    pub(super) range_end: Bytes,
    /// Who that is.
    pub(super) ids: Vec<i64>,
}

/// Watchers by their ids.
#[derive(Debug, Default)]
pub(super) struct Watchers {
    all: BTreeMap<i64, Watcher>,
    /// Of one key each.
    single: BTreeMap<Bytes, BTreeSet<i64>>,
    /// Of more.
    spans: BTreeSet<i64>,
    /// By how far they are.
    order: BTreeSet<(i64, i64)>,
    last: i64,
}

impl Watchers {
    pub(super) fn len(&self) -> usize {
        self.all.len()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.all.is_empty()
    }

    /// Adds a watcher under this id, or under a free one if it is 0.
    pub(super) fn add(&mut self, id: i64, watcher: Watcher) -> Result<i64, &'static str> {
        let id = match id {
            0 => {
                // The first one is 0, as clients know it.
                while self.all.contains_key(&self.last) {
                    self.last += 1;
                }
                let free = self.last;
                self.last += 1;
                free
            }
            id if self.all.contains_key(&id) => {
                return Err("mvcc: duplicate watch ID provided on the WatchStream");
            }
            id => id,
        };
        match watcher.keys() {
            Keys::One(_) => {
                let same = self.single.entry(watcher.key.clone()).or_default();
                same.insert(id);
            }
            Keys::Span(..) => {
                self.spans.insert(id);
            }
        }
        self.order.insert((watcher.next, id));
        self.all.insert(id, watcher);
        Ok(id)
    }

    pub(super) fn get_mut(&mut self, id: i64) -> Option<&mut Watcher> {
        self.all.get_mut(&id)
    }

    pub(super) fn remove(&mut self, id: i64) -> Option<Watcher> {
        let watcher = self.all.remove(&id)?;
        self.order.remove(&(watcher.next, id));
        self.spans.remove(&id);
        if let Some(same) = self.single.get_mut(&watcher.key) {
            same.remove(&id);
            if same.is_empty() {
                self.single.remove(&watcher.key);
            }
        }
        Some(watcher)
    }

    fn advance(&mut self, id: i64, next: i64) {
        if let Some(watcher) = self.all.get_mut(&id)
            && watcher.next < next
        {
            self.order.remove(&(watcher.next, id));
            watcher.next = next;
            self.order.insert((next, id));
        }
    }

    /// What those need first that have not been told everything up to this revision. They are served with those that are as
    /// far as the first of them.
    pub(super) fn first_behind(&self, seen: i64) -> Option<Behind> {
        let (next, _) = *self.order.first().filter(|(next, _)| *next <= seen)?;
        let level = self.order.range((next, i64::MIN)..=(next, i64::MAX));
        let ids: Vec<i64> = level.map(|(_, id)| *id).collect();
        let first = self.all.get(ids.first()?)?;
        // One that is alone reads of its own keys.
        let (key, range_end) = match ids.len() {
            1 => (first.key.clone(), first.range_end.clone()),
            _ => (Bytes::new(), Bytes::new()),
        };
        let prev = ids.iter().filter_map(|id| self.all.get(id));
        Some(Behind {
            next,
            prev: prev.into_iter().any(|watcher| watcher.prev.is_some()),
            key,
            range_end,
            ids,
        })
    }

    /// Those that need what was before this revision.
    pub(super) fn before(&self, revision: i64) -> Vec<i64> {
        let before = self.order.range(..(revision, i64::MIN));
        before.map(|(_, id)| *id).collect()
    }

    /// Whom a batch tells what, of those that are level; they are as far as the batch then.
    pub(super) fn match_batch(&mut self, batch: &Batch, seen: i64) -> BTreeMap<i64, Vec<Event>> {
        let mut told: BTreeMap<i64, Vec<Event>> = BTreeMap::new();
        let mut tell = |id: i64, watcher: &Watcher, event: &Event| {
            // Whoever lacks what keys had before reads that from history.
            let lacks = watcher.prev.is_some() && !batch.has_prev;
            if watcher.next > seen
                && !lacks
                && let Some(event) = watcher.of(event)
            {
                told.entry(id).or_default().push(event);
            }
        };
        for event in &batch.events {
            let Some(kv) = &event.kv else { continue };
            let single = self.single.get(&kv.key).into_iter().flatten();
            for id in single.chain(&self.spans) {
                if let Some(watcher) = self.all.get(id) {
                    tell(*id, watcher, event);
                }
            }
        }
        let level = self.order.range((seen + 1, i64::MIN)..);
        let level = level.filter(|(next, id)| {
            let lacks = self
                .all
                .get(id)
                .is_some_and(|watcher| watcher.prev.is_some());
            *next <= batch.to && (batch.has_prev || !lacks)
        });
        let level: Vec<i64> = level.map(|(_, id)| *id).collect();
        for id in level {
            self.advance(id, batch.to + 1);
        }
        told
    }

    /// The same of a page of history, for those who asked for it.
    pub(super) fn match_page(&mut self, ids: &[i64], page: &Events) -> BTreeMap<i64, Vec<Event>> {
        let mut told = BTreeMap::new();
        for id in ids {
            let Some(watcher) = self.all.get(id) else {
                continue;
            };
            let events: Vec<Event> = page
                .events
                .iter()
                .filter_map(|event| watcher.of(event))
                .collect();
            if !events.is_empty() {
                told.insert(*id, events);
            }
            self.advance(*id, page.next);
        }
        told
    }

    /// Those that wanted to hear how far they are, are level, and have heard nothing since the last call.
    pub(super) fn take_quiet(&mut self, seen: i64) -> Vec<i64> {
        let mut quiet = Vec::new();
        for (id, watcher) in &mut self.all {
            if watcher.progress && watcher.is_quiet && watcher.next > seen {
                quiet.push(*id);
            }
            watcher.is_quiet = true;
        }
        quiet
    }
}
