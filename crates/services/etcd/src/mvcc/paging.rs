//! Paged ranges. A large range is read in pages, so that the node can do other work in between. All
//! pages show the revision of the first one, regardless of concurrent writes. The reader assembles
//! and sorts them.

use std::{mem, ops::ControlFlow};

use bytes::Bytes;

use super::{
    base::Mvcc,
    budget::QUERY_BYTES_MAX,
    layout::Record,
    range::{
        key_limit, keys_to_find, matches_revisions, response_bytes, response_entry, sort_and_limit,
        sort_keys,
    },
    read::KeySelection,
    write::response_header,
};
use crate::{
    command::{Page, PageRequest},
    proto::{
        etcdserverpb::{RangeRequest, RangeResponse},
        mvccpb::KeyValue,
    },
    refusal::Refusal,
};

/// Maximum number of keys visited per page.
pub const PAGE_VISITS_MAX: u64 = 5_000;
/// Approximate maximum size of a page.
const PAGE_BYTES: usize = 1 << 20;

/// Progress of a range that is read in pages.
#[derive(Clone, Debug)]
pub struct Paging {
    request: RangeRequest,
    /// Revision of the pages; `None` before the first one.
    page_revision: Option<i64>,
    /// Revision of the state at the first page.
    current_revision: i64,
    /// First key of the next page.
    next: Bytes,
    found_keys: Vec<KeyValue>,
    /// Number of keys that [`Paging::take_chunk`] has removed from `found_keys`, of which the last
    /// is dropped if it exceeds the limit.
    taken_keys: usize,
    has_more: bool,
    bytes: u64,
    key_count: i64,
}

impl Paging {
    pub fn new(request: RangeRequest) -> Self {
        Self {
            request,
            page_revision: None,
            current_revision: 0,
            next: Bytes::new(),
            found_keys: Vec::new(),
            taken_keys: 0,
            has_more: false,
            bytes: 0,
            key_count: 0,
        }
    }

    /// Returns whether a page has been read. Later pages show the same revision, so the requested
    /// freshness no longer matters.
    pub const fn has_begun(&self) -> bool {
        self.page_revision.is_some()
    }

    /// Returns whether the range may restart after its revision was compacted: only if the request
    /// does not name a revision.
    pub const fn may_restart(&self) -> bool {
        self.page_revision.is_some() && self.request.revision <= 0
    }

    #[must_use]
    pub fn restart(self) -> Self {
        Self::new(self.request)
    }

    /// Returns the request for the next page, which visits at most `visits` keys.
    pub fn next(&self, visits: u64) -> PageRequest {
        let wanted =
            keys_to_find(&self.request).saturating_sub(self.taken_keys + self.found_keys.len());
        PageRequest {
            request: Some(self.request.clone()),
            revision: self.page_revision.unwrap_or(0),
            from: self.next.clone(),
            key_limit: wanted as u64,
            visit_limit: visits,
        }
    }

    /// Adds a page and returns whether it was the last one.
    pub fn add_page(&mut self, page: Page) -> Result<bool, Refusal> {
        if self.page_revision.is_none() {
            (self.page_revision, self.current_revision) =
                (Some(page.shown_revision), page.revision);
        }
        self.bytes += page.kvs.iter().map(response_bytes).sum::<u64>();
        let drops = self.request.limit > 0;
        let keep = |kv: KeyValue| KeyValue {
            // Copied, so that a few keys do not keep the buffers of all pages alive.
            key: Bytes::copy_from_slice(&kv.key),
            value: Bytes::copy_from_slice(&kv.value),
            ..kv
        };
        match drops {
            true => self.found_keys.extend(page.kvs.into_iter().map(keep)),
            false => self.found_keys.extend(page.kvs),
        }
        if drops {
            // With a limit and an order, only keys that may still be returned are kept.
            sort_keys(&self.request, &mut self.found_keys);
            self.bytes = self.found_keys.iter().map(response_bytes).sum();
        }
        if self.bytes > QUERY_BYTES_MAX {
            return Err(Refusal::BudgetExceeded);
        }
        self.key_count = self.key_count.saturating_add(page.count);
        self.next = page.next;
        Ok(self.next.is_empty())
    }

    /// Returns the approximate size of the keys that have been read.
    pub const fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Takes the keys of the pages added since the last call, for a response in chunks. The request
    /// must pass [`check_range_stream`](crate::check::check_range_stream): keys are not sorted
    /// across chunks.
    pub fn take_chunk(&mut self) -> Vec<KeyValue> {
        let limit = key_limit(&self.request).unwrap_or(usize::MAX);
        let keys_left = limit.saturating_sub(self.taken_keys);
        self.taken_keys += self.found_keys.len();
        self.has_more |= self.found_keys.len() > keys_left;
        self.found_keys.truncate(keys_left);
        self.bytes = 0;
        mem::take(&mut self.found_keys)
    }

    /// Returns the response after all pages have been added, without the keys already taken.
    pub fn finish(mut self) -> RangeResponse {
        let more = self.has_more | sort_and_limit(&self.request, &mut self.found_keys);
        RangeResponse {
            header: response_header(self.current_revision),
            kvs: self.found_keys,
            more,
            count: self.key_count,
        }
    }
}

impl Mvcc {
    /// Reads one page, as requested by [`Paging::next`].
    pub fn page(&self, page: &PageRequest) -> Result<Page, Refusal> {
        let request = page.request.as_ref().ok_or(Refusal::Malformed)?;
        let now = self.state.revision;
        let at = match page.revision {
            0 => self.read_revision(request, now)?,
            at if at > now => return Err(Refusal::FutureRevision),
            at if at < self.state.compacted_revision => return Err(Refusal::Compacted),
            at => at,
        };
        let keys = match KeySelection::from_range(&request.key, &request.range_end) {
            KeySelection::Span(from, to) if page.from.is_empty() => KeySelection::Span(from, to),
            KeySelection::Span(_, to) => KeySelection::Span(&page.from, to),
            one => one,
        };
        let visits_max = page.visit_limit.clamp(1, PAGE_VISITS_MAX);
        let (mut visits, mut count, mut bytes) = (0, 0, 0);
        let (mut kvs, mut next) = (Vec::new(), Bytes::new());
        let mut visit = |key: &[u8], record: Option<Record>| {
            visits += 1;
            if let Some(record) = record {
                count += 1;
                let room = (kvs.len() as u64) < page.key_limit;
                if room && matches_revisions(request, &record) {
                    let kv = response_entry(request, key, record);
                    bytes += kv.key.len() + kv.value.len();
                    kvs.push(kv);
                }
            }
            if visits >= visits_max || bytes >= PAGE_BYTES {
                // The immediate successor of this key.
                next = [key, &[0]].concat().into();
                return ControlFlow::Break(());
            }
            ControlFlow::Continue(())
        };
        match at < now {
            true => self.visit_at_revision(keys, at, &mut visit),
            false => self.visit_current(keys, &mut |key, record| visit(key, Some(record))),
        }
        if matches!(keys, KeySelection::Single(_)) {
            next = Bytes::new();
        }
        sort_keys(request, &mut kvs);
        Ok(Page { revision: now, shown_revision: at, kvs, count, next })
    }
}
