//! Leadership that moves on purpose: the transfer in progress, and this node's fitness ([live-3],
//! [live-4]).

mod transferring;

use crate::{fitness::Fitness, time::Time, transfer::Transfer};

/// The transfer in progress, and whether this node should lead at all.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Handover {
    /// The transfer of leadership that this leader makes.
    transfer: Option<Transfer>,
    fitness: Fitness,
}

impl Default for Handover {
    fn default() -> Self {
        Self { transfer: None, fitness: Fitness::Fit }
    }
}

impl Handover {
    /// Returns whether leadership is being handed over.
    pub(super) fn is_in_progress(&self) -> bool {
        self.transfer.is_some()
    }

    /// Returns whether this leader takes no proposals, so that the target can catch up.
    pub(super) fn holds_back(&self) -> bool {
        self.transfer.is_some_and(|transfer| transfer.holds_back())
    }

    /// Ends the transfer. Returns whether one was in progress.
    pub(super) fn end(&mut self) -> bool {
        self.transfer.take().is_some()
    }

    /// Returns whether the transfer has passed its deadline.
    pub(super) fn is_overdue(&self, now: Time) -> bool {
        self.transfer.is_some_and(|transfer| now >= transfer.deadline)
    }

    /// Returns when the transfer next needs a tick.
    pub(super) fn wake_at(&self, leads: bool) -> Option<Time> {
        self.transfer.map(|transfer| transfer.wake_at(leads))
    }

    /// Returns whether this node should rather not lead.
    pub(super) fn is_unfit(&self) -> bool {
        self.fitness != Fitness::Fit
    }

    /// Returns whether this node leaves leadership to others that are fit.
    pub(super) fn gives_way(&self) -> bool {
        self.fitness.gives_way()
    }

    /// [live-3] Returns whether this node cannot write, so that it could not record a ballot.
    pub(super) fn cannot_write(&self) -> bool {
        self.fitness == Fitness::CannotWrite
    }
}
