//! Datagrams retained from other nodes, for repairs, and the nodes that wait for datagrams which
//! this node also lacks.

use std::{collections::BTreeMap, ops::Range};

use quorate_core::node_id::NodeId;

use crate::{body::ChannelName, buffer::DatagramBuffer, limits::Limits};

/// Maximum number of channels with retained datagrams. Two suffice for the leader and its
/// predecessor.
const CHANNELS_MAX: usize = 2;
/// Maximum number of packets for which waiting nodes are recorded.
const PACKETS_MAX: usize = 1024;
/// Maximum number of nodes that wait for one packet.
const WAITING_MAX: usize = 8;

pub(crate) struct RetainedDatagrams {
    /// Channels in order of use, the most recently used last.
    channels: Vec<(ChannelName, DatagramBuffer)>,
    bytes: usize,
    datagram_count: usize,
    waiting_nodes: BTreeMap<(ChannelName, u64), Vec<NodeId>>,
}

impl RetainedDatagrams {
    pub(crate) fn new(limits: &Limits) -> Self {
        let numbers = limits.buffer_bytes / limits.datagram_bytes;
        Self {
            channels: Vec::new(),
            bytes: limits.buffer_bytes,
            datagram_count: numbers.clamp(1 << 10, 1 << 16),
            waiting_nodes: BTreeMap::new(),
        }
    }

    /// Stores a datagram, bit for bit, dropping the oldest ones if there is no space.
    pub(crate) fn store_datagram(&mut self, of: ChannelName, number: u64, datagram: &[u8]) {
        if let Some(at) = self.channels.iter().position(|(name, _)| *name == of) {
            let last = self.channels.len() - 1;
            self.channels.swap(at, last);
        } else {
            // A new boot of a node replaces the old one.
            let same = |name: &ChannelName| (name.owner, name.channel) == (of.owner, of.channel);
            self.channels.retain(|(name, _)| !same(name));
            if self.channels.len() == CHANNELS_MAX {
                self.channels.remove(0);
            }
            self.channels.push((of, DatagramBuffer::new(self.bytes, self.datagram_count)));
        }
        let (_, buffer) = self.channels.last_mut().expect("found or added");
        if let Some(room) = buffer.insert(number, datagram.len(), |_| true) {
            room.copy_from_slice(datagram);
        }
    }

    pub(crate) fn datagram(&self, of: ChannelName, number: u64) -> Option<&[u8]> {
        let channel = self.channels.iter().find(|(name, _)| *name == of);
        channel?.1.datagram(number)
    }

    /// Records that `node` waits for a packet that this node also lacks.
    pub(crate) fn add_waiting_node(&mut self, of: ChannelName, number: u64, node: NodeId) {
        if self.waiting_nodes.len() >= PACKETS_MAX
            && !self.waiting_nodes.contains_key(&(of, number))
        {
            return;
        }
        let nodes = self.waiting_nodes.entry((of, number)).or_default();
        if nodes.len() < WAITING_MAX && !nodes.contains(&node) {
            nodes.push(node);
        }
    }

    pub(crate) fn take_waiting_nodes(&mut self, of: ChannelName, number: u64) -> Vec<NodeId> {
        self.waiting_nodes.remove(&(of, number)).unwrap_or_default()
    }

    /// Forgets which nodes wait for these packets.
    pub(crate) fn forget_waiting_nodes(&mut self, of: ChannelName, numbers: &Range<u64>) {
        let inside = self.waiting_nodes.range((of, numbers.start)..(of, numbers.end));
        let inside: Vec<_> = inside.map(|(key, _)| *key).collect();
        for key in inside {
            self.waiting_nodes.remove(&key);
        }
    }

    /// Drops all datagrams of a node.
    pub(crate) fn drop_owner(&mut self, owner: NodeId) {
        self.channels.retain(|(name, _)| name.owner != owner);
        self.waiting_nodes.retain(|(name, _), _| name.owner != owner);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(owner: u32, boot: u32) -> ChannelName {
        ChannelName { owner: NodeId(owner), boot, channel: 1 }
    }

    /// Two leaders are stored separately. A third one, or a new boot, replaces the least recently
    /// used.
    #[test]
    fn datagrams_of_the_last_two_channels_are_retained() {
        let limits = Limits { buffer_bytes: 10_000, ..Limits::for_mtu(1500) };
        let mut kept = RetainedDatagrams::new(&limits);
        for owner in [1, 2, 1, 3] {
            kept.store_datagram(of(owner, 1), 1, &[owner as u8; 50]);
        }
        assert_eq!(kept.datagram(of(1, 1), 1), Some(&[1; 50][..]));
        assert_eq!(kept.datagram(of(2, 1), 1), None);
        kept.store_datagram(of(1, 2), 1, &[9; 50]);
        assert_eq!(kept.datagram(of(1, 1), 1), None);
        assert!(kept.datagram(of(3, 1), 1).is_some());
        kept.drop_owner(NodeId(3));
        assert_eq!(kept.datagram(of(3, 1), 1), None);
    }

    #[test]
    fn waiting_nodes_are_bounded_and_taken_once() {
        let mut kept = RetainedDatagrams::new(&Limits::for_mtu(1500));
        for number in 0..2000 {
            for node in [2, 3, 2] {
                kept.add_waiting_node(of(1, 1), number, NodeId(node));
            }
        }
        assert_eq!(kept.waiting_nodes.len(), PACKETS_MAX);
        assert_eq!(kept.take_waiting_nodes(of(1, 1), 5), [NodeId(2), NodeId(3)]);
        assert!(kept.take_waiting_nodes(of(1, 1), 5).is_empty());
        kept.forget_waiting_nodes(of(1, 1), &(0..1000));
        assert_eq!(kept.waiting_nodes.len(), PACKETS_MAX - 1000);
        for node in 0..100 {
            kept.add_waiting_node(of(1, 1), 1, NodeId(node));
        }
        assert_eq!(kept.take_waiting_nodes(of(1, 1), 1).len(), WAITING_MAX);
    }
}
