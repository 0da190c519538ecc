//! Flow of proposals: what may be in flight, and to which followers it went.
//!
//! Liveness only. A follower takes proposals in order ([`crate::voted`]); if its answer shows that
//! one was lost, the leader goes back to it and sends everything from there again.

use alloc::vec::Vec;

use crate::{
    ballot::Ballot,
    configuration::Configuration,
    message::Held,
    node_id::{Member, NodeId, PEERS_MAX},
    quorum::{MemberSet, Phase},
    reconfigure::Eras,
    slot::Slot,
    time::Time,
};

/// Another node.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Peer {
    /// The node in its present incarnation.
    pub member: Member,
    /// The node is connected.
    pub connected: bool,
    /// Time of its last answer to this leader.
    pub heard: Option<Time>,
    /// The highest promise that it reported.
    pub promised: Ballot,
    /// Proposals below went to it.
    pub sent_to: Slot,
    /// Its votes in the leader's ballot go to here, at the class that counts.
    pub voted_to: Slot,
    /// Slots below are decided, and held there.
    pub decided_to: Slot,
    /// Slots below are decided, and held there at the class of the group, by this incarnation's
    /// report to this ballot; slot 0 for none.
    pub held_to: Slot,
    /// A crash leaves it these, as decided.
    pub kept_to: Slot,
    /// By its answer to the last heartbeat of this ballot, it holds what was decided before the
    /// previous one.
    pub level: bool,
    /// The node should not lead, by its last report.
    pub unfit: bool,
    /// Recent lateness of its turns, by its last report.
    pub late_us: u32,
}

/// All other nodes, in order of their ids.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Peers {
    list: Vec<Peer>,
    /// Followers were notified that slots below are decided.
    announced_to: Slot,
}

impl Peers {
    /// Creates an empty list; decisions below `announced_to` need no announcement.
    pub fn new(announced_to: Slot) -> Self {
        Self { list: Vec::new(), announced_to }
    }

    /// Returns the slot below which followers were notified of decisions.
    pub fn announced_to(&self) -> Slot {
        self.announced_to
    }

    /// Notes that slots below are announced as decided.
    pub fn announced(&mut self, decided_to: Slot) {
        self.announced_to = decided_to;
    }

    /// Returns all peers.
    pub fn iter(&self) -> impl Iterator<Item = &Peer> {
        self.list.iter()
    }

    /// Returns all peers.
    pub fn iter_mut(&mut self) -> impl Iterator<Item = &mut Peer> {
        self.list.iter_mut()
    }

    /// Returns the connected peers.
    pub fn connected(&self) -> impl Iterator<Item = NodeId> + '_ {
        self.list.iter().filter(|peer| peer.connected).map(|peer| peer.member.node)
    }

    /// Returns the peer with this id.
    pub fn find(&mut self, node: NodeId) -> Option<&mut Peer> {
        self.list.iter_mut().find(|peer| peer.member.node == node)
    }

    /// Returns the peer with this id.
    pub fn peer(&self, node: NodeId) -> Option<&Peer> {
        self.list.iter().find(|peer| peer.member.node == node)
    }

    /// Marks a peer as connected; messages sent before may be lost.
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
                heard: None,
                promised: Ballot::ZERO,
                sent_to: Slot(0),
                voted_to: Slot(0),
                decided_to: Slot(0),
                held_to: Slot(0),
                kept_to: Slot(0),
                level: false,
                unfit: false,
                late_us: 0,
            };
            self.list.insert(at, peer);
        }
        let peer = &mut self.list[at];
        if peer.member != member {
            // Another incarnation: what the one before held may be gone ([volatile-1]).
            peer.decided_to = Slot(0);
            peer.held_to = Slot(0);
            peer.kept_to = Slot(0);
            peer.level = false;
            peer.unfit = false;
            peer.late_us = 0;
        }
        peer.member = member;
        peer.connected = true;
        Some(peer)
    }

    /// Marks the node as disconnected.
    pub fn disconnect(&mut self, node: NodeId) {
        if let Some(peer) = self.find(node) {
            peer.connected = false;
        }
    }

    /// [live-5] Notes that this node stood still for this long until now: messages of peers may lie
    /// there unread.
    pub fn excuse(&mut self, now: Time, us: u64) {
        for peer in &mut self.list {
            peer.heard = peer.heard.map(|at| at.plus_us(us).min(now));
        }
    }

    /// Returns the worst recent lateness of connected peers' turns.
    pub fn late_us(&self) -> u64 {
        let connected = self.list.iter().filter(|peer| peer.connected);
        connected.map(|peer| peer.late_us.into()).max().unwrap_or(0)
    }

    /// Begins a new ballot of this node: nothing of it was sent or voted for.
    pub fn restart(&mut self, now: Time, from: Slot) {
        for peer in &mut self.list {
            // Granted a time-out's worth of life, so that a new leader is not its own victim.
            peer.heard = Some(now);
            peer.promised = Ballot::ZERO;
            peer.sent_to = from;
            peer.voted_to = Slot(0);
            peer.held_to = Slot(0);
            peer.kept_to = Slot(0);
            peer.level = false;
        }
    }

    /// [trim-1] Returns the end of the slots that an auxiliary may forget: full replicas that form
    /// a phase-2 quorum hold them, and each of them would find them decided after a crash. A
    /// replica that had only voted could not rule out, without the auxiliary, that something else
    /// was chosen.
    pub fn kept(&self, eras: &Eras, own: Member, own_to: Slot) -> Slot {
        eras.current().reached(Phase::Two, |voter| {
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

    /// [trim-1] Returns what the others hold, and this node up to `own_to`: by each incarnation's
    /// reports to this ballot. A member without a report holds nothing, whatever a plane has of it
    /// in its buffers ([ring-11]).
    pub fn held(&self, eras: &Eras, own: Member, own_to: Slot) -> Held {
        let configuration = eras.current();
        let of = |member: Member| {
            if member == own {
                return own_to;
            }
            let peer = self.list.iter().find(|peer| peer.member == member);
            peer.map_or(Slot(0), |peer| peer.held_to)
        };
        let members = configuration.members().iter();
        // [aux-1] An auxiliary holds what it was sent, and waits for nothing.
        let mut all = members
            .filter(|voter| !voter.auxiliary)
            .map(|voter| of(voter.member))
            .fold(own_to, Slot::min);
        for peer in &self.list {
            // A learner counts while it is connected, and once it has reported what it holds.
            let gone = eras.identity(peer.member.node).is_some_and(|id| id.spent);
            let spared = configuration.is_auxiliary(peer.member);
            if !gone && !spared && (peer.connected || peer.held_to > Slot(0)) {
                all = all.min(peer.held_to);
            }
        }
        let quorum = configuration.reached(Phase::Two, |voter| {
            let full = !voter.auxiliary;
            if full { of(voter.member) } else { Slot(0) }
        });
        Held { all, quorum }
    }

    /// Returns the members for which `holds` is true, and this node itself.
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

    /// [live-2] Returns whether a phase-2 quorum answered within the last `within_us`.
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
        let Held { all, quorum } = peers.held(eras, OWN, Slot(10));
        (all.0, quorum.0)
    }

    #[test]
    fn held_is_what_the_slowest_and_what_a_quorum_holds() {
        let eras = eras(0);
        assert_eq!(held(&peers(&[(2, 7), (3, 4)]), &eras), (4, 7));
        assert_eq!(held(&peers(&[(2, 12), (3, 4)]), &eras), (4, 10), "own is 10");
        assert_eq!(held(&peers(&[(2, 7)]), &eras), (0, 7), "node 3 has said nothing");
        // A learner counts while it is connected, and once it has reported.
        assert_eq!(held(&peers(&[(2, 7), (3, 4), (4, 2)]), &eras), (2, 7));
        let mut with_learner = peers(&[(2, 7), (3, 4), (4, 2)]);
        with_learner.disconnect(NodeId(4));
        assert_eq!(held(&with_learner, &eras), (2, 7));
        // In the next ballot of this leader nothing is known before it is reported again.
        with_learner.restart(Time(0), Slot(10));
        assert_eq!(held(&with_learner, &eras), (0, 0));
    }

    /// [trim-1] Reports belong to an incarnation: another one has reported nothing.
    #[test]
    fn another_incarnation_holds_nothing() {
        let mut peers = peers(&[(2, 7), (3, 4)]);
        let again = Member { incarnation: Incarnation(1), ..Member::first(2) };
        peers.connect(again);
        assert_eq!(held(&peers, &eras(0)), (0, 4));
    }

    /// [trim-1] Slots that an auxiliary reports as held are hearsay: no full replica may forget for
    /// its sake.
    #[test]
    fn auxiliary_holds_nothing_for_others() {
        assert_eq!(held(&peers(&[(2, 7), (3, 4)]), &eras(2)), (4, 4));
        let mut told = peers(&[(2, 7), (3, 4)]);
        for peer in told.iter_mut() {
            peer.kept_to = peer.held_to;
        }
        assert_eq!(told.kept(&eras(2), OWN, Slot(10)), Slot(4));
        assert_eq!(told.kept(&eras(3), OWN, Slot(6)), Slot(6));
        // Nor is anything kept for it.
        assert_eq!(held(&peers(&[(2, 7), (3, 4)]), &eras(3)), (7, 7));
    }
}
