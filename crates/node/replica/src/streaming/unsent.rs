//! Pieces waiting to be sent, by node and in round-robin order. No more of them are checked than a
//! connection has free space for.

use std::collections::BTreeMap;

use quorate_core::{node_id::NodeId, value::StreamName};

use crate::round_robin::RoundRobin;

#[derive(Debug, Default)]
pub(super) struct UnsentPieces(BTreeMap<NodeId, RoundRobin<StreamName>>);

impl UnsentPieces {
    /// Adds a piece that may have bytes for `nodes`.
    pub(super) fn add(&mut self, stream: StreamName, nodes: &[NodeId]) {
        for node in nodes {
            self.0.entry(*node).or_default().insert(stream);
        }
    }

    pub(super) fn count_for(&self, node: NodeId) -> usize {
        self.0.get(&node).map_or(0, RoundRobin::len)
    }

    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Returns the next piece for a node. The caller reports the result with [`Self::mark_sent`],
    /// and the end of the piece's turn with [`Self::end_turn`].
    pub(super) fn next_piece(&self, node: NodeId) -> Option<StreamName> {
        self.0.get(&node)?.peek_next()
    }

    pub(super) fn end_turn(&mut self, stream: StreamName, node: NodeId) {
        if let Some(streams) = self.0.get_mut(&node) {
            streams.end_turn(stream);
        }
    }

    /// Records that a piece has been sent completely to all nodes except those in `but`.
    pub(super) fn mark_sent(&mut self, stream: StreamName, but: &[NodeId]) {
        self.0.retain(|node, streams| {
            if !but.contains(node) {
                streams.remove(&stream);
            }
            !streams.is_empty()
        });
        self.add(stream, but);
    }

    pub(super) fn drop_stream(&mut self, stream: StreamName) {
        self.mark_sent(stream, &[]);
    }
}
