//! Lasting acknowledgements, for clients that require more than the group's class: determines the
//! part of the decided prefix that is on stable storage at a phase-2 quorum, in groups of either
//! class ([class-2], [last-1] to [last-4]).

use crate::{
    class::Class,
    configuration::Voter,
    effect::{Effect, Effects},
    flow::Peer,
    message::Message,
    node::Node,
    node_id::{Member, NodeId},
    quorum::Phase,
    slot::Slot,
    time::Time,
};

impl Node {
    /// Answers peers that wait for this node's disk, notifies this node's clients, and sends
    /// requests to other members.
    pub(in crate::node) fn serve_lasting(&mut self, now: Time, effects: &mut Effects) {
        if self.acks.durable_prefix.is_idle() {
            return;
        }
        // [here-3] Clients wait only for commands, so missing bytes of streams delay none.
        let held_to = self.readable_to();
        // [last-1] This node does not report slots that it has lost or not written yet.
        let here_to = held_to.min(self.spine.pending().durable_decided_to());
        let safe = |record| self.spine.pending().is_durable(record);
        if self.acks.durable_prefix.update(here_to, held_to, safe) {
            // The record's only new content is the restated decided prefix.
            let record = self.spine.restate(effects);
            self.acks.durable_prefix.record_restatement(record);
        }
        while let Some(to) = self.acks.durable_prefix.next_answer(here_to) {
            effects.send(to, Message::LastingReply { to: here_to });
        }
        let to = self.durable_in_group_to(here_to);
        if self.acks.durable_prefix.advance_notified(to) {
            effects.push(Effect::DurableInGroup { to });
        }
        self.ask_durable(now, effects);
    }

    /// [last-3] Returns the end of the slots that are durable in the group, as far as this node
    /// knows. `here_to` is the end of the slots that are durable on this node.
    fn durable_in_group_to(&self, here_to: Slot) -> Slot {
        let decided_to = self.spine.learner().decided_to();
        if self.spine.pending().class() == Class::Durable {
            // [class-1] Everything was decided by votes on stable storage.
            return decided_to;
        }
        let own = self.spine.options().member;
        let of = |voter: &Voter| match voter {
            // [trim-1] An auxiliary forgets slots that others may have only in memory.
            voter if voter.auxiliary => Slot(0),
            voter if voter.member == own => here_to,
            voter => self.acks.durable_prefix.reported_to(voter.member),
        };
        // The configuration in force on this node is known to be recent enough only for slots below
        // `decided_to`.
        let reached = self.spine.learner().eras().current().reached_by_quorum(Phase::Two, of);
        reached.min(decided_to)
    }

    fn ask_durable(&mut self, now: Time, effects: &mut Effects) {
        let retry_us = self.catchup_retry_us();
        let Some(to) = self.acks.durable_prefix.next_request(now, retry_us) else {
            return;
        };
        let configuration = self.spine.learner().eras().current();
        let lacks = |peer: &&Peer| {
            let counts = configuration.position(peer.member).is_some()
                && !configuration.is_auxiliary(peer.member);
            peer.connected && counts && self.acks.durable_prefix.reported_to(peer.member) < to
        };
        let asked = self.spine.peers().iter().filter(lacks);
        let asked = asked.map(|peer| peer.member.node);
        effects.send_all(asked, &Message::LastingRequest { to });
    }

    /// [last-2] Records a member's report that everything below `to` is on stable storage there.
    pub(in crate::node) fn on_lasting_reply(&mut self, from: Member, to: Slot) {
        self.acks.durable_prefix.on_reply(from, to);
    }

    /// Records that a peer waits until everything below `to` is on stable storage on this node.
    pub(in crate::node) fn on_lasting_request(&mut self, from: NodeId, to: Slot) {
        self.acks.durable_prefix.on_request(from, to);
    }

    /// Returns the slot below which clients of this node were notified of durability.
    pub fn durable_notified_to(&self) -> Slot {
        self.acks.durable_prefix.notified_to()
    }

    /// Returns whether a client or a peer waits for something that this node's log has not written
    /// yet.
    pub fn awaits_disk(&self) -> bool {
        self.acks.durable_prefix.awaits_disk()
    }
}

#[cfg(test)]
mod tests {
    use alloc::vec::Vec;

    use super::*;
    use crate::{
        ballot::{Ballot, Era},
        configuration::Configuration,
        input::Input,
        laying::Route,
        lease::Lease,
        message::{Heartbeat, Phase2a},
        node::{Options, Recovered},
        node_id::Member,
        record::RecordSeq,
        slot::SlotRange,
        value::{BatchName, Value},
    };

    const LEADER: Member = Member::first(3);

    fn ballot(round: u32) -> Ballot {
        Ballot { era: Era(0), round, node: LEADER.node }
    }

    /// Returns a proposal for slot 1 whose value differs per ballot.
    fn proposal(round: u32) -> Message {
        Message::Phase2a(Phase2a {
            ballot: ballot(round),
            range: SlotRange::one(Slot(1)),
            value: Value::Batch(BatchName { counter: round.into(), ..BatchName::default() }),
            prefix: 0,
            decided_to: Slot(1),
            own_volatile_to: Slot(0),
            own_durable_to: Slot(0),
            with_bytes: true,
        })
    }

    /// Returns the replies of node 1 of three to this input.
    fn replies_to(node: &mut Node, input: Input) -> Vec<Message> {
        let mut effects = Effects::default();
        node.step(Time(1_000), input, &mut effects);
        let mut sent = Vec::new();
        for effect in effects.drain() {
            if let Effect::Send { message, .. } = effect {
                sent.push(message);
            }
        }
        sent
    }

    fn deliver_message(node: &mut Node, message: Message) -> Vec<Message> {
        let held = true;
        let input = Input::Message { from: LEADER, message, bytes_held: held };
        replies_to(node, input)
    }

    /// Returns a node with two votes in one slot: one on stable storage, and one in a later ballot,
    /// for the decided value, that is not.
    fn with_a_vote_replaced(class: Class) -> Node {
        let options = Options {
            member: Member::first(1),
            heartbeat_ms: 20,
            election_min_ms: 100,
            election_max_ms: 200,
            inflight_max: 4,
            window_slots: 64,
            leases: None,
            earlier_lease_us: 0,
            lead_alone_wait_us: 0,
            thrifty: false,
            route: Route::Star,
            seed: 1,
        };
        let members = [1, 2, 3].map(Member::first);
        let founding = Configuration::majority_of(members, class).expect("three members");
        let mut node = Node::new(options, Recovered::for_new_node(founding));
        deliver_message(&mut node, proposal(1));
        replies_to(&mut node, Input::Persisted(RecordSeq(1)));
        deliver_message(&mut node, proposal(2));
        let decided_to = Slot(2);
        let ballot = ballot(2);
        deliver_message(&mut node, Message::Decided { ballot, decided_to });
        assert_eq!(node.decided_to(), decided_to);
        node
    }

    /// [last-1] A vote on stable storage for another value does not make the decided value durable.
    #[test]
    fn replaced_vote_does_not_make_the_decided_value_durable() {
        let mut node = with_a_vote_replaced(Class::Volatile);
        let to = Slot(2);
        assert_eq!(deliver_message(&mut node, Message::LastingRequest { to }), []);
        assert!(node.awaits_disk());
        // A restart would not know yet that the slot is decided.
        let said = replies_to(&mut node, Input::Persisted(RecordSeq(2)));
        assert!(!said.contains(&Message::LastingReply { to }), "{said:?}");
        let said = replies_to(&mut node, Input::Persisted(RecordSeq(3)));
        assert!(said.contains(&Message::LastingReply { to }), "{said:?}");
        assert!(!node.awaits_disk());
    }

    /// [era-12] A member of a durable group does not report a slot as held while its stable storage
    /// has a vote for another value.
    #[test]
    fn slot_with_a_replaced_durable_vote_is_not_held() {
        let mut node = with_a_vote_replaced(Class::Durable);
        let mut held_to = || {
            let beat = Heartbeat {
                ballot: ballot(2),
                decided_to: Slot(2),
                sent_to: Slot(2),
                read_round: 0,
                held_by_all: Slot(0),
                held_by_quorum: Slot(0),
                lease: Lease::default(),
                auxiliary: false,
                clock_ms: 0,
                late_us: 0,
                full_disk: None,
            };
            let said = deliver_message(&mut node, Message::Heartbeat(beat));
            let held_to = said.iter().find_map(|message| {
                let Message::HeartbeatReply(reply) = message else {
                    return None;
                };
                Some(reply.held_to)
            });
            let held_to = held_to.expect("it answers");
            replies_to(&mut node, Input::Persisted(RecordSeq(2)));
            held_to
        };
        assert_eq!(held_to(), Slot(1));
        assert_eq!(held_to(), Slot(2));
    }
}
