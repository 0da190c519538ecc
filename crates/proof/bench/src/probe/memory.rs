//! Memory speed: the rate at which one thread copies.

use std::{hint::black_box, time::Instant};

use super::Ceiling;
use crate::figure::{median, round};

/// Number of bytes copied, which exceeds the CPU caches.
const BYTES: usize = 64 << 20;
const ROUNDS: usize = 9;

/// Measures the rate of copying in large blocks.
#[expect(clippy::cast_precision_loss, reason = "a bandwidth for people")]
pub fn copy() -> Ceiling {
    let from = vec![1_u8; BYTES];
    // Written once in advance, so that no measured round includes page faults.
    let mut to = vec![2_u8; BYTES];
    let rates: Vec<f64> = (0..ROUNDS)
        .map(|_| {
            let began = Instant::now();
            to.copy_from_slice(black_box(&from));
            black_box(&mut to);
            BYTES as f64 / 1e9 / began.elapsed().as_secs_f64()
        })
        .collect();
    Ceiling {
        name: "copy 64 MiB in memory, one thread".to_owned(),
        value: round(median(rates)),
        unit: "GB/s".to_owned(),
        p50_us: None,
        p99_us: None,
        cpu_us_per_op: None,
    }
}
