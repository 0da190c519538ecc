//! Counters of connections and services, for the metrics.

use std::sync::{
    Arc,
    atomic::{AtomicI64, AtomicU32, AtomicU64, Ordering},
};

/// Counted methods, each with its service, name and kind.
pub(super) const METHODS: [(&str, &str, &str); 51] = [
    ("etcdserverpb.KV", "Range", UNARY),
    ("etcdserverpb.KV", "RangeStream", SERVER),
    ("etcdserverpb.KV", "Put", UNARY),
    ("etcdserverpb.KV", "DeleteRange", UNARY),
    ("etcdserverpb.KV", "Txn", UNARY),
    ("etcdserverpb.KV", "Compact", UNARY),
    ("etcdserverpb.Watch", "Watch", BIDI),
    ("etcdserverpb.Lease", "LeaseGrant", UNARY),
    ("etcdserverpb.Lease", "LeaseRevoke", UNARY),
    ("etcdserverpb.Lease", "LeaseKeepAlive", BIDI),
    ("etcdserverpb.Lease", "LeaseTimeToLive", UNARY),
    ("etcdserverpb.Lease", "LeaseLeases", UNARY),
    ("etcdserverpb.Cluster", "MemberAdd", UNARY),
    ("etcdserverpb.Cluster", "MemberRemove", UNARY),
    ("etcdserverpb.Cluster", "MemberUpdate", UNARY),
    ("etcdserverpb.Cluster", "MemberList", UNARY),
    ("etcdserverpb.Cluster", "MemberPromote", UNARY),
    ("etcdserverpb.Maintenance", "Alarm", UNARY),
    ("etcdserverpb.Maintenance", "Status", UNARY),
    ("etcdserverpb.Maintenance", "Defragment", UNARY),
    ("etcdserverpb.Maintenance", "Hash", UNARY),
    ("etcdserverpb.Maintenance", "HashKV", UNARY),
    ("etcdserverpb.Maintenance", "Snapshot", SERVER),
    ("etcdserverpb.Maintenance", "MoveLeader", UNARY),
    ("etcdserverpb.Maintenance", "Downgrade", UNARY),
    ("etcdserverpb.Auth", "AuthEnable", UNARY),
    ("etcdserverpb.Auth", "AuthDisable", UNARY),
    ("etcdserverpb.Auth", "AuthStatus", UNARY),
    ("etcdserverpb.Auth", "Authenticate", UNARY),
    ("etcdserverpb.Auth", "UserAdd", UNARY),
    ("etcdserverpb.Auth", "UserGet", UNARY),
    ("etcdserverpb.Auth", "UserList", UNARY),
    ("etcdserverpb.Auth", "UserDelete", UNARY),
    ("etcdserverpb.Auth", "UserChangePassword", UNARY),
    ("etcdserverpb.Auth", "UserGrantRole", UNARY),
    ("etcdserverpb.Auth", "UserRevokeRole", UNARY),
    ("etcdserverpb.Auth", "RoleAdd", UNARY),
    ("etcdserverpb.Auth", "RoleGet", UNARY),
    ("etcdserverpb.Auth", "RoleList", UNARY),
    ("etcdserverpb.Auth", "RoleDelete", UNARY),
    ("etcdserverpb.Auth", "RoleGrantPermission", UNARY),
    ("etcdserverpb.Auth", "RoleRevokePermission", UNARY),
    ("v3lockpb.Lock", "Lock", UNARY),
    ("v3lockpb.Lock", "Unlock", UNARY),
    ("v3electionpb.Election", "Campaign", UNARY),
    ("v3electionpb.Election", "Proclaim", UNARY),
    ("v3electionpb.Election", "Leader", UNARY),
    ("v3electionpb.Election", "Observe", SERVER),
    ("v3electionpb.Election", "Resign", UNARY),
    ("grpc.health.v1.Health", "Check", UNARY),
    ("grpc.health.v1.Health", "Watch", SERVER),
];
const UNARY: &str = "unary";
const SERVER: &str = "server_stream";
const BIDI: &str = "bidi_stream";

/// Names of the gRPC codes in metric labels, by number.
pub(super) const CODES: [&str; 17] = [
    "OK",
    "Canceled",
    "Unknown",
    "InvalidArgument",
    "DeadlineExceeded",
    "NotFound",
    "AlreadyExists",
    "PermissionDenied",
    "ResourceExhausted",
    "FailedPrecondition",
    "Aborted",
    "OutOfRange",
    "Unimplemented",
    "Internal",
    "Unavailable",
    "DataLoss",
    "Unauthenticated",
];

#[derive(Debug, Default)]
pub(super) struct Requests {
    pub(super) started: AtomicU64,
    /// Completed requests by gRPC code.
    pub(super) handled: [AtomicU64; CODES.len()],
}

#[derive(Debug)]
pub(super) struct Counters {
    pub(super) methods: [Requests; METHODS.len()],
    /// Total size of all requests, in bytes.
    pub(super) received: AtomicU64,
    /// Total size of all responses, in bytes.
    pub(super) sent: AtomicU64,
    pub(super) watchers: AtomicI64,
    pub(super) watch_streams: AtomicI64,
    /// Number of commands that failed or have an unknown outcome.
    pub(super) failed: AtomicU64,
    /// Last observed leader.
    leader: AtomicU32,
    pub(super) leader_changes: AtomicU64,
}

impl Default for Counters {
    fn default() -> Self {
        Self {
            methods: std::array::from_fn(|_| Requests::default()),
            received: AtomicU64::new(0),
            sent: AtomicU64::new(0),
            watchers: AtomicI64::new(0),
            watch_streams: AtomicI64::new(0),
            failed: AtomicU64::new(0),
            leader: AtomicU32::new(0),
            leader_changes: AtomicU64::new(0),
        }
    }
}

impl Counters {
    /// Records the current leader, and counts a change.
    pub(super) fn record_leader(&self, leader: u32) {
        if self.leader.swap(leader, Ordering::Relaxed) != leader {
            self.leader_changes.fetch_add(1, Ordering::Relaxed);
        }
    }
}

/// A guard that increments a gauge and decrements it on drop.
#[derive(Debug)]
pub(super) struct CountGuard(Arc<Counters>, fn(&Counters) -> &AtomicI64);

impl CountGuard {
    pub(super) fn count_up(counters: &Arc<Counters>, what: fn(&Counters) -> &AtomicI64) -> Self {
        what(counters).fetch_add(1, Ordering::Relaxed);
        Self(Arc::clone(counters), what)
    }
}

impl Drop for CountGuard {
    fn drop(&mut self) {
        (self.1)(&self.0).fetch_sub(1, Ordering::Relaxed);
    }
}

/// A request in flight, counted as handled on drop.
#[derive(Debug)]
pub(super) struct InFlightRequest {
    counters: Arc<Counters>,
    method: usize,
    /// gRPC code of the response.
    pub(super) code: usize,
}

impl InFlightRequest {
    /// Counts the start of a request to `path`, unless its method is not counted.
    pub(super) fn begin(counters: &Arc<Counters>, path: &str) -> Option<Self> {
        let (service, method) = path.strip_prefix('/')?.split_once('/')?;
        let is_it = |(of, name, _): &(&str, &str, &str)| *of == service && *name == method;
        let method = METHODS.iter().position(is_it)?;
        let requests = counters.methods.get(method)?;
        requests.started.fetch_add(1, Ordering::Relaxed);
        Some(Self { counters: Arc::clone(counters), method, code: 0 })
    }
}

impl Drop for InFlightRequest {
    fn drop(&mut self) {
        let requests = self.counters.methods.get(self.method);
        // Codes outside of the table count as unknown.
        let handled = requests
            .map(|requests| requests.handled.get(self.code).unwrap_or(&requests.handled[2]));
        if let Some(handled) = handled {
            handled.fetch_add(1, Ordering::Relaxed);
        }
    }
}
