//! The ring along which votes travel to the leader, as seen by the leader and by the members.

mod laying;
mod ringing;

use crate::{
    laying::{RingControl, Route},
    ring::Relay,
    slot::{Slot, SlotRange},
    time::Time,
};

/// The ring of this node's own ballot, and the ring that this node is a member of.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Ring {
    /// Votes that this node forwards along the ring.
    relay: Relay,
    /// The ring that this node sets up while it leads.
    control: RingControl,
    /// The votes of this node counted when this was last checked ([learn-1]).
    was_counted: bool,
}

impl Ring {
    pub(super) fn new(route: Route) -> Self {
        Self { relay: Relay::default(), control: RingControl::new(route), was_counted: true }
    }

    pub(super) fn is_unused(&self) -> bool {
        self.relay == Relay::default() && self.control.is_unused()
    }

    /// Begins a new ballot of this node, without a ring.
    pub(super) fn begin_ballot(&mut self, now: Time, decided_to: Slot) {
        self.control.begin_ballot(now, decided_to);
    }

    /// Records a proposal whose votes are expected to arrive along the ring.
    pub(super) fn record_proposal(&mut self, now: Time, range: SlotRange, decided_to: Slot) {
        self.control.record_proposal(now, range, decided_to);
    }

    /// Records a heartbeat of this leader. At most one heartbeat per `every_ms` counts.
    pub(super) fn record_heartbeat(&mut self, now: Time, every_ms: u64, decided_to: Slot) {
        self.control.record_heartbeat(now, every_ms, decided_to);
    }

    /// Returns the end of the slots that a caught-up follower must hold.
    pub(super) fn caught_up_to(&self) -> Slot {
        self.control.caught_up_to()
    }

    /// Returns the time at which the ring next needs a tick. `open` is true if this leader has
    /// proposals in flight, and `None` if this node does not lead.
    pub(super) fn wake_at(&self, open: Option<bool>) -> Option<Time> {
        let laying = open.and_then(|open| self.control.wake_at(open));
        laying.into_iter().chain(self.relay.wake_at()).min()
    }

    /// Records whether votes of this node count now. Returns `true` if they do and did not at the
    /// last check.
    fn is_newly_counted(&mut self, heard: bool) -> bool {
        !core::mem::replace(&mut self.was_counted, heard) && heard
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// [learn-1] Votes that a node cast without weight are reported once each time it gains weight.
    #[test]
    fn votes_are_reported_again_once_per_gain_of_weight() {
        let mut ring = Ring::new(Route::Star);
        let turns = [true, false, false, true, true, false, true];
        let anew = turns.map(|heard| ring.is_newly_counted(heard));
        assert_eq!(anew, [false, false, false, true, false, false, true]);
    }
}
