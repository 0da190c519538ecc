//! Values last reported to the caller, kept so that only changes are reported.

use crate::{ballot::Ballot, effect::Role, time::Time};

/// The values last reported to the caller.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct LastNotified {
    role: (Role, Option<Ballot>),
    wake: Time,
}

impl Default for LastNotified {
    fn default() -> Self {
        Self { role: (Role::Follower, None), wake: Time(0) }
    }
}

impl LastNotified {
    /// Records the role and the leader's ballot. Returns whether either changed.
    pub(super) fn is_news(&mut self, role: Role, leader: Option<Ballot>) -> bool {
        core::mem::replace(&mut self.role, (role, leader)) != (role, leader)
    }

    /// Records the next wake-up time. Returns whether it changed.
    pub(super) fn is_other_time(&mut self, wake: Time) -> bool {
        core::mem::replace(&mut self.wake, wake) != wake
    }

    /// Records that the caller has woken this node, so that the next wake-up time is reported even
    /// if it is unchanged.
    pub(super) fn woken(&mut self) {
        self.wake = Time(0);
    }
}
