//! Exactly once: what was executed, by origin and by client session. Part of the replicated state.
//!
//! Everything here follows from the log alone, so all nodes hold the same table; its bounds are
//! constants for that reason. Two kinds of session share one registration value:
//!
//! * A *node session* numbers the batches of one process start of one node. Batches execute in the
//!   order of their numbers or not at all, so what an origin accepted executes once, in the order
//!   in which it was accepted, whatever was repeated or overtaken on the way.
//! * A *client session* numbers single commands and keeps their replies ([session-2]).

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt,
};

use quorate_core::{node_id::NodeId, slot::Slot, value::BatchName};

use crate::{
    front::{Sequenced, SessionId},
    proposing::batch::Header,
    service::{MetaChange, Metadata},
};

/// Most sequences open per client session ([session-2]).
pub const OPEN_SEQUENCES_MAX: u64 = 64;
/// Set in the number of a registration that is for a node session.
pub const NODE_SESSION: u64 = 1 << 63;
/// What a stored reply costs beyond its bytes.
const REPLY_OVERHEAD_BYTES: usize = 64;

/// Bounds of the table. Replicated state depends on them: the same on every node, for ever.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Bounds {
    clients: usize,
    nodes: usize,
    reply_bytes: usize,
}

const BOUNDS: Bounds = Bounds {
    clients: 16_384,
    nodes: 1_024,
    reply_bytes: 64 << 20,
};

/// Whether a batch is executed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Turn {
    /// It is the next of its origin.
    Now,
    /// It was executed before.
    Past,
    /// An earlier one of its origin is missing; the origin sends both again.
    Early,
    /// Its session is unknown: it is never executed, in no slot ([session-4]).
    Never,
}

/// What happens to a client's numbered command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Verdict<'a> {
    /// Execute, and tell the table with [`Sessions::executed`].
    Execute,
    /// Executed before; this was the reply.
    Stored(&'a [u8]),
    /// Executed before, reply forgotten.
    Forgotten,
    /// More sequences open than a session may have.
    Full,
    /// No such session ([session-4]).
    Unknown,
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct NodeSession {
    slot: u64,
    boot: u32,
    number: u64,
    next: u64,
    last_slot: u64,
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct ClientSession {
    request: Request,
    last_slot: u64,
    /// Sequences below are executed, or the client said that it needs them no more.
    low: u64,
    /// Executed at or above `low`; `None` when the reply was too much to keep.
    done: BTreeMap<u64, Option<Vec<u8>>>,
}

/// Tells repeated registrations apart from new ones.
type Request = (NodeId, u32, u64);

/// Keys under which a persistent service keeps the table.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Key {
    Node(NodeId),
    Client(SessionId),
    Reply(SessionId, u64),
}

/// Metadata of a service that this version does not understand, or that contradicts itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unreadable {
    key: Vec<u8>,
}

impl fmt::Display for Unreadable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "unreadable session metadata key={:02x?}", self.key)
    }
}

impl std::error::Error for Unreadable {}

/// The table.
#[derive(Clone, Debug)]
pub(crate) struct Sessions {
    bounds: Bounds,
    nodes: BTreeMap<NodeId, NodeSession>,
    clients: BTreeMap<SessionId, ClientSession>,
    by_request: BTreeMap<Request, SessionId>,
    by_age: BTreeSet<(u64, SessionId)>,
    reply_bytes: usize,
    changed: BTreeSet<Key>,
}

impl Sessions {
    pub(crate) fn new() -> Self {
        Self::with_bounds(BOUNDS)
    }

    fn with_bounds(bounds: Bounds) -> Self {
        Self {
            bounds,
            nodes: BTreeMap::new(),
            clients: BTreeMap::new(),
            by_request: BTreeMap::new(),
            by_age: BTreeSet::new(),
            reply_bytes: 0,
            changed: BTreeSet::new(),
        }
    }

    /// A registration was decided. The first of equal ones counts, the others change nothing.
    pub(crate) fn register(&mut self, slot: Slot, origin: NodeId, boot: u32, number: u64) {
        if number & NODE_SESSION != 0 {
            self.register_node(slot, origin, boot, number);
        } else {
            self.register_client(slot, (origin, boot, number));
        }
    }

    fn register_node(&mut self, slot: Slot, origin: NodeId, boot: u32, number: u64) {
        // A newer one fences the older: what an earlier start of this node left in flight is not
        // executed any more. Its clients were told "unknown", or were gone with it.
        if self
            .nodes
            .get(&origin)
            .is_some_and(|held| (held.boot, held.number) >= (boot, number))
        {
            return;
        }
        let session = NodeSession {
            slot: slot.0,
            boot,
            number,
            next: 1,
            last_slot: slot.0,
        };
        self.nodes.insert(origin, session);
        self.changed.insert(Key::Node(origin));
        if self.nodes.len() > self.bounds.nodes {
            let oldest = self
                .nodes
                .iter()
                .min_by_key(|(node, held)| (held.last_slot, **node));
            if let Some((&node, _)) = oldest {
                self.nodes.remove(&node);
                self.changed.insert(Key::Node(node));
            }
        }
    }

    fn register_client(&mut self, slot: Slot, request: Request) {
        if self.by_request.contains_key(&request) {
            return;
        }
        let id = SessionId {
            slot: slot.0,
            index: 0,
        };
        let session = ClientSession {
            request,
            last_slot: slot.0,
            low: 1,
            done: BTreeMap::new(),
        };
        self.by_request.insert(request, id);
        self.by_age.insert((slot.0, id));
        self.clients.insert(id, session);
        self.changed.insert(Key::Client(id));
        self.make_room(id);
    }

    /// An expiry was decided.
    pub(crate) fn expire(&mut self, slot: u64) {
        self.remove_client(SessionId { slot, index: 0 });
        let node = self.nodes.iter().find(|(_, session)| session.slot == slot);
        if let Some((&node, _)) = node {
            self.nodes.remove(&node);
            self.changed.insert(Key::Node(node));
        }
    }

    /// A batch of this name was decided in `slot`: is it executed? If so it counts as executed
    /// from here on.
    pub(crate) fn take_turn(&mut self, slot: Slot, name: &BatchName, header: Header) -> Turn {
        let turn = self.turn(name, header);
        if turn == Turn::Now
            && let Some(session) = self.nodes.get_mut(&name.origin)
        {
            session.next += 1;
            session.last_slot = slot.0;
            self.changed.insert(Key::Node(name.origin));
        }
        turn
    }

    /// What [`Self::take_turn`] would say.
    pub(crate) fn turn(&self, name: &BatchName, header: Header) -> Turn {
        let Some(session) = self.nodes.get(&name.origin) else {
            return Turn::Never;
        };
        if session.slot != header.session || session.boot != name.boot {
            return Turn::Never;
        }
        match header.sequence.cmp(&session.next) {
            std::cmp::Ordering::Less => Turn::Past,
            std::cmp::Ordering::Equal => Turn::Now,
            std::cmp::Ordering::Greater => Turn::Early,
        }
    }

    /// The node session of this process start, if its registration took effect.
    pub(crate) fn node_session(&self, origin: NodeId, boot: u32, number: u64) -> Option<u64> {
        let session = self.nodes.get(&origin)?;
        (session.boot == boot && session.number == number).then_some(session.slot)
    }

    /// The client session that this registration began, while it lives.
    pub(crate) fn client_session(
        &self,
        origin: NodeId,
        boot: u32,
        number: u64,
    ) -> Option<SessionId> {
        self.by_request.get(&(origin, boot, number)).copied()
    }

    /// A client's numbered command was decided in `slot` ([session-2]).
    pub(crate) fn verdict(&mut self, slot: Slot, at: Sequenced) -> Verdict<'_> {
        let Some(session) = self.clients.get_mut(&at.session) else {
            return Verdict::Unknown;
        };
        if session.last_slot != slot.0 {
            self.by_age.remove(&(session.last_slot, at.session));
            self.by_age.insert((slot.0, at.session));
            session.last_slot = slot.0;
            self.changed.insert(Key::Client(at.session));
        }
        // Nobody can have the reply of what is only now decided.
        let acknowledged = at.acknowledged_below.min(at.sequence);
        let needed = at.sequence.saturating_sub(OPEN_SEQUENCES_MAX - 1);
        if !done_through(session, acknowledged.max(session.low), needed) {
            return Verdict::Full;
        }
        self.raise_low(at.session, acknowledged.max(needed));
        let session = &self.clients[&at.session];
        if at.sequence < session.low {
            return Verdict::Forgotten;
        }
        match session.done.get(&at.sequence) {
            None => Verdict::Execute,
            Some(None) => Verdict::Forgotten,
            Some(Some(reply)) => Verdict::Stored(reply),
        }
    }

    fn raise_low(&mut self, id: SessionId, low: u64) {
        let Some(session) = self.clients.get_mut(&id) else {
            return;
        };
        if low <= session.low {
            return;
        }
        session.low = low;
        self.changed.insert(Key::Client(id));
        while let Some(first) = session.done.first_entry()
            && *first.key() < low
        {
            self.changed.insert(Key::Reply(id, *first.key()));
            self.reply_bytes -= charge(&first.remove());
        }
    }

    /// The command that [`Self::verdict`] let through was executed, with this reply.
    pub(crate) fn executed(&mut self, at: Sequenced, reply: &[u8]) {
        let Some(session) = self.clients.get_mut(&at.session) else {
            return;
        };
        let reply = Some(reply.to_vec());
        self.reply_bytes += charge(&reply);
        session.done.insert(at.sequence, reply);
        self.changed.insert(Key::Reply(at.session, at.sequence));
        self.make_room(at.session);
    }

    /// [session-3] A full table loses the sessions with the oldest last slot; if the newest one
    /// alone is too much, its oldest replies.
    fn make_room(&mut self, newest: SessionId) {
        while self.clients.len() > self.bounds.clients || self.reply_bytes > self.bounds.reply_bytes
        {
            let oldest = self
                .by_age
                .iter()
                .map(|(_, id)| *id)
                .find(|id| *id != newest);
            match oldest {
                Some(id) => self.remove_client(id),
                None => return self.forget_replies(newest),
            }
        }
    }

    fn forget_replies(&mut self, id: SessionId) {
        let Some(session) = self.clients.get_mut(&id) else {
            return;
        };
        for (sequence, reply) in &mut session.done {
            if self.reply_bytes <= self.bounds.reply_bytes {
                return;
            }
            if reply.is_some() {
                self.reply_bytes -= charge(reply) - charge(&None);
                *reply = None;
                self.changed.insert(Key::Reply(id, *sequence));
            }
        }
    }

    fn remove_client(&mut self, id: SessionId) {
        let Some(session) = self.clients.remove(&id) else {
            return;
        };
        self.by_request.remove(&session.request);
        self.by_age.remove(&(session.last_slot, id));
        self.changed.insert(Key::Client(id));
        for (sequence, reply) in &session.done {
            self.reply_bytes -= charge(reply);
            self.changed.insert(Key::Reply(id, *sequence));
        }
    }

    /// What changed since the last call, for the service to keep.
    pub(crate) fn take_changes(&mut self, changes: &mut Vec<MetaChange>) {
        for key in std::mem::take(&mut self.changed) {
            changes.push(MetaChange {
                key: key.encode(),
                value: self.encoded(key),
            });
        }
    }

    fn encoded(&self, key: Key) -> Option<Vec<u8>> {
        match key {
            Key::Node(node) => self.nodes.get(&node).map(NodeSession::encode),
            Key::Client(id) => self.clients.get(&id).map(ClientSession::encode),
            Key::Reply(id, sequence) => {
                let reply = self.clients.get(&id)?.done.get(&sequence)?;
                Some(match reply {
                    None => vec![0],
                    Some(bytes) => [&[1], bytes.as_slice()].concat(),
                })
            }
        }
    }

    /// The table as a persistent service kept it.
    pub(crate) fn restore(entries: Metadata) -> Result<Self, Unreadable> {
        let mut table = Self::new();
        let mut replies = Vec::new();
        for (key, value) in entries {
            let known = match Key::decode(&key) {
                Some(Key::Node(node)) => NodeSession::decode(&value).map(|session| {
                    table.nodes.insert(node, session);
                }),
                Some(Key::Client(id)) => {
                    ClientSession::decode(&value).map(|session| table.adopt(id, session))
                }
                Some(Key::Reply(id, sequence)) => {
                    replies.push((key.clone(), id, sequence, value));
                    Some(())
                }
                None => None,
            };
            known.ok_or(Unreadable { key })?;
        }
        for (key, id, sequence, value) in replies {
            let reply = match value.split_first() {
                Some((0, [])) => None,
                Some((1, bytes)) => Some(bytes.to_vec()),
                _ => return Err(Unreadable { key }),
            };
            let session = table.clients.get_mut(&id).ok_or(Unreadable { key })?;
            table.reply_bytes += charge(&reply);
            session.done.insert(sequence, reply);
        }
        Ok(table)
    }

    fn adopt(&mut self, id: SessionId, session: ClientSession) {
        self.by_request.insert(session.request, id);
        self.by_age.insert((session.last_slot, id));
        self.clients.insert(id, session);
    }

    /// The whole table in one canonical form: equal on all nodes that applied the same slots.
    pub(crate) fn canonical(&self) -> Metadata {
        let nodes = self.nodes.keys().map(|node| Key::Node(*node));
        let clients = self.clients.keys().map(|id| Key::Client(*id));
        let replies = self.clients.iter().flat_map(|(id, session)| {
            session
                .done
                .keys()
                .map(|sequence| Key::Reply(*id, *sequence))
        });
        nodes
            .chain(clients)
            .chain(replies)
            .filter_map(|key| Some((key.encode(), self.encoded(key)?)))
            .collect()
    }
}

/// Whether every sequence in `low..to` is done.
fn done_through(session: &ClientSession, low: u64, to: u64) -> bool {
    let missing = to.saturating_sub(low);
    missing <= OPEN_SEQUENCES_MAX && session.done.range(low..to.max(low)).count() as u64 == missing
}

fn charge(reply: &Option<Vec<u8>>) -> usize {
    REPLY_OVERHEAD_BYTES + reply.as_ref().map_or(0, Vec::len)
}

impl Key {
    /// Big-endian, so that keys sort as what they name.
    fn encode(self) -> Vec<u8> {
        let mut key = Vec::with_capacity(21);
        match self {
            Self::Node(node) => {
                key.push(b'n');
                key.extend_from_slice(&node.0.to_be_bytes());
            }
            Self::Client(id) => {
                key.push(b'c');
                key.extend_from_slice(&id.slot.to_be_bytes());
                key.extend_from_slice(&id.index.to_be_bytes());
            }
            Self::Reply(id, sequence) => {
                key.push(b'r');
                key.extend_from_slice(&id.slot.to_be_bytes());
                key.extend_from_slice(&id.index.to_be_bytes());
                key.extend_from_slice(&sequence.to_be_bytes());
            }
        }
        key
    }

    fn decode(key: &[u8]) -> Option<Self> {
        let (kind, rest) = key.split_first()?;
        let mut rest = Fields(rest);
        let key = match kind {
            b'n' => Self::Node(NodeId(rest.u32()?)),
            b'c' => Self::Client(rest.session()?),
            b'r' => Self::Reply(rest.session()?, rest.u64()?),
            _ => return None,
        };
        rest.0.is_empty().then_some(key)
    }
}

impl NodeSession {
    fn encode(&self) -> Vec<u8> {
        let mut value = self.boot.to_be_bytes().to_vec();
        for word in [self.slot, self.number, self.next, self.last_slot] {
            value.extend_from_slice(&word.to_be_bytes());
        }
        value
    }

    fn decode(value: &[u8]) -> Option<Self> {
        let mut rest = Fields(value);
        let boot = rest.u32()?;
        let session = Self {
            boot,
            slot: rest.u64()?,
            number: rest.u64()?,
            next: rest.u64()?,
            last_slot: rest.u64()?,
        };
        rest.0.is_empty().then_some(session)
    }
}

impl ClientSession {
    fn encode(&self) -> Vec<u8> {
        let (origin, boot, number) = self.request;
        let mut value = origin.0.to_be_bytes().to_vec();
        value.extend_from_slice(&boot.to_be_bytes());
        for word in [number, self.last_slot, self.low] {
            value.extend_from_slice(&word.to_be_bytes());
        }
        value
    }

    fn decode(value: &[u8]) -> Option<Self> {
        let mut rest = Fields(value);
        let request = (NodeId(rest.u32()?), rest.u32()?, rest.u64()?);
        let session = Self {
            request,
            last_slot: rest.u64()?,
            low: rest.u64()?,
            done: BTreeMap::new(),
        };
        rest.0.is_empty().then_some(session)
    }
}

/// Takes big-endian fields off the front.
struct Fields<'a>(&'a [u8]);

impl Fields<'_> {
    fn u32(&mut self) -> Option<u32> {
        let (word, rest) = self.0.split_first_chunk::<4>()?;
        self.0 = rest;
        Some(u32::from_be_bytes(*word))
    }

    fn u64(&mut self) -> Option<u64> {
        let (word, rest) = self.0.split_first_chunk::<8>()?;
        self.0 = rest;
        Some(u64::from_be_bytes(*word))
    }

    fn session(&mut self) -> Option<SessionId> {
        Some(SessionId {
            slot: self.u64()?,
            index: self.u32()?,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NODE: NodeId = NodeId(2);

    fn table() -> Sessions {
        Sessions::with_bounds(Bounds {
            clients: 3,
            nodes: 2,
            reply_bytes: 1000,
        })
    }

    fn client(table: &mut Sessions, slot: u64) -> SessionId {
        table.register(Slot(slot), NODE, 1, slot);
        SessionId { slot, index: 0 }
    }

    fn at(session: SessionId, sequence: u64, acknowledged_below: u64) -> Sequenced {
        Sequenced {
            session,
            sequence,
            acknowledged_below,
        }
    }

    /// Runs one command as the applier does and says what came of it.
    fn run(table: &mut Sessions, slot: u64, place: Sequenced, reply: &[u8]) -> String {
        let verdict = match table.verdict(Slot(slot), place) {
            Verdict::Execute => "executed".to_owned(),
            Verdict::Stored(reply) => return format!("stored {}", String::from_utf8_lossy(reply)),
            other => return format!("{other:?}").to_lowercase(),
        };
        table.executed(place, reply);
        verdict
    }

    fn turn(table: &mut Sessions, slot: u64, boot: u32, session: u64, sequence: u64) -> Turn {
        let name = BatchName {
            origin: NODE,
            boot,
            ..BatchName::default()
        };
        table.take_turn(Slot(slot), &name, Header { session, sequence })
    }

    #[test]
    fn batches_of_an_origin_execute_once_and_in_order() {
        let mut table = table();
        table.register(Slot(4), NODE, 1, NODE_SESSION);
        assert_eq!(turn(&mut table, 5, 1, 4, 2), Turn::Early);
        assert_eq!(turn(&mut table, 6, 1, 4, 1), Turn::Now);
        assert_eq!(turn(&mut table, 7, 1, 4, 1), Turn::Past);
        assert_eq!(turn(&mut table, 8, 1, 4, 2), Turn::Now);
        assert_eq!(turn(&mut table, 9, 1, 4, 2), Turn::Past);
    }

    /// [session-4] Nor does a batch run in the session of another start of its node.
    #[test]
    fn batch_of_an_unknown_session_never_executes() {
        let mut table = table();
        assert_eq!(turn(&mut table, 1, 1, 0, 1), Turn::Never);
        table.register(Slot(4), NODE, 1, NODE_SESSION);
        assert_eq!(turn(&mut table, 5, 1, 3, 1), Turn::Never);
        assert_eq!(turn(&mut table, 5, 2, 4, 1), Turn::Never);
        table.register(Slot(6), NODE, 2, NODE_SESSION);
        assert_eq!(
            turn(&mut table, 7, 1, 4, 1),
            Turn::Never,
            "fenced by the newer start"
        );
        assert_eq!(turn(&mut table, 8, 2, 6, 1), Turn::Now);
        table.expire(6);
        assert_eq!(turn(&mut table, 9, 2, 6, 2), Turn::Never);
    }

    #[test]
    fn repeated_registration_changes_nothing() {
        let mut table = table();
        table.register(Slot(4), NODE, 2, NODE_SESSION);
        assert_eq!(turn(&mut table, 5, 2, 4, 1), Turn::Now);
        table.register(Slot(6), NODE, 2, NODE_SESSION);
        table.register(Slot(7), NODE, 1, NODE_SESSION | 9);
        assert_eq!(turn(&mut table, 8, 2, 4, 2), Turn::Now);
        assert_eq!(table.node_session(NODE, 2, NODE_SESSION), Some(4));

        table.register(Slot(10), NODE, 2, 77);
        table.register(Slot(11), NODE, 2, 77);
        let first = SessionId { slot: 10, index: 0 };
        assert_eq!(table.client_session(NODE, 2, 77), Some(first));
        assert_eq!(table.clients.len(), 1);
    }

    #[test]
    fn repeated_command_gets_the_stored_reply() {
        let mut table = table();
        let session = client(&mut table, 1);
        assert_eq!(run(&mut table, 2, at(session, 1, 0), b"one"), "executed");
        assert_eq!(run(&mut table, 3, at(session, 1, 0), b"two"), "stored one");
    }

    /// [session-2] Sequences may be decided out of order.
    #[test]
    fn sequences_execute_in_any_order_once() {
        let mut table = table();
        let session = client(&mut table, 1);
        for (slot, sequence) in [(2, 3), (3, 1), (4, 2)] {
            assert_eq!(
                run(&mut table, slot, at(session, sequence, 0), b"x"),
                "executed"
            );
        }
        for sequence in 1..=3 {
            assert_eq!(
                run(&mut table, 9, at(session, sequence, 0), b"y"),
                "stored x"
            );
        }
    }

    #[test]
    fn acknowledged_replies_are_forgotten_and_never_executed_again() {
        let mut table = table();
        let session = client(&mut table, 1);
        run(&mut table, 2, at(session, 1, 0), b"x");
        run(&mut table, 3, at(session, 2, 2), b"x");
        assert_eq!(run(&mut table, 4, at(session, 1, 0), b"y"), "forgotten");
        assert_eq!(run(&mut table, 5, at(session, 2, 0), b"y"), "stored x");
        // A client cannot acknowledge what it only now sends.
        assert_eq!(
            run(&mut table, 6, at(session, 3, u64::MAX), b"x"),
            "executed"
        );
        assert_eq!(run(&mut table, 6, at(session, 3, 0), b"x"), "stored x");
    }

    #[test]
    fn session_is_full_while_its_oldest_sequence_is_open() {
        let mut table = Sessions::new();
        let session = client(&mut table, 1);
        // Sequence 1 is on its way; 2 to 64 are done.
        for sequence in 2..=64 {
            assert_eq!(
                run(&mut table, 2, at(session, sequence, 0), b""),
                "executed"
            );
        }
        assert_eq!(run(&mut table, 3, at(session, 65, 0), b""), "full");
        assert_eq!(run(&mut table, 3, at(session, u64::MAX, 0), b""), "full");
        assert_eq!(run(&mut table, 4, at(session, 1, 0), b""), "executed");
        assert_eq!(run(&mut table, 5, at(session, 65, 0), b""), "executed");
        assert_eq!(
            run(&mut table, 6, at(session, 1, 0), b""),
            "forgotten",
            "evicted by 65"
        );
        assert_eq!(run(&mut table, 6, at(session, 2, 0), b""), "stored ");
    }

    /// [session-3] Deterministic: by last slot.
    #[test]
    fn full_table_loses_the_session_used_longest_ago() {
        let mut table = table();
        let [a, b, c] = [1, 2, 3].map(|slot| client(&mut table, slot));
        run(&mut table, 4, at(a, 1, 0), b"");
        let d = client(&mut table, 5);
        assert_eq!(run(&mut table, 6, at(b, 1, 0), b""), "unknown");
        for session in [a, c, d] {
            assert_ne!(run(&mut table, 7, at(session, 9, 9), b""), "unknown");
        }
    }

    #[test]
    fn stored_replies_are_bounded_in_bytes() {
        let mut table = table();
        let [a, b] = [1, 2].map(|slot| client(&mut table, slot));
        run(&mut table, 3, at(a, 1, 0), &[7; 500]);
        run(&mut table, 4, at(b, 1, 0), &[7; 300]);
        assert_eq!(run(&mut table, 5, at(b, 2, 0), &[7; 300]), "executed");
        assert_eq!(
            run(&mut table, 6, at(a, 1, 0), b""),
            "unknown",
            "the older one went"
        );
        assert_eq!(run(&mut table, 7, at(b, 3, 0), &[7; 600]), "executed");
        assert_eq!(
            run(&mut table, 8, at(b, 1, 0), b""),
            "forgotten",
            "its own oldest reply went"
        );
        assert!(table.reply_bytes <= 1000);
        assert_eq!(run(&mut table, 9, at(b, 4, 0), &[7; 2000]), "executed");
        assert_eq!(
            run(&mut table, 10, at(b, 4, 0), b""),
            "forgotten",
            "too large to keep at all"
        );
    }

    #[test]
    fn expired_session_is_unknown() {
        let mut table = table();
        let session = client(&mut table, 1);
        table.expire(1);
        assert_eq!(run(&mut table, 2, at(session, 1, 0), b""), "unknown");
        assert_eq!(table.canonical(), []);
    }

    #[test]
    fn node_table_is_bounded() {
        let mut table = table();
        for node in 1..=3 {
            table.register(Slot(u64::from(node)), NodeId(node), 1, NODE_SESSION);
        }
        assert_eq!(table.node_session(NodeId(1), 1, NODE_SESSION), None);
        assert!(table.node_session(NodeId(3), 1, NODE_SESSION).is_some());
    }

    /// A persistent service that applies the changes holds the table.
    #[test]
    fn table_survives_as_metadata() {
        let mut table = Sessions::new();
        let mut kept = BTreeMap::new();
        let mut keep = |table: &mut Sessions| {
            let mut changes = Vec::new();
            table.take_changes(&mut changes);
            for MetaChange { key, value } in changes {
                match value {
                    Some(value) => drop(kept.insert(key, value)),
                    None => drop(kept.remove(&key)),
                }
            }
            Vec::from_iter(kept.clone())
        };
        table.register(Slot(1), NODE, 3, NODE_SESSION | 1);
        let [a, b] = [2, 3].map(|slot| client(&mut table, slot));
        turn(&mut table, 4, 3, 1, 1);
        run(&mut table, 5, at(a, 1, 0), b"one");
        run(&mut table, 5, at(b, 1, 0), b"other");
        keep(&mut table);
        run(&mut table, 6, at(a, 2, 2), b"two");
        table.expire(3);
        let entries = keep(&mut table);

        let mut restored = Sessions::restore(entries).unwrap();
        assert_eq!(restored.canonical(), table.canonical());
        assert_eq!(restored.reply_bytes, table.reply_bytes);
        assert_eq!(run(&mut restored, 7, at(a, 2, 0), b""), "stored two");
        assert_eq!(run(&mut restored, 7, at(b, 1, 0), b""), "unknown");
        assert_eq!(turn(&mut restored, 8, 3, 1, 1), Turn::Past);
    }

    #[test]
    fn unreadable_metadata_is_an_error_not_a_panic() {
        for (key, value) in [
            (&b""[..], &b""[..]),
            (b"z123", b""),
            (b"n\0\0\0\x01", b"short"),
            (b"c\0\0", b""),
            (b"r\0\0\0\0\0\0\0\x01\0\0\0\0\0\0\0\0\0\0\0\x01", b"\x01x"),
        ] {
            assert!(Sessions::restore(vec![(key.to_vec(), value.to_vec())]).is_err());
        }
    }
}
