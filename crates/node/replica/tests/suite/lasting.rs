//! Lasting replies in whole clusters: clients of a volatile group may request replies once their
//! commands are on the disks of a quorum ([class-2], [last-1] to [last-5]).

use quorate_core::{level::Level, node_id::NodeId, record::Class, slot::Slot};
use quorate_log::{Log, LogOptions};
use quorate_replica::{
    front::{Failure, Tag},
    testing::Outcome,
};

use crate::stage::{NODES, Stage};

/// Duration of a disk operation in microseconds, too long for any client to wait for.
const SLOW_US: u64 = 60_000_000;

impl Stage {
    /// Creates a group with a leader, at the level at which members answer about their disks.
    fn lasting(class: Class) -> Self {
        Self::raised(class, Level(9), 1)
    }

    fn at_base(class: Class) -> Self {
        Self::raised(class, Level::BASE, 1)
    }

    /// Returns the slot of an executed command.
    fn slot(&mut self, node: NodeId, tag: Tag) -> Slot {
        match self.outcome(node, tag, 5_000) {
            Some(Outcome::Written(reply)) => Slot(u64::from_le_bytes(reply.try_into().unwrap())),
            other => panic!("{other:?}"),
        }
    }

    /// Returns the number of disks on which a crash of all nodes leaves everything up to `slot`, as
    /// seen by a node that recovers from one of them ([era-10]).
    fn survives(&mut self, slot: Slot) -> usize {
        NODES.iter().for_each(|node| self.cluster.crash(*node));
        let holds = |node: &&NodeId| {
            let options = LogOptions::new(7, **node, quorate_core::node_id::Incarnation(0));
            let disk = self.cluster.disk(**node).reopen_after_crash();
            disk.set_manual_completion(false);
            let (_, recovery) = Log::open(disk, options).unwrap();
            let mut to = recovery.hard_state.decided_to;
            for vote in &recovery.votes {
                if vote.range.from <= to {
                    to = to.max(vote.range.to);
                }
            }
            to > slot
        };
        NODES.iter().filter(holds).count()
    }
}

/// [last-3] A lasting reply survives a crash of all nodes, through any node. Other clients learn of
/// a decision in memory immediately, and that decision is lost in the crash.
#[test]
fn what_was_told_to_last_outlasts_a_crash_of_everybody() {
    for at in NODES {
        let mut stage = Stage::lasting(Class::Volatile);
        stage.cluster.run_ms(200);
        let tag = stage.cluster.write_lasting(at, b"lasts");
        let slot = stage.slot(at, tag);
        assert!(stage.survives(slot) >= 2, "asked at {at}");
    }
    let mut stage = Stage::lasting(Class::Volatile);
    stage.cluster.run_ms(200);
    stage.cluster.knobs.disk_us = SLOW_US;
    let tag = stage.cluster.write(NodeId(1), b"volatile");
    let slot = stage.slot(NodeId(1), tag);
    assert_eq!(stage.survives(slot), 0);
}

/// [last-4] A lasting reply waits only for disks. Replies to other clients do not wait for it.
#[test]
fn a_reply_waits_for_disks_or_says_that_it_does_not_last() {
    let mut stage = Stage::lasting(Class::Volatile);
    stage.cluster.run_ms(200);
    stage.cluster.knobs.disk_us = SLOW_US;
    let (one, two) = (NodeId(1), NodeId(2));
    let lasting = stage.cluster.write_lasting(one, b"lasts");
    let plain = stage.cluster.write(one, b"volatile");
    assert!(stage.slot(one, plain) > Slot(0));
    assert_eq!(stage.outcome(one, lasting, 4_000), None);
    let late = stage.outcome(one, lasting, 2_000);
    assert_eq!(late, Some(Outcome::Failed(Failure::NotLasting)));
    // Once disks are fast again the next command becomes durable, and so do all earlier ones.
    let mut stage = Stage::lasting(Class::Volatile);
    stage.cluster.run_ms(200);
    stage.cluster.knobs.disk_us = 50_000;
    let lasting = stage.cluster.write_lasting(two, b"lasts");
    assert_eq!(stage.outcome(two, lasting, 40), None);
    assert!(stage.slot(two, lasting) > Slot(0));
}

/// [last-3] Two of three disks are enough, whichever node leads.
#[test]
fn a_quorum_of_disks_is_enough_whoever_leads() {
    let mut stage = Stage::lasting(Class::Volatile);
    let leader = stage.leader();
    let others: Vec<NodeId> = NODES.into_iter().filter(|node| *node != leader).collect();
    stage.cluster.isolate(others[0], true);
    let tag = stage.cluster.write_lasting(others[1], b"lasts");
    let slot = stage.slot(others[1], tag);
    // The leader dies before it has answered a waiting client.
    stage.cluster.isolate(others[0], false);
    stage.cluster.run_ms(500);
    stage.cluster.knobs.disk_us = 400_000;
    let tag = stage.cluster.write_lasting(others[1], b"lasts");
    stage.cluster.run_ms(50);
    stage.cluster.isolate(leader, true);
    let later = stage.slot(others[1], tag);
    assert!(later > slot);
}

/// [last-5] A durable group asks no member. A volatile group below the required level refuses.
#[test]
fn nobody_is_asked_where_a_decision_lasts_or_a_member_might_not_understand() {
    let mut durable = Stage::at_base(Class::Durable);
    durable.cluster.run_ms(200);
    let one = NodeId(1);
    let tag = durable.cluster.write_lasting(one, b"lasts");
    let slot = durable.slot(one, tag);
    assert!(durable.survives(slot) >= 2);
    let mut volatile = Stage::at_base(Class::Volatile);
    let tag = volatile.cluster.write_lasting(one, b"refused");
    let refused = Some(Outcome::Failed(Failure::Level));
    assert_eq!(volatile.outcome(one, tag, 0), refused);
}

/// A client that requests durability costs others nothing; a hundred of them share requests.
#[test]
fn questions_are_shared_by_all_who_wait() {
    let sent = |lasting: bool| {
        let mut stage = Stage::lasting(Class::Volatile);
        stage.cluster.run_ms(500);
        let before = stage.cluster.frames_sent();
        let mut tags = Vec::new();
        for _ in 0..50 {
            for _ in 0..10 {
                tags.push(match lasting {
                    true => stage.cluster.write_lasting(NodeId(1), b"x"),
                    false => stage.cluster.write(NodeId(1), b"x"),
                });
            }
            stage.cluster.run_ms(2);
        }
        for tag in tags {
            assert!(stage.slot(NodeId(1), tag) > Slot(0));
        }
        stage.cluster.run_ms(100);
        stage.cluster.frames_sent() - before
    };
    let (plain, lasting) = (sent(false), sent(true));
    assert!(lasting < plain + 50 * 8, "{plain} frames, and {lasting}");
}
