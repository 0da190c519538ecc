//! Batch size and window: their values, bounds, and reasons for changes.

use std::fmt;

/// Maximum size of a batch, and maximum number of batches in flight.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Setting {
    /// Size in bytes at which a batch is closed. A larger command is sent alone.
    pub batch_bytes: usize,
    /// Maximum number of this node's batches in flight.
    pub window: usize,
}

impl Setting {
    /// A setting with enough room for nearly any load with a short round trip.
    pub const ROOMY: Self = Self { batch_bytes: 256 << 10, window: 4 };
}

impl fmt::Display for Setting {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { batch_bytes, window } = self;
        if batch_bytes.is_multiple_of(1024) {
            write!(f, "{} KiB x {window}", batch_bytes >> 10)
        } else {
            write!(f, "{batch_bytes} B x {window}")
        }
    }
}

/// Upper bounds of a setting.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SettingBounds {
    /// Maximum batch size in bytes (`--batch-max`).
    pub batch_bytes_max: usize,
    /// Maximum window (`--window-max`).
    pub window_max: usize,
}

impl SettingBounds {
    /// Returns the nearest setting within the bounds. Both parts are at least 1.
    pub fn clamp(&self, setting: Setting) -> Setting {
        Setting {
            batch_bytes: setting.batch_bytes.clamp(1, self.batch_bytes_max.max(1)),
            window: setting.window.clamp(1, self.window_max.max(1)),
        }
    }
}

/// Reason for a change of the setting.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum ChangeReason {
    /// The round trip is short, so the cautious first setting is replaced by the starting setting.
    ShortRoundTrip,
    /// The model predicts a throughput that is higher by the given factor.
    Model(f64),
    Probe,
    /// A probe was not better, so the previous setting is restored.
    ProbeFailed,
    /// A probe had a throughput that was higher by the given factor.
    HigherThroughput(f64),
    /// A probe had the same throughput, and its latency was the given fraction of the base's.
    LowerLatency(f64),
    /// The previous setting and this one both meet the latency goal, and this one has the larger
    /// batch.
    LatencyGoal,
    /// The throughput was lower than at an earlier step towards the previous setting.
    JumpTooFar,
    /// The setting may be too small for the load, so it is replaced by [`Setting::ROOMY`].
    NeedsRoom,
    /// The bytes in flight exceeded those that a round trip needs by the given factor, and the
    /// excess only waited.
    ExcessQueue(f64),
}

impl ChangeReason {
    /// Returns whether the change is part of a probe rather than a decision.
    pub const fn is_probing(&self) -> bool {
        matches!(self, Self::Probe | Self::ProbeFailed)
    }
}

impl fmt::Display for ChangeReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::ShortRoundTrip => f.write_str("the round trip is short"),
            Self::Model(gain) => write!(f, "the model predicts {gain:.2} x the throughput"),
            Self::Probe => f.write_str("trying"),
            Self::ProbeFailed => f.write_str("tried, not better"),
            Self::HigherThroughput(gain) => write!(f, "measured {gain:.2} x the throughput"),
            Self::LowerLatency(part) => write!(f, "as much, at {part:.2} x the latency"),
            Self::LatencyGoal => f.write_str("the larger batch that meets the latency goal"),
            Self::JumpTooFar => f.write_str("less came through than at an earlier step"),
            Self::NeedsRoom => f.write_str("room for a load that came, or may come"),
            Self::ExcessQueue(over) => {
                write!(f, "{over:.1} x what a round trip needs was in flight")
            }
        }
    }
}

/// A change of the setting, to be applied and logged.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct SettingChange {
    pub from: Setting,
    pub to: Setting,
    pub reason: ChangeReason,
}

impl fmt::Display for SettingChange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} -> {}: {}", self.from, self.to, self.reason)
    }
}
