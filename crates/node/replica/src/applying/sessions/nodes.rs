//! Node sessions: each numbers the batches of one boot of one node.
//!
//! Batches execute in the order of their numbers or not at all. Therefore everything that an origin
//! accepts executes once, in the order of acceptance, even if messages are repeated or reordered.

use std::collections::{BTreeMap, BTreeSet};

use quorate_core::{node_id::NodeId, slot::Slot, value::BatchName};

use super::codec::SessionKey;
use crate::{fields::Fields, proposing::batch::BatchHeader};

/// Verdict on whether a batch is executed now, with the reason if not.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum BatchVerdict {
    /// The next batch of its origin, to be executed now.
    Execute,
    /// A batch that was executed before.
    AlreadyExecuted,
    /// A batch that arrived before an earlier one of its origin; the origin resends both.
    OutOfOrder,
    /// A batch of an unknown session, which is never executed in any slot ([session-4]).
    UnknownSession,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct NodeSession {
    pub(super) slot: u64,
    pub(super) boot: u32,
    pub(super) number: u64,
    pub(super) next: u64,
    pub(super) last_slot: u64,
}

impl NodeSession {
    pub(super) fn encode(&self) -> Vec<u8> {
        let mut value = self.boot.to_be_bytes().to_vec();
        for word in [self.slot, self.number, self.next, self.last_slot] {
            value.extend_from_slice(&word.to_be_bytes());
        }
        value
    }

    pub(super) fn decode(value: &[u8]) -> Option<Self> {
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

#[derive(Clone, Debug)]
pub(super) struct NodeSessions {
    sessions_max: usize,
    table: BTreeMap<NodeId, NodeSession>,
}

impl NodeSessions {
    pub(super) fn new(max: usize) -> Self {
        Self { sessions_max: max, table: BTreeMap::new() }
    }

    pub(super) fn register(
        &mut self,
        slot: Slot,
        origin: NodeId,
        boot: u32,
        number: u64,
        changed: &mut BTreeSet<SessionKey>,
    ) {
        // A newer session fences the older one: batches in flight from an earlier boot are not
        // executed. Their clients received "unknown", or were disconnected when that process ended.
        if self.table.get(&origin).is_some_and(|held| (held.boot, held.number) >= (boot, number)) {
            return;
        }
        let session = NodeSession { slot: slot.0, boot, number, next: 1, last_slot: slot.0 };
        self.table.insert(origin, session);
        changed.insert(SessionKey::Node(origin));
        if self.table.len() > self.sessions_max {
            let oldest = self.table.iter().min_by_key(|(node, held)| (held.last_slot, **node));
            if let Some((&node, _)) = oldest {
                self.table.remove(&node);
                changed.insert(SessionKey::Node(node));
            }
        }
    }

    pub(super) fn expire_session(&mut self, slot: u64, changed: &mut BTreeSet<SessionKey>) {
        let node = self.table.iter().find(|(_, session)| session.slot == slot);
        if let Some((&node, _)) = node {
            self.table.remove(&node);
            changed.insert(SessionKey::Node(node));
        }
    }

    /// Decides whether this batch, decided in `slot`, is executed, and if so marks it as executed.
    pub(super) fn judge_batch(
        &mut self,
        slot: Slot,
        name: &BatchName,
        header: BatchHeader,
        changed: &mut BTreeSet<SessionKey>,
    ) -> BatchVerdict {
        let turn = self.preview_verdict(name, header);
        if turn == BatchVerdict::Execute
            && let Some(session) = self.table.get_mut(&name.origin)
        {
            session.next += 1;
            session.last_slot = slot.0;
            changed.insert(SessionKey::Node(name.origin));
        }
        turn
    }

    /// Returns the result of [`Self::judge_batch`] without changing anything.
    pub(super) fn preview_verdict(&self, name: &BatchName, header: BatchHeader) -> BatchVerdict {
        let Some(session) = self.table.get(&name.origin) else {
            return BatchVerdict::UnknownSession;
        };
        if session.slot != header.session || session.boot != name.boot {
            return BatchVerdict::UnknownSession;
        }
        match header.sequence.cmp(&session.next) {
            std::cmp::Ordering::Less => BatchVerdict::AlreadyExecuted,
            std::cmp::Ordering::Equal => BatchVerdict::Execute,
            std::cmp::Ordering::Greater => BatchVerdict::OutOfOrder,
        }
    }

    /// Returns the id of the session that this registration began, if it took effect.
    pub(super) fn session_of(&self, origin: NodeId, boot: u32, number: u64) -> Option<u64> {
        let session = self.table.get(&origin)?;
        (session.boot == boot && session.number == number).then_some(session.slot)
    }

    /// Returns the boot and number of this origin's newest session.
    pub(super) fn newest_session(&self, origin: NodeId) -> Option<(u32, u64)> {
        let session = self.table.get(&origin)?;
        Some((session.boot, session.number))
    }

    /// Returns the session id for boot `boot` of an origin, and the number of the next batch.
    pub(super) fn current_session(&self, origin: NodeId, boot: u32) -> Option<(u64, u64)> {
        let session = self.table.get(&origin)?;
        (session.boot == boot).then_some((session.slot, session.next))
    }

    pub(super) fn restore_session(&mut self, node: NodeId, session: NodeSession) {
        self.table.insert(node, session);
    }

    pub(super) fn encode_entry(&self, node: NodeId) -> Option<Vec<u8>> {
        self.table.get(&node).map(NodeSession::encode)
    }

    pub(super) fn keys(&self) -> impl Iterator<Item = SessionKey> {
        self.table.keys().map(|node| SessionKey::Node(*node))
    }
}
