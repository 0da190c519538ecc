//! Transfer of a peer's snapshot to this node: offers from peers, and progress.
//!
//! The node requests offers from all peers. It prefers, in this order: peers that are not busy,
//! those that failed least often, a snapshot of which it has a part, peers other than the leader,
//! and the newest snapshot. A peer that goes silent is replaced by any peer that has the same
//! snapshot.

use std::collections::BTreeMap;

use quorate_core::{node_id::NodeId, slot::Slot, time::Time};

/// A snapshot that a peer has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct SnapshotOffer {
    /// Slot of the snapshot. The snapshot covers all lower slots.
    pub(crate) slot: Slot,
    /// Digest of the snapshot's stream.
    pub(crate) digest: u128,
    /// Length of the snapshot's stream in bytes.
    pub(crate) bytes: u64,
    /// The peer is already serving its maximum number of transfers.
    pub(crate) is_busy: bool,
}

/// Identity of the snapshot that is being received.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct SnapshotId {
    pub(crate) slot: Slot,
    pub(crate) digest: u128,
    pub(crate) bytes: u64,
}

impl From<SnapshotOffer> for SnapshotId {
    fn from(offer: SnapshotOffer) -> Self {
        Self { slot: offer.slot, digest: offer.digest, bytes: offer.bytes }
    }
}

/// Next request of the transfer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum NextRequest {
    /// Request to all peers for offers.
    AskForOffers,
    /// Request to this node for the rest of this snapshot, from this offset.
    AskForBytes(NodeId, SnapshotId, u64),
}

/// Time in milliseconds for which offers are collected after the first one.
const OFFER_WAIT_MS: u64 = 20;
/// Number of unanswered requests after which the node turns to another peer.
const UNANSWERED_MAX: u32 = 3;
/// Maximum accepted length of a snapshot in bytes (4 TiB), because offers are not trusted.
const OFFER_BYTES_MAX: u64 = 4 << 40;
/// Number of received bytes after which they are acknowledged to the peer.
const ACK_BYTES: u64 = 1 << 20;

/// The search for a snapshot, and its transfer.
#[derive(Debug)]
pub(crate) struct Fetching {
    retry_ms: u64,
    needed_slot: Option<Slot>,
    offers: BTreeMap<NodeId, SnapshotOffer>,
    first_offer: Option<Time>,
    /// Number of times that each peer's snapshot was refused or the peer went silent. Other peers
    /// are preferred.
    failures_by_peer: BTreeMap<NodeId, u32>,
    /// Transfer in progress, with its sender.
    receiving: Option<(NodeId, SnapshotId)>,
    /// End of the bytes that were acknowledged to the peer.
    acknowledged_to: u64,
    last_request_at: Option<Time>,
    unanswered_count: u32,
}

impl Fetching {
    /// Creates the state. An unanswered request is repeated after `retry_ms`.
    pub(crate) fn new(retry_ms: u64) -> Self {
        Self {
            retry_ms: retry_ms.max(1),
            needed_slot: None,
            offers: BTreeMap::new(),
            first_offer: None,
            failures_by_peer: BTreeMap::new(),
            receiving: None,
            acknowledged_to: 0,
            last_request_at: None,
            unanswered_count: 0,
        }
    }

    pub(crate) fn need_from(&mut self, from: Slot) {
        self.needed_slot = Some(self.needed_slot.map_or(from, |needed| needed.max(from)));
    }

    pub(crate) fn stop(&mut self) {
        *self = Self::new(self.retry_ms);
    }

    pub(crate) fn needed_slot(&self) -> Option<Slot> {
        self.needed_slot
    }

    pub(crate) fn target(&self) -> Option<SnapshotId> {
        self.receiving.map(|(_, target)| target)
    }

    /// Returns the peer that sends the snapshot, if a transfer is in progress.
    pub(crate) fn sender(&self) -> Option<NodeId> {
        self.receiving.map(|(source, _)| source)
    }

    /// Records a peer's offer, or that it has no snapshot yet.
    pub(crate) fn on_offer(&mut self, now: Time, from: NodeId, offer: SnapshotOffer) {
        let Some(needed) = self.needed_slot else { return };
        let possible = (1..=OFFER_BYTES_MAX).contains(&offer.bytes) && offer.slot < Slot(u64::MAX);
        if offer.slot < needed || !possible {
            self.offers.remove(&from);
            if self.sender() == Some(from) {
                // The peer now has another snapshot, or has lost this one.
                self.receiving = None;
                self.last_request_at = None;
            }
            return;
        }
        self.offers.insert(from, offer);
        if self.sender() == Some(from) && self.target() != Some(offer.into()) {
            self.receiving = None;
            self.last_request_at = None;
        }
        self.first_offer.get_or_insert(now);
    }

    /// Lowers the preference of a peer whose data was refused or did not arrive.
    pub(crate) fn mark_as_worse(&mut self, node: NodeId) {
        *self.failures_by_peer.entry(node).or_default() += 1;
        self.drop_peer(node);
    }

    pub(crate) fn drop_peer(&mut self, node: NodeId) {
        self.offers.remove(&node);
        if self.sender() == Some(node) {
            self.receiving = None;
            self.last_request_at = None;
        }
    }

    /// Returns whether these are the next bytes of the transfer, and if so counts them as received.
    pub(crate) fn accept_bytes(
        &mut self,
        now: Time,
        from: NodeId,
        (at, digest, offset): (Slot, u128, u64),
        received: u64,
    ) -> bool {
        let wanted = self.receiving.is_some_and(|(source, target)| {
            source == from && (target.slot, target.digest) == (at, digest)
        });
        let next = wanted && offset == received;
        if next {
            self.last_request_at = Some(now);
            self.unanswered_count = 0;
        }
        next
    }

    /// Returns the next request, if one is due. `received` is the number of bytes that this node
    /// has of the snapshot being received, or of the snapshot `known` from an earlier process,
    /// whose transfer is continued if a peer has it.
    pub(crate) fn next_request(
        &mut self,
        now: Time,
        leader: Option<NodeId>,
        known: Option<SnapshotId>,
        received: u64,
    ) -> Option<NextRequest> {
        self.needed_slot?;
        if let Some((source, target)) = self.receiving {
            if received >= target.bytes {
                return None;
            }
            let silent =
                self.last_request_at.is_none_or(|at| now.since_us(at) >= self.retry_ms * 1000);
            let more = received >= self.acknowledged_to + ACK_BYTES;
            if !silent && !more {
                return None;
            }
            if silent && self.last_request_at.is_some() {
                self.unanswered_count += 1;
                if self.unanswered_count > UNANSWERED_MAX {
                    self.mark_as_worse(source);
                    return None;
                }
            }
            self.last_request_at = Some(now);
            self.acknowledged_to = received;
            return Some(NextRequest::AskForBytes(source, target, received));
        }
        if let Some(first) = self.first_offer
            && now.since_us(first) >= OFFER_WAIT_MS * 1000
        {
            self.first_offer = None;
            if let Some((source, offer)) = self.best_offer(leader, known) {
                self.receiving = Some((source, offer.into()));
                (self.last_request_at, self.unanswered_count) = (None, 0);
                return self.next_request(
                    now,
                    leader,
                    known,
                    received_bytes_of(offer, known, received),
                );
            }
        }
        let due = self.last_request_at.is_none_or(|at| now.since_us(at) >= self.retry_ms * 1000);
        due.then(|| {
            self.last_request_at = Some(now);
            NextRequest::AskForOffers
        })
    }

    fn best_offer(
        &self,
        leader: Option<NodeId>,
        known: Option<SnapshotId>,
    ) -> Option<(NodeId, SnapshotOffer)> {
        let rank = |(node, offer): &(NodeId, SnapshotOffer)| {
            let begun = known == Some(SnapshotId::from(*offer));
            let failed = self.failures_by_peer.get(node).copied().unwrap_or_default();
            let few_failures = u32::MAX - failed;
            (!offer.is_busy, few_failures, begun, Some(*node) != leader, offer.slot)
        };
        let offers = self.offers.iter().map(|(node, offer)| (*node, *offer));
        offers.max_by_key(rank)
    }

    /// Returns the time of the next request, given the number of bytes `received` of the snapshot.
    pub(crate) fn wake_at(&self, received: u64) -> Option<Time> {
        self.needed_slot?;
        if self.target().is_some_and(|target| received >= target.bytes) {
            // Only the disk still has work to do.
            return None;
        }
        let retry = self.last_request_at.map_or(Time(0), |at| at.plus_ms(self.retry_ms));
        let gathered = self.first_offer.map(|first| first.plus_ms(OFFER_WAIT_MS));
        match (self.receiving, gathered) {
            (None, Some(gathered)) => Some(retry.min(gathered)),
            _ => Some(retry),
        }
    }
}

/// Returns the number of bytes that this node already has of the offered snapshot.
fn received_bytes_of(offer: SnapshotOffer, known: Option<SnapshotId>, received: u64) -> u64 {
    if known == Some(offer.into()) { received } else { 0 }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LEADER: NodeId = NodeId(1);

    fn offer(at: u64, busy: bool) -> SnapshotOffer {
        SnapshotOffer { slot: Slot(at), digest: u128::from(at), bytes: 3 << 20, is_busy: busy }
    }

    fn fetching(offers: &[(u32, SnapshotOffer)]) -> (Fetching, Option<NextRequest>) {
        let mut fetching = Fetching::new(100);
        assert_eq!(fetching.next_request(Time(0), None, None, 0), None, "nothing is needed");
        fetching.need_from(Slot(10));
        let asked = fetching.next_request(Time(0), Some(LEADER), None, 0);
        assert_eq!(asked, Some(NextRequest::AskForOffers));
        for (node, offer) in offers {
            fetching.on_offer(Time(0), NodeId(*node), *offer);
        }
        assert_eq!(fetching.next_request(Time(1), Some(LEADER), None, 0), None);
        let then = fetching.next_request(Time(20_000), Some(LEADER), None, 0);
        (fetching, then)
    }

    #[test]
    fn newest_offer_not_from_the_leader_or_a_busy_node_is_chosen() {
        let offers = [
            (1, offer(30, false)),
            (2, offer(20, false)),
            (3, offer(40, true)),
            (4, offer(9, false)),
        ];
        let (_, question) = fetching(&offers);
        let target = offer(20, false).into();
        assert_eq!(question, Some(NextRequest::AskForBytes(NodeId(2), target, 0)));
        let (_, question) = fetching(&offers[..1]);
        let target = offer(30, false).into();
        assert_eq!(question, Some(NextRequest::AskForBytes(LEADER, target, 0)));
        let (_, question) = fetching(&offers[3..]);
        assert_eq!(question, None, "too old, and no other peer");
    }

    #[test]
    fn impossible_offers_are_ignored_and_failed_sources_come_last() {
        let lies = [(50, 0), (50, OFFER_BYTES_MAX + 1), (50, u64::MAX), (u64::MAX, 100)];
        for (at, bytes) in lies {
            let lie = SnapshotOffer { bytes, ..offer(at, false) };
            let (fetching, question) = fetching(&[(3, lie)]);
            assert_eq!((fetching.sender(), question), (None, None), "{lie:?}");
        }
        let offers = [(2, offer(20, false)), (3, offer(99, false))];
        let (mut fetching, _) = fetching(&offers);
        assert_eq!(fetching.sender(), Some(NodeId(3)));
        fetching.mark_as_worse(NodeId(3));
        for (node, offer) in offers {
            fetching.on_offer(Time(30_000), NodeId(node), offer);
        }
        fetching.next_request(Time(60_000), Some(LEADER), None, 0);
        assert_eq!(fetching.sender(), Some(NodeId(2)));
    }

    #[test]
    fn progress_is_recorded_and_a_silent_source_replaced() {
        let same = offer(20, false);
        let (mut fetching, _) = fetching(&[(2, same), (3, same)]);
        let place = |offset| (Slot(20), 20, offset);
        let source = fetching.sender().unwrap();
        let other = NodeId(5 - source.0);
        assert!(!fetching.accept_bytes(Time(20_100), other, place(0), 0), "of another");
        assert!(fetching.accept_bytes(Time(20_100), source, place(0), 0));
        assert!(!fetching.accept_bytes(Time(20_200), source, place(9), 5), "a gap");
        let known = Some(same.into());
        assert_eq!(fetching.next_request(Time(20_300), None, known, 5), None);
        let told = fetching.next_request(Time(20_400), None, known, 1 << 20);
        assert_eq!(told, Some(NextRequest::AskForBytes(source, same.into(), 1 << 20)));
        let mut now = 20_400;
        for _ in 0..UNANSWERED_MAX {
            now += 100_000;
            let again = fetching.next_request(Time(now), None, known, 1 << 20);
            assert_eq!(again, Some(NextRequest::AskForBytes(source, same.into(), 1 << 20)));
        }
        now += 100_000;
        fetching.next_request(Time(now), None, known, 1 << 20);
        assert_eq!(fetching.sender(), None);
        fetching.on_offer(Time(now), other, same);
        let next = fetching.next_request(Time(now + 20_000), None, known, 1 << 20);
        assert_eq!(next, Some(NextRequest::AskForBytes(other, same.into(), 1 << 20)));
    }
}
