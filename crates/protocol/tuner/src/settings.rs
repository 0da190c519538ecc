//! The tuner's configuration.

use crate::setting::{Bounds, Setting};

/// The tuner's configuration.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Settings {
    /// Nodes that vote, this one included.
    pub nodes: usize,
    /// The first setting, and the only one if `fixed`.
    pub start: Setting,
    pub bounds: Bounds,
    /// `--latency-goal` in nanoseconds: the largest batch that meets it at the 99th percentile.
    pub latency_goal_ns: Option<u64>,
    /// `--tune off`: `start` stays in force. Estimates go on, for reports.
    pub fixed: bool,
}

impl Settings {
    /// For a group of `nodes`, with the defaults of a replica: it starts with 4 batches of 256 KiB,
    /// and may go up to 64 of 1 MiB.
    pub const fn new(nodes: usize) -> Self {
        Self {
            nodes,
            start: Setting::ROOMY,
            bounds: Bounds { batch_bytes_max: 1 << 20, window_max: 64 },
            latency_goal_ns: None,
            fixed: false,
        }
    }
}
