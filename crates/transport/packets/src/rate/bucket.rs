//! Token bucket, with a rate in bytes per second and a burst in bytes.

use quorate_core::time::Time;

#[derive(Clone, Debug)]
pub struct TokenBucket {
    rate_bytes_s: u64,
    burst_bytes: u64,
    /// Available bytes, in millionths of a byte, to avoid rounding errors.
    level_millionths: u64,
    refilled_at: Time,
}

const MILLION: u64 = 1_000_000;

impl TokenBucket {
    /// Creates a bucket that is full at `now`.
    pub const fn new(rate_bytes_s: u64, burst_bytes: u64, now: Time) -> Self {
        Self {
            rate_bytes_s,
            burst_bytes,
            level_millionths: burst_bytes.saturating_mul(MILLION),
            refilled_at: now,
        }
    }

    pub fn set_rate(&mut self, rate_bytes_s: u64, now: Time) {
        self.refill(now);
        self.rate_bytes_s = rate_bytes_s;
    }

    fn refill(&mut self, now: Time) {
        let gained = now.since_us(self.refilled_at).saturating_mul(self.rate_bytes_s);
        let full = self.burst_bytes.saturating_mul(MILLION);
        self.level_millionths = self.level_millionths.saturating_add(gained).min(full);
        self.refilled_at = self.refilled_at.max(now);
    }

    /// Returns the number of bytes that may be sent now.
    pub fn available_bytes(&mut self, now: Time) -> usize {
        self.refill(now);
        usize::try_from(self.level_millionths / MILLION).unwrap_or(usize::MAX)
    }

    /// Removes `bytes` bytes. If there are fewer, removes nothing and returns false.
    pub fn take_bytes(&mut self, bytes: usize, now: Time) -> bool {
        let enough = self.available_bytes(now) >= bytes;
        if enough {
            self.level_millionths -= (bytes as u64).saturating_mul(MILLION);
        }
        enough
    }

    /// Puts back bytes that were not sent.
    pub fn return_bytes(&mut self, bytes: usize) {
        let full = self.burst_bytes.saturating_mul(MILLION);
        let back = (bytes as u64).saturating_mul(MILLION);
        self.level_millionths = self.level_millionths.saturating_add(back).min(full);
    }

    /// Returns when `bytes` bytes will be available or the bucket will be full.
    pub fn available_at(&self, bytes: usize) -> Time {
        let wanted = (bytes as u64).min(self.burst_bytes).saturating_mul(MILLION);
        let missing = wanted.saturating_sub(self.level_millionths);
        self.refilled_at.plus_us(missing.div_ceil(self.rate_bytes_s.max(1)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bucket_allows_its_rate_and_one_burst() {
        let mut bucket = TokenBucket::new(1_000_000, 100, Time(0));
        let mut taken = 0;
        let mut now = Time(0);
        while now < Time(10_000) {
            while bucket.take_bytes(10, now) {
                taken += 10;
            }
            let due = bucket.available_at(10);
            assert!(due > now);
            now = due;
        }
        assert_eq!(taken, 10_000 + 100 - 10);
        assert!(!bucket.take_bytes(101, Time(u64::MAX)));
        assert_eq!(bucket.available_at(101), Time(u64::MAX));
    }

    #[test]
    fn a_slow_rate_loses_no_fraction() {
        let mut bucket = TokenBucket::new(3, 1, Time(0));
        assert!(bucket.take_bytes(1, Time(0)));
        for now in 0..333_333 {
            assert!(!bucket.take_bytes(1, Time(now)));
        }
        assert!(bucket.take_bytes(1, Time(333_334)));
    }
}
