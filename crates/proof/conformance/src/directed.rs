//! Directed test vectors: named cases, each of which begins after a power loss.

mod acceptor;
mod coordinator;
mod host;
mod strangers;

use quorate_offload::{
    Descriptor, Form, Header, Port, Type,
    checksum::{sum, udp},
    header::HINT,
};

use crate::{
    Device as _, Event, Program,
    device::Reference,
    frames::{
        BOOT, CELLS, CLIENT, HEARD, ROOM, about, address, call, frame, frame_from, network,
        of_coordinator, owner, phase2a, phase2b, plain, room, seal, submit,
    },
};

/// Name and events of a case.
pub type Case = (&'static str, Vec<Event>);

const BALLOT: u64 = 0x0001_0000_0002_0003;
const FIRST: u64 = 100;
const LAST: u64 = FIRST + CELLS as u64 - 1;

/// Returns all directed cases for a program.
pub fn cases(program: Program) -> Vec<Case> {
    let apart = |program| match program {
        Program::Acceptor => [acceptor::acceptor(), strangers::strangers(program)].concat(),
        _ => [coordinator::coordinator(), strangers::strangers(program)].concat(),
    };
    match program {
        Program::Acceptor | Program::Coordinator => apart(program),
        Program::Host => [Program::APART.map(apart).concat(), host::host()].concat(),
    }
}

/// Returns the events of all directed cases, each preceded by a power loss.
pub fn events(program: Program) -> Vec<Event> {
    let cases = cases(program).into_iter().map(|(_, events)| events);
    cases.flat_map(|events| [vec![Event::Power], events].concat()).collect()
}

fn boot(program: Program) -> Event {
    let header = Header { boot: BOOT, ..plain(Type::Boot) };
    owner(&of(program, header))
}

const fn of(program: Program, header: Header) -> Header {
    match program {
        Program::Acceptor | Program::Host => header,
        Program::Coordinator => of_coordinator(header),
    }
}

const fn arm(counter: u64, ballot: u64, floor: u64) -> Header {
    let mut header = call(Type::Arm, counter);
    header.ballot.0 = ballot;
    header.slot = floor;
    header.position = 2;
    header
}

/// Returns the call that starts a coordinator, with a quorum of 2 of 3 members and no slot limit.
const fn start(counter: u64, ballot: u64, first: u64) -> Header {
    let mut header = of_coordinator(call(Type::Arm, counter));
    header.ballot.0 = ballot;
    header.slot = first;
    header.voted = u64::MAX;
    header.value.kind = 2;
    header.value.origin = 3;
    header
}

const fn floor(counter: u64, slot: u64, limit: u64) -> Header {
    let mut header = call(Type::Floor, counter);
    header.slot = slot;
    header.voted = limit;
    header
}

/// Returns the events that make a device operational.
fn ready(program: Program) -> Vec<Event> {
    let arm = match program {
        Program::Acceptor => arm(1, BALLOT, FIRST),
        Program::Coordinator => start(1, BALLOT, FIRST),
        Program::Host => return Program::APART.map(ready).concat(),
    };
    vec![boot(program), owner(&arm)]
}

fn case(program: Program, name: &'static str, more: Vec<Event>) -> Case {
    (name, [ready(program), more].concat())
}

fn vote(slot: u64, number: u64) -> Event {
    network(&phase2a(BALLOT, slot, number), number)
}

/// Returns a foreign frame: it differs from a frame in the group only in its port.
fn other(number: u64) -> Event {
    let mut bytes = frame(Form::Udp, &phase2a(BALLOT, FIRST, number + 10), &room(number + 10));
    bytes[36..38].copy_from_slice(&53_u16.to_be_bytes());
    seal(&mut bytes);
    Event::Frame(Port::Network, bytes)
}

/// Returns frames with different source addresses, some of which are not unicast.
fn stations(header: &Header) -> Vec<Event> {
    let from = |mac: u8, ip: u8| {
        let mut from = address(CLIENT);
        (from.mac[0], from.ip[0]) = (mac, ip);
        [Form::Udp, Form::Raw].map(|form| {
            Event::Frame(
                Port::Network,
                frame_from(&from, form, header, &room(header.value.counter)),
            )
        })
    };
    let all = [(2, 10), (3, 10), (0xff, 10), (2, 0), (2, 223), (2, 224), (2, 255)];
    all.into_iter().flat_map(|(mac, ip)| from(mac, ip)).collect()
}
