//! Login: tokens are valid at every member until they are invalidated.

use std::time::Duration;

use quorate_etcd::proto::{
    authpb::{Permission, UserAddOptions, permission::Type},
    etcdserverpb::{
        AlarmRequest, AuthDisableRequest, AuthEnableRequest, AuthRoleAddRequest,
        AuthRoleGrantPermissionRequest, AuthRoleRevokePermissionRequest, AuthStatusRequest,
        AuthUserAddRequest, AuthUserChangePasswordRequest, AuthUserDeleteRequest,
        AuthUserGetRequest, AuthUserGrantRoleRequest, AuthUserListRequest, AuthenticateRequest,
        CompactionRequest, DefragmentRequest, HashKvRequest, LeaseGrantRequest,
        LeaseKeepAliveRequest, MemberListRequest, PutRequest, SnapshotRequest, StatusRequest,
        WatchCreateRequest, WatchRequest, WatchResponse, auth_client::AuthClient,
        cluster_client::ClusterClient, lease_client::LeaseClient,
        maintenance_client::MaintenanceClient, watch_client::WatchClient,
        watch_request::RequestUnion,
    },
    health::{HealthCheckRequest, health_client::HealthClient},
    v3lockpb::{LockRequest, lock_client::LockClient},
};
use tokio::sync::mpsc;
use tonic::{Code, Request, Status, Streaming, codegen::tokio_stream::Stream, transport::Channel};

use super::{Node, check, get, put, runtime, three};

const DENIED: &str = "etcdserver: permission denied";
pub const INVALID: &str = "etcdserver: invalid auth token";
const NO_USER: &str = "etcdserver: user name is empty";

/// Returns a request with a token.
pub fn with<T>(token: &str, message: T) -> Request<T> {
    let mut request = Request::new(message);
    request.metadata_mut().insert("token", token.parse().expect("text"));
    request
}

pub fn auth(node: &Node) -> AuthClient<Channel> {
    AuthClient::new(node.channel())
}

pub async fn login(node: &Node, name: &str, password: &str) -> Result<String, Status> {
    let request = AuthenticateRequest { name: name.to_owned(), password: password.to_owned() };
    Ok(auth(node).authenticate(request).await?.into_inner().token)
}

async fn add(node: &Node, token: &str, name: &str, password: &str) {
    let request = AuthUserAddRequest {
        name: name.to_owned(),
        password: password.to_owned(),
        ..AuthUserAddRequest::default()
    };
    auth(node).user_add(with(token, request)).await.expect("it is new");
}

async fn grant(node: &Node, token: &str, user: &str, role: &str) {
    let request = AuthUserGrantRoleRequest { user: user.to_owned(), role: role.to_owned() };
    auth(node).user_grant_role(with(token, request)).await.expect("both are there");
}

fn permission(
    role: &str,
    key: &'static str,
    range_end: &'static str,
) -> AuthRoleGrantPermissionRequest {
    AuthRoleGrantPermissionRequest {
        name: role.to_owned(),
        perm: Some(Permission {
            perm_type: Type::Readwrite.into(),
            key: key.into(),
            range_end: range_end.into(),
        }),
    }
}

/// Enables auth with root and ann, who has all rights to keys from `a` up to `b`. Returns root's
/// token.
pub async fn enable(node: &Node) -> String {
    add(node, "", "root", "r00t").await;
    grant(node, "", "root", "root").await;
    add(node, "", "ann", "sesame").await;
    let role = AuthRoleAddRequest { name: "some".to_owned() };
    auth(node).role_add(role).await.unwrap();
    auth(node).role_grant_permission(permission("some", "a", "b")).await.unwrap();
    grant(node, "", "ann", "some").await;
    auth(node).auth_enable(AuthEnableRequest {}).await.unwrap();
    login(node, "root", "r00t").await.unwrap()
}

#[test]
fn a_token_is_good_at_every_member() {
    let folder = tempfile::tempdir().unwrap();
    let nodes = three(folder.path());
    runtime().block_on(async {
        let root = enable(&nodes[0]).await;
        let ann = login(&nodes[1], "ann", "sesame").await.unwrap();
        for node in &nodes {
            let mut kv = node.kv();
            // The node has caught up with the others once it answers.
            kv.range(with(&root, get("a"))).await.unwrap();
            kv.put(with(&ann, put("a", "1"))).await.unwrap();
            let serializable =
                quorate_etcd::proto::etcdserverpb::RangeRequest { serializable: true, ..get("a") };
            kv.range(with(&ann, serializable.clone())).await.unwrap();
            check(kv.put(with(&ann, put("b", "1"))).await, Code::PermissionDenied, DENIED);
            check(kv.range(with(&ann, get("b"))).await, Code::PermissionDenied, DENIED);
            check(kv.range(get("a")).await, Code::InvalidArgument, NO_USER);
            check(kv.range(serializable).await, Code::InvalidArgument, NO_USER);
            check(kv.put(put("a", "1")).await, Code::InvalidArgument, NO_USER);
            for token in ["x.1", "", &ann[1..], &format!("{ann}AAAA")] {
                check(kv.put(with(token, put("a", "1"))).await, Code::Unauthenticated, INVALID);
            }
            // As sent by the HTTP gateway.
            let mut request = Request::new(get("a"));
            request.metadata_mut().insert("authorization", ann.parse().unwrap());
            kv.range(request).await.unwrap();
        }
        let wrong = "etcdserver: authentication failed, invalid user ID or password";
        for (name, password) in [("ann", "Sesame"), ("eve", "sesame"), ("ann", ""), ("", "")] {
            check(login(&nodes[2], name, password).await, Code::InvalidArgument, wrong);
        }
        let status = auth(&nodes[2]).auth_status(with(&root, AuthStatusRequest {})).await.unwrap();
        assert!(status.into_inner().enabled);
    });
}

/// Cluster maintenance requires the `root` role; other requests are open to any user.
#[test]
fn what_looks_after_the_cluster_needs_root() {
    let folder = tempfile::tempdir().unwrap();
    let node = Node::alone(folder.path());
    runtime().block_on(async {
        let root = enable(&node).await;
        let ann = login(&node, "ann", "sesame").await.unwrap();
        let mut keeper = MaintenanceClient::new(node.channel());
        let mut cluster = ClusterClient::new(node.channel());
        let mut lease = LeaseClient::new(node.channel());
        // Each request as an anonymous client, as ann and as root.
        macro_rules! needs {
            (root: $client:expr, $call:ident, $request:expr) => {{
                check($client.$call($request).await.map(drop), Code::InvalidArgument, NO_USER);
                check($client.$call(with(&ann, $request)).await.map(drop), Code::PermissionDenied, DENIED);
                let done = $client.$call(with(&root, $request)).await.map(drop);
                assert!(!done.is_err_and(|status| status.code() == Code::PermissionDenied));
            }};
            (user: $client:expr, $call:ident, $request:expr) => {{
                check($client.$call($request).await.map(drop), Code::InvalidArgument, NO_USER);
                $client.$call(with(&ann, $request)).await.unwrap();
            }};
        }
        needs!(root: keeper, defragment, DefragmentRequest {});
        needs!(root: keeper, snapshot, SnapshotRequest {});
        needs!(root: keeper, hash_kv, HashKvRequest::default());
        needs!(root: keeper, move_leader, quorate_etcd::proto::etcdserverpb::MoveLeaderRequest::default());
        needs!(root: keeper, alarm, AlarmRequest { action: 1, member_id: 7, alarm: 2 });
        needs!(root: node.kv(), compact, CompactionRequest { revision: 1, physical: false });
        needs!(root: auth(&node), user_list, AuthUserListRequest {});
        needs!(root: auth(&node), auth_status, AuthStatusRequest {});
        needs!(root: auth(&node), user_add, AuthUserAddRequest { name: "new".to_owned(), password: "p".to_owned(), ..AuthUserAddRequest::default() });
        needs!(user: keeper, alarm, AlarmRequest::default());
        needs!(user: keeper, status, StatusRequest {});
        needs!(user: cluster, member_list, MemberListRequest::default());
        needs!(user: lease, lease_grant, LeaseGrantRequest { ttl: 60, id: 0 });
        let own = AuthUserGetRequest { name: "ann".to_owned() };
        let own = auth(&node).user_get(with(&ann, own)).await.unwrap().into_inner();
        assert_eq!(own.roles, ["some"]);
        let other = AuthUserGetRequest { name: "root".to_owned() };
        check(auth(&node).user_get(with(&ann, other)).await, Code::PermissionDenied, DENIED);
        // Programs without a user query health and versions.
        let mut health = HealthClient::new(node.channel());
        health.check(HealthCheckRequest::default()).await.unwrap();
    });
}

#[test]
fn a_token_is_of_one_password_and_one_enabling() {
    let folder = tempfile::tempdir().unwrap();
    let node = Node::alone(folder.path());
    runtime().block_on(async {
        let root = enable(&node).await;
        let ann = login(&node, "ann", "sesame").await.unwrap();
        let reads = |token: String| {
            let mut kv = node.kv();
            async move { kv.range(with(&token, get("a"))).await.map(drop) }
        };
        // The token stays valid while roles are granted and revoked.
        grant(&node, &root, "ann", "root").await;
        reads(ann.clone()).await.unwrap();
        node.kv().put(with(&ann, put("x", "1"))).await.unwrap();
        let revoke = quorate_etcd::proto::etcdserverpb::AuthUserRevokeRoleRequest {
            name: "ann".to_owned(),
            role: "root".to_owned(),
        };
        auth(&node).user_revoke_role(with(&root, revoke)).await.unwrap();
        check(node.kv().put(with(&ann, put("x", "1"))).await, Code::PermissionDenied, DENIED);
        let change = AuthUserChangePasswordRequest {
            name: "ann".to_owned(),
            password: "open".to_owned(),
            ..AuthUserChangePasswordRequest::default()
        };
        auth(&node).user_change_password(with(&root, change)).await.unwrap();
        check(reads(ann).await, Code::Unauthenticated, INVALID);
        assert!(login(&node, "ann", "sesame").await.is_err());
        let ann = login(&node, "ann", "open").await.unwrap();
        reads(ann.clone()).await.unwrap();
        let delete = AuthUserDeleteRequest { name: "ann".to_owned() };
        auth(&node).user_delete(with(&root, delete)).await.unwrap();
        check(reads(ann.clone()).await, Code::Unauthenticated, INVALID);
        add(&node, &root, "ann", "open").await;
        check(reads(ann).await, Code::Unauthenticated, INVALID);
        auth(&node).auth_disable(with(&root, AuthDisableRequest {})).await.unwrap();
        node.kv().put(put("a", "1")).await.unwrap();
        let off = "etcdserver: authentication is not enabled";
        check(login(&node, "root", "r00t").await, Code::FailedPrecondition, off);
        auth(&node).auth_enable(AuthEnableRequest {}).await.unwrap();
        check(reads(root).await, Code::Unauthenticated, INVALID);
        let root = login(&node, "root", "r00t").await.unwrap();
        // A user without a password authenticates by certificate.
        let bob = AuthUserAddRequest {
            name: "bob".to_owned(),
            options: Some(UserAddOptions { no_password: true }),
            ..AuthUserAddRequest::default()
        };
        auth(&node).user_add(with(&root, bob)).await.unwrap();
        assert!(login(&node, "bob", "").await.is_err());
        for password in [String::new(), "x".repeat(513)] {
            let eve = AuthUserAddRequest {
                name: "eve".to_owned(),
                password,
                ..AuthUserAddRequest::default()
            };
            let refused = auth(&node).user_add(with(&root, eve)).await.expect_err("refused");
            assert_eq!(refused.code(), Code::InvalidArgument);
        }
    });
}

struct Watching {
    answers: Streaming<WatchResponse>,
    ask: mpsc::Sender<WatchRequest>,
}

impl Watching {
    async fn begin(node: &Node, token: Option<&str>) -> Self {
        let (ask, asked) = mpsc::channel::<WatchRequest>(8);
        let requests = Asked(asked);
        let request = match token {
            Some(token) => with(token, requests),
            None => Request::new(requests),
        };
        let answers = WatchClient::new(node.channel()).watch(request).await.unwrap().into_inner();
        Self { answers, ask }
    }

    async fn watch(&mut self, key: &'static str, range_end: &'static str) -> WatchResponse {
        let create = WatchCreateRequest {
            key: key.into(),
            range_end: range_end.into(),
            ..WatchCreateRequest::default()
        };
        let request_union = Some(RequestUnion::CreateRequest(create));
        self.ask.send(WatchRequest { request_union }).await.unwrap();
        self.next().await
    }

    async fn next(&mut self) -> WatchResponse {
        let next = tokio::time::timeout(Duration::from_secs(20), self.answers.message());
        next.await.expect("in time").unwrap().expect("it goes on")
    }
}

struct Asked<T>(mpsc::Receiver<T>);

impl<T> Stream for Asked<T> {
    type Item = T;

    fn poll_next(
        mut self: std::pin::Pin<&mut Self>,
        context: &mut std::task::Context<'_>,
    ) -> std::task::Poll<Option<T>> {
        self.0.poll_recv(context)
    }
}

#[test]
fn watchers_end_with_the_right_to_watch() {
    let folder = tempfile::tempdir().unwrap();
    let node = Node::alone(folder.path());
    runtime().block_on(async {
        // An anonymous watcher, while auth is disabled.
        let mut early = Watching::begin(&node, None).await;
        assert!(!early.watch("a", "").await.canceled);
        let root = enable(&node).await;
        let canceled = early.next().await;
        let written = |code: &str, text: &str| format!("rpc error: code = {code} desc = {text}");
        assert!(canceled.canceled);
        assert_eq!(canceled.cancel_reason, written("InvalidArgument", NO_USER));
        let ann = login(&node, "ann", "sesame").await.unwrap();
        auth(&node).role_grant_permission(with(&root, permission("some", "x", ""))).await.unwrap();
        let mut watching = Watching::begin(&node, Some(&ann)).await;
        let denied = watching.watch("a", "c").await;
        assert_eq!((denied.created, denied.canceled, denied.watch_id), (true, true, -1));
        assert_eq!(denied.cancel_reason, written("PermissionDenied", DENIED));
        let (one, other) = (watching.watch("a", "b").await, watching.watch("x", "").await);
        assert!(!one.canceled && !other.canceled);
        // One of the two permissions is revoked.
        let revoke = AuthRoleRevokePermissionRequest {
            role: "some".to_owned(),
            key: "x".into(),
            ..AuthRoleRevokePermissionRequest::default()
        };
        auth(&node).role_revoke_permission(with(&root, revoke)).await.unwrap();
        node.kv().put(with(&root, put("x", "secret"))).await.unwrap();
        let gone = watching.next().await;
        assert_eq!((gone.watch_id, gone.canceled, gone.events.len()), (other.watch_id, true, 0));
        assert_eq!(gone.cancel_reason, written("PermissionDenied", DENIED));
        node.kv().put(with(&ann, put("a", "1"))).await.unwrap();
        let told = watching.next().await;
        assert_eq!((told.watch_id, told.events.len()), (one.watch_id, 1));
        // The user is deleted.
        let delete = AuthUserDeleteRequest { name: "ann".to_owned() };
        auth(&node).user_delete(with(&root, delete)).await.unwrap();
        let gone = watching.next().await;
        assert_eq!((gone.watch_id, gone.canceled), (one.watch_id, true));
        assert_eq!(gone.cancel_reason, written("Unauthenticated", INVALID));
        let mut forged = Watching::begin(&node, Some("x.1")).await;
        let denied = forged.watch("a", "").await;
        assert_eq!(denied.cancel_reason, written("Unauthenticated", INVALID));
    });
}

#[test]
fn leases_and_locks_need_the_keys_behind_them() {
    let folder = tempfile::tempdir().unwrap();
    let node = Node::alone(folder.path());
    runtime().block_on(async {
        let root = enable(&node).await;
        let ann = login(&node, "ann", "sesame").await.unwrap();
        let mut lease = LeaseClient::new(node.channel());
        let granted = LeaseGrantRequest { ttl: 100, id: 77 };
        lease.lease_grant(with(&ann, granted)).await.unwrap();
        let (ask, asked) = mpsc::channel(8);
        let mut kept = lease.lease_keep_alive(with(&ann, Asked(asked))).await.unwrap().into_inner();
        let keep = LeaseKeepAliveRequest { id: 77 };
        ask.send(keep).await.unwrap();
        assert_eq!(kept.message().await.unwrap().unwrap().ttl, 100);
        // Roles change meanwhile, without effect on the stream.
        let role = AuthRoleAddRequest { name: "other".to_owned() };
        auth(&node).role_add(with(&root, role)).await.unwrap();
        ask.send(keep).await.unwrap();
        assert_eq!(kept.message().await.unwrap().unwrap().ttl, 100);
        let secret = PutRequest { lease: 77, ..put("x", "1") };
        node.kv().put(with(&root, secret)).await.unwrap();
        ask.send(keep).await.unwrap();
        check(kept.message().await, Code::PermissionDenied, DENIED);
        let mut lock = LockClient::new(node.channel());
        let named = |name: &'static str| LockRequest { name: name.into(), lease: 0 };
        let locked = lock.lock(with(&ann, named("a/lock"))).await.unwrap().into_inner();
        assert!(locked.key.starts_with(b"a/lock/"));
        check(lock.lock(with(&ann, named("x"))).await, Code::PermissionDenied, DENIED);
        check(lock.lock(named("a/lock")).await, Code::InvalidArgument, NO_USER);
    });
}
