//! Membership and feature level of the group: requests from operators and joining nodes, and the
//! changes that the leader makes ([era-8], [join-1], [member-2], [volatile-2]).
//!
//! `driver` holds the state, and `view` reads it. Any node checks requests (`requests`); the leader
//! takes the steps (`steps`) and raises the level (`levels`, timed by `rising`). `group/planner`
//! computes the path to a goal.

use quorate_log::disk::Disk;

use crate::{members::driver::MembershipDriver, ports::service::StateMachine, spine::Spine};

pub(crate) mod driver;
mod levels;
mod requests;
pub mod rising;
mod steps;
mod view;

/// Membership and the spine, borrowed for reading.
#[derive(Clone, Copy)]
pub(crate) struct MembersView<'a, D: Disk, S: StateMachine> {
    pub(crate) driver: &'a MembershipDriver,
    pub(crate) spine: &'a Spine<D, S>,
}

/// Membership and the spine, borrowed for one call.
pub(crate) struct MembersWork<'a, D: Disk, S: StateMachine> {
    pub(crate) driver: &'a mut MembershipDriver,
    pub(crate) spine: &'a mut Spine<D, S>,
}

impl<D: Disk, S: StateMachine> MembersWork<'_, D, S> {
    fn view(&self) -> MembersView<'_, D, S> {
        MembersView { driver: self.driver, spine: self.spine }
    }
}
