//! Tests of leases: limits on leases and their keys, and expiry.

use bytes::Bytes;
use quorate::StateMachine as _;
use quorate_etcd::{
    command::{Command, LeaseGrant, LeasesPage, LeasesRequest, Query},
    mvcc::{Budget, LEASE_KEYS_MAX, LEASES_MAX},
    proto::etcdserverpb::{
        LeaseGrantResponse, LeaseRevokeRequest, LeaseRevokeResponse, PutRequest, PutResponse,
    },
    refusal::Refusal,
    service::Service,
};

use crate::common::{apply, apply_bytes, ask, image, loaded, service};

fn grant(service: &mut Service, id: i64, ttl: i64) -> Result<LeaseGrantResponse, Refusal> {
    let now_ms = 1000;
    apply(service, &Command::Grant(LeaseGrant { id, ttl, now_ms }))
}

fn put(service: &mut Service, key: &str, lease: i64) -> Result<PutResponse, Refusal> {
    let request =
        PutRequest { key: Bytes::copy_from_slice(key.as_bytes()), lease, ..PutRequest::default() };
    apply(service, &Command::Put(request))
}

/// Returns a service with the same state, except for the number at the end of the entry whose place
/// begins with `place`.
fn with_count(service: &mut Service, place: &[u8], count: u64) -> Service {
    let mut items = image(service, 100);
    let is_there = |item: &&mut Vec<u8>| item[4..].starts_with(place);
    let item = items.iter_mut().skip(1).find(is_there).unwrap();
    let end = item.len() - 8;
    item[end..].copy_from_slice(&count.to_be_bytes());
    loaded(&items)
}

#[test]
fn leases_are_bounded_in_number() {
    let mut service = service();
    grant(&mut service, 1, 60).unwrap();
    let mut full = with_count(&mut service, b"s", LEASES_MAX);
    assert_eq!(grant(&mut full, 2, 60), Err(Refusal::TooManyLeases));
    assert_eq!(grant(&mut full, 1, 60), Err(Refusal::LeaseExists));
    let revoke = Command::Revoke(LeaseRevokeRequest { id: 1 });
    apply::<LeaseRevokeResponse>(&mut full, &revoke).unwrap();
    grant(&mut full, 2, 60).unwrap();
    assert_eq!(grant(&mut full, 3, 60), Err(Refusal::TooManyLeases));
}

#[test]
fn keys_of_a_lease_are_bounded_in_number() {
    let mut service = service();
    for id in [1, 2] {
        grant(&mut service, id, 60).unwrap();
    }
    put(&mut service, "a", 1).unwrap();
    let mut full = with_count(&mut service, b"l\0\0\0\0\0\0\0\x01", LEASE_KEYS_MAX);
    assert_eq!(put(&mut full, "b", 1), Err(Refusal::LeaseKeysFull));
    put(&mut full, "a", 1).unwrap();
    put(&mut full, "a", 2).unwrap();
    put(&mut full, "b", 1).unwrap();
    assert_eq!(put(&mut full, "c", 1), Err(Refusal::LeaseKeysFull));
}

/// A lease with more keys than one command copies or deletes ends in bounded steps.
#[test]
fn leases_with_many_keys_end_in_bounded_steps() {
    let mut service = service();
    for id in 1..=3 {
        grant(&mut service, id, 1).unwrap();
        for key in 0..6000 {
            put(&mut service, &format!("{id}/{key}"), id).unwrap();
        }
    }
    let revision = service.mvcc().revision();
    service.set_time(10_000);
    let mut commands = 0;
    loop {
        let mut due = Vec::new();
        service.due(&mut |command| due.push(command.to_vec()));
        let Some(command) = due.pop() else { break };
        apply_bytes(&mut service, &command);
        commands += 1;
    }
    assert_eq!(commands, 2, "the third lease is left to the next command");
    assert_eq!(service.mvcc().revision(), revision + 3, "one revision each");
    let everything = quorate_etcd::proto::etcdserverpb::RangeRequest {
        key: "\0".into(),
        range_end: "\0".into(),
        ..Default::default()
    };
    assert_eq!(crate::common::range(&service, everything, 100).unwrap().count, 0);
    for id in 1..=3 {
        assert_eq!(service.mvcc().lease_keys(id, Budget::QUERY), Ok(Vec::new()));
    }
}

#[test]
fn leases_are_listed_in_pages() {
    let mut service = service();
    for id in (1..=11_000).chain([-5]) {
        grant(&mut service, id, 60).unwrap();
    }
    let (mut all, mut from, mut pages) = (Vec::new(), Some(0), 0);
    while let Some(first) = from {
        let query = Query::Leases(LeasesRequest { from: first });
        let page: LeasesPage = ask(&service, &query).unwrap();
        assert!(page.ids.len() <= 5000);
        all.extend(page.ids);
        (from, pages) = (page.next, pages + 1);
    }
    assert_eq!(pages, 3);
    assert!(all.into_iter().eq((1..=11_000).chain([-5])));
}

/// A keep-alive never shortens a lease, even through a node with a slower clock than the granting
/// node's.
#[test]
fn keeping_a_lease_alive_never_ends_it_earlier() {
    let mut service = service();
    service.mvcc();
    grant(&mut service, 1, 10).unwrap();
    let kept =
        quorate_etcd::command::LeaseKeepAlives { ids: vec![1], now_ms: 200, auth_revision: 0 };
    apply_bytes(&mut service, &Command::KeepAlive(kept).encode());
    assert_eq!(service.next_deadline(u64::MAX), Some(11_000));
}
