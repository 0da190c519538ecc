//! Client workloads, each of which tries to expose a different violation.
//!
//! This module contains the clients and their handling of replies; `asks` contains their requests.

mod asks;
mod books;
pub mod content;
pub mod frame_client;
pub mod streams;

use std::collections::VecDeque;

use quorate_core::time::Time;
use quorate_replica::front::ConnectionId;

pub use self::books::ClientRecords;
use crate::{
    check::{Verdict, Violation},
    dice::Dice,
    history::{KeyAction, OperationReply},
    resp::{Reply, encode_request},
};

/// Number of outstanding requests at which a pipelining client stops sending.
const PIPELINE_MAX: usize = 12;

/// Workload of a client, named after the property that it tries to violate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// SET, GET and DEL on keys shared with other clients.
    Register,
    /// INCR on counters shared with other clients, as a command or as a script.
    Counter,
    /// INCR numbered within a session, retried on any node until it is answered.
    Session,
    /// WATCH, GET, MULTI, SET and EXEC on keys that other clients create and delete.
    Swap,
    /// Pipelined SET and GET on the client's own key and on shared keys. A read of the client's own
    /// key must return exactly the last write before it.
    OwnKey,
    /// SET with and without an expiry.
    Expiring,
    /// SET of two keys that always change together.
    KeyPair,
    /// GET of the final value of each key; only in act two.
    FinalReader,
    /// A single write on one node, which must accept it; only in act two.
    OneWriter,
    /// Requests chosen by a scenario.
    Scripted,
}

impl Kind {
    const ALL: [Self; 7] = [
        Self::Register,
        Self::Counter,
        Self::Session,
        Self::Swap,
        Self::OwnKey,
        Self::Expiring,
        Self::KeyPair,
    ];

    /// Returns the kind of a client. Kinds alternate by index, starting with one chosen by the
    /// seed.
    pub fn for_client(index: usize, seed: u64) -> Self {
        let count = Self::ALL.len();
        let first = usize::try_from(seed % count as u64).unwrap_or_default();
        Self::ALL[(index + first) % count]
    }
}

/// Outstanding request. Replies on the connection arrive in the order of the requests.
#[derive(Clone, Debug)]
enum PendingRequest {
    /// An operation on one key.
    KeyRequest { key: String, action: KeyAction, called_at: u64 },
    /// A command whose reply contains no information.
    Ignored,
    /// The command that prepares the connection by attaching the session or setting READONLY.
    PrepareConnection,
    /// EXEC at the end of a swap.
    Exec { key: String, seen_value: Option<i64>, new: i64, called_at: u64 },
    /// GET within a swap.
    SwapRead { key: String, called_at: u64 },
    /// SET of the client's own key.
    OwnSet(i64),
    /// GET of the client's own key.
    OwnGet,
    /// SET of both keys of the pair.
    PairSet,
    /// GET of both keys of the pair, answered by one reply.
    PairGet,
    /// Registration of a new session.
    RegisterSession,
    /// An INCR numbered within a session.
    SessionIncrement(i64),
    /// A command that exceeds the size limit.
    TooLarge,
    /// GET of the final value of a key.
    FinalRead(String),
    /// A request chosen by a scenario.
    Scripted,
}

/// A simulated client with its workload.
#[derive(Debug)]
pub struct Client {
    pub index: usize,
    pub kind: Kind,
    /// Current connection, with the index of the node; `None` while disconnected.
    pub connection: Option<(ConnectionId, usize)>,
    /// Time at which the client gives up on the node if no reply has arrived.
    pub reply_deadline: Option<Time>,
    /// Time of the client's next request, which is sent even if earlier ones are unanswered.
    pub next_request_at: Option<Time>,
    /// Set if the client sends no new requests.
    pub is_done: bool,
    dice: Dice,
    unparsed_replies: Vec<u8>,
    pending_requests: VecDeque<PendingRequest>,
    /// Key and value from the GET of the current swap.
    swap_read: Option<(String, Option<i64>)>,
    /// Key watched by the current swap, until it is read.
    watched_key: Option<String>,
    own_generation: u64,
    own_value: Option<i64>,
    /// Set if the client uses READONLY connections and reads only its own key.
    reads_stale: bool,
    session_id: Option<String>,
    /// Set once the command that prepares the connection was sent, ahead of all later requests.
    /// Cleared if that command is refused.
    is_prepared: bool,
    next_sequence: i64,
    keys_to_audit: VecDeque<String>,
    /// Index of the only node to which the client connects; `None` for any node.
    pub(crate) only_node: Option<usize>,
    /// Set if the write of a visitor has succeeded.
    has_written: bool,
    /// Replies to a scenario's requests; `None` marks a broken connection.
    pub replies: VecDeque<Option<Reply>>,
    /// Set if the client does not read its replies.
    pub ignores_replies: bool,
}

impl Client {
    pub fn new(index: usize, kind: Kind, mut dice: Dice) -> Self {
        let stale = kind == Kind::OwnKey && dice.chance(1, 4);
        Self {
            index,
            kind,
            connection: None,
            reply_deadline: None,
            next_request_at: None,
            is_done: false,
            dice,
            reads_stale: stale,
            unparsed_replies: Vec::new(),
            pending_requests: VecDeque::new(),
            swap_read: None,
            watched_key: None,
            own_generation: 0,
            own_value: None,
            session_id: None,
            is_prepared: false,
            next_sequence: 1,
            keys_to_audit: VecDeque::new(),
            only_node: None,
            has_written: false,
            replies: VecDeque::new(),
            ignores_replies: false,
        }
    }

    /// Returns a client that reads `keys` and then stops.
    pub fn new_final_reader(index: usize, dice: Dice, keys: Vec<String>) -> Self {
        Self { keys_to_audit: keys.into(), ..Self::new(index, Kind::FinalReader, dice) }
    }

    /// Returns a client that writes once on this node and then stops.
    pub fn new_one_writer(index: usize, dice: Dice, node: usize) -> Self {
        Self { only_node: Some(node), ..Self::new(index, Kind::OneWriter, dice) }
    }

    /// Returns whether the client may send another request before the last one is answered.
    pub fn may_pipeline(&self) -> bool {
        self.kind == Kind::OwnKey && !self.is_done && self.pending_requests.len() < PIPELINE_MAX
    }

    pub fn is_waiting(&self) -> bool {
        !self.pending_requests.is_empty()
    }

    /// Returns whether the client still has work for which it needs a reply.
    pub fn is_busy(&self) -> bool {
        let visiting = self.kind == Kind::OneWriter && !self.has_written;
        self.is_waiting() || !self.keys_to_audit.is_empty() || visiting
    }

    /// Handles bytes from the node. Fails if a reply contradicts a guarantee of the cluster.
    pub fn receive_bytes(&mut self, bytes: &[u8], books: &mut ClientRecords) -> Verdict {
        self.unparsed_replies.extend_from_slice(bytes);
        loop {
            let parsed = crate::resp::decode_reply(&self.unparsed_replies)
                .map_err(|why| Violation::new("client", format!("client {}: {why}", self.index)))?;
            let Some((reply, used)) = parsed else {
                return Ok(());
            };
            self.unparsed_replies.drain(..used);
            let Some(waiting) = self.pending_requests.pop_front() else {
                if self.kind == Kind::Scripted {
                    // The reply is a message on a channel.
                    self.replies.push_back(Some(reply));
                    continue;
                }
                return Err(self.unexpected_reply("a reply to nothing", &reply));
            };
            self.handle_reply(waiting, reply, books)?;
        }
    }

    fn unexpected_reply(&self, what: &str, reply: &Reply) -> Violation {
        let detail = format!("client {} ({:?}) got {reply:?} for {what}", self.index, self.kind);
        Violation::new("client", detail)
    }

    fn handle_reply(
        &mut self,
        waiting: PendingRequest,
        reply: Reply,
        books: &mut ClientRecords,
    ) -> Verdict {
        if matches!(waiting, PendingRequest::Scripted) {
            self.replies.push_back(Some(reply));
            return Ok(());
        }
        if let Reply::Error(text) = &reply {
            return self.handle_error(waiting, text.clone(), books);
        }
        books.answered_requests += 1;
        match (waiting, reply) {
            (PendingRequest::KeyRequest { key, action: act, called_at: called }, reply) => {
                let Some(answer) = reply_of(act, &reply) else {
                    return Err(self.unexpected_reply(&format!("{act:?} of {key}"), &reply));
                };
                books.history.record_operation(self.index, &key, act, called, answer);
                self.has_written = true;
                match answer {
                    OperationReply::Number(number) => {
                        books.exactly_once.record_acknowledged(&key, number)
                    }
                    _ => Ok(()),
                }
            }
            (PendingRequest::SwapRead { key, called_at: called }, Reply::Bulk(value)) => {
                let value = parse_number(value.as_deref());
                books.history.record_operation(
                    self.index,
                    &key,
                    KeyAction::Get,
                    called,
                    OperationReply::Value(value),
                );
                self.swap_read = Some((key, value));
                Ok(())
            }
            (PendingRequest::Exec { .. }, Reply::Array(None)) => Ok(()),
            (
                PendingRequest::Exec { key, seen_value: seen, new, called_at: called },
                Reply::Array(Some(replies)),
            ) => {
                if replies != [Reply::Simple("OK".into())] {
                    return Err(self.unexpected_reply("EXEC", &Reply::Array(Some(replies))));
                }
                books.history.record_operation(
                    self.index,
                    &key,
                    KeyAction::Swap { seen, new },
                    called,
                    OperationReply::Ok,
                );
                Ok(())
            }
            (PendingRequest::OwnSet(value), Reply::Simple(_)) => {
                self.own_value = Some(value);
                Ok(())
            }
            (PendingRequest::OwnGet, Reply::Bulk(value)) => {
                let got = parse_number(value.as_deref());
                if got == self.own_value {
                    return Ok(());
                }
                let detail = format!(
                    "client {} read {got:?} from {} after its own write of {:?}",
                    self.index,
                    self.own_key(),
                    self.own_value
                );
                Err(Violation::new("read_your_writes", detail))
            }
            (PendingRequest::PairGet, Reply::Array(Some(both))) => {
                if both.len() == 2 && both[0] == both[1] {
                    return Ok(());
                }
                Err(Violation::new("atomicity", format!("the pair is torn apart: {both:?}")))
            }
            (PendingRequest::RegisterSession, Reply::Simple(id)) => {
                (self.session_id, self.is_prepared) = (Some(id), true);
                Ok(())
            }
            (PendingRequest::RegisterSession, Reply::Bulk(Some(id))) => {
                self.session_id = Some(String::from_utf8_lossy(&id).into_owned());
                self.is_prepared = true;
                Ok(())
            }
            // Numbered commands are executed only within a session.
            (PendingRequest::SessionIncrement(sequence), Reply::Integer(number))
                if self.is_prepared =>
            {
                if sequence == self.next_sequence {
                    self.next_sequence += 1;
                }
                books.exactly_once.check_sequence(&self.session_key(), sequence, number)
            }
            (PendingRequest::FinalRead(key), Reply::Bulk(value)) => {
                self.keys_to_audit.pop_front();
                let called = books.history.next_moment();
                let value = parse_number(value.as_deref());
                // Operations of sessions and of clients of devices are not part of the history,
                // because their sequence numbers prove more than times do.
                if !key.starts_with(['s', 'f']) {
                    books.history.record_operation(
                        self.index,
                        &key,
                        KeyAction::Get,
                        called,
                        OperationReply::Value(value),
                    );
                }
                books.exactly_once.check_final_value(&key, value.unwrap_or(0))
            }
            (PendingRequest::Ignored | PendingRequest::PrepareConnection, Reply::Simple(_))
            | (PendingRequest::PairSet, _) => Ok(()),
            (waiting, reply) => Err(self.unexpected_reply(&format!("{waiting:?}"), &reply)),
        }
    }

    fn handle_error(
        &mut self,
        waiting: PendingRequest,
        text: String,
        books: &mut ClientRecords,
    ) -> Verdict {
        let code = text.split(' ').next().unwrap_or_default();
        match code {
            "UNKNOWN" => {
                books.unknown_requests += 1;
                self.record_unknown(waiting, books);
                Ok(())
            }
            "BUSY" | "NOQUORUM" | "DISKFULL" | "EXECABORT" => {
                books.refused_requests += 1;
                // The client prepares the connection again before it sends further commands.
                self.is_prepared &= !matches!(waiting, PendingRequest::PrepareConnection);
                Ok(())
            }
            // The command that should have attached the session was refused before.
            "NOSESSION"
                if matches!(waiting, PendingRequest::SessionIncrement(_))
                    && !self.is_prepared
                    && text.contains(": this connection has no session;") =>
            {
                books.refused_requests += 1;
                Ok(())
            }
            "ERR" if text.contains(": scripts need feature level ") => {
                books.refused_requests += 1;
                Ok(())
            }
            "TOOBIG" if matches!(waiting, PendingRequest::TooLarge) => Ok(()),
            // Errors include a session that no node remembers, because the group's quorum forgot
            // it.
            _ => Err(self.unexpected_reply(&format!("{waiting:?}"), &Reply::Error(text))),
        }
    }

    /// Records that a request may have been executed, or may still be executed later.
    fn record_unknown(&mut self, waiting: PendingRequest, books: &mut ClientRecords) {
        match waiting {
            PendingRequest::KeyRequest { key, action: act, called_at: called } => {
                if act == KeyAction::Increment {
                    books.exactly_once.record_unknown(&key);
                }
                books.history.record_operation(
                    self.index,
                    &key,
                    act,
                    called,
                    OperationReply::Unknown,
                );
            }
            PendingRequest::Exec { key, seen_value: seen, new, called_at: called } => {
                let act = KeyAction::Swap { seen, new };
                books.history.record_operation(
                    self.index,
                    &key,
                    act,
                    called,
                    OperationReply::Unknown,
                );
            }
            PendingRequest::OwnSet(_) => self.forget_own_value(),
            PendingRequest::Ignored
            | PendingRequest::PrepareConnection
            | PendingRequest::SwapRead { .. }
            | PendingRequest::OwnGet
            | PendingRequest::PairSet
            | PendingRequest::PairGet
            | PendingRequest::RegisterSession
            | PendingRequest::SessionIncrement(_)
            | PendingRequest::TooLarge
            | PendingRequest::FinalRead(_) => {}
            PendingRequest::Scripted => self.replies.push_back(None),
        }
    }

    /// Handles a broken connection. No more replies will arrive on it.
    pub fn handle_disconnect(&mut self, books: &mut ClientRecords) {
        self.connection = None;
        (self.reply_deadline, self.next_request_at) = (None, None);
        self.is_prepared = false;
        (self.swap_read, self.watched_key) = (None, None);
        if self.reads_stale {
            // The next node may lag behind the replies of this one.
            self.forget_own_value();
        }
        self.unparsed_replies.clear();
        while let Some(waiting) = self.pending_requests.pop_front() {
            books.unknown_requests += 1;
            self.record_unknown(waiting, books);
        }
    }

    /// Encodes a request chosen by a scenario.
    pub fn encode_request(&mut self, words: &[&[u8]]) -> Vec<u8> {
        let mut out = Vec::new();
        encode_request(words, &mut out);
        self.pending_requests.push_back(PendingRequest::Scripted);
        out
    }

    /// Chooses one of `nodes` nodes, or the client's home if it has one.
    pub fn choose_node(&mut self, nodes: usize) -> usize {
        self.only_node.unwrap_or_else(|| self.dice.index(nodes))
    }

    /// Draws the pause before the client's next request.
    pub fn draw_pause(&mut self, most_us: u64) -> u64 {
        self.dice.between(1, most_us.max(1))
    }
}

fn parse_number(bytes: Option<&[u8]>) -> Option<i64> {
    // -1 stands for bytes that no client wrote. No operation explains it, so the checker reports
    // it.
    bytes.map(|bytes| {
        std::str::from_utf8(bytes).ok().and_then(|text| text.parse().ok()).unwrap_or(-1)
    })
}

fn reply_of(act: KeyAction, reply: &Reply) -> Option<OperationReply> {
    match (act, reply) {
        (KeyAction::Set(_) | KeyAction::SetExpiring(_), Reply::Simple(_)) => {
            Some(OperationReply::Ok)
        }
        (KeyAction::Delete, Reply::Integer(count @ 0..=1)) => {
            Some(OperationReply::Removed(*count == 1))
        }
        (KeyAction::Get, Reply::Bulk(value)) => {
            Some(OperationReply::Value(parse_number(value.as_deref())))
        }
        (KeyAction::Increment, Reply::Integer(number)) => Some(OperationReply::Number(*number)),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const REFUSED: &[u8] =
        b"-NOQUORUM not executed: this node does not know yet who may do what\r\n";
    const UNATTACHED: &[u8] =
        b"-NOSESSION not executed now: this connection has no session; register one\r\n";
    const EXPIRED: &[u8] =
        b"-NOSESSION not executed now: the session is unknown or has expired\r\n";

    /// Returns a session client on a new connection. It has sent the command that attaches its
    /// session, followed by one or two numbered commands.
    fn reconnected(seed: u64) -> (Client, ClientRecords) {
        let mut books = ClientRecords::default();
        let mut client = Client::new(0, Kind::Session, Dice::new(seed));
        client.session_id = Some("5.0".into());
        let asked = client.next_requests(&mut books);
        assert!(asked.starts_with(b"*3\r\n$7\r\nQUORATE\r\n$7\r\nSESSION\r\n"));
        (client, books)
    }

    #[test]
    fn client_that_was_not_attached_registers_again() {
        let (mut client, mut books) = reconnected(1);
        client.receive_bytes(REFUSED, &mut books).unwrap();
        while client.is_waiting() {
            client.receive_bytes(UNATTACHED, &mut books).unwrap();
        }
        let asked = client.next_requests(&mut books);
        assert!(asked.starts_with(b"*3\r\n$7\r\nQUORATE\r\n$7\r\nSESSION\r\n"));
        client.receive_bytes(b"+OK\r\n:1\r\n", &mut books).unwrap();
    }

    #[test]
    fn only_an_unattached_client_may_get_no_session() {
        for (attached, heard) in [
            (&b"+OK\r\n"[..], UNATTACHED),
            (b"+OK\r\n", EXPIRED),
            (REFUSED, EXPIRED),
            (REFUSED, b":1\r\n"),
        ] {
            let (mut client, mut books) = reconnected(1);
            client.receive_bytes(attached, &mut books).unwrap();
            let broken = client.receive_bytes(heard, &mut books).unwrap_err();
            assert_eq!(broken.property, "client", "{broken}");
        }
    }
}
