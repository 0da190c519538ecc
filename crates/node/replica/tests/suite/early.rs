//! Early replies in whole clusters: clients of a durable group may request replies once their
//! commands are in memory at a quorum ([class-2], [less-1] to [less-5]).

use quorate_core::{level::Level, node_id::NodeId, record::Class, slot::Slot};
use quorate_replica::{
    front::{Failure, Tag},
    testing::{Cluster, Outcome},
};

use crate::stage::{NODES, Places, Stage};

/// Duration of a disk operation in microseconds, too long for an early reply to have waited for it.
const SLOW_US: u64 = 2_000_000;
/// Delay of a frame in one direction, in microseconds.
const DELAY_US: u64 = 10_000;

impl Stage {
    /// Creates a group with a leader, at feature level `level`.
    fn at(class: Class, level: Level) -> Self {
        Self::with_seed(class, level, 1)
    }

    fn with_seed(class: Class, level: Level, seed: u64) -> Self {
        let mut stage = Self::raised(class, level, seed);
        // Every node has a session, so only the command itself is waited for.
        for node in NODES {
            let tag = stage.cluster.write(node, b"first");
            assert!(stage.outcome(node, tag, 5_000).is_some());
        }
        stage.cluster.run_ms(200);
        stage
    }

    /// Creates a durable group whose level lets members be asked.
    fn early() -> Self {
        Self::at(Class::Durable, Level(10))
    }

    /// Creates a durable group with slow disks whose level lets members be asked.
    fn slow() -> Self {
        Self::slow_with_seed(1)
    }

    fn slow_with_seed(seed: u64) -> Self {
        let mut stage = Self::with_seed(Class::Durable, Level(10), seed);
        stage.cluster.knobs.disk_us = SLOW_US;
        stage
    }

    /// Returns the leader and the two followers.
    fn roles(&mut self) -> (NodeId, NodeId, NodeId) {
        let leader = self.leader();
        let mut others = NODES.into_iter().filter(|node| *node != leader);
        (leader, others.next().unwrap(), others.next().unwrap())
    }

    /// Returns the slot of a command whose client is notified that it is in memory.
    fn in_memory(&mut self, node: NodeId, tag: Tag) -> Slot {
        match self.outcome(node, tag, 1_000) {
            Some(Outcome::InMemory(slot)) => slot,
            other => panic!("{other:?}"),
        }
    }

    /// Returns the slots in which this node executed a command, once it has.
    fn executed(&mut self, node: NodeId, command: &[u8]) -> Vec<Slot> {
        let found = |cluster: &Cluster<Places>| cluster.replica(node).service().places(command);
        self.cluster.run_until(20_000, |cluster| !found(cluster).is_empty());
        found(&self.cluster)
    }
}

/// [less-1] An early reply arrives before any disk has completed a write, through any node.
#[test]
fn a_reply_comes_before_any_disk_has_written() {
    for at in NODES {
        let mut stage = Stage::slow();
        let tag = stage.cluster.write_early(at, b"early");
        let plain = stage.cluster.write(at, b"plain");
        let slot = stage.in_memory(at, tag);
        assert_eq!(stage.outcome(at, plain, 100), None, "the group's class");
        for node in NODES {
            assert!(stage.cluster.replica(node).applied_to() <= slot);
        }
    }
}

/// A reply takes one round trip at the leader, and another one at a follower.
#[test]
fn a_reply_takes_one_round_trip_at_the_leader_and_two_elsewhere() {
    let mut stage = Stage::slow();
    let (leader, follower, _) = stage.roles();
    let knobs = &mut stage.cluster.knobs;
    (knobs.delay_min_us, knobs.delay_max_us) = (DELAY_US, DELAY_US);
    stage.cluster.run_ms(300);
    for (node, ways) in [(leader, 2), (follower, 4)] {
        let began = stage.cluster.now();
        let tag = stage.cluster.write_early(node, b"early");
        stage.in_memory(node, tag);
        let took = stage.cluster.now().since_us(began);
        assert!(took >= ways * DELAY_US, "{took} µs at node {node}");
        assert!(took < ways * DELAY_US + DELAY_US / 2, "{took} µs at node {node}");
    }
}

/// [less-2] The memories of two of three nodes suffice, and one does not.
#[test]
fn a_quorum_of_memories_is_enough_and_less_is_not() {
    let mut stage = Stage::slow();
    let (leader, one, two) = stage.roles();
    stage.cluster.set_cut(leader, one, true);
    let tag = stage.cluster.write_early(leader, b"early");
    stage.in_memory(leader, tag);
    stage.cluster.set_cut(leader, two, true);
    let tag = stage.cluster.write_early(leader, b"alone");
    assert_eq!(stage.outcome(leader, tag, 50), None);
}

/// [less-4] The leader that accepted the command crashes before any disk has it. The next leader
/// finds it in the memory of the quorum.
#[test]
fn what_is_in_memory_is_decided_when_the_leader_goes() {
    let mut stage = Stage::slow();
    let (leader, one, two) = stage.roles();
    stage.cluster.set_cut(leader, two, true);
    let tag = stage.cluster.write_early(leader, b"early");
    let slot = stage.in_memory(leader, tag);
    stage.cluster.isolate(leader, true);
    stage.cluster.knobs.disk_us = 100;
    for node in [one, two] {
        assert_eq!(stage.executed(node, b"early"), [slot], "node {node}");
    }
}

/// [less-4] A member of the quorum loses its memory before its disk has the command, and the other
/// is cut off, so another value may take the slot. The client's reply allows that. While the node
/// that the client asked survives, the command is still executed, once.
#[test]
fn what_a_member_forgot_may_lose_its_slot() {
    let mut lost = 0;
    for seed in 0..8 {
        let mut stage = Stage::slow_with_seed(seed);
        let (leader, one, two) = stage.roles();
        stage.cluster.set_cut(leader, two, true);
        let tag = stage.cluster.write_early(leader, b"early");
        let slot = stage.in_memory(leader, tag);
        stage.cluster.isolate(leader, true);
        // A write in flight may have reached the disk, or not.
        stage.cluster.crash(one);
        stage.cluster.knobs.disk_us = 100;
        stage.cluster.start(one);
        let other = stage.cluster.write(two, b"other");
        let told = stage.outcome(two, other, 5_000);
        assert!(matches!(told, Some(Outcome::Written(_))), "{told:?}");
        let places = |stage: &Stage| stage.cluster.replica(two).service().places(b"early");
        let kept = places(&stage);
        stage.cluster.isolate(leader, false);
        let at_last = stage.executed(two, b"early");
        match kept[..] {
            [] => {
                lost += 1;
                assert!(at_last.len() == 1 && at_last[0] > slot, "{at_last:?}, not {slot}");
            }
            _ => assert_eq!((&kept, &at_last), (&vec![slot], &vec![slot])),
        }
    }
    assert!((1..8).contains(&lost), "{lost} of 8");
}

/// [less-4] The reply to a later command on the connection, at the group's class, shows the client
/// that the command is durable.
#[test]
fn a_later_reply_at_the_groups_class_says_that_all_before_it_is_decided() {
    let mut stage = Stage::early();
    for at in NODES {
        stage.cluster.knobs.disk_us = 20_000;
        let early = stage.cluster.write_early(at, b"early");
        let slot = stage.in_memory(at, early);
        let later = stage.cluster.write(at, b"later");
        let Some(Outcome::Written(reply)) = stage.outcome(at, later, 5_000) else {
            panic!("not executed")
        };
        let later = Slot(u64::from_le_bytes(reply.try_into().unwrap()));
        assert!(later > slot);
        assert!(stage.executed(at, b"early").contains(&slot));
        stage.cluster.run_ms(200);
    }
}

/// [less-5] A volatile group asks no member. A durable group below the required level refuses.
#[test]
fn nobody_is_asked_where_a_decision_is_no_more_or_a_member_might_not_understand() {
    let one = NodeId(1);
    let mut volatile = Stage::at(Class::Volatile, Level::BASE);
    let tag = volatile.cluster.write_early(one, b"decided");
    let told = volatile.outcome(one, tag, 1_000);
    assert!(matches!(told, Some(Outcome::Written(_))), "{told:?}");
    let mut durable = Stage::at(Class::Durable, Level(9));
    let tag = durable.cluster.write_early(one, b"refused");
    let refused = Some(Outcome::Failed(Failure::Level));
    assert_eq!(durable.outcome(one, tag, 0), refused);
}

/// [less-5] Early replies cost a request and a reply per member and batch; other batches cost none.
#[test]
fn who_does_not_ask_costs_nobody_a_frame() {
    const BATCHES: u64 = 50;
    let sent = |early: bool| {
        let mut stage = Stage::early();
        let (leader, ..) = stage.roles();
        stage.cluster.run_ms(500);
        let before = stage.cluster.frames_sent();
        for _ in 0..BATCHES {
            let tag = match early {
                true => stage.cluster.write_early(leader, b"x"),
                false => stage.cluster.write(leader, b"x"),
            };
            assert!(stage.outcome(leader, tag, 1_000).is_some());
            stage.cluster.run_ms(5);
        }
        stage.cluster.frames_sent() - before
    };
    let (plain, early) = (sent(false), sent(true));
    // The difference may be a heartbeat.
    let more = (early - plain).abs_diff(BATCHES * 4);
    assert!(more <= 4, "{plain} frames, and {early}");
}
