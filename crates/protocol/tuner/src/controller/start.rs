//! Initial setting: small enough for a high round-trip time, until the round trip is known to be
//! short.

use super::view::{JUMP_NS, View};
use crate::{setting::Setting, time::Moment};

/// Batch size in bytes until the round-trip time is known, small enough for a link with a small
/// buffer. The first reply to a heartbeat gives the round-trip time; the wait ends after
/// `CAREFUL_NS` in any case.
const CAREFUL_BYTES: usize = 64 << 10;
const CAREFUL_NS: u64 = 300_000_000;

/// Start-up state until the round-trip time is known.
#[derive(Clone, Copy, Debug)]
pub(super) struct Start {
    /// The full starting setting; `None` once the round-trip time is known.
    careful: Option<Setting>,
    began: Option<Moment>,
}

/// Outcome of the first step.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Begin {
    /// The round-trip time is unknown.
    Waits,
    /// The first step is done, or there was nothing to change.
    Begun,
    /// Start with this setting, because the round trip is short or no peer replies. Commands have
    /// arrived in small groups, so batches regroup for the given nanoseconds.
    With(Setting, u64),
}

impl Start {
    /// Returns the start-up state for a full starting setting, and the setting to use until the
    /// round-trip time is known.
    pub(super) fn new(start: Setting) -> (Self, Setting) {
        let careful = Setting { batch_bytes: start.batch_bytes.min(CAREFUL_BYTES), ..start };
        let start = Self { careful: Some(start), began: None };
        (start, careful)
    }

    pub(super) fn begin(&mut self, now: Moment, base: Setting, view: &View<'_>) -> Begin {
        let Some(start) = self.careful else {
            return Begin::Begun;
        };
        let since = *self.began.get_or_insert(now);
        let round_trip = view.round_trip_ns();
        if round_trip.is_none() && now.since(since) < CAREFUL_NS {
            return Begin::Waits;
        }
        self.careful = None;
        if round_trip.is_some_and(|round_trip| round_trip >= JUMP_NS) || start == base {
            return Begin::Begun;
        }
        // No batch has ended yet, so the duration of a batch is unknown.
        Begin::With(start, round_trip.map_or(0.0, |round_trip| 3.0 * round_trip) as u64)
    }
}
