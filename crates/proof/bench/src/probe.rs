//! Ceilings of the machine: limits that no system running on it can beat by much.
//!
//! Bare programs do what any replicated log has to do (move the bytes, write them, flush them,
//! reply) and nothing else. They take no shortcut that a real system could not: no byte is left
//! out, no flush skipped, no reply sent early.

pub mod commit;
pub mod disk;
pub mod memory;
pub mod part;
pub mod round_trip;
pub mod stream;
pub mod wire;

use serde::Serialize;

/// A measured limit of the machine.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Ceiling {
    /// Name of the limit.
    pub name: String,
    pub value: f64,
    pub unit: String,
    /// Median duration of one operation, if applicable.
    pub p50_us: Option<f64>,
    /// 99th percentile of the duration, if applicable.
    pub p99_us: Option<f64>,
    /// CPU time of all processes per operation, if counted.
    pub cpu_us_per_op: Option<f64>,
}
