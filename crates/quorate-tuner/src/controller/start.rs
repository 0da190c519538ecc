//! The first step: as small as on a long way, until it is known that the way is short.

use super::{JUMP_NS, View};
use crate::{setting::Setting, time::Moment};

/// Batches before it is known how long the way is: a link with a small buffer survives them. It is
/// known with the first answer to a heartbeat; nobody waits for longer than this.
const CAREFUL_BYTES: usize = 64 << 10;
const CAREFUL_NS: u64 = 300_000_000;

/// What is known of the way before anything is decided.
#[derive(Clone, Copy, Debug)]
pub(super) struct Start {
    /// Where to start in earnest, while it is not known how long the way is.
    careful: Option<Setting>,
    began: Option<Moment>,
}

/// What the first step comes to.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Begin {
    /// It is not known yet how long the way is.
    Waits,
    /// There is nothing to change, or there was not before.
    Begun,
    /// The way is short, or nobody answers: this is where to start. Commands came in small groups so
    /// far, so batches regroup for this long.
    With(Setting, u64),
}

impl Start {
    /// It shall start with `start`. Returns what is in force until then, too.
    pub(super) fn new(start: Setting) -> (Self, Setting) {
        let careful = Setting {
            batch_bytes: start.batch_bytes.min(CAREFUL_BYTES),
            ..start
        };
        let start = Self {
            careful: Some(start),
            began: None,
        };
        (start, careful)
    }

    pub(super) fn begin(&mut self, now: Moment, base: Setting, view: &View<'_>) -> Begin {
        let Some(start) = self.careful else {
            return Begin::Begun;
        };
        let since = *self.began.get_or_insert(now);
        let way = view.round_trip_ns();
        if way.is_none() && now.since(since) < CAREFUL_NS {
            return Begin::Waits;
        }
        self.careful = None;
        if way.is_some_and(|way| way >= JUMP_NS) || start == base {
            return Begin::Begun;
        }
        // No batch ended yet that would tell how long it takes.
        Begin::With(start, way.map_or(0.0, |way| 3.0 * way) as u64)
    }
}
