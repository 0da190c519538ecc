//! Exactly-once execution: the table of executed batches and commands, by origin and by client
//! session. Part of the replicated state.
//!
//! The table is a function of the log alone and equal on all nodes, so its bounds are constants.
//! Node sessions number the batches of a node (`nodes`), and client sessions number the commands of
//! a client (`clients`). Both kinds are registered by the same kind of value. `codec` encodes both.

mod clients;
mod codec;
mod nodes;

use std::collections::BTreeSet;

use quorate_core::{node_id::NodeId, slot::Slot, value::BatchName};

use self::{
    clients::{ClientSession, ClientSessions},
    codec::SessionKey,
    nodes::{NodeSession, NodeSessions},
};
use crate::{
    ports::{
        outcome::{Sequenced, SessionId},
        service::{MetaChange, Metadata},
    },
    proposing::batch::BatchHeader,
};

pub(crate) use {clients::CommandVerdict, nodes::BatchVerdict};
pub use {clients::OPEN_SEQUENCES_MAX, codec::UnreadableMetadata};

/// Bit in a registration's number that marks a node session.
pub const NODE_SESSION_BIT: u64 = 1 << 63;

/// Bounds of the table. The replicated state depends on them, so they never change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct SessionBounds {
    clients: usize,
    nodes: usize,
    reply_bytes: usize,
}

const SESSION_BOUNDS: SessionBounds =
    SessionBounds { clients: 16_384, nodes: 1_024, reply_bytes: 64 << 20 };

#[derive(Clone, Debug)]
pub(crate) struct Sessions {
    nodes: NodeSessions,
    clients: ClientSessions,
    /// Keys of changed entries that the service still has to store.
    changed_keys: BTreeSet<SessionKey>,
}

impl Sessions {
    pub(crate) fn new() -> Self {
        Self::with_bounds(SESSION_BOUNDS)
    }

    fn with_bounds(bounds: SessionBounds) -> Self {
        Self {
            nodes: NodeSessions::new(bounds.nodes),
            clients: ClientSessions::new(bounds.clients, bounds.reply_bytes),
            changed_keys: BTreeSet::new(),
        }
    }

    /// Applies a registration. Repeating a registration has no effect.
    pub(crate) fn register(&mut self, slot: Slot, origin: NodeId, boot: u32, number: u64) {
        let changed = &mut self.changed_keys;
        if number & NODE_SESSION_BIT != 0 {
            self.nodes.register(slot, origin, boot, number, changed);
        } else {
            self.clients.register(slot, (origin, boot, number), changed);
        }
    }

    pub(crate) fn expire_session(&mut self, slot: u64) {
        let id = SessionId { slot, index: 0 };
        self.clients.remove(id, &mut self.changed_keys);
        self.nodes.expire_session(slot, &mut self.changed_keys);
    }

    /// Decides whether this batch, decided in `slot`, is executed, and if so marks it as executed.
    pub(crate) fn judge_batch(
        &mut self,
        slot: Slot,
        name: &BatchName,
        header: BatchHeader,
    ) -> BatchVerdict {
        self.nodes.judge_batch(slot, name, header, &mut self.changed_keys)
    }

    /// Returns the result of [`Self::judge_batch`] without changing anything.
    pub(crate) fn preview_verdict(&self, name: &BatchName, header: BatchHeader) -> BatchVerdict {
        self.nodes.preview_verdict(name, header)
    }

    /// Returns the session that boot `boot` of a node registered, if the registration took effect.
    pub(crate) fn node_session(&self, origin: NodeId, boot: u32, number: u64) -> Option<u64> {
        self.nodes.session_of(origin, boot, number)
    }

    /// Returns the session of boot `boot` of an origin, and the number of its next batch.
    pub(crate) fn next_batch(&self, origin: NodeId, boot: u32) -> Option<(u64, u64)> {
        self.nodes.current_session(origin, boot)
    }

    /// Returns the client session that this registration began, if it still exists.
    pub(crate) fn client_session(
        &self,
        origin: NodeId,
        boot: u32,
        number: u64,
    ) -> Option<SessionId> {
        self.clients.session_of((origin, boot, number))
    }

    /// Returns the boot and number of the latest registrations by `origin` whose sessions still
    /// exist: first the node's own session, then a client's.
    pub(crate) fn last_registrations(&self, origin: NodeId) -> [Option<(u32, u64)>; 2] {
        [self.nodes.newest_session(origin), self.clients.last_registration(origin)]
    }

    /// Returns the verdict on a client's numbered command, decided in `slot` ([session-2]).
    pub(crate) fn judge_command(&mut self, slot: Slot, at: Sequenced) -> CommandVerdict<'_> {
        self.clients.judge_command(slot, at, &mut self.changed_keys)
    }

    /// Stores the reply to a command that [`Self::judge_command`] allowed.
    pub(crate) fn store_reply(&mut self, at: Sequenced, reply: &[u8]) {
        self.clients.store_reply(at, reply, &mut self.changed_keys);
    }

    /// Moves the changes since the last call into `changes`, for the service to store.
    pub(crate) fn take_changes(&mut self, changes: &mut Vec<MetaChange>) {
        for key in std::mem::take(&mut self.changed_keys) {
            changes.push(MetaChange { key: key.encode(), value: self.encode_entry(key) });
        }
    }

    fn encode_entry(&self, key: SessionKey) -> Option<Vec<u8>> {
        match key {
            SessionKey::Node(node) => self.nodes.encode_entry(node),
            SessionKey::Client(id) => self.clients.encode_entry(id),
            SessionKey::Reply(id, sequence) => self.clients.encode_reply(id, sequence),
        }
    }

    /// Restores the table from a persistent service's metadata.
    pub(crate) fn restore(entries: Metadata) -> Result<Self, UnreadableMetadata> {
        let mut table = Self::new();
        let mut replies = Vec::new();
        for (key, value) in entries {
            let known = match SessionKey::decode(&key) {
                Some(SessionKey::Node(node)) => NodeSession::decode(&value)
                    .map(|session| table.nodes.restore_session(node, session)),
                Some(SessionKey::Client(id)) => ClientSession::decode(&value)
                    .map(|session| table.clients.restore_session(id, session)),
                Some(SessionKey::Reply(id, sequence)) => {
                    replies.push((key.clone(), id, sequence, value));
                    Some(())
                }
                None => None,
            };
            known.ok_or(UnreadableMetadata { key })?;
        }
        for (key, id, sequence, value) in replies {
            let known = table.clients.restore_reply(id, sequence, &value);
            known.ok_or(UnreadableMetadata { key })?;
        }
        Ok(table)
    }

    /// Returns the table in canonical form, equal on all nodes that applied the same slots.
    pub(crate) fn canonical_entries(&self) -> Metadata {
        let keys = self.nodes.keys().chain(self.clients.keys());
        keys.filter_map(|key| Some((key.encode(), self.encode_entry(key)?))).collect()
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;

    const NODE: NodeId = NodeId(2);

    fn table() -> Sessions {
        Sessions::with_bounds(SessionBounds { clients: 3, nodes: 2, reply_bytes: 1000 })
    }

    fn client(table: &mut Sessions, slot: u64) -> SessionId {
        table.register(Slot(slot), NODE, 1, slot);
        SessionId { slot, index: 0 }
    }

    fn at(session: SessionId, sequence: u64, acknowledged_below: u64) -> Sequenced {
        Sequenced { session, sequence, acknowledged_below }
    }

    /// Runs one command as the applier does and returns the outcome as text.
    fn run(table: &mut Sessions, slot: u64, place: Sequenced, reply: &[u8]) -> String {
        let verdict = match table.judge_command(Slot(slot), place) {
            CommandVerdict::Execute => "executed".to_owned(),
            CommandVerdict::Stored(reply) => {
                return format!("stored {}", String::from_utf8_lossy(reply));
            }
            other => return format!("{other:?}").to_lowercase(),
        };
        table.store_reply(place, reply);
        verdict
    }

    fn turn(
        table: &mut Sessions,
        slot: u64,
        boot: u32,
        session: u64,
        sequence: u64,
    ) -> BatchVerdict {
        let name = BatchName { origin: NODE, boot, ..BatchName::default() };
        table.judge_batch(Slot(slot), &name, BatchHeader { session, sequence })
    }

    #[test]
    fn batches_of_an_origin_execute_once_and_in_order() {
        let mut table = table();
        table.register(Slot(4), NODE, 1, NODE_SESSION_BIT);
        assert_eq!(turn(&mut table, 5, 1, 4, 2), BatchVerdict::OutOfOrder);
        assert_eq!(turn(&mut table, 6, 1, 4, 1), BatchVerdict::Execute);
        assert_eq!(turn(&mut table, 7, 1, 4, 1), BatchVerdict::AlreadyExecuted);
        assert_eq!(turn(&mut table, 8, 1, 4, 2), BatchVerdict::Execute);
        assert_eq!(turn(&mut table, 9, 1, 4, 2), BatchVerdict::AlreadyExecuted);
    }

    /// [session-4] A batch does not run in the session of another start of its node.
    #[test]
    fn batch_of_an_unknown_session_never_executes() {
        let mut table = table();
        assert_eq!(turn(&mut table, 1, 1, 0, 1), BatchVerdict::UnknownSession);
        table.register(Slot(4), NODE, 1, NODE_SESSION_BIT);
        assert_eq!(turn(&mut table, 5, 1, 3, 1), BatchVerdict::UnknownSession);
        assert_eq!(turn(&mut table, 5, 2, 4, 1), BatchVerdict::UnknownSession);
        table.register(Slot(6), NODE, 2, NODE_SESSION_BIT);
        assert_eq!(
            turn(&mut table, 7, 1, 4, 1),
            BatchVerdict::UnknownSession,
            "fenced by the newer start"
        );
        assert_eq!(turn(&mut table, 8, 2, 6, 1), BatchVerdict::Execute);
        table.expire_session(6);
        assert_eq!(turn(&mut table, 9, 2, 6, 2), BatchVerdict::UnknownSession);
    }

    #[test]
    fn repeated_registration_changes_nothing() {
        let mut table = table();
        table.register(Slot(4), NODE, 2, NODE_SESSION_BIT);
        assert_eq!(turn(&mut table, 5, 2, 4, 1), BatchVerdict::Execute);
        table.register(Slot(6), NODE, 2, NODE_SESSION_BIT);
        table.register(Slot(7), NODE, 1, NODE_SESSION_BIT | 9);
        assert_eq!(turn(&mut table, 8, 2, 4, 2), BatchVerdict::Execute);
        assert_eq!(table.node_session(NODE, 2, NODE_SESSION_BIT), Some(4));

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

    /// [session-2] A client's sequences may be decided in any order.
    #[test]
    fn sequences_execute_in_any_order_once() {
        let mut table = table();
        let session = client(&mut table, 1);
        for (slot, sequence) in [(2, 3), (3, 1), (4, 2)] {
            assert_eq!(run(&mut table, slot, at(session, sequence, 0), b"x"), "executed");
        }
        for sequence in 1..=3 {
            assert_eq!(run(&mut table, 9, at(session, sequence, 0), b"y"), "stored x");
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
        // The client cannot acknowledge a command that it is only now sending.
        assert_eq!(run(&mut table, 6, at(session, 3, u64::MAX), b"x"), "executed");
        assert_eq!(run(&mut table, 6, at(session, 3, 0), b"x"), "stored x");
    }

    #[test]
    fn session_is_full_while_its_oldest_sequence_is_open() {
        let mut table = Sessions::new();
        let session = client(&mut table, 1);
        // Sequence 1 is in flight; 2 to 64 are done.
        for sequence in 2..=64 {
            assert_eq!(run(&mut table, 2, at(session, sequence, 0), b""), "executed");
        }
        assert_eq!(run(&mut table, 3, at(session, 65, 0), b""), "full");
        assert_eq!(run(&mut table, 3, at(session, u64::MAX, 0), b""), "full");
        assert_eq!(run(&mut table, 4, at(session, 1, 0), b""), "executed");
        assert_eq!(run(&mut table, 5, at(session, 65, 0), b""), "executed");
        assert_eq!(run(&mut table, 6, at(session, 1, 0), b""), "forgotten", "evicted by 65");
        assert_eq!(run(&mut table, 6, at(session, 2, 0), b""), "stored ");
    }

    /// [session-3] A full table drops the session with the oldest last slot, on every node.
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
        assert_eq!(run(&mut table, 6, at(a, 1, 0), b""), "unknown", "the older one went");
        assert_eq!(run(&mut table, 7, at(b, 3, 0), &[7; 600]), "executed");
        assert_eq!(run(&mut table, 8, at(b, 1, 0), b""), "forgotten", "its own oldest reply went");
        assert!(table.clients.reply_bytes() <= 1000);
        assert_eq!(run(&mut table, 9, at(b, 4, 0), &[7; 2000]), "executed");
        assert_eq!(run(&mut table, 10, at(b, 4, 0), b""), "forgotten", "too large to keep at all");
    }

    #[test]
    fn expired_session_is_unknown() {
        let mut table = table();
        let session = client(&mut table, 1);
        table.expire_session(1);
        assert_eq!(run(&mut table, 2, at(session, 1, 0), b""), "unknown");
        assert_eq!(table.canonical_entries(), []);
    }

    #[test]
    fn node_table_is_bounded() {
        let mut table = table();
        for node in 1..=3 {
            table.register(Slot(u64::from(node)), NodeId(node), 1, NODE_SESSION_BIT);
        }
        assert_eq!(table.node_session(NodeId(1), 1, NODE_SESSION_BIT), None);
        assert!(table.node_session(NodeId(3), 1, NODE_SESSION_BIT).is_some());
    }

    /// A persistent service that applies all changes has the whole table.
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
        table.register(Slot(1), NODE, 3, NODE_SESSION_BIT | 1);
        let [a, b] = [2, 3].map(|slot| client(&mut table, slot));
        turn(&mut table, 4, 3, 1, 1);
        run(&mut table, 5, at(a, 1, 0), b"one");
        run(&mut table, 5, at(b, 1, 0), b"other");
        keep(&mut table);
        run(&mut table, 6, at(a, 2, 2), b"two");
        table.expire_session(3);
        let entries = keep(&mut table);

        let mut restored = Sessions::restore(entries).unwrap();
        assert_eq!(restored.canonical_entries(), table.canonical_entries());
        assert_eq!(restored.clients.reply_bytes(), table.clients.reply_bytes());
        assert_eq!(run(&mut restored, 7, at(a, 2, 0), b""), "stored two");
        assert_eq!(run(&mut restored, 7, at(b, 1, 0), b""), "unknown");
        assert_eq!(turn(&mut restored, 8, 3, 1, 1), BatchVerdict::AlreadyExecuted);
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
