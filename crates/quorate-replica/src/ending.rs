//! The end of a replica: finish what was accepted, hand over, write everything down ([volatile-4]).

use quorate_core::{
    effect::{Refusal, Role},
    input::Input,
    node_id::NodeId,
    time::Time,
};
use quorate_disk::Disk;

use crate::{replica::Replica, service::StateMachine};

/// How far the end has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Stop {
    /// Not asked for.
    Running,
    /// Takes nothing new; what was accepted ends, by then at the latest.
    Finishing(Time),
    /// Hands leadership to somebody, by then at the latest.
    HandingOver(Time),
    /// Says nothing any more; the last records are on their way to the disk.
    Writing,
    /// All is written.
    Done,
}

impl Stop {
    pub(crate) const fn is_requested(self) -> bool {
        !matches!(self, Self::Running)
    }

    /// [volatile-4] No promise and no vote may follow the last record.
    pub(crate) const fn is_silent(self) -> bool {
        matches!(self, Self::Writing | Self::Done)
    }

    pub(crate) const fn deadline(self) -> Option<Time> {
        match self {
            Self::Finishing(at) | Self::HandingOver(at) => Some(at),
            Self::Running | Self::Writing | Self::Done => None,
        }
    }
}

impl<D: Disk, S: StateMachine> Replica<D, S> {
    /// Begins a clean stop: nothing new is taken. The caller goes on driving the replica until
    /// [`Replica::is_stopped`], and only then marks the stop as clean.
    pub fn stop(&mut self, now: Time) {
        if self.stop == Stop::Running {
            self.stop = Stop::Finishing(now.plus_ms(self.client_timeout_ms));
        }
    }

    /// Whether a clean stop has ended: every vote and promise is on disk.
    pub fn is_stopped(&self) -> bool {
        self.stop == Stop::Done
    }

    /// Whether a stop that has ended may be marked as clean: not if the log failed.
    pub fn stopped_cleanly(&self) -> bool {
        self.is_stopped() && self.storage_error.is_none()
    }

    /// Hands leadership to this node, or to the most advanced follower ([live-4]). The end of it:
    /// [`Replica::take_transfer_result`].
    pub fn transfer(&mut self, _now: Time, to: Option<NodeId>) {
        self.transfer_ended = None;
        self.inbox.push_back(Input::Transfer { to });
    }

    /// How a transfer ended, once.
    pub fn take_transfer_result(&mut self) -> Option<Result<NodeId, Refusal>> {
        self.transfer_ended.take()
    }

    pub(crate) fn advance_stop(&mut self, now: Time) {
        match self.stop {
            Stop::Running | Stop::Done => {}
            Stop::Finishing(deadline) => {
                let idle = self.completions.open() == 0 && self.origin.is_idle();
                if idle || now >= deadline {
                    self.end_requests();
                    self.hand_over(now);
                }
            }
            Stop::HandingOver(deadline) => {
                if self.transfer_ended.is_some() || now >= deadline {
                    self.write_all();
                }
            }
            Stop::Writing => {
                if self.all_written() {
                    self.stop = Stop::Done;
                }
            }
        }
    }

    /// Whether the last record is on disk, or never will be.
    pub(crate) fn all_written(&self) -> bool {
        self.log.is_idle() || self.storage_error.is_some()
    }

    /// Ends what is still open.
    pub(crate) fn end_requests(&mut self) {
        self.origin.expire_all(&mut self.completions);
        self.reads.expire(Time(u64::MAX), &mut self.completions);
    }

    fn hand_over(&mut self, now: Time) {
        if self.role == Role::Leader && !self.peers.is_empty() {
            // A courtesy: without it the others wait for an election time-out.
            self.transfer(now, None);
            self.stop = Stop::HandingOver(now.plus_ms(self.election_max_ms));
        } else {
            self.write_all();
        }
    }

    fn write_all(&mut self) {
        self.stop = Stop::Writing;
        self.inbox.clear();
        if self.storage_error.is_none() {
            self.log.checkpoint(self.node.hard_state());
            self.log.submit();
        }
    }
}
