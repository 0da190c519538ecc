//! Sample statuses for the tests of `quorate top` and `quorate status`.

use std::time::{Duration, Instant};

use quorate_admin::{
    traffic::TrafficView,
    tuning::TuningView,
    view::{
        Answer, BallotView, DiskView, MemberView, NodeView, PlaneView, ReignView, SnapshotView,
    },
};
use serde_json::json;

use super::{cluster::Cluster, gather::NodeResponse};

/// Returns traffic in which all commands were answered within the latency class that ends at
/// `under_us` microseconds.
pub(super) fn traffic_with(commands: u64, under_us: u64) -> TrafficView {
    TrafficView {
        applied: 0,
        answered: commands,
        answered_us: commands * under_us,
        latencies: vec![(under_us, commands)],
    }
}

/// Returns the status of a node in a healthy cluster of three voters. Node 1 is the leader.
pub(crate) fn sample_status(node: u32) -> NodeView {
    let ballot = BallotView { era: 0, round: 3, node: 1 };
    NodeView {
        cluster: "794452eab31f9c12c68b63f40562eb29".to_owned(),
        node,
        role: if node == 1 { "leader" } else { "follower" }.to_owned(),
        leader: Some(1),
        quorum: "majority".to_owned(),
        ballot,
        decided: 9000,
        applied: 8900,
        durable: 8950,
        durability: "durable".to_owned(),
        store: "lsm".to_owned(),
        log_bytes: 128 << 20,
        log_start: 500,
        snapshot: Some(SnapshotView { slot: 700, bytes: 5 << 20 }),
        disk: DiskView {
            free_bytes: Some(40 << 30),
            log_bytes_per_second: Some(1 << 20),
            full_in_seconds: Some(40 << 10),
            ..DiskView::default()
        },
        traffic: TrafficView {
            applied: 1000,
            answered: 500,
            answered_us: 500_000,
            latencies: vec![(896, 500)],
        },
        reigns: vec![
            ReignView {
                leader: Some(2),
                ballot: BallotView { round: 2, node: 2, ..ballot },
                ago_ms: 90_000,
            },
            ReignView {
                leader: None,
                ballot: BallotView { round: 2, node: 2, ..ballot },
                ago_ms: 61_000,
            },
            ReignView { leader: Some(1), ballot, ago_ms: 60_000 },
        ],
        version: "0.1.0".to_owned(),
        members: (1..=3).map(|other| sample_member(node, other)).collect(),
        ..NodeView::default()
    }
}

pub(crate) fn sample_member(from: u32, node: u32) -> MemberView {
    MemberView {
        node,
        peer: Some(format!("peer:{node}")),
        client: Some(format!("client:{node}")),
        admin: Some(format!("admin:{node}")),
        role: if node == 1 { "leader" } else { "follower" }.to_owned(),
        weight: 1,
        connected: true,
        lag: (from == 1 && node != 1).then_some(u64::from(node.saturating_sub(2)) * 40),
        plane: (from != node).then(|| PlaneView {
            way: "udp".to_owned(),
            frames: None,
            rtt_us: Some(u64::from(from * 100 + node)),
            why: None,
        }),
        ..MemberView::default()
    }
}

pub(super) fn sample_tuning() -> TuningView {
    serde_json::from_value(json!({
        "parameters": [
            {"name": "sync_time", "unit": "ns", "value": 1_250_000.0, "error": 50_000.0, "confidence": 0.9},
        ],
        "grid": [], "bottleneck": "the disk",
        "chosen": {"batch_bytes": 65536, "window": 4}, "held": false,
        "measured": {"throughput": 12_000.0, "latency_us": 850.0},
        "reason": "64 KiB x 4 is the least latency at this load.",
    }))
    .unwrap()
}

/// Returns a cluster polled at time `at`. `change` may modify or remove a node's status.
pub(super) fn sample_cluster(
    at: Instant,
    change: impl Fn(NodeView) -> Option<NodeView>,
) -> Cluster {
    let mut cluster = Cluster::new(Duration::from_secs(1));
    record_status(&mut cluster, at, change);
    cluster
}

pub(super) fn record_status(
    cluster: &mut Cluster,
    at: Instant,
    change: impl Fn(NodeView) -> Option<NodeView>,
) {
    for node in 1..=3 {
        let answer = match change(sample_status(node)) {
            Some(view) => Answer::Node(Box::new(view)),
            None => Answer::Unreachable {
                node: Some(node),
                error: format!("no node answers at admin:{node}: refused"),
            },
        };
        cluster.record_response(NodeResponse::Answer(format!("admin:{node}"), answer), at);
    }
    cluster.record_response(NodeResponse::Tuning(1, Box::new(sample_tuning())), at);
}
