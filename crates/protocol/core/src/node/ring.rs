//! The ring along which votes travel to the leader: its leader's side and its members' side.

mod laying;
mod ringing;

use crate::{
    laying::{RingControl, Route},
    ring::Relay,
    slot::{Slot, SlotRange},
    time::Time,
};

/// The ring of this node's ballot, and the ring that it is a member of.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Ring {
    /// Votes on their way along the ring.
    relay: Relay,
    /// The ring that this node sets up while it leads.
    laying: RingControl,
    /// Votes of this node counted when it last looked ([learn-1]).
    counts: bool,
}

impl Ring {
    pub(super) fn new(route: Route) -> Self {
        Self { relay: Relay::default(), laying: RingControl::new(route), counts: true }
    }

    /// Begins a new ballot of this node, without a ring.
    pub(super) fn begin(&mut self, now: Time, decided_to: Slot) {
        self.laying.begin(now, decided_to);
    }

    /// Notes a proposal, whose votes are expected to come through the ring.
    pub(super) fn proposed(&mut self, now: Time, range: SlotRange, decided_to: Slot) {
        self.laying.proposed(now, range, decided_to);
    }

    /// Notes a heartbeat of this leader.
    pub(super) fn beat(&mut self, now: Time, every_ms: u64, decided_to: Slot) {
        self.laying.beat(now, every_ms, decided_to);
    }

    /// Returns the slot up to which a follower that keeps up has the log.
    pub(super) fn level_at(&self) -> Slot {
        self.laying.level_at()
    }

    /// Returns when the ring next needs a tick; `open`: whether this leader has proposals in
    /// flight, `None` if this node does not lead.
    pub(super) fn wake_at(&self, open: Option<bool>) -> Option<Time> {
        let laying = open.and_then(|open| self.laying.wake_at(open));
        laying.into_iter().chain(self.relay.wake_at()).min()
    }

    /// Returns whether votes of this node count now, and did not before.
    fn is_heard_anew(&mut self, heard: bool) -> bool {
        heard && !core::mem::replace(&mut self.counts, heard)
    }
}
