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
    shared::{Cx, Owner, Shared},
};

/// Maximum number of counts queued for one client.
const COUNTS_MAX: usize = 16;

/// A connection to the raw port, with the stream that it writes.
#[derive(Debug)]
pub(crate) struct Raw {
    id: ConnectionId,
    login: Login,
    step: RawState,
    output: Vec<u8>,
    /// All bytes of the stream before this position are durable.
    durable: u64,
    /// Durable position that the client was last sent.
    last_sent_position: u64,
    /// The client has half-closed the connection.
    is_half_closed: bool,
    is_marked: bool,
}

/// Progress of a raw connection's stream.
#[derive(Debug)]
enum RawState {
    Opening(StreamTag),
    Writing {
        piece: StreamName,
        /// The replica had no space for the next bytes.
        full: bool,
    },
    Closing(StreamTag, StreamName),
    /// The last counts are queued, and nothing follows them.
    Over,
    /// Nothing more is sent. The connection will be reset for this reason.
    Broken(String),
}

impl Raw {
    pub(crate) fn open(id: ConnectionId, who: Who, cx: &mut Cx<'_>) -> Self {
        let mut raw = Self {
            id,
            login: Login::new(who),
            step: RawState::Over,
            output: Vec::new(),
            durable: 0,
            last_sent_position: 0,
            is_half_closed: false,
            is_marked: false,
        };
        raw.create(cx);
        raw
    }

    /// Creates a stream under the first name that this node knows to be free.
    fn create(&mut self, cx: &mut Cx<'_>) {
        if let Err(refusal) = cx.check_role(&self.login, Role::Writer) {
            self.step = RawState::Broken(refusal.detail().to_owned());
            return;
        }
        self.step = match self.request_open(cx) {
            Ok(tag) => RawState::Opening(tag),
            Err(failure) => failed("open a stream", failure),
        };
    }

    fn request_open(&self, cx: &mut Cx<'_>) -> Result<StreamTag, Failure> {
        let own = cx.requests.status().member.node.0;
        let number = next_number(own, cx)?;
        let name = name_of(own, number);
        // The writer id is used only once, and differs from any other stream of this name.
        let moment = u128::from(cx.requests.wall_ms());
        let client = u128::from(self.id.0 & u64::from(u32::MAX));
        let writer = u128::from(own) << 96 | moment << 32 | client;
        cx.make_request(Owner::Connection(self.id), |streams, tag| {
            streams.open(tag, &name, OpenMode::Create, Writer(writer))
        })
    }

    /// Stores bytes while there is space. Returns the number of bytes consumed.
    pub(crate) fn receive(&mut self, bytes: &[u8], cx: &mut Cx<'_>) -> usize {
        if let RawState::Writing { piece, .. } = self.step
            && let Err(refusal) = cx.check_role(&self.login, Role::Writer)
        {
            cx.abandon(piece);
            self.step = RawState::Broken(refusal.detail().to_owned());
            return bytes.len();
        }
        match &mut self.step {
            RawState::Opening(_) => 0,
            RawState::Writing { piece, full } => {
                let taken = cx.streams().map_or(0, |streams| {
                    let room = streams.available_bytes(*piece).min(bytes.len());
                    streams.put_bytes(*piece, &bytes[..room])
                });
                if taken < bytes.len() {
                    *full = true;
                    cx.shared.full.insert(self.id);
                }
                taken
            }
            // The stream is over, so the input is ignored.
            RawState::Closing(..) | RawState::Over | RawState::Broken(_) => bytes.len(),
        }
    }

    pub(crate) const fn ready(&self) -> bool {
        match &self.step {
            RawState::Opening(_) => false,
            RawState::Writing { full, .. } => !*full,
            RawState::Closing(..) | RawState::Over | RawState::Broken(_) => true,
        }
    }

    /// Closes the stream once the client has half-closed it and all its bytes are stored.
    pub(crate) fn half_closed(&mut self, cx: &mut Cx<'_>) {
        self.is_half_closed = true;
        let RawState::Writing { piece, .. } = self.step else {
            return;
        };
        let owner = Owner::Connection(self.id);
        self.step = match cx.make_request(owner, |streams, tag| streams.close(tag, piece, true)) {
            Ok(tag) => RawState::Closing(tag, piece),
            Err(failure) => {
                cx.abandon(piece);
                failed("close the stream", failure)
            }
        };
    }

    pub(crate) fn answered(&mut self, tag: StreamTag, event: StreamEvent<'_>, cx: &mut Cx<'_>) {
        match self.step {
            RawState::Opening(asked) if asked == tag => self.opened(event, cx),
            RawState::Closing(asked, piece) if asked == tag => {
                self.handle_closed_piece(piece, event, cx)
            }
            // The answer belongs to an abandoned request.
            _ => {}
        }
    }

    fn opened(&mut self, event: StreamEvent<'_>, cx: &mut Cx<'_>) {
        match event {
            StreamEvent::Done(_, StreamOutcome::Opened { stream, at }) => {
                cx.shared.pieces.insert(stream, self.id);
                (self.durable, self.last_sent_position) = (at, at);
                self.step = RawState::Writing { piece: stream, full: false };
                if self.is_half_closed {
                    self.half_closed(cx);
                }
            }
            // The name is taken: this node lagged, or another connection was faster. It now knows
            // the name.
            StreamEvent::Refused(_, Denied::Exists) => self.create(cx),
            StreamEvent::Refused(_, denied) => self.step = RawState::Broken(denied.to_string()),
            StreamEvent::Failed(_, failure) => self.step = failed("open a stream", failure),
            _ => self.step = failed("open a stream", Failure::Unknown),
        }
    }

    fn handle_closed_piece(&mut self, piece: StreamName, event: StreamEvent<'_>, cx: &mut Cx<'_>) {
        cx.shared.pieces.remove(&piece);
        self.step = match event {
            StreamEvent::Done(_, StreamOutcome::Closed { at }) => {
                self.durable = self.durable.max(at);
                RawState::Over
            }
            StreamEvent::Refused(_, denied) => RawState::Broken(denied.to_string()),
            other => {
                cx.abandon(piece);
                let failure = match other {
                    StreamEvent::Failed(_, failure) => failure,
                    _ => Failure::Unknown,
                };
                failed("close the stream", failure)
            }
        };
    }

    /// Records that all bytes before `position` are durable.
    pub(crate) fn durable(&mut self, position: u64, cx: &mut Cx<'_>) {
        self.durable = self.durable.max(position);
        self.look_for_room(cx);
    }

    /// Handles the end of the piece by another writer or an operator. The client receives no more
    /// counts.
    pub(crate) fn ended(&mut self, cx: &mut Cx<'_>) {
        let piece = match self.step {
            RawState::Writing { piece, .. } => piece,
            RawState::Closing(tag, piece) => {
                cx.drop_request(tag);
                piece
            }
            RawState::Opening(_) | RawState::Over | RawState::Broken(_) => return,
        };
        cx.shared.pieces.remove(&piece);
        self.last_sent_position = self.durable;
        self.step = RawState::Over;
    }

    pub(crate) fn look_for_room(&mut self, cx: &mut Cx<'_>) -> usize {
        let RawState::Writing { piece, full } = &mut self.step else {
            return 0;
        };
        if !*full {
            return 0;
        }
        let room = cx.streams().map_or(0, |streams| streams.available_bytes(*piece));
        *full = room == 0;
        room
    }

    pub(crate) const fn is_full(&self) -> bool {
        matches!(self.step, RawState::Writing { full: true, .. })
    }

    /// Returns the bytes to send. Bytes that become durable before a count is sent are combined in
    /// the next count, so few counts are queued however slow the client is.
    pub(crate) fn output(&mut self) -> &[u8] {
        if self.output.is_empty() {
            for _ in 0..COUNTS_MAX {
                let count =
                    u32::try_from(self.durable - self.last_sent_position).unwrap_or(u32::MAX);
                if count == 0 || self.is_broken() {
                    break;
                }
                self.output.extend_from_slice(&count.to_le_bytes());
                self.last_sent_position += u64::from(count);
            }
        }
        &self.output
    }

    pub(crate) fn sent(&mut self, count: usize, shared: &mut Shared) {
        self.output.drain(..count);
        self.notify_reactor(shared);
    }

    fn is_owed(&self) -> bool {
        !self.is_broken() && (self.last_sent_position < self.durable || !self.output.is_empty())
    }

    const fn is_broken(&self) -> bool {
        matches!(self.step, RawState::Broken(_))
    }

    pub(crate) fn broken(&self) -> Option<&str> {
        match &self.step {
            RawState::Broken(why) => Some(why),
            _ => None,
        }
    }

    pub(crate) fn closing(&self) -> bool {
        match self.step {
            RawState::Over => self.last_sent_position == self.durable,
            RawState::Broken(_) => true,
            RawState::Opening(_) | RawState::Writing { .. } | RawState::Closing(..) => false,
        }
    }

    /// Returns whether a client that has ended its stream still awaits a response.
    pub(crate) fn is_busy(&self) -> bool {
        match self.step {
            RawState::Opening(_) | RawState::Writing { .. } => self.is_half_closed,
            RawState::Closing(..) => true,
            RawState::Over => self.is_owed(),
            RawState::Broken(_) => false,
        }
    }

    /// Notifies the reactor of output or that the connection has ended.
    pub(crate) fn notify_reactor(&mut self, shared: &mut Shared) {
        if self.is_broken() {
            self.output.clear();
        }
        if !self.is_marked && (self.is_owed() || self.closing()) {
            self.is_marked = true;
            shared.dirty.push_back(self.id);
        }
    }

    pub(crate) const fn unmark(&mut self) {
        self.is_marked = false;
    }

    /// Handles a disconnect. Bytes already received may still be decided. The stream stays open
    /// unless its close was requested.
    pub(crate) fn let_go(&mut self, cx: &mut Cx<'_>) {
        match std::mem::replace(&mut self.step, RawState::Over) {
            RawState::Opening(tag) => cx.reassign_request(tag, Owner::Opening),
            RawState::Writing { piece, .. } => cx.abandon(piece),
            RawState::Closing(tag, piece) => {
                cx.shared.pieces.remove(&piece);
                cx.reassign_request(tag, Owner::Closing(piece));
            }
            RawState::Over | RawState::Broken(_) => {}
        }
    }
}

fn failed(what: &str, failure: Failure) -> RawState {
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

fn name_of(own: u32, number: u64) -> Name {
    let name = format!("raw-{own}-{number}");
    name.parse().expect("letters, digits and dashes")
}

/// Returns a number above all numbers that this node has used, according to its table of streams
/// and the numbers assigned by this process.
fn next_number(own: u32, cx: &mut Cx<'_>) -> Result<u64, Failure> {
    let prefix = format!("raw-{own}-");
    let first: Name = prefix.parse().expect("letters, digits and dashes");
    let mut next = 1;
    cx.streams()?.visit_infos(Some(&first), &mut |info| {
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
