//! Tests of the recorded data size, and of the maximum key length.

use std::ops::ControlFlow;

use quorate::StateMachine as _;
use quorate_etcd::{
    check,
    command::{Command, Figures, LeaseGrant, Query},
    mvcc::{KEY_BYTES_MAX, LEASE_KEYS_MAX},
    proto::etcdserverpb::{
        Compare, DeleteRangeRequest, DeleteRangeResponse, LeaseGrantResponse, PutRequest,
        PutResponse, RangeRequest, RequestOp, TxnRequest, TxnResponse, request_op::Request,
    },
    refusal::Refusal,
    service::Service,
};

use crate::common::{apply, ask, both, image, loaded, range, service};

/// Returns the total size of all entries, except for the size itself.
pub fn summed(service: &Service) -> u64 {
    let mut bytes = 0;
    let mut add = |key: &[u8], value: &bytes::Bytes| {
        bytes += (key.len() + value.len()) as u64;
        ControlFlow::Continue(())
    };
    let store = service.mvcc().store();
    store.scan(&[], b"z", &mut add);
    store.scan(b"z\0", &[u8::MAX], &mut add);
    bytes
}

fn put(key: Vec<u8>) -> PutRequest {
    PutRequest { key: key.into(), value: "value".into(), ..PutRequest::default() }
}

#[test]
fn an_image_of_an_earlier_version_has_no_size_and_gets_one() {
    let mut service = service();
    for key in 0..10 {
        apply::<PutResponse>(&mut service, &Command::Put(put(vec![key]))).unwrap();
    }
    let now = image(&mut service, 100);
    let mut before = now.clone();
    before[0] = b"etcd\x02".to_vec();
    assert_eq!(before.pop().unwrap()[4], b'z');
    let mut copy = loaded(&before);
    let figures: Figures = ask(&copy, &Query::Figures).unwrap();
    assert_eq!(figures.bytes, summed(&service));
    assert_eq!(image(&mut copy, 100), now);
}

/// A lease that has ended is only a number, as in an etcd snapshot taken between the end of a lease
/// and the deletion of its keys.
#[test]
fn a_lease_that_is_gone_is_only_a_number() {
    let mut service = service();
    for id in [1, 2] {
        let granted = LeaseGrant { id, ttl: 60, now_ms: 0 };
        apply::<LeaseGrantResponse>(&mut service, &Command::Grant(granted)).unwrap();
    }
    let with = |key: &str, lease| PutRequest { lease, ..put(key.into()) };
    let command = Command::Put(with("a", 1));
    apply::<PutResponse>(&mut service, &command).unwrap();
    let mut items = image(&mut service, 100);
    let of_lease_1 = |item: &[u8]| {
        let id = 1_i64.to_be_bytes();
        [b"l", b"k"].iter().any(|kind| item.starts_with(&[&kind[..], &id].concat()))
            || (item.starts_with(b"d") && item.ends_with(&id))
    };
    items.retain(|item| !of_lease_1(&item[4..]) && item.get(4) != Some(&b'z'));
    // The other lease accepts no more keys.
    let full = items.iter_mut().find(|item| item.get(4) == Some(&b'l')).unwrap();
    let end = full.len() - 8;
    full[end..].copy_from_slice(&LEASE_KEYS_MAX.to_be_bytes());
    let mut service = loaded(&items);
    let before = service.digest();
    let ops = [with("a", 0), with("b", 2)]
        .map(|put| RequestOp { request: Some(Request::RequestPut(put)) });
    let txn = TxnRequest { success: ops.into(), ..TxnRequest::default() };
    let refused = apply::<TxnResponse>(&mut service, &Command::Txn(txn));
    assert_eq!(refused, Err(Refusal::LeaseKeysFull));
    assert_eq!(service.digest(), before, "it is taken back");
    let command = Command::Put(with("a", 0));
    apply::<PutResponse>(&mut service, &command).unwrap();
    assert_eq!(service.mvcc().bytes(), summed(&service));
}

#[test]
fn keys_are_bounded_over_every_store() {
    for mut service in both() {
        // Zeros are escaped in history.
        let longest = vec![0; KEY_BYTES_MAX];
        for _ in 0..2 {
            let command = Command::Put(put(longest.clone()));
            apply::<PutResponse>(&mut service, &command).unwrap();
        }
        let before = service.digest();
        for bytes in [KEY_BYTES_MAX + 1, 70_000, 1 << 20] {
            let long = put(vec![0; bytes]);
            assert_eq!(check::check_put(&long), Err(Refusal::KeyTooLong));
            let refused = apply::<PutResponse>(&mut service, &Command::Put(long.clone()));
            assert_eq!(refused, Err(Refusal::KeyTooLong));
            let ops = [put(b"a".to_vec()), long]
                .map(|put| RequestOp { request: Some(Request::RequestPut(put)) });
            let txn = TxnRequest { success: ops.into(), ..TxnRequest::default() };
            assert_eq!(check::check_txn(&txn), Err(Refusal::KeyTooLong));
            let refused = apply::<TxnResponse>(&mut service, &Command::Txn(txn));
            assert_eq!(refused, Err(Refusal::KeyTooLong));
        }
        assert_eq!(service.digest(), before);
    }
}

/// A request may name a key that is too long to exist, also as the end of a range, with every
/// store.
#[test]
fn longer_keys_are_not_found_over_every_store() {
    for mut service in both() {
        let longest = vec![9; KEY_BYTES_MAX];
        let command = Command::Put(put(longest.clone()));
        apply::<PutResponse>(&mut service, &command).unwrap();
        let revision = service.mvcc().revision();
        let long = [&longest[..], &[9; 70_000]].concat();
        let count = |key: &[u8], range_end: &[u8], revision| {
            let request = RangeRequest {
                key: key.to_vec().into(),
                range_end: range_end.to_vec().into(),
                revision,
                ..RangeRequest::default()
            };
            range(&service, request, 10).unwrap().count
        };
        for at in [0, revision - 1, revision] {
            let there = i64::from(at != revision - 1);
            assert_eq!(count(&long, b"", at), 0);
            assert_eq!(count(&long, b"\0", at), 0);
            assert_eq!(count(&longest, &long, at), there);
            assert_eq!(count(b"\0", &long, at), there);
        }
        let compare = Compare { key: long.clone().into(), ..Compare::default() };
        let txn = TxnRequest { compare: vec![compare], ..TxnRequest::default() };
        let answer = apply::<TxnResponse>(&mut service, &Command::Txn(txn)).unwrap();
        assert!(answer.succeeded, "its version is 0");
        let delete = DeleteRangeRequest { key: long.into(), ..DeleteRangeRequest::default() };
        let answer = apply::<DeleteRangeResponse>(&mut service, &Command::Delete(delete));
        assert_eq!(answer.unwrap().deleted, 0);
    }
}

#[test]
fn an_image_with_longer_keys_is_refused() {
    let mut service = service();
    let command = Command::Put(put(vec![1; KEY_BYTES_MAX]));
    for _ in 0..2 {
        apply::<PutResponse>(&mut service, &command).unwrap();
    }
    let items = image(&mut service, 100);
    for kind in *b"chr" {
        let mut items = items.clone();
        let item = items.iter_mut().find(|item| item.get(4) == Some(&kind));
        let item = item.unwrap();
        // Adds a byte to the key, and adjusts its length.
        if kind == b'r' {
            item.push(1);
        } else {
            let length = u32::from_le_bytes(item[..4].try_into().unwrap()) + 1;
            item[..4].copy_from_slice(&length.to_le_bytes());
            item.insert(5, 1);
        }
        let mut service = crate::common::service();
        service.begin_load().unwrap();
        let load = items.iter().try_for_each(|item| service.load(item));
        assert!(load.is_err(), "{kind}");
    }
}
