//! The Redis front: client connections as state machines, without sockets.

use std::collections::VecDeque;

use quorate_replica::front::{
    Completion, ConnectionId, Endpoints, Failure, Front, Requests, State, Tag, Tags,
};
use quorate_replica::seldom::Seldom;
use rustc_hash::FxHashMap;

use crate::{
    command::{Refusal, Request, ScriptBy, Spec},
    commands::FAMILIES,
    encode::Encoder,
    resp::{
        reply::Reply,
        request::{ARGUMENTS_MAX, Arguments, FRAMING_BYTES_MAX, Parsed, ProtocolError},
    },
    scripts::{self, Scripts},
};

mod channels;
mod connection;
mod info;
mod local;
mod order;
mod roster;
mod session;
mod subcommands;

use channels::Channels;
use connection::{Connection, HTTP, starts_http};
use roster::{Guest, Roster};

/// What the front says about its process, and may use of it.
#[derive(Clone, Debug)]
pub struct Settings {
    /// Version of the binary.
    pub version: String,
    /// `lsm` or `memory`.
    pub store: String,
    /// With so many bytes held for all connections no read is answered, and no command queued for a
    /// transaction. Who holds most is closed well before, at the end of a turn.
    pub client_bytes_max: usize,
    /// Where TCP clients connect; 0 if that is not known.
    pub tcp_port: u16,
    /// When the process started, Unix time in milliseconds; 0 if that is not known.
    pub started_ms: u64,
    /// What the process has of the machine's memory, when it is asked for.
    pub memory: fn() -> Memory,
}

/// Memory as the system tells it, in bytes; 0 where it does not.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Memory {
    /// What the process has now,
    pub resident_bytes: u64,
    /// and what it had at most.
    pub peak_bytes: u64,
    /// What the machine has.
    pub system_bytes: u64,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            version: String::new(),
            store: String::new(),
            client_bytes_max: 1 << 30,
            tcp_port: 0,
            started_ms: 0,
            memory: Memory::default,
        }
    }
}

/// Most bytes that the reactor may have to hold for one connection before a request is complete,
/// if commands may have `command_bytes_max`.
pub const fn input_bytes_max(command_bytes_max: usize) -> usize {
    command_bytes_max.saturating_add(FRAMING_BYTES_MAX)
}

// Every argument has its place in the framing.
const _: () = assert!(FRAMING_BYTES_MAX > ARGUMENTS_MAX * 13);

/// Where the end of a request belongs.
#[derive(Clone, Copy, Debug)]
struct Owner {
    connection: ConnectionId,
    target: Target,
}

/// What of a connection a tag stands for.
#[derive(Clone, Copy, Debug)]
enum Target {
    /// The request with this number.
    Place(u64),
    /// A run of reads.
    Run,
}

/// What all connections have in common.
#[derive(Debug)]
struct Shared {
    tags: Tags<Owner>,
    table: FxHashMap<&'static [u8], &'static Spec>,
    /// The command being encoded; its memory is reused.
    command: Vec<u8>,
    /// The neutral reply being made; its memory is reused.
    reply: Vec<u8>,
    /// Memory of queries that were answered.
    spare: Vec<Vec<u8>>,
    dirty: VecDeque<ConnectionId>,
    roster: Roster,
    settings: Settings,
    /// Requests taken since the start.
    processed: u64,
    /// Memory of all connections.
    held_bytes: usize,
    /// Complaints about clients of another protocol.
    strangers: Seldom,
    scripts: Scripts,
    channels: Channels,
}

impl Shared {
    fn tag(&mut self, connection: ConnectionId, target: Target) -> Tag {
        self.tags.give(Owner { connection, target })
    }

    /// The command of this name, in any case.
    fn lookup(&self, name: &[u8]) -> Option<&'static Spec> {
        let mut lower = [0; 16];
        let lower = lower.get_mut(..name.len())?;
        lower.copy_from_slice(name);
        lower.make_ascii_lowercase();
        self.table.get(&*lower).copied()
    }

    /// Encodes `EVAL text …` or `EVALSHA hash …` into the scratch buffer.
    fn encode_script(
        &mut self,
        by: ScriptBy,
        name: &'static str,
        words: &Arguments<'_>,
        requests: &dyn Requests,
    ) -> Result<(), Refusal> {
        let meaning = match by {
            ScriptBy::Text => self.scripts.learn(words.at(1)).ok_or(scripts::UNKNOWN),
            ScriptBy::Hash => self.scripts.find(words.at(1)).ok_or(scripts::NO_SCRIPT),
        };
        let request = Request {
            name,
            arguments: words.from(2),
            wall_ms: requests.wall_ms(),
            value_bytes_max: requests.command_bytes_max(),
        };
        fresh(&mut self.command);
        scripts::encode(meaning?, &request, &mut Encoder(&mut self.command))
    }

    /// A copy of the query in the scratch buffer.
    fn query(&mut self) -> Vec<u8> {
        let mut query = self.spare.pop().unwrap_or_default();
        query.extend_from_slice(&self.command);
        query
    }

    /// Counts memory that something held before, and holds now.
    const fn recount(&mut self, counted: &mut usize, now: usize) {
        self.held_bytes = self.held_bytes - *counted + now;
        *counted = now;
    }

    /// Whether so many bytes more are too many.
    const fn is_full(&self, more: usize) -> bool {
        self.held_bytes.saturating_add(more) > self.settings.client_bytes_max
    }

    /// Keeps the memory of a query that was answered, if it is small.
    fn reuse(&mut self, mut query: Vec<u8>) {
        const SPARE_MAX: usize = 1024;
        const SPARE_BYTES_MAX: usize = 256;
        if self.spare.len() < SPARE_MAX && query.capacity() <= SPARE_BYTES_MAX {
            query.clear();
            self.spare.push(query);
        }
    }

    /// The scratch for a reply, empty; a very large one is not kept.
    fn fresh_reply(&mut self) -> Reply<'_> {
        fresh(&mut self.reply);
        Reply(&mut self.reply)
    }
}

/// Empties a scratch buffer without keeping much more memory than requests usually need.
fn fresh(buffer: &mut Vec<u8>) {
    const KEPT_BYTES_MAX: usize = 256 * 1024;
    buffer.clear();
    buffer.shrink_to(KEPT_BYTES_MAX);
}

/// All client connections of a node.
#[derive(Debug)]
pub struct RespFront {
    connections: FxHashMap<ConnectionId, Connection>,
    shared: Shared,
    /// For connections that are gone already.
    nowhere: Vec<u8>,
}

impl RespFront {
    /// A front without connections.
    pub fn new(settings: Settings) -> Self {
        let specs = FAMILIES.iter().flat_map(|family| family.commands);
        let shared = Shared {
            tags: Tags::default(),
            table: specs.map(|spec| (spec.name.as_bytes(), spec)).collect(),
            command: Vec::new(),
            reply: Vec::new(),
            spare: Vec::new(),
            dirty: VecDeque::new(),
            roster: Roster::default(),
            settings,
            processed: 0,
            held_bytes: 0,
            strangers: Seldom::default(),
            scripts: Scripts::default(),
            channels: Channels::default(),
        };
        Self {
            connections: FxHashMap::default(),
            shared,
            nowhere: Vec::new(),
        }
    }
}

impl Front for RespFront {
    fn opened(&mut self, connection: ConnectionId, ends: Endpoints, requests: &mut dyn Requests) {
        let now_ms = requests.wall_ms();
        let seat = self.shared.roster.enter(Guest {
            id: connection,
            endpoints: ends,
            opened_ms: now_ms,
            seen_ms: now_ms,
            command: "NULL",
            protocol: 2,
            ..Guest::default()
        });
        self.connections
            .insert(connection, Connection::new(connection, seat));
    }

    fn received(
        &mut self,
        connection: ConnectionId,
        bytes: &[u8],
        requests: &mut dyn Requests,
    ) -> usize {
        let Some(client) = self.connections.get_mut(&connection) else {
            return bytes.len();
        };
        let used = receive(client, bytes, &mut self.shared, requests);
        client.recount(&mut self.shared);
        client.sign(requests.wall_ms(), &mut self.shared);
        client.mark(&mut self.shared);
        used
    }

    fn ready(&self, connection: ConnectionId) -> bool {
        self.connections
            .get(&connection)
            .is_some_and(Connection::ready)
    }

    fn completed(&mut self, completion: Completion<'_>, requests: &mut dyn Requests) {
        let tag = match completion {
            Completion::Written(tag, _)
            | Completion::Registered(tag, _)
            | Completion::Readable(tag)
            | Completion::Read(tag)
            | Completion::Failed(tag, _) => tag,
        };
        // Of a connection that is gone, or a second time: nobody waits for it.
        let Some(owner) = self.shared.tags.take(tag) else {
            return;
        };
        let Some(client) = self.connections.get_mut(&owner.connection) else {
            return;
        };
        match (completion, owner.target) {
            (Completion::Written(_, reply), Target::Place(number)) => {
                client.written(number, reply);
            }
            (Completion::Registered(_, session), Target::Place(number)) => {
                client.registered(number, session, &mut self.shared);
            }
            (Completion::Read(_), Target::Place(_)) => client.read_in_order(),
            (Completion::Failed(_, failure), Target::Place(number)) => {
                client.place_failed(number, failure, &mut self.shared, requests);
            }
            (Completion::Readable(_), Target::Run) => {
                client.readable(tag, &mut self.shared, requests);
            }
            (Completion::Failed(_, failure), Target::Run) => {
                client.run_failed(tag, failure, &mut self.shared);
            }
            // An answer to another question. Not known to be done is all that can be said.
            (_, Target::Place(number)) => {
                client.place_failed(number, Failure::Unknown, &mut self.shared, requests);
            }
            (_, Target::Run) => client.run_failed(tag, Failure::Unknown, &mut self.shared),
        }
        client.advance(&mut self.shared, requests);
        client.recount(&mut self.shared);
        client.mark(&mut self.shared);
    }

    fn read_now(&mut self, tag: Tag, state: &dyn State) {
        let Some(Owner {
            connection,
            target: Target::Place(number),
        }) = self.shared.tags.get(tag).copied()
        else {
            return;
        };
        if let Some(client) = self.connections.get_mut(&connection) {
            client.read_now(number, &mut self.shared, state);
        }
    }

    fn notice(&mut self, subject: &[u8], message: &[u8]) {
        for listener in self.shared.channels.of(subject) {
            if let Some(client) = self.connections.get_mut(&listener) {
                client.hear(subject, message, &mut self.shared);
                client.recount(&mut self.shared);
                client.mark(&mut self.shared);
            }
        }
    }

    fn next_dirty(&mut self) -> Option<ConnectionId> {
        while let Some(connection) = self.shared.dirty.pop_front() {
            if let Some(client) = self.connections.get_mut(&connection) {
                client.unmark();
                return Some(connection);
            }
        }
        None
    }

    fn output(&mut self, connection: ConnectionId) -> &mut Vec<u8> {
        match self.connections.get_mut(&connection) {
            Some(client) => client.output(),
            None => {
                self.nowhere.clear();
                &mut self.nowhere
            }
        }
    }

    fn sent(&mut self, connection: ConnectionId) {
        if let Some(client) = self.connections.get_mut(&connection) {
            client.sent(&mut self.shared);
        }
    }

    fn held_bytes(&self) -> usize {
        self.shared.held_bytes
    }

    fn held_bytes_of(&self, connection: ConnectionId) -> usize {
        let client = self.connections.get(&connection);
        client.map_or(0, Connection::held_bytes)
    }

    fn closing(&self, connection: ConnectionId) -> bool {
        self.connections
            .get(&connection)
            .is_none_or(Connection::closing)
    }

    fn closed(&mut self, connection: ConnectionId, requests: &mut dyn Requests) {
        let Some(mut client) = self.connections.remove(&connection) else {
            return;
        };
        self.shared.held_bytes -= client.held_bytes();
        self.shared.roster.leave(client.seat);
        client
            .subscriptions
            .clear(connection, &mut self.shared.channels);
        for tag in client.open_tags() {
            self.shared.tags.take(tag);
            requests.forget(tag);
        }
    }

    fn connections(&self) -> usize {
        self.connections.len()
    }

    fn is_busy(&self, connection: ConnectionId) -> bool {
        let client = self.connections.get(&connection);
        client.is_some_and(|client| !client.is_idle())
    }

    fn open_requests(&self) -> usize {
        self.shared.tags.open()
    }
}

/// Takes requests from `bytes` while the connection has room for them.
fn receive(
    client: &mut Connection,
    bytes: &[u8],
    shared: &mut Shared,
    requests: &mut dyn Requests,
) -> usize {
    let bytes_max = requests.command_bytes_max();
    let mut used = 0;
    // Arguments borrow from the parser while the rest of the connection changes.
    let mut parser = client.lend_parser();
    while client.ready() {
        match parser.parse(&bytes[used..], bytes_max) {
            Ok(Parsed::Incomplete { used: more }) => {
                used += more;
                break;
            }
            Ok(Parsed::Nothing { used: more }) => used += more,
            Ok(Parsed::TooBig { used: more }) => {
                used += more;
                client.refuse(&local::too_big(bytes_max), shared);
            }
            Ok(Parsed::Request {
                arguments,
                used: more,
            }) => {
                let in_line = bytes[used] != b'*';
                used += more;
                shared.processed += 1;
                if in_line && starts_http(&arguments) {
                    client.end_foreign(HTTP, shared, requests);
                } else {
                    client.request(&arguments, shared, requests);
                }
            }
            Err(ProtocolError::Tls) => client.end_foreign("TLS", shared, requests),
            Err(error) => client.end_with(&format!("ERR Protocol error: {error}"), shared),
        }
    }
    client.return_parser(parser);
    client.advance(shared, requests);
    // Nothing is understood behind QUIT or garbage.
    if client.ending() { bytes.len() } else { used }
}

/// What a client is told when the memory for all of them is used up.
const FULL: &str = "BUSY not executed: replies and requests of all clients fill the memory that this \
    node has for them (--client-memory)";

/// What a client is told when there is no reply. The words in capitals are the contract.
fn failure_text(failure: Failure) -> &'static str {
    match failure {
        Failure::Busy => "BUSY not executed: too much is under way; try again later",
        Failure::NoQuorum => "NOQUORUM not executed: no leader with a quorum was found in time",
        Failure::TooBig => "TOOBIG not executed: the command is larger than --command-max",
        Failure::Stopping => "NOQUORUM not executed: this node is stopping; use another one",
        Failure::Unavailable => {
            "NOQUORUM not executed: the store of this node cannot work; use another one"
        }
        Failure::Unknown => "UNKNOWN may have been executed, or may yet be; read before repeating",
        Failure::NoSession => {
            "NOSESSION not executed now: the session is unknown or has expired; \
             a number that was sent before may have been executed then"
        }
        Failure::ReplyForgotten => {
            "REPLYFORGOTTEN executed before; the reply was acknowledged and is gone"
        }
        Failure::SessionFull => {
            "SESSIONFULL not executed: too many sequences are open; acknowledge some"
        }
    }
}
