//! The tuner's configuration.

use crate::setting::{Bounds, Setting};

/// Configuration of the tuner: size of the group, starting setting, and limits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Settings {
    /// Number of nodes that vote, this one included.
    pub nodes: usize,
    /// The initial setting, and the only one if `fixed`.
    pub start: Setting,
    pub bounds: Bounds,
    /// `--latency-goal` in nanoseconds: find the largest batch that meets it at the 99th
    /// percentile.
    pub latency_goal_ns: Option<u64>,
    /// `--tune off`: `start` stays in force. Estimates continue, for reports.
    pub fixed: bool,
}

impl Settings {
    /// Returns the configuration for a group of `nodes`, with the defaults of a replica: it starts
    /// with 4 batches of 256 KiB, and may grow to 64 of 1 MiB.
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
