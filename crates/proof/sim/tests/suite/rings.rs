//! Votes sent along a ring, in whole clusters. Every route produces the same history, and no member
//! delays commands.

use std::collections::BTreeMap;

use quorate_core::{laying::Route, record::Class, slot::Slot, value::Value};
use quorate_packets::plane::GroupPath;
use quorate_sim::{
    faults::RunSettings,
    network::{Carrier, NetworkConditions},
    world::World,
};

/// Longest permitted duration of a command while a ring breaks, in microseconds: 50 ms in addition
/// to the command itself.
const BROKEN_US: u64 = 60_000;

fn settings(votes: &Route, carrier: Carrier, class: Class, nodes: usize) -> RunSettings {
    let mut settings = RunSettings::without_faults(11, nodes, class);
    settings.vote_route = votes.clone();
    settings.network_conditions = NetworkConditions { carrier, ..settings.network_conditions };
    settings
}

/// Returns a cluster whose leader has had time to observe which nodes keep up.
fn elected(settings: RunSettings) -> World {
    let mut world = World::with_leader(settings).unwrap();
    world.run_for(300_000).unwrap();
    world
}

/// Runs a fixed series of commands and returns the decided slots and the number of votes forwarded.
fn history(settings: RunSettings) -> (Vec<(Slot, Value)>, u64) {
    let mut world = elected(settings);
    let client = world.add_client(1);
    for command in 0..60_usize {
        let key = format!("k{}", command % 7);
        world.send_request(client, &[b"SET", key.as_bytes(), &[b'x'; 300]]);
        assert!(world.wait_for_reply(client).unwrap().is_some());
    }
    world.run_until_settled().unwrap();
    world.run_for(300_000).unwrap();
    let relayed = world.counts.relayed_votes;
    (world.decided_history(), relayed)
}

/// [ring-1] The log is the same, slot by slot and bit by bit, whichever route votes take.
#[test]
fn one_history_whatever_way_votes_take() {
    for class in [Class::Durable, Class::Volatile] {
        let calm = settings(&Route::Star, Carrier::Streams, class, 5);
        let (expected, relayed) = history(calm);
        assert!(expected.len() >= 60 && relayed == 0);
        for carrier in [
            Carrier::Streams,
            Carrier::Datagrams,
            Carrier::Packets { broadcast_path: GroupPath::Unicast },
            Carrier::Packets { broadcast_path: GroupPath::Chain },
            Carrier::Packets { broadcast_path: GroupPath::Multicast },
        ] {
            let (history, relayed) = history(settings(&Route::Ring, carrier, class, 5));
            assert_eq!(history, expected, "{carrier:?}, {class:?}");
            assert!(relayed >= 30, "{relayed} votes relayed, {carrier:?}, {class:?}");
        }
    }
}

/// Returns the duration of one command now, in microseconds.
fn time_of_a_command(world: &mut World, client: usize) -> u64 {
    let begin = world.now.0;
    world.send_request(client, &[b"INCR", b"n"]);
    assert!(world.wait_for_reply(client).unwrap().is_some());
    world.now.0 - begin
}

/// Returns the nodes of the leader's ring in order, with the leader last.
fn ring(world: &World) -> Vec<usize> {
    let leader = world.majority_leader().unwrap();
    let running = world.nodes[leader].running.as_ref().unwrap();
    let nodes = running.replica().node().ring_nodes();
    nodes.iter().map(|node| node.0 as usize - 1).collect()
}

/// [ring-7] Each member of a ring in turn stops, is cut off, or dies. Commands continue
/// immediately, the ring continues without the member, and the member may rejoin later.
#[test]
fn no_member_of_a_ring_is_waited_for() {
    type Harm = fn(&mut World, usize);
    let harms: [(&str, Harm, Harm); 3] = [
        ("pause", |world, node| world.pause_now(node), |world, node| world.resume_now(node)),
        (
            "cut",
            |world, node| world.set_isolated(node, true),
            |world, node| world.set_isolated(node, false),
        ),
        ("kill", |world, node| world.kill_now(node), |world, node| world.start_now(node)),
    ];
    let mut seen = BTreeMap::new();
    for class in [Class::Durable, Class::Volatile] {
        for (name, harm, mend) in harms {
            if (name, class) == ("kill", Class::Volatile) {
                // The node would return as another member.
                continue;
            }
            for place in 0..2 {
                let carrier = Carrier::Packets { broadcast_path: GroupPath::Multicast };
                let mut world = elected(settings(&Route::Ring, carrier, class, 5));
                let leader = world.majority_leader().unwrap();
                let client = world.add_client(leader);
                let usual = time_of_a_command(&mut world, client);
                let before = ring(&world);
                assert_eq!((before.len(), before.last()), (3, Some(&leader)));
                let slow = before[place];
                harm(&mut world, slow);
                let took = time_of_a_command(&mut world, client);
                assert!(took < BROKEN_US, "{name} {class:?}: {took} µs, {usual} µs before");
                world.run_for(100_000).unwrap();
                let after = ring(&world);
                assert_eq!(after.len(), 3, "{name} {class:?}: a ring again");
                assert!(!after.contains(&slow), "{name} {class:?}: {after:?}");
                assert_eq!(world.majority_leader(), Some(leader));
                let again = time_of_a_command(&mut world, client);
                assert!(again <= 2 * usual, "{name} {class:?}: {again} µs, {usual} µs before");
                mend(&mut world, slow);
                world.run_until_settled().unwrap();
                *seen.entry(name).or_insert(0) += 1;
            }
        }
    }
    assert_eq!(seen.into_values().collect::<Vec<_>>(), [4, 2, 4]);
}

/// A ring survives a period without commands.
#[test]
fn a_rest_breaks_no_ring() {
    let carrier = Carrier::Streams;
    let mut world = elected(settings(&Route::Ring, carrier, Class::Durable, 5));
    let leader = world.majority_leader().unwrap();
    let client = world.add_client(leader);
    time_of_a_command(&mut world, client);
    let before = ring(&world);
    for rest_us in [3_000, 19_000, 21_000, 500_000] {
        world.run_for(rest_us).unwrap();
        time_of_a_command(&mut world, client);
        assert_eq!(ring(&world), before, "after {rest_us} µs");
    }
    assert_eq!(before.len(), 3);
}

/// [ring-7] A member that was slow rejoins the ring only after it has kept up for a while.
#[test]
fn who_was_slow_comes_back_after_a_while() {
    let carrier = Carrier::Streams;
    let mut world = elected(settings(&Route::Ring, carrier, Class::Volatile, 3));
    let leader = world.majority_leader().unwrap();
    let client = world.add_client(leader);
    time_of_a_command(&mut world, client);
    let slow = ring(&world)[0];
    let other = (0..3).find(|node| ![slow, leader].contains(node)).unwrap();
    world.pause_now(slow);
    time_of_a_command(&mut world, client);
    world.run_for(100_000).unwrap();
    world.resume_now(slow);
    assert_eq!(ring(&world), [other, leader]);
    // The other member stops immediately. No node is left to form a ring with, so votes are sent
    // directly.
    world.run_for(100_000).unwrap();
    world.pause_now(other);
    assert!(time_of_a_command(&mut world, client) < BROKEN_US);
    world.run_for(100_000).unwrap();
    assert_eq!(ring(&world), [0_usize; 0]);
    world.run_for(1_000_000).unwrap();
    time_of_a_command(&mut world, client);
    assert_eq!(ring(&world), [slow, leader]);
}
