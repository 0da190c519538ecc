//! Fallback list of devices: the node uses the best device that this machine supports, and falls
//! back to the next one if it is lost.

use std::{fmt, sync::Arc};

use quorate_device::xdp::Hook;
use quorate_device::{PacketSocketWire, SoftwareDevice};
use quorate_offload::owner::{Owner, Settings as OwnerSettings, Timeouts};
use quorate_offload::{Encapsulation, port::Device};
use quorate_packets::ethernet::Mac;
use quorate_replica::{AttachedDevice, DeviceSource};

use super::{
    ExternalDevice, Kind,
    boxes::ExternalTransport,
    by_udp::UdpCandidate,
    kernel::KernelDevice,
    place::{AttachmentPoint, is_interface},
    waiting::DeviceWakeup,
};

/// Maximum number of values in flight to the coordinator.
const IN_FLIGHT_VALUES_MAX: u64 = 256;
/// Time in microseconds after which undecided slots are sent to a kernel device again. Short,
/// because a kernel device answers quickly.
const KERNEL_RESEND_US: u64 = 1_000;

/// A device that the node may fall back to.
#[derive(Debug)]
pub(super) enum Candidate {
    /// A device in the kernel, at an interface.
    Kernel {
        interface: String,
        /// Hooks to try, best first.
        hooks: Vec<Hook>,
        /// The hook in use or last used.
        hook: Option<Hook>,
    },
    /// An external device, with the transport of its frames.
    External(ExternalDevice, ExternalTransport),
    /// A thread that uses raw frames at the named interface.
    Packet(String),
    /// A thread that uses UDP datagrams.
    Udp(UdpCandidate),
}

impl Candidate {
    /// Returns whether the candidate's interface exists, or it needs none.
    fn has_interface(&self) -> bool {
        match self {
            Self::Kernel { interface, .. }
            | Self::Packet(interface)
            | Self::External(_, ExternalTransport::Frames(interface)) => is_interface(interface),
            Self::Udp(_) | Self::External(_, ExternalTransport::Udp(_)) => true,
        }
    }

    const fn kind(&self) -> &'static str {
        match self {
            Self::Kernel { .. } => Kind::Kernel.name(),
            Self::External(one, _) => one.kind,
            Self::Packet(_) => Kind::Packet.name(),
            Self::Udp(_) => Kind::Udp.name(),
        }
    }

    /// Removes the hook last used. Returns whether another hook is left to try.
    fn drop_current_hook(&mut self) -> bool {
        match self {
            Self::Kernel { hooks, hook, .. } => {
                hooks.retain(|one| Some(*one) != *hook);
                !hooks.is_empty()
            }
            Self::Packet(_) | Self::Udp(_) | Self::External(..) => false,
        }
    }
}

impl fmt::Display for Candidate {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Kernel { interface, .. } => write!(to, "in the kernel at {interface}"),
            Self::External(one, way) => {
                write!(to, "box, {}, ", one.kind)?;
                match way {
                    ExternalTransport::Frames(interface) => {
                        write!(to, "by raw frames at {interface}")
                    }
                    ExternalTransport::Udp(udp) => {
                        write!(to, "by datagrams at {}", udp.own_address())
                    }
                }
            }
            Self::Packet(interface) => write!(to, "thread, by raw frames at {interface}"),
            Self::Udp(udp) => write!(to, "thread, by datagrams at {}", udp.own_address()),
        }
    }
}

/// All candidates, including those that were ruled out.
#[derive(Debug)]
pub(super) struct Candidates {
    /// Remaining candidates, best first.
    pub(super) remaining: Vec<Candidate>,
    /// Reasons why candidates were ruled out permanently.
    pub(super) ruled_out: Vec<String>,
    /// Id of the cluster that the devices serve.
    pub(super) cluster: u128,
    /// Boot number of this process. The boot numbers of its devices are derived from it.
    pub(super) boot: u32,
    /// Descriptors by which devices wake the reactor.
    pub(super) wakeup: Arc<DeviceWakeup>,
    /// Index in `remaining` of the candidate in use.
    pub(super) current_index: usize,
    pub(super) started_device_count: u32,
}

/// An open device, its description, and the intervals at which undecided slots are sent again.
type OpenedDevice = (Box<dyn Device + Send>, String, Timeouts);

impl Candidates {
    /// Abandons the candidate in use. A device that another program removed could be removed again,
    /// so its candidate is ruled out. A candidate whose interface disappeared is tried again once
    /// the interface is back.
    fn abandon_candidate(&mut self, why: &str) {
        let Some(rung) = self.remaining.get_mut(self.current_index) else {
            return;
        };
        tracing::warn!("device lost: {rung}: {why}");
        if !rung.has_interface() {
            return;
        }
        self.ruled_out.push(format!("no more {rung}: {why}"));
        if !rung.drop_current_hook() {
            self.remaining.remove(self.current_index);
        }
    }

    fn open_candidate(&mut self, at: usize) -> Result<OpenedDevice, String> {
        let name = self.remaining[at].to_string();
        match &mut self.remaining[at] {
            Candidate::Kernel { interface, hooks, hook } => {
                let place = AttachmentPoint::at(interface, self.cluster)?;
                let kernel = KernelDevice::open(&place, interface, hooks).map_err(text)?;
                *hook = Some(kernel.hook());
                self.wakeup.add_device_fd(kernel.readable_fd()).map_err(text)?;
                let pace = Timeouts { slot_retry_us: KERNEL_RESEND_US, ..Timeouts::default() };
                let name = format!("{name}, by {kernel}");
                Ok((Box::new(kernel), name, pace))
            }
            Candidate::External(one, way) => {
                let device = way.start(one, self.cluster, &self.wakeup)?;
                Ok((Box::new(device), name, Timeouts::default()))
            }
            Candidate::Packet(interface) => {
                let place = AttachmentPoint::at(interface, self.cluster)?;
                let groups =
                    [place.all_devices, place.decisions_address].map(|group| Mac(group.mac));
                let told = place.for_thread(Encapsulation::Raw);
                let mut wire = PacketSocketWire::open(interface, &groups).map_err(text)?;
                wire.claim_group(told.group).map_err(text)?;
                self.open_thread_device(told, wire, name)
            }
            Candidate::Udp(udp) => {
                let (told, wire) = udp.open(self.cluster).map_err(text)?;
                self.open_thread_device(told, wire, name)
            }
        }
    }

    fn open_thread_device(
        &self,
        told: quorate_device::Settings,
        wire: impl quorate_device::Wire,
        name: String,
    ) -> Result<OpenedDevice, String> {
        let device =
            SoftwareDevice::start(told, wire, self.wakeup.wake_callback()).map_err(text)?;
        Ok((Box::new(device), name, Timeouts::default()))
    }

    /// Attaches a driver to an open device, under one of the 256 boot numbers of this process.
    fn attach_device(
        &mut self,
        (device, name, pace): OpenedDevice,
        not: &[String],
    ) -> AttachedDevice {
        self.started_device_count += 1;
        let settings = OwnerSettings {
            owner_boot: self.boot.max(1),
            device_boot: (self.boot << 8 | self.started_device_count & 0xff).max(1),
            window: IN_FLIGHT_VALUES_MAX,
            timeouts: pace,
        };
        let owner = Owner::new(settings, device.shape());
        let words = std::iter::once(&name).chain(&self.ruled_out).chain(not);
        let words: Vec<&str> = words.map(String::as_str).collect();
        AttachedDevice {
            kind: self.remaining[self.current_index].kind(),
            name: words.join("; "),
            device,
            owner,
        }
    }
}

impl DeviceSource for Candidates {
    fn open_device(&mut self, lost: Option<&str>) -> Result<AttachedDevice, String> {
        if let Some(why) = lost {
            self.abandon_candidate(why);
        }
        let mut not = Vec::new();
        for at in 0..self.remaining.len() {
            match self.open_candidate(at) {
                Ok(found) => {
                    self.current_index = at;
                    return Ok(self.attach_device(found, &not));
                }
                Err(why) => not.push(format!("not {}: {why}", self.remaining[at])),
            }
        }
        let words = self.ruled_out.iter().chain(&not).map(String::as_str);
        Err(words.collect::<Vec<_>>().join("; "))
    }
}

#[expect(clippy::needless_pass_by_value, reason = "of errors")]
fn text(error: impl ToString) -> String {
    error.to_string()
}

#[cfg(test)]
mod tests {
    use quorate_device::GroupMembers;

    use super::*;
    use crate::handle::ReactorMailbox;

    const NONE: &str = "quorate-none";

    fn rungs(rungs: Vec<Candidate>) -> Candidates {
        Candidates {
            remaining: rungs,
            ruled_out: Vec::new(),
            cluster: 7,
            boot: 3,
            wakeup: Arc::new(DeviceWakeup::new(ReactorMailbox::new(16).unwrap()).unwrap()),
            current_index: 0,
            started_device_count: 0,
        }
    }

    fn kernel() -> Candidate {
        Candidate::Kernel {
            interface: NONE.to_owned(),
            hooks: vec![Hook::Native, Hook::Traffic],
            hook: Some(Hook::Native),
        }
    }

    #[test]
    fn first_possible_candidate_is_opened_and_reasons_reported() {
        let at = "127.0.0.1:0".parse().unwrap();
        let udp = UdpCandidate::bind(at, &GroupMembers::default()).unwrap();
        let mut rungs =
            rungs(vec![kernel(), Candidate::Packet(NONE.to_owned()), Candidate::Udp(udp)]);
        let lent = rungs.open_device(None).unwrap();
        assert!(lent.name.starts_with("thread, by datagrams"), "{}", lent.name);
        for passed in ["; not in the kernel", "; not thread, by raw frames"] {
            assert!(lent.name.contains(passed), "{}", lent.name);
        }
        let first = lent.owner.device_boot();
        drop(lent);
        // No process can remove a datagram device; if one did, the candidate would be ruled out.
        let none = rungs.open_device(Some("taken")).map(|lent| lent.name).unwrap_err();
        assert!(none.contains("no more thread, by datagrams"), "{none}");
        assert!(none.contains("not in the kernel"), "{none}");
        assert!(first > 0);
    }

    #[test]
    fn devices_of_one_process_have_different_boots() {
        let at = || {
            let at = "127.0.0.1:0".parse().unwrap();
            Candidate::Udp(UdpCandidate::bind(at, &GroupMembers::default()).unwrap())
        };
        let mut rungs = rungs(vec![at(), at()]);
        let boots = [None, Some("taken")].map(|lost| {
            let lent = rungs.open_device(lost).unwrap();
            lent.owner.device_boot()
        });
        assert_ne!(boots[0], boots[1]);
    }

    /// A candidate whose interface disappeared is tried again and not ruled out.
    #[test]
    fn candidate_whose_interface_disappeared_is_tried_again() {
        let mut rungs = rungs(vec![kernel()]);
        for _ in 0..2 {
            assert!(rungs.open_device(Some("the interface is gone")).is_err());
            assert_eq!((rungs.remaining.len(), rungs.ruled_out.len()), (1, 0));
        }
    }

    #[test]
    fn lost_hook_is_not_used_again() {
        let mut rung = kernel();
        assert!(rung.drop_current_hook());
        let Candidate::Kernel { hooks, hook, .. } = &mut rung else { panic!("{rung}") };
        assert_eq!(hooks[..], [Hook::Traffic]);
        *hook = Some(Hook::Traffic);
        assert!(!rung.drop_current_hook());
    }
}
