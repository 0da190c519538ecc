//! The tuner's configuration.

use crate::setting::{Setting, SettingBounds};

/// Configuration of the tuner: size of the group, starting setting, and limits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Settings {
    /// Number of nodes that vote, including this one.
    pub nodes: usize,
    /// The initial setting. With `fixed` it never changes.
    pub start: Setting,
    pub bounds: SettingBounds,
    /// `--latency-goal` in nanoseconds. The tuner looks for the largest batch that meets the goal
    /// at the 99th percentile.
    pub latency_goal_ns: Option<u64>,
    /// `--tune off`: the setting `start` remains in force. Estimates continue, for reports.
    pub fixed: bool,
}

impl Settings {
    /// Returns the configuration for a group of `nodes`, with the defaults of a replica. It starts
    /// with 4 batches of 256 KiB, and may grow to 64 of 1 MiB.
    pub const fn new(nodes: usize) -> Self {
        Self {
            nodes,
            start: Setting::ROOMY,
            bounds: SettingBounds { batch_bytes_max: 1 << 20, window_max: 64 },
            latency_goal_ns: None,
            fixed: false,
        }
    }
}
