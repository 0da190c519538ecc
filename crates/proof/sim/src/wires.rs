//! The connections of clients: their numbers, and when what is sent on them arrives.

use std::collections::BTreeMap;

use quorate_core::time::Time;
use quorate_replica::front::ConnectionId;

/// All connections that clients opened.
#[derive(Debug, Default)]
pub(crate) struct Wires {
    last: u64,
    last_arrival: BTreeMap<ConnectionId, Time>,
}

impl Wires {
    /// Opens a new connection.
    pub(crate) fn open(&mut self) -> ConnectionId {
        self.last += 1;
        ConnectionId(self.last)
    }

    /// Returns when data arrives that could be there `at` this moment: never before what was sent
    /// earlier.
    pub(crate) fn arrival(&mut self, connection: ConnectionId, at: Time) -> Time {
        let last = self.last_arrival.entry(connection).or_default();
        *last = at.max(last.plus_us(1));
        *last
    }

    /// Forgets a connection that is gone.
    pub(crate) fn close(&mut self, connection: ConnectionId) {
        self.last_arrival.remove(&connection);
    }
}
