//! Failures of earlier systems (numbered G…) that must not occur here, each played out step by
//! step.
//!
//! `docs/spec/simulator.md` lists the tests that cover the remaining ones.

use std::collections::BTreeSet;

use quorate_core::{effect::Role, lease::LeaseRules, record::Class, slot::Slot};
use quorate_log::disk::{Family, Source as _};
use quorate_node::host::ClientHost as _;
use quorate_replica::front::Front as _;
use quorate_sim::{
    check::Violation,
    dice::Dice,
    faults::{Fault, LossScope, RunSettings},
    resp::Reply,
    world::World,
};

type Outcome = Result<(), Violation>;

fn bulk(text: &str) -> Reply {
    Reply::Bulk(Some(text.as_bytes().to_vec()))
}

fn ok() -> Reply {
    Reply::Simple("OK".into())
}

fn others(world: &World, node: usize) -> Vec<usize> {
    (0..world.nodes.len()).filter(|other| *other != node).collect()
}

fn role(world: &World, node: usize) -> Option<Role> {
    world.nodes[node].running.as_ref().map(|running| running.replica().node().role())
}

fn decided_to(world: &World, node: usize) -> Slot {
    world.nodes[node]
        .running
        .as_ref()
        .map_or(Slot(0), |running| running.replica().node().decided_to())
}

fn error(world: &World, node: usize) -> String {
    let running = world.nodes[node].running.as_ref();
    running.and_then(|running| running.replica().error()).unwrap_or_default()
}

/// G1 A proposer crashes after a partial phase 2, restarts and proposes again. Its rounds are
/// unique, and a value that may be chosen is completed ([ballot-2], [p1-6]).
#[test]
fn g1_proposer_crashes_after_partial_phase_2() -> Outcome {
    for seed in 0..10 {
        let mut world = World::new_calm(seed, 3, Class::Durable)?;
        world.run_command(0, "SET before 1")?;
        let leader = world.wait_for_leader()?;
        let [near, far] = others(&world, leader)[..] else { unreachable!("three nodes") };
        // The proposal reaches one node, whose vote is lost.
        world.block_now(leader, far, true);
        world.block_now(near, leader, true);
        let client = world.add_client(leader);
        world.send_request(client, &[b"SET", b"x", b"old"]);
        world.run_for(5_000)?;
        world.kill_now(leader);
        for node in [near, far] {
            world.block_now(leader, node, false);
            world.block_now(node, leader, false);
        }
        world.start_now(leader);
        assert_eq!(world.wait_for_reply(client)?, None, "no node may have said that it was done");
        world.wait_for_leader()?;
        // One of the values was chosen. It is final and the same on all nodes.
        let first = world.run_command(near, "GET x")?;
        assert!([bulk("old"), Reply::Bulk(None)].contains(&first), "{first:?}");
        assert_eq!(world.run_command(far, "GET x")?, first);
        assert_eq!(world.run_command(leader, "SET x new")?, ok());
        assert_eq!(world.run_command(near, "GET x")?, bulk("new"));
        world.run_until_settled()?;
    }
    Ok(())
}

/// G2 A vote for another value in the same ballot is not counted, and raises an alarm ([count-1]).
#[test]
fn g2_same_ballot_with_different_values() -> Outcome {
    let mut world = World::new_calm(2, 3, Class::Durable)?;
    world.run_command(0, "SET x 1")?;
    let leader = world.wait_for_leader()?;
    let [liar, silent] = others(&world, leader)[..] else { unreachable!("three nodes") };
    world.set_isolated(silent, true);
    // The node's own vote is delayed.
    world.nodes[liar].disk_slowdown = 1000;
    let client = world.add_client(leader);
    world.send_request(client, &[b"SET", b"x", b"2"]);
    world.run_for(2_000)?;
    let node = world.nodes[leader].running.as_ref().expect("runs").replica().node();
    let next = node.phase2().expect("leads").tally.next();
    let vote = quorate_core::message::Phase2b {
        ballot: node.ballot(),
        from: Slot::FIRST,
        volatile_to: next,
        durable_to: next,
        check: 0xbad,
    };
    let frame = quorate_wire::Frame::Protocol {
        message: quorate_core::message::Message::Phase2b(vote),
        bytes: None,
    };
    let mut bytes = Vec::new();
    quorate_wire::encode(world.nodes[liar].member(), &frame, &mut bytes).expect("it fits");
    world.deliver_forged_frame(liar, leader, &bytes);
    world.run_for(1_000)?;
    let replica = &world.nodes[leader].running.as_ref().expect("runs").replica();
    assert_eq!(replica.counters().alarms, 1);
    assert!(error(&world, leader).contains("rule"), "status says so: {}", error(&world, leader));
    Ok(())
}

/// G10 All nodes are killed at any moment and restart with their identities. Promises, votes and
/// all acknowledged writes survive, and torn tails are cut off ([disk-3], [volatile-3]).
#[test]
fn g10_kill_all_at_any_byte() -> Outcome {
    let mut dice = Dice::new(10);
    for seed in 0..15 {
        let mut settings = RunSettings::without_faults(seed, 3, Class::Durable);
        settings.disk_us = (30, 900);
        settings.inflight_writes_max = 1 + usize::try_from(seed % 3).expect("small");
        settings.client_count = 5;
        let mut world = World::with_leader(settings)?;
        for _ in 0..3 {
            world.run_for(dice.between(20_000, 60_000))?;
            world.apply_fault(Fault::CrashAll);
            world.wait_for_leader()?;
        }
        assert!(
            world.client_records.answered_requests > 50,
            "{}",
            world.client_records.answered_requests
        );
        world.run_act_two()?;
    }
    Ok(())
}

/// G11 A follower that fell behind every cache gets the data before it counts as caught up
/// ([catch-1]). Then a quorum needs its vote, and it serves the data that it missed.
#[test]
fn g11_follower_falls_behind_all_caches() -> Outcome {
    let mut settings = RunSettings::without_faults(11, 3, Class::Durable);
    settings.has_tiny_queues = true;
    settings.segment_bytes = 32 << 10;
    let mut world = World::with_leader(settings)?;
    let leader = world.wait_for_leader()?;
    let [late, other] = others(&world, leader)[..] else { unreachable!("three nodes") };
    world.pause_now(late);
    for number in 0..300 {
        assert_eq!(world.run_command(leader, &format!("SET k{number} {number}"))?, ok());
    }
    let behind = decided_to(&world, leader).0 - decided_to(&world, late).0;
    assert!(behind >= 300, "{behind}");
    world.resume_now(late);
    world.run_until("it has caught up", World::is_caught_up)?;
    world.kill_now(other);
    assert_eq!(world.run_command(leader, "SET after 1")?, ok(), "its vote is needed now");
    assert_eq!(world.run_command(late, "GET k7")?, bulk("7"));
    world.start_now(other);
    world.run_until_settled()
}

/// G13 Messages dropped by backpressure are sent again, and no queue grows without bound.
#[test]
fn g13_back_pressure_loses_nothing() -> Outcome {
    let mut settings = RunSettings::without_faults(13, 3, Class::Durable);
    settings.has_tiny_queues = true;
    settings.inflight_max = 2;
    settings.client_count = 14;
    settings.think_us_max = 10;
    settings.network_conditions.queue_bytes_max = 400;
    settings.network_conditions.window_bytes = 256;
    (settings.network_conditions.delay_min_us, settings.network_conditions.delay_max_us) =
        (2_000, 4_000);
    settings.disk_us = (500, 2000);
    let mut world = World::with_leader(settings)?;
    // Bounds are checked after every turn.
    world.run_for(1_000_000)?;
    assert!(
        world.client_records.answered_requests > 100,
        "{}",
        world.client_records.answered_requests
    );
    let dropped: u64 = world
        .nodes
        .iter()
        .filter_map(|node| node.running.as_ref())
        .map(|running| running.replica().counters().sends_dropped)
        .sum();
    assert!(dropped > 0, "the network was never full: nothing was tested");
    assert!(world.network.queue_bytes_peak <= 8 << 10, "{}", world.network.queue_bytes_peak);
    world.run_act_two()
}

/// G14 A dead leader is replaced within tens of heartbeats, and candidates do not duel ([live-1]).
#[test]
fn g14_failover_is_quick_and_without_duels() -> Outcome {
    let (mut waits, mut more) = (Vec::new(), 0);
    for seed in 0..20 {
        let mut world = World::new_calm(seed, 3, Class::Durable)?;
        world.run_command(0, "SET x 1")?;
        let leader = world.wait_for_leader()?;
        let (before, at) = (world.counts.elections, world.now);
        world.kill_process(leader, 0);
        world.wait_for_leader()?;
        waits.push(world.now.since_us(at) / 1000);
        world.run_for(1_000_000)?;
        more += world.counts.elections - before - 1;
        let next = world.wait_for_leader()?;
        world.run_command(next, "SET x 2")?;
    }
    waits.sort_unstable();
    assert!(waits[10] <= 500, "median: {waits:?}");
    assert!(waits[19] <= 1500, "worst: {waits:?}");
    assert!(more <= 1, "{more} elections more than needed");
    Ok(())
}

/// [live-4] A node with a slow disk becomes leader under load. Writes pause only briefly, at the
/// end of the hand-over, and do not wait for the disk of that node.
#[test]
fn transfer_to_a_slow_disk_holds_nobody_up() -> Outcome {
    for seed in 0..5 {
        let mut world = World::new_calm(seed, 3, Class::Durable)?;
        world.run_command(0, "SET before 1")?;
        let leader = world.wait_for_leader()?;
        let target = others(&world, leader)[0];
        // A write takes 600 ms, which is three election timeouts.
        world.nodes[target].disk_slowdown = 12_000;
        world.transfer_now(leader, target);
        let (mut last, mut longest, begun) = (world.now, 0, world.now);
        let elsewhere = others(&world, target)[0];
        while role(&world, target) != Some(Role::Leader) {
            assert!(world.now.since_us(begun) < 5_000_000, "seed {seed}: no end");
            if world.run_command(elsewhere, "SET during 1")? == ok() {
                longest = longest.max(world.now.since_us(last));
                last = world.now;
            }
        }
        world.nodes[target].disk_slowdown = 1;
        assert!(longest <= 300_000, "seed {seed}: {longest} us without a write");
        assert_eq!(world.counts.elections, 2, "seed {seed}: one election more");
        assert_eq!(world.run_command(elsewhere, "SET after 1")?, ok());
    }
    Ok(())
}

/// G15 A node that was cut off for long returns and does not depose a healthy leader ([live-1],
/// [live-2]).
#[test]
fn g15_returning_node_does_not_depose() -> Outcome {
    for seed in 0..5 {
        let mut world = World::new_calm(seed, 3, Class::Durable)?;
        world.run_command(0, "SET x 1")?;
        let leader = world.wait_for_leader()?;
        let lonely = others(&world, leader)[0];
        world.set_isolated(lonely, true);
        world.run_for(5_000_000)?;
        let elections = world.counts.elections;
        world.set_isolated(lonely, false);
        world.run_for(2_000_000)?;
        assert_eq!(world.majority_leader(), Some(leader));
        assert_eq!(world.counts.elections, elections);
        world.run_until_settled()?;
    }
    Ok(())
}

/// [live-2] A node returns with a higher ballot than the leader's, while confirmations of reads
/// ([read-2]) replace all timed heartbeats. The leader readmits the node nevertheless.
#[test]
fn a_node_with_a_higher_ballot_is_taken_in_again_under_reads() -> Outcome {
    for seed in 0..5 {
        let mut world = World::new_calm(seed, 3, Class::Durable)?;
        world.run_command(0, "SET x 1")?;
        let leader = world.wait_for_leader()?;
        let stray = others(&world, leader)[0];
        // As leader, the node records a ballot of its own, which reaches no other node.
        for other in others(&world, stray) {
            world.block_now(stray, other, true);
        }
        world.transfer_now(leader, stray);
        world.run_until("a campaign", |world| role(world, stray) == Some(Role::Candidate))?;
        world.run_for(100_000)?;
        world.kill_now(stray);
        for other in others(&world, stray) {
            world.block_now(stray, other, false);
        }
        world.start_now(stray);
        let (client, begun) = (world.add_client(leader), world.now);
        let id = world.nodes[leader].id();
        let follows = |world: &World| {
            let running = world.nodes[stray].running.as_ref();
            running.is_some_and(|running| running.replica().node().leader() == Some(id))
        };
        while !follows(&world) {
            assert!(world.now.since_us(begun) < 4_000_000, "seed {seed}: it is left alone");
            world.send_request(client, &[b"GET", b"x"]);
            assert_eq!(world.wait_for_reply(client)?, Some(bulk("1")));
        }
        assert_eq!(world.majority_leader(), Some(leader));
    }
    Ok(())
}

/// G16 A command repeated after a failover is executed once, and its stored reply is sent again
/// ([session-2]). `years.rs` covers snapshots.
#[test]
fn g16_repeated_command_is_executed_once() -> Outcome {
    for seed in 0..10 {
        let mut world = World::new_calm(seed, 3, Class::Durable)?;
        let leader = world.wait_for_leader()?;
        let client = world.add_client(leader);
        world.send_request(client, &[b"QUORATE", b"SESSION"]);
        let id = match world.wait_for_reply(client)? {
            Some(Reply::Simple(id)) => id,
            Some(Reply::Bulk(Some(id))) => String::from_utf8_lossy(&id).into_owned(),
            other => panic!("no session: {other:?}"),
        };
        world.send_request(client, &[b"QUORATE", b"SEQ", b"1", b"INCR", b"n"]);
        // The leader is killed before, during or after the commit.
        world.run_for(150 + seed * 60)?;
        world.kill_now(leader);
        let _ = world.wait_for_reply(client)?;
        world.wait_for_leader()?;
        let other = others(&world, leader)[0];
        world.clients[client].replies.clear();
        world.connect_client(client, other);
        world.send_request(client, &[b"QUORATE", b"SESSION", id.as_bytes()]);
        assert_eq!(world.wait_for_reply(client)?, Some(ok()));
        for _ in 0..2 {
            world.send_request(client, &[b"QUORATE", b"SEQ", b"1", b"INCR", b"n"]);
            assert_eq!(world.wait_for_reply(client)?, Some(Reply::Integer(1)));
        }
        assert_eq!(world.run_command(other, "GET n")?, bulk("1"));
        world.start_now(leader);
        world.run_until_settled()?;
    }
    Ok(())
}

/// G17 Every node forwards a command to the leader that it names, even right after a change of
/// leader.
#[test]
fn g17_commands_reach_the_leader_that_is_named() -> Outcome {
    let mut world = World::new_calm(17, 5, Class::Durable)?;
    for round in 0..3 {
        let leader = world.wait_for_leader()?;
        for node in 0..5 {
            if world.nodes[node].running.is_none() {
                continue;
            }
            assert_eq!(world.run_command(node, &format!("SET from{node} {round}"))?, ok());
            let named =
                world.nodes[node].running.as_ref().and_then(|r| r.replica().node().leader());
            assert_eq!(named, Some(world.nodes[leader].id()), "node {}", node + 1);
        }
        if round < 2 {
            world.kill_now(leader);
        }
    }
    Ok(())
}

/// G18 (in part) Oversized and malformed frames are refused, and other clients are not affected.
#[test]
fn g18_oversized_and_malformed_input() -> Outcome {
    let mut world = World::new_calm(18, 3, Class::Durable)?;
    let leader = world.wait_for_leader()?;
    let client = world.add_client(leader);
    world.send_request(client, &[b"SET", b"x", &[b'x'; 5000]]);
    let reply = world.wait_for_reply(client)?;
    assert!(matches!(&reply, Some(Reply::Error(text)) if text.starts_with("TOOBIG")), "{reply:?}");
    world.send_request(client, &[b"SET", b"x", b"fits"]);
    assert_eq!(world.wait_for_reply(client)?, Some(ok()));
    let [liar, other] = others(&world, leader)[..] else { unreachable!("three nodes") };
    let resets = world.counts.connection_resets;
    world.deliver_forged_frame(liar, leader, &[0xff; 500]);
    world.run_for(10_000)?;
    assert_eq!(world.counts.connection_resets, resets + 1, "the connection is of no use any more");
    assert_eq!(world.run_command(other, "GET x")?, bulk("fits"));
    world.run_until_settled()
}

/// G19 All byte values, including zero bytes and line ends, survive forwarding, the log and a
/// restart.
#[test]
fn g19_every_byte_survives() -> Outcome {
    let mut world = World::new_calm(19, 3, Class::Durable)?;
    let all: Vec<u8> = (0..=255).chain([0, 0, 13, 10, 0]).collect();
    let leader = world.wait_for_leader()?;
    let client = world.add_client(others(&world, leader)[0]);
    world.send_request(client, &[b"SET", &[0, b'k', 0], &all]);
    assert_eq!(world.wait_for_reply(client)?, Some(ok()));
    for node in 0..3 {
        world.kill_now(node);
        world.start_now(node);
    }
    world.wait_for_leader()?;
    for node in 0..3 {
        let client = world.add_client(node);
        world.send_request(client, &[b"GET", &[0, b'k', 0]]);
        assert_eq!(world.wait_for_reply(client)?, Some(Reply::Bulk(Some(all.clone()))));
    }
    Ok(())
}

/// G20 A client that does not read its replies is throttled, loses no reply, and does not affect
/// other clients.
#[test]
fn g20_deaf_client_is_held_back() -> Outcome {
    let mut world = World::new_calm(20, 3, Class::Durable)?;
    let leader = world.wait_for_leader()?;
    world.run_command(
        leader,
        "SET x aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa",
    )?;
    let deaf = world.add_client(leader);
    world.clients[deaf].ignores_replies = true;
    for _ in 0..20_000 {
        world.send_request(deaf, &[b"GET", b"x"]);
    }
    world.run_for(300_000)?;
    assert_eq!(world.run_command(leader, "SET y 1")?, ok());
    let (connection, _) = world.clients[deaf].connection.expect("connected");
    let running = world.nodes[leader].running.as_mut().expect("runs");
    let waiting = running.host.front_mut().output(connection).len();
    assert!(waiting < 2 << 20, "{waiting} bytes of replies wait");
    let taken = !running.unaccepted_requests[&connection].is_empty();
    assert!(taken, "requests are left unread");
    Ok(())
}

/// Clients that send many requests and read no replies share a memory limit. The largest of them
/// are disconnected, and other clients continue.
#[test]
fn deaf_clients_cost_no_more_than_their_memory() -> Outcome {
    let settings = RunSettings {
        client_memory_bytes: 1 << 20,
        ..RunSettings::without_faults(21, 3, Class::Durable)
    };
    let mut world = World::with_leader(settings)?;
    let leader = world.wait_for_leader()?;
    let value = "x".repeat(1500);
    for node in 0..3 {
        assert_eq!(world.run_command(node, &format!("SET x {value}"))?, ok());
        let deaf: Vec<usize> = (0..20).map(|_| world.add_client(node)).collect();
        for client in deaf {
            world.clients[client].ignores_replies = true;
            for n in 0..500 {
                // Half of the clients send only reads, the other half mix in writes.
                if n % 100 == 0 && client % 2 == 0 {
                    world.send_request(client, &[b"SET", b"y", b"1"]);
                }
                world.send_request(client, &[b"GET", b"x"]);
            }
        }
        for _ in 0..10 {
            world.run_for(1_000)?;
            assert_eq!(world.run_command(node, "SET z 1")?, ok());
            assert_eq!(world.run_command(node, "GET z")?, bulk("1"));
        }
    }
    assert!(world.counts.clients_shed > 30, "{} closed", world.counts.clients_shed);
    assert_eq!(world.run_command(leader, "GET x")?, bulk(&value));
    Ok(())
}

/// G23 A node whose disk fails stops voting and leading, reports the failure, and continues to
/// answer stale reads. The group continues. After a restart the node votes again ([disk-9]).
#[test]
fn g23_failed_disk_stops_votes_but_not_reads() -> Outcome {
    for seed in 0..4 {
        let mut world = World::new_calm(seed, 3, Class::Durable)?;
        let leader = world.wait_for_leader()?;
        world.run_command(leader, "SET x 1")?;
        world.run_for(50_000)?;
        let failing = if seed % 2 == 0 { leader } else { others(&world, leader)[0] };
        world.nodes[failing].next_write_fails = true;
        let healthy = others(&world, failing)[0];
        let mut sure = None;
        for _ in 0..20 {
            if world.run_command(healthy, "SET x 2")? == ok() {
                sure = Some(());
                break;
            }
        }
        assert!(sure.is_some(), "the group goes on");
        world.run_until("it says why", |world| error(world, failing).contains("the log failed"))?;
        world.run_for(500_000)?;
        assert_ne!(role(&world, failing), Some(Role::Leader));
        let client = world.add_client(failing);
        world.send_request(client, &[b"READONLY"]);
        world.send_request(client, &[b"GET", b"x"]);
        assert_eq!(world.wait_for_reply(client)?, Some(ok()));
        assert!(matches!(world.wait_for_reply(client)?, Some(Reply::Bulk(Some(_)))));
        world.kill_now(failing);
        world.start_now(failing);
        world.run_until_settled()?;
        let third = others(&world, failing)[1];
        world.kill_now(third);
        world.wait_for_leader()?;
        assert_eq!(world.run_command(failing, "SET x 3")?, ok(), "its vote is needed now");
    }
    Ok(())
}

/// G23 A full disk makes a node busy rather than failed. The node continues once there is space
/// again.
#[test]
fn g23_full_disk_goes_on_when_there_is_room() -> Outcome {
    let mut settings = RunSettings::without_faults(23, 3, Class::Durable);
    settings.segment_bytes = 32 << 10;
    settings.client_timeout_ms = 300;
    let mut world = World::with_leader(settings)?;
    let leader = world.wait_for_leader()?;
    for node in &world.nodes {
        node.disk.set_capacity(Some(0));
    }
    world.run_for(300_000)?;
    for node in 0..3 {
        let reply = world.run_command(node, "SET k 1")?;
        assert!(matches!(&reply, Reply::Error(text) if text.starts_with("DISKFULL")), "{reply:?}");
    }
    // Commands that remove data are accepted until the logs are full.
    assert_eq!(world.run_command(leader, "DEL k")?, Reply::Integer(0));
    let mut refused = 0;
    for number in 0..40 {
        let reply = world.run_command(leader, &format!("DEL k{number}"))?;
        refused += u32::from(reply != Reply::Integer(0));
        if refused > 2 {
            break;
        }
    }
    assert!(refused > 2, "the disks never filled up");
    for node in &world.nodes {
        node.disk.set_capacity(None);
    }
    world.run_for(1_000_000)?;
    let leader = world.wait_for_leader()?;
    assert_eq!(world.run_command(leader, "SET again 1")?, ok());
    world.run_until_settled()
}

/// [volatile-4] A clean stop that waits for a full disk completes once there is space. No other
/// event would wake the node at that time.
#[test]
fn stop_waits_for_room_on_a_full_disk() -> Outcome {
    let mut settings = RunSettings::without_faults(24, 1, Class::Durable);
    settings.segment_bytes = 32 << 10;
    settings.client_timeout_ms = 300;
    let mut world = World::with_leader(settings)?;
    world.nodes[0].disk.set_capacity(Some(0));
    let mut asked = 0;
    while world.run_command(0, &format!("DEL k{asked}"))? == Reply::Integer(0) {
        asked += 1;
        assert!(asked < 40, "the disk never filled up");
    }
    world.stop_now(0);
    world.run_for(2_000_000)?;
    assert_eq!(world.counts.clean_stops, 0, "it has something left to write");
    world.nodes[0].disk.set_capacity(None);
    world.run_until("the stop ends", |world| world.counts.clean_stops == 1)?;
    world.run_until_settled()
}

/// G23 All processes run out of file descriptors for long enough to fill all open segments. A
/// follower that returns in this period is served from old segments once these can be opened.
#[test]
fn g23_without_descriptors_logs_wait_and_go_on() -> Outcome {
    let mut settings = RunSettings::without_faults(24, 3, Class::Durable);
    settings.segment_bytes = 32 << 10;
    settings.client_timeout_ms = 300;
    let mut world = World::with_leader(settings)?;
    let leader = world.wait_for_leader()?;
    let away = others(&world, leader)[0];
    world.kill_now(away);
    for number in 0..100 {
        assert_eq!(world.run_command(leader, &format!("SET k{number} 1"))?, ok());
    }
    for node in &world.nodes {
        node.disk.set_out_of_descriptors(true);
    }
    let mut refused = 0;
    for number in 0..100 {
        let reply = world.run_command(leader, &format!("SET l{number} 1"))?;
        refused += u32::from(reply != ok());
        if refused > 2 {
            break;
        }
    }
    assert!(refused > 2, "the open segments never filled up");
    let why = error(&world, leader);
    assert!(why.contains("no descriptor"), "{why}");
    world.start_now(away);
    world.run_for(1_000_000)?;
    for node in &world.nodes {
        node.disk.set_out_of_descriptors(false);
    }
    world.run_for(1_000_000)?;
    let leader = world.wait_for_leader()?;
    assert_eq!(world.run_command(leader, "SET again 1")?, ok());
    assert_eq!(error(&world, away), "");
    world.run_until_settled()
}

/// [class-5] A volatile group that loses its quorum at once stops and reports the loss. No node
/// acts under an identity whose votes are forgotten ([volatile-1]).
#[test]
fn volatile_group_killed_at_once_stops_and_says_so() -> Outcome {
    let mut settings = RunSettings::without_faults(5, 3, Class::Volatile);
    settings.loss_scope = LossScope::Beyond;
    let mut world = World::with_leader(settings)?;
    world.run_command(0, "SET x 1")?;
    for node in 0..3 {
        world.kill_now(node);
        world.start_now(node);
    }
    world.run_for(5_000_000)?;
    for node in 0..3 {
        assert_eq!(role(&world, node), Some(Role::Learner));
        assert!(error(&world, node).contains("forgotten"), "{}", error(&world, node));
    }
    let reply = world.run_command(0, "GET x")?;
    assert!(matches!(&reply, Reply::Error(text) if text.starts_with("NOQUORUM")), "{reply:?}");
    Ok(())
}

/// [volatile-4] A volatile group that is stopped cleanly loses no data, even if all nodes stop at
/// once.
#[test]
fn volatile_group_stopped_cleanly_loses_nothing() -> Outcome {
    let mut world = World::new_calm(6, 3, Class::Volatile)?;
    world.run_command(0, "SET x 1")?;
    for node in 0..3 {
        world.stop_now(node);
    }
    world.run_until("all have stopped once", |world| world.counts.clean_stops >= 3)?;
    world.run_until("all run again", |world| world.nodes.iter().all(|n| n.running.is_some()))?;
    world.wait_for_leader()?;
    assert_eq!(world.run_command(1, "GET x")?, bulk("1"));
    world.run_until_settled()
}

/// [read-2] A leader that was deposed without its knowledge does not answer reads from old state.
#[test]
fn deposed_leader_does_not_answer_from_the_past() -> Outcome {
    let mut believers = 0;
    for seed in 0..20 {
        let mut world = World::new_calm(seed, 3, Class::Durable)?;
        world.run_command(0, "SET x old")?;
        let deposed = world.wait_for_leader()?;
        let other = others(&world, deposed)[0];
        let client = world.add_client(deposed);
        world.run_for(1_000)?;
        for node in others(&world, deposed) {
            world.block_now(deposed, node, true);
            world.block_now(node, deposed, true);
        }
        world.run_until("another leads", |world| {
            others(world, deposed).iter().any(|node| role(world, *node) == Some(Role::Leader))
        })?;
        assert_eq!(world.run_command(other, "SET x new")?, ok());
        believers += u32::from(role(&world, deposed) == Some(Role::Leader));
        world.send_request(client, &[b"GET", b"x"]);
        world.run_for(50_000)?;
        for node in others(&world, deposed) {
            world.block_now(deposed, node, false);
            world.block_now(node, deposed, false);
        }
        assert_eq!(world.wait_for_reply(client)?, Some(bulk("new")), "seed {seed}");
    }
    assert!(believers > 2, "{believers} times only did two believe to lead");
    Ok(())
}

/// A subscriber receives everything published later, on any node, and nothing published before,
/// even on a node that has not applied it yet.
#[test]
fn listener_hears_nothing_old_and_everything_new() -> Outcome {
    for class in [Class::Durable, Class::Volatile] {
        let mut world = World::new_calm(30, 3, class)?;
        let leader = world.wait_for_leader()?;
        let [near, late] = others(&world, leader)[..] else { unreachable!("three nodes") };
        world.set_isolated(late, true);
        assert_eq!(world.run_command(near, "PUBLISH ch old")?, Reply::Integer(0));
        let listener = world.add_client(late);
        world.send_request(listener, &[b"SUBSCRIBE", b"ch"]);
        world.run_for(100_000)?;
        assert!(world.clients[listener].replies.is_empty(), "it is not known what is old");
        world.set_isolated(late, false);
        let answer =
            |kind: &str, last: Reply| Some(Reply::Array(Some(vec![bulk(kind), bulk("ch"), last])));
        let subscribed = answer("subscribe", Reply::Integer(1));
        assert_eq!(world.wait_for_reply(listener)?, subscribed);
        for (node, text) in [(near, "one"), (leader, "two"), (late, "three")] {
            let publish = format!("PUBLISH ch {text}");
            // PUBLISH returns the number of subscribers on this node.
            let heard = Reply::Integer(i64::from(node == late));
            assert_eq!(world.run_command(node, &publish)?, heard);
            assert_eq!(world.wait_for_reply(listener)?, answer("message", bulk(text)));
        }
        // All nodes have equal state, whatever they report.
        world.run_until_settled()?;
    }
    Ok(())
}

/// A pipeline that alternates between writes and reads takes at most twice as long as one of writes
/// only, on every node and with READONLY, because there is no round trip per alternation. Each read
/// sees the write before it, but not the one after it.
#[test]
fn pipeline_of_reads_and_writes_takes_as_long_as_one_of_writes() -> Outcome {
    const PAIRS: usize = 50;
    for (seed, class) in [(1, Class::Durable), (2, Class::Volatile)] {
        let mut world = World::new_calm(seed, 3, class)?;
        for node in 0..3 {
            for mode in ["READWRITE", "READONLY"] {
                world.run_command(node, "SET warm 1")?;
                let client = world.add_client(node);
                world.send_request(client, &[mode.as_bytes()]);
                assert_eq!(world.wait_for_reply(client)?, Some(ok()));
                let mut took = Vec::new();
                for reads in [false, true] {
                    let began = world.now;
                    for n in 0..PAIRS {
                        let value = n.to_string();
                        world.send_request(client, &[b"SET", b"x", value.as_bytes()]);
                        if reads {
                            world.send_request(client, &[b"GET", b"x"]);
                        } else {
                            world.send_request(client, &[b"SET", b"y", value.as_bytes()]);
                        }
                    }
                    for n in 0..PAIRS {
                        assert_eq!(world.wait_for_reply(client)?, Some(ok()));
                        let expected = if reads { bulk(&n.to_string()) } else { ok() };
                        assert_eq!(world.wait_for_reply(client)?, Some(expected), "read {n}");
                    }
                    took.push(world.now.since_us(began));
                }
                assert!(took[1] <= 2 * took[0], "node {node}, {mode}: {took:?} µs");
            }
        }
    }
    Ok(())
}

fn all_run(world: &World) -> bool {
    world.nodes.iter().all(|node| node.running.is_some())
}

/// Checks that a cluster with all nodes up serves requests, and that all nodes have the same state.
fn serves(world: &mut World, value: &str) -> Outcome {
    world.run_until("all nodes run", all_run)?;
    let leader = world.wait_for_leader()?;
    assert_eq!(world.run_command(leader, &format!("SET x {value}"))?, ok());
    for node in 0..world.nodes.len() {
        assert_eq!(world.run_command(node, "GET x")?, bulk(value));
    }
    world.run_until_settled()
}

/// [era-11] [join-2] A node that dies at any disk change while it founds, joins, or starts for the
/// first time eventually completes, in the same cluster as all others, and forgets nothing.
#[test]
fn a_node_dies_while_it_founds_or_joins() -> Outcome {
    for node in 0..3 {
        for steps in 0..12 {
            let mut world = World::new(RunSettings::without_faults(steps, 3, Class::Durable));
            world.nodes[node].dies_after_changes = Some(steps);
            serves(&mut world, "1")?;
            let died = world.counts.kills_at_start + world.counts.kills;
            assert_eq!(died, 1, "node {node} after {steps} changes");
            let ids = world.nodes.iter().filter_map(|node| node.identity());
            let clusters: BTreeSet<_> = ids.map(|identity| identity.founding().cluster).collect();
            assert_eq!(clusters.len(), 1);
            assert_eq!(world.counts.new_incarnations, 0);
        }
    }
    Ok(())
}

/// [volatile-1] In a volatile group, a node that dies before its first start was counted has never
/// run, and keeps its vote.
#[test]
fn a_node_of_a_volatile_group_that_never_ran_forgets_nothing() -> Outcome {
    for (node, changes) in [(0, 4), (1, 6)] {
        for steps in 0..=changes {
            let mut world = World::new(RunSettings::without_faults(steps, 3, Class::Volatile));
            world.nodes[node].dies_after_changes = Some(steps);
            serves(&mut world, "1")?;
            assert_eq!(world.counts.kills_at_start, 1);
            assert_eq!(world.counts.new_incarnations, 0);
        }
    }
    Ok(())
}

/// [era-11] The founder dies while it admits nodes, which repeat their requests from the same
/// folders.
#[test]
fn the_founder_dies_while_it_lets_nodes_in() -> Outcome {
    let mut admitted = BTreeSet::new();
    for seed in 0..5 {
        for steps in 0..10 {
            let mut world = World::new(RunSettings::without_faults(seed, 3, Class::Durable));
            world.run_until("the founder runs", |world| world.nodes[0].running.is_some())?;
            world.nodes[0].disk.die_after_changes(steps);
            world.run_until("it died", |world| world.counts.kills > 0)?;
            let identity = world.nodes[0].identity().expect("it was founded");
            admitted.insert(identity.admitted_nodes().len());
            serves(&mut world, "1")?;
            let identity = world.nodes[0].identity().expect("it was founded");
            assert_eq!(identity.admitted_nodes().len(), 2);
        }
    }
    assert_eq!(admitted, [0, 1, 2].into(), "at every moment");
    Ok(())
}

/// [volatile-1] [volatile-3] A node that dies before, during or after the identity change that
/// counts a start returns with the same identity, and no start number is used twice.
#[test]
fn a_node_dies_while_its_start_is_counted() -> Outcome {
    for seed in 0..5 {
        let mut world = World::new_calm(seed, 3, Class::Durable)?;
        for steps in [0, 1, 2] {
            let node = world.wait_for_leader()?;
            let boot = world.nodes[node].identity().expect("it runs").boot();
            world.kill_now(node);
            world.nodes[node].dies_after_changes = Some(steps);
            let kills = world.counts.kills_at_start;
            world.start_now(node);
            serves(&mut world, &steps.to_string())?;
            assert_eq!(world.counts.kills_at_start, kills + 1);
            let now = world.nodes[node].identity().expect("it runs").boot();
            let counted = match steps {
                0 => 1..=1,
                1 => 1..=2,
                _ => 2..=2,
            };
            assert!(counted.contains(&(now - boot)), "{boot}, then {now}");
        }
        assert_eq!(world.counts.new_incarnations, 0);
    }
    Ok(())
}

/// [volatile-4] A node of a volatile group that dies while it marks its clean stop either counts as
/// stopped cleanly or returns as a new member. The mark is honoured only once.
#[test]
fn a_node_dies_while_it_marks_a_clean_stop() -> Outcome {
    let mut forgot = BTreeSet::new();
    for seed in 0..10 {
        for steps in 0..6 {
            let mut settings = RunSettings::without_faults(seed, 3, Class::Volatile);
            settings.loss_scope = LossScope::Beyond;
            let mut world = World::with_leader(settings)?;
            world.nodes[1].disk.die_after_changes(steps);
            world.stop_now(1);
            world.run_until("it is down", |world| world.nodes[1].running.is_none())?;
            serves(&mut world, "1")?;
            forgot.insert(world.counts.new_incarnations);
        }
    }
    assert_eq!(forgot, [0, 1].into());
    Ok(())
}

/// [volatile-1] [disk-8] A node that forgot its votes dies anywhere between counting its start and
/// its first log write in the new incarnation. It returns as a new member without a vote, however
/// often this happens.
#[test]
fn a_node_dies_between_its_new_incarnation_and_its_log() -> Outcome {
    let mut learned = 0;
    for class in [Class::Durable, Class::Volatile] {
        for steps in 0..12 {
            let mut world = World::new_calm(steps, 3, class)?;
            serves(&mut world, "1")?;
            // The test repeats this until the fault affects the only node that may forget.
            while world.counts.kills == 0 {
                world.apply_fault(Fault::IncarnationKill);
            }
            let struck = world.nodes.iter().position(|node| node.dies_after_changes.is_some());
            let node = struck.expect("one of them");
            world.nodes[node].dies_after_changes = Some(steps);
            let died = |world: &World| world.counts.kills_at_start + world.counts.kills > 1;
            for value in 0..20 {
                world.run_for(50_000)?;
                if died(&world) {
                    break;
                }
                let leader = world.wait_for_leader()?;
                world.run_command(leader, &format!("SET y {value}"))?;
            }
            assert!(died(&world), "{class:?} after {steps} changes");
            serves(&mut world, "2")?;
            let member = world.nodes[node].member();
            assert!((1..=3).contains(&member.incarnation.0), "{member:?}");
            // [volatile-2] If the leader had time, it has readmitted the node under its current
            // member identity.
            let leader = world.wait_for_leader()?;
            let running = world.nodes[leader].running.as_ref().expect("it leads");
            let voters = running.replica().node().configuration().members();
            let votes = voters.iter().any(|voter| voter.member == member);
            let expected = if votes { Role::Follower } else { Role::Learner };
            assert_eq!(role(&world, node), Some(expected), "{class:?} after {steps} changes");
            learned += u32::from(!votes);
        }
    }
    assert!(learned >= 20, "{learned} without a vote");
    Ok(())
}

/// A month of writes to the same keys, by volume. Overwritten data is not retained ([trim-1],
/// [snap-1]), so that a node's folder remains as small as the ratio, the segment pool and the data
/// allow.
#[test]
fn a_month_of_writes_to_the_same_keys_does_not_fill_the_disk() -> Outcome {
    const KEYS: usize = 30;
    const DATA: u64 = 30 << 10;
    for (seed, ratio) in [(1, 0), (2, 2), (3, 4)] {
        let mut settings = RunSettings::without_faults(seed, 3, Class::Durable);
        settings.segment_bytes = 32 << 10;
        settings.snapshot_options.ratio = ratio;
        settings.snapshot_options.log_bytes_min = 48 << 10;
        settings.snapshot_options = settings.snapshot_options.in_files_of(4 << 10, 2);
        // Upper bound of the segment pool: the spare segments, and up to three others, such as the
        // one in use and one that begins before the log does.
        let pool = (settings.spare_segment_count() as u64 + 3) * settings.segment_bytes;
        let mut world = World::with_leader(settings)?;
        let value = "v".repeat(1 << 10);
        let (mut largest, mut taken) = (0, 0);
        for round in 0..60 {
            let client = world.add_client(round % 3);
            for key in 0..KEYS {
                let key = format!("key{key}");
                world.send_request(client, &[b"SET", key.as_bytes(), value.as_bytes()]);
            }
            for _ in 0..KEYS {
                assert_eq!(world.wait_for_reply(client)?, Some(ok()));
            }
            // The progress of other nodes arrives with heartbeats.
            world.run_for(200_000)?;
            for node in &mut world.nodes {
                let mut files = |family| {
                    let files = node.disk.files(family).unwrap_or_default();
                    files.iter().map(|info| info.bytes).sum::<u64>()
                };
                let (log, parts) = (files(Family::Log), files(Family::Snapshot));
                let replica = node.running.as_ref().expect("it runs").replica();
                taken = taken.max(replica.counters().snapshots_taken);
                // The old snapshot is retained until the new one is complete.
                let snapshot = replica.snapshot().map_or(0, |own| own.bytes.max(DATA));
                let due = (snapshot * u64::from(ratio)).max(48 << 10);
                let most = 2 * due + pool + 3 * snapshot;
                assert!(log + parts <= most.max(2 * DATA + pool), "{log} + {parts} > {most}");
                largest = largest.max(log + parts);
            }
        }
        let written = 60 * DATA;
        assert!(largest < written / 2, "{largest} of {written}");
        assert!(taken > 3, "{taken} snapshots");
        world.run_until_settled()?;
    }
    Ok(())
}

/// [read-4] A leader reads its clock, stalls for longer than its lease, and finds a read that
/// arrived during the stall. By then another node leads and has acknowledged more, so the read is
/// not answered from old state.
#[test]
fn leader_that_stood_still_between_clock_and_read_answers_nothing_old() -> Outcome {
    let mut settings = RunSettings::without_faults(5, 3, Class::Durable);
    settings.leases = Some(LeaseRules::within_election_timeout(100, 10_000));
    let mut world = World::new(settings);
    world.run_until("a leader", |world| world.majority_leader().is_some())?;
    let old = world.majority_leader().expect("just seen");
    assert_eq!(world.run_command(old, "SET key one")?, ok());
    world.run_for(200_000)?;
    let leased = |world: &World| {
        let running = world.nodes[old].running.as_ref().expect("it runs");
        running.replica().counters().reads_leased
    };
    assert_eq!(world.run_command(old, "GET key")?, bulk("one"));
    assert_eq!(leased(&world), 1);
    world.stall_now(old);
    world.set_isolated(old, true);
    let new = |world: &World| world.majority_leader().filter(|leader| *leader != old);
    world.run_until("another leader", |world| new(world).is_some())?;
    let leader = new(&world).expect("just seen");
    assert_eq!(world.run_command(leader, "SET key two")?, ok());
    let reader = world.add_client(old);
    world.send_request(reader, &[b"GET", b"key"]);
    world.run_for(20_000)?;
    world.resume_now(old);
    world.run_for(20_000)?;
    world.set_isolated(old, false);
    assert_eq!(world.wait_for_reply(reader)?, Some(bulk("two")));
    world.run_until_settled()
}

/// [read-6] A node that is cut off refuses reads once its state is older than their bound, and
/// still serves reads without a bound.
#[test]
fn node_that_is_cut_off_refuses_reads_beyond_their_bound() -> Outcome {
    let mut world = World::new(RunSettings::without_faults(6, 3, Class::Durable));
    world.run_until("a leader", |world| world.majority_leader().is_some())?;
    let leader = world.majority_leader().expect("just seen");
    let node = others(&world, leader)[0];
    assert_eq!(world.run_command(leader, "SET key one")?, ok());
    let reader = world.add_client(node);
    let ask = |world: &mut World, words: &str| {
        let words: Vec<&[u8]> = words.split(' ').map(str::as_bytes).collect();
        world.send_request(reader, &words);
        world.wait_for_reply(reader)
    };
    assert_eq!(ask(&mut world, "QUORATE READ bounded 100")?, Some(ok()));
    assert_eq!(ask(&mut world, "GET key")?, Some(bulk("one")));
    world.set_isolated(node, true);
    world.run_for(1_000)?;
    assert_eq!(world.run_command(leader, "SET key two")?, ok());
    assert_eq!(ask(&mut world, "GET key")?, Some(bulk("one")), "within 100 ms");
    world.run_for(200_000)?;
    let refused = ask(&mut world, "GET key")?;
    assert!(
        matches!(&refused, Some(Reply::Error(text)) if text.starts_with("STALE ")),
        "{refused:?}"
    );
    assert_eq!(ask(&mut world, "QUORATE READ stale")?, Some(ok()));
    assert_eq!(ask(&mut world, "GET key")?, Some(bulk("one")));
    world.set_isolated(node, false);
    assert_eq!(ask(&mut world, "QUORATE READ bounded 100")?, Some(ok()));
    world.run_for(1_000_000)?;
    assert_eq!(ask(&mut world, "GET key")?, Some(bulk("two")));
    world.run_until_settled()
}
