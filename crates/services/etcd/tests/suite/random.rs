//! Generator of random requests, with few keys so that many cases occur.

use bytes::Bytes;
use quorate_etcd::proto::etcdserverpb::{
    Compare, DeleteRangeRequest, PutRequest, RangeRequest, RequestOp, TxnRequest,
    compare::TargetUnion, request_op::Request,
};

use crate::dice::Dice;

const KEYS: [&[u8]; 9] =
    [b"a", b"a\0", b"a\0\xff", b"a\x01", b"ab", b"b", b"b\xff", b"\0", b"\xff\xff"];
const VALUES: [&[u8]; 4] = [b"", b"1", b"2", b"a longer value"];

fn key(dice: &mut Dice) -> Bytes {
    Bytes::from_static(dice.of(&KEYS))
}

fn end(dice: &mut Dice) -> Bytes {
    match dice.below(4) {
        0 => Bytes::from_static(b"\0"),
        1 => key(dice),
        2 if dice.one_in(2) => Bytes::from_static(b"c"),
        _ => Bytes::new(),
    }
}

/// Returns a random bound of revisions, mostly 0, which means none.
fn bound(dice: &mut Dice, revision: i64) -> i64 {
    match dice.one_in(5) {
        true => dice.between(-1, revision + 1),
        false => 0,
    }
}

pub fn range(dice: &mut Dice, revision: i64) -> RangeRequest {
    RangeRequest {
        key: key(dice),
        range_end: end(dice),
        limit: if dice.one_in(2) { 0 } else { dice.between(-1, 4) },
        revision: if dice.one_in(2) { 0 } else { dice.between(-2, revision + 2) },
        sort_order: i32::try_from(dice.below(3)).unwrap(),
        sort_target: i32::try_from(dice.below(5)).unwrap(),
        serializable: false,
        keys_only: dice.one_in(5),
        count_only: dice.one_in(7),
        min_mod_revision: bound(dice, revision),
        max_mod_revision: bound(dice, revision),
        min_create_revision: bound(dice, revision),
        max_create_revision: bound(dice, revision),
    }
}

pub fn put(dice: &mut Dice) -> PutRequest {
    let ignore_value = dice.one_in(5);
    PutRequest {
        key: key(dice),
        value: match ignore_value {
            true => Bytes::new(),
            false => Bytes::from_static(dice.of(&VALUES)),
        },
        lease: if dice.one_in(4) { dice.between(1, 4) } else { 0 },
        prev_kv: dice.one_in(2),
        ignore_value,
        ignore_lease: dice.one_in(40),
    }
}

pub fn delete(dice: &mut Dice) -> DeleteRangeRequest {
    DeleteRangeRequest {
        key: key(dice),
        range_end: if dice.one_in(3) { end(dice) } else { Bytes::new() },
        prev_kv: dice.one_in(2),
    }
}

fn compare(dice: &mut Dice, revision: i64) -> Compare {
    let number = dice.between(0, revision + 1);
    let union = match dice.below(7) {
        0 => Some(TargetUnion::Version(number.min(3))),
        1 => Some(TargetUnion::CreateRevision(number)),
        2 => Some(TargetUnion::ModRevision(number)),
        3 | 4 => Some(TargetUnion::Value(Bytes::from_static(dice.of(&VALUES)))),
        5 => Some(TargetUnion::Lease(0)),
        _ => None,
    };
    let fitting = match &union {
        Some(TargetUnion::Version(_)) => 0,
        Some(TargetUnion::CreateRevision(_)) => 1,
        Some(TargetUnion::ModRevision(_)) => 2,
        Some(TargetUnion::Value(_)) => 3,
        Some(TargetUnion::Lease(_)) | None => 4,
    };
    Compare {
        result: i32::try_from(dice.below(4)).unwrap(),
        target: if dice.one_in(8) { 1 } else { fitting },
        key: key(dice),
        target_union: union,
        range_end: if dice.one_in(4) { end(dice) } else { Bytes::new() },
    }
}

fn ops(dice: &mut Dice, revision: i64, depth: usize) -> Vec<RequestOp> {
    let count = dice.below(4);
    let op = |dice: &mut Dice| match dice.below(6) {
        0 | 1 => Request::RequestPut(put(dice)),
        2 => Request::RequestDeleteRange(delete(dice)),
        3 if depth > 0 => Request::RequestTxn(txn(dice, revision, depth - 1)),
        _ => Request::RequestRange(range(dice, revision)),
    };
    let ops = (0..count).map(|_| RequestOp { request: Some(op(dice)) });
    ops.collect()
}

pub fn txn(dice: &mut Dice, revision: i64, depth: usize) -> TxnRequest {
    let compares = dice.below(3);
    TxnRequest {
        compare: (0..compares).map(|_| compare(dice, revision)).collect(),
        success: ops(dice, revision, depth),
        failure: ops(dice, revision, depth),
    }
}
