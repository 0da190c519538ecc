//! A node's device in the kernel, created anew at every start and removed at a clean stop.

use std::{fmt, os::fd::BorrowedFd};

use quorate_device::xdp::{Failed, Hook, Host, PreviousDevice};
use quorate_offload::port::{Connectivity, Device, Drained, FrameOrigin, Program, Shape};
use quorate_offload::{Form, reason::COUNTERS};

use super::place::{AttachmentPoint, Sight};

/// Both programs attached to an interface. A killed process leaves them in place, voting in a
/// ballot that no process can raise, until the next process removes them before doing anything else
/// ([offload-8]).
pub(super) struct Kernel {
    /// The programs; `None` only during `drop`.
    host: Option<Host>,
    /// Hooks that were not tried, with the reasons.
    not: Vec<&'static str>,
}

impl Kernel {
    /// Attaches a device to an interface, using the first of `hooks` that works.
    ///
    /// Devices of an earlier process are fenced and removed without reading their votes. In a
    /// durable group those votes were only hints. In a volatile group a returning node has
    /// forgotten its promises and is a new member ([offload-9], [offload-10]).
    pub(super) fn open(
        place: &AttachmentPoint,
        interface: &str,
        hooks: &[Hook],
    ) -> Result<Self, Failed> {
        let told = place.for_kernel()?;
        let mut not = Vec::new();
        let mut hooks = hooks.to_vec();
        hooks.retain(|hook| match blind(place.sight(), *hook) {
            Some(why) => {
                not.push(why);
                false
            }
            None => true,
        });
        let open = || Host::open(&told, interface, &hooks, Form::Raw);
        let (mut host, before) = open()?;
        if !matches!(before, PreviousDevice::Nothing) {
            tracing::info!("{interface}: stopped the device of an earlier process");
        }
        if matches!(before, PreviousDevice::Same) {
            host.leave()?;
            (host, _) = open()?;
        }
        Ok(Self { host: Some(host), not })
    }

    fn host(&self) -> &Host {
        self.host.as_ref().expect("until it is dropped")
    }

    fn host_mut(&mut self) -> &mut Host {
        self.host.as_mut().expect("until it is dropped")
    }

    pub(super) fn hook(&self) -> Hook {
        self.host().hook()
    }

    /// Returns the descriptor that is readable while frames are waiting.
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

    fn take(&mut self, frame: &mut Vec<u8>) -> Option<(Program, FrameOrigin)> {
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

    fn connectivity(&mut self) -> Connectivity {
        self.host_mut().connectivity()
    }

    fn renamed_interface(&mut self) -> Option<String> {
        self.host_mut().renamed_interface()
    }

    fn refused(&mut self) -> [u64; COUNTERS] {
        self.host_mut().refused()
    }
}

impl Drop for Kernel {
    fn drop(&mut self) {
        let left = self.host.take().map(Host::leave);
        if let Some(Err(failed)) = left {
            // The next process finds the programs and removes them.
            tracing::warn!("cannot remove the device from the kernel: {failed}");
        }
    }
}

impl fmt::Display for Kernel {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.host().fmt(to)?;
        self.not.iter().try_for_each(|why| write!(to, "; {why}"))
    }
}

/// Returns the reason why a hook cannot be used at an interface with visibility `sight`
/// ([offload-16]), if there is one.
const fn blind(sight: Sight, hook: Hook) -> Option<&'static str> {
    match hook {
        Hook::Native if sight.is_pair => {
            Some("not native XDP: at one end of a pair the other end drops what is sent back")
        }
        Hook::Native if sight.strips_tags => Some(
            "not native XDP: the interface takes VLAN tags out of frames \
             (`ethtool -K INTERFACE rxvlan off` ends that)",
        ),
        Hook::Generic => Some("not generic XDP: it does not see VLAN tags"),
        Hook::Native | Hook::Traffic => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// [offload-16] A hook that does not see VLAN tags cannot refuse them, and is not used.
    #[test]
    fn hook_that_does_not_see_vlan_tags_is_not_used() {
        let taken = |is_pair, takes_tags| {
            let sight = Sight { is_pair, strips_tags: takes_tags };
            let mut hooks = Hook::ALL.to_vec();
            hooks.retain(|hook| blind(sight, *hook).is_none());
            hooks
        };
        assert_eq!(taken(false, false), [Hook::Native, Hook::Traffic]);
        for (is_pair, takes_tags) in [(false, true), (true, false), (true, true)] {
            assert_eq!(taken(is_pair, takes_tags), [Hook::Traffic]);
        }
    }
}
