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
    pub fn named(text: &str) -> Option<Self> {
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
const AUTO_US: u64 = 50;
/// Multiple of [`AUTO_US`] up to which a wait that slept counts as short, since it includes the
/// wake-up.
const SLEPT_TIMES: u64 = 3;
/// Minimum number of short waits among the last 16 for polling.
const SHORT_MIN: u32 = 4;
/// Duration of a turn in microseconds above which the thread sleeps at once: a wake-up costs little
/// in comparison, and other threads need the CPU more.
const TURN_US: u64 = 100;
/// Duration of a yield in microseconds that shows that other threads need the CPU.
const AWAY_US: u64 = 500;
/// Pause in polling after a long yield, in multiples of the yield, to bound the cost of polling.
const REST_TIMES: u64 = 50;

/// Recent waits of one thread. They determine the polling time.
#[derive(Clone, Debug)]
pub(crate) struct Spinning {
    setting: Spin,
    /// One bit for each of the last 16 waits, set if it was short.
    short: u16,
    /// Time at which the last wait ended.
    woke: Time,
    rests_until: Time,
}

impl Spinning {
    pub(crate) const fn new(wanted: Spin) -> Self {
        Self { setting: wanted, short: 0, woke: Time(0), rests_until: Time(0) }
    }

    /// Returns the time in microseconds to poll before sleeping; 0 for no polling.
    pub(crate) const fn for_us(&self, now: Time) -> u64 {
        match self.setting {
            Spin::Off => 0,
            Spin::Us(us) => us as u64,
            Spin::Auto if now.0 < self.rests_until.0 => 0,
            Spin::Auto if now.since_us(self.woke) > TURN_US => 0,
            Spin::Auto if self.short.count_ones() < SHORT_MIN => 0,
            Spin::Auto => AUTO_US,
        }
    }

    /// Records the end of a wait that began at `began`. `slept` is set if the thread slept.
    pub(crate) const fn waited(&mut self, began: Time, now: Time, slept: bool) {
        self.woke = now;
        let longest = if slept { AUTO_US * SLEPT_TIMES } else { AUTO_US };
        self.short = self.short << 1 | (now.since_us(began) <= longest) as u16;
    }

    /// Records that a yield took `us` microseconds. Returns whether to stop polling for that
    /// reason.
    pub(crate) fn was_away(&mut self, now: Time, us: u64) -> bool {
        if us < AWAY_US {
            return false;
        }
        self.rests_until = now.plus_us(us.saturating_mul(REST_TIMES));
        true
    }

    /// Describes what [`Spin::Auto`] currently does and why; `None` if it only sleeps, or if the
    /// operator chose another setting.
    pub(crate) fn why(&self, now: Time) -> Option<String> {
        let why = match (self.setting, self.for_us(now)) {
            (Spin::Off | Spin::Us(_), _) => return None,
            (Spin::Auto, 0) if now < self.rests_until => {
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

    fn after(waits: &[(u64, bool)]) -> Spinning {
        let mut spinning = Spinning::new(Spin::Auto);
        for (us, slept) in waits {
            spinning.waited(Time(0), Time(*us), *slept);
        }
        spinning
    }

    #[test]
    fn polls_if_recent_waits_were_short() {
        let now = Time(5);
        assert_eq!(after(&[]).for_us(now), 0);
        assert_eq!(after(&[(20, false); 3]).for_us(now), 0);
        assert_eq!(after(&[(20, false); 4]).for_us(now), AUTO_US);
        // The wake-up took most of it.
        assert_eq!(after(&[(150, true); 4]).for_us(now), AUTO_US);
        assert_eq!(after(&[(151, true); 16]).for_us(now), 0);
        let mut idle = after(&[(20, false); 16]);
        for _ in 0..13 {
            idle.waited(Time(0), Time(20_000), true);
        }
        assert_eq!(idle.for_us(now), 0, "nothing happens any more");
    }

    #[test]
    fn sleeps_while_other_threads_need_the_processor() {
        let mut spinning = after(&[(20, false); 16]);
        assert!(!spinning.was_away(Time(0), AWAY_US - 1));
        let now = Time(1_000_000);
        let short_wait = |spinning: &mut Spinning, end| spinning.waited(end, end, false);
        short_wait(&mut spinning, now);
        assert_eq!(spinning.for_us(now), AUTO_US);
        assert!(spinning.was_away(now, 4000));
        let last = now.plus_us(4000 * REST_TIMES - 1);
        for rests in [now, last] {
            short_wait(&mut spinning, rests);
            assert_eq!(spinning.for_us(rests), 0);
            assert!(spinning.why(rests).is_some_and(|why| why.contains("need")));
        }
        assert_eq!(spinning.for_us(last.plus_us(1)), AUTO_US);
    }

    #[test]
    fn sleeps_after_a_long_turn() {
        let mut spinning = after(&[(20, false); 16]);
        let woke = Time(1_000_000);
        spinning.waited(woke, woke, false);
        assert_eq!(spinning.for_us(woke.plus_us(TURN_US)), AUTO_US);
        assert_eq!(spinning.for_us(woke.plus_us(TURN_US + 1)), 0);
    }

    #[test]
    fn spin_setting_is_parsed() {
        let read = ["auto", "off", "1", "1000"].map(Spin::named);
        let wished = [Spin::Auto, Spin::Off, Spin::Us(1), Spin::Us(1000)];
        assert_eq!(read, wished.map(Some));
        for text in ["", "on", "0", "1001", "-1", "5us"] {
            assert_eq!(Spin::named(text), None, "{text}");
        }
    }

    #[test]
    fn fixed_spin_settings_are_followed() {
        let mut never = Spinning::new(Spin::Off);
        let mut always = Spinning::new(Spin::Us(7));
        for spinning in [&mut never, &mut always] {
            spinning.was_away(Time(0), 4000);
            spinning.waited(Time(0), Time(1), false);
            assert_eq!(spinning.why(Time(1)), None);
        }
        assert_eq!((never.for_us(Time(1)), always.for_us(Time(1))), (0, 7));
    }
}
