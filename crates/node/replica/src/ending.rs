//! Clean shutdown of a replica: finishes requests, hands over leadership, writes everything
//! ([volatile-4]).

use quorate_core::{effect::Refusal, input::Input, node_id::NodeId, time::Time};
use quorate_log::disk::Disk;

use crate::{devices::Devices, protocol::Protocol, storing::Storing};

/// Maximum time in milliseconds to wait for another node to lead. The handover only spares clients
/// an election and is not needed for safety: a node that cannot hand over stops anyway.
const HANDOVER_TIMEOUT_MS: u64 = 5_000;

/// Stages of a clean stop.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum StopStage {
    /// No stop was requested.
    Running,
    /// New requests are refused; accepted ones complete by this deadline.
    Finishing(Time),
    /// Leadership is being handed over, until this deadline at the latest.
    HandingOver(Time),
    /// [offload-8] The device is being stopped and read out, until this deadline at the latest.
    LeavingDevice(Time),
    /// No more messages are sent; the last records are being written.
    Writing,
    /// All records have been written.
    Done,
}

/// State of a clean stop and of leadership transfers. A clean stop includes a transfer.
#[derive(Debug)]
pub(crate) struct Ending {
    stop: StopStage,
    /// Result of the last transfer, until it is taken.
    transfer_ended: Option<Result<NodeId, Refusal>>,
    /// Time in milliseconds for accepted requests to complete once a stop has been requested.
    finish_timeout_ms: u64,
    /// The device may still be voting, because it did not stop in time.
    may_device_vote: bool,
}

impl Ending {
    pub(crate) fn new(finish_ms: u64) -> Self {
        Self {
            stop: StopStage::Running,
            transfer_ended: None,
            finish_timeout_ms: finish_ms,
            may_device_vote: false,
        }
    }

    /// Begins a clean stop, unless one is already in progress.
    pub(crate) fn begin_stop(&mut self, now: Time) {
        if self.stop == StopStage::Running {
            self.stop = StopStage::Finishing(now.plus_ms(self.finish_timeout_ms));
        }
    }

    /// Returns whether new requests are refused.
    pub(crate) fn is_requested(&self) -> bool {
        self.stop != StopStage::Running
    }

    /// [volatile-4] Returns whether no more messages may be sent, since no promise or vote may
    /// follow the last record.
    pub(crate) fn is_silent(&self) -> bool {
        matches!(self.stop, StopStage::Writing | StopStage::Done)
    }

    /// Returns whether only the last records remain to be written.
    pub(crate) fn is_writing(&self) -> bool {
        self.stop == StopStage::Writing
    }

    pub(crate) fn is_done(&self) -> bool {
        self.stop == StopStage::Done
    }

    /// [volatile-4] Returns whether all records are written and no device votes for this node.
    pub(crate) fn is_clean(&self) -> bool {
        self.is_done() && !self.may_device_vote
    }

    /// Requests a handover to `to`, or to the most advanced follower if `to` is `None` ([live-4]).
    pub(crate) fn start_transfer(&mut self, to: Option<NodeId>, protocol: &mut Protocol) {
        self.transfer_ended = None;
        protocol.queue_input(Input::Transfer { to });
    }

    pub(crate) fn on_transfer_ended(&mut self, result: Result<NodeId, Refusal>) {
        self.transfer_ended = Some(result);
    }

    pub(crate) fn take_transfer_result(&mut self) -> Option<Result<NodeId, Refusal>> {
        self.transfer_ended.take()
    }

    /// Advances a stop. `idle` returns whether all requests have completed; `alone` is set if no
    /// other node could lead. Returns `true` if requests that are still open must be failed now.
    pub(crate) fn advance_stop<D: Disk>(
        &mut self,
        now: Time,
        idle: impl FnOnce() -> bool,
        alone: bool,
        protocol: &mut Protocol,
        storing: &mut Storing<D>,
        devices: &mut Devices,
    ) -> bool {
        match self.stop {
            StopStage::Finishing(deadline) if idle() || now >= deadline => {
                if protocol.is_leader() && !alone {
                    // Without a handover, the other nodes wait for an election timeout. A handover
                    // that is already in flight suffices.
                    if !protocol.node().is_handing_over() {
                        self.start_transfer(None, protocol);
                    }
                    self.stop = StopStage::HandingOver(now.plus_ms(HANDOVER_TIMEOUT_MS));
                } else {
                    self.leave_device(now, protocol, storing, devices);
                }
                return true;
            }
            StopStage::HandingOver(deadline)
                if self.transfer_ended.is_some() || now >= deadline =>
            {
                self.leave_device(now, protocol, storing, devices);
            }
            StopStage::LeavingDevice(_) if !protocol.node().uses_device() => {
                self.write_last_records(protocol, storing);
            }
            StopStage::LeavingDevice(deadline) if now >= deadline => {
                // The device's votes are not recorded from now on.
                self.may_device_vote = true;
                self.stop = StopStage::Writing;
                protocol.clear_inputs();
            }
            StopStage::Writing if storing.all_written() => self.stop = StopStage::Done,
            _ => {}
        }
        false
    }

    fn leave_device<D: Disk>(
        &mut self,
        now: Time,
        protocol: &mut Protocol,
        storing: &mut Storing<D>,
        devices: &mut Devices,
    ) {
        devices.close();
        if protocol.node().uses_device() {
            self.stop = StopStage::LeavingDevice(now.plus_ms(HANDOVER_TIMEOUT_MS));
        } else {
            self.write_last_records(protocol, storing);
        }
    }

    fn write_last_records<D: Disk>(&mut self, protocol: &mut Protocol, storing: &mut Storing<D>) {
        self.stop = StopStage::Writing;
        protocol.clear_inputs();
        storing.write_all(protocol.node().hard_state());
    }

    /// Returns the deadline of the current step of a stop, if it has one.
    pub(crate) fn deadline(&self) -> Option<Time> {
        match self.stop {
            StopStage::Finishing(at)
            | StopStage::HandingOver(at)
            | StopStage::LeavingDevice(at) => Some(at),
            StopStage::Running | StopStage::Writing | StopStage::Done => None,
        }
    }
}
