//! Coordinator tests: it assigns slots once, counts votes once, and can withdraw proposals.

use quorate_offload::{
    Coordinator, Header, PackedBallot, Port, Reason, Type,
    coordinator::StartParameters,
    header::{COORDINATOR, HINT, REPEAT},
};

use crate::programs::desk::*;

const BALLOT: u64 = 0x0001_0000_0002_0003;

fn record(ballot: u64, first: u64) -> StartParameters {
    StartParameters {
        ballot: PackedBallot(ballot),
        first,
        limit: u64::MAX,
        quorum: 2,
        members: 3,
        hint: false,
        proposals: routes(FIRST_ROUTE),
        decisions: routes(SECOND_ROUTE),
    }
}

fn new() -> Coordinator<'static> {
    let (proposals, decisions) = (routes(FIRST_ROUTE), routes(SECOND_ROUTE));
    let mut coordinator = Coordinator::new(setup(), proposals, decisions, cells(CELLS));
    coordinator.set_boot(BOOT).unwrap();
    coordinator
}

fn started() -> Coordinator<'static> {
    let mut coordinator = new();
    coordinator.start(number(1), record(BALLOT, 10)).unwrap();
    coordinator
}

/// Submits a value. Returns its slot, or the reason why it was refused.
fn propose(coordinator: &mut Coordinator<'_>, number: u64) -> Result<u64, Reason> {
    let sent = send(coordinator, &submit(number), &room(number));
    let [sent] = <[Sent; 1]>::try_from(sent).unwrap();
    if sent.header.kind == Type::Refused {
        assert_eq!(sent.to, address(CLIENT));
        return Err(Reason::ALL[usize::from(sent.header.reason)]);
    }
    assert_eq!((sent.header.kind, sent.header.voted), (Type::Phase2a, 0));
    assert_eq!((sent.port, sent.to), (Port::Network, address(FIRST_ROUTE)));
    assert_eq!((sent.header.value, &sent.room[..]), (value(number), &room(number)[..]));
    Ok(sent.header.slot)
}

/// Sends a vote. Returns the decision if this vote completed it.
fn vote(coordinator: &mut Coordinator<'_>, vote: &Header) -> Option<Header> {
    let sent = send(coordinator, vote, &room(vote.value.counter));
    let [decision, tapped] = <[Sent; 2]>::try_from(sent).ok()?;
    assert_eq!((decision.port, decision.to), (Port::Network, address(SECOND_ROUTE)));
    assert_eq!((tapped.port, tapped.to), (Port::Owner, address(OWNER)));
    assert_eq!(decision.header, tapped.header);
    assert_eq!(decision.room, room(decision.header.value.counter));
    Some(decision.header)
}

#[test]
fn slots_are_given_out_in_order_and_once() {
    let mut coordinator = started();
    for slot in 10..10 + CELLS {
        assert_eq!(coordinator.next(), slot);
        assert_eq!(propose(&mut coordinator, 1), Ok(slot));
        // The next slot is not `first`, because a read that arrives now has to wait for this slot
        // as well ([offload-18]).
        assert_eq!(coordinator.next(), slot + 1);
    }
    // [offload-14] The ring is full, so the value is refused. Nothing is lost.
    assert_eq!(propose(&mut coordinator, 2), Err(Reason::Full));
    assert_eq!(coordinator.next(), 10 + CELLS);
    assert_eq!(coordinator.stored_proposal(10).unwrap().0.value, value(1));
    coordinator.raise_floor(number(2), 11, u64::MAX).unwrap();
    assert_eq!(propose(&mut coordinator, 3), Ok(10 + CELLS));
}

#[test]
fn the_limit_is_kept() {
    let mut coordinator = new();
    let limited = StartParameters { limit: 11, ..record(BALLOT, 10) };
    coordinator.start(number(1), limited).unwrap();
    assert_eq!(propose(&mut coordinator, 1), Ok(10));
    assert_eq!(propose(&mut coordinator, 1), Err(Reason::Full));
    assert_eq!(coordinator.raise_floor(number(2), 10, 10), Err(Reason::Floor));
    coordinator.raise_floor(number(3), 10, 12).unwrap();
    assert_eq!(propose(&mut coordinator, 1), Ok(11));
    // A slot that was not assigned cannot be decided.
    assert_eq!(coordinator.raise_floor(number(4), 13, 99), Err(Reason::Floor));
    coordinator.raise_floor(number(5), 12, 12).unwrap();
    assert_eq!(coordinator.raise_floor(number(6), 11, 12), Err(Reason::Floor));
}

#[test]
fn a_quorum_decides_once() {
    let mut coordinator = started();
    let slot = propose(&mut coordinator, 1).unwrap();
    assert_eq!(vote(&mut coordinator, &phase2b(BALLOT, slot, 1, 0)), None);
    // Another vote from the same position does not count.
    assert_eq!(vote(&mut coordinator, &phase2b(BALLOT, slot, 1, 0)), None);
    let decision = vote(&mut coordinator, &phase2b(BALLOT, slot, 1, 2)).unwrap();
    assert_eq!((decision.kind, decision.slot), (Type::Decided, slot));
    assert_eq!((decision.flags, decision.voted), (COORDINATOR, BALLOT));
    assert_eq!(vote(&mut coordinator, &phase2b(BALLOT, slot, 1, 1)), None);
    assert_eq!(coordinator.counted(Reason::Stale), 1);
}

/// [offload-10] A vote counts only if it is for exactly this ballot, slot and value, and from a
/// position of the configuration.
#[test]
fn votes_for_something_else_are_not_counted() {
    let mut coordinator = started();
    let slot = propose(&mut coordinator, 1).unwrap();
    assert_eq!(vote(&mut coordinator, &phase2b(BALLOT, slot, 1, 0)), None);
    for (other, reason) in [
        (phase2b(BALLOT - 1, slot, 1, 1), Reason::Stale),
        (phase2b(BALLOT + 1, slot, 1, 1), Reason::Stale),
        (phase2b(BALLOT, slot + CELLS, 1, 1), Reason::Stale),
        (phase2b(BALLOT, slot + 1, 1, 1), Reason::Stale),
        (phase2b(BALLOT, slot.wrapping_sub(CELLS), 1, 1), Reason::Stale),
        (phase2b(BALLOT, slot, 1, 3), Reason::Stale),
        (phase2b(BALLOT, slot, 2, 1), Reason::Conflict),
    ] {
        let before = coordinator.counted(reason);
        assert_eq!(vote(&mut coordinator, &other), None, "{other:?}");
        assert_eq!(coordinator.counted(reason), before + 1, "{other:?}");
    }
    assert!(vote(&mut coordinator, &phase2b(BALLOT, slot, 1, 1)).is_some());
}

#[test]
fn in_a_durable_group_a_decision_is_a_hint() {
    let mut coordinator = new();
    let hinting = StartParameters { hint: true, quorum: 1, ..record(BALLOT, 10) };
    coordinator.start(number(1), hinting).unwrap();
    propose(&mut coordinator, 1).unwrap();
    let decision = vote(&mut coordinator, &phase2b(BALLOT, 10, 1, 0)).unwrap();
    assert_eq!(decision.flags, COORDINATOR | HINT);
}

/// [offload-12] A stopped coordinator assigns and counts nothing, but can be read completely. The
/// value of a hole never left the device.
#[test]
fn what_was_proposed_is_taken_back() {
    let mut coordinator = started();
    propose(&mut coordinator, 1).unwrap();
    propose(&mut coordinator, 2).unwrap();
    coordinator.stop(number(2)).unwrap();
    assert_eq!(propose(&mut coordinator, 3), Err(Reason::Disarmed));
    assert_eq!(coordinator.next(), 12);
    for position in 0..3 {
        assert_eq!(vote(&mut coordinator, &phase2b(BALLOT, 10, 1, position)), None);
    }
    for (slot, expected) in [(10, value(1)), (11, value(2)), (12, Default::default())] {
        let read = Header { slot, ..of_coordinator(plain(Type::Read)) };
        let sent = ask(&mut coordinator, &read);
        assert_eq!((sent.header.kind, sent.header.value), (Type::Cell, expected));
        let voted = if slot < 12 { BALLOT } else { 0 };
        assert_eq!(sent.header.voted, voted);
    }
    let state = ask(&mut coordinator, &of_coordinator(plain(Type::Ask)));
    assert_eq!((state.header.voted, state.header.ballot.0), (12, 0));
}

/// [offload-12] A coordinator that is withdrawn and started again in its ballot never assigns the
/// same slot twice.
#[test]
fn a_start_never_goes_back() {
    let mut coordinator = started();
    propose(&mut coordinator, 1).unwrap();
    assert_eq!(coordinator.start(number(2), record(BALLOT, 11)), Err(Reason::Armed));
    coordinator.stop(number(3)).unwrap();
    assert_eq!(coordinator.start(number(4), record(BALLOT, 10)), Err(Reason::Floor));
    assert_eq!(coordinator.start(number(5), record(BALLOT - 1, 11)), Err(Reason::Ballot));
    for bad in [(0, 3), (4, 3), (1, 17)] {
        let (quorum, members) = bad;
        let start = StartParameters { quorum, members, ..record(BALLOT, 11) };
        let counter = 6 + u64::from(quorum + members);
        assert_eq!(coordinator.start(number(counter), start), Err(Reason::Range));
    }
    coordinator.start(number(50), record(BALLOT, 11)).unwrap();
    // A vote for a slot assigned by the previous start does not count here.
    assert_eq!(vote(&mut coordinator, &phase2b(BALLOT, 10, 1, 0)), None);
    assert_eq!(vote(&mut coordinator, &phase2b(BALLOT, 10, 1, 1)), None);
    assert_eq!(propose(&mut coordinator, 2), Ok(11));
}

/// A higher ballot may begin lower: cells of an older ballot do not count as votes.
#[test]
fn cells_of_an_older_ballot_count_for_nothing() {
    let mut coordinator = started();
    for number in 0..CELLS {
        propose(&mut coordinator, number).unwrap();
    }
    coordinator.stop(number(2)).unwrap();
    coordinator.start(number(3), record(BALLOT + 1, 10)).unwrap();
    assert_eq!(propose(&mut coordinator, 9), Ok(10));
    assert_eq!(vote(&mut coordinator, &phase2b(BALLOT, 11, 1, 0)), None);
    assert_eq!(vote(&mut coordinator, &phase2b(BALLOT + 1, 11, 1, 0)), None);
    assert_eq!(coordinator.counted(Reason::Stale), 2);
    let tick = Header { slot: 11, ..plain(Type::Tick) };
    assert!(
        step(
            &mut coordinator,
            Port::Owner,
            &frame(quorate_offload::Encapsulation::Udp, &tick, &room(0))
        )
        .1
        .is_empty()
    );
}

/// [offload-19] The owner names a slot, and the coordinator proposes it again unchanged.
#[test]
fn a_tick_proposes_again() {
    let mut coordinator = started();
    propose(&mut coordinator, 1).unwrap();
    let tick = |slot| Header { slot, ..plain(Type::Tick) };
    let sent = ask(&mut coordinator, &tick(10));
    assert_eq!((sent.port, sent.to), (Port::Network, address(FIRST_ROUTE)));
    assert_eq!((sent.header.kind, sent.header.voted), (Type::Phase2a, 0));
    assert_eq!(sent.header.flags, COORDINATOR | REPEAT);
    assert_eq!((sent.header.value, &sent.room[..]), (value(1), &room(1)[..]));
    let bytes = |slot| frame(quorate_offload::Encapsulation::Udp, &tick(slot), &room(0));
    for slot in [9, 11, 10 + CELLS] {
        assert!(step(&mut coordinator, Port::Owner, &bytes(slot)).1.is_empty());
    }
    assert!(step(&mut coordinator, Port::Network, &bytes(10)).1.is_empty());
    assert_eq!(coordinator.counted(Reason::Port), 1);
    coordinator.stop(number(2)).unwrap();
    assert_eq!(ask(&mut coordinator, &tick(10)).header.reason, Reason::Disarmed as u8);
}

/// [offload-9] [offload-17] Like an acceptor, a coordinator that lost its memory does not continue.
#[test]
fn a_coordinator_that_forgot_does_not_go_on() {
    let mut coordinator = started();
    propose(&mut coordinator, 1).unwrap();
    coordinator.clear_state();
    assert_eq!(propose(&mut coordinator, 2), Err(Reason::Disarmed));
    assert_eq!(coordinator.start(number(2), record(BALLOT, 11)), Err(Reason::Boot));
    coordinator.set_boot(BOOT).unwrap();
    coordinator.start(number(3), record(BALLOT, 11)).unwrap();
    coordinator.stop(number(4)).unwrap();
    assert_eq!(coordinator.start(number(3), record(BALLOT, 11)), Err(Reason::Order));
}

#[test]
fn frames_of_control() {
    let mut coordinator = new();
    let mut start = of_coordinator(call(Type::Arm, 1));
    start.flags |= HINT;
    (start.slot, start.voted, start.ballot.0) = (10, 12, BALLOT);
    (start.value.kind, start.value.origin) = (2, 3);
    let done = ask(&mut coordinator, &start);
    assert_eq!((done.header.kind, done.header.ballot.0), (Type::Done, BALLOT));
    assert_eq!((done.header.slot, done.header.voted), (10, 10));
    assert_eq!(done.header.flags, COORDINATOR | HINT);
    assert_eq!(propose(&mut coordinator, 1), Ok(10));
    let mut floor = of_coordinator(call(Type::Floor, 2));
    (floor.slot, floor.voted) = (11, 20);
    assert_eq!(ask(&mut coordinator, &floor).header.slot, 11);
    let stopped = ask(&mut coordinator, &of_coordinator(call(Type::Fence, 3)));
    assert_eq!((stopped.header.ballot.0, stopped.header.voted), (0, 11));
    // A number of members that exceeds a narrower field is not truncated to a valid number.
    (start.value.counter, start.value.origin) = (4, 256 + 3);
    (start.slot, start.voted) = (11, 12);
    assert_eq!(ask(&mut coordinator, &start).header.reason, Reason::Range as u8);
}
