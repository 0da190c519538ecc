//! Initial setting: small enough for a high round-trip time, until the round trip is known to be
//! short.

use super::view::{ControllerView, JUMP_ROUND_TRIP_NS_MIN};
use crate::{setting::Setting, time::Moment};

/// Batch size in bytes until the round-trip time is known, small enough for a link with a small
/// buffer. The first reply to a heartbeat gives the round-trip time; the wait ends after
/// `CAUTIOUS_NS_MAX` in any case.
const CAUTIOUS_BATCH_BYTES: usize = 64 << 10;
const CAUTIOUS_NS_MAX: u64 = 300_000_000;

/// Start-up state until the round-trip time is known.
#[derive(Clone, Copy, Debug)]
pub(super) struct StartPhase {
    /// The full starting setting; `None` once the round-trip time is known.
    full_setting: Option<Setting>,
    started_at: Option<Moment>,
}

/// Outcome of the first step.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum StartOutcome {
    /// The round-trip time is unknown.
    Waiting,
    /// The first step is done, or there was nothing to change.
    Begun,
    /// Start with this setting, because the round trip is short or no peer replies. Commands have
    /// arrived in small groups, so batches regroup for the given nanoseconds.
    StartWith(Setting, u64),
}

impl StartPhase {
    /// Returns the start-up state for a full starting setting, and the setting to use until the
    /// round-trip time is known.
    pub(super) fn new(start: Setting) -> (Self, Setting) {
        let careful = Setting { batch_bytes: start.batch_bytes.min(CAUTIOUS_BATCH_BYTES), ..start };
        let start = Self { full_setting: Some(start), started_at: None };
        (start, careful)
    }

    pub(super) fn first_step(
        &mut self,
        now: Moment,
        base: Setting,
        view: &ControllerView<'_>,
    ) -> StartOutcome {
        let Some(start) = self.full_setting else {
            return StartOutcome::Begun;
        };
        let since = *self.started_at.get_or_insert(now);
        let round_trip = view.round_trip_ns();
        if round_trip.is_none() && now.since(since) < CAUTIOUS_NS_MAX {
            return StartOutcome::Waiting;
        }
        self.full_setting = None;
        if round_trip.is_some_and(|round_trip| round_trip >= JUMP_ROUND_TRIP_NS_MIN)
            || start == base
        {
            return StartOutcome::Begun;
        }
        // No batch has ended yet, so the duration of a batch is unknown.
        StartOutcome::StartWith(start, round_trip.map_or(0.0, |round_trip| 3.0 * round_trip) as u64)
    }
}
