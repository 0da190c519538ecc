//! A disk that acknowledged the end of a log and lost it: peers remember, and the node comes back
//! as a learner. One that lost nothing never does.

use quorate_core::{effect::Role, node_id::Incarnation, record::Class, slot::Slot};
use quorate_log::disk::Source as _;
use quorate_sim::{check::Violation, faults::Settings, resp::Reply, run, world::World};

type Outcome = Result<(), Violation>;

const NODES: usize = 3;
/// Seeds in which disks lie while everything else goes wrong, too.
const SEEDS: std::ops::RangeInclusive<u64> = 3001..=3600;
const STEPS: u64 = 8_000;

fn incarnation(world: &World, node: usize) -> Incarnation {
    world.nodes[node].member().incarnation
}

fn error(world: &World, node: usize) -> String {
    let running = world.nodes[node].running.as_ref();
    running.and_then(|running| running.replica().error()).unwrap_or_default()
}

/// Writes by way of a node, one after the other.
fn write(world: &mut World, node: usize, count: usize) -> Outcome {
    for _ in 0..count {
        let reply = world.ask(node, "INCR key")?;
        assert!(matches!(reply, Reply::Integer(_)), "{reply:?}");
    }
    Ok(())
}

/// A group that has written, the node of it whose disk may lie, and another one. The former leads,
/// or does not.
fn group(seed: u64, leads: bool) -> Result<(World, usize, usize), Violation> {
    let mut world = World::elected(Settings::calm(seed, NODES, Class::Durable))?;
    let liar = world.forgetful().expect("one of three may forget");
    let other = (liar + 1) % NODES;
    let leader = if leads { liar } else { other };
    if world.wait_for_leader()? != leader {
        world.transfer_now(world.leader().expect("there is one"), leader);
        world.run_until("the other leads", |world| world.leader() == Some(leader))?;
    }
    write(&mut world, other, 20)?;
    Ok((world, liar, other))
}

/// What the others remember of this node's log.
fn remembered(world: &World, node: usize, by: usize) -> u64 {
    let running = world.nodes[by].running.as_ref().expect("it runs");
    running.replica().recall(world.nodes[node].id()).to
}

/// Its disk has lost this log write and all behind it, and what its store could tell of them.
fn forget(world: &mut World, node: usize, from: u64) {
    world.nodes[node].kept_to.set(Slot(0));
    world.forget_from(node, from);
}

/// It starts where nobody can tell it what its disk lost.
fn start_cut_off(world: &mut World, liar: usize) -> Outcome {
    world.nodes[liar].unnoticed = true;
    world.isolate(liar, true);
    world.run_for(1_000)?;
    world.start_now(liar);
    world.run_for(300_000)
}

/// It is connected again, and somebody remembers more.
fn is_told(world: &mut World, liar: usize) -> Outcome {
    world.isolate(liar, false);
    world.run_until("it is told", |world| error(world, liar).contains("remembers"))
}

/// [lie-1] [lie-3] [lie-4] Followers and leaders, one log write or many.
#[test]
fn a_log_without_its_end_is_noticed() -> Outcome {
    for leads in [false, true] {
        for (seed, lost) in (0..).zip([1, 2, 15]) {
            let what = format!("leads {leads}, {lost} lost");
            let (mut world, liar, other) = group(seed, leads)?;
            let to = remembered(&world, liar, other);
            assert!(to > 20, "{what}: {to}");
            world.kill_now(liar);
            forget(&mut world, liar, to - lost + 1);
            world.start_now(liar);
            world.run_for(1_000)?;
            assert_eq!(incarnation(&world, liar), Incarnation(1), "{what}");
            // It gets its weight back by itself.
            world.run_for(3_000_000)?;
            world.settle()?;
            let running = world.nodes[liar].running.as_ref().expect("it runs");
            let role = running.replica().node().role();
            assert!(matches!(role, Role::Follower | Role::Leader), "{what}: {role:?}");
            write(&mut world, liar, 3)?;
        }
    }
    Ok(())
}

/// [lie-2] As long as somebody who heard it runs: it does not have to be the leader of then.
#[test]
fn a_follower_of_the_same_leader_remembers_within_a_second() -> Outcome {
    let (mut world, liar, other) = group(7, false)?;
    let third = (liar + 2) % NODES;
    world.run_for(1_100_000)?;
    let to = remembered(&world, liar, third);
    assert!(to > 20, "{to}");
    world.kill_now(liar);
    world.kill_now(other);
    forget(&mut world, liar, to);
    world.start_now(liar);
    world.run_for(1_000)?;
    assert_eq!(incarnation(&world, liar), Incarnation(1));
    Ok(())
}

/// [lie-1] Crashes, clean stops, and a log that was trimmed: nothing is missing, so nobody is taken
/// for a liar.
#[test]
fn a_log_that_is_whole_is_believed() -> Outcome {
    for (seed, clean) in (20..).zip([false, true]) {
        let mut settings = Settings::calm(seed, NODES, Class::Durable);
        settings.segment_bytes = 32 << 10;
        settings.snapshots.log_bytes_max = 96 << 10;
        let mut world = World::elected(settings)?;
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
            world.settle()?;
        }
        for node in 0..NODES {
            assert_eq!(incarnation(&world, node), Incarnation(0), "clean: {clean}");
            assert_eq!(error(&world, node), "");
        }
    }
    Ok(())
}

/// [lie-5] A node that was cut off when it asked: who remembers says so later, it votes no more,
/// and its folder knows what it is from then on, whoever can be asked.
#[test]
fn a_node_that_was_cut_off_when_it_started_is_told_later() -> Outcome {
    let (mut world, liar, other) = group(31, false)?;
    let to = remembered(&world, liar, other);
    world.kill_now(liar);
    forget(&mut world, liar, to - 4);
    start_cut_off(&mut world, liar)?;
    assert_eq!(incarnation(&world, liar), Incarnation(0), "nobody told it");
    is_told(&mut world, liar)?;
    let running = world.nodes[liar].running.as_ref().expect("it runs");
    assert!(running.replica().error().expect("one").starts_with("the log failed: the disk lost"));
    world.kill_now(liar);
    world.isolate(liar, true);
    world.run_for(1_000)?;
    world.start_now(liar);
    world.run_for(1_000)?;
    assert_eq!(incarnation(&world, liar), Incarnation(1));
    Ok(())
}

/// [lie-5] The whole folder went back, so its process has the number of one that was heard already.
#[test]
fn a_folder_that_went_back_as_a_whole_is_told_later() -> Outcome {
    let (mut world, liar, other) = group(32, false)?;
    world.kill_now(liar);
    let mut files = world.nodes[liar].disk.attach();
    let before = files.kept("identity").expect("readable").expect("there");
    world.run_for(1_000)?;
    world.start_now(liar);
    write(&mut world, other, 20)?;
    world.settle()?;
    let boot = |world: &World| {
        let running = world.nodes[liar].running.as_ref().expect("it runs");
        running.host.identity().boot()
    };
    let (first, to) = (boot(&world), remembered(&world, liar, other));
    world.kill_now(liar);
    world.nodes[liar].disk.put_small("identity", &before);
    forget(&mut world, liar, to - 4);
    start_cut_off(&mut world, liar)?;
    assert_eq!(boot(&world), first);
    is_told(&mut world, liar)
}

/// [lie-4] Whatever else happens meanwhile, nothing that was acknowledged is lost, and the group
/// comes to rest.
#[test]
fn disks_that_lie_cost_nothing() {
    let mut lies = 0;
    for seed in SEEDS.filter(|seed| Settings::draw(*seed).lies_us.is_some()) {
        let report = run(seed, STEPS);
        assert!(report.holds(), "\n{report}\n");
        lies += report.counts.lies;
    }
    assert!(lies > 20, "{lies} lies");
}
