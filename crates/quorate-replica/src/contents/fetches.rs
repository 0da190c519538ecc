//! Payloads that this node lacks: asked of one peer after the other until one delivers ([value-4]).

use std::collections::BTreeMap;

use quorate_core::{
    node_id::NodeId,
    slot::Slot,
    time::Time,
    value::{BatchName, Value},
};

/// Most payloads looked for at a time. The core repeats what it still needs.
const OPEN_MAX: usize = 1024;

#[derive(Debug)]
struct Fetch {
    slot: Slot,
    /// Whom to ask next, counted through the peers; the first is who should have it.
    first: NodeId,
    asked: usize,
    ask_at: Time,
}

/// What is being looked for.
#[derive(Debug)]
pub(crate) struct Fetches {
    open: BTreeMap<BatchName, Fetch>,
    retry_ms: u64,
}

/// One question.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Question {
    pub(crate) to: NodeId,
    pub(crate) value: Value,
    pub(crate) slot: Slot,
}

impl Fetches {
    pub(crate) fn new(retry_ms: u64) -> Self {
        Self {
            open: BTreeMap::new(),
            retry_ms,
        }
    }

    /// Starts looking for a payload; `from` should have it.
    pub(crate) fn start(&mut self, now: Time, name: BatchName, from: NodeId, slot: Slot) {
        if self.open.len() < OPEN_MAX || self.open.contains_key(&name) {
            let fresh = Fetch {
                slot,
                first: from,
                asked: 0,
                ask_at: now,
            };
            let fetch = self.open.entry(name).or_insert(fresh);
            fetch.slot = fetch.slot.max(slot);
            fetch.first = from;
        }
    }

    /// Whether a payload is being looked for.
    pub(crate) fn wants(&self, name: &BatchName) -> bool {
        self.open.contains_key(name)
    }

    /// It is here. The slot that needs it, if somebody was looking for it.
    pub(crate) fn found(&mut self, name: &BatchName) -> Option<Slot> {
        self.open.remove(name).map(|fetch| fetch.slot)
    }

    /// A peer does not have it: ask the next one at once, unless everybody said so already.
    pub(crate) fn not_there(&mut self, now: Time, name: &BatchName, peers: usize) {
        if let Some(fetch) = self.open.get_mut(name)
            && !fetch.asked.is_multiple_of(peers.max(1))
        {
            fetch.ask_at = now;
        }
    }

    /// Decided without it, or learned in another way.
    pub(crate) fn forget_below(&mut self, slot: Slot) {
        self.open.retain(|_, fetch| fetch.slot >= slot);
    }

    /// Questions that are due, to peers that can be talked to.
    pub(crate) fn due(&mut self, now: Time, peers: &[NodeId], questions: &mut Vec<Question>) {
        if peers.is_empty() {
            return;
        }
        for (name, fetch) in &mut self.open {
            if fetch.ask_at > now {
                continue;
            }
            let first = peers
                .iter()
                .position(|peer| *peer == fetch.first)
                .unwrap_or(0);
            let to = peers[(first + fetch.asked) % peers.len()];
            fetch.asked += 1;
            fetch.ask_at = now.plus_ms(self.retry_ms);
            questions.push(Question {
                to,
                value: Value::Batch(*name),
                slot: fetch.slot,
            });
        }
    }

    /// When the next question is due.
    pub(crate) fn wake_at(&self) -> Option<Time> {
        self.open.values().map(|fetch| fetch.ask_at).min()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PEERS: [NodeId; 3] = [NodeId(1), NodeId(2), NodeId(4)];

    fn asked(fetches: &mut Fetches, now: Time) -> Vec<u32> {
        let mut questions = Vec::new();
        fetches.due(now, &PEERS, &mut questions);
        questions.iter().map(|question| question.to.0).collect()
    }

    /// [value-4] Whoever should have it first, then everybody in turn.
    #[test]
    fn peers_are_asked_in_turn_until_one_delivers() {
        let mut fetches = Fetches::new(10);
        let name = BatchName::default();
        fetches.start(Time(0), name, NodeId(2), Slot(5));
        assert_eq!(asked(&mut fetches, Time(0)), [2]);
        assert_eq!(
            asked(&mut fetches, Time(0)),
            [0; 0],
            "one question at a time"
        );
        fetches.not_there(Time(1), &name, PEERS.len());
        assert_eq!(asked(&mut fetches, Time(1)), [4]);
        assert_eq!(asked(&mut fetches, Time(1).plus_ms(10)), [1]);
        fetches.not_there(Time(2).plus_ms(10), &name, PEERS.len());
        assert_eq!(
            asked(&mut fetches, Time(2).plus_ms(10)),
            [0; 0],
            "nobody has it: no hot loop"
        );
        assert_eq!(asked(&mut fetches, Time(1).plus_ms(20)), [2]);
        assert_eq!(fetches.found(&name), Some(Slot(5)));
        assert_eq!(fetches.wake_at(), None);
    }

    #[test]
    fn what_is_decided_is_not_looked_for() {
        let mut fetches = Fetches::new(10);
        fetches.start(Time(0), BatchName::default(), NodeId(1), Slot(5));
        fetches.forget_below(Slot(5));
        assert!(fetches.wants(&BatchName::default()));
        fetches.forget_below(Slot(6));
        assert!(!fetches.wants(&BatchName::default()));
    }
}
