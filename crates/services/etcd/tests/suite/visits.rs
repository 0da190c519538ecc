//! Number of entries that a request visits. The test store walks over removed entries as a tree on
//! disk does. A key that changed often, or a lease kept alive for long, costs no more than others.

use std::{
    collections::BTreeMap,
    ops::{Bound, ControlFlow},
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
};

use bytes::Bytes;
use quorate::{Health, Imaged, LoadError, MetaChange, Metadata, Slot, StateMachine as _};
use quorate_etcd::{
    command::{Command, KeepAliveTtls, LeaseGrant, LeaseKeepAlives},
    proto::etcdserverpb::{
        CompactionRequest, CompactionResponse, DeleteRangeRequest, DeleteRangeResponse,
        LeaseGrantResponse, PutRequest, PutResponse,
    },
    service::Service,
    store::{EntryVisitor, Store},
};

use crate::common::{apply, apply_bytes};

/// Entries, `None` for a removed one.
#[derive(Default)]
struct Tree {
    entries: BTreeMap<Vec<u8>, Option<Bytes>>,
    /// Scans, and entries met by them.
    visits: Arc<AtomicUsize>,
}

impl Tree {
    fn visit(&self) {
        self.visits.fetch_add(1, Ordering::Relaxed);
    }
}

impl Store for Tree {
    fn get(&self, key: &[u8]) -> Option<Bytes> {
        self.entries.get(key).cloned().flatten()
    }

    fn scan(&self, from: &[u8], to: &[u8], visit: &mut EntryVisitor<'_>) {
        self.visit();
        if from >= to {
            return;
        }
        let bounds = (Bound::Included(from), Bound::Excluded(to));
        for (key, value) in self.entries.range::<[u8], _>(bounds) {
            self.visit();
            if let Some(value) = value
                && visit(key, value) == ControlFlow::Break(())
            {
                return;
            }
        }
    }

    fn put(&mut self, key: &[u8], value: Bytes) {
        self.entries.insert(key.to_vec(), Some(value));
    }

    fn remove(&mut self, key: &[u8]) {
        self.entries.insert(key.to_vec(), None);
    }

    fn commit(&mut self, _: Slot, _: &[MetaChange]) {}

    fn recovered(&mut self) -> (Slot, Metadata) {
        (Slot::FIRST, Vec::new())
    }

    fn health(&mut self) -> Health {
        Health::Well
    }

    fn begin_image(&mut self) -> bool {
        false
    }

    fn next_image(&mut self, _: usize, _: &mut dyn FnMut(&[u8], &[u8])) -> Imaged {
        Imaged::Failed
    }

    fn end_image(&mut self) {}

    fn begin_load(&mut self) -> Result<(), LoadError> {
        Err(LoadError::Unsupported)
    }

    fn load(&mut self, _: &[u8], _: Bytes) -> Result<(), LoadError> {
        Err(LoadError::Unsupported)
    }

    fn finish_load(&mut self, _: Slot, _: &[MetaChange]) -> Result<(), LoadError> {
        Err(LoadError::Unsupported)
    }
}

struct Watched {
    service: Service,
    visits: Arc<AtomicUsize>,
}

impl Watched {
    fn new() -> Self {
        let tree = Tree::default();
        let visits = Arc::clone(&tree.visits);
        Self { service: Service::new(Box::new(tree)), visits }
    }

    /// Returns the number of entries visited by `work`.
    fn of(&mut self, work: impl FnOnce(&mut Service)) -> usize {
        let before = self.visits.load(Ordering::Relaxed);
        work(&mut self.service);
        self.visits.load(Ordering::Relaxed) - before
    }

    fn put(&mut self, key: &'static str) {
        let request = PutRequest { key: key.into(), ..PutRequest::default() };
        apply::<PutResponse>(&mut self.service, &Command::Put(request)).unwrap();
    }

    fn delete(&mut self, key: &'static str) {
        let request = DeleteRangeRequest { key: key.into(), ..DeleteRangeRequest::default() };
        apply::<DeleteRangeResponse>(&mut self.service, &Command::Delete(request)).unwrap();
    }

    /// Discards and removes all history. Returns the number of entries visited.
    fn compact(&mut self) -> usize {
        let request =
            CompactionRequest { revision: self.service.mvcc().revision(), physical: true };
        apply::<CompactionResponse>(&mut self.service, &Command::Compact(request)).unwrap();
        self.of(|service| {
            while service.mvcc().has_unscrubbed() {
                apply_bytes(service, &Command::Scrub.encode());
            }
        })
    }
}

/// A compaction visits few entries, however often a key changed. Without the bound, the number of
/// visits would be quadratic.
#[test]
fn compaction_looks_at_few_entries_however_often_a_key_changed() {
    let mut watched = Watched::new();
    let mut looked = 0;
    for _ in 0..10 {
        (0..300).for_each(|_| watched.put("hot"));
        looked += watched.compact();
    }
    assert!(looked < 3000 * 5, "{looked}");
    let mut looked = 0;
    for _ in 0..10 {
        for _ in 0..150 {
            watched.put("now and then");
            watched.delete("now and then");
        }
        looked += watched.compact();
    }
    assert!(looked < 3000 * 5, "{looked}");
}

#[test]
fn leases_that_are_kept_alive_are_looked_at_once() {
    let (mut watched, leases) = (Watched::new(), 100);
    let mut now_ms = 1000;
    watched.service.set_time(now_ms);
    for id in 1..=leases {
        let granted = LeaseGrant { id, ttl: 10, now_ms };
        let command = Command::Grant(granted);
        apply::<LeaseGrantResponse>(&mut watched.service, &command).unwrap();
    }
    let (mut looked, mut asked) = (0, 0);
    for _ in 0..100 {
        // Each in a command and at a time of its own.
        for id in 1..=leases {
            now_ms += 10;
            watched.service.set_time(now_ms);
            let kept = LeaseKeepAlives { ids: vec![id], now_ms, auth_revision: 0 };
            let command = Command::KeepAlive(kept);
            apply::<KeepAliveTtls>(&mut watched.service, &command).unwrap();
            looked += watched.of(|service| {
                assert_eq!(service.next_deadline(now_ms + 100), None);
                let first = service.next_deadline(u64::MAX).unwrap();
                assert!((now_ms..now_ms + 10_000).contains(&first));
                service.due(&mut |_| panic!("no lease ended"));
            });
            asked += 3;
        }
    }
    assert!(looked < asked * 3, "{looked} for {asked} questions");
    // The leases end at their time.
    watched.service.set_time(now_ms + 10_001);
    let mut ended = 0;
    looked = watched.of(|service| {
        while service.mvcc().has_expired_leases() {
            apply_bytes(service, &Command::Expire.encode());
            ended += 1;
        }
    });
    assert_eq!((ended, watched.service.mvcc().stored_lease_count()), (1, 0));
    // Leases kept alive in the last ten seconds, and none from earlier.
    assert!(looked < 1500, "{looked}");
}

/// Many leases end together, a few per command, and each is visited once.
#[test]
fn leases_that_ended_are_looked_at_once() {
    let mut watched = Watched::new();
    watched.service.set_time(1000);
    for id in (1..=2000).chain([-3]) {
        let granted = LeaseGrant { id, ttl: 10, now_ms: 1000 };
        let command = Command::Grant(granted);
        apply::<LeaseGrantResponse>(&mut watched.service, &command).unwrap();
    }
    watched.service.set_time(11_000);
    let looked = watched.of(|service| {
        while service.mvcc().has_expired_leases() {
            apply_bytes(service, &Command::Expire.encode());
        }
    });
    assert_eq!(watched.service.mvcc().stored_lease_count(), 0);
    assert!(looked < 2001 * 5, "{looked}");
}

#[test]
fn a_put_looks_for_its_key_alone() {
    let mut watched = Watched::new();
    watched.put("a");
    let visits = watched.visits.load(Ordering::Relaxed);
    (0..10).for_each(|_| watched.put("a"));
    assert_eq!(watched.visits.load(Ordering::Relaxed), visits, "no scans");
}
