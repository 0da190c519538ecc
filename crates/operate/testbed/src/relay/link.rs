//! Model of a link with a bounded queue, a rate and a delay.
//!
//! A packet waits for all earlier packets, is sent at the link's rate, and arrives one delay after
//! its last bit. One that does not fit into the queue is dropped (tail drop). There is no jitter,
//! loss or reordering. The caller passes all times, in nanoseconds.

/// Time in nanoseconds since an arbitrary start.
pub type Nanos = u64;

pub const NANOS_PER_SECOND: Nanos = 1_000_000_000;

/// Parameters of a link.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LinkParameters {
    /// Rate in bits per second, at least 1. It applies to IP packets including their headers.
    pub bits_per_second: u64,
    /// Delay from sending the last bit of a packet to its arrival.
    pub delay: Nanos,
    /// Capacity of the queue in bytes, which includes the packet being sent.
    pub queue_bytes: u64,
}

impl LinkParameters {
    /// Returns the transmission time of a packet of `bytes` bytes, rounded up to a nanosecond.
    pub fn transmission_time(&self, bytes: u64) -> Nanos {
        let bits = u128::from(bytes) * 8;
        let time =
            (bits * u128::from(NANOS_PER_SECOND)).div_ceil(u128::from(self.bits_per_second.max(1)));
        Nanos::try_from(time).unwrap_or(Nanos::MAX)
    }
}

/// One direction of a link between two nodes.
#[derive(Clone, Copy, Debug)]
pub struct LinkQueue {
    parameters: LinkParameters,
    /// Time at which all accepted packets will have been sent.
    free_at: Nanos,
}

impl LinkQueue {
    pub fn new(law: LinkParameters) -> Self {
        Self { parameters: law, free_at: 0 }
    }

    /// Returns the number of bytes that are queued or being sent, rounded up.
    pub fn waiting_bytes(&self, now: Nanos) -> u64 {
        let busy = u128::from(self.free_at.saturating_sub(now));
        let bits = busy * u128::from(self.parameters.bits_per_second);
        u64::try_from(bits.div_ceil(8 * u128::from(NANOS_PER_SECOND))).unwrap_or(u64::MAX)
    }

    /// Offers a packet to the link. Returns the time of its arrival at the other end, or `None` if
    /// it is dropped. Successive calls must not go back in time.
    pub fn offer(&mut self, now: Nanos, bytes: u64) -> Option<Nanos> {
        if self.waiting_bytes(now).saturating_add(bytes) > self.parameters.queue_bytes {
            return None;
        }
        let sent = self.free_at.max(now).saturating_add(self.parameters.transmission_time(bytes));
        self.free_at = sent;
        Some(sent.saturating_add(self.parameters.delay))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: Nanos = 1_000_000;

    /// Returns a law of 10 Mbit/s and 50 ms. A byte takes 800 ns, a packet of 1500 bytes 1.2 ms.
    fn law(queue_bytes: u64) -> LinkParameters {
        LinkParameters { bits_per_second: 10_000_000, delay: 50 * MS, queue_bytes }
    }

    #[test]
    fn single_packet_takes_transmission_time_plus_delay() {
        let mut link = LinkQueue::new(law(3000));
        assert_eq!(link.offer(7 * MS, 1500), Some(7 * MS + 1_200_000 + 50 * MS));
        // The link is idle again; the first packet has been sent.
        assert_eq!(link.offer(9 * MS, 125), Some(9 * MS + 100_000 + 50 * MS));
    }

    #[test]
    fn packets_wait_for_earlier_ones() {
        let mut link = LinkQueue::new(law(1_000_000));
        let arrivals: Vec<_> = (0..4).map(|_| link.offer(0, 1500).unwrap()).collect();
        let sent: Vec<_> = arrivals.iter().map(|at| at - 50 * MS).collect();
        assert_eq!(sent, [1_200_000, 2_400_000, 3_600_000, 4_800_000]);
    }

    #[test]
    fn rate_is_exact_over_a_minute_for_any_packet_sizes() {
        let mut link = LinkQueue::new(law(60_000));
        let (mut now, mut bytes, mut last, mut number) = (0, 0_u64, 0, 0_u64);
        while now < 60 * NANOS_PER_SECOND {
            let size = 40 + number.wrapping_mul(7919) % 1461;
            // Up to 80 packets per millisecond, more than the link can send.
            match link.offer(now, size) {
                Some(at) => {
                    assert!(at > last, "no packet passes another");
                    (bytes, last) = (bytes + size, at);
                }
                None => now += MS,
            }
            number += 1;
            now += MS / 80;
        }
        let seconds = (last - 50 * MS) as f64 / NANOS_PER_SECOND as f64;
        let rate = bytes as f64 * 8.0 / seconds;
        assert!((rate / 10e6 - 1.0).abs() < 1e-4, "{rate}");
    }

    #[test]
    fn only_packets_that_exceed_the_queue_are_dropped() {
        let mut link = LinkQueue::new(law(3000));
        assert!(link.offer(0, 1500).is_some() && link.offer(0, 1500).is_some());
        assert_eq!(link.offer(0, 1), None);
        // Half a packet was sent, so exactly half a packet fits.
        assert_eq!(link.offer(600_000, 751), None);
        assert!(link.offer(600_000, 750).is_some());
        assert_eq!(link.offer(600_000, 1), None);
        assert_eq!(link.waiting_bytes(600_000), 3000);
        assert_eq!(link.waiting_bytes(NANOS_PER_SECOND), 0);
    }

    #[test]
    fn a_link_without_a_limit_only_delays() {
        let fast = LinkParameters { bits_per_second: u64::MAX, queue_bytes: u64::MAX, ..law(0) };
        let mut link = LinkQueue::new(fast);
        for _ in 0..3 {
            assert!(link.offer(5, 65_535).unwrap() <= 5 + 50 * MS + 3);
        }
    }
}
