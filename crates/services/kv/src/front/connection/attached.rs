//! The session to which a connection is attached.

use quorate_replica::front::{Sequenced, SessionId};

#[derive(Clone, Copy, Debug, Default)]
pub(super) struct SessionAttachment {
    session: Option<SessionId>,
    /// Sequence number below which the client has acknowledged all replies.
    acknowledged_below: u64,
}

impl SessionAttachment {
    pub(super) fn attach_to(&mut self, session: SessionId) {
        *self = Self { session: Some(session), acknowledged_below: 0 };
    }

    /// Raises the acknowledged number. It never decreases, because acknowledged replies may have
    /// been dropped.
    pub(super) fn raise_acknowledged(&mut self, below: u64) {
        self.acknowledged_below = self.acknowledged_below.max(below);
    }

    /// Returns the identity of the request with sequence number `sequence`, or `None` without a
    /// session.
    pub(super) fn sequenced(&self, sequence: u64) -> Option<Sequenced> {
        Some(Sequenced {
            session: self.session?,
            sequence,
            acknowledged_below: self.acknowledged_below,
        })
    }
}
