//! Disk model with a given flush time, in front of the real disk. For measurements only.
//!
//! A disk that acknowledges a flush from the host's cache does not represent a disk that really
//! flushes. Here the real write happens first; its completion is then delayed until a modelled
//! flush has ended.

use std::{
    collections::VecDeque,
    io,
    os::fd::{AsFd, BorrowedFd, OwnedFd},
    time::Duration,
};

use rustix::{
    event::epoll::{self, CreateFlags, EventData, EventFlags},
    time::{
        ClockId, Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, Timespec,
        clock_gettime, timerfd_create, timerfd_settime,
    },
};

use crate::disk::{Completed, Durability};

const NANOS: u64 = 1_000_000_000;

/// Model of flush times. One flush is in progress at a time; writes that arrive during it share the
/// next one, as in the kernel.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FlushModel {
    flush_ns: u64,
    /// Start of the latest planned flush, in nanoseconds.
    last_flush_start: Option<u64>,
}

impl FlushModel {
    pub fn new(flush: Duration) -> Self {
        Self {
            flush_ns: u64::try_from(flush.as_nanos()).unwrap_or(u64::MAX),
            last_flush_start: None,
        }
    }

    /// Records that a write arrived at the device at time `now`, and returns when it is on stable
    /// storage. `now` must never decrease.
    pub fn flush_end(&mut self, now: u64) -> u64 {
        let begins = match self.last_flush_start {
            // That flush has not begun yet, so it covers this write, too.
            Some(begins) if now <= begins => begins,
            Some(begins) => now.max(begins.saturating_add(self.flush_ns)),
            None => now,
        };
        self.last_flush_start = Some(begins);
        begins.saturating_add(self.flush_ns)
    }
}

/// Returns the monotonic clock in nanoseconds. Only the modelled device uses a clock; the log has
/// none.
pub fn device_time() -> u64 {
    let now = clock_gettime(ClockId::Monotonic);
    let seconds = u64::try_from(now.tv_sec).unwrap_or(0);
    seconds * NANOS + u64::try_from(now.tv_nsec).unwrap_or(0)
}

#[derive(Debug)]
pub(crate) struct Modelled {
    model: FlushModel,
    /// Delayed completions with their end times, earliest first.
    delayed_completions: VecDeque<(u64, Completed)>,
    timer: OwnedFd,
    timer_set_to: Option<u64>,
    /// Readable when the timer has expired or the real disk has completions.
    ready_fd: OwnedFd,
}

impl Modelled {
    /// Creates a model in front of a disk that signals completions through `news`.
    pub(crate) fn new(news: BorrowedFd<'_>, flush: Duration) -> io::Result<Self> {
        let flags = TimerfdFlags::CLOEXEC | TimerfdFlags::NONBLOCK;
        let timer = timerfd_create(TimerfdClockId::Monotonic, flags)?;
        let either = epoll::create(CreateFlags::CLOEXEC)?;
        for source in [timer.as_fd(), news] {
            epoll::add(&either, source, EventData::new_u64(0), EventFlags::IN)?;
        }
        Ok(Self {
            model: FlushModel::new(flush),
            delayed_completions: VecDeque::new(),
            timer_set_to: None,
            timer,
            ready_fd: either,
        })
    }

    pub(crate) fn flush(&self) -> Duration {
        Duration::from_nanos(self.model.flush_ns)
    }

    /// Returns the next completion of the modelled device. `real` returns completions of the real
    /// one.
    pub(crate) fn poll(
        &mut self,
        mut real: impl FnMut() -> Option<Completed>,
    ) -> Option<Completed> {
        while let Some(completed) = real() {
            match completed {
                Completed::Written { result: Ok(()), durability: Durability::Flushed, .. }
                | Completed::Flushed { result: Ok(()), .. } => {
                    let ends = self.model.flush_end(device_time());
                    self.delayed_completions.push_back((ends, completed));
                }
                // Reads, operations on whole files, and failures do not wait for a flush.
                other => return Some(other),
            }
        }
        if let Some((ends, _)) = self.delayed_completions.front()
            && *ends <= device_time()
        {
            return self.delayed_completions.pop_front().map(|(_, completed)| completed);
        }
        self.set_timer();
        None
    }

    pub(crate) fn wait_fd(&self) -> BorrowedFd<'_> {
        self.ready_fd.as_fd()
    }

    /// Sets the timer to the earliest end of a write. Setting it makes it unreadable.
    fn set_timer(&mut self) {
        let wanted = self.delayed_completions.front().map(|(ends, _)| *ends);
        if wanted == self.timer_set_to {
            return;
        }
        // Zero would disable the timer, so the time is at least one nanosecond.
        let at = wanted.map_or(0, |ends| ends.max(1));
        let time = |nanos: u64| Timespec {
            tv_sec: i64::try_from(nanos / NANOS).unwrap_or(i64::MAX),
            tv_nsec: i64::try_from(nanos % NANOS).expect("below a thousand million"),
        };
        let value = Itimerspec { it_interval: time(0), it_value: time(at) };
        timerfd_settime(&self.timer, TimerfdTimerFlags::ABSTIME, &value)
            .expect("a timer of ours takes any moment");
        self.timer_set_to = wanted;
    }
}

#[cfg(test)]
mod tests {
    use rustix::event::{PollFd, PollFlags, poll};

    use super::{
        super::{BLOCK, Disk as _, DriverChoice, Family, FileDisk, FileId, ZeroFill, open},
        *,
    };

    #[test]
    fn waiting_writes_share_the_next_flush() {
        let mut model = FlushModel::new(Duration::from_nanos(100));
        assert_eq!(model.flush_end(10), 110);
        assert_eq!(model.flush_end(20), 210, "it came too late for the first flush");
        assert_eq!(model.flush_end(50), 210);
        assert_eq!(model.flush_end(110), 210, "just in time");
        assert_eq!(model.flush_end(111), 310);
        assert_eq!(model.flush_end(1000), 1100);
    }

    #[test]
    fn sequential_commits_take_one_flush_each() {
        let mut model = FlushModel::new(Duration::from_millis(1));
        let mut now = 0;
        for _ in 0..1000 {
            now = model.flush_end(now);
        }
        assert_eq!(now, NANOS);
    }

    /// The reactor waits on one descriptor, which becomes readable when the modelled device
    /// completes a write.
    #[test]
    fn write_completes_and_wakes_the_reactor_when_its_flush_ends() {
        const FLUSH: Duration = Duration::from_millis(20);
        for want in [DriverChoice::Auto, DriverChoice::File] {
            let folder = tempfile::tempdir().unwrap();
            let (disk, _) = open(folder.path(), want).unwrap();
            let mut disk = disk.with_min_flush_time(FLUSH).unwrap();
            assert!(disk.describe().contains("MODELLED"), "{}", disk.describe());
            let wait = |disk: &mut FileDisk| loop {
                if let Some(completed) = disk.poll() {
                    return completed;
                }
                let fd = disk.wait_fd().unwrap();
                let limit = Timespec { tv_sec: 20, tv_nsec: 0 };
                let ready = poll(&mut [PollFd::new(&fd, PollFlags::IN)], Some(&limit)).unwrap();
                assert!(ready > 0, "nothing completes");
            };
            let file = FileId::new(Family::Log, 1);
            disk.start_prepare(file, 16 * BLOCK as u64, ZeroFill::Written);
            assert!(matches!(wait(&mut disk), Completed::Prepared { result: Ok(()), .. }));
            for offset in 0..3 {
                let buffer = disk.allocate(BLOCK);
                let at = file.position_at(offset * BLOCK as u64);
                let before = device_time();
                disk.start_write(offset, at, buffer.into(), BLOCK, Durability::Flushed);
                let completed = wait(&mut disk);
                assert!(
                    matches!(completed, Completed::Written { token, result: Ok(()), .. } if token == offset)
                );
                assert!(device_time() - before >= u64::try_from(FLUSH.as_nanos()).unwrap());
            }
            assert!(disk.poll().is_none());
            let fd = disk.wait_fd().unwrap();
            let now = Timespec::default();
            let ready = poll(&mut [PollFd::new(&fd, PollFlags::IN)], Some(&now)).unwrap();
            assert_eq!(ready, 0, "nothing is left to be told");
        }
    }
}
