//! Waits on epoll with microsecond precision.
//!
//! The timeout of `epoll_wait` is in milliseconds and rounded up. Kernels before 5.11 have no finer
//! one. A timer descriptor is as precise as the kernel's clock.

use std::{io, os::fd::OwnedFd};

use rustix::{
    event::{
        Timespec,
        epoll::{self, EventData, EventFlags},
    },
    time::{
        Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, timerfd_create,
        timerfd_settime,
    },
};

use crate::relay::link::{NANOS_PER_SECOND, Nanos};

/// Epoll token of the timer.
const TIMER_TOKEN: u64 = u64::MAX;
const ZERO_TIME: Timespec = Timespec { tv_sec: 0, tv_nsec: 0 };

/// A timer that wakes an epoll.
#[derive(Debug)]
pub struct EpollTimer(OwnedFd);

impl EpollTimer {
    /// Adds a timer to an epoll. No other source of the epoll may use the token [`u64::MAX`].
    pub fn add_to_epoll(epoll: &OwnedFd) -> io::Result<Self> {
        let flags = TimerfdFlags::CLOEXEC | TimerfdFlags::NONBLOCK;
        let timer = timerfd_create(TimerfdClockId::Monotonic, flags)?;
        epoll::add(epoll, &timer, EventData::new_u64(TIMER_TOKEN), EventFlags::IN)?;
        Ok(Self(timer))
    }

    /// Waits for events for at most this time, or polls if zero. The timer is no event.
    pub fn wait(
        &self,
        epoll: &OwnedFd,
        events: &mut Vec<epoll::Event>,
        nanos: Nanos,
    ) -> io::Result<()> {
        events.clear();
        let timeout = if nanos == 0 {
            Some(&ZERO_TIME)
        } else {
            // Setting a new time also clears a previous expiry.
            let it_value = Timespec {
                tv_sec: i64::try_from(nanos / NANOS_PER_SECOND).unwrap_or(i64::MAX),
                tv_nsec: i64::try_from(nanos % NANOS_PER_SECOND).expect("below a second"),
            };
            let once = Itimerspec { it_interval: ZERO_TIME, it_value };
            timerfd_settime(&self.0, TimerfdTimerFlags::empty(), &once)?;
            None
        };
        let spare = rustix::buffer::spare_capacity(events);
        match epoll::wait(epoll, spare, timeout) {
            Ok(_) | Err(rustix::io::Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
        events.retain(|event| event.data.u64() != TIMER_TOKEN);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, Instant};

    use rustix::event::epoll::CreateFlags;

    use super::*;

    /// A wait never ends early. How late it ends depends on the machine's load.
    #[test]
    fn timeout_ends_the_wait_without_an_event() {
        let epoll = epoll::create(CreateFlags::CLOEXEC).unwrap();
        let alarm = EpollTimer::add_to_epoll(&epoll).unwrap();
        let mut events = Vec::with_capacity(4);
        for nanos in [1, 300_000, 1_700_000] {
            let began = Instant::now();
            alarm.wait(&epoll, &mut events, nanos).unwrap();
            assert!(began.elapsed() >= Duration::from_nanos(nanos) && events.is_empty());
        }
        // The last timer has expired, and a poll does not wait for it.
        alarm.wait(&epoll, &mut events, 0).unwrap();
        assert!(events.is_empty());
    }
}
