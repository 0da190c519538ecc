//! Learner tests: it counts votes by ballot, descriptor and position, and passes on each decision
//! once.

use quorate_offload::{
    Header, Learner, PackedBallot, Port, Reason, Type, header::HINT, learner::CountParameters,
};

use crate::programs::desk::*;

const BALLOT: u64 = 0x0001_0000_0002_0003;

fn record(hint: bool) -> CountParameters {
    CountParameters { ballot: PackedBallot(BALLOT), floor: 10, quorum: 2, members: 3, hint }
}

fn learner(hint: bool) -> Learner<'static> {
    let mut learner = Learner::new(setup(), cells(CELLS));
    learner.set_boot(BOOT).unwrap();
    learner.start_counting(number(1), record(hint)).unwrap();
    learner
}

fn hear(learner: &mut Learner<'_>, header: &Header) -> Option<Header> {
    let sent = send(learner, header, &room(header.value.counter));
    let [sent] = <[Sent; 1]>::try_from(sent).ok()?;
    assert_eq!((sent.port, sent.to), (Port::Owner, address(OWNER)));
    assert_eq!(sent.room, room(header.value.counter));
    Some(sent.header)
}

fn decided(slot: u64, number: u64) -> Header {
    Header { kind: Type::Decided, ..phase2b(BALLOT, slot, number, 0) }
}

#[test]
fn a_quorum_is_handed_on_once() {
    let mut learner = learner(false);
    assert_eq!(hear(&mut learner, &phase2b(BALLOT, 12, 1, 0)), None);
    assert_eq!(hear(&mut learner, &phase2b(BALLOT, 12, 1, 0)), None);
    let handed = hear(&mut learner, &phase2b(BALLOT, 12, 1, 1)).unwrap();
    assert_eq!((handed.kind, handed.slot, handed.flags), (Type::Decided, 12, 0));
    assert_eq!(hear(&mut learner, &phase2b(BALLOT, 12, 1, 2)), None);
    assert_eq!(hear(&mut learner, &decided(12, 1)), None);
    assert_eq!(learner.stored_slot(12).unwrap().0.value, value(1));
}

/// Two values for one slot in two ballots get one vote each, so neither is decided.
#[test]
fn votes_of_two_ballots_are_not_added() {
    let mut learner = learner(false);
    assert_eq!(hear(&mut learner, &phase2b(BALLOT, 12, 1, 0)), None);
    assert_eq!(hear(&mut learner, &phase2b(BALLOT + 1, 12, 1, 1)), None);
    assert_eq!(hear(&mut learner, &phase2b(BALLOT - 1, 12, 1, 1)), None);
    assert_eq!(hear(&mut learner, &phase2b(BALLOT, 12, 1, 3)), None);
    assert_eq!(hear(&mut learner, &phase2b(BALLOT, 9, 1, 1)), None);
    assert_eq!(hear(&mut learner, &phase2b(BALLOT, 10 + CELLS, 1, 1)), None);
    assert_eq!(hear(&mut learner, &phase2b(BALLOT, 12, 2, 1)), None);
    assert_eq!(learner.counted(Reason::Conflict), 1);
    assert!(hear(&mut learner, &phase2b(BALLOT, 12, 1, 2)).is_some());
}

/// [offload-10] [offload-11] Volatile votes decide nothing if durable votes are required.
#[test]
fn decisions_of_others_count_only_where_a_count_decides() {
    let mut volatile = learner(false);
    assert!(hear(&mut volatile, &decided(12, 1)).is_some());
    assert_eq!(hear(&mut volatile, &decided(12, 1)), None);
    assert_eq!(hear(&mut volatile, &decided(12, 2)), None);
    assert_eq!(volatile.counted(Reason::Conflict), 1);
    let hint = Header { flags: HINT, ..decided(13, 1) };
    assert_eq!(hear(&mut volatile, &hint), None);

    let mut durable = learner(true);
    assert_eq!(hear(&mut durable, &decided(12, 1)), None);
    assert_eq!(durable.counted(Reason::Hint), 1);
    assert_eq!(hear(&mut durable, &phase2b(BALLOT, 12, 1, 0)), None);
    assert_eq!(hear(&mut durable, &phase2b(BALLOT, 12, 1, 1)).unwrap().flags, HINT);
}

#[test]
fn bytes_that_are_not_the_values_are_not_handed_on() {
    let mut learner = learner(false);
    let vote = phase2b(BALLOT, 12, 1, 0);
    assert!(send(&mut learner, &vote, &room(2)).is_empty());
    assert_eq!(learner.counted(Reason::Checksum), 1);
    assert!(learner.stored_slot(12).is_none());
}

/// A vote counts even if its bytes are wrong, but only the right bytes are passed on.
#[test]
fn bytes_of_a_later_vote_are_not_taken_for_the_values() {
    let mut learner = learner(false);
    assert_eq!(hear(&mut learner, &phase2b(BALLOT, 12, 1, 0)), None);
    let [handed] =
        <[Sent; 1]>::try_from(send(&mut learner, &phase2b(BALLOT, 12, 1, 1), &room(2))).unwrap();
    assert_eq!((handed.header.slot, &handed.room[..]), (12, &room(1)[..]));
    assert_eq!(learner.stored_slot(12).unwrap().1, room(1));
}

/// [offload-8] After a stop, votes that the tap still delivers are not passed on, because they are
/// below a promise.
#[test]
fn nothing_is_handed_on_after_a_stop() {
    let mut learner = learner(false);
    assert_eq!(hear(&mut learner, &phase2b(BALLOT, 12, 1, 0)), None);
    learner.stop(number(2)).unwrap();
    assert_eq!(hear(&mut learner, &phase2b(BALLOT, 12, 1, 1)), None);
    assert_eq!(hear(&mut learner, &decided(12, 1)), None);
    assert_eq!(learner.counted(Reason::Disarmed), 2);
    assert_eq!(learner.start_counting(number(2), record(false)), Err(Reason::Order));
}

#[test]
fn cells_are_used_again_below_the_floor() {
    let mut learner = learner(false);
    assert!(hear(&mut learner, &decided(10, 1)).is_some());
    assert_eq!(hear(&mut learner, &decided(10 + CELLS, 2)), None);
    learner.raise_floor(number(2), 11).unwrap();
    assert!(hear(&mut learner, &decided(10 + CELLS, 2)).is_some());
    assert_eq!(hear(&mut learner, &decided(10, 1)), None);
    assert_eq!(learner.raise_floor(number(3), 10), Err(Reason::Floor));
}
