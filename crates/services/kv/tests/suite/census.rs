//! Counts of subscribers over all nodes: the replies of PUBLISH and PUBSUB.

use quorate_core::level::Level;
use quorate_replica::front::Failure;

use crate::{
    common::{Asked, Told},
    waiting::group::{Client, Group},
};

/// Returns a group at this level, with a client on each node.
fn group(level: Level) -> (Group, [Client; 2]) {
    let mut group = Group::memory(2);
    for node in &mut group.nodes {
        node.world.level = level;
    }
    let clients = [0, 1].map(|node| group.connect(node));
    (group, clients)
}

/// Lets the nodes announce what has changed.
fn announce(group: &mut Group) {
    for _ in 0..3 {
        group.pass_ms(100);
        group.settle();
    }
}

#[test]
fn replies_count_the_subscribers_of_all_nodes() {
    let (mut group, [here, away]) = group(Level(10));
    let (one, other) = (group.connect(0), group.connect(1));
    group.say(one, "SUBSCRIBE a b");
    group.say(one, "PSUBSCRIBE a*");
    group.say(other, "SUBSCRIBE a");
    group.say(other, "PSUBSCRIBE a* ?");
    group.say(other, "SSUBSCRIBE a");
    announce(&mut group);
    for client in [here, away] {
        assert_eq!(group.say(client, "PUBSUB NUMSUB a b c"), "*6|$1|a|:2|$1|b|:1|$1|c|:0|");
        assert_eq!(group.say(client, "PUBSUB SHARDNUMSUB a"), "*2|$1|a|:1|");
        assert_eq!(group.say(client, "PUBSUB NUMPAT"), ":2|", "each pattern once");
        assert_eq!(group.say(client, "PUBSUB CHANNELS"), "*2|$1|a|$1|b|");
        assert_eq!(group.say(client, "PUBLISH a hi"), ":5|");
        assert_eq!(group.say(client, "PUBLISH b hi"), ":2|");
        assert_eq!(group.say(client, "SPUBLISH a hi"), ":1|");
    }
    group.say(other, "UNSUBSCRIBE");
    group.close(one);
    announce(&mut group);
    assert_eq!(group.say(here, "PUBLISH a hi"), ":2|", "the patterns of the other node");
    assert_eq!(group.say(away, "PUBSUB NUMSUB a b"), "*4|$1|a|:0|$1|b|:0|");
    let before = group.nodes[0].world.slot;
    announce(&mut group);
    assert_eq!(group.nodes[0].world.slot, before, "nothing to announce");
}

/// An announcement that failed is sent again, and one of a group below the level never.
#[test]
fn announcements_reach_all_nodes_that_can_read_them() {
    let (mut group, [here, away]) = group(Level(9));
    group.say(away, "SUBSCRIBE a");
    announce(&mut group);
    assert_eq!(group.say(here, "PUBSUB NUMSUB a"), "*2|$1|a|:0|");
    let other = group.connect(1);
    assert_eq!(group.say(other, "PUBLISH a hi"), ":1|");
    for node in &mut group.nodes {
        node.world.level = Level(10);
    }
    group.pass_ms(1000);
    group.turn(1);
    let Some(Asked::Write(tag, ..)) = group.nodes[1].world.asked.pop_front() else {
        panic!("an announcement");
    };
    group.nodes[1].world.told.push(Told::Failed(tag, Failure::NoQuorum));
    group.settle();
    assert_eq!(group.say(here, "PUBSUB NUMSUB a"), "*2|$1|a|:0|");
    group.pass_ms(1000);
    announce(&mut group);
    assert_eq!(group.say(here, "PUBSUB NUMSUB a"), "*2|$1|a|:1|");
}

/// The subscriptions of a node end with its connection, and it announces them again.
#[test]
fn nodes_that_come_back_announce_all_again() {
    let (mut group, [here, away]) = group(Level(10));
    group.say(away, "SUBSCRIBE a");
    announce(&mut group);
    assert_eq!(group.say(here, "PUBSUB NUMSUB a"), "*2|$1|a|:1|");
    for away in [2, 3] {
        group.nodes[0].world.away = away;
        announce(&mut group);
        let count = usize::from(away == 3);
        // The other node sees that it is back, too.
        group.nodes[1].world.away = if away == 2 { 1 } else { 3 };
        announce(&mut group);
        assert_eq!(group.say(here, "PUBSUB NUMSUB a"), format!("*2|$1|a|:{count}|"));
    }
    // A node that starts again asks for what it lacks.
    group.kill(0);
    group.restart(0, 1);
    group.nodes[0].world.level = Level(10);
    let here = group.connect(0);
    group.say(here, "PUBSUB NUMSUB a");
    announce(&mut group);
    assert_eq!(group.say(here, "PUBSUB NUMSUB a"), "*2|$1|a|:1|");
}
