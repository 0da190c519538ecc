//! Busy polling before the reactor sleeps. Waking a thread costs more than a short wait: an
//! interrupt and, on a virtual machine, an exit to the host on each side. A command that runs alone
//! pays this at every step.
//!
//! The thread yields its CPU between polls, so no runnable thread waits for it. If the CPU is
//! returned late, other threads need it, and the reactor stops polling for a while.

use quorate_core::time::Time;

/// Setting for busy polling, as passed with `--spin`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Spin {
    /// Poll while recent waits were short and no other thread needs the CPU.
    #[default]
    Auto,
    /// Never poll.
    Off,
    /// Always poll for this many microseconds.
    Us(u32),
}

impl Spin {
    /// Maximum polling time in microseconds. For longer waits, the cost of sleeping hardly matters.
    pub const US_MAX: u32 = 1000;

    /// Parses the value of `--spin`: `auto`, `off`, or microseconds up to [`Self::US_MAX`].
    pub fn from_name(text: &str) -> Option<Self> {
        match text {
            "auto" => Some(Self::Auto),
            "off" => Some(Self::Off),
            us => match us.parse() {
                Ok(us @ 1..=Self::US_MAX) => Some(Self::Us(us)),
                _ => None,
            },
        }
    }
}

/// Polling time of [`Spin::Auto`] in microseconds: longer than a step between two running
/// processes, and about the cost of a wake-up.
const AUTO_SPIN_US: u64 = 50;
/// Multiple of [`AUTO_SPIN_US`] up to which a wait that slept counts as short, since it includes
/// the wake-up.
const SHORT_SLEEP_FACTOR: u64 = 3;
/// Minimum number of short waits among the last 16 for polling.
const SHORT_WAITS_MIN: u32 = 4;
/// Duration of a turn in microseconds above which the thread sleeps at once: a wake-up costs little
/// in comparison, and other threads need the CPU more.
const LONG_TURN_US: u64 = 100;
/// Duration of a yield in microseconds that shows that other threads need the CPU.
const LONG_YIELD_US: u64 = 500;
/// Pause in polling after a long yield, in multiples of the yield, to bound the cost of polling.
const PAUSE_FACTOR: u64 = 50;

/// Recent waits of one thread. They determine the polling time.
#[derive(Clone, Debug)]
pub(crate) struct SpinHistory {
    setting: Spin,
    /// One bit for each of the last 16 waits, set if it was short.
    short_waits: u16,
    /// Time at which the last wait ended.
    last_wait_end: Time,
    no_spin_until: Time,
}

impl SpinHistory {
    pub(crate) const fn new(wanted: Spin) -> Self {
        Self { setting: wanted, short_waits: 0, last_wait_end: Time(0), no_spin_until: Time(0) }
    }

    /// Returns the time in microseconds to poll before sleeping; 0 for no polling.
    pub(crate) const fn spin_time_us(&self, now: Time) -> u64 {
        match self.setting {
            Spin::Off => 0,
            Spin::Us(us) => us as u64,
            Spin::Auto if now.0 < self.no_spin_until.0 => 0,
            Spin::Auto if now.since_us(self.last_wait_end) > LONG_TURN_US => 0,
            Spin::Auto if self.short_waits.count_ones() < SHORT_WAITS_MIN => 0,
            Spin::Auto => AUTO_SPIN_US,
        }
    }

    /// Records the end of a wait that began at `began`. `slept` is set if the thread slept.
    pub(crate) const fn record_wait(&mut self, began: Time, now: Time, slept: bool) {
        self.last_wait_end = now;
        let longest = if slept { AUTO_SPIN_US * SHORT_SLEEP_FACTOR } else { AUTO_SPIN_US };
        self.short_waits = self.short_waits << 1 | (now.since_us(began) <= longest) as u16;
    }

    /// Records that a yield took `us` microseconds. Returns whether to stop polling for that
    /// reason.
    pub(crate) fn record_yield(&mut self, now: Time, us: u64) -> bool {
        if us < LONG_YIELD_US {
            return false;
        }
        self.no_spin_until = now.plus_us(us.saturating_mul(PAUSE_FACTOR));
        true
    }

    /// Describes what [`Spin::Auto`] currently does and why; `None` if it only sleeps, or if the
    /// operator chose another setting.
    pub(crate) fn describe_choice(&self, now: Time) -> Option<String> {
        let why = match (self.setting, self.spin_time_us(now)) {
            (Spin::Off | Spin::Us(_), _) => return None,
            (Spin::Auto, 0) if now < self.no_spin_until => {
                "does not poll between events: other programs need the CPUs".to_owned()
            }
            (Spin::Auto, 0) => return None,
            (Spin::Auto, us) => {
                format!("polls for {us} µs before sleeping: events come in quick succession")
            }
        };
        Some(why)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn after(waits: &[(u64, bool)]) -> SpinHistory {
        let mut spinning = SpinHistory::new(Spin::Auto);
        for (us, slept) in waits {
            spinning.record_wait(Time(0), Time(*us), *slept);
        }
        spinning
    }

    #[test]
    fn polls_if_recent_waits_were_short() {
        let now = Time(5);
        assert_eq!(after(&[]).spin_time_us(now), 0);
        assert_eq!(after(&[(20, false); 3]).spin_time_us(now), 0);
        assert_eq!(after(&[(20, false); 4]).spin_time_us(now), AUTO_SPIN_US);
        // The wake-up took most of it.
        assert_eq!(after(&[(150, true); 4]).spin_time_us(now), AUTO_SPIN_US);
        assert_eq!(after(&[(151, true); 16]).spin_time_us(now), 0);
        let mut idle = after(&[(20, false); 16]);
        for _ in 0..13 {
            idle.record_wait(Time(0), Time(20_000), true);
        }
        assert_eq!(idle.spin_time_us(now), 0, "nothing happens any more");
    }

    #[test]
    fn sleeps_while_other_threads_need_the_processor() {
        let mut spinning = after(&[(20, false); 16]);
        assert!(!spinning.record_yield(Time(0), LONG_YIELD_US - 1));
        let now = Time(1_000_000);
        let short_wait = |spinning: &mut SpinHistory, end| spinning.record_wait(end, end, false);
        short_wait(&mut spinning, now);
        assert_eq!(spinning.spin_time_us(now), AUTO_SPIN_US);
        assert!(spinning.record_yield(now, 4000));
        let last = now.plus_us(4000 * PAUSE_FACTOR - 1);
        for rests in [now, last] {
            short_wait(&mut spinning, rests);
            assert_eq!(spinning.spin_time_us(rests), 0);
            assert!(spinning.describe_choice(rests).is_some_and(|why| why.contains("need")));
        }
        assert_eq!(spinning.spin_time_us(last.plus_us(1)), AUTO_SPIN_US);
    }

    #[test]
    fn sleeps_after_a_long_turn() {
        let mut spinning = after(&[(20, false); 16]);
        let woke = Time(1_000_000);
        spinning.record_wait(woke, woke, false);
        assert_eq!(spinning.spin_time_us(woke.plus_us(LONG_TURN_US)), AUTO_SPIN_US);
        assert_eq!(spinning.spin_time_us(woke.plus_us(LONG_TURN_US + 1)), 0);
    }

    #[test]
    fn spin_setting_is_parsed() {
        let read = ["auto", "off", "1", "1000"].map(Spin::from_name);
        let wished = [Spin::Auto, Spin::Off, Spin::Us(1), Spin::Us(1000)];
        assert_eq!(read, wished.map(Some));
        for text in ["", "on", "0", "1001", "-1", "5us"] {
            assert_eq!(Spin::from_name(text), None, "{text}");
        }
    }

    #[test]
    fn fixed_spin_settings_are_followed() {
        let mut never = SpinHistory::new(Spin::Off);
        let mut always = SpinHistory::new(Spin::Us(7));
        for spinning in [&mut never, &mut always] {
            spinning.record_yield(Time(0), 4000);
            spinning.record_wait(Time(0), Time(1), false);
            assert_eq!(spinning.describe_choice(Time(1)), None);
        }
        assert_eq!((never.spin_time_us(Time(1)), always.spin_time_us(Time(1))), (0, 7));
    }
}
