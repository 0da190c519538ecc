//! A device in the kernel as a node has it: always new, and gone with its process if that ends in order.

use std::{fmt, os::fd::BorrowedFd};

use quorate_device::xdp::{Before, Failed, Hook, Host};
use quorate_offload::Form;
use quorate_offload::port::{Device, Drained, Hearing, Program, Shape};

use super::place::Place;

/// Both programs at an interface. A process that is killed leaves them there: they vote on in a ballot that nobody can
/// raise, and the next process ends them before it does anything else ([offload-8]).
pub(super) struct Kernel(Option<Host>);

impl Kernel {
    /// At an interface, by the first of these hooks that takes it.
    ///
    /// What an earlier process left there is fenced and taken away, and not read: in a durable group its votes were
    /// hints, and in a volatile one a node that comes back has forgotten its promises, and is a new member
    /// ([offload-9], [offload-10]).
    pub(super) fn open(place: &Place, interface: &str, hooks: &[Hook]) -> Result<Self, Failed> {
        let told = place.for_kernel()?;
        // What XDP sends back at one end of a pair, the other end drops if nobody prepared it.
        let hooks: Vec<Hook> = if place.is_pair() {
            let mut hooks = hooks.to_vec();
            hooks.retain(|hook| *hook != Hook::Native);
            hooks.sort_by_key(|hook| *hook != Hook::Traffic);
            hooks
        } else {
            hooks.to_vec()
        };
        let open = || Host::open(&told, interface, &hooks, Form::Raw);
        let (mut host, before) = open()?;
        if !matches!(before, Before::Nothing) {
            tracing::info!("{interface}: stopped the device of an earlier process");
        }
        if matches!(before, Before::Same) {
            host.leave()?;
            (host, _) = open()?;
        }
        Ok(Self(Some(host)))
    }

    fn host(&self) -> &Host {
        self.0.as_ref().expect("until it is dropped")
    }

    fn host_mut(&mut self) -> &mut Host {
        self.0.as_mut().expect("until it is dropped")
    }

    /// Where it hears the network.
    pub(super) fn hook(&self) -> Hook {
        self.host().hook()
    }

    /// Readable while there is something to take.
    pub(super) fn readable(&self) -> BorrowedFd<'_> {
        self.host().device().readable()
    }
}

impl Device for Kernel {
    fn shape(&self) -> Shape {
        self.host().shape()
    }

    fn put(&mut self, program: Program, frame: &[u8]) {
        self.host_mut().put(program, frame);
    }

    fn send(&mut self, frame: &[u8]) {
        self.host_mut().send(frame);
    }

    fn take(&mut self, frame: &mut Vec<u8>) -> Option<Program> {
        self.host_mut().take(frame)
    }

    fn drain(&mut self) {
        self.host_mut().drain();
    }

    fn drained(&mut self) -> Drained {
        self.host_mut().drained()
    }

    fn lost(&self) -> u64 {
        self.host().lost()
    }

    fn hearing(&mut self) -> Hearing {
        self.host_mut().hearing()
    }
}

impl Drop for Kernel {
    fn drop(&mut self) {
        let left = self.0.take().map(Host::leave);
        if let Some(Err(failed)) = left {
            // The next process finds it there, and ends it.
            tracing::warn!("cannot remove the device from the kernel: {failed}");
        }
    }
}

impl fmt::Display for Kernel {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.host().fmt(to)
    }
}
