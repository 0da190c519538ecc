//! Comparison of peers' applied state with this node's. If two nodes applied different values, or
//! executed the same values differently, they must not continue unnoticed, and a node that may be
//! wrong must not serve clients ([differ-1] to [differ-3]).

use std::collections::BTreeMap;

use quorate_core::{
    configuration::Configuration,
    effect::Alarm,
    node_id::{Member, NodeId},
    slot::Slot,
    time::Time,
};

use crate::applying::digest::{Digest, DigestClaim};

/// Interval in milliseconds at which each node sends peers a claim about its state.
const CLAIM_INTERVAL_MS: u64 = 1_000;

/// Peer whose applied state differs from this node's, and the slot below which they differ.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct StateDoubt {
    pub(crate) differing_peer: NodeId,
    pub(crate) differs_below: Slot,
}

/// Claims of peers, and the results of comparisons with them.
#[derive(Debug)]
pub(super) struct Comparison {
    /// The first claim of each peer about slots that this node has not applied yet.
    claims_ahead: BTreeMap<NodeId, DigestClaim>,
    /// Peers whose applied state differs, each with the slot below which the states differ. A
    /// difference is permanent, so it is reported once, until the peer has another state.
    differing_peers: BTreeMap<NodeId, Slot>,
    /// Peers whose applied state is the same, each with the slot below which the states agree.
    agreeing_peers: BTreeMap<NodeId, Slot>,
    /// [differ-2] Set if this node may be the one with the wrong state.
    doubt: Option<StateDoubt>,
    due_at: Time,
}

impl Comparison {
    pub(super) fn new(now: Time, doubt: Option<StateDoubt>) -> Self {
        Self {
            claims_ahead: BTreeMap::new(),
            differing_peers: BTreeMap::new(),
            agreeing_peers: BTreeMap::new(),
            doubt,
            due_at: now.plus_ms(CLAIM_INTERVAL_MS),
        }
    }

    /// Returns whether to send a claim to the peers now, and schedules the next one.
    pub(super) fn take_due_claim(&mut self, now: Time) -> bool {
        let due = now >= self.due_at;
        if due {
            self.due_at = now.plus_ms(CLAIM_INTERVAL_MS);
        }
        due
    }

    /// Compares a peer's claim with this node's state. Returns an alarm if it newly shows that one
    /// of the two is wrong.
    pub(super) fn compare_claim(
        &mut self,
        from: NodeId,
        claim: DigestClaim,
        own: &Digest,
    ) -> Option<Alarm> {
        if own.digest_end().is_none_or(|to| claim.to > to) {
            self.claims_ahead.entry(from).or_insert(claim);
            return None;
        }
        self.compare(from, claim, own)
    }

    /// Compares the claims of peers that were ahead, now that this node has applied the same slots.
    pub(super) fn compare_pending_claims(&mut self, own: &Digest) -> Option<Alarm> {
        let applied_to = own.digest_end()?;
        loop {
            let mut claims = self.claims_ahead.iter();
            let (&from, &claim) = claims.find(|(_, claim)| claim.to <= applied_to)?;
            self.claims_ahead.remove(&from);
            let alarm = self.compare(from, claim, own);
            if alarm.is_some() {
                return alarm;
            }
        }
    }

    fn compare(&mut self, with: NodeId, claim: DigestClaim, own: &Digest) -> Option<Alarm> {
        let to = claim.to;
        if own.agrees_with(claim)? {
            self.differing_peers.retain(|node, at| *node != with || *at > to);
            let same = self.agreeing_peers.entry(with).or_insert(to);
            *same = to.max(*same);
            return None;
        }
        self.agreeing_peers.remove(&with);
        if self.differing_peers.insert(with, to).is_some() {
            return None;
        }
        let before = self.doubt.filter(|doubt| doubt.differs_below >= to);
        self.doubt = before.or(Some(StateDoubt { differing_peer: with, differs_below: to }));
        Some(Alarm::DifferentHistory { with, to })
    }

    /// [differ-2] Returns why this node's state may be the wrong one: it differs from a peer's, and
    /// full replicas with more than half of the weight have not confirmed it since.
    pub(super) fn doubt_own_state(
        &mut self,
        own: Member,
        members: &Configuration,
    ) -> Option<StateDoubt> {
        let StateDoubt { differs_below: to, .. } = self.doubt?;
        let says_same = |node| self.agreeing_peers.get(&node).is_some_and(|same| *same >= to);
        let (mut all, mut same) = (0, 0);
        for voter in members.members().iter().filter(|voter| !voter.auxiliary) {
            let weight = u64::from(voter.weight);
            all += weight;
            if voter.member == own || says_same(voter.member.node) {
                same += weight;
            }
        }
        if same * 2 > all {
            self.doubt = None;
        }
        self.doubt
    }

    /// Drops the claims of a peer that disconnected, since it may return as another incarnation.
    pub(super) fn drop_claims(&mut self, peer: NodeId) {
        self.claims_ahead.remove(&peer);
        self.agreeing_peers.remove(&peer);
    }
}

#[cfg(test)]
mod tests {
    use quorate_core::{
        class::Class, configuration::Voter, quorum::QuorumRule, slot::SlotRange, value::Value,
    };

    use super::*;

    fn apply(digest: &mut Digest, slot: u64, session: u64) {
        let range = SlotRange::one(Slot(slot));
        digest.add_applied(range, &Value::ExpireSession { session });
    }

    fn applied(values: &[u64]) -> Digest {
        let mut digest = Digest::new(Slot(1), Some(0));
        for (slot, session) in (1..).zip(values) {
            apply(&mut digest, slot, *session);
        }
        digest
    }

    fn claim(values: &[u64]) -> DigestClaim {
        applied(values).latest_claim().unwrap()
    }

    fn comparison() -> Comparison {
        Comparison::new(Time(0), None)
    }

    #[test]
    fn claims_are_compared_once_both_are_known() {
        let differs = |values: &[u64]| {
            let own = applied(&[1, 2, 3]);
            comparison().compare_claim(NodeId(2), claim(values), &own).is_some()
        };
        assert!(!differs(&[1, 2, 3]));
        assert!(differs(&[1, 9, 3]));
        assert!(!differs(&[1]), "older");
        assert!(differs(&[7]));
    }

    #[test]
    fn first_claim_of_each_peer_waits_until_this_node_catches_up() {
        let (mut own, mut comparison) = (applied(&[1]), comparison());
        let (here, there) = (claim(&[1, 2, 3]), claim(&[1, 9, 3]));
        let mut heard = |from, claim| comparison.compare_claim(NodeId(from), claim, &own);
        assert_eq!(heard(2, there), None);
        assert_eq!(heard(2, here), None, "the second is not kept");
        assert_eq!(heard(3, here), None);
        assert_eq!(heard(4, there), None);
        comparison.drop_claims(NodeId(4));
        apply(&mut own, 2, 2);
        assert_eq!(comparison.compare_pending_claims(&own), None);
        apply(&mut own, 3, 3);
        let (with, to) = (NodeId(2), Slot(4));
        let alarm = Some(Alarm::DifferentHistory { with, to });
        assert_eq!(comparison.compare_pending_claims(&own), alarm);
        assert_eq!(comparison.compare_pending_claims(&own), None);
        assert_eq!(comparison.compare_claim(with, there, &own), None, "told once");
    }

    #[test]
    fn digest_goes_back_with_the_service() {
        let mut comparison = comparison();
        let own = applied(&[1, 2, 3]);
        assert_eq!(comparison.compare_claim(NodeId(2), claim(&[1, 2, 3, 4]), &own), None);
        let mut own = Digest::new(Slot(2), applied(&[1]).current());
        assert_eq!(own.latest_claim(), applied(&[1]).latest_claim());
        for (slot, session) in [(2, 2), (3, 3), (4, 5)] {
            apply(&mut own, slot, session);
        }
        let (with, to) = (NodeId(2), Slot(5));
        let alarm = Some(Alarm::DifferentHistory { with, to });
        assert_eq!(comparison.compare_pending_claims(&own), alarm);
    }

    #[test]
    fn unknown_digest_raises_no_alarm() {
        let mut comparison = comparison();
        let mut unknown = Digest::new(Slot(9), None);
        unknown.add_applied(SlotRange::one(Slot(9)), &Value::NoOp);
        assert_eq!(comparison.compare_claim(NodeId(2), claim(&[5]), &unknown), None);
        assert_eq!(comparison.compare_pending_claims(&unknown), None);
    }

    /// [differ-2] If two nodes differ, either may be wrong; of three nodes, the two that agree are
    /// right. A restart does not change this.
    #[test]
    fn node_in_the_minority_doubts_its_state() {
        let own = Member::first(1);
        let group = |nodes: u32| {
            let voter = |node| Voter { member: Member::first(node), weight: 1, auxiliary: false };
            let voters = (1..=nodes).map(voter).collect();
            Configuration::new(voters, QuorumRule::Majority, Class::Durable).unwrap()
        };
        let digest = applied(&[1, 2, 3]);
        let (here, there) = (claim(&[1, 2, 3]), claim(&[1, 9, 3]));
        let mut comparison = comparison();
        comparison.compare_claim(NodeId(3), here, &digest);
        assert_eq!(comparison.doubt_own_state(own, &group(3)), None);
        assert!(comparison.compare_claim(NodeId(2), there, &digest).is_some());
        let doubt = Some(StateDoubt { differing_peer: NodeId(2), differs_below: Slot(4) });
        assert_eq!(comparison.doubt_own_state(own, &group(2)), doubt);
        assert_eq!(comparison.doubt_own_state(own, &group(3)), None, "node 3 has the same");
        assert_eq!(comparison.doubt_own_state(own, &group(2)), None, "it is over");

        let mut restarted = Comparison::new(Time(0), doubt);
        assert_eq!(restarted.doubt_own_state(own, &group(3)), doubt);
        restarted.compare_claim(NodeId(3), claim(&[1, 2]), &digest);
        assert_eq!(restarted.doubt_own_state(own, &group(3)), doubt, "that is from before");
        restarted.compare_claim(NodeId(3), here, &digest);
        assert_eq!(restarted.doubt_own_state(own, &group(4)), doubt, "a half is not enough");
        assert_eq!(restarted.doubt_own_state(own, &group(3)), None);
        let mut alone = Comparison::new(Time(0), doubt);
        assert_eq!(alone.doubt_own_state(own, &group(1)), None, "the others were removed");
    }
}
