//! Use of leases: a leader answers reads alone, and an acceptor withholds votes ([read-4],
//! [read-8]).

use super::LeasedRead;
use crate::{
    ballot::Ballot,
    lease::Lease,
    message::Heartbeat,
    node::Node,
    node_id::{Member, NodeId},
    quorum::Phase,
    time::Time,
};

impl Node {
    /// Returns the read that the lease currently allows. `now` must be taken after the request has
    /// arrived. Once the state has been read, the lease must be checked again.
    pub fn leased_read(&self, now: Time) -> Option<LeasedRead> {
        let leading = self.spine.phase2().filter(|_| self.leasing.holder.is_enabled())?;
        let ballot = leading.ballot();
        // A transfer and the casting move end the lease first. [offload-18] This node does not know
        // the slots that a device has assigned.
        let stays = !self.handover.is_in_progress() && self.spine.phase1().is_none();
        let here = stays && !self.devices.assigns_slots();
        if !here || self.spine.acceptor().promised() > ballot || self.spine.pending().has_failed() {
            return None;
        }
        let own = self.spine.options().member;
        let holds =
            |member: Member| member == own || self.leasing.holder.is_valid(ballot, member, now);
        // The set is checked anew each time, because new eras begin and reconfigurations are
        // proposed.
        self.blocks_others(Phase::Two, holds)
            .then(|| LeasedRead { ballot, slot: leading.tally.next() })
    }

    /// Returns the lease that this leader's next heartbeat should request.
    pub(in crate::node) fn next_lease_request(&mut self, now: Time) -> Lease {
        self.leasing.holder.next_request(now, !self.handover.is_in_progress())
    }

    /// Responds to a lease request in the heartbeat of a leader whose ballot this node may promise,
    /// or to a release.
    pub(in crate::node) fn on_lease_request(
        &mut self,
        now: Time,
        from: NodeId,
        beat: &Heartbeat,
    ) -> Lease {
        if beat.ballot.node != from || beat.lease == Lease::default() {
            return Lease::default();
        }
        self.leasing.granter.grant_lease(now, beat.ballot, beat.lease)
    }

    /// Returns whether a vote in this ballot must wait, because this process has granted a lease to
    /// another node, or an earlier one may have.
    pub(in crate::node) fn lease_refuses_vote(&self, now: Time, ballot: Ballot) -> bool {
        self.leasing.granter.withholds_vote(now, ballot)
    }

    /// [read-9] Returns whether this leader decides nothing yet, because an earlier leader may
    /// still hold leases.
    pub fn awaits_old_leases(&self, now: Time) -> bool {
        let leading = self.spine.phase2();
        leading.is_some_and(|leading| self.lease_refuses_vote(now, leading.ballot()))
    }

    /// Returns whether a promise of this ballot must wait for the end of another node's lease.
    pub(in crate::node) fn lease_refuses_promise(&self, now: Time, ballot: Ballot) -> bool {
        let raises = ballot > self.spine.acceptor().promised();
        raises && self.leasing.granter.withholds_promise(now, ballot)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        ballot::Era,
        class::Class,
        configuration::Configuration,
        effect::Effects,
        input::Input,
        lease::LeaseRules,
        message::{Message, Phase2a},
        node::{Options, Recovered},
        slot::{Slot, SlotRange},
        value::Value,
    };

    /// [read-4], [read-8] An acceptor that granted a lease promises another node's ballot at once,
    /// and votes in it when the lease is over, even if it has forgotten the lease.
    #[test]
    fn granter_votes_for_no_other_node() {
        let members = [1, 2, 3].map(Member::first);
        let options = Options {
            member: members[2],
            heartbeat_ms: 20,
            election_min_ms: 100,
            election_max_ms: 200,
            inflight_max: 4,
            window_slots: 64,
            leases: Some(LeaseRules::within_election_timeout(100, 10_000)),
            earlier_lease_us: 0,
            lead_alone_wait_us: 0,
            thrifty: false,
            route: crate::laying::Route::Star,
            seed: 1,
        };
        let founding = Configuration::majority_of(members, Class::Durable).unwrap();
        let mut node = Node::new(options.clone(), Recovered::for_new_node(founding.clone()));
        let mut effects = Effects::default();
        let mut hear = |node: &mut Node, now, from: u32, message| {
            let input = Input::Message { from: Member::first(from), message, bytes_held: true };
            node.step(Time(now), input, &mut effects);
            let _ = effects.drain().count();
            (node.acceptor().promised(), node.acceptor().vote(Slot::FIRST).is_some())
        };
        let ballot = |round, node| Ballot { era: Era(0), round, node: NodeId(node) };
        let beat = Heartbeat {
            ballot: ballot(1, 1),
            decided_to: Slot::FIRST,
            sent_to: Slot::FIRST,
            read_round: 0,
            held_by_all: Slot(0),
            held_by_quorum: Slot(0),
            lease: Lease { requested_at: Time(5), duration_us: 50_000 },
            auxiliary: false,
            clock_ms: 0,
            late_us: 0,
            full_disk: None,
        };
        hear(&mut node, 1_000, 1, Message::Heartbeat(beat));
        let proposal = Message::Phase2a(Phase2a {
            ballot: ballot(2, 2),
            range: SlotRange::one(Slot::FIRST),
            value: Value::NoOp,
            prefix: 0,
            decided_to: Slot::FIRST,
            own_volatile_to: Slot(0),
            own_durable_to: Slot(0),
            with_bytes: false,
        });
        let question = Message::Phase1a { ballot: ballot(2, 2), from: Slot::FIRST };
        assert_eq!(hear(&mut node, 2_000, 2, question), (ballot(2, 2), false));
        assert_eq!(
            hear(&mut node, 50_999, 2, proposal.clone()),
            (ballot(2, 2), false),
            "it granted until then"
        );
        let voted = hear(&mut node, 51_001, 2, proposal.clone());
        assert_eq!(voted, (ballot(2, 2), true), "the lease is over");
        let mut recovered = Recovered::for_new_node(founding);
        recovered.hard_state.promised = ballot(2, 2);
        let mut node = Node::new(Options { earlier_lease_us: 50_000, ..options }, recovered);
        node.step(Time(2_000), Input::Tick, &mut Effects::default());
        assert!(!hear(&mut node, 51_999, 2, proposal.clone()).1, "it may have granted until then");
        assert!(hear(&mut node, 52_001, 2, proposal).1);
    }
}
