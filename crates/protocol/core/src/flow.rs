//! Flow control of proposals: the number in flight, and the send position of each follower.
//!
//! Liveness only. A follower accepts proposals in order ([`crate::voted`]). If its reply shows that
//! a proposal was lost, the leader resends everything from that slot onwards.

use alloc::vec::Vec;

use crate::{
    ballot::Ballot,
    configuration::Configuration,
    message::HeldSlots,
    node_id::{Member, NodeId, PEERS_MAX},
    quorum::{MemberSet, Phase},
    reconfigure::Eras,
    slot::Slot,
    time::Time,
};

/// State of another node, as this node knows it.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Peer {
    /// Node id and current incarnation.
    pub member: Member,
    /// This node is connected to the peer.
    pub connected: bool,
    /// Time of the peer's last reply to this leader.
    pub last_reply_at: Option<Time>,
    /// Highest promise that the peer reported.
    pub promised: Ballot,
    /// End of the proposals sent to the peer, exclusive.
    pub sent_to: Slot,
    /// End of the peer's votes in the leader's ballot that have reached the group's class.
    pub voted_to: Slot,
    /// The peer has decided and stored all slots below this one.
    pub decided_to: Slot,
    /// The peer has decided and stored all slots below this one at the group's class, as its
    /// current incarnation reported in this ballot; slot 0 if it has reported nothing.
    pub held_to: Slot,
    /// The peer would still know after a crash that all slots below this one are decided.
    pub kept_to: Slot,
    /// The peer is caught up: its last heartbeat reply in this ballot showed that it holds
    /// everything decided before the previous heartbeat.
    pub is_caught_up: bool,
    /// The peer last reported that it should not lead.
    pub is_unfit: bool,
    /// Recent lateness of the peer's turns, as last reported, in microseconds.
    pub late_us: u32,
}

/// All other nodes, sorted by id.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Peers {
    list: Vec<Peer>,
    /// Followers have been notified that all slots below this one are decided.
    announced_to: Slot,
    /// Slots that all other members, and a quorum of them, are known to hold. Never decreases.
    held_slots: HeldSlots,
}

impl Peers {
    /// Creates an empty list. Decisions below `announced_to` need no notification.
    pub fn new(announced_to: Slot) -> Self {
        Self { list: Vec::new(), announced_to, held_slots: HeldSlots::default() }
    }

    /// Returns the slot below which followers have been notified of decisions.
    pub fn announced_to(&self) -> Slot {
        self.announced_to
    }

    /// Records that followers were notified of decisions below `decided_to`.
    pub fn record_announced(&mut self, decided_to: Slot) {
        self.announced_to = decided_to;
    }

    /// Returns the slots that all other members, and a quorum of them, are known to hold.
    pub fn known_held_slots(&self) -> HeldSlots {
        self.held_slots
    }

    /// Records the slots that all other members, and a quorum of them, are now known to hold.
    pub fn note_held(&mut self, held: HeldSlots) {
        self.held_slots.all = self.held_slots.all.max(held.all);
        self.held_slots.quorum = self.held_slots.quorum.max(held.quorum);
    }

    /// Returns all peers.
    pub fn iter(&self) -> impl Iterator<Item = &Peer> {
        self.list.iter()
    }

    /// Returns all peers, mutably.
    pub fn iter_mut(&mut self) -> impl Iterator<Item = &mut Peer> {
        self.list.iter_mut()
    }

    /// Returns the ids of the connected peers.
    pub fn connected(&self) -> impl Iterator<Item = NodeId> + '_ {
        self.list.iter().filter(|peer| peer.connected).map(|peer| peer.member.node)
    }

    /// Returns the peer `node`, mutably; `None` if it is unknown.
    pub fn find(&mut self, node: NodeId) -> Option<&mut Peer> {
        self.list.iter_mut().find(|peer| peer.member.node == node)
    }

    /// Returns the peer `node`; `None` if it is unknown.
    pub fn peer(&self, node: NodeId) -> Option<&Peer> {
        self.list.iter().find(|peer| peer.member.node == node)
    }

    /// Marks a peer as connected and returns it; `None` if there are too many peers. Messages sent
    /// over an earlier connection may have been lost.
    pub fn connect(&mut self, member: Member) -> Option<&mut Peer> {
        let at = self.list.partition_point(|peer| peer.member.node < member.node);
        let known = self.list.get(at).is_some_and(|peer| peer.member.node == member.node);
        if !known {
            if self.list.len() >= PEERS_MAX {
                return None;
            }
            let peer = Peer {
                member,
                connected: true,
                last_reply_at: None,
                promised: Ballot::ZERO,
                sent_to: Slot(0),
                voted_to: Slot(0),
                decided_to: Slot(0),
                held_to: Slot(0),
                kept_to: Slot(0),
                is_caught_up: false,
                is_unfit: false,
                late_us: 0,
            };
            self.list.insert(at, peer);
        }
        let peer = &mut self.list[at];
        if peer.member != member {
            // A new incarnation may have lost what the previous one held ([volatile-1]).
            peer.decided_to = Slot(0);
            peer.held_to = Slot(0);
            peer.kept_to = Slot(0);
            peer.is_caught_up = false;
            peer.is_unfit = false;
            peer.late_us = 0;
        }
        peer.member = member;
        peer.connected = true;
        Some(peer)
    }

    /// Marks a peer as disconnected.
    pub fn disconnect(&mut self, node: NodeId) {
        if let Some(peer) = self.find(node) {
            peer.connected = false;
        }
    }

    /// [live-5] Records that this node was paused for `us` microseconds until now, so messages from
    /// peers may not have been read yet.
    pub fn excuse_own_pause(&mut self, now: Time, us: u64) {
        for peer in &mut self.list {
            peer.last_reply_at = peer.last_reply_at.map(|at| at.plus_us(us).min(now));
        }
    }

    /// Returns the worst recent lateness among connected peers, in microseconds.
    pub fn late_us(&self) -> u64 {
        let connected = self.list.iter().filter(|peer| peer.connected);
        connected.map(|peer| peer.late_us.into()).max().unwrap_or(0)
    }

    /// Resets all peers for a new ballot of this node, in which nothing has been sent or voted for
    /// yet.
    pub fn reset_for_ballot(&mut self, now: Time, from: Slot) {
        for peer in &mut self.list {
            // Every peer counts as heard from now, so that a new leader does not step down at once.
            peer.last_reply_at = Some(now);
            peer.promised = Ballot::ZERO;
            peer.sent_to = from;
            peer.voted_to = Slot(0);
            peer.held_to = Slot(0);
            peer.kept_to = Slot(0);
            peer.is_caught_up = false;
        }
    }

    /// [trim-1] Returns the end of the slots that an auxiliary may forget. Full replicas that form
    /// a phase-2 quorum hold these slots, and each would still know after a crash that they are
    /// decided. A replica with only a vote could not rule out, without the auxiliary, that another
    /// value was chosen.
    pub fn kept_by_quorum(&self, eras: &Eras, own: Member, own_to: Slot) -> Slot {
        eras.current().reached_by_quorum(Phase::Two, |voter| {
            if voter.auxiliary {
                return Slot(0);
            }
            if voter.member == own {
                return own_to;
            }
            let peer = self.list.iter().find(|peer| peer.member == voter.member);
            peer.map_or(Slot(0), |peer| peer.kept_to)
        })
    }

    /// [trim-1] Returns how much of the log the members hold, as their current incarnations
    /// reported in this ballot, with `own_to` for this node. A member without a report counts as
    /// holding nothing, regardless of how much of the log a plane still has in its buffers
    /// ([ring-11]).
    pub fn held_slots(&self, eras: &Eras, own: Member, own_to: Slot) -> HeldSlots {
        let configuration = eras.current();
        let of = |member: Member| {
            if member == own {
                return own_to;
            }
            let peer = self.list.iter().find(|peer| peer.member == member);
            peer.map_or(Slot(0), |peer| peer.held_to)
        };
        let members = configuration.members().iter();
        // [aux-1] An auxiliary is sent nothing in the steady state, so trimming does not wait for
        // it.
        let mut all = members
            .filter(|voter| !voter.auxiliary)
            .map(|voter| of(voter.member))
            .fold(own_to, Slot::min);
        for peer in &self.list {
            // A learner counts while it is connected, or once it has reported how much it holds.
            let gone = eras.identity(peer.member.node).is_some_and(|id| id.is_removed);
            let spared = configuration.is_auxiliary(peer.member);
            if !gone && !spared && (peer.connected || peer.held_to > Slot(0)) {
                all = all.min(peer.held_to);
            }
        }
        let quorum = configuration.reached_by_quorum(Phase::Two, |voter| {
            let full = !voter.auxiliary;
            if full { of(voter.member) } else { Slot(0) }
        });
        HeldSlots { all, quorum }
    }

    /// Returns the members whose peer satisfies `holds`, plus this node.
    pub fn set(
        &self,
        configuration: &Configuration,
        own: Member,
        holds: impl Fn(&Peer) -> bool,
    ) -> MemberSet {
        let peers = self.list.iter().filter(|peer| holds(peer)).map(|peer| peer.member);
        peers
            .chain([own])
            .filter_map(|member| configuration.position(member))
            .fold(MemberSet::default(), MemberSet::with)
    }

    /// [live-2] Returns whether a phase-2 quorum replied within the last `within_us`.
    pub fn quorum_heard(
        &self,
        configuration: &Configuration,
        own: Member,
        now: Time,
        within_us: u64,
    ) -> bool {
        let lately =
            |peer: &Peer| peer.last_reply_at.is_some_and(|at| now.since_us(at) <= within_us);
        configuration.is_quorum(Phase::Two, self.set(configuration, own, lately))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{class::Class, configuration::Voter, node_id::Incarnation, quorum::QuorumRule};

    const OWN: Member = Member::first(1);

    fn eras(auxiliary: u32) -> Eras {
        let voter =
            |node| Voter { member: Member::first(node), weight: 1, auxiliary: node == auxiliary };
        let voters = (1..=3).map(voter).collect();
        let founding = Configuration::new(voters, QuorumRule::Majority, Class::Durable);
        Eras::founded(founding.expect("three members"))
    }

    fn peers(held: &[(u32, u64)]) -> Peers {
        let mut peers = Peers::new(Slot::FIRST);
        for (node, to) in held {
            let peer = peers.connect(Member::first(*node)).expect("room");
            peer.held_to = Slot(*to);
        }
        peers
    }

    fn held(peers: &Peers, eras: &Eras) -> (u64, u64) {
        let HeldSlots { all, quorum } = peers.held_slots(eras, OWN, Slot(10));
        (all.0, quorum.0)
    }

    #[test]
    fn held_slots_are_known_for_the_slowest_and_for_a_quorum() {
        let eras = eras(0);
        assert_eq!(held(&peers(&[(2, 7), (3, 4)]), &eras), (4, 7));
        assert_eq!(held(&peers(&[(2, 12), (3, 4)]), &eras), (4, 10), "own is 10");
        assert_eq!(held(&peers(&[(2, 7)]), &eras), (0, 7), "node 3 has said nothing");
        // A learner counts while it is connected, or once it has reported how much it holds.
        assert_eq!(held(&peers(&[(2, 7), (3, 4), (4, 2)]), &eras), (2, 7));
        let mut with_learner = peers(&[(2, 7), (3, 4), (4, 2)]);
        with_learner.disconnect(NodeId(4));
        assert_eq!(held(&with_learner, &eras), (2, 7));
        // Nothing reported in an earlier ballot of this leader counts in the next.
        with_learner.reset_for_ballot(Time(0), Slot(10));
        assert_eq!(held(&with_learner, &eras), (0, 0));
    }

    /// [trim-1] Reports belong to an incarnation. A new incarnation has reported nothing.
    #[test]
    fn new_incarnation_holds_nothing() {
        let mut peers = peers(&[(2, 7), (3, 4)]);
        let again = Member { incarnation: Incarnation(1), ..Member::first(2) };
        peers.connect(again);
        assert_eq!(held(&peers, &eras(0)), (0, 4));
    }

    /// [trim-1] Slots that an auxiliary reports as held do not count: no full replica may forget
    /// because of them.
    #[test]
    fn auxiliary_holds_nothing_for_others() {
        assert_eq!(held(&peers(&[(2, 7), (3, 4)]), &eras(2)), (4, 4));
        let mut told = peers(&[(2, 7), (3, 4)]);
        for peer in told.iter_mut() {
            peer.kept_to = peer.held_to;
        }
        assert_eq!(told.kept_by_quorum(&eras(2), OWN, Slot(10)), Slot(4));
        assert_eq!(told.kept_by_quorum(&eras(3), OWN, Slot(6)), Slot(6));
        // Nor is anything retained for an auxiliary.
        assert_eq!(held(&peers(&[(2, 7), (3, 4)]), &eras(3)), (7, 7));
    }
}
