//! Counters of connections and services, for the metrics.

use std::sync::{
    Arc,
    atomic::{AtomicI64, AtomicU32, AtomicU64, Ordering},
};

/// Counted methods, each with its service, name and kind.
pub(super) const METHODS: [(&str, &str, &str); 51] = [
    ("etcdserverpb.KV", "Range", UNARY_KIND),
    ("etcdserverpb.KV", "RangeStream", SERVER_KIND),
    ("etcdserverpb.KV", "Put", UNARY_KIND),
    ("etcdserverpb.KV", "DeleteRange", UNARY_KIND),
    ("etcdserverpb.KV", "Txn", UNARY_KIND),
    ("etcdserverpb.KV", "Compact", UNARY_KIND),
    ("etcdserverpb.Watch", "Watch", BIDI_KIND),
    ("etcdserverpb.Lease", "LeaseGrant", UNARY_KIND),
    ("etcdserverpb.Lease", "LeaseRevoke", UNARY_KIND),
    ("etcdserverpb.Lease", "LeaseKeepAlive", BIDI_KIND),
    ("etcdserverpb.Lease", "LeaseTimeToLive", UNARY_KIND),
    ("etcdserverpb.Lease", "LeaseLeases", UNARY_KIND),
    ("etcdserverpb.Cluster", "MemberAdd", UNARY_KIND),
    ("etcdserverpb.Cluster", "MemberRemove", UNARY_KIND),
    ("etcdserverpb.Cluster", "MemberUpdate", UNARY_KIND),
    ("etcdserverpb.Cluster", "MemberList", UNARY_KIND),
    ("etcdserverpb.Cluster", "MemberPromote", UNARY_KIND),
    ("etcdserverpb.Maintenance", "Alarm", UNARY_KIND),
    ("etcdserverpb.Maintenance", "Status", UNARY_KIND),
    ("etcdserverpb.Maintenance", "Defragment", UNARY_KIND),
    ("etcdserverpb.Maintenance", "Hash", UNARY_KIND),
    ("etcdserverpb.Maintenance", "HashKV", UNARY_KIND),
    ("etcdserverpb.Maintenance", "Snapshot", SERVER_KIND),
    ("etcdserverpb.Maintenance", "MoveLeader", UNARY_KIND),
    ("etcdserverpb.Maintenance", "Downgrade", UNARY_KIND),
    ("etcdserverpb.Auth", "AuthEnable", UNARY_KIND),
    ("etcdserverpb.Auth", "AuthDisable", UNARY_KIND),
    ("etcdserverpb.Auth", "AuthStatus", UNARY_KIND),
    ("etcdserverpb.Auth", "Authenticate", UNARY_KIND),
    ("etcdserverpb.Auth", "UserAdd", UNARY_KIND),
    ("etcdserverpb.Auth", "UserGet", UNARY_KIND),
    ("etcdserverpb.Auth", "UserList", UNARY_KIND),
    ("etcdserverpb.Auth", "UserDelete", UNARY_KIND),
    ("etcdserverpb.Auth", "UserChangePassword", UNARY_KIND),
    ("etcdserverpb.Auth", "UserGrantRole", UNARY_KIND),
    ("etcdserverpb.Auth", "UserRevokeRole", UNARY_KIND),
    ("etcdserverpb.Auth", "RoleAdd", UNARY_KIND),
    ("etcdserverpb.Auth", "RoleGet", UNARY_KIND),
    ("etcdserverpb.Auth", "RoleList", UNARY_KIND),
    ("etcdserverpb.Auth", "RoleDelete", UNARY_KIND),
    ("etcdserverpb.Auth", "RoleGrantPermission", UNARY_KIND),
    ("etcdserverpb.Auth", "RoleRevokePermission", UNARY_KIND),
    ("v3lockpb.Lock", "Lock", UNARY_KIND),
    ("v3lockpb.Lock", "Unlock", UNARY_KIND),
    ("v3electionpb.Election", "Campaign", UNARY_KIND),
    ("v3electionpb.Election", "Proclaim", UNARY_KIND),
    ("v3electionpb.Election", "Leader", UNARY_KIND),
    ("v3electionpb.Election", "Observe", SERVER_KIND),
    ("v3electionpb.Election", "Resign", UNARY_KIND),
    ("grpc.health.v1.Health", "Check", UNARY_KIND),
    ("grpc.health.v1.Health", "Watch", SERVER_KIND),
];
const UNARY_KIND: &str = "unary";
const SERVER_KIND: &str = "server_stream";
const BIDI_KIND: &str = "bidi_stream";

/// Names of the gRPC codes in metric labels, by number.
pub(super) const CODE_NAMES: [&str; 17] = [
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
pub(super) struct MethodCounters {
    pub(super) started: AtomicU64,
    /// Completed requests by gRPC code.
    pub(super) handled_by_code: [AtomicU64; CODE_NAMES.len()],
}

#[derive(Debug)]
pub(super) struct Counters {
    pub(super) methods: [MethodCounters; METHODS.len()],
    /// Total size of all requests, in bytes.
    pub(super) received_bytes: AtomicU64,
    /// Total size of all responses, in bytes.
    pub(super) sent_bytes: AtomicU64,
    pub(super) watcher_count: AtomicI64,
    pub(super) watch_stream_count: AtomicI64,
    /// Number of commands that failed or have an unknown outcome.
    pub(super) failed_commands: AtomicU64,
    /// Last observed leader.
    last_leader: AtomicU32,
    pub(super) leader_changes: AtomicU64,
}

impl Default for Counters {
    fn default() -> Self {
        Self {
            methods: std::array::from_fn(|_| MethodCounters::default()),
            received_bytes: AtomicU64::new(0),
            sent_bytes: AtomicU64::new(0),
            watcher_count: AtomicI64::new(0),
            watch_stream_count: AtomicI64::new(0),
            failed_commands: AtomicU64::new(0),
            last_leader: AtomicU32::new(0),
            leader_changes: AtomicU64::new(0),
        }
    }
}

impl Counters {
    /// Records the current leader, and counts a change.
    pub(super) fn record_leader(&self, leader: u32) {
        if self.last_leader.swap(leader, Ordering::Relaxed) != leader {
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
        let handled = requests.map(|requests| {
            requests.handled_by_code.get(self.code).unwrap_or(&requests.handled_by_code[2])
        });
        if let Some(handled) = handled {
            handled.fetch_add(1, Ordering::Relaxed);
        }
    }
}
