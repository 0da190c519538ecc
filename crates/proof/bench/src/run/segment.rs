//! Ceiling of a cluster on an emulated segment: a bare multicast sender.

use std::time::Duration;

use quorate_testbed::progress;

use super::{RunTime, network::lan};
use crate::{
    figure::round_to_four_digits, probe::MeasuredCeiling, problem::Problem, report::BenchReport,
    row::Row,
};

/// Maximum measured time of a bare program, which reaches its steady state at once.
const MEASURE_MAX: Duration = Duration::from_secs(3);
const BITS_PER_BYTE: f64 = 8.0;
const MEGA: f64 = 1e6;

/// Measures the throughput from one bare sender to the slowest of `receivers` receivers.
pub fn measure_ceiling(receivers: u32, time: &RunTime) -> Result<MeasuredCeiling, Problem> {
    let mut rates = Vec::new();
    for _ in 0..time.repetition_count {
        let rate =
            lan::measure_throughput(receivers, time.duration.min(MEASURE_MAX))? * BITS_PER_BYTE;
        progress(&format!("bare multicast to {receivers}: {:.1} Mbit/s of datagrams", rate / MEGA));
        rates.push(rate);
    }
    rates.sort_by(f64::total_cmp);
    let median = rates.get(rates.len() / 2).copied().unwrap_or_default();
    Ok(MeasuredCeiling {
        name: name(receivers),
        value: round_to_four_digits(median / MEGA),
        unit: "Mbit/s".to_owned(),
        p50_us: None,
        p99_us: None,
        cpu_us_per_op: None,
    })
}

/// Returns the throughput already measured for this number of receivers, in bits per second.
pub fn find_measured(document: &BenchReport, receivers: u32) -> Option<f64> {
    find_ceiling(&document.ceilings, receivers)
}

fn find_ceiling(ceilings: &[MeasuredCeiling], receivers: u32) -> Option<f64> {
    let name = name(receivers);
    let found = ceilings.iter().find(|one| one.name == name);
    found.map(|one| one.value * MEGA)
}

/// Sets the throughput of the bare sender as the ceiling of a row.
#[expect(clippy::cast_precision_loss, reason = "a size")]
pub fn set_row_ceiling(row: &mut Row, payload_bits: f64) {
    let value_bits = row.value_bytes.max(1) as f64 * BITS_PER_BYTE;
    row.set_delivery_ceiling(payload_bits / value_bits);
}

fn name(receivers: u32) -> String {
    format!("bare multicast, payload of datagrams at the slowest of {receivers} receivers")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ceiling_is_that_of_the_same_number_of_receivers() {
        let ceiling = |receivers, value| MeasuredCeiling {
            name: name(receivers),
            value,
            unit: "Mbit/s".to_owned(),
            p50_us: None,
            p99_us: None,
            cpu_us_per_op: None,
        };
        let ceilings = [ceiling(2, 97.0), ceiling(10, 95.5)];
        assert_eq!(find_ceiling(&ceilings, 10), Some(95_500_000.0));
        assert_eq!(find_ceiling(&ceilings, 1), None);
    }
}
