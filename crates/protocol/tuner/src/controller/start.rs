//! The first step: as small as a high round-trip time needs, until it is known that it is short.

use super::view::{JUMP_NS, View};
use crate::{setting::Setting, time::Moment};

/// Batches before the round-trip time is known: a link with a small buffer survives them. The first
/// answer to a heartbeat gives the round-trip time; the wait ends after this long in any case.
const CAREFUL_BYTES: usize = 64 << 10;
const CAREFUL_NS: u64 = 300_000_000;

/// Start-up state until the round-trip time is known.
#[derive(Clone, Copy, Debug)]
pub(super) struct Start {
    /// The full starting setting, while the round-trip time is not known.
    careful: Option<Setting>,
    began: Option<Moment>,
}

/// Outcome of the first step.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Begin {
    /// The round-trip time is not known yet.
    Waits,
    /// There is nothing to change, or there was not before.
    Begun,
    /// The round trip is short, or no peer answers: start with this setting. Commands came in small
    /// groups, so batches regroup for this long.
    With(Setting, u64),
}

impl Start {
    /// Creates it with the full starting setting, and returns the setting to use until then.
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
        // No batch ended yet that would tell how long it takes.
        Begin::With(start, round_trip.map_or(0.0, |round_trip| 3.0 * round_trip) as u64)
    }
}
