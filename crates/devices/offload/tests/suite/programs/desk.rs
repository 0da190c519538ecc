//! Test bench for a device: encodes input frames, passes them in, and decodes output frames.

use quorate_offload::{
    Acceptor, Address, CallNumber, Cell, Cells, Coordinator, Descriptor, Encapsulation, Header,
    Host, Learner, OutputFrames, PackedBallot, Port, Reason, Routes, Setup, Type, Verdict,
    checksum::{crc32c, ones_complement_sum},
    header::{COORDINATOR, HEADER_BYTES},
    out::FRAMES_MAX,
};

pub(crate) const GROUP: u32 = 0x0a0b_0c0d;
pub(crate) const ROOM: usize = 32;
pub(crate) const CELLS: u64 = 8;
pub(crate) const BOOT: u32 = 7;

pub(crate) fn address(last: u8) -> Address {
    Address { mac: [2, 0, 0, 0, 0, last], ip: [10, 0, 0, last], port: 47_100 }
}

/// Sender, unless a test specifies another.
pub(crate) const CLIENT: u8 = 9;
pub(crate) const OWN: u8 = 1;
pub(crate) const OWNER: u8 = 2;
/// Destinations of votes, proposals, decisions.
pub(crate) const FIRST_ROUTE: u8 = 3;
pub(crate) const SECOND_ROUTE: u8 = 4;

pub(crate) fn setup() -> Setup {
    Setup {
        group: GROUP,
        room: ROOM,
        own_address: address(OWN),
        heard_group: [3, 0, 0, 0, 0, 0x55],
        owner: address(OWNER),
    }
}

pub(crate) fn routes(last: u8) -> Routes {
    Routes::of(&[address(last)]).unwrap()
}

/// Group of stations to which the device belongs.
pub(crate) fn heard() -> Address {
    Address { mac: setup().heard_group, ip: [239, 0, 0, 0x55], ..address(0) }
}

pub(crate) fn cells(count: u64) -> Cells<'static> {
    let count = usize::try_from(count).unwrap();
    Cells::new(
        Box::leak(vec![Cell::EMPTY; count].into()),
        Box::leak(vec![0; count * ROOM].into()),
        ROOM,
    )
}

pub(crate) trait Program {
    fn step(&mut self, from: Port, frame: &[u8], out: &mut OutputFrames<'_>) -> Verdict;
    fn counted(&self, reason: Reason) -> u64;
}

macro_rules! program {
    ($name:ident) => {
        impl Program for $name<'_> {
            fn step(&mut self, from: Port, frame: &[u8], out: &mut OutputFrames<'_>) -> Verdict {
                self.step(from, frame, out)
            }
            fn counted(&self, reason: Reason) -> u64 {
                self.counters().count_of(reason)
            }
        }
    };
}
program!(Acceptor);
program!(Coordinator);
program!(Learner);

impl Program for Host<'_> {
    fn step(&mut self, from: Port, frame: &[u8], out: &mut OutputFrames<'_>) -> Verdict {
        let bytes = || vec![0; FRAMES_MAX * frame.len().max(1)];
        let (mut asked, mut answered) = (bytes(), bytes());
        let (mut asked, mut answered) =
            (OutputFrames::new(&mut asked), OutputFrames::new(&mut answered));
        self.step(from, frame, out, &mut asked, &mut answered)
    }
    fn counted(&self, reason: Reason) -> u64 {
        self.coordinator().counters().count_of(reason) + self.acceptor().counters().count_of(reason)
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Sent {
    pub(crate) port: Port,
    pub(crate) to: Address,
    pub(crate) header: Header,
    pub(crate) room: Vec<u8>,
}

/// Decodes a frame that was sent. Its sums and lengths must be right.
pub(crate) fn take_apart(port: Port, frame: &[u8]) -> Sent {
    let form = Encapsulation::parse(frame, address(0).port).unwrap();
    let header: &[u8; HEADER_BYTES] = frame[form.header_offset()..].first_chunk().unwrap();
    let header = Header::read(header).unwrap();
    let room = frame[form.room_offset()..].to_vec();
    assert_eq!((room.len(), ones_complement_sum(0, &room)), (ROOM, header.sum));
    assert_eq!(frame[6..12], address(OWN).mac);
    let mut to = Address { mac: frame[..6].try_into().unwrap(), ..address(0) };
    to.ip = match to.mac[0] & 1 {
        0 => [10, 0, 0, to.mac[5]],
        _ => [239, 0, 0, to.mac[5]],
    };
    if form == Encapsulation::Udp {
        assert_eq!(ones_complement_sum(0, &frame[14..34]), 0xffff, "the checksum of IP");
        let pseudo = ones_complement_sum(ones_complement_sum(0, &frame[26..34]), &[0, 17]);
        let pseudo = ones_complement_sum(pseudo, &frame[38..40]);
        assert_eq!(ones_complement_sum(pseudo, &frame[34..]), 0xffff, "the checksum of UDP");
        assert_eq!(frame[30..34], to.ip);
    }
    Sent { port, to, header, room }
}

pub(crate) fn step(program: &mut impl Program, from: Port, frame: &[u8]) -> (Verdict, Vec<Sent>) {
    let mut bytes = vec![0; FRAMES_MAX * frame.len().max(1)];
    let mut out = OutputFrames::new(&mut bytes);
    let verdict = program.step(from, frame, &mut out);
    let sent = out.frames().map(|(port, frame)| take_apart(port, frame));
    (verdict, sent.collect())
}

pub(crate) fn frame_from(
    from: &Address,
    form: Encapsulation,
    header: &Header,
    room: &[u8],
) -> Vec<u8> {
    let mut buffer = vec![0; 2000];
    let frame = form.write_frame(&mut buffer, from, &address(OWN), header, room);
    frame.unwrap().to_vec()
}

pub(crate) fn frame(form: Encapsulation, header: &Header, room: &[u8]) -> Vec<u8> {
    frame_from(&address(CLIENT), form, header, room)
}

/// Sends a frame from the network. Returns the frames that come out.
pub(crate) fn send(program: &mut impl Program, header: &Header, room: &[u8]) -> Vec<Sent> {
    let (verdict, sent) = step(program, Port::Network, &frame(Encapsulation::Udp, header, room));
    assert_eq!(verdict, Verdict::Consumed, "{header:?}");
    sent
}

/// Sends a frame from the owner. Returns the answer.
pub(crate) fn ask(program: &mut impl Program, header: &Header) -> Sent {
    let bytes = frame(Encapsulation::Udp, header, &[0; ROOM]);
    let (verdict, sent) = step(program, Port::Owner, &bytes);
    assert_eq!(verdict, Verdict::Consumed, "{header:?}");
    let [sent] = <[Sent; 1]>::try_from(sent).expect("one answer");
    sent
}

/// Returns bytes that distinguish values.
pub(crate) fn room(number: u64) -> [u8; ROOM] {
    let mut room = [0; ROOM];
    room[..8].copy_from_slice(&number.to_be_bytes());
    room
}

pub(crate) fn value(number: u64) -> Descriptor {
    Descriptor {
        kind: 2,
        origin: 5,
        origin_boot: 1,
        counter: number,
        length: 8,
        crc: crc32c(&number.to_be_bytes()),
    }
}

pub(crate) fn plain(kind: Type) -> Header {
    let mut header = Header::new_submit(GROUP, Descriptor::NONE, 0);
    header.kind = kind;
    header
}

pub(crate) fn submit(number: u64) -> Header {
    Header::new_submit(GROUP, value(number), 0)
}

pub(crate) fn phase2a(ballot: u64, slot: u64, number: u64) -> Header {
    Header { kind: Type::Phase2a, slot, ballot: PackedBallot(ballot), ..submit(number) }
}

pub(crate) fn phase2b(ballot: u64, slot: u64, number: u64, position: u8) -> Header {
    Header { kind: Type::Phase2b, position, voted: ballot, ..phase2a(ballot, slot, number) }
}

pub(crate) fn number(counter: u64) -> CallNumber {
    CallNumber { device_boot: BOOT, owner_boot: 1, counter }
}

/// Returns a control call as a frame.
pub(crate) fn call(kind: Type, counter: u64) -> Header {
    let mut header = plain(kind);
    header.boot = BOOT;
    header.value.origin_boot = 1;
    header.value.counter = counter;
    header
}

/// Turns a call into one for a coordinator.
pub(crate) fn of_coordinator(header: Header) -> Header {
    Header { flags: header.flags | COORDINATOR, ..header }
}
