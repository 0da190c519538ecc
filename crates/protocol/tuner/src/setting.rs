//! Batch and window: what is chosen, within which bounds, and why.

use std::fmt;

/// Size of a batch, and number of batches in flight.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Setting {
    /// A batch is closed at this size; one larger command travels alone.
    pub batch_bytes: usize,
    /// Own batches in flight.
    pub window: usize,
}

impl Setting {
    /// Room for nearly any load with a short round trip.
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
pub struct Bounds {
    /// `--batch-max`, in bytes.
    pub batch_bytes_max: usize,
    /// `--window-max`.
    pub window_max: usize,
}

impl Bounds {
    /// The nearest setting within the bounds; both parts are at least 1.
    pub fn clamp(&self, setting: Setting) -> Setting {
        Setting {
            batch_bytes: setting.batch_bytes.clamp(1, self.batch_bytes_max.max(1)),
            window: setting.window.clamp(1, self.window_max.max(1)),
        }
    }
}

/// Why a setting was changed.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Reason {
    /// The round trip is short: from the first small step to where it starts.
    Short,
    /// The model predicts more there: parts of the predicted throughput of before.
    Model(f64),
    /// A short trial.
    Probe,
    /// A trial was not better: the previous setting returns.
    Worse,
    /// A trial gave more: the ratio of the throughputs.
    Faster(f64),
    /// A trial gave as much, sooner: the ratio of the latencies.
    Sooner(f64),
    /// The larger batch of two that meet the latency goal.
    Goal,
    /// Less came through than at an earlier step towards it.
    TooFar,
    /// The setting may be too small for the load: [`Setting::ROOMY`].
    Room,
    /// More was in flight than a round trip needs: it only waited. Parts of what is needed.
    Queue(f64),
}

impl Reason {
    /// Returns whether this is part of a trial rather than a decision.
    pub const fn is_probing(&self) -> bool {
        matches!(self, Self::Probe | Self::Worse)
    }
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Short => f.write_str("the round trip is short"),
            Self::Model(gain) => write!(f, "the model predicts {gain:.2} x the throughput"),
            Self::Probe => f.write_str("trying"),
            Self::Worse => f.write_str("tried, not better"),
            Self::Faster(gain) => write!(f, "measured {gain:.2} x the throughput"),
            Self::Sooner(part) => write!(f, "as much, at {part:.2} x the latency"),
            Self::Goal => f.write_str("the larger batch that meets the latency goal"),
            Self::TooFar => f.write_str("less came through than at an earlier step"),
            Self::Room => f.write_str("room for a load that came, or may come"),
            Self::Queue(over) => {
                write!(f, "{over:.1} x what a round trip needs was in flight")
            }
        }
    }
}

/// A change of the setting, to be put in force and logged.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Change {
    pub from: Setting,
    pub to: Setting,
    /// Why.
    pub reason: Reason,
}

impl fmt::Display for Change {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} -> {}: {}", self.from, self.to, self.reason)
    }
}
