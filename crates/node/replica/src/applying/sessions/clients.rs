//! Client sessions: each numbers the commands of one client and stores their replies ([session-2]).

use std::collections::{BTreeMap, BTreeSet};

use quorate_core::{node_id::NodeId, slot::Slot};

use super::codec::{SessionKey, decode_reply, encode_reply};
use crate::{
    fields::Fields,
    ports::outcome::{Sequenced, SessionId},
};

/// Maximum number of open sequences per client session ([session-2]).
pub const OPEN_SEQUENCES_MAX: u64 = 64;
/// Memory in bytes charged for a stored reply in addition to its length.
const REPLY_OVERHEAD_BYTES: usize = 64;

/// Origin, boot and number of a registration. A repeated registration has the same three.
pub(super) type RegistrationId = (NodeId, u32, u64);

/// Verdict on a client's numbered command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum CommandVerdict<'a> {
    /// Not executed yet. The caller executes the command and reports the reply with
    /// [`super::Sessions::store_reply`].
    Execute,
    /// Executed before, with this reply.
    Stored(&'a [u8]),
    /// Executed before, but the reply is no longer stored.
    Forgotten,
    /// The session already has the maximum number of open sequences.
    Full,
    /// The session does not exist ([session-4]).
    Unknown,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct ClientSession {
    pub(super) registration: RegistrationId,
    pub(super) last_slot: u64,
    /// Lowest open sequence. All lower ones were executed or acknowledged by the client.
    pub(super) lowest_open: u64,
    /// Executed sequences from `lowest_open` on with their replies; `None` if the reply was too
    /// large to store.
    pub(super) executed_replies: BTreeMap<u64, Option<Vec<u8>>>,
}

impl ClientSession {
    pub(super) fn encode(&self) -> Vec<u8> {
        let (origin, boot, number) = self.registration;
        let mut value = origin.0.to_be_bytes().to_vec();
        value.extend_from_slice(&boot.to_be_bytes());
        for word in [number, self.last_slot, self.lowest_open] {
            value.extend_from_slice(&word.to_be_bytes());
        }
        value
    }

    pub(super) fn decode(value: &[u8]) -> Option<Self> {
        let mut rest = Fields(value);
        let request = (NodeId(rest.u32()?), rest.u32()?, rest.u64()?);
        let session = Self {
            registration: request,
            last_slot: rest.u64()?,
            lowest_open: rest.u64()?,
            executed_replies: BTreeMap::new(),
        };
        rest.0.is_empty().then_some(session)
    }
}

#[derive(Clone, Debug)]
pub(super) struct ClientSessions {
    sessions_max: usize,
    reply_bytes_max: usize,
    table: BTreeMap<SessionId, ClientSession>,
    by_request: BTreeMap<RegistrationId, SessionId>,
    by_age: BTreeSet<(u64, SessionId)>,
    reply_bytes: usize,
}

impl ClientSessions {
    pub(super) fn new(max: usize, reply_bytes_max: usize) -> Self {
        Self {
            sessions_max: max,
            reply_bytes_max,
            table: BTreeMap::new(),
            by_request: BTreeMap::new(),
            by_age: BTreeSet::new(),
            reply_bytes: 0,
        }
    }

    pub(super) fn register(
        &mut self,
        slot: Slot,
        request: RegistrationId,
        changed: &mut BTreeSet<SessionKey>,
    ) {
        if self.by_request.contains_key(&request) {
            return;
        }
        let id = SessionId { slot: slot.0, index: 0 };
        let session = ClientSession {
            registration: request,
            last_slot: slot.0,
            lowest_open: 1,
            executed_replies: BTreeMap::new(),
        };
        self.restore_session(id, session);
        changed.insert(SessionKey::Client(id));
        self.drop_oldest_sessions(id, changed);
    }

    /// Returns the session that this registration began, if it still exists.
    pub(super) fn session_of(&self, request: RegistrationId) -> Option<SessionId> {
        self.by_request.get(&request).copied()
    }

    /// Returns the boot and number of this origin's last registration whose session still exists.
    pub(super) fn last_registration(&self, origin: NodeId) -> Option<(u32, u64)> {
        let all = (origin, 0, 0)..=(origin, u32::MAX, u64::MAX);
        let ((_, boot, number), _) = self.by_request.range(all).next_back()?;
        Some((*boot, *number))
    }

    pub(super) fn judge_command(
        &mut self,
        slot: Slot,
        at: Sequenced,
        changed: &mut BTreeSet<SessionKey>,
    ) -> CommandVerdict<'_> {
        let Some(session) = self.table.get_mut(&at.session) else {
            return CommandVerdict::Unknown;
        };
        if session.last_slot != slot.0 {
            self.by_age.remove(&(session.last_slot, at.session));
            self.by_age.insert((slot.0, at.session));
            session.last_slot = slot.0;
            changed.insert(SessionKey::Client(at.session));
        }
        // The client cannot have received the reply to a command that is only now decided.
        let acknowledged = at.acknowledged_below.min(at.sequence);
        let needed = at.sequence.saturating_sub(OPEN_SEQUENCES_MAX - 1);
        if !are_all_executed(session, acknowledged.max(session.lowest_open), needed) {
            return CommandVerdict::Full;
        }
        self.raise_lowest_open(at.session, acknowledged.max(needed), changed);
        let session = &self.table[&at.session];
        if at.sequence < session.lowest_open {
            return CommandVerdict::Forgotten;
        }
        match session.executed_replies.get(&at.sequence) {
            None => CommandVerdict::Execute,
            Some(None) => CommandVerdict::Forgotten,
            Some(Some(reply)) => CommandVerdict::Stored(reply),
        }
    }

    fn raise_lowest_open(&mut self, id: SessionId, low: u64, changed: &mut BTreeSet<SessionKey>) {
        let Some(session) = self.table.get_mut(&id) else {
            return;
        };
        if low <= session.lowest_open {
            return;
        }
        session.lowest_open = low;
        changed.insert(SessionKey::Client(id));
        while let Some(first) = session.executed_replies.first_entry()
            && *first.key() < low
        {
            changed.insert(SessionKey::Reply(id, *first.key()));
            self.reply_bytes -= charged_bytes(&first.remove());
        }
    }

    pub(super) fn store_reply(
        &mut self,
        at: Sequenced,
        reply: &[u8],
        changed: &mut BTreeSet<SessionKey>,
    ) {
        let Some(session) = self.table.get_mut(&at.session) else {
            return;
        };
        let reply = Some(reply.to_vec());
        self.reply_bytes += charged_bytes(&reply);
        session.executed_replies.insert(at.sequence, reply);
        changed.insert(SessionKey::Reply(at.session, at.sequence));
        self.drop_oldest_sessions(at.session, changed);
    }

    /// [session-3] Makes space in a full table by dropping the sessions whose last slot is the
    /// oldest. If only the newest session is left, drops its oldest replies.
    fn drop_oldest_sessions(&mut self, newest: SessionId, changed: &mut BTreeSet<SessionKey>) {
        while self.table.len() > self.sessions_max || self.reply_bytes > self.reply_bytes_max {
            let oldest = self.by_age.iter().map(|(_, id)| *id).find(|id| *id != newest);
            match oldest {
                Some(id) => self.remove(id, changed),
                None => return self.forget_replies(newest, changed),
            }
        }
    }

    fn forget_replies(&mut self, id: SessionId, changed: &mut BTreeSet<SessionKey>) {
        let Some(session) = self.table.get_mut(&id) else {
            return;
        };
        for (sequence, reply) in &mut session.executed_replies {
            if self.reply_bytes <= self.reply_bytes_max {
                return;
            }
            if reply.is_some() {
                self.reply_bytes -= charged_bytes(reply) - charged_bytes(&None);
                *reply = None;
                changed.insert(SessionKey::Reply(id, *sequence));
            }
        }
    }

    pub(super) fn remove(&mut self, id: SessionId, changed: &mut BTreeSet<SessionKey>) {
        let Some(session) = self.table.remove(&id) else {
            return;
        };
        self.by_request.remove(&session.registration);
        self.by_age.remove(&(session.last_slot, id));
        changed.insert(SessionKey::Client(id));
        for (sequence, reply) in &session.executed_replies {
            self.reply_bytes -= charged_bytes(reply);
            changed.insert(SessionKey::Reply(id, *sequence));
        }
    }

    /// Adds a session restored from a persistent service, without its replies.
    pub(super) fn restore_session(&mut self, id: SessionId, session: ClientSession) {
        self.by_request.insert(session.registration, id);
        self.by_age.insert((session.last_slot, id));
        self.table.insert(id, session);
    }

    /// Adds a reply restored from a persistent service to a session that was restored before.
    /// Returns `None` if the reply is unreadable.
    pub(super) fn restore_reply(
        &mut self,
        id: SessionId,
        sequence: u64,
        value: &[u8],
    ) -> Option<()> {
        let reply = decode_reply(value)?;
        let session = self.table.get_mut(&id)?;
        self.reply_bytes += charged_bytes(&reply);
        session.executed_replies.insert(sequence, reply);
        Some(())
    }

    pub(super) fn encode_entry(&self, id: SessionId) -> Option<Vec<u8>> {
        self.table.get(&id).map(ClientSession::encode)
    }

    pub(super) fn encode_reply(&self, id: SessionId, sequence: u64) -> Option<Vec<u8>> {
        let reply = self.table.get(&id)?.executed_replies.get(&sequence)?;
        Some(encode_reply(reply.as_deref()))
    }

    /// Iterates over the keys of all sessions, then of all replies.
    pub(super) fn keys(&self) -> impl Iterator<Item = SessionKey> {
        let clients = self.table.keys().map(|id| SessionKey::Client(*id));
        let replies = self.table.iter().flat_map(|(id, session)| {
            session.executed_replies.keys().map(|sequence| SessionKey::Reply(*id, *sequence))
        });
        clients.chain(replies)
    }

    #[cfg(test)]
    pub(super) fn len(&self) -> usize {
        self.table.len()
    }

    #[cfg(test)]
    pub(super) fn reply_bytes(&self) -> usize {
        self.reply_bytes
    }
}

fn are_all_executed(session: &ClientSession, low: u64, to: u64) -> bool {
    let missing = to.saturating_sub(low);
    missing <= OPEN_SEQUENCES_MAX
        && session.executed_replies.range(low..to.max(low)).count() as u64 == missing
}

fn charged_bytes(reply: &Option<Vec<u8>>) -> usize {
    REPLY_OVERHEAD_BYTES + reply.as_ref().map_or(0, Vec::len)
}
