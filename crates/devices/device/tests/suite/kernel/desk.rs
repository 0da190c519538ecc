//! Test fixture: a loaded device, and frames for it.

use std::env;

use quorate_device::xdp::{
    Device, Role, Settings,
    control::{ArmParameters, ControlCalls, StartParameters},
};
use quorate_offload::{
    Address, CallNumber, Descriptor, Encapsulation, Header, PackedBallot, Routes, Setup, Type,
    checksum::crc32c, header::HEADER_BYTES, port::Program,
};

pub(crate) const ROOM: usize = 64;
pub(crate) const BALLOT: PackedBallot = PackedBallot(0x0001_0000_0002_0003);
pub(crate) const BOOT: u32 = 77;

pub(crate) fn address(last: u8) -> Address {
    Address { mac: [2, 0, 0, 0, 0, last], ip: [10, 0, 0, last], port: 47_100 }
}

pub(crate) fn settings(cells: u32) -> Settings {
    let group = Address { mac: [3, 0, 0, 0, 0, 1], ip: [239, 0, 0, 1], port: 47_100 };
    let route = Routes::of(&[group]).unwrap();
    let setup = Setup {
        group: 5,
        room: ROOM,
        own_address: address(1),
        heard_group: [3, 0, 0, 0, 0, 9],
        owner: address(2),
    };
    Settings {
        cells,
        tap_bytes: 1 << 20,
        ..Settings::from_routes(setup, &route, &route, &route).unwrap()
    }
}

/// Loads a device. Prints a notice and returns `None` where programs may not be loaded.
pub(crate) fn load(role: Role, settings: &Settings) -> Option<Device> {
    match Device::load(role, settings) {
        Ok(device) => Some(device),
        Err(failed) if failed.is_unsupported() => {
            let strict = env::var("QUORATE_NO_SKIPS").is_ok_and(|value| value == "true");
            assert!(!strict, "{failed}");
            eprintln!("skipped: {failed}");
            None
        }
        Err(failed) => panic!("{failed}"),
    }
}

pub(crate) fn number(counter: u64) -> CallNumber {
    CallNumber { device_boot: BOOT, owner_boot: 1, counter }
}

/// Loads a device and arms or starts it, beginning with slot 0.
pub(crate) fn ready(role: Role, cells: u32) -> Option<Device> {
    let device = load(role, &settings(cells))?;
    for program in programs(role) {
        device.control_calls(*program).set_boot(BOOT).unwrap();
        match program {
            Program::Acceptor => device.control_calls(*program).arm(number(1), arm()).unwrap(),
            Program::Coordinator => {
                device.control_calls(*program).start(number(1), start()).unwrap()
            }
        };
    }
    Some(device)
}

pub(crate) const fn programs(role: Role) -> &'static [Program] {
    match role {
        Role::Acceptor => &[Program::Acceptor],
        Role::Coordinator => &[Program::Coordinator],
        Role::Host => &Program::ALL,
    }
}

/// Returns the calls of a device with one program.
pub(crate) fn of(device: &Device) -> ControlCalls<'_> {
    device.control_calls(programs(device.role())[0])
}

pub(crate) fn arm() -> ArmParameters {
    ArmParameters { ballot: BALLOT, position: 2, floor: 0 }
}

pub(crate) fn start() -> StartParameters {
    StartParameters {
        ballot: BALLOT,
        first: 0,
        limit: u64::MAX,
        quorum: 2,
        members: 3,
        hint: false,
    }
}

/// Returns bytes that identify a value.
pub(crate) fn room(value: u64) -> [u8; ROOM] {
    let mut room = [0; ROOM];
    for chunk in room.as_chunks_mut::<8>().0 {
        *chunk = value.wrapping_mul(0x9e37_79b9_7f4a_7c15).to_be_bytes();
    }
    room
}

pub(crate) fn descriptor(value: u64) -> Descriptor {
    Descriptor {
        kind: 2,
        origin: 9,
        origin_boot: 1,
        counter: value,
        length: ROOM as u16,
        crc: crc32c(&room(value)),
    }
}

pub(crate) fn submit(value: u64) -> Header {
    Header::new_submit(5, descriptor(value), 0)
}

pub(crate) fn phase2a(slot: u64, value: u64) -> Header {
    Header { kind: Type::Phase2a, slot, ballot: BALLOT, ..submit(value) }
}

pub(crate) fn phase2b(slot: u64, value: u64, position: u8) -> Header {
    Header { kind: Type::Phase2b, position, voted: BALLOT.0, ..phase2a(slot, value) }
}

pub(crate) fn frame(form: Encapsulation, header: &Header) -> Vec<u8> {
    let mut buffer = vec![0; 2000];
    let room = room(header.value.counter);
    let (from, to) = (address(9), address(1));
    form.write_frame(&mut buffer, &from, &to, header, &room).unwrap().to_vec()
}

pub(crate) fn parse(form: Encapsulation, frame: &[u8]) -> (Header, &[u8]) {
    let header: &[u8; HEADER_BYTES] = frame[form.header_offset()..].first_chunk().unwrap();
    (Header::read(header).unwrap(), &frame[form.room_offset()..])
}
