//! Writers: order, back-pressure, fencing, and clients that disconnect.

use quorate_core::value::StreamName;
use quorate_replica::front::{ConnectionId, Failure, Front};
use quorate_stream::Command;
use quorate_wire::streams::{
    ClientFrame, DecodedFrame, NodeFrame, OpenMode, Retention, decode_node_frame,
};

use crate::{
    node::Node,
    played::{Event, Played},
};

fn open<F: Front>(
    node: &mut Node<F>,
    id: ConnectionId,
    how: OpenMode,
    writer: u128,
) -> Vec<String> {
    let name = "s";
    node.send_request(id, ClientFrame::Open { mode: how, writer, name });
    node.run_until_quiet();
    node.take_answers(id)
}

#[test]
fn what_a_writer_sends_is_durable_in_its_order_and_counted() {
    let mut node = Node::new();
    let id = node.writer("s", 1);
    node.send_request(id, ClientFrame::Data(b"abc"));
    assert_eq!(node.take_answers(id), [""; 0], "nothing is decided");
    node.played.decide(2);
    assert_eq!(node.take_answers(id), ["Durable { position: 2 }"]);
    node.send_request(id, ClientFrame::Data(b""));
    node.send_request(id, ClientFrame::Data(b"de"));
    node.played.decide(usize::MAX);
    assert_eq!(node.take_answers(id), ["Durable { position: 5 }"]);
    node.send_request(id, ClientFrame::Close { finish: true });
    assert!(node.front.is_busy(id));
    node.played.execute_all();
    assert_eq!(node.take_answers(id), ["Closed { position: 5 }"]);

    node.send_request(id, ClientFrame::Read { from: 0, to: u64::MAX, follow: false, name: "s" });
    node.run_until_quiet();
    let (got, end) = node.got(id, 0);
    assert_eq!(got, b"abcde");
    assert_eq!(end, ["End { position: 5, finished: true }"]);
}

/// The bytes arrive, however they are divided into frames and frames into socket reads.
#[test]
fn frames_may_come_in_pieces() {
    let mut sent = Vec::new();
    for part in [&b"hello"[..], b"", b" wor", b"ld"] {
        ClientFrame::Data(part).encode(&mut sent);
    }
    ClientFrame::Close { finish: false }.encode(&mut sent);
    for size in 1..sent.len() {
        let mut node = Node::new();
        let id = node.writer("s", 1);
        for piece in sent.chunks(size) {
            node.send(id, piece);
        }
        node.run_until_quiet();
        assert_eq!(
            node.take_answers(id).last().map(String::as_str),
            Some("Closed { position: 11 }")
        );
    }
}

#[test]
fn a_writer_is_not_read_while_there_is_no_room() {
    let mut node = Node::new();
    node.played.room = 10;
    let id = node.writer("s", 1);
    node.send_request(id, ClientFrame::Data(&[7; 25]));
    assert_eq!((node.played.undecided(), node.left_over(id)), (10, 15));
    assert!(!node.front.accepts_input(id));
    assert!(node.front.held_bytes_of(id) <= 128, "no byte waits in the front");
    node.played.decide(4);
    assert_eq!(node.take_answers(id), ["Durable { position: 4 }"]);
    assert_eq!((node.played.undecided(), node.left_over(id)), (10, 11));
    while node.left_over(id) > 0 {
        node.played.decide(usize::MAX);
        node.turn();
    }
    assert!(node.front.accepts_input(id));
    node.send_request(id, ClientFrame::Close { finish: true });
    node.run_until_quiet();
    assert_eq!(node.take_answers(id).last().map(String::as_str), Some("Closed { position: 25 }"));
}

/// Space that becomes free in a turn is used in that turn, because afterwards the reactor sleeps
/// unless a connection is ready.
#[test]
fn room_that_comes_with_durability_is_seen_at_once() {
    let mut node = Node::new();
    node.played.room = 2;
    let id = node.writer("s", 1);
    node.send_request(id, ClientFrame::Data(b"abcdef"));
    node.played.decide(usize::MAX);
    assert!(!node.front.accepts_input(id));
    let durable = node.played.next_event().expect("it is durable");
    node.front.handle_stream_event(durable.lent(), &mut node.played);
    assert!(node.front.accepts_input(id));
}

/// Space freed by other writers is noticed in the next turn, even without own progress.
#[test]
fn room_that_comes_from_elsewhere_is_seen_in_the_next_turn() {
    let mut node = Node::new();
    let id = node.writer("s", 1);
    node.played.room = 0;
    node.send_request(id, ClientFrame::Data(b"abc"));
    assert_eq!((node.left_over(id), node.front.accepts_input(id)), (3, false));
    node.played.room = 100;
    node.turn();
    assert_eq!((node.left_over(id), node.front.accepts_input(id)), (0, true));
}

/// A thousand writers wait for the little space that others leave. No turn checks all of them.
#[test]
fn writers_without_room_are_asked_in_turn_as_far_as_there_is_room() {
    const WRITERS: usize = 100;
    let mut node = Node::new();
    let writers: Vec<_> =
        (0..WRITERS).map(|number| node.writer(&format!("s{number}"), 1)).collect();
    node.played.room = 0;
    for id in &writers {
        node.send_request(*id, ClientFrame::Data(&[7; 100]));
    }
    node.played.shared_room = Some(0);
    node.played.room_queries.set(0);
    node.turn();
    assert_eq!(node.played.room_queries.get(), 0, "there is no room for any");

    // Each turn has space for four more writers; those that have waited longest use it.
    (node.played.room, node.played.shared_room) = (100, Some(4 * 100));
    for turn in 1..=WRITERS / 4 {
        node.turn();
        let waiting = writers.iter().filter(|id| node.left_over(**id) > 0);
        assert_eq!(waiting.count(), WRITERS - 4 * turn);
    }
}

#[test]
fn a_client_that_does_not_read_is_told_the_last_durable_position_only() {
    let mut node = Node::new();
    let id = node.writer("s", 1);
    node.window(id, 0);
    for count in 1..=1000_u64 {
        node.send_request(id, ClientFrame::Data(b"x"));
        node.played.decide(usize::MAX);
        node.turn();
        assert!(node.front.held_bytes_of(id) <= 256, "after {count}");
    }
    node.window(id, usize::MAX);
    assert_eq!(node.take_answers(id), ["Durable { position: 1 }", "Durable { position: 1000 }"]);
}

#[test]
fn a_position_never_goes_back_whatever_the_replica_says() {
    let mut node = Node::new();
    let id = node.writer("s", 1);
    node.send_request(id, ClientFrame::Data(b"abc"));
    node.played.decide(usize::MAX);
    assert_eq!(node.take_answers(id), ["Durable { position: 3 }"]);
    let piece = node.played.info("s").unwrap().open_stream.unwrap();
    node.played.queue_event(Event::Durable(piece, 2));
    assert_eq!(node.take_answers(id), [""; 0]);
}

#[test]
fn whoever_is_fenced_is_told_where_and_may_ask_again() {
    let mut node = Node::new();
    let id = node.writer("s", 1);
    node.send_request(id, ClientFrame::Data(b"abcdef"));
    node.played.decide(4);
    node.turn();
    node.played.take_over("s", 2).unwrap();
    // Bytes sent before the notice arrived are void, even in the middle of a frame.
    let mut late = Vec::new();
    ClientFrame::Data(b"ghi").encode(&mut late);
    node.send(id, &late[..9]);
    assert_eq!(node.take_answers(id), ["Durable { position: 4 }", "Ended { position: 4 }"]);
    node.send(id, &late[9..]);
    node.send_request(id, ClientFrame::Data(b"jkl"));
    node.send_request(id, ClientFrame::Close { finish: true });
    node.run_until_quiet();
    assert_eq!(node.take_answers(id), [""; 0]);
    assert_eq!(node.played.info("s").unwrap().end, 4);

    assert_eq!(open(&mut node, id, OpenMode::Continue, 1), ["error fenced at 0"]);
    assert_eq!(open(&mut node, id, OpenMode::Append, 1), ["error fenced at 0"]);
    // A fenced writer can never write again; another one may open the stream.
    let again = open(&mut node, id, OpenMode::Takeover, 1);
    assert_eq!(again, ["error fenced at 0"]);
    let other = open(&mut node, id, OpenMode::Takeover, 3);
    assert_eq!(other, ["Opened { position: 4 }"]);
}

/// A writer that waits for space learns that it is fenced, and its input is read again.
#[test]
fn a_writer_without_room_that_is_fenced_is_read_again() {
    let mut node = Node::new();
    node.played.room = 2;
    let id = node.writer("s", 1);
    node.send_request(id, ClientFrame::Data(b"abcdef"));
    assert!(!node.front.accepts_input(id));
    node.played.take_over("s", 2).unwrap();
    node.turn();
    assert_eq!(node.left_over(id), 0);
    node.send_request(id, ClientFrame::Stat { name: "s" });
    node.run_until_quiet();
    assert_eq!(node.take_answers(id), ["Ended { position: 0 }", "s [0, 0) open written 9"]);
}

/// If a piece ends while its close is in flight, the client gets one answer: the end.
#[test]
fn a_close_and_the_end_are_one_answer() {
    let mut node = Node::new();
    let id = node.writer("s", 1);
    node.send_request(id, ClientFrame::Close { finish: true });
    let tag = node.played.swallow().expect("the close");
    node.played.take_over("s", 2).unwrap();
    assert_eq!(node.take_answers(id), ["Ended { position: 0 }"]);
    assert_eq!(node.played.dropped_tags, [tag]);
    assert_eq!(node.front.open_requests(), 0);
    node.send_request(id, ClientFrame::Close { finish: true });
    assert_eq!(node.take_answers(id), ["error out-of-order at 0"]);
}

#[test]
fn the_same_writer_comes_back_and_goes_on_at_the_exact_position() {
    let mut node = Node::new();
    let first = node.writer("s", 1);
    node.send_request(first, ClientFrame::Data(b"abc"));
    // The node does not know yet that the connection is dead.
    let second = node.client();
    assert_eq!(
        open(&mut node, second, OpenMode::Continue, 1),
        ["Opened { position: 0 }"],
        "nothing was decided"
    );
    assert_eq!(node.take_answers(first), ["Ended { position: 0 }"]);
    node.send_request(second, ClientFrame::Data(b"abc"));
    node.played.decide(usize::MAX);
    node.turn();
    node.hang_up(second);
    let third = node.client();
    assert_eq!(
        open(&mut node, third, OpenMode::Create, 1),
        ["Opened { position: 3 }"],
        "it never heard that it was created"
    );
    node.hang_up(first);
    assert_eq!(node.played.abandoned.len(), 1, "the first has no piece");
}

#[test]
fn who_goes_away_without_a_close_gives_up_its_piece() {
    let leave: [fn(&mut Node<_>, ConnectionId); 2] = [Node::hang_up, Node::half_close];
    for leave in leave {
        let mut node = Node::new();
        let id = node.writer("s", 1);
        node.send_request(id, ClientFrame::Data(b"abc"));
        leave(&mut node, id);
        assert_eq!(node.front.connections(), 0);
        assert_eq!(node.played.abandoned.len(), 1);
        let info = node.played.info("s").unwrap();
        assert_eq!((info.end, info.finished, info.open_stream), (3, false, None));
    }
}

#[test]
fn who_half_closes_behind_a_close_still_gets_the_answer() {
    let mut node = Node::new();
    let id = node.writer("s", 1);
    node.send_request(id, ClientFrame::Data(b"abc"));
    node.send_request(id, ClientFrame::Close { finish: true });
    node.half_close(id);
    assert!(node.is_open(id));
    node.played.execute_all();
    // Events delivered before the close.
    while let Some(event) = node.played.next_event() {
        node.front.handle_stream_event(event.lent(), &mut node.played);
    }
    assert!(!node.front.output(id).is_empty());
    node.turn();
    assert_eq!(node.front.connections(), 0);
    assert!(node.played.abandoned.is_empty());
}

/// A piece that opens after its client has disconnected is abandoned.
#[test]
fn a_piece_that_opens_when_its_client_is_gone_is_given_up() {
    let mut node = Node::new();
    let id = node.client();
    let name = "s";
    node.send_request(id, ClientFrame::Open { mode: OpenMode::Create, writer: 1, name });
    node.hang_up(id);
    assert_eq!(node.front.open_requests(), 1);
    node.run_until_quiet();
    assert_eq!(node.front.open_requests(), 0);
    assert_eq!(node.played.abandoned.len(), 1);
    assert_eq!(node.played.info("s").unwrap().open_stream, None);
}

#[test]
fn a_close_that_fails_when_its_client_is_gone_is_made_up_for() {
    let mut node = Node::new();
    let id = node.writer("s", 1);
    node.send_request(id, ClientFrame::Close { finish: true });
    node.hang_up(id);
    let tag = node.played.swallow().expect("the close");
    node.played.queue_event(Event::Failed(tag, Failure::Unknown));
    node.turn();
    assert_eq!(node.played.abandoned.len(), 1);
    assert_eq!(node.front.open_requests(), 0);
}

#[test]
fn a_close_that_succeeds_when_its_client_is_gone_is_all_there_is_to_do() {
    let mut node = Node::new();
    let id = node.writer("s", 1);
    node.send_request(id, ClientFrame::Close { finish: true });
    node.hang_up(id);
    node.run_until_quiet();
    assert!(node.played.info("s").unwrap().finished);
    assert!(node.played.abandoned.is_empty());
    assert_eq!(node.front.open_requests(), 0);
}

#[test]
fn every_refusal_has_its_code_and_the_connection_goes_on() {
    let mut node = Node::new();
    node.stream("s", b"abc");
    let id = node.client();
    assert_eq!(open(&mut node, id, OpenMode::Create, 1), ["error exists at 0"]);
    assert_eq!(open(&mut node, id, OpenMode::Append, 1), ["error finished at 0"]);
    assert_eq!(open(&mut node, id, OpenMode::Continue, 1), ["error fenced at 0"]);
    let trim = |node: &mut Node<_>, before, name| {
        node.send_request(id, ClientFrame::Trim { retain_from: before, name });
        node.run_until_quiet();
        node.take_answers(id)
    };
    assert_eq!(trim(&mut node, u64::MAX, "s"), ["error behind-end at 3"]);
    assert_eq!(trim(&mut node, 2, "none"), ["error unknown at 0"]);
    assert_eq!(trim(&mut node, 2, "a b"), ["error name at 0"]);
    assert_eq!(trim(&mut node, 2, ""), ["error name at 0"]);
    assert_eq!(trim(&mut node, 2, "s"), ["Done { position: 2 }"]);
    assert_eq!(trim(&mut node, 1, "s"), ["Done { position: 2 }"]);
    let retain = |node: &mut Node<_>, keep, name| {
        node.send_request(id, ClientFrame::Retain { keep, name });
        node.run_until_quiet();
        node.take_answers(id)
    };
    let keep = Retention { bytes: Some(7), age_max_ms: Some(1000) };
    assert_eq!(retain(&mut node, keep, "none"), ["error unknown at 0"]);
    assert_eq!(retain(&mut node, keep, ""), ["error name at 0"]);
    assert_eq!(retain(&mut node, keep, "s"), ["Done { position: 2 }"]);
    let kept = node.played.info("s").unwrap().retention;
    assert_eq!((kept.bytes, kept.age_ms), (Some(7), Some(1000)));
    node.send_request(id, ClientFrame::Stat { name: "s" });
    node.run_until_quiet();
    let raw = node.raw(id);
    let shown = decode_node_frame(&raw).unwrap();
    assert!(
        matches!(shown, DecodedFrame::Frame(NodeFrame::Info(info), _) if info.retention == keep),
        "{shown:?}"
    );
    let forever = Retention::default();
    assert_eq!(retain(&mut node, forever, "s"), ["Done { position: 2 }"]);
    assert_eq!(node.played.info("s").unwrap().retention, quorate_stream::Retention::default());
    let remove = |node: &mut Node<_>| {
        node.send_request(id, ClientFrame::Remove { name: "s" });
        node.run_until_quiet();
        node.take_answers(id)
    };
    assert_eq!(remove(&mut node), ["Done { position: 0 }"]);
    assert_eq!(remove(&mut node), ["error unknown at 0"]);
    assert!(node.is_open(id));
}

#[test]
fn a_writer_whose_stream_is_removed_is_told() {
    let mut node = Node::new();
    let id = node.writer("s", 1);
    node.send_request(id, ClientFrame::Data(b"abc"));
    let name = "s".parse().unwrap();
    node.played.elsewhere(&Command::Remove { name }).unwrap();
    assert_eq!(node.take_answers(id), ["Ended { position: 0 }"]);
}

#[test]
fn every_failure_has_its_code_whether_at_once_or_later() {
    for (failure, code) in [
        (Failure::Busy, "busy"),
        (Failure::NoQuorum, "no-quorum"),
        (Failure::Stopping, "stopping"),
        (Failure::Unavailable, "unavailable"),
        (Failure::Unknown, "uncertain"),
    ] {
        let error = format!("error {code} at 0");
        let mut node = Node::new();
        let id = node.client();
        node.send_request(id, ClientFrame::Remove { name: "s" });
        let tag = node.played.swallow().expect("the removal");
        node.played.queue_event(Event::Failed(tag, failure));
        assert_eq!(node.take_answers(id), [error.as_str()]);

        node.played.refuse = Some(failure);
        for ask in [
            ClientFrame::Remove { name: "s" },
            ClientFrame::Stat { name: "s" },
            ClientFrame::List { after_name: "" },
            ClientFrame::Trim { retain_from: 0, name: "s" },
            ClientFrame::Open { mode: OpenMode::Create, writer: 1, name: "s" },
            ClientFrame::Read { from: 0, to: 0, follow: true, name: "s" },
        ] {
            node.send_request(id, ask);
            assert_eq!(node.take_answers(id), [error.as_str()], "{ask:?}");
        }
        assert!(node.is_open(id));
        assert_eq!(node.front.open_requests(), 0);

        node.played.refuse = None;
        let id = node.writer("s", 1);
        node.played.refuse = Some(failure);
        node.send_request(id, ClientFrame::Close { finish: true });
        assert_eq!(node.take_answers(id), [error.as_str()]);
        assert_eq!(node.played.abandoned.len(), 1, "no writer would close it");

        node.played.refuse = None;
        assert_eq!(open(&mut node, id, OpenMode::Append, 1), ["Opened { position: 0 }"]);
        node.send_request(id, ClientFrame::Close { finish: true });
        let tag = node.played.swallow().expect("the close");
        node.played.queue_event(Event::Failed(tag, failure));
        assert_eq!(node.take_answers(id), [error.as_str()]);
        assert_eq!(node.played.abandoned.len(), 2, "no writer would close it");
    }
}

#[test]
fn a_node_without_streams_says_so() {
    let mut node = Node::new();
    node.played.none = true;
    let id = node.client();
    node.send_request(id, ClientFrame::List { after_name: "" });
    assert_eq!(node.take_answers(id), ["error unavailable at 0"]);
}

#[test]
fn what_is_heard_of_pieces_and_tags_of_nobody_is_ignored() {
    let mut node = Node::new();
    let id = node.client();
    node.send_request(id, ClientFrame::Remove { name: "s" });
    let tag = node.played.swallow().expect("the removal");
    node.hang_up(id);
    assert_eq!(node.played.dropped_tags, [tag]);
    let unknown = StreamName::default();
    for event in
        [Event::Failed(tag, Failure::Busy), Event::Durable(unknown, 3), Event::Ended(unknown, 3)]
    {
        node.played.queue_event(event);
    }
    node.turn();
    let Played { abandoned, .. } = &node.played;
    assert!(abandoned.is_empty());
}

/// Bytes of long data frames are read directly into the store; short frames are copied.
#[test]
fn long_frames_of_data_are_read_to_where_they_are_kept() {
    let long = vec![1; 256 << 10];
    let rest = vec![2; 20_000];
    for (room, least) in [(1 << 20, 600_000), (50_000, 300_000), (16_000, 0)] {
        let mut node = Node::new();
        node.played.room = room;
        let id = node.writer("s", 1);
        for data in [&long[..], &[3; 100], &long, &long, &rest] {
            node.send_request(id, ClientFrame::Data(data));
            while node.left_over(id) > 0 {
                node.played.decide(usize::MAX);
                node.turn();
            }
        }
        assert!(node.filled >= least, "{} with room for {room}", node.filled);
        node.send_request(id, ClientFrame::Close { finish: true });
        node.run_until_quiet();
        node.take_answers(id);
        let reader = node.client();
        node.send_request(
            reader,
            ClientFrame::Read { from: 0, to: u64::MAX, follow: false, name: "s" },
        );
        node.run_until_quiet();
        let (got, _) = node.got(reader, 0);
        let expected = [&long[..], &[3; 100], &long, &long, &rest].concat();
        assert!(got == expected, "with room for {room}");
    }
}
