//! Client connections, with their ids and the arrival times of bytes on them.

use std::collections::BTreeMap;

use quorate_core::time::Time;
use quorate_replica::front::ConnectionId;

/// Connections that clients have opened.
#[derive(Debug, Default)]
pub(crate) struct ClientConnections {
    last_connection: u64,
    last_arrival: BTreeMap<ConnectionId, Time>,
}

impl ClientConnections {
    /// Opens a connection and returns its id.
    pub(crate) fn open(&mut self) -> ConnectionId {
        self.last_connection += 1;
        ConnectionId(self.last_connection)
    }

    /// Returns the arrival time of data that is due at `at`. The data is delayed if necessary, so
    /// that bytes on one connection remain in order.
    pub(crate) fn schedule_arrival(&mut self, connection: ConnectionId, at: Time) -> Time {
        let last = self.last_arrival.entry(connection).or_default();
        *last = at.max(last.plus_us(1));
        *last
    }

    /// Drops the state of a closed connection.
    pub(crate) fn close(&mut self, connection: ConnectionId) {
        self.last_arrival.remove(&connection);
    }
}
