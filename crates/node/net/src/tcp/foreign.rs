//! Peers that claim to belong to another cluster. A claim is remembered as long as it is repeated,
//! and logged repeatedly, because the situation does not resolve itself.

use std::collections::BTreeMap;

use quorate_core::{node_id::NodeId, time::Time};

/// Time in milliseconds after which a claim is forgotten: by then the node has joined this cluster
/// or stopped. Nodes dial at least twice a second.
const CLAIM_LIFETIME_MS: u64 = 10_000;
/// Minimum interval between log lines about the same node, in milliseconds.
const LOG_INTERVAL_MS: u64 = 60_000;

/// Nodes that claim to belong to another cluster, with the times of their claims.
#[derive(Debug, Default)]
pub(crate) struct ForeignClaims {
    nodes: BTreeMap<NodeId, ForeignPeer>,
}

#[derive(Debug)]
struct ForeignPeer {
    last_seen_at: Time,
    last_logged_at: Time,
}

impl ForeignClaims {
    /// Records a node's claim to belong to another cluster. Returns whether to log it. Call it only
    /// for known nodes, because unknown peers can choose any id.
    pub(crate) fn record_claim(&mut self, node: NodeId, now: Time) -> bool {
        let known = self.nodes.get(&node).filter(|seen| seen.is_fresh(now));
        let said = known.map(|seen| seen.last_logged_at);
        let due = said.is_none_or(|at| now.since_us(at) >= LOG_INTERVAL_MS * 1000);
        let said = if due { now } else { said.unwrap_or(now) };
        self.nodes.insert(node, ForeignPeer { last_seen_at: now, last_logged_at: said });
        due
    }

    /// Forgets a node that turned out to belong to this cluster.
    pub(crate) fn forget_node(&mut self, node: NodeId) {
        self.nodes.remove(&node);
    }

    pub(crate) fn nodes(&self, now: Time) -> impl Iterator<Item = NodeId> {
        let fresh = self.nodes.iter().filter(move |(_, seen)| seen.is_fresh(now));
        fresh.map(|(node, _)| *node)
    }
}

impl ForeignPeer {
    const fn is_fresh(&self, now: Time) -> bool {
        now.since_us(self.last_seen_at) < CLAIM_LIFETIME_MS * 1000
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: u64 = 1_000_000;

    #[test]
    fn foreign_claim_is_logged_at_once_and_then_every_minute() {
        let mut foreign = ForeignClaims::default();
        let said = (0..200).filter(|second| foreign.record_claim(NodeId(2), Time(second * SECOND)));
        assert_eq!(said.collect::<Vec<_>>(), [0, 60, 120, 180]);
        assert!(foreign.record_claim(NodeId(3), Time(200 * SECOND)));
        // After a pause the claim is logged as a new one.
        assert!(foreign.record_claim(NodeId(2), Time(215 * SECOND)));
    }

    #[test]
    fn foreign_claim_expires_or_is_withdrawn() {
        let mut foreign = ForeignClaims::default();
        for node in [2, 3] {
            foreign.record_claim(NodeId(node), Time(SECOND));
        }
        let nodes =
            |foreign: &ForeignClaims, at| foreign.nodes(Time(at * SECOND)).collect::<Vec<_>>();
        assert_eq!(nodes(&foreign, 10), [NodeId(2), NodeId(3)]);
        foreign.forget_node(NodeId(2));
        assert_eq!(nodes(&foreign, 10), [NodeId(3)]);
        assert_eq!(nodes(&foreign, 11), []);
    }
}
