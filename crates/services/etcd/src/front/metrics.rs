//! The page `/metrics`. Metrics with the same meaning as in etcd have the same names, for use with
//! etcd's dashboards and alerts.

use std::{
    fmt::Write as _,
    sync::{
        Arc,
        atomic::{AtomicI64, AtomicU64, Ordering},
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
    asking::{Freshness, ReplicaAccess, term_of},
    counters::{CODE_NAMES, METHODS},
    settings::ETCD_VERSION,
};

/// Timeout of the request for the node's status.
const STATUS_TIMEOUT: Duration = Duration::from_secs(5);

pub(super) async fn metrics_page(asking: Arc<ReplicaAccess>) -> Response {
    let asked = async {
        let status = asking.status().await?;
        let figures = asking.figures(Freshness::Local).await?;
        Ok::<_, tonic::Status>((status, figures))
    };
    let Ok(Ok((status, figures))) = timeout(STATUS_TIMEOUT, asked).await else {
        return (StatusCode::SERVICE_UNAVAILABLE, "the node does not answer\n").into_response();
    };
    let mut text = MetricsText(String::new());
    let leads = status.leader == Some(asking.node_id());
    text.write_gauge(
        "etcd_server_has_leader",
        "Whether there is a leader",
        u64::from(status.leader.is_some()),
    );
    text.write_gauge("etcd_server_is_leader", "Whether this member leads", u64::from(leads));
    let mut peers = status.peers.iter();
    let own = peers.find(|peer| peer.member.node == asking.node_id());
    let is_learner = own.is_none_or(|own| own.weight == 0);
    text.write_gauge(
        "etcd_server_is_learner",
        "Whether this member has no vote",
        u64::from(is_learner),
    );
    let counters = &asking.counters;
    let load = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
    text.write_counter(
        "etcd_server_leader_changes_seen_total",
        "How often another member began to lead since the start, as far as this member noticed",
        load(&counters.leader_changes),
    );
    text.write_counter(
        "etcd_server_proposals_failed_total",
        "Commands that were not done, or whose outcome is unknown",
        load(&counters.failed_commands),
    );
    text.write_counter(
        "etcd_server_proposals_committed_total",
        "Slots that are decided",
        status.decided_to.0,
    );
    text.write_gauge(
        "etcd_server_proposals_applied_total",
        "Slots that are applied",
        status.applied_to.0,
    );
    let pending = status.decided_to.0.saturating_sub(status.applied_to.0);
    text.write_gauge(
        "etcd_server_proposals_pending",
        "Slots that are decided and not applied",
        pending,
    );
    text.write_gauge("etcd_server_quota_backend_bytes", "The quota; 0 is none", asking.quota_bytes);
    text.write_gauge("etcd_server_term", "The ballot as one number", term_of(&status));
    let bytes = figures.bytes;
    text.write_gauge("etcd_mvcc_db_total_size_in_bytes", "Bytes of all entries", bytes);
    text.write_gauge(
        "etcd_mvcc_db_total_size_in_use_in_bytes",
        "The same: nothing is unused",
        bytes,
    );
    let revision = figures.revision.cast_unsigned();
    text.write_gauge("etcd_debugging_mvcc_current_revision", "The revision", revision);
    let compacted = u64::try_from(figures.compacted_revision).unwrap_or(0);
    text.write_gauge(
        "etcd_debugging_mvcc_compact_revision",
        "History before it is given up",
        compacted,
    );
    text.write_gauge("etcd_debugging_lease_total", "Leases", figures.lease_count);
    let at_least_none =
        |count: &AtomicI64| u64::try_from(count.load(Ordering::Relaxed)).unwrap_or(0);
    text.write_gauge(
        "etcd_debugging_mvcc_watcher_total",
        "Watchers",
        at_least_none(&counters.watcher_count),
    );
    let streams = at_least_none(&counters.watch_stream_count);
    text.write_gauge("etcd_debugging_mvcc_watch_stream_total", "Streams of watchers", streams);
    let received = load(&counters.received_bytes);
    text.write_counter(
        "etcd_network_client_grpc_received_bytes_total",
        "Bytes of requests",
        received,
    );
    text.write_counter(
        "etcd_network_client_grpc_sent_bytes_total",
        "Bytes of answers",
        load(&counters.sent_bytes),
    );
    append_disks_and_peers(&mut text, &status);
    quorate::process_metrics(&mut text.0);
    let memory = asking.memory.used_bytes() as u64;
    text.write_gauge(
        "quorate_etcd_client_memory_bytes",
        "Memory that --client-memory counts",
        memory,
    );
    text.write_header("etcd_server_version", "gauge", "The version of the interface");
    text.write_line("etcd_server_version", &format!("server_version=\"{ETCD_VERSION}\""), 1);
    text.write_header("etcd_server_id", "gauge", "The member");
    text.write_line("etcd_server_id", &format!("server_id=\"{:x}\"", asking.node_id().0), 1);
    let name = "grpc_server_started_total";
    text.write_header(name, "counter", "Requests that came");
    for (requests, method) in counters.methods.iter().zip(METHODS) {
        text.write_line(name, &format_labels(method), load(&requests.started));
    }
    let name = "grpc_server_handled_total";
    text.write_header(name, "counter", "Requests that are over");
    for (requests, method) in counters.methods.iter().zip(METHODS) {
        for (handled, code) in requests.handled_by_code.iter().zip(CODE_NAMES) {
            let handled = load(handled);
            // Codes other than OK appear only once they have occurred.
            if handled > 0 || code == "OK" {
                let labels = format!("grpc_code=\"{code}\",{}", format_labels(method));
                text.write_line(name, &labels, handled);
            }
        }
    }
    let kind = [(CONTENT_TYPE, "text/plain; version=0.0.4")];
    (StatusCode::OK, kind, text.0).into_response()
}

/// Appends the metrics of disks and peers that have the same meaning as in etcd.
fn append_disks_and_peers(text: &mut MetricsText, status: &NodeStatus) {
    let name = "etcd_disk_wal_fsync_duration_seconds";
    let help = "Seconds that writes of the log took until they were on stable storage";
    let times = &status.disk.flush_times;
    text.write_header(name, "histogram", help);
    let bucket = format!("{name}_bucket");
    for (us, count) in times.cumulative_buckets() {
        text.write_line(&bucket, &format!("le=\"{}\"", to_seconds(us)), count);
    }
    text.write_line(&bucket, "le=\"+Inf\"", times.count);
    let took = to_seconds(times.sum_us);
    let _ = writeln!(text.0, "{name}_sum {took}\n{name}_count {}", times.count);
    let name = "etcd_network_active_peers";
    text.write_header(name, "gauge", "Whether a member can be talked to");
    let own = status.member.node;
    for peer in status.peers.iter().filter(|peer| peer.member.node != own) {
        let labels = format!("Local=\"{:x}\",Remote=\"{:x}\"", own.0, peer.member.node.0);
        text.write_line(name, &labels, u64::from(peer.connected));
    }
}

#[expect(clippy::cast_precision_loss, reason = "for people, and exact for centuries")]
fn to_seconds(us: u64) -> f64 {
    us as f64 / 1e6
}

fn format_labels((service, method, kind): (&str, &str, &str)) -> String {
    format!("grpc_method=\"{method}\",grpc_service=\"{service}\",grpc_type=\"{kind}\"")
}

struct MetricsText(String);

impl MetricsText {
    fn write_header(&mut self, name: &str, kind: &str, help: &str) {
        let _ = writeln!(self.0, "# HELP {name} {help}.\n# TYPE {name} {kind}");
    }

    fn write_line(&mut self, name: &str, labels: &str, value: u64) {
        let _ = match labels {
            "" => writeln!(self.0, "{name} {value}"),
            labels => writeln!(self.0, "{name}{{{labels}}} {value}"),
        };
    }

    fn write_gauge(&mut self, name: &str, help: &str, value: u64) {
        self.write_header(name, "gauge", help);
        self.write_line(name, "", value);
    }

    fn write_counter(&mut self, name: &str, help: &str, value: u64) {
        self.write_header(name, "counter", help);
        self.write_line(name, "", value);
    }
}
