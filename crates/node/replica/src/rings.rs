//! Statistics of a leader's rings: rings set up, rings that made no progress, and the nodes
//! excluded from the next ring.

use quorate_core::{explanation::Explanation, node_set::NodeSet};

use crate::counters::Counters;

/// The last ring of this leader, and whether it failed to make progress.
#[derive(Debug, Default)]
pub(crate) struct RingHistory {
    last_ring: NodeSet,
    failed_ring: NodeSet,
}

impl RingHistory {
    /// Counts an explanation of the core if it concerns a ring.
    pub(crate) fn count_explanation(&mut self, explanation: &Explanation, counters: &mut Counters) {
        match explanation {
            Explanation::RingLaid { nodes, .. } => {
                counters.rings_laid += 1;
                let left_out = self.failed_ring.filtered(|node| !nodes.contains(node));
                counters.ring_left_out.add(left_out, 1);
                self.failed_ring = NodeSet::default();
                self.last_ring = *nodes;
            }
            Explanation::RingBreaks { .. } => {
                counters.rings_broken += 1;
                self.failed_ring = self.last_ring;
            }
            // Rings of another leader do not belong to this leader's statistics.
            Explanation::StepsDown { .. } => *self = Self::default(),
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use quorate_core::{ballot::Ballot, node_id::NodeId, slot::Slot};

    use super::*;

    #[test]
    fn node_missing_from_the_ring_after_a_break_is_counted() {
        let (mut rings, mut counters) = (RingHistory::default(), Counters::default());
        let ballot = Ballot::ZERO;
        let laid = |nodes: &[u32]| {
            let mut set = NodeSet::default();
            nodes.iter().for_each(|node| assert!(set.insert(NodeId(*node))));
            Explanation::RingLaid { ballot, nodes: set }
        };
        let breaks = Explanation::RingBreaks { ballot, slot: Slot(1) };
        rings.count_explanation(&laid(&[1, 2, 3]), &mut counters);
        // The ring was set up again for another reason: no node is to blame.
        rings.count_explanation(&laid(&[1, 4, 3]), &mut counters);
        rings.count_explanation(&breaks, &mut counters);
        rings.count_explanation(&laid(&[1, 2, 3]), &mut counters);
        // No node was slow.
        rings.count_explanation(&breaks, &mut counters);
        rings.count_explanation(&laid(&[1, 2, 3]), &mut counters);
        assert_eq!((counters.rings_laid, counters.rings_broken), (4, 2));
        let left_out = [1, 2, 3, 4].map(|node| counters.ring_left_out.total_for(NodeId(node)));
        assert_eq!(left_out, [0, 0, 0, 1]);
    }
}
