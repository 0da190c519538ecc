//! Forwarding order of multicast datagrams along a chain: all reachable nodes, with those that
//! failed to forward at the end ([chain-1]).

use std::collections::BTreeMap;

use quorate_core::{node_id::NodeId, time::Time};

use crate::plane::link::PROBE_INTERVAL_US;

/// Time after a change of the chain during which no node is blamed, in microseconds. It is long
/// enough for probes to detect a broken path.
const SETTLING_US: u64 = 4 * PROBE_INTERVAL_US;
/// Initial penalty at the end of the chain for a node that failed to forward, in microseconds. It
/// doubles each time.
const PENALTY_US_MIN: u64 = 10_000_000;
const PENALTY_US_MAX: u64 = 600_000_000;

#[derive(Clone, Debug, Default)]
pub(crate) struct ForwardingChain {
    nodes: Vec<NodeId>,
    changed_at: Time,
    penalties: BTreeMap<NodeId, Penalty>,
}

/// A penalized node: it did not forward, or did not receive from its predecessor.
#[derive(Clone, Copy, Debug)]
struct Penalty {
    until: Time,
    /// Latest penalty, in microseconds.
    last_penalty_us: u64,
}

impl ForwardingChain {
    /// Updates the chain if the reachable nodes need a different order, and returns the new order.
    pub(crate) fn set_order(
        &mut self,
        me: NodeId,
        reached: impl Iterator<Item = NodeId>,
        votes: impl Fn(NodeId) -> bool,
        now: Time,
    ) -> Option<&[NodeId]> {
        let mut nodes: Vec<NodeId> = reached.collect();
        // Voters come first, because a decision waits for them. Otherwise node ids ascend from this
        // node's and wrap around, so that each sender has a different first node.
        let late_until = |node: &NodeId| {
            let until = self.penalties.get(node).map(|late| late.until);
            until.filter(|until| *until > now)
        };
        nodes.sort_by_key(|node| (late_until(node), !votes(*node), *node < me, *node));
        if nodes == self.nodes {
            return None;
        }
        self.nodes = nodes;
        self.changed_at = now;
        Some(&self.nodes)
    }

    /// Finds where the chain broke: the first node that does not receive group datagrams (`hears`).
    /// Moves it and its predecessor, which should have forwarded to it, to the end. Returns whether
    /// the order changed.
    pub(crate) fn penalize_break(&mut self, hears: impl Fn(NodeId) -> bool, now: Time) -> bool {
        if now.since_us(self.changed_at) < SETTLING_US {
            return false;
        }
        let Some(first) = self.nodes.iter().position(|node| !hears(*node)) else {
            return false;
        };
        // A node at the end delays no other.
        if first + 1 == self.nodes.len() {
            return false;
        }
        for at in first.saturating_sub(1)..=first {
            let late = self
                .penalties
                .entry(self.nodes[at])
                .or_insert(Penalty { until: Time(0), last_penalty_us: PENALTY_US_MIN / 2 });
            late.last_penalty_us = (late.last_penalty_us * 2).min(PENALTY_US_MAX);
            // The node that did not forward goes last, after its successor.
            late.until = now.plus_us(late.last_penalty_us - u64::from(at == first));
        }
        true
    }

    /// Forgets a node, so that it has no penalty when it returns.
    pub(crate) fn forget_node(&mut self, node: NodeId) {
        self.penalties.remove(&node);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ME: NodeId = NodeId(3);

    fn laid(chain: &mut ForwardingChain, reached: &[u32], now: u64) -> Option<Vec<u32>> {
        let reached = reached.iter().copied().map(NodeId);
        let votes = |node: NodeId| node.0 < 10;
        let order = chain.set_order(ME, reached, votes, Time(now))?;
        Some(order.iter().map(|node| node.0).collect())
    }

    #[test]
    fn chain_begins_after_its_sender_and_changes_only_if_needed() {
        let mut chain = ForwardingChain::default();
        assert_eq!(laid(&mut chain, &[], 0), None);
        assert_eq!(laid(&mut chain, &[1, 2, 4, 5], 0), Some(vec![4, 5, 1, 2]));
        assert_eq!(laid(&mut chain, &[1, 2, 4, 5], 9), None);
        assert_eq!(laid(&mut chain, &[1, 2, 5], 9), Some(vec![5, 1, 2]));
    }

    /// [chain-1] Voters come first. In this test, nodes 10 and up are learners.
    #[test]
    fn voters_come_first() {
        let mut chain = ForwardingChain::default();
        let laid = laid(&mut chain, &[1, 4, 5, 10, 11], 0);
        assert_eq!(laid, Some(vec![4, 5, 1, 10, 11]));
    }

    /// Both the node that did not forward and its successor go to the end, for longer each time.
    #[test]
    fn both_nodes_at_a_break_move_to_the_end() {
        let mut chain = ForwardingChain::default();
        laid(&mut chain, &[1, 2, 4, 5], 0);
        assert!(!chain.penalize_break(|_| false, Time(SETTLING_US - 1)), "not probed yet");
        assert!(!chain.penalize_break(|_| true, Time(SETTLING_US)));
        // 4 forwards nothing, so 5 and all after it receive nothing.
        assert!(chain.penalize_break(|node| node == NodeId(4), Time(SETTLING_US)));
        assert_eq!(laid(&mut chain, &[1, 2, 4, 5], SETTLING_US), Some(vec![1, 2, 5, 4]));
        // The last node delays no other.
        let now = 3 * SETTLING_US;
        assert!(!chain.penalize_break(|node| node != NodeId(4), Time(now)));
        // The penalty expires, until it happens again.
        let later = SETTLING_US + PENALTY_US_MIN;
        assert_eq!(laid(&mut chain, &[1, 2, 4, 5], later), Some(vec![4, 5, 1, 2]));
        let again = later + SETTLING_US;
        assert!(chain.penalize_break(|node| node == NodeId(4), Time(again)));
        assert!(laid(&mut chain, &[1, 2, 4, 5], again).is_some());
        assert_eq!(laid(&mut chain, &[1, 2, 4, 5], again + PENALTY_US_MIN), None);
        chain.forget_node(NodeId(4));
        assert_eq!(laid(&mut chain, &[1, 2, 4, 5], again + PENALTY_US_MIN), Some(vec![4, 1, 2, 5]));
    }

    /// If the first node receives nothing, it alone is moved, since it receives everything from the
    /// sender itself.
    #[test]
    fn first_node_that_receives_nothing_is_moved_alone() {
        let mut chain = ForwardingChain::default();
        laid(&mut chain, &[1, 2, 4], 0);
        assert!(chain.penalize_break(|_| false, Time(SETTLING_US)));
        assert_eq!(laid(&mut chain, &[1, 2, 4], SETTLING_US), Some(vec![1, 2, 4]));
    }
}
