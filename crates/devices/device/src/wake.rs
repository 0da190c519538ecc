//! Wakes a thread that waits in `poll`: a descriptor that is readable from a signal on.

use std::{
    io,
    os::fd::{AsFd, BorrowedFd, OwnedFd},
};

use rustix::event::{EventfdFlags, PollFd, PollFlags, eventfd, poll};

/// Readable from the moment it is signalled until it is drained.
#[derive(Debug)]
pub(crate) struct Wake(OwnedFd);

impl Wake {
    pub(crate) fn new() -> io::Result<Self> {
        let flags = EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK;
        Ok(Self(eventfd(0, flags)?))
    }

    /// Makes it readable. Fails only if the counter is full: it is readable then.
    pub(crate) fn signal(&self) {
        let _ = rustix::io::write(&self.0, &1_u64.to_ne_bytes());
    }

    /// Makes it unreadable until the next signal. The caller looks for work after it drains.
    pub(crate) fn drain(&self) {
        let _ = rustix::io::read(&self.0, &mut [0; 8]);
    }

    /// Waits until this is signalled or that is readable. An interrupted wait is a short one.
    pub(crate) fn wait(&self, other: BorrowedFd<'_>) {
        let mut polled = [PollFd::new(self, PollFlags::IN), PollFd::new(&other, PollFlags::IN)];
        let _ = poll(&mut polled, None);
    }
}

impl AsFd for Wake {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}
