//! Lease reads and reads with bounded staleness ([read-4], [read-6]), in whole clusters.

use std::cell::Cell;

use quorate_core::{lease::LeaseRules, level::Level, node_id::NodeId, record::Class};
use quorate_replica::{
    front::{Failure, Tag},
    service::{CommandId, StateMachine},
    testing::{Cluster, Outcome, note_query},
};

/// Stores the last command, which is the reply to every query, and the visits of the last query.
#[derive(Default)]
struct Last(Vec<u8>, Cell<u64>);

impl StateMachine for Last {
    fn apply(&mut self, _id: CommandId, command: &[u8], reply: &mut Vec<u8>) {
        self.0 = command.to_vec();
        reply.extend_from_slice(b"done");
    }

    fn may_change(&self, _command: &[u8], query: &[u8]) -> bool {
        query != b"unrelated"
    }

    fn query(&self, query: &[u8], _wall_ms: u64, reply: &mut Vec<u8>) {
        note_query();
        reply.extend_from_slice(&self.0);
        self.1.set(if query == b"long" { 1 << 20 } else { 1 });
    }

    fn query_visits(&self) -> u64 {
        self.1.get()
    }
}

fn read(text: &str) -> Option<Outcome> {
    Some(Outcome::Read(text.into()))
}

/// Starts three nodes that have executed `one`. Returns the cluster and its leader.
fn cluster(leases: bool) -> (Cluster<Last>, NodeId) {
    cluster_at(Level::NEWEST, leases)
}

/// Like [`cluster`], with folders that are marked with feature level `level`.
fn cluster_at(level: Level, leases: bool) -> (Cluster<Last>, NodeId) {
    let mut options = Cluster::<Last>::options(3, Class::Durable);
    options.marked_level = level;
    let election_min_ms = options.timeouts.election_min_ms;
    options.leases = leases
        .then(|| LeaseRules::within_election_timeout(election_min_ms, options.clock_drift_ppm));
    let mut cluster = Cluster::with_options(options, 7, |_| Last::default());
    for node in 1..=3 {
        cluster.start(NodeId(node));
    }
    assert!(cluster.run_until(3000, |cluster| cluster.leader().is_some()));
    let leader = cluster.leader().unwrap();
    let tag = cluster.write(leader, b"one");
    assert!(ends(&mut cluster, leader, tag, 1000));
    cluster.run_ms(100);
    (cluster, leader)
}

fn ends(cluster: &mut Cluster<Last>, node: NodeId, tag: Tag, ms: u64) -> bool {
    cluster.run_until(ms, |cluster| cluster.outcome(node, tag).is_some())
}

fn follower(leader: NodeId) -> NodeId {
    NodeId(leader.0 % 3 + 1)
}

#[test]
fn leader_reads_by_its_lease_without_a_question() {
    let (mut cluster, leader) = cluster(true);
    let before = cluster.replica(leader).counters();
    let frames = cluster.frames_sent();
    let tag = cluster.read(leader, b"");
    assert!(ends(&mut cluster, leader, tag, 0), "it needs no other node");
    assert_eq!(cluster.outcome(leader, tag).cloned(), read("one"));
    let after = cluster.replica(leader).counters();
    assert_eq!(after.reads_leased, before.reads_leased + 1);
    assert_eq!(after.reads_confirmed, before.reads_confirmed);
    assert_eq!(cluster.frames_sent(), frames);
    // A follower requests a confirmation, as without leases.
    let other = follower(leader);
    let tag = cluster.read(other, b"");
    assert!(ends(&mut cluster, other, tag, 100));
    assert_eq!(cluster.replica(other).counters().reads_leased, 0);
}

#[test]
fn without_leases_every_read_is_confirmed() {
    let (mut cluster, leader) = cluster(false);
    let tag = cluster.read(leader, b"");
    assert!(!ends(&mut cluster, leader, tag, 0));
    assert!(ends(&mut cluster, leader, tag, 100));
    assert_eq!(cluster.replica(leader).counters().reads_leased, 0);
}

/// [read-4] The clock is checked after the query. If the process was suspended during the query,
/// the lease has expired, and the read needs a confirmation.
#[test]
fn lease_that_ended_while_the_state_was_read_answers_nothing() {
    let (mut cluster, leader) = cluster(true);
    let before = cluster.replica(leader).counters();
    cluster.set_stall_after_query(leader, 150);
    let tag = cluster.read(leader, b"");
    assert!(ends(&mut cluster, leader, tag, 100));
    assert_eq!(cluster.outcome(leader, tag).cloned(), read("one"));
    let after = cluster.replica(leader).counters();
    assert_eq!(after.reads_overtaken, before.reads_overtaken + 1);
}

/// [read-10] A turn answers one long query, and any number of short ones.
#[test]
fn long_reads_wait_for_the_next_turn() {
    for (query, leased) in [(&b"long"[..], 4 + 3 + 2 + 1), (b"", 4)] {
        let (mut cluster, leader) = cluster(true);
        let before = cluster.replica(leader).counters().reads_leased;
        let tags = [(); 4].map(|()| cluster.read(leader, query));
        for tag in tags {
            assert!(ends(&mut cluster, leader, tag, 100));
            assert_eq!(cluster.outcome(leader, tag).cloned(), read("one"));
        }
        assert_eq!(cluster.replica(leader).counters().reads_leased - before, leased);
    }
}

/// A leader without answers from its peers keeps its lease no longer than it was granted.
#[test]
fn cut_off_leader_soon_answers_nothing() {
    let (mut cluster, leader) = cluster(true);
    cluster.isolate(leader, true);
    cluster.run_ms(100);
    let before = cluster.replica(leader).counters();
    let tag = cluster.read(leader, b"");
    assert!(!ends(&mut cluster, leader, tag, 50));
    assert_eq!(cluster.replica(leader).counters().reads_leased, before.reads_leased);
}

/// [read-8], [read-9] When a leader with leases dies, another is elected before they end. The new
/// leader answers reads at once if no command in flight affects them, and the others when that
/// command is decided.
#[test]
fn new_leader_reads_before_the_leases_end() {
    let (mut cluster, old) = cluster(true);
    // From now on no node has to register a session before it writes.
    let tags = [1, 2, 3].map(|node| (NodeId(node), cluster.write(NodeId(node), b"one")));
    assert!(tags.into_iter().all(|(node, tag)| ends(&mut cluster, node, tag, 1000)));
    cluster.run_ms(100);
    cluster.crash(old);
    let started = cluster.now();
    assert!(cluster.run_until(100, |cluster| cluster.leader().is_some()));
    let leader = cluster.leader().unwrap();
    let written = cluster.write(leader, b"two");
    cluster.run_ms(5);
    let (unrelated, related) = (cluster.read(leader, b"unrelated"), cluster.read(leader, b""));
    assert!(ends(&mut cluster, leader, unrelated, 10));
    assert_eq!(cluster.outcome(leader, unrelated).cloned(), read("one"));
    assert!(cluster.now().since_us(started) < 60_000, "the leases stand");
    assert!(
        cluster.outcome(leader, written).is_none() && cluster.outcome(leader, related).is_none()
    );
    assert!(ends(&mut cluster, leader, related, 200));
    assert_eq!(cluster.outcome(leader, related).cloned(), read("two"));
}

/// [read-8] Below level 10 leases end before another leader is elected.
#[test]
fn no_leader_before_the_leases_end_below_level_10() {
    let (mut cluster, old) = cluster_at(Level(9), true);
    cluster.crash(old);
    assert!(!cluster.run_until(60, |cluster| cluster.leader().is_some()));
    assert!(cluster.run_until(1000, |cluster| cluster.leader().is_some()));
}

/// [read-6] A node serves bounded reads alone while a confirmed request is recent enough.
#[test]
fn bounded_read_is_served_within_its_bound_and_refused_beyond() {
    let (mut cluster, leader) = cluster(false);
    let node = follower(leader);
    let tag = cluster.read_bounded(node, 1000, b"");
    assert!(ends(&mut cluster, node, tag, 100), "it asks, once");
    assert_eq!(cluster.outcome(node, tag).cloned(), read("one"));
    cluster.isolate(node, true);
    let elsewhere = cluster.write(leader, b"two");
    assert!(ends(&mut cluster, leader, elsewhere, 1000));
    let tag = cluster.read_bounded(node, 1000, b"");
    assert!(ends(&mut cluster, node, tag, 0), "it asks no other node");
    assert_eq!(cluster.outcome(node, tag).cloned(), read("one"));
    // The state is recent enough for the other read's bound, but not for this one's.
    cluster.run_ms(5);
    let tag = cluster.read_bounded(node, 1, b"");
    assert!(ends(&mut cluster, node, tag, 1000));
    let stale = Some(Outcome::Failed(Failure::Stale));
    assert_eq!(cluster.outcome(node, tag).cloned(), stale);
    cluster.run_ms(1000);
    let tag = cluster.read_bounded(node, 1000, b"");
    assert!(ends(&mut cluster, node, tag, 1100));
    assert_eq!(cluster.outcome(node, tag).cloned(), stale);
    cluster.isolate(node, false);
    let tag = cluster.read_bounded(node, 100, b"");
    assert!(ends(&mut cluster, node, tag, 1000));
    assert_eq!(cluster.outcome(node, tag).cloned(), read("two"));
}

/// The staleness bound is also checked after the query.
#[test]
fn bound_that_passed_while_the_state_was_read_answers_nothing() {
    let (mut cluster, leader) = cluster(false);
    let node = follower(leader);
    cluster.set_stall_after_query(node, 80);
    let tag = cluster.read_bounded(node, 50, b"");
    assert!(ends(&mut cluster, node, tag, 1000));
    assert_eq!(cluster.outcome(node, tag).cloned(), read("one"));
    assert_eq!(cluster.replica(node).counters().reads_overtaken, 1);
}
