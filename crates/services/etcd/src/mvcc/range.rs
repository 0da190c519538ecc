//! Range requests: select keys at a revision, then filter, sort and limit them.

use std::{cmp::Ordering, ops::ControlFlow};

use bytes::Bytes;

use super::{
    base::Mvcc,
    budget::{Budget, ENTRY_OVERHEAD_BYTES},
    layout::Record,
    read::{FoundRecord, KeySelection},
    write::response_header,
};
use crate::{
    proto::{
        etcdserverpb::{
            RangeRequest, RangeResponse,
            range_request::{SortOrder, SortTarget},
        },
        mvccpb::KeyValue,
    },
    refusal::Refusal,
};

/// Returns the order of the response, or `None` if it is that of the keys.
pub(crate) fn sort_order(request: &RangeRequest) -> Option<(SortTarget, SortOrder)> {
    let target = request.sort_target();
    match (target, request.sort_order()) {
        // Keys are read in this order anyway.
        (SortTarget::Key, SortOrder::None | SortOrder::Ascend) => None,
        (target, SortOrder::None) => Some((target, SortOrder::Ascend)),
        (target, order) => Some((target, order)),
    }
}

/// Returns the maximum number of keys in the response, if the request limits it.
pub(super) fn key_limit(request: &RangeRequest) -> Option<usize> {
    let limit = usize::try_from(request.limit).ok();
    limit.filter(|limit| *limit > 0)
}

/// Returns the number of keys to find: all if they must be sorted, otherwise one more than the
/// limit, to detect that there are more.
pub(super) fn keys_to_find(request: &RangeRequest) -> usize {
    match (sort_order(request), key_limit(request)) {
        _ if request.count_only => 0,
        (None, Some(limit)) => limit.saturating_add(1),
        _ => usize::MAX,
    }
}

fn compare_by(target: SortTarget, one: &KeyValue, other: &KeyValue) -> Ordering {
    match target {
        SortTarget::Key => one.key.cmp(&other.key),
        SortTarget::Version => one.version.cmp(&other.version),
        SortTarget::Create => one.create_revision.cmp(&other.create_revision),
        SortTarget::Mod => one.mod_revision.cmp(&other.mod_revision),
        SortTarget::Value => one.value.cmp(&other.value),
    }
}

/// Sorts the keys, and drops those that are needed neither for the response nor to detect that
/// there are more.
pub(super) fn sort_keys(request: &RangeRequest, found: &mut Vec<KeyValue>) {
    match sort_order(request) {
        None => {}
        Some((target, SortOrder::Descend)) => {
            found.sort_by(|one, other| compare_by(target, other, one));
        }
        Some((target, _)) => found.sort_by(|one, other| compare_by(target, one, other)),
    }
    let most = key_limit(request).map_or(usize::MAX, |limit| limit.saturating_add(1));
    found.truncate(most);
}

/// Sorts and truncates the keys for the response. Returns whether there are more.
pub(super) fn sort_and_limit(request: &RangeRequest, found: &mut Vec<KeyValue>) -> bool {
    sort_keys(request, found);
    let limit = key_limit(request).unwrap_or(usize::MAX);
    let more = found.len() > limit;
    found.truncate(limit);
    if request.keys_only {
        found.iter_mut().for_each(|kv| kv.value = Bytes::new());
    }
    more
}

/// Returns whether a key's revisions are within the requested bounds. A bound of 0 does not apply.
pub(super) fn matches_revisions(request: &RangeRequest, found: &Record) -> bool {
    let within = |revision: i64, min: i64, max: i64| {
        (min == 0 || revision >= min) && (max == 0 || revision <= max)
    };
    within(found.revision.main, request.min_mod_revision, request.max_mod_revision)
        && within(found.created_revision, request.min_create_revision, request.max_create_revision)
}

/// Returns a key and its record for the response. Omits a value that neither the response nor
/// sorting needs.
pub(super) fn response_entry(request: &RangeRequest, key: &[u8], record: Record) -> KeyValue {
    let key = Bytes::copy_from_slice(key);
    let mut kv = KeyValue::from(FoundRecord { key, record });
    if request.keys_only && request.sort_target() != SortTarget::Value {
        kv.value = Bytes::new();
    }
    kv
}

/// Returns the approximate size of a key-value pair in the response.
pub(super) fn response_bytes(kv: &KeyValue) -> u64 {
    ENTRY_OVERHEAD_BYTES + (kv.key.len() + kv.value.len()) as u64
}

/// Intermediate result of a range request.
struct RangeCollector<'t> {
    request: &'t RangeRequest,
    budget: &'t mut Budget,
    /// Maximum number of keys to find.
    keys_max: usize,
    count: i64,
    kvs: Vec<KeyValue>,
    bytes: u64,
}

impl<'t> RangeCollector<'t> {
    fn new(request: &'t RangeRequest, budget: &'t mut Budget) -> Self {
        Self {
            keys_max: keys_to_find(request),
            request,
            budget,
            count: 0,
            kvs: Vec::new(),
            bytes: 0,
        }
    }

    fn take_record(&mut self, key: &[u8], record: Option<Record>) -> Result<(), Refusal> {
        self.budget.charge_visit()?;
        let Some(record) = record else { return Ok(()) };
        self.count += 1;
        if self.kvs.len() >= self.keys_max || !matches_revisions(self.request, &record) {
            return Ok(());
        }
        let kv = response_entry(self.request, key, record);
        self.bytes += response_bytes(&kv);
        self.kvs.push(kv);
        let most = self.budget.bytes();
        if self.bytes <= most {
            return Ok(());
        }
        // With a limit and an order, a few of many keys are returned. They may use at most half of
        // the budget; otherwise every further key would cause another sort.
        sort_keys(self.request, &mut self.kvs);
        self.bytes = self.kvs.iter().map(response_bytes).sum();
        match self.bytes <= most / 2 {
            true => Ok(()),
            false => Err(Refusal::BudgetExceeded),
        }
    }
}

impl Mvcc {
    /// Returns the revision that a request reads, where `now` is the current one.
    pub(super) fn read_revision(&self, request: &RangeRequest, now: i64) -> Result<i64, Refusal> {
        if request.revision > now {
            return Err(Refusal::FutureRevision);
        }
        let revision = match request.revision {
            past if past > 0 => past,
            _ => now,
        };
        match revision < self.state.compacted_revision {
            true => Err(Refusal::Compacted),
            false => Ok(revision),
        }
    }

    /// Executes a range within a transaction, where `now` is the current revision.
    pub(super) fn range(
        &self,
        request: &RangeRequest,
        now: i64,
        budget: &mut Budget,
    ) -> Result<RangeResponse, Refusal> {
        let revision = self.read_revision(request, now)?;
        let keys = KeySelection::from_range(&request.key, &request.range_end);
        let mut taking = RangeCollector::new(request, budget);
        let mut outcome = Ok(());
        let mut take = |key: &[u8], record| {
            outcome = taking.take_record(key, record);
            match outcome {
                Ok(()) => ControlFlow::Continue(()),
                Err(_) => ControlFlow::Break(()),
            }
        };
        // A transaction sees its own writes.
        if revision >= now {
            self.visit_current(keys, &mut |key, record| take(key, Some(record)));
        } else {
            self.visit_at_revision(keys, revision, &mut take);
        }
        outcome?;
        let RangeCollector { mut kvs, count, .. } = taking;
        let more = sort_and_limit(request, &mut kvs);
        for kv in &kvs {
            budget.charge_answer(kv.key.len(), kv.value.len())?;
        }
        Ok(RangeResponse { header: response_header(now), kvs, more, count })
    }
}
