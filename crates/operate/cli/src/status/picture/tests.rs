//! Pictures of healthy and troubled clusters, and of extreme values.

use std::time::Duration;

use quorate_admin::{
    members::StepView,
    traffic::TrafficView,
    view::{DiskView, PlanView, SnapshotView},
};

use super::*;
use crate::top::fixtures;

fn member(node: u32, lag: Option<u64>) -> MemberView {
    MemberView { lag, admin: None, plane: None, ..fixtures::sample_member(1, node) }
}

fn view(node: u32, applied: u64) -> NodeView {
    NodeView {
        cluster: "ab".to_owned(),
        era: 4,
        decided: applied,
        applied,
        durable: applied,
        log_bytes: 768 << 20,
        log_start: 5000,
        snapshot: None,
        disk: DiskView::default(),
        traffic: TrafficView::default(),
        members: Vec::new(),
        ..fixtures::sample_status(node)
    }
}

fn progress(doing: &str, unit: &str, at: u64, to: u64, percent: u64) -> ProgressView {
    ProgressView {
        doing: doing.to_owned(),
        unit: unit.to_owned(),
        from: 0,
        at,
        to,
        percent,
        per_second: Some(to / 16),
        seconds_left: Some(8),
    }
}

fn cluster(views: Vec<NodeView>) -> ClusterView {
    let answer = |view| Answer::Node(Box::new(view));
    ClusterView::new(views.into_iter().map(answer).collect())
}

fn drawn(cluster: &ClusterView, rates: &ClusterRates) -> String {
    let picture = ClusterPicture { cluster, rates, remaining_steps: None, uses_colours: false };
    picture.draw()
}

/// Returns a cluster with every kind of activity in progress.
fn busy() -> (ClusterView, ClusterRates, PlanInProgressView) {
    let look = |at: u64| {
        let mut leader = view(1, 10_000 + at);
        leader.members = vec![
            member(1, None),
            member(2, Some(0)),
            member(3, Some(2500 + at)),
            member(4, None),
            member(5, None),
        ];
        leader.members[1].payload_bytes_sent = at << 20;
        leader.members[2].payload_bytes_sent = at << 10;
        leader.members[3].engaged = Some(false);
        leader.members[3].role = "auxiliary".to_owned();
        leader.plan = Some(PlanView {
            id: 88,
            what: "remove node 5".to_owned(),
            waits: Some("node 2 is to lead on".to_owned()),
        });
        leader.snapshot = Some(SnapshotView { slot: 9000, bytes: 210 << 20 });
        leader.snapshot_taking = Some(SnapshotView { slot: 10_000, bytes: 64 << 20 });
        leader.disk.full_in_seconds = Some(3420);
        let mut behind = view(3, 7500);
        behind.progress = Some(progress("receiving_snapshot", "bytes", 80 << 20, 160 << 20, 50));
        let mut auxiliary = view(4, 0);
        auxiliary.role = "auxiliary".to_owned();
        let mut removed = view(5, 9000);
        removed.removed = true;
        removed.error = Some("this node was removed from the cluster".to_owned());
        let mut cluster = cluster(vec![leader, view(2, 10_000 + at), behind, auxiliary, removed]);
        cluster.nodes.push(Answer::Starting {
            node: Some(6),
            error: "reading the log: 1 GiB of 4 GiB, 25 %".to_owned(),
            progress: Some(progress("reading_log", "bytes", 1 << 30, 4 << 30, 25)),
        });
        cluster.nodes.push(Answer::Unreachable {
            node: Some(7),
            error: "no node answers at h:9: refused".to_owned(),
        });
        cluster
    };
    let mut rates = ClusterRates::default();
    for at in [0, 10, 40, 110, 180] {
        rates.update(&look(at), Duration::from_secs(1));
    }
    let step = |change: &str| StepView { change: change.to_owned(), weights: Vec::new() };
    let steps = PlanInProgressView {
        id: 88,
        what: "remove node 5".to_owned(),
        steps: ["node 2: + 1", "node 5: - 1", "node 2: - 1"].map(step).into(),
        waits: None,
    };
    (look(180), rates, steps)
}

#[test]
fn picture_shows_changes_in_progress() {
    let (cluster, rates, steps) = busy();
    let mut picture = ClusterPicture {
        cluster: &cluster,
        rates: &rates,
        remaining_steps: Some(&steps),
        uses_colours: false,
    };
    let expected = "\
cluster ab (durable, store lsm, era 4): node 1 leads
10180 slots decided, 70/s ▂▄██

● 1  leader       ████████████████████████  10180               70 slots/s, log 768 MiB from 5000, snapshot 210 MiB at 9000, disk full in 57 min
        taking a snapshot at slot 10000: 64 MiB so far
● 2  follower     ████████████████████████  10180    caught up  70 slots/s, receives 70 MiB/s, log 768 MiB from 5000
◐ 3  follower     ███████████▌░░░░░░░░░░░░   7500  2680 behind  0 slots/s, receives 70 KiB/s, log 768 MiB from 5000
        ████████████░░░░░░░░░░░░ receiving a snapshot: 80 MiB of 160 MiB, 50 %, 10 MiB/s, about 8 s left
○ 4  auxiliary                                                  receives 0 B/s, log 768 MiB from 5000
○ 5  removed                                                    log 768 MiB from 5000
        this node was removed from the cluster
◐ 6  starting
        ██████░░░░░░░░░░░░░░░░░░ reading the log: 1 GiB of 4 GiB, 25 %, 256 MiB/s, about 8 s left
✕ 7  unreachable
        no node answers at h:9: refused

plan 88: remove node 5
        next: node 2: + 1 (2 more steps after it)
        waits: node 2 is to lead on";
    assert_eq!(picture.draw(), expected);

    // Steps of another plan are not shown.
    let other = PlanInProgressView { id: 87, ..steps.clone() };
    picture.remaining_steps = Some(&other);
    assert!(!picture.draw().contains("next:"));
    let last = PlanInProgressView { steps: steps.steps[..1].to_vec(), ..steps.clone() };
    picture.remaining_steps = Some(&last);
    assert!(picture.draw().contains("next: node 2: + 1 (the last step)"));
}

/// Colours add only control sequences and leave the text unchanged.
#[test]
fn colours_do_not_change_the_text() {
    let (cluster, rates, steps) = busy();
    let mut picture = ClusterPicture {
        cluster: &cluster,
        rates: &rates,
        remaining_steps: Some(&steps),
        uses_colours: true,
    };
    let coloured = picture.draw();
    picture.uses_colours = false;
    let mut plain = String::new();
    for (at, part) in coloured.split('\x1b').enumerate() {
        let text = if at == 0 { part } else { part.split_once('m').unwrap().1 };
        plain.push_str(text);
    }
    assert_eq!(plain, picture.draw());
    assert!(coloured.contains("\x1b[32m●\x1b[0m") && coloured.contains("\x1b[31m✕\x1b[0m"));
}

#[test]
fn an_auxiliary_that_is_needed_looks_different() {
    let mut leader = view(1, 9000);
    leader.members = vec![member(1, None), member(2, None)];
    leader.members[1].engaged = Some(true);
    let mut auxiliary = view(2, 0);
    auxiliary.role = "auxiliary".to_owned();
    let drawn = drawn(&cluster(vec![leader, auxiliary]), &ClusterRates::default());
    assert!(drawn.contains("\n● 2  auxiliary, engaged  "), "{drawn}");
}

/// A cluster without decisions, bytes or leader can be drawn.
#[test]
fn empty_cluster_can_be_drawn() {
    let mut lone = view(1, 0);
    (lone.log_start, lone.log_bytes, lone.leader) = (0, 0, None);
    lone.role = "candidate".to_owned();
    let mut rates = ClusterRates::default();
    let lone = cluster(vec![lone]);
    rates.update(&lone, Duration::ZERO);
    let expected = "\
cluster ab (durable, store lsm, era 4): no leader
0 slots decided

● 1  candidate  ████████████████████████  0    log 0 B from 0";
    assert_eq!(drawn(&lone, &rates), expected);
    // If no time has elapsed, the rates are unknown and there is no division by zero.
    rates.update(&lone, Duration::ZERO);
    assert!(drawn(&lone, &rates).contains("0 slots decided, 0/s ▁\n"));
    let empty = ClusterView::new(Vec::new());
    let expected = "cluster unknown: no leader\n0 slots decided\n";
    assert_eq!(drawn(&empty, &ClusterRates::default()), expected);
}

#[test]
fn unreachable_nodes_have_a_line_each() {
    let gone = (1..=7).map(|node| Answer::Unreachable {
        node: (node != 7).then_some(node),
        error: format!("no node answers at h:{node}: refused"),
    });
    let drawn = drawn(&ClusterView::new(gone.collect()), &ClusterRates::default());
    let lines: Vec<&str> = drawn.lines().collect();
    assert_eq!(lines.len(), 3 + 2 * 7, "{drawn}");
    assert_eq!(lines[3], "✕ 1  unreachable");
    assert_eq!(lines[15], "✕ ?  unreachable");
    assert_eq!(lines[16], "        no node answers at h:7: refused");
}

/// The largest possible numbers fit.
#[test]
fn the_largest_numbers_fit() {
    let mut leader = view(1, u64::MAX);
    (leader.log_start, leader.log_bytes) = (1, u64::MAX);
    leader.members = vec![member(2, Some(u64::MAX))];
    let mut second = view(2, 0);
    second.progress = Some(progress("catching_up", "slots", 0, u64::MAX, 250));
    let largest = cluster(vec![leader, second]);
    let mut rates = ClusterRates::default();
    rates.update(&cluster(vec![view(1, 0)]), Duration::MAX);
    rates.update(&largest, Duration::from_millis(1));
    let drawn = drawn(&largest, &rates);
    assert!(drawn.contains("18446744073709551615/s █"), "{drawn}");
    assert!(drawn.contains("18446744073709551615 behind"), "{drawn}");
}

#[test]
fn a_bar_is_full_and_empty_only_at_its_ends() {
    let cells = |at, of| draw_bar(at, of).chars().filter(|cell| *cell != '░').count();
    for of in [1, 2, 3, 24, 100, 1000, u64::MAX] {
        assert_eq!((cells(0, of), draw_bar(of, of)), (0, "█".repeat(BAR_CHARS)));
        assert!(draw_bar(of, of) == draw_bar(u64::MAX, of), "more than all is all");
        if of > 1 {
            assert_eq!(cells(1, of).max(1), cells(1, of), "it has begun: {of}");
            assert_ne!(draw_bar(of - 1, of), draw_bar(of, of), "it has not ended: {of}");
        }
        for at in [0, 1, of / 3, of / 2, of - 1, of] {
            assert_eq!(draw_bar(at, of).chars().count(), BAR_CHARS);
        }
    }
    assert_eq!(draw_bar(0, 0), "░".repeat(BAR_CHARS));
}

/// Counters restart at zero after a restart or a change of leader.
#[test]
fn decreased_counters_start_a_new_rate() {
    let look = |leader: u32, applied: u64, sent: u64| {
        let mut views = vec![view(1, applied), view(2, applied)];
        for view in &mut views {
            view.leader = Some(leader);
            view.members = vec![member(1, None), member(2, None)];
            view.members[2 - leader as usize].node = 3 - leader;
            view.members[2 - leader as usize].payload_bytes_sent = sent;
        }
        cluster(views)
    };
    let mut rates = ClusterRates::default();
    let second = Duration::from_secs(1);
    rates.update(&look(1, 100, 1000), second);
    assert!(rates.decided_history.is_empty() && rates.sent_rates.is_empty());
    rates.update(&look(1, 300, 6000), second * 2);
    assert_eq!(rates.decided_history, [100]);
    assert_eq!((rates.applied_rates[&1], rates.sent_rates[&2]), (100, 2500));
    rates.update(&look(2, 200, 7000), second);
    assert!(rates.applied_rates.is_empty() && rates.sent_rates.is_empty());
    assert_eq!(rates.decided_history, [100, 0]);
    for at in 0..100 {
        rates.update(&look(2, 300 + at, 0), second);
    }
    assert_eq!(rates.decided_history.len(), 40);
}
