//! The tuner against a plant: a cluster in virtual time that follows laws of its own.

mod dice;
mod grid;
mod laws;
mod plant;
mod scenario;
mod tuned;

use quorate_tuner::Settings;

use crate::{grid::Fixed, plant::Plant, scenario::Scenario, tuned::Tuned};

#[test]
#[ignore = "prints the landscape of every scenario"]
fn landscapes() {
    for scenario in scenario::chosen().into_iter().chain(scenario::drawn(7, 23)) {
        let started = std::time::Instant::now();
        let grid = grid::measure(&scenario, &grid::COARSE);
        println!("{}   ({:?})", scenario.name, started.elapsed());
        grid.print();
    }
}

/// How long it may take to find its setting: 2 s, or 20 round trips.
fn convergence_ns(scenario: &Scenario) -> u64 {
    2_000_000_000.max((scenario.round_trip_ms * 20e6) as u64)
}

struct Outcome {
    best: (Fixed, f64),
    default: f64,
    early: f64,
    late: f64,
    plant: Plant<Tuned>,
}

fn tune(scenario: &Scenario) -> Outcome {
    let best = grid::measure(scenario, &grid::COARSE).best();
    let settings = Settings::new(scenario.nodes);
    let mut plant = Plant::new(scenario, Tuned::new(settings));
    let converged = convergence_ns(scenario);
    let early = plant.run(converged, u64::MAX);
    // At least 2 s; up to 20 s where there is little to count.
    let mut late = plant.run(converged + 2_000_000_000, u64::MAX);
    if late.batches < 1_500 {
        late.add(plant.run(converged + 20_000_000_000, 1_500 - late.batches));
    }
    let mut fixed = Plant::new(scenario, grid::DEFAULT);
    let default = fixed.run(converged, u64::MAX).throughput();
    Outcome {
        best,
        default: early.throughput() / default,
        early: early.throughput() / best.1,
        late: late.throughput() / best.1,
        plant,
    }
}

#[test]
#[ignore = "prints what the controller reaches in every scenario"]
fn outcomes() {
    let only = std::env::var("ONLY").unwrap_or_default();
    let mut below = 0;
    let seed = std::env::var("SEED").map_or(7, |seed| seed.parse().unwrap());
    for scenario in scenario::chosen().into_iter().chain(scenario::drawn(seed, 23)) {
        if !scenario.name.contains(&only) {
            continue;
        }
        let started = std::time::Instant::now();
        let outcome = tune(&scenario);
        let policy = &outcome.plant.policy;
        below += usize::from(outcome.late < 0.95);
        println!(
            "{} {:5.1} % late {:5.1} % early, {:5.1} % of default; {:?} best {:?} {:.0}/s, moves {}, changes {}, {:?}  {}",
            if outcome.late < 0.95 { "LOW" } else { "   " },
            outcome.late * 100.0,
            outcome.early * 100.0,
            outcome.default * 100.0,
            policy.tuner.setting(),
            outcome.best.0,
            outcome.best.1,
            policy.tuner.moves(),
            policy.changes.len(),
            started.elapsed(),
            scenario.name,
        );
        if !only.is_empty() {
            for (at, change) in &policy.changes {
                println!("   {:8.3} {change}", *at as f64 / 1e9);
            }
            println!("{:#?}", policy.tuner.parameters());
            println!("{}", policy.tuner.report().reason);
        }
    }
    println!("{below} below 95 %");
}

