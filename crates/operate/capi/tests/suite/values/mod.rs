//! Handles as programs use them, tested from Rust: restarts, slow readers, limits and strangers.

mod attached;
mod strangers;

use std::{
    path::Path,
    sync::{Arc, mpsc::channel},
    time::{Duration, Instant},
};

use quorate::Builder;
use quorate_capi::{
    error::{Code, Failed},
    handle::{Event, Handle},
    options::Options,
    source::{Cursor, ReadResult},
    values::{machine::ValuesMachine, shared::SharedValues},
};

/// Generous time limit for any step.
const PATIENCE: Duration = Duration::from_secs(60);

fn options(folder: &Path, more: &[(&str, &str)]) -> Options {
    let mut options = Options::default();
    options.set("data", folder.to_str().expect("a name")).expect("an option");
    for (name, value) in more {
        options.set(name, value).expect("an option");
    }
    options
}

fn start(folder: &Path, more: &[(&str, &str)]) -> Handle {
    Handle::start(options(folder, more)).expect("starts")
}

fn submit(handle: &Handle, value: &[u8]) -> Result<u64, Failed> {
    handle.submit_and_wait(value, PATIENCE)
}

/// Returns the next value, or the error if there is none.
fn next(handle: &Handle) -> Result<(u64, Arc<[u8]>), Failed> {
    let turn = handle.begin_turn().expect("no other turn");
    let until = Instant::now() + PATIENCE;
    loop {
        turn.clear_readable();
        match turn.next_event(true) {
            Event::Completed(done, outcome) => done(outcome),
            Event::Value { slot, value, delivery_epoch: epoch } => {
                turn.mark_delivered(slot, epoch);
                return Ok((slot, value));
            }
            Event::DeliveryFailed(failed) => return Err(failed),
            Event::Nothing => {
                assert!(turn.wait_for_event(Some(until)).expect("open"), "nothing comes")
            }
        }
    }
}

/// Returns whether no value is available now. Fails if the descriptor does not become readable
/// again for pending completions.
fn is_quiet(handle: &Handle) -> bool {
    let turn = handle.begin_turn().expect("no other turn");
    turn.clear_readable();
    loop {
        match turn.next_event(true) {
            Event::Completed(done, outcome) => done(outcome),
            other => return matches!(other, Event::Nothing),
        }
    }
}

#[test]
fn after_a_restart_nothing_is_shown_that_was_trimmed() {
    let folder = tempfile::tempdir().expect("a folder");
    let node = start(folder.path(), &[]);
    for value in 0..200_u8 {
        assert_eq!(submit(&node, &[value]), Ok(u64::from(value) + 1));
    }
    assert_eq!(node.trim_and_wait(150, PATIENCE), Ok(150));
    node.close().expect("ends well");
    for _ in 0..5 {
        let node = start(folder.path(), &[]);
        node.deliver_from(Cursor::Oldest).expect("held");
        for value in 149..200_u8 {
            let (slot, bytes) = next(&node).expect("held");
            assert_eq!((slot, &*bytes), (u64::from(value) + 1, &[value][..]));
        }
        assert!(is_quiet(&node));
        let failed = node.deliver_from(Cursor::At(149)).expect_err("forgotten");
        assert_eq!(failed.code, Code::Trimmed);
        assert!(failed.detail.contains("slot 149") && failed.detail.contains("150"));
        node.deliver_from(Cursor::At(150)).expect("held");
        assert_eq!(next(&node).expect("held").0, 150);
        node.close().expect("ends well");
    }
}

/// A snapshot contains the retained values, and a node can start from it.
#[test]
fn a_node_starts_with_a_snapshot_of_its_values() {
    let folder = tempfile::tempdir().expect("a folder");
    let begin = || {
        let shared = Arc::new(SharedValues::default());
        let values = ValuesMachine::new(Arc::clone(&shared));
        let node = Builder::new(folder.path()).start(move || values).expect("starts");
        let status = node.status().expect("answers");
        shared.set_readable_after(status.decided_to.0);
        (node, shared)
    };
    let append = |value: &[u8]| {
        let command = quorate_capi::values::command::Command::Append {
            retained_bytes_max: 1 << 20,
            when_full: Default::default(),
            value,
        };
        command.encode()
    };
    let (node, _) = begin();
    // Values are appended in the format of earlier versions and in the current one.
    node.execute(append(b"one")).expect("executed");
    let mut values = Vec::new();
    for value in [&b""[..], b"three"] {
        quorate_capi::values::command::Values::push(value, &mut values);
    }
    let bundle = quorate_capi::values::command::Command::Bundle {
        retained_bytes_max: 1 << 20,
        when_full: Default::default(),
        values: quorate_capi::values::command::Values::parse(&values, 5).expect("values"),
    };
    node.execute(bundle.encode()).expect("executed");
    node.execute(quorate_capi::values::command::Command::Trim { below: 2 }.encode())
        .expect("executed");
    let taken = node.handle().snapshot(None).expect("taken");
    assert!(taken.bytes > 0, "{taken:?}");
    node.execute(append(b"four")).expect("executed");
    node.stop().expect("ends well");
    let (node, shared) = begin();
    let until = Instant::now() + PATIENCE;
    while !shared.is_replayed() {
        assert!(Instant::now() < until, "it does not come back");
        std::thread::yield_now();
    }
    assert_eq!(shared.read_next(&mut Cursor::At(1)), ReadResult::Trimmed(2));
    let values = [(2, &b""[..]), (3, b"three"), (4, b"four")];
    for (slot, value) in values {
        assert_eq!(shared.read_next(&mut Cursor::At(slot)), ReadResult::Value(slot, value.into()));
    }
    assert_eq!(shared.read_next(&mut Cursor::At(5)), ReadResult::NotYetWritten);
    drop(node);
    assert!(shared.has_ended());
}

#[test]
fn who_forgets_the_oldest_never_waits_and_tells_who_is_slow() {
    let folder = tempfile::tempdir().expect("a folder");
    let node = start(folder.path(), &[("held-max", "10000"), ("when-full", "forget-oldest")]);
    node.deliver_from(Cursor::At(1)).expect("held");
    submit(&node, &[1; 936]).expect("in a slot");
    assert_eq!(next(&node).expect("held").0, 1);
    for _ in 0..30 {
        submit(&node, &[1; 936]).expect("in a slot");
    }
    let failed = next(&node).expect_err("forgotten");
    assert_eq!(failed.code, Code::Trimmed);
    assert!(failed.detail.contains("slot 2 ") && failed.detail.contains("22"));
    assert!(!node.is_delivering());
    node.deliver_from(Cursor::Oldest).expect("held");
    assert_eq!(next(&node).expect("held").0, 22);
    let failed = submit(&node, &[1; 9937]).expect_err("fits nowhere");
    assert_eq!(failed.code, Code::Size);
}

/// The number of completions not yet taken is limited, and all completions arrive.
#[test]
fn open_submits_are_bounded() {
    let folder = tempfile::tempdir().expect("a folder");
    let node = start(folder.path(), &[]);
    let (tell, told) = channel();
    let mut taken = 0;
    let failed = loop {
        let tell = tell.clone();
        let done = Box::new(move |outcome| tell.send(outcome).expect("the test listens"));
        match node.submit(b"x", done) {
            Ok(()) => taken += 1,
            Err(failed) => break failed,
        }
        if taken % 1000 == 0 {
            // The node has handled all of them by then, so its own queue is not full.
            node.sync(PATIENCE).expect("answered");
        }
    };
    assert_eq!((failed.code, taken), (Code::Busy, quorate_capi::submits::OPEN_REQUESTS_MAX));
    let large = node.submit_and_wait(b"x", PATIENCE).expect_err("as many");
    assert_eq!(large.code, Code::Busy);
    node.deliver_from(Cursor::At(1)).expect("held");
    for slot in 1..=taken as u64 {
        assert_eq!(next(&node).expect("held").0, slot);
    }
    node.close().expect("ends well");
    node.drain_completions(|(done, outcome)| done(outcome));
    drop(tell);
    let mut slots: Vec<u64> = told.iter().map(|slot| slot.expect("in a slot")).collect();
    slots.sort_unstable();
    assert_eq!(slots, (1..=taken as u64).collect::<Vec<_>>());
}

/// Values submitted before any could be sent form one bundle and get consecutive slots.
#[test]
fn values_of_one_bundle_stand_one_behind_the_other() {
    let folder = tempfile::tempdir().expect("a folder");
    let node = start(folder.path(), &[("held-max", "10000"), ("value-max", "3000")]);
    let (tell, told) = channel();
    // Values submitted within a callback are gathered until it ends.
    let turn = node.begin_turn().expect("no other turn");
    for number in 0..4_u8 {
        let tell = tell.clone();
        let done = Box::new(move |outcome| tell.send((number, outcome)).expect("listens"));
        node.submit(&[number; 2900], done).expect("taken");
    }
    drop(turn);
    node.sync(PATIENCE).expect("answered");
    node.deliver_from(Cursor::Oldest).expect("held");
    let mut outcomes = Vec::new();
    let until = Instant::now() + PATIENCE;
    while outcomes.len() < 4 {
        assert!(Instant::now() < until, "some are told nothing");
        let turn = node.begin_turn().expect("no other turn");
        turn.clear_readable();
        while let Event::Completed(done, outcome) = turn.next_event(false) {
            done(outcome);
        }
        outcomes.extend(told.try_iter());
    }
    let slots: Vec<_> =
        outcomes[..3].iter().map(|(number, outcome)| (*number, outcome.clone())).collect();
    assert_eq!(slots, [(0, Ok(1)), (1, Ok(2)), (2, Ok(3))]);
    let full = outcomes[3].1.clone().expect_err("for three there is room");
    assert_eq!((outcomes[3].0, full.code), (3, Code::Full));
    for number in 0..3_u8 {
        let (slot, value) = next(&node).expect("held");
        assert_eq!((slot, &value[..2]), (u64::from(number) + 1, &[number; 2][..]));
    }
    node.trim_and_wait(4, PATIENCE).expect("trimmed");
    assert_eq!(submit(&node, b"again"), Ok(4));
}

/// Retained values can be read independently of delivery.
#[test]
fn a_node_shows_what_it_holds() {
    let folder = tempfile::tempdir().expect("a folder");
    let node = start(folder.path(), &[]);
    submit(&node, b"one").expect("in a slot");
    submit(&node, b"two").expect("in a slot");
    node.trim_and_wait(2, PATIENCE).expect("trimmed");
    assert_eq!(node.read_slot(2).as_deref(), Ok(&b"two"[..]));
    assert_eq!(node.read_slot(1).expect_err("forgotten").code, Code::Trimmed);
    assert_eq!(node.read_slot(3).expect_err("not yet").code, Code::Timeout);
}

/// A program may set another delivery position within a callback, and delivery continues from
/// there.
#[test]
fn a_program_goes_elsewhere_while_it_is_delivered_a_value() {
    let folder = tempfile::tempdir().expect("a folder");
    let node = start(folder.path(), &[]);
    for slot in 1..=3 {
        assert_eq!(submit(&node, b"x"), Ok(slot));
    }
    node.deliver_from(Cursor::At(2)).expect("held");
    let turn = node.begin_turn().expect("no other turn");
    assert_eq!(node.begin_turn().err().expect("one at a time").code, Code::InUse);
    let mut passed = Vec::new();
    while let Event::Value { slot, delivery_epoch: epoch, .. } = turn.next_event(true) {
        if passed.is_empty() {
            node.deliver_from(Cursor::At(1)).expect("held");
        }
        passed.push(slot);
        turn.mark_delivered(slot, epoch);
    }
    assert_eq!(passed, [2, 1, 2, 3]);
}

/// A node that waits for its founder answers calls, reports its state, and can be closed.
#[test]
fn a_node_that_starts_says_so_and_can_be_closed() {
    let folder = tempfile::tempdir().expect("a folder");
    let port = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
    let closed = port.local_addr().expect("bound");
    drop(port);
    let cluster = format!("1={closed},2=127.0.0.1:0");
    let cluster = [("node", "2"), ("cluster", &*cluster)];
    let waits = [&cluster[..], &[("start-wait-ms", "0")]].concat();
    let node = start(folder.path(), &waits);
    assert_eq!(submit(&node, b"x").expect_err("starts").code, Code::Unavailable);
    assert!(node.status(PATIENCE).expect("said").contains("starting"));
    node.deliver_from(Cursor::Oldest).expect("later");
    assert!(is_quiet(&node));
    let ready = node.wait_until_ready(Duration::from_millis(10)).expect_err("starts");
    assert_eq!(ready.code, Code::Timeout);
    node.close().expect("ends");
    assert_eq!(submit(&node, b"x").expect_err("closed").code, Code::Stopped);
    // A thread whose event was taken by another thread also returns before its deadline.
    let turn = node.begin_turn().expect("no other turn");
    turn.clear_readable();
    assert!(matches!(turn.next_event(false), Event::Nothing));
    let until = Instant::now() + Duration::from_millis(10);
    assert_eq!(turn.wait_for_event(Some(until)).expect_err("closed").code, Code::Stopped);
    drop(turn);
    let short = [&cluster[..], &[("start-wait-ms", "10")]].concat();
    let failed = Handle::start(options(folder.path(), &short)).err().expect("no founder");
    assert_eq!(failed.code, Code::Timeout);
}

/// A data folder of another service is refused, in both directions.
#[test]
fn a_folder_of_another_service_is_refused() {
    struct Other;
    impl quorate::StateMachine for Other {
        fn apply(&mut self, _: quorate::CommandId, _: &[u8], _: &mut Vec<u8>) {}
        fn query(&self, _: &[u8], _: u64, _: &mut Vec<u8>) {}
    }
    let folder = tempfile::tempdir().expect("a folder");
    let other = Builder::new(folder.path()).start(|| Other).expect("starts");
    other.stop().expect("ends well");
    let failed = Handle::start(options(folder.path(), &[])).err().expect("refused");
    assert_eq!(failed.code, Code::Refused);
    assert!(failed.detail.contains("mismatch"), "{failed:?}");
}
