//! Fewer batches in flight for a moment: what was split gathers again, or what was in flight before
//! makes room.

use crate::{setting::Setting, time::Moment};

/// Batches regroup for this many times what one takes, where that is short enough to be worth it.
const REGROUP_WALLS: f64 = 2.5;
pub(super) const REGROUP_NS: f64 = 50e6;
const REGROUP_MOST_NS: u64 = 300_000_000;
/// A window is held for one batch's time, if that is shorter than this.
const HOLD_NS: f64 = 200e6;

/// A window that is smaller than wanted until a moment, if there is one.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Regroup {
    until: Option<(Moment, usize)>,
}

/// State of a regrouping.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Gathering {
    /// Nothing gathers.
    No,
    Goes,
    Over,
}

impl Regroup {
    /// Returns the setting to use now if the controller wants `wanted`.
    pub(super) fn setting(&self, wanted: Setting) -> Setting {
        match self.until {
            Some((_, window)) => Setting { window, ..wanted },
            None => wanted,
        }
    }

    /// One batch at a time may leave for `for_ns`.
    pub(super) fn one_at_a_time(&mut self, now: Moment, for_ns: u64) {
        self.until = Some((Moment(now.0.saturating_add(for_ns)), 1));
    }

    /// Another setting is in force; a batch takes `wall_ns`. Commands that were `split` into small
    /// batches come back in small groups, and would go on like that for long with larger ones: for
    /// a moment, one batch at a time may leave, so that the rest gathers.
    pub(super) fn begin(
        &mut self,
        now: Moment,
        from: Setting,
        to: Setting,
        split: bool,
        wall_ns: f64,
    ) {
        // The batches of before are still in flight: a wider window of smaller ones would come on
        // top of them.
        let on_top = to.window > from.window && to.batch_bytes < from.batch_bytes;
        let until = |walls| now.later(wall_ns * walls);
        self.until = match () {
            () if split && to.window > 1 && wall_ns < REGROUP_NS => Some((until(REGROUP_WALLS), 1)),
            () if on_top && wall_ns < HOLD_NS => Some((until(1.0), from.window)),
            () => None,
        };
    }

    /// Looks at the clock.
    pub(super) fn look(&mut self, now: Moment) -> Gathering {
        let Some((until, _)) = self.until else {
            return Gathering::No;
        };
        if now < until && until.since(now) <= REGROUP_MOST_NS {
            return Gathering::Goes;
        }
        self.until = None;
        Gathering::Over
    }
}
