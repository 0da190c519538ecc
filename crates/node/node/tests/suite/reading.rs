//! Readers: exact bytes, slow clients, following, and streams that change during a read.

use quorate_node::streams::{OUTPUT_BYTES_MAX, StreamFront};
use quorate_replica::front::{ConnectionId, Front};
use quorate_stream::Command;
use quorate_wire::streams::{ClientFrame, OpenMode};

use crate::node::Node;

/// Maximum total size of the heads of all data frames.
const HEADS_MAX: usize = 1024;

fn pattern(length: usize) -> Vec<u8> {
    (0..length).map(|at| (at * 31 + at / 251) as u8).collect()
}

fn read(node: &mut Node<StreamFront>, id: ConnectionId, from: u64, to: u64, follow: bool) {
    let name = "s";
    node.send_request(id, ClientFrame::Read { from, to, follow, name });
}

#[test]
fn every_range_comes_byte_by_byte() {
    let bytes = pattern(700_000);
    let mut node = Node::new();
    node.stream("s", &bytes);
    let id = node.client();
    for (from, to) in [
        (0, u64::MAX),
        (0, 700_000),
        (699_999, u64::MAX),
        (1, 2),
        (300_000, 600_001),
        (5, 5),
        (9, 5),
        (700_000, u64::MAX),
    ] {
        for follow in [false, true] {
            read(&mut node, id, from, to, follow);
            node.run_until_quiet();
            let (got, end) = node.got(id, from);
            let last = to.min(700_000).max(from);
            assert!(got == bytes[from as usize..last as usize], "{from} to {to}");
            let finished = last == 700_000;
            let expected = format!("End {{ position: {last}, finished: {finished} }}");
            assert_eq!(end, [expected]);
        }
    }
}

#[test]
fn a_position_that_does_not_exist_is_an_error_and_never_a_skip() {
    let mut node = Node::new();
    node.stream("s", b"abcdef");
    let id = node.client();
    node.send_request(id, ClientFrame::Trim { retain_from: 2, name: "s" });
    node.run_until_quiet();
    assert_eq!(node.take_answers(id), ["Done { position: 2 }"]);
    for follow in [false, true] {
        for (from, error) in [
            (1, "error trimmed at 2"),
            (7, "error behind-end at 6"),
            (u64::MAX, "error behind-end at 6"),
        ] {
            read(&mut node, id, from, u64::MAX, follow);
            node.run_until_quiet();
            assert_eq!(node.take_answers(id), [error]);
        }
    }
    for name in ["none", "a\nb", ""] {
        node.send_request(id, ClientFrame::Read { from: 0, to: 9, follow: false, name });
        node.run_until_quiet();
        let error = if name == "none" { "unknown" } else { "name" };
        assert_eq!(node.take_answers(id), [format!("error {error} at 0")]);
    }
}

/// [read-1] A read reflects every earlier acknowledgement, because the replica confirms it first.
#[test]
fn nothing_is_answered_before_the_replica_was_asked_how_fresh_it_is() {
    let mut node = Node::new();
    node.stream("s", b"abc");
    let id = node.client();
    for ask in [
        ClientFrame::Stat { name: "s" },
        ClientFrame::List { after_name: "" },
        ClientFrame::Read { from: 0, to: u64::MAX, follow: false, name: "s" },
    ] {
        node.send_request(id, ask);
        assert_eq!(node.take_answers(id), [""; 0], "{ask:?}");
        assert!(node.front.is_busy(id));
        node.run_until_quiet();
        assert_ne!(node.take_answers(id), [""; 0], "{ask:?}");
    }
}

#[test]
fn a_slow_reader_holds_little_and_stops_nobody() {
    let bytes = pattern(9 << 20);
    let mut node = Node::new();
    node.stream("s", &bytes);
    let (slow, fast) = (node.client(), node.client());
    node.window(slow, 0);
    read(&mut node, slow, 0, u64::MAX, false);
    read(&mut node, fast, 0, u64::MAX, false);
    node.run_until_quiet();
    let (got, _) = node.got(fast, 0);
    assert!(got == bytes);
    let held = node.front.held_bytes_of(slow);
    assert!(held > OUTPUT_BYTES_MAX / 2, "{held}");

    let mut got = Vec::new();
    let end = loop {
        assert!(node.front.held_bytes_of(slow) <= OUTPUT_BYTES_MAX + HEADS_MAX);
        node.window(slow, 30_000);
        node.run_until_quiet();
        let (more, rest) = node.got(slow, got.len() as u64);
        got.extend(more);
        if !rest.is_empty() {
            break rest;
        }
    };
    assert!(got == bytes);
    assert_eq!(end.len(), 1);
    assert!(node.front.held_bytes_of(slow) <= 256, "what was for output is given back");
}

/// A full socket does not make the reactor spin.
#[test]
fn a_full_socket_is_no_reason_for_the_next_turn() {
    let mut node = Node::new();
    node.stream("s", &pattern(2 * OUTPUT_BYTES_MAX));
    let id = node.client();
    node.window(id, 0);
    read(&mut node, id, 0, u64::MAX, false);
    node.run_until_quiet();
    node.window(id, 100);
    node.turn();
    assert!(!node.front.is_eager());
    node.window(id, OUTPUT_BYTES_MAX / 2);
    node.turn();
    assert!(node.front.is_eager(), "there is room for more");
}

/// Many slow readers together use little memory. There may be 10,000 of them.
#[test]
fn many_slow_readers_hold_little_together() {
    const COUNT: usize = 700;
    const EASY: usize = 128 << 20;
    let mut node = Node::new();
    node.stream("s", &pattern(1 << 20));
    let readers: Vec<ConnectionId> = (0..COUNT).map(|_| node.client()).collect();
    for id in &readers {
        node.window(*id, 0);
        let mut ask = Vec::new();
        ClientFrame::Read { from: 0, to: u64::MAX, follow: false, name: "s" }.encode(&mut ask);
        node.queue(*id, &ask);
    }
    node.run_until_quiet();
    let held = node.front.held_bytes();
    assert!(held > EASY, "{held}: there were not enough of them");
    let least = COUNT * (16 << 10);
    assert!(held <= EASY + OUTPUT_BYTES_MAX + least, "{held}");
    for id in readers {
        node.window(id, usize::MAX);
    }
    node.run_until_quiet();
    assert!(node.front.held_bytes() <= COUNT * 128);
}

#[test]
fn a_follower_gets_what_comes_and_ends_when_the_stream_is_closed_for_good() {
    let mut node = Node::new();
    let writer = node.writer("s", 1);
    let id = node.client();
    read(&mut node, id, 0, u64::MAX, true);
    node.run_until_quiet();
    assert_eq!(node.take_answers(id), [""; 0]);
    assert!(!node.front.is_busy(id), "it has everything");
    assert_eq!(node.front.open_requests(), 0, "no answer is due");
    for part in [b"abc", b"def"] {
        node.send_request(writer, ClientFrame::Data(part));
        node.played.decide(usize::MAX);
        node.run_until_quiet();
    }
    assert_eq!(node.take_answers(id), ["3 bytes from 0", "3 bytes from 3"]);
    // The next piece belongs to the same stream.
    node.hang_up(writer);
    node.run_until_quiet();
    assert_eq!(node.take_answers(id), [""; 0]);
    let writer = node.client();
    node.send_request(writer, ClientFrame::Open { mode: OpenMode::Append, writer: 2, name: "s" });
    node.run_until_quiet();
    node.send_request(writer, ClientFrame::Data(b"ghi"));
    node.send_request(writer, ClientFrame::Close { finish: true });
    node.run_until_quiet();
    assert_eq!(node.take_answers(id), ["3 bytes from 6", "End { position: 9, finished: true }"]);
}

#[test]
fn a_follower_ends_at_its_last_position_too() {
    let mut node = Node::new();
    let writer = node.writer("s", 1);
    let id = node.client();
    read(&mut node, id, 0, 4, true);
    node.send_request(writer, ClientFrame::Data(b"abcdef"));
    node.played.decide(3);
    node.run_until_quiet();
    assert_eq!(node.take_answers(id), ["3 bytes from 0"]);
    node.played.decide(usize::MAX);
    node.run_until_quiet();
    assert_eq!(node.take_answers(id), ["1 bytes from 3", "End { position: 4, finished: false }"]);
}

/// A read without following ends at the end that the stream had when the read began. Otherwise it
/// would never end on a busy stream.
#[test]
fn who_does_not_follow_gets_what_there_was_when_the_read_began() {
    let mut node = Node::new();
    let writer = node.writer("s", 1);
    node.send_request(writer, ClientFrame::Data(&[1; 1000]));
    node.played.decide(usize::MAX);
    node.turn();
    let id = node.client();
    read(&mut node, id, 0, u64::MAX, false);
    node.played.execute_all();
    node.turn();
    node.send_request(writer, ClientFrame::Data(&[2; 1000]));
    node.played.decide(usize::MAX);
    node.run_until_quiet();
    assert_eq!(
        node.take_answers(id),
        ["1000 bytes from 0", "End { position: 1000, finished: false }"]
    );
}

#[test]
fn a_follower_that_half_closes_is_gone_when_it_has_everything() {
    let mut node = Node::new();
    let writer = node.writer("s", 1);
    node.send_request(writer, ClientFrame::Data(b"abc"));
    node.played.decide(usize::MAX);
    let id = node.client();
    read(&mut node, id, 0, u64::MAX, true);
    node.half_close(id);
    assert!(node.is_open(id), "it is owed three bytes");
    node.run_until_quiet();
    assert!(!node.is_open(id));
    assert_eq!(node.played.dropped_tags.len(), 1);
}

#[test]
fn a_trim_under_a_reader_is_an_error() {
    let mut node = Node::new();
    node.stream("s", &pattern(2 * OUTPUT_BYTES_MAX));
    let id = node.client();
    node.window(id, 0);
    read(&mut node, id, 0, u64::MAX, false);
    node.run_until_quiet();
    let trim =
        Command::Trim { name: "s".parse().unwrap(), retain_from: OUTPUT_BYTES_MAX as u64 + 7 };
    node.played.elsewhere(&trim).unwrap();
    node.window(id, usize::MAX);
    node.run_until_quiet();
    let heard = node.take_answers(id);
    let (last, parts) = heard.split_last().expect("something was sent");
    assert_eq!(last, "error trimmed at 4194311");
    assert!(parts.iter().all(|part| part.contains("bytes from")));
    assert!(node.is_open(id));
}

/// A read never continues in a different stream of the same name, which has unrelated bytes.
#[test]
fn another_stream_of_the_same_name_is_not_read_on() {
    for follow in [false, true] {
        let mut node = Node::new();
        let bytes = pattern(2 * OUTPUT_BYTES_MAX);
        node.stream("s", &bytes);
        let id = node.client();
        node.window(id, 0);
        read(&mut node, id, 0, u64::MAX, follow);
        node.run_until_quiet();
        let name = "s".parse().unwrap();
        node.played.elsewhere(&Command::Remove { name }).unwrap();
        node.stream("s", &vec![0; bytes.len()]);
        node.window(id, usize::MAX);
        node.run_until_quiet();
        let (got, end) = node.got(id, 0);
        assert!(got == bytes[..got.len()]);
        assert_eq!(end.len(), 1);
        assert!(end[0].contains("the stream was deleted"), "{end:?}");
    }
}

/// A read in flight when the stream is replaced does not deliver bytes of the new stream.
#[test]
fn bytes_of_another_stream_that_come_late_are_not_sent() {
    let mut node = Node::new();
    node.stream("s", b"abc");
    let id = node.client();
    read(&mut node, id, 0, u64::MAX, false);
    node.played.execute_all();
    node.turn();
    let name = "s".parse().unwrap();
    node.played.elsewhere(&Command::Remove { name }).unwrap();
    node.stream("s", b"xyz");
    node.run_until_quiet();
    let (got, end) = node.got(id, 0);
    assert_eq!(got, b"");
    assert!(end[0].contains("the stream was deleted"), "{end:?}");
}

#[test]
fn a_reader_that_hangs_up_is_forgotten() {
    let mut node = Node::new();
    node.stream("s", b"abc");
    let id = node.client();
    read(&mut node, id, 0, u64::MAX, false);
    node.hang_up(id);
    assert_eq!(node.played.dropped_tags.len(), 1);
    assert_eq!((node.front.open_requests(), node.front.held_bytes()), (0, 0));
}

#[test]
fn one_request_is_answered_after_the_other() {
    let mut node = Node::new();
    node.stream("s", b"abc");
    let id = node.client();
    let (mut first, mut second) = (Vec::new(), Vec::new());
    ClientFrame::Stat { name: "s" }.encode(&mut first);
    ClientFrame::Stat { name: "none" }.encode(&mut second);
    node.send(id, &[first, second.clone()].concat());
    assert!(!node.front.accepts_input(id), "the second is not taken");
    assert_eq!(node.left_over(id), second.len());
    node.run_until_quiet();
    assert_eq!(node.take_answers(id), ["s [0, 3) finished ", "error unknown at 0"]);
}

#[test]
fn a_list_has_all_names_in_their_order_however_slow_the_client_is() {
    let mut node = Node::new();
    let long = "x".repeat(150);
    let name = |number: u32| format!("{number:04}-{long}");
    for number in 0..500 {
        node.stream(&name(number), b"");
    }
    let id = node.client();
    node.window(id, 0);
    node.send_request(id, ClientFrame::List { after_name: "" });
    node.run_until_quiet();
    assert!(node.front.held_bytes_of(id) <= OUTPUT_BYTES_MAX);
    let mut heard = Vec::new();
    while heard.last().map(String::as_str) != Some("ListEnd") {
        node.window(id, 1000);
        node.run_until_quiet();
        heard.extend(node.take_answers(id));
    }
    assert_eq!(heard.len(), 501);
    for (number, line) in (0..500).zip(&heard) {
        assert!(line.starts_with(&name(number)), "{line}");
    }

    node.window(id, usize::MAX);
    for (after, expected) in [(name(497), 3), (name(499), 1), ("zzz".into(), 1)] {
        node.send_request(id, ClientFrame::List { after_name: &after });
        node.run_until_quiet();
        assert_eq!(node.take_answers(id).len(), expected, "behind {after}");
    }
}
