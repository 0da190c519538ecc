//! The session of a connection.

use quorate_replica::front::{Sequenced, SessionId};

/// Session that a connection is attached to.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Attached {
    session: Option<SessionId>,
    /// The client has received all replies with a sequence number below this.
    acknowledged_below: u64,
}

impl Attached {
    pub(super) fn to(&mut self, session: SessionId) {
        *self = Self { session: Some(session), acknowledged_below: 0 };
    }

    /// Raises the acknowledged number. It never decreases: acknowledged replies may already be
    /// dropped.
    pub(super) fn acknowledge(&mut self, below: u64) {
        self.acknowledged_below = self.acknowledged_below.max(below);
    }

    /// Returns a number in the session, if the connection has one.
    pub(super) fn at(&self, sequence: u64) -> Option<Sequenced> {
        Some(Sequenced {
            session: self.session?,
            sequence,
            acknowledged_below: self.acknowledged_below,
        })
    }
}
