//! Wake-up of a reactor: a descriptor that becomes readable when it is signalled.

use std::{
    io,
    os::fd::{AsFd, BorrowedFd, OwnedFd},
};

use rustix::event::{EventfdFlags, eventfd};

/// A descriptor that is readable from a signal until it is drained.
#[derive(Debug)]
pub struct Wake(OwnedFd);

impl Wake {
    pub fn new() -> io::Result<Self> {
        let flags = EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK;
        Ok(Self(eventfd(0, flags)?))
    }

    /// Makes the descriptor readable. The write fails only if the counter is full, in which case
    /// the descriptor is readable already.
    pub fn signal(&self) {
        let _ = rustix::io::write(&self.0, &1u64.to_ne_bytes());
    }

    /// Makes the descriptor unreadable until the next signal.
    pub fn drain(&self) {
        let _ = rustix::io::read(&self.0, &mut [0; 8]);
    }
}

impl AsFd for Wake {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}
