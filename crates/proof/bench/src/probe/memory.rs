//! Memory speed: the rate at which one thread copies.

use std::{hint::black_box, time::Instant};

use super::MeasuredCeiling;
use crate::figure::{median, round_to_four_digits};

/// Number of bytes copied, which exceeds the CPU caches.
const COPY_BYTES: usize = 64 << 20;
const ROUND_COUNT: usize = 9;

/// Measures the rate of copying in large blocks.
#[expect(clippy::cast_precision_loss, reason = "a bandwidth for people")]
pub fn measure_copy() -> MeasuredCeiling {
    let from = vec![1_u8; COPY_BYTES];
    // Written once in advance, so that no measured round includes page faults.
    let mut to = vec![2_u8; COPY_BYTES];
    let rates: Vec<f64> = (0..ROUND_COUNT)
        .map(|_| {
            let began = Instant::now();
            to.copy_from_slice(black_box(&from));
            black_box(&mut to);
            COPY_BYTES as f64 / 1e9 / began.elapsed().as_secs_f64()
        })
        .collect();
    MeasuredCeiling {
        name: "copy 64 MiB in memory, one thread".to_owned(),
        value: round_to_four_digits(median(rates)),
        unit: "GB/s".to_owned(),
        p50_us: None,
        p99_us: None,
        cpu_us_per_op: None,
    }
}
