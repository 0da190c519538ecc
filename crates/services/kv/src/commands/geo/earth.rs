//! Distances on a sphere with the radius of the earth.
//!
//! Distances are stored and decide what is, so all machines must agree on them, permanently. Sine,
//! cosine and arcsine come from one fixed version of a library that computes them from sums and
//! products; those of operating systems differ in the last digit. A test has their results.

use std::f64::consts::PI;

use super::cell::Place;

const RADIUS_M: f64 = 6_372_797.560_856;
const RADIANS: f64 = PI / 180.0;

/// Returns the distance between two parallels in meters.
pub(super) fn between_parallels(one: f64, other: f64) -> f64 {
    RADIUS_M * (other * RADIANS - one * RADIANS).abs()
}

/// Returns the distance between two places in meters, by the haversine formula.
pub(super) fn distance(one: Place, other: Place) -> f64 {
    let half = libm::sin((other.longitude * RADIANS - one.longitude * RADIANS) / 2.0);
    if half == 0.0 {
        return between_parallels(one.latitude, other.latitude);
    }
    let (low, high) = (one.latitude * RADIANS, other.latitude * RADIANS);
    let across = libm::sin((high - low) / 2.0);
    let sum = across * across + libm::cos(low) * libm::cos(high) * half * half;
    // Rounding may exceed the sine of a right angle.
    2.0 * RADIUS_M * libm::asin(sum.sqrt().min(1.0))
}

/// Returns the difference in latitude of two places of one meridian, in degrees.
pub(super) fn degrees_north(meters: f64) -> f64 {
    meters / RADIUS_M / RADIANS
}

/// Returns the difference in longitude of two places of one parallel, in degrees, measured along
/// the parallel.
pub(super) fn degrees_east(meters: f64, latitude: f64) -> f64 {
    meters / RADIUS_M / libm::cos(latitude * RADIANS) / RADIANS
}

/// Returns the difference in longitude of two places of one parallel at a distance, in degrees.
/// All places of the parallel are nearer if it is 360.
pub(super) fn degrees_across(meters: f64, latitude: f64) -> f64 {
    let half = libm::sin((meters / RADIUS_M / 2.0).min(PI / 2.0)) / libm::cos(latitude * RADIANS);
    if half >= 1.0 { 360.0 } else { 2.0 * libm::asin(half) / RADIANS }
}

#[cfg(test)]
mod tests {
    use quorate_core::dice::Dice;
    use xxhash_rust::xxh3::xxh3_64;

    use super::*;

    /// The bits of distances are part of the replicated format: they are stored (STOREDIST), and
    /// decide what a search finds. A library with other results needs a feature level.
    #[test]
    fn distances_are_part_of_the_format() {
        let dice = &mut Dice::new(1);
        let mut bytes = Vec::new();
        for _ in 0..20_000 {
            let mut place = || Place::of_score((dice.word() >> 12) as f64);
            let (one, other) = (place(), place());
            let east = degrees_east(1000.0, one.latitude);
            for number in [distance(one, other), east] {
                bytes.extend_from_slice(&number.to_bits().to_le_bytes());
            }
        }
        assert_eq!(xxh3_64(&bytes), 18_084_390_910_765_157_646);
    }

    #[test]
    fn a_distance_is_a_number() {
        let place = |longitude, latitude| Place { longitude, latitude };
        for (one, other) in [
            (place(0.0, 0.0), place(180.0, 0.0)),
            (place(-90.0, 45.0), place(90.0, -45.0)),
            (place(1e-9, 85.0), place(-180.0, -85.0)),
        ] {
            let distance = distance(one, other);
            assert!((distance - PI * RADIUS_M).abs() < 20.0, "{distance}");
        }
    }
}
