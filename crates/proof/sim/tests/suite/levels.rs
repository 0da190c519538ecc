//! Clusters with two releases, which are upgraded and downgraded under all kinds of faults
//! ([level-3] to [level-8]).

use quorate_core::{level::Level, record::Class};
use quorate_replica::group::asking::{GroupAnswer, GroupRequest};
use quorate_sim::{
    check::Violation,
    faults::{ReleaseChanges, RunSettings},
    run_settings,
    world::{EventCounts, World},
};

type Outcome = Result<(), Violation>;

const SEEDS: std::ops::RangeInclusive<u64> = 1..=60;
const STEPS: u64 = 20_000;

/// Returns the seed's settings with releases added.
fn settings(seed: u64) -> RunSettings {
    let drawn = RunSettings::draw(seed);
    RunSettings {
        release_changes: Some(ReleaseChanges::draw(seed, drawn.founding_member_count)),
        ..drawn
    }
}

#[test]
fn releases_change_under_faults_and_nobody_uses_what_others_do_not_know() {
    let mut all = EventCounts::default();
    for seed in SEEDS {
        let report = run_settings(settings(seed), STEPS);
        assert!(report.has_no_violation(), "\n{report}\n");
        let EventCounts {
            releases_installed: installed,
            releases_too_old: too_old,
            level_raises: raised,
            ..
        } = report.event_counts;
        all.releases_installed += installed;
        all.releases_too_old += too_old;
        all.level_raises += raised;
    }
    assert!(all.releases_installed > 200, "{all:?}");
    // The scenarios below certainly cause both events.
    assert!(all.level_raises > 5 && all.releases_too_old > 0, "{all:?}");
}

fn level(world: &World, node: usize) -> Option<Level> {
    let running = world.nodes[node].running.as_ref()?;
    Some(running.replica().level())
}

/// Returns a cluster on the oldest release, whose level is not raised automatically for a long
/// time.
fn old(seed: u64) -> Result<World, Violation> {
    founded(seed, 0)
}

/// Returns such a cluster of which these founders, as bits, begin on the newest release.
fn founded(seed: u64, founders_newest: u64) -> Result<World, Violation> {
    let releases = ReleaseChanges {
        install_interval_us: 1 << 50,
        oldest_one_in: 2,
        oldest_only_node: None,
        raise_delay_ms: 3_600_000,
        newest_at_start: founders_newest,
    };
    World::with_leader(RunSettings {
        release_changes: Some(releases),
        ..RunSettings::without_faults(seed, 3, Class::Durable)
    })
}

fn upgrade(world: &mut World, node: usize, release: Level) -> Outcome {
    world.install_release(node, release);
    world.run_until("it runs the other release", |world| {
        let process = &world.nodes[node];
        process.running.is_some() && process.running_release == release
    })?;
    world.run_until("it follows", |world| {
        let replica = world.nodes[node].running.as_ref().map(|running| running.replica());
        replica.is_some_and(|replica| replica.node().leader().is_some())
            && world.majority_leader().is_some()
    })
}

/// Nodes can be upgraded, downgraded and upgraded again until the level is raised, which requires
/// that all of them are upgraded. After that, downgrades fail.
#[test]
fn a_cluster_goes_up_node_by_node_and_back_until_the_level_is_raised() -> Outcome {
    for seed in 0..4 {
        let mut world = old(seed)?;
        for node in 0..3 {
            upgrade(&mut world, node, Level::NEWEST)?;
            if node < 2 {
                let leader = world.wait_for_leader()?;
                let refused = world.ask_group(leader, GroupRequest::Raise)?;
                assert!(refused.is_err() || refused == Ok(GroupAnswer::AlreadyDone), "{refused:?}");
            }
        }
        upgrade(&mut world, 1, Level::BASE)?;
        upgrade(&mut world, 1, Level::NEWEST)?;
        assert!((0..3).all(|node| level(&world, node) == Some(Level::BASE)));
        world.run_until("it is raised", |world| world.majority_leader().is_some())?;
        loop {
            let leader = world.wait_for_leader()?;
            match world.ask_group(leader, GroupRequest::Raise)? {
                // Each request raises the level by one.
                Ok(GroupAnswer::Done) => {}
                Ok(GroupAnswer::AlreadyDone) => break,
                Ok(other) => panic!("{other:?}"),
                // A node has not answered a heartbeat yet.
                Err(refused) => assert_eq!(refused.code, "held_back", "{refused:?}"),
            }
            world.run_for(100_000)?;
        }
        world.run_until("all nodes heard of it", |world| {
            (0..3).all(|node| level(world, node) == Some(Level::NEWEST))
        })?;
        let before = world.counts.releases_too_old;
        world.install_release(2, Level::BASE);
        world.run_until("its folder refuses", |world| world.counts.releases_too_old > before)?;
        world.run_until("it is back in the newest", |world| {
            level(world, 2) == Some(Level::NEWEST)
        })?;
    }
    Ok(())
}

/// [level-11] A cluster whose founders all begin on the newest release uses the newest level at
/// once. If one of them begins on an older release, the level is not raised at once, so that
/// downgrades remain possible.
#[test]
fn a_new_cluster_begins_at_the_newest_level_that_its_founders_know() -> Outcome {
    for seed in 0..4 {
        let mut world = founded(seed, u64::MAX)?;
        world.run_until("the newest level", |world| {
            (0..3).all(|node| level(world, node) == Some(Level::NEWEST))
        })?;
        for older in 0..3 {
            let mut world = founded(seed, !(1 << older))?;
            upgrade(&mut world, older, Level::NEWEST)?;
            world.run_for(5_000_000)?;
            assert!((0..3).all(|node| level(&world, node) == Some(Level::BASE)));
            upgrade(&mut world, older, Level::BASE)?;
        }
    }
    Ok(())
}

/// [level-5] A node that is down prevents an increase of the level, and so does a node that
/// returned with the previous release.
#[test]
fn who_is_away_is_waited_for() -> Outcome {
    let mut world = old(7)?;
    for node in 0..3 {
        upgrade(&mut world, node, Level::NEWEST)?;
    }
    let leader = world.wait_for_leader()?;
    let away = (leader + 1) % 3;
    world.kill_now(away);
    world.run_for(200_000)?;
    let leader = world.wait_for_leader()?;
    let refused = world.ask_group(leader, GroupRequest::Raise)?.unwrap_err();
    assert_eq!(refused.code, "held_back");
    let expected = format!("node {} is not connected", away + 1);
    assert!(refused.message.contains(&expected), "{refused:?}");
    world.nodes[away].installed_release = Level::BASE;
    world.start_now(away);
    world.run_for(300_000)?;
    let leader = world.wait_for_leader()?;
    let refused = world.ask_group(leader, GroupRequest::Raise)?.unwrap_err();
    let expected = format!("node {} runs a release that supports level 8", away + 1);
    assert!(refused.message.contains(&expected), "{refused:?}");
    Ok(())
}
