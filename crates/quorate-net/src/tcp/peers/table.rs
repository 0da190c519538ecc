//! The table of peers: who is known and where, which connection each lane has, and when to dial.

use std::net::SocketAddr;

use quorate_core::{node_id::NodeId, time::Time};
use quorate_dice::Dice;
use quorate_wire::Lane;

use super::link::LinkId;
use crate::{identity::PeerAddress, limits::Limits};

/// All peers.
#[derive(Debug)]
pub(super) struct Table {
    me: NodeId,
    known: Vec<NodeId>,
    peers: Vec<Peer>,
    retry_min_ms: u64,
    retry_max_ms: u64,
    dice: Dice,
}

/// Another node.
#[derive(Debug)]
struct Peer {
    node: NodeId,
    address: String,
    resolved: Vec<SocketAddr>,
    resolving: bool,
    lanes: [LaneState; 2],
    up: bool,
}

/// One lane towards it.
#[derive(Debug, Default)]
struct LaneState {
    /// The connection in use.
    open: Option<LinkId>,
    /// A dial in progress.
    attempt: Option<LinkId>,
    retry_at: Time,
    retry_ms: u64,
}

/// What a lane without a connection needs.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Need {
    /// A connection to this address.
    Dial(SocketAddr),
    /// The addresses of this name.
    LookUp(String),
}

/// What a connection that ended was to its lane.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Was {
    /// The one in use.
    Open,
    /// A dial in progress.
    Attempt,
    /// Another has taken its place.
    Replaced,
}

impl Table {
    pub(super) fn new(me: NodeId, addresses: &[PeerAddress], limits: &Limits, seed: u64) -> Self {
        let others = addresses.iter().filter(|peer| peer.node != me);
        let peers = others.map(|peer| Peer {
            node: peer.node,
            address: peer.address.clone(),
            resolved: Vec::new(),
            resolving: false,
            lanes: Default::default(),
            up: false,
        });
        Self {
            me,
            known: addresses.iter().map(|peer| peer.node).collect(),
            peers: peers.collect(),
            retry_min_ms: limits.dial_retry_min_ms,
            retry_max_ms: limits.dial_retry_max_ms,
            dice: Dice::new(seed),
        }
    }

    /// All nodes of the group that are known; this one may be among them.
    pub(super) fn known(&self) -> &[NodeId] {
        &self.known
    }

    /// The others, in a fixed order.
    pub(super) fn others(&self) -> impl Iterator<Item = NodeId> + use<> {
        let nodes: Vec<NodeId> = self.peers.iter().map(|peer| peer.node).collect();
        nodes.into_iter()
    }

    /// Where it listens; `None` if it is not known.
    pub(super) fn address(&self, node: NodeId) -> Option<&str> {
        self.peer(node).map(|peer| peer.address.as_str())
    }

    /// Whether it can be talked to.
    pub(super) fn is_up(&self, node: NodeId) -> bool {
        self.peer(node).is_some_and(|peer| peer.up)
    }

    /// It can be talked to, or cannot any more; whether it could before.
    pub(super) fn set_up(&mut self, node: NodeId, up: bool) -> bool {
        let peer = self.peer_mut(node);
        peer.is_some_and(|peer| std::mem::replace(&mut peer.up, up))
    }

    /// The connection that a lane uses.
    pub(super) fn open(&self, node: NodeId, lane: Lane) -> Option<LinkId> {
        self.peer(node)?.lanes[lane.index()].open
    }

    /// Those that any lane of this node uses.
    pub(super) fn open_lanes(&self, node: NodeId) -> impl Iterator<Item = (Lane, LinkId)> {
        let lanes = move |lane| Some((lane, self.open(node, lane)?));
        Lane::ALL.into_iter().filter_map(lanes)
    }

    /// What a lane needs now, if anything: the node with the higher id dials. A name is looked up once
    /// at a time, until [`Self::resolved`].
    pub(super) fn need(&mut self, node: NodeId, lane: Lane, now: Time) -> Option<Need> {
        let me = self.me;
        let peer = self.peer_mut(node)?;
        let state = &peer.lanes[lane.index()];
        let due = peer.node < me
            && !peer.resolving
            && state.open.is_none()
            && state.attempt.is_none()
            && state.retry_at <= now;
        if !due {
            return None;
        }
        let literal = peer.address.parse().ok();
        match literal.or_else(|| peer.resolved.pop()) {
            Some(address) => Some(Need::Dial(address)),
            None => {
                peer.resolving = true;
                Some(Need::LookUp(peer.address.clone()))
            }
        }
    }

    /// A look-up ended, with these addresses or with none. Whether the node is known.
    pub(super) fn resolved(&mut self, node: NodeId, addresses: Vec<SocketAddr>) -> bool {
        let Some(peer) = self.peer_mut(node) else {
            return false;
        };
        peer.resolving = false;
        if !addresses.is_empty() {
            peer.resolved = addresses;
        }
        true
    }

    /// A dial of this lane is in progress.
    pub(super) fn dialling(&mut self, node: NodeId, lane: Lane, link: LinkId) {
        if let Some(peer) = self.peer_mut(node) {
            peer.lanes[lane.index()].attempt = Some(link);
        }
    }

    /// This connection is the lane's from now on.
    pub(super) fn opened(&mut self, node: NodeId, lane: Lane, link: LinkId) {
        let Some(peer) = self.peer_mut(node) else {
            return;
        };
        let state = &mut peer.lanes[lane.index()];
        state.open = Some(link);
        state.retry_ms = 0;
        if state.attempt == Some(link) {
            state.attempt = None;
        }
    }

    /// A connection ended; the next dial waits. `None` if the node is not known.
    pub(super) fn closed(
        &mut self,
        node: NodeId,
        lane: Lane,
        link: LinkId,
        now: Time,
    ) -> Option<Was> {
        let state = &mut self.peer_mut(node)?.lanes[lane.index()];
        let was = if state.attempt == Some(link) {
            state.attempt = None;
            Was::Attempt
        } else if state.open == Some(link) {
            state.open = None;
            Was::Open
        } else {
            return Some(Was::Replaced);
        };
        self.back_off(node, lane, now);
        Some(was)
    }

    /// The next attempt on this lane waits: longer each time, and not in step with other nodes.
    pub(super) fn back_off(&mut self, node: NodeId, lane: Lane, now: Time) {
        let (min, max) = (self.retry_min_ms, self.retry_max_ms);
        let Some(peer) = self.peers.iter_mut().find(|peer| peer.node == node) else {
            return;
        };
        let state = &mut peer.lanes[lane.index()];
        let wait_ms = state.retry_ms.clamp(min, max);
        let jitter_us = self.dice.below((wait_ms * 1000).max(1));
        state.retry_at = now.plus_us(wait_ms * 500 + jitter_us);
        state.retry_ms = wait_ms.saturating_mul(2);
    }

    /// When a lane is to be dialled next.
    pub(super) fn next_dial(&self) -> Option<Time> {
        let dialled = self.peers.iter().filter(|peer| peer.node < self.me);
        let lanes = dialled
            .filter(|peer| !peer.resolving)
            .flat_map(|peer| &peer.lanes);
        let idle = lanes.filter(|lane| lane.open.is_none() && lane.attempt.is_none());
        idle.map(|lane| lane.retry_at).min()
    }

    fn peer(&self, node: NodeId) -> Option<&Peer> {
        self.peers.iter().find(|peer| peer.node == node)
    }

    fn peer_mut(&mut self, node: NodeId) -> Option<&mut Peer> {
        self.peers.iter_mut().find(|peer| peer.node == node)
    }
}

#[cfg(test)]
mod tests {
    use slotmap::SlotMap;

    use super::*;

    const NOW: Time = Time(1_000_000);

    fn table() -> Table {
        let addresses = [1, 2, 3].map(|node| PeerAddress {
            node: NodeId(node),
            address: match node {
                1 => "127.0.0.1:9".to_owned(),
                _ => "a.name:9".to_owned(),
            },
        });
        Table::new(NodeId(3), &addresses, &Limits::default(), 7)
    }

    #[test]
    fn the_higher_node_dials_and_waits_longer_after_each_failure() {
        let mut table = table();
        let node = NodeId(1);
        let address = "127.0.0.1:9".parse().unwrap();
        assert_eq!(table.need(NodeId(3), Lane::Control, NOW), None, "itself");
        assert_eq!(
            table.need(node, Lane::Control, NOW),
            Some(Need::Dial(address))
        );
        let (mut now, mut waits) = (NOW, Vec::new());
        for _ in 0..8 {
            table.back_off(node, Lane::Control, now);
            assert_eq!(table.need(node, Lane::Control, now), None);
            let at = table.peer(node).unwrap().lanes[0].retry_at;
            waits.push(at.since_us(now) / 1000);
            now = at;
            assert_eq!(
                table.need(node, Lane::Control, now),
                Some(Need::Dial(address))
            );
        }
        assert!((10..=30).contains(&waits[0]), "{waits:?}");
        assert!((250..=750).contains(&waits[7]), "{waits:?}");
    }

    #[test]
    fn a_name_is_looked_up_once_at_a_time_and_each_address_is_tried() {
        let mut table = table();
        let node = NodeId(2);
        let looked_up = Some(Need::LookUp("a.name:9".to_owned()));
        assert_eq!(table.need(node, Lane::Control, NOW), looked_up);
        assert_eq!(table.need(node, Lane::Bulk, NOW), None, "it is in progress");
        let addresses = ["127.0.0.1:1", "127.0.0.1:2"].map(|text| text.parse().unwrap());
        assert!(table.resolved(node, addresses.to_vec()));
        assert!(!table.resolved(NodeId(9), addresses.to_vec()));
        for address in addresses.into_iter().rev() {
            assert_eq!(
                table.need(node, Lane::Control, NOW),
                Some(Need::Dial(address))
            );
        }
        assert_eq!(table.need(node, Lane::Control, NOW), looked_up);
    }

    #[test]
    fn a_connection_whose_place_was_taken_ends_without_a_word() {
        let mut table = table();
        let mut links = SlotMap::<LinkId, ()>::with_key();
        let [first, second] = [(); 2].map(|()| links.insert(()));
        let (node, lane) = (NodeId(1), Lane::Control);
        table.dialling(node, lane, first);
        table.opened(node, lane, first);
        assert_eq!(table.open_lanes(node).collect::<Vec<_>>(), [(lane, first)]);
        table.opened(node, lane, second);
        assert_eq!(table.closed(node, lane, first, NOW), Some(Was::Replaced));
        assert_eq!(table.next_dial(), Some(Time(0)), "the other lane's");
        assert_eq!(table.closed(node, lane, second, NOW), Some(Was::Open));
        assert_eq!(table.need(node, lane, NOW), None, "not at once");
        assert_eq!(table.closed(NodeId(9), lane, first, NOW), None);
    }
}
