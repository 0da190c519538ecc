//! One client connection: its pending request and its output.
//!
//! Input is handled in `input`, the client's login in `login`, and events of the replica in
//! `events`. All of them change the connection's [`State`].

mod events;
mod input;
mod login;
mod output;

use quorate_access::{Claim, Who};
use quorate_core::value::StreamName;
use quorate_replica::{front::ConnectionId, stream_front::StreamTag};
use quorate_stream::Name;
use quorate_wire::streams::Answer;

use self::output::Output;
use crate::streams::{
    access::Login,
    reading::{ClientRead, FETCH_BYTES_MAX},
    refusal::Refusal,
    shared::{Cx, Owner, Shared},
};

/// Maximum number of stream bytes read ahead for one client or waiting to be sent to it. It allows
/// several reads from the disk while others are sent.
pub const OUTPUT_BYTES_MAX: usize = 4 * FETCH_BYTES_MAX;
/// Reduced maximums for stream bytes per client and for bytes per read, in this order. They apply
/// while all connections together use more than [`HELD_BYTES_EASY`].
const TIGHT_BYTES: (usize, usize) = (256 << 10, 128 << 10);
/// Further reduced maximums while all connections use more than [`HELD_BYTES_TIGHT`].
const SCARCE_BYTES: (usize, usize) = (16 << 10, 16 << 10);
/// Memory of all connections, in bytes, up to which readers get the full maximum.
const HELD_BYTES_EASY: usize = 64 << 20;
/// Memory of all connections, in bytes, above which each reader gets only a little.
const HELD_BYTES_TIGHT: usize = 128 << 20;
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
    state: State,
    output: Output,
    /// Number of bytes of the current data frame that have not arrived yet.
    data_left: usize,
    /// The last data frame was long, so the next one is likely to be long as well.
    in_bulk: bool,
    /// Input was left unconsumed because a response must be sent first.
    has_left_over: bool,
    /// No more input is accepted, and the connection closes once all output has been sent.
    ending: bool,
    is_marked: bool,
    /// The connection is in the list of connections that can request more bytes.
    hungry: bool,
    /// Memory that the accounting currently includes for this connection, in bytes.
    counted_memory: usize,
}

/// Request that a connection is handling, if any.
#[derive(Debug)]
enum State {
    /// The client has not sent a hello yet.
    AwaitingHello,
    /// Waiting for the client's next request.
    Idle {
        /// The piece that this client was writing was ended by another writer or an operator. Data
        /// that the client sent before it learned of the end may still arrive.
        piece_ended: bool,
    },
    /// Waiting for the verdict on the password check with this ticket.
    Checking(u64, Box<Claim>),
    /// Waiting for the replica's answer to one request.
    Asked(StreamTag, PendingRequest),
    Writing(Writing),
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
struct Writing {
    piece: StreamName,
    /// All bytes of the stream before this position are durable.
    durable: u64,
    /// The durable position has not been sent to the client yet.
    is_untold: bool,
    /// The replica had no space for the next bytes.
    full: bool,
    /// Tag of the request to close the piece, while it is in flight.
    closing: Option<StreamTag>,
}

impl Connection {
    pub(crate) fn new(id: ConnectionId, who: Who) -> Self {
        Self {
            id,
            login: Box::new(Login::new(who)),
            state: State::AwaitingHello,
            output: Output::default(),
            data_left: 0,
            in_bulk: false,
            has_left_over: false,
            ending: false,
            is_marked: false,
            hungry: false,
            counted_memory: 0,
        }
    }

    pub(crate) const fn ready(&self) -> bool {
        match &self.state {
            _ if self.ending || self.has_left_over => false,
            State::Writing(writing) => !writing.full,
            _ => true,
        }
    }

    pub(crate) const fn closing(&self) -> bool {
        self.ending
    }

    /// Returns whether the client awaits a response. A writer that half-closes without closing its
    /// piece has given up, and a caught-up follower may wait indefinitely, so neither counts.
    pub(crate) fn is_busy(&self) -> bool {
        match &self.state {
            State::AwaitingHello | State::Idle { .. } => false,
            State::Checking(..) | State::Asked(..) | State::Listing(_) => true,
            State::Writing(writing) => writing.closing.is_some(),
            State::Reading(reading) => !reading.is_waiting(),
        }
    }

    /// Returns the bytes to send. A new durable position is added only once the previous one has
    /// been sent, so at most one is queued however slow the client is.
    pub(crate) fn output(&mut self) -> &[u8] {
        if self.output.is_empty()
            && let State::Writing(writing) = &mut self.state
            && std::mem::take(&mut writing.is_untold)
        {
            let position = writing.durable;
            self.output.queue_answer(&Answer::Durable { position });
        }
        self.output.next_bytes()
    }

    const fn has_output(&self) -> bool {
        match &self.state {
            State::Writing(writing) if writing.is_untold => true,
            _ => !self.output.is_empty(),
        }
    }

    pub(crate) fn sent(&mut self, count: usize, shared: &mut Shared) {
        self.output.sent(count);
        let room = match &self.state {
            State::Reading(reading) => reading.is_hungry() && self.room(shared) > 0,
            State::Listing(_) => self.output.len() <= LIST_BYTES_SOFT,
            _ => false,
        };
        if room && !self.hungry {
            self.hungry = true;
            shared.hungry.push(self.id);
        }
        self.recount(shared);
        // Until then the socket is full, and the reactor waits for it to be writable.
        if self.output.is_empty() {
            self.queue_for_reactor(shared);
        }
    }

    pub(crate) fn update_accounting(&mut self, shared: &mut Shared) {
        self.recount(shared);
        self.queue_for_reactor(shared);
    }

    /// Updates the accounting of the connection's memory.
    fn recount(&mut self, shared: &mut Shared) {
        if self.output.is_empty() && !self.has_more() {
            self.output.shrink_to(IDLE_BYTES_MAX);
        }
        let fetching = match &self.state {
            State::Reading(reading) => reading.fetching(),
            _ => 0,
        };
        // Space is reserved at the request. Otherwise many concurrent requests would all find it
        // free.
        let held = self.output.held_bytes() + fetching;
        shared.held_bytes = shared.held_bytes - self.counted_memory + held;
        self.counted_memory = held;
    }

    fn queue_for_reactor(&mut self, shared: &mut Shared) {
        if !self.is_marked && (self.ending || self.has_output()) {
            self.is_marked = true;
            shared.dirty.push_back(self.id);
        }
    }

    /// Returns whether much more output is expected soon.
    const fn has_more(&self) -> bool {
        match &self.state {
            State::Reading(reading) => !reading.is_waiting(),
            State::Listing(_) => true,
            State::AwaitingHello
            | State::Idle { .. }
            | State::Checking(..)
            | State::Asked(..)
            | State::Writing(_) => false,
        }
    }

    pub(crate) const fn unmark(&mut self) {
        self.is_marked = false;
    }

    pub(crate) const fn held_bytes(&self) -> usize {
        self.counted_memory
    }

    /// Returns the number of bytes to read next: 0 while little space is free, to keep reads large.
    fn room(&self, shared: &Shared) -> usize {
        let (most, of_one) = if shared.held_bytes <= HELD_BYTES_EASY {
            (OUTPUT_BYTES_MAX, FETCH_BYTES_MAX)
        } else if shared.held_bytes <= HELD_BYTES_TIGHT {
            TIGHT_BYTES
        } else {
            SCARCE_BYTES
        };
        let fetching = match &self.state {
            State::Reading(reading) => reading.fetching(),
            _ => 0,
        };
        let held = self.output.len() + fetching;
        let fits = held == 0 || held + of_one <= most;
        if fits { of_one } else { 0 }
    }

    fn queue_answer(&mut self, answer: &Answer<'_>) {
        self.output.queue_answer(answer);
    }

    /// Answers the pending request and becomes ready for the next one.
    fn answer_pending(&mut self, answer: &Answer<'_>) {
        self.queue_answer(answer);
        self.become_ready();
    }

    fn refuse_pending(&mut self, refusal: impl Into<Refusal>) {
        self.answer_pending(&refusal.into().answer());
    }

    fn become_ready(&mut self) {
        self.become_idle(false);
    }

    fn become_idle(&mut self, ended: bool) {
        self.state = State::Idle { piece_ended: ended };
        self.has_left_over = false;
    }

    /// Sends an error and accepts no more input.
    fn end_with_error(&mut self, refusal: impl Into<Refusal>, cx: &mut Cx<'_>) {
        self.let_go(cx);
        self.refuse_pending(refusal);
        self.ending = true;
    }

    /// Drops all requests from a client that has disconnected or is no longer read.
    pub(crate) fn let_go(&mut self, cx: &mut Cx<'_>) {
        match std::mem::replace(&mut self.state, State::AwaitingHello) {
            State::AwaitingHello | State::Idle { .. } | State::Listing(_) => {}
            State::Checking(ticket, _) => cx.shared.desk.forget(ticket),
            State::Asked(tag, PendingRequest::Open) => cx.reassign_request(tag, Owner::Opening),
            State::Asked(tag, _) => cx.drop_request(tag),
            State::Writing(Writing { piece, closing: Some(tag), .. }) => {
                cx.shared.pieces.remove(&piece);
                cx.reassign_request(tag, Owner::Closing(piece));
            }
            State::Writing(Writing { piece, .. }) => cx.abandon(piece),
            State::Reading(reading) => {
                for tag in reading.tags() {
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
