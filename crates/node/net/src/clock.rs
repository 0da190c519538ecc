//! The reactor's clock. It advances while the machine is suspended, because a lease must not
//! outlive a suspend ([read-4]).

use quorate_core::time::Time;

/// Time at which the reactor was created, read from a clock that keeps running during a suspend.
/// `Instant` uses `CLOCK_MONOTONIC`, which does not.
#[derive(Clone, Copy, Debug)]
pub(crate) struct StartTime(u64);

impl StartTime {
    pub(crate) fn now() -> Self {
        Self(boot_us())
    }

    pub(crate) fn elapsed(self) -> Time {
        Time(boot_us().saturating_sub(self.0))
    }
}

#[cfg(target_os = "linux")]
fn boot_us() -> u64 {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::Boottime);
    let part = |number: i64| u64::try_from(number).unwrap_or(0);
    part(time.tv_sec).saturating_mul(1_000_000).saturating_add(part(time.tv_nsec) / 1000)
}

/// Returns the microseconds since boot, except suspends; the command line refuses leases on such
/// systems.
#[cfg(not(target_os = "linux"))]
fn boot_us() -> u64 {
    static FIRST: std::sync::OnceLock<std::time::Instant> = std::sync::OnceLock::new();
    let passed = FIRST.get_or_init(std::time::Instant::now).elapsed();
    u64::try_from(passed.as_micros()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn clock_advances_and_counts_from_the_start() {
        let started = StartTime::now();
        let first = started.elapsed();
        assert!(first < Time(0).plus_ms(60_000));
        while started.elapsed() == first {
            std::hint::spin_loop();
        }
        assert!(started.elapsed() > first);
    }
}
