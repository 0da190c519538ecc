//! One client connection: its pending request and its output.
//!
//! Input is handled in `input`, the client's login in `login`, and events of the replica in
//! `events`. All of them change the connection's [`ConnectionState`].

mod events;
mod input;
mod login;
mod output;

use quorate_access::{Claim, Who};
use quorate_core::value::StreamName;
use quorate_replica::{front::ConnectionId, stream_front::StreamTag};
use quorate_stream::Name;
use quorate_wire::streams::NodeFrame;

use self::output::Output;
use crate::streams::{
    access::Login,
    reading::{ClientRead, FETCH_BYTES_MAX},
    refusal::Refusal,
    shared::{Cx, FrontState, RequestOwner},
};

/// Maximum number of stream bytes read ahead for one client or waiting to be sent to it. It allows
/// several reads from the disk while others are sent.
pub const OUTPUT_BYTES_MAX: usize = 4 * FETCH_BYTES_MAX;
/// Reduced maximums for stream bytes per client and for bytes per read, in this order. They apply
/// while all connections together use more than [`HELD_BYTES_FULL_LIMITS`].
const REDUCED_LIMITS: (usize, usize) = (256 << 10, 128 << 10);
/// Further reduced maximums while all connections use more than [`HELD_BYTES_REDUCED_LIMITS`].
const MINIMAL_LIMITS: (usize, usize) = (16 << 10, 16 << 10);
/// Memory of all connections, in bytes, up to which readers get the full maximum.
const HELD_BYTES_FULL_LIMITS: usize = 64 << 20;
/// Memory of all connections, in bytes, above which each reader gets only a little.
const HELD_BYTES_REDUCED_LIMITS: usize = 128 << 20;
/// Number of unsent bytes up to which more entries of a list are queued.
const LIST_BYTES_SOFT: usize = 32 << 10;
/// Maximum number of bytes of output buffers that a connection retains while it has no output.
const IDLE_BYTES_MAX: usize = 128;

/// A client connection in the framed protocol.
#[derive(Debug)]
pub(crate) struct Connection {
    id: ConnectionId,
    /// Identity of the client. It is boxed to keep the connection small, because there may be many.
    login: Box<Login>,
    state: ConnectionState,
    output: Output,
    /// Number of bytes of the current data frame that have not arrived yet.
    data_bytes_left: usize,
    /// The last data frame was long, so the next one is likely to be long as well.
    expects_long_frame: bool,
    /// Input was left unconsumed because a response must be sent first.
    has_unconsumed_input: bool,
    /// No more input is accepted, and the connection closes once all output has been sent.
    is_ending: bool,
    is_dirty: bool,
    /// The connection is in the list of connections that can request more bytes.
    is_queued_to_fetch: bool,
    /// Memory that the accounting currently includes for this connection, in bytes.
    accounted_bytes: usize,
}

/// Request that a connection is handling, if any.
#[derive(Debug)]
enum ConnectionState {
    /// The client has not sent a hello yet.
    AwaitingHello,
    /// Waiting for the client's next request.
    Idle {
        /// The piece that this client was writing was ended by another writer or an operator. Data
        /// that the client sent before it learned of the end may still arrive.
        piece_ended: bool,
    },
    /// Waiting for the verdict on the password check with this ticket.
    CheckingPassword(u64, Box<Claim>),
    /// Waiting for the replica's answer to one request.
    AwaitingReplica(StreamTag, PendingRequest),
    Writing(PieceWriter),
    Reading(Box<ClientRead>),
    /// Listing the streams whose names follow this one.
    Listing(Option<Name>),
}

/// Request whose answer a connection is waiting for.
#[derive(Debug)]
enum PendingRequest {
    Open,
    Trim,
    Remove,
    Retain(Name),
    Stat(Name),
    List(Option<Name>),
}

/// A piece that the client is writing.
#[derive(Debug)]
struct PieceWriter {
    piece: StreamName,
    /// All bytes of the stream before this position are durable.
    durable_to: u64,
    /// The durable position has not been sent to the client yet.
    has_unsent_durable: bool,
    /// The replica had no space for the next bytes.
    is_out_of_space: bool,
    /// Tag of the request to close the piece, while it is in flight.
    close_tag: Option<StreamTag>,
}

impl Connection {
    pub(crate) fn new(id: ConnectionId, who: Who) -> Self {
        Self {
            id,
            login: Box::new(Login::new(who)),
            state: ConnectionState::AwaitingHello,
            output: Output::default(),
            data_bytes_left: 0,
            expects_long_frame: false,
            has_unconsumed_input: false,
            is_ending: false,
            is_dirty: false,
            is_queued_to_fetch: false,
            accounted_bytes: 0,
        }
    }

    pub(crate) const fn accepts_input(&self) -> bool {
        match &self.state {
            _ if self.is_ending || self.has_unconsumed_input => false,
            ConnectionState::Writing(writing) => !writing.is_out_of_space,
            _ => true,
        }
    }

    pub(crate) const fn should_close(&self) -> bool {
        self.is_ending
    }

    /// Returns whether the client awaits a response. A writer that half-closes without closing its
    /// piece has given up, and a caught-up follower may wait indefinitely, so neither counts.
    pub(crate) fn is_busy(&self) -> bool {
        match &self.state {
            ConnectionState::AwaitingHello | ConnectionState::Idle { .. } => false,
            ConnectionState::CheckingPassword(..)
            | ConnectionState::AwaitingReplica(..)
            | ConnectionState::Listing(_) => true,
            ConnectionState::Writing(writing) => writing.close_tag.is_some(),
            ConnectionState::Reading(reading) => !reading.is_waiting(),
        }
    }

    /// Returns the bytes to send. A new durable position is added only once the previous one has
    /// been sent, so at most one is queued however slow the client is.
    pub(crate) fn output(&mut self) -> &[u8] {
        if self.output.is_empty()
            && let ConnectionState::Writing(writing) = &mut self.state
            && std::mem::take(&mut writing.has_unsent_durable)
        {
            let position = writing.durable_to;
            self.output.queue_answer(&NodeFrame::Durable { position });
        }
        self.output.next_bytes()
    }

    const fn has_output(&self) -> bool {
        match &self.state {
            ConnectionState::Writing(writing) if writing.has_unsent_durable => true,
            _ => !self.output.is_empty(),
        }
    }

    pub(crate) fn record_sent(&mut self, count: usize, shared: &mut FrontState) {
        self.output.consume(count);
        let room = match &self.state {
            ConnectionState::Reading(reading) => {
                reading.wants_to_fetch() && self.input_space(shared) > 0
            }
            ConnectionState::Listing(_) => self.output.len() <= LIST_BYTES_SOFT,
            _ => false,
        };
        if room && !self.is_queued_to_fetch {
            self.is_queued_to_fetch = true;
            shared.connections_to_fetch.push(self.id);
        }
        self.update_memory(shared);
        // Until then the socket is full, and the reactor waits for it to be writable.
        if self.output.is_empty() {
            self.queue_for_reactor(shared);
        }
    }

    pub(crate) fn update_accounting(&mut self, shared: &mut FrontState) {
        self.update_memory(shared);
        self.queue_for_reactor(shared);
    }

    /// Updates the accounting of the connection's memory.
    fn update_memory(&mut self, shared: &mut FrontState) {
        if self.output.is_empty() && !self.expects_more_output() {
            self.output.shrink_to(IDLE_BYTES_MAX);
        }
        let fetching = match &self.state {
            ConnectionState::Reading(reading) => reading.fetched_ahead_bytes(),
            _ => 0,
        };
        // Space is reserved at the request. Otherwise many concurrent requests would all find it
        // free.
        let held = self.output.held_bytes() + fetching;
        shared.held_bytes = shared.held_bytes - self.accounted_bytes + held;
        self.accounted_bytes = held;
    }

    fn queue_for_reactor(&mut self, shared: &mut FrontState) {
        if !self.is_dirty && (self.is_ending || self.has_output()) {
            self.is_dirty = true;
            shared.dirty_connections.push_back(self.id);
        }
    }

    /// Returns whether much more output is expected soon.
    const fn expects_more_output(&self) -> bool {
        match &self.state {
            ConnectionState::Reading(reading) => !reading.is_waiting(),
            ConnectionState::Listing(_) => true,
            ConnectionState::AwaitingHello
            | ConnectionState::Idle { .. }
            | ConnectionState::CheckingPassword(..)
            | ConnectionState::AwaitingReplica(..)
            | ConnectionState::Writing(_) => false,
        }
    }

    pub(crate) const fn clear_dirty(&mut self) {
        self.is_dirty = false;
    }

    pub(crate) const fn held_bytes(&self) -> usize {
        self.accounted_bytes
    }

    /// Returns the number of bytes to read next: 0 while little space is free, to keep reads large.
    fn input_space(&self, shared: &FrontState) -> usize {
        let (most, of_one) = if shared.held_bytes <= HELD_BYTES_FULL_LIMITS {
            (OUTPUT_BYTES_MAX, FETCH_BYTES_MAX)
        } else if shared.held_bytes <= HELD_BYTES_REDUCED_LIMITS {
            REDUCED_LIMITS
        } else {
            MINIMAL_LIMITS
        };
        let fetching = match &self.state {
            ConnectionState::Reading(reading) => reading.fetched_ahead_bytes(),
            _ => 0,
        };
        let held = self.output.len() + fetching;
        let fits = held == 0 || held + of_one <= most;
        if fits { of_one } else { 0 }
    }

    fn queue_answer(&mut self, answer: &NodeFrame<'_>) {
        self.output.queue_answer(answer);
    }

    /// Answers the pending request and becomes ready for the next one.
    fn answer_pending(&mut self, answer: &NodeFrame<'_>) {
        self.queue_answer(answer);
        self.become_ready();
    }

    fn refuse_pending(&mut self, refusal: impl Into<Refusal>) {
        self.answer_pending(&refusal.into().to_answer());
    }

    fn become_ready(&mut self) {
        self.become_idle(false);
    }

    fn become_idle(&mut self, ended: bool) {
        self.state = ConnectionState::Idle { piece_ended: ended };
        self.has_unconsumed_input = false;
    }

    /// Sends an error and accepts no more input.
    fn end_with_error(&mut self, refusal: impl Into<Refusal>, cx: &mut Cx<'_>) {
        self.on_disconnect(cx);
        self.refuse_pending(refusal);
        self.is_ending = true;
    }

    /// Drops all requests from a client that has disconnected or is no longer read.
    pub(crate) fn on_disconnect(&mut self, cx: &mut Cx<'_>) {
        match std::mem::replace(&mut self.state, ConnectionState::AwaitingHello) {
            ConnectionState::AwaitingHello
            | ConnectionState::Idle { .. }
            | ConnectionState::Listing(_) => {}
            ConnectionState::CheckingPassword(ticket, _) => {
                cx.shared.password_checks.forget(ticket)
            }
            ConnectionState::AwaitingReplica(tag, PendingRequest::Open) => {
                cx.reassign_request(tag, RequestOwner::AbandonedOpen)
            }
            ConnectionState::AwaitingReplica(tag, _) => cx.drop_request(tag),
            ConnectionState::Writing(PieceWriter { piece, close_tag: Some(tag), .. }) => {
                cx.shared.piece_writers.remove(&piece);
                cx.reassign_request(tag, RequestOwner::AbandonedClose(piece));
            }
            ConnectionState::Writing(PieceWriter { piece, .. }) => cx.abandon_piece(piece),
            ConnectionState::Reading(reading) => {
                for tag in reading.open_tags() {
                    cx.drop_request(tag);
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn idle_connection_uses_little_memory() {
        assert!(size_of::<Connection>() <= 144, "{}", size_of::<Connection>());
    }
}
