//! A node's device: production's reference programs, owned by production's owner. It lives longer
//! than its owner's process, and what is between the two is lost, repeated and late, control too
//! ([offload-17]).

use std::{
    collections::VecDeque,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use quorate_offload::owner::{Owner, Pace, Settings as OwnerSettings};
use quorate_offload::{
    Acceptor, Address, Cells, Coordinator, Form, Header, Out, PackedBallot, Port, Routes, Setup,
    Type, Verdict,
    header::{COORDINATOR, HEADER_BYTES},
    host::Host,
    link::stations,
    out::FRAMES_MAX,
    port::{Came, Device as Owned, Drained, Hearing, Program, Shape},
};
use quorate_replica::{Ladder, Lent};

use crate::dice::Dice;

/// Frames of other groups end before anything is done.
const GROUP_HASH: u32 = 0x5152_5445;
/// Group of all devices of a run, and of decisions for their clients.
const GROUP: Address = stations(GROUP_HASH)[1];
/// Frames for an owner that does not take them are lost beyond.
const TAP_MAX: usize = 64;
/// Frames that a device that stands still has not looked at are lost beyond.
const UNSEEN_MAX: usize = 4096;

/// Faults of devices.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Faults {
    /// Slots that each program holds.
    pub cells: u32,
    /// Bytes of a room.
    pub room: usize,
    /// Frames that get lost between a device and its owner, each way, of 1000.
    pub lost_of_1000: u64,
    /// Frames that come once more, later, of 1000.
    pub repeated_of_1000: u64,
    /// Times that a drain is not over when it is asked for, of 1000.
    pub slow_of_1000: u64,
    /// Mean time between two times that a device loses power while its owner lives; in a volatile
    /// group, those of nodes that may forget.
    pub resets_us: Option<u64>,
    /// Probability that the device loses power with its owner, of 1000.
    pub dies_too_of_1000: u64,
    /// Mean time between two removals of a device from its place in the network.
    pub taken_us: Option<u64>,
    /// Mean time between two times that a device stands still for a while, and forgets nothing.
    pub stalls_us: Option<u64>,
    /// The device reports itself that it forgot; its owner learns it from its answers otherwise.
    pub tells: bool,
    /// Frames in which a bit turns between two devices, of 1000.
    pub damaged_of_1000: u64,
    /// Mean time between two frames of senders that are no device: replays, and frames that no
    /// device would send, in a node's own name, too ([offload-21]). They never invent votes: a
    /// sender that can do that decides at will.
    pub strangers_us: Option<u64>,
}

impl Faults {
    /// Draws from separate dice, so that seeds without devices stay what they were.
    pub fn draw(seed: u64) -> Option<Self> {
        let dice = &mut Dice::new(seed ^ 0x4465_7669_6365_7321);
        let mut faults = Self {
            cells: dice.pick(&[8, 16, 64]),
            room: dice.pick(&[64, 256, 1408]),
            lost_of_1000: dice.pick(&[0, 10, 100]),
            repeated_of_1000: dice.pick(&[0, 10, 100]),
            slow_of_1000: dice.pick(&[0, 500]),
            resets_us: dice.pick(&[None, Some(500_000)]),
            dies_too_of_1000: dice.pick(&[0, 500, 1000]),
            taken_us: None,
            stalls_us: None,
            tells: false,
            damaged_of_1000: 0,
            strangers_us: None,
        };
        let is_there = dice.chance(1, 4);
        faults.taken_us = dice.pick(&[None, Some(700_000)]);
        faults.tells = dice.chance(1, 2);
        faults.damaged_of_1000 = dice.pick(&[0, 20]);
        faults.strangers_us = dice.pick(&[None, Some(10_000)]);
        faults.stalls_us = dice.pick(&[None, Some(1_000_000)]);
        is_there.then_some(faults)
    }

    /// Returns settings without faults.
    pub const fn calm() -> Self {
        Self {
            cells: 64,
            room: 1408,
            lost_of_1000: 0,
            repeated_of_1000: 0,
            slow_of_1000: 0,
            resets_us: None,
            dies_too_of_1000: 0,
            taken_us: None,
            stalls_us: None,
            tells: true,
            damaged_of_1000: 0,
            strangers_us: None,
        }
    }
}

/// The device itself.
struct State {
    faults: Faults,
    own: Address,
    host: Host<'static>,
    /// Which time it has power.
    boot: u32,
    dice: Dice,
    for_owner: VecDeque<(Program, Came, Vec<u8>)>,
    for_network: Vec<Vec<u8>>,
    /// Calls that come once more.
    late: VecDeque<Vec<u8>>,
    /// Frames that wait while the device is stalled.
    unseen: Option<VecDeque<(Port, Vec<u8>)>>,
    lost: u64,
    /// The process that owns it.
    owner: u64,
    /// The device is permanently cut off from the network.
    is_taken: bool,
}

/// A node's device, as its world holds it.
#[derive(Clone)]
pub struct Device(Arc<Mutex<State>>);

/// Devices of one process: the one of its node, and a new one where that was taken from its place.
pub struct Owning {
    device: Device,
    process: u64,
    boot: u32,
}

impl Ladder for Owning {
    fn climb(&mut self, lost: Option<&str>) -> Result<Lent, String> {
        if lost.is_some() {
            self.device.state().renew();
        }
        Ok(self.device.own(self.process, self.boot))
    }
}

/// The same, as the replica of one process holds it.
struct Side {
    device: Device,
    owner: u64,
    /// Its boot when this process came.
    boot: u32,
}

/// Returns a forged frame in the name of a node's device: an old one with other contents, or a
/// value that is none.
pub fn forged(old: &[u8], of: usize, dice: &mut Dice) -> Option<Vec<u8>> {
    let at = Form::Raw.header_at();
    let mut header = Header::read(old.get(at..at + HEADER_BYTES)?.first_chunk()?)?;
    let room = old.get(Form::Raw.room_at()..)?;
    header.kind = dice.pick(&[
        Type::Submit,
        Type::Phase1b,
        Type::Refused,
        Type::Cell,
        Type::Done,
        Type::Fence,
        Type::Boot,
    ]);
    header.boot = header.boot.wrapping_add(dice.pick(&[0, 1, u32::MAX]));
    header.reason = dice.pick(&[0, 20, 21, 22]);
    header.flags = dice.pick(&[0, COORDINATOR]);
    if header.kind == Type::Submit {
        (header.slot, header.ballot, header.voted) = (0, PackedBallot::NONE, 0);
        (header.position, header.reason, header.boot) = (0, 0, 0);
        (header.value.kind, header.value.crc) = (dice.pick(&[1, 2, 4, 8]), !header.value.crc);
        // Of none of these kinds is this a value.
        header.value.length = header.value.length.max(1);
        header.value.counter |= 1 << 63;
    }
    let mut frame = vec![0; old.len()];
    Form::Raw.write(&mut frame, &address(of, 1), &GROUP, &header, room)?;
    Some(frame)
}

fn address(node: usize, last: u8) -> Address {
    let [high, low] = u16::try_from(node).unwrap_or(u16::MAX).to_be_bytes();
    Address { mac: [2, 0, 0, high, low, last], ip: [10, high, low, last], port: 47_100 }
}

fn programs(faults: &Faults, node: usize) -> Host<'static> {
    let setup = Setup {
        group: GROUP_HASH,
        room: faults.room,
        own: address(node, 1),
        heard: GROUP.mac,
        owner: address(node, 2),
    };
    let routes = Routes::of(&[GROUP]).expect("one route");
    let cells = || Cells::owned(faults.cells, faults.room);
    Host::new(
        Coordinator::new(setup, routes, routes, cells()),
        Acceptor::new(setup, routes, cells()),
    )
}

impl Device {
    /// Returns a device with power, and without an owner.
    pub fn new(seed: u64, node: usize, faults: Faults) -> Self {
        Self(Arc::new(Mutex::new(State {
            faults,
            own: address(node, 1),
            host: programs(&faults, node),
            boot: 1,
            dice: Dice::new(seed ^ (node as u64) << 32 ^ 0x0064_6576),
            for_owner: VecDeque::new(),
            for_network: Vec::new(),
            late: VecDeque::new(),
            unseen: None,
            lost: 0,
            owner: 0,
            is_taken: false,
        })))
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the access of a process to its device.
    pub fn owning(&self, process: u64, boot: u32) -> Owning {
        let device = self.clone();
        // A process that finds its device cut off has another one.
        let mut state = device.state();
        if state.is_taken {
            state.renew();
        }
        drop(state);
        Owning { device, process, boot }
    }

    /// Makes a process its owner: returns its side of the port, and the owner that production has.
    fn own(&self, process: u64, boot: u32) -> Lent {
        let mut state = self.state();
        state.owner = process;
        state.for_owner.clear();
        let settings = OwnerSettings {
            owner_boot: boot,
            device_boot: state.boot,
            window: 8,
            pace: Pace::default(),
        };
        let owner = Owner::new(settings, state.shape());
        let port = Side { device: self.clone(), owner: process, boot: state.boot };
        Lent { kind: "simulated", name: "simulated".to_owned(), device: Box::new(port), owner }
    }

    /// Its owner died. Whether it lost power, too.
    pub fn orphan(&self) -> bool {
        let mut state = self.state();
        state.owner = 0;
        state.for_owner.clear();
        let chance = state.faults.dies_too_of_1000;
        let dies = state.dice.chance(chance, 1000);
        if dies {
            state.forget();
        }
        dies
    }

    /// Cuts the power and restores it.
    pub fn reset(&self) {
        self.state().forget();
    }

    /// Removes the device from its place: it is cut off from the network, in both directions. Its
    /// owner can still query it.
    pub fn take_away(&self) {
        let mut state = self.state();
        state.is_taken = true;
        state.for_network.clear();
    }

    /// Stalls the device; it forgets nothing ([offload-9]).
    pub fn stall(&self) {
        self.state().unseen.get_or_insert_default();
    }

    /// Resumes the device where it stalled.
    pub fn resume(&self) {
        let mut state = self.state();
        for (from, frame) in state.unseen.take().into_iter().flatten() {
            state.step(from, &frame);
        }
    }

    /// Receives a frame from the network. Returns whether there is something for the owner.
    pub fn hear(&self, frame: &[u8]) -> bool {
        let mut state = self.state();
        if !state.is_taken {
            state.step(Port::Network, frame);
        }
        !state.for_owner.is_empty()
    }

    /// Takes the frames for the network.
    pub fn take_sent(&self) -> Vec<Vec<u8>> {
        std::mem::take(&mut self.state().for_network)
    }

    /// Ends all faults.
    pub fn calm(&self) {
        self.resume();
        let mut state = self.state();
        let Faults { cells, room, tells, .. } = state.faults;
        state.faults = Faults { cells, room, tells, ..Faults::calm() };
        state.late.clear();
    }
}

impl State {
    fn shape(&self) -> Shape {
        Shape {
            group: GROUP_HASH,
            cells: self.faults.cells,
            room: self.faults.room,
            form: Form::Raw,
            own: self.own,
            owner: Address {
                mac: [self.own.mac[0], 0, 0, self.own.mac[3], self.own.mac[4], 2],
                ..self.own
            },
            all_hosts: GROUP,
        }
    }

    fn forget(&mut self) {
        self.host.forget();
        self.boot += 1;
        self.for_owner.clear();
        self.for_network.clear();
        self.late.clear();
        self.unseen = None;
    }

    /// Replaces it by another one, at the same place.
    fn renew(&mut self) {
        self.forget();
        self.is_taken = false;
    }

    /// Passes one frame through both programs.
    fn step(&mut self, from: Port, frame: &[u8]) {
        if let Some(unseen) = &mut self.unseen {
            if unseen.len() < UNSEEN_MAX {
                unseen.push_back((from, frame.to_vec()));
            }
            return;
        }
        let room = FRAMES_MAX * (frame.len().max(self.faults.room) + HEADER_BYTES + 64);
        let mut buffers = [vec![0; room], vec![0; room], vec![0; room]];
        let [out, asked, answered] = &mut buffers;
        let mut out = Out::new(out);
        let (mut asked, mut answered) = (Out::new(asked), Out::new(answered));
        let verdict = self.host.step(from, frame, &mut out, &mut asked, &mut answered);
        for (port, frame) in out.frames() {
            if port == Port::Network && !self.is_taken {
                self.for_network.push(frame.to_vec());
            }
        }
        // Counts of other devices do not concern this one: they pass on to the owner.
        let passed = (verdict == Verdict::Pass && from == Port::Network).then_some(frame);
        let passed = passed.map(|frame| (Came::Network, frame));
        for (came, frame) in passed.into_iter().chain(out.frames_for_owner(from)) {
            if self.dice.chance(self.faults.lost_of_1000, 1000) {
                continue;
            }
            if self.for_owner.len() >= TAP_MAX {
                self.lost += 1;
                continue;
            }
            let program = match came {
                Came::Network => Program::Acceptor,
                Came::Asked | Came::Inside => speaker(frame),
            };
            self.for_owner.push_back((program, came, frame.to_vec()));
        }
    }
}

/// Returns the program that sent it: a coordinator's frames have a flag.
fn speaker(frame: &[u8]) -> Program {
    let at = Form::Raw.header_at() + 33;
    let coordinator = u8::try_from(COORDINATOR).unwrap_or(u8::MAX);
    match frame.get(at) {
        Some(flags) if flags & coordinator != 0 => Program::Coordinator,
        _ => Program::Acceptor,
    }
}

impl Owned for Side {
    fn shape(&self) -> Shape {
        self.device.state().shape()
    }

    fn put(&mut self, _program: Program, frame: &[u8]) {
        let mut state = self.device.state();
        if state.owner != self.owner {
            return;
        }
        let (lost, repeated) = (state.faults.lost_of_1000, state.faults.repeated_of_1000);
        if state.dice.chance(repeated, 1000) {
            state.late.push_back(frame.to_vec());
        }
        if !state.dice.chance(lost, 1000) {
            state.step(Port::Owner, frame);
        }
        // An earlier frame arrives again, after later ones.
        if state.dice.chance(100, 1000)
            && let Some(again) = state.late.pop_front()
        {
            state.step(Port::Owner, &again);
        }
    }

    fn send(&mut self, frame: &[u8]) {
        let mut state = self.device.state();
        if state.owner == self.owner && !state.is_taken {
            state.for_network.push(frame.to_vec());
        }
    }

    fn take(&mut self, frame: &mut Vec<u8>) -> Option<(Program, Came)> {
        let mut state = self.device.state();
        if state.owner != self.owner {
            return None;
        }
        let (program, came, bytes) = state.for_owner.pop_front()?;
        *frame = bytes;
        Some((program, came))
    }

    fn drain(&mut self) {}

    /// Reports the end of a drain. A step is whole, but that it is over is known later.
    fn drained(&mut self) -> Drained {
        let mut state = self.device.state();
        let slow = state.faults.slow_of_1000;
        match state.unseen.is_some() || state.dice.chance(slow, 1000) {
            true => Drained::NotYet,
            false => Drained::Over,
        }
    }

    fn lost(&self) -> u64 {
        self.device.state().lost
    }

    fn forgot(&self) -> u64 {
        let state = self.device.state();
        // A process that came later found what was there, and fenced it.
        let since = state.boot.saturating_sub(self.boot);
        if state.faults.tells { since.into() } else { 0 }
    }

    fn hearing(&mut self) -> Hearing {
        match self.device.state().is_taken {
            true => Hearing::Over("taken away".to_owned()),
            false => Hearing::Well,
        }
    }
}
