//! Generates random frames from a seed. Most frames are valid and refer to the current state of the
//! device, so that they have an effect.

use quorate_core::dice::Dice;
use quorate_offload::{Descriptor, Encapsulation, Header, PackedBallot, Port, Reason, Type};

use crate::{
    Device as _, Event, Program,
    device::Reference,
    frames::{
        CLIENT_STATION, DeviceSize, OWNER_BOOT, address, control_call_header, empty_header,
        for_coordinator, frame_from, recompute_checksums, slot_request_header,
    },
    vectors::SentFrame,
};

/// Generator of random events. It tracks the state of a reference device.
pub struct EventGenerator {
    program: Program,
    size: DeviceSize,
    /// Program to which the next frame is addressed. On a host, it is chosen at random for each
    /// frame.
    addressed_program: Program,
    dice: Dice,
    reference: Reference,
    call_counter: u64,
    owner_boot: u32,
    /// Number of calls that the device refused as old.
    old_call_count: u64,
    /// Number of foreign frames left in the current sequence of foreign frames.
    foreign_frames_left: u64,
}

impl EventGenerator {
    /// Creates a generator with the dimensions that the vectors use.
    pub fn new(program: Program, seed: u64) -> Self {
        Self::with_size(program, DeviceSize::VECTORS, seed)
    }

    /// Creates a generator. The program, the size and the seed determine all of its events.
    pub fn with_size(program: Program, size: DeviceSize, seed: u64) -> Self {
        Self {
            program,
            size,
            addressed_program: program,
            dice: Dice::new(seed),
            reference: Reference::with_size(program, size),
            call_counter: 0,
            owner_boot: 1,
            old_call_count: 0,
            foreign_frames_left: 0,
        }
    }

    /// Returns the next event, and the frames that the device must send in response.
    pub fn next_event(&mut self) -> (Event, Vec<SentFrame>) {
        let event = self.generate_event();
        let sent = self.reference.step(&event).expect("the reference has no faults");
        // A corrupted call number may be so high that the device refuses all calls until a power
        // loss. A new boot number of the owner ends that.
        let orders = self.reference.frame_count(Reason::Order);
        if orders != self.old_call_count && self.dice.chance(1, 3) {
            self.owner_boot += 1;
            self.call_counter = 0;
        }
        self.old_call_count = orders;
        (event, sent)
    }

    fn generate_event(&mut self) -> Event {
        if self.program == Program::Host {
            self.addressed_program = self.dice.pick(&Program::SINGLE);
        }
        if self.dice.chance(1, 2000) {
            return Event::PowerCycle;
        }
        if self.foreign_frames_left == 0 && self.dice.chance(1, 200) {
            self.foreign_frames_left = self.dice.between(1, 8);
        }
        let (port, header) = self.random_header();
        let mut from = address(CLIENT_STATION);
        if self.dice.chance(1, 50) {
            from.mac[0] = self.dice.pick(&[3, 0xff, 4]);
            from.ip[0] = self.dice.pick(&[0, 127, 223, 224, 255]);
        }
        let form = if self.dice.chance(1, 3) { Encapsulation::Raw } else { Encapsulation::Udp };
        let mut bytes =
            frame_from(&from, form, &header, &self.size.filled_room(header.value.counter));
        if self.foreign_frames_left > 0 {
            self.foreign_frames_left -= 1;
            let (at, to) = self.dice.pick(&[
                (36, 0),
                (12, 0x86),
                (12, 0x81),
                (14, 0x46),
                (23, 6),
                (44, 0xff),
                (0, 6),
            ]);
            bytes[at] = to;
            recompute_checksums(&mut bytes);
        } else if self.dice.chance(1, 12) {
            self.corrupt_frame(&mut bytes);
        }
        Event::Frame(port, bytes)
    }

    /// Corrupts a frame. In most cases, corrects its checksums afterwards.
    fn corrupt_frame(&mut self, bytes: &mut Vec<u8>) {
        let at = self.dice.index(bytes.len());
        match self.dice.below(10) {
            0 => bytes.truncate(at.max(1)),
            1 => bytes.extend_from_slice(&[0; 8][..1 + self.dice.index(8)]),
            2..6 => bytes[at] ^= 1 << self.dice.below(8),
            _ => {
                let at = self.dice.index(bytes.len().min(104));
                bytes[at] = self.dice.word().to_le_bytes()[0];
            }
        }
        if self.dice.chance(4, 5) {
            recompute_checksums(bytes);
        }
    }

    /// Returns a slot. In most cases it is near the device's floor or its next slot.
    fn random_slot(&mut self) -> u64 {
        let state = self.reference.state(self.addressed_program);
        let cells = self.size.cell_count as u64;
        match self.dice.below(20) {
            0 => self.dice.word(),
            1 => state.floor.wrapping_add(cells),
            2 => state.floor.wrapping_sub(1),
            3 => state.next,
            _ => {
                let reach = if state.next > 0 { state.next - state.floor } else { cells };
                state.floor.wrapping_add(self.dice.below(reach.clamp(1, cells) + 1))
            }
        }
    }

    fn random_ballot(&mut self) -> u64 {
        let ballot = self.reference.state(self.addressed_program).ballot.0;
        match self.dice.below(24) {
            0 => ballot + 1,
            1 => ballot.saturating_sub(1),
            2 => self.dice.below(1 << 20),
            _ => ballot,
        }
    }

    fn random_header(&mut self) -> (Port, Header) {
        let network = if self.dice.chance(1, 30) { Port::Owner } else { Port::Network };
        let armed = self.reference.state(self.addressed_program).ballot != PackedBallot::NONE;
        // A device that is not armed should be armed soon.
        if self.dice.chance(if armed { 1 } else { 10 }, 16) {
            return self.random_control_call();
        }
        let (mut slot, ballot) = (self.random_slot(), self.random_ballot());
        let mut number = self.dice.below(200);
        if self.program == Program::Host {
            (slot, number) = self.match_coordinator(slot, number);
        }
        let header = match (self.addressed_program, self.dice.below(20)) {
            (_, 0) => {
                let mut header = self.size.phase2b_header(ballot, slot, number, 0);
                header.kind = self.dice.pick(&Type::ALL);
                header
            }
            (Program::Acceptor | Program::Host, 1..4) => slot_request_header(Type::Phase1a, slot),
            (Program::Acceptor | Program::Host, _) => {
                self.size.phase2a_header(ballot, slot, number)
            }
            (Program::Coordinator, 1..8) => self.size.submit_header(number),
            (Program::Coordinator, _) => {
                let position = u8::try_from(self.dice.below(4)).expect("small");
                let mut header = self.size.phase2b_header(ballot, slot, number, position);
                let held = self.reference.ring_cell(slot);
                if let Some(cell) = held.filter(|_| self.dice.chance(9, 10)) {
                    header.value = cell.value;
                }
                header
            }
        };
        (network, header)
    }

    /// Returns the slot and the value of a frame for a host. The slot is often one that the host's
    /// coordinator has assigned. The value is usually one of a few, so that votes match.
    fn match_coordinator(&mut self, slot: u64, number: u64) -> (u64, u64) {
        let state = self.reference.state(Program::Coordinator);
        let given_out = state.next - state.floor.min(state.next);
        let mut slot = slot;
        if self.addressed_program == Program::Acceptor && self.dice.chance(1, 2) {
            slot = state.next - self.dice.below(given_out.min(self.size.cell_count as u64) + 1);
        }
        let of = if self.addressed_program == Program::Acceptor { slot } else { state.next };
        let other = self.dice.chance(1, 16);
        (slot, if other { number } else { of % 8 })
    }

    /// Aligns the ballots and slots of a host's two programs, in most cases. Otherwise each program
    /// would refuse the messages of the other.
    fn align_programs(&mut self, header: &mut Header) {
        let other = match self.addressed_program {
            Program::Coordinator => Program::Acceptor,
            Program::Acceptor | Program::Host => Program::Coordinator,
        };
        let (own, other) =
            (self.reference.state(self.addressed_program), self.reference.state(other));
        let joins = header.kind == Type::Arm && other.ballot != PackedBallot::NONE;
        if joins && self.dice.chance(15, 16) {
            header.ballot = other.ballot;
        }
        if matches!(header.kind, Type::Arm | Type::Floor) && self.dice.chance(31, 32) {
            header.slot = own.floor.max(own.next).max(other.floor);
        }
    }

    fn random_control_call(&mut self) -> (Port, Header) {
        let state = self.reference.state(self.addressed_program);
        self.call_counter += 1;
        let counter = match self.dice.below(12) {
            0 => self.call_counter.saturating_sub(self.dice.below(5)),
            _ => self.call_counter,
        };
        let slot = match self.dice.below(3) {
            0 => state.floor + self.dice.below(self.size.cell_count as u64 / 2),
            1 => self.random_slot().min(1 << 40),
            _ => state.floor.max(state.next),
        };
        let limit = slot.saturating_add(self.dice.below(100));
        let lives = state.boot != 0;
        let mut header = match self.dice.below(if lives { 12 } else { 2 }) {
            _ if !lives => empty_header(Type::Boot),
            0 => empty_header(Type::Boot),
            1..3 => slot_request_header(Type::Read, slot),
            3 => empty_header(Type::Ask),
            4..7 => slot_request_header(Type::Floor, slot),
            7 => empty_header(Type::Fence),
            8 if self.addressed_program == Program::Coordinator => {
                slot_request_header(Type::Tick, slot)
            }
            _ => slot_request_header(Type::Arm, slot),
        };
        header.value = Descriptor {
            origin: u32::try_from(self.dice.below(32)).expect("small"),
            origin_boot: self.owner_boot,
            ..control_call_header(Type::Ask, counter).value
        };
        header.boot = if self.dice.chance(1, 30) { OWNER_BOOT + 1 } else { OWNER_BOOT };
        if header.kind == Type::Arm {
            let last = state.ballot.0.max(1 + self.call_counter / 16);
            header.ballot = PackedBallot(last + self.dice.below(2));
            if self.dice.chance(1, 40) {
                header.ballot = PackedBallot::NONE;
            }
        }
        if self.program == Program::Host {
            self.align_programs(&mut header);
        }
        if self.addressed_program == Program::Coordinator {
            header = for_coordinator(header);
            if header.kind == Type::Arm {
                header.value.kind = u8::try_from(self.dice.below(4)).expect("small");
                header.value.origin = 3 + u32::from(self.dice.chance(1, 20));
                header.flags |= u16::from(self.dice.chance(1, 2));
            }
            header.voted = limit.max(header.slot);
        } else if header.kind == Type::Arm {
            header.position = 1;
        }
        if self.dice.chance(1, 400) {
            self.owner_boot += 1;
            self.call_counter = 0;
        }
        let port = if self.dice.chance(1, 30) { Port::Network } else { Port::Owner };
        (port, header)
    }
}

/// Returns `count` events with the expected frames, for a device with the dimensions of the
/// vectors.
pub fn random_events(
    program: Program,
    seed: u64,
    count: usize,
) -> (Vec<Event>, Vec<Vec<SentFrame>>) {
    random_events_of_size(program, DeviceSize::VECTORS, seed, count)
}

/// Returns `count` events with the expected frames, for a device with the given dimensions.
pub fn random_events_of_size(
    program: Program,
    size: DeviceSize,
    seed: u64,
    count: usize,
) -> (Vec<Event>, Vec<Vec<SentFrame>>) {
    let mut maker = EventGenerator::with_size(program, size, seed);
    (0..count).map(|_| maker.next_event()).unzip()
}
