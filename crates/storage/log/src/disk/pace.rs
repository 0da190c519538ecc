//! Pace of creating segments while a log commits: in small pieces, either when needed or while the
//! log is quiet.
//!
//! A piece of 1 MiB occupies a disk for as long as several commits; created without pauses, a
//! segment of 64 MiB stalled the commits of a whole machine. With pauses that ignored the rate of
//! the log, it was late for a fast one (`docs/performance.md`, "A segment is born").

use std::time::Duration;

use super::sync::{Condvar, Mutex, MutexGuard, PoisonError};

/// Bytes of zeros per write.
pub(super) const PIECE_BYTES: usize = 256 << 10;
/// Length of a pause, in multiples of the duration of the piece before it. A log that writes
/// nothing during a pause is quiet.
const REST_TIMES: u32 = 3;
pub(super) const REST_MIN: Duration = Duration::from_micros(200);
/// Bounds the pause of a slow disk, which would otherwise last minutes.
pub(super) const REST_MAX: Duration = Duration::from_millis(100);
/// Maximum interval between checks while the log is busy. Delays an urgent request by a few pieces
/// at most.
const LOOK_MAX: Duration = Duration::from_millis(10);

/// State shared by the thread that creates segments and the log that needs them.
#[derive(Debug, Default)]
pub(crate) struct Pace {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Debug, Default)]
pub(super) struct State {
    /// Bytes of the segment that should exist by now.
    pub(super) wanted: u64,
    /// Number of announcements by the log, one per write.
    pub(super) writes: u64,
}

impl State {
    /// Returns whether the next piece may be written, given `made` bytes and a pause that began
    /// after `writes` writes.
    pub(super) fn goes_on(&self, made: u64, writes: u64) -> bool {
        self.wanted > made || self.writes == writes
    }
}

impl Pace {
    /// Records that the log writes, and needs `bytes` by now. A pause that has begun continues: it
    /// is short, and a wake-up with every commit would cost more.
    pub(super) fn want(&self, bytes: u64) {
        let mut state = self.lock();
        state.wanted = bytes.max(state.wanted);
        state.writes += 1;
    }

    /// Ends all pauses, because a write waits for the segment.
    pub(super) fn hurry(&self) {
        self.want(u64::MAX);
        self.changed.notify_all();
    }

    /// Resets the requested size, because the next segment is not urgent.
    pub(super) fn relax(&self) {
        self.lock().wanted = 0;
    }

    /// Pauses after a piece that took `took`, leaving the disk to the log, until more is requested
    /// than exists or the log is quiet.
    pub(super) fn rest(&self, made: u64, took: Duration) {
        self.rest_for(made, rest_after(took));
    }

    pub(super) fn rest_for(&self, made: u64, mut quiet: Duration) {
        let mut state = self.lock();
        loop {
            let writes = state.writes;
            // Waking early or late does no harm; a poisoned lock means that its holder is gone.
            let enough = |state: &mut State| state.wanted <= made;
            let waited = self.changed.wait_timeout_while(state, quiet, enough);
            state = waited.unwrap_or_else(PoisonError::into_inner).0;
            if state.goes_on(made, writes) {
                return;
            }
            if quiet < LOOK_MAX {
                quiet = LOOK_MAX.min(quiet * 2);
            }
        }
    }

    pub(super) fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

pub(super) fn rest_after(took: Duration) -> Duration {
    took.saturating_mul(REST_TIMES).clamp(REST_MIN, REST_MAX)
}
