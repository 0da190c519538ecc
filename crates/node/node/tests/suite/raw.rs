//! Tests of the raw port, which receives stream bytes and sends counts.

use quorate_core::value::StreamName;
use quorate_node::streams::StreamFront;
use quorate_replica::front::{ConnectionId, Failure, Front as _, ListenerKind};
use quorate_stream::{Command, OpenMode, Writer};

use crate::{
    node::Node,
    played::{Event, Played},
};

type Raw = Node<StreamFront>;

/// Connects a client and opens its stream.
fn connect(node: &mut Raw) -> ConnectionId {
    let id = node.at(ListenerKind::StreamsRaw);
    node.run_until_quiet();
    assert!(node.front.accepts_input(id));
    id
}

fn piece(node: &Raw, name: &str) -> StreamName {
    node.played.info(name).unwrap().open_stream.unwrap()
}

/// Creates a stream called `name` as if at another node.
fn made_elsewhere(played: &mut Played, name: &str, number: u32) {
    let stream = StreamName { boot: 7, number, ..StreamName::default() };
    let open = Command::Open {
        name: name.parse().unwrap(),
        mode: OpenMode::Create,
        writer: Writer(u128::from(number)),
        stream,
        now_ms: 0,
    };
    played.elsewhere(&open).unwrap();
}

#[test]
fn newly_durable_bytes_are_counted_and_a_half_close_ends_the_stream() {
    let mut node = Node::new();
    let id = connect(&mut node);
    node.send(id, b"abcde");
    assert_eq!(node.counts(id), [0; 0], "nothing is decided");
    node.played.decide(2);
    assert_eq!(node.counts(id), [2]);
    node.played.decide(usize::MAX);
    node.turn();
    node.send(id, b"fg");
    assert_eq!(node.counts(id), [3]);
    assert!(!node.front.is_busy(id), "a node that stops waits for none");
    node.half_close(id);
    assert!(node.front.is_busy(id));
    assert!(node.is_open(id), "counts are owed");
    node.run_until_quiet();
    assert_eq!(node.counts(id), [2]);
    assert!(!node.is_open(id));
    let info = node.played.info("raw-1-1").unwrap();
    assert_eq!((info.end, info.finished), (7, true));
    assert!(node.resets.is_empty());
    assert_eq!(node.front.open_requests(), 0);
}

/// Bytes and a half-close that a client like `nc` sends before its stream is open take effect.
#[test]
fn what_came_before_the_stream_was_open_is_in_it() {
    for bytes in [&b""[..], b"abc"] {
        let mut node = Node::new();
        let id = node.at(ListenerKind::StreamsRaw);
        assert!(!node.front.accepts_input(id));
        node.send(id, bytes);
        node.half_close(id);
        assert_eq!(node.front.is_busy(id), bytes.is_empty());
        assert_eq!(node.left_over(id), bytes.len());
        node.run_until_quiet();
        let total: u32 = node.counts(id).iter().sum();
        assert_eq!(total as usize, bytes.len());
        let info = node.played.info("raw-1-1").unwrap();
        assert_eq!((info.end, info.finished), (bytes.len() as u64, true));
    }
}

#[test]
fn a_large_count_is_said_in_several_and_few_wait() {
    let mut node = Node::new();
    let id = connect(&mut node);
    let piece = piece(&node, "raw-1-1");
    let most = u64::from(u32::MAX);
    node.played.queue_event(Event::Durable(piece, 2 * most + 5));
    assert_eq!(node.counts(id), [u32::MAX, u32::MAX, 5]);
    node.played.queue_event(Event::Durable(piece, 3 * most + 5));
    assert_eq!(node.counts(id), [u32::MAX]);
    node.window(id, 0);
    node.played.queue_event(Event::Durable(piece, 1003 * most + 5));
    node.turn();
    assert!(node.front.output(id).len() <= 64);
    node.window(id, usize::MAX);
    let mut told = 0;
    while node.front.is_eager() || told == 0 {
        told += node.counts(id).len();
    }
    assert_eq!(told, 1000);
}

#[test]
fn numbers_go_on_behind_those_that_there_are() {
    let mut node = Node::new();
    let others = ["raw-1-7", "raw-1-x", "raw-1-99999999999", "raw-10-50", "raw-2-9"];
    for (number, name) in others.into_iter().enumerate() {
        made_elsewhere(&mut node.played, name, number as u32);
    }
    connect(&mut node);
    assert!(node.played.info("raw-1-8").is_some());
    // Two connections at the same time.
    let ids = [node.at(ListenerKind::StreamsRaw), node.at(ListenerKind::StreamsRaw)];
    node.run_until_quiet();
    assert!(ids.iter().all(|id| node.front.accepts_input(*id)));
    assert!(node.played.info("raw-1-9").is_some() && node.played.info("raw-1-10").is_some());

    // A restarted node that lags: names that it does not know are refused.
    node.front = StreamFront::default();
    let id = node.at(ListenerKind::StreamsRaw);
    for (name, number) in [("raw-1-11", 100), ("raw-1-14", 101)] {
        made_elsewhere(&mut node.played, name, number);
    }
    node.run_until_quiet();
    assert!(node.front.accepts_input(id));
    assert!(node.played.info("raw-1-15").is_some());
    assert!(node.resets.is_empty());
}

#[test]
fn a_client_is_not_read_while_there_is_no_room() {
    let mut node = Node::new();
    node.played.room = 10;
    let id = connect(&mut node);
    node.send(id, &[7; 25]);
    node.half_close(id);
    assert_eq!((node.played.undecided(), node.left_over(id)), (10, 15));
    assert!(!node.front.accepts_input(id));
    let mut told = 0;
    while node.is_open(id) {
        node.played.decide(4);
        node.run_until_quiet();
        told += node.counts(id).iter().sum::<u32>();
    }
    assert_eq!(told, 25);
    let info = node.played.info("raw-1-1").unwrap();
    assert_eq!((info.end, info.finished), (25, true));
    // Space left by other writers.
    let id = connect(&mut node);
    node.played.room = 0;
    node.send(id, b"abc");
    assert!(!node.front.accepts_input(id));
    node.played.room = 100;
    node.turn();
    assert_eq!((node.left_over(id), node.front.accepts_input(id)), (0, true));
}

#[test]
fn a_client_that_breaks_off_leaves_its_stream_open() {
    let mut node = Node::new();
    let id = connect(&mut node);
    node.send(id, b"abc");
    let written = piece(&node, "raw-1-1");
    node.hang_up(id);
    assert_eq!(node.played.abandoned, [written]);
    assert!(!node.played.info("raw-1-1").unwrap().finished);
    // The client disconnects before its stream is open.
    let id = node.at(ListenerKind::StreamsRaw);
    node.hang_up(id);
    node.run_until_quiet();
    assert_eq!(node.played.info("raw-1-2").unwrap().open_stream, None);
    // The client disconnects after its half-close: the close is carried out.
    let id = connect(&mut node);
    node.send(id, b"abc");
    node.half_close(id);
    node.hang_up(id);
    node.run_until_quiet();
    assert!(node.played.info("raw-1-3").unwrap().finished);
    assert_eq!((node.front.connections(), node.front.open_requests()), (0, 0));
}

#[test]
fn a_writer_whose_piece_is_ended_gets_no_more_counts() {
    for half_closed in [false, true] {
        let mut node = Node::new();
        let id = connect(&mut node);
        node.send(id, b"abcdef");
        node.played.decide(2);
        assert_eq!(node.counts(id), [2]);
        if half_closed {
            node.half_close(id);
        }
        node.played.take_over("raw-1-1", 5).unwrap();
        assert_eq!(node.counts(id), [0; 0]);
        assert!(!node.is_open(id));
        assert!(node.resets.is_empty());
        let info = node.played.info("raw-1-1").unwrap();
        assert_eq!((info.end, info.finished), (2, false));
        assert_eq!(node.front.open_requests(), 0);
    }
}

/// An error resets a raw connection, because the protocol has no error messages.
#[test]
fn what_goes_wrong_resets_the_connection() {
    // No stream can be opened.
    let mut node = Node::new();
    node.played.refuse = Some(Failure::NoQuorum);
    node.at(ListenerKind::StreamsRaw);
    node.turn();
    let expected = "cannot open a stream: no leader was found in time";
    assert_eq!(node.resets, [expected]);
    let mut node = Node::new();
    node.played.none = true;
    node.at(ListenerKind::StreamsRaw);
    node.turn();
    assert_eq!(node.resets.len(), 1);
    // The outcome of opening is unknown.
    let mut node = Node::new();
    node.at(ListenerKind::StreamsRaw);
    let tag = node.played.swallow().expect("the open");
    node.played.queue_event(Event::Failed(tag, Failure::Unknown));
    node.turn();
    let expected = "cannot open a stream: the outcome is unknown";
    assert_eq!(node.resets, [expected]);
    // A close fails, or its outcome is unknown.
    let mut node = Node::new();
    let id = connect(&mut node);
    node.send(id, b"abc");
    let written = piece(&node, "raw-1-1");
    node.played.refuse = Some(Failure::Stopping);
    node.half_close(id);
    assert_eq!(node.resets, ["cannot close the stream: the node is stopping"]);
    assert_eq!(node.played.abandoned, [written]);
    let mut node = Node::new();
    let id = connect(&mut node);
    node.half_close(id);
    let written = piece(&node, "raw-1-1");
    let tag = node.played.swallow().expect("the close");
    node.played.queue_event(Event::Failed(tag, Failure::NoQuorum));
    node.turn();
    assert_eq!(node.resets.len(), 1);
    assert_eq!(node.played.abandoned, [written]);
    assert_eq!((node.front.connections(), node.front.open_requests()), (0, 0));
}
