//! Tests of two front ends in one node.

use quorate_node::streams::{CombinedFront, StreamFront};
use quorate_replica::{
    front::{Completion, ConnectionId, Endpoints, Front, ListenerKind, Requests, State, Tag},
    stream_front::StreamEvent,
};
use quorate_wire::streams::ClientFrame;

use crate::node::Node;

/// A command front end that counts its notifications and answers each byte itself.
#[derive(Debug, Default)]
struct Echo {
    open: Vec<ConnectionId>,
    dirty: Vec<ConnectionId>,
    output: Vec<u8>,
    completed: usize,
    read: usize,
    noticed: usize,
    polled: usize,
    streamed: usize,
    eager: bool,
}

impl Front for Echo {
    fn handle_opened(&mut self, id: ConnectionId, ends: Endpoints, _: &mut dyn Requests) {
        assert_eq!(ends.door, ListenerKind::Commands);
        self.open.push(id);
    }

    fn receive_bytes(&mut self, id: ConnectionId, bytes: &[u8], _: &mut dyn Requests) -> usize {
        assert!(self.open.contains(&id));
        self.output.extend_from_slice(bytes);
        self.dirty.push(id);
        bytes.len()
    }

    fn accepts_input(&self, id: ConnectionId) -> bool {
        self.open.contains(&id)
    }

    fn handle_completion(&mut self, _: Completion<'_>, _: &mut dyn Requests) {
        self.completed += 1;
    }

    fn read_now(&mut self, _: Tag, _: &dyn State) {
        self.read += 1;
    }

    fn handle_stream_event(&mut self, _: StreamEvent<'_>, _: &mut dyn Requests) {
        self.streamed += 1;
    }

    fn deliver_notice(&mut self, _: &[u8], _: &[u8]) {
        self.noticed += 1;
    }

    fn next_dirty(&mut self) -> Option<ConnectionId> {
        self.dirty.pop()
    }

    fn output(&mut self, id: ConnectionId) -> &[u8] {
        assert!(self.open.contains(&id));
        &self.output
    }

    fn record_sent(&mut self, _: ConnectionId, count: usize) {
        self.output.drain(..count);
    }

    fn held_bytes(&self) -> usize {
        1000
    }

    fn held_bytes_of(&self, _: ConnectionId) -> usize {
        1000
    }

    fn should_close(&self, id: ConnectionId) -> bool {
        !self.open.contains(&id)
    }

    fn handle_closed(&mut self, id: ConnectionId, _: &mut dyn Requests) {
        assert!(self.open.contains(&id));
        self.open.retain(|open| *open != id);
    }

    fn is_busy(&self, _: ConnectionId) -> bool {
        true
    }

    fn open_requests(&self) -> usize {
        10
    }

    fn connections(&self) -> usize {
        self.open.len()
    }

    fn run_turn(&mut self, _: &mut dyn Requests) {
        self.polled += 1;
    }

    fn is_eager(&self) -> bool {
        self.eager
    }
}

#[test]
fn each_connection_goes_to_the_front_whose_door_it_came_through() {
    let mut node = Node::with(CombinedFront::new(Echo::default(), StreamFront::default()));
    let commands = node.at(ListenerKind::Commands);
    let raw = node.at(ListenerKind::StreamsRaw);
    node.run_until_quiet();
    node.send(commands, b"PING");
    assert_eq!(node.raw(commands), b"PING");
    let stream = node.writer("s", 1);
    node.send_request(stream, ClientFrame::Data(b"abc"));
    node.played.decide(usize::MAX);
    assert_eq!(node.take_answers(stream), ["Durable { position: 3 }"]);
    node.send(commands, b"PONG");
    assert_eq!(node.raw(commands), b"PONG");
    assert_eq!(node.front.command_front.streamed, 0);
    assert!(node.front.command_front.polled > 0);
    assert!(node.front.is_busy(commands) && !node.front.is_busy(stream));

    node.send(raw, b"raw");
    node.half_close(raw);
    node.run_until_quiet();
    assert_eq!(node.counts(raw), [3]);

    assert_eq!(node.front.connections(), 2);
    assert_eq!(
        (node.front.command_front.connections(), node.front.stream_front.connections()),
        (1, 1)
    );
    let held = node.front.stream_front.held_bytes();
    assert_eq!(node.front.held_bytes(), 1000 + held);
    assert_eq!(node.front.held_bytes_of(commands), 1000);
    assert_eq!(node.front.held_bytes_of(stream), held);
    node.send_request(stream, ClientFrame::Close { finish: true });
    assert_eq!(node.front.open_requests(), 10 + 1);
    node.run_until_quiet();
    assert_eq!(node.front.open_requests(), 10);

    node.hang_up(commands);
    assert!(node.front.should_close(commands) && !node.front.should_close(stream));
    node.hang_up(stream);
    assert_eq!(node.front.connections(), 0);
}

/// An answer goes to the requesting front end, even if tags of different kinds are equal.
#[test]
fn what_is_heard_goes_to_the_front_that_can_have_asked() {
    struct Nothing;
    impl State for Nothing {
        fn query(&self, _: &[u8], _: &mut Vec<u8>) -> Result<(), quorate_replica::front::Failure> {
            Ok(())
        }
    }
    let mut node = Node::with(CombinedFront::new(Echo::default(), StreamFront::default()));
    let id = node.client();
    node.send_request(id, ClientFrame::Stat { name: "s" });
    let tag = node.played.swallow().expect("the look");
    let Node { front, played, .. } = &mut node;
    front.handle_completion(Completion::Read(Tag(tag.0)), played);
    front.read_now(Tag(tag.0), &Nothing);
    front.deliver_notice(b"a", b"b");
    let echo = &front.command_front;
    assert_eq!((echo.completed, echo.read, echo.noticed), (1, 1, 1));
    assert_eq!(front.stream_front.open_requests(), 1, "it is not answered by that");
    front.handle_stream_event(StreamEvent::UpToDate(tag), played);
    assert_eq!(front.stream_front.open_requests(), 0);
    assert_eq!(front.command_front.streamed, 0);
    assert_eq!(node.take_answers(id), ["error unknown at 0"]);
}

#[test]
fn either_front_may_want_the_next_turn() {
    let mut node = Node::with(CombinedFront::new(Echo::default(), StreamFront::default()));
    assert!(!node.front.is_eager());
    node.front.command_front.eager = true;
    assert!(node.front.is_eager());
    node.front.command_front.eager = false;
    let id = node.at(ListenerKind::Streams);
    node.front.receive_bytes(id, b"GET", &mut node.played);
    assert!(node.front.is_eager(), "an error is to be sent");
}
