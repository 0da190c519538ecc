//! Auxiliaries: one receives no data, is activated when a full replica fails, and is deactivated
//! when the replica is back ([aux-1]–[aux-4]). Further tests cover flexible quorums and thrifty
//! leaders. Each scenario is played out step by step.

use quorate_core::{effect::Role, node_id::NodeId, quorum::QuorumRule, record::Class};
use quorate_node::terms::FoundingTerms;
use quorate_sim::{check::Violation, faults::RunSettings, node::id, resp::Reply, world::World};

type Outcome = Result<(), Violation>;

fn ok() -> Reply {
    Reply::Simple("OK".into())
}

fn bulk(text: &str) -> Reply {
    Reply::Bulk(Some(text.as_bytes().to_vec()))
}

/// Returns a cluster in which the nodes in `auxiliaries` are auxiliaries.
fn world(
    seed: u64,
    nodes: usize,
    auxiliaries: &[usize],
    rule: QuorumRule,
) -> Result<World, Violation> {
    World::with_leader(RunSettings {
        founding_terms: FoundingTerms {
            auxiliaries: auxiliaries.iter().map(|index| id(*index)).collect(),
            quorum_rule: rule,
        },
        ..RunSettings::without_faults(seed, nodes, Class::Durable)
    })
}

fn payload_to(world: &World, from: usize, to: usize) -> u64 {
    let node = &world.nodes[from];
    let running = node.running.as_ref().expect("runs");
    let status = running.replica().status(node.monotonic_time(world.now));
    let peer = status.peers.iter().find(|peer| peer.member.node == id(to));
    peer.map_or(0, |peer| peer.payload_bytes_sent)
}

fn engaged(world: &World) -> Option<bool> {
    let leader = world.majority_leader()?;
    let running = world.nodes[leader].running.as_ref()?;
    Some(running.replica().node().auxiliaries_engaged())
}

fn log_start(world: &World, node: usize) -> u64 {
    let running = world.nodes[node].running.as_ref().expect("runs");
    running.replica().node().log_start().0
}

fn set(world: &mut World, node: usize, keys: std::ops::Range<usize>) -> Outcome {
    for number in keys {
        assert_eq!(world.run_command(node, &format!("SET k{number} {number}"))?, ok());
    }
    Ok(())
}

const AUXILIARY: usize = 2;

/// An auxiliary is bypassed, activated, deactivated and emptied. This happens twice, with a leader
/// change in between.
#[test]
fn auxiliary_is_engaged_and_retired() -> Outcome {
    for seed in 0..6 {
        let mut world = world(seed, 3, &[AUXILIARY], QuorumRule::Majority)?;
        let leader = world.wait_for_leader()?;
        let other = 1 - leader;
        set(&mut world, leader, 0..40)?;
        set(&mut world, other, 40..50)?;
        world.run_for(500_000)?;
        for from in [leader, other] {
            assert_eq!(payload_to(&world, from, AUXILIARY), 0, "nothing while both are up");
        }
        assert_eq!(engaged(&world), Some(false));

        // Writes continue within two election timeouts of the failure, without an operator.
        world.kill_now(other);
        let before = world.now;
        assert_eq!(world.run_command(leader, "SET x alone")?, ok());
        let election_us = 200_000;
        assert!(world.now.since_us(before) < 2 * election_us, "{}", world.now.since_us(before));
        assert_eq!((world.majority_leader(), engaged(&world)), (Some(leader), Some(true)));
        set(&mut world, leader, 50..80)?;
        assert!(payload_to(&world, leader, AUXILIARY) > 0);

        // The leader fails before the other full replica has learned anything. Decisions made with
        // the auxiliary's help must survive.
        world.kill_now(leader);
        world.start_now(other);
        world.run_until("the other one leads", |world| world.majority_leader() == Some(other))?;
        assert_eq!(world.run_command(other, "GET x")?, bulk("alone"));
        assert_eq!(world.run_command(other, "GET k79")?, bulk("79"));
        set(&mut world, other, 80..90)?;

        // Both full replicas are back: the auxiliary is deactivated and drops its data.
        world.start_now(leader);
        world.run_until("it is retired", |world| engaged(world) == Some(false))?;
        set(&mut world, other, 90..95)?;
        world.run_for(1_000_000)?;
        let sent = payload_to(&world, other, AUXILIARY);
        let kept_from = log_start(&world, AUXILIARY);
        assert!(kept_from > 80, "log from {kept_from}");
        set(&mut world, other, 95..120)?;
        world.run_for(500_000)?;
        assert_eq!(payload_to(&world, other, AUXILIARY), sent, "nothing again");
        let running = world.nodes[AUXILIARY].running.as_ref().expect("runs");
        assert_eq!(running.replica().node().role(), Role::Auxiliary);

        // After a crash it repeats its promises and still knows that it is empty.
        world.kill_now(AUXILIARY);
        world.start_now(AUXILIARY);
        world.run_for(500_000)?;
        world.kill_now(leader);
        set(&mut world, other, 120..130)?;
        world.start_now(leader);
        world.run_until_settled()?;
    }
    Ok(())
}

/// [aux-2] An auxiliary that has forgotten earlier slots executes no commands. It frees the bytes
/// that it voted for when their slots are decided. Otherwise a leader without other voters would
/// stop once the auxiliary's memory is full.
#[test]
fn auxiliary_votes_for_more_than_its_memory_holds() -> Outcome {
    let mut world = World::with_leader(RunSettings {
        founding_terms: FoundingTerms {
            auxiliaries: [id(AUXILIARY)].into(),
            quorum_rule: QuorumRule::Majority,
        },
        has_tiny_queues: true,
        ..RunSettings::without_faults(11, 3, Class::Durable)
    })?;
    let leader = world.wait_for_leader()?;
    let other = 1 - leader;
    set(&mut world, leader, 0..20)?;
    world.run_for(500_000)?;
    world.kill_now(other);
    let value = "v".repeat(100);
    for number in 0..200 {
        let words = format!("SET k{number} {value}");
        assert_eq!(world.run_command(leader, &words)?, ok(), "after {number} writes");
    }
    let running = world.nodes[AUXILIARY].running.as_ref().expect("runs");
    assert!(running.replica().node().is_hollow());
    let most = quorate_sim::node::queue_limits(&world.settings).payload_bytes as u64;
    assert!(payload_to(&world, leader, AUXILIARY) > 2 * most);
    world.start_now(other);
    world.run_until("it is retired", |world| engaged(world) == Some(false))?;
    world.run_until_settled()
}

/// Writes continue when two of five nodes are auxiliaries and two full replicas fail one after the
/// other.
#[test]
fn two_auxiliaries_of_five() -> Outcome {
    let mut world = world(7, 5, &[3, 4], QuorumRule::Majority)?;
    let leader = world.wait_for_leader()?;
    let others: Vec<usize> = (0..3).filter(|node| *node != leader).collect();
    set(&mut world, leader, 0..20)?;
    assert_eq!(payload_to(&world, leader, 3) + payload_to(&world, leader, 4), 0);
    world.kill_now(others[0]);
    set(&mut world, leader, 20..40)?;
    world.kill_now(others[1]);
    set(&mut world, leader, 40..60)?;
    world.start_now(others[0]);
    world.start_now(others[1]);
    world.run_until("they are retired", |world| engaged(world) == Some(false))?;
    world.run_until_settled()
}

/// An auxiliary redirects its clients immediately.
#[test]
fn auxiliary_takes_no_commands() -> Outcome {
    let mut world = world(3, 3, &[AUXILIARY], QuorumRule::Majority)?;
    for words in ["SET x 1", "GET x"] {
        let before = world.now;
        let reply = world.run_command(AUXILIARY, words)?;
        assert!(matches!(reply, Reply::Error(_)), "{words}: {reply:?}");
        assert!(world.now.since_us(before) < 100_000);
    }
    Ok(())
}

/// [era-4] If a quorum is three promises and one vote, a leader decides alone, and an election
/// needs every node.
#[test]
fn flexible_quorums_count() -> Outcome {
    let rule = QuorumRule::Flexible { phase1: 3, phase2: 1 };
    let mut world = world(5, 3, &[], rule)?;
    let leader = world.wait_for_leader()?;
    for node in (0..3).filter(|node| *node != leader) {
        world.kill_now(node);
    }
    assert_eq!(world.run_command(leader, "SET x 1")?, ok());
    world.kill_now(leader);
    for node in (0..3).filter(|node| *node != leader) {
        world.start_now(node);
    }
    world.run_for(3_000_000)?;
    assert_eq!(world.majority_leader(), None, "two of three promises");
    world.start_now(leader);
    world.wait_for_leader()?;
    assert_eq!(world.run_command(leader, "GET x")?, bulk("1"));
    world.run_until_settled()
}

/// A thrifty leader sends proposals to one of two followers, and to both when that follower is
/// late.
#[test]
fn thrifty_leader_falls_back() -> Outcome {
    let mut settings = RunSettings::without_faults(9, 3, Class::Durable);
    settings.is_thrifty = true;
    let mut world = World::with_leader(settings)?;
    let leader = world.wait_for_leader()?;
    set(&mut world, leader, 0..20)?;
    let asked = |world: &World, node: usize| {
        let running = world.nodes[leader].running.as_ref().expect("runs");
        running.replica().node().proposes_to(NodeId(id(node).0))
    };
    let others: Vec<usize> = (0..3).filter(|node| *node != leader).collect();
    let quorum: Vec<usize> = others.iter().copied().filter(|node| asked(&world, *node)).collect();
    assert_eq!(quorum.len(), 1);
    world.pause_now(quorum[0]);
    let before = world.now;
    assert_eq!(world.run_command(leader, "SET x 1")?, ok());
    assert!(world.now.since_us(before) < 100_000, "{}", world.now.since_us(before));
    assert!(others.iter().all(|node| asked(&world, *node)));
    world.resume_now(quorum[0]);
    world.run_for(4_000_000)?;
    let quorum = others.iter().filter(|node| asked(&world, **node));
    assert_eq!(quorum.count(), 1, "a quorum is enough again");
    world.run_until_settled()
}
