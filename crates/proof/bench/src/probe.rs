//! The machine's own ceilings: what no system on it can beat by much.
//!
//! Bare programs that do what any replicated log has to do (move the bytes, write them, flush them,
//! answer) and nothing else. They may do nothing that a real system would not: no byte is left
//! out, no flush skipped, no answer sent early.

pub mod commit;
pub mod disk;
pub mod memory;
pub mod part;
pub mod round_trip;
pub mod stream;
pub mod wire;

use serde::Serialize;

/// Something that the machine can do.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Ceiling {
    /// What.
    pub name: String,
    pub value: f64,
    pub unit: String,
    /// Time of one, where that makes sense.
    pub p50_us: Option<f64>,
    /// The same, of the slowest hundredth.
    pub p99_us: Option<f64>,
    /// CPU of all processes per piece of work, where it was counted.
    pub cpu_us_per_op: Option<f64>,
}
