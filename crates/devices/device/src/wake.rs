//! Wakes a thread that waits in `poll`, through a descriptor that becomes readable.

use std::{
    io,
    os::fd::{AsFd, BorrowedFd, OwnedFd},
};

use rustix::event::{EventfdFlags, PollFd, PollFlags, eventfd, poll};

#[derive(Debug)]
pub(crate) struct WakeEvent(OwnedFd);

impl WakeEvent {
    pub(crate) fn new() -> io::Result<Self> {
        let flags = EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK;
        Ok(Self(eventfd(0, flags)?))
    }

    /// Makes the descriptor readable. Fails only if the counter is full, in which case it is
    /// readable already.
    pub(crate) fn signal(&self) {
        let _ = rustix::io::write(&self.0, &1_u64.to_ne_bytes());
    }

    /// Makes the descriptor unreadable until the next signal. The caller must check for work
    /// afterwards.
    pub(crate) fn clear(&self) {
        let _ = rustix::io::read(&self.0, &mut [0; 8]);
    }

    /// Waits until a signal or until `other` is readable. May return early after an interrupt.
    pub(crate) fn wait_or_readable(&self, other: BorrowedFd<'_>) {
        let mut polled = [PollFd::new(self, PollFlags::IN), PollFd::new(&other, PollFlags::IN)];
        let _ = poll(&mut polled, None);
    }
}

impl AsFd for WakeEvent {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}
