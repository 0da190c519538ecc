//! `quorate status`: shows the state of every node of the cluster.

mod picture;
mod rates;
mod wait;
mod watch;

use std::{
    io::{self, IsTerminal as _},
    time::Duration,
};

use clap::Args;
use quorate_admin::{
    look::query_cluster,
    units::{self, format_bytes, format_slot, format_span},
    view::{
        Answer, BallotView, ClusterView, MemberView, NodeView, PlanView, PlaneView, STARTING_CODE,
        StreamsView,
    },
};

use crate::{
    addresses::{DEFAULT_ADMIN, address_argument},
    output::{Exit, Output, Problem, format_table},
    top::lost_quorum_text,
    values::{Number, Unit},
};

/// Arguments of `quorate status`.
#[derive(Args, Clone, Debug)]
pub(crate) struct StatusArgs {
    /// Admin addresses of one or more nodes; the other members are found
    #[arg(long, env = "QUORATE_ADMIN", value_name = "ADDR[,…]", value_delimiter = ',', default_value = DEFAULT_ADMIN, value_parser = address_argument)]
    pub(crate) admin: Vec<String>,
    /// Refresh once a second; with --json, print one line each time
    #[arg(long)]
    watch: bool,
    /// First wait until every node serves, for at most so many seconds [default: 60]
    #[arg(long, value_name = "SECONDS", num_args = 0..=1, require_equals = true, default_missing_value = "60",
          conflicts_with = "watch", value_parser = Number::between(1, 86_400, Unit::Count).argument::<u64>())]
    wait: Option<u64>,
}

pub(crate) fn run(args: &StatusArgs, output: Output) -> Result<Exit, Problem> {
    if !args.watch {
        let cluster = match args.wait {
            Some(seconds) => wait::wait_until_serving(&args.admin, Duration::from_secs(seconds))?,
            None => query_cluster(&args.admin)?,
        };
        output.print_result(&cluster, || human(&cluster, io::stdout().is_terminal()));
        return Ok(match is_serving(&cluster) {
            true => Exit::Done,
            false => Exit::Unreachable,
        });
    }
    watch::watch_cluster(&args.admin, output)
}

/// Returns whether the cluster has a leader, and enough voters to write.
fn is_serving(cluster: &ClusterView) -> bool {
    cluster.leader.is_some() && lost_quorum_text(cluster).is_none()
}

fn human(cluster: &ClusterView, colours: bool) -> String {
    let with_planes = uses_other_planes(cluster);
    let mut rows = vec![MEMBER_COLUMNS.map(str::to_owned).to_vec()];
    let mut stored = vec![DISK_COLUMNS.map(str::to_owned).to_vec()];
    let mut notes = String::new();
    for answer in &cluster.nodes {
        let name = answer.node().map_or_else(|| "?".to_owned(), |node| node.to_string());
        match answer {
            Answer::Node(view) => {
                rows.push(member_row(view, cluster));
                stored.push(disk_row(view));
                let progress = view.progress.as_ref().map(ToString::to_string);
                let device = view.device.as_ref().map(ToString::to_string);
                if let Some(error) = &view.error {
                    let (red, plain) = match colours {
                        true => ("\x1b[31m", "\x1b[0m"),
                        false => ("", ""),
                    };
                    notes.push_str(&format!("{red}node {name}: {error}{plain}\n"));
                }
                let plane = format_plane(view.node, cluster).filter(|_| with_planes);
                let all = view.notices.iter().chain(&progress).chain(&device).chain(&plane);
                for note in all {
                    notes.push_str(&format!("node {name}: {note}\n"));
                }
            }
            Answer::Starting { error, .. } => {
                rows.push(vec![name.clone(), STARTING_CODE.to_owned()]);
                notes.push_str(&format!("node {name} is starting: {error}\n"));
            }
            Answer::Unreachable { error, .. } => {
                rows.push(vec![name, "unreachable".to_owned()]);
                notes.push_str(&format!("{error}\n"));
            }
        }
    }
    if let Some(plan) = plan_in_progress(cluster) {
        let waits = plan.waits.as_ref();
        let waits = waits.map_or_else(String::new, |waits| format!("; waits: {waits}"));
        notes.insert_str(0, &format!("plan {}: {}{waits}\n", plan.id, plan.what));
    }
    if let Some(lost) = lost_quorum_text(cluster) {
        notes.insert_str(0, &format!("{lost}\n"));
    }
    for stranger in &cluster.strangers {
        notes.push_str(&format!("{stranger}\n"));
    }
    let break_before_notes = if notes.is_empty() { "" } else { "\n" };
    let stored = match stored.len() {
        1 => String::new(),
        _ => format!("\n{}", format_table(&stored)),
    };
    format!("{}\n\n{}{stored}{break_before_notes}{notes}", headline(cluster), format_table(&rows))
}

/// Returns the plan in progress, as reported by the leader.
fn plan_in_progress(cluster: &ClusterView) -> Option<&PlanView> {
    let views = || cluster.nodes.iter().filter_map(Answer::node_view);
    let leader = views().find(|view| Some(view.node) == cluster.leader);
    let view = leader.or_else(|| views().max_by_key(|view| view.applied))?;
    view.plan.as_ref()
}

/// Formats the line with the properties that all nodes share.
fn headline(cluster: &ClusterView) -> String {
    let id = cluster.cluster.as_deref().unwrap_or("unknown");
    let leader = match cluster.leader {
        Some(leader) => format!("node {leader} leads"),
        None => "no leader".to_owned(),
    };
    let views = || cluster.nodes.iter().filter_map(Answer::node_view);
    let leads = views().find(|view| Some(view.node) == cluster.leader);
    let ring = leads.and_then(format_ring);
    let ring = ring.map_or_else(String::new, |way| format!(", votes pass along a ring: {way}"));
    let streams = leads.or_else(|| views().max_by_key(|view| view.applied));
    let streams = streams.map(|view| &view.streams).filter(|streams| streams.count > 0);
    let streams = streams.map_or_else(String::new, |StreamsView { count, open, .. }| {
        format!(", byte streams {count}, open {open}")
    });
    // Shown only if a higher level is available.
    let level = leads.map(|view| &view.level).filter(|level| level.has_higher_level());
    let level = level.map_or_else(String::new, |level| {
        format!(", feature level {}: {}", level.level, level.raise_outlook())
    });
    let settings = views().next().map(|view| {
        let NodeView { durability, store, .. } = view;
        format!(" ({durability}, store {store}, era {})", units::format_era(view.era))
    });
    let settings = settings.unwrap_or_default();
    format!("cluster {id}{settings}: {leader}{ring}{streams}{level}")
}

/// Formats the ring that relays votes to a leader, or returns `None` if votes are sent directly.
fn format_ring(view: &NodeView) -> Option<String> {
    let nodes: Vec<String> = view.ring.iter().map(u32::to_string).collect();
    (!nodes.is_empty()).then(|| nodes.join(" → "))
}

const MEMBER_COLUMNS: [&str; 8] =
    ["node", "role", "ballot", "decided", "applied", "durable", "lag", "client"];

fn member_row(view: &NodeView, cluster: &ClusterView) -> Vec<String> {
    let own = view.members.iter().find(|member| member.node == view.node);
    let client = own.and_then(|member| member.client.clone());
    let BallotView { era, round, node } = view.ballot;
    vec![
        view.node.to_string(),
        match view.removed {
            true => "removed".to_owned(),
            false => view.role.clone(),
        },
        format!("{}.{round}.{node}", units::format_era(era)),
        format_slot(view.decided),
        format_slot(view.applied),
        format_slot(view.durable),
        lag_slots(view.node, cluster).map_or_else(String::new, |lag| lag.to_string()),
        client.unwrap_or_default(),
    ]
}

/// Columns of the table of disks. It is separate so that both tables fit into 100 columns.
const DISK_COLUMNS: [&str; 9] =
    ["node", "log from", "log", "grows", "free", "full in", "snapshot", "streams", "scrubbed"];

fn disk_row(view: &NodeView) -> Vec<String> {
    let rate = view.disk.log_bytes_per_second;
    let snapshot = view.snapshot;
    vec![
        view.node.to_string(),
        format_slot(view.log_start),
        format_bytes(view.log_bytes),
        rate.map_or_else(String::new, |rate| format!("{}/s", format_bytes(rate))),
        view.disk.free_bytes.map_or_else(String::new, format_bytes),
        view.disk.full_in_seconds.map_or_else(String::new, format_span),
        snapshot.map_or_else(String::new, |at| {
            format!("{}, {}", format_slot(at.slot), format_bytes(at.bytes))
        }),
        view.streams.short_summary(),
        view.scrub.to_string(),
    ]
}

/// Returns the leader's view of a member.
fn member_by_leader(node: u32, cluster: &ClusterView) -> Option<&MemberView> {
    let mut views = cluster.nodes.iter().filter_map(Answer::node_view);
    let leader = views.find(|view| Some(view.node) == cluster.leader)?;
    let mut members = leader.members.iter();
    members.find(|member| member.node == node)
}

/// Returns the lag of a node in slots, as reported by its leader.
fn lag_slots(node: u32, cluster: &ClusterView) -> Option<u64> {
    member_by_leader(node, cluster)?.lag
}

/// Returns whether a plane other than TCP is in use or was requested.
fn uses_other_planes(cluster: &ClusterView) -> bool {
    let views = cluster.nodes.iter().filter_map(Answer::node_view);
    let mut planes =
        views.flat_map(|view| &view.members).filter_map(|member| member.plane.as_ref());
    planes.any(|plane| plane.way != "tcp" || plane.why.is_some())
}

/// Formats the plane over which the leader reaches a node.
fn format_plane(node: u32, cluster: &ClusterView) -> Option<String> {
    let plane = member_by_leader(node, cluster).and_then(|member| member.plane.as_ref());
    plane.map(|view| {
        let PlaneView { way, frames, rtt_us, why } = view;
        // The default frame interface is not shown.
        let frames = frames.as_ref().filter(|frames| *frames != "packet");
        let frames = frames.map_or_else(String::new, |frames| format!(" by {frames}"));
        let rtt = rtt_us.map_or_else(String::new, |us| format!(" {us} µs"));
        let why = why.as_ref().map_or_else(String::new, |why| format!(" ({why})"));
        format!("plane {way}{frames}{rtt}{why}")
    })
}

#[cfg(test)]
mod tests {
    use quorate_admin::view::{DiskView, ProgressView, SnapshotView};

    use super::*;
    use crate::top::fixtures;

    fn view(node: u32) -> NodeView {
        let member = |node, lag| MemberView {
            client: Some(format!("h:{node}")),
            lag,
            plane: None,
            ..fixtures::sample_member(1, node)
        };
        NodeView {
            cluster: "ab".to_owned(),
            decided: 90,
            applied: 80,
            durable: 95,
            log_start: 1,
            snapshot: None,
            disk: DiskView::default(),
            members: vec![member(1, None), member(2, Some(7))],
            ..fixtures::sample_status(node)
        }
    }

    #[test]
    fn a_cluster_is_a_table_with_notes() {
        let (mut first, mut second) = (view(1), view(2));
        first.log_start = 60;
        first.snapshot = Some(SnapshotView { slot: 70, bytes: 5 << 20 });
        first.ring = vec![2, 1];
        // Neither a problem nor work in progress: `quorate tune` shows it.
        first.choices = vec!["polls for 50 µs before sleeping".to_owned()];
        first.disk = DiskView {
            free_bytes: Some(40 << 30),
            log_bytes_per_second: Some(1 << 20),
            full_in_seconds: Some(40 << 10),
            ..DiskView::default()
        };
        first.streams = StreamsView {
            count: 4,
            open: 1,
            bytes: 3 << 20,
            missing_bytes: 0,
            ..StreamsView::default()
        };
        second.streams =
            StreamsView { bytes: 2 << 20, missing_bytes: 1 << 20, ..first.streams.clone() };
        first.plan = Some(PlanView {
            id: 88,
            what: "remove node 5".to_owned(),
            waits: Some("node 2 is to lead on".to_owned()),
        });
        second.progress = Some(ProgressView {
            doing: "receiving_snapshot".to_owned(),
            unit: "bytes".to_owned(),
            from: 0,
            at: 80 << 20,
            to: 160 << 20,
            percent: 50,
            per_second: None,
            seconds_left: None,
        });
        let mut gone = view(5);
        gone.removed = true;
        gone.role = "learner".to_owned();
        gone.error = Some("this node was removed from the cluster".to_owned());
        gone.members.clear();
        let cluster = ClusterView::new(vec![
            Answer::Node(Box::new(first)),
            Answer::Node(Box::new(second)),
            Answer::Starting {
                node: Some(3),
                error: "reading the log: 1 GiB of 2 GiB, 50 %".to_owned(),
                progress: None,
            },
            Answer::Unreachable {
                node: Some(4),
                error: "no node answers at h:9: refused".to_owned(),
            },
            Answer::Node(Box::new(gone)),
        ]);
        let expected = "\
cluster ab (durable, store lsm, era 0): node 1 leads, votes pass along a ring: 2 → 1, byte streams 4, open 1

node  role         ballot  decided  applied  durable  lag  client
1     leader       0.3.1   90       80       95            h:1
2     follower     0.3.1   90       80       95       7    h:2
3     starting
4     unreachable
5     removed      0.3.1   90       80       95

node  log from  log      grows    free    full in  snapshot   streams             scrubbed
1     60        128 MiB  1 MiB/s  40 GiB  11 h     70, 5 MiB  3 MiB
2     1         128 MiB                                       2 MiB, lacks 1 MiB
5     1         128 MiB

plan 88: remove node 5; waits: node 2 is to lead on
node 2: receiving a snapshot: 80 MiB of 160 MiB, 50 %
node 3 is starting: reading the log: 1 GiB of 2 GiB, 50 %
no node answers at h:9: refused
node 5: this node was removed from the cluster
";
        assert_eq!(human(&cluster, false), expected);
        let error = "node 5: this node was removed from the cluster";
        let painted = expected.replace(error, &format!("\x1b[31m{error}\x1b[0m"));
        assert_eq!(human(&cluster, true), painted);
    }

    /// The words are those of `quorate top`, and scripts see the exit code.
    #[test]
    fn a_cluster_without_a_quorum_or_a_leader_does_not_serve() {
        let follower =
            |leader| Answer::Node(Box::new(NodeView { leader, ..fixtures::sample_status(2) }));
        let gone =
            |node| Answer::Unreachable { node: Some(node), error: format!("{node} is down") };
        let cluster = ClusterView::new(vec![gone(1), follower(None), gone(3)]);
        let shown = human(&cluster, false);
        let lost = "\nQuorum lost: 1 of 2 needed votes available. Nothing is written. Restart nodes 1 and 3 (1 is down; 3 is down).";
        assert!(shown.contains(lost), "{shown}");
        assert!(!is_serving(&cluster));
        // Before the cluster exists, no node knows its voters.
        let error = "waiting for the founder".to_owned();
        let waits = Answer::Starting { node: Some(2), error, progress: None };
        assert!(!is_serving(&ClusterView::new(vec![waits])));
        assert!(is_serving(&ClusterView::new(vec![follower(Some(1))])));
    }

    #[test]
    fn a_restored_cluster_counts_from_its_restore() {
        let mut restored = view(1);
        (restored.era, restored.ballot.era) = (2 << 16, (2 << 16) + 1);
        (restored.decided, restored.log_start) = ((517 << 40) + 9, 517 << 40);
        let shown = human(&ClusterView::new(vec![Answer::Node(Box::new(restored))]), false);
        for part in ["era 2:0)", " 2:1.3.1 ", " 517:9 ", " 517:0 "] {
            assert!(shown.contains(part), "{part}: {shown}");
        }
    }

    /// A cluster that has run for months fits into a terminal of 100 columns.
    #[test]
    fn large_numbers_fit() {
        let mut large = view(2);
        (large.decided, large.applied, large.durable) = (1 << 33, 1 << 33, 1 << 33);
        (large.role, large.ballot.round) = ("auxiliary".to_owned(), 12_345);
        (large.log_start, large.log_bytes) = (123_456_789, 1023 << 20);
        large.snapshot = Some(SnapshotView { slot: 123_456_789, bytes: 1023 << 20 });
        large.disk.log_bytes_per_second = Some(123 << 20);
        large.disk.free_bytes = Some(1023 << 30);
        (large.streams.count, large.streams.bytes) = (4, 900 << 20);
        large.members[1].client = Some("192.168.100.100:7450".to_owned());
        large.scrub.ended_unix_ms = Some(1_795_000_000_000);
        let shown = human(&ClusterView::new(vec![Answer::Node(Box::new(large))]), false);
        assert!(shown.lines().skip(1).all(|line| line.chars().count() <= 100), "{shown}");
    }
}
