//! Connection to the raw port, which receives stream bytes and sends counts of newly durable bytes,
//! as in the prototype of Zero-Copy Paxos.
//!
//! The stream is created when the client connects, and closed permanently when the client
//! half-closes the connection. The protocol can express nothing but counts, so an error resets the
//! connection, and its reason appears in the node's log.

use quorate_access::{Role, Who};
use quorate_core::value::StreamName;
use quorate_replica::{
    front::{ConnectionId, Failure},
    stream_front::{StreamEvent, StreamTag},
};
use quorate_stream::{Denied, Name, OpenMode, StreamOutcome, Writer};

use crate::streams::{
    access::Login,
    shared::{Cx, FrontState, RequestOwner},
};

/// Maximum number of counts queued for one client.
const QUEUED_COUNTS_MAX: usize = 16;

/// A connection to the raw port, with the stream that it writes.
#[derive(Debug)]
pub(crate) struct RawConnection {
    id: ConnectionId,
    login: Login,
    state: RawState,
    output: Vec<u8>,
    /// All bytes of the stream before this position are durable.
    durable_to: u64,
    /// Durable position that the client was last sent.
    last_sent_position: u64,
    /// The client has half-closed the connection.
    is_half_closed: bool,
    is_dirty: bool,
}

/// Progress of a raw connection's stream.
#[derive(Debug)]
enum RawState {
    Opening(StreamTag),
    Writing {
        piece: StreamName,
        /// The replica had no space for the next bytes.
        is_out_of_space: bool,
    },
    Closing(StreamTag, StreamName),
    /// The last counts are queued, and nothing follows them.
    Finished,
    /// Nothing more is sent. The connection will be reset for this reason.
    Broken(String),
}

impl RawConnection {
    pub(crate) fn open(id: ConnectionId, who: Who, cx: &mut Cx<'_>) -> Self {
        let mut raw = Self {
            id,
            login: Login::new(who),
            state: RawState::Finished,
            output: Vec::new(),
            durable_to: 0,
            last_sent_position: 0,
            is_half_closed: false,
            is_dirty: false,
        };
        raw.create_stream(cx);
        raw
    }

    /// Creates a stream under the first name that this node knows to be free.
    fn create_stream(&mut self, cx: &mut Cx<'_>) {
        if let Err(refusal) = cx.check_role(&self.login, Role::Writer) {
            self.state = RawState::Broken(refusal.detail().to_owned());
            return;
        }
        self.state = match self.request_open(cx) {
            Ok(tag) => RawState::Opening(tag),
            Err(failure) => broken_state("open a stream", failure),
        };
    }

    fn request_open(&self, cx: &mut Cx<'_>) -> Result<StreamTag, Failure> {
        let own = cx.requests.status().member.node.0;
        let number = next_number(own, cx)?;
        let name = stream_name(own, number);
        // The writer id is used only once, and differs from any other stream of this name.
        let moment = u128::from(cx.requests.wall_ms());
        let client = u128::from(self.id.0 & u64::from(u32::MAX));
        let writer = u128::from(own) << 96 | moment << 32 | client;
        cx.make_request(RequestOwner::Connection(self.id), |streams, tag| {
            streams.open(tag, &name, OpenMode::Create, Writer(writer))
        })
    }

    /// Stores bytes while there is space. Returns the number of bytes consumed.
    pub(crate) fn receive(&mut self, bytes: &[u8], cx: &mut Cx<'_>) -> usize {
        if let RawState::Writing { piece, .. } = self.state
            && let Err(refusal) = cx.check_role(&self.login, Role::Writer)
        {
            cx.abandon_piece(piece);
            self.state = RawState::Broken(refusal.detail().to_owned());
            return bytes.len();
        }
        match &mut self.state {
            RawState::Opening(_) => 0,
            RawState::Writing { piece, is_out_of_space: full } => {
                let taken = cx.stream_requests().map_or(0, |streams| {
                    let room = streams.available_bytes(*piece).min(bytes.len());
                    streams.put_bytes(*piece, &bytes[..room])
                });
                if taken < bytes.len() {
                    *full = true;
                    cx.shared.waiting_writers.insert(self.id);
                }
                taken
            }
            // The stream is over, so the input is ignored.
            RawState::Closing(..) | RawState::Finished | RawState::Broken(_) => bytes.len(),
        }
    }

    pub(crate) const fn accepts_input(&self) -> bool {
        match &self.state {
            RawState::Opening(_) => false,
            RawState::Writing { is_out_of_space: full, .. } => !*full,
            RawState::Closing(..) | RawState::Finished | RawState::Broken(_) => true,
        }
    }

    /// Closes the stream once the client has half-closed it and all its bytes are stored.
    pub(crate) fn on_half_close(&mut self, cx: &mut Cx<'_>) {
        self.is_half_closed = true;
        let RawState::Writing { piece, .. } = self.state else {
            return;
        };
        let owner = RequestOwner::Connection(self.id);
        self.state = match cx.make_request(owner, |streams, tag| streams.close(tag, piece, true)) {
            Ok(tag) => RawState::Closing(tag, piece),
            Err(failure) => {
                cx.abandon_piece(piece);
                broken_state("close the stream", failure)
            }
        };
    }

    pub(crate) fn on_stream_event(
        &mut self,
        tag: StreamTag,
        event: StreamEvent<'_>,
        cx: &mut Cx<'_>,
    ) {
        match self.state {
            RawState::Opening(asked) if asked == tag => self.on_opened(event, cx),
            RawState::Closing(asked, piece) if asked == tag => {
                self.handle_closed_piece(piece, event, cx)
            }
            // The answer belongs to an abandoned request.
            _ => {}
        }
    }

    fn on_opened(&mut self, event: StreamEvent<'_>, cx: &mut Cx<'_>) {
        match event {
            StreamEvent::Executed(_, StreamOutcome::Opened { stream, start_position: at }) => {
                cx.shared.piece_writers.insert(stream, self.id);
                (self.durable_to, self.last_sent_position) = (at, at);
                self.state = RawState::Writing { piece: stream, is_out_of_space: false };
                if self.is_half_closed {
                    self.on_half_close(cx);
                }
            }
            // The name is taken: this node lagged, or another connection was faster. It now knows
            // the name.
            StreamEvent::Refused(_, Denied::Exists) => self.create_stream(cx),
            StreamEvent::Refused(_, denied) => self.state = RawState::Broken(denied.to_string()),
            StreamEvent::Failed(_, failure) => self.state = broken_state("open a stream", failure),
            _ => self.state = broken_state("open a stream", Failure::Unknown),
        }
    }

    fn handle_closed_piece(&mut self, piece: StreamName, event: StreamEvent<'_>, cx: &mut Cx<'_>) {
        cx.shared.piece_writers.remove(&piece);
        self.state = match event {
            StreamEvent::Executed(_, StreamOutcome::Closed { end_position: at }) => {
                self.durable_to = self.durable_to.max(at);
                RawState::Finished
            }
            StreamEvent::Refused(_, denied) => RawState::Broken(denied.to_string()),
            other => {
                cx.abandon_piece(piece);
                let failure = match other {
                    StreamEvent::Failed(_, failure) => failure,
                    _ => Failure::Unknown,
                };
                broken_state("close the stream", failure)
            }
        };
    }

    /// Records that all bytes before `position` are durable.
    pub(crate) fn on_durable(&mut self, position: u64, cx: &mut Cx<'_>) {
        self.durable_to = self.durable_to.max(position);
        self.regained_space(cx);
    }

    /// Called when another writer or an operator has ended the piece that this client writes. The
    /// client receives no more counts.
    pub(crate) fn on_piece_ended(&mut self, cx: &mut Cx<'_>) {
        let piece = match self.state {
            RawState::Writing { piece, .. } => piece,
            RawState::Closing(tag, piece) => {
                cx.drop_request(tag);
                piece
            }
            RawState::Opening(_) | RawState::Finished | RawState::Broken(_) => return,
        };
        cx.shared.piece_writers.remove(&piece);
        self.last_sent_position = self.durable_to;
        self.state = RawState::Finished;
    }

    pub(crate) fn regained_space(&mut self, cx: &mut Cx<'_>) -> usize {
        let RawState::Writing { piece, is_out_of_space: full } = &mut self.state else {
            return 0;
        };
        if !*full {
            return 0;
        }
        let room = cx.stream_requests().map_or(0, |streams| streams.available_bytes(*piece));
        *full = room == 0;
        room
    }

    pub(crate) const fn is_full(&self) -> bool {
        matches!(self.state, RawState::Writing { is_out_of_space: true, .. })
    }

    /// Returns the bytes to send. Bytes that become durable before a count is sent are combined in
    /// the next count, so few counts are queued however slow the client is.
    pub(crate) fn output(&mut self) -> &[u8] {
        if self.output.is_empty() {
            for _ in 0..QUEUED_COUNTS_MAX {
                let count =
                    u32::try_from(self.durable_to - self.last_sent_position).unwrap_or(u32::MAX);
                if count == 0 || self.is_broken() {
                    break;
                }
                self.output.extend_from_slice(&count.to_le_bytes());
                self.last_sent_position += u64::from(count);
            }
        }
        &self.output
    }

    pub(crate) fn record_sent(&mut self, count: usize, shared: &mut FrontState) {
        self.output.drain(..count);
        self.notify_reactor(shared);
    }

    fn owes_count(&self) -> bool {
        !self.is_broken() && (self.last_sent_position < self.durable_to || !self.output.is_empty())
    }

    const fn is_broken(&self) -> bool {
        matches!(self.state, RawState::Broken(_))
    }

    pub(crate) fn reset_reason(&self) -> Option<&str> {
        match &self.state {
            RawState::Broken(why) => Some(why),
            _ => None,
        }
    }

    pub(crate) fn should_close(&self) -> bool {
        match self.state {
            RawState::Finished => self.last_sent_position == self.durable_to,
            RawState::Broken(_) => true,
            RawState::Opening(_) | RawState::Writing { .. } | RawState::Closing(..) => false,
        }
    }

    /// Returns whether a client that has ended its stream still awaits a response.
    pub(crate) fn is_busy(&self) -> bool {
        match self.state {
            RawState::Opening(_) | RawState::Writing { .. } => self.is_half_closed,
            RawState::Closing(..) => true,
            RawState::Finished => self.owes_count(),
            RawState::Broken(_) => false,
        }
    }

    /// Notifies the reactor of output or that the connection has ended.
    pub(crate) fn notify_reactor(&mut self, shared: &mut FrontState) {
        if self.is_broken() {
            self.output.clear();
        }
        if !self.is_dirty && (self.owes_count() || self.should_close()) {
            self.is_dirty = true;
            shared.dirty_connections.push_back(self.id);
        }
    }

    pub(crate) const fn clear_dirty(&mut self) {
        self.is_dirty = false;
    }

    /// Handles a disconnect. Bytes already received may still be decided. The stream stays open
    /// unless its close was requested.
    pub(crate) fn on_disconnect(&mut self, cx: &mut Cx<'_>) {
        match std::mem::replace(&mut self.state, RawState::Finished) {
            RawState::Opening(tag) => cx.reassign_request(tag, RequestOwner::AbandonedOpen),
            RawState::Writing { piece, .. } => cx.abandon_piece(piece),
            RawState::Closing(tag, piece) => {
                cx.shared.piece_writers.remove(&piece);
                cx.reassign_request(tag, RequestOwner::AbandonedClose(piece));
            }
            RawState::Finished | RawState::Broken(_) => {}
        }
    }
}

fn broken_state(what: &str, failure: Failure) -> RawState {
    let why = match failure {
        Failure::NoQuorum => "no leader was found in time",
        Failure::Stopping => "the node is stopping",
        Failure::Removed => "this node was removed from the cluster",
        Failure::Voteless => "this node cannot vote",
        Failure::Unavailable => "this node cannot serve byte streams at the moment",
        Failure::DiskFull(_) => "a disk is full",
        Failure::Diverged => "this node and others have different data: docs/operate/divergence.md",
        Failure::Busy | Failure::Stale | Failure::Overtaken => "the node is overloaded",
        Failure::Level => "it needs a feature level that the cluster does not use yet",
        Failure::Unknown
        | Failure::NotLasting
        | Failure::TooBig
        | Failure::NoSession
        | Failure::ReplyForgotten
        | Failure::SessionFull => "the outcome is unknown",
    };
    RawState::Broken(format!("cannot {what}: {why}"))
}

fn stream_name(own: u32, number: u64) -> Name {
    let name = format!("raw-{own}-{number}");
    name.parse().expect("letters, digits and dashes")
}

/// Returns a number above all numbers that this node has used, according to its table of streams
/// and the numbers assigned by this process.
fn next_number(own: u32, cx: &mut Cx<'_>) -> Result<u64, Failure> {
    let prefix = format!("raw-{own}-");
    let first: Name = prefix.parse().expect("letters, digits and dashes");
    let mut next = 1;
    cx.stream_requests()?.visit_infos(Some(&first), &mut |info| {
        let Some(rest) = info.name.as_str().strip_prefix(&prefix) else {
            return false;
        };
        // Users may choose such names, even one with the highest number.
        let number = rest.parse::<u32>().ok().map(u64::from);
        next = number.map_or(next, |number| next.max(number + 1));
        true
    });
    // Other streams may be requested but not exist yet.
    let number = next.max(cx.shared.next_raw_number);
    cx.shared.next_raw_number = number + 1;
    Ok(number)
}
