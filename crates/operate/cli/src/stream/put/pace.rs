//! Rate limiter in bytes per second, which spreads the writes evenly.

use std::{
    thread,
    time::{Duration, Instant},
};

/// Target for the minimum number of writes per second, which very low rates do not reach.
const WRITES_PER_SECOND_MIN: u64 = 20;

/// Rate limiter with the time of the next write.
#[derive(Debug)]
pub(super) struct RateLimiter {
    bytes_per_second: Option<u64>,
    next_write_at: Instant,
}

impl RateLimiter {
    pub(super) fn new(bytes_per_second: Option<u64>) -> Self {
        Self { bytes_per_second, next_write_at: Instant::now() }
    }

    /// Returns the number of bytes that may be sent in one write, at most `piece`.
    pub(super) fn bytes_allowed(&self, piece: usize) -> usize {
        match self.bytes_per_second {
            None => piece,
            Some(rate) => usize::try_from((rate / WRITES_PER_SECOND_MIN).max(1))
                .map_or(piece, |turn| turn.min(piece)),
        }
    }

    /// Sleeps until the next write after sending `bytes`. Unused allowance expires.
    pub(super) fn sleep_after(&mut self, bytes: usize) {
        let wait = self.wait_after(bytes, Instant::now());
        thread::sleep(wait);
    }

    fn wait_after(&mut self, bytes: usize, now: Instant) -> Duration {
        let Some(rate) = self.bytes_per_second else {
            return Duration::ZERO;
        };
        let micros = bytes as u128 * 1_000_000 / u128::from(rate);
        let cost = Duration::from_micros(u64::try_from(micros).unwrap_or(u64::MAX));
        self.next_write_at = self.next_write_at.max(now) + cost;
        self.next_write_at.duration_since(now)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rate_limit_does_not_accumulate_credit_in_pauses() {
        let start = Instant::now();
        let at = |ms| start + Duration::from_millis(ms);
        let mut pace = RateLimiter { bytes_per_second: Some(1000), next_write_at: start };
        assert_eq!(pace.bytes_allowed(1 << 20), 50);
        assert_eq!(pace.wait_after(50, at(0)), Duration::from_millis(50));
        assert_eq!(pace.wait_after(50, at(20)), Duration::from_millis(80));
        assert_eq!(pace.wait_after(50, at(5000)), Duration::from_millis(50));
        let mut free = RateLimiter::new(None);
        assert_eq!(free.bytes_allowed(77), 77);
        assert_eq!(free.wait_after(1 << 40, start), Duration::ZERO);
    }
}
