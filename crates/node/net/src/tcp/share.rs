//! Bandwidth limit of peer connections while datagrams share the link: the bandwidth that datagrams
//! leave, but at least a tenth of the link's ([rate-4]).
//!
//! A follower that returns after a while needs megabytes. Sent at full TCP speed, they would delay
//! all datagrams, including heartbeats.

use quorate_core::time::Time;
use quorate_packets::rate::TokenBucket;

/// Divisor of the link's capacity that gives the minimum share of connections: a tenth, however
/// much bandwidth datagrams use.
const MIN_SHARE_DIVISOR: u64 = 10;
/// Limit for connections and datagrams together, in percent of the link's capacity.
const TOTAL_LIMIT_PERCENT: u64 = 95;
/// Interval in microseconds between measurements of the datagram rate.
const MEASUREMENT_INTERVAL_US: u64 = 10_000;
/// Number of bursts per second; determines the size of a burst.
const BURSTS_PER_SECOND: u64 = 50;
/// Minimum size of a burst in bytes, so that it is worth a system call.
const BURST_BYTES_MIN: u64 = 16 << 10;
/// Maximum number of bytes queued for a peer that datagrams do not reach. More would be outdated on
/// arrival.
pub(crate) const UNREACHED_BYTES_MAX: usize = 256 << 10;

/// Bandwidth available to all peer connections together.
#[derive(Debug)]
pub(crate) struct BandwidthShare {
    bucket: TokenBucket,
    resume_bytes: usize,
    link_bytes_s: u64,
    /// Total number of bytes sent in datagrams at the last measurement, and its time.
    last_measurement: (u64, Time),
    /// Recent rate of datagrams in bytes per second. The estimate rises at once and falls slowly.
    datagram_bytes_s: u64,
}

impl BandwidthShare {
    /// Creates the share of a link with the given capacity in bytes per second.
    pub(crate) fn for_link(link_bytes_s: u64, now: Time) -> Self {
        let rate = (link_bytes_s / MIN_SHARE_DIVISOR).max(1);
        let burst = (rate / BURSTS_PER_SECOND).max(BURST_BYTES_MIN);
        Self {
            bucket: TokenBucket::new(rate, burst, now),
            resume_bytes: usize::try_from(burst / 2).unwrap_or(usize::MAX),
            link_bytes_s,
            last_measurement: (0, now),
            datagram_bytes_s: link_bytes_s,
        }
    }

    /// Records the total number of bytes sent in datagrams so far.
    pub(crate) fn record_datagrams(&mut self, sent_bytes: u64, now: Time) {
        let (before, at) = self.last_measurement;
        let us = now.since_us(at);
        if us < MEASUREMENT_INTERVAL_US {
            return;
        }
        self.last_measurement = (sent_bytes, now);
        let rate = (sent_bytes - before).saturating_mul(1_000_000) / us;
        self.datagram_bytes_s =
            rate.max(self.datagram_bytes_s - self.datagram_bytes_s.div_ceil(16));
        let both = self.link_bytes_s / 100 * TOTAL_LIMIT_PERCENT;
        let left = both.saturating_sub(self.datagram_bytes_s);
        let least = (self.link_bytes_s / MIN_SHARE_DIVISOR).max(1);
        self.bucket.set_rate(left.max(least), now);
    }

    /// Returns the number of bytes that connections may send now.
    pub(crate) fn available_bytes(&mut self, now: Time) -> usize {
        self.bucket.available_bytes(now)
    }

    pub(crate) fn record_sent(&mut self, bytes: usize, now: Time) {
        let left = self.bucket.available_bytes(now);
        self.bucket.take_bytes(bytes.min(left), now);
    }

    /// Returns when enough bytes may be sent again.
    pub(crate) fn next_send_at(&self) -> Time {
        self.bucket.available_at(self.resume_bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Sends `datagrams` bytes per second for `seconds`, next to connections that send as much as
    /// allowed. Returns the bytes of connections in the last second.
    fn next_to(share: &mut BandwidthShare, datagrams: u64, seconds: u64, from: Time) -> u64 {
        let mut sent = 0;
        for ms in 1..=seconds * 1000 {
            let now = from.plus_ms(ms);
            share.record_datagrams(
                share.last_measurement.0
                    + datagrams * now.since_us(share.last_measurement.1) / 1_000_000,
                now,
            );
            let room = share.available_bytes(now);
            share.record_sent(room, now);
            sent += if ms > (seconds - 1) * 1000 { room as u64 } else { 0 };
        }
        sent
    }

    /// Connections use the bandwidth that datagrams do not need, and yield it at once.
    #[test]
    fn connections_get_the_bandwidth_left_by_datagrams() {
        const LINK: u64 = 12_500_000;
        let mut share = BandwidthShare::for_link(LINK, Time(0));
        let idle = next_to(&mut share, 0, 3, Time(0));
        assert!(idle.abs_diff(LINK / 100 * 95) < LINK / 50, "{idle}");
        let busy = next_to(&mut share, LINK / 100 * 92, 2, Time(3_000_000));
        assert!(busy.abs_diff(LINK / 10) < LINK / 50, "{busy}");
        let half = next_to(&mut share, LINK / 2, 3, Time(5_000_000));
        assert!(half.abs_diff(LINK / 100 * 45) < LINK / 50, "{half}");
    }

    #[test]
    fn all_connections_together_get_a_tenth_of_the_link() {
        const LINK: u64 = 12_500_000;
        let mut now = Time(0);
        let mut share = BandwidthShare::for_link(LINK, now);
        let (mut sent, mut writes) = (0, 0);
        while now < Time(10_000_000) {
            let room = share.available_bytes(now);
            share.record_sent(room, now);
            sent += room as u64;
            writes += 1;
            assert!(share.next_send_at() > now);
            now = share.next_send_at();
        }
        assert!(sent.abs_diff(LINK) < LINK / 100, "{sent} of {LINK}");
        assert!(writes < 10 * 2 * BURSTS_PER_SECOND + 2, "{writes}");
    }
}
