//! Forwarding along a chain of nodes, for multicast groups without an address ([chain-1]).
//!
//! The sender sets up the chain, numbers it, and announces it to each of its nodes separately. A
//! node forwards whole datagrams, bit for bit, before it decodes them: each number once, and only
//! to its successor in the newest chain of that sender's boot. Datagrams lost by a broken chain are
//! requested like any other loss.

use std::mem;

use quorate_core::node_id::{Member, NodeId};

use crate::{
    body::{Body, CHAIN_MAX, Chain},
    endpoint::{Destination, Endpoint, Outgoing},
    header::Header,
};

/// Maximum number of datagrams waiting to be forwarded. Further ones are dropped.
const TO_FORWARD_MAX: usize = 8192;

/// This node's own chain, and the datagrams to forward along other nodes' chains.
#[derive(Default)]
pub(super) struct ChainForwarding {
    own_chain: Chain,
    /// Nodes of the previous chain, if there is no chain now.
    previous_nodes: Vec<NodeId>,
    to_forward: Vec<Outgoing>,
}

/// This node's place in another node's chain.
#[derive(Clone, Copy, Debug)]
pub(super) struct ChainPosition {
    number: u32,
    /// Next node in the chain, or `None` at its end.
    successor: Option<NodeId>,
}

impl Endpoint {
    /// Sets the chain for this node's multicast datagrams: the first [`CHAIN_MAX`] of the given
    /// nodes. An empty list ends the chain.
    pub fn set_chain(&mut self, nodes: &[NodeId]) {
        let nodes: Vec<NodeId> = nodes.iter().copied().take(CHAIN_MAX).collect();
        let limits = &self.limits;
        let link_bytes_s = match nodes.is_empty() {
            true => limits.link_bytes_s,
            false => limits.link_bytes_s / 100 * limits.chain_percent,
        };
        self.set_group_link_speed(link_bytes_s);
        let before = mem::take(&mut self.chaining.own_chain.nodes);
        let number = self.chaining.own_chain.chain_number + 1;
        self.chaining.own_chain = Chain { chain_number: number, nodes };
        self.announce_chain();
        if self.chaining.own_chain.nodes.is_empty() {
            self.chaining.previous_nodes = before;
            self.announce_chain();
        }
    }

    /// Announces the chain to its nodes again, because announcements may be lost. If the chain has
    /// ended, its former nodes are notified of that.
    pub fn announce_chain(&mut self) {
        let chain = &self.chaining.own_chain;
        let nodes = match chain.nodes.is_empty() {
            true => &self.chaining.previous_nodes,
            false => &chain.nodes,
        };
        let members: Vec<Member> = nodes.iter().filter_map(|node| self.gate.peer(*node)).collect();
        let body = Body::Chain(chain.clone());
        for member in members {
            self.control.queue_datagram(Some(member), &body);
        }
    }

    pub fn first_chain_node(&self) -> Option<NodeId> {
        self.chaining.own_chain.nodes.first().copied()
    }

    /// Takes the datagrams to forward, in the order of their arrival.
    pub fn take_to_forward(&mut self) -> Vec<Outgoing> {
        mem::take(&mut self.chaining.to_forward)
    }

    pub(super) fn on_chain(&mut self, from: NodeId, chain: &Chain) {
        let me = self.own_member.node;
        let Some(heard) = self.received_channels.get_mut(&from) else {
            return;
        };
        // [chain-1] An older chain never replaces a newer one.
        if heard.chain_position.is_some_and(|place| place.number >= chain.chain_number) {
            return;
        }
        let mut behind = chain.nodes.iter().copied().skip_while(|node| *node != me);
        let successor = behind.nth(1).filter(|node| *node != from);
        heard.chain_position = Some(ChainPosition { number: chain.chain_number, successor });
        // Forwarding by several nodes takes longer than direct delivery, so a late datagram is not
        // yet missing.
        let grace_us = match chain.nodes.is_empty() {
            true => self.limits.reorder_grace_us,
            false => self.limits.chain_grace_us,
        };
        for listened in heard.channels.values_mut().filter(|one| !one.is_unicast) {
            listened.inbound.set_grace_us(grace_us);
        }
    }

    /// Forwards a group datagram that arrived for the first time to the next node in the chain.
    pub(super) fn forward_datagram(&mut self, header: &Header, datagram: &[u8]) {
        let heard = self
            .received_channels
            .get(&header.sender)
            .filter(|heard| heard.boot == header.boot && !header.is_unicast);
        let successor = heard.and_then(|heard| heard.chain_position?.successor);
        let Some(node) = successor.filter(|node| self.gate.peer(*node).is_some()) else {
            return;
        };
        if self.chaining.to_forward.len() < TO_FORWARD_MAX {
            self.counters.forwarded += 1;
            self.chaining
                .to_forward
                .push(Outgoing { destination: Destination::Node(node), bytes: datagram.to_vec() });
        }
    }
}
