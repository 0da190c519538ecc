//! Paces the creation of segments while a log commits: small writes, made either when the segment
//! is needed or while the log is quiet.
//!
//! A write of 1 MiB occupies a disk for as long as several commits. Without pauses, creating a
//! segment of 64 MiB stalled the commits of a whole machine; with pauses that ignored the rate of
//! the log, the segment came too late for a fast one (`docs/notes/2026-11-21-segments.md`).

use std::time::Duration;

use super::sync::{Condvar, Mutex, MutexGuard, PoisonError};

/// Size of each write of zeros, in bytes.
pub(super) const PIECE_BYTES: usize = 256 << 10;
/// Length of a pause, as a multiple of the duration of the preceding write. A log that writes
/// nothing during a pause is quiet.
const PAUSE_PER_WRITE_TIME: u32 = 3;
pub(super) const PAUSE_MIN: Duration = Duration::from_micros(200);
/// Maximum length of a pause. On a slow disk, pauses would otherwise last minutes.
pub(super) const PAUSE_MAX: Duration = Duration::from_millis(100);
/// Maximum interval between checks while the log is busy. It delays an urgent request by a few
/// writes at most.
const CHECK_INTERVAL_MAX: Duration = Duration::from_millis(10);

/// State shared between the thread that creates segments and the log that needs them.
#[derive(Debug, Default)]
pub(crate) struct Pace {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Debug, Default)]
pub(super) struct State {
    /// Number of bytes of the segment that should exist by now.
    pub(super) wanted_bytes_to: u64,
    pub(super) log_writes: u64,
}

impl State {
    /// Returns whether the next write of zeros may begin. `made` bytes exist, and the pause began
    /// after `writes` announcements.
    pub(super) fn may_continue(&self, made: u64, writes: u64) -> bool {
        self.wanted_bytes_to > made || self.log_writes == writes
    }
}

impl Pace {
    /// Records a log write, and requests that `bytes` bytes of the segment exist by now. Does not
    /// end a pause, because pauses are short and a wake-up with every commit would cost more.
    pub(super) fn note_write(&self, bytes: u64) {
        let mut state = self.lock();
        state.wanted_bytes_to = bytes.max(state.wanted_bytes_to);
        state.log_writes += 1;
    }

    /// Ends all pauses, because a write waits for the segment.
    pub(super) fn end_pauses(&self) {
        self.note_write(u64::MAX);
        self.changed.notify_all();
    }

    /// Resets the request, because the next segment is not urgent.
    pub(super) fn relax(&self) {
        self.lock().wanted_bytes_to = 0;
    }

    /// Pauses after a write of zeros that took `took`, leaving the disk to the log. The pause ends
    /// when more than `made` bytes are requested or the log is quiet.
    pub(super) fn pause_after_write(&self, made: u64, took: Duration) {
        self.pause_until_due(made, pause_after(took));
    }

    pub(super) fn pause_until_due(&self, made: u64, mut quiet: Duration) {
        let mut state = self.lock();
        loop {
            let writes = state.log_writes;
            // Waking early or late is harmless. A poisoned lock means that its holder has panicked.
            let enough = |state: &mut State| state.wanted_bytes_to <= made;
            let waited = self.changed.wait_timeout_while(state, quiet, enough);
            state = waited.unwrap_or_else(PoisonError::into_inner).0;
            if state.may_continue(made, writes) {
                return;
            }
            if quiet < CHECK_INTERVAL_MAX {
                quiet = CHECK_INTERVAL_MAX.min(quiet * 2);
            }
        }
    }

    pub(super) fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

pub(super) fn pause_after(took: Duration) -> Duration {
    took.saturating_mul(PAUSE_PER_WRITE_TIME).clamp(PAUSE_MIN, PAUSE_MAX)
}
