//! A member's side of its device: armed at a leader's request, fenced before the member's promise
//! rises ([offload-5], [offload-8]–[offload-11]).

use super::Node;
use crate::{
    ballot::Ballot,
    class::Class,
    device::Order,
    effect::{Alarm, Effect, Effects},
    explanation::{Campaign, End, Explanation},
    fence::{Begin, Promise},
    leader::{Asked, Leading},
    message::Message,
    node_id::NodeId,
    record::Record,
    slot::{Slot, SlotRange},
    time::Time,
    value::{Value, range_check},
    voted::Run,
};

/// The device's floor is raised in steps of its cells divided by this number.
pub(super) const FLOOR_PARTS: u64 = 8;

impl Node {
    /// Handles a request of the leader of `ballot` to let this member's device vote in it.
    pub(super) fn on_arm(&mut self, now: Time, from: NodeId, begin: Begin, effects: &mut Effects) {
        let ballot = begin.ballot;
        if self.pending.failed() || ballot.node != from {
            return;
        }
        self.saw(from, ballot);
        let promised = self.acceptor.promised();
        if ballot < promised {
            return effects.send(from, Message::Preempted { ballot, promised });
        }
        self.follow_leader(now, ballot, effects);
        self.fence.note_begin(begin);
        // [offload-5] Positions are a function of the ballot: a node that is not in the ballot's
        // era, or not in its current incarnation, has none.
        let eras = self.learner.eras();
        let known = eras.era() == ballot.era && !self.is_hollow();
        let position = eras.current().position(self.options.member);
        let Some(position) = position.filter(|_| known && self.offload.cells > 0) else {
            return;
        };
        if self.fence.votes_in(ballot) {
            self.extend_run(now, ballot, effects);
            return self.say_armed(ballot, effects);
        }
        if self.fence.armed() == Some(ballot) || self.lease_refuses(now, ballot) {
            return;
        }
        if self.fence.armed().is_some() {
            // The leader repeats its request.
            return self.fence_off(effects);
        }
        if ballot > promised {
            self.promise(ballot, effects);
        }
        let floor = self.device_floor();
        self.fence.arm(ballot, floor);
        let position = u8::try_from(position).unwrap_or(u8::MAX);
        effects.push(Effect::Device(Order::Arm { ballot, position, floor }));
    }

    /// [offload-3], [offload-14] Returns the slot below which this node needs no votes: everything
    /// below is decided, and held at the group's class.
    pub(super) fn device_floor(&self) -> Slot {
        self.safe_to(self.learner.decided_to())
    }

    /// Records that this node's device votes in this ballot.
    pub(super) fn on_armed_here(&mut self, ballot: Ballot, effects: &mut Effects) {
        if self.fence.confirm(ballot) {
            self.say_armed(ballot, effects);
        }
    }

    /// [offload-14] Notifies the leader that the device votes, and of its first cell.
    fn say_armed(&mut self, ballot: Ballot, effects: &mut Effects) {
        let floor = self.fence.floor();
        if ballot.node == self.options.member.node {
            return self.on_armed(self.options.member, ballot, floor);
        }
        effects.send(ballot.node, Message::Armed { ballot, floor });
    }

    /// [offload-14] Releases cells of the device whose votes are no longer needed.
    pub(super) fn raise_device_floor(&mut self, effects: &mut Effects) {
        let Some(ballot) = self.fence.armed() else {
            return;
        };
        let floor = self.device_floor();
        let step = (self.offload.cells / FLOOR_PARTS).max(1);
        if self.fence.is_under_way() || floor < self.fence.floor().plus(step) {
            return;
        }
        self.fence.raise_floor(floor);
        effects.push(Effect::Device(Order::Floor { to: floor }));
        if self.fence.votes_in(ballot) {
            self.say_armed(ballot, effects);
        }
    }

    /// [offload-1], [offload-8] Fences the device: it stops voting, whatever it is sent from now
    /// on, and votes that count are read out.
    pub(super) fn fence_off(&mut self, effects: &mut Effects) {
        if let Some(ballot) = self.fence.begin() {
            // [offload-10] In a durable group only the votes that this node logged count.
            let hint = self.pending.class() == Class::Durable;
            effects.push(Effect::Device(Order::Fence { ballot, hint }));
            self.offload.disarmed(self.options.member);
        }
    }

    /// [offload-8] Returns whether nothing outside this node can vote below this ballot any more.
    /// If the device still might, it is fenced, and whatever needs the promise waits.
    pub(super) fn is_fenced_for(&mut self, ballot: Ballot, effects: &mut Effects) -> bool {
        let holds = self.fence.holds_for(ballot);
        if !holds {
            self.fence_off(effects);
        }
        holds
    }

    /// [offload-8] Makes a promise wait for the fence.
    pub(super) fn wait_for_fence(&mut self, to: NodeId, ballot: Ballot, from: Slot) {
        self.fence.wait_to_promise(Promise { to, ballot, from });
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
        // A late vote is below the promise, or was already read out. A leader votes itself for
        // assigned slots.
        let own = self.leading.as_ref().is_some_and(|leading| leading.ballot() == ballot);
        if self.fence.armed() != Some(ballot) || own {
            return;
        }
        self.import(ballot, slot, value, effects);
        self.extend_run(now, ballot, effects);
    }

    /// [offload-8] Records the votes of a fenced device. It no longer votes, and these are all the
    /// votes it cast in this ballot.
    pub(super) fn on_fenced(
        &mut self,
        now: Time,
        ballot: Ballot,
        votes: &[(Slot, Value)],
        effects: &mut Effects,
    ) {
        if self.fence.armed() != Some(ballot) || !self.fence.is_under_way() {
            return;
        }
        for (slot, value) in votes {
            self.import(ballot, *slot, *value, effects);
        }
        self.extend_run(now, ballot, effects);
        self.fence.end();
        self.go_on(now, effects);
    }

    /// Resumes the promise and the campaign that waited for the fence.
    fn go_on(&mut self, now: Time, effects: &mut Effects) {
        let (promise, campaign) = self.fence.take_waiting();
        if let Some(Promise { to, ballot, from }) = promise {
            self.on_phase1a(now, to, ballot, from, effects);
        }
        // By now another node may lead, or may have requested a promise.
        let free = self.phase1.is_none() && promise.is_none();
        // [live-4] The node that handed over is still the last known leader.
        let led_by_another = |why| {
            let leader = self.election.leader();
            self.leading.is_none() && leader.is_some_and(|by| why != Campaign::HandedOver { by })
        };
        if let Some((asked, why)) = campaign
            && free
            && !led_by_another(why)
            && self.may_lead()
            && self.learner.is_whole()
        {
            self.campaign(asked, why, effects);
        }
    }

    /// [offload-8] Records a vote of the device as this acceptor's. It was cast already, so neither
    /// window nor order limits it.
    fn import(&mut self, ballot: Ballot, slot: Slot, value: Value, effects: &mut Effects) {
        let below = slot < self.acceptor.floor() || ballot < self.acceptor.promised();
        if below || self.pending.failed() || slot == Slot(u64::MAX) {
            return;
        }
        if let Some(vote) = self.acceptor.vote(slot).filter(|v| v.ballot == ballot) {
            if vote.value != value {
                self.alarm(Alarm::ConflictingProposals { ballot, slot }, effects);
            }
            return;
        }
        let range = SlotRange::one(slot);
        let record = Record::Vote { ballot, range, value };
        let record = self.append_about(range, record, effects);
        self.acceptor.cast(ballot, range, value, record);
    }

    /// [offload-2], [offload-8], [offload-10] Extends the reported run by the device's votes, up to
    /// the first gap, in groups where those votes do not count. Where they count, no report is
    /// needed.
    fn extend_run(&mut self, now: Time, ballot: Ballot, effects: &mut Effects) {
        if self.pending.class() == Class::Volatile || self.pending.failed() {
            return;
        }
        let mut run = *self.voted.run();
        let vote_at = |slot| self.acceptor.vote(slot).filter(|vote| vote.ballot == ballot);
        let begun = run.ballot == ballot && run.from < run.to;
        if !begun || vote_at(run.to).is_none() {
            // As with a proposal, everything before it must be decided.
            let decided_to = self.learner.decided_to();
            let begin = self.fence.begin_in(ballot);
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
            self.runs_to(now, run, record, effects);
        }
    }

    /// [offload-11] Records that a coordinator counted a quorum for each of these slots in this
    /// ballot.
    pub(super) fn on_counted(&mut self, ballot: Ballot, range: SlotRange, effects: &mut Effects) {
        if self.pending.class() == Class::Durable {
            // [offload-10] The votes that it counted may be lost in a crash.
            return;
        }
        if let Some(leading) = self.leading.as_mut().filter(|l| l.ballot() == ballot) {
            return leading.tally.note_counted(range);
        }
        self.fence.note_counted(ballot, range);
        self.follow_counted(effects);
    }

    /// [offload-11] Handles a report to a node without a vote that a slot was counted for this
    /// value. The value was proposed in this ballot, so it is recorded like a proposal that a
    /// learner received.
    pub(super) fn on_told(
        &mut self,
        now: Time,
        ballot: Ballot,
        slot: Slot,
        value: Value,
        effects: &mut Effects,
    ) {
        let decided_to = self.learner.decided_to();
        let near = (decided_to..decided_to.plus(self.options.window_slots)).contains(&slot);
        let has_vote = self.learner.eras().current().position(self.options.member);
        if self.pending.class() == Class::Durable || has_vote.is_some() || !near {
            return;
        }
        if ballot < self.acceptor.promised() || self.lease_refuses(now, ballot) {
            return;
        }
        // [offload-8] This node may have had a vote earlier.
        if !self.is_fenced_for(ballot, effects) {
            return;
        }
        self.import(ballot, slot, value, effects);
        self.on_counted(ballot, SlotRange::one(slot), effects);
    }

    /// [offload-11] Decides counted slots in order, and only while the configuration used for
    /// counting is in force.
    pub(super) fn follow_counted(&mut self, effects: &mut Effects) {
        let decided_to = self.learner.decided_to();
        self.fence.drop_counted_below(decided_to);
        let Some((ballot, counted)) = self.fence.counted() else {
            return;
        };
        let to = counted.reaches(decided_to);
        if to > decided_to && self.learner.eras().era() == ballot.era {
            self.follow(ballot, to, effects);
        }
    }

    /// [offload-9] Handles a device that does not respond for now. Its votes still exist, so this
    /// member keeps its incarnation, but promises nothing until they are read out ([offload-8]).
    ///
    /// [offload-12] A leader whose device assigns slots cannot withdraw them either. It hands over
    /// to another member, which finds in phase 1 what a quorum's devices voted for.
    pub(super) fn on_device_late(&mut self, now: Time, effects: &mut Effects) {
        effects.explain(Explanation::DeviceLate);
        self.on_offload(0, effects);
        let ballot = self.leading.as_ref().filter(|_| self.offload.is_out()).map(Leading::ballot);
        let target = self.best_successor().filter(|peer| !peer.unfit);
        if let (Some(ballot), Some(target)) = (ballot, target.map(|peer| peer.member.node)) {
            self.step_down(now, End::DeviceLate, effects);
            effects.send(target, Message::Transfer { ballot });
        }
    }

    /// [offload-9] Handles a device that has lost its state, or cannot be read.
    pub(super) fn on_device_lost(&mut self, now: Time, effects: &mut Effects) {
        self.offload.cells = 0;
        let mut led = None;
        if self.offload.is_out() {
            led = self.leading.as_ref().map(Leading::ballot);
            // [offload-12] The slots it assigned are unknown.
            self.step_down(now, End::DeviceLost, effects);
            self.offload.stage = crate::offload::Stage::Here;
        }
        if self.fence.armed().is_some() {
            self.fence.end();
            if self.pending.class() == Class::Volatile {
                // [volatile-1] Votes that counted are lost: this member neither votes nor promises
                // any more.
                effects.explain(Explanation::DeviceForgot);
                self.on_storage_failed(now, effects);
            } else {
                self.go_on(now, effects);
            }
        }
        if let Some(ballot) = led {
            self.lead_on(ballot, effects);
        }
    }

    /// [offload-12] Continues after this node had to give up its ballot. Followers received its
    /// messages a moment ago and would wait for a timeout. So it leads in another ballot or, if it
    /// may not lead, hands over to the most advanced follower.
    pub(super) fn lead_on(&mut self, ballot: Ballot, effects: &mut Effects) {
        if self.may_lead() {
            return self.campaign(Asked::AllMembers, Campaign::DeviceLost, effects);
        }
        if let Some(target) = self.best_successor().map(|peer| peer.member.node) {
            effects.send(target, Message::Transfer { ballot });
        }
    }
}
