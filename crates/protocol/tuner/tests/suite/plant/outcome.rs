//! The controller's results in a scenario, compared with those of the grid and the fixed default.

use quorate_tuner::Settings;

use crate::plant::{
    grid::{self, Axes, Fixed},
    plant::Plant,
    scenario::Scenario,
    tuned::Tuned,
};

/// Returns the time allowed for convergence, in nanoseconds: 2 s, or 20 round trips if that is
/// longer.
pub(crate) fn convergence_ns(scenario: &Scenario) -> u64 {
    2_000_000_000.max((scenario.round_trip_ms * 20e6) as u64)
}

/// Number of batches to measure after convergence, and minimum and maximum time in which to measure
/// them.
const BATCHES: u64 = 1_500;
const LATE: (u64, u64) = (2_000_000_000, 20_000_000_000);

pub(crate) struct Outcome {
    best: (Fixed, f64),
    /// Throughput while searching, divided by that of the default from the same start.
    pub(crate) of_default: f64,
    early: f64,
    /// Throughput after convergence, divided by the best throughput of the grid.
    pub(crate) late: f64,
    pub(crate) plant: Plant<Tuned>,
}

impl Outcome {
    pub(crate) fn line(&self, scenario: &Scenario) -> String {
        let policy = &self.plant.policy;
        let (Fixed(batch, window), most) = self.best;
        format!(
            "{} {:5.1} % of the best, {:5.1} % while searching, {:5.1} % of the default; \
             {} (best {} KiB x {window}: {most:.0}/s), {} moves, {} changes: {}",
            if self.late < 0.95 { "LOW" } else { "   " },
            self.late * 100.0,
            self.early * 100.0,
            self.of_default * 100.0,
            policy.tuner.setting(),
            batch >> 10,
            policy.tuner.permanent_changes(),
            policy.changes.len(),
            scenario.name,
        )
    }
}

/// Returns the throughput after convergence, in commands per second.
pub(crate) fn settled(plant: &mut Plant<Tuned>) -> f64 {
    let from = plant.now;
    let mut late = plant.run(from + LATE.0, u64::MAX);
    if late.batches < BATCHES {
        late.add(plant.run(from + LATE.1, BATCHES - late.batches));
    }
    late.throughput()
}

pub(crate) fn tune(scenario: &Scenario, axes: &Axes) -> Outcome {
    let best = grid::measure(scenario, axes).best();
    let mut plant = Plant::new(scenario, Tuned::new(Settings::new(scenario.nodes)));
    let converged = convergence_ns(scenario);
    let early = plant.run(converged, u64::MAX).throughput();
    let late = settled(&mut plant);
    let mut fixed = Plant::new(scenario, grid::DEFAULT);
    let default = fixed.run(converged, u64::MAX).throughput();
    Outcome { best, of_default: early / default, early: early / best.1, late: late / best.1, plant }
}
