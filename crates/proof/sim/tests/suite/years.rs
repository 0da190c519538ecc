//! Failures of earlier systems (numbered G…) that involve membership changes, snapshots and trims,
//! as in years of a cluster's life. Each is played out step by step.
//!
//! `scenarios.rs` covers clusters whose members do not change.

use quorate_core::{
    configuration::{Configuration, Voter},
    node_id::Member,
    quorum::QuorumRule,
    record::Class,
};
use quorate_replica::{
    counters::Counters,
    group::{
        MemberRole,
        asking::{GroupAnswer, GroupRequest},
    },
};
use quorate_sim::{
    check::Violation,
    dice::Dice,
    faults::{Fault, RunSettings},
    node::id,
    resp::Reply,
    world::World,
};

type Outcome = Result<(), Violation>;

fn ok() -> Reply {
    Reply::Simple("OK".into())
}

fn bulk(text: &str) -> Reply {
    Reply::Bulk(Some(text.as_bytes().to_vec()))
}

/// Returns settings with three founding members and `spares` nodes that may join. Logs are trimmed
/// early, and are not retained for nodes that lag further behind.
fn settings(seed: u64, spares: usize) -> RunSettings {
    let mut settings = RunSettings::without_faults(seed, 3, Class::Durable);
    settings.spare_node_count = spares;
    settings.segment_bytes = 32 << 10;
    settings.snapshot_options.ratio = 0;
    settings.snapshot_options.log_bytes_min = 32 << 10;
    settings.snapshot_options.log_bytes_max = 64 << 10;
    settings.snapshot_options = settings.snapshot_options.in_files_of(4 << 10, 2);
    settings
}

fn counters(world: &World, node: usize) -> Counters {
    let running = world.nodes[node].running.as_ref();
    running.map(|running| running.replica().counters()).unwrap_or_default()
}

fn decided_to(world: &World, node: usize) -> u64 {
    let running = world.nodes[node].running.as_ref().expect("it runs");
    running.replica().node().decided_to().0
}

fn log_start(world: &World, node: usize) -> u64 {
    let running = world.nodes[node].running.as_ref().expect("it runs");
    running.replica().node().log_start().0
}

fn era(world: &World, node: usize) -> u32 {
    let running = world.nodes[node].running.as_ref().expect("it runs");
    running.replica().node().era().0
}

/// Returns the members' indices and weights, according to the most advanced node.
fn weights(world: &World) -> Vec<(usize, u32)> {
    let members = world.configuration().expect("a node runs").members();
    let place = |voter: &Voter| (voter.member.node.0 as usize - 1, voter.weight);
    let mut weights: Vec<_> = members.iter().map(place).collect();
    weights.sort_unstable();
    weights
}

fn join(world: &mut World, through: usize, spare: usize, role: MemberRole) -> Outcome {
    let ask = GroupRequest::Join {
        nonce: spare as u64 + 1,
        node: None,
        peer: format!("n{}:1", spare + 1),
        role,
    };
    let answer = world.ask_group(through, ask)?;
    assert_eq!(answer, Ok(GroupAnswer::Node(id(spare))));
    world.run_until("it has joined, and runs", |world| world.nodes[spare].running.is_some())
}

/// Sends a request to the leader, and repeats it while it is refused for a temporary reason.
fn begin(world: &mut World, ask: &GroupRequest) -> Result<GroupAnswer, Violation> {
    for _ in 0..100 {
        let leader = world.wait_for_leader()?;
        match world.ask_group(leader, ask.clone())? {
            Ok(answer) => return Ok(answer),
            Err(refused)
                if ["not_leader", "not_connected", "not_caught_up"].contains(&refused.code) =>
            {
                world.run_for(50_000)?;
            }
            Err(refused) => panic!("{ask:?}: {refused:?}"),
        }
    }
    panic!("{ask:?}: it does not come to be level");
}

/// Sends a request to the leader and runs until its plan is complete.
fn carry_out(world: &mut World, ask: &GroupRequest) -> Outcome {
    begin(world, ask)?;
    world.run_until("the plan is carried through", World::has_no_plan)
}

fn code(world: &mut World, ask: GroupRequest) -> Result<&'static str, Violation> {
    let leader = world.wait_for_leader()?;
    let answer = world.ask_group(leader, ask)?;
    Ok(answer.map_or_else(|refused| refused.code, |_| "done"))
}

/// Writes until the node's log begins after slot `beyond`.
fn fill_until_trimmed(world: &mut World, node: usize, beyond: u64) -> Outcome {
    let value = "v".repeat(1 << 10);
    for round in 0..100 {
        if log_start(world, node) > beyond {
            return Ok(());
        }
        let client = world.add_client(node);
        for key in 0..20 {
            let key = format!("fill{key}");
            world.send_request(client, &[b"SET", key.as_bytes(), value.as_bytes()]);
        }
        for _ in 0..20 {
            assert_eq!(world.wait_for_reply(client)?, Some(ok()), "round {round}");
        }
        world.run_for(100_000)?;
    }
    panic!("the log begins at {}, not behind {beyond}", log_start(world, node));
}

/// G8 Quorum rules whose quorums do not intersect are refused, both at the founding and in later
/// changes. The group continues with its current rule ([era-4]).
#[test]
fn g8_quorums_that_do_not_meet_are_refused() -> Outcome {
    let voters = |weights: &[u32]| -> Vec<Voter> {
        let voter = |(at, weight): (usize, &u32)| Voter {
            member: Member::first(u32::try_from(at).unwrap() + 1),
            weight: *weight,
            auxiliary: false,
        };
        weights.iter().enumerate().map(voter).collect()
    };
    let rule = |phase1, phase2| QuorumRule::Flexible { phase1, phase2 };
    for (weights, phase1, phase2, meets) in [
        (&[1, 1, 1][..], 2, 1, false),
        (&[1, 1, 1], 3, 1, true),
        (&[1, 1, 1, 1], 2, 2, false),
        (&[1, 1, 1, 1], 3, 2, true),
        (&[3, 1, 1], 3, 2, false),
        (&[3, 1, 1], 4, 2, true),
    ] {
        let founded = Configuration::new(voters(weights), rule(phase1, phase2), Class::Durable);
        assert_eq!(founded.is_ok(), meets, "{weights:?}, {phase1} and {phase2}");
    }

    let mut world = World::with_leader(settings(8, 0))?;
    let before = era(&world, world.majority_leader().expect("elected"));
    for (phase1, phase2) in [(2, 1), (1, 1), (1, 2), (0, 3), (4, 1)] {
        let refused = code(&mut world, GroupRequest::Quorum(rule(phase1, phase2)))?;
        assert_eq!(refused, "impossible", "{phase1} and {phase2}");
    }
    let leader = world.wait_for_leader()?;
    assert_eq!(era(&world, leader), before, "nothing changed");
    assert_eq!(world.run_command(leader, "SET x 1")?, ok());

    // Intersecting quorums are accepted. Then a leader decides alone, and an election needs every
    // node.
    carry_out(&mut world, &GroupRequest::Quorum(rule(3, 1)))?;
    // The leader has the required promise from every node in the era.
    world.run_for(500_000)?;
    let leader = world.wait_for_leader()?;
    assert!(era(&world, leader) > before);
    let others: Vec<usize> = (0..3).filter(|node| *node != leader).collect();
    for node in &others {
        world.kill_now(*node);
    }
    assert_eq!(world.run_command(leader, "SET x 2")?, ok());
    world.kill_now(leader);
    for node in &others {
        world.start_now(*node);
    }
    world.run_for(3_000_000)?;
    assert_eq!(world.majority_leader(), None, "two of three promises");
    world.start_now(leader);
    let leader = world.wait_for_leader()?;
    assert_eq!(world.run_command(leader, "GET x")?, bulk("2"));
    // Majorities do not intersect with those quorums, so the change back requires an intermediate
    // rule.
    carry_out(&mut world, &GroupRequest::Quorum(QuorumRule::Majority))?;
    world.run_until_settled()
}

/// G9 Weights never overflow or drop to zero, and the last vote cannot be removed. After repeated
/// increases and decreases the weights are the original ones, and all nodes agree on them
/// ([era-4]).
#[test]
fn g9_weights_stay_within_their_bounds() -> Outcome {
    let mut world = World::with_leader(settings(9, 0))?;
    for (ask, refused) in [
        (GroupRequest::Weight(id(1), u32::MAX), "impossible"),
        (GroupRequest::Weight(id(1), 1 << 31), "impossible"),
        (GroupRequest::Promote(id(7)), "unknown_node"),
        (GroupRequest::Remove(id(7)), "unknown_node"),
    ] {
        assert_eq!(code(&mut world, ask.clone())?, refused, "{ask:?}");
    }
    let leader = world.wait_for_leader()?;
    assert_eq!(era(&world, leader), 0, "nothing changed");

    let client = world.add_client(leader);
    let mut eras = 0;
    for round in 0..4u32 {
        for (node, weight) in [(0, 3), (1, 2), (2, 3), (0, 1), (2, 1), (1, 1)] {
            let key = format!("k{node}");
            world.send_request(client, &[b"SET", key.as_bytes(), round.to_string().as_bytes()]);
            carry_out(&mut world, &GroupRequest::Weight(id(node), weight))?;
            assert!(weights(&world).contains(&(node, weight)), "{:?}", weights(&world));
        }
        for _ in 0..6 {
            assert_eq!(world.wait_for_reply(client)?, Some(ok()));
        }
        assert_eq!(weights(&world), [(0, 1), (1, 1), (2, 1)]);
        let leader = world.wait_for_leader()?;
        assert!(era(&world, leader) >= eras + 8, "a storm");
        eras = era(&world, leader);
    }
    world.run_until_settled()?;

    // The group shrinks to one node, which remains.
    for gone in [2, 1] {
        let leader = world.wait_for_leader()?;
        let node = if leader == gone { 0 } else { gone };
        carry_out(&mut world, &GroupRequest::Remove(id(node)))?;
    }
    let leader = world.wait_for_leader()?;
    assert_eq!(weights(&world), [(leader, 1)]);
    for ask in [GroupRequest::Remove(id(leader)), GroupRequest::Demote(id(leader))] {
        assert_eq!(code(&mut world, ask)?, "last_voter");
    }
    assert_eq!(world.run_command(leader, "GET k1")?, bulk("3"));
    Ok(())
}

/// G10 All nodes are killed repeatedly, at any byte of a plan's progress and of snapshots. The
/// configuration, promises, votes and all acknowledged writes survive, and the plan continues.
#[test]
fn g10_everybody_is_killed_in_the_midst_of_a_plan() -> Outcome {
    let (mut amid, mut dice) = (0, Dice::new(10));
    for seed in 0..6 {
        let mut world = World::with_leader(settings(seed, 1))?;
        let leader = world.wait_for_leader()?;
        join(&mut world, leader, 3, MemberRole::Learner)?;
        fill_until_trimmed(&mut world, leader, 20)?;
        let ask = GroupRequest::Replace { old: id((leader + 1) % 3), new: id(3) };
        let mut goal = vec![(leader, 1), ((leader + 2) % 3, 1), (3, 1)];
        goal.sort_unstable();
        let mut number = 0;
        while weights(&world) != goal {
            // Repeating the request is harmless, and requests in flight continue by themselves.
            number += 1;
            assert!(number < 40, "seed {seed}: it does not end");
            let now = world.wait_for_leader()?;
            let _ = world.ask_group(now, ask.clone())?;
            assert_eq!(world.run_command(now, &format!("SET x {number}"))?, ok());
            world.run_for(dice.between(100, 30_000))?;
            amid += u32::from(!world.has_no_plan());
            let eras: Vec<u32> = (0..4).filter_map(|node| known_era(&world, node)).collect();
            world.apply_fault(Fault::CrashAll);
            let now = world.wait_for_leader()?;
            assert_eq!(world.run_command(now, "GET x")?, bulk(&number.to_string()));
            // Checked after the read, because a newly elected leader may not have decided yet the
            // change that began the era.
            assert!(era(&world, now) >= *eras.iter().max().expect("they ran"), "{eras:?}");
        }
        world.run_until("the plan is carried through", World::has_no_plan)?;
        world.run_until_settled()?;
    }
    assert!(amid >= 10, "killed {amid} times in the midst of a plan");
    Ok(())
}

fn known_era(world: &World, node: usize) -> Option<u32> {
    let running = world.nodes[node].running.as_ref()?;
    Some(running.replica().node().era().0)
}

/// The leader decides a change, continues in the new era, and fails permanently at each moment
/// around the change, while clients write. The remaining nodes continue in one era or the other
/// ([ballot-3], [ballot-5]).
#[test]
fn leader_goes_who_alone_knew_that_an_era_began() -> Outcome {
    let (mut stood_still, mut knew_alone, mut moments) = (Vec::new(), 0, 0);
    for (disk_us, pace_us) in [(20, 8), (100, 12)] {
        for step in 0..84 {
            let mut settings = settings(step, 0);
            settings.disk_us = (disk_us, disk_us);
            let mut world = World::with_leader(settings)?;
            world.run_until_settled()?;
            let leader = world.wait_for_leader()?;
            let others = [(leader + 1) % 3, (leader + 2) % 3];
            let clients: Vec<usize> = (0..8).map(|_| world.add_client(leader)).collect();
            begin(&mut world, &GroupRequest::Weight(id(others[0]), 2))?;
            for turn in 0..step {
                // Some command is always in flight after the change.
                let client = clients[turn as usize % clients.len()];
                world.send_request(client, &[b"INCR", b"n"]);
                world.run_for(pace_us)?;
            }
            moments += 1;
            let known = others.map(|node| era(&world, node));

            knew_alone += u32::from(known.iter().all(|known| *known < era(&world, leader)));

            world.kill_now(leader);
            let led = |world: &World| world.majority_leader().is_some_and(|other| other != leader);
            if world.run_until("another leads", led).is_err() {
                stood_still.push((disk_us, step));
                continue;
            }
            let other = world.wait_for_leader()?;
            assert_eq!(world.run_command(other, "SET x 1")?, ok());
        }
    }
    assert_eq!(stood_still, [], "of {moments} moments");
    assert!(knew_alone > 10, "{knew_alone} of {moments} moments");
    Ok(())
}

/// G11 G24 A member and a learner are away while the other nodes trim slots that the two need. Logs
/// are retained for them only while the logs are small. Later the two get a snapshot, and count as
/// caught up once they have it.
#[test]
fn g24_logs_are_kept_for_who_is_behind_and_then_a_snapshot_is() -> Outcome {
    let mut settings = settings(24, 1);
    settings.snapshot_options.log_bytes_max = 512 << 10;
    settings.snapshot_options.transfer_bytes_per_second = Some(32 << 10);
    settings.window_slots = 64;
    let mut world = World::with_leader(settings)?;
    let leader = world.wait_for_leader()?;
    let (late, other) = ((leader + 1) % 3, (leader + 2) % 3);
    join(&mut world, leader, 3, MemberRole::Learner)?;
    world.run_until_settled()?;
    for node in [late, 3] {
        world.set_isolated(node, true);
    }
    world.run_for(1_000)?;
    // While the two lag only slightly, no node trims the slots that they need, even if there are
    // snapshots.
    let value = "v".repeat(1 << 10);
    for number in 0..40 {
        assert_eq!(world.run_command(leader, &format!("SET k{} {value}", number % 5))?, ok());
    }
    world.run_for(1_000_000)?;
    let behind = decided_to(&world, late).min(decided_to(&world, 3));
    assert!(decided_to(&world, leader) > behind + 30);
    assert!(counters(&world, leader).snapshots_taken > 0, "it could have trimmed");
    for node in [leader, other] {
        assert!(log_start(&world, node) <= behind, "trimmed what is needed");
    }

    // When the two lag far behind, nodes trim, because the log would otherwise grow without bound.
    fill_until_trimmed(&mut world, leader, behind)?;
    fill_until_trimmed(&mut world, other, behind)?;
    assert_eq!(world.run_command(leader, "SET last 1")?, ok());
    for node in [late, 3] {
        assert_eq!(counters(&world, node).snapshots_installed, 0);
        world.set_isolated(node, false);
    }
    // [join-1] A node that is still catching up gets no weight.
    let mut refused = "not_connected";
    while refused == "not_connected" {
        world.run_for(5_000)?;
        refused = code(&mut world, GroupRequest::Promote(id(3)))?;
    }
    assert_eq!(refused, "not_caught_up");
    world.run_until_settled()?;
    for node in [late, 3] {
        assert_eq!(counters(&world, node).snapshots_installed, 1, "node {}", node + 1);
    }
    // The node has the data. Its vote is needed now, and it serves the data that it missed.
    world.kill_now(other);
    assert_eq!(world.run_command(leader, "SET after 1")?, ok());
    for node in [late, 3] {
        assert_eq!(world.run_command(node, "GET last")?, bulk("1"));
    }
    world.start_now(other);
    carry_out(&mut world, &GroupRequest::Promote(id(3)))?;
    assert_eq!(weights(&world).len(), 4);
    world.run_until_settled()
}

/// [live-4] An operator transfers the leadership to a node that is waiting for a snapshot. The old
/// leader continues until that node has all data, so no write waits.
#[test]
fn leadership_waits_for_a_node_that_gets_a_snapshot() -> Outcome {
    let mut settings = settings(68, 0);
    settings.snapshot_options.log_bytes_max = 512 << 10;
    settings.snapshot_options.transfer_bytes_per_second = Some(8 << 10);
    settings.window_slots = 64;
    let mut world = World::with_leader(settings)?;
    let leader = world.wait_for_leader()?;
    let (late, other) = ((leader + 1) % 3, (leader + 2) % 3);
    world.set_isolated(late, true);
    world.run_for(1_000)?;
    let behind = decided_to(&world, late);
    fill_until_trimmed(&mut world, leader, behind)?;
    fill_until_trimmed(&mut world, other, behind)?;
    world.set_isolated(late, false);
    world.run_for(100_000)?;
    world.transfer_now(leader, late);
    let (begun, mut longest, mut writes) = (world.now, 0, 0);
    while counters(&world, late).snapshots_installed == 0 {
        assert!(world.now.since_us(begun) < 30_000_000, "it gets none");
        world.run_for(20_000)?;
        let asked = world.now;
        assert_eq!(world.run_command(other, "SET during 1")?, ok());
        assert_eq!(world.majority_leader(), Some(leader));
        (longest, writes) = (longest.max(world.now.since_us(asked)), writes + 1);
    }
    assert!(longest <= 300_000 && writes > 10, "{longest} us without a write, {writes} writes");
    world.run_until_settled()
}

/// G12 All three machines are replaced, and leadership is transferred back and forth, while clients
/// write. No client sees an error, and no configuration delays the group.
#[test]
fn g12_members_and_leaders_change_under_load_without_an_error() -> Outcome {
    for seed in 0..3 {
        let mut world = World::with_leader(settings(seed, 3))?;
        let mut written = 0;
        for old in 0..3 {
            let new = old + 3;
            let leader = world.wait_for_leader()?;
            join(&mut world, leader, new, MemberRole::Learner)?;
            world.run_until("it is level", World::is_caught_up)?;
            // The clients use nodes that remain. Each client has writes in flight at all times.
            let clients: Vec<usize> = (old + 1..=new).map(|node| world.add_client(node)).collect();
            let begun = written;
            let mut say = |world: &mut World, client: usize| {
                written += 1;
                let (key, value) = (format!("k{}", written % 50), written.to_string());
                world.send_request(client, &[b"SET", key.as_bytes(), value.as_bytes()]);
            };
            for client in &clients {
                for _ in 0..4 {
                    say(&mut world, *client);
                }
            }
            let eras = era(&world, leader);
            let plan = GroupRequest::Replace { old: id(old), new: id(new) };
            begin(&mut world, &plan)?;
            let (mut rest, mut handed) = (20, false);
            while rest > 0 {
                // Continues for a few more rounds once the plan is complete.
                rest -= usize::from(world.has_no_plan());
                for client in &clients {
                    assert_eq!(
                        world.wait_for_reply(*client)?,
                        Some(ok()),
                        "seed {seed}, {old} to {new}"
                    );
                    say(&mut world, *client);
                }
                let amid = world.majority_leader().filter(|_| !handed && !world.has_no_plan());
                if let Some(leader) = amid.filter(|leader| era(&world, *leader) > eras + 2) {
                    let to = (old + 1..new).find(|node| *node != leader).expect("two stay");
                    world.transfer_now(leader, to);
                    handed = true;
                }
            }
            for client in &clients {
                for _ in 0..4 {
                    assert_eq!(world.wait_for_reply(*client)?, Some(ok()));
                }
            }
            assert!(handed, "leadership was handed over in the midst");
            let leader = world.wait_for_leader()?;
            assert!(era(&world, leader) >= eras + 6, "no eras began");
            assert!(written - begun > 60, "{} writes", written - begun);
            for node in old..=new {
                assert_eq!(counters(&world, node).slots_waited_for_era, 0, "[cast-1]");
            }
        }
        assert_eq!(weights(&world), [(3, 1), (4, 1), (5, 1)]);
        world.run_until_settled()?;
    }
    Ok(())
}

/// G15 Two nodes are cut off while the group changes. One of them is removed, and the other one
/// remains with a weight from an era long ago. Both try to become leader all the time. After their
/// return neither deposes the leader, and the removed node has no vote ([era-5], [live-1],
/// [member-1]).
#[test]
fn g15_who_returns_to_a_changed_group_does_not_depose() -> Outcome {
    for seed in 0..5 {
        let mut settings = settings(seed, 2);
        settings.founding_member_count = 5;
        let mut world = World::with_leader(settings)?;
        let leader = world.wait_for_leader()?;
        let (removed, late) = ((leader + 1) % 5, (leader + 2) % 5);
        world.set_isolated(removed, true);
        world.set_isolated(late, true);
        world.run_for(3_000_000)?;
        join(&mut world, leader, 5, MemberRole::Learner)?;
        let ask = GroupRequest::Replace { old: id(removed), new: id(5) };
        carry_out(&mut world, &ask)?;
        let behind = decided_to(&world, late);
        fill_until_trimmed(&mut world, leader, behind)?;
        let leader = world.wait_for_leader()?;
        let eras = era(&world, leader);
        assert!(eras > 2 && era(&world, late) == 0 && era(&world, removed) == 0);

        let elections = world.counts.elections;
        world.set_isolated(removed, false);
        world.set_isolated(late, false);
        world.run_for(3_000_000)?;
        assert_eq!(world.majority_leader(), Some(leader), "seed {seed}");
        assert_eq!(world.counts.elections, elections, "seed {seed}");
        assert_eq!(era(&world, late), eras);
        assert!(weights(&world).iter().all(|(node, _)| *node != removed));

        // Three of the five voters are down. The removed node cannot form a quorum with the other
        // two.
        let members = weights(&world);
        let down = members.iter().map(|(node, _)| *node).filter(|node| *node != leader);
        for node in down.take(3) {
            world.kill_now(node);
        }
        let client = world.add_client(leader);
        world.send_request(client, &[b"SET", b"x", b"1"]);
        world.run_for(2_000_000)?;
        assert!(
            !matches!(world.clients[client].replies.front(), Some(Some(reply)) if *reply == ok())
        );
        assert_eq!(world.majority_leader(), None);
        for node in (0..6).filter(|node| *node != removed) {
            if world.nodes[node].running.is_none() {
                world.start_now(node);
            }
        }
        let leader = world.wait_for_leader()?;
        assert_eq!(world.run_command(leader, "SET x 2")?, ok());
        world.run_until_settled()?;
    }
    Ok(())
}

/// G16 A command is repeated at a node that knows its session and reply only from a snapshot. The
/// command is not executed again, and the stored reply is returned ([snap-1], [session-2]).
#[test]
fn g16_repeated_command_is_known_from_a_snapshot() -> Outcome {
    for seed in 0..5 {
        let mut world = World::with_leader(settings(seed, 0))?;
        let leader = world.wait_for_leader()?;
        let late = (leader + 1) % 3;
        world.set_isolated(late, true);
        let client = world.add_client(leader);
        world.send_request(client, &[b"QUORATE", b"SESSION"]);
        let session = match world.wait_for_reply(client)? {
            Some(Reply::Simple(session)) => session,
            Some(Reply::Bulk(Some(session))) => String::from_utf8_lossy(&session).into_owned(),
            other => panic!("no session: {other:?}"),
        };
        world.send_request(client, &[b"QUORATE", b"SEQ", b"1", b"INCR", b"n"]);
        assert_eq!(world.wait_for_reply(client)?, Some(Reply::Integer(1)));
        let executed = decided_to(&world, leader);
        for node in (0..3).filter(|node| *node != late) {
            fill_until_trimmed(&mut world, node, executed)?;
        }
        world.set_isolated(late, false);
        world.run_until_settled()?;
        assert_eq!(counters(&world, late).snapshots_installed, 1);
        assert!(log_start(&world, late) > executed, "its log does not tell");

        // The node now leads. The client connects to it and repeats the command.
        world.transfer_now(leader, late);
        world.run_until("it leads", |world| world.majority_leader() == Some(late))?;
        world.kill_now(leader);
        world.connect_client(client, late);
        world.clients[client].replies.clear();
        world.send_request(client, &[b"QUORATE", b"SESSION", session.as_bytes()]);
        assert_eq!(world.wait_for_reply(client)?, Some(ok()));
        for _ in 0..2 {
            world.send_request(client, &[b"QUORATE", b"SEQ", b"1", b"INCR", b"n"]);
            assert_eq!(world.wait_for_reply(client)?, Some(Reply::Integer(1)), "seed {seed}");
        }
        world.send_request(client, &[b"QUORATE", b"SEQ", b"2", b"INCR", b"n"]);
        assert_eq!(world.wait_for_reply(client)?, Some(Reply::Integer(2)));
        world.start_now(leader);
        world.run_until_settled()?;
    }
    Ok(())
}
