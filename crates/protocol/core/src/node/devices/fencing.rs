//! A member's side of its device: armed at a leader's request, and fenced before the member's
//! promise rises ([offload-5], [offload-8]–[offload-11]).

use crate::{
    acceptor::Run,
    ballot::Ballot,
    class::Class,
    device::DeviceOrder,
    effect::{Alarm, Effect, Effects},
    explanation::{BallotEnd, Campaign, Explanation},
    fence::{RunBegin, WaitingPromise},
    leader::{Phase2, PromiseTargets},
    message::Message,
    node::Node,
    node_id::NodeId,
    record::Record,
    slot::{Slot, SlotRange},
    time::Time,
    value::{Value, range_check},
};

/// Number of equal steps in which the device's floor advances over all of its cells.
pub(super) const FLOOR_PARTS: u64 = 8;

impl Node {
    /// Handles a request by the leader of `ballot` to let this member's device vote in it.
    pub(in crate::node) fn on_arm(
        &mut self,
        now: Time,
        from: NodeId,
        begin: RunBegin,
        effects: &mut Effects,
    ) {
        let ballot = begin.ballot;
        if self.spine.pending().has_failed() || ballot.node != from {
            return;
        }
        self.record_ballot(from, ballot);
        let promised = self.spine.acceptor().promised();
        if ballot < promised {
            return effects.send(from, Message::Preempted { ballot, promised });
        }
        self.follow_leader(now, ballot, effects);
        self.devices.fence.note_run_begin(begin);
        // [offload-5] Positions are a function of the ballot. A node that is not in the ballot's
        // era, or not in its current incarnation, has no position.
        let eras = self.spine.learner().eras();
        let known = eras.era() == ballot.era && !self.is_hollow();
        let position = eras.current().position(self.spine.options().member);
        let Some(position) = position.filter(|_| known && self.devices.offload.cells > 0) else {
            return;
        };
        if self.devices.fence.device_votes_in(ballot) {
            self.extend_run(now, ballot, effects);
            return self.send_armed(ballot, effects);
        }
        if self.devices.fence.armed_ballot() == Some(ballot) || self.lease_refuses_vote(now, ballot)
        {
            return;
        }
        if self.devices.fence.armed_ballot().is_some() {
            // The leader repeats its request.
            return self.fence_device(effects);
        }
        if ballot > promised {
            self.promise(ballot, effects);
        }
        let floor = self.device_floor();
        self.devices.fence.arm(ballot, floor);
        let position = u8::try_from(position).unwrap_or(u8::MAX);
        effects.push(Effect::Device(DeviceOrder::Arm { ballot, position, floor }));
    }

    /// [offload-3], [offload-14] Returns the slot below which this node needs no votes, because
    /// every such slot is decided, and held at the group's class.
    fn device_floor(&self) -> Slot {
        self.capped_held_to(self.spine.learner().decided_to())
    }

    /// Records that this node's device votes in this ballot.
    pub(super) fn on_own_device_armed(&mut self, ballot: Ballot, effects: &mut Effects) {
        if self.devices.fence.confirm(ballot) {
            self.send_armed(ballot, effects);
        }
    }

    /// [offload-14] Notifies the leader that the device votes, and of the slot at which the
    /// device's cells begin.
    fn send_armed(&mut self, ballot: Ballot, effects: &mut Effects) {
        let floor = self.devices.fence.floor();
        if ballot.node == self.spine.options().member.node {
            return self.on_armed(self.spine.options().member, ballot, floor);
        }
        effects.send(ballot.node, Message::Armed { ballot, floor });
    }

    /// [offload-14] Releases cells of the device whose votes are no longer needed.
    pub(in crate::node) fn raise_device_floor(&mut self, effects: &mut Effects) {
        let Some(ballot) = self.devices.fence.armed_ballot() else {
            return;
        };
        let floor = self.device_floor();
        let step = (self.devices.offload.cells / FLOOR_PARTS).max(1);
        if self.devices.fence.is_in_flight() || floor < self.devices.fence.floor().plus(step) {
            return;
        }
        self.devices.fence.raise_floor(floor);
        effects.push(Effect::Device(DeviceOrder::RaiseFloor { floor }));
        if self.devices.fence.device_votes_in(ballot) {
            self.send_armed(ballot, effects);
        }
    }

    /// [offload-1], [offload-8] Fences the device. It stops voting, regardless of which messages it
    /// receives from now on, and the votes that count are read out.
    pub(in crate::node) fn fence_device(&mut self, effects: &mut Effects) {
        if let Some(ballot) = self.devices.fence.begin_fence() {
            // [offload-10] In a durable group only the votes that this node logged count.
            let hint = self.spine.pending().class() == Class::Durable;
            effects.push(Effect::Device(DeviceOrder::Fence { ballot, hint }));
            self.devices.offload.record_disarmed(self.spine.options().member);
        }
    }

    /// [offload-8] Returns whether votes below this ballot can no longer be cast outside this node.
    /// If the device could still cast one, it is fenced, and every step that needs the promise
    /// waits.
    pub(in crate::node) fn is_fenced_for(&mut self, ballot: Ballot, effects: &mut Effects) -> bool {
        let holds = self.devices.fence.is_fenced_for(ballot);
        if !holds {
            self.fence_device(effects);
        }
        holds
    }

    /// [offload-8] Makes a promise wait for the fence.
    pub(in crate::node) fn wait_for_fence(&mut self, to: NodeId, ballot: Ballot, from: Slot) {
        self.devices.fence.wait_to_promise(WaitingPromise { to, ballot, from });
    }

    /// Records a vote of the device as this acceptor's vote.
    pub(super) fn on_voted(
        &mut self,
        now: Time,
        ballot: Ballot,
        slot: Slot,
        value: Value,
        effects: &mut Effects,
    ) {
        // A late vote is below the promise, or was already read out. A leader itself votes for the
        // slots that the device assigned.
        let own = self.spine.phase2().is_some_and(|leading| leading.ballot() == ballot);
        if self.devices.fence.armed_ballot() != Some(ballot) || own {
            return;
        }
        self.import_device_vote(ballot, slot, value, effects);
        self.extend_run(now, ballot, effects);
    }

    /// [offload-8] Records the votes of a fenced device. The device no longer votes, and `votes`
    /// holds all votes that it cast in this ballot.
    pub(super) fn on_fenced(
        &mut self,
        now: Time,
        ballot: Ballot,
        votes: &[(Slot, Value)],
        effects: &mut Effects,
    ) {
        if self.devices.fence.armed_ballot() != Some(ballot) || !self.devices.fence.is_in_flight() {
            return;
        }
        for (slot, value) in votes {
            self.import_device_vote(ballot, *slot, *value, effects);
        }
        self.extend_run(now, ballot, effects);
        self.devices.fence.end_fence();
        self.resume_waiting(now, effects);
    }

    /// Resumes the promise and the campaign that waited for the fence.
    fn resume_waiting(&mut self, now: Time, effects: &mut Effects) {
        let (promise, campaign) = self.devices.fence.take_waiting();
        if let Some(WaitingPromise { to, ballot, from }) = promise {
            self.on_phase1a(now, to, ballot, from, effects);
        }
        // In the meantime another node may have become leader or requested a promise.
        let free = self.spine.phase1().is_none() && promise.is_none();
        // [live-4] The node that handed over is still the last known leader.
        let led_by_another = |why| {
            let leader = self.spine.election().leader();
            self.spine.phase2().is_none()
                && leader.is_some_and(|by| why != Campaign::HandedOver { by })
        };
        if let Some((asked, why)) = campaign
            && free
            && !led_by_another(why)
            && self.may_lead()
            && self.spine.learner().is_all_readable()
        {
            self.campaign(asked, why, effects);
        }
    }

    /// [offload-8] Records a vote of the device as this acceptor's. The vote has already been cast,
    /// so neither window nor order limits it.
    fn import_device_vote(
        &mut self,
        ballot: Ballot,
        slot: Slot,
        value: Value,
        effects: &mut Effects,
    ) {
        let below =
            slot < self.spine.acceptor().floor() || ballot < self.spine.acceptor().promised();
        if below || self.spine.pending().has_failed() || slot == Slot(u64::MAX) {
            return;
        }
        if let Some(vote) = self.spine.acceptor().vote(slot).filter(|v| v.ballot == ballot) {
            if vote.value != value {
                self.alarm(Alarm::ConflictingProposals { ballot, slot }, effects);
            }
            return;
        }
        let range = SlotRange::one(slot);
        let record = Record::Vote { ballot, range, value };
        let record = self.append_about(range, record, effects);
        self.spine.import_vote(ballot, range, value, record);
    }

    /// [offload-2], [offload-8], [offload-10] Extends the reported run by the device's votes, up to
    /// the first gap. This applies to groups in which the votes of devices do not count. Where they
    /// count, no report is needed.
    fn extend_run(&mut self, now: Time, ballot: Ballot, effects: &mut Effects) {
        if self.spine.pending().class() == Class::Volatile || self.spine.pending().has_failed() {
            return;
        }
        let mut run = *self.spine.own_votes().newest_run();
        let vote_at = |slot| self.spine.acceptor().vote(slot).filter(|vote| vote.ballot == ballot);
        let begun = run.ballot == ballot && run.from < run.to;
        if !begun || vote_at(run.to).is_none() {
            // As with a proposal, every earlier slot must be decided.
            let decided_to = self.spine.learner().decided_to();
            let begin = self.devices.fence.run_begin_in(ballot);
            let begin = begin.filter(|begin| begin.slot <= decided_to);
            let Some(begin) = begin.filter(|begin| !begun || begin.slot > run.to) else {
                return;
            };
            run = Run { ballot, from: begin.slot, to: begin.slot, check: begin.prefix };
        }
        let mut record = None;
        while let Some(vote) = vote_at(run.to) {
            let range = SlotRange::new(run.to, vote.range.to);
            run.check = run.check.wrapping_add(range_check(range, &vote.value));
            run.to = range.to;
            record = record.max(Some(vote.record));
        }
        if let Some(record) = record {
            self.record_run(now, run, record, effects);
        }
    }

    /// [offload-11] Records that a coordinator counted a quorum for each slot in `range`, in
    /// `ballot`.
    pub(super) fn on_counted(&mut self, ballot: Ballot, range: SlotRange, effects: &mut Effects) {
        if self.spine.pending().class() == Class::Durable {
            // [offload-10] The counted votes may be lost in a crash.
            return;
        }
        if self.spine.note_counted(ballot, range) {
            return;
        }
        self.devices.fence.note_counted(ballot, range);
        self.decide_device_counted(effects);
    }

    /// [offload-11] Handles a report that a quorum voted for a value in a slot, sent to a node
    /// without a vote. The value was proposed in the reported ballot, so it is recorded in the same
    /// way as a proposal that a learner received.
    pub(super) fn on_counted_value(
        &mut self,
        now: Time,
        ballot: Ballot,
        slot: Slot,
        value: Value,
        effects: &mut Effects,
    ) {
        let decided_to = self.spine.learner().decided_to();
        let near = (decided_to..decided_to.plus(self.spine.options().window_slots)).contains(&slot);
        let has_vote = self.spine.learner().eras().current().position(self.spine.options().member);
        if self.spine.pending().class() == Class::Durable || has_vote.is_some() || !near {
            return;
        }
        if ballot < self.spine.acceptor().promised() || self.lease_refuses_vote(now, ballot) {
            return;
        }
        // [offload-8] This node may have had a vote earlier.
        if !self.is_fenced_for(ballot, effects) {
            return;
        }
        self.import_device_vote(ballot, slot, value, effects);
        self.on_counted(ballot, SlotRange::one(slot), effects);
    }

    /// [offload-11] Decides counted slots in order, and only while the configuration used for
    /// counting is in force.
    pub(in crate::node) fn decide_device_counted(&mut self, effects: &mut Effects) {
        let decided_to = self.spine.learner().decided_to();
        self.devices.fence.drop_counted_below(decided_to);
        let Some((ballot, counted)) = self.devices.fence.counted_slots() else {
            return;
        };
        let to = counted.contiguous_end(decided_to);
        if to > decided_to && self.spine.learner().eras().era() == ballot.era {
            self.decide_reported(ballot, to, effects);
        }
    }

    /// [offload-9] Handles a device that does not respond at the moment. Its votes still exist, so
    /// this member keeps its incarnation, but promises nothing until they are read out
    /// ([offload-8]).
    ///
    /// [offload-12] A leader whose device assigns slots cannot withdraw them either. It hands over
    /// to another member, which finds in phase 1 the values that a quorum's devices voted for.
    pub(super) fn on_device_late(&mut self, now: Time, effects: &mut Effects) {
        effects.explain(Explanation::DeviceLate);
        self.on_offload(0, effects);
        let ballot =
            self.spine.phase2().filter(|_| self.devices.offload.is_active()).map(Phase2::ballot);
        let target = self.best_successor().filter(|peer| !peer.is_unfit);
        if let (Some(ballot), Some(target)) = (ballot, target.map(|peer| peer.member.node)) {
            self.step_down(now, BallotEnd::DeviceLate, effects);
            effects.send(target, Message::Transfer { ballot });
        }
    }

    /// [offload-9] Handles a device that has lost its state, or cannot be read.
    pub(super) fn on_device_lost(&mut self, now: Time, effects: &mut Effects) {
        self.devices.offload.cells = 0;
        let mut led = None;
        if self.devices.offload.is_active() {
            led = self.spine.phase2().map(Phase2::ballot);
            // [offload-12] The slots that the device assigned are unknown.
            self.step_down(now, BallotEnd::DeviceLost, effects);
            self.devices.offload.stage = crate::offload::AssignmentStage::OnNode;
        }
        if self.devices.fence.armed_ballot().is_some() {
            self.devices.fence.end_fence();
            if self.spine.pending().class() == Class::Volatile {
                // [volatile-1] Votes that counted are lost, so this member no longer votes or makes
                // promises.
                effects.explain(Explanation::DeviceForgot);
                self.on_storage_failed(now, effects);
            } else {
                self.resume_waiting(now, effects);
            }
        }
        if let Some(ballot) = led {
            self.regain_leadership(ballot, effects);
        }
    }

    /// [offload-12] Restores leadership after this node had to give up its ballot: it campaigns in
    /// another one or, if it may not lead, hands over to the most advanced follower. Followers
    /// received the leader's messages a moment ago and would otherwise wait for a timeout.
    pub(in crate::node) fn regain_leadership(&mut self, ballot: Ballot, effects: &mut Effects) {
        if self.may_lead() {
            return self.campaign(PromiseTargets::AllMembers, Campaign::DeviceLost, effects);
        }
        if let Some(target) = self.best_successor().map(|peer| peer.member.node) {
            effects.send(target, Message::Transfer { ballot });
        }
    }
}
