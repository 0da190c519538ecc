//! Plane that consists of buffers, from which the test cluster moves frames to its links.

use std::collections::{BTreeMap, BTreeSet};

use quorate_core::{node_id::NodeId, node_set::NodeSet};
use quorate_wire::Lane;

use crate::ports::plane::{FrameBody, Plane, TooLarge};

/// A node's buffers, one per peer and lane.
#[derive(Default)]
pub(super) struct Buffers {
    by_destination: BTreeMap<(NodeId, Lane), Vec<u8>>,
    connected: BTreeSet<NodeId>,
    bytes_max: usize,
}

impl Buffers {
    /// Sets the capacity of the buffer towards one peer and lane.
    pub(super) fn set_bytes_max(&mut self, bytes_max: usize) {
        self.bytes_max = bytes_max;
    }

    /// Connects or disconnects a peer. Returns whether it was connected before.
    pub(super) fn set_connected(&mut self, peer: NodeId, up: bool) -> bool {
        if up {
            return !self.connected.insert(peer);
        }
        self.by_destination.retain(|(to, _), _| *to != peer);
        self.connected.remove(&peer)
    }

    pub(super) fn disconnect_all(&mut self) {
        self.connected.clear();
    }

    pub(super) fn clear(&mut self) {
        self.by_destination.clear();
    }

    /// Takes the written frames, in order of peers and lanes. The buffers remain.
    pub(super) fn take_frames(&mut self) -> Vec<((NodeId, Lane), Vec<u8>)> {
        let buffers = self.by_destination.iter_mut();
        buffers.map(|(to, bytes)| (*to, std::mem::take(bytes))).collect()
    }
}

impl Plane for Buffers {
    fn has_room(&self, to: NodeId, lane: Lane, bytes: usize) -> bool {
        let queued = self.by_destination.get(&(to, lane)).map_or(0, Vec::len);
        self.connected.contains(&to) && queued + bytes <= self.bytes_max
    }

    fn send(
        &mut self,
        to: NodeSet,
        lane: Lane,
        header: &[u8],
        body: FrameBody<'_>,
    ) -> Result<NodeSet, TooLarge> {
        let bytes = header.len() + body.bytes().len();
        let sent = to.filtered(|node| self.has_room(node, lane, bytes));
        for node in sent.iter() {
            let buffer = self.by_destination.entry((node, lane)).or_default();
            buffer.extend_from_slice(header);
            buffer.extend_from_slice(body.bytes());
        }
        Ok(sent)
    }
}
