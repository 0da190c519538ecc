//! The exhaustive grid: every combination of batch size and window as a fixed setting, in the same
//! plant.

use crate::plant::{
    plant::{Measured, Plant, Policy},
    scenario::Scenario,
};

/// A fixed setting, as batch size in bytes and window.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Fixed(pub(crate) usize, pub(crate) usize);

impl Policy for Fixed {
    fn setting(&self) -> (usize, usize) {
        (self.0, self.1)
    }
}

/// The setting of `quorate-replica` without a tuner.
pub(crate) const DEFAULT: Fixed = Fixed(256 << 10, 4);

pub(crate) struct Axes {
    pub(crate) batches: &'static [usize],
    pub(crate) windows: &'static [usize],
}

pub(crate) const COARSE: Axes = Axes {
    batches: &[4 << 10, 16 << 10, 64 << 10, 256 << 10, 1 << 20],
    windows: &[1, 2, 4, 8, 16, 64],
};

/// Axes with nearly every step of the tuner's own grid.
pub(crate) const FULL: Axes = Axes {
    batches: &[
        2 << 10,
        4 << 10,
        8 << 10,
        16 << 10,
        32 << 10,
        64 << 10,
        128 << 10,
        256 << 10,
        512 << 10,
        1 << 20,
    ],
    windows: &[1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 64],
};

pub(crate) struct Grid {
    pub(crate) points: Vec<(Fixed, Measured)>,
}

/// Returns the warm-up time, the maximum measuring time, and the number of batches to measure.
pub(crate) fn spans(scenario: &Scenario) -> (u64, u64, u64) {
    let trip = ((scenario.round_trip_ms + scenario.flush_ms) * 1e6) as u64;
    (5 * trip + 3_000_000, 20 * trip + 4_000_000_000, 1_500)
}

pub(crate) fn measure_point(scenario: &Scenario, point: Fixed) -> Measured {
    let (warm, measure, batches) = spans(scenario);
    let mut plant = Plant::new(scenario, point);
    plant.run(warm, 300);
    let from = plant.now;
    plant.run(from + measure, batches)
}

pub(crate) fn measure(scenario: &Scenario, axes: &Axes) -> Grid {
    let mut points = Vec::new();
    for &batch in axes.batches {
        for &window in axes.windows {
            let point = Fixed(batch, window);
            points.push((point, measure_point(scenario, point)));
        }
    }
    Grid { points }
}

impl Grid {
    pub(crate) fn best(&self) -> (Fixed, f64) {
        let of = |(point, measured): &(Fixed, Measured)| (*point, measured.throughput());
        let best = self.points.iter().map(of).max_by(|a, b| a.1.total_cmp(&b.1));
        best.expect("a grid has points")
    }

    pub(crate) fn print(&self) {
        let (best, most) = self.best();
        println!("  best {best:?} {most:.0}/s");
        let mut batch = 0;
        for (Fixed(bytes, _), measured) in &self.points {
            if *bytes != batch {
                print!("\n  {:>5}K ", bytes >> 10);
                batch = *bytes;
            }
            print!(" {:5.1}", measured.throughput() / most * 100.0);
        }
        println!();
    }
}
