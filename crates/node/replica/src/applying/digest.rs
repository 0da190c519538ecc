//! Digest of all applied slots, for comparison with other nodes (`peers/comparison`).
//!
//! The digest is a sum over slots and commands, so it does not depend on how ranges are split. It
//! guards against faults, not an adversary ([model-1]). A persistent service stores it.

use std::collections::VecDeque;

use quorate_core::{
    dice::mix,
    slot::{Slot, SlotRange},
    value::{Value, range_check},
};

use crate::ports::service::CommandId;

/// Number of values whose digests are retained. A node is rarely further ahead of its peers than
/// this.
const RETAINED_VALUES: usize = 1024;

/// A node's claim: the digest of everything that it applied below a slot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct DigestClaim {
    pub(crate) to: Slot,
    pub(crate) digest: u64,
}

#[derive(Debug)]
pub(crate) struct Digest {
    /// Current digest; `None` if the service's state was stored by a version without digests.
    current: Option<u64>,
    /// Sum over the executed commands of the slot being applied.
    slot_sum: u64,
    /// Digest after each of the latest values.
    recent_claims: VecDeque<DigestClaim>,
}

impl Digest {
    /// Creates the digest of a node that applied everything below `applied_to`; `digest` is its
    /// value, if known.
    pub(crate) fn new(applied_to: Slot, digest: Option<u64>) -> Self {
        let first = digest.map(|digest| DigestClaim { to: applied_to, digest });
        Self { current: digest, slot_sum: 0, recent_claims: first.into_iter().collect() }
    }

    pub(crate) fn current(&self) -> Option<u64> {
        self.current
    }

    /// Returns the latest claim, to be sent to other nodes.
    pub(crate) fn latest_claim(&self) -> Option<DigestClaim> {
        self.recent_claims.back().copied()
    }

    pub(crate) fn add_executed(&mut self, id: CommandId, reply: &[u8]) {
        let place = mix(id.slot.0 ^ u64::from(id.index) << 48);
        self.slot_sum = self.slot_sum.wrapping_add(mix(place ^ hash_reply(reply)));
    }

    /// Drops the sum of an abandoned slot, whose executed commands are void.
    pub(crate) fn abandon_slot(&mut self) {
        self.slot_sum = 0;
    }

    /// Adds applied slots to the digest. Called in slot order.
    pub(crate) fn add_applied(&mut self, range: SlotRange, value: &Value) {
        let executed = std::mem::take(&mut self.slot_sum);
        let Some(now) = &mut self.current else { return };
        *now = now.wrapping_add(range_check(range, value)).wrapping_add(executed);
        if self.recent_claims.len() == RETAINED_VALUES {
            self.recent_claims.pop_front();
        }
        let (to, digest) = (range.to, *now);
        self.recent_claims.push_back(DigestClaim { to, digest });
    }

    /// Returns the first slot that has not been applied, if the digest is known.
    pub(crate) fn digest_end(&self) -> Option<Slot> {
        self.recent_claims.back().map(|last| last.to)
    }

    /// Returns whether this node had the same digest at the claim's slot; `None` if it no longer
    /// knows.
    pub(crate) fn agrees_with(&self, claim: DigestClaim) -> Option<bool> {
        let at = self.recent_claims.binary_search_by_key(&claim.to, |kept| kept.to).ok()?;
        Some(self.recent_claims[at].digest == claim.digest)
    }
}

/// Hashes a reply. Every command has one, so a short one must cost no more than a word.
fn hash_reply(bytes: &[u8]) -> u64 {
    let (words, rest) = bytes.as_chunks::<8>();
    let folded =
        words.iter().fold(bytes.len() as u64, |state, word| mix(state ^ u64::from_le_bytes(*word)));
    let mut last = [0; 8];
    last[..rest.len()].copy_from_slice(rest);
    mix(folded ^ u64::from_le_bytes(last))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn slots(from: u64, to: u64) -> SlotRange {
        SlotRange::new(Slot(from), Slot(to))
    }

    fn id(slot: u64, index: u32) -> CommandId {
        CommandId { slot: Slot(slot), index }
    }

    fn value(session: u64) -> Value {
        Value::ExpireSession { session }
    }

    fn applied(values: &[u64]) -> Digest {
        let mut digest = Digest::new(Slot(1), Some(0));
        for (slot, session) in (1..).zip(values) {
            digest.add_applied(slots(slot, slot + 1), &value(*session));
        }
        digest
    }

    #[test]
    fn digest_depends_on_values_order_and_replies() {
        assert_eq!(applied(&[1, 2]).current(), applied(&[1, 2]).current());
        assert_ne!(applied(&[1, 2]).current(), applied(&[2, 1]).current());
        let replied = |place: CommandId, reply: &[u8]| {
            let mut digest = Digest::new(Slot(1), Some(0));
            digest.add_executed(id(1, 7), b"of a slot that was not applied in the end");
            digest.abandon_slot();
            digest.add_executed(place, reply);
            digest.add_applied(slots(1, 2), &value(1));
            digest.current()
        };
        let one = replied(id(1, 0), b"one");
        assert_eq!(one, replied(id(1, 0), b"one"));
        assert_ne!(one, replied(id(1, 0), b"two"));
        assert_ne!(one, replied(id(1, 1), b"one"));
        let (mut whole, mut cut) = (applied(&[1]), applied(&[1]));
        whole.add_applied(slots(2, 9), &Value::NoOp);
        cut.add_applied(slots(2, 5), &Value::NoOp);
        cut.add_applied(slots(5, 9), &Value::NoOp);
        assert_eq!(whole.latest_claim(), cut.latest_claim());
    }

    #[test]
    fn memory_is_bounded_and_unknown_digests_do_not_differ() {
        let digest = applied(&(0..3000).collect::<Vec<_>>());
        assert_eq!(digest.recent_claims.len(), RETAINED_VALUES);
        let old = applied(&[5]).latest_claim().unwrap();
        assert_eq!(digest.agrees_with(old), None, "too old to be known");
        let mut unknown = Digest::new(Slot(9), None);
        unknown.add_applied(slots(9, 10), &value(1));
        unknown.add_executed(id(9, 0), b"");
        assert_eq!((unknown.latest_claim(), unknown.current()), (None, None));
        assert_eq!(unknown.digest_end(), None);
    }
}
