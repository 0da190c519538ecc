//! Session registrations by this node: its own session, which numbers its batches, and its clients'
//! sessions.

use std::collections::BTreeMap;

use quorate_core::{node_id::NodeId, time::Time, value::Value};

use crate::{
    applying::sessions::NODE_SESSION,
    completions::Completions,
    ports::outcome::{Failure, SessionId, Tag},
    proposing::batch::Header,
};

/// State of this node's own session. The session numbers the node's batches.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Own {
    /// No session is needed yet.
    None,
    /// The registration must be proposed. `offered` is set once it was offered to the current
    /// leader.
    Asked { offered: bool },
    /// The session is registered in this slot; `next` is the number of the next batch.
    Open { slot: u64, next: u64 },
}

/// A client's session that is not registered yet.
#[derive(Clone, Copy, Debug)]
struct WaitingSession {
    tag: Tag,
    deadline: Time,
    /// The registration was offered to the current leader.
    offered: bool,
    /// The registration was offered to the current or an earlier leader, so it may take effect.
    offered_once: bool,
}

#[derive(Debug)]
pub(super) struct Registrations {
    node: NodeId,
    boot: u32,
    own: Own,
    /// Number of registrations started for this node's own session.
    own_count: u64,
    /// Waiting registrations by number, which is the order of acceptance and thus of their
    /// deadlines.
    clients: BTreeMap<u64, WaitingSession>,
    clients_count: u64,
}

impl Registrations {
    pub(super) fn new(node: NodeId, boot: u32) -> Self {
        Self {
            node,
            boot,
            own: Own::None,
            own_count: 0,
            clients: BTreeMap::new(),
            clients_count: 0,
        }
    }

    /// Starts registering this node's session, which batches need for their numbers, unless there
    /// is one.
    pub(super) fn need_own(&mut self) {
        if self.own == Own::None {
            self.renew_own();
        }
    }

    /// Starts registering a new session of this node, because the last one has ended or never
    /// existed.
    pub(super) fn renew_own(&mut self) {
        self.own_count += 1;
        self.own = Own::Asked { offered: false };
    }

    /// Returns whether batches can be numbered.
    pub(super) fn is_open(&self) -> bool {
        matches!(self.own, Own::Open { .. })
    }

    /// Takes the position for the next batch in this node's session, if the session is open.
    pub(super) fn take_number(&mut self) -> Option<Header> {
        let Own::Open { slot, next } = &mut self.own else {
            return None;
        };
        let header = Header { session: *slot, sequence: *next };
        *next += 1;
        Some(header)
    }

    /// Queues the registration of a client's session. The caller limits their number.
    pub(super) fn push(&mut self, tag: Tag, deadline: Time) {
        self.clients_count += 1;
        self.clients.insert(
            self.clients_count,
            WaitingSession { tag, deadline, offered: false, offered_once: false },
        );
    }

    /// Returns the numbers of the last registrations: of this node's own session, and of a
    /// client's.
    pub(super) fn last_numbers(&self) -> [u64; 2] {
        [self.own_number(), self.clients_count]
    }

    pub(super) fn clients(&self) -> usize {
        self.clients.len()
    }

    pub(super) fn is_waiting(&self) -> bool {
        self.own == (Own::Asked { offered: false })
            || self.clients.values().any(|waiting| !waiting.offered)
    }

    /// Returns whether a registration was offered to the current leader and has not taken effect.
    pub(super) fn is_offered(&self) -> bool {
        self.own == (Own::Asked { offered: true })
            || self.clients.values().any(|waiting| waiting.offered)
    }

    /// Returns the next registration to offer, and marks it as offered.
    pub(super) fn take_next(&mut self) -> Option<Value> {
        if self.own == (Own::Asked { offered: false }) {
            self.own = Own::Asked { offered: true };
            return Some(self.value(self.own_number()));
        }
        let mut clients = self.clients.iter_mut();
        let (&number, waiting) = clients.find(|(_, waiting)| !waiting.offered)?;
        (waiting.offered, waiting.offered_once) = (true, true);
        Some(self.value(number))
    }

    fn own_number(&self) -> u64 {
        NODE_SESSION | self.own_count
    }

    fn value(&self, number: u64) -> Value {
        Value::RegisterSession { origin: self.node, boot: self.boot, number }
    }

    /// Handles the leader's refusal of a registration. The registration will be offered again.
    pub(super) fn on_refused(&mut self, number: u64) {
        if number == self.own_number() {
            self.repeat_own();
        } else if let Some(waiting) = self.clients.get_mut(&number) {
            waiting.offered = false;
        }
    }

    /// Schedules all registrations for another offer, since earlier offers may be lost.
    pub(super) fn repeat_all(&mut self) {
        self.repeat_own();
        for waiting in self.clients.values_mut() {
            waiting.offered = false;
        }
    }

    fn repeat_own(&mut self) {
        if let Own::Asked { offered } = &mut self.own {
            *offered = false;
        }
    }

    pub(super) fn on_registered(&mut self, number: u64, slot: u64, completions: &mut Completions) {
        if number == self.own_number() {
            if matches!(self.own, Own::Asked { .. }) {
                self.own = Own::Open { slot, next: 1 };
            }
        } else if let Some(waiting) = self.clients.remove(&number) {
            completions.registered(waiting.tag, SessionId { slot, index: 0 });
        }
    }

    /// Returns the numbers of registrations not known to have taken effect.
    pub(super) fn open_numbers(&self) -> Vec<u64> {
        let own = matches!(self.own, Own::Asked { .. }).then(|| self.own_number());
        own.into_iter().chain(self.clients.keys().copied()).collect()
    }

    /// Fails clients' registrations that have timed out, and returns their number.
    pub(super) fn expire(&mut self, now: Time, completions: &mut Completions) -> u64 {
        let mut expired = 0;
        while let Some(first) = self.clients.first_entry()
            && first.get().deadline <= now
        {
            let waiting = first.remove();
            let failure = if waiting.offered_once { Failure::Unknown } else { Failure::NoQuorum };
            completions.failed(waiting.tag, failure);
            expired += 1;
        }
        expired
    }

    pub(super) fn deadline(&self) -> Option<Time> {
        self.clients.first_key_value().map(|(_, first)| first.deadline)
    }
}
