//! A replica's reports to operators: readiness, progress, and events.

use quorate_core::{
    effect::Role,
    explanation::{BallotEnd, Campaign, Explanation},
    node_id::NodeId,
    record::Class,
};
use quorate_log::disk::Fault;
use quorate_replica::{
    CommandId, ProbeOutcome, StateMachine,
    events::Event,
    front::{Failure, Tag},
    status::Activity,
    testing::{Cluster, Outcome},
};

/// Counts the commands. Those that begin with a minus sign remove data.
#[derive(Default)]
struct Counter(u64);

impl StateMachine for Counter {
    fn grows(&self, command: &[u8]) -> bool {
        !command.starts_with(b"-")
    }

    fn apply(&mut self, _: CommandId, _: &[u8], reply: &mut Vec<u8>) {
        self.0 += 1;
        reply.extend_from_slice(self.0.to_string().as_bytes());
    }

    fn query(&self, _: &[u8], _: u64, reply: &mut Vec<u8>) {
        reply.extend_from_slice(self.0.to_string().as_bytes());
    }
}

/// Space that a full disk needs for more data, with segments of 64 MiB.
const ROOM: u64 = 256 << 20;
const NODES: [NodeId; 3] = [NodeId(1), NodeId(2), NodeId(3)];

fn cluster(seed: u64) -> Cluster<Counter> {
    Cluster::new(3, Class::Durable, seed, |_| Counter::default())
}

fn led(cluster: &mut Cluster<Counter>) -> NodeId {
    assert!(cluster.run_until(10_000, |cluster| cluster.leader().is_some()));
    cluster.leader().unwrap()
}

fn others(node: NodeId) -> [NodeId; 2] {
    let mut others = NODES.into_iter().filter(|other| *other != node);
    [others.next().unwrap(), others.next().unwrap()]
}

fn done(cluster: &mut Cluster<Counter>, node: NodeId, tag: Tag) -> Outcome {
    assert!(cluster.run_until(10_000, |cluster| cluster.outcome(node, tag).is_some()));
    cluster.outcome(node, tag).unwrap().clone()
}

fn write(cluster: &mut Cluster<Counter>, node: NodeId, bytes: usize) {
    let tag = cluster.write(node, &vec![b'.'; bytes]);
    assert!(matches!(done(cluster, node, tag), Outcome::Written(_)));
}

/// Returns whether this node serves a linearizable read now, as found by its probe.
fn probe(cluster: &mut Cluster<Counter>, node: NodeId) -> ProbeOutcome {
    let now = cluster.now();
    cluster.replica_mut(node).start_probe(now);
    let mut ended = None;
    assert!(cluster.run_until(5_000, |cluster| {
        ended = cluster.replica_mut(node).take_probe();
        ended.is_some()
    }));
    ended.unwrap()
}

fn events(cluster: &mut Cluster<Counter>, node: NodeId) -> Vec<Event> {
    let replica = cluster.replica_mut(node);
    std::iter::from_fn(|| replica.next_event()).collect()
}

/// An operator learns why there is no snapshot, and is not left waiting.
#[test]
fn service_without_images_gives_no_snapshot() {
    let mut cluster = Cluster::new(1, Class::Durable, 5, |_| Counter::default());
    let node = led(&mut cluster);
    write(&mut cluster, node, 1);
    cluster.replica_mut(node).snapshot_now(None);
    let mut answer = None;
    assert!(cluster.run_until(5_000, |cluster| {
        answer = cluster.replica_mut(node).take_snapshot_answer();
        answer.is_some()
    }));
    let why = answer.unwrap().unwrap_err();
    assert!(why.contains("no image"), "{why}");
}

/// A follower that was away knows the leader long before it has the slots that its readers need.
#[test]
fn node_that_is_behind_is_not_ready_and_says_how_far_it_is() {
    let mut cluster = cluster(1);
    let leader = led(&mut cluster);
    let [away, _] = others(leader);
    for _ in 0..50 {
        write(&mut cluster, leader, 2_000);
    }
    cluster.crash(away);
    for _ in 0..2_000 {
        write(&mut cluster, leader, 2_000);
    }
    // Only a few values at a time fit into the leader's buffer towards the node.
    cluster.knobs.plane_bytes = 5_000;
    cluster.start(away);
    let knows = |cluster: &mut Cluster<Counter>| {
        cluster.replica(away).node().leader() == Some(leader)
            && cluster.replica(away).node().known_decided_to().0 > 2_000
    };
    assert!(cluster.run_until(5_000, knows));

    let ProbeOutcome::Behind { applied_to, needed_to: needed } = probe(&mut cluster, away) else {
        panic!("a node that is behind by thousands of slots serves no client");
    };
    assert!(applied_to < needed && needed.0 > 2_000, "{applied_to} {needed}");
    let progress = cluster.replica(away).status(cluster.now()).progress.unwrap();
    assert_eq!(progress.activity, Activity::CatchingUp);
    assert!(progress.from < progress.position && progress.position < progress.end);
    assert!(progress.per_second.is_some_and(|rate| rate > 0), "{progress:?}");

    let caught_up = |cluster: &mut Cluster<Counter>| {
        let status = cluster.replica(away).status(cluster.now());
        status.progress.is_none()
    };
    assert!(cluster.run_until(60_000, caught_up));
    cluster.run_ms(100);
    assert_eq!(probe(&mut cluster, away), ProbeOutcome::Served);
    let told = events(&mut cluster, away);
    let behind = told.iter().any(|event| {
        matches!(event, Event::Behind(progress) if progress.activity == Activity::CatchingUp)
    });
    assert!(behind, "{told:?}");
    let last = told.last().unwrap();
    assert!(matches!(last, Event::CaughtUp { applied_to, .. } if applied_to.0 > 2_000), "{told:?}");
}

/// Every node of a healthy group is ready. No node is ready without a quorum, or while it stops.
#[test]
fn ready_is_who_can_serve_a_linearizable_read_now() {
    let mut cluster = cluster(2);
    let leader = led(&mut cluster);
    cluster.run_ms(100);
    for node in NODES {
        assert_eq!(probe(&mut cluster, node), ProbeOutcome::Served, "node {node}");
    }
    // The leader still assumes that it leads, so the state that it would read may be old.
    let [one, other] = others(leader);
    cluster.isolate(leader, true);
    assert_eq!(probe(&mut cluster, leader), ProbeOutcome::Unconfirmed);
    cluster.isolate(leader, false);
    cluster.run_ms(2_000);
    assert_eq!(probe(&mut cluster, one), ProbeOutcome::Served);
    let now = cluster.now();
    cluster.replica_mut(other).stop(now);
    assert_eq!(probe(&mut cluster, other), ProbeOutcome::Closed);
}

/// Each node reports a change of leader from its own point of view, with the reason.
#[test]
fn change_of_leader_is_told_of_with_its_causes() {
    let mut cluster = cluster(3);
    let old = led(&mut cluster);
    cluster.run_ms(100);
    for node in NODES {
        events(&mut cluster, node);
    }
    cluster.isolate(old, true);
    cluster.run_ms(2_000);
    let new = cluster.leader().unwrap();
    assert_ne!(new, old);
    let told = events(&mut cluster, old);
    let steps_down = told.iter().any(|event| {
        let Event::Leadership(Explanation::StepsDown { ballot, why }) = event else {
            return false;
        };
        ballot.node == old && *why == BallotEnd::QuorumSilent
    });
    assert!(steps_down, "{told:?}");
    let is_alone = |event: &&Event| match event {
        Event::NoLeader { connected_count: connected, member_count: members, .. } => {
            (*connected, *members) == (1, 3)
        }
        _ => false,
    };
    assert_eq!(told.iter().filter(is_alone).count(), 1, "{told:?}");

    let told = events(&mut cluster, new);
    let gone = Event::Leadership(Explanation::LeaderUnreachable { leader: old });
    assert!(told.contains(&gone), "{told:?}");
    let mut elected = told.iter().filter_map(|event| match event {
        Event::Leadership(Explanation::Campaigns { ballot, why }) => {
            assert_eq!(*why, Campaign::PreVotes);
            Some(*ballot)
        }
        _ => None,
    });
    let ballot = elected.next_back().unwrap();
    assert!(told.contains(&Event::Leadership(Explanation::Leads { ballot })));
    let leads = Event::Role { role: Role::Leader, leader: Some(new), ballot };
    assert!(told.contains(&leads), "{told:?}");

    let [one, other] = others(new);
    let third = if one == old { other } else { one };
    let told = events(&mut cluster, third);
    let follows = Event::Role { role: Role::Follower, leader: Some(new), ballot };
    assert!(told.contains(&follows), "{told:?}");
}

/// A disk that is full, slow, stuck or broken is reported as such.
#[test]
fn what_the_disk_does_is_told_of() {
    let mut cluster = cluster(4);
    let leader = led(&mut cluster);
    let [node, broken] = others(leader);
    cluster.run_ms(100);
    events(&mut cluster, node);

    cluster.knobs.disk_us = 300_000;
    write(&mut cluster, leader, 10);
    cluster.run_ms(1_000);
    let told = events(&mut cluster, node);
    assert!(told.iter().any(|event| matches!(event, Event::SlowWrite { ms: 300, .. })), "{told:?}");
    cluster.knobs.disk_us = 5_000_000;
    let tag = cluster.write(leader, b"a");
    cluster.run_ms(3_000);
    let told = events(&mut cluster, node);
    assert!(
        told.iter().any(|event| matches!(event, Event::WriteHangs { ms: 2_000.. })),
        "{told:?}"
    );
    cluster.knobs.disk_us = 100;
    done(&mut cluster, leader, tag);

    cluster.disk(broken).inject(Fault::WriteFails);
    write(&mut cluster, leader, 10);
    cluster.run_ms(1_000);
    let told = events(&mut cluster, broken);
    assert!(told.iter().any(|event| matches!(event, Event::LogFailed { .. })), "{told:?}");
}

/// A full disk is reported when it is noticed and when it has space again, but not in between.
#[test]
fn full_disk_is_told_of_once_and_so_is_its_end() {
    let mut cluster = cluster(5);
    let leader = led(&mut cluster);
    let [node, _] = others(leader);
    cluster.run_ms(100);
    events(&mut cluster, node);
    cluster.disk(node).set_capacity(Some(1));
    // Each existing segment has 64 MiB.
    for _ in 0..100 {
        write(&mut cluster, leader, 1 << 20);
    }
    cluster.run_ms(1_000);
    let full = |events: &[Event]| {
        let no_room = |event: &&Event| matches!(event, Event::NoSegment { is_waiting: true, .. });
        events.iter().filter(no_room).count()
    };
    let told = events(&mut cluster, node);
    assert_eq!(full(&told), 1, "{told:?}");
    cluster.disk(node).set_capacity(None);
    cluster.run_ms(2_000);
    let told = events(&mut cluster, node);
    assert_eq!(full(&told), 0, "{told:?}");
    assert!(told.iter().any(|event| matches!(event, Event::SegmentsRecovered { .. })), "{told:?}");
}

/// [room-1] [room-2] If the members with free disk space do not form a quorum, every node refuses
/// data and names a member whose disk is full. Commands that remove data pass. Once there is space,
/// all commands pass.
#[test]
fn full_disks_of_a_majority_refuse_data_and_nothing_else() {
    let mut cluster = cluster(6);
    let leader = led(&mut cluster);
    let [one, other] = others(leader);
    write(&mut cluster, leader, 1);
    let check = |cluster: &mut Cluster<Counter>, full: &[NodeId], refused: Option<NodeId>| {
        for node in NODES {
            cluster.disk(node).set_capacity(full.contains(&node).then_some(1));
        }
        cluster.run_ms(500);
        for node in NODES.into_iter().filter(|node| cluster.runs(*node)).collect::<Vec<_>>() {
            let grows = cluster.write(node, b"+");
            let grew = done(cluster, node, grows);
            match refused {
                Some(full) => assert_eq!(grew, Outcome::Failed(Failure::DiskFull(full))),
                None => assert!(matches!(grew, Outcome::Written(_)), "{node}: {grew:?}"),
            }
            let status = cluster.replica(node).status(cluster.now());
            assert_eq!(status.disk.refuses_data, refused.is_some());
            let needed = full.contains(&node).then_some(ROOM);
            assert_eq!(status.disk.needed_bytes, needed);
            let own = status.notices.iter().any(|notice| notice.contains("MiB needed"));
            assert_eq!(own, needed.is_some(), "{:?}", status.notices);
            let removes = cluster.write(node, b"-");
            assert!(matches!(done(cluster, node, removes), Outcome::Written(_)), "{node}");
        }
    };
    for full in [leader, one, other] {
        check(&mut cluster, &[full], None);
    }
    for (full, also) in [(leader, one), (one, other), (leader, other)] {
        check(&mut cluster, &[full, also], Some(full.min(also)));
    }
    check(&mut cluster, &[], None);
    // A member that is down has no room, either.
    cluster.crash(other);
    check(&mut cluster, &[one], Some(one));
    check(&mut cluster, &[], None);
}
