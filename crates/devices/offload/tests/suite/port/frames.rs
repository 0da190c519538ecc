//! Test fixture: frames and addresses of the simulated group.

use quorate_offload::{Address, Cell, Cells, Encapsulation, Header, Setup, header::HEADER_BYTES};

pub(crate) const CELLS: u32 = 8;
pub(crate) const ROOM: usize = 32;
pub(crate) const GROUP: u32 = 0x0a0b_0c0d;
pub(crate) const OWNER: u8 = 2;
pub(crate) const OWN: u8 = 1;
/// Members at positions 0 to 2. The first is the device's own.
pub(crate) const MEMBERS: u8 = 3;
pub(crate) const QUORUM: u8 = 2;

pub(crate) fn address(last: u8) -> Address {
    Address { mac: [2, 0, 0, 0, 0, last], ip: [10, 0, 0, last], port: 47_100 }
}

/// Returns the station of the acceptor at a position.
pub(crate) fn station(position: u8) -> u8 {
    if position == 0 { OWN } else { 10 + position }
}

pub(crate) fn setup(last: u8) -> Setup {
    Setup {
        group: GROUP,
        room: ROOM,
        own_address: address(last),
        heard_group: [3, 0, 0, 0, 0, 0x55],
        owner: address(OWNER),
    }
}

pub(crate) fn cells() -> Cells<'static> {
    let count = usize::try_from(CELLS).unwrap();
    Cells::new(
        Box::leak(vec![Cell::EMPTY; count].into()),
        Box::leak(vec![0; count * ROOM].into()),
        ROOM,
    )
}

pub(crate) fn read(frame: &[u8]) -> Header {
    let header: &[u8; HEADER_BYTES] =
        frame[Encapsulation::Udp.header_offset()..].first_chunk().unwrap();
    Header::read(header).unwrap()
}

/// Encodes a frame from the device to its owner.
pub(crate) fn write(header: &Header, room: &[u8]) -> Vec<u8> {
    let mut buffer = vec![0; 200];
    let frame =
        Encapsulation::Udp.write_frame(&mut buffer, &address(OWN), &address(OWNER), header, room);
    frame.unwrap().to_vec()
}
