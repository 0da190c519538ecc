//! How fast a segment is made while a log commits beside it: in small pieces, when they are wanted,
//! or when the log is quiet.
//!
//! A piece of 1 MiB occupies a disk for as long as several commits; made without rests, a segment of
//! 64 MiB kept the commits of a whole machine waiting. With rests that do not ask how fast the log
//! is, it was late for a fast one (`docs/performance.md`, "A segment is born").

use std::{
    sync::{Condvar, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

/// Zeros written at a time.
pub(super) const PIECE_BYTES: usize = 256 << 10;
/// A rest is so many times as long as the piece before it took; a log that writes nothing meanwhile
/// is quiet.
const REST_TIMES: u32 = 3;
const REST_MIN: Duration = Duration::from_micros(200);
/// A disk that takes long over one piece is not left alone for minutes.
const REST_MAX: Duration = Duration::from_millis(100);
/// Beside a busy log one looks ever more rarely whether it is quiet, but so often that what is wanted
/// is not missed by more than a few pieces.
const LOOK_MAX: Duration = Duration::from_millis(10);

/// Shared by the thread that makes segments and the log that needs them.
#[derive(Debug, Default)]
pub(super) struct Pace {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct State {
    /// Bytes of the segment that should be there by now.
    wanted: u64,
    /// How often the log said so, which it does with each write.
    writes: u64,
}

impl State {
    /// Whether the next piece may be written, `made` bytes being there and after a rest that began
    /// when there had been so many writes.
    fn goes_on(&self, made: u64, writes: u64) -> bool {
        self.wanted > made || self.writes == writes
    }
}

impl Pace {
    /// The log writes, and so many bytes should be there by now. A rest that has begun goes on: it is
    /// short, and waking somebody with every commit would cost more.
    pub(super) fn want(&self, bytes: u64) {
        let mut state = self.lock();
        state.wanted = bytes.max(state.wanted);
        state.writes += 1;
    }

    /// Somebody waits for the segment: no more rests.
    pub(super) fn hurry(&self) {
        self.want(u64::MAX);
        self.changed.notify_all();
    }

    /// The next segment has time.
    pub(super) fn relax(&self) {
        self.lock().wanted = 0;
    }

    /// Leaves the disk to the log, after a piece that took so long, until more is wanted than is
    /// there, or nothing was written for a while.
    pub(super) fn rest(&self, made: u64, took: Duration) {
        self.rest_for(made, rest_after(took));
    }

    fn rest_for(&self, made: u64, mut quiet: Duration) {
        let mut state = self.lock();
        loop {
            let writes = state.writes;
            // Woken early or late is no matter; a poisoned lock means that its holder is gone.
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

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn rest_after(took: Duration) -> Duration {
    took.saturating_mul(REST_TIMES).clamp(REST_MIN, REST_MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    const FOR_EVER: Duration = Duration::from_secs(3600);

    #[test]
    fn rests_grow_with_the_disk_s_pain_within_bounds() {
        let rest = |us| rest_after(Duration::from_micros(us)).as_micros();
        assert_eq!([rest(0), rest(100), rest(2000)], [200, 300, 6000]);
        assert_eq!(rest(1 << 40), 100_000);
        assert_eq!(rest_after(Duration::MAX), REST_MAX);
    }

    /// Hangs if a rest does not end.
    #[test]
    fn a_hurry_ends_the_rest_and_all_rests_behind_it() {
        let pace = Pace::default();
        std::thread::scope(|scope| {
            let resting = scope.spawn(|| (0..3).for_each(|made| pace.rest_for(made, FOR_EVER)));
            pace.hurry();
            resting.join().unwrap();
        });
        pace.relax();
        assert_eq!(pace.lock().wanted, 0);
    }

    /// Hangs if it rests although more is wanted.
    #[test]
    fn who_is_behind_does_not_rest_and_what_is_wanted_does_not_fall() {
        let pace = Pace::default();
        for (wanted, made) in [(100, 99), (50, 99), (101, 100)] {
            pace.want(wanted);
            pace.rest_for(made, FOR_EVER);
        }
    }

    #[test]
    fn a_busy_log_is_left_alone_until_it_is_quiet_or_wants_more() {
        let pace = Pace::default();
        pace.want(100);
        let writes = pace.lock().writes;
        assert!(pace.lock().goes_on(100, writes), "quiet");
        pace.want(100);
        assert!(!pace.lock().goes_on(100, writes), "it wrote");
        assert!(pace.lock().goes_on(99, writes), "more is wanted");
        // Hangs if a quiet log is not enough.
        pace.rest_for(101, REST_MIN);
    }
}
