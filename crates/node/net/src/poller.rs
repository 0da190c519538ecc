//! Readiness of descriptors: epoll, level-triggered.

use std::{
    fmt, io,
    os::fd::{AsFd, OwnedFd},
};

use rustix::event::{
    Timespec,
    epoll::{self, EventData, EventFlags},
};

/// Maximum number of events handled in one turn. Further events remain pending.
const EVENTS_MAX: usize = 1024;

/// Events that a descriptor is watched for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Interest {
    pub(crate) read: bool,
    pub(crate) write: bool,
}

impl Interest {
    pub(crate) const READ: Self = Self { read: true, write: false };
    pub(crate) const WRITE: Self = Self { read: false, write: true };
    /// No events except errors and hang-ups, which the kernel always reports.
    pub(crate) const NOTHING: Self = Self { read: false, write: false };

    fn flags(self) -> EventFlags {
        let mut flags = EventFlags::empty();
        flags.set(EventFlags::IN, self.read);
        flags.set(EventFlags::OUT, self.write);
        flags
    }
}

/// Readiness of a watched descriptor.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Ready {
    pub(crate) token: u64,
    pub(crate) read: bool,
    pub(crate) write: bool,
    /// The connection is closed in both directions. A read or write returns the reason.
    pub(crate) broken: bool,
}

/// Reusable buffer for the events returned by one wait.
pub(crate) struct Events {
    raw: Vec<epoll::Event>,
    pub(crate) ready: Vec<Ready>,
}

impl fmt::Debug for Events {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.ready.fmt(f)
    }
}

impl Events {
    pub(crate) fn new() -> Self {
        Self { raw: Vec::with_capacity(EVENTS_MAX), ready: Vec::with_capacity(EVENTS_MAX) }
    }
}

/// An epoll instance that watches descriptors.
#[derive(Debug)]
pub(crate) struct Poller {
    epoll: OwnedFd,
}

impl Poller {
    pub(crate) fn new() -> io::Result<Self> {
        let epoll = epoll::create(epoll::CreateFlags::CLOEXEC)?;
        Ok(Self { epoll })
    }

    pub(crate) fn add(&self, source: impl AsFd, token: u64, interest: Interest) -> io::Result<()> {
        Ok(epoll::add(&self.epoll, source, EventData::new_u64(token), interest.flags())?)
    }

    pub(crate) fn change(
        &self,
        source: impl AsFd,
        token: u64,
        interest: Interest,
    ) -> io::Result<()> {
        Ok(epoll::modify(&self.epoll, source, EventData::new_u64(token), interest.flags())?)
    }

    /// Waits at most `us` microseconds for events, or forever if `us` is `None`. Stores the events
    /// in `events`.
    pub(crate) fn wait(&self, us: Option<u64>, events: &mut Events) -> io::Result<()> {
        let Events { raw, ready } = events;
        raw.clear();
        ready.clear();
        let timeout = us.map(|us| Timespec {
            tv_sec: i64::try_from(us / 1_000_000).unwrap_or(i64::MAX),
            tv_nsec: i64::try_from(us % 1_000_000 * 1000).expect("below a thousand million"),
        });
        let spare = rustix::buffer::spare_capacity(raw);
        match epoll::wait(&self.epoll, spare, timeout.as_ref()) {
            Ok(_) | Err(rustix::io::Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
        ready.extend(raw.iter().map(|event| {
            let flags = event.flags;
            Ready {
                token: event.data.u64(),
                read: flags.contains(EventFlags::IN),
                write: flags.contains(EventFlags::OUT),
                broken: flags.intersects(EventFlags::HUP | EventFlags::ERR),
            }
        }));
        Ok(())
    }
}
