//! Estimate of the number of elements from the registers (O. Ertl, *New cardinality estimation
//! algorithms for HyperLogLog sketches*, 2017), as in Redis since version 4.
//!
//! All machines must agree, so it uses only operations with an exactly specified result: sums,
//! products, quotients and square roots, rounded to nearest.

use super::layout::{COUNT, VALUE_MAX};

/// Number of bits of a hash that follow those of the register.
const REST_BITS: usize = 50;
/// 1 / (2 ln 2).
const ALPHA: f64 = 0.721_347_520_444_481_7;

/// Estimates the number of distinct elements from the number of registers with each value.
pub(super) fn estimate(times: &[u32; VALUE_MAX as usize + 1]) -> u64 {
    let all = COUNT as f64;
    let times = times.map(f64::from);
    let mut sum = all * tau((all - times[REST_BITS + 1]) / all);
    for &times in times[1..=REST_BITS].iter().rev() {
        sum = (sum + times) * 0.5;
    }
    sum += all * sigma(times[0] / all);
    (ALPHA * all * all / sum).round() as u64
}

/// Returns x + the sum of x^(2^k) 2^(k-1) for all k > 0.
fn sigma(mut x: f64) -> f64 {
    if x == 1.0 {
        return f64::INFINITY;
    }
    let (mut times, mut sum) = (1.0, x);
    loop {
        x *= x;
        let before = sum;
        sum += x * times;
        times += times;
        if sum == before {
            return sum;
        }
    }
}

/// Returns a third of 1 - x - the sum of (1 - x^(2^-k))^2 2^-k for all k > 0.
fn tau(mut x: f64) -> f64 {
    if x == 0.0 || x == 1.0 {
        return 0.0;
    }
    let (mut times, mut sum) = (1.0, 1.0 - x);
    loop {
        x = x.sqrt();
        let before = sum;
        times *= 0.5;
        sum -= (1.0 - x) * (1.0 - x) * times;
        if sum == before {
            return sum / 3.0;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Estimates are part of the format, because scripts may store them.
    #[test]
    fn estimates_of_extreme_registers() {
        let all = u32::try_from(COUNT).unwrap();
        for (value, expected) in
            [(0, 0), (1, 23_637), (17, 1_549_082_005), (51, u64::MAX), (63, u64::MAX)]
        {
            let mut times = [0; VALUE_MAX as usize + 1];
            times[value] = all;
            assert_eq!(estimate(&times), expected, "{value}");
        }
    }
}
