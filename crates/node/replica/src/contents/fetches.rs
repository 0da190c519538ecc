//! Requests for bytes that this node lacks. Each request is sent to one peer after another until
//! one delivers the bytes ([value-4]).

use std::collections::BTreeMap;

use quorate_core::{
    node_id::NodeId,
    slot::{Slot, SlotRange},
    time::Time,
    value::{StreamName, Value},
};

/// Maximum number of values fetched concurrently. The core repeats its request for others that it
/// needs.
const FETCHES_MAX: usize = 1024;

#[derive(Debug)]
struct ValueFetch {
    /// Missing slots; never empty.
    range: SlotRange,
    /// Peer that should have the bytes and gets the first request. `request_count` then counts
    /// through the others.
    first_peer: NodeId,
    request_count: usize,
    next_request_at: Time,
}

impl ValueFetch {
    /// Adds missing slots. If the bytes are the same in every slot, only the latest ones are
    /// retained.
    fn extend(&mut self, range: SlotRange, spans: bool) {
        if spans {
            self.range.from = self.range.from.min(range.from);
            self.range.to = self.range.to.max(range.to);
        } else if range.from > self.range.from {
            self.range = range;
        }
    }
}

/// Values whose bytes are being fetched.
#[derive(Debug)]
pub(super) struct Fetches {
    open: BTreeMap<Value, ValueFetch>,
    retry_ms: u64,
}

/// A request for bytes, to be sent to a peer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct PeerRequest {
    pub(super) to: NodeId,
    pub(super) value: Value,
    pub(super) range: SlotRange,
}

impl Fetches {
    pub(super) fn new(retry_ms: u64) -> Self {
        Self { open: BTreeMap::new(), retry_ms }
    }

    /// Starts fetching the value's bytes in these slots; `from` should have them. With `patience`,
    /// the bytes may be in flight, so the first request waits for the retry interval.
    pub(super) fn start_fetch(
        &mut self,
        now: Time,
        value: Value,
        range: SlotRange,
        from: NodeId,
        patience: bool,
    ) {
        if self.open.len() < FETCHES_MAX || self.open.contains_key(&value) {
            let fresh = ValueFetch {
                range,
                first_peer: from,
                request_count: 0,
                next_request_at: now.plus_ms(if patience { self.retry_ms } else { 0 }),
            };
            let fetch = self.open.entry(value).or_insert(fresh);
            fetch.extend(range, value.may_span());
            fetch.first_peer = from;
        }
    }

    /// Returns the slots for which this value's bytes are being fetched, if any.
    pub(super) fn fetching_range(&self, value: &Value) -> Option<SlotRange> {
        self.open.get(value).map(|fetch| fetch.range)
    }

    /// Records that the bytes of `value` for slots below `to` are available. If they were
    /// requested, requests the rest immediately from the same peer.
    pub(super) fn record_available(&mut self, now: Time, value: &Value, to: Slot) {
        if let Some(fetch) = self.open.get_mut(value) {
            fetch.range.from = fetch.range.from.max(to);
            if fetch.range.from >= fetch.range.to {
                self.open.remove(value);
            } else if fetch.request_count > 0 {
                fetch.request_count -= 1;
                fetch.next_request_at = now;
            }
        }
    }

    pub(super) fn fetching_content(&self) -> Vec<Value> {
        let content = |value: &&Value| matches!(value, Value::Content { .. });
        self.open.keys().filter(content).copied().collect()
    }

    pub(super) fn values_of_stream(&self, wanted: StreamName) -> Vec<Value> {
        let first = Value::Content { stream: wanted, offset: 0 };
        let from_first = self.open.range(first..);
        let values = from_first.map(|(value, _)| *value);
        let same =
            |value: &Value| matches!(value, Value::Content { stream, .. } if *stream == wanted);
        values.take_while(same).collect()
    }

    /// Handles the response of a peer that does not have the bytes. The request goes to the next
    /// peer immediately, unless all peers have given this response.
    pub(super) fn on_unavailable(&mut self, now: Time, value: &Value, peers: usize) {
        if let Some(fetch) = self.open.get_mut(value)
            && !fetch.request_count.is_multiple_of(peers.max(1))
        {
            fetch.next_request_at = now;
        }
    }

    /// Drops slots below `slot`, which were decided without these bytes or learned in another way.
    pub(super) fn forget_below(&mut self, slot: Slot) {
        self.open.retain(|_, fetch| {
            fetch.range.from = fetch.range.from.max(slot);
            fetch.range.from < fetch.range.to
        });
    }

    /// Appends the requests that are due to `questions`, each for a connected peer. Without
    /// connected peers they are postponed.
    pub(super) fn append_due_requests(
        &mut self,
        now: Time,
        peers: &[NodeId],
        questions: &mut Vec<PeerRequest>,
    ) {
        for (value, fetch) in &mut self.open {
            if fetch.next_request_at > now {
                continue;
            }
            fetch.next_request_at = now.plus_ms(self.retry_ms);
            if peers.is_empty() {
                continue;
            }
            let first = peers.iter().position(|peer| *peer == fetch.first_peer).unwrap_or(0);
            let to = peers[(first + fetch.request_count) % peers.len()];
            fetch.request_count += 1;
            questions.push(PeerRequest { to, value: *value, range: fetch.range });
        }
    }

    pub(super) fn wake_at(&self) -> Option<Time> {
        self.open.values().map(|fetch| fetch.next_request_at).min()
    }
}

#[cfg(test)]
mod tests {
    use quorate_core::value::{BatchName, StreamName};

    use super::*;

    const PEERS: [NodeId; 3] = [NodeId(1), NodeId(2), NodeId(4)];
    const BATCH: Value =
        Value::Batch(BatchName { origin: NodeId(1), boot: 1, counter: 1, length: 3, checksum: 5 });

    fn questions(fetches: &mut Fetches, now: Time) -> Vec<PeerRequest> {
        let mut questions = Vec::new();
        fetches.append_due_requests(now, &PEERS, &mut questions);
        questions
    }

    fn due_requests(fetches: &mut Fetches, now: Time) -> Vec<u32> {
        let questions = questions(fetches, now);
        questions.iter().map(|question| question.to.0).collect()
    }

    fn slots(from: u64, to: u64) -> SlotRange {
        SlotRange::new(Slot(from), Slot(to))
    }

    /// [value-4] The peer expected to have the bytes is asked first, and then all peers in turn.
    #[test]
    fn peers_are_asked_in_turn_until_one_has_the_bytes() {
        let mut fetches = Fetches::new(10);
        fetches.start_fetch(Time(0), BATCH, slots(5, 6), NodeId(2), false);
        assert_eq!(due_requests(&mut fetches, Time(0)), [2]);
        assert_eq!(due_requests(&mut fetches, Time(0)), [0; 0], "one question at a time");
        fetches.on_unavailable(Time(1), &BATCH, PEERS.len());
        assert_eq!(due_requests(&mut fetches, Time(1)), [4]);
        assert_eq!(due_requests(&mut fetches, Time(1).plus_ms(10)), [1]);
        fetches.on_unavailable(Time(2).plus_ms(10), &BATCH, PEERS.len());
        assert_eq!(
            due_requests(&mut fetches, Time(2).plus_ms(10)),
            [0; 0],
            "no peer has it: no hot loop"
        );
        assert_eq!(due_requests(&mut fetches, Time(1).plus_ms(20)), [2]);
        assert_eq!(fetches.fetching_range(&BATCH), Some(slots(5, 6)));
        fetches.record_available(Time(3), &BATCH, Slot(6));
        assert_eq!((fetches.fetching_range(&BATCH), fetches.wake_at()), (None, None));
    }

    /// A node without connected peers does not retry in every turn.
    #[test]
    fn fetch_without_peers_waits_before_retrying() {
        let mut fetches = Fetches::new(10);
        fetches.start_fetch(Time(0), BATCH, slots(5, 6), NodeId(2), false);
        fetches.append_due_requests(Time(0), &[], &mut Vec::new());
        let later = Time(0).plus_ms(10);
        assert_eq!(fetches.wake_at(), Some(later));
        assert_eq!(due_requests(&mut fetches, later), [2]);
    }

    #[test]
    fn fetches_of_decided_slots_end() {
        let mut fetches = Fetches::new(10);
        fetches.start_fetch(Time(0), BATCH, slots(5, 6), NodeId(1), false);
        fetches.start_fetch(Time(0), BATCH, slots(3, 4), NodeId(1), false);
        fetches.forget_below(Slot(5));
        assert_eq!(fetches.fetching_range(&BATCH), Some(slots(5, 6)));
        fetches.forget_below(Slot(6));
        assert_eq!(fetches.fetching_range(&BATCH), None);
    }

    /// Bytes in flight are requested only if late. One stream's fetches are found among all.
    #[test]
    fn bytes_in_flight_are_requested_only_if_late() {
        let content = |number, offset| Value::Content {
            stream: StreamName { number, ..StreamName::default() },
            offset,
        };
        let mut fetches = Fetches::new(10);
        for (number, offset) in [(1, 7), (2, 0), (2, 9), (3, 0)] {
            fetches.start_fetch(Time(0), content(number, offset), slots(10, 20), NodeId(2), true);
        }
        fetches.start_fetch(Time(0), BATCH, slots(5, 6), NodeId(1), false);
        assert_eq!(due_requests(&mut fetches, Time(0)), [1]);
        assert_eq!(due_requests(&mut fetches, Time(0).plus_ms(10)).len(), 5);
        let second = StreamName { number: 2, ..StreamName::default() };
        assert_eq!(fetches.values_of_stream(second), [content(2, 0), content(2, 9)]);
    }

    /// Adjacent runs become one, and only missing bytes are requested.
    #[test]
    fn only_missing_bytes_of_a_run_are_requested() {
        let content = Value::Content { stream: StreamName::default(), offset: 1 };
        let mut fetches = Fetches::new(10);
        fetches.start_fetch(Time(0), content, slots(10, 20), NodeId(2), false);
        fetches.start_fetch(Time(0), content, slots(20, 30), NodeId(2), false);
        assert_eq!(questions(&mut fetches, Time(0))[0].range, slots(10, 30));
        fetches.record_available(Time(1), &content, Slot(14));
        let next = questions(&mut fetches, Time(1));
        assert_eq!((next[0].range, next[0].to), (slots(14, 30), NodeId(2)), "at once");
        fetches.forget_below(Slot(25));
        assert_eq!(fetches.fetching_range(&content), Some(slots(25, 30)));
        fetches.record_available(Time(1), &content, Slot(30));
        assert_eq!(fetches.fetching_range(&content), None);
    }
}
