//! What a connection knows of its session.

use quorate_replica::front::{Sequenced, SessionId};

/// The session that a connection is attached to.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Attached {
    session: Option<SessionId>,
    /// The client has received every reply with a sequence number below this.
    acknowledged_below: u64,
}

impl Attached {
    pub(super) fn to(&mut self, session: SessionId) {
        *self = Self { session: Some(session), acknowledged_below: 0 };
    }

    /// Raises the acknowledged number, never backwards: acknowledged replies may be forgotten
    /// already.
    pub(super) fn acknowledge(&mut self, below: u64) {
        self.acknowledged_below = self.acknowledged_below.max(below);
    }

    /// A number of the session, if there is one.
    pub(super) fn at(&self, sequence: u64) -> Option<Sequenced> {
        Some(Sequenced {
            session: self.session?,
            sequence,
            acknowledged_below: self.acknowledged_below,
        })
    }
}
