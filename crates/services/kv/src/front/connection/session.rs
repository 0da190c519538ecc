//! QUORATE: the state of the node, and sessions. A session's numbered commands are executed once,
//! even if they are repeated on other connections.

use quorate_core::record::Class;
use quorate_replica::front::{Requests, SessionId};

use super::Connection;
use crate::{
    command::{Handler, Refusal, Request},
    commands::server::encode_digest,
    encode::Encoder,
    front::{
        asked::{Freshness, Read, Write, WriteKind},
        buffers::clear_buffer,
        shared::Shared,
        topology,
    },
    op::{Kind, Op},
    resp::{integer::parse_integer, request::Arguments},
    store::Database,
};

const HELP: [&str; 9] = [
    "QUORATE SESSION -- register a session, attach this connection, return its id",
    "QUORATE SESSION <id> -- attach this connection to a session",
    "QUORATE SEQ <n> <command> -- execute once as number n of the session; EXEC too",
    "QUORATE ACK <m> -- the replies to all numbers below m have arrived",
    "QUORATE READ [linearizable | bounded <ms> | stale] -- how fresh this connection's reads must be",
    "QUORATE CLASS [durable | group] -- when this connection's writes are answered",
    "QUORATE STATUS -- what this node is",
    "QUORATE DIGEST -- applied position, fingerprint of all data there; reads everything",
    "QUORATE HELP -- this",
];

const BOUND_MS: std::ops::RangeInclusive<u64> = 1..=3_600_000;

const NO_SESSION: &str = "NOSESSION not executed now: this connection has no session; \
    register one with QUORATE SESSION or attach one with QUORATE SESSION <id>";

impl Connection {
    /// Returns whether the request is QUORATE SEQ with EXEC. No other QUORATE command is allowed
    /// within a transaction.
    pub(super) fn is_sequenced_exec(&self, arguments: &Arguments<'_>) -> bool {
        arguments.len() == 4
            && arguments.at(0).eq_ignore_ascii_case(b"quorate")
            && arguments.at(1).eq_ignore_ascii_case(b"seq")
            && arguments.at(3).eq_ignore_ascii_case(b"exec")
    }

    pub(super) fn handle_quorate(
        &mut self,
        arguments: &Arguments<'_>,
        shared: &mut Shared,
        requests: &mut dyn Requests,
    ) {
        let sub = arguments.at(1).to_ascii_lowercase();
        match (&*sub, arguments.len()) {
            (b"session", 2) => {
                let write = Write::new(Vec::new(), WriteKind::Register);
                self.order.push_write(write, false, self.version);
            }
            (b"session", 3) => self.attach_session(arguments.at(2), shared),
            (b"seq", 4..) => self.handle_numbered_command(arguments, shared, requests),
            (b"ack", 3) => self.acknowledge_replies(arguments.at(2), shared),
            (b"read", 2..=4) => self.read_mode(&arguments.from(2), shared),
            (b"class", 2..=3) => self.class(arguments.at(2), shared, requests),
            (b"status", 2) => {
                let mut text = String::new();
                topology::write_node_state(&mut text, &requests.status(), "", "\n")
                    .expect("a string takes all text");
                self.reply(shared, |r| r.verbatim(&text));
            }
            (b"digest", 2) => {
                let mut query = Vec::new();
                encode_digest(&mut Encoder(&mut query));
                // The reply contains the applied position, which is undefined between the commands
                // of a batch.
                let read =
                    Read { after_all_writes: true, ..Read::unrestricted(query, self.freshness) };
                self.order.push_read(read, self.version);
            }
            (b"help", 2) => self.reply(shared, |r| {
                r.array(HELP.len());
                HELP.iter().for_each(|line| r.simple(line));
            }),
            _ => {
                let text = "ERR unknown subcommand or wrong number of arguments; \
                    try QUORATE HELP";
                self.reply(shared, |r| r.error(text));
            }
        }
    }

    /// Handles `QUORATE CLASS`: reports or sets the durability class in which the connection's
    /// writes are answered ([class-2]).
    fn class(&mut self, word: &[u8], shared: &mut Shared, requests: &dyn Requests) {
        let lasting = match &*word.to_ascii_lowercase() {
            b"" => {
                let group = requests.status().class;
                let text = match (self.order.awaits_durability, group) {
                    (true, _) | (false, Class::Durable) => "durable",
                    (false, Class::Volatile) => "volatile",
                };
                return self.reply(shared, |r| r.simple(text));
            }
            b"durable" => true,
            b"group" => false,
            // [less-6] A reply reports the effect of a command, which is unknown until the command
            // is decided.
            b"volatile" if requests.status().class == Class::Durable => {
                let text = "ERR the cluster is durable, and a reply tells what a command did: that is not known before it is \
                    decided, and no read shows it";
                return self.reply(shared, |r| r.error(text));
            }
            _ => {
                let text = "ERR the class is durable, or group: that of the cluster";
                return self.reply(shared, |r| r.error(text));
            }
        };
        self.order.awaits_durability = lasting;
        self.reply(shared, |r| r.ok());
    }

    /// Handles `QUORATE READ`: reports or sets the freshness of reads.
    fn read_mode(&mut self, arguments: &Arguments<'_>, shared: &mut Shared) {
        let word = |at: usize| arguments.iter().nth(at).unwrap_or_default().to_ascii_lowercase();
        let (mode, bound) = (word(0), word(1));
        let bound_ms = parse_integer(&bound).and_then(|ms| u64::try_from(ms).ok());
        let bound_ms = bound_ms.filter(|ms| BOUND_MS.contains(ms));
        self.freshness = match (&*mode, arguments.iter().count(), bound_ms) {
            (b"", 0, _) => {
                let text = match self.freshness {
                    Freshness::Linearizable => "linearizable".to_owned(),
                    Freshness::WithinMs(ms) => format!("bounded {ms}"),
                    Freshness::Stale => "stale".to_owned(),
                };
                return self.reply(shared, |r| r.simple(&text));
            }
            (b"linearizable", 1, _) => Freshness::Linearizable,
            (b"stale", 1, _) => Freshness::Stale,
            (b"bounded", 2, Some(ms)) => Freshness::WithinMs(ms),
            (b"bounded", _, _) => {
                let text = "ERR a bound is a number of milliseconds, 1 to 3600000";
                return self.reply(shared, |r| r.error(text));
            }
            _ => {
                let text = "ERR reads are linearizable, bounded <ms> or stale";
                return self.reply(shared, |r| r.error(text));
            }
        };
        self.reply(shared, |r| r.ok());
    }

    fn attach_session(&mut self, id: &[u8], shared: &mut Shared) {
        let Some(session) = parse_session(id) else {
            self.reply(shared, |r| r.error("ERR a session id looks like 17.0"));
            return;
        };
        self.session.attach_to(session);
        self.reply(shared, |r| r.ok());
    }

    fn acknowledge_replies(&mut self, below: &[u8], shared: &mut Shared) {
        match parse_sequence(below) {
            Some(below) => {
                self.session.raise_acknowledged(below);
                self.reply(shared, |r| r.ok());
            }
            None => self.reply(shared, |r| r.error(NOT_A_SEQUENCE)),
        }
    }

    /// Handles `QUORATE SEQ n command…`. Reads are logged too, so that a repetition gets the same
    /// reply.
    fn handle_numbered_command(
        &mut self,
        arguments: &Arguments<'_>,
        shared: &mut Shared,
        requests: &mut dyn Requests,
    ) {
        let Some(sequence) = parse_sequence(arguments.at(2)) else {
            self.reply(shared, |r| r.error(NOT_A_SEQUENCE));
            return;
        };
        let Some(at) = self.session.sequenced(sequence) else {
            self.reply(shared, |r| r.error(NO_SESSION));
            return;
        };
        if self.is_sequenced_exec(arguments) {
            self.handle_exec(Some(at), shared, requests);
            return;
        }
        let operator = self.is_operator(requests);
        let from = (operator, self.database());
        match encode_inner(&arguments.from(3), from, shared, requests) {
            Ok(()) => {
                let returning = Kind::of(&shared.command) != Kind::Write;
                let mut command = shared.command.clone();
                Op::address(&mut command, self.database);
                let write = Write::new(command, WriteKind::Plain(Some(at)));
                self.order.push_write(write, returning, self.version);
            }
            Err(text) => self.reply(shared, |r| r.error(&text)),
        }
    }
}

const NOT_A_SEQUENCE: &str = "ERR a sequence is a number from 1";

fn parse_sequence(text: &[u8]) -> Option<u64> {
    parse_integer(text).and_then(|n| u64::try_from(n).ok()).filter(|&n| n > 0)
}

/// Parses a session id of the form `slot.index`.
fn parse_session(text: &[u8]) -> Option<SessionId> {
    let (slot, index) = std::str::from_utf8(text).ok()?.split_once('.')?;
    let number = |text: &str| parse_integer(text.as_bytes()).and_then(|n| u64::try_from(n).ok());
    Some(SessionId { slot: number(slot)?, index: u32::try_from(number(index)?).ok()? })
}

/// Encodes the command after `SEQ n` into the scratch buffer.
fn encode_inner(
    inner: &Arguments<'_>,
    (operator, database): (bool, Database),
    shared: &mut Shared,
    requests: &mut dyn Requests,
) -> Result<(), String> {
    let spec = shared.lookup(inner.at(0));
    let Some(spec) = spec.filter(|spec| spec.can_be_numbered()) else {
        return Err("ERR only commands that read or write keys, and EXEC, can be numbered".into());
    };
    let text = |refusal: Refusal| refusal.text(spec.name).into_owned();
    spec.check(inner).map_err(text)?;
    let request = Request {
        name: spec.name,
        arguments: inner.from(1),
        database,
        wall_ms: requests.wall_ms(),
        value_bytes_max: requests.command_bytes_max(),
        seed: shared.seed(requests.wall_ms()),
    };
    let encoded = match spec.handler {
        Handler::Data(encode) => {
            clear_buffer(&mut shared.command);
            encode(&request, &mut Encoder(&mut shared.command))
        }
        Handler::Script(by) => {
            shared.encode_script(by, (spec.name, operator, database), inner, requests)
        }
        Handler::Local(_) => return Ok(()),
    };
    encoded.and_then(|()| shared.seal(requests)).map_err(text)
}
