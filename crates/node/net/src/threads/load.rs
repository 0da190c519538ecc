//! Handover of connections to the I/O threads and their recall: decides when each happens ([io-3]).

use quorate_core::time::Time;

/// Length of a measurement window in microseconds.
const WINDOW_US: u64 = 50_000;
/// Minimum share of a busy window, in percent, in which the reactor did not wait for events.
const BUSY_PERCENT: u64 = 75;
/// Number of consecutive busy windows after which connections are handed over.
const BUSY_WINDOWS_MIN: u64 = 4;
/// Number of client reads and writes in a window below which it is other work that keeps the
/// reactor busy.
const CLIENT_CALLS_MIN: u64 = 200;
/// Number of consecutive quiet windows after which connections are recalled.
const QUIET_WINDOWS_MIN: u64 = 20;
/// Divisor of the input per window at the handover. A window with less than the result is quiet:
/// the reactor alone would be busy for half of it.
const QUIET_INPUT_DIVISOR: u64 = 2;

/// Load of the reactor in the current window and the previous ones.
#[derive(Debug, Default)]
pub(crate) struct ReactorLoad {
    window_began_at: Time,
    waited_us: u64,
    /// Counters when the window began.
    window_start: ClientWork,
    /// Number of consecutive busy or quiet windows.
    consecutive_windows: u64,
    /// Bytes of input per window at the handover; `None` while the reactor has the connections.
    handover_input_bytes: Option<u64>,
}

/// Counters of clients since the start.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct ClientWork {
    /// Number of reads and writes by the reactor.
    pub(crate) calls: u64,
    /// Bytes of input, regardless of the thread that read them.
    pub(crate) bytes: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum HandoverDecision {
    HandOver,
    Recall,
}

impl ReactorLoad {
    /// Records a turn that waited for `waited_us` before `now`. Returns the change to make, if any.
    pub(crate) fn record_turn(
        &mut self,
        now: Time,
        waited_us: u64,
        work: ClientWork,
    ) -> Option<HandoverDecision> {
        self.waited_us += waited_us;
        let long = now.since_us(self.window_began_at);
        if long < WINDOW_US {
            return None;
        }
        let worked_us = long.saturating_sub(self.waited_us);
        let per_window = |now: u64, before: u64| (now - before).saturating_mul(WINDOW_US) / long;
        let calls = per_window(work.calls, self.window_start.calls);
        let bytes = per_window(work.bytes, self.window_start.bytes);
        (self.window_began_at, self.waited_us, self.window_start) = (now, 0, work);
        let (counts, needed) = match self.handover_input_bytes {
            None => (
                worked_us * 100 >= long * BUSY_PERCENT && calls >= CLIENT_CALLS_MIN,
                BUSY_WINDOWS_MIN,
            ),
            Some(before) => (bytes <= before / QUIET_INPUT_DIVISOR, QUIET_WINDOWS_MIN),
        };
        // A window may last long if the reactor had nothing to do, or one long task.
        let windows = if self.handover_input_bytes.is_some() { long / WINDOW_US } else { 1 };
        self.consecutive_windows = if counts { self.consecutive_windows + windows } else { 0 };
        if self.consecutive_windows < needed {
            return None;
        }
        self.consecutive_windows = 0;
        Some(match self.handover_input_bytes.take() {
            None => {
                self.handover_input_bytes = Some(bytes);
                HandoverDecision::HandOver
            }
            Some(_) => HandoverDecision::Recall,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A reactor whose windows are all alike for a while.
    #[derive(Default)]
    struct Trial {
        load: ReactorLoad,
        now_us: u64,
        work: ClientWork,
    }

    impl Trial {
        /// Runs windows in which the reactor waits for `waited_us`, with the given calls and bytes.
        /// Returns the first change, with the window in which it came.
        fn run(
            &mut self,
            windows: u64,
            waited_us: u64,
            calls: u64,
            bytes: u64,
        ) -> Option<(u64, HandoverDecision)> {
            (1..=windows).find_map(|window| {
                self.now_us += WINDOW_US;
                self.work.calls += calls;
                self.work.bytes += bytes;
                let change = self.load.record_turn(Time(self.now_us), waited_us, self.work)?;
                Some((window, change))
            })
        }
    }

    #[test]
    fn connections_move_to_threads_under_load_and_back_afterwards() {
        let mut trial = Trial::default();
        // A lone command in a loop: the reactor waits most of the time.
        assert_eq!(trial.run(100, WINDOW_US / 2, 1000, 50_000), None);
        // Busy with peers, or with one expensive command.
        assert_eq!(trial.run(100, 0, CLIENT_CALLS_MIN - 1, 5000), None);
        // A short burst.
        assert_eq!(trial.run(BUSY_WINDOWS_MIN - 1, 0, 4000, 200_000), None);
        assert_eq!(trial.run(1, WINDOW_US, 0, 0), None);
        let gone = trial.run(10, WINDOW_US / 5, 4000, 200_000);
        assert_eq!(gone, Some((BUSY_WINDOWS_MIN, HandoverDecision::HandOver)));
        // The threads take the calls off the reactor, which alone is no reason to come back.
        assert_eq!(trial.run(100, WINDOW_US * 4 / 5, 0, 150_000), None);
        assert_eq!(trial.run(QUIET_WINDOWS_MIN - 1, WINDOW_US, 0, 100_000), None);
        assert_eq!(trial.run(1, WINDOW_US, 0, 150_000), None);
        let back = trial.run(100, WINDOW_US, 0, 100_000);
        assert_eq!(back, Some((QUIET_WINDOWS_MIN, HandoverDecision::Recall)));
    }

    #[test]
    fn idle_time_counts_even_without_turns() {
        let mut trial = Trial::default();
        assert!(trial.run(BUSY_WINDOWS_MIN, 0, 4000, 200_000).is_some());
        trial.now_us += WINDOW_US * QUIET_WINDOWS_MIN;
        let change =
            trial.load.record_turn(Time(trial.now_us), WINDOW_US * QUIET_WINDOWS_MIN, trial.work);
        assert_eq!(change, Some(HandoverDecision::Recall));
    }
}
