//! Acceptor tests: the votes that it casts, and that it retains them.

use quorate_offload::{
    Acceptor, PackedBallot, Port, Reason, Routes, Type, Verdict, acceptor::ArmParameters,
    header::REPEAT,
};

use crate::programs::desk::*;

const BALLOT: u64 = 0x0001_0000_0002_0003;

fn record(ballot: u64, floor: u64) -> ArmParameters {
    ArmParameters { ballot: PackedBallot(ballot), position: 2, floor, votes: routes(FIRST_ROUTE) }
}

fn new() -> Acceptor<'static> {
    let mut acceptor = Acceptor::new(setup(), routes(FIRST_ROUTE), cells(CELLS));
    acceptor.set_boot(BOOT).unwrap();
    acceptor
}

fn armed() -> Acceptor<'static> {
    let mut acceptor = new();
    acceptor.arm(number(1), record(BALLOT, 10)).unwrap();
    acceptor
}

/// Returns the reason why a proposal was refused.
fn refused(acceptor: &mut Acceptor<'_>, ballot: u64, slot: u64) -> Reason {
    let before = acceptor.vote(slot).map(|(cell, _)| *cell);
    let sent = send(acceptor, &phase2a(ballot, slot, 1), &room(1));
    assert_eq!(acceptor.vote(slot).map(|(cell, _)| *cell), before);
    let [sent] = <[Sent; 1]>::try_from(sent).unwrap();
    assert_eq!(sent.header.kind, Type::Refused);
    assert_eq!((sent.port, sent.to), (Port::Network, address(CLIENT)));
    let state = acceptor.state();
    assert_eq!((sent.header.ballot, sent.header.voted), (state.ballot, state.floor));
    assert_eq!((sent.header.slot, sent.header.value), (slot, value(1)));
    Reason::ALL[usize::from(sent.header.reason)]
}

#[test]
fn a_vote_is_stored_sent_and_tapped() {
    let mut acceptor = armed();
    let sent = send(&mut acceptor, &phase2a(BALLOT, 12, 1), &room(1));
    let [vote, tapped] = <[Sent; 2]>::try_from(sent).unwrap();
    assert_eq!((vote.port, vote.to), (Port::Network, address(FIRST_ROUTE)));
    assert_eq!((tapped.port, tapped.to), (Port::Owner, address(OWNER)));
    assert_eq!(vote.header, tapped.header);
    assert_eq!((vote.header.kind, vote.header.position), (Type::Phase2b, 2));
    assert_eq!((vote.header.slot, vote.header.voted), (12, BALLOT));
    assert_eq!((vote.header.value, vote.header.flags), (value(1), 0));
    assert_eq!((vote.header.boot, &vote.room[..]), (BOOT, &room(1)[..]));
    let (cell, bytes) = acceptor.vote(12).unwrap();
    assert!(cell.is_holding(PackedBallot(BALLOT), 12));
    assert_eq!((cell.value, bytes), (value(1), &room(1)[..]));
}

/// [offload-6] A second value for a slot in the same ballot does not overwrite the first, unlike in
/// a published switch program.
#[test]
fn a_slot_is_voted_for_once_in_a_ballot() {
    let mut acceptor = armed();
    send(&mut acceptor, &phase2a(BALLOT, 12, 1), &room(1));
    for again in [1, 2] {
        let sent = send(&mut acceptor, &phase2a(BALLOT, 12, again), &room(again));
        let [vote] = <[Sent; 1]>::try_from(sent).unwrap();
        assert_eq!((vote.header.kind, vote.header.flags), (Type::Phase2b, REPEAT));
        assert_eq!((vote.header.value, &vote.room[..]), (value(1), &room(1)[..]));
    }
}

#[test]
fn votes_are_of_exactly_the_armed_ballot() {
    assert_eq!(refused(&mut new(), BALLOT, 12), Reason::Disarmed);
    let mut acceptor = armed();
    for other in [BALLOT - 1, BALLOT + 1, 0] {
        assert_eq!(refused(&mut acceptor, other, 12), Reason::Ballot);
    }
}

/// [offload-6] [offload-14] Votes outside the window are refused, even if floor + N overflows.
#[test]
fn votes_are_within_the_window() {
    let mut acceptor = armed();
    assert_eq!(refused(&mut acceptor, BALLOT, 9), Reason::Floor);
    assert_eq!(refused(&mut acceptor, BALLOT, 10 + CELLS), Reason::Full);
    assert_eq!(refused(&mut acceptor, BALLOT, u64::MAX), Reason::Full);
    for slot in [10, 9 + CELLS] {
        assert_eq!(send(&mut acceptor, &phase2a(BALLOT, slot, 1), &room(1)).len(), 2);
    }
    acceptor.raise_floor(number(2), u64::MAX - 1).unwrap();
    assert_eq!(refused(&mut acceptor, BALLOT, 0), Reason::Floor);
    for slot in [u64::MAX - 1, u64::MAX] {
        assert_eq!(send(&mut acceptor, &phase2a(BALLOT, slot, 1), &room(1)).len(), 2);
    }
}

/// A cell is reused only when its slot is below the floor.
#[test]
fn a_vote_stays_until_the_floor_passes_it() {
    let mut acceptor = armed();
    send(&mut acceptor, &phase2a(BALLOT, 10, 1), &room(1));
    assert_eq!(refused(&mut acceptor, BALLOT, 10 + CELLS), Reason::Full);
    acceptor.raise_floor(number(2), 11).unwrap();
    let sent = send(&mut acceptor, &phase2a(BALLOT, 10 + CELLS, 2), &room(2));
    assert_eq!(sent[0].header.value, value(2));
    assert_eq!(acceptor.raise_floor(number(3), 10), Err(Reason::Floor));
    assert_eq!(refused(&mut acceptor, BALLOT, 10), Reason::Floor);
}

/// [offload-8] A fenced device casts no votes. All its votes can be read, and holes are recognized
/// as such.
#[test]
fn a_fenced_device_is_read_out() {
    let mut acceptor = armed();
    send(&mut acceptor, &phase2a(BALLOT, 10, 1), &room(1));
    send(&mut acceptor, &phase2a(BALLOT, 12, 2), &room(2));
    acceptor.fence(number(2)).unwrap();
    assert_eq!(refused(&mut acceptor, BALLOT, 13), Reason::Disarmed);
    let read = |slot| Header(Type::Read, slot);
    for (slot, expected) in [(10, Some(1)), (11, None), (12, Some(2)), (18, None)] {
        let sent = ask(&mut acceptor, &read(slot));
        assert_eq!((sent.header.kind, sent.to), (Type::Cell, address(OWNER)));
        assert_eq!(sent.header.ballot, PackedBallot::NONE);
        match expected {
            Some(number) => {
                assert_eq!((sent.header.voted, sent.header.value), (BALLOT, value(number)));
                assert_eq!(sent.room, room(number));
            }
            None => assert_eq!((sent.header.voted, sent.header.value.kind), (0, 0)),
        }
    }
}

#[allow(non_snake_case, reason = "reads as what it makes")]
fn Header(kind: Type, slot: u64) -> quorate_offload::Header {
    quorate_offload::Header { slot, ..plain(kind) }
}

/// [offload-7] Phase 1A only reads: afterwards, a vote in the armed ballot is still possible.
#[test]
fn phase_1a_promises_nothing() {
    let mut acceptor = armed();
    let mut question = Header(Type::Phase1a, 12);
    question.ballot = PackedBallot(BALLOT + 1);
    let sent = send(&mut acceptor, &question, &room(0));
    let [answer] = <[Sent; 1]>::try_from(sent).unwrap();
    assert_eq!((answer.header.kind, answer.header.voted), (Type::Phase1b, 0));
    assert_eq!(answer.to, address(FIRST_ROUTE));
    assert_eq!(send(&mut acceptor, &phase2a(BALLOT, 12, 1), &room(1)).len(), 2);
    // The second request shows that the first one changed nothing.
    for _ in 0..2 {
        let sent = send(&mut acceptor, &question, &room(0));
        assert_eq!((sent[0].header.voted, sent[0].header.value), (BALLOT, value(1)));
    }
    acceptor.fence(number(2)).unwrap();
    let sent = send(&mut acceptor, &question, &room(0));
    assert_eq!(sent[0].header.reason, Reason::Disarmed as u8);
}

/// [offload-17] A delayed *arm* is refused after its fence, and so is a call whose number a refused
/// call has used.
#[test]
fn late_control_is_refused() {
    let mut acceptor = armed();
    acceptor.fence(number(5)).unwrap();
    assert_eq!(acceptor.arm(number(4), record(BALLOT, 10)), Err(Reason::Order));
    assert_eq!(acceptor.arm(number(5), record(BALLOT, 10)), Err(Reason::Order));
    let low = record(BALLOT, 9);
    assert_eq!(acceptor.arm(number(7), low), Err(Reason::Floor));
    assert_eq!(acceptor.arm(number(7), record(BALLOT, 10)), Err(Reason::Order));
    let mut older = number(100);
    older.owner_boot = 0;
    assert_eq!(acceptor.fence(older), Err(Reason::Order));
    let mut newer = number(1);
    newer.owner_boot = 2;
    acceptor.arm(newer, record(BALLOT, 10)).unwrap();
}

/// [offload-9] A device that lost its memory refuses calls for its former boot.
#[test]
fn a_device_of_another_boot_does_not_arm() {
    let mut acceptor = armed();
    send(&mut acceptor, &phase2a(BALLOT, 12, 1), &room(1));
    acceptor.clear_state();
    assert_eq!(acceptor.arm(number(9), record(BALLOT, 10)), Err(Reason::Boot));
    let mut none = number(9);
    none.device_boot = 0;
    assert_eq!(acceptor.arm(none, record(BALLOT, 10)), Err(Reason::Boot));
    assert_eq!(acceptor.set_boot(0), Err(Reason::Boot));
    acceptor.set_boot(BOOT + 1).unwrap();
    assert_eq!(acceptor.set_boot(BOOT), Err(Reason::Boot));
    assert_eq!(acceptor.arm(number(9), record(BALLOT, 10)), Err(Reason::Boot));
    assert_eq!(refused(&mut acceptor, BALLOT, 12), Reason::Disarmed);
}

/// [offload-5] A ballot has one position. A different ballot requires a fence first, and a lower
/// one is refused.
#[test]
fn records_change_only_while_drained() {
    let mut acceptor = armed();
    acceptor.arm(number(2), record(BALLOT, 11)).unwrap();
    let moved = ArmParameters { position: 1, ..record(BALLOT, 11) };
    assert_eq!(acceptor.arm(number(3), moved), Err(Reason::Armed));
    assert_eq!(acceptor.arm(number(4), record(BALLOT + 1, 11)), Err(Reason::Armed));
    acceptor.fence(number(5)).unwrap();
    assert_eq!(acceptor.arm(number(6), record(BALLOT - 1, 11)), Err(Reason::Ballot));
    assert_eq!(acceptor.arm(number(7), record(0, 11)), Err(Reason::Range));
    acceptor.arm(number(8), record(BALLOT + 1, 11)).unwrap();
}

/// After a restart of the owner, a device that is armed again in the same ballot is bound by its
/// votes. In a higher ballot it is not.
#[test]
fn votes_outlive_a_fence_in_their_ballot() {
    let mut acceptor = armed();
    send(&mut acceptor, &phase2a(BALLOT, 12, 1), &room(1));
    acceptor.fence(number(2)).unwrap();
    acceptor.arm(number(3), record(BALLOT, 10)).unwrap();
    let sent = send(&mut acceptor, &phase2a(BALLOT, 12, 2), &room(2));
    assert_eq!((sent.len(), sent[0].header.value), (1, value(1)));
    acceptor.fence(number(4)).unwrap();
    acceptor.arm(number(5), record(BALLOT + 1, 10)).unwrap();
    let sent = send(&mut acceptor, &phase2a(BALLOT + 1, 12, 2), &room(2));
    assert_eq!((sent.len(), sent[0].header.value), (2, value(2)));
}

#[test]
fn votes_go_along_every_route() {
    let mut acceptor = new();
    let many: Vec<_> = (20..36).map(address).collect();
    assert!(Routes::of(&[many.clone(), vec![address(1)]].concat()).is_none());
    let votes = Routes::of(&many).unwrap();
    let arm = ArmParameters { votes, ..record(BALLOT, 0) };
    acceptor.arm(number(1), arm).unwrap();
    let sent = send(&mut acceptor, &phase2a(BALLOT, 0, 1), &room(1));
    let to: Vec<_> = sent.iter().map(|sent| sent.to).collect();
    assert_eq!(to, [many, vec![address(OWNER)]].concat());
}

/// Control calls in frames are accepted only on the owner's port.
#[test]
fn frames_of_control() {
    let mut acceptor = Acceptor::new(setup(), routes(FIRST_ROUTE), cells(CELLS));
    let boot = quorate_offload::Header { boot: BOOT, ..plain(Type::Boot) };
    let arm = quorate_offload::Header {
        position: 2,
        slot: 10,
        ballot: PackedBallot(BALLOT),
        ..call(Type::Arm, 1)
    };
    let refused = ask(&mut acceptor, &arm);
    assert_eq!(refused.header.reason, Reason::Boot as u8);
    // The response does not go to the source that the call claims.
    assert_eq!((refused.port, refused.to), (Port::Owner, address(OWNER)));
    assert_eq!(ask(&mut acceptor, &boot).header.kind, Type::Done);
    assert!(send(&mut acceptor, &arm, &room(0)).is_empty());
    assert_eq!(acceptor.counted(Reason::Port), 1);

    let done = ask(&mut acceptor, &arm);
    assert_eq!((done.header.kind, done.header.position), (Type::Done, 2));
    assert_eq!((done.header.slot, done.header.ballot.0), (10, BALLOT));
    assert_eq!((done.header.value.counter, done.header.value.crc), (1, 8));
    assert_eq!((done.header.value.length, done.header.boot), (32, BOOT));
    assert_eq!((done.port, done.to), (Port::Owner, address(OWNER)));

    send(&mut acceptor, &phase2a(BALLOT, 10, 1), &room(1));
    let floor = quorate_offload::Header { slot: 12, ..call(Type::Floor, 2) };
    assert_eq!(ask(&mut acceptor, &floor).header.slot, 12);
    assert_eq!(ask(&mut acceptor, &floor).header.reason, Reason::Order as u8);
    let fence = ask(&mut acceptor, &call(Type::Fence, 3));
    assert_eq!((fence.header.ballot.0, fence.header.slot), (0, 12));

    let mut counter = plain(Type::Ask);
    counter.value.origin = Reason::Port as u32;
    assert_eq!(ask(&mut acceptor, &counter).header.value.counter, 1);
    counter.value.origin = 32;
    assert_eq!(ask(&mut acceptor, &counter).header.value.counter, 0);
}

#[test]
fn frames_for_others_pass() {
    let mut acceptor = armed();
    for (number, kind) in [
        Type::Submit,
        Type::Phase1b,
        Type::Phase2b,
        Type::Decided,
        Type::Refused,
        Type::Tick,
        Type::Cell,
        Type::Done,
    ]
    .into_iter()
    .enumerate()
    {
        let bytes = frame(quorate_offload::Encapsulation::Raw, &plain(kind), &room(0));
        assert_eq!(step(&mut acceptor, Port::Network, &bytes), (Verdict::PassOn, vec![]));
        assert_eq!(acceptor.counted(Reason::Other), number as u64 + 1);
    }
    let theirs =
        frame(quorate_offload::Encapsulation::Udp, &of_coordinator(call(Type::Fence, 9)), &room(0));
    assert_eq!(step(&mut acceptor, Port::Owner, &theirs).0, Verdict::PassOn);
}
