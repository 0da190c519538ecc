//! Generates random frames from a seed. Most frames are valid and refer to the current state of the
//! device, so that they have an effect.

use quorate_core::dice::Dice;
use quorate_offload::{Descriptor, Form, Header, PackedBallot, Port, Reason, Type};

use crate::{
    Device as _, Event, Program,
    device::Reference,
    frames::{BOOT, CLIENT, Size, about, address, call, frame_from, of_coordinator, plain, seal},
    vectors::Sent,
};

/// Generator of random events. It tracks the state of a reference device.
pub struct Maker {
    program: Program,
    size: Size,
    /// Program to which the next frame is addressed. On a host, it is chosen at random for each
    /// frame.
    turn: Program,
    dice: Dice,
    reference: Reference,
    counter: u64,
    owner_boot: u32,
    /// Number of calls that the device refused as old.
    orders: u64,
    /// Number of foreign frames left in the current sequence of foreign frames.
    others: u64,
}

impl Maker {
    /// Creates a generator with the dimensions that the vectors use.
    pub fn new(program: Program, seed: u64) -> Self {
        Self::of(program, Size::VECTORS, seed)
    }

    /// Creates a generator. The program, the size and the seed determine all of its events.
    pub fn of(program: Program, size: Size, seed: u64) -> Self {
        Self {
            program,
            size,
            turn: program,
            dice: Dice::new(seed),
            reference: Reference::of(program, size),
            counter: 0,
            owner_boot: 1,
            orders: 0,
            others: 0,
        }
    }

    /// Returns the next event, and the frames that the device must send in response.
    pub fn make(&mut self) -> (Event, Vec<Sent>) {
        let event = self.event();
        let sent = self.reference.step(&event).expect("the reference has no faults");
        // A corrupted call number may be so high that the device refuses all calls until a power
        // loss. A new boot number of the owner ends that.
        let orders = self.reference.counted(Reason::Order);
        if orders != self.orders && self.dice.chance(1, 3) {
            self.owner_boot += 1;
            self.counter = 0;
        }
        self.orders = orders;
        (event, sent)
    }

    fn event(&mut self) -> Event {
        if self.program == Program::Host {
            self.turn = self.dice.pick(&Program::APART);
        }
        if self.dice.chance(1, 2000) {
            return Event::Power;
        }
        if self.others == 0 && self.dice.chance(1, 200) {
            self.others = self.dice.between(1, 8);
        }
        let (port, header) = self.header();
        let mut from = address(CLIENT);
        if self.dice.chance(1, 50) {
            from.mac[0] = self.dice.pick(&[3, 0xff, 4]);
            from.ip[0] = self.dice.pick(&[0, 127, 223, 224, 255]);
        }
        let form = if self.dice.chance(1, 3) { Form::Raw } else { Form::Udp };
        let mut bytes = frame_from(&from, form, &header, &self.size.room(header.value.counter));
        if self.others > 0 {
            self.others -= 1;
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
            seal(&mut bytes);
        } else if self.dice.chance(1, 12) {
            self.spoil(&mut bytes);
        }
        Event::Frame(port, bytes)
    }

    /// Corrupts a frame. In most cases, corrects its checksums afterwards.
    fn spoil(&mut self, bytes: &mut Vec<u8>) {
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
            seal(bytes);
        }
    }

    /// Returns a slot. In most cases it is near the device's floor or its next slot.
    fn slot(&mut self) -> u64 {
        let state = self.reference.state(self.turn);
        let cells = self.size.cells as u64;
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

    fn ballot(&mut self) -> u64 {
        let ballot = self.reference.state(self.turn).ballot.0;
        match self.dice.below(24) {
            0 => ballot + 1,
            1 => ballot.saturating_sub(1),
            2 => self.dice.below(1 << 20),
            _ => ballot,
        }
    }

    fn header(&mut self) -> (Port, Header) {
        let network = if self.dice.chance(1, 30) { Port::Owner } else { Port::Network };
        let armed = self.reference.state(self.turn).ballot != PackedBallot::NONE;
        // A device that is not armed should be armed soon.
        if self.dice.chance(if armed { 1 } else { 10 }, 16) {
            return self.control();
        }
        let (mut slot, ballot) = (self.slot(), self.ballot());
        let mut number = self.dice.below(200);
        if self.program == Program::Host {
            (slot, number) = self.meet(slot, number);
        }
        let header = match (self.turn, self.dice.below(20)) {
            (_, 0) => {
                let mut header = self.size.phase2b(ballot, slot, number, 0);
                header.kind = self.dice.pick(&Type::ALL);
                header
            }
            (Program::Acceptor | Program::Host, 1..4) => about(Type::Phase1a, slot),
            (Program::Acceptor | Program::Host, _) => self.size.phase2a(ballot, slot, number),
            (Program::Coordinator, 1..8) => self.size.submit(number),
            (Program::Coordinator, _) => {
                let position = u8::try_from(self.dice.below(4)).expect("small");
                let mut header = self.size.phase2b(ballot, slot, number, position);
                let held = self.reference.held(slot);
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
    fn meet(&mut self, slot: u64, number: u64) -> (u64, u64) {
        let state = self.reference.state(Program::Coordinator);
        let given_out = state.next - state.floor.min(state.next);
        let mut slot = slot;
        if self.turn == Program::Acceptor && self.dice.chance(1, 2) {
            slot = state.next - self.dice.below(given_out.min(self.size.cells as u64) + 1);
        }
        let of = if self.turn == Program::Acceptor { slot } else { state.next };
        let other = self.dice.chance(1, 16);
        (slot, if other { number } else { of % 8 })
    }

    /// Aligns the ballots and slots of a host's two programs, in most cases. Otherwise each program
    /// would refuse the messages of the other.
    fn join(&mut self, header: &mut Header) {
        let other = match self.turn {
            Program::Coordinator => Program::Acceptor,
            Program::Acceptor | Program::Host => Program::Coordinator,
        };
        let (own, other) = (self.reference.state(self.turn), self.reference.state(other));
        let joins = header.kind == Type::Arm && other.ballot != PackedBallot::NONE;
        if joins && self.dice.chance(15, 16) {
            header.ballot = other.ballot;
        }
        if matches!(header.kind, Type::Arm | Type::Floor) && self.dice.chance(31, 32) {
            header.slot = own.floor.max(own.next).max(other.floor);
        }
    }

    fn control(&mut self) -> (Port, Header) {
        let state = self.reference.state(self.turn);
        self.counter += 1;
        let counter = match self.dice.below(12) {
            0 => self.counter.saturating_sub(self.dice.below(5)),
            _ => self.counter,
        };
        let slot = match self.dice.below(3) {
            0 => state.floor + self.dice.below(self.size.cells as u64 / 2),
            1 => self.slot().min(1 << 40),
            _ => state.floor.max(state.next),
        };
        let limit = slot.saturating_add(self.dice.below(100));
        let lives = state.boot != 0;
        let mut header = match self.dice.below(if lives { 12 } else { 2 }) {
            _ if !lives => plain(Type::Boot),
            0 => plain(Type::Boot),
            1..3 => about(Type::Read, slot),
            3 => plain(Type::Ask),
            4..7 => about(Type::Floor, slot),
            7 => plain(Type::Fence),
            8 if self.turn == Program::Coordinator => about(Type::Tick, slot),
            _ => about(Type::Arm, slot),
        };
        header.value = Descriptor {
            origin: u32::try_from(self.dice.below(32)).expect("small"),
            origin_boot: self.owner_boot,
            ..call(Type::Ask, counter).value
        };
        header.boot = if self.dice.chance(1, 30) { BOOT + 1 } else { BOOT };
        if header.kind == Type::Arm {
            let last = state.ballot.0.max(1 + self.counter / 16);
            header.ballot = PackedBallot(last + self.dice.below(2));
            if self.dice.chance(1, 40) {
                header.ballot = PackedBallot::NONE;
            }
        }
        if self.program == Program::Host {
            self.join(&mut header);
        }
        if self.turn == Program::Coordinator {
            header = of_coordinator(header);
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
            self.counter = 0;
        }
        let port = if self.dice.chance(1, 30) { Port::Network } else { Port::Owner };
        (port, header)
    }
}

/// Returns `count` events with the expected frames, for a device with the dimensions of the
/// vectors.
pub fn events(program: Program, seed: u64, count: usize) -> (Vec<Event>, Vec<Vec<Sent>>) {
    events_of(program, Size::VECTORS, seed, count)
}

/// Returns `count` events with the expected frames, for a device with the given dimensions.
pub fn events_of(
    program: Program,
    size: Size,
    seed: u64,
    count: usize,
) -> (Vec<Event>, Vec<Vec<Sent>>) {
    let mut maker = Maker::of(program, size, seed);
    (0..count).map(|_| maker.make()).unzip()
}
