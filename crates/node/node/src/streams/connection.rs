//! One client connection: its pending request, and its output.
//!
//! Input is handled in `input`, the client's identity in `login`, events of the replica in
//! `events`; all change the one [`State`].

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
    reading::{FETCH_BYTES_MAX, Reading},
    refusal::Refusal,
    shared::{Cx, Owner, Shared},
};

/// Maximum bytes of a stream that are read ahead for one client, or wait to be sent to it: some
/// reads of a disk, while others are sent.
pub const OUTPUT_BYTES_MAX: usize = 4 * FETCH_BYTES_MAX;
/// The same maximum while connections hold more than [`HELD_BYTES_EASY`] together, and the maximum
/// of one read then.
const TIGHT_BYTES: (usize, usize) = (256 << 10, 128 << 10);
/// Both maxima while connections hold more than [`HELD_BYTES_TIGHT`].
const SCARCE_BYTES: (usize, usize) = (16 << 10, 16 << 10);
/// Readers hurry as long as all connections hold no more.
const HELD_BYTES_EASY: usize = 64 << 20;
/// Each reader gets little from here on.
const HELD_BYTES_TIGHT: usize = 128 << 20;
/// A list continues when no more bytes than this wait to be sent.
const LIST_BYTES_SOFT: usize = 32 << 10;
/// Memory that a connection keeps for output although there is none.
const IDLE_BYTES_MAX: usize = 128;

/// A client connection.
#[derive(Debug)]
pub(crate) struct Connection {
    id: ConnectionId,
    /// Identity of the client; boxed to stay small, for there are many connections.
    login: Box<Login>,
    state: State,
    output: Output,
    /// Bytes of a data frame still to arrive.
    data_left: usize,
    /// The last data frame was long.
    in_bulk: bool,
    /// Input was left over because an answer is owed.
    has_left_over: bool,
    /// No more input is accepted; the connection closes when all output is sent.
    ending: bool,
    marked: bool,
    /// The connection is notified when there is space to ask for more.
    hungry: bool,
    /// Memory that is counted.
    counted: usize,
}

/// State of a connection.
#[derive(Debug)]
enum State {
    /// Before hello.
    Strange,
    /// Ready for a request.
    Idle {
        /// The connection wrote a piece that was ended elsewhere: data sent before the client
        /// learned of it may still arrive.
        ended: bool,
    },
    /// Waits for the check of its password; the ticket of the verdict.
    Checking(u64, Box<Claim>),
    /// Waits for one answer.
    Asked(StreamTag, Asked),
    Writing(Writing),
    Reading(Box<Reading>),
    /// Lists the streams after this one.
    Listing(Option<Name>),
}

/// Purpose of an expected answer.
#[derive(Debug)]
enum Asked {
    Open,
    Trim,
    Remove,
    Retain(Name),
    Stat(Name),
    List(Option<Name>),
}

/// A piece that is written.
#[derive(Debug)]
struct Writing {
    piece: StreamName,
    /// All bytes of the stream before this position are durable.
    durable: u64,
    /// The client has not been notified of that position.
    is_untold: bool,
    /// There was no space for the next bytes.
    full: bool,
    /// Close in flight.
    closing: Option<StreamTag>,
}

impl Connection {
    pub(crate) fn new(id: ConnectionId, who: Who) -> Self {
        Self {
            id,
            login: Box::new(Login::new(who)),
            state: State::Strange,
            output: Output::default(),
            data_left: 0,
            in_bulk: false,
            has_left_over: false,
            ending: false,
            marked: false,
            hungry: false,
            counted: 0,
        }
    }

    /// Returns whether input is accepted.
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

    /// Returns whether the client is owed an answer. Not if it writes and does not close: once it
    /// has sent its last byte, it has given up. Nor if it follows and is caught up: it may wait
    /// indefinitely.
    pub(crate) fn is_busy(&self) -> bool {
        match &self.state {
            State::Strange | State::Idle { .. } => false,
            State::Checking(..) | State::Asked(..) | State::Listing(_) => true,
            State::Writing(writing) => writing.closing.is_some(),
            State::Reading(reading) => !reading.is_waiting(),
        }
    }

    /// Returns the bytes to send. A new durable position waits until the previous one is sent, so
    /// that however slow the client is, only one waits.
    pub(crate) fn output(&mut self) -> &[u8] {
        if self.output.is_empty()
            && let State::Writing(writing) = &mut self.state
            && std::mem::take(&mut writing.is_untold)
        {
            let position = writing.durable;
            self.output.say(&Answer::Durable { position });
        }
        self.output.next()
    }

    const fn has_output(&self) -> bool {
        match &self.state {
            State::Writing(writing) if writing.is_untold => true,
            _ => !self.output.is_empty(),
        }
    }

    /// Removes this number of sent bytes from the output.
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
        // The remainder waits for the socket, and the reactor knows that.
        if self.output.is_empty() {
            self.mark(shared);
        }
    }

    /// Ends a step: counts memory, and notifies the reactor if there is something to send.
    pub(crate) fn settle(&mut self, shared: &mut Shared) {
        self.recount(shared);
        self.mark(shared);
    }

    /// Counts the memory that is held now.
    fn recount(&mut self, shared: &mut Shared) {
        if self.output.is_empty() && !self.has_more() {
            self.output.shrink_to(IDLE_BYTES_MAX);
        }
        let fetching = match &self.state {
            State::Reading(reading) => reading.fetching(),
            _ => 0,
        };
        // Space is reserved when it is requested: otherwise many concurrent requests would all find
        // it free.
        let held = self.output.held_bytes() + fetching;
        shared.held_bytes = shared.held_bytes - self.counted + held;
        self.counted = held;
    }

    fn mark(&mut self, shared: &mut Shared) {
        if !self.marked && (self.ending || self.has_output()) {
            self.marked = true;
            shared.dirty.push_back(self.id);
        }
    }

    /// Returns whether much output is expected soon.
    const fn has_more(&self) -> bool {
        match &self.state {
            State::Reading(reading) => !reading.is_waiting(),
            State::Listing(_) => true,
            State::Strange
            | State::Idle { .. }
            | State::Checking(..)
            | State::Asked(..)
            | State::Writing(_) => false,
        }
    }

    pub(crate) const fn unmark(&mut self) {
        self.marked = false;
    }

    pub(crate) const fn held_bytes(&self) -> usize {
        self.counted
    }

    /// Returns the space for bytes of a stream; 0 while there is little, so that reads stay large.
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

    fn say(&mut self, answer: &Answer<'_>) {
        self.output.say(answer);
    }

    /// Answers the pending request: the client may send the next one.
    fn answer(&mut self, answer: &Answer<'_>) {
        self.say(answer);
        self.rest();
    }

    fn refuse(&mut self, refusal: impl Into<Refusal>) {
        self.answer(&refusal.into().answer());
    }

    fn rest(&mut self) {
        self.become_idle(false);
    }

    fn become_idle(&mut self, ended: bool) {
        self.state = State::Idle { ended };
        self.has_left_over = false;
    }

    /// Sends an error, and accepts no more input.
    fn end(&mut self, refusal: impl Into<Refusal>, cx: &mut Cx<'_>) {
        self.let_go(cx);
        self.refuse(refusal);
        self.ending = true;
    }

    /// Ends all work for a client that disconnected, or is no longer read.
    pub(crate) fn let_go(&mut self, cx: &mut Cx<'_>) {
        match std::mem::replace(&mut self.state, State::Strange) {
            State::Strange | State::Idle { .. } | State::Listing(_) => {}
            State::Checking(ticket, _) => cx.shared.desk.forget(ticket),
            State::Asked(tag, Asked::Open) => cx.leave(tag, Owner::Opening),
            State::Asked(tag, _) => cx.forget(tag),
            State::Writing(Writing { piece, closing: Some(tag), .. }) => {
                cx.shared.pieces.remove(&piece);
                cx.leave(tag, Owner::Closing(piece));
            }
            State::Writing(Writing { piece, .. }) => cx.abandon(piece),
            State::Reading(reading) => {
                for tag in reading.tags() {
                    cx.forget(tag);
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_idle_connection_is_small() {
        assert!(size_of::<Connection>() <= 144, "{}", size_of::<Connection>());
    }
}
