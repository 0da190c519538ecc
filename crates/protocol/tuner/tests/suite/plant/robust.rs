//! Robustness: changes of the environment, pauses, overload, and a latency goal.

use quorate_tuner::{Parameters, Setting, Settings};

use crate::plant::{
    grid::{self, COARSE, Fixed},
    outcome::{convergence_ns, settled},
    plant::Plant,
    scenario::{Demand, Scenario},
    tuned::Tuned,
};

fn tuned(scenario: &Scenario) -> Plant<Tuned> {
    Plant::new(scenario, Tuned::new(Settings::new(scenario.nodes)))
}

fn quiet(
    name: &str,
    round_trip_ms: f64,
    mbit: f64,
    flush_ms: f64,
    size: u32,
    outstanding: u32,
) -> Scenario {
    Scenario::new(name, round_trip_ms, mbit, flush_ms, size, outstanding)
}

/// After a change of environment, the tuner reaches 90 % of the best throughput there within the
/// time allowed for convergence.
#[test]
fn finds_its_setting_again_after_a_step_change() {
    let any = f64::INFINITY;
    let lan = quiet("lan", 0.1, any, 0.1, 1024, 256);
    let worlds = [
        (lan.clone(), quiet("continent", 30.0, 1_000.0, 0.1, 1024, 256)),
        (quiet("continent", 30.0, 1_000.0, 0.1, 1024, 256), lan.clone()),
        (lan.clone(), quiet("a slower disk", 0.1, any, 8.0, 1024, 256)),
        (quiet("few", 40.0, 100.0, 0.5, 1024, 8), quiet("many", 40.0, 100.0, 0.5, 1024, 800)),
        (
            quiet("100 Mbit/s", 20.0, 100.0, 0.5, 4096, 400),
            quiet("20 Mbit/s", 20.0, 20.0, 0.5, 4096, 400),
        ),
        (
            quiet("20 Mbit/s", 20.0, 20.0, 0.5, 4096, 400),
            quiet("100 Mbit/s", 20.0, 100.0, 0.5, 4096, 400),
        ),
    ];
    let mut wrong = Vec::new();
    for (before, after) in worlds {
        let best = grid::measure(&after, &COARSE).best().1;
        let mut plant = tuned(&before);
        plant.run(4_000_000_000, u64::MAX);
        plant.change(&after);
        let converged = plant.now + convergence_ns(&after);
        plant.run(converged, u64::MAX);
        let reached = settled(&mut plant) / best;
        println!(
            "{} -> {}: {:.1} %, {}",
            before.name,
            after.name,
            reached * 100.0,
            plant.policy.tuner.setting()
        );
        if reached < STEP_LEAST {
            wrong.push(format!("{} -> {}: {:.1} %", before.name, after.name, reached * 100.0));
        }
    }
    assert!(wrong.is_empty(), "{wrong:?}");
}

const STEP_LEAST: f64 = 0.90;

/// The load changes from one command at a time, where the smallest setting is as good as any, to
/// many commands. The small setting does not let more of them through, so only the waiting commands
/// show that it is wrong.
#[test]
fn a_crowd_finds_room() {
    let any = f64::INFINITY;
    for after in [quiet("many", 0.1, any, 0.1, 1024, 1_000), quiet("more", 0.01, any, 0.0, 64, 256)]
    {
        let before = Scenario { demand: Demand::Closed(1), ..after.clone() };
        let best = grid::measure(&after, &COARSE).best().1;
        let mut settings = Settings::new(3);
        settings.start = Setting { batch_bytes: 1 << 10, window: 1 };
        let mut plant = Plant::new(&before, Tuned::new(settings));
        plant.run(500_000_000, u64::MAX);
        plant.change(&after);
        plant.run(600_000_000, u64::MAX);
        let to = plant.now + 500_000_000;
        let reached = plant.run(to, u64::MAX).throughput() / best;
        println!("{}: {reached:.2} at {}", after.name, plant.policy.tuner.setting());
        assert!(reached > 0.75, "{}: {reached:.2}", after.name);
    }
}

/// Under an open load of up to four times the maximum of any fixed setting, throughput stays within
/// 5 % of that maximum, and the waiting commands are bounded.
#[test]
fn throughput_does_not_fall_under_overload() {
    let any = f64::INFINITY;
    for scenario in [
        quiet("lan 64B", 0.1, any, 0.1, 64, 40_000),
        quiet("lan 1K", 0.1, any, 0.1, 1024, 40_000),
        quiet("disk", 0.2, 1_000.0, 8.0, 256, 40_000),
        quiet("wan", 50.0, 10.0, 0.1, 1024, 4_000),
    ] {
        let most = grid::measure(&scenario, &COARSE).best().1;
        for times in [1.2, 2.0, 4.0] {
            let offered = scenario.clone().demand(Demand::Open(most * times));
            let mut plant = tuned(&offered);
            plant.run(8_000_000_000, u64::MAX);
            let to = plant.now + 3_000_000_000;
            let reached = plant.run(to, u64::MAX).throughput() / most;
            let setting = plant.policy.tuner.setting();
            println!("{} x {times}: {reached:.3} of {most:.0}/s at {setting}", scenario.name);
            assert!(reached >= 0.95, "{} x {times}: {reached:.3} at {setting}", scenario.name);
            assert!(plant.most_waiting_bytes <= 35 << 20, "memory is bounded");
        }
    }
}

/// Under an open load that the machine handles easily, there is nothing to gain, so the search must
/// not make many commands wait long. Under the default setting, hardly any command waits long.
#[test]
fn a_load_with_room_to_spare_is_not_disturbed() {
    let any = f64::INFINITY;
    let mut wrong = Vec::new();
    for scenario in [
        quiet("lan 64B", 0.1, any, 0.1, 64, 1_000),
        quiet("loopback 64B", 0.01, any, 0.0, 64, 256),
        quiet("lan 1K", 0.1, any, 0.1, 1024, 1_000),
        quiet("nvme", 0.2, 10_000.0, 1.0, 256, 1_000),
        quiet("metro", 2.0, 1_000.0, 0.1, 256, 4_000),
    ] {
        let most = grid::measure(&scenario, &COARSE).best().1;
        for part in [0.05, 0.2, 0.5] {
            let offered = scenario.clone().demand(Demand::Open(most * part));
            let p99 = |mut plant: Plant<Tuned>, pause_ns| {
                plant.run(1_000_000_000, u64::MAX);
                let mut measured = plant.run(plant.now, u64::MAX);
                for _ in 0..25 {
                    // Another process needs the processor.
                    plant.pause(pause_ns);
                    let to = plant.now + 200_000_000;
                    measured.add(plant.run(to, u64::MAX));
                }
                assert!(measured.throughput() > most * part * 0.97);
                (measured.latency_ms(0.99), plant)
            };
            let mut settings = Settings::new(3);
            settings.fixed = true;
            for pause_ns in [1_000, 4_000_000] {
                let (fixed, _) = p99(Plant::new(&offered, Tuned::new(settings)), pause_ns);
                let (found, plant) = p99(tuned(&offered), pause_ns);
                let line = format!(
                    "{} x {part}, pauses of {pause_ns} ns: {found:.2} ms, default {fixed:.2} ms, \
                     {} moves to {}",
                    scenario.name,
                    plant.policy.tuner.permanent_changes(),
                    plant.policy.tuner.setting()
                );
                println!("{line}");
                if found > fixed * 2.0 {
                    wrong.push(line);
                }
            }
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
}

/// Returns the estimates right after each of thirty disturbances, while samples of the disturbance
/// would be fresh. Disturbances are as frequent as for a process with a share of one processor,
/// because one outlier in every dozen samples would not stand out.
fn estimated(disturb: impl Fn(&mut Plant<Tuned>, u64)) -> Vec<Parameters> {
    let scenario = quiet("pauses", 2.0, f64::INFINITY, 1.0, 1024, 100);
    let mut settings = Settings::new(3);
    settings.fixed = true;
    let mut plant = Plant::new(&scenario, Tuned::new(settings));
    plant.run(1_000_000_000, u64::MAX);
    let behind = |number| {
        disturb(&mut plant, number);
        // The run covers the longest pause and a few turns.
        let to = plant.now + pause_ns(number) + 12_000_000;
        plant.run(to, u64::MAX);
        let seen = plant.policy.tuner.parameters();
        let to = plant.now + 20_000_000;
        plant.run(to, u64::MAX);
        seen
    };
    (0..30).map(behind).collect()
}

/// Checks the estimates first, because merely detecting a disturbance is worth nothing.
fn assert_like_undisturbed(disturbed: &[Parameters], least_stalls: u64) {
    let calm = estimated(|_, _| {});
    for (number, (calm, seen)) in calm.iter().zip(disturbed).enumerate() {
        // After a pause, turns are larger and may cost more or less per command, which is
        // legitimate.
        for (name, most, calm, seen) in [
            ("round trip", 0.25, calm.round_trip_ns, seen.round_trip_ns),
            ("flush", 0.25, calm.flush_ns, seen.flush_ns),
            ("wall", 0.25, calm.batch_duration_ns, seen.batch_duration_ns),
            ("command", 0.5, calm.command_ns, seen.command_ns),
            ("batch", 0.5, calm.batch_ns, seen.batch_ns),
            ("size", 0.25, calm.command_bytes, seen.command_bytes),
        ] {
            let ratio = seen.zip(calm).map(|(seen, calm)| seen.value / calm.value);
            assert!(
                ratio.is_some_and(|ratio| (ratio - 1.0).abs() < most),
                "{number}, {name}: {calm:?} became {seen:?}"
            );
        }
    }
    let stalls = disturbed.last().map_or(0, |seen| seen.interruptions);
    assert!(stalls >= least_stalls, "{stalls} were noticed");
}

const fn pause_ns(number: u64) -> u64 {
    100_000_000 + 40_000_000 * (number % 7)
}

/// Pauses of any length change neither the estimates nor the setting for the worse. Without the
/// guard, the minimum and the slopes would survive, but the flush, the batch duration and the
/// processor times would not.
#[test]
fn paused_process_does_not_poison_the_estimates() {
    let between_turns = estimated(|plant, number| plant.pause(pause_ns(number)));
    assert_like_undisturbed(&between_turns, 25);
}

#[test]
fn turn_that_is_interrupted_does_not_poison_the_estimates() {
    let within_turns = estimated(|plant, number| {
        plant.policy.interrupt(pause_ns(number).cast_signed());
    });
    assert_like_undisturbed(&within_turns, 25);
}

/// The clock steps an hour forward, an hour back, or a second in either direction, as in a migrated
/// virtual machine or when it is set by hand.
#[test]
fn stepped_clock_does_not_poison_the_estimates() {
    const SECOND: i64 = 1_000_000_000;
    let stepped = estimated(|plant, number| {
        let step = [3600 * SECOND, -3600 * SECOND, SECOND, -SECOND][number as usize % 4];
        plant.policy.step_clock(step);
    });
    assert_like_undisturbed(&stepped, 25);
}

/// Pauses do not lead the controller to a bad setting.
#[test]
fn paused_process_does_not_lead_the_controller_astray() {
    let scenario = quiet("pauses", 2.0, f64::INFINITY, 1.0, 1024, 100);
    let best = grid::measure(&scenario, &COARSE).best().1;
    let mut plant = tuned(&scenario);
    for number in 0..30 {
        let to = plant.now + 200_000_000;
        plant.run(to, u64::MAX);
        plant.pause(100_000_000 + 40_000_000 * (number % 7));
    }
    plant.run(plant.now + 500_000_000, u64::MAX);
    let to = plant.now + 2_000_000_000;
    let after = plant.run(to, u64::MAX).throughput();
    assert!(after > best * 0.9, "{after:.0} of {best:.0}");
}

/// On the paper's thin link a wide window of large batches collapses, so the window must shrink
/// from any start.
#[test]
fn window_shrinks_where_it_is_too_wide() {
    let scenario = quiet("thin", 100.0, 10.0, 0.1, 1024, 1000).buffer(900e3);
    let best = grid::measure(&scenario, &COARSE).best().1;
    let mut settings = Settings::new(3);
    settings.start = Setting { batch_bytes: 64 << 10, window: 64 };
    let mut fixed = Plant::new(&scenario, Fixed(64 << 10, 64));
    fixed.run(4_000_000_000, u64::MAX);
    let collapsed = fixed.run(14_000_000_000, u64::MAX).throughput();
    assert!(collapsed < best * 0.6, "{collapsed:.0} of {best:.0}: no collapse");
    let mut plant = Plant::new(&scenario, Tuned::new(settings));
    plant.run(10_000_000_000, u64::MAX);
    let reached = settled(&mut plant);
    let setting = plant.policy.tuner.setting();
    assert!(reached > best * 0.9, "{reached:.0} of {best:.0} at {setting}");
    assert!(setting.batch_bytes * setting.window <= 600 << 10, "{setting}");
}

/// The latency goal is met, and not by a needlessly small batch.
#[test]
fn latency_goal_is_met_if_it_can_be() {
    let scenario = quiet("goal", 0.1, 400.0, 0.1, 4096, 0).demand(Demand::Open(4_000.0));
    let mut settings = Settings::new(3);
    settings.latency_goal_ns = Some(5_000_000);
    let mut plant = Plant::new(&scenario, Tuned::new(settings));
    plant.run(3_000_000_000, u64::MAX);
    let measured = plant.run(6_000_000_000, u64::MAX);
    let p99 = measured.latency_ms(0.99);
    assert!(p99 <= 5.0, "{p99} ms at {}", plant.policy.tuner.setting());
    assert!(measured.throughput() > 4_000.0 * 0.97);
    assert!(plant.policy.tuner.setting().batch_bytes >= 64 << 10);
    // The load demands no more than that, so an apparent gain of an epoch is chance.
    let moves = plant.policy.tuner.permanent_changes();
    assert!(moves <= 12, "{moves} moves");
}

/// With `--tune off` the setting never changes, whatever is measured, and estimates continue.
#[test]
fn fixed_setting_is_never_touched() {
    let scenario = quiet("off", 0.1, f64::INFINITY, 0.1, 1024, 256);
    let mut settings = Settings::new(3);
    settings.fixed = true;
    settings.start.window = 3;
    let mut plant = Plant::new(&scenario, Tuned::new(settings));
    plant.run(1_000_000_000, u64::MAX);
    assert!(plant.policy.changes.is_empty());
    assert_eq!(plant.policy.tuner.setting(), settings.start);
    assert_eq!(plant.most_in_flight, 3);
    let known = plant.policy.tuner.parameters();
    assert!(known.round_trip_ns.is_some() && known.flush_ns.is_some());
    assert!(!plant.policy.tuner.report().grid_predictions.is_empty());
}

/// Estimates are close to the plant's parameters, or unknown.
#[test]
fn estimates_are_near_the_truth_or_not_known() {
    let scenario = quiet("known", 20.0, 50.0, 2.0, 1024, 800);
    let mut plant = tuned(&scenario);
    plant.run(4_000_000_000, u64::MAX);
    let known = plant.policy.tuner.parameters();
    let round_trip = known.round_trip_ns.unwrap().value / 1e6;
    assert!((19.0..24.0).contains(&round_trip), "{round_trip} ms");
    let flush = known.flush_ns.unwrap().value / 1e6;
    assert!((1.7..3.0).contains(&flush), "{flush} ms");
    let mbit = known.channel_bytes_per_s.unwrap().value * 8.0 / 1e6;
    assert!((40.0..60.0).contains(&mbit), "{mbit} Mbit/s");
    // A link without a limit is never the bottleneck, so no binding limit may be estimated.
    let scenario = quiet("no limit", 20.0, f64::INFINITY, 2.0, 1024, 20);
    let mut plant = tuned(&scenario);
    plant.run(4_000_000_000, u64::MAX);
    assert_eq!(plant.policy.tuner.parameters().channel_bytes_per_s, None);
}
