//! The parts of the replica that snapshots use in one turn.

use quorate_core::time::Time;
use quorate_log::{Log, disk::Disk};

use crate::{
    applying::Applying, catching_up::CatchingUp, completions::Completions, observing::Observing,
    outbox::Outbox, peers::Peers, ports::service::StateMachine, proposing::origin::Origin,
    protocol::Protocol, storing::Storing,
};

/// Delay in milliseconds before a retry if data cannot be read or accepted at the moment.
pub(super) const RETRY_DELAY_MS: u64 = 100;

pub(crate) struct ReplicaParts<'a, 'o, D: Disk, S> {
    pub(crate) now: Time,
    pub(crate) storing: &'a mut Storing<D>,
    pub(crate) applying: &'a mut Applying<S>,
    pub(crate) origin: &'a mut Origin,
    pub(crate) completions: &'a mut Completions,
    pub(crate) catching_up: &'a mut CatchingUp,
    pub(crate) protocol: &'a mut Protocol,
    pub(crate) peers: &'a Peers,
    pub(crate) observing: &'a mut Observing,
    pub(crate) outbox: &'a mut Outbox<'o>,
}

impl<D: Disk, S: StateMachine> ReplicaParts<'_, '_, D, S> {
    pub(super) fn log(&mut self) -> &mut Log<D> {
        self.storing.log_mut()
    }

    pub(super) fn disk(&mut self) -> &mut D {
        self.storing.log_mut().disk_mut()
    }
}
