//! Session registrations by this node: its own session, which numbers its batches, and its clients'
//! sessions.

use std::collections::BTreeMap;

use quorate_core::{node_id::NodeId, time::Time, value::Value};

use crate::{
    applying::sessions::NODE_SESSION_BIT,
    completions::Completions,
    ports::outcome::{Failure, SessionId, Tag},
    proposing::batch::BatchHeader,
};

/// State of this node's own session. The session numbers the node's batches.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum OwnSession {
    /// No session is needed yet.
    None,
    /// The registration must be proposed. `is_offered` is set once it was offered to the current
    /// leader.
    Unregistered { is_offered: bool },
    /// The session is registered in this slot; `next` is the number of the next batch.
    Open { slot: u64, next: u64 },
}

/// A client's session that is not registered yet.
#[derive(Clone, Copy, Debug)]
struct WaitingSession {
    tag: Tag,
    deadline: Time,
    /// The registration was offered to the current leader.
    is_offered: bool,
    /// The registration was offered to the current or an earlier leader, so it may take effect.
    was_ever_offered: bool,
}

#[derive(Debug)]
pub(super) struct Registrations {
    node: NodeId,
    boot: u32,
    own_session: OwnSession,
    /// Number of registrations started for this node's own session.
    own_registration_count: u64,
    /// Waiting registrations by number, which is the order of acceptance and thus of their
    /// deadlines.
    waiting_clients: BTreeMap<u64, WaitingSession>,
    client_registration_count: u64,
}

impl Registrations {
    pub(super) fn new(node: NodeId, boot: u32) -> Self {
        Self {
            node,
            boot,
            own_session: OwnSession::None,
            own_registration_count: 0,
            waiting_clients: BTreeMap::new(),
            client_registration_count: 0,
        }
    }

    /// Starts registering this node's session, which batches need for their numbers, unless there
    /// is one.
    pub(super) fn ensure_own_session(&mut self) {
        if self.own_session == OwnSession::None {
            self.renew_own_session();
        }
    }

    /// Starts registering a new session of this node, because the last one has ended or never
    /// existed.
    pub(super) fn renew_own_session(&mut self) {
        self.own_registration_count += 1;
        self.own_session = OwnSession::Unregistered { is_offered: false };
    }

    /// Returns whether batches can be numbered.
    pub(super) fn is_own_session_open(&self) -> bool {
        matches!(self.own_session, OwnSession::Open { .. })
    }

    /// Takes the position for the next batch in this node's session, if the session is open.
    pub(super) fn take_next_position(&mut self) -> Option<BatchHeader> {
        let OwnSession::Open { slot, next } = &mut self.own_session else {
            return None;
        };
        let header = BatchHeader { session: *slot, sequence: *next };
        *next += 1;
        Some(header)
    }

    /// Queues the registration of a client's session. The caller limits their number.
    pub(super) fn push(&mut self, tag: Tag, deadline: Time) {
        self.client_registration_count += 1;
        self.waiting_clients.insert(
            self.client_registration_count,
            WaitingSession { tag, deadline, is_offered: false, was_ever_offered: false },
        );
    }

    /// Returns the numbers of the last registrations: of this node's own session, and of a
    /// client's.
    pub(super) fn last_numbers(&self) -> [u64; 2] {
        [self.own_number(), self.client_registration_count]
    }

    pub(super) fn waiting_client_count(&self) -> usize {
        self.waiting_clients.len()
    }

    pub(super) fn is_waiting(&self) -> bool {
        self.own_session == (OwnSession::Unregistered { is_offered: false })
            || self.waiting_clients.values().any(|waiting| !waiting.is_offered)
    }

    /// Returns whether a registration was offered to the current leader and has not taken effect.
    pub(super) fn is_offered(&self) -> bool {
        self.own_session == (OwnSession::Unregistered { is_offered: true })
            || self.waiting_clients.values().any(|waiting| waiting.is_offered)
    }

    /// Returns the next registration to offer, and marks it as offered.
    pub(super) fn take_next_to_offer(&mut self) -> Option<Value> {
        if self.own_session == (OwnSession::Unregistered { is_offered: false }) {
            self.own_session = OwnSession::Unregistered { is_offered: true };
            return Some(self.value(self.own_number()));
        }
        let mut clients = self.waiting_clients.iter_mut();
        let (&number, waiting) = clients.find(|(_, waiting)| !waiting.is_offered)?;
        (waiting.is_offered, waiting.was_ever_offered) = (true, true);
        Some(self.value(number))
    }

    fn own_number(&self) -> u64 {
        NODE_SESSION_BIT | self.own_registration_count
    }

    fn value(&self, number: u64) -> Value {
        Value::RegisterSession { origin: self.node, boot: self.boot, number }
    }

    /// Handles the leader's refusal of a registration. The registration will be offered again.
    pub(super) fn on_refused(&mut self, number: u64) {
        if number == self.own_number() {
            self.repeat_own_registration();
        } else if let Some(waiting) = self.waiting_clients.get_mut(&number) {
            waiting.is_offered = false;
        }
    }

    /// Schedules all registrations for another offer, since earlier offers may be lost.
    pub(super) fn repeat_all(&mut self) {
        self.repeat_own_registration();
        for waiting in self.waiting_clients.values_mut() {
            waiting.is_offered = false;
        }
    }

    fn repeat_own_registration(&mut self) {
        if let OwnSession::Unregistered { is_offered: offered } = &mut self.own_session {
            *offered = false;
        }
    }

    pub(super) fn on_registered(&mut self, number: u64, slot: u64, completions: &mut Completions) {
        if number == self.own_number() {
            if matches!(self.own_session, OwnSession::Unregistered { .. }) {
                self.own_session = OwnSession::Open { slot, next: 1 };
            }
        } else if let Some(waiting) = self.waiting_clients.remove(&number) {
            completions.complete_registration(waiting.tag, SessionId { slot, index: 0 });
        }
    }

    /// Returns the numbers of registrations not known to have taken effect.
    pub(super) fn unconfirmed_numbers(&self) -> Vec<u64> {
        let own =
            matches!(self.own_session, OwnSession::Unregistered { .. }).then(|| self.own_number());
        own.into_iter().chain(self.waiting_clients.keys().copied()).collect()
    }

    /// Fails clients' registrations that have timed out, and returns their number.
    pub(super) fn fail_expired(&mut self, now: Time, completions: &mut Completions) -> u64 {
        let mut expired = 0;
        while let Some(first) = self.waiting_clients.first_entry()
            && first.get().deadline <= now
        {
            let waiting = first.remove();
            let failure =
                if waiting.was_ever_offered { Failure::Unknown } else { Failure::NoQuorum };
            completions.complete_failed(waiting.tag, failure);
            expired += 1;
        }
        expired
    }

    pub(super) fn deadline(&self) -> Option<Time> {
        self.waiting_clients.first_key_value().map(|(_, first)| first.deadline)
    }
}
