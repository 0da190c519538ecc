//! Leases with attached keys, from a client's point of view.

use std::{
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::{Duration, Instant},
};

use quorate::{CommandId, MetaChange, Metadata, Slot, StateMachine};

use quorate_etcd::proto::etcdserverpb::{
    LeaseGrantRequest, LeaseKeepAliveRequest, LeaseLeasesRequest, LeaseRevokeRequest,
    LeaseTimeToLiveRequest, PutRequest, lease_client::LeaseClient,
};
use quorate_etcd::{service::Service, store::memory::MemoryStore};
use tonic::Code;

use super::{Busy, Node, check, get, put, runtime, three};

fn with(lease: i64, key: &'static str) -> PutRequest {
    PutRequest { lease, ..put(key, "1") }
}

#[test]
fn a_lease_is_granted_listed_and_revoked() {
    let folder = tempfile::tempdir().unwrap();
    let node = Node::alone(folder.path());
    runtime().block_on(async {
        let (mut leases, mut kv) = (LeaseClient::new(node.channel()), node.kv());
        let grant = |ttl, id| LeaseGrantRequest { ttl, id };
        let granted = leases.lease_grant(grant(60, 0)).await.unwrap().into_inner();
        assert!(granted.id > 0 && granted.ttl == 60);
        leases.lease_grant(grant(60, 77)).await.unwrap();
        let text = "etcdserver: lease already exists";
        check(leases.lease_grant(grant(60, 77)).await, Code::FailedPrecondition, text);
        let text = "etcdserver: too large lease TTL";
        check(leases.lease_grant(grant(9_000_000_001, 0)).await, Code::OutOfRange, text);
        for key in ["a", "b"] {
            kv.put(with(77, key)).await.unwrap();
        }
        // From here on, the key is attached to another lease.
        kv.put(with(granted.id, "b")).await.unwrap();
        let mut ids: Vec<i64> = leases
            .lease_leases(LeaseLeasesRequest {})
            .await
            .unwrap()
            .into_inner()
            .leases
            .iter()
            .map(|lease| lease.id)
            .collect();
        ids.sort_unstable();
        let mut expected = [77, granted.id];
        expected.sort_unstable();
        assert_eq!(ids, expected);
        let ask = LeaseTimeToLiveRequest { id: 77, keys: true };
        let lease = leases.lease_time_to_live(ask).await.unwrap().into_inner();
        assert_eq!((lease.granted_ttl, &lease.keys[..]), (60, &["a".into()][..]));
        assert!((55..=60).contains(&lease.ttl));
        let revoke = LeaseRevokeRequest { id: 77 };
        let revoked = leases.lease_revoke(revoke).await.unwrap().into_inner();
        assert_eq!(revoked.header.unwrap().revision, 5);
        let text = "etcdserver: requested lease not found";
        check(leases.lease_revoke(revoke).await, Code::NotFound, text);
        assert_eq!(kv.range(get("a")).await.unwrap().into_inner().count, 0);
        assert_eq!(kv.range(get("b")).await.unwrap().into_inner().kvs[0].lease, granted.id);
        let lease = leases.lease_time_to_live(ask).await.unwrap().into_inner();
        assert_eq!((lease.ttl, lease.granted_ttl), (-1, 0));
    });
}

/// When a lease expires by the group's time, its keys are deleted on every node, never earlier and
/// only a little later.
#[test]
fn keys_go_when_nobody_keeps_their_lease_alive() {
    let folder = tempfile::tempdir().unwrap();
    let nodes = three(folder.path());
    runtime().block_on(async {
        let mut leases = LeaseClient::new(nodes[0].channel());
        let mut kv = nodes[1].kv();
        let grant = |id| LeaseGrantRequest { ttl: 2, id };
        let begun = Instant::now();
        for id in [1, 2] {
            leases.lease_grant(grant(id)).await.unwrap();
        }
        kv.put(with(1, "a")).await.unwrap();
        kv.put(with(1, "b")).await.unwrap();
        kv.put(with(2, "kept")).await.unwrap();
        // One request at a time, at another node.
        let mut alive = LeaseClient::new(nodes[2].channel());
        let mut gone = None;
        while begun.elapsed() < Duration::from_secs(6) {
            let request = tonic::codegen::tokio_stream::once(LeaseKeepAliveRequest { id: 2 });
            let mut answers = alive.lease_keep_alive(request).await.unwrap().into_inner();
            let answer = answers.message().await.unwrap().expect("an answer");
            assert_eq!((answer.id, answer.ttl), (2, 2));
            let there = kv.range(get("a")).await.unwrap().into_inner().count == 1;
            if !there {
                gone.get_or_insert_with(|| begun.elapsed());
            }
            tokio::time::sleep(Duration::from_millis(200)).await;
        }
        let gone = gone.expect("it went");
        assert!((Duration::from_secs(2)..Duration::from_secs(5)).contains(&gone), "{gone:?}");
        assert_eq!(kv.range(get("kept")).await.unwrap().into_inner().count, 1);
        // Both in one revision.
        let header = kv.range(get("b")).await.unwrap().into_inner().header.unwrap();
        assert_eq!(header.revision, 5);
        let request = tonic::codegen::tokio_stream::once(LeaseKeepAliveRequest { id: 1 });
        let mut answers = alive.lease_keep_alive(request).await.unwrap().into_inner();
        assert_eq!(answers.message().await.unwrap().expect("an answer").ttl, 0);
    });
}

/// Counts the commands that keep leases alive.
struct Counting {
    service: Service,
    kept: Arc<AtomicUsize>,
}

impl StateMachine for Counting {
    fn apply(&mut self, id: CommandId, command: &[u8], reply: &mut Vec<u8>) {
        // After the prefix of the node's own requests.
        if command.get(1) == Some(&8) {
            self.kept.fetch_add(1, Ordering::Relaxed);
        }
        self.service.apply(id, command, reply);
    }

    fn query(&self, query: &[u8], wall_ms: u64, reply: &mut Vec<u8>) {
        self.service.query(query, wall_ms, reply);
    }

    fn commit(&mut self, applied_to: Slot, meta: &[MetaChange]) {
        self.service.commit(applied_to, meta);
    }

    fn recovered(&mut self) -> (Slot, Metadata) {
        self.service.recovered()
    }

    fn set_time(&mut self, group_ms: u64) {
        self.service.set_time(group_ms);
    }
}

/// Keep-alives that arrive while a command is in flight share the next command. Responses keep the
/// order.
#[test]
fn leases_are_kept_alive_many_at_a_time() {
    const LEASES: i64 = 400;
    let folder = tempfile::tempdir().unwrap();
    let kept = Arc::new(AtomicUsize::new(0));
    let counting =
        Counting { service: Service::new(Box::new(MemoryStore::new())), kept: Arc::clone(&kept) };
    let node = Node::start_with(folder.path(), 1, &[], || counting, 0);
    runtime().block_on(async {
        let mut leases = LeaseClient::new(node.channel());
        for id in 1..=LEASES / 2 {
            let grant = LeaseGrantRequest { ttl: 60, id };
            leases.lease_grant(grant).await.unwrap();
        }
        let busy = Busy::make(&node);
        let requests = (1..=LEASES).map(|id| LeaseKeepAliveRequest { id });
        let requests = tonic::codegen::tokio_stream::iter(requests);
        let asked = leases.lease_keep_alive(requests).await;
        let mut answers = asked.unwrap().into_inner();
        let shortly = Duration::from_millis(300);
        let ended = tokio::time::timeout(shortly, answers.message()).await;
        assert!(ended.is_err(), "the node cannot answer: {ended:?}");
        drop(busy);
        for id in 1..=LEASES {
            let answer = answers.message().await.unwrap().expect("an answer");
            let ttl = if id <= LEASES / 2 { 60 } else { 0 };
            assert_eq!((answer.id, answer.ttl), (id, ttl));
        }
        assert!(answers.message().await.unwrap().is_none());
    });
    let commands = kept.load(Ordering::Relaxed);
    // Some arrive separately once the node is free again, more of them if it is slow.
    assert!((1..300).contains(&commands), "{commands}");
}
