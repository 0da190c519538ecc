//! Range: which keys, as of when, filtered, sorted, limited.

use std::{cmp::Ordering, ops::ControlFlow};

use bytes::Bytes;

use super::{
    Budget, Mvcc,
    read::{Found, Keys},
};
use crate::{
    proto::etcdserverpb::{
        RangeRequest, RangeResponse, ResponseHeader,
        range_request::{SortOrder, SortTarget},
    },
    refusal::Refusal,
};

/// What the answer's order is, if it is not that of keys.
fn order_of(request: &RangeRequest) -> Option<(SortTarget, SortOrder)> {
    let target = request.sort_target();
    match (target, request.sort_order()) {
        // Keys come in order anyway.
        (SortTarget::Key, SortOrder::None | SortOrder::Ascend) => None,
        (target, SortOrder::None) => Some((target, SortOrder::Ascend)),
        (target, order) => Some((target, order)),
    }
}

fn compare(target: SortTarget, one: &Found, other: &Found) -> Ordering {
    let (a, b) = (&one.record, &other.record);
    match target {
        SortTarget::Key => one.key.cmp(&other.key),
        SortTarget::Version => a.version.cmp(&b.version),
        SortTarget::Create => a.created.cmp(&b.created),
        SortTarget::Mod => a.revision.main.cmp(&b.revision.main),
        SortTarget::Value => a.value.cmp(&b.value),
    }
}

/// Whether the revisions of a key are among those that were asked for; 0 is no bound.
fn is_wanted(request: &RangeRequest, found: &super::Record) -> bool {
    let within = |revision: i64, min: i64, max: i64| {
        (min == 0 || revision >= min) && (max == 0 || revision <= max)
    };
    within(
        found.revision.main,
        request.min_mod_revision,
        request.max_mod_revision,
    ) && within(
        found.created,
        request.min_create_revision,
        request.max_create_revision,
    )
}

impl Mvcc {
    /// Answers a range; `now` is the revision that the request sees as the present.
    pub(super) fn range(
        &self,
        request: &RangeRequest,
        now: i64,
        budget: &mut Budget,
    ) -> Result<RangeResponse, Refusal> {
        if request.revision > now {
            return Err(Refusal::FutureRevision);
        }
        let revision = match request.revision {
            past if past > 0 => past,
            _ => now,
        };
        if revision < self.state.compacted {
            return Err(Refusal::Compacted);
        }
        let order = order_of(request);
        let limit = usize::try_from(request.limit)
            .ok()
            .filter(|limit| *limit > 0);
        // Sorting needs all of them, and whether there are more needs one more than the limit.
        let most = match (order, limit) {
            _ if request.count_only => 0,
            (None, Some(limit)) => limit.saturating_add(1),
            _ => usize::MAX,
        };
        let keys = Keys::of(&request.key, &request.range_end);
        let (mut count, mut found) = (0, Vec::new());
        let mut outcome = Ok(());
        let mut visit = |key: &[u8], record: super::Record| {
            outcome = budget.visit();
            count += 1;
            if found.len() < most && is_wanted(request, &record) {
                let key = Bytes::copy_from_slice(key);
                found.push(Found { key, record });
            }
            match outcome {
                Ok(()) => ControlFlow::Continue(()),
                Err(_) => ControlFlow::Break(()),
            }
        };
        // A transaction sees what it wrote itself.
        if revision >= now {
            self.each_now(keys, &mut visit);
        } else {
            self.each_at(keys, revision, &mut visit);
        }
        outcome?;
        match order {
            None => {}
            Some((target, SortOrder::Descend)) => {
                found.sort_by(|one, other| compare(target, other, one));
            }
            Some((target, _)) => found.sort_by(|one, other| compare(target, one, other)),
        }
        let more = limit.is_some_and(|limit| found.len() > limit);
        found.truncate(limit.unwrap_or(usize::MAX));
        for one in &mut found {
            if request.keys_only {
                one.record.value = Bytes::new();
            }
            budget.answer(one.key.len(), one.record.value.len())?;
        }
        Ok(RangeResponse {
            header: Some(ResponseHeader {
                revision: now,
                ..ResponseHeader::default()
            }),
            kvs: found.into_iter().map(Into::into).collect(),
            more,
            count,
        })
    }
}
