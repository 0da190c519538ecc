//! Connections accepted before this node knew the access rights ([access-4]): they wait for those
//! as for a leader, and their bytes with them.

use std::collections::BTreeMap;

use quorate_replica::front::{ConnectionId, Endpoints, Patience, Requests};

/// Connections not yet looked at.
#[derive(Debug, Default)]
pub(crate) struct Patient {
    waiting: BTreeMap<ConnectionId, Waiting>,
    patience: Patience,
}

/// A waiting connection.
#[derive(Debug)]
pub(crate) struct Waiting {
    pub(crate) ends: Endpoints,
    /// The client has sent its last byte.
    pub(crate) ended: bool,
}

impl Patient {
    /// Returns whether a new connection has to wait.
    pub(crate) fn is_needed(&mut self, requests: &dyn Requests) -> bool {
        requests.users().is_none() && !self.is_over(requests)
    }

    fn is_over(&mut self, requests: &dyn Requests) -> bool {
        self.patience.is_over(requests.wall_ms())
    }

    pub(crate) fn wait(&mut self, connection: ConnectionId, ends: Endpoints) {
        let ended = false;
        self.waiting.insert(connection, Waiting { ends, ended });
    }

    pub(crate) fn has(&self, connection: ConnectionId) -> bool {
        self.waiting.contains_key(&connection)
    }

    pub(crate) fn count(&self) -> usize {
        self.waiting.len()
    }

    /// The client has sent its last byte; `false`: it does not wait here.
    pub(crate) fn end(&mut self, connection: ConnectionId) -> bool {
        let waiting = self.waiting.get_mut(&connection);
        waiting.map(|waiting| waiting.ended = true).is_some()
    }

    pub(crate) fn leave(&mut self, connection: ConnectionId) {
        self.waiting.remove(&connection);
    }

    /// Returns the connections that need not wait any more.
    pub(crate) fn take(&mut self, requests: &dyn Requests) -> BTreeMap<ConnectionId, Waiting> {
        let done =
            !self.waiting.is_empty() && (requests.users().is_some() || self.is_over(requests));
        if done { std::mem::take(&mut self.waiting) } else { BTreeMap::new() }
    }
}
