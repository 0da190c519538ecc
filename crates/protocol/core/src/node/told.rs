//! Values last reported to the caller, kept so that only changes are reported.

use crate::{ballot::Ballot, effect::Role, time::Time};

/// The values last reported to the caller.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct LastNotified {
    role: (Role, Option<Ballot>),
    wake_at: Time,
}

impl Default for LastNotified {
    fn default() -> Self {
        Self { role: (Role::Follower, None), wake_at: Time(0) }
    }
}

impl LastNotified {
    /// Records the role and the leader's ballot. Returns whether either changed.
    pub(super) fn record_role(&mut self, role: Role, leader: Option<Ballot>) -> bool {
        core::mem::replace(&mut self.role, (role, leader)) != (role, leader)
    }

    /// Records the next wake-up time. Returns whether it changed.
    pub(super) fn record_wake_at(&mut self, wake: Time) -> bool {
        core::mem::replace(&mut self.wake_at, wake) != wake
    }

    /// Records that the caller has woken this node, so that the next wake-up time is reported even
    /// if it is unchanged.
    pub(super) fn record_woken(&mut self) {
        self.wake_at = Time(0);
    }
}
