//! Intentional changes of leader: the transfer in progress, and this node's fitness ([live-3],
//! [live-4]).

mod transferring;

use crate::{fitness::Fitness, time::Time, transfer::Transfer};

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Handover {
    /// The transfer of leadership by this leader, if one is in progress.
    transfer: Option<Transfer>,
    fitness: Fitness,
}

impl Default for Handover {
    fn default() -> Self {
        Self { transfer: None, fitness: Fitness::Fit }
    }
}

impl Handover {
    pub(super) fn is_in_progress(&self) -> bool {
        self.transfer.is_some()
    }

    /// Returns whether this leader accepts no proposals, so that the target can catch up.
    pub(super) fn pauses_proposals(&self) -> bool {
        self.transfer.is_some_and(|transfer| transfer.pauses_proposals())
    }

    /// Ends the transfer. Returns whether one was in progress.
    pub(super) fn end_transfer(&mut self) -> bool {
        self.transfer.take().is_some()
    }

    pub(super) fn is_overdue(&self, now: Time) -> bool {
        self.transfer.is_some_and(|transfer| now >= transfer.deadline)
    }

    /// Returns the time at which the transfer next needs a tick.
    pub(super) fn wake_at(&self, leads: bool) -> Option<Time> {
        self.transfer.map(|transfer| transfer.wake_at(leads))
    }

    pub(super) fn is_unfit(&self) -> bool {
        self.fitness != Fitness::Fit
    }

    /// Returns whether this node leaves leadership to any other node that is fit.
    pub(super) fn should_hand_over(&self) -> bool {
        self.fitness.should_hand_over()
    }

    /// [live-3] Returns whether this node cannot write its log, and so could not record a ballot.
    pub(super) fn cannot_write(&self) -> bool {
        self.fitness == Fitness::CannotWrite
    }
}
