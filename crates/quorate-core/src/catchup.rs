//! Who is behind, and what they need ([catch-1]).
//!
//! Liveness only: asks for decided values; the learner decides what to make of the answers.

use crate::{
    node_id::NodeId,
    slot::{Slot, SlotRange},
    time::Time,
};

/// Slots asked for at once.
const CHUNK_SLOTS: u64 = 4096;

/// What this node knows to be decided elsewhere and does not have.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Catchup {
    /// Slots below are decided at `source`.
    target: Slot,
    source: NodeId,
    /// The question that stands: what was asked, when, and where `decided_to` was then.
    asked: Option<Asked>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Asked {
    range: SlotRange,
    at: Time,
}

impl Catchup {
    /// `source` decided everything below `target`.
    pub fn note(&mut self, target: Slot, source: NodeId) {
        if target > self.target {
            self.target = target;
            self.source = source;
        }
    }

    /// Slots below are known to be decided somewhere.
    pub fn target(&self) -> Slot {
        self.target
    }

    /// Whether something is missing.
    pub fn is_behind(&self, decided_to: Slot) -> bool {
        decided_to < self.target
    }

    /// The next question, if one is due: at once when the last one is answered in full, else when
    /// no progress was made for `retry_us`, and then to the peer behind the last one.
    pub fn next(
        &mut self,
        now: Time,
        decided_to: Slot,
        retry_us: u64,
        peers: impl Iterator<Item = NodeId> + Clone,
    ) -> Option<(NodeId, SlotRange)> {
        if !self.is_behind(decided_to) {
            self.asked = None;
            return None;
        }
        if let Some(asked) = &mut self.asked
            && decided_to < asked.range.to
        {
            if decided_to > asked.range.from {
                // Answers are coming in.
                *asked = Asked {
                    range: SlotRange::new(decided_to, asked.range.to),
                    at: now,
                };
                return None;
            }
            if now.since_us(asked.at) < retry_us {
                return None;
            }
            let behind = peers.clone().find(|peer| *peer > self.source);
            self.source = behind
                .or_else(|| peers.clone().next())
                .unwrap_or(self.source);
        }
        let to = self.target.min(decided_to.plus(CHUNK_SLOTS));
        let range = SlotRange::new(decided_to, to);
        self.asked = Some(Asked { range, at: now });
        Some((self.source, range))
    }

    /// When the standing question is overdue.
    pub fn wake_at(&self, retry_us: u64) -> Option<Time> {
        self.asked.map(|asked| asked.at.plus_us(retry_us))
    }
}
