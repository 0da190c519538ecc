//! Peers that can be talked to, where they listen, and whether they have applied the same.

mod comparison;

use std::collections::BTreeMap;

use quorate_core::{
    configuration::Configuration,
    effect::Alarm,
    node_id::{Member, NodeId},
    time::Time,
};
use quorate_wire::{Frame, Lane};

use crate::{
    applying::digest::{Claim, Digest},
    group::NODES_MAX,
    outbox::Outbox,
    peers::comparison::Comparison,
    status::Addresses,
};

pub(crate) use self::comparison::Doubt;

/// Maximum of nodes whose addresses are kept: all that can be members, and as many former ones.
const ADDRESSES_MAX: usize = 2 * NODES_MAX;

/// Other nodes, as far as this one knows them.
pub(crate) struct Peers {
    connected: BTreeMap<NodeId, Member>,
    /// The process starts of those.
    addresses: BTreeMap<NodeId, Addresses>,
    comparison: Comparison,
}

impl Peers {
    /// Starts without connections; an earlier process had this doubt.
    pub(crate) fn new(
        now: Time,
        addresses: BTreeMap<NodeId, Addresses>,
        doubt: Option<Doubt>,
    ) -> Self {
        let comparison = Comparison::new(now, doubt);
        Self { connected: BTreeMap::new(), addresses, comparison }
    }

    /// Marks the member as connected.
    pub(crate) fn connect(&mut self, member: Member, addresses: Addresses) {
        self.connected.insert(member.node, member);
        // A client with the cluster's id may claim any node's: the memory for disconnected nodes is
        // bounded.
        if self.addresses.len() >= ADDRESSES_MAX && !self.addresses.contains_key(&member.node) {
            let connected = &self.connected;
            let gone = |node: &&NodeId| !connected.contains_key(*node);
            if let Some(gone) = self.addresses.keys().rev().find(gone).copied() {
                self.addresses.remove(&gone);
            }
        }
        self.addresses.insert(member.node, addresses);
    }

    /// Marks the node as unreachable; returns whether it was connected before.
    pub(crate) fn disconnect(&mut self, node: NodeId) -> bool {
        let known = self.connected.remove(&node).is_some();
        if known {
            self.comparison.forget(node);
        }
        known
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.connected.is_empty()
    }

    pub(crate) fn len(&self) -> usize {
        self.connected.len()
    }

    /// Returns whether some incarnation of this node is connected.
    pub(crate) fn has(&self, node: NodeId) -> bool {
        self.connected.contains_key(&node)
    }

    /// Returns the incarnation of this node that is connected.
    pub(crate) fn member(&self, node: NodeId) -> Option<Member> {
        self.connected.get(&node).copied()
    }

    /// Returns whether this member is connected.
    pub(crate) fn has_member(&self, member: Member) -> bool {
        self.connected.get(&member.node) == Some(&member)
    }

    /// Returns the connected nodes in order of ids.
    pub(crate) fn ids(&self) -> Vec<NodeId> {
        self.connected.keys().copied().collect()
    }

    /// Iterates over the connected members in order of ids.
    pub(crate) fn members(&self) -> impl Iterator<Item = Member> {
        self.connected.values().copied()
    }

    /// Returns the known addresses of a node.
    pub(crate) fn known(&self, node: NodeId) -> Option<&Addresses> {
        self.addresses.get(&node)
    }

    /// Returns the addresses of a node, empty where unknown.
    pub(crate) fn address(&self, node: NodeId) -> Addresses {
        self.addresses.get(&node).cloned().unwrap_or_default()
    }

    /// Members of the configuration that `own` can talk to, itself included, and all members.
    pub(crate) fn reachable(&self, own: Member, configuration: &Configuration) -> (usize, usize) {
        let members = configuration.members();
        let reachable = members.iter().filter(|voter| {
            voter.member == own || self.connected.get(&voter.member.node) == Some(&voter.member)
        });
        (reachable.count(), members.len())
    }

    /// Compares a peer's applied state. Returns an alarm if it is known to differ.
    pub(crate) fn heard(&mut self, from: NodeId, claim: Claim, own: &Digest) -> Option<Alarm> {
        self.comparison.heard(from, claim, own)
    }

    /// Returns why this node may be the one that is wrong ([differ-2]).
    pub(crate) fn doubt(&mut self, own: Member, members: &Configuration) -> Option<Doubt> {
        self.comparison.doubt(own, members)
    }

    /// Compares the peers' claims with the state applied here by now; returns an alarm if they
    /// differ. Periodically sends all peers this node's applied position.
    pub(crate) fn compare(
        &mut self,
        now: Time,
        own: &Digest,
        out: &mut Outbox<'_>,
    ) -> Option<Alarm> {
        let alarm = self.comparison.caught_up(own);
        if self.comparison.take_due(now)
            && let Some(Claim { to, digest }) = own.claim()
        {
            for peer in self.connected.keys() {
                out.send(*peer, Lane::Control, &Frame::Applied { to, digest });
            }
        }
        alarm
    }
}
