//! Connections accepted before this node knew the permissions ([access-4]). They and their input
//! wait for as long as a request may wait for a leader.

use std::collections::BTreeMap;

use quorate_replica::front::{AccessPatience, ConnectionId, Endpoints, Requests};

#[derive(Debug, Default)]
pub(crate) struct WaitingConnections {
    by_connection: BTreeMap<ConnectionId, WaitingConnection>,
    access_patience: AccessPatience,
}

#[derive(Debug)]
pub(crate) struct WaitingConnection {
    pub(crate) endpoints: Endpoints,
    /// The client has half-closed the connection while it waits.
    pub(crate) is_half_closed: bool,
}

impl WaitingConnections {
    /// Returns whether a new connection has to wait.
    pub(crate) fn is_needed(&mut self, requests: &dyn Requests) -> bool {
        requests.users().is_none() && !self.is_wait_over(requests)
    }

    fn is_wait_over(&mut self, requests: &dyn Requests) -> bool {
        self.access_patience.has_expired(requests.wall_ms())
    }

    pub(crate) fn add_connection(&mut self, connection: ConnectionId, ends: Endpoints) {
        let ended = false;
        self.by_connection
            .insert(connection, WaitingConnection { endpoints: ends, is_half_closed: ended });
    }

    pub(crate) fn contains(&self, connection: ConnectionId) -> bool {
        self.by_connection.contains_key(&connection)
    }

    pub(crate) fn count(&self) -> usize {
        self.by_connection.len()
    }

    /// Records a client's half-close. Returns `false` if the connection is not waiting here.
    pub(crate) fn record_half_close(&mut self, connection: ConnectionId) -> bool {
        let waiting = self.by_connection.get_mut(&connection);
        waiting.map(|waiting| waiting.is_half_closed = true).is_some()
    }

    pub(crate) fn remove_connection(&mut self, connection: ConnectionId) {
        self.by_connection.remove(&connection);
    }

    /// Takes all waiting connections, once the access rights are known or the wait for them has
    /// taken too long.
    pub(crate) fn take_if_ready(
        &mut self,
        requests: &dyn Requests,
    ) -> BTreeMap<ConnectionId, WaitingConnection> {
        let done = !self.by_connection.is_empty()
            && (requests.users().is_some() || self.is_wait_over(requests));
        if done { std::mem::take(&mut self.by_connection) } else { BTreeMap::new() }
    }
}
