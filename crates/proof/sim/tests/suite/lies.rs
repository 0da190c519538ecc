//! Lying disks: a disk acknowledged the end of a log and lost it. Peers remember the lost writes,
//! and the node returns as a learner. A node that lost nothing never does.

use quorate_core::{effect::Role, node_id::Incarnation, record::Class, slot::Slot};
use quorate_log::disk::MemoryDisk;
use quorate_replica::group::{MemberRole, asking::GroupRequest};
use quorate_sim::{
    check::Violation, faults::RunSettings, node::id, resp::Reply, run, world::World,
};

type Outcome = Result<(), Violation>;

const NODES: usize = 3;
/// Seeds in which disks lie while all other faults occur.
const SEEDS: std::ops::RangeInclusive<u64> = 3001..=3600;
const STEPS: u64 = 8_000;

fn incarnation(world: &World, node: usize) -> Incarnation {
    world.nodes[node].member().incarnation
}

fn error(world: &World, node: usize) -> String {
    let running = world.nodes[node].running.as_ref();
    running.and_then(|running| running.replica().error()).unwrap_or_default()
}

/// Sends writes through a node, one after another.
fn write(world: &mut World, node: usize, count: usize) -> Outcome {
    for _ in 0..count {
        let reply = world.run_command(node, "INCR key")?;
        assert!(matches!(reply, Reply::Integer(_)), "{reply:?}");
    }
    Ok(())
}

/// Returns a group that has written, the node whose disk may lie, and another node. `leads` states
/// whether the first of the two nodes leads.
fn group(seed: u64, leads: bool) -> Result<(World, usize, usize), Violation> {
    let mut world = World::with_leader(RunSettings::without_faults(seed, NODES, Class::Durable))?;
    let liar = world.forgetful_node().expect("one of three may forget");
    let other = (liar + 1) % NODES;
    let leader = if leads { liar } else { other };
    if world.wait_for_leader()? != leader {
        world.transfer_now(world.majority_leader().expect("there is one"), leader);
        world.run_until("the other leads", |world| world.majority_leader() == Some(leader))?;
    }
    write(&mut world, other, 20)?;
    Ok((world, liar, other))
}

/// Returns the number of log writes of `node` that the node `by` remembers.
fn remembered(world: &World, node: usize, by: usize) -> u64 {
    let running = world.nodes[by].running.as_ref().expect("it runs");
    running.replica().memory_of(world.nodes[node].id()).log_end.last_write
}

/// Removes log write `from` and all later ones from the node's disk, and all contents of its store
/// that could reveal them.
fn remove_log_writes(world: &mut World, node: usize, from: u64) {
    world.nodes[node].disk_kept_to.set(Slot(0));
    world.lose_writes_from(node, from);
}

/// Starts the node while no peer can report what its disk lost.
fn start_cut_off(world: &mut World, liar: usize) -> Outcome {
    world.nodes[liar].was_set_back = true;
    world.set_isolated(liar, true);
    world.run_for(1_000)?;
    world.start_now(liar);
    world.run_for(300_000)
}

/// Reconnects the node and checks that peers report the loss to it. The next process has another
/// identity and needs no such report.
fn is_reminded(world: &mut World, liar: usize) -> Outcome {
    world.set_isolated(liar, false);
    world.run_until("it is reminded", |world| error(world, liar).contains("remembers"))?;
    let running = world.nodes[liar].running.as_ref().expect("it runs");
    assert!(running.replica().error().expect("one").starts_with("the log failed: the disk lost"));
    world.nodes[liar].was_set_back = false;
    world.kill_now(liar);
    world.set_isolated(liar, true);
    world.run_for(1_000)?;
    world.start_now(liar);
    world.run_for(1_000)?;
    assert_eq!(incarnation(world, liar), Incarnation(1));
    world.set_isolated(liar, false);
    world.run_until_settled()
}

/// [lie-1] [lie-3] [lie-4] The loss of the end of a log is detected on followers and leaders, for
/// one log write or many.
#[test]
fn a_log_without_its_end_is_noticed() -> Outcome {
    for leads in [false, true] {
        for (seed, lost) in (0..).zip([1, 2, 15]) {
            let what = format!("leads {leads}, {lost} lost");
            let (mut world, liar, other) = group(seed, leads)?;
            let to = remembered(&world, liar, other);
            assert!(to > 20, "{what}: {to}");
            world.kill_now(liar);
            remove_log_writes(&mut world, liar, to - lost + 1);
            world.start_now(liar);
            world.run_for(1_000)?;
            assert_eq!(incarnation(&world, liar), Incarnation(1), "{what}");
            // The node regains its weight without an operator.
            world.run_for(3_000_000)?;
            world.run_until_settled()?;
            let running = world.nodes[liar].running.as_ref().expect("it runs");
            let role = running.replica().node().role();
            assert!(matches!(role, Role::Follower | Role::Leader), "{what}: {role:?}");
            write(&mut world, liar, 3)?;
        }
    }
    Ok(())
}

/// [lie-2] One running node that received the writes suffices. It need not have been the leader at
/// that time.
#[test]
fn a_follower_of_the_same_leader_remembers_within_a_second() -> Outcome {
    let (mut world, liar, other) = group(7, false)?;
    let third = (liar + 2) % NODES;
    world.run_for(1_100_000)?;
    let to = remembered(&world, liar, third);
    assert!(to > 20, "{to}");
    world.kill_now(liar);
    world.kill_now(other);
    remove_log_writes(&mut world, liar, to);
    world.start_now(liar);
    world.run_for(1_000)?;
    assert_eq!(incarnation(&world, liar), Incarnation(1));
    Ok(())
}

/// [lie-1] After crashes, clean stops and a trim of the log nothing is missing, so no node is
/// suspected of a loss.
#[test]
fn a_log_that_is_whole_is_believed() -> Outcome {
    for (seed, clean) in (20..).zip([false, true]) {
        let mut settings = RunSettings::without_faults(seed, NODES, Class::Durable);
        settings.segment_bytes = 32 << 10;
        settings.snapshot_options.log_bytes_max = 96 << 10;
        let mut world = World::with_leader(settings)?;
        for round in 0..9 {
            let node = round % NODES;
            write(&mut world, (node + 1) % NODES, 60)?;
            match clean {
                true => world.stop_now(node),
                false => world.kill_now(node),
            }
            world.run_for(50_000)?;
            world.start_now(node);
            world.run_for(1_000_000)?;
            world.run_until_settled()?;
        }
        for node in 0..NODES {
            assert_eq!(incarnation(&world, node), Incarnation(0), "clean: {clean}");
            assert_eq!(error(&world, node), "");
        }
    }
    Ok(())
}

/// [lie-5] A node was cut off when it started. Once a node that remembers reports the loss, the
/// node stops voting. From then on its folder records the loss, whichever peers are reachable.
#[test]
fn a_node_that_was_cut_off_when_it_started_is_told_later() -> Outcome {
    let (mut world, liar, other) = group(31, false)?;
    let to = remembered(&world, liar, other);
    world.kill_now(liar);
    remove_log_writes(&mut world, liar, to - 4);
    start_cut_off(&mut world, liar)?;
    assert_eq!(incarnation(&world, liar), Incarnation(0), "no peer told it");
    is_reminded(&mut world, liar)
}

/// Returns the number of starts that a node counted.
fn boot(world: &World, node: usize) -> u32 {
    let running = world.nodes[node].running.as_ref().expect("it runs");
    running.host.identity().boot()
}

/// [lie-4] [lie-5] The whole folder was set back, so the process has a start number that peers
/// already know, until peers report the loss. The next process has a higher number than all earlier
/// ones.
#[test]
fn a_folder_that_went_back_as_a_whole_is_told_later() -> Outcome {
    let (mut world, liar, other) = group(32, false)?;
    world.kill_now(liar);
    let copy = world.nodes[liar].disk.copy();
    world.run_for(1_000)?;
    world.start_now(liar);
    write(&mut world, other, 20)?;
    world.run_until_settled()?;
    let first = boot(&world, liar);
    world.kill_now(liar);
    world.restore_folder(liar, &copy);
    start_cut_off(&mut world, liar)?;
    assert_eq!(boot(&world, liar), first);
    is_reminded(&mut world, liar)?;
    assert!(boot(&world, liar) > first);
    Ok(())
}

/// [lie-7] The whole folder was set back, and the other nodes have restarted since, so they
/// remember nothing. The names registered in the lost life reveal the loss to the node before it
/// admits a client.
#[test]
fn a_folder_that_went_back_finds_the_names_of_its_later_life() -> Outcome {
    let (mut world, liar, other) = group(33, false)?;
    world.kill_now(liar);
    let copy = world.nodes[liar].disk.copy();
    world.run_for(1_000)?;
    world.start_now(liar);
    world.run_until_settled()?;
    write(&mut world, liar, 2)?;
    let first = boot(&world, liar);
    world.kill_now(liar);
    for node in [other, (liar + 2) % NODES] {
        world.kill_now(node);
        world.start_now(node);
    }
    world.run_for(1_000_000)?;
    world.restore_folder(liar, &copy);
    world.start_now(liar);
    world.run_for(1_000)?;
    let client = world.add_client(liar);
    world.send_request(client, &[b"INCR", b"key"]);
    world.run_until("it finds them", |world| error(world, liar).contains("registered sessions"))?;
    assert_eq!(boot(&world, liar), first);
    world.nodes[liar].was_set_back = false;
    world.kill_now(liar);
    world.start_now(liar);
    world.run_for(1_000)?;
    assert_eq!((incarnation(&world, liar), boot(&world, liar)), (Incarnation(1), first + 1));
    world.run_until_settled()?;
    write(&mut world, liar, 2)
}

/// Returns a group that grew from one node, and a copy of the folder of that node from the time
/// when it was alone.
fn grown(seed: u64) -> Result<(World, MemoryDisk), Violation> {
    let mut settings = RunSettings::without_faults(seed, 1, Class::Durable);
    settings.spare_node_count = 2;
    let mut world = World::with_leader(settings)?;
    write(&mut world, 0, 3)?;
    world.kill_now(0);
    let copy = world.nodes[0].disk.copy();
    world.run_for(1_000)?;
    world.start_now(0);
    for nonce in [2, 3] {
        let peer = format!("n{nonce}:1");
        let join = GroupRequest::Join { nonce, node: None, peer, role: MemberRole::Voter };
        world.wait_for_leader()?;
        while world.ask_group(0, join.clone())?.is_err() {}
        let promote = GroupRequest::Promote(id(nonce as usize - 1));
        while world.ask_group(0, promote.clone())?.is_err() {}
    }
    let voters = |world: &World| world.configuration().map_or(0, |all| all.members().len());
    world.run_until("it has grown", |world| voters(world) == NODES)?;
    world.run_until_settled()?;
    write(&mut world, 1, 5)?;
    Ok((world, copy))
}

/// [lie-3] [lie-5] [lie-6] The old folder of a founder knows no other node, so the founder is a
/// quorum by itself. It waits for other nodes to connect. Either these report the loss, or they
/// remember nothing, and the founder learns from them, even if they have no leader yet.
#[test]
fn a_founder_whose_folder_goes_back_does_not_lead_alone() -> Outcome {
    for seed in 41..53 {
        let remembers = seed % 4 == 1;
        let (mut world, copy) = grown(seed)?;
        world.kill_now(0);
        world.run_until("another leads", |world| {
            world.majority_leader().is_some_and(|node| node > 0)
        })?;
        write(&mut world, 1, 5)?;
        if !remembers {
            for node in [1, 2] {
                world.kill_now(node);
                world.start_now(node);
            }
        }
        world.restore_folder(0, &copy);
        world.start_now(0);
        world.run_for(1_000)?;
        let client = world.add_client(0);
        world.send_request(client, &[b"INCR", b"key"]);
        let begun = world.now;
        while world.now.since_us(begun) < 1_000_000 {
            world.step_event()?;
            let running = world.nodes[0].running.as_ref();
            let leads = running.is_some_and(|node| node.replica().node().role() == Role::Leader);
            assert!(!leads, "remembers {remembers}");
        }
        if remembers {
            is_reminded(&mut world, 0)?;
        }
        write(&mut world, 1, 1)?;
    }
    Ok(())
}

/// [lie-6] A node that really is alone waits no longer than another node could take to connect.
#[test]
fn a_group_of_one_leads_again_soon() -> Outcome {
    let mut world = World::new_calm(43, 1, Class::Durable)?;
    let leads = |world: &World| world.majority_leader() == Some(0);
    let began = world.now;
    assert!(began.0 < 150_000, "at its first start at once: {began:?}");
    world.kill_now(0);
    world.start_now(0);
    world.run_until("it leads", leads)?;
    let took_us = world.now.since_us(began);
    assert!((150_000..300_000).contains(&took_us), "{took_us}");
    Ok(())
}

/// [lie-4] No acknowledged data is lost and the group recovers, even if all other faults occur.
#[test]
fn disks_that_lie_cost_nothing() {
    let mut lies = 0;
    for seed in SEEDS.filter(|seed| RunSettings::draw(*seed).data_loss_interval_us.is_some()) {
        let report = run(seed, STEPS);
        assert!(report.has_no_violation(), "\n{report}\n");
        lies += report.event_counts.data_losses;
    }
    assert!(lies > 20, "{lies} lies");
}
