//! Device of a simulated node: the reference programs, driven by the owner used in production. The
//! device outlives its owner's process. Frames between the two, control frames included, may be
//! lost, duplicated or delayed ([offload-17]).

use std::{
    collections::VecDeque,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use quorate_offload::owner::{Owner, Settings as OwnerSettings, Timeouts};
use quorate_offload::{
    Acceptor, Address, Cells, Coordinator, Encapsulation, Header, OutputFrames, PackedBallot, Port,
    Routes, Setup, Type, Verdict,
    header::{COORDINATOR, HEADER_BYTES},
    host::Host,
    link::multicast_addresses,
    out::FRAMES_MAX,
    port::{Connectivity, Device as Owned, DeviceShape, Drained, FrameOrigin, Program},
};
use quorate_replica::{AttachedDevice, DeviceSource};

use crate::dice::Dice;

/// Group hash in device frames. A device drops all frames with another hash.
const GROUP_HASH: u32 = 0x5152_5445;
/// Address of all devices in a run. Decisions for device clients are sent there too.
const ALL_DEVICES_ADDRESS: Address = multicast_addresses(GROUP_HASH)[1];
/// Maximum number of frames queued for an owner; further frames are lost.
const OWNER_QUEUE_MAX: usize = 64;
/// Maximum number of frames queued for a stalled device; further frames are lost.
const STALLED_QUEUE_MAX: usize = 4096;

/// Parameters and faults of the devices in a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DeviceFaults {
    /// Number of slots that each program stores.
    pub cell_count: u32,
    /// Payload capacity of a frame, in bytes.
    pub room_bytes: usize,
    /// Frames per 1000 that are lost between a device and its owner, in each direction.
    pub lost_of_1000: u64,
    /// Frames per 1000 that arrive a second time, after the original.
    pub repeated_of_1000: u64,
    /// Polls per 1000 that report an incomplete drain.
    pub slow_drain_of_1000: u64,
    /// Mean interval between power losses of a device whose owner keeps running. In a volatile
    /// group, only devices of nodes that may forget are affected.
    pub reset_interval_us: Option<u64>,
    /// Owner deaths per 1000 in which the device also loses power.
    pub power_loss_of_1000: u64,
    /// Mean interval between removals of a device from the network.
    pub removal_interval_us: Option<u64>,
    /// Mean interval between stalls of a device, which do not erase its memory.
    pub stall_interval_us: Option<u64>,
    /// Set if the device reports a loss of memory. Otherwise its owner notices the loss from the
    /// device's answers.
    pub reports_loss: bool,
    /// Frames per 1000 between devices in which a bit is flipped.
    pub damaged_of_1000: u64,
    /// Mean interval between frames from strangers. These are replays, or frames that no device
    /// would send, including some in a node's own name ([offload-21]). Strangers never forge votes,
    /// because a sender able to do that could decide anything.
    pub stranger_interval_us: Option<u64>,
}

impl DeviceFaults {
    /// Draws the faults from separate dice, so that seeds without devices replay unchanged.
    pub fn draw(seed: u64) -> Option<Self> {
        let dice = &mut Dice::new(seed ^ 0x4465_7669_6365_7321);
        let mut faults = Self {
            cell_count: dice.pick(&[8, 16, 64]),
            room_bytes: dice.pick(&[64, 256, 1408]),
            lost_of_1000: dice.pick(&[0, 10, 100]),
            repeated_of_1000: dice.pick(&[0, 10, 100]),
            slow_drain_of_1000: dice.pick(&[0, 500]),
            reset_interval_us: dice.pick(&[None, Some(500_000)]),
            power_loss_of_1000: dice.pick(&[0, 500, 1000]),
            removal_interval_us: None,
            stall_interval_us: None,
            reports_loss: false,
            damaged_of_1000: 0,
            stranger_interval_us: None,
        };
        let is_there = dice.chance(1, 4);
        faults.removal_interval_us = dice.pick(&[None, Some(700_000)]);
        faults.reports_loss = dice.chance(1, 2);
        faults.damaged_of_1000 = dice.pick(&[0, 20]);
        faults.stranger_interval_us = dice.pick(&[None, Some(10_000)]);
        faults.stall_interval_us = dice.pick(&[None, Some(1_000_000)]);
        is_there.then_some(faults)
    }

    /// Returns parameters without faults.
    pub const fn none() -> Self {
        Self {
            cell_count: 64,
            room_bytes: 1408,
            lost_of_1000: 0,
            repeated_of_1000: 0,
            slow_drain_of_1000: 0,
            reset_interval_us: None,
            power_loss_of_1000: 0,
            removal_interval_us: None,
            stall_interval_us: None,
            reports_loss: true,
            damaged_of_1000: 0,
            stranger_interval_us: None,
        }
    }
}

/// State of a device, shared by the world and the owner.
struct DeviceState {
    faults: DeviceFaults,
    own_address: Address,
    host: Host<'static>,
    /// Number of times that the device was powered on.
    boot_count: u32,
    dice: Dice,
    frames_for_owner: VecDeque<(Program, FrameOrigin, Vec<u8>)>,
    frames_for_network: Vec<Vec<u8>>,
    /// Frames from the owner that are to be delivered a second time.
    frames_to_repeat: VecDeque<Vec<u8>>,
    /// Frames queued while the device is stalled; `None` while the device runs.
    stalled_frames: Option<VecDeque<(Port, Vec<u8>)>>,
    lost_frames: u64,
    /// Number of the process that owns the device; 0 if none does.
    owner_process: u64,
    /// Set if the device was removed from the network.
    is_removed: bool,
}

/// Handle through which the world controls a node's device.
#[derive(Clone)]
pub struct Device(Arc<Mutex<DeviceState>>);

/// Source of a process's device port. A device that was removed from the network, or whose loss the
/// process reports, is replaced with a new one.
pub struct DeviceAccess {
    device: Device,
    process: u64,
    process_boot: u32,
}

impl DeviceSource for DeviceAccess {
    fn open_device(&mut self, lost: Option<&str>) -> Result<AttachedDevice, String> {
        if lost.is_some() {
            self.device.lock_state().replace_device();
        }
        Ok(self.device.take_ownership(self.process, self.process_boot))
    }
}

/// The owner's end of the port, for one process.
struct DevicePort {
    device: Device,
    owner: u64,
    /// Power-on number of the device when this process became its owner.
    device_boot: u32,
}

/// Returns a frame forged in the name of a node's device: an old frame with altered contents, or
/// one with an invalid value.
pub fn forge_frame(old: &[u8], of: usize, dice: &mut Dice) -> Option<Vec<u8>> {
    let at = Encapsulation::Raw.header_offset();
    let mut header = Header::read(old.get(at..at + HEADER_BYTES)?.first_chunk()?)?;
    let room = old.get(Encapsulation::Raw.room_offset()..)?;
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
        // Makes the value invalid for each of these kinds.
        header.value.length = header.value.length.max(1);
        header.value.counter |= 1 << 63;
    }
    let mut frame = vec![0; old.len()];
    Encapsulation::Raw.write_frame(
        &mut frame,
        &address(of, 1),
        &ALL_DEVICES_ADDRESS,
        &header,
        room,
    )?;
    Some(frame)
}

fn address(node: usize, last: u8) -> Address {
    let [high, low] = u16::try_from(node).unwrap_or(u16::MAX).to_be_bytes();
    Address { mac: [2, 0, 0, high, low, last], ip: [10, high, low, last], port: 47_100 }
}

fn device_programs(faults: &DeviceFaults, node: usize) -> Host<'static> {
    let setup = Setup {
        group: GROUP_HASH,
        room: faults.room_bytes,
        own_address: address(node, 1),
        heard_group: ALL_DEVICES_ADDRESS.mac,
        owner: address(node, 2),
    };
    let routes = Routes::of(&[ALL_DEVICES_ADDRESS]).expect("one route");
    let cells = || Cells::allocate(faults.cell_count, faults.room_bytes);
    Host::new(
        Coordinator::new(setup, routes, routes, cells()),
        Acceptor::new(setup, routes, cells()),
    )
}

impl Device {
    /// Returns a device that is powered on and has no owner.
    pub fn new(seed: u64, node: usize, faults: DeviceFaults) -> Self {
        Self(Arc::new(Mutex::new(DeviceState {
            faults,
            own_address: address(node, 1),
            host: device_programs(&faults, node),
            boot_count: 1,
            dice: Dice::new(seed ^ (node as u64) << 32 ^ 0x0064_6576),
            frames_for_owner: VecDeque::new(),
            frames_for_network: Vec::new(),
            frames_to_repeat: VecDeque::new(),
            stalled_frames: None,
            lost_frames: 0,
            owner_process: 0,
            is_removed: false,
        })))
    }

    fn lock_state(&self) -> MutexGuard<'_, DeviceState> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the access of a process to this device.
    pub fn access_for(&self, process: u64, boot: u32) -> DeviceAccess {
        let device = self.clone();
        let mut state = device.lock_state();
        if state.is_removed {
            state.replace_device();
        }
        drop(state);
        DeviceAccess { device, process, process_boot: boot }
    }

    /// Makes a process the owner of the device, and returns the process's end of the port.
    fn take_ownership(&self, process: u64, boot: u32) -> AttachedDevice {
        let mut state = self.lock_state();
        state.owner_process = process;
        state.frames_for_owner.clear();
        let settings = OwnerSettings {
            owner_boot: boot,
            device_boot: state.boot_count,
            window: 8,
            timeouts: Timeouts::default(),
        };
        let owner = Owner::new(settings, state.host_shape());
        let port =
            DevicePort { device: self.clone(), owner: process, device_boot: state.boot_count };
        AttachedDevice {
            kind: "simulated",
            name: "simulated".to_owned(),
            device: Box::new(port),
            owner,
        }
    }

    /// Handles the death of the owner. Returns whether the device also lost power.
    pub fn end_owner(&self) -> bool {
        let mut state = self.lock_state();
        state.owner_process = 0;
        state.frames_for_owner.clear();
        let chance = state.faults.power_loss_of_1000;
        let dies = state.dice.chance(chance, 1000);
        if dies {
            state.lose_memory();
        }
        dies
    }

    /// Cuts and restores the power, which erases the memory of the device.
    pub fn reset_power(&self) {
        self.lock_state().lose_memory();
    }

    /// Removes the device from the network, so that it neither sends nor receives frames. Its owner
    /// can still query it.
    pub fn remove_from_network(&self) {
        let mut state = self.lock_state();
        state.is_removed = true;
        state.frames_for_network.clear();
    }

    /// Stalls the device without erasing its memory ([offload-9]).
    pub fn stall(&self) {
        self.lock_state().stalled_frames.get_or_insert_default();
    }

    /// Resumes a stalled device, beginning with the queued frames.
    pub fn resume(&self) {
        let mut state = self.lock_state();
        for (from, frame) in state.stalled_frames.take().into_iter().flatten() {
            state.pass_frame(from, &frame);
        }
    }

    /// Receives a frame from the network. Returns whether any frame is waiting for the owner.
    pub fn receive_frame(&self, frame: &[u8]) -> bool {
        let mut state = self.lock_state();
        if !state.is_removed {
            state.pass_frame(Port::Network, frame);
        }
        !state.frames_for_owner.is_empty()
    }

    /// Takes the frames that the device sends to the network.
    pub fn take_sent(&self) -> Vec<Vec<u8>> {
        std::mem::take(&mut self.lock_state().frames_for_network)
    }

    pub fn stop_faults(&self) {
        self.resume();
        let mut state = self.lock_state();
        let DeviceFaults { cell_count: cells, room_bytes: room, reports_loss: tells, .. } =
            state.faults;
        state.faults = DeviceFaults {
            cell_count: cells,
            room_bytes: room,
            reports_loss: tells,
            ..DeviceFaults::none()
        };
        state.frames_to_repeat.clear();
    }
}

impl DeviceState {
    fn host_shape(&self) -> DeviceShape {
        DeviceShape {
            group: GROUP_HASH,
            cells: self.faults.cell_count,
            room: self.faults.room_bytes,
            form: Encapsulation::Raw,
            device_address: self.own_address,
            owner_address: Address {
                mac: [
                    self.own_address.mac[0],
                    0,
                    0,
                    self.own_address.mac[3],
                    self.own_address.mac[4],
                    2,
                ],
                ..self.own_address
            },
            all_hosts: ALL_DEVICES_ADDRESS,
        }
    }

    fn lose_memory(&mut self) {
        self.host.clear_state();
        self.boot_count += 1;
        self.frames_for_owner.clear();
        self.frames_for_network.clear();
        self.frames_to_repeat.clear();
        self.stalled_frames = None;
    }

    /// Replaces the device with a new one that is connected to the network.
    fn replace_device(&mut self) {
        self.lose_memory();
        self.is_removed = false;
    }

    /// Passes one frame through the acceptor's and the coordinator's program.
    fn pass_frame(&mut self, from: Port, frame: &[u8]) {
        if let Some(unseen) = &mut self.stalled_frames {
            if unseen.len() < STALLED_QUEUE_MAX {
                unseen.push_back((from, frame.to_vec()));
            }
            return;
        }
        let room = FRAMES_MAX * (frame.len().max(self.faults.room_bytes) + HEADER_BYTES + 64);
        let mut buffers = [vec![0; room], vec![0; room], vec![0; room]];
        let [out, asked, answered] = &mut buffers;
        let mut out = OutputFrames::new(out);
        let (mut asked, mut answered) = (OutputFrames::new(asked), OutputFrames::new(answered));
        let verdict = self.host.step(from, frame, &mut out, &mut asked, &mut answered);
        for (port, frame) in out.frames() {
            if port == Port::Network && !self.is_removed {
                self.frames_for_network.push(frame.to_vec());
            }
        }
        // Frames that the programs pass, such as counts of other devices, go to the owner.
        let passed = (verdict == Verdict::PassOn && from == Port::Network).then_some(frame);
        let passed = passed.map(|frame| (FrameOrigin::Network, frame));
        for (came, frame) in passed.into_iter().chain(out.frames_for_owner(from)) {
            if self.dice.chance(self.faults.lost_of_1000, 1000) {
                continue;
            }
            if self.frames_for_owner.len() >= OWNER_QUEUE_MAX {
                self.lost_frames += 1;
                continue;
            }
            let program = match came {
                FrameOrigin::Network => Program::Acceptor,
                FrameOrigin::NetworkResponse | FrameOrigin::LocalResponse => sending_program(frame),
            };
            self.frames_for_owner.push_back((program, came, frame.to_vec()));
        }
    }
}

/// Returns the program that sent a frame. Frames from a coordinator have a flag.
fn sending_program(frame: &[u8]) -> Program {
    let at = Encapsulation::Raw.header_offset() + 33;
    let coordinator = u8::try_from(COORDINATOR).unwrap_or(u8::MAX);
    match frame.get(at) {
        Some(flags) if flags & coordinator != 0 => Program::Coordinator,
        _ => Program::Acceptor,
    }
}

impl Owned for DevicePort {
    fn shape(&self) -> DeviceShape {
        self.device.lock_state().host_shape()
    }

    fn put_frame(&mut self, _program: Program, frame: &[u8]) {
        let mut state = self.device.lock_state();
        if state.owner_process != self.owner {
            return;
        }
        let (lost, repeated) = (state.faults.lost_of_1000, state.faults.repeated_of_1000);
        if state.dice.chance(repeated, 1000) {
            state.frames_to_repeat.push_back(frame.to_vec());
        }
        if !state.dice.chance(lost, 1000) {
            state.pass_frame(Port::Owner, frame);
        }
        // Delivers an earlier frame a second time, after later frames.
        if state.dice.chance(100, 1000)
            && let Some(again) = state.frames_to_repeat.pop_front()
        {
            state.pass_frame(Port::Owner, &again);
        }
    }

    fn send_to_devices(&mut self, frame: &[u8]) {
        let mut state = self.device.lock_state();
        if state.owner_process == self.owner && !state.is_removed {
            state.frames_for_network.push(frame.to_vec());
        }
    }

    fn take_frame(&mut self, frame: &mut Vec<u8>) -> Option<(Program, FrameOrigin)> {
        let mut state = self.device.lock_state();
        if state.owner_process != self.owner {
            return None;
        }
        let (program, came, bytes) = state.frames_for_owner.pop_front()?;
        *frame = bytes;
        Some((program, came))
    }

    fn begin_drain(&mut self) {}

    /// Reports a drain as incomplete while the device is stalled, and at random otherwise. The
    /// steps themselves are atomic.
    fn drain_progress(&mut self) -> Drained {
        let mut state = self.device.lock_state();
        let slow = state.faults.slow_drain_of_1000;
        match state.stalled_frames.is_some() || state.dice.chance(slow, 1000) {
            true => Drained::InProgress,
            false => Drained::Complete,
        }
    }

    fn lost_frame_count(&self) -> u64 {
        self.device.lock_state().lost_frames
    }

    fn memory_loss_count(&self) -> u64 {
        let state = self.device.lock_state();
        // Losses before this process became the owner do not count, because it fenced the device.
        let since = state.boot_count.saturating_sub(self.device_boot);
        if state.faults.reports_loss { since.into() } else { 0 }
    }

    fn connectivity(&mut self) -> Connectivity {
        match self.device.lock_state().is_removed {
            true => Connectivity::Detached("taken away".to_owned()),
            false => Connectivity::Connected,
        }
    }
}
