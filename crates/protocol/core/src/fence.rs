//! The fence between this acceptor's promise and the votes that its device may cast ([offload-8]).
//! Safety lives here; nothing in this file reads the time.

use crate::{
    ballot::Ballot,
    counted::Counted,
    explanation::Campaign,
    leader::Asked,
    node_id::NodeId,
    slot::{Slot, SlotRange},
};

/// A promise that waits until the device votes no more.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Promise {
    /// The candidate that asks for it.
    pub to: NodeId,
    /// The ballot to be promised.
    pub ballot: Ballot,
    /// First slot that the candidate wants votes of.
    pub from: Slot,
}

/// Slot at which a run of votes in a ballot may begin, as its leader stated.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Begin {
    /// The ballot.
    pub ballot: Ballot,
    /// The slot.
    pub slot: Slot,
    /// The ballot's sum before it.
    pub prefix: u64,
}

/// The device's votes, as far as the acceptor must know of them.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Fence {
    /// The only ballot that votes may be cast in outside of this node. An order to arm that was
    /// given counts as armed.
    armed: Option<Ballot>,
    /// The device confirmed it.
    confirmed: bool,
    /// A fence was ordered, and the device has not been read out yet.
    under_way: bool,
    /// Upper bound of the first slot with a cell on the device.
    floor: Slot,
    begin: Option<Begin>,
    /// Slots that a coordinator counted in this ballot.
    counted: Option<(Ballot, Counted)>,
    promise: Option<Promise>,
    campaign: Option<(Asked, Campaign)>,
}

impl Fence {
    /// Returns the only ballot that votes may be cast in outside of this node.
    pub fn armed(&self) -> Option<Ballot> {
        self.armed
    }

    /// Returns whether the device votes in this ballot, by its own report.
    pub fn votes_in(&self, ballot: Ballot) -> bool {
        self.armed == Some(ballot) && self.confirmed && !self.under_way
    }

    /// Returns whether a fence is in flight.
    pub fn is_under_way(&self) -> bool {
        self.under_way
    }

    /// [offload-8] Returns whether no vote below this ballot can be cast outside of this node any
    /// more.
    pub fn holds_for(&self, ballot: Ballot) -> bool {
        self.armed.is_none_or(|armed| armed >= ballot)
    }

    /// Notes that an order to arm leaves. The promise is raised to this ballot before.
    pub fn arm(&mut self, ballot: Ballot, floor: Slot) {
        assert!(self.armed.is_none(), "armed with {ballot} without a fence");
        self.armed = Some(ballot);
        self.confirmed = false;
        self.floor = floor;
    }

    /// Notes that the device is armed with this ballot. Returns whether that is news.
    pub fn confirm(&mut self, ballot: Ballot) -> bool {
        let news = self.armed == Some(ballot) && !self.under_way && !self.confirmed;
        self.confirmed |= news;
        news
    }

    /// Begins a fence: returns the ballot to be fenced, if no fence is in flight.
    pub fn begin(&mut self) -> Option<Ballot> {
        let ballot = self.armed.filter(|_| !self.under_way)?;
        self.under_way = true;
        Some(ballot)
    }

    /// Ends the fence: the device votes no more, and its votes are this acceptor's now; or they
    /// never counted.
    pub fn end(&mut self) {
        self.armed = None;
        self.confirmed = false;
        self.under_way = false;
    }

    /// Returns the upper bound of the first slot with a cell on the device.
    pub fn floor(&self) -> Slot {
        self.floor
    }

    /// [offload-14] Raises the first slot with a cell.
    pub fn raise_floor(&mut self, floor: Slot) {
        self.floor = self.floor.max(floor);
    }

    /// Returns where a run in this ballot may begin.
    pub fn begin_in(&self, ballot: Ballot) -> Option<Begin> {
        self.begin.filter(|begin| begin.ballot == ballot)
    }

    /// Notes the leader's start of a run.
    pub fn note_begin(&mut self, begin: Begin) {
        self.begin = Some(begin);
    }

    /// Returns the slots that a coordinator counted, and the ballot.
    pub fn counted(&self) -> Option<(Ballot, &Counted)> {
        self.counted.as_ref().map(|(ballot, counted)| (*ballot, counted))
    }

    /// Notes slots that a coordinator counted. Of two ballots the newer one is remembered.
    pub fn note_counted(&mut self, ballot: Ballot, range: SlotRange) {
        match &mut self.counted {
            Some((known, counted)) if *known == ballot => counted.add(range),
            Some((known, _)) if *known > ballot => {}
            _ => {
                let mut counted = Counted::default();
                counted.add(range);
                self.counted = Some((ballot, counted));
            }
        }
    }

    /// Slots below are decided.
    pub fn drop_counted_below(&mut self, slot: Slot) {
        if let Some((_, counted)) = &mut self.counted {
            counted.drop_below(slot);
        }
    }

    /// Makes a promise wait for the fence; of two the higher one.
    pub fn wait_to_promise(&mut self, promise: Promise) {
        if self.promise.is_none_or(|waiting| waiting.ballot < promise.ballot) {
            self.promise = Some(promise);
        }
    }

    /// Makes a campaign wait for the fence.
    pub fn wait_to_campaign(&mut self, asked: Asked, why: Campaign) {
        self.campaign = Some((asked, why));
    }

    /// Takes the promise and the campaign that waited for the fence.
    pub fn take_waiting(&mut self) -> (Option<Promise>, Option<(Asked, Campaign)>) {
        (self.promise.take(), self.campaign.take())
    }
}
