//! Hostile frames and responses for a frame client: the corpus of the fuzz target `frames-client`
//! and mutations of it.

mod events;

use quorate_core::{
    ballot::{Ballot, Era},
    node_id::NodeId,
};
use quorate_frame_client::machine::Machine;
use quorate_offload::{
    Address, Descriptor, Encapsulation, Header, PackedBallot, Reason, Type,
    checksum::ones_complement_sum, header::COORDINATOR, link::multicast_addresses,
};
use quorate_wire::{
    checksum,
    frame_clients::{DevicePlace, NodePosition, encode_batch},
};

use crate::driver::{self, Seed};
use events::{CLIENT, CONNECTED, DISCONNECTED, FRAME, NAME, STAND, SUBMIT, TIME, check};

const GROUP: u32 = 0x0102_0304;
const ROOM: usize = 64;
const LEADER: [u8; 6] = [2, 0, 0, 0, 1, 1];
/// Slot in which the client was registered, and the first slot that its node has not applied.
const SESSION: u64 = 4;
const FIRST: u64 = 10;

fn stand(applied_to: u64, next: u64) -> NodePosition {
    NodePosition {
        cluster: 7,
        is_leader: true,
        device_place: Some(DevicePlace { group: GROUP, room: ROOM as u16, station_mac: LEADER }),
        era: 1,
        applied_to,
        session_slot: SESSION,
        next,
    }
}

fn frame(to: [u8; 6], header: &Header, room: &[u8]) -> Vec<u8> {
    let [from, to] = [LEADER, to].map(|mac| Address { mac, ..Address::default() });
    let mut buffer = vec![0; Encapsulation::Raw.room_offset() + ROOM];
    let made = Encapsulation::Raw.write_frame(&mut buffer, &from, &to, header, room);
    let mut event = vec![FRAME];
    let made = made.expect("it fits");
    event.extend_from_slice(&(made.len() as u16).to_le_bytes());
    event.extend_from_slice(made);
    event
}

/// Returns the descriptor and value area of the client's batch `number`, as a [`SUBMIT`] event of
/// length 1 produces it.
fn value(number: u64) -> (Descriptor, Vec<u8>) {
    let mut room = encode_batch(SESSION, number, [&[1][..], b"second"].into_iter());
    let descriptor = Descriptor {
        kind: 2,
        origin: NAME.origin,
        origin_boot: NAME.boot,
        counter: number,
        length: room.len() as u16,
        crc: checksum(&room),
    };
    room.resize(ROOM, 0);
    (descriptor, room)
}

fn decided(slot: u64, (value, room): &(Descriptor, Vec<u8>)) -> Vec<u8> {
    let ballot = Ballot { era: Era(1), round: 1, node: NodeId(1) };
    let ballot = PackedBallot::pack(ballot).expect("a small one");
    let header = Header {
        kind: Type::Decided,
        slot,
        ballot,
        voted: ballot.0,
        flags: COORDINATOR,
        ..Header::new_submit(GROUP, *value, ones_complement_sum(0, room))
    };
    frame(multicast_addresses(GROUP)[1].mac, &header, room)
}

fn refused(number: u64, reason: Reason) -> Vec<u8> {
    let (value, room) = value(number);
    let header = Header {
        kind: Type::Refused,
        reason: reason as u8,
        flags: COORDINATOR,
        ..Header::new_submit(GROUP, value, ones_complement_sum(0, &room))
    };
    frame(CLIENT, &header, &room)
}

fn other() -> (Descriptor, Vec<u8>) {
    let (mut value, room) = value(1);
    value.origin = 2;
    (value, room)
}

fn submits(count: usize) -> Vec<u8> {
    [SUBMIT, 1].repeat(count)
}

fn time(us: u16) -> Vec<u8> {
    [&[TIME][..], &us.to_le_bytes()].concat()
}

fn says(stand: &NodePosition) -> Vec<u8> {
    [&[STAND][..], &stand.bytes()].concat()
}

fn seeds() -> Vec<Seed> {
    let all: [(&str, Vec<Vec<u8>>); 7] = [
        (
            "by-frames",
            vec![
                submits(3),
                decided(FIRST, &value(1)),
                decided(FIRST + 1, &other()),
                decided(FIRST + 2, &value(2)),
                decided(FIRST + 3, &value(3)),
            ],
        ),
        (
            "behind-a-gap",
            vec![
                submits(2),
                decided(FIRST + 1, &value(1)),
                time(600),
                says(&stand(FIRST + 1, 1)),
                decided(FIRST + 2, &value(2)),
            ],
        ),
        (
            "refused",
            vec![
                submits(3),
                refused(2, Reason::Full),
                time(200),
                refused(1, Reason::Disarmed),
                says(&stand(FIRST + 3, 4)),
            ],
        ),
        (
            "by-the-connection",
            vec![
                submits(2),
                time(7_000),
                time(60_000),
                vec![DISCONNECTED],
                time(2_000),
                vec![CONNECTED],
                says(&NodePosition { device_place: None, ..stand(FIRST + 2, 3) }),
            ],
        ),
        (
            "gone",
            vec![
                submits(2),
                says(&NodePosition { session_slot: 0, next: 0, ..stand(FIRST + 5, 0) }),
                submits(1),
            ],
        ),
        (
            "end-of-numbers",
            vec![
                submits(2),
                says(&stand(u64::MAX, 1)),
                decided(u64::MAX, &value(1)),
                decided(FIRST, &value(1)),
            ],
        ),
        (
            "two-values",
            vec![
                submits(2),
                decided(FIRST + 1, &value(2)),
                decided(FIRST + 1, &other()),
                time(30_000),
                says(&stand(FIRST + 2, 3)),
            ],
        ),
    ];
    let seed = |(name, events): (&str, Vec<Vec<u8>>)| Seed {
        name: name.to_owned(),
        bytes: [vec![8], stand(FIRST, 1).bytes().to_vec(), events.concat()].concat(),
    };
    all.into_iter().map(seed).collect()
}

#[test]
fn no_bytes_for_a_client_of_devices_break_the_rules() {
    driver::run("frames-client", &seeds(), 40_000, check);
}

/// The seeds are accepted: mutations of frames that are dropped at once would test nothing.
#[test]
fn the_seeds_are_heard() {
    let mut machine = Machine::new(NAME, CLIENT, &stand(FIRST, 1), 8);
    for tag in 0..2 {
        let commands = [&[1][..], b"second"];
        machine.submit(tag, commands.into_iter()).unwrap();
    }
    while machine.next_act(0).is_some() {}
    machine.on_frame(0, &decided(FIRST, &value(1))[3..]);
    assert_eq!((machine.open(), machine.counters().learned_by_frames), (1, 1));
    machine.on_frame(0, &refused(2, Reason::Full)[3..]);
    assert_eq!(
        (machine.counters().full_window_refusals, machine.counters().ignored_frames),
        (1, 0)
    );
}
