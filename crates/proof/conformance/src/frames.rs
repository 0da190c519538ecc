//! The group that all vectors use, and builders for its frames.

use quorate_offload::{
    Address, Descriptor, Encapsulation, Header, PackedBallot, Port, Routes, Setup, Type,
    checksum::{crc32c, ones_complement_sum, udp_checksum},
    header::COORDINATOR,
};

use crate::{Event, Program};

/// Id of the group, contained in every frame.
pub const GROUP_ID: u32 = 0x0a0b_0c0d;
/// Number of bytes in a room, the space for a value in a frame.
pub const ROOM_BYTES: usize = 32;
/// Number of cells in a ring. It is small so that slots share cells.
pub const CELL_COUNT: usize = 64;
/// Dimensions of a device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DeviceSize {
    /// Number of bytes in a room, a multiple of 8.
    pub room_bytes: usize,
    /// Number of cells in a ring, a power of two.
    pub cell_count: usize,
}

/// Boot number that the owner uses.
pub const OWNER_BOOT: u32 = 0x0000_b007;
/// Station number of the device.
pub const DEVICE_STATION: u8 = 1;
/// Station number of the device's owner.
pub const OWNER_STATION: u8 = 2;
/// Route number for votes and proposals.
pub const FIRST_ROUTE: u8 = 3;
/// Route number for decisions.
pub const SECOND_ROUTE: u8 = 4;
/// Station number of the sender of most frames.
pub const CLIENT_STATION: u8 = 9;
/// Multicast address on which the devices listen.
pub const LISTEN_ADDRESS: [u8; 6] = [3, 0, 0, 0, 0, 0x55];
const UDP_PORT: u16 = 47_100;

/// Returns the address of the station whose number is `last`.
pub const fn address(last: u8) -> Address {
    Address { mac: [2, 0, 0, 0, 0, last], ip: [10, 0, 0, last], port: UDP_PORT }
}

/// Returns the multicast address whose last byte is `last`.
const fn multicast_address(last: u8) -> Address {
    Address { mac: [3, 0, 0, 0, 0, last], ip: [239, 0, 0, last], port: UDP_PORT }
}

/// Returns routes that consist of a single multicast address.
pub fn multicast_route(last: u8) -> Routes {
    Routes::of(&[multicast_address(last)]).expect("one is not too many")
}

/// Routes for the frames that a program sends.
pub struct ProgramRoutes {
    /// Route of an acceptor's votes.
    pub votes: Routes,
    /// Route of a coordinator's proposals.
    pub proposals: Routes,
    /// Route of a coordinator's decisions.
    pub decisions: Routes,
}

impl ProgramRoutes {
    /// Returns the routes of a program. A host sends everything to its own multicast group.
    pub fn for_program(program: Program) -> Self {
        let [first, second] = match program {
            Program::Acceptor | Program::Coordinator => [FIRST_ROUTE, SECOND_ROUTE],
            Program::Host => [LISTEN_ADDRESS[5]; 2],
        };
        Self {
            votes: multicast_route(first),
            proposals: multicast_route(first),
            decisions: multicast_route(second),
        }
    }
}

/// Returns the setup from the table in `crates/devices/programs/p4/frame.p4`.
pub const fn setup() -> Setup {
    Setup {
        group: GROUP_ID,
        room: ROOM_BYTES,
        own_address: address(DEVICE_STATION),
        heard_group: LISTEN_ADDRESS,
        owner: address(OWNER_STATION),
    }
}

impl DeviceSize {
    /// Dimensions that the vectors use.
    pub const VECTORS: Self = Self { room_bytes: ROOM_BYTES, cell_count: CELL_COUNT };

    /// Returns the setup of all targets, with room for values of this size.
    pub const fn setup(self) -> Setup {
        let mut setup = setup();
        setup.room = self.room_bytes;
        setup
    }

    /// Returns the bytes of value `number`, which are pseudo-random.
    pub fn filled_room(self, number: u64) -> Vec<u8> {
        let mut room = vec![0; self.room_bytes];
        for (at, byte) in room.iter_mut().enumerate().take(self.value_length(number)) {
            *byte = quorate_core::dice::mix(number.wrapping_add(at as u64)).to_le_bytes()[0];
        }
        room
    }

    /// Returns the length of value `number`. All possible lengths occur.
    fn value_length(self, number: u64) -> usize {
        usize::try_from(number % (self.room_bytes as u64 + 1)).expect("below the room")
    }

    /// Returns the descriptor of value `number`.
    pub fn value(self, number: u64) -> Descriptor {
        let length = self.value_length(number);
        Descriptor {
            kind: [2, 2, 2, 1, 4, 5, 6, 8][usize::try_from(number % 8).expect("small")],
            origin: 5,
            origin_boot: 1,
            counter: number,
            length: u16::try_from(length).expect("below the room"),
            crc: crc32c(&self.filled_room(number)[..length]),
        }
    }

    /// Returns the header of a submit, which carries a value without a slot.
    pub fn submit_header(self, number: u64) -> Header {
        Header::new_submit(GROUP_ID, self.value(number), 0)
    }

    /// Returns the header of a proposal.
    pub fn phase2a_header(self, ballot: u64, slot: u64, number: u64) -> Header {
        Header {
            kind: Type::Phase2a,
            slot,
            ballot: PackedBallot(ballot),
            ..self.submit_header(number)
        }
    }

    /// Returns the header of a vote.
    pub fn phase2b_header(self, ballot: u64, slot: u64, number: u64, position: u8) -> Header {
        Header {
            kind: Type::Phase2b,
            position,
            voted: ballot,
            ..self.phase2a_header(ballot, slot, number)
        }
    }
}

/// Returns the value area with value `number`, in the size that the vectors use.
pub fn filled_room(number: u64) -> [u8; ROOM_BYTES] {
    let room = DeviceSize::VECTORS.filled_room(number);
    room.try_into().expect("as long as the room")
}

/// Returns a header in which all fields except the type are zero.
pub const fn empty_header(kind: Type) -> Header {
    let mut header = Header::new_submit(GROUP_ID, Descriptor::NONE, 0);
    header.kind = kind;
    header
}

/// Returns the header of a submit, with the dimensions of the vectors.
pub fn submit_header(number: u64) -> Header {
    DeviceSize::VECTORS.submit_header(number)
}

/// Returns the header of a proposal, with the dimensions of the vectors.
pub fn phase2a_header(ballot: u64, slot: u64, number: u64) -> Header {
    DeviceSize::VECTORS.phase2a_header(ballot, slot, number)
}

/// Returns the header of a vote, with the dimensions of the vectors.
pub fn phase2b_header(ballot: u64, slot: u64, number: u64, position: u8) -> Header {
    DeviceSize::VECTORS.phase2b_header(ballot, slot, number, position)
}

/// Returns the header of a request about a slot.
pub const fn slot_request_header(kind: Type, slot: u64) -> Header {
    let mut header = empty_header(kind);
    header.slot = slot;
    header
}

/// Returns the header of a control call. `counter` is the number of the call.
pub const fn control_call_header(kind: Type, counter: u64) -> Header {
    let mut header = empty_header(kind);
    header.boot = OWNER_BOOT;
    header.value.origin_boot = 1;
    header.value.counter = counter;
    header
}

/// Marks a header as a message for the coordinator.
pub const fn for_coordinator(header: Header) -> Header {
    let mut header = header;
    header.flags |= COORDINATOR;
    header
}

/// Builds a frame with the client's address as its source.
pub fn client_frame(form: Encapsulation, header: &Header, room: &[u8]) -> Vec<u8> {
    frame_from(&address(CLIENT_STATION), form, header, room)
}

/// Builds a frame with the source address `from`.
pub fn frame_from(from: &Address, form: Encapsulation, header: &Header, room: &[u8]) -> Vec<u8> {
    let mut buffer = vec![0; 2000];
    let frame = form.write_frame(&mut buffer, from, &address(DEVICE_STATION), header, room);
    frame.expect("a room of whole words").to_vec()
}

/// Returns the event of a frame that arrives from the network.
pub fn network_event(header: &Header, number: u64) -> Event {
    Event::Frame(Port::Network, client_frame(Encapsulation::Udp, header, &filled_room(number)))
}

/// Returns the event of a frame that arrives from the owner.
pub fn owner_event(header: &Header) -> Event {
    Event::Frame(Port::Owner, client_frame(Encapsulation::Udp, header, &filled_room(0)))
}

/// Recomputes the checksums of a modified frame, as far as the frame is long enough to contain
/// them.
pub fn recompute_checksums(frame: &mut [u8]) {
    let is_udp = frame.len() > 42 && frame[12..14] == [8, 0];
    let at = if is_udp { 42 } else { 18 };
    if frame.len() >= at + 62 {
        let room = ones_complement_sum(0, &frame[at + 62..]);
        frame[at + 56..at + 58].copy_from_slice(&room.to_be_bytes());
    }
    if !is_udp && frame.len() > 18 && frame[12..14] == [0x88, 0xb6] {
        frame[16..18].fill(0);
        let whole = udp_checksum(ones_complement_sum(0, &frame[14..]));
        frame[16..18].copy_from_slice(&whole.to_be_bytes());
    }
    if is_udp {
        frame[24..26].fill(0);
        let ip = !ones_complement_sum(0, &frame[14..34]);
        frame[24..26].copy_from_slice(&ip.to_be_bytes());
        frame[40..42].fill(0);
        let length = (frame.len() - 34).to_be_bytes();
        let pseudo = ones_complement_sum(
            ones_complement_sum(ones_complement_sum(0, &frame[26..34]), &length),
            &[0, 17],
        );
        let whole = udp_checksum(ones_complement_sum(pseudo, &frame[34..]));
        frame[40..42].copy_from_slice(&whole.to_be_bytes());
    }
}
