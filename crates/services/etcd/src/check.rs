//! Stateless validation of requests on arrival, as in etcd.

use std::{
    collections::{BTreeMap, BTreeSet},
    ops::Bound::{self, Unbounded},
};

use crate::{
    mvcc::{KEY_BYTES_MAX, sort_order},
    proto::etcdserverpb::{
        DeleteRangeRequest, PutRequest, RangeRequest, RequestOp, TxnRequest,
        range_request::{SortOrder, SortTarget},
        request_op::Request,
    },
    refusal::Refusal,
};

/// Maximum number of operations in a transaction, including nested ones.
pub const TXN_OPS_MAX: usize = 128;
/// Maximum nesting depth of transactions. The decoder accepts messages nested 100 levels deep, and
/// a response has two levels per transaction and three for the innermost contents.
pub const TXN_DEPTH_MAX: usize = 32;

fn require_key(key: &[u8]) -> Result<(), Refusal> {
    match key {
        [] => Err(Refusal::EmptyKey),
        _ => Ok(()),
    }
}

pub fn check_range(request: &RangeRequest) -> Result<(), Refusal> {
    require_key(&request.key)?;
    let known = SortOrder::try_from(request.sort_order).is_ok()
        && SortTarget::try_from(request.sort_target).is_ok();
    match known {
        true => Ok(()),
        false => Err(Refusal::InvalidSortOption),
    }
}

/// Reason for refusing to stream a range.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StreamRefusal {
    Order,
    RevisionFilters,
    Other(Refusal),
}

/// Validates a range whose keys are returned as they are read, so in the order of keys. As in etcd,
/// revision filters are refused too.
pub fn check_range_stream(request: &RangeRequest) -> Result<(), StreamRefusal> {
    check_range(request).map_err(StreamRefusal::Other)?;
    let filters = [
        request.min_mod_revision,
        request.max_mod_revision,
        request.min_create_revision,
        request.max_create_revision,
    ];
    if sort_order(request).is_some() {
        return Err(StreamRefusal::Order);
    }
    match filters == [0; 4] {
        true => Ok(()),
        false => Err(StreamRefusal::RevisionFilters),
    }
}

pub fn check_put(request: &PutRequest) -> Result<(), Refusal> {
    require_key(&request.key)?;
    if request.key.len() > KEY_BYTES_MAX {
        return Err(Refusal::KeyTooLong);
    }
    if request.ignore_value && !request.value.is_empty() {
        return Err(Refusal::ValueProvided);
    }
    if request.ignore_lease && request.lease != 0 {
        return Err(Refusal::LeaseProvided);
    }
    Ok(())
}

pub fn check_delete(request: &DeleteRangeRequest) -> Result<(), Refusal> {
    require_key(&request.key)
}

/// Validates a transaction and everything in it.
pub fn check_txn(request: &TxnRequest) -> Result<(), Refusal> {
    check_operations(request, TXN_OPS_MAX, TXN_DEPTH_MAX)?;
    // The number of operations is now known to be bounded, so overlaps can be computed.
    check_overlaps(&request.success)?;
    check_overlaps(&request.failure)?;
    Ok(())
}

/// Returns whether any branch of a transaction puts a key.
pub fn has_put(request: &TxnRequest) -> bool {
    let mut ops = request.success.iter().chain(&request.failure);
    ops.any(|op| match &op.request {
        Some(Request::RequestPut(_)) => true,
        Some(Request::RequestTxn(txn)) => has_put(txn),
        _ => false,
    })
}

fn check_operations(request: &TxnRequest, most: usize, deep: usize) -> Result<(), Refusal> {
    let deeper = deep.checked_sub(1).ok_or(Refusal::NestedTooDeep)?;
    let count = request.compare.len();
    let count = count.max(request.success.len()).max(request.failure.len());
    let left = most.checked_sub(count).ok_or(Refusal::TooManyOps)?;
    for compare in &request.compare {
        require_key(&compare.key)?;
    }
    for op in request.success.iter().chain(&request.failure) {
        match &op.request {
            Some(Request::RequestRange(request)) => check_range(request)?,
            Some(Request::RequestPut(request)) => check_put(request)?,
            Some(Request::RequestDeleteRange(request)) => check_delete(request)?,
            Some(Request::RequestTxn(request)) => check_operations(request, left, deeper)?,
            None => return Err(Refusal::KeyNotFound),
        }
    }
    Ok(())
}

/// Keys that a branch puts and deletes.
#[derive(Debug, Default)]
struct TouchedKeys<'t> {
    puts: BTreeSet<&'t [u8]>,
    deletes: Spans<'t>,
}

/// Collects the keys that a branch puts and deletes. Refuses a branch that puts a key twice, or
/// puts and deletes it, except that a nested transaction may delete a key that an earlier one puts.
///
/// As in etcd, a range to the end of all keys is not checked.
fn check_overlaps(ops: &[RequestOp]) -> Result<TouchedKeys<'_>, Refusal> {
    let mut all = TouchedKeys::default();
    for op in ops {
        if let Some(Request::RequestDeleteRange(delete)) = &op.request {
            all.deletes.add_range(&delete.key, &delete.range_end);
        }
    }
    for op in ops {
        if let Some(Request::RequestTxn(txn)) = &op.request {
            let (then, otherwise) = (check_overlaps(&txn.success)?, check_overlaps(&txn.failure)?);
            for key in &then.puts {
                if all.puts.contains(key) || all.deletes.contains_key(key) {
                    return Err(Refusal::DuplicateKey);
                }
            }
            for key in &otherwise.puts {
                if all.puts.contains(key) || all.deletes.contains_key(key) {
                    return Err(Refusal::DuplicateKey);
                }
            }
            // Only one branch is executed, so both may put the same key.
            merge_sets(&mut all.puts, then.puts);
            merge_sets(&mut all.puts, otherwise.puts);
            all.deletes.merge_all(then.deletes);
            all.deletes.merge_all(otherwise.deletes);
        }
    }
    for op in ops {
        if let Some(Request::RequestPut(put)) = &op.request
            && (all.deletes.contains_key(&put.key) || !all.puts.insert(&put.key))
        {
            return Err(Refusal::DuplicateKey);
        }
    }
    Ok(all)
}

/// Merges the smaller set into the larger one.
fn merge_sets<'t>(all: &mut BTreeSet<&'t [u8]>, mut more: BTreeSet<&'t [u8]>) {
    if more.len() > all.len() {
        std::mem::swap(all, &mut more);
    }
    all.extend(more);
}

/// Merged ranges, by first key.
#[derive(Debug, Default)]
struct Spans<'t>(BTreeMap<&'t [u8], SpanEnd<'t>>);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum SpanEnd<'t> {
    /// The range includes this key and ends directly after it.
    After(&'t [u8]),
    /// The range excludes this key and ends directly before it.
    Before(&'t [u8]),
}

impl<'t> SpanEnd<'t> {
    /// Returns the end in a sortable form. The position just after a key precedes every longer key
    /// that begins with it.
    fn sort_key(&self) -> (&'t [u8], bool) {
        match *self {
            Self::Before(key) => (key, false),
            Self::After(key) => (key, true),
        }
    }

    fn to_bound(self) -> Bound<&'t [u8]> {
        match self {
            Self::Before(key) => Bound::Excluded(key),
            Self::After(key) => Bound::Included(key),
        }
    }

    fn contains(&self, key: &[u8]) -> bool {
        match *self {
            Self::Before(end) => key < end,
            Self::After(end) => key <= end,
        }
    }
}

impl<'t> Spans<'t> {
    fn add_range(&mut self, key: &'t [u8], range_end: &'t [u8]) {
        match range_end {
            [] => self.merge_range(key, SpanEnd::After(key)),
            end if key < end => self.merge_range(key, SpanEnd::Before(end)),
            _ => {}
        }
    }

    fn merge_range(&mut self, mut first: &'t [u8], mut end: SpanEnd<'t>) {
        // Absorbs all ranges that overlap or touch the new one, backwards from the last that begins
        // within it.
        while let Some((start, other)) =
            self.0.range::<&[u8], _>((Unbounded, end.to_bound())).next_back()
        {
            if *start < first && !other.contains(first) {
                break;
            }
            let (start, other) = (*start, *other);
            self.0.remove(start);
            first = first.min(start);
            if other.sort_key() > end.sort_key() {
                end = other;
            }
        }
        self.0.insert(first, end);
    }

    fn contains_key(&self, key: &[u8]) -> bool {
        let before = self.0.range(..=key).next_back();
        before.is_some_and(|(_, end)| end.contains(key))
    }

    fn merge_all(&mut self, mut more: Self) {
        if more.0.len() > self.0.len() {
            std::mem::swap(self, &mut more);
        }
        for (first, end) in more.0 {
            self.merge_range(first, end);
        }
    }
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;

    use super::*;

    /// Merged spans contain exactly the keys that their parts contain.
    #[test]
    fn joined_spans_contain_what_their_parts_contain() {
        let keys: Vec<Vec<u8>> = (0..12_u8).flat_map(|at| [vec![at], vec![at, 0]]).collect();
        let mut seed = 1_u64;
        let mut next = |below: usize| {
            seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            usize::try_from(seed >> 33).unwrap() % below
        };
        for _ in 0..3000 {
            let (mut spans, mut parts) = (Spans::default(), Vec::new());
            for _ in 0..next(6) {
                let (from, to) = (&keys[next(24)][..], next(30));
                let end: &[u8] = keys.get(to).map_or(b"", |key| key);
                spans.add_range(from, end);
                parts.push((from, end));
            }
            for key in &keys {
                let expected = parts.iter().any(|(from, end)| match end {
                    [] => key == from,
                    end => (*from..*end).contains(&&key[..]),
                });
                assert_eq!(spans.contains_key(key), expected, "{key:?} of {parts:?}");
            }
            let starts: Vec<_> = spans.0.keys().collect();
            let ends: Vec<_> = spans.0.values().map(SpanEnd::sort_key).collect();
            let apart = starts.iter().skip(1).zip(&ends);
            assert!(apart.into_iter().all(|(next, end)| (**next, false) >= *end));
        }
    }

    fn op(request: Request) -> RequestOp {
        RequestOp { request: Some(request) }
    }

    fn puts(key: &'static str) -> RequestOp {
        op(Request::RequestPut(PutRequest { key: key.into(), ..PutRequest::default() }))
    }

    fn deletes(key: &'static str, range_end: &'static str) -> RequestOp {
        op(Request::RequestDeleteRange(DeleteRangeRequest {
            key: key.into(),
            range_end: range_end.into(),
            prev_kv: false,
        }))
    }

    fn within(success: Vec<RequestOp>, failure: Vec<RequestOp>) -> RequestOp {
        op(Request::RequestTxn(TxnRequest { compare: Vec::new(), success, failure }))
    }

    fn check(success: Vec<RequestOp>) -> Result<(), Refusal> {
        check_txn(&TxnRequest { compare: Vec::new(), success, failure: Vec::new() })
    }

    #[test]
    fn key_is_put_at_most_once_and_not_also_deleted() {
        let twice = Err(Refusal::DuplicateKey);
        assert_eq!(check(vec![puts("a"), puts("b")]), Ok(()));
        assert_eq!(check(vec![puts("a"), puts("a")]), twice);
        assert_eq!(check(vec![puts("a"), deletes("a", "")]), twice);
        assert_eq!(check(vec![deletes("a", "c"), puts("b")]), twice);
        assert_eq!(check(vec![deletes("a", "c"), puts("c")]), Ok(()));
        assert_eq!(check(vec![deletes("a", "c"), deletes("b", "d")]), Ok(()));
        // A range to the end of all keys is not detected.
        assert_eq!(check(vec![deletes("a", "\0"), puts("b")]), Ok(()));
    }

    #[test]
    fn branches_that_exclude_each_other_may_put_the_same_key() {
        let twice = Err(Refusal::DuplicateKey);
        let both = within(vec![puts("a")], vec![puts("a")]);
        assert_eq!(check(vec![both.clone()]), Ok(()));
        assert_eq!(check(vec![both.clone(), puts("a")]), twice);
        assert_eq!(check(vec![both.clone(), both.clone()]), twice);
        let gone = within(vec![], vec![deletes("a", "")]);
        assert_eq!(check(vec![gone.clone(), both.clone()]), twice);
        assert_eq!(check(vec![both, gone]), Ok(()), "as etcd has it");
    }

    #[test]
    fn nested_operations_count_towards_the_limit() {
        let key = |at: usize| Bytes::from(at.to_string());
        let many = |count: usize| -> Vec<RequestOp> {
            let put = |at| PutRequest { key: key(at), ..PutRequest::default() };
            (0..count).map(|at| op(Request::RequestPut(put(at)))).collect()
        };
        assert_eq!(check(many(128)), Ok(()));
        assert_eq!(check(many(129)), Err(Refusal::TooManyOps));
        assert_eq!(check(vec![within(many(127), vec![])]), Ok(()));
        assert_eq!(check(vec![within(many(128), vec![])]), Err(Refusal::TooManyOps));
        let nothing = RequestOp { request: None };
        assert_eq!(check(vec![nothing]), Err(Refusal::KeyNotFound));
        assert_eq!(check(vec![puts("")]), Err(Refusal::EmptyKey));
    }
}
