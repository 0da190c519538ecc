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
    Form, Number, PackedBallot,
    header::COORDINATOR,
    port::{self, Connectivity, Drained, FrameOrigin, Program, Shape},
    reason::COUNTERS,
};
use quorate_packets::ethernet::{Mac, Raw, raw::ReceiveFilter};

use crate::xdp::{
    Attached, Device, Draining, Entry, Failed, Fate, Health, Hook, PinnedAttachment, Pins, Role,
    Settings, claim::Claim, health::Watch,
};

const ANSWERS_MAX: usize = 1024;
/// Maximum time to wait for a hook to become free.
const PATIENCE: Duration = Duration::from_secs(1);
const PACE: Duration = Duration::from_millis(10);
/// Offset of the flags in a header.
const FLAGS_AT: usize = 32;

/// A device with both programs at an interface, controlled by this process. The device is pinned:
/// if this is dropped, the device continues to vote, and the next owner finds it ([offload-8]).
/// [`Host::close`] removes it.
pub struct Host {
    device: Device,
    kept: PinnedAttachment,
    watch: Watch,
    pins: Pins,
    socket: Raw,
    form: Form,
    /// Name of the interface when it was opened.
    interface: String,
    /// Description, for operators, of the hook in use and why earlier ones failed.
    place: String,
    answers: VecDeque<(Program, Vec<u8>)>,
    draining: Drain,
    lost: Lost,
    /// Dropped last, so that the next owner finds a consistent state.
    _claim: Claim,
}

/// A device that an earlier owner left at the interface, if any.
pub enum PreviousDevice {
    /// No device was found.
    Nothing,
    /// The same device, now controlled by this owner. It may be armed and voting, so it must be
    /// fenced before anything else ([offload-8]).
    Same,
    /// A device with other settings or from another release. Its votes do not belong to this
    /// device.
    Other(Box<RetiredDevice>),
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

enum Drain {
    Over,
    Waits(Draining),
    Unknown,
}

/// Counter of frames lost on their way to the owner. Queries the kernel only if frames may have
/// been lost.
#[derive(Debug, Default)]
struct Lost {
    answers: u64,
    tapped: u64,
    /// Number of bytes read since the tap was last found empty. While it is small, the tap cannot
    /// have been full.
    taken: u64,
}

impl Host {
    /// Opens a device at an interface, at the first of `hooks` that accepts it, or takes over the
    /// device that an earlier owner left there.
    pub fn open(
        settings: &Settings,
        interface: &str,
        hooks: &[Hook],
        form: Form,
    ) -> Result<(Self, PreviousDevice), Failed> {
        settings.check()?;
        let socket = Raw::open(interface, ReceiveFilter::Nothing, group(settings.setup.heard))?;
        // Decisions may be sent to a separate multicast group.
        if let Some(group) = group(settings.decisions.mac) {
            socket.join(group)?;
        }
        let claim = Claim::of(interface, socket.index(), settings.setup.group)?;
        let pins = Pins::below(claim.folder(), settings, Role::Host);
        pins.sweep_others(claim.folder())?;
        let mut before = PreviousDevice::Nothing;
        let found = match pins.find()? {
            Some((device, kept)) => {
                let same = device.settings == *settings && pins.is_same_object();
                if same && Watch::of(&kept).look(&socket).hears() {
                    before = PreviousDevice::Same;
                    Some((device, kept, "found there".to_owned()))
                } else {
                    before = PreviousDevice::Other(Box::new(leave(device, kept, &pins)?));
                    None
                }
            }
            None => None,
        };
        let (device, kept, why) = match found {
            Some(found) => found,
            None => {
                let mut device = Device::load(Role::Host, settings)?;
                let attached = attach(&mut device, interface, hooks)?;
                let place = attached.to_string();
                let kept = pins.keep(&mut device, attached)?;
                (device, kept, place)
            }
        };
        let place = match before {
            PreviousDevice::Same => format!("{}, {why}", kept.hook),
            _ => why,
        };
        let mut host = Self {
            watch: Watch::of(&kept),
            device,
            kept,
            pins,
            socket,
            form,
            interface: interface.to_owned(),
            place,
            answers: VecDeque::new(),
            draining: Drain::Over,
            lost: Lost::default(),
            _claim: claim,
        };
        host.ask_lost();
        Ok((host, before))
    }

    pub const fn hook(&self) -> Hook {
        self.kept.hook
    }

    /// Returns the device's health at the interface. Makes several system calls, so it is not meant
    /// for every turn.
    pub fn health(&self) -> Health {
        self.watch.look(&self.socket)
    }

    /// Returns the underlying device, for counters, calls, and the kernel's information about its
    /// programs.
    pub const fn device(&self) -> &Device {
        &self.device
    }

    /// Fences the device permanently and detaches it from the interface. It no longer changes, but
    /// can still be read.
    pub fn leave(self) -> Result<RetiredDevice, Failed> {
        leave(self.device, self.kept, &self.pins)
    }

    /// Detaches the device from the interface and removes it. The owner must have fenced it and
    /// read it out.
    pub fn close(self) -> Result<(), Failed> {
        self.pins.sweep()
    }

    fn ask_lost(&mut self) {
        // If the query fails, the previous number is kept, because it must never decrease.
        let tapped = self.device.lost().unwrap_or(0);
        self.lost.tapped = self.lost.tapped.max(tapped);
        self.lost.taken = 0;
    }

    fn answer(&mut self, frame: Vec<u8>) {
        if self.answers.len() < ANSWERS_MAX {
            self.answers.push_back((self.says(&frame), frame));
        } else {
            self.lost.answers += 1;
        }
    }

    /// Returns the program that sent or should receive `frame`. All coordinator frames have a flag.
    fn says(&self, frame: &[u8]) -> Program {
        let form = Form::of(frame, self.device.settings.setup.own.port);
        let form = form.or_else(|_| Form::of(frame, self.device.settings.setup.owner.port));
        let at = form.unwrap_or(self.form).header_at() + FLAGS_AT;
        let flags = frame.get(at..).and_then(|flags| flags.first_chunk());
        match u16::from_be_bytes(*flags.unwrap_or(&[0; 2])) & COORDINATOR {
            0 => Program::Acceptor,
            _ => Program::Coordinator,
        }
    }
}

/// Returns the address if it is a multicast group, which the interface has to join. It receives
/// frames for other addresses anyway.
fn group(mac: [u8; 6]) -> Option<Mac> {
    Some(Mac(mac)).filter(|mac| mac.is_group())
}

/// Attaches a device to an interface that this process has claimed. Retries, because the kernel
/// removes a previous device from the interface with a delay.
fn attach(device: &mut Device, interface: &str, hooks: &[Hook]) -> Result<Attached, Failed> {
    let begun = Instant::now();
    loop {
        match device.attach(interface, hooks) {
            Err(Failed::Busy { .. }) if begun.elapsed() < PATIENCE => thread::sleep(PACE),
            other => return other,
        }
    }
}

/// Fences a device permanently, and then detaches it from the interface. The fence has a number
/// above all numbers of the device's owner, because the device still receives frames until it is
/// detached.
pub(crate) fn leave(
    device: Device,
    kept: PinnedAttachment,
    pins: &Pins,
) -> Result<RetiredDevice, Failed> {
    for program in Program::ALL {
        let calls = device.calls(program);
        let state = calls.state()?;
        if state.ballot != PackedBallot::NONE {
            calls.fence(Number {
                device_boot: state.boot,
                owner_boot: u32::MAX,
                counter: u64::MAX,
            })?;
        }
    }
    device.drain()?;
    pins.sweep()?;
    drop(kept);
    Ok(RetiredDevice(device))
}

impl port::Device for Host {
    fn shape(&self) -> Shape {
        let Settings { setup, cells, proposals, .. } = self.device.settings();
        Shape {
            group: setup.group,
            cells: *cells,
            room: setup.room,
            form: self.form,
            own: setup.own,
            owner: setup.owner,
            all_hosts: *proposals,
        }
    }

    /// The frame itself shows which program handles it.
    fn put(&mut self, _program: Program, frame: &[u8]) {
        let mut buffer = frame.to_vec();
        match self.device.put(Entry::Owner, &mut buffer) {
            Ok(Fate::ToOwner) => self.answer(buffer),
            Ok(Fate::ToNetwork | Fate::Passed) => {
                // Without buffer space or an interface, the frame is lost, as on any network.
                let _ = self.socket.send(&buffer);
            }
            Ok(Fate::Taken) | Err(_) => {}
        }
    }

    fn send(&mut self, frame: &[u8]) {
        // Without buffer space or an interface, the frame is lost, as on any network.
        let _ = self.socket.send(frame);
    }

    fn take(&mut self, frame: &mut Vec<u8>) -> Option<(Program, FrameOrigin)> {
        if let Some((program, answer)) = self.answers.pop_front() {
            *frame = answer;
            return Some((program, FrameOrigin::Inside));
        }
        frame.clear();
        let mut came = FrameOrigin::Network;
        // An unreadable record is skipped.
        while frame.is_empty() {
            let tapped = self.device.tapped(|made, tapped| {
                came = made;
                frame.extend_from_slice(tapped);
            });
            if !tapped {
                if self.lost.taken >= u64::from(self.device.settings.tap) / 2 {
                    self.ask_lost();
                }
                self.lost.taken = 0;
                return None;
            }
            self.lost.taken += frame.len() as u64;
        }
        if self.lost.taken >= u64::from(self.device.settings.tap) / 2 {
            self.ask_lost();
        }
        Some((self.says(frame), came))
    }

    fn drain(&mut self) {
        self.draining = Drain::Waits(self.device.draining());
    }

    fn drained(&mut self) -> Drained {
        if let Drain::Waits(draining) = &mut self.draining {
            match draining.is_over() {
                Ok(false) => return Drained::NotYet,
                Ok(true) => self.draining = Drain::Over,
                Err(_) => self.draining = Drain::Unknown,
            }
        }
        match self.draining {
            Drain::Unknown => Drained::Unknown,
            _ => Drained::Over,
        }
    }

    fn lost(&self) -> u64 {
        self.lost.answers + self.lost.tapped
    }

    fn connectivity(&mut self) -> Connectivity {
        match self.health() {
            // An unknown state is no reason to abandon a device. The leader notices if votes do not
            // arrive.
            Health::Well | Health::Unknown => Connectivity::Well,
            health @ Health::Down => Connectivity::Paused(health.to_string()),
            health @ (Health::Detached | Health::Gone) => {
                Connectivity::Over(format!("{health} ({})", self.kept.hook))
            }
        }
    }

    fn renamed_interface(&mut self) -> Option<String> {
        let now = self.socket.name()?;
        (now != self.interface).then_some(now)
    }

    fn refused(&mut self) -> [u64; COUNTERS] {
        let counted = self.device.counters().ok();
        let counted = counted.and_then(|all| all.first_chunk().copied());
        counted.unwrap_or([0; COUNTERS])
    }
}

impl fmt::Display for Host {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        to.write_str(&self.place)
    }
}
