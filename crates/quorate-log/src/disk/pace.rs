//! How fast a segment is made while a log commits beside it: in small pieces, and with rests.
//!
//! A piece of 1 MiB occupies a disk for as long as several commits; made without rests, a segment of
//! 64 MiB kept the commits of a whole machine waiting (`docs/performance.md`, "A segment is born").

use std::{
    sync::{Condvar, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

/// Zeros written at a time.
pub(super) const PIECE_BYTES: usize = 256 << 10;
/// A rest is so many times as long as the piece before it took: a quarter of the disk is enough.
const REST_TIMES: u32 = 3;
const REST_MIN: Duration = Duration::from_micros(200);
/// A disk that takes long over one piece is not left alone for minutes.
const REST_MAX: Duration = Duration::from_millis(100);

/// Shared by the thread that makes segments and the log that needs them.
#[derive(Debug, Default)]
pub(super) struct Pace {
    hurried: Mutex<bool>,
    changed: Condvar,
}

impl Pace {
    /// Somebody waits for the segment: no more rests.
    pub(super) fn hurry(&self) {
        *self.lock() = true;
        self.changed.notify_all();
    }

    /// The next segment has time.
    pub(super) fn relax(&self) {
        *self.lock() = false;
    }

    /// Leaves the disk to others, after a piece that took so long.
    pub(super) fn rest(&self, took: Duration) {
        self.rest_for(rest_after(took));
    }

    fn rest_for(&self, time: Duration) {
        // Woken early or late is no matter; a poisoned lock means that its holder is gone.
        drop(
            self.changed
                .wait_timeout_while(self.lock(), time, |hurried| !*hurried),
        );
    }

    fn lock(&self) -> MutexGuard<'_, bool> {
        self.hurried.lock().unwrap_or_else(PoisonError::into_inner)
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
            let resting = scope.spawn(|| (0..3).for_each(|_| pace.rest_for(FOR_EVER)));
            pace.hurry();
            resting.join().unwrap();
        });
        pace.relax();
        assert!(!*pace.lock());
    }
}
