//! Group clock and deadlines while wall clocks are wrong. Keys expire on time, and all nodes agree
//! ([time-1] to [time-4]).

use quorate_core::record::Class;
use quorate_sim::{
    check::Violation, dice::Dice, faults::RunSettings, resp::Reply, workload::streams::StreamLoad,
    world::World,
};

type Outcome = Result<(), Violation>;

const NODES: usize = 3;
const HOUR_MS: i64 = 3_600_000;
/// Tolerance for early expiry, in µs. [time-3] Nodes know the group's clock only as precisely as
/// the leader's messages arrive, and the clock is slewed. The tolerance is half a percent of the
/// longest checked lifetime, 10 s.
const EARLY_US: u64 = 50_000;
/// Longest delay, in µs, until a due deadline is proposed, decided and applied, including
/// elections.
const LATE_US: u64 = 3_000_000;

/// A key with a deadline, as known to its client, in world time.
struct DeadlineKey {
    key: String,
    /// Times at which the SET command was sent and answered.
    set: (u64, u64),
    lives_us: u64,
    /// Set if a read found the key missing.
    is_gone: bool,
}

/// Checker of deadlines: a key does not expire too early or too late, and never returns after its
/// expiry.
#[derive(Default)]
struct Deadlines {
    keys: Vec<DeadlineKey>,
    missed: usize,
    found: usize,
}

impl Deadlines {
    fn set(&mut self, world: &mut World, node: usize, lives_ms: u64) -> Outcome {
        let key = format!("k{}", self.keys.len());
        let from = world.now.0;
        let answer = world.run_command(node, &format!("SET {key} v PX {lives_ms}"))?;
        assert_eq!(answer, Reply::Simple("OK".into()));
        self.keys.push(DeadlineKey {
            key,
            set: (from, world.now.0),
            lives_us: lives_ms * 1000,
            is_gone: false,
        });
        Ok(())
    }

    fn look(&mut self, world: &mut World, node: usize) -> Outcome {
        let seed = world.settings.seed;
        for held in &mut self.keys {
            let asked = world.now.0;
            let found = match world.run_command(node, &format!("GET {}", held.key))? {
                Reply::Bulk(value) => value.is_some(),
                other => panic!("seed {seed}: {other:?}"),
            };
            let (key, (from, to)) = (&held.key, held.set);
            assert!(!(found && held.is_gone), "seed {seed}: {key} came back at node {node}");
            let latest = to + held.lives_us + LATE_US;
            assert!(!found || asked <= latest, "seed {seed}: {key} lives on, {asked} {latest}");
            let earliest = from + held.lives_us - EARLY_US;
            assert!(
                found || world.now.0 >= earliest,
                "seed {seed}: {key} ended early, {asked} {earliest}"
            );
            held.is_gone |= !found;
            self.found += usize::from(found);
            self.missed += usize::from(!found);
        }
        Ok(())
    }
}

/// Returns the group's time at `node`; 0 if the node is down.
fn group_ms(world: &World, node: usize) -> u64 {
    let running = world.nodes[node].running.as_ref();
    running.map_or(0, |running| running.replica().group_time_ms())
}

/// A single clock that is wrong by seconds or hours, the leader's or another node's, neither
/// shortens nor prolongs any lifetime, even across leader changes. Most lifetimes are shorter than
/// the largest differences between the clocks.
#[test]
fn one_wrong_clock_at_a_time_shortens_and_prolongs_nothing() -> Outcome {
    let (mut missed, mut found) = (0, 0);
    for seed in 0..24 {
        let mut world = World::new_calm(seed, NODES, Class::Durable)?;
        let mut dice = Dice::new(seed);
        let mut wrong = world.wait_for_leader()?;
        world.run_for(1_000_000)?;
        let off = [2 * HOUR_MS, -2 * HOUR_MS, 10_000, -10_000, 4_500, -4_500];
        let mut deadlines = Deadlines::default();
        let mut highest = [0; NODES];
        for round in 0..12 {
            if dice.chance(1, 2) {
                world.nodes[wrong].clock.clear_wall_offset();
                wrong = dice.index(NODES);
                world.nodes[wrong].clock.set_wall_offset(off[dice.index(off.len())]);
            }
            for node in 0..NODES {
                deadlines.set(&mut world, node, 1000 + dice.below(9000))?;
            }
            let leader = world.wait_for_leader()?;
            match dice.below(3) {
                0 => {
                    world.kill_now(leader);
                    world.run_for(500_000)?;
                    deadlines.look(&mut world, (leader + 1) % NODES)?;
                    world.start_now(leader);
                    highest[leader] = 0;
                }
                1 => world.transfer_now(leader, (leader + 1) % NODES),
                _ => {}
            }
            world.run_for(1_000_000)?;
            world.wait_for_leader()?;
            deadlines.look(&mut world, round % NODES)?;
            for (node, highest) in highest.iter_mut().enumerate() {
                let time = group_ms(&world, node);
                assert!(time >= *highest, "seed {seed}: time goes back at node {node}");
                *highest = time;
            }
        }
        world.run_for(15_000_000)?;
        deadlines.look(&mut world, wrong)?;
        assert!(deadlines.keys.iter().all(|held| held.is_gone), "seed {seed}");
        missed += deadlines.missed;
        found += deadlines.found;
        world.run_until_settled()?;
    }
    assert!(missed > 500 && found > 500, "{missed} {found}");
    Ok(())
}

/// When all clocks jump by the same amount, no deadline is early or late, because the next leader
/// continues from the group's clock.
#[test]
fn clocks_that_jump_together_end_nothing_early_or_late() -> Outcome {
    for (seed, off) in [-60_000, 20_000, 2 * HOUR_MS].into_iter().enumerate() {
        let mut world = World::new_calm(seed as u64, NODES, Class::Durable)?;
        let leader = world.wait_for_leader()?;
        let mut deadlines = Deadlines::default();
        for jumps in [false, true] {
            for node in 0..NODES {
                if jumps {
                    world.nodes[node].clock.set_wall_offset(off);
                }
                deadlines.set(&mut world, node, 6_000)?;
            }
        }
        world.run_for(2_000_000)?;
        world.transfer_now(leader, (leader + 1) % NODES);
        for _ in 0..8 {
            world.run_for(900_000)?;
            deadlines.look(&mut world, 0)?;
        }
        assert!(deadlines.missed > 6 && deadlines.found > 12, "{off}");
    }
    Ok(())
}

/// One clock is wrong, and is corrected unnoticed while another one becomes wrong. The two clocks
/// were never wrong at the same time, so their agreement does not count as a majority.
#[test]
fn words_of_clocks_that_were_wrong_one_after_the_other_are_no_majority() -> Outcome {
    let mut world = World::new_calm(8, NODES, Class::Durable)?;
    let leader = world.wait_for_leader()?;
    let (other, absent) = ((leader + 1) % NODES, (leader + 2) % NODES);
    world.run_command(leader, "SET long 1 EX 1800")?;
    let lives = |world: &mut World| -> Outcome {
        assert_eq!(world.wait_for_leader()?, leader);
        assert_eq!(world.run_command(leader, "EXISTS long")?, Reply::Integer(1));
        Ok(())
    };
    for _ in 0..3 {
        world.nodes[other].clock.set_wall_offset(2 * HOUR_MS);
        world.run_for(3_000_000)?;
        world.nodes[other].clock.clear_wall_offset();
        world.nodes[leader].clock.set_wall_offset(2 * HOUR_MS);
        world.run_for(3_000_000)?;
        world.nodes[leader].clock.clear_wall_offset();
        lives(&mut world)?;
    }
    // The next clock is corrected while its node is down, and a node that was away returns with a
    // wrong clock.
    world.nodes[other].clock.set_wall_offset(2 * HOUR_MS);
    world.kill_now(absent);
    world.run_for(65_000_000)?;
    world.kill_now(other);
    world.nodes[other].clock.clear_wall_offset();
    world.nodes[absent].clock.set_wall_offset(2 * HOUR_MS);
    world.start_now(absent);
    world.run_for(10_000_000)?;
    lives(&mut world)?;
    world.start_now(other);
    world.run_for(10_000_000)?;
    lives(&mut world)
}

/// [time-4] A process that has just started and is cut off knows only its wall clock, so deadlines
/// wait until it knows the group's clock.
#[test]
fn a_deadline_waits_until_the_groups_clock_is_known() -> Outcome {
    let mut world = World::new_calm(9, NODES, Class::Durable)?;
    let node = (world.wait_for_leader()? + 1) % NODES;
    world.run_for(1_000_000)?;
    world.kill_now(node);
    world.nodes[node].clock.set_wall_offset(-10_000);
    world.set_isolated(node, true);
    world.start_now(node);
    world.run_for(500_000)?;
    let client = world.add_client(node);
    world.send_request(client, &[b"SET", b"lock", b"a", b"NX", b"PX", b"4000"]);
    world.run_for(500_000)?;
    world.set_isolated(node, false);
    assert_eq!(world.wait_for_reply(client)?, Some(Reply::Simple("OK".into())));
    world.run_for(3_500_000)?;
    assert_eq!(world.run_command(node, "EXISTS lock")?, Reply::Integer(1));
    world.run_for(700_000)?;
    assert_eq!(world.run_command(node, "EXISTS lock")?, Reply::Integer(0));
    Ok(())
}

/// A node whose clock is wrong is reported, by the leader and by itself, until the clock is
/// corrected, regardless of what clients do.
#[test]
fn whose_clock_is_off_is_said() -> Outcome {
    let mut settings = RunSettings::without_faults(5, NODES, Class::Durable);
    settings.stream_load = Some(StreamLoad {
        writer_count: 4,
        reader_count: 2,
        write_bytes_max: 100,
        writer_bytes_max: u64::MAX,
        ..StreamLoad::scripted_only()
    });
    let mut world = World::with_leader(settings)?;
    let leader = world.wait_for_leader()?;
    let wrong = (leader + 1) % NODES;
    world.nodes[wrong].clock.set_wall_offset(90_000);
    world.run_for(5_000_000)?;
    let notices = |world: &World, node: usize| -> Vec<String> {
        let running = world.nodes[node].running.as_ref().expect("it runs");
        let status = running.replica().status(world.nodes[node].monotonic_time(world.now));
        let clocks = status.notices.into_iter().filter(|notice| notice.starts_with("clock"));
        clocks.collect()
    };
    for node in [leader, wrong] {
        let said = notices(&world, node);
        assert!(said.len() == 1 && said[0].contains("90.0 s ahead"), "{said:?}");
        assert!(said[0].contains(&format!("node {}", wrong + 1)), "{said:?}");
    }
    assert!(notices(&world, (leader + 2) % NODES).is_empty());
    world.nodes[wrong].clock.clear_wall_offset();
    world.run_for(5_000_000)?;
    for node in 0..NODES {
        assert!(notices(&world, node).is_empty());
    }
    Ok(())
}

/// [time-1] A group with no deadline due writes nothing.
#[test]
fn nothing_is_written_while_nothing_is_due() -> Outcome {
    let mut world = World::new_calm(6, NODES, Class::Durable)?;
    world.run_command(0, "SET a 1 EX 30")?;
    world.run_command(0, "SET b 1")?;
    world.run_for(1_000_000)?;
    let decided = |world: &World| {
        let running = world.nodes[0].running.as_ref().expect("it runs");
        running.replica().node().decided_to()
    };
    let before = decided(&world);
    world.run_for(20_000_000)?;
    assert_eq!(decided(&world), before);
    world.run_for(20_000_000)?;
    let after = decided(&world);
    assert!(after.0 - before.0 <= 4, "time, and a removal: {before} {after}");
    world.run_for(60_000_000)?;
    assert_eq!(decided(&world), after);
    Ok(())
}
