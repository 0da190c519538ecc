//! Byte rate limit of background work, which leaves capacity for clients' requests.

use quorate_core::time::Time;

/// Time in milliseconds for which unused allowance accumulates.
const BURST_MS: u64 = 100;

/// A rate limit, with the allowance that is left.
#[derive(Clone, Copy, Debug)]
pub(crate) struct TransferRateLimit {
    /// Rate limit in bytes per second; `None` if unlimited.
    bytes_per_second: Option<u64>,
    /// Number of bytes that may be transferred now. Work must pause while it is negative.
    bytes_left: i64,
    updated_at: Time,
}

impl TransferRateLimit {
    pub(crate) fn new(now: Time, bytes_per_second: Option<u64>) -> Self {
        Self {
            bytes_per_second: bytes_per_second.map(|rate| rate.max(1)),
            bytes_left: 0,
            updated_at: now,
        }
    }

    /// Returns whether bytes may be transferred now, in any number: an excess is paid for by
    /// waiting.
    pub(crate) fn can_transfer(&mut self, now: Time) -> bool {
        let Some(rate) = self.bytes_per_second else {
            return true;
        };
        let earned = u128::from(rate) * u128::from(now.since_us(self.updated_at)) / 1_000_000;
        // Time too short to earn a byte is carried over.
        if earned > 0 {
            self.updated_at = now;
            let most = i64::try_from(rate / (1000 / BURST_MS)).unwrap_or(i64::MAX);
            let earned = i64::try_from(earned).unwrap_or(i64::MAX);
            self.bytes_left = self.bytes_left.saturating_add(earned).min(most.max(1));
        }
        self.bytes_left > 0
    }

    pub(crate) fn spend_bytes(&mut self, bytes: usize) {
        if self.bytes_per_second.is_some() {
            let bytes = i64::try_from(bytes).unwrap_or(i64::MAX);
            self.bytes_left = self.bytes_left.saturating_sub(bytes);
        }
    }

    /// Returns the time at which bytes may be transferred again; `None` if they may be now.
    pub(crate) fn wake_at(&self) -> Option<Time> {
        let rate = self.bytes_per_second?;
        let missing = u128::try_from(1 - self.bytes_left).ok().filter(|missing| *missing > 0)?;
        let us = u64::try_from(missing * 1_000_000 / u128::from(rate)).unwrap_or(u64::MAX);
        Some(self.updated_at.plus_us(us.saturating_add(1)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rate_is_met_over_seconds_for_any_piece_size() {
        for piece in [100, 4096, 300_000] {
            let mut allowance = TransferRateLimit::new(Time(0), Some(1_000_000));
            let mut moved = 0;
            for us in (0..10_000_000).step_by(50) {
                if allowance.can_transfer(Time(us)) {
                    allowance.spend_bytes(piece);
                    moved += piece;
                } else {
                    let at = allowance.wake_at().expect("it waits for something");
                    assert!(at > Time(us) && at < Time(us + 400_000), "{piece}: {at:?} at {us}");
                }
            }
            let rate = moved / 10;
            assert!((900_000..1_100_000).contains(&rate), "{piece}: {rate}");
        }
    }

    #[test]
    fn without_a_rate_transfers_never_wait() {
        let mut allowance = TransferRateLimit::new(Time(0), None);
        allowance.spend_bytes(usize::MAX);
        assert!(allowance.can_transfer(Time(0)));
        assert_eq!(allowance.wake_at(), None);
    }
}
