//! How fast a segment is made while a log commits beside it: in small pieces, with rests while it is
//! ahead of the segment in use, and without them as soon as it is not.
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
/// A rest is so many times as long as the piece before it took: a quarter of the disk is enough.
const REST_TIMES: u32 = 3;
const REST_MIN: Duration = Duration::from_micros(200);
/// A disk that takes long over one piece is not left alone for minutes.
const REST_MAX: Duration = Duration::from_millis(100);

/// Shared by the thread that makes segments and the log that needs them.
#[derive(Debug, Default)]
pub(super) struct Pace {
    /// Bytes of the segment that should be there by now.
    wanted: Mutex<u64>,
    changed: Condvar,
}

impl Pace {
    /// So many bytes should be there by now. A rest that has begun goes on: it is short, and waking
    /// somebody with every commit would cost more.
    pub(super) fn want(&self, bytes: u64) {
        let mut wanted = self.lock();
        *wanted = bytes.max(*wanted);
    }

    /// Somebody waits for the segment: no more rests.
    pub(super) fn hurry(&self) {
        self.want(u64::MAX);
        self.changed.notify_all();
    }

    /// The next segment has time.
    pub(super) fn relax(&self) {
        *self.lock() = 0;
    }

    /// Leaves the disk to others if more is there than is wanted, after a piece that took so long.
    pub(super) fn rest(&self, made: u64, took: Duration) {
        self.rest_for(made, rest_after(took));
    }

    fn rest_for(&self, made: u64, time: Duration) {
        // Woken early or late is no matter; a poisoned lock means that its holder is gone.
        drop(
            self.changed
                .wait_timeout_while(self.lock(), time, |wanted| *wanted <= made),
        );
    }

    fn lock(&self) -> MutexGuard<'_, u64> {
        self.wanted.lock().unwrap_or_else(PoisonError::into_inner)
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
        assert_eq!(*pace.lock(), 0);
    }

    /// Hangs if it rests although more is wanted.
    #[test]
    fn who_is_behind_does_not_rest_and_what_is_wanted_does_not_fall() {
        let pace = Pace::default();
        for (wanted, made) in [(100, 99), (50, 99), (101, 100)] {
            pace.want(wanted);
            pace.rest_for(made, FOR_EVER);
        }
        let began = std::time::Instant::now();
        pace.rest_for(101, REST_MIN);
        assert!(began.elapsed() >= REST_MIN, "as much is there as is wanted");
    }
}
