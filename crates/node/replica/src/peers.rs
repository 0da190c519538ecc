//! Connected peers, their addresses, and comparisons of their applied state with this node's.

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
    applying::digest::{Digest, DigestClaim},
    group::NODES_MAX,
    outbox::Outbox,
    peers::comparison::Comparison,
    ports::status::Addresses,
};

pub(crate) use self::comparison::StateDoubt;

/// Maximum number of nodes with stored addresses: all possible members, and as many former ones.
const ADDRESSED_NODES_MAX: usize = 2 * NODES_MAX;

/// The other nodes, as far as this node knows them.
pub(crate) struct Peers {
    connected: BTreeMap<NodeId, Member>,
    addresses: BTreeMap<NodeId, Addresses>,
    comparison: Comparison,
}

impl Peers {
    /// Creates the state without connections. `doubt` is what an earlier process recorded.
    pub(crate) fn new(
        now: Time,
        addresses: BTreeMap<NodeId, Addresses>,
        doubt: Option<StateDoubt>,
    ) -> Self {
        let comparison = Comparison::new(now, doubt);
        Self { connected: BTreeMap::new(), addresses, comparison }
    }

    pub(crate) fn connect(&mut self, member: Member, addresses: Addresses) {
        self.connected.insert(member.node, member);
        // Bounded, because a client that knows the cluster's id may claim any node's id.
        if self.addresses.len() >= ADDRESSED_NODES_MAX && !self.addresses.contains_key(&member.node)
        {
            let connected = &self.connected;
            let gone = |node: &&NodeId| !connected.contains_key(*node);
            if let Some(gone) = self.addresses.keys().rev().find(gone).copied() {
                self.addresses.remove(&gone);
            }
        }
        self.addresses.insert(member.node, addresses);
    }

    /// Marks the node as disconnected. Returns whether it was connected before.
    pub(crate) fn disconnect(&mut self, node: NodeId) -> bool {
        let known = self.connected.remove(&node).is_some();
        if known {
            self.comparison.drop_claims(node);
        }
        known
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.connected.is_empty()
    }

    pub(crate) fn len(&self) -> usize {
        self.connected.len()
    }

    /// Returns whether any incarnation of this node is connected.
    pub(crate) fn is_connected(&self, node: NodeId) -> bool {
        self.connected.contains_key(&node)
    }

    pub(crate) fn member(&self, node: NodeId) -> Option<Member> {
        self.connected.get(&node).copied()
    }

    pub(crate) fn has_member(&self, member: Member) -> bool {
        self.connected.get(&member.node) == Some(&member)
    }

    pub(crate) fn connected_nodes(&self) -> Vec<NodeId> {
        self.connected.keys().copied().collect()
    }

    pub(crate) fn members(&self) -> impl Iterator<Item = Member> {
        self.connected.values().copied()
    }

    pub(crate) fn addresses_of(&self, node: NodeId) -> Option<&Addresses> {
        self.addresses.get(&node)
    }

    pub(crate) fn address(&self, node: NodeId) -> Addresses {
        self.addresses.get(&node).cloned().unwrap_or_default()
    }

    /// Returns the number of the configuration's members to which `own` is connected, including
    /// itself, and the number of all members.
    pub(crate) fn count_reachable(
        &self,
        own: Member,
        configuration: &Configuration,
    ) -> (usize, usize) {
        let members = configuration.members();
        let reachable = members.iter().filter(|voter| {
            voter.member == own || self.connected.get(&voter.member.node) == Some(&voter.member)
        });
        (reachable.count(), members.len())
    }

    /// Compares a peer's applied state with this node's. Returns an alarm if the states differ.
    pub(crate) fn compare_claim(
        &mut self,
        from: NodeId,
        claim: DigestClaim,
        own: &Digest,
    ) -> Option<Alarm> {
        self.comparison.compare_claim(from, claim, own)
    }

    /// Returns why this node may be the one with the wrong state ([differ-2]), if so.
    pub(crate) fn doubt_own_state(
        &mut self,
        own: Member,
        members: &Configuration,
    ) -> Option<StateDoubt> {
        self.comparison.doubt_own_state(own, members)
    }

    /// Compares claims of peers that were ahead with the state applied since, and returns an alarm
    /// if they differ. Periodically sends this node's claim to all peers.
    pub(crate) fn exchange_claims(
        &mut self,
        now: Time,
        own: &Digest,
        out: &mut Outbox<'_>,
    ) -> Option<Alarm> {
        let alarm = self.comparison.compare_pending_claims(own);
        if self.comparison.take_due_claim(now)
            && let Some(DigestClaim { to, digest }) = own.latest_claim()
        {
            for peer in self.connected.keys() {
                out.send(*peer, Lane::Control, &Frame::Applied { to, state_digest: digest });
            }
        }
        alarm
    }
}
