//! Fence between this acceptor's promise and the votes that its device may cast ([offload-8]).
//! Safety lives here; nothing in this file reads the time.

use crate::{
    ballot::Ballot,
    counted::CountedSlots,
    explanation::Campaign,
    leader::PromiseTargets,
    node_id::NodeId,
    slot::{Slot, SlotRange},
};

/// A promise that waits until the device has stopped voting.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct WaitingPromise {
    /// The candidate that requested the promise.
    pub to: NodeId,
    /// The ballot to be promised.
    pub ballot: Ballot,
    /// First slot for which the candidate needs votes.
    pub from: Slot,
}

/// Slot at which a run of votes in a ballot may begin, as stated by the ballot's leader.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct RunBegin {
    /// Ballot in which the run may begin.
    pub ballot: Ballot,
    /// First slot of the run.
    pub slot: Slot,
    /// Prefix sum of the ballot before that slot.
    pub prefix: u64,
}

/// The acceptor's view of its device's votes.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Fence {
    /// The only ballot in which votes may be cast outside this node. A device counts as armed as
    /// soon as the order to arm it is sent.
    armed_ballot: Option<Ballot>,
    /// The device has confirmed that it votes in the armed ballot.
    is_confirmed: bool,
    /// A fence has been ordered, and the device has not been read out yet.
    fence_in_flight: bool,
    /// Upper bound for the first slot that has a cell on the device.
    floor: Slot,
    run_begin: Option<RunBegin>,
    /// Slots that a coordinator counted, and their ballot.
    counted_slots: Option<(Ballot, CountedSlots)>,
    waiting_promise: Option<WaitingPromise>,
    waiting_campaign: Option<(PromiseTargets, Campaign)>,
}

impl Fence {
    /// Returns the only ballot in which votes may be cast outside this node.
    pub fn armed_ballot(&self) -> Option<Ballot> {
        self.armed_ballot
    }

    /// Returns whether the device has reported that it votes in this ballot.
    pub fn device_votes_in(&self, ballot: Ballot) -> bool {
        self.armed_ballot == Some(ballot) && self.is_confirmed && !self.fence_in_flight
    }

    /// Returns whether a fence has been ordered and the device has not been read out yet.
    pub fn is_in_flight(&self) -> bool {
        self.fence_in_flight
    }

    /// [offload-8] Returns whether no more votes below this ballot can be cast outside this node.
    pub fn is_fenced_for(&self, ballot: Ballot) -> bool {
        self.armed_ballot.is_none_or(|armed| armed >= ballot)
    }

    /// Records that an order to arm the device is being sent. The caller has already raised the
    /// promise to this ballot.
    pub fn arm(&mut self, ballot: Ballot, floor: Slot) {
        assert!(self.armed_ballot.is_none(), "armed with {ballot} without a fence");
        self.armed_ballot = Some(ballot);
        self.is_confirmed = false;
        self.floor = floor;
    }

    /// Records the device's report that it is armed with this ballot. Returns whether the report is
    /// new.
    pub fn confirm(&mut self, ballot: Ballot) -> bool {
        let news = self.armed_ballot == Some(ballot) && !self.fence_in_flight && !self.is_confirmed;
        self.is_confirmed |= news;
        news
    }

    /// Begins a fence. Returns the ballot to fence, or `None` if the device is not armed or a fence
    /// is already in flight.
    pub fn begin_fence(&mut self) -> Option<Ballot> {
        let ballot = self.armed_ballot.filter(|_| !self.fence_in_flight)?;
        self.fence_in_flight = true;
        Some(ballot)
    }

    /// Ends the fence. The device no longer votes. Its votes are now this acceptor's, or will never
    /// count.
    pub fn end_fence(&mut self) {
        self.armed_ballot = None;
        self.is_confirmed = false;
        self.fence_in_flight = false;
    }

    /// Returns the upper bound for the first slot that has a cell on the device.
    pub fn floor(&self) -> Slot {
        self.floor
    }

    /// [offload-14] Raises the upper bound for the first slot that has a cell.
    pub fn raise_floor(&mut self, floor: Slot) {
        self.floor = self.floor.max(floor);
    }

    /// Returns the slot at which a run of votes in this ballot may begin.
    pub fn run_begin_in(&self, ballot: Ballot) -> Option<RunBegin> {
        self.run_begin.filter(|begin| begin.ballot == ballot)
    }

    /// Records the leader's statement about where a run may begin.
    pub fn note_run_begin(&mut self, begin: RunBegin) {
        self.run_begin = Some(begin);
    }

    /// Returns the slots that a coordinator counted, and their ballot.
    pub fn counted_slots(&self) -> Option<(Ballot, &CountedSlots)> {
        self.counted_slots.as_ref().map(|(ballot, counted)| (*ballot, counted))
    }

    /// Records slots that a coordinator counted. Only the newest ballot is kept.
    pub fn note_counted(&mut self, ballot: Ballot, range: SlotRange) {
        match &mut self.counted_slots {
            Some((known, counted)) if *known == ballot => counted.add(range),
            Some((known, _)) if *known > ballot => {}
            _ => {
                let mut counted = CountedSlots::default();
                counted.add(range);
                self.counted_slots = Some((ballot, counted));
            }
        }
    }

    /// Drops counted slots below `slot`, because they are decided.
    pub fn drop_counted_below(&mut self, slot: Slot) {
        if let Some((_, counted)) = &mut self.counted_slots {
            counted.drop_below(slot);
        }
    }

    /// Makes a promise wait for the fence. If another promise is already waiting, only the one with
    /// the higher ballot is kept.
    pub fn wait_to_promise(&mut self, promise: WaitingPromise) {
        if self.waiting_promise.is_none_or(|waiting| waiting.ballot < promise.ballot) {
            self.waiting_promise = Some(promise);
        }
    }

    /// Makes a campaign wait for the fence.
    pub fn wait_to_campaign(&mut self, asked: PromiseTargets, why: Campaign) {
        self.waiting_campaign = Some((asked, why));
    }

    /// Removes and returns the promise and the campaign that waited for the fence.
    pub fn take_waiting(&mut self) -> (Option<WaitingPromise>, Option<(PromiseTargets, Campaign)>) {
        (self.waiting_promise.take(), self.waiting_campaign.take())
    }
}
