//! Device with a faulty port: frames are lost, repeated and reordered both ways, steps continue
//! between the answer to a fence and the end of the drain, and power fails. The programs are the
//! reference implementation.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use quorate_core::dice::Dice;
use quorate_offload::{
    Acceptor, CallNumber, Coordinator, Descriptor, Encapsulation, Header, OutputFrames,
    PackedBallot, Port, Routes, Type, Verdict,
    acceptor::ArmParameters,
    header::COORDINATOR,
    out::FRAMES_MAX,
    port::{Device, DeviceShape, Drained, FrameOrigin, Program},
};

use crate::port::frames::{
    CELLS, GROUP, MEMBERS, OWN, OWNER, QUORUM, ROOM, address, cells, read, setup, station, write,
};

/// Faults of the port and the network, in percent of frames.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Trouble {
    pub(crate) lost: u64,
    pub(crate) repeated: u64,
    /// Percentage of assigned slots whose proposals never leave, and whose cells are empty.
    pub(crate) holes: u64,
}

/// Both programs, the acceptors of two other members, and all frames in flight between them.
pub(crate) struct Bad {
    pub(crate) dice: Dice,
    pub(crate) trouble: Trouble,
    pub(crate) acceptor: Acceptor<'static>,
    pub(crate) coordinator: Coordinator<'static>,
    others: [Acceptor<'static>; 2],
    calls: u64,
    inward: Vec<(Program, Vec<u8>)>,
    network: Vec<Vec<u8>>,
    outward: Vec<(Program, FrameOrigin, Vec<u8>)>,
    ready: VecDeque<(Program, FrameOrigin, Vec<u8>)>,
    /// Fences that were answered while earlier steps continue.
    late: BTreeMap<Program, Vec<u8>>,
    /// Highest number that each program received.
    last: BTreeMap<Program, (u32, u64)>,
    draining: bool,
    /// Value assigned to each slot, in each ballot.
    pub(crate) given: BTreeMap<(u64, u64), Option<Descriptor>>,
    pub(crate) votes: BTreeMap<(u64, u64), BTreeSet<u8>>,
    pub(crate) ticks: u64,
    /// Number of frames for the owner that are discarded from now on.
    pub(crate) overflows: u64,
    lost: u64,
}

impl Bad {
    pub(crate) fn new(seed: u64, trouble: Trouble) -> Self {
        let routes =
            |all: &[u8]| Routes::of(&all.iter().map(|last| address(*last)).collect::<Vec<_>>());
        let all_members: Vec<u8> = (0..MEMBERS).map(station).collect();
        let acceptor = |last| {
            let votes = routes(&[OWN]).unwrap();
            Acceptor::new(setup(last), votes, cells())
        };
        let (proposals, decisions) = (routes(&all_members).unwrap(), routes(&[11]).unwrap());
        Self {
            dice: Dice::new(seed),
            trouble,
            acceptor: acceptor(OWN),
            coordinator: Coordinator::new(setup(OWN), proposals, decisions, cells()),
            others: [acceptor(station(1)), acceptor(station(2))],
            calls: 0,
            inward: Vec::new(),
            network: Vec::new(),
            outward: Vec::new(),
            ready: VecDeque::new(),
            late: BTreeMap::new(),
            last: BTreeMap::new(),
            draining: false,
            given: BTreeMap::new(),
            votes: BTreeMap::new(),
            ticks: 0,
            overflows: 0,
            lost: 0,
        }
    }

    /// Arms the other members, on behalf of owners that are not simulated.
    pub(crate) fn arm_others(&mut self, ballot: PackedBallot) {
        self.calls += 2;
        let counter = self.calls;
        for (position, other) in (1..).zip(&mut self.others) {
            let number = CallNumber { device_boot: 9, owner_boot: 1, counter };
            let _ = other.set_boot(9);
            let _ = other.fence(CallNumber { counter: counter - 1, ..number });
            let (floor, votes) = (other.state().floor, Routes::of(&[address(OWN)]).unwrap());
            other.arm(number, ArmParameters { ballot, position, floor, votes }).unwrap();
        }
    }

    /// Raises the floors of the other members.
    pub(crate) fn raise_others(&mut self, floor: u64) {
        self.calls += 1;
        let counter = self.calls;
        for other in &mut self.others {
            let floor = floor.max(other.state().floor);
            let number = CallNumber { device_boot: 9, owner_boot: 1, counter };
            other.raise_floor(number, floor).unwrap();
        }
    }

    /// Makes the device's acceptor vote, for a proposal sent directly to it.
    pub(crate) fn vote(&mut self, ballot: PackedBallot, slot: u64, number: u64) {
        let bytes = number.to_be_bytes();
        let value = Descriptor {
            kind: 2,
            origin: 5,
            origin_boot: 1,
            counter: number,
            length: 8,
            crc: quorate_offload::checksum::crc32c(&bytes),
        };
        self.propose(ballot, slot, value, &bytes);
    }

    /// Makes the device's acceptor vote for any descriptor.
    pub(crate) fn vote_for(&mut self, ballot: PackedBallot, slot: u64, value: Descriptor) {
        self.propose(ballot, slot, value, &[]);
    }

    /// Submits another node's value to the device's coordinator.
    pub(crate) fn submit(&mut self, value: Descriptor) {
        let header = Header::new_submit(GROUP, value, 0);
        let mut buffer = vec![0; 200];
        let (from, to) = (address(12), address(OWN));
        let frame = Encapsulation::Udp.write_frame(&mut buffer, &from, &to, &header, &[0; ROOM]);
        let frame = frame.unwrap().to_vec();
        self.run(Program::Coordinator, Port::Network, &frame, false);
    }

    fn propose(&mut self, ballot: PackedBallot, slot: u64, value: Descriptor, bytes: &[u8]) {
        let mut room = [0; ROOM];
        room[..bytes.len()].copy_from_slice(bytes);
        let mut header = Header::new_submit(GROUP, value, 0);
        (header.kind, header.ballot, header.slot) = (Type::Phase2a, ballot, slot);
        let mut buffer = vec![0; 200];
        let frame = Encapsulation::Udp.write_frame(
            &mut buffer,
            &address(12),
            &address(OWN),
            &header,
            &room,
        );
        let frame = frame.unwrap().to_vec();
        self.run(Program::Acceptor, Port::Network, &frame, false);
    }

    /// Delivers a frame to the owner that no program sent.
    pub(crate) fn say(&mut self, program: Program, came: FrameOrigin, frame: Vec<u8>) {
        self.ready.push_back((program, came, frame));
    }

    /// Cuts the power. Everything is forgotten, and frames on their way to the device are lost.
    /// Frames that have left it may still arrive.
    pub(crate) fn power_goes(&mut self) {
        self.acceptor.clear_state();
        self.coordinator.clear_state();
        self.inward.clear();
        self.late.clear();
        self.last.clear();
    }

    /// Returns the first slot from here on that no quorum voted for.
    pub(crate) fn decided_to(&self, ballot: PackedBallot, from: u64) -> u64 {
        let chosen = |slot| {
            let votes = self.votes.get(&(ballot.0, slot));
            votes.is_some_and(|voters| voters.len() >= usize::from(QUORUM))
        };
        (from..).find(|slot| !chosen(*slot)).unwrap()
    }

    pub(crate) fn is_busy(&self) -> bool {
        !(self.inward.is_empty() && self.network.is_empty() && self.outward.is_empty())
            || self.draining
    }

    pub(crate) fn has_frames(&self) -> bool {
        !self.ready.is_empty()
    }

    pub(crate) fn step(&mut self) {
        match self.dice.below(10) {
            0..3 => self.carry_in(),
            3..6 => self.carry_over(),
            6..9 => self.carry_out(),
            _ if self.draining && self.dice.chance(1, 3) => {
                self.draining = false;
                self.end_steps();
                // Answers sent before a drain was over do not arrive after it.
                while !self.outward.is_empty() {
                    self.carry_out();
                }
            }
            _ if !self.late.is_empty() && !self.draining && self.dice.chance(1, 20) => {
                self.end_steps();
            }
            _ => {}
        }
    }

    /// Ends the steps that saw a program armed. From then on it is disarmed.
    fn end_steps(&mut self) {
        for (program, fence) in core::mem::take(&mut self.late) {
            self.run(program, Port::Owner, &fence, true);
        }
    }

    /// Picks a random frame of a list, delivered once, twice, or never.
    fn draw<T: Clone>(dice: &mut Dice, trouble: Trouble, list: &mut Vec<T>) -> Option<T> {
        if list.is_empty() {
            return None;
        }
        let at = dice.index(list.len());
        if dice.chance(trouble.repeated, 100) {
            return Some(list[at].clone());
        }
        let drawn = list.swap_remove(at);
        (!dice.chance(trouble.lost, 100)).then_some(drawn)
    }

    fn carry_out(&mut self) {
        let drawn = Self::draw(&mut self.dice, self.trouble, &mut self.outward);
        let Some(frame) = drawn else { return };
        if self.overflows > 0 {
            (self.overflows, self.lost) = (self.overflows - 1, self.lost + 1);
        } else {
            self.ready.push_back(frame);
        }
    }

    fn carry_in(&mut self) {
        let drawn = Self::draw(&mut self.dice, self.trouble, &mut self.inward);
        let Some((program, frame)) = drawn else {
            return;
        };
        let header = read(&frame);
        let is_call = matches!(header.kind, Type::Arm | Type::Floor | Type::Fence);
        if !is_call {
            self.ticks += u64::from(header.kind == Type::Tick);
            return self.run(program, Port::Owner, &frame, false);
        }
        let boot = match program {
            Program::Acceptor => self.acceptor.state().boot,
            Program::Coordinator => self.coordinator.state().boot,
        };
        let last = self.last.entry(program).or_default();
        let number = (header.value.origin_boot, header.value.counter);
        let is_next = number > *last;
        if is_next && boot == header.boot {
            *last = number;
        } else if self.late.contains_key(&program) {
            return;
        }
        let steps_go_on = self.late.contains_key(&program) || self.dice.chance(1, 2);
        if header.kind == Type::Fence && is_next && boot == header.boot && steps_go_on {
            self.answer_early(program, &header);
            self.late.insert(program, frame);
            return;
        }
        // The owner does not wait for the drain, so its call is carried out in turn.
        if let Some(fence) = self.late.remove(&program) {
            self.run(program, Port::Owner, &fence, true);
        }
        self.run(program, Port::Owner, &frame, false);
    }

    /// Answers a fence while steps that began before it continue.
    fn answer_early(&mut self, program: Program, asked: &Header) {
        let state = match program {
            Program::Acceptor => self.acceptor.state(),
            Program::Coordinator => self.coordinator.state(),
        };
        let header = Header {
            kind: Type::Done,
            slot: state.floor,
            ballot: PackedBallot::NONE,
            voted: state.next,
            boot: state.boot,
            value: Descriptor {
                kind: 0,
                length: u16::try_from(ROOM).unwrap(),
                crc: CELLS,
                ..asked.value
            },
            ..*asked
        };
        let frame = write(&header, &[0; ROOM]);
        self.outward.push((program, FrameOrigin::LocalResponse, frame));
    }

    fn carry_over(&mut self) {
        let drawn = Self::draw(&mut self.dice, self.trouble, &mut self.network);
        let Some(frame) = drawn else { return };
        match frame[5] {
            OWN if matches!(read(&frame).kind, Type::Phase2b | Type::Refused | Type::Submit) => {
                self.run(Program::Coordinator, Port::Network, &frame, false);
            }
            OWN => self.run(Program::Acceptor, Port::Network, &frame, false),
            last => {
                let mut buffer = vec![0; FRAMES_MAX * frame.len()];
                let mut out = OutputFrames::new(&mut buffer);
                let other = &mut self.others[usize::from(last - 11)];
                other.step(Port::Network, &frame, &mut out);
                for (port, frame) in out.frames() {
                    let said = read(frame);
                    if said.kind == Type::Phase2b && port == Port::Network {
                        let voters = self.votes.entry((said.ballot.0, said.slot)).or_default();
                        voters.insert(said.position);
                        self.network.push(frame.to_vec());
                    }
                }
            }
        }
    }

    /// Runs one step of one of the device's programs, and distributes the frames that it sends.
    fn run(&mut self, program: Program, from: Port, frame: &[u8], silent: bool) {
        let mut buffer = vec![0; FRAMES_MAX * frame.len()];
        let mut out = OutputFrames::new(&mut buffer);
        let verdict = match program {
            Program::Acceptor => self.acceptor.step(from, frame, &mut out),
            Program::Coordinator => self.coordinator.step(from, frame, &mut out),
        };
        let asked = read(frame);
        // Frames of the device's own programs are processed internally.
        let came = match from {
            Port::Network if frame[11] != OWN => FrameOrigin::NetworkResponse,
            Port::Network | Port::Owner => FrameOrigin::LocalResponse,
        };
        for (port, sent) in out.frames() {
            let said = read(sent);
            match (said.kind, port) {
                _ if silent => {}
                (Type::Phase2b, Port::Owner) => {
                    let voters = self.votes.entry((said.ballot.0, said.slot)).or_default();
                    voters.insert(said.position);
                    self.outward.push((program, came, sent.to_vec()));
                }
                (Type::Phase2a, _) => {
                    let key = (said.ballot.0, said.slot);
                    if asked.kind == Type::Submit && !self.given.contains_key(&key) {
                        let lacks = self.dice.chance(self.trouble.holes, 100);
                        self.given.insert(key, (!lacks).then_some(said.value));
                    }
                    if self.given.get(&key).is_some_and(Option::is_some) {
                        self.network.push(sent.to_vec());
                    }
                }
                (Type::Cell, _) => {
                    let sent = self.cell(program, &said, sent);
                    self.outward.push((program, came, sent));
                }
                (Type::Done, _) if self.late.contains_key(&program) => {
                    let header = Header { ballot: PackedBallot::NONE, ..said };
                    let sent = write(&header, &[0; ROOM]);
                    self.outward.push((program, came, sent));
                }
                (_, Port::Owner) => self.outward.push((program, came, sent.to_vec())),
                (_, Port::Network) => self.network.push(sent.to_vec()),
            }
        }
        if verdict == Verdict::PassOn && asked.kind == Type::Decided {
            let passed = (program, FrameOrigin::Network, frame.to_vec());
            self.outward.push(passed);
        }
    }

    /// Returns the answer for a cell: disarmed once a fence was answered, and empty in a hole.
    fn cell(&self, program: Program, said: &Header, sent: &[u8]) -> Vec<u8> {
        let mut header = *said;
        if self.late.contains_key(&program) {
            header.ballot = PackedBallot::NONE;
        }
        let hole = self.given.get(&(said.voted, said.slot)) == Some(&None);
        if hole && said.flags & COORDINATOR != 0 {
            (header.voted, header.value) = (0, Descriptor::NONE);
            return write(&header, &[0; ROOM]);
        }
        write(&header, &sent[Encapsulation::Udp.room_offset()..])
    }
}

impl Device for Bad {
    fn shape(&self) -> DeviceShape {
        DeviceShape {
            group: GROUP,
            cells: CELLS,
            room: ROOM,
            form: Encapsulation::Udp,
            device_address: address(OWN),
            owner_address: address(OWNER),
            // One address suffices for these tests.
            all_hosts: address(OWN),
        }
    }

    fn send_to_devices(&mut self, frame: &[u8]) {
        self.network.push(frame.to_vec());
    }

    fn put_frame(&mut self, program: Program, frame: &[u8]) {
        self.inward.push((program, frame.to_vec()));
    }

    fn take_frame(&mut self, frame: &mut Vec<u8>) -> Option<(Program, FrameOrigin)> {
        let (program, came, taken) = self.ready.pop_front()?;
        *frame = taken;
        Some((program, came))
    }

    fn begin_drain(&mut self) {
        self.draining = true;
    }

    fn drain_progress(&mut self) -> Drained {
        if self.draining { Drained::InProgress } else { Drained::Complete }
    }

    fn lost_frame_count(&self) -> u64 {
        self.lost
    }
}
