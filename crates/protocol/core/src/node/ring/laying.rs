//! The leader's side of the ring: sets it up, abandons it and replaces it ([ring-1], [ring-7],
//! [ring-10]).

use alloc::vec::Vec;

use crate::{
    configuration::Voter,
    effect::Effects,
    explanation::Explanation,
    laying::Route,
    message::Message,
    node::Node,
    node_id::{Member, NodeId},
    node_set::NodeSet,
    quorum::{MemberSet, Phase},
    slot::Slot,
    time::Time,
};

/// Number of heartbeat intervals without a reply after which a node is suspected to have stopped.
const SILENT_HEARTBEATS: u64 = 2;

impl Node {
    /// Sets the route of votes to this node while it leads.
    pub(in crate::node) fn on_route(&mut self, now: Time, wish: Route) {
        self.ring.control.set_route(wish, now);
    }

    /// Sets up a ring or gives it up, as needed.
    pub(in crate::node) fn update_ring(&mut self, now: Time, effects: &mut Effects) {
        let Some(leading) = self.spine.phase2() else { return };
        if self.ring.control.is_idle() {
            return;
        }
        let (ballot, decided_to) = (leading.ballot(), self.spine.learner().decided_to());
        let open = !leading.tally.is_empty();
        self.ring.control.record_progress(now, decided_to, open);
        if self.ring.control.is_ring() {
            if !self.is_ring_connected() {
                self.ring
                    .control
                    .record_lost_member(now.plus_ms(self.spine.options().heartbeat_ms));
                self.lay_members(now, Vec::new(), effects);
            } else if self.ring.control.is_stuck(now, open) {
                self.ring.control.record_break(now);
                effects.explain(Explanation::RingBreaks { ballot, slot: decided_to });
                self.lay_members(now, Vec::new(), effects);
            } else if !self.may_lay() || *self.ring.control.requested_route() == Route::Star {
                self.lay_members(now, Vec::new(), effects);
            } else if let Route::Through(members) = self.ring.control.requested_route() {
                let members = self.leader_last(members.clone());
                if members != self.ring.control.current_ring().1 {
                    self.lay_members(now, members, effects);
                }
            }
        } else if self.ring.control.may_lay(now) {
            if !self.may_lay() {
                return self
                    .ring
                    .control
                    .postpone_check(now.plus_ms(self.spine.options().heartbeat_ms));
            }
            let suspects = self.ring.control.suspected_members();
            let ends = |member: &Member| (*member, self.voted_or_decided(*member));
            let suspects: Vec<(Member, Slot)> = suspects.iter().map(ends).collect();
            self.ring.control.examine_members(now, decided_to, &suspects);
            if !self.ring.control.may_lay(now) {
                return;
            }
            match self.choose_ring(now) {
                Some(members) => {
                    let mut nodes = NodeSet::default();
                    for member in &members {
                        // A set has room for a ring.
                        let _ = nodes.insert(member.node);
                    }
                    effects.explain(Explanation::RingLaid { ballot, nodes });
                    self.lay_members(now, members, effects);
                }
                None => {
                    self.ring.control.postpone_check(now.plus_ms(self.spine.options().heartbeat_ms))
                }
            }
        }
    }

    fn lay_members(&mut self, now: Time, members: Vec<Member>, effects: &mut Effects) {
        self.ring.control.set_ring(now, self.spine.learner().decided_to(), members);
        if let Some(message) = self.ring_announcement() {
            effects.send_all(self.spine.peers().connected(), &message);
        }
    }

    /// [ring-1] Returns the message that announces the current ring; `None` if none has been
    /// announced in this ballot.
    pub(in crate::node) fn ring_announcement(&self) -> Option<Message> {
        let ballot = self.spine.phase2()?.ballot();
        let (number, members) = self.ring.control.current_ring();
        (number > 0).then(|| Message::Lay { ballot, number, members: members.to_vec() })
    }

    /// [ring-1], [ring-10] Returns whether a ring is allowed. One configuration must apply to all
    /// outstanding proposals, and neither phase 1 nor a transfer of leadership may be in progress.
    fn may_lay(&self) -> bool {
        let Some(leading) = self.spine.phase2() else {
            return false;
        };
        let settled = leading.ballot().era == self.era() && leading.undecided_change.is_none();
        let alone = leading.previous_tally.is_none() && self.spine.phase1().is_none();
        settled && alone && !self.handover.is_in_progress()
    }

    /// Returns whether all members of the ring are connected, each in the incarnation with which
    /// the ring was set up.
    fn is_ring_connected(&self) -> bool {
        let (_, members) = self.ring.control.current_ring();
        members.iter().all(|member| {
            let peer = self.spine.peers().peer(member.node);
            let there = peer.is_some_and(|peer| peer.member == *member && peer.connected);
            *member == self.spine.options().member || there
        })
    }

    /// Returns the end of the slots that this member has voted for in this ballot, at the group's
    /// class, or has decided.
    fn voted_or_decided(&self, member: Member) -> Slot {
        if member == self.spine.options().member {
            return self.own_voted_to();
        }
        let peer = self.spine.peers().peer(member.node).filter(|peer| peer.member == member);
        peer.map_or(Slot(0), |peer| peer.voted_to.max(peer.decided_to))
    }

    fn leader_last(&self, mut members: Vec<Member>) -> Vec<Member> {
        members.retain(|member| *member != self.spine.options().member);
        members.push(self.spine.options().member);
        members
    }

    /// [ring-1] Returns a ring with the leader last. Its members keep up and form a minimal phase-2
    /// quorum. The leader counts the votes even if its disk is slow. In that case the others form
    /// the quorum without its vote ([ring-7]).
    fn choose_ring(&self, now: Time) -> Option<Vec<Member>> {
        let own = self.spine.options().member;
        if let Route::Through(members) = self.ring.control.requested_route() {
            return Some(self.leader_last(members.clone()));
        }
        if *self.ring.control.requested_route() == Route::Star {
            return None;
        }
        let configuration = self.spine.learner().eras().current();
        let fit = |voter: &Voter| {
            let member = voter.member;
            let there = member == own || self.keeps_up(now, member);
            there && !voter.auxiliary && !self.ring.control.is_excluded(now, member)
        };
        let members = configuration.members();
        let mut places: Vec<usize> = (0..members.len()).filter(|at| fit(&members[*at])).collect();
        // Prefer the leader's own vote, which needs no message, and then heavier members, of which
        // fewer are needed.
        places.sort_by_key(|at| {
            let voter = &members[*at];
            (voter.member != own, core::cmp::Reverse(voter.weight), *at)
        });
        let is_quorum = |set| configuration.is_quorum(Phase::Two, set);
        let all = |places: &[usize]| {
            let places = places.iter();
            places.fold(MemberSet::default(), |set, at| set.with(*at))
        };
        if !is_quorum(all(&places)) {
            return None;
        }
        for at in (0..places.len()).rev() {
            let mut without = places.clone();
            without.remove(at);
            if is_quorum(all(&without)) {
                places = without;
            }
        }
        let ring: Vec<Member> = places.iter().map(|at| members[*at].member).collect();
        let others = ring.iter().any(|member| *member != own);
        others.then(|| self.leader_last(ring))
    }

    /// Returns whether a follower is connected, receives proposals, and has recently reported that
    /// it holds the slots decided more than a heartbeat ago.
    fn keeps_up(&self, now: Time, member: Member) -> bool {
        let lately_us = SILENT_HEARTBEATS * self.spine.options().heartbeat_ms * 1000;
        let peer = self
            .spine
            .peers()
            .peer(member.node)
            .filter(|peer| peer.member == member && peer.connected);
        peer.is_some_and(|peer| {
            let lately = peer.last_reply_at.is_some_and(|at| now.since_us(at) <= lately_us);
            lately && peer.is_caught_up && self.receives_proposals(member)
        })
    }

    /// Returns the nodes along which votes travel while this node leads, with this node last; empty
    /// if votes are sent directly.
    pub fn ring_nodes(&self) -> Vec<NodeId> {
        let leads = self.spine.phase2().is_some();
        let (_, members) = self.ring.control.current_ring();
        let members = members.iter().filter(|_| leads);
        members.map(|member| member.node).collect()
    }
}
