//! The group's time on clocks that are wrong: what ends, when, and whether all nodes say the same
//! ([time-1] to [time-3]).

use quorate_core::record::Class;
use quorate_replica::CLOCK_BOUND_MS;
use quorate_sim::{
    check::Violation, dice::Dice, faults::Settings, resp::Reply, workload::streams::Load,
    world::World,
};

type Outcome = Result<(), Violation>;

const NODES: usize = 3;
const HOUR_MS: i64 = 3_600_000;
/// [time-3] Who takes a command and who says what time it is may each be off by as much as a clock
/// may be.
const OFF_US: u64 = 2 * CLOCK_BOUND_MS * 1000;
/// Until a deadline that is due was proposed, decided and applied; elections included.
const LATE_US: u64 = 3_000_000;

/// A key with a deadline, as who set it knows it: in the world's time.
struct Held {
    key: String,
    /// The command was sent, and answered.
    set: (u64, u64),
    lives_us: u64,
    /// A read, answered at that time, did not find it.
    gone: bool,
}

/// Knows deadlines: a key is neither found too late nor missed too early, and never comes back.
#[derive(Default)]
struct Deadlines {
    keys: Vec<Held>,
    missed: usize,
    found: usize,
}

impl Deadlines {
    fn set(&mut self, world: &mut World, node: usize, lives_ms: u64) -> Outcome {
        let key = format!("k{}", self.keys.len());
        let from = world.now.0;
        let answer = world.ask(node, &format!("SET {key} v PX {lives_ms}"))?;
        assert_eq!(answer, Reply::Simple("OK".into()));
        self.keys.push(Held {
            key,
            set: (from, world.now.0),
            lives_us: lives_ms * 1000,
            gone: false,
        });
        Ok(())
    }

    fn look(&mut self, world: &mut World, node: usize) -> Outcome {
        let seed = world.settings.seed;
        for held in &mut self.keys {
            let asked = world.now.0;
            let found = match world.ask(node, &format!("GET {}", held.key))? {
                Reply::Bulk(value) => value.is_some(),
                other => panic!("seed {seed}: {other:?}"),
            };
            let (key, (from, to)) = (&held.key, held.set);
            assert!(!(found && held.gone), "seed {seed}: {key} came back at node {node}");
            let latest = to + held.lives_us + OFF_US + LATE_US;
            assert!(!found || asked <= latest, "seed {seed}: {key} lives on, {asked} {latest}");
            let earliest = (from + held.lives_us).saturating_sub(OFF_US);
            assert!(
                found || world.now.0 >= earliest,
                "seed {seed}: {key} ended early, {asked} {earliest}"
            );
            held.gone |= !found;
            self.found += usize::from(found);
            self.missed += usize::from(!found);
        }
        Ok(())
    }
}

/// The times of all nodes that run, as far as they have applied the same.
fn group_ms(world: &World, node: usize) -> u64 {
    let running = world.nodes[node].running.as_ref();
    running.map_or(0, |running| running.replica().group_ms())
}

/// One clock is hours ahead or behind, or jumps, the leader's or another's; leaders come and go.
#[test]
fn one_wrong_clock_ends_and_prolongs_nothing_by_more_than_its_bound() -> Outcome {
    let (mut missed, mut found) = (0, 0);
    for seed in 0..24 {
        let mut world = World::calm(seed, NODES, Class::Durable)?;
        let mut dice = Dice::new(seed);
        let leader = world.wait_for_leader()?;
        let wrong = match seed % 3 {
            0 => leader,
            other => (leader + usize::try_from(other).expect("small")) % NODES,
        };
        let off = [2 * HOUR_MS, -2 * HOUR_MS, 20_000, -20_000, 4_000, -4_000];
        world.nodes[wrong].clock.set_off(off[dice.index(off.len())]);
        world.run_for(1_000_000)?;
        let mut deadlines = Deadlines::default();
        let mut highest = [0; NODES];
        for round in 0..8 {
            for node in 0..NODES {
                deadlines.set(&mut world, node, 15_000 + 1000 * dice.below(20))?;
            }
            match dice.below(4) {
                // It jumps to somewhere else.
                0 => world.nodes[wrong].clock.set_off(off[dice.index(off.len())]),
                1 => world.nodes[wrong].clock.set_right(),
                // Another one leads, with a clock of its own.
                2 => {
                    let leader = world.wait_for_leader()?;
                    world.kill_now(leader);
                    world.run_for(2_000_000)?;
                    world.start_now(leader);
                    highest[leader] = 0;
                    world.wait_for_leader()?;
                }
                _ => {}
            }
            world.run_for(5_000_000)?;
            deadlines.look(&mut world, round % NODES)?;
            for (node, highest) in highest.iter_mut().enumerate() {
                let time = group_ms(&world, node);
                assert!(time >= *highest, "seed {seed}: time goes back at node {node}");
                *highest = time;
            }
        }
        world.run_for(60_000_000)?;
        deadlines.look(&mut world, wrong)?;
        assert!(deadlines.keys.iter().all(|held| held.gone), "seed {seed}");
        missed += deadlines.missed;
        found += deadlines.found;
        world.settle()?;
    }
    assert!(missed > 500 && found > 500, "{missed} {found}");
    Ok(())
}

/// While the leader still remembers what another clock showed that was hours ahead, its own is set
/// ahead: two clocks agree then that never were wrong at the same time.
#[test]
fn a_clock_that_was_set_right_is_not_remembered_wrong() -> Outcome {
    let mut world = World::calm(8, NODES, Class::Durable)?;
    let leader = world.wait_for_leader()?;
    let other = (leader + 1) % NODES;
    world.ask(leader, "SET long 1 EX 1800")?;
    for _ in 0..10 {
        world.nodes[other].clock.set_off(2 * HOUR_MS);
        world.run_for(3_000_000)?;
        world.nodes[other].clock.set_right();
        world.nodes[leader].clock.set_off(2 * HOUR_MS);
        world.run_for(3_000_000)?;
        world.nodes[leader].clock.set_right();
        world.run_for(3_000_000)?;
        assert_eq!(world.wait_for_leader()?, leader);
        assert_eq!(world.ask(leader, "EXISTS long")?, Reply::Integer(1));
    }
    Ok(())
}

/// Who is off is named, by the leader and by itself, and is no longer when it is set right;
/// whatever its clients do.
#[test]
fn whose_clock_is_off_is_said() -> Outcome {
    let mut settings = Settings::calm(5, NODES, Class::Durable);
    settings.streams = Some(Load {
        writers: 4,
        readers: 2,
        gift_bytes_max: 100,
        bytes_max: u64::MAX,
        ..Load::scripted()
    });
    let mut world = World::elected(settings)?;
    let leader = world.wait_for_leader()?;
    let wrong = (leader + 1) % NODES;
    world.nodes[wrong].clock.set_off(90_000);
    world.run_for(5_000_000)?;
    let notices = |world: &World, node: usize| -> Vec<String> {
        let running = world.nodes[node].running.as_ref().expect("it runs");
        let status = running.replica().status(world.nodes[node].time(world.now));
        let clocks = status.notices.into_iter().filter(|notice| notice.starts_with("clock"));
        clocks.collect()
    };
    for node in [leader, wrong] {
        let said = notices(&world, node);
        assert!(said.len() == 1 && said[0].contains("90.0 s ahead"), "{said:?}");
        assert!(said[0].contains(&format!("node {}", wrong + 1)), "{said:?}");
    }
    assert!(notices(&world, (leader + 2) % NODES).is_empty());
    world.nodes[wrong].clock.set_right();
    world.run_for(5_000_000)?;
    for node in 0..NODES {
        assert!(notices(&world, node).is_empty());
    }
    Ok(())
}

/// [time-1] A group without anything due writes nothing.
#[test]
fn nothing_is_written_while_nothing_is_due() -> Outcome {
    let mut world = World::calm(6, NODES, Class::Durable)?;
    world.ask(0, "SET a 1 EX 30")?;
    world.ask(0, "SET b 1")?;
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
