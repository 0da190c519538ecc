//! Both programs at one interface, behind the owner's port ([`port::Device`]).
//!
//! For a frame from the owner, the kernel runs the program at the owner's request. A socket sends
//! the resulting frame if it is for the network, because the kernel can only send in response to a
//! received frame. Frames for the owner come from those runs and from the tap, which is read
//! without a system call.

use std::{
    collections::VecDeque,
    fmt, thread,
    time::{Duration, Instant},
};

use quorate_offload::{
    CallNumber, Encapsulation, PackedBallot,
    header::COORDINATOR,
    port::{self, Connectivity, DeviceShape, Drained, FrameOrigin, Program},
    reason::COUNTERS,
};
use quorate_packets::ethernet::{Mac, RawSocket, raw::ReceiveFilter};

use crate::xdp::{
    AttachedDevice, AttachmentHealth, Device, DevicePins, DrainWait, EntryPoint, FrameFate, Hook,
    PinnedAttachment, Role, Settings, XdpError, claim::InterfaceClaim, health::AttachmentWatch,
};

const RESPONSES_MAX: usize = 1024;
/// Maximum time to wait for a hook to become free.
const HOOK_FREE_TIMEOUT: Duration = Duration::from_secs(1);
const RETRY_INTERVAL: Duration = Duration::from_millis(10);
/// Offset of the flags in a header.
const FLAGS_OFFSET: usize = 32;

/// A device with both programs at an interface, controlled by this process. The device is pinned:
/// if this is dropped, the device continues to vote, and the next owner finds it ([offload-8]).
/// [`XdpHost::close`] removes it.
pub struct XdpHost {
    device: Device,
    attachment: PinnedAttachment,
    attachment_watch: AttachmentWatch,
    pins: DevicePins,
    socket: RawSocket,
    form: Encapsulation,
    /// Name of the interface when it was opened.
    interface: String,
    /// Description, for operators, of the hook in use and why earlier ones failed.
    hook_description: String,
    answers: VecDeque<(Program, Vec<u8>)>,
    drain_state: DrainState,
    lost: LostFrames,
    /// Dropped last, so that the next owner finds a consistent state.
    _claim: InterfaceClaim,
}

/// A device that an earlier owner left at the interface, if any.
pub enum PreviousDevice {
    /// No device was found.
    NotFound,
    /// The same device, now controlled by this owner. It may be armed and voting, so it must be
    /// fenced before anything else ([offload-8]).
    SameDevice,
    /// A device with other settings or from another release. Its votes do not belong to this
    /// device.
    OtherDevice(Box<RetiredDevice>),
}

/// A previous owner's device: fenced, drained and detached from its interface, so that it no longer
/// changes.
pub struct RetiredDevice(Device);

impl RetiredDevice {
    /// Returns the device. Its cells and state remain readable while this value exists.
    pub const fn device(&self) -> &Device {
        &self.0
    }
}

enum DrainState {
    Done,
    Waiting(DrainWait),
    Unknown,
}

/// Counter of frames lost on their way to the owner. Queries the kernel only if frames may have
/// been lost.
#[derive(Debug, Default)]
struct LostFrames {
    lost_responses: u64,
    lost_in_tap: u64,
    /// Number of bytes read since the tap was last found empty. While it is small, the tap cannot
    /// have been full.
    bytes_since_empty: u64,
}

impl XdpHost {
    /// Opens a device at an interface, at the first of `hooks` that accepts it, or takes over the
    /// device that an earlier owner left there.
    pub fn open(
        settings: &Settings,
        interface: &str,
        hooks: &[Hook],
        form: Encapsulation,
    ) -> Result<(Self, PreviousDevice), XdpError> {
        settings.validate()?;
        let socket = RawSocket::open(
            interface,
            ReceiveFilter::Nothing,
            multicast_group(settings.setup.heard_group),
        )?;
        // Decisions may be sent to a separate multicast group.
        if let Some(group) = multicast_group(settings.decisions.mac) {
            socket.join_group(group)?;
        }
        let claim =
            InterfaceClaim::claim_interface(interface, socket.index(), settings.setup.group)?;
        let pins = DevicePins::below(claim.folder(), settings, Role::Host);
        pins.remove_other_devices(claim.folder())?;
        let mut before = PreviousDevice::NotFound;
        let found = match pins.find_device()? {
            Some((device, kept)) => {
                let same = device.settings == *settings && pins.is_same_object();
                if same && AttachmentWatch::of(&kept).current_health(&socket).may_receive() {
                    before = PreviousDevice::SameDevice;
                    Some((device, kept, "found there".to_owned()))
                } else {
                    before =
                        PreviousDevice::OtherDevice(Box::new(retire_device(device, kept, &pins)?));
                    None
                }
            }
            None => None,
        };
        let (device, kept, why) = match found {
            Some(found) => found,
            None => {
                let mut device = Device::load(Role::Host, settings)?;
                let attached = attach_with_retries(&mut device, interface, hooks)?;
                let place = attached.to_string();
                let kept = pins.pin_device(&mut device, attached)?;
                (device, kept, place)
            }
        };
        let place = match before {
            PreviousDevice::SameDevice => format!("{}, {why}", kept.hook),
            _ => why,
        };
        let mut host = Self {
            attachment_watch: AttachmentWatch::of(&kept),
            device,
            attachment: kept,
            pins,
            socket,
            form,
            interface: interface.to_owned(),
            hook_description: place,
            answers: VecDeque::new(),
            drain_state: DrainState::Done,
            lost: LostFrames::default(),
            _claim: claim,
        };
        host.query_lost();
        Ok((host, before))
    }

    pub const fn hook(&self) -> Hook {
        self.attachment.hook
    }

    /// Returns the device's health at the interface. Makes several system calls, so it is not meant
    /// for every turn.
    pub fn health(&self) -> AttachmentHealth {
        self.attachment_watch.current_health(&self.socket)
    }

    /// Returns the underlying device, for counters, calls, and the kernel's information about its
    /// programs.
    pub const fn device(&self) -> &Device {
        &self.device
    }

    /// Fences the device permanently and detaches it from the interface. It no longer changes, but
    /// can still be read.
    pub fn retire(self) -> Result<RetiredDevice, XdpError> {
        retire_device(self.device, self.attachment, &self.pins)
    }

    /// Detaches the device from the interface and removes it. The owner must have fenced it and
    /// read it out.
    pub fn close(self) -> Result<(), XdpError> {
        self.pins.remove_pins()
    }

    fn query_lost(&mut self) {
        // If the query fails, the previous number is kept, because it must never decrease.
        let tapped = self.device.tap_lost_count().unwrap_or(0);
        self.lost.lost_in_tap = self.lost.lost_in_tap.max(tapped);
        self.lost.bytes_since_empty = 0;
    }

    fn queue_response(&mut self, frame: Vec<u8>) {
        if self.answers.len() < RESPONSES_MAX {
            self.answers.push_back((self.program_of(&frame), frame));
        } else {
            self.lost.lost_responses += 1;
        }
    }

    /// Returns the program that sent or should receive `frame`. All coordinator frames have a flag.
    fn program_of(&self, frame: &[u8]) -> Program {
        let form = Encapsulation::parse(frame, self.device.settings.setup.own_address.port);
        let form =
            form.or_else(|_| Encapsulation::parse(frame, self.device.settings.setup.owner.port));
        let at = form.unwrap_or(self.form).header_offset() + FLAGS_OFFSET;
        let flags = frame.get(at..).and_then(|flags| flags.first_chunk());
        match u16::from_be_bytes(*flags.unwrap_or(&[0; 2])) & COORDINATOR {
            0 => Program::Acceptor,
            _ => Program::Coordinator,
        }
    }
}

/// Returns the address if it is a multicast group, which the interface has to join. It receives
/// frames for other addresses anyway.
fn multicast_group(mac: [u8; 6]) -> Option<Mac> {
    Some(Mac(mac)).filter(|mac| mac.is_multicast())
}

/// Attaches a device to an interface that this process has claimed. Retries, because the kernel
/// removes a previous device from the interface with a delay.
fn attach_with_retries(
    device: &mut Device,
    interface: &str,
    hooks: &[Hook],
) -> Result<AttachedDevice, XdpError> {
    let begun = Instant::now();
    loop {
        match device.attach(interface, hooks) {
            Err(XdpError::HookBusy { .. }) if begun.elapsed() < HOOK_FREE_TIMEOUT => {
                thread::sleep(RETRY_INTERVAL)
            }
            other => return other,
        }
    }
}

/// Fences a device permanently, and then detaches it from the interface. The fence has a number
/// above all numbers of the device's owner, because the device still receives frames until it is
/// detached.
pub(crate) fn retire_device(
    device: Device,
    kept: PinnedAttachment,
    pins: &DevicePins,
) -> Result<RetiredDevice, XdpError> {
    for program in Program::ALL {
        let calls = device.control_calls(program);
        let state = calls.query_state()?;
        if state.ballot != PackedBallot::NONE {
            calls.fence(CallNumber {
                device_boot: state.boot,
                owner_boot: u32::MAX,
                counter: u64::MAX,
            })?;
        }
    }
    device.drain_blocking()?;
    pins.remove_pins()?;
    drop(kept);
    Ok(RetiredDevice(device))
}

impl port::Device for XdpHost {
    fn shape(&self) -> DeviceShape {
        let Settings { setup, cells, proposal_address: proposals, .. } = self.device.settings();
        DeviceShape {
            group: setup.group,
            cells: *cells,
            room: setup.room,
            form: self.form,
            device_address: setup.own_address,
            owner_address: setup.owner,
            all_hosts: *proposals,
        }
    }

    /// The frame itself shows which program handles it.
    fn put_frame(&mut self, _program: Program, frame: &[u8]) {
        let mut buffer = frame.to_vec();
        match self.device.run_program(EntryPoint::Owner, &mut buffer) {
            Ok(FrameFate::ToOwner) => self.queue_response(buffer),
            Ok(FrameFate::ToNetwork | FrameFate::PassedOn) => {
                // Without buffer space or an interface, the frame is lost, as on any network.
                let _ = self.socket.send(&buffer);
            }
            Ok(FrameFate::Consumed) | Err(_) => {}
        }
    }

    fn send_to_devices(&mut self, frame: &[u8]) {
        // Without buffer space or an interface, the frame is lost, as on any network.
        let _ = self.socket.send(frame);
    }

    fn take_frame(&mut self, frame: &mut Vec<u8>) -> Option<(Program, FrameOrigin)> {
        if let Some((program, answer)) = self.answers.pop_front() {
            *frame = answer;
            return Some((program, FrameOrigin::LocalResponse));
        }
        frame.clear();
        let mut came = FrameOrigin::Network;
        // An unreadable record is skipped.
        while frame.is_empty() {
            let tapped = self.device.read_tapped(|made, tapped| {
                came = made;
                frame.extend_from_slice(tapped);
            });
            if !tapped {
                if self.lost.bytes_since_empty >= u64::from(self.device.settings.tap_bytes) / 2 {
                    self.query_lost();
                }
                self.lost.bytes_since_empty = 0;
                return None;
            }
            self.lost.bytes_since_empty += frame.len() as u64;
        }
        if self.lost.bytes_since_empty >= u64::from(self.device.settings.tap_bytes) / 2 {
            self.query_lost();
        }
        Some((self.program_of(frame), came))
    }

    fn begin_drain(&mut self) {
        self.drain_state = DrainState::Waiting(self.device.start_drain());
    }

    fn drain_progress(&mut self) -> Drained {
        if let DrainState::Waiting(draining) = &mut self.drain_state {
            match draining.is_done() {
                Ok(false) => return Drained::InProgress,
                Ok(true) => self.drain_state = DrainState::Done,
                Err(_) => self.drain_state = DrainState::Unknown,
            }
        }
        match self.drain_state {
            DrainState::Unknown => Drained::Unknown,
            _ => Drained::Complete,
        }
    }

    fn lost_frame_count(&self) -> u64 {
        self.lost.lost_responses + self.lost.lost_in_tap
    }

    fn connectivity(&mut self) -> Connectivity {
        match self.health() {
            // An unknown state is no reason to abandon a device. The leader notices if votes do not
            // arrive.
            AttachmentHealth::Receiving | AttachmentHealth::Unknown => Connectivity::Connected,
            health @ AttachmentHealth::InterfaceDown => {
                Connectivity::Interrupted(health.to_string())
            }
            health @ (AttachmentHealth::Detached | AttachmentHealth::InterfaceGone) => {
                Connectivity::Detached(format!("{health} ({})", self.attachment.hook))
            }
        }
    }

    fn renamed_interface(&mut self) -> Option<String> {
        let now = self.socket.name()?;
        (now != self.interface).then_some(now)
    }

    fn reason_counts(&mut self) -> [u64; COUNTERS] {
        let counted = self.device.counters().ok();
        let counted = counted.and_then(|all| all.first_chunk().copied());
        counted.unwrap_or([0; COUNTERS])
    }
}

impl fmt::Display for XdpHost {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        to.write_str(&self.hook_description)
    }
}
