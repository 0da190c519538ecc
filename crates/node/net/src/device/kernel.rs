//! A node's device in the kernel, created anew at every start and removed at a clean stop.

use std::{fmt, os::fd::BorrowedFd};

use quorate_device::xdp::{Hook, PreviousDevice, XdpError, XdpHost};
use quorate_offload::port::{Connectivity, Device, DeviceShape, Drained, FrameOrigin, Program};
use quorate_offload::{Encapsulation, reason::COUNTERS};

use super::place::{AttachmentPoint, FrameVisibility};

/// Both programs attached to an interface. A killed process leaves them in place, voting in a
/// ballot that no process can raise, until the next process removes them before doing anything else
/// ([offload-8]).
pub(super) struct KernelDevice {
    /// The programs; `None` only during `drop`.
    host: Option<XdpHost>,
    /// Hooks that were not tried, with the reasons.
    skipped_hooks: Vec<&'static str>,
}

impl KernelDevice {
    /// Attaches a device to an interface, using the first of `hooks` that works.
    ///
    /// Devices of an earlier process are fenced and removed without reading their votes. In a
    /// durable group those votes were only hints. In a volatile group a returning node has
    /// forgotten its promises and is a new member ([offload-9], [offload-10]).
    pub(super) fn open(
        place: &AttachmentPoint,
        interface: &str,
        hooks: &[Hook],
    ) -> Result<Self, XdpError> {
        let told = place.for_kernel()?;
        let mut not = Vec::new();
        let mut hooks = hooks.to_vec();
        hooks.retain(|hook| match why_hook_unusable(place.frame_visibility(), *hook) {
            Some(why) => {
                not.push(why);
                false
            }
            None => true,
        });
        let open = || XdpHost::open(&told, interface, &hooks, Encapsulation::Raw);
        let (mut host, before) = open()?;
        if !matches!(before, PreviousDevice::NotFound) {
            tracing::info!("{interface}: stopped the device of an earlier process");
        }
        if matches!(before, PreviousDevice::SameDevice) {
            host.retire()?;
            (host, _) = open()?;
        }
        Ok(Self { host: Some(host), skipped_hooks: not })
    }

    fn host(&self) -> &XdpHost {
        self.host.as_ref().expect("until it is dropped")
    }

    fn host_mut(&mut self) -> &mut XdpHost {
        self.host.as_mut().expect("until it is dropped")
    }

    pub(super) fn hook(&self) -> Hook {
        self.host().hook()
    }

    /// Returns the descriptor that is readable while frames are waiting.
    pub(super) fn readable_fd(&self) -> BorrowedFd<'_> {
        self.host().device().tap_readable_fd()
    }
}

impl Device for KernelDevice {
    fn shape(&self) -> DeviceShape {
        self.host().shape()
    }

    fn put_frame(&mut self, program: Program, frame: &[u8]) {
        self.host_mut().put_frame(program, frame);
    }

    fn send_to_devices(&mut self, frame: &[u8]) {
        self.host_mut().send_to_devices(frame);
    }

    fn take_frame(&mut self, frame: &mut Vec<u8>) -> Option<(Program, FrameOrigin)> {
        self.host_mut().take_frame(frame)
    }

    fn begin_drain(&mut self) {
        self.host_mut().begin_drain();
    }

    fn drain_progress(&mut self) -> Drained {
        self.host_mut().drain_progress()
    }

    fn lost_frame_count(&self) -> u64 {
        self.host().lost_frame_count()
    }

    fn connectivity(&mut self) -> Connectivity {
        self.host_mut().connectivity()
    }

    fn renamed_interface(&mut self) -> Option<String> {
        self.host_mut().renamed_interface()
    }

    fn reason_counts(&mut self) -> [u64; COUNTERS] {
        self.host_mut().reason_counts()
    }
}

impl Drop for KernelDevice {
    fn drop(&mut self) {
        let left = self.host.take().map(XdpHost::retire);
        if let Some(Err(failed)) = left {
            // The next process finds the programs and removes them.
            tracing::warn!("cannot remove the device from the kernel: {failed}");
        }
    }
}

impl fmt::Display for KernelDevice {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.host().fmt(to)?;
        self.skipped_hooks.iter().try_for_each(|why| write!(to, "; {why}"))
    }
}

/// Returns the reason why a hook cannot be used at an interface with visibility `sight`
/// ([offload-16]), if there is one.
const fn why_hook_unusable(sight: FrameVisibility, hook: Hook) -> Option<&'static str> {
    match hook {
        Hook::Native if sight.is_veth_pair => {
            Some("not native XDP: at one end of a pair the other end drops what is sent back")
        }
        Hook::Native if sight.strips_vlan_tags => Some(
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
            let sight = FrameVisibility { is_veth_pair: is_pair, strips_vlan_tags: takes_tags };
            let mut hooks = Hook::ALL.to_vec();
            hooks.retain(|hook| why_hook_unusable(sight, *hook).is_none());
            hooks
        };
        assert_eq!(taken(false, false), [Hook::Native, Hook::Traffic]);
        for (is_pair, takes_tags) in [(false, true), (true, false), (true, true)] {
            assert_eq!(taken(is_pair, takes_tags), [Hook::Traffic]);
        }
    }
}
