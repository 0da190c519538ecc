//! Test fixture: a front end, its fake replica and its clients' sockets, driven as by the reactor.

use std::collections::BTreeMap;

use quorate_access::Who;
use quorate_node::streams::StreamFront;
use quorate_replica::front::{ConnectionId, Endpoints, Front, InputDecision, ListenerKind};
use quorate_wire::streams::{
    ClientFrame, DecodedFrame, ErrorCode, NodeFrame, OpenMode, VERSION, decode_node_frame,
};

use crate::played::Played;

/// Maximum number of bytes that one read of a socket passes to a front.
const READ_BYTES: usize = 64 << 10;

/// The node's end of a client's socket.
#[derive(Debug, Default)]
struct Socket {
    /// Bytes that the client sent and the front has not consumed.
    input: Vec<u8>,
    /// Bytes that were sent to the client and the test has not read.
    output: Vec<u8>,
    /// The client has half-closed the connection.
    half_closed: bool,
    /// The front was notified of the client's half-close.
    half_close_reported: bool,
    /// Number of bytes that the client will accept now.
    window: usize,
}

/// A node with a front under test.
#[derive(Debug)]
pub(crate) struct Node<F> {
    pub(crate) front: F,
    pub(crate) played: Played,
    sockets: BTreeMap<ConnectionId, Socket>,
    /// Output to clients whose connections the node has closed.
    closed_output: BTreeMap<ConnectionId, Vec<u8>>,
    /// Reasons for which connections were reset.
    pub(crate) resets: Vec<String>,
    /// Number of bytes read directly into the store.
    pub(crate) filled: usize,
    last: u64,
}

impl Node<StreamFront> {
    pub(crate) fn new() -> Self {
        Self::with(StreamFront::default())
    }
}

impl<F: Front> Node<F> {
    pub(crate) fn with(front: F) -> Self {
        Self {
            front,
            played: Played::default(),
            sockets: BTreeMap::new(),
            closed_output: BTreeMap::new(),
            resets: Vec::new(),
            filled: 0,
            last: 0,
        }
    }

    /// Connects a client that sends nothing.
    pub(crate) fn stranger(&mut self) -> ConnectionId {
        self.at(ListenerKind::Streams)
    }

    /// Connects a client at a door.
    pub(crate) fn at(&mut self, door: ListenerKind) -> ConnectionId {
        self.at_as(door, Who::Anonymous)
    }

    /// Connects a client with a certificate.
    pub(crate) fn at_as(&mut self, door: ListenerKind, who: Who) -> ConnectionId {
        self.last += 1;
        let id = ConnectionId(self.last);
        let ends = Endpoints { door, identity: who, ..Endpoints::default() };
        let socket = Socket { window: usize::MAX, ..Socket::default() };
        self.sockets.insert(id, socket);
        self.front.handle_opened(id, ends, &mut self.played);
        id
    }

    /// Connects a client and sends its hello.
    pub(crate) fn client(&mut self) -> ConnectionId {
        let id = self.stranger();
        self.send_request(id, ClientFrame::Hello { version: VERSION });
        let heard = self.take_answers(id);
        assert!(heard[0].starts_with("Welcome"), "{heard:?}");
        id
    }

    /// Connects a client that writes a new stream.
    pub(crate) fn writer(&mut self, name: &str, writer: u128) -> ConnectionId {
        let id = self.client();
        self.send_request(id, ClientFrame::Open { mode: OpenMode::Create, writer, name });
        self.played.execute_all();
        assert_eq!(self.take_answers(id), ["Opened { position: 0 }"]);
        id
    }

    /// Creates a stream that contains these bytes and is closed permanently.
    pub(crate) fn stream(&mut self, name: &str, bytes: &[u8]) {
        let id = self.writer(name, 99);
        for part in bytes.chunks(64 << 10) {
            self.send_request(id, ClientFrame::Data(part));
            self.played.decide(usize::MAX);
            self.turn();
        }
        self.send_request(id, ClientFrame::Close { finish: true });
        self.run_until_quiet();
        let heard = self.take_answers(id);
        let closed = format!("Closed {{ position: {} }}", bytes.len());
        assert_eq!(heard.last(), Some(&closed));
        self.hang_up(id);
    }

    pub(crate) fn send_request(&mut self, id: ConnectionId, ask: ClientFrame<'_>) {
        let mut bytes = Vec::new();
        ask.encode(&mut bytes);
        self.send(id, &bytes);
    }

    pub(crate) fn send(&mut self, id: ConnectionId, bytes: &[u8]) {
        self.queue(id, bytes);
        self.turn();
    }

    /// Queues input without running a turn.
    pub(crate) fn queue(&mut self, id: ConnectionId, bytes: &[u8]) {
        let socket = self.sockets.get_mut(&id).expect("an open socket");
        socket.input.extend_from_slice(bytes);
    }

    pub(crate) fn raw(&mut self, id: ConnectionId) -> Vec<u8> {
        if let Some(output) = self.closed_output.remove(&id) {
            return output;
        }
        let socket = self.sockets.get_mut(&id).expect("an open socket");
        std::mem::take(&mut socket.output)
    }

    /// Returns the number of bytes that the client sent and the front did not consume.
    pub(crate) fn left_over(&self, id: ConnectionId) -> usize {
        self.sockets[&id].input.len()
    }

    /// Returns the counts received by the client of a raw connection.
    pub(crate) fn counts(&mut self, id: ConnectionId) -> Vec<u32> {
        self.turn();
        let raw = self.raw(id);
        let (counts, rest) = raw.as_chunks();
        assert!(rest.is_empty(), "half a count");
        counts.iter().map(|count| u32::from_le_bytes(*count)).collect()
    }

    /// Lets the client accept `bytes` more bytes in total.
    pub(crate) fn window(&mut self, id: ConnectionId, bytes: usize) {
        self.sockets.get_mut(&id).expect("an open socket").window = bytes;
    }

    pub(crate) fn half_close(&mut self, id: ConnectionId) {
        let socket = self.sockets.get_mut(&id).expect("an open socket");
        socket.half_closed = true;
        self.turn();
    }

    pub(crate) fn hang_up(&mut self, id: ConnectionId) {
        if self.sockets.remove(&id).is_some() {
            self.front.handle_closed(id, &mut self.played);
        }
    }

    pub(crate) fn is_open(&self, id: ConnectionId) -> bool {
        self.sockets.contains_key(&id) && !self.front.should_close(id)
    }

    /// Runs turns until nothing changes, without deciding anything.
    pub(crate) fn run_until_quiet(&mut self) {
        loop {
            self.played.execute_all();
            self.turn();
            if !self.played.is_asked() && !self.front.is_eager() {
                return;
            }
        }
    }

    /// Runs a turn of the reactor: input, the replica's events, output.
    pub(crate) fn turn(&mut self) {
        self.feed();
        self.front.run_turn(&mut self.played);
        while let Some(event) = self.played.next_event() {
            self.front.handle_stream_event(event.lent(), &mut self.played);
        }
        self.flush();
        self.feed();
        self.flush();
        self.part();
    }

    fn feed(&mut self) {
        for (id, socket) in &mut self.sockets {
            let mut is_left_over = false;
            while !socket.input.is_empty() && self.front.accepts_input(*id) {
                let mut most = socket.input.len();
                if !is_left_over {
                    let input = &mut socket.input;
                    let intake = self.front.read_input(*id, &mut self.played, &mut |room| {
                        let count = room.len().min(input.len());
                        room[..count].copy_from_slice(&input[..count]);
                        input.drain(..count);
                        self.filled += count;
                        count
                    });
                    match intake {
                        InputDecision::AlreadyRead => continue,
                        InputDecision::AtMost(bytes) => most = most.min(bytes).min(READ_BYTES),
                    }
                }
                let given = &socket.input[..most];
                let used = self.front.receive_bytes(*id, given, &mut self.played);
                is_left_over = used < most;
                socket.input.drain(..used);
                if used == 0 {
                    break;
                }
            }
            if socket.half_closed && socket.input.is_empty() && !socket.half_close_reported {
                socket.half_close_reported = true;
                self.front.half_closed(*id, &mut self.played);
            }
        }
    }

    fn flush(&mut self) {
        let mut dirty: Vec<ConnectionId> = Vec::new();
        while let Some(id) = self.front.next_dirty() {
            dirty.push(id);
        }
        // A full socket is written again when it has space.
        dirty.extend(self.sockets.keys());
        dirty.sort();
        dirty.dedup();
        for id in dirty {
            let Some(socket) = self.sockets.get_mut(&id) else {
                continue;
            };
            loop {
                let output = self.front.output(id);
                let count = output.len().min(socket.window);
                if count == 0 {
                    break;
                }
                socket.output.extend_from_slice(&output[..count]);
                if socket.window != usize::MAX {
                    socket.window -= count;
                }
                self.front.record_sent(id, count);
            }
        }
    }

    fn part(&mut self) {
        for id in self.sockets.keys().copied().collect::<Vec<_>>() {
            if let Some(why) = self.front.reset_reason(id).map(str::to_owned) {
                assert!(self.front.should_close(id) && self.front.output(id).is_empty());
                self.resets.push(why);
                self.hang_up(id);
            }
        }
        let front = &mut self.front;
        let gone = |(id, socket): (&ConnectionId, &Socket)| {
            let idle = front.accepts_input(*id) && !front.is_busy(*id) && socket.input.is_empty();
            let silent = front.output(*id).is_empty();
            (socket.half_closed && idle && silent).then_some(*id)
        };
        let gone: Vec<ConnectionId> = self.sockets.iter().filter_map(gone).collect();
        for id in gone {
            let socket = self.sockets.get_mut(&id).expect("just looked at");
            self.closed_output.insert(id, std::mem::take(&mut socket.output));
            self.hang_up(id);
        }
    }

    /// Returns the client's answers since the last call, as far as their frames are complete.
    /// Stream bytes are shown as their number.
    pub(crate) fn take_answers(&mut self, id: ConnectionId) -> Vec<String> {
        self.turn();
        self.take_answers_now(id)
    }

    /// Like `take_answers`, but without running a turn.
    pub(crate) fn take_answers_now(&mut self, id: ConnectionId) -> Vec<String> {
        let mut heard = Vec::new();
        self.frames(id, |answer| {
            heard.push(match answer {
                NodeFrame::Bytes { position, bytes } => {
                    format!("{} bytes from {position}", bytes.len())
                }
                NodeFrame::Error { code, position, .. } => {
                    let code = ErrorCode::from_number(code).expect("a code of this version");
                    format!("error {code} at {position}")
                }
                NodeFrame::Info(info) => format!(
                    "{} [{}, {}) {} {}",
                    info.name,
                    info.start,
                    info.next_position,
                    if info.finished { "finished" } else { "open" },
                    info.open_stream.map_or_else(String::new, |by| format!("written {}", by.owner)),
                ),
                other => format!("{other:?}"),
            });
        });
        heard
    }

    /// Returns the stream bytes that a client received from a position, and its read's outcome.
    pub(crate) fn got(&mut self, id: ConnectionId, from: u64) -> (Vec<u8>, Vec<String>) {
        self.turn();
        let (mut got, mut rest) = (Vec::new(), Vec::new());
        self.frames(id, |answer| match answer {
            NodeFrame::Bytes { position, bytes } => {
                assert_eq!(position, from + got.len() as u64, "a gap");
                got.extend_from_slice(bytes);
            }
            other => rest.push(format!("{other:?}")),
        });
        (got, rest)
    }

    fn frames(&mut self, id: ConnectionId, mut each: impl FnMut(NodeFrame<'_>)) {
        let Some(socket) = self.sockets.get_mut(&id) else {
            return;
        };
        let mut used = 0;
        while let DecodedFrame::Frame(answer, bytes) =
            decode_node_frame(&socket.output[used..]).expect("a frame of the node")
        {
            each(answer);
            used += bytes;
        }
        socket.output.drain(..used);
    }
}
