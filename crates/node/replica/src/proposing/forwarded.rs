//! Values forwarded to this leader, or already proposed by it, so that none is proposed twice.

use std::collections::{HashSet, VecDeque};

use quorate_core::{ballot::Ballot, value::Value};

use crate::{limits::COMMAND_OVERHEAD_BYTES, ports::payload::Payload};

/// The leader's queue of forwarded values; empty on other nodes.
#[derive(Debug, Default)]
pub(crate) struct Forwarded {
    queue: VecDeque<(Value, Option<Payload>)>,
    bytes: usize,
    /// Undecided values that this node voted for in its own `ballot`. They count only in this
    /// ballot: in a later one, even of the same node, the slot may get another value.
    in_flight: HashSet<Value>,
    ballot: Ballot,
}

impl Forwarded {
    /// Returns whether the value is queued or in flight, so that it need not be repeated.
    pub(crate) fn has_pending(&self, value: &Value) -> bool {
        self.in_flight.contains(value) || self.queue.iter().any(|(queued, _)| queued == value)
    }

    /// Queues a value that cannot be proposed immediately. Returns `false` if the queue is full.
    pub(crate) fn push(
        &mut self,
        value: Value,
        payload: Option<Payload>,
        bytes_max: usize,
    ) -> bool {
        let charge = charged_bytes(payload.as_ref());
        let room = self.bytes + charge <= bytes_max;
        if room {
            self.bytes += charge;
            self.queue.push_back((value, payload));
        }
        room
    }

    /// Returns the length of the next value's payload; `None` if the queue is empty.
    pub(crate) fn next_bytes(&self) -> Option<usize> {
        self.queue.front().map(|(_, payload)| payload.as_deref().map_or(0, <[u8]>::len))
    }

    pub(crate) fn pop(&mut self) -> Option<(Value, Option<Payload>)> {
        let (value, payload) = self.queue.pop_front()?;
        self.bytes -= charged_bytes(payload.as_ref());
        Some((value, payload))
    }

    /// Records this node's vote for the value in a ballot of its own.
    pub(crate) fn record_vote(&mut self, ballot: Ballot, value: Value) {
        self.enter_ballot(ballot);
        if matches!(value, Value::Batch(_) | Value::RegisterSession { .. }) {
            self.in_flight.insert(value);
        }
    }

    fn enter_ballot(&mut self, ballot: Ballot) {
        if ballot != self.ballot {
            self.ballot = ballot;
            self.in_flight.clear();
        }
    }

    /// Removes a decided value. If it is offered again, the session table recognises it.
    pub(crate) fn record_decided(&mut self, value: &Value) {
        self.in_flight.remove(value);
    }

    /// Restarts with this ballot's leader, if any. Drops values queued in earlier ballots, which
    /// their origins repeat. Only values proposed in this ballot stay in flight.
    pub(crate) fn restart(&mut self, leader: Option<Ballot>) {
        self.enter_ballot(leader.unwrap_or_default());
        self.queue.clear();
        self.bytes = 0;
    }
}

fn charged_bytes(payload: Option<&Payload>) -> usize {
    COMMAND_OVERHEAD_BYTES + payload.map_or(0, |payload| payload.len())
}

#[cfg(test)]
mod tests {
    use quorate_core::{ballot::Era, node_id::NodeId};

    use super::*;

    #[test]
    fn queue_is_bounded_and_finds_its_batches() {
        let mut forwarded = Forwarded::default();
        let value = |session| Value::ExpireSession { session };
        let taken = (0..100).filter(|at| forwarded.push(value(*at), None, 640)).count();
        assert_eq!(taken, 640 / COMMAND_OVERHEAD_BYTES);
        assert!(forwarded.has_pending(&value(3)));
        assert_eq!(forwarded.pop().map(|(value, _)| value), Some(value(0)));
        assert!(!forwarded.has_pending(&value(0)));
        let batch = Value::Batch(quorate_core::value::BatchName::default());
        forwarded.record_vote(ballot(1), batch);
        assert!(forwarded.has_pending(&batch));
        forwarded.record_decided(&batch);
        assert!(!forwarded.has_pending(&batch));
        forwarded.restart(None);
        assert_eq!(forwarded.next_bytes(), None);
    }

    /// A new leader proposes inherited values in its election, before other parts are notified.
    #[test]
    fn only_proposals_of_the_leading_ballot_are_in_flight() {
        let mut forwarded = Forwarded::default();
        let value = |number| Value::RegisterSession { origin: NodeId(1), boot: 1, number };
        forwarded.record_vote(ballot(1), value(1));
        forwarded.record_vote(ballot(1), value(2));
        forwarded.record_vote(ballot(2), value(2));
        forwarded.restart(Some(ballot(2)));
        assert!(!forwarded.has_pending(&value(1)), "it lost its slot");
        assert!(forwarded.has_pending(&value(2)));
        forwarded.restart(Some(ballot(2)));
        assert!(forwarded.has_pending(&value(2)));
        forwarded.restart(Some(ballot(3)));
        assert!(!forwarded.has_pending(&value(2)));
    }

    fn ballot(round: u32) -> Ballot {
        Ballot { era: Era(0), round, node: NodeId(1) }
    }
}
