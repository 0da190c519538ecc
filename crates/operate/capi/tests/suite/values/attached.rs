//! Tests of programs attached to a node.

use std::time::{Duration, Instant};

use quorate_capi::{error::Code, handle::Handle, options::Options, source::Cursor};

use super::{PATIENCE, is_quiet, next, start, submit};

/// Returns the address on which a node listens for programs.
pub(crate) fn address(node: &Handle) -> String {
    let status = node.status(PATIENCE).expect("answers");
    let (_, rest) = status.split_once("\"listen\":\"").expect("it listens");
    rest.split_once('"').expect("a text").0.to_owned()
}

pub(crate) fn attach(address: &str, more: &[(&str, &str)]) -> Handle {
    Handle::attach(options(address, more)).expect("attached")
}

pub(crate) fn options(address: &str, more: &[(&str, &str)]) -> Options {
    let mut options = Options::default();
    options.set("attach", address).expect("an option");
    for (name, value) in more {
        options.set(name, value).expect("an option");
    }
    options
}

#[test]
fn an_attached_program_does_all_that_a_node_does() {
    let folder = tempfile::tempdir().expect("a folder");
    let node = start(folder.path(), &[("listen", "127.0.0.1:0")]);
    let program = attach(&address(&node), &[]);
    program.deliver_from(Cursor::Oldest).expect("attached");
    let largest = program.value_bytes_max();
    assert_eq!(largest, 8 << 20);
    assert_eq!(submit(&program, b""), Ok(1));
    assert_eq!(submit(&program, &vec![7; largest]), Ok(2));
    assert_eq!(submit(&node, b"three"), Ok(3));
    assert_eq!(program.sync(PATIENCE), Ok(4));
    let failed = submit(&program, &vec![7; largest + 1]).expect_err("too large");
    assert_eq!(failed.code, Code::Size);
    assert_eq!(next(&program).expect("held"), (1, (&b""[..]).into()));
    let (slot, value) = next(&program).expect("held");
    assert_eq!((slot, value.len()), (2, largest));
    assert_eq!(next(&program).expect("held"), (3, (&b"three"[..]).into()));
    assert!(is_quiet(&program));
    program.deliver_from(Cursor::At(3)).expect("attached");
    assert_eq!(next(&program).expect("held").0, 3);
    assert_eq!(program.trim_and_wait(3, PATIENCE), Ok(3));
    program.deliver_from(Cursor::At(2)).expect("not known yet");
    let failed = next(&program).expect_err("forgotten");
    assert_eq!(failed.code, Code::Trimmed);
    assert!(failed.detail.contains("slot 2 ") && failed.detail.contains("is 3"));
    let status = program.status(PATIENCE).expect("answers");
    assert!(status.contains("\"attached\"") && status.contains("\"role\":\"leader\""));
    program.close().expect("ends well");
    node.close().expect("ends well");
}

/// Delivery from the end excludes earlier values, and includes all values that this handle submits
/// afterwards, however soon.
#[test]
fn what_is_submitted_behind_the_end_is_delivered() {
    let folder = tempfile::tempdir().expect("a folder");
    let node = start(folder.path(), &[("listen", "127.0.0.1:0")]);
    let mut last = 0;
    for _ in 0..50 {
        // The program requests the end before it is attached.
        let program = attach(&address(&node), &[("start-wait-ms", "0")]);
        program.deliver_from(Cursor::End).expect("the end");
        node.deliver_from(Cursor::End).expect("the end");
        let slot = submit(&program, b"own").expect("in a slot");
        assert_eq!(slot, last + 1);
        assert_eq!(next(&program).expect("held"), (slot, (&b"own"[..]).into()));
        assert_eq!(next(&node).expect("held").0, slot);
        last = slot;
        program.close().expect("ends");
    }
    // On a node that has just started, its own values follow those that it knew at the start.
    node.close().expect("ends well");
    for _ in 0..5 {
        let node = start(folder.path(), &[("start-wait-ms", "0")]);
        node.deliver_from(Cursor::End).expect("the end");
        let slot = loop {
            match submit(&node, b"own") {
                Ok(slot) => break slot,
                Err(failed) => assert_eq!(failed.code, Code::Unavailable),
            }
        };
        assert_eq!(slot, last + 1);
        assert_eq!(next(&node).expect("held").0, slot);
        last = slot;
        node.close().expect("ends well");
    }
}

/// Delivery from the end excludes values that any program knew as acknowledged before.
#[test]
fn delivery_can_begin_at_the_end() {
    let folder = tempfile::tempdir().expect("a folder");
    let node = start(folder.path(), &[("listen", "127.0.0.1:0")]);
    let program = attach(&address(&node), &[]);
    for slot in 1..=5 {
        assert_eq!(submit(&node, b"before"), Ok(slot));
    }
    node.deliver_from(Cursor::End).expect("the end");
    program.deliver_from(Cursor::End).expect("the end");
    assert!(is_quiet(&node));
    // The cluster may have answered at any time in between, so any of these values may be delivered
    // first.
    let mut last = submit(&node, b"after").expect("in a slot");
    let until = Instant::now() + PATIENCE;
    while is_quiet(&program) {
        assert!(Instant::now() < until, "nothing comes");
        last = submit(&node, b"after").expect("in a slot");
    }
    let (first, _) = next(&program).expect("held");
    assert!(first > 5 && first <= last, "{first}");
    assert_eq!(next(&node).expect("held").0, 6);
    if first < last {
        assert_eq!(next(&program).expect("held").0, first + 1);
    }
}

/// A program that does not read for a long time delays no other. When it reads again, it receives
/// all values in order.
#[test]
fn a_slow_program_holds_up_nobody() {
    let folder = tempfile::tempdir().expect("a folder");
    let node = start(folder.path(), &[("listen", "127.0.0.1:0")]);
    let (slow, other) = (attach(&address(&node), &[]), attach(&address(&node), &[]));
    slow.deliver_from(Cursor::At(1)).expect("attached");
    other.deliver_from(Cursor::At(1)).expect("attached");
    for slot in 1..=200 {
        assert_eq!(submit(&other, &vec![1; 100_000]), Ok(slot));
        assert_eq!(next(&other).expect("held").0, slot);
    }
    // Requests of the slow program are answered even while it has unread values.
    assert_eq!(submit(&slow, b"mine"), Ok(201));
    for slot in 1..=201 {
        assert_eq!(next(&slow).expect("held").0, slot);
    }
    // The program is notified of values that were trimmed before they were delivered.
    slow.deliver_from(Cursor::At(1)).expect("attached");
    assert_eq!(next(&slow).expect("held").0, 1);
    other.trim_and_wait(200, PATIENCE).expect("trimmed");
    let mut last = 1;
    let failed = loop {
        match next(&slow) {
            Ok((slot, _)) => {
                assert_eq!(slot, last + 1);
                last = slot;
            }
            Err(failed) => break failed,
        }
    };
    assert_eq!(failed.code, Code::Trimmed);
    assert!(last < 50, "no more was in flight than a window: {last}");
}

/// An attached program survives the end and the restart of its node.
#[test]
fn an_attached_program_waits_for_its_node() {
    let folder = tempfile::tempdir().expect("a folder");
    let node = start(folder.path(), &[("listen", "127.0.0.1:0")]);
    let at = address(&node);
    let program = attach(&at, &[("request-ms", "60000")]);
    program.deliver_from(Cursor::Oldest).expect("attached");
    assert_eq!(submit(&program, b"one"), Ok(1));
    node.close().expect("ends well");
    let (tell, told) = std::sync::mpsc::channel();
    let done = Box::new(move |outcome| tell.send(outcome).expect("the test listens"));
    program.submit(b"two", done).expect("taken");
    let node = start(folder.path(), &[("listen", &at)]);
    assert_eq!(next(&program).expect("held").0, 1);
    assert_eq!(next(&program).expect("held").0, 2);
    let until = Instant::now() + PATIENCE;
    let outcome = loop {
        assert!(is_quiet(&program), "there were two values");
        if let Ok(outcome) = told.try_recv() {
            break outcome;
        }
        assert!(Instant::now() < until, "no program is told");
    };
    assert_eq!(outcome, Ok(2));
    node.close().expect("ends well");
}

#[test]
fn without_a_node_there_is_an_outcome_all_the_same() {
    let port = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
    let closed = port.local_addr().expect("bound").to_string();
    drop(port);
    let short = [("start-wait-ms", "50")];
    let failed = Handle::attach(options(&closed, &short)).err().expect("no node is there");
    assert_eq!(failed.code, Code::Timeout);
    assert!(failed.detail.contains(&closed), "{failed:?}");
    let program = attach(&closed, &[("start-wait-ms", "0"), ("request-ms", "100")]);
    let failed = submit(&program, b"x").expect_err("no node is there");
    assert_eq!(failed.code, Code::Unavailable, "it was never sent");
    let failed = program.status(Duration::from_millis(50)).expect_err("no node is there");
    assert!(matches!(failed.code, Code::Unavailable | Code::Timeout), "{failed:?}");
    program.close().expect("ends");
}
