//! Regrouping: temporarily fewer batches in flight, so that split commands gather again or earlier
//! batches drain first.

use crate::{setting::Setting, time::Moment};

/// Duration of regrouping, as a multiple of a batch's duration. Batches that take
/// `REGROUP_BATCH_NS_MAX` or longer do not regroup.
const REGROUP_DURATIONS: f64 = 2.5;
pub(super) const REGROUP_BATCH_NS_MAX: f64 = 50e6;
const REGROUP_NS_MAX: u64 = 300_000_000;
/// Batch duration in nanoseconds below which a wider window of smaller batches is postponed for one
/// batch's duration.
const POSTPONE_BELOW_NS: f64 = 200e6;

/// A window that is temporarily smaller than requested.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct WindowRegroup {
    limit_until: Option<(Moment, usize)>,
}

/// State of regrouping after a check.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum RegroupState {
    /// No regrouping is in progress.
    Inactive,
    InProgress,
    Over,
}

impl WindowRegroup {
    /// Returns the setting to use now if the controller requests `wanted`.
    pub(super) fn effective_setting(&self, wanted: Setting) -> Setting {
        match self.limit_until {
            Some((_, window)) => Setting { window, ..wanted },
            None => wanted,
        }
    }

    /// Limits the window to one batch for `for_ns`.
    pub(super) fn limit_to_one_batch(&mut self, now: Moment, for_ns: u64) {
        self.limit_until = Some((Moment(now.0.saturating_add(for_ns)), 1));
    }

    /// Handles a new setting, under which a batch takes `wall_ns`. Commands that were `split` into
    /// small batches return in small groups, and would continue to do so for a long time with
    /// larger batches. Therefore the window is limited to one batch for a moment, so that the other
    /// commands gather.
    pub(super) fn begin(
        &mut self,
        now: Moment,
        from: Setting,
        to: Setting,
        split: bool,
        wall_ns: f64,
    ) {
        // Earlier batches are still in flight, and a wider window of smaller batches would add to
        // them.
        let on_top = to.window > from.window && to.batch_bytes < from.batch_bytes;
        let until = |walls| now.later(wall_ns * walls);
        self.limit_until = match () {
            () if split && to.window > 1 && wall_ns < REGROUP_BATCH_NS_MAX => {
                Some((until(REGROUP_DURATIONS), 1))
            }
            () if on_top && wall_ns < POSTPONE_BELOW_NS => Some((until(1.0), from.window)),
            () => None,
        };
    }

    /// Ends regrouping when its time is over. Returns the state.
    pub(super) fn end_if_due(&mut self, now: Moment) -> RegroupState {
        let Some((until, _)) = self.limit_until else {
            return RegroupState::Inactive;
        };
        if now < until && until.since(now) <= REGROUP_NS_MAX {
            return RegroupState::InProgress;
        }
        self.limit_until = None;
        RegroupState::Over
    }
}
