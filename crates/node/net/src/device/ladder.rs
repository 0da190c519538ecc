//! Fallback list of devices: the node uses the best device that this machine supports, and falls
//! back to the next one if it is lost.

use std::{fmt, sync::Arc};

use quorate_device::xdp::Hook;
use quorate_device::{Packet, Software};
use quorate_offload::owner::{Owner, Pace, Settings as OwnerSettings};
use quorate_offload::{Form, port::Device};
use quorate_packets::ethernet::Mac;
use quorate_replica::{AttachedDevice, DeviceSource};

use super::{
    ExternalDevice, Kind,
    boxes::ExternalTransport,
    by_udp::UdpCandidate,
    kernel::Kernel,
    place::{AttachmentPoint, is_interface},
    waiting::DeviceWakeup,
};

/// Maximum number of values in flight to the coordinator.
const WINDOW: u64 = 256;
/// Time in microseconds after which undecided slots are sent to a kernel device again. Short,
/// because a kernel device answers quickly.
const KERNEL_SLOT_US: u64 = 1_000;

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
    Box(ExternalDevice, ExternalTransport),
    /// A thread that uses raw frames at the named interface.
    Packet(String),
    /// A thread that uses UDP datagrams.
    Udp(UdpCandidate),
}

impl Candidate {
    /// Returns whether the candidate's interface exists, or it needs none.
    fn is_there(&self) -> bool {
        match self {
            Self::Kernel { interface, .. }
            | Self::Packet(interface)
            | Self::Box(_, ExternalTransport::Frames(interface)) => is_interface(interface),
            Self::Udp(_) | Self::Box(_, ExternalTransport::Udp(_)) => true,
        }
    }

    const fn kind(&self) -> &'static str {
        match self {
            Self::Kernel { .. } => Kind::Kernel.name(),
            Self::Box(one, _) => one.kind,
            Self::Packet(_) => Kind::Packet.name(),
            Self::Udp(_) => Kind::Udp.name(),
        }
    }

    /// Removes the hook last used. Returns whether another hook is left to try.
    fn leave_hook(&mut self) -> bool {
        match self {
            Self::Kernel { hooks, hook, .. } => {
                hooks.retain(|one| Some(*one) != *hook);
                !hooks.is_empty()
            }
            Self::Packet(_) | Self::Udp(_) | Self::Box(..) => false,
        }
    }
}

impl fmt::Display for Candidate {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Kernel { interface, .. } => write!(to, "in the kernel at {interface}"),
            Self::Box(one, way) => {
                write!(to, "box, {}, ", one.kind)?;
                match way {
                    ExternalTransport::Frames(interface) => {
                        write!(to, "by raw frames at {interface}")
                    }
                    ExternalTransport::Udp(udp) => write!(to, "by datagrams at {}", udp.own()),
                }
            }
            Self::Packet(interface) => write!(to, "thread, by raw frames at {interface}"),
            Self::Udp(udp) => write!(to, "thread, by datagrams at {}", udp.own()),
        }
    }
}

/// All candidates, including those that were ruled out.
#[derive(Debug)]
pub(super) struct Candidates {
    /// Remaining candidates, best first.
    pub(super) rungs: Vec<Candidate>,
    /// Reasons why candidates were ruled out permanently.
    pub(super) not: Vec<String>,
    /// Id of the cluster that the devices serve.
    pub(super) cluster: u128,
    /// Boot number of this process. The boot numbers of its devices are derived from it.
    pub(super) boot: u32,
    /// Descriptors by which devices wake the reactor.
    pub(super) wakeup: Arc<DeviceWakeup>,
    /// Index in `rungs` of the candidate in use.
    pub(super) current_index: usize,
    pub(super) devices_started: u32,
}

/// An open device, its description, and the intervals at which undecided slots are sent again.
type OpenedDevice = (Box<dyn Device + Send>, String, Pace);

impl Candidates {
    /// Abandons the candidate in use. A device that another program removed could be removed again,
    /// so its candidate is ruled out. A candidate whose interface disappeared is tried again once
    /// the interface is back.
    fn abandon_candidate(&mut self, why: &str) {
        let Some(rung) = self.rungs.get_mut(self.current_index) else {
            return;
        };
        tracing::warn!("device lost: {rung}: {why}");
        if !rung.is_there() {
            return;
        }
        self.not.push(format!("no more {rung}: {why}"));
        if !rung.leave_hook() {
            self.rungs.remove(self.current_index);
        }
    }

    fn try_rung(&mut self, at: usize) -> Result<OpenedDevice, String> {
        let name = self.rungs[at].to_string();
        match &mut self.rungs[at] {
            Candidate::Kernel { interface, hooks, hook } => {
                let place = AttachmentPoint::at(interface, self.cluster)?;
                let kernel = Kernel::open(&place, interface, hooks).map_err(text)?;
                *hook = Some(kernel.hook());
                self.wakeup.wait_for(kernel.readable()).map_err(text)?;
                let pace = Pace { slot_us: KERNEL_SLOT_US, ..Pace::default() };
                let name = format!("{name}, by {kernel}");
                Ok((Box::new(kernel), name, pace))
            }
            Candidate::Box(one, way) => {
                let device = way.start(one, self.cluster, &self.wakeup)?;
                Ok((Box::new(device), name, Pace::default()))
            }
            Candidate::Packet(interface) => {
                let place = AttachmentPoint::at(interface, self.cluster)?;
                let groups = [place.all_devices, place.decisions].map(|group| Mac(group.mac));
                let told = place.for_thread(Form::Raw);
                let mut wire = Packet::open(interface, &groups).map_err(text)?;
                wire.claim(told.group).map_err(text)?;
                self.thread(told, wire, name)
            }
            Candidate::Udp(udp) => {
                let (told, wire) = udp.open(self.cluster).map_err(text)?;
                self.thread(told, wire, name)
            }
        }
    }

    fn thread(
        &self,
        told: quorate_device::Settings,
        wire: impl quorate_device::Wire,
        name: String,
    ) -> Result<OpenedDevice, String> {
        let device = Software::start(told, wire, self.wakeup.alarm()).map_err(text)?;
        Ok((Box::new(device), name, Pace::default()))
    }

    /// Attaches a driver to an open device, under one of the 256 boot numbers of this process.
    fn lent(&mut self, (device, name, pace): OpenedDevice, not: &[String]) -> AttachedDevice {
        self.devices_started += 1;
        let settings = OwnerSettings {
            owner_boot: self.boot.max(1),
            device_boot: (self.boot << 8 | self.devices_started & 0xff).max(1),
            window: WINDOW,
            pace,
        };
        let owner = Owner::new(settings, device.shape());
        let words = std::iter::once(&name).chain(&self.not).chain(not);
        let words: Vec<&str> = words.map(String::as_str).collect();
        AttachedDevice {
            kind: self.rungs[self.current_index].kind(),
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
        for at in 0..self.rungs.len() {
            match self.try_rung(at) {
                Ok(found) => {
                    self.current_index = at;
                    return Ok(self.lent(found, &not));
                }
                Err(why) => not.push(format!("not {}: {why}", self.rungs[at])),
            }
        }
        let words = self.not.iter().chain(&not).map(String::as_str);
        Err(words.collect::<Vec<_>>().join("; "))
    }
}

#[expect(clippy::needless_pass_by_value, reason = "of errors")]
fn text(error: impl ToString) -> String {
    error.to_string()
}

#[cfg(test)]
mod tests {
    use quorate_device::Members;

    use super::*;
    use crate::handle::Shared;

    const NONE: &str = "quorate-none";

    fn rungs(rungs: Vec<Candidate>) -> Candidates {
        Candidates {
            rungs,
            not: Vec::new(),
            cluster: 7,
            boot: 3,
            wakeup: Arc::new(DeviceWakeup::new(Shared::new(16).unwrap()).unwrap()),
            current_index: 0,
            devices_started: 0,
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
        let udp = UdpCandidate::bind(at, &Members::default()).unwrap();
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
            Candidate::Udp(UdpCandidate::bind(at, &Members::default()).unwrap())
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
            assert_eq!((rungs.rungs.len(), rungs.not.len()), (1, 0));
        }
    }

    #[test]
    fn lost_hook_is_not_used_again() {
        let mut rung = kernel();
        assert!(rung.leave_hook());
        let Candidate::Kernel { hooks, hook, .. } = &mut rung else { panic!("{rung}") };
        assert_eq!(hooks[..], [Hook::Traffic]);
        *hook = Some(Hook::Traffic);
        assert!(!rung.leave_hook());
    }
}
