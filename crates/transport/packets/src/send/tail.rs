//! Schedules tails, the datagrams that announce the end of a channel when nothing follows
//! ([told-2]).

use quorate_core::time::Time;

/// A timer that fires after 0.5, 1, 2, 4 … ms of silence, until heartbeats take over.
#[derive(Clone, Debug)]
pub struct TailTimer {
    first_us: u64,
    last_us: u64,
    /// Current wait for a tail in microseconds, and the time when it ends. `None` once heartbeats
    /// take over.
    current_wait: Option<(u64, Time)>,
}

impl TailTimer {
    /// Creates a timer that waits `first_us` at first, and always less than `heartbeat_us`.
    pub const fn new(first_us: u64, heartbeat_us: u64) -> Self {
        Self { first_us, last_us: heartbeat_us, current_wait: None }
    }

    /// Restarts the timer after something was sent or more slots were decided, which a lost
    /// datagram could hide.
    pub const fn restart(&mut self, now: Time) {
        self.current_wait = Some((self.first_us, now.plus_us(self.first_us)));
    }

    /// Returns when the next tail is due, or `None` if heartbeats have taken over.
    pub fn next_tail_at(&self) -> Option<Time> {
        self.current_wait.map(|(_, due)| due)
    }

    /// Returns whether a tail is due. If so, the wait for the next one doubles.
    pub fn poll(&mut self, now: Time) -> bool {
        let Some((wait, due)) = self.current_wait else {
            return false;
        };
        if now < due {
            return false;
        }
        let doubled = wait.saturating_mul(2);
        self.current_wait = (doubled < self.last_us).then(|| (doubled, now.plus_us(doubled)));
        true
    }

    pub const fn stop(&mut self) {
        self.current_wait = None;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// [told-2] Tails follow after 0.5, 1, 2, 4, 8 and 16 ms, then the heartbeat's interval.
    #[test]
    fn tails_double_until_the_heartbeat() {
        let mut timer = TailTimer::new(500, 20_000);
        assert!(!timer.poll(Time(1_000_000)));
        timer.restart(Time(0));
        let mut sent = Vec::new();
        while let Some(due) = timer.next_tail_at() {
            assert!(!timer.poll(Time(due.0 - 1)));
            assert!(timer.poll(due));
            sent.push(due.0);
        }
        assert_eq!(sent, [500, 1_500, 3_500, 7_500, 15_500, 31_500]);
        timer.restart(Time(40_000));
        assert_eq!(timer.next_tail_at(), Some(Time(40_500)));
    }
}
