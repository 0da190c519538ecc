//! A digest of everything that was applied, to be compared with other nodes': two that have applied
//! different values, or executed the same ones differently, must not go on in silence.
//!
//! A sum over slots and commands, so that it is the same wherever ranges are cut. It guards against
//! faults, not against an adversary ([model-1]). A persistent service keeps it with its position.

use std::collections::{BTreeMap, VecDeque};

use quorate_core::{
    node_id::NodeId,
    slot::{Slot, SlotRange},
    value::{Value, mix, range_check},
};

use crate::service::CommandId;

/// Values of which the digest behind them is remembered: a node is rarely further ahead than that.
const KEPT: usize = 1024;

/// What a peer said: everything below this slot has this digest there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Claim {
    pub(crate) to: Slot,
    pub(crate) digest: u64,
}

/// The digest of what this node applied.
#[derive(Debug)]
pub(crate) struct Digest {
    /// `None` if the service does not know it: it was made by an earlier version.
    now: Option<u64>,
    /// What the commands of the slot that is being applied add to it.
    executed: u64,
    /// The digest behind each of the last values.
    kept: VecDeque<Claim>,
    /// What peers said of slots that are not applied here yet; the first of each.
    ahead: BTreeMap<NodeId, Claim>,
}

impl Digest {
    /// Everything below `applied_to` has this digest.
    pub(crate) fn new(applied_to: Slot, digest: Option<u64>) -> Self {
        let first = digest.map(|digest| Claim {
            to: applied_to,
            digest,
        });
        Self {
            now: digest,
            executed: 0,
            kept: first.into_iter().collect(),
            ahead: BTreeMap::new(),
        }
    }

    /// The digest of everything that was applied, if it is known.
    pub(crate) fn now(&self) -> Option<u64> {
        self.now
    }

    /// What to tell others.
    pub(crate) fn claim(&self) -> Option<Claim> {
        self.kept.back().copied()
    }

    /// A command was executed, with this reply.
    pub(crate) fn executed(&mut self, id: CommandId, reply: &[u8]) {
        let place = mix(id.slot.0 ^ u64::from(id.index) << 48);
        self.executed = self.executed.wrapping_add(mix(place ^ fold(reply)));
    }

    /// The slot that was being applied was not: what was executed of it does not count.
    pub(crate) fn abandon(&mut self) {
        self.executed = 0;
    }

    /// The service is at an earlier position, where this was the digest.
    pub(crate) fn go_back(&mut self, applied_to: Slot, digest: Option<u64>) {
        let ahead = std::mem::take(&mut self.ahead);
        *self = Self {
            ahead,
            ..Self::new(applied_to, digest)
        };
    }

    /// These slots were applied, in order.
    pub(crate) fn applied(&mut self, range: SlotRange, value: &Value) {
        let executed = std::mem::take(&mut self.executed);
        let Some(now) = &mut self.now else { return };
        *now = now
            .wrapping_add(range_check(range, value))
            .wrapping_add(executed);
        if self.kept.len() == KEPT {
            self.kept.pop_front();
        }
        let (to, digest) = (range.to, *now);
        self.kept.push_back(Claim { to, digest });
    }

    /// A peer said something. Whether it is known to be wrong, here or there.
    pub(crate) fn heard(&mut self, from: NodeId, claim: Claim) -> bool {
        let applied_to = self.kept.back().map(|last| last.to);
        if applied_to.is_none_or(|to| claim.to > to) {
            self.ahead.entry(from).or_insert(claim);
            return false;
        }
        self.differs(claim)
    }

    /// Whether the digest at that slot is known here, and another.
    fn differs(&self, claim: Claim) -> bool {
        let at = self.kept.binary_search_by_key(&claim.to, |kept| kept.to);
        at.is_ok_and(|at| self.kept[at].digest != claim.digest)
    }

    /// A peer that said something about slots which are applied here by now, and have another digest.
    pub(crate) fn next_different(&mut self) -> Option<(NodeId, Slot)> {
        let applied_to = self.kept.back()?.to;
        loop {
            let mut claims = self.ahead.iter();
            let (&from, &claim) = claims.find(|(_, claim)| claim.to <= applied_to)?;
            self.ahead.remove(&from);
            if self.differs(claim) {
                return Some((from, claim.to));
            }
        }
    }

    /// What this peer said counts no more: it is gone, and may come back as another.
    pub(crate) fn forget(&mut self, peer: NodeId) {
        self.ahead.remove(&peer);
    }
}

/// A short reply costs a word's worth: each command has one.
fn fold(bytes: &[u8]) -> u64 {
    let (words, rest) = bytes.as_chunks::<8>();
    let folded = words.iter().fold(bytes.len() as u64, |state, word| {
        mix(state ^ u64::from_le_bytes(*word))
    });
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
        CommandId {
            slot: Slot(slot),
            index,
        }
    }

    fn value(session: u64) -> Value {
        Value::ExpireSession { session }
    }

    fn applied(values: &[u64]) -> Digest {
        let mut digest = Digest::new(Slot(1), Some(0));
        for (slot, session) in (1..).zip(values) {
            digest.applied(slots(slot, slot + 1), &value(*session));
        }
        digest
    }

    #[test]
    fn what_was_applied_and_replied_is_told_apart() {
        assert_eq!(applied(&[1, 2]).now(), applied(&[1, 2]).now());
        assert_ne!(applied(&[1, 2]).now(), applied(&[2, 1]).now());
        let replied = |place: CommandId, reply: &[u8]| {
            let mut digest = Digest::new(Slot(1), Some(0));
            digest.executed(id(1, 7), b"of a slot that was not applied in the end");
            digest.abandon();
            digest.executed(place, reply);
            digest.applied(slots(1, 2), &value(1));
            digest.now()
        };
        let one = replied(id(1, 0), b"one");
        assert_eq!(one, replied(id(1, 0), b"one"));
        assert_ne!(one, replied(id(1, 0), b"two"));
        assert_ne!(one, replied(id(1, 1), b"one"));
        let (mut whole, mut cut) = (applied(&[1]), applied(&[1]));
        whole.applied(slots(2, 9), &Value::NoOp);
        cut.applied(slots(2, 5), &Value::NoOp);
        cut.applied(slots(5, 9), &Value::NoOp);
        assert_eq!(whole.claim(), cut.claim());
    }

    #[test]
    fn claims_are_compared_when_both_are_there() {
        let (here, there) = (applied(&[1, 2, 3]), applied(&[1, 9, 3]));
        let claim = |digest: &Digest| digest.claim().unwrap();
        let mut digest = applied(&[1, 2, 3]);
        assert!(!digest.heard(NodeId(2), claim(&here)));
        assert!(digest.heard(NodeId(2), claim(&there)));
        assert!(!digest.heard(NodeId(2), claim(&applied(&[1]))), "older");
        assert!(digest.heard(NodeId(2), claim(&applied(&[7]))));
        // Ahead: the first claim of each peer waits until this node is there.
        let mut digest = applied(&[1]);
        assert!(!digest.heard(NodeId(2), claim(&there)));
        assert!(
            !digest.heard(NodeId(2), claim(&here)),
            "the second is not kept"
        );
        assert!(!digest.heard(NodeId(3), claim(&here)));
        assert!(!digest.heard(NodeId(4), claim(&there)));
        digest.forget(NodeId(4));
        digest.applied(slots(2, 3), &value(2));
        assert_eq!(digest.next_different(), None);
        digest.applied(slots(3, 4), &value(3));
        assert_eq!(digest.next_different(), Some((NodeId(2), Slot(4))));
        assert_eq!(digest.next_different(), None);
    }

    #[test]
    fn a_service_that_goes_back_takes_its_digest_with_it() {
        let mut digest = applied(&[1, 2, 3]);
        let later = applied(&[1, 2, 3, 4]).claim().unwrap();
        assert!(!digest.heard(NodeId(2), later));
        digest.go_back(Slot(2), applied(&[1]).now());
        assert_eq!(digest.claim(), applied(&[1]).claim());
        for (slot, session) in [(2, 2), (3, 3), (4, 5)] {
            digest.applied(slots(slot, slot + 1), &value(session));
        }
        assert_eq!(digest.next_different(), Some((NodeId(2), Slot(5))));
    }

    #[test]
    fn memory_is_bounded_and_what_is_unknown_accuses_nobody() {
        let mut digest = applied(&(0..3000).collect::<Vec<_>>());
        assert_eq!(digest.kept.len(), KEPT);
        let old = applied(&[5]).claim().unwrap();
        assert!(!digest.heard(NodeId(2), old), "too old to be known");
        let mut unknown = Digest::new(Slot(9), None);
        unknown.applied(slots(9, 10), &value(1));
        unknown.executed(id(9, 0), b"");
        assert_eq!((unknown.claim(), unknown.now()), (None, None));
        assert!(!unknown.heard(NodeId(2), old));
        assert_eq!(unknown.next_different(), None);
    }
}
