//! Datagrams retained from other nodes, for repairs, and the nodes that wait for datagrams which
//! this node also lacks.

use std::{collections::BTreeMap, ops::Range};

use quorate_core::node_id::NodeId;

use crate::{body::ChannelName, buffer::Buffer, limits::Limits};

/// Maximum number of channels with retained datagrams. Two suffice for the leader and its
/// predecessor.
const CHANNELS_MAX: usize = 2;
/// Maximum number of packets for which waiting nodes are recorded.
const PACKETS_MAX: usize = 1024;
/// Maximum number of nodes that wait for one packet.
const WAITING_MAX: usize = 8;

pub(crate) struct RetainedDatagrams {
    /// Channels in order of use, the most recently used last.
    channels: Vec<(ChannelName, Buffer)>,
    bytes: usize,
    numbers: usize,
    waiting: BTreeMap<(ChannelName, u64), Vec<NodeId>>,
}

impl RetainedDatagrams {
    pub(crate) fn new(limits: &Limits) -> Self {
        let numbers = limits.buffer_bytes / limits.datagram_bytes;
        Self {
            channels: Vec::new(),
            bytes: limits.buffer_bytes,
            numbers: numbers.clamp(1 << 10, 1 << 16),
            waiting: BTreeMap::new(),
        }
    }

    /// Stores a datagram, bit for bit, dropping the oldest ones if there is no space.
    pub(crate) fn keep(&mut self, of: ChannelName, number: u64, datagram: &[u8]) {
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
            self.channels.push((of, Buffer::new(self.bytes, self.numbers)));
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
    pub(crate) fn wait(&mut self, of: ChannelName, number: u64, node: NodeId) {
        if self.waiting.len() >= PACKETS_MAX && !self.waiting.contains_key(&(of, number)) {
            return;
        }
        let nodes = self.waiting.entry((of, number)).or_default();
        if nodes.len() < WAITING_MAX && !nodes.contains(&node) {
            nodes.push(node);
        }
    }

    pub(crate) fn take_waiting(&mut self, of: ChannelName, number: u64) -> Vec<NodeId> {
        self.waiting.remove(&(of, number)).unwrap_or_default()
    }

    /// Forgets which nodes wait for packets `numbers`.
    pub(crate) fn give_up(&mut self, of: ChannelName, numbers: &Range<u64>) {
        let inside = self.waiting.range((of, numbers.start)..(of, numbers.end));
        let inside: Vec<_> = inside.map(|(key, _)| *key).collect();
        for key in inside {
            self.waiting.remove(&key);
        }
    }

    /// Drops all datagrams from a node.
    pub(crate) fn forget(&mut self, owner: NodeId) {
        self.channels.retain(|(name, _)| name.owner != owner);
        self.waiting.retain(|(name, _), _| name.owner != owner);
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
    fn the_last_two_channels_are_kept() {
        let limits = Limits { buffer_bytes: 10_000, ..Limits::of_mtu(1500) };
        let mut kept = RetainedDatagrams::new(&limits);
        for owner in [1, 2, 1, 3] {
            kept.keep(of(owner, 1), 1, &[owner as u8; 50]);
        }
        assert_eq!(kept.datagram(of(1, 1), 1), Some(&[1; 50][..]));
        assert_eq!(kept.datagram(of(2, 1), 1), None);
        kept.keep(of(1, 2), 1, &[9; 50]);
        assert_eq!(kept.datagram(of(1, 1), 1), None);
        assert!(kept.datagram(of(3, 1), 1).is_some());
        kept.forget(NodeId(3));
        assert_eq!(kept.datagram(of(3, 1), 1), None);
    }

    #[test]
    fn who_waits_is_bounded_and_told_once() {
        let mut kept = RetainedDatagrams::new(&Limits::of_mtu(1500));
        for number in 0..2000 {
            for node in [2, 3, 2] {
                kept.wait(of(1, 1), number, NodeId(node));
            }
        }
        assert_eq!(kept.waiting.len(), PACKETS_MAX);
        assert_eq!(kept.take_waiting(of(1, 1), 5), [NodeId(2), NodeId(3)]);
        assert!(kept.take_waiting(of(1, 1), 5).is_empty());
        kept.give_up(of(1, 1), &(0..1000));
        assert_eq!(kept.waiting.len(), PACKETS_MAX - 1000);
        for node in 0..100 {
            kept.wait(of(1, 1), 1, NodeId(node));
        }
        assert_eq!(kept.take_waiting(of(1, 1), 1).len(), WAITING_MAX);
    }
}
