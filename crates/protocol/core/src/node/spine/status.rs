//! Read-only accessors of a node: role, configuration, progress.

use alloc::vec::Vec;

use crate::{
    acceptor::{Acceptor, Run},
    ballot::{Ballot, Era},
    class::Class,
    configuration::Configuration,
    effect::Role,
    flow::Peer,
    leader::{Phase1, Phase2, PromiseTargets},
    message::HeldSlots,
    node::{Node, acks::Acks, handover::Handover},
    node_id::NodeId,
    reconfigure::Eras,
    record::{HardState, RecordSeq},
    slot::Slot,
    time::Time,
};

impl Node {
    /// [ballot-1] Returns whether this node has used up its rounds and can never campaign again, in
    /// any era.
    pub fn is_out_of_rounds(&self) -> bool {
        self.spine.rounds.are_used_up()
    }

    /// Returns whether this node is a full replica that may lead: its log works and lacks no slots
    /// ([aux-3]).
    pub(in crate::node) fn may_lead(&self) -> bool {
        let own = self.spine.learner.eras().current().position(self.spine.options.member);
        let auxiliary = |at: usize| self.spine.learner.eras().current().members()[at].auxiliary;
        own.is_some_and(|at| !auxiliary(at))
            && !self.is_auxiliary()
            && !self.is_hollow()
            && !self.spine.pending.has_failed()
            && self.spine.learner.lost_slots().is_empty()
    }

    /// Returns the current role of this node.
    pub fn role(&self) -> Role {
        let configuration = self.spine.learner.eras().current();
        match configuration.position(self.spine.options.member) {
            None => Role::Learner,
            Some(_) if self.spine.phase2.is_some() => Role::Leader,
            Some(_) if self.is_auxiliary() => Role::Auxiliary,
            Some(_) if self.spine.phase1.is_some() || self.spine.election.is_pre_voting() => {
                Role::Candidate
            }
            Some(_) => Role::Follower,
        }
    }

    /// Returns the leader, as far as this node knows.
    pub fn leader(&self) -> Option<NodeId> {
        self.spine.election.leader()
    }

    /// Returns whether a proposal would be accepted now: this node leads, is not handing over
    /// leadership, and has room for the proposal.
    pub fn can_propose(&self) -> bool {
        self.proposal_refusal().is_none() && self.has_room(1)
    }

    /// Returns whether this leader is moving to a new era without a casting vote. It then assigns
    /// no slots until a quorum has replied ([cast-5]).
    pub fn pauses_for_era(&self) -> bool {
        let asks_all = |phase1: &Phase1| phase1.promise_targets == PromiseTargets::AllMembers;
        let leading = self.spine.phase2.as_ref();
        leading.is_some_and(|leading| self.spine.acceptor.promised() > leading.ballot())
            && self.spine.phase1.as_ref().is_some_and(asks_all)
    }

    /// Returns the name of a wing that is in use; `None` if the spine works alone. Ignores the
    /// times and slots that every ballot and heartbeat leaves in a wing. Used to check invariants.
    pub fn wing_in_use(&self) -> Option<&'static str> {
        let unused = [
            ("leasing", self.leasing.is_unused()),
            ("auxiliary", self.auxiliary.is_unused()),
            ("ring", self.ring.is_unused()),
            ("devices", self.devices.is_unused()),
            ("reading", self.reading.is_unused()),
            ("acks", self.acks == Acks::default()),
            ("handover", self.handover == Handover::default()),
        ];
        unused.into_iter().find(|(_, unused)| !unused).map(|(name, _)| name)
    }

    /// Returns whether a device may vote for this node, or assigns slots for it.
    pub fn uses_device(&self) -> bool {
        self.devices.is_in_use()
    }

    /// Returns the ballot in which this node's device votes, as the device reported, and whether
    /// the device assigns slots.
    pub fn device_status(&self) -> (Option<Ballot>, bool) {
        (self.devices.device_ballot(), self.devices.assigns_slots())
    }

    /// Returns whether this node leads and is handing leadership over.
    pub fn is_handing_over(&self) -> bool {
        self.handover.is_in_progress()
    }

    /// Returns the ballot in which this node leads or which it follows.
    pub fn ballot(&self) -> Ballot {
        self.spine.election.leader_ballot().unwrap_or_else(|| self.spine.acceptor.promised())
    }

    /// Returns the era of the first undecided slot.
    pub fn era(&self) -> Era {
        self.spine.learner.eras().era()
    }

    /// Returns the configuration in force at the first undecided slot.
    pub fn configuration(&self) -> &Configuration {
        self.spine.learner.eras().current()
    }

    /// Returns the slot below which everything is decided, with values and bytes on this node.
    pub fn decided_to(&self) -> Slot {
        self.spine.learner.decided_to()
    }

    /// Returns the first slot of the log. A snapshot covers the slots below ([snap-3]).
    pub fn log_start(&self) -> Slot {
        self.spine.learner.log_start()
    }

    /// Returns the eras at `decided_to`. A snapshot must take its eras from the applied prefix
    /// instead ([snap-1]).
    pub fn eras(&self) -> &Eras {
        self.spine.learner.eras()
    }

    /// Returns how much of the log other nodes hold, as far as this node knows. The result never
    /// decreases while the node runs.
    pub fn held_slots(&self) -> HeldSlots {
        self.spine.peers.known_held_slots()
    }

    /// Returns the slot below which everything is decided and held on this node at the group's
    /// class, bytes included.
    pub fn held_to(&self) -> Slot {
        self.capped_held_to(self.spine.learner.holds_to())
    }

    /// Returns `to`, or the slot below which this node has all values at the group's class,
    /// whichever is lower.
    pub(in crate::node) fn capped_held_to(&self, to: Slot) -> Slot {
        let to = self.readable_to().min(to);
        match self.spine.pending.class() {
            Class::Volatile => to,
            Class::Durable => {
                to.min(self.spine.own_votes.durable_to()).min(self.spine.pending.replaced_from())
            }
        }
    }

    /// Returns the slot below which a restart would still find everything that [`Node::held_to`]
    /// covers. It may lag while no records are written.
    pub(super) fn kept_to(&self) -> Slot {
        match self.spine.pending.class() {
            Class::Volatile => self.held_to(),
            Class::Durable => self.held_to().min(self.spine.pending.durable_decided_to()),
        }
    }

    /// Returns the slot below which everything is decided and can be read back, except for bytes of
    /// streams ([here-3]).
    pub(in crate::node) fn readable_to(&self) -> Slot {
        // [trim-1] A hollow node has nothing below the start of its log, and a node that is
        // forgetting slots will soon have nothing there.
        if self.is_hollow() || self.auxiliary.is_trimming() {
            return Slot(0);
        }
        self.spine.learner.readable_to()
    }

    /// Raises the recorded ends of the slots that other nodes hold.
    pub(super) fn note_held(&mut self, held: HeldSlots) {
        self.spine.peers.note_held(held);
    }

    /// Returns the number of slots that the log lost and that have not been learned again. The
    /// first lost value may already have been learned in part.
    pub fn lost_slots(&self) -> u64 {
        self.spine.learner.lost_slots().slots()
    }

    /// Returns the first slot that this node decided, lost, and is learning again, with the number
    /// of unanswered requests for it.
    pub fn relearning_progress(&self) -> Option<(Slot, u32)> {
        let lost = !self.spine.learner.lost_slots().is_empty();
        lost.then(|| (self.spine.learner.decided_to(), self.spine.catchup.unanswered_count()))
    }

    /// Returns the slot below which every slot is known to be decided on some node.
    pub fn known_decided_to(&self) -> Slot {
        self.decided_to().max(self.spine.catchup.target_slot())
    }

    /// Returns the slot below which every slot is decided or voted for, by this node's records on
    /// stable storage.
    pub fn durable_to(&self) -> Slot {
        self.spine.own_votes.durable_to()
    }

    /// Returns the number of the last record on stable storage.
    pub fn persisted_to(&self) -> RecordSeq {
        self.spine.pending.persisted_to()
    }

    /// Returns the acceptor. Used to check invariants.
    pub fn acceptor(&self) -> &Acceptor {
        &self.spine.acceptor
    }

    /// Returns the votes in the newest ballot. Used to check invariants.
    pub fn newest_run(&self) -> &Run {
        self.spine.own_votes.newest_run()
    }

    /// Returns the state of phase 2 while this node leads. Used to check invariants.
    pub fn phase2(&self) -> Option<&Phase2> {
        self.spine.phase2.as_ref()
    }

    /// Returns phase 1 if it is in progress. Used to check invariants.
    pub fn phase1(&self) -> Option<&Phase1> {
        self.spine.phase1.as_ref()
    }

    /// Returns the state that the log restates with each write. The caller must pair it with each
    /// record that it appends.
    ///
    /// [disk-8] For the log, decided slots remain decided even if they are lost, because their
    /// votes are dropped.
    pub fn hard_state(&self) -> HardState {
        HardState {
            last_used_ballot: self.spine.rounds.last_used_ballot(),
            promised: self.spine.acceptor.promised(),
            decided_to: self.spine.pending.restatable_to(self.spine.acceptor.floor()),
            voted_to: self.spine.acceptor.voted_to(),
        }
    }

    /// Returns whether this peer should not lead, as it last reported to this leader.
    pub fn is_unfit(&self, peer: NodeId) -> bool {
        self.spine.peers.peer(peer).is_some_and(|peer| peer.is_unfit)
    }

    /// Returns the slot below which `peer` has decided everything and holds it at the group's
    /// class, as it last reported to this leader.
    pub fn peer_holds_to(&self, peer: NodeId) -> Slot {
        let peer = self.spine.peers.peer(peer);
        peer.map_or(Slot(0), |peer| peer.held_to)
    }

    /// Returns ⟨node, replied within the election timeout, lag⟩ for each peer. The lag is the
    /// number of slots by which the peer's votes trail the leader's proposals. Empty unless this
    /// node leads.
    pub fn follower_lags(&self, now: Time) -> Vec<(NodeId, bool, u64)> {
        let Some(leading) = &self.spine.phase2 else {
            return Vec::new();
        };
        let patience = self.spine.election.leader_silence_max_us();
        let next = leading.tally.next();
        let one = |peer: &Peer| {
            let heard = peer.last_reply_at.is_some_and(|at| now.since_us(at) <= patience);
            let at = peer.voted_to.max(peer.decided_to);
            (peer.member.node, peer.connected && heard, next.0.saturating_sub(at.0))
        };
        self.spine.peers.iter().map(one).collect()
    }

    /// Returns whether this node has neither state nor log below [`Node::log_start`], because it
    /// forgot those slots as an auxiliary. Only a snapshot makes it a replica again.
    pub fn is_hollow(&self) -> bool {
        self.spine.learner.is_hollow()
    }
}
