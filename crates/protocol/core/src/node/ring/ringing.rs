//! A ring member's side: handles its own votes and those of other members ([ring-2]–[ring-8]).

use crate::{
    ballot::Ballot,
    class::Class,
    effect::Effects,
    message::RingVote,
    node::Node,
    node_id::{Member, NodeId},
    ring::{RING_MAX, RelayAction},
    slot::Slot,
    time::Time,
};

impl Node {
    /// [ring-1] Records the route of votes announced by the leader of `ballot`.
    pub(in crate::node) fn on_lay(
        &mut self,
        from: NodeId,
        ballot: Ballot,
        number: u32,
        members: &[Member],
        effects: &mut Effects,
    ) {
        let leader_last = members.last().is_none_or(|last| last.node == from);
        let sound = ballot.node == from && leader_last && members.len() <= RING_MAX;
        let stale = ballot < self.spine.acceptor().promised() || self.spine.pending().has_failed();
        if !sound || stale || !self.ring.relay.set_ring(ballot, number, members) {
            return;
        }
        let own = self.spine.options().member;
        if self.spine.own_votes().newest_run().ballot == ballot
            && !self.ring.relay.bypasses(ballot, own)
        {
            // [ring-8] A member that voted silently now reports all its votes.
            self.report_run(effects);
        }
    }

    /// Handles votes that arrived along a ring. They never contain a promise or a vote of this node
    /// ([ring-6]).
    pub(in crate::node) fn on_ring_vote(
        &mut self,
        now: Time,
        vote: &RingVote,
        effects: &mut Effects,
    ) {
        if vote.entries.len() > RING_MAX {
            return;
        }
        let own = self.spine.options().member;
        if vote.ballot.node == own.node {
            // [ring-4] Each entry counts as if the member had sent it directly. This leader's own
            // vote is counted from its acceptor, not from the ring.
            for entry in vote.entries.iter().filter(|entry| entry.member != own) {
                self.on_phase2b(entry.member, entry.vote(vote.ballot), effects);
            }
            return;
        }
        if vote.ballot < self.spine.acceptor().promised() {
            return;
        }
        if !self.ring.relay.is_laid(vote.ballot) {
            // The votes belong to a ring that this node does not know, or no longer knows.
            return effects.forward_ring_vote(vote.ballot.node, vote.clone());
        }
        let class = self.spine.pending().class();
        self.ring.relay.record_votes(now, own, vote, class);
    }

    /// Reports that this node's votes have grown. The report goes along the ring or directly to the
    /// leader. If this node votes silently, nothing is sent.
    pub(in crate::node) fn report_new_votes(&mut self, now: Time, effects: &mut Effects) {
        let ballot = self.spine.own_votes().newest_run().ballot;
        if !self.ring.relay.is_laid(ballot) {
            return self.report_run(effects);
        }
        self.ring.relay.votes(now);
    }

    /// Reports that this node's votes are all on stable storage. In groups in which in-memory votes
    /// count, a ring does not need this report.
    pub(in crate::node) fn report_durable(&mut self, now: Time, effects: &mut Effects) {
        let laid = self.ring.relay.is_laid(self.spine.own_votes().newest_run().ballot);
        if !laid || self.spine.pending().class() == Class::Durable {
            self.report_new_votes(now, effects);
        }
    }

    /// Sends every message that is due on the ring.
    pub(in crate::node) fn send_ring_messages(&mut self, now: Time, effects: &mut Effects) {
        let own = self.spine.options().member;
        let run = *self.spine.own_votes().newest_run();
        let laid = self.ring.relay.is_laid(run.ballot);
        let own_to = if laid { self.own_voted_to() } else { Slot(0) };
        match self.ring.relay.next_action(now, own, own_to) {
            RelayAction::Nothing => {}
            RelayAction::ToLeader => self.report_run(effects),
            RelayAction::Forward(next) => {
                let bundle = self.ring.relay.received_votes();
                let leader = bundle.ballot.node;
                let there = self.spine.peers().peer(next).is_some_and(|peer| peer.connected);
                let next = if there { next } else { leader };
                let vote = self.own_statement().filter(|_| laid);
                effects.send_ring_vote(next, bundle, own, vote);
            }
        }
    }

    /// [learn-1] Reports the votes that a member cast silently before it gained weight.
    pub(in crate::node) fn report_silent_votes(&mut self, effects: &mut Effects) {
        let run = self.spine.own_votes().newest_run();
        let voted = run.from < run.to && run.ballot.node != self.spine.options().member.node;
        if self.ring.is_newly_counted(self.is_counted()) && voted {
            self.report_run(effects);
        }
    }
}

#[cfg(test)]
mod tests {
    use alloc::vec::Vec;

    use super::*;
    use crate::{
        class::Class,
        configuration::Configuration,
        effect::Effect,
        input::Input,
        laying::Route,
        message::{Message, Phase1b, RingEntry},
        node::{Options, Recovered},
        node_id::Incarnation,
        value::Value,
    };

    const OWN: Member = Member::first(1);
    const OTHER: Member = Member::first(3);
    /// Node 2, readmitted after it lost its state.
    const AGAIN: Member = Member { node: NodeId(2), incarnation: Incarnation(1) };

    fn step(node: &mut Node, now: u64, input: Input) -> Vec<Effect> {
        let mut effects = Effects::default();
        node.step(Time(now), input, &mut effects);
        effects.drain().collect()
    }

    fn deliver_message(node: &mut Node, from: Member, message: Message) -> Vec<Effect> {
        let held = true;
        let input = Input::Message { from, message, bytes_held: held };
        step(node, 200_002, input)
    }

    /// Returns node 1 of three as leader, with its own vote for a no-op in slot 1.
    fn leader() -> (Node, Ballot, u64) {
        let options = Options {
            member: OWN,
            heartbeat_ms: 20,
            election_min_ms: 100,
            election_max_ms: 100,
            inflight_max: 4,
            window_slots: 64,
            leases: None,
            earlier_lease_us: 0,
            lead_alone_wait_us: 0,
            thrifty: false,
            route: Route::Star,
            seed: 1,
        };
        let members = [OWN, AGAIN, OTHER];
        let founding = Configuration::majority_of(members, Class::Volatile).expect("three members");
        let mut node = Node::new(options, Recovered::for_new_node(founding));
        for member in [AGAIN, OTHER] {
            step(&mut node, 1, Input::Connected(member));
        }
        step(&mut node, 1, Input::Tick);
        let asked = step(&mut node, 200_000, Input::Tick);
        let ballot = asked.iter().find_map(|effect| {
            let Effect::Send { message: Message::PreVote { ballot }, .. } = effect else {
                return None;
            };
            Some(*ballot)
        });
        let ballot = ballot.expect("it asks whether it may");
        let granted = Message::PreVoteReply { ballot, granted: true, promised: Ballot::ZERO };
        deliver_message(&mut node, OTHER, granted);
        step(&mut node, 200_002, Input::Persisted(crate::record::RecordSeq(1)));
        let promise = Message::Phase1b(Phase1b {
            ballot,
            from: Slot::FIRST,
            floor: Slot::FIRST,
            log_start: Slot::FIRST,
            decided_to: Slot::FIRST,
            extents: Vec::new(),
        });
        deliver_message(&mut node, OTHER, promise);
        let value = Value::NoOp;
        let input = Input::Propose { value, slots: 1 };
        let said = step(&mut node, 200_003, input);
        assert!(!said.is_empty() && node.phase2().is_some());
        let check = node.newest_run().check;
        (node, ballot, check)
    }

    /// [ring-3], [class-4] A ring vote belongs to one incarnation of its member: a vote of an
    /// earlier incarnation does not count.
    #[test]
    fn ring_vote_of_an_earlier_incarnation_does_not_count() {
        let (mut node, ballot, check) = leader();
        let mut along = |member| {
            let entry = RingEntry {
                member,
                from: Slot(1),
                volatile_to: Slot(2),
                durable_to: Slot(1),
                check,
            };
            let vote = RingVote { ballot, entries: [entry].to_vec() };
            deliver_message(&mut node, OTHER, Message::RingVote(vote));
            node.decided_to()
        };
        assert_eq!(along(Member::first(2)), Slot(1));
        assert_eq!(along(OWN), Slot(1), "a leader's acceptor speaks itself");
        assert_eq!(along(AGAIN), Slot(2));
    }
}
