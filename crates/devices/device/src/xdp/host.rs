//! Both programs at an interface, behind the port that owners have ([`port::Device`]).
//!
//! What an owner puts in is a run of the program that the owner asks the kernel for; what leaves
//! for the network then is sent by a socket, since the kernel sends nothing that did not arrive.
//! What comes out is in the answers of those runs, and in the tap, which is read without a system
//! call.

use std::{
    collections::VecDeque,
    fmt, thread,
    time::{Duration, Instant},
};

use quorate_offload::{
    Form, Number, PackedBallot,
    header::COORDINATOR,
    port::{self, Came, Drained, Hearing, Program, Shape},
    reason::COUNTERS,
};
use quorate_packets::ethernet::{Mac, Raw, raw::Hears};

use crate::xdp::{
    Attached, Device, Draining, Entry, Failed, Fate, Health, Hook, Kept, Pins, Role, Settings,
    claim::Claim, health::Watch,
};

/// Answers that wait for their owner; what is beyond is lost, and counted.
const ANSWERS_MAX: usize = 1024;
/// Time limit for a place at an interface to become free, and interval of the attempts.
const PATIENCE: Duration = Duration::from_secs(1);
const PACE: Duration = Duration::from_millis(10);
/// Offset of the flags in a header.
const FLAGS_AT: usize = 32;

/// A device of both programs, at an interface, and what drives it. It is pinned: if this goes, the
/// device votes on, and the next owner finds it ([offload-8]); [`Host::close`] takes it away.
pub struct Host {
    device: Device,
    kept: Kept,
    watch: Watch,
    pins: Pins,
    socket: Raw,
    form: Form,
    /// Name of the interface when this was opened.
    interface: String,
    /// For people: the hook, and why not an earlier one.
    place: String,
    answers: VecDeque<(Program, Vec<u8>)>,
    draining: Drain,
    lost: Lost,
    /// Dropped last: the next owner finds everything in order.
    _claim: Claim,
}

/// Device of an earlier owner at the interface.
pub enum Before {
    /// Nothing.
    Nothing,
    /// The device that this is now. It may be armed, and votes: it is fenced before anything else
    /// ([offload-8]).
    Same,
    /// A device with other settings, or of another release. Its votes were not this device's.
    Other(Box<Left>),
}

/// A device of an owner that is gone, fenced, drained and off its interface: nothing changes in it
/// any more.
pub struct Left(Device);

impl Left {
    /// Returns the device: its cells can be read and its state queried, as long as this exists.
    pub const fn device(&self) -> &Device {
        &self.0
    }
}

enum Drain {
    Over,
    Waits(Draining),
    Unknown,
}

/// Count of lost frames for the owner, without asking the kernel more often than something can be
/// lost.
#[derive(Debug, Default)]
struct Lost {
    answers: u64,
    tapped: u64,
    /// Bytes taken off the tap since it was known to have been empty: if they are few, it was never
    /// full.
    taken: u64,
}

impl Host {
    /// Opens a device at an interface, by the first of these hooks that takes it; or the one that
    /// an owner left there.
    pub fn open(
        settings: &Settings,
        interface: &str,
        hooks: &[Hook],
        form: Form,
    ) -> Result<(Self, Before), Failed> {
        settings.check()?;
        let socket = Raw::open(interface, Hears::Nothing, group(settings.setup.heard))?;
        // Decisions may have a group of their own.
        if let Some(group) = group(settings.decisions.mac) {
            socket.join(group)?;
        }
        let claim = Claim::of(interface, socket.index(), settings.setup.group)?;
        let pins = Pins::below(claim.folder(), settings, Role::Host);
        pins.sweep_others(claim.folder())?;
        let mut before = Before::Nothing;
        let found = match pins.find()? {
            Some((device, kept)) => {
                let same = device.settings == *settings && pins.is_same_object();
                if same && Watch::of(&kept).look(&socket).hears() {
                    before = Before::Same;
                    Some((device, kept, "found there".to_owned()))
                } else {
                    before = Before::Other(Box::new(leave(device, kept, &pins)?));
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
            Before::Same => format!("{}, {why}", kept.hook),
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

    /// Returns the hook where it receives from the network.
    pub const fn hook(&self) -> Hook {
        self.kept.hook
    }

    /// Returns its state at the interface. Some system calls: for now and then.
    pub fn health(&self) -> Health {
        self.watch.look(&self.socket)
    }

    /// Returns the device itself: counters, calls, the kernel's information on its programs.
    pub const fn device(&self) -> &Device {
        &self.device
    }

    /// Ends it for good, and takes it off the interface: nothing changes in it any more, and it can
    /// still be read.
    pub fn leave(self) -> Result<Left, Failed> {
        leave(self.device, self.kept, &self.pins)
    }

    /// Takes the device off the interface; nothing is left: for an owner that fenced it and read it
    /// out.
    pub fn close(self) -> Result<(), Failed> {
        self.pins.sweep()
    }

    fn ask_lost(&mut self) {
        // If it cannot be known, what is known stays: it never falls.
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

    /// Returns the program of a frame: a flag is set in all frames from a coordinator, and in those
    /// for one.
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

/// The interface hands on what is for it.
fn group(mac: [u8; 6]) -> Option<Mac> {
    Some(Mac(mac)).filter(|mac| mac.is_group())
}

/// Attaches to an interface that this process has claimed. The kernel takes a device that this
/// process or the owner before it removed off the interface some moments later.
fn attach(device: &mut Device, interface: &str, hooks: &[Hook]) -> Result<Attached, Failed> {
    let begun = Instant::now();
    loop {
        match device.attach(interface, hooks) {
            Err(Failed::Busy { .. }) if begun.elapsed() < PATIENCE => thread::sleep(PACE),
            other => return other,
        }
    }
}

/// Ends a device permanently, and takes it off the interface. It is fenced first, above all numbers
/// of its owner's, since it receives from the network for some moments more.
pub(crate) fn leave(device: Device, kept: Kept, pins: &Pins) -> Result<Left, Failed> {
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
    Ok(Left(device))
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

    /// Which program takes it, the frame says.
    fn put(&mut self, _program: Program, frame: &[u8]) {
        let mut buffer = frame.to_vec();
        match self.device.put(Entry::Owner, &mut buffer) {
            Ok(Fate::ToOwner) => self.answer(buffer),
            Ok(Fate::ToNetwork | Fate::Passed) => {
                // What finds no room, or no interface, is lost as on any wire.
                let _ = self.socket.send(&buffer);
            }
            Ok(Fate::Taken) | Err(_) => {}
        }
    }

    fn send(&mut self, frame: &[u8]) {
        // What finds no room, or no interface, is lost as on any wire.
        let _ = self.socket.send(frame);
    }

    fn take(&mut self, frame: &mut Vec<u8>) -> Option<(Program, Came)> {
        if let Some((program, answer)) = self.answers.pop_front() {
            *frame = answer;
            return Some((program, Came::Inside));
        }
        frame.clear();
        let mut came = Came::Network;
        // A record that cannot be read is none.
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

    fn hearing(&mut self) -> Hearing {
        match self.health() {
            // What cannot be read is no reason to give a device up: whether votes come, the leader
            // sees.
            Health::Well | Health::Unknown => Hearing::Well,
            health @ Health::Down => Hearing::Paused(health.to_string()),
            health @ (Health::Detached | Health::Gone) => {
                Hearing::Over(format!("{health} ({})", self.kept.hook))
            }
        }
    }

    fn moved(&mut self) -> Option<String> {
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
