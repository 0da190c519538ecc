//! Ceilings of the machine: limits that no system running on it can exceed by much.
//!
//! Bare programs do the work that any replicated log has to do (move the bytes, write them, flush
//! them, reply) and nothing else. They take no shortcut that a real system could not take: no byte
//! is omitted, no flush is skipped, and no reply is sent early.

pub mod commit;
pub mod disk;
pub mod memory;
pub mod part;
pub mod round_trip;
pub mod stream;
pub mod wire;

use serde::Serialize;

#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct MeasuredCeiling {
    pub name: String,
    pub value: f64,
    pub unit: String,
    /// Median duration of one operation in microseconds, if applicable.
    pub p50_us: Option<f64>,
    /// 99th percentile of the duration in microseconds, if applicable.
    pub p99_us: Option<f64>,
    /// CPU time of all processes per operation in microseconds, if counted.
    pub cpu_us_per_op: Option<f64>,
}
