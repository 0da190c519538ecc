//! Wake-up of the reactor by devices, through one descriptor shared by all of them.

use std::{
    io,
    os::fd::{AsFd, BorrowedFd, OwnedFd},
    sync::Arc,
};

use rustix::event::epoll::{self, EventData, EventFlags};

use crate::handle::ReactorMailbox;

/// Descriptor that is readable while the current device has frames for the reactor.
pub(crate) struct DeviceWakeup {
    epoll: OwnedFd,
    wake_callback: Arc<dyn Fn() + Send + Sync>,
}

impl DeviceWakeup {
    pub(super) fn new(shared: Arc<ReactorMailbox>) -> io::Result<Self> {
        Ok(Self {
            epoll: epoll::create(epoll::CreateFlags::CLOEXEC)?,
            wake_callback: Arc::new(move || shared.wake().signal()),
        })
    }

    /// Adds a device's descriptor. Closing the descriptor removes it.
    pub(super) fn add_device_fd(&self, fd: BorrowedFd<'_>) -> io::Result<()> {
        let data = EventData::new_u64(0);
        Ok(epoll::add(&self.epoll, fd, data, EventFlags::IN)?)
    }

    /// Returns the wake-up callback for devices that are threads.
    pub(super) fn wake_callback(&self) -> Arc<dyn Fn() + Send + Sync> {
        Arc::clone(&self.wake_callback)
    }
}

impl AsFd for DeviceWakeup {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.epoll.as_fd()
    }
}

impl std::fmt::Debug for DeviceWakeup {
    fn fmt(&self, to: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        to.debug_struct("Waiting").finish_non_exhaustive()
    }
}
