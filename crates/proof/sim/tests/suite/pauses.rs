//! Paused nodes: a node that is not scheduled for a while is not dead ([live-5]). Pauses cause no
//! election, and dead nodes are still replaced quickly.

use quorate_core::{ballot::Ballot, record::Class};
use quorate_sim::{check::Violation, dice::Dice, world::World};

type Outcome = Result<(), Violation>;

const NODES: usize = 3;

fn ballot(world: &World, node: usize) -> Ballot {
    let running = world.nodes[node].running.as_ref().expect("it runs");
    running.replica().node().ballot()
}

/// Delays turns of random nodes by up to `most_us`, for `for_us` microseconds.
fn be_late(world: &mut World, dice: &mut Dice, for_us: u64, most_us: u64) -> Outcome {
    let end = world.now.plus_us(for_us);
    while world.now < end {
        world.run_for(dice.between(20_000, 600_000))?;
        let node = dice.index(NODES);
        let stalls = dice.chance(1, 2);
        match stalls {
            true => world.stall_now(node),
            false => world.pause_now(node),
        }
        // A second node may be delayed before the first resumes.
        let also = (node + 1) % NODES;
        let both = dice.chance(1, 4);
        if both {
            world.pause_now(also);
        }
        world.run_for(dice.between(1_000, most_us))?;
        world.resume_now(node);
        if both {
            world.resume_now(also);
        }
    }
    Ok(())
}

/// Returns the time in microseconds until a node other than `gone` leads.
fn without_leader_us(world: &mut World, gone: usize) -> Result<u64, Violation> {
    let began = world.now;
    loop {
        world.run_for(1_000)?;
        if world.majority_leader().is_some_and(|leader| leader != gone) {
            return Ok(world.now.since_us(began));
        }
        assert!(world.now < began.plus_ms(5_000), "no node leads");
    }
}

#[test]
fn late_turns_depose_nobody_and_the_dead_are_replaced_as_fast_as_ever() -> Outcome {
    for seed in 0..12 {
        let mut world = World::new_calm(seed, NODES, Class::Durable)?;
        let mut dice = Dice::new(seed);
        world.wait_for_leader()?;
        // No node knows yet how late nodes can be in this run.
        be_late(&mut world, &mut dice, 20_000_000, 400_000)?;
        let leader = world.wait_for_leader()?;
        let before = ballot(&world, leader);
        be_late(&mut world, &mut dice, 100_000_000, 400_000)?;
        let leads = world.wait_for_leader()?;
        assert_eq!(
            (leads, ballot(&world, leads)),
            (leader, before),
            "seed {seed}: another leader after turns that were late"
        );
        world.kill_now(leader);
        let took_us = without_leader_us(&mut world, leader)?;
        assert!(took_us <= 100_000, "seed {seed}: {took_us} us");
        world.start_now(leader);
        world.run_until_settled()?;
    }
    Ok(())
}

/// A leader that stops for seconds is replaced within half a second each time, because earlier
/// failures do not lengthen the timeout.
#[test]
fn a_leader_that_was_stopped_is_replaced_within_half_a_second_each_time() -> Outcome {
    for seed in 0..8 {
        let mut world = World::new_calm(seed, NODES, Class::Durable)?;
        for _ in 0..4 {
            let leader = world.wait_for_leader()?;
            world.run_for(500_000)?;
            world.pause_now(leader);
            let took_us = without_leader_us(&mut world, leader)?;
            assert!(took_us <= 500_000, "seed {seed}: {took_us} us");
            world.run_for(3_000_000)?;
            world.resume_now(leader);
            world.run_for(1_000_000)?;
        }
        world.run_until_settled()?;
    }
    Ok(())
}

/// [live-5] A paused follower does not blame the leader for heartbeats that it may have missed
/// during the pause.
#[test]
fn who_stood_still_blames_nobody() -> Outcome {
    for seed in 0..8 {
        let mut world = World::new_calm(seed, NODES, Class::Durable)?;
        let leader = world.wait_for_leader()?;
        world.run_for(500_000)?;
        let before = ballot(&world, leader);
        for pause_us in [250_000, 900_000, 4_000_000] {
            for node in (0..NODES).filter(|node| *node != leader) {
                world.pause_now(node);
                world.run_for(pause_us)?;
                world.resume_now(node);
                world.run_for(400_000)?;
            }
        }
        assert_eq!(world.wait_for_leader()?, leader, "seed {seed}");
        assert_eq!(ballot(&world, leader), before, "seed {seed}");
    }
    Ok(())
}

/// [live-5] When a machine pauses with all its nodes, no node has sent any message, and no election
/// follows.
#[test]
fn a_machine_that_stood_still_elects_nobody() -> Outcome {
    for seed in 0..8 {
        let mut world = World::new_calm(seed, NODES, Class::Durable)?;
        let leader = world.wait_for_leader()?;
        world.run_for(500_000)?;
        let before = ballot(&world, leader);
        for node in 0..NODES {
            world.pause_now(node);
        }
        world.run_for(700_000)?;
        // The leader resumes last.
        for node in (0..NODES).filter(|node| *node != leader) {
            world.resume_now(node);
        }
        world.run_for(20_000)?;
        world.resume_now(leader);
        world.run_for(1_000_000)?;
        assert_eq!(world.wait_for_leader()?, leader, "seed {seed}");
        assert_eq!(ballot(&world, leader), before, "seed {seed}");
    }
    Ok(())
}
