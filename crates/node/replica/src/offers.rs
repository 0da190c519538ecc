//! Values that this node sent in frames to another member's coordinator ([offload-15]).
//!
//! A frame avoids the path through the leader's process. Its arrival is not acknowledged, and a
//! revoked coordinator ignores it. So a value that does not appear in a vote or a decision within
//! some milliseconds is sent over a connection, and so are all later values until the coordinator
//! is seen again. The leader drops duplicates.

use std::collections::VecDeque;

use quorate_core::{ballot::Ballot, time::Time, value::Value};

use crate::ports::payload::Payload;

/// Maximum number of offers in flight.
const OFFERS_MAX: usize = 256;
/// Time in milliseconds after which a value that has not been seen is late.
const LATE_AFTER_MS: u64 = 5;
/// Time in milliseconds without frames from a coordinator after which it is no longer used.
const COORDINATOR_SILENCE_MS: u64 = 1_000;

/// A value that is offered to the leader for proposing.
#[derive(Clone, Debug)]
pub(crate) struct Offer {
    pub(crate) value: Value,
    pub(crate) payload: Option<Payload>,
}

/// Offers in flight, oldest first, each with the time at which it becomes late.
#[derive(Default)]
pub(crate) struct Offers {
    in_flight: VecDeque<(Time, Offer)>,
    /// Ballot of the coordinator from which a frame was last seen, and when.
    last_frame: Option<(Ballot, Time)>,
}

impl Offers {
    /// Returns whether a value may be offered, because the coordinator of this ballot was seen
    /// recently and the queue is not full.
    pub(crate) fn can_offer(&self, now: Time, ballot: Ballot) -> bool {
        let lately = |(heard, at): (Ballot, Time)| {
            heard == ballot && now < at.plus_ms(COORDINATOR_SILENCE_MS)
        };
        self.in_flight.len() < OFFERS_MAX && self.last_frame.is_some_and(lately)
    }

    pub(crate) fn record_sent(&mut self, now: Time, offer: Offer) {
        self.in_flight.push_back((now.plus_ms(LATE_AFTER_MS), offer));
    }

    /// Records that a value was seen with a slot in this ballot.
    pub(crate) fn record_frame(&mut self, now: Time, ballot: Ballot, value: &Value) {
        self.last_frame = Some((ballot, now));
        if let Some(at) = self.in_flight.iter().position(|(_, known)| known.value == *value) {
            self.in_flight.remove(at);
        }
    }

    /// Takes the oldest offer if it is late, to be sent over a connection. Later values are also
    /// sent over connections until the coordinator is seen again.
    pub(crate) fn take_late_offer(&mut self, now: Time) -> Option<Offer> {
        let (_, late) = self.in_flight.pop_front_if(|(late_at, _)| *late_at <= now)?;
        self.last_frame = None;
        Some(late)
    }

    /// Drops all offers, because the leader has changed.
    pub(crate) fn drop_all(&mut self) {
        self.in_flight.clear();
        self.last_frame = None;
    }

    pub(crate) fn wake_at(&self) -> Option<Time> {
        self.in_flight.front().map(|(late_at, _)| *late_at)
    }
}

#[cfg(test)]
mod tests {
    use quorate_core::{ballot::Era, node_id::NodeId};

    use super::*;

    fn ballot(round: u32) -> Ballot {
        Ballot { era: Era(1), round, node: NodeId(1) }
    }

    fn value(number: u64) -> Value {
        Value::RegisterSession { origin: NodeId(2), boot: 1, number }
    }

    fn offer(number: u64) -> Offer {
        Offer { value: value(number), payload: None }
    }

    /// [offload-15] Values are offered only to a coordinator that was recently seen in its ballot.
    #[test]
    fn values_are_offered_only_to_a_recently_seen_coordinator() {
        let mut offers = Offers::default();
        assert!(!offers.can_offer(Time(0), ballot(1)));
        offers.record_frame(Time(0), ballot(1), &value(9));
        assert!(offers.can_offer(Time(999_999), ballot(1)));
        assert!(!offers.can_offer(Time(1), ballot(2)));
        assert!(!offers.can_offer(Time(1_000_000), ballot(1)));
        for number in 0..256 {
            assert!(offers.can_offer(Time(1), ballot(1)));
            offers.record_sent(Time(1), offer(number));
        }
        assert!(!offers.can_offer(Time(1), ballot(1)), "as many as may wait");
        offers.drop_all();
        assert!(!offers.can_offer(Time(1), ballot(1)) && offers.wake_at().is_none());
    }

    /// [offload-15] Each value is either seen or late, exactly once.
    #[test]
    fn late_value_and_its_successors_are_proposed_elsewhere() {
        let mut offers = Offers::default();
        offers.record_frame(Time(0), ballot(1), &value(9));
        for number in 0..3 {
            offers.record_sent(Time(number), offer(number));
        }
        offers.record_frame(Time(10), ballot(1), &value(1));
        assert_eq!(offers.wake_at(), Some(Time(5_000)));
        assert!(offers.take_late_offer(Time(4_999)).is_none());
        assert!(offers.can_offer(Time(4_999), ballot(1)));
        let late =
            |offers: &mut Offers| offers.take_late_offer(Time(5_002)).map(|offer| offer.value);
        assert_eq!(late(&mut offers), Some(value(0)));
        assert!(!offers.can_offer(Time(5_002), ballot(1)));
        assert_eq!(late(&mut offers), Some(value(2)));
        assert_eq!(late(&mut offers), None);
        assert_eq!(offers.wake_at(), None);
    }
}
