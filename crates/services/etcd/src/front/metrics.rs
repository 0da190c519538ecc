//! `/metrics`: figures under the names that etcd's dashboards and alerts use, as far as they mean
//! the same here.

mod process;

use std::{
    fmt::Write as _,
    sync::{
        Arc,
        atomic::{AtomicI64, AtomicU32, AtomicU64, Ordering},
    },
    time::Duration,
};

use axum::{
    http::{StatusCode, header::CONTENT_TYPE},
    response::{IntoResponse as _, Response},
};
use quorate::Status as NodeStatus;
use tokio::time::timeout;

use super::{
    VERSION,
    asking::{Asking, Freshness, term_of},
};

/// Maximum wait for the status of the node.
const WAIT: Duration = Duration::from_secs(5);

/// Methods that are counted: service, method, and kind.
const METHODS: [(&str, &str, &str); 50] = [
    ("etcdserverpb.KV", "Range", UNARY),
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

/// Codes by their numbers, as the labels of such figures have them.
const CODES: [&str; 17] = [
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

/// Requests of one method.
#[derive(Debug, Default)]
struct Requests {
    started: AtomicU64,
    /// Completed requests by code.
    handled: [AtomicU64; CODES.len()],
}

/// Counters updated in place.
#[derive(Debug)]
pub(super) struct Counters {
    methods: [Requests; METHODS.len()],
    /// Bytes of requests and of answers.
    pub(super) received: AtomicU64,
    pub(super) sent: AtomicU64,
    pub(super) watchers: AtomicI64,
    pub(super) watch_streams: AtomicI64,
    /// Commands that failed or whose outcome is unknown.
    pub(super) failed: AtomicU64,
    /// Last leader, and number of changes.
    leader: AtomicU32,
    leader_changes: AtomicU64,
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
    /// Records the leader, and counts a change.
    pub(super) fn see_leader(&self, leader: u32) {
        if self.leader.swap(leader, Ordering::Relaxed) != leader {
            self.leader_changes.fetch_add(1, Ordering::Relaxed);
        }
    }
}

/// Guard that counts one more of something while it lives.
#[derive(Debug)]
pub(super) struct OneMore(Arc<Counters>, fn(&Counters) -> &AtomicI64);

impl OneMore {
    pub(super) fn of(counters: &Arc<Counters>, what: fn(&Counters) -> &AtomicI64) -> Self {
        what(counters).fetch_add(1, Ordering::Relaxed);
        Self(Arc::clone(counters), what)
    }
}

impl Drop for OneMore {
    fn drop(&mut self) {
        (self.1)(&self.0).fetch_sub(1, Ordering::Relaxed);
    }
}

/// A request in flight, counted as handled on drop.
#[derive(Debug)]
pub(super) struct UnderWay {
    counters: Arc<Counters>,
    method: usize,
    /// The number of its code.
    pub(super) code: usize,
}

impl UnderWay {
    /// A request to this path, if it is one of a method that is known.
    pub(super) fn begin(counters: &Arc<Counters>, path: &str) -> Option<Self> {
        let (service, method) = path.strip_prefix('/')?.split_once('/')?;
        let is_it = |(of, name, _): &(&str, &str, &str)| *of == service && *name == method;
        let method = METHODS.iter().position(is_it)?;
        let requests = counters.methods.get(method)?;
        requests.started.fetch_add(1, Ordering::Relaxed);
        Some(Self { counters: Arc::clone(counters), method, code: 0 })
    }
}

impl Drop for UnderWay {
    fn drop(&mut self) {
        let requests = self.counters.methods.get(self.method);
        // An unmapped code counts as an unknown error.
        let handled = requests
            .map(|requests| requests.handled.get(self.code).unwrap_or(&requests.handled[2]));
        if let Some(handled) = handled {
            handled.fetch_add(1, Ordering::Relaxed);
        }
    }
}

/// The page.
pub(super) async fn page(asking: Arc<Asking>) -> Response {
    let asked = async {
        let status = asking.status().await?;
        let figures = asking.figures(Freshness::Local).await?;
        Ok::<_, tonic::Status>((status, figures))
    };
    let Ok(Ok((status, figures))) = timeout(WAIT, asked).await else {
        return (StatusCode::SERVICE_UNAVAILABLE, "the node does not answer\n").into_response();
    };
    let mut text = Text(String::new());
    let leads = status.leader == Some(asking.node());
    text.gauge(
        "etcd_server_has_leader",
        "Whether there is a leader",
        u64::from(status.leader.is_some()),
    );
    text.gauge("etcd_server_is_leader", "Whether this member leads", u64::from(leads));
    let mut peers = status.peers.iter();
    let own = peers.find(|peer| peer.member.node == asking.node());
    let is_learner = own.is_none_or(|own| own.weight == 0);
    text.gauge("etcd_server_is_learner", "Whether this member has no vote", u64::from(is_learner));
    let counters = &asking.counters;
    let load = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
    text.counter(
        "etcd_server_leader_changes_seen_total",
        "How often somebody else began to lead since the start, as far as this member noticed",
        load(&counters.leader_changes),
    );
    text.counter(
        "etcd_server_proposals_failed_total",
        "Commands that were not done, or of which nobody knows",
        load(&counters.failed),
    );
    text.counter(
        "etcd_server_proposals_committed_total",
        "Slots that are decided",
        status.decided_to.0,
    );
    text.gauge(
        "etcd_server_proposals_applied_total",
        "Slots that are applied",
        status.applied_to.0,
    );
    let pending = status.decided_to.0.saturating_sub(status.applied_to.0);
    text.gauge("etcd_server_proposals_pending", "Slots that are decided and not applied", pending);
    text.gauge("etcd_server_quota_backend_bytes", "The quota; 0 is none", asking.quota_bytes);
    text.gauge("etcd_server_term", "The ballot as one number", term_of(&status));
    let bytes = figures.bytes;
    text.gauge("etcd_mvcc_db_total_size_in_bytes", "Bytes of all entries", bytes);
    text.gauge("etcd_mvcc_db_total_size_in_use_in_bytes", "The same: nothing is unused", bytes);
    let revision = figures.revision.cast_unsigned();
    text.gauge("etcd_debugging_mvcc_current_revision", "The revision", revision);
    let compacted = u64::try_from(figures.compacted).unwrap_or(0);
    text.gauge("etcd_debugging_mvcc_compact_revision", "History before it is given up", compacted);
    text.gauge("etcd_debugging_lease_total", "Leases", figures.leases);
    let at_least_none =
        |count: &AtomicI64| u64::try_from(count.load(Ordering::Relaxed)).unwrap_or(0);
    text.gauge("etcd_debugging_mvcc_watcher_total", "Watchers", at_least_none(&counters.watchers));
    let streams = at_least_none(&counters.watch_streams);
    text.gauge("etcd_debugging_mvcc_watch_stream_total", "Streams of watchers", streams);
    let received = load(&counters.received);
    text.counter("etcd_network_client_grpc_received_bytes_total", "Bytes of requests", received);
    text.counter(
        "etcd_network_client_grpc_sent_bytes_total",
        "Bytes of answers",
        load(&counters.sent),
    );
    disk_and_peers(&mut text, &status);
    process::render(&mut text);
    let memory = asking.memory.used() as u64;
    text.gauge("quorate_etcd_client_memory_bytes", "Memory that --client-memory counts", memory);
    text.head("etcd_server_version", "gauge", "The version of the interface");
    text.line("etcd_server_version", &format!("server_version=\"{VERSION}\""), 1);
    text.head("etcd_server_id", "gauge", "The member");
    text.line("etcd_server_id", &format!("server_id=\"{:x}\"", asking.node().0), 1);
    let name = "grpc_server_started_total";
    text.head(name, "counter", "Requests that came");
    for (requests, method) in counters.methods.iter().zip(METHODS) {
        text.line(name, &labels(method), load(&requests.started));
    }
    let name = "grpc_server_handled_total";
    text.head(name, "counter", "Requests that are over");
    for (requests, method) in counters.methods.iter().zip(METHODS) {
        for (handled, code) in requests.handled.iter().zip(CODES) {
            let handled = load(handled);
            // Of errors those that happened.
            if handled > 0 || code == "OK" {
                let labels = format!("grpc_code=\"{code}\",{}", labels(method));
                text.line(name, &labels, handled);
            }
        }
    }
    let kind = [(CONTENT_TYPE, "text/plain; version=0.0.4")];
    (StatusCode::OK, kind, text.0).into_response()
}

/// Writes the metrics of disks and peers that have the same meaning as in etcd.
fn disk_and_peers(text: &mut Text, status: &NodeStatus) {
    let name = "etcd_disk_wal_fsync_duration_seconds";
    let help = "Seconds that writes of the log took until they were on stable storage";
    let times = &status.disk.flush_times;
    text.head(name, "histogram", help);
    let bucket = format!("{name}_bucket");
    for (us, count) in times.up_to() {
        text.line(&bucket, &format!("le=\"{}\"", seconds(us)), count);
    }
    text.line(&bucket, "le=\"+Inf\"", times.count);
    let took = seconds(times.sum_us);
    let _ = writeln!(text.0, "{name}_sum {took}\n{name}_count {}", times.count);
    let name = "etcd_network_active_peers";
    text.head(name, "gauge", "Whether a member can be talked to");
    let own = status.member.node;
    for peer in status.peers.iter().filter(|peer| peer.member.node != own) {
        let labels = format!("Local=\"{:x}\",Remote=\"{:x}\"", own.0, peer.member.node.0);
        text.line(name, &labels, u64::from(peer.connected));
    }
}

#[expect(clippy::cast_precision_loss, reason = "for people, and exact for centuries")]
fn seconds(us: u64) -> f64 {
    us as f64 / 1e6
}

fn labels((service, method, kind): (&str, &str, &str)) -> String {
    format!("grpc_method=\"{method}\",grpc_service=\"{service}\",grpc_type=\"{kind}\"")
}

/// The text format of Prometheus.
struct Text(String);

impl Text {
    fn head(&mut self, name: &str, kind: &str, help: &str) {
        let _ = writeln!(self.0, "# HELP {name} {help}.\n# TYPE {name} {kind}");
    }

    fn line(&mut self, name: &str, labels: &str, value: u64) {
        let _ = match labels {
            "" => writeln!(self.0, "{name} {value}"),
            labels => writeln!(self.0, "{name}{{{labels}}} {value}"),
        };
    }

    fn gauge(&mut self, name: &str, help: &str, value: u64) {
        self.head(name, "gauge", help);
        self.line(name, "", value);
    }

    fn counter(&mut self, name: &str, help: &str, value: u64) {
        self.head(name, "counter", help);
        self.line(name, "", value);
    }
}
