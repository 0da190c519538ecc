//! The table of peers: their addresses, the connection of each lane, and the times to dial.

use std::{collections::BTreeSet, net::SocketAddr};

use quorate_core::dice::Dice;
use quorate_core::{node_id::NodeId, time::Time};
use quorate_replica::group::{NODES_MAX, asking::PeerTable};
use quorate_wire::Lane;

use crate::{identity::PeerAddress, limits::Limits, sources::LinkId};

/// Maximum number of nodes other than this one.
const PEERS_MAX: usize = NODES_MAX - 1;

/// All peers with their connections, whether connected or not.
#[derive(Debug)]
pub(super) struct Table {
    own_node: NodeId,
    peers: Vec<Peer>,
    removed: BTreeSet<NodeId>,
    retry_min_ms: u64,
    retry_max_ms: u64,
    reminder_interval_ms: u64,
    removed_grace_ms: u64,
    dice: Dice,
}

/// A node other than this one.
#[derive(Debug)]
struct Peer {
    node: NodeId,
    membership_status: MembershipStatus,
    /// Peer address of the node; empty if unknown.
    address: String,
    resolved: Vec<SocketAddr>,
    is_resolving: bool,
    lanes: [LaneState; 2],
    is_connected: bool,
}

/// Status of a peer in the group.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum MembershipStatus {
    /// The group's table lists the peer.
    Known,
    /// The peer connected with the cluster's id but is not listed ([member-3]). It stays in the
    /// table until it disconnects.
    Guest,
    /// The peer was removed, and may stay connected until this time to learn the latest decisions.
    Parting(Time),
}

/// State of one lane to a peer.
#[derive(Debug, Default)]
struct LaneState {
    /// The connection in use, if any.
    open: Option<LinkId>,
    /// The dial in progress, if any.
    attempt: Option<LinkId>,
    retry_at: Time,
    retry_ms: u64,
}

/// Next step for a lane that has no connection.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum LaneStep {
    Dial(SocketAddr),
    /// Look up the addresses of this host name.
    LookUp(String),
}

/// Role that a closed connection had.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum FormerRole {
    /// The connection was in use.
    Open,
    /// The connection was a dial in progress.
    Attempt,
    /// The connection had been replaced by another one.
    Replaced,
}

impl Table {
    pub(super) fn new(me: NodeId, addresses: &[PeerAddress], limits: &Limits, seed: u64) -> Self {
        let mut table = Self {
            own_node: me,
            peers: Vec::new(),
            removed: BTreeSet::new(),
            retry_min_ms: limits.dial_retry_min_ms,
            retry_max_ms: limits.dial_retry_max_ms,
            reminder_interval_ms: limits.reminder_interval_ms,
            removed_grace_ms: limits.removed_grace_ms,
            dice: Dice::new(seed),
        };
        for peer in addresses {
            table.add_node(peer.node, &peer.address, Time(0));
        }
        table
    }

    /// Adopts the group's table. A connection in use is kept until it breaks, even if the peer's
    /// address has changed. Returns the dials in progress whose target has changed.
    pub(super) fn adopt_table(&mut self, told: &PeerTable, now: Time) -> Vec<LinkId> {
        self.removed = told.removed_nodes.iter().copied().collect();
        let part_at = now.plus_ms(self.removed_grace_ms);
        let mut obsolete = Vec::new();
        for peer in &mut self.peers {
            let known = told.peers.iter().find(|(node, _)| *node == peer.node);
            // The group's table may lack its address.
            let stays = |address: &String| address.is_empty() || *address == peer.address;
            let moved = known.is_none_or(|(_, address)| !stays(address));
            match (known, peer.membership_status) {
                (Some((_, address)), _) => {
                    peer.membership_status = MembershipStatus::Known;
                    if moved {
                        peer.change_address(address, now);
                    }
                }
                (None, MembershipStatus::Parting(_)) => {}
                (None, _) if self.removed.contains(&peer.node) => {
                    peer.membership_status = MembershipStatus::Parting(part_at);
                }
                (None, _) => peer.membership_status = MembershipStatus::Guest,
            }
            if moved {
                obsolete.extend(peer.lanes.iter().filter_map(|lane| lane.attempt));
            }
        }
        for (node, address) in &told.peers {
            self.add_node(*node, address, now);
        }
        self.peers
            .retain(|peer| peer.membership_status == MembershipStatus::Known || peer.is_in_use());
        obsolete
    }

    pub(super) fn connected_addresses(&self) -> impl Iterator<Item = &str> {
        let up = self.peers.iter().filter(|peer| peer.is_connected);
        up.map(|peer| peer.address.as_str())
    }

    fn add_node(&mut self, node: NodeId, address: &str, now: Time) {
        if node == self.own_node || self.has_node(node) {
            return;
        }
        let mut peer = Peer::new(node, MembershipStatus::Known);
        address.clone_into(&mut peer.address);
        if node > self.own_node {
            peer.lanes[Lane::Control.index()].retry_at = now.plus_ms(self.reminder_interval_ms);
        }
        self.peers.push(peer);
    }

    pub(super) fn has_node(&self, node: NodeId) -> bool {
        self.peer(node).is_some()
    }

    pub(super) fn is_full(&self) -> bool {
        self.peers.len() >= PEERS_MAX
    }

    /// Returns whether the table has more than the maximum number of peers.
    pub(super) fn is_overfull(&self) -> bool {
        self.peers.len() > PEERS_MAX
    }

    /// Adds a node as a guest if it is not in the table.
    pub(super) fn add_guest(&mut self, node: NodeId) {
        if !self.has_node(node) {
            self.peers.push(Peer::new(node, MembershipStatus::Guest));
        }
    }

    /// Returns the peers that the group's table does not list, oldest first.
    pub(super) fn guests(&self) -> impl Iterator<Item = NodeId> {
        let guests = self.peers.iter();
        let guests = guests.filter(|peer| peer.membership_status != MembershipStatus::Known);
        guests.map(|peer| peer.node)
    }

    /// Removes a peer that the group's table does not list and that has no connection in use.
    pub(super) fn forget_guest(&mut self, node: NodeId) {
        let gone = |peer: &Peer| {
            peer.node == node
                && peer.membership_status != MembershipStatus::Known
                && !peer.is_in_use()
        };
        self.peers.retain(|peer| !gone(peer));
    }

    /// Returns whether the node has been permanently removed from the group ([member-1]).
    pub(super) fn is_removed(&self, node: NodeId) -> bool {
        self.removed.contains(&node)
    }

    /// Returns the removed nodes whose grace period is over.
    pub(super) fn overdue_removed(&self, now: Time) -> Vec<NodeId> {
        let due = self.peers.iter();
        let due = due.filter(
            |peer| matches!(peer.membership_status, MembershipStatus::Parting(at) if at <= now),
        );
        due.map(|peer| peer.node).collect()
    }

    /// Returns the time at which the next removed node's grace period ends.
    pub(super) fn next_removal_at(&self) -> Option<Time> {
        let partings = self.peers.iter().filter_map(|peer| match peer.membership_status {
            MembershipStatus::Parting(at) => Some(at),
            MembershipStatus::Known | MembershipStatus::Guest => None,
        });
        partings.min()
    }

    pub(super) fn peer_nodes(&self) -> impl Iterator<Item = NodeId> + use<> {
        let nodes: Vec<NodeId> = self.peers.iter().map(|peer| peer.node).collect();
        nodes.into_iter()
    }

    /// Returns the node's address; `None` if the address is unknown.
    pub(super) fn address(&self, node: NodeId) -> Option<&str> {
        self.peer(node).map(|peer| peer.address.as_str())
    }

    /// Returns the node's address, if the group's table lists the node.
    pub(super) fn listed_address(&self, node: NodeId) -> Option<&str> {
        let peer = self.peer(node);
        let peer = peer.filter(|peer| peer.membership_status == MembershipStatus::Known);
        peer.map(|peer| peer.address.as_str())
    }

    pub(super) fn is_connected(&self, node: NodeId) -> bool {
        self.peer(node).is_some_and(|peer| peer.is_connected)
    }

    pub(super) fn connected_nodes(&self) -> impl Iterator<Item = NodeId> {
        let up = self.peers.iter().filter(|peer| peer.is_connected);
        up.map(|peer| peer.node)
    }

    /// Marks the node as connected or disconnected. Returns whether it was connected.
    pub(super) fn set_connected(&mut self, node: NodeId, up: bool) -> bool {
        let peer = self.peer_mut(node);
        peer.is_some_and(|peer| std::mem::replace(&mut peer.is_connected, up))
    }

    pub(super) fn open_link(&self, node: NodeId, lane: Lane) -> Option<LinkId> {
        self.peer(node)?.lanes[lane.index()].open
    }

    /// Returns the connections in use with this node, each with its lane.
    pub(super) fn open_lanes(&self, node: NodeId) -> impl Iterator<Item = (Lane, LinkId)> {
        let lanes = move |lane| Some((lane, self.open_link(node, lane)?));
        Lane::ALL.into_iter().filter_map(lanes)
    }

    /// Returns the next step of a lane, if one is due. The node with the higher id dials. The other
    /// one knocks from time to time: it is always refused, but learns whether it was removed. Only
    /// one name look-up is in progress at a time, until [`Self::record_resolved`].
    pub(super) fn next_step(&mut self, node: NodeId, lane: Lane, now: Time) -> Option<LaneStep> {
        let me = self.own_node;
        let peer = self.peer_mut(node)?;
        let state = &peer.lanes[lane.index()];
        let due = peer.dials_peer(me, lane)
            && !peer.is_resolving
            && state.open.is_none()
            && state.attempt.is_none()
            && state.retry_at <= now;
        if !due {
            return None;
        }
        let literal = peer.address.parse().ok();
        match literal.or_else(|| peer.resolved.pop()) {
            Some(address) => Some(LaneStep::Dial(address)),
            None => {
                peer.is_resolving = true;
                Some(LaneStep::LookUp(peer.address.clone()))
            }
        }
    }

    /// Handles the result of a look-up of `name`. Returns whether a known node still has that name.
    pub(super) fn record_resolved(
        &mut self,
        node: NodeId,
        name: &str,
        addresses: Vec<SocketAddr>,
    ) -> bool {
        let Some(peer) = self.peer_mut(node) else {
            return false;
        };
        peer.is_resolving = false;
        if peer.address != name {
            return false;
        }
        if !addresses.is_empty() {
            peer.resolved = addresses;
        }
        true
    }

    pub(super) fn record_dial(&mut self, node: NodeId, lane: Lane, link: LinkId) {
        if let Some(peer) = self.peer_mut(node) {
            peer.lanes[lane.index()].attempt = Some(link);
        }
    }

    pub(super) fn record_opened(&mut self, node: NodeId, lane: Lane, link: LinkId) {
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

    /// Records a closed connection and delays the next dial. Returns `None` for an unknown node.
    pub(super) fn record_closed(
        &mut self,
        node: NodeId,
        lane: Lane,
        link: LinkId,
        now: Time,
    ) -> Option<FormerRole> {
        let state = &mut self.peer_mut(node)?.lanes[lane.index()];
        let was = if state.attempt == Some(link) {
            state.attempt = None;
            FormerRole::Attempt
        } else if state.open == Some(link) {
            state.open = None;
            FormerRole::Open
        } else {
            return Some(FormerRole::Replaced);
        };
        self.back_off(node, lane, now);
        Some(was)
    }

    /// Delays the next dial on this lane, with jitter. The delay doubles with each failure, up to a
    /// maximum; for nodes with a higher id it is the fixed reminder interval.
    pub(super) fn back_off(&mut self, node: NodeId, lane: Lane, now: Time) {
        let (min, max) = if node > self.own_node {
            (self.reminder_interval_ms, self.reminder_interval_ms)
        } else {
            (self.retry_min_ms, self.retry_max_ms)
        };
        let Some(peer) = self.peers.iter_mut().find(|peer| peer.node == node) else {
            return;
        };
        let state = &mut peer.lanes[lane.index()];
        let wait_ms = state.retry_ms.clamp(min, max);
        let jitter_us = self.dice.below((wait_ms * 1000).max(1));
        state.retry_at = now.plus_us(wait_ms * 500 + jitter_us);
        state.retry_ms = wait_ms.saturating_mul(2);
    }

    pub(super) fn next_dial_at(&self) -> Option<Time> {
        let peers = self.peers.iter().filter(|peer| !peer.is_resolving);
        let lanes = peers.flat_map(|peer| {
            let dialled = |lane: &Lane| peer.dials_peer(self.own_node, *lane);
            let lanes = Lane::ALL.into_iter().filter(dialled);
            lanes.map(|lane| &peer.lanes[lane.index()])
        });
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

impl Peer {
    fn new(node: NodeId, standing: MembershipStatus) -> Self {
        Self {
            node,
            membership_status: standing,
            address: String::new(),
            resolved: Vec::new(),
            is_resolving: false,
            lanes: Default::default(),
            is_connected: false,
        }
    }

    /// Sets a new address and makes the next dial due at once.
    fn change_address(&mut self, address: &str, now: Time) {
        address.clone_into(&mut self.address);
        self.resolved.clear();
        for lane in &mut self.lanes {
            lane.retry_at = lane.retry_at.min(now);
            lane.retry_ms = 0;
        }
    }

    fn dials_peer(&self, me: NodeId, lane: Lane) -> bool {
        self.membership_status == MembershipStatus::Known
            && !self.address.is_empty()
            && (self.node < me || lane == Lane::Control)
    }

    fn is_in_use(&self) -> bool {
        let mut lanes = self.lanes.iter();
        lanes.any(|lane| lane.open.is_some() || lane.attempt.is_some())
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
    fn higher_node_dials_and_backs_off_after_failures() {
        let mut table = table();
        let node = NodeId(1);
        let address = "127.0.0.1:9".parse().unwrap();
        assert_eq!(table.next_step(NodeId(3), Lane::Control, NOW), None, "itself");
        assert_eq!(table.next_step(node, Lane::Control, NOW), Some(LaneStep::Dial(address)));
        let (mut now, mut waits) = (NOW, Vec::new());
        for _ in 0..8 {
            table.back_off(node, Lane::Control, now);
            assert_eq!(table.next_step(node, Lane::Control, now), None);
            let at = table.peer(node).unwrap().lanes[0].retry_at;
            waits.push(at.since_us(now) / 1000);
            now = at;
            assert_eq!(table.next_step(node, Lane::Control, now), Some(LaneStep::Dial(address)));
        }
        assert!((10..=30).contains(&waits[0]), "{waits:?}");
        assert!((250..=750).contains(&waits[7]), "{waits:?}");
    }

    #[test]
    fn one_look_up_at_a_time_and_each_address_is_tried() {
        let mut table = table();
        let node = NodeId(2);
        let looked_up = Some(LaneStep::LookUp("a.name:9".to_owned()));
        assert_eq!(table.next_step(node, Lane::Control, NOW), looked_up);
        assert_eq!(table.next_step(node, Lane::Bulk, NOW), None, "it is in progress");
        let addresses = ["127.0.0.1:1", "127.0.0.1:2"].map(|text| text.parse().unwrap());
        assert!(table.record_resolved(node, "a.name:9", addresses.to_vec()));
        assert!(!table.record_resolved(NodeId(9), "a.name:9", addresses.to_vec()));
        for address in addresses.into_iter().rev() {
            assert_eq!(table.next_step(node, Lane::Control, NOW), Some(LaneStep::Dial(address)));
        }
        assert_eq!(table.next_step(node, Lane::Control, NOW), looked_up);
    }

    #[test]
    fn replaced_connection_is_closed_without_an_event() {
        let mut table = table();
        let mut links = SlotMap::<LinkId, ()>::with_key();
        let [first, second] = [(); 2].map(|()| links.insert(()));
        let (node, lane) = (NodeId(1), Lane::Control);
        table.record_dial(node, lane, first);
        table.record_opened(node, lane, first);
        assert_eq!(table.open_lanes(node).collect::<Vec<_>>(), [(lane, first)]);
        table.record_opened(node, lane, second);
        assert_eq!(table.record_closed(node, lane, first, NOW), Some(FormerRole::Replaced));
        assert_eq!(table.next_dial_at(), Some(Time(0)), "the other lane's");
        assert_eq!(table.record_closed(node, lane, second, NOW), Some(FormerRole::Open));
        assert_eq!(table.next_step(node, lane, NOW), None, "not at once");
        assert_eq!(table.record_closed(NodeId(9), lane, first, NOW), None);
    }

    fn told(peers: &[(u32, &str)], removed: &[u32]) -> PeerTable {
        PeerTable {
            peers: peers
                .iter()
                .map(|(node, address)| (NodeId(*node), (*address).to_owned()))
                .collect(),
            removed_nodes: removed.iter().copied().map(NodeId).collect(),
        }
    }

    fn links<const N: usize>() -> [LinkId; N] {
        let mut links = SlotMap::<LinkId, ()>::with_key();
        [(); N].map(|()| links.insert(()))
    }

    #[test]
    fn moved_node_is_dialled_at_its_new_address() {
        let mut table = table();
        let (node, lane) = (NodeId(1), Lane::Control);
        let [attempt, used] = links();
        table.record_opened(node, Lane::Bulk, used);
        table.record_dial(node, lane, attempt);
        let here = [(1, "127.0.0.1:9"), (2, ""), (3, "")];
        assert_eq!(table.adopt_table(&told(&here, &[]), NOW), [], "nothing is new");
        let elsewhere = [(1, "127.0.0.1:10"), (2, "another:9"), (3, "")];
        assert_eq!(table.adopt_table(&told(&elsewhere, &[]), NOW), [attempt]);
        table.record_closed(node, lane, attempt, NOW);
        let soon = NOW.plus_ms(30);
        let address = "127.0.0.1:10".parse().unwrap();
        assert_eq!(table.next_step(node, lane, soon), Some(LaneStep::Dial(address)));
        assert_eq!(table.open_link(node, Lane::Bulk), Some(used), "it stays");
    }

    /// The result of a look-up that began before the node moved is ignored.
    #[test]
    fn look_up_result_of_a_former_name_is_ignored() {
        let mut table = table();
        let (node, lane) = (NodeId(2), Lane::Control);
        assert!(matches!(table.next_step(node, lane, NOW), Some(LaneStep::LookUp(_))));
        let elsewhere = [(1, "127.0.0.1:9"), (2, "another:9"), (3, "")];
        table.adopt_table(&told(&elsewhere, &[]), NOW);
        assert_eq!(table.next_step(node, lane, NOW), None, "one look-up at a time");
        let addresses = vec!["127.0.0.1:1".parse().unwrap()];
        assert!(!table.record_resolved(node, "a.name:9", addresses));
        let looked_up = Some(LaneStep::LookUp("another:9".to_owned()));
        assert_eq!(table.next_step(node, lane, NOW), looked_up);
    }

    #[test]
    fn peers_are_added_and_removed_with_the_member_table() {
        let mut table = table();
        let [used] = links();
        table.record_opened(NodeId(1), Lane::Control, used);
        let next = [(2, "a.name:9"), (3, ""), (4, "127.0.0.1:4")];
        assert_eq!(table.adopt_table(&told(&next, &[1]), NOW), []);
        assert!(table.is_removed(NodeId(1)));
        assert_eq!(table.overdue_removed(NOW), []);
        let at = table.next_removal_at().unwrap();
        assert_eq!(at, NOW.plus_ms(Limits::default().removed_grace_ms));
        assert_eq!(table.overdue_removed(at), [NodeId(1)]);
        // A repeated table does not extend its time.
        table.adopt_table(&told(&next, &[1]), NOW.plus_ms(1));
        assert_eq!(table.next_removal_at(), Some(at));
        table.record_closed(NodeId(1), Lane::Control, used, NOW);
        assert_eq!(table.next_step(NodeId(1), Lane::Control, at), None, "not dialled");
        table.forget_guest(NodeId(1));
        assert!(!table.has_node(NodeId(1)));
        // A removed node without a connection is dropped at once; this node is no peer.
        table.adopt_table(&told(&[(3, ""), (4, "127.0.0.1:4")], &[1, 2]), NOW);
        assert_eq!(table.peer_nodes().collect::<Vec<_>>(), [NodeId(4)]);
        assert_eq!(table.next_removal_at(), None);
    }

    /// If the other node has not dialled for a long time, this node knocks (dials once, to be
    /// refused) to learn why.
    #[test]
    fn node_with_a_higher_id_is_only_knocked_at() {
        let mut table = table();
        let node = NodeId(4);
        table.adopt_table(&told(&[(4, "127.0.0.1:4")], &[]), NOW);
        for lane in Lane::ALL {
            assert_eq!(table.next_step(node, lane, NOW), None);
        }
        let knock = NOW.plus_ms(Limits::default().reminder_interval_ms);
        assert_eq!(table.next_dial_at(), Some(knock));
        assert_eq!(table.next_step(node, Lane::Bulk, knock), None);
        let address = "127.0.0.1:4".parse().unwrap();
        let need = table.next_step(node, Lane::Control, knock);
        assert_eq!(need, Some(LaneStep::Dial(address)));
        table.back_off(node, Lane::Control, knock);
        let next = table.next_dial_at().unwrap();
        assert!(next.since_us(knock) >= 2_500_000, "not at once");
    }
}
