//! What may be in flight, and to whom it went: the leader's view of its followers.
//!
//! Liveness only. A follower takes proposals in order ([`crate::voted`]); if its answer shows that
//! one was lost, the leader goes back to it and sends everything from there again.

use alloc::vec::Vec;

use crate::{
    ballot::Ballot,
    configuration::Configuration,
    node_id::{Member, NodeId},
    quorum::{MemberSet, Phase},
    slot::Slot,
    time::Time,
};

/// Most peers that a node keeps track of; more are not talked to.
pub const PEERS_MAX: usize = 64;

/// Another node.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Peer {
    /// Who it is now.
    pub member: Member,
    /// Whether it can be talked to.
    pub connected: bool,
    /// When it last answered this leader.
    pub heard: Option<Time>,
    /// The highest promise that it told of.
    pub promised: Ballot,
    /// Proposals below went to it.
    pub sent_to: Slot,
    /// Its votes in the leader's ballot go to here, at the class that counts.
    pub voted_to: Slot,
    /// Slots below are decided, and held there.
    pub decided_to: Slot,
}

/// All other nodes, in order of their ids.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Peers {
    list: Vec<Peer>,
    /// They were told that slots below are decided.
    announced_to: Slot,
}

impl Peers {
    /// Nobody is known; nobody needs to be told of decisions below `announced_to`.
    pub fn new(announced_to: Slot) -> Self {
        Self {
            list: Vec::new(),
            announced_to,
        }
    }

    /// Slots below are decided, as they were told.
    pub fn announced_to(&self) -> Slot {
        self.announced_to
    }

    /// They are told now that slots below are decided.
    pub fn announced(&mut self, decided_to: Slot) {
        self.announced_to = decided_to;
    }

    /// All of them.
    pub fn iter(&self) -> impl Iterator<Item = &Peer> {
        self.list.iter()
    }

    /// All of them.
    pub fn iter_mut(&mut self) -> impl Iterator<Item = &mut Peer> {
        self.list.iter_mut()
    }

    /// Those that can be talked to.
    pub fn connected(&self) -> impl Iterator<Item = NodeId> + '_ {
        self.list
            .iter()
            .filter(|peer| peer.connected)
            .map(|peer| peer.member.node)
    }

    /// One of them.
    pub fn find(&mut self, node: NodeId) -> Option<&mut Peer> {
        self.list.iter_mut().find(|peer| peer.member.node == node)
    }

    /// One of them.
    pub fn peer(&self, node: NodeId) -> Option<&Peer> {
        self.list.iter().find(|peer| peer.member.node == node)
    }

    /// A peer can be talked to; what went to it before may be lost.
    pub fn connect(&mut self, member: Member) -> Option<&mut Peer> {
        let at = self
            .list
            .partition_point(|peer| peer.member.node < member.node);
        let known = self
            .list
            .get(at)
            .is_some_and(|peer| peer.member.node == member.node);
        if !known {
            if self.list.len() >= PEERS_MAX {
                return None;
            }
            let peer = Peer {
                member,
                connected: true,
                heard: None,
                promised: Ballot::ZERO,
                sent_to: Slot(0),
                voted_to: Slot(0),
                decided_to: Slot(0),
            };
            self.list.insert(at, peer);
        }
        let peer = &mut self.list[at];
        peer.member = member;
        peer.connected = true;
        Some(peer)
    }

    /// It cannot be talked to any more.
    pub fn disconnect(&mut self, node: NodeId) {
        if let Some(peer) = self.find(node) {
            peer.connected = false;
        }
    }

    /// A new ballot of this node: nothing of it was sent or voted for.
    pub fn restart(&mut self, now: Time, from: Slot) {
        for peer in &mut self.list {
            // Granted a time-out's worth of life, so that a new leader is not its own victim.
            peer.heard = Some(now);
            peer.promised = Ballot::ZERO;
            peer.sent_to = from;
            peer.voted_to = Slot(0);
        }
    }

    /// The members for which `holds` is true, and this node itself.
    pub fn set(
        &self,
        configuration: &Configuration,
        own: Member,
        holds: impl Fn(&Peer) -> bool,
    ) -> MemberSet {
        let peers = self
            .list
            .iter()
            .filter(|peer| holds(peer))
            .map(|peer| peer.member);
        peers
            .chain([own])
            .filter_map(|member| configuration.position(member))
            .fold(MemberSet::default(), MemberSet::with)
    }

    /// [live-2] Whether a phase-2 quorum answered within the last `within_us`.
    pub fn quorum_heard(
        &self,
        configuration: &Configuration,
        own: Member,
        now: Time,
        within_us: u64,
    ) -> bool {
        let lately = |peer: &Peer| peer.heard.is_some_and(|at| now.since_us(at) <= within_us);
        configuration.is_quorum(Phase::Two, self.set(configuration, own, lately))
    }
}
