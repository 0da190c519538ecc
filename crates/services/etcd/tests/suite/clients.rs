//! gRPC and HTTP clients against nodes in this process, with real sockets and disks.

use std::{
    io::{Read as _, Write as _},
    net::TcpStream,
    path::Path,
    time::Duration,
};

use quorate::{Builder, Embedded, Protection, StateMachine};
use quorate_etcd::{
    front::{Listener, Retention, Server, Settings, TokenKind},
    proto::etcdserverpb::{
        CompactionRequest, Compare, DeleteRangeRequest, MemberAddRequest, MemberListRequest,
        MoveLeaderRequest, PutRequest, RangeRequest, RequestOp, StatusRequest, TxnRequest,
        cluster_client::ClusterClient, compare::TargetUnion, kv_client::KvClient,
        maintenance_client::MaintenanceClient, request_op::Request, response_op::Response,
    },
    service::Service,
    store::memory::MemoryStore,
};
use quorate_testbed::process::free_port;
use tokio::runtime::Runtime;
use tonic::{Code, Status, transport::Channel};

mod auth;
mod figures;
mod gateway;
mod jwt;
mod leases;
mod maintenance;
mod members;
mod range_streams;
mod turns;
mod watches;

const MEMORY_BYTES: usize = 32 << 20;

/// Node in this process, whose server is dropped first.
struct Node {
    server: Option<Server>,
    replica: Option<Embedded>,
    address: String,
}

impl Node {
    fn start(folder: &Path, node: u32, cluster: &[(u32, String)]) -> Self {
        let service = || Service::new(Box::new(MemoryStore::new()));
        Self::start_with(folder, node, cluster, service, 0)
    }

    /// Starts a node with a quota.
    fn within(folder: &Path, quota_bytes: u64) -> Self {
        let service = || Service::new(Box::new(MemoryStore::new()));
        Self::start_with(folder, 1, &[], service, quota_bytes)
    }

    fn start_with<S: StateMachine + 'static>(
        folder: &Path,
        node: u32,
        cluster: &[(u32, String)],
        service: impl FnOnce() -> S + Send + 'static,
        quota_bytes: u64,
    ) -> Self {
        Self::start_as(folder, node, cluster, service, |settings| {
            settings.quota_bytes = quota_bytes;
        })
    }

    fn start_as<S: StateMachine + 'static>(
        folder: &Path,
        node: u32,
        cluster: &[(u32, String)],
        service: impl FnOnce() -> S + Send + 'static,
        set: impl FnOnce(&mut Settings),
    ) -> Self {
        let door = Listener::bind("127.0.0.1:0", Protection::Loopback).expect("a port");
        let address = door.address().to_string();
        let replica = Builder::new(folder.join(node.to_string()))
            .node(node)
            .cluster(cluster.to_vec())
            .client(&address)
            .start(service)
            .expect("starts");
        let status = replica.status().expect("answers");
        let mut settings = Settings {
            cluster_id: status.cluster,
            node_id: status.member.node,
            connections_max: 16,
            memory_bytes: MEMORY_BYTES,
            quota_bytes: 0,
            retention: Retention::All,
            token_kind: TokenKind::Simple,
        };
        set(&mut settings);
        let local = replica.local().clone();
        let server = door.serve(local, replica.handle().clone(), settings);
        Self { server: Some(server.expect("serves")), replica: Some(replica), address }
    }

    fn alone(folder: &Path) -> Self {
        Self::start(folder, 1, &[])
    }

    fn replica(&self) -> &Embedded {
        self.replica.as_ref().expect("it runs")
    }

    fn channel(&self) -> Channel {
        let endpoint = Channel::from_shared(format!("http://{}", self.address));
        endpoint.expect("an address").connect_lazy()
    }

    fn kv(&self) -> KvClient<Channel> {
        KvClient::new(self.channel())
            .max_decoding_message_size(usize::MAX)
            .max_encoding_message_size(usize::MAX)
    }
}

/// Blocks the node's thread and fills its request queue until dropped.
struct Busy {
    _release: std::sync::mpsc::Sender<()>,
}

impl Busy {
    fn make(node: &Node) -> Self {
        let local = node.replica().local();
        let (release, released) = std::sync::mpsc::channel::<()>();
        let (tell, told) = std::sync::mpsc::channel();
        let stand_still = move |_| {
            tell.send(()).expect("the test waits");
            let _ = released.recv();
        };
        local.submit_query_local("", stand_still).expect("there is room");
        told.recv().expect("it stands still");
        while local.submit_query_local("", drop).is_ok() {}
        Self { _release: release }
    }
}

impl Drop for Node {
    fn drop(&mut self) {
        drop(self.server.take());
        drop(self.replica.take());
    }
}

fn three(folder: &Path) -> Vec<Node> {
    three_with(folder, &[TokenKind::Simple, TokenKind::Simple, TokenKind::Simple])
}

/// Starts a cluster of three nodes with the given kinds of tokens.
fn three_with(folder: &Path, tokens: &[TokenKind]) -> Vec<Node> {
    let address = |_| format!("127.0.0.1:{}", free_port().expect("a port"));
    let cluster: Vec<(u32, String)> = (1..).zip(tokens.iter().map(address)).collect();
    // Concurrently, because a first start waits for the founder.
    std::thread::scope(|scope| {
        let starts: Vec<_> = (1..)
            .zip(tokens)
            .map(|(node, tokens)| {
                let cluster = &cluster;
                scope.spawn(move || {
                    let service = || Service::new(Box::new(MemoryStore::new()));
                    Node::start_as(folder, node, cluster, service, |settings| {
                        settings.token_kind = tokens.clone();
                    })
                })
            })
            .collect();
        starts.into_iter().map(|start| start.join().expect("starts")).collect()
    })
}

fn runtime() -> Runtime {
    tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime")
}

fn put(key: &'static str, value: &'static str) -> PutRequest {
    PutRequest { key: key.into(), value: value.into(), ..PutRequest::default() }
}

fn get(key: &'static str) -> RangeRequest {
    RangeRequest { key: key.into(), ..RangeRequest::default() }
}

fn op(request: Request) -> RequestOp {
    RequestOp { request: Some(request) }
}

fn check<T: std::fmt::Debug>(refused: Result<T, Status>, code: Code, text: &str) {
    let status = refused.expect_err("refused");
    assert_eq!((status.code(), status.message()), (code, text));
}

#[test]
fn a_client_puts_gets_and_deletes() {
    let folder = tempfile::tempdir().expect("a folder");
    let node = Node::alone(folder.path());
    runtime().block_on(async {
        let mut kv = node.kv();
        let header = kv.put(put("a", "1")).await.unwrap().into_inner().header.unwrap();
        assert_eq!((header.member_id, header.revision), (1, 2));
        assert!(header.cluster_id > 0);
        let again = PutRequest { prev_kv: true, ..put("a", "2") };
        let before = kv.put(again).await.unwrap().into_inner().prev_kv.unwrap();
        assert_eq!(&before.value[..], b"1");
        let found = kv.range(get("a")).await.unwrap().into_inner();
        let header = found.header.unwrap();
        assert_eq!((found.count, found.more, header.revision), (1, false, 3));
        assert!(header.raft_term > 0 || node.replica().status().unwrap().ballot.round == 0);
        let kv_found = &found.kvs[0];
        assert_eq!((kv_found.create_revision, kv_found.mod_revision, kv_found.version), (2, 3, 2));
        let delete = DeleteRangeRequest { key: "a".into(), ..DeleteRangeRequest::default() };
        let deleted = kv.delete_range(delete.clone()).await.unwrap().into_inner();
        assert_eq!((deleted.deleted, deleted.header.unwrap().revision), (1, 4));
        let deleted = kv.delete_range(delete).await.unwrap().into_inner();
        assert_eq!((deleted.deleted, deleted.header.unwrap().revision), (0, 4));
        let past = RangeRequest { revision: 3, serializable: true, ..get("a") };
        assert_eq!(kv.range(past).await.unwrap().into_inner().count, 1);
    });
}

#[test]
fn a_transaction_compares_and_chooses() {
    let folder = tempfile::tempdir().expect("a folder");
    let node = Node::alone(folder.path());
    runtime().block_on(async {
        let mut kv = node.kv();
        let txn = TxnRequest {
            compare: vec![Compare {
                target: 1,
                key: "a".into(),
                target_union: Some(TargetUnion::CreateRevision(0)),
                ..Compare::default()
            }],
            success: vec![op(Request::RequestPut(put("a", "1")))],
            failure: vec![op(Request::RequestRange(get("a")))],
        };
        let first = kv.txn(txn.clone()).await.unwrap().into_inner();
        assert!(first.succeeded);
        let second = kv.txn(txn).await.unwrap().into_inner();
        assert_eq!((second.succeeded, second.header.unwrap().revision), (false, 2));
        let Some(Response::ResponseRange(found)) = &second.responses[0].response else {
            panic!("it was a range");
        };
        assert_eq!(&found.kvs[0].value[..], b"1");
        let readonly = TxnRequest {
            success: vec![op(Request::RequestRange(get("a")))],
            ..TxnRequest::default()
        };
        let read = kv.txn(readonly).await.unwrap().into_inner();
        assert_eq!((read.succeeded, read.header.unwrap().revision), (true, 2));
    });
}

/// Refusals have etcd's codes and messages, as clients match on both.
#[test]
fn what_is_refused_is_refused_in_the_words_of_etcd() {
    let folder = tempfile::tempdir().expect("a folder");
    let node = Node::alone(folder.path());
    runtime().block_on(async {
        let mut kv = node.kv();
        let invalid = Code::InvalidArgument;
        let range = |request| {
            let mut kv = node.kv();
            async move { kv.range(request).await }
        };
        check(range(get("")).await, invalid, "etcdserver: key is not provided");
        let sorted = RangeRequest { sort_order: 7, ..get("a") };
        check(range(sorted).await, invalid, "etcdserver: invalid sort option");
        let future = RangeRequest { revision: 9, ..get("a") };
        let text = "etcdserver: mvcc: required revision is a future revision";
        check(range(future).await, Code::OutOfRange, text);
        let ignoring = PutRequest { ignore_value: true, ..put("a", "") };
        check(kv.put(ignoring.clone()).await, invalid, "etcdserver: key not found");
        let both = PutRequest { value: "1".into(), ..ignoring };
        check(kv.put(both).await, invalid, "etcdserver: value is provided");
        let lease = PutRequest { lease: 5, ..put("a", "1") };
        let text = "etcdserver: requested lease not found";
        check(kv.put(lease.clone()).await, Code::NotFound, text);
        let both = PutRequest { ignore_lease: true, ..lease };
        check(kv.put(both).await, invalid, "etcdserver: lease is provided");
        let twice = vec![op(Request::RequestPut(put("a", "1"))); 2];
        let txn = TxnRequest { success: twice, ..TxnRequest::default() };
        let text = "etcdserver: duplicate key given in txn request";
        check(kv.txn(txn).await, invalid, text);
        let many = TxnRequest {
            success: vec![op(Request::RequestRange(get("a"))); 129],
            ..TxnRequest::default()
        };
        let text = "etcdserver: too many operations in txn request";
        check(kv.txn(many).await, invalid, text);
        kv.put(put("a", "1")).await.unwrap();
        kv.put(put("a", "2")).await.unwrap();
        let compact = |revision| CompactionRequest { revision, physical: true };
        let done = kv.compact(compact(3)).await.unwrap().into_inner();
        assert_eq!(done.header.unwrap().revision, 3);
        let text = "etcdserver: mvcc: required revision has been compacted";
        check(kv.compact(compact(3)).await, Code::OutOfRange, text);
        let past = RangeRequest { revision: 2, ..get("a") };
        check(range(past).await, Code::OutOfRange, text);
    });
}

#[test]
fn a_request_that_is_too_large_is_refused() {
    let folder = tempfile::tempdir().expect("a folder");
    let node = Node::alone(folder.path());
    runtime().block_on(async {
        let mut kv = node.kv();
        let of = |bytes: usize| PutRequest { value: vec![7; bytes].into(), ..put("a", "") };
        kv.put(of((1536 << 10) - 100)).await.unwrap();
        let text = "etcdserver: request is too large";
        check(kv.put(of(1536 << 10)).await, Code::InvalidArgument, text);
        let refused = kv.put(of(3 << 20)).await.expect_err("refused");
        assert_eq!(refused.code(), Code::OutOfRange, "{refused}");
        assert_eq!(kv.range(get("a")).await.unwrap().into_inner().count, 1);
    });
}

/// A response counts against the budget until it is sent. Requests above the budget are refused.
#[test]
fn memory_for_answers_is_bounded() {
    let folder = tempfile::tempdir().expect("a folder");
    let node = Node::alone(folder.path());
    runtime().block_on(async {
        let mut kv = node.kv();
        for key in ["a", "b", "c", "d"] {
            let large = PutRequest { value: vec![7; 1 << 20].into(), ..put(key, "") };
            kv.put(large).await.unwrap();
        }
        let all = RangeRequest { range_end: "e".into(), ..get("a") };
        // One after the other, whatever the total.
        for _ in 0..12 {
            assert_eq!(kv.range(all.clone()).await.unwrap().into_inner().count, 4);
        }
        let ranges = vec![op(Request::RequestRange(all)); 10];
        let txn = TxnRequest { success: ranges, ..TxnRequest::default() };
        let text = "etcdserver: too many requests";
        check(kv.txn(txn).await, Code::ResourceExhausted, text);
    });
}

#[test]
fn three_nodes_tell_one_story() {
    let folder = tempfile::tempdir().expect("a folder");
    let mut nodes = three(folder.path());
    runtime().block_on(async {
        for (node, key) in nodes.iter().zip(["a", "b", "c"]) {
            node.kv().put(put(key, "1")).await.unwrap();
            // Writes acknowledged here are visible at every node.
            for other in &nodes {
                let found = other.kv().range(get(key)).await.unwrap().into_inner();
                assert_eq!(found.count, 1);
            }
        }
        let mut cluster = ClusterClient::new(nodes[1].channel());
        let list = MemberListRequest { linearizable: true };
        let members = cluster.member_list(list).await.unwrap().into_inner().members;
        let ids: Vec<u64> = members.iter().map(|member| member.id).collect();
        assert_eq!(ids, [1, 2, 3]);
        for (member, node) in members.iter().zip(&nodes) {
            assert_eq!(member.client_ur_ls, [format!("http://{}", node.address)]);
            assert!(!member.is_learner && !member.peer_ur_ls.is_empty());
        }
        let add = cluster.member_add(MemberAddRequest::default()).await;
        let bad = "etcdserver: given member URLs are invalid";
        check(add, Code::InvalidArgument, bad);
        let mut statuses = Vec::new();
        for node in &nodes {
            let mut maintenance = MaintenanceClient::new(node.channel());
            let status = maintenance.status(StatusRequest {}).await;
            statuses.push(status.unwrap().into_inner());
        }
        let leader = statuses[0].leader;
        assert!(statuses.iter().all(|status| status.leader == leader && leader > 0));
        assert_eq!(statuses[0].version, "3.6.0");
        let target_id = leader % 3 + 1;
        for (node, id) in nodes.iter().zip(1..) {
            let mut maintenance = MaintenanceClient::new(node.channel());
            let moved = maintenance.move_leader(MoveLeaderRequest { target_id }).await;
            if id == leader {
                moved.unwrap();
                break;
            }
            check(moved, Code::FailedPrecondition, "etcdserver: not leader");
        }
    });
    // Two nodes continue without the third, and a restarted node catches up.
    let third = nodes.pop().expect("three");
    drop(third);
    runtime().block_on(async {
        let mut kv = nodes[0].kv();
        let revision = kv.put(put("d", "1")).await.unwrap().into_inner().header.unwrap().revision;
        assert_eq!(revision, 5);
    });
}

#[test]
fn a_node_remembers_and_comes_back_from_a_snapshot() {
    let folder = tempfile::tempdir().expect("a folder");
    let node = Node::alone(folder.path());
    runtime().block_on(async {
        let mut kv = node.kv();
        for value in ["1", "2", "3"] {
            kv.put(put("a", value)).await.unwrap();
        }
    });
    let taken = node.replica().handle().snapshot(None).expect("taken");
    assert!(taken.bytes > 0);
    runtime().block_on(async {
        node.kv().put(put("a", "4")).await.unwrap();
    });
    drop(node);
    let node = Node::alone(folder.path());
    runtime().block_on(async {
        let mut kv = node.kv();
        let found = kv.range(get("a")).await.unwrap().into_inner();
        assert_eq!((found.kvs[0].version, found.kvs[0].mod_revision), (4, 5));
        let past = RangeRequest { revision: 3, ..get("a") };
        let found = kv.range(past).await.unwrap().into_inner();
        assert_eq!(&found.kvs[0].value[..], b"2");
    });
}

fn page(address: &str, path: &str) -> String {
    let mut stream = TcpStream::connect(address).expect("listens");
    stream.set_read_timeout(Some(Duration::from_secs(20))).expect("set");
    write!(stream, "GET {path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n").expect("sent");
    let mut text = String::new();
    stream.read_to_string(&mut text).expect("answered");
    text
}

#[test]
fn pages_say_version_and_health() {
    let folder = tempfile::tempdir().expect("a folder");
    let node = Node::alone(folder.path());
    let version = page(&node.address, "/version");
    assert!(version.contains(r#""etcdserver":"3.6.0","etcdcluster":"3.6.0""#), "{version}");
    for path in ["/health", "/health?serializable=true"] {
        let health = page(&node.address, path);
        assert!(health.starts_with("HTTP/1.1 200"), "{health}");
        assert!(health.ends_with(r#"{"health":"true","reason":""}"#), "{health}");
    }
    assert!(page(&node.address, "/readyz").ends_with("ok\n"));
    assert!(page(&node.address, "/livez").ends_with("ok\n"));
}

/// Malformed input gets an error or ends the connection; other clients are served.
#[test]
fn strangers_do_not_disturb_clients() {
    let folder = tempfile::tempdir().expect("a folder");
    let node = Node::alone(folder.path());
    for nonsense in [
        &b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc"[..],
        b"*1\r\n$4\r\nPING\r\n",
        b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\xff\xff\xff\xff\xff\xff\xff\xff\xff",
    ] {
        let mut stream = TcpStream::connect(&node.address).expect("listens");
        stream.write_all(nonsense).expect("sent");
        stream.shutdown(std::net::Shutdown::Write).expect("half-closed");
        let _ = stream.read_to_end(&mut Vec::new());
    }
    // More idle connections than allowed.
    let idle: Vec<_> =
        (0..40).map(|_| TcpStream::connect(&node.address).expect("listens")).collect();
    drop(idle);
    runtime().block_on(async {
        let mut kv = node.kv();
        for _ in 0..50 {
            if kv.put(put("a", "1")).await.is_ok() {
                return;
            }
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
        panic!("clients are not served any more");
    });
}
