//! Directed test vectors: named cases, each of which begins after a power loss.

mod acceptor;
mod coordinator;
mod host;
mod strangers;

use quorate_offload::{
    Descriptor, Encapsulation, Header, Port, Type,
    checksum::{ones_complement_sum, udp_checksum},
    header::HINT,
};

use crate::{
    Device as _, Event, Program,
    device::Reference,
    frames::{
        CELL_COUNT, CLIENT_STATION, LISTEN_ADDRESS, OWNER_BOOT, ROOM_BYTES, address, client_frame,
        control_call_header, empty_header, filled_room, for_coordinator, frame_from, network_event,
        owner_event, phase2a_header, phase2b_header, recompute_checksums, slot_request_header,
        submit_header,
    },
};

/// Name and events of a case.
pub type Case = (&'static str, Vec<Event>);

const BALLOT: u64 = 0x0001_0000_0002_0003;
const FIRST_SLOT: u64 = 100;
const LAST_SLOT: u64 = FIRST_SLOT + CELL_COUNT as u64 - 1;

/// Returns all directed cases for a program.
pub fn cases(program: Program) -> Vec<Case> {
    let apart = |program| match program {
        Program::Acceptor => [acceptor::acceptor(), strangers::strangers(program)].concat(),
        _ => [coordinator::coordinator(), strangers::strangers(program)].concat(),
    };
    match program {
        Program::Acceptor | Program::Coordinator => apart(program),
        Program::Host => [Program::SINGLE.map(apart).concat(), host::host()].concat(),
    }
}

/// Returns the events of all directed cases, each preceded by a power loss.
pub fn events(program: Program) -> Vec<Event> {
    let cases = cases(program).into_iter().map(|(_, events)| events);
    cases.flat_map(|events| [vec![Event::PowerCycle], events].concat()).collect()
}

fn boot_event(program: Program) -> Event {
    let header = Header { boot: OWNER_BOOT, ..empty_header(Type::Boot) };
    owner_event(&addressed_to(program, header))
}

const fn addressed_to(program: Program, header: Header) -> Header {
    match program {
        Program::Acceptor | Program::Host => header,
        Program::Coordinator => for_coordinator(header),
    }
}

const fn arm_header(counter: u64, ballot: u64, floor: u64) -> Header {
    let mut header = control_call_header(Type::Arm, counter);
    header.ballot.0 = ballot;
    header.slot = floor;
    header.position = 2;
    header
}

/// Returns the call that starts a coordinator, with a quorum of 2 of 3 members and no slot limit.
const fn start(counter: u64, ballot: u64, first: u64) -> Header {
    let mut header = for_coordinator(control_call_header(Type::Arm, counter));
    header.ballot.0 = ballot;
    header.slot = first;
    header.voted = u64::MAX;
    header.value.kind = 2;
    header.value.origin = 3;
    header
}

const fn floor_header(counter: u64, slot: u64, limit: u64) -> Header {
    let mut header = control_call_header(Type::Floor, counter);
    header.slot = slot;
    header.voted = limit;
    header
}

/// Returns the events that make a device operational.
fn ready_events(program: Program) -> Vec<Event> {
    let arm = match program {
        Program::Acceptor => arm_header(1, BALLOT, FIRST_SLOT),
        Program::Coordinator => start(1, BALLOT, FIRST_SLOT),
        Program::Host => return Program::SINGLE.map(ready_events).concat(),
    };
    vec![boot_event(program), owner_event(&arm)]
}

fn ready_case(program: Program, name: &'static str, more: Vec<Event>) -> Case {
    (name, [ready_events(program), more].concat())
}

fn proposal_event(slot: u64, number: u64) -> Event {
    network_event(&phase2a_header(BALLOT, slot, number), number)
}

/// Returns a foreign frame: it differs from a frame in the group only in its port.
fn foreign_frame(number: u64) -> Event {
    let mut bytes = client_frame(
        Encapsulation::Udp,
        &phase2a_header(BALLOT, FIRST_SLOT, number + 10),
        &filled_room(number + 10),
    );
    bytes[36..38].copy_from_slice(&53_u16.to_be_bytes());
    recompute_checksums(&mut bytes);
    Event::Frame(Port::Network, bytes)
}

/// Returns frames with different source addresses, some of which are not unicast.
fn source_address_frames(header: &Header) -> Vec<Event> {
    let from = |mac: u8, ip: u8| {
        let mut from = address(CLIENT_STATION);
        (from.mac[0], from.ip[0]) = (mac, ip);
        [Encapsulation::Udp, Encapsulation::Raw].map(|form| {
            Event::Frame(
                Port::Network,
                frame_from(&from, form, header, &filled_room(header.value.counter)),
            )
        })
    };
    let all = [(2, 10), (3, 10), (0xff, 10), (2, 0), (2, 223), (2, 224), (2, 255)];
    all.into_iter().flat_map(|(mac, ip)| from(mac, ip)).collect()
}
