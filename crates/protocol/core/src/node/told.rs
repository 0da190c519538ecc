//! Last notifications to the caller about this node, so that only changes are sent.

use crate::{ballot::Ballot, effect::Role, time::Time};

/// The last notifications.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Told {
    role: (Role, Option<Ballot>),
    wake: Time,
    /// The node's votes count.
    heard: bool,
}

impl Default for Told {
    fn default() -> Self {
        Self { role: (Role::Follower, None), wake: Time(0), heard: true }
    }
}

impl Told {
    /// Returns whether this role, and the leader's ballot, are news.
    pub(super) fn is_news(&mut self, role: Role, leader: Option<Ballot>) -> bool {
        core::mem::replace(&mut self.role, (role, leader)) != (role, leader)
    }

    /// Returns whether votes of this node count now, and did not before.
    pub(super) fn is_heard_anew(&mut self, heard: bool) -> bool {
        heard && !core::mem::replace(&mut self.heard, heard)
    }

    /// Returns whether the caller was to wake this node at another time.
    pub(super) fn is_other_time(&mut self, wake: Time) -> bool {
        core::mem::replace(&mut self.wake, wake) != wake
    }

    /// Notes that the caller woke this node as requested; the next time is sent again, whatever it
    /// is.
    pub(super) fn woken(&mut self) {
        self.wake = Time(0);
    }
}
