//! What peers say they have applied, compared with what this node has: two that have applied
//! different values, or executed the same ones differently, must not go on in silence.

use std::collections::{BTreeMap, BTreeSet};

use quorate_core::{effect::Alarm, node_id::NodeId, slot::Slot, time::Time};

use crate::applying::digest::{Claim, Digest};

/// How often nodes tell each other what they have applied.
const COMPARE_EVERY_MS: u64 = 1_000;

/// What peers said.
#[derive(Debug)]
pub(super) struct Comparison {
    /// Of slots that are not applied here yet; the first of each.
    ahead: BTreeMap<NodeId, Claim>,
    /// Peers that are known to have applied something else. What differs once differs permanently:
    /// each is told of once.
    different: BTreeSet<NodeId>,
    /// When this node tells others what it has applied.
    due_at: Time,
}

impl Comparison {
    pub(super) fn new(now: Time) -> Self {
        Self {
            ahead: BTreeMap::new(),
            different: BTreeSet::new(),
            due_at: now.plus_ms(COMPARE_EVERY_MS),
        }
    }

    /// Whether others are to be told now; the next time is later.
    pub(super) fn take_due(&mut self, now: Time) -> bool {
        let due = now >= self.due_at;
        if due {
            self.due_at = now.plus_ms(COMPARE_EVERY_MS);
        }
        due
    }

    /// A peer said something. An alarm if it is known to be wrong, here or there, for the first
    /// time.
    pub(super) fn heard(&mut self, from: NodeId, claim: Claim, own: &Digest) -> Option<Alarm> {
        if own.known_to().is_none_or(|to| claim.to > to) {
            self.ahead.entry(from).or_insert(claim);
            return None;
        }
        let differs = own.differs(claim);
        differs.then(|| self.alarm(from, claim.to)).flatten()
    }

    /// The same for a peer that was ahead of this node, which is there by now.
    pub(super) fn caught_up(&mut self, own: &Digest) -> Option<Alarm> {
        let (with, to) = self.next_different(own)?;
        self.alarm(with, to)
    }

    fn next_different(&mut self, own: &Digest) -> Option<(NodeId, Slot)> {
        let applied_to = own.known_to()?;
        loop {
            let mut claims = self.ahead.iter();
            let (&from, &claim) = claims.find(|(_, claim)| claim.to <= applied_to)?;
            self.ahead.remove(&from);
            if own.differs(claim) {
                return Some((from, claim.to));
            }
        }
    }

    fn alarm(&mut self, with: NodeId, to: Slot) -> Option<Alarm> {
        let first = self.different.insert(with);
        first.then_some(Alarm::DifferentHistory { with, to })
    }

    /// What this peer said counts no more: it is gone, and may come back as another.
    pub(super) fn forget(&mut self, peer: NodeId) {
        self.ahead.remove(&peer);
    }
}

#[cfg(test)]
mod tests {
    use quorate_core::{slot::SlotRange, value::Value};

    use super::*;

    fn apply(digest: &mut Digest, slot: u64, session: u64) {
        let range = SlotRange::one(Slot(slot));
        digest.applied(range, &Value::ExpireSession { session });
    }

    fn applied(values: &[u64]) -> Digest {
        let mut digest = Digest::new(Slot(1), Some(0));
        for (slot, session) in (1..).zip(values) {
            apply(&mut digest, slot, *session);
        }
        digest
    }

    fn claim(values: &[u64]) -> Claim {
        applied(values).claim().unwrap()
    }

    fn comparison() -> Comparison {
        Comparison::new(Time(0))
    }

    #[test]
    fn claims_are_compared_when_both_are_there() {
        let differs = |values: &[u64]| {
            let own = applied(&[1, 2, 3]);
            comparison().heard(NodeId(2), claim(values), &own).is_some()
        };
        assert!(!differs(&[1, 2, 3]));
        assert!(differs(&[1, 9, 3]));
        assert!(!differs(&[1]), "older");
        assert!(differs(&[7]));
    }

    #[test]
    fn the_first_claim_of_each_peer_waits_until_this_node_is_there() {
        let (mut own, mut comparison) = (applied(&[1]), comparison());
        let (here, there) = (claim(&[1, 2, 3]), claim(&[1, 9, 3]));
        let mut heard = |from, claim| comparison.heard(NodeId(from), claim, &own);
        assert_eq!(heard(2, there), None);
        assert_eq!(heard(2, here), None, "the second is not kept");
        assert_eq!(heard(3, here), None);
        assert_eq!(heard(4, there), None);
        comparison.forget(NodeId(4));
        apply(&mut own, 2, 2);
        assert_eq!(comparison.caught_up(&own), None);
        apply(&mut own, 3, 3);
        let (with, to) = (NodeId(2), Slot(4));
        let alarm = Some(Alarm::DifferentHistory { with, to });
        assert_eq!(comparison.caught_up(&own), alarm);
        assert_eq!(comparison.caught_up(&own), None);
        assert_eq!(comparison.heard(with, there, &own), None, "told once");
    }

    #[test]
    fn a_service_that_goes_back_takes_its_digest_with_it() {
        let mut comparison = comparison();
        let own = applied(&[1, 2, 3]);
        assert_eq!(comparison.heard(NodeId(2), claim(&[1, 2, 3, 4]), &own), None);
        let mut own = Digest::new(Slot(2), applied(&[1]).now());
        assert_eq!(own.claim(), applied(&[1]).claim());
        for (slot, session) in [(2, 2), (3, 3), (4, 5)] {
            apply(&mut own, slot, session);
        }
        let (with, to) = (NodeId(2), Slot(5));
        let alarm = Some(Alarm::DifferentHistory { with, to });
        assert_eq!(comparison.caught_up(&own), alarm);
    }

    #[test]
    fn what_is_unknown_accuses_nobody() {
        let mut comparison = comparison();
        let mut unknown = Digest::new(Slot(9), None);
        unknown.applied(SlotRange::one(Slot(9)), &Value::NoOp);
        assert_eq!(comparison.heard(NodeId(2), claim(&[5]), &unknown), None);
        assert_eq!(comparison.caught_up(&unknown), None);
    }
}
