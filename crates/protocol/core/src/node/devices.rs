//! Devices that take part in phase 2: the device that votes for this node, and the device that
//! assigns slots for it while it leads.

mod fencing;
mod offloading;

use crate::{
    ballot::Ballot,
    explanation::Campaign,
    fence::Fence,
    leader::PromiseTargets,
    message::Phase2b,
    node_id::Member,
    offload::{AssignmentStage, Offload},
    slot::Slot,
    time::Time,
};

/// State of this node's device.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(super) struct Devices {
    /// Ensures that the device casts no vote below the promise.
    ///
    /// Invariant: while the device may vote, the promise is at most its ballot ([offload-8]).
    fence: Fence,
    /// Hands slot assignment to the device, and withdraws it.
    ///
    /// Invariant: either this node or its device assigns slots of a ballot ([offload-12]).
    offload: Offload,
}

impl Devices {
    pub(super) fn is_unused(&self) -> bool {
        self.fence == Fence::default() && self.offload.is_unused()
    }

    /// Returns whether the device may assign slots, in which case this node does not.
    pub(super) fn assigns_slots(&self) -> bool {
        self.offload.is_active()
    }

    /// [offload-12] Returns whether slot assignment is being moved back to this node.
    pub(super) fn is_withdrawing(&self) -> bool {
        matches!(self.offload.stage, AssignmentStage::TakingBack(_) | AssignmentStage::Stopping(_))
    }

    /// Returns whether the device may vote for this node, or assigns slots for it.
    pub(super) fn is_in_use(&self) -> bool {
        self.fence.armed_ballot().is_some() || self.offload.is_active()
    }

    /// Returns the ballot in which the device votes, as the device reported.
    pub(super) fn device_ballot(&self) -> Option<Ballot> {
        self.fence.armed_ballot().filter(|ballot| self.fence.device_votes_in(*ballot))
    }

    /// Returns whether this node's device sends proposals to this member's device, so that this
    /// node need not send them to the member.
    pub(super) fn device_reaches(&self, member: Member) -> bool {
        self.offload.device_reaches(member)
    }

    /// [offload-8] Makes a campaign wait until the device has been fenced.
    pub(super) fn wait_to_campaign(&mut self, asked: PromiseTargets, why: Campaign) {
        self.fence.wait_to_campaign(asked, why);
    }

    /// Resets the offload state for a new ballot of this node.
    pub(super) fn restart(&mut self, now: Time, decided_to: Slot) {
        self.offload.restart(now, decided_to);
    }

    /// Returns whether a check of the devices is due, and if so schedules the next one `every_ms`
    /// later.
    pub(super) fn is_due(&mut self, now: Time, every_ms: u64) -> bool {
        self.offload.is_due(now, every_ms)
    }

    /// Records that a member's device may have stopped voting.
    pub(super) fn record_disarmed(&mut self, member: Member) {
        self.offload.record_disarmed(member);
    }

    /// [offload-10] Stores a vote for a slot that the device has not reported yet.
    pub(super) fn store_early_vote(&mut self, from: Member, vote: Phase2b) {
        self.offload.store_early_vote(from, vote);
    }
}
