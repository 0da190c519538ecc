//! A group of nodes over networks that lose, repeat, reorder, delay, truncate and change datagrams:
//! everything arrives once, bit for bit, or is given up by its numbers ([pkt-4] [pkt-5] [pkt-7]
//! [told-2]).

use crate::world::{CHANNEL, Faults, World, name};
use quorate_core::dice::Dice;
use quorate_core::{node_id::NodeId, time::Time};
use quorate_packets::{endpoint::Event, rate::TokenBucket, receive::Delivery};

/// Sends messages at random times, from one or two nodes at once, and waits until all is settled.
fn traffic(world: &mut World, dice: &mut Dice, senders: &[u32], messages: u64) {
    for _ in 0..messages {
        let length = match dice.below(10) {
            0 => 0,
            1..=5 => dice.index(1400),
            6..=8 => dice.index(9000),
            _ => dice.index(60_000),
        };
        let sender = dice.pick(senders);
        world.send(sender, length);
        let until = world.now.plus_us(dice.below(400));
        world.run_to(until);
        world.now = world.now.max(until);
    }
    world.run();
}

/// Swarm test: each seed has different faults, which affect between none and a third of all
/// datagrams.
#[test]
fn everything_arrives_once_or_is_given_up_by_name() {
    for seed in 0..120 {
        let mut dice = Dice::new(seed);
        let delivery = dice.pick(&[Delivery::InOrder, Delivery::AsCompleted]);
        let count = u32::try_from(dice.between(2, 6)).unwrap();
        let mut world = World::new(count, delivery, seed);
        let pick = |dice: &mut Dice| dice.pick(&[0, 0, 5, 50, 300]);
        world.faults = Faults {
            lost: pick(&mut dice),
            repeated: pick(&mut dice),
            late: pick(&mut dice),
            late_ms: dice.pick(&[1, 20, 2000]),
            cut: pick(&mut dice),
            changed: pick(&mut dice),
        };
        let senders: &[u32] = if dice.chance(1, 3) { &[1, 2] } else { &[1] };
        traffic(&mut world, &mut dice, senders, 60);
        // The last tail may be lost. The heartbeat has the same information.
        world.faults = Faults::default();
        world.heartbeats();
        world.run();
        for sender in world.sent.keys().copied().collect::<Vec<_>>() {
            for node in (1..=count).filter(|node| *node != sender) {
                let in_order = delivery == Delivery::InOrder;
                world.check_events(node, sender, in_order);
                let quota = world.nodes[&node].quota(NodeId(sender)).unwrap();
                assert_eq!((quota.partials(), quota.bytes()), (0, 0), "seed {seed}");
                let next = world.nodes[&sender].next_number(CHANNEL);
                assert_eq!(world.nodes[&node].finished_to(name(sender, 1)), next, "seed {seed}");
            }
        }
    }
}

/// At 5 % loss nothing is given up, because there are five requests, the first of which goes to an
/// acceptor.
#[test]
fn ordinary_loss_is_repaired() {
    for seed in 0..30 {
        let mut dice = Dice::new(seed);
        let mut world = World::new(5, Delivery::InOrder, seed);
        world.faults = Faults { lost: 50, ..Faults::default() };
        traffic(&mut world, &mut dice, &[1], 60);
        world.faults = Faults::default();
        world.heartbeats();
        world.run();
        for node in 2..=5 {
            assert!(world.check_events(node, 1, true).is_empty(), "seed {seed}, node {node}");
        }
    }
}

/// Without faults nothing is requested, repaired or refused, except the sender's own datagrams that
/// loop back.
#[test]
fn a_sound_network_costs_nothing() {
    let mut world = World::new(4, Delivery::InOrder, 1);
    traffic(&mut world, &mut Dice::new(1), &[1], 40);
    for node in 2..=4 {
        assert!(world.check_events(node, 1, true).is_empty());
        assert_eq!(world.nodes[&node].refusals().sum(), 0);
    }
    assert_eq!(world.to_one, 0);
}

/// [pkt-5] [pkt-7] Any node that has a datagram repairs it. Here the leader is cut off after its
/// multicast.
#[test]
fn an_acceptor_repairs_what_the_leader_cannot() {
    let mut world = World::new(4, Delivery::InOrder, 1);
    // Node 2 receives nothing from the leader except later tails, and no node reaches the leader.
    world.cut_links = vec![(1, 2), (2, 1), (3, 1), (4, 1)];
    for _ in 0..20 {
        world.send(1, 3000);
    }
    world.run_to(Time(400));
    world.cut_links = vec![(2, 1), (3, 1), (4, 1)];
    world.run();
    for node in 2..=4 {
        assert!(world.check_events(node, 1, true).is_empty(), "node {node}");
    }
    assert!(world.to_one > 40);
}

/// [pkt-7] A repairer that also lacks the datagram requests it once itself and forwards what
/// arrives.
#[test]
fn a_repairer_that_lacks_it_asks_itself() {
    let mut world = World::with(3, 1, |node| {
        let mut settings = crate::world::settings(node, 1, Delivery::InOrder);
        match node {
            // On its own it would request the datagram late.
            2 => settings.limits.reorder_grace_us = 1_000_000,
            // One request reaches node 2, which has nothing yet. The other is for the leader.
            3 => settings.limits.requests_max = 2,
            _ => {}
        }
        settings
    });
    // Neither 2 nor 3 gets the first datagram, and 3 cannot reach the leader.
    world.cut_links = vec![(1, 2), (1, 3), (3, 1)];
    world.send(1, 100);
    world.run_to(Time(100));
    world.cut_links = vec![(3, 1)];
    world.send(1, 100);
    world.run();
    assert!(world.check_events(2, 1, true).is_empty());
    assert!(world.check_events(3, 1, true).is_empty());
    assert!(world.now < Time(100_000));
}

/// [pkt-7] After two NAKs from different nodes for one packet, the multicast group gets it once
/// more.
#[test]
fn what_two_ask_for_is_multicast_again() {
    let mut world = World::with(4, 1, |node| {
        let mut settings = crate::world::settings(node, 1, Delivery::InOrder);
        // All ask the leader, at the same time.
        settings.limits.jitter_us = 0;
        settings.retains_datagrams = false;
        settings
    });
    for node in world.nodes.values_mut() {
        node.set_acceptors(&[]);
    }
    world.cut_links = vec![(1, 2), (1, 3), (1, 4)];
    world.send(1, 1000);
    world.run_to(Time(100));
    world.cut_links.clear();
    world.send(1, 1000);
    let before = world.to_group;
    world.run();
    for node in 2..=4 {
        assert!(world.check_events(node, 1, true).is_empty());
    }
    // The second message, the first one again, and tails.
    let tails = world.events[&2].iter().filter(|event| matches!(event, Event::TailReceived { .. }));
    assert_eq!(world.to_group - before, 2 + tails.count());
    // One report and one NAK from each node with losses, and one repair for the first.
    assert_eq!(world.to_one, 3 + 3 + 1);
}

/// [pkt-8] The sender waits for no node: decided datagrams are dropped when space is needed, and a
/// peer that requests them is notified.
#[test]
fn what_went_is_said_to_be_gone() {
    let mut world = World::with(2, 1, |node| {
        let mut settings = crate::world::settings(node, 1, Delivery::InOrder);
        settings.limits.buffer_bytes = 64 << 10;
        settings
    });
    world.cut_links = vec![(1, 2)];
    for _ in 0..100 {
        world.send(1, 3000);
        let now = world.now.plus_us(500);
        world.run_to(now);
        world.now = now;
        let next = world.nodes[&1].next_number(CHANNEL).unwrap();
        world.node(1).release_to(CHANNEL, next);
    }
    world.cut_links.clear();
    world.send(1, 10);
    let began = world.now;
    world.run();
    let over = world.check_events(2, 1, true);
    assert!((150..300).contains(&over.len()), "{}", over.len());
    // The peer learns it at once, without five requests.
    let first = world.events[&2].iter().find(|event| matches!(event, Event::GivenUp { .. }));
    assert!(first.is_some() && world.now.since_us(began) < 100_000);
}

/// Returns the sender's rate after a second at full load, in percent of its link.
fn rate_percent(receivers: u32, arrange: impl Fn(&mut World)) -> u64 {
    const LINK: u64 = 12_500_000;
    let mut world = World::with(receivers + 1, 1, |node| {
        let mut settings = crate::world::settings(node, 1, Delivery::AsCompleted);
        settings.limits.link_bytes_s = LINK;
        settings
    });
    let ids: Vec<NodeId> = (2..=receivers + 1).map(NodeId).collect();
    world.node(1).set_loss_receivers(CHANNEL, &ids);
    arrange(&mut world);
    for _ in 0..500 {
        // More than the link transfers in two milliseconds.
        while world.nodes[&1].window_bytes_left(CHANNEL) > 2_000_000 {
            world.send(1, 8192);
        }
        world.recorded.clear();
        let until = world.now.plus_us(2_000);
        world.run_to(until);
        world.now = until;
        let next = world.nodes[&1].next_number(CHANNEL).unwrap();
        world.node(1).release_to(CHANNEL, next);
    }
    world.nodes[&1].rate_bytes_s(CHANNEL).unwrap() * 100 / LINK
}

/// [rate-2] A loss at all receivers lowers the rate to what the link can carry. A loss at one does
/// not.
#[test]
fn the_rate_follows_the_link_and_not_a_loser() {
    let sound = rate_percent(4, |_| ());
    assert_eq!(sound, 97);
    let loser = rate_percent(4, |world| world.loser = Some((3, 300)));
    assert_eq!(loser, 97);
    let full = rate_percent(4, |world| {
        world.bottleneck = Some(TokenBucket::new(6_000_000, 30_000, Time(0)));
    });
    assert!((35..60).contains(&full), "{full} %");
}
