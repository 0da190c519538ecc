//! Phase 2 in devices, from the leader's side: hands phase 2 of its ballot to devices, and
//! withdraws it ([offload-5], [offload-10]–[offload-15], [offload-18]).

use alloc::vec::Vec;

use super::fencing::FLOOR_PARTS;
use crate::{
    ballot::Ballot,
    class::Class,
    device::{DeviceOrder, DeviceReport},
    effect::{Effect, Effects, Refusal},
    explanation::Explanation,
    fence::RunBegin,
    leader::{Phase2, member_set_of},
    message::Message,
    node::Node,
    node_id::Member,
    offload::AssignmentStage,
    quorum::Phase,
    reads::Reader,
    slot::Slot,
    time::Time,
    value::Value,
};

/// Number of heartbeat intervals without a decision, while proposals are outstanding, after which
/// the leader stops using devices for a while.
const STUCK_HEARTBEATS: u64 = 3;
/// Number of heartbeat intervals for which devices remain unused after they were stuck.
const DEVICE_REST_HEARTBEATS: u64 = 25;

impl Node {
    /// Handles a report from this node's device.
    pub(in crate::node) fn on_device_report(
        &mut self,
        now: Time,
        word: DeviceReport,
        effects: &mut Effects,
    ) {
        match word {
            DeviceReport::Armed { ballot } => self.on_own_device_armed(ballot, effects),
            DeviceReport::Voted { ballot, slot, value } => {
                self.on_voted(now, ballot, slot, value, effects)
            }
            DeviceReport::Fenced { ballot, votes } => self.on_fenced(now, ballot, &votes, effects),
            DeviceReport::Started { ballot } => {
                if self.devices.offload.stage == AssignmentStage::Starting(ballot) {
                    self.devices.offload.stage = AssignmentStage::OnDevice(ballot);
                }
            }
            DeviceReport::Assigned { ballot, slot, value } => {
                self.on_assigned(now, ballot, slot, value, effects)
            }
            DeviceReport::Counted { ballot, range } => self.on_counted(ballot, range, effects),
            DeviceReport::CountedValue { ballot, slot, value } => {
                self.on_counted_value(now, ballot, slot, value, effects)
            }
            DeviceReport::TakenBack { ballot, from, assigned: rest } => {
                self.on_taken_back(now, ballot, from, &rest, effects);
            }
            DeviceReport::Stopped { ballot } => self.on_stopped(now, ballot, effects),
            DeviceReport::NextSlot { slot } => self.on_next_slot(slot, effects),
            DeviceReport::Late => self.on_device_late(now, effects),
            DeviceReport::Lost => self.on_device_lost(now, effects),
        }
    }

    /// Sets the number of slots for which the device has room. If it is 0, no device is used, and
    /// the device's work is withdrawn.
    pub(in crate::node) fn on_offload(&mut self, cells: u64, effects: &mut Effects) {
        self.devices.offload.cells = cells;
        if cells == 0 {
            self.take_back(effects);
            self.fence_device(effects);
        }
    }

    /// Records that a member's device votes in a ballot of this node.
    pub(in crate::node) fn on_armed(&mut self, from: Member, ballot: Ballot, floor: Slot) {
        if self.leads_in(ballot) {
            self.devices.offload.note_armed(from, floor);
        }
    }

    fn leads_in(&self, ballot: Ballot) -> bool {
        self.spine.phase2().map(Phase2::ballot) == Some(ballot)
    }

    /// [offload-5] Returns whether devices may be used in the current ballot. The ballot needs a
    /// single configuration of the form "any q of n", and nothing in progress that would end the
    /// ballot.
    fn may_offload(&self) -> bool {
        let Some(leading) = self.spine.phase2() else {
            return false;
        };
        let ballot = leading.ballot();
        let eras = self.spine.learner().eras();
        let change = |value: &Value| matches!(value, Value::Reconfigure { .. });
        let steady = ballot.era == eras.era()
            && leading.previous_tally.is_none()
            && !leading.tally.proposals().any(|p| change(&p.value))
            && self.spine.phase1().is_none()
            && !self.handover.is_in_progress()
            && self.spine.acceptor().promised() == ballot;
        // [offload-16] Numbers that do not fit into a frame are refused, never truncated.
        let fits = ballot.era.0 <= u16::MAX.into() && ballot.node.0 <= u16::MAX.into();
        let plain = eras.current().q_of_n().is_some() && !self.spine.options().thrifty;
        self.devices.offload.cells > 0
            && steady
            && fits
            && plain
            && !self.spine.pending().has_failed()
    }

    /// Returns whether the members whose devices vote in this leader's ballot form a phase-2
    /// quorum.
    fn has_quorum_armed(&self) -> bool {
        let own = self.spine.options().member;
        let there = |member: &Member| {
            *member == own
                || self
                    .spine
                    .peers()
                    .peer(member.node)
                    .is_some_and(|peer| peer.connected && peer.member == *member)
        };
        let armed = self.devices.offload.armed_members().iter().map(|(member, _)| *member);
        let armed: Vec<Member> = armed.filter(there).collect();
        let configuration = self.spine.learner().eras().current();
        configuration.is_quorum(Phase::Two, member_set_of(configuration, &armed))
    }

    /// At each heartbeat, asks members to let their devices vote, and starts this node's device
    /// once enough members have done so.
    pub(in crate::node) fn offload(&mut self, now: Time, effects: &mut Effects) {
        if self.devices.offload.cells == 0 {
            return;
        }
        let may = self.may_offload() && now >= self.devices.offload.rests_until;
        let decided_to = self.spine.learner().decided_to();
        let open = self.spine.phase2().is_some_and(|leading| !leading.tally.is_empty());
        // [offload-19] A device that assigns no slots makes no progress either.
        let open =
            open || (self.devices.offload.is_active() && self.devices.offload.unassigned_count > 0);
        let stuck_us = STUCK_HEARTBEATS * self.spine.options().heartbeat_ms * 1000;
        let stuck = self.devices.offload.is_stuck(now, decided_to, open, stuck_us);
        match self.devices.offload.stage {
            AssignmentStage::OnNode if may && self.has_quorum_armed() => self.start_device(effects),
            AssignmentStage::OnDevice(_) | AssignmentStage::Starting(_)
                if !may || stuck || !self.has_quorum_armed() =>
            {
                self.take_back(effects);
            }
            AssignmentStage::OnNode
            | AssignmentStage::Starting(_)
            | AssignmentStage::OnDevice(_)
            | AssignmentStage::TakingBack(_)
            | AssignmentStage::Stopping(_) => {}
        }
        if may {
            self.ask_to_arm(now, effects);
        }
    }

    fn ask_to_arm(&mut self, now: Time, effects: &mut Effects) {
        let Some(leading) = self.spine.phase2() else { return };
        let slot = self.spine.learner().decided_to();
        let Some(prefix) = leading.tally.prefix_at(slot) else {
            return;
        };
        let begin = RunBegin { ballot: leading.ballot(), slot, prefix };
        let message = Message::Arm { ballot: begin.ballot, slot, prefix };
        effects.send_all(self.spine.peers().connected(), &message);
        self.on_arm(now, self.spine.options().member.node, begin, effects);
    }

    /// [offload-5] Starts the device. Until the device is withdrawn, only it assigns slots of this
    /// ballot.
    fn start_device(&mut self, effects: &mut Effects) {
        let Some(leading) = self.spine.phase2() else { return };
        let (ballot, first) = (leading.ballot(), leading.tally.next());
        let Some((quorum, members)) = self.spine.learner().eras().current().q_of_n() else {
            return;
        };
        let limit = self.assignment_limit(first);
        self.devices.offload.assignment_limit = limit;
        self.devices.offload.unassigned_count = 0;
        self.devices.offload.stage = AssignmentStage::Starting(ballot);
        let hint = self.spine.pending().class() == Class::Durable;
        effects.push(Effect::Device(DeviceOrder::Start {
            ballot,
            first,
            limit,
            quorum,
            members,
            hint,
        }));
        effects.explain(Explanation::Offloads { ballot });
    }

    /// [offload-14] Returns the first slot that may not be assigned yet. It is limited by the cells
    /// of a quorum's devices, the cells of this node's device, the window, and the number of
    /// proposals in flight.
    fn assignment_limit(&self, floor: Slot) -> Slot {
        let cells = self.devices.offload.cells;
        let armed = self.devices.offload.armed_members();
        let configuration = self.spine.learner().eras().current();
        let of_quorum = configuration.reached_by_quorum(Phase::Two, |voter| {
            let armed = armed.iter().find(|(member, _)| *member == voter.member);
            armed.map_or(Slot(0), |(_, floor)| floor.plus(cells))
        });
        let decided_to = self.spine.learner().decided_to();
        let bounds = [
            floor.plus(cells),
            decided_to.plus(self.spine.options().window_slots),
            decided_to.plus(self.spine.options().inflight_max as u64),
        ];
        bounds.into_iter().fold(of_quorum, Slot::min)
    }

    /// [offload-14] Lets the device assign more slots.
    pub(in crate::node) fn allow_more_slots(&mut self, effects: &mut Effects) {
        let (AssignmentStage::OnDevice(ballot), Some(leading)) =
            (self.devices.offload.stage, self.spine.phase2())
        else {
            return;
        };
        if leading.ballot() != ballot {
            return;
        }
        let floor = self.spine.learner().decided_to().min(leading.tally.next());
        let limit = self.assignment_limit(floor);
        let step = (self.devices.offload.cells / FLOOR_PARTS).max(1);
        let short = leading.tally.next().plus(step) > self.devices.offload.assignment_limit;
        if limit >= self.devices.offload.assignment_limit.plus(step)
            || (short && limit > self.devices.offload.assignment_limit)
        {
            self.devices.offload.assignment_limit = limit;
            effects.push(Effect::Device(DeviceOrder::AllowSlots { floor, limit }));
        }
    }

    /// [offload-12] Moves slot assignment back to this node. This completes once the device has
    /// been read out.
    pub(in crate::node) fn take_back(&mut self, effects: &mut Effects) {
        if let AssignmentStage::OnDevice(ballot) | AssignmentStage::Starting(ballot) =
            self.devices.offload.stage
        {
            self.devices.offload.stage = AssignmentStage::TakingBack(ballot);
            effects.push(Effect::Device(DeviceOrder::TakeBack { ballot }));
        }
    }

    /// [offload-12] Stops the device because this node no longer leads. The device must have
    /// stopped before the node leads again.
    pub(in crate::node) fn stop_device(&mut self, effects: &mut Effects) {
        for reader in self.devices.offload.take_waiting_reads() {
            if let Reader::Local(token) = reader {
                effects.push(Effect::ReadFailed { token });
            }
        }
        if let AssignmentStage::OnDevice(ballot)
        | AssignmentStage::Starting(ballot)
        | AssignmentStage::TakingBack(ballot) = self.devices.offload.stage
        {
            self.devices.offload.stage = AssignmentStage::Stopping(ballot);
            effects.push(Effect::Device(DeviceOrder::Stop { ballot }));
        }
    }

    /// Passes a value to the device instead of proposing it on this node. Returns the reason for
    /// refusing the value, if it is refused.
    pub(in crate::node) fn submit_to_device(
        &mut self,
        value: Value,
        slots: u64,
        effects: &mut Effects,
    ) -> Option<Refusal> {
        match self.devices.offload.stage {
            AssignmentStage::TakingBack(_)
            | AssignmentStage::Stopping(_)
            | AssignmentStage::OnNode => Some(Refusal::Busy),
            AssignmentStage::OnDevice(_) | AssignmentStage::Starting(_) => {
                // [offload-13], [offload-15] Devices do not carry this value. The node proposes it
                // once the node assigns slots again.
                let carried = slots == 1
                    && !matches!(
                        value,
                        Value::Reconfigure { .. } | Value::Content { .. } | Value::Raise { .. }
                    );
                if !carried {
                    self.take_back(effects);
                    return Some(Refusal::Busy);
                }
                self.devices.offload.unassigned_count += 1;
                effects.push(Effect::Device(DeviceOrder::Submit { value }));
                None
            }
        }
    }

    /// [offload-10] Adopts a slot that the device assigned as this leader's proposal.
    fn on_assigned(
        &mut self,
        now: Time,
        ballot: Ballot,
        slot: Slot,
        value: Value,
        effects: &mut Effects,
    ) {
        let next = self.spine.phase2().map(|leading| leading.tally.next());
        let out = matches!(self.devices.offload.stage, AssignmentStage::OnDevice(b) | AssignmentStage::Starting(b) | AssignmentStage::TakingBack(b) if b == ballot);
        if !self.leads_in(ballot) || !out || next != Some(slot) {
            return;
        }
        self.devices.offload.unassigned_count =
            self.devices.offload.unassigned_count.saturating_sub(1);
        self.adopt_assigned(now, value, effects);
    }

    fn adopt_assigned(&mut self, now: Time, value: Value, effects: &mut Effects) {
        let own = self.spine.options().member.node;
        self.propose(now, value, 1, true, own, effects);
        let next = self.spine.phase2().map(|leading| leading.tally.next());
        while let Some((from, vote)) =
            next.and_then(|next| self.devices.offload.next_early_vote(next))
        {
            self.on_phase2b(from, vote, effects);
        }
    }

    /// [offload-12] Handles the end of the device's assignments. Values are stored before frames
    /// are sent, so nothing was ever sent for a slot without a value.
    fn on_taken_back(
        &mut self,
        now: Time,
        ballot: Ballot,
        from: Slot,
        rest: &[Option<Value>],
        effects: &mut Effects,
    ) {
        if self.devices.offload.stage != AssignmentStage::TakingBack(ballot)
            || !self.leads_in(ballot)
        {
            return self.on_stopped(now, ballot, effects);
        }
        let mut at = from;
        for value in rest {
            let next = self.spine.phase2().map(|leading| leading.tally.next());
            if next == Some(at) {
                self.adopt_assigned(now, value.unwrap_or(Value::NoOp), effects);
            }
            at = at.next();
        }
        effects.explain(Explanation::TakesBack { ballot });
        // Leave time for the cause of the withdrawal to pass.
        self.devices.offload.rests_until =
            now.plus_ms(DEVICE_REST_HEARTBEATS * self.spine.options().heartbeat_ms);
        self.resume_assigning(effects);
    }

    /// Lets this node assign slots again. Members that received proposals only through their
    /// devices now receive them from this node.
    fn resume_assigning(&mut self, effects: &mut Effects) {
        self.devices.offload.stage = AssignmentStage::OnNode;
        let next = self.spine.phase2().map(|leading| leading.tally.next());
        let next = next.unwrap_or_default();
        for reader in self.devices.offload.take_waiting_reads() {
            let _ = self.reading.add_read(reader, next);
        }
        for node in self.spine.rewind_peers_to_votes() {
            self.resend(node, effects);
        }
    }

    fn on_stopped(&mut self, now: Time, ballot: Ballot, effects: &mut Effects) {
        match self.devices.offload.stage {
            AssignmentStage::Stopping(stopped) if stopped == ballot => {
                self.devices.offload.stage = AssignmentStage::OnNode
            }
            // The device could not start, or was withdrawn before it started, so it assigned no
            // slots.
            AssignmentStage::Starting(started) | AssignmentStage::TakingBack(started)
                if started == ballot && self.leads_in(ballot) =>
            {
                self.devices.offload.rests_until =
                    now.plus_ms(DEVICE_REST_HEARTBEATS * self.spine.options().heartbeat_ms);
                self.resume_assigning(effects);
            }
            AssignmentStage::OnNode
            | AssignmentStage::Starting(_)
            | AssignmentStage::OnDevice(_)
            | AssignmentStage::TakingBack(_)
            | AssignmentStage::Stopping(_) => {}
        }
    }

    /// [offload-18] Asks the device for the index of a read, because only the device knows it while
    /// it assigns slots. Returns `false` if too many reads wait.
    pub(in crate::node) fn query_next_slot(
        &mut self,
        reader: Reader,
        effects: &mut Effects,
    ) -> bool {
        if self.devices.offload.waiting_read_count() >= crate::reads::WAITING_READS_MAX {
            return false;
        }
        if self.devices.offload.queue_read(reader) {
            effects.push(Effect::Device(DeviceOrder::QueryNextSlot));
        }
        true
    }

    fn on_next_slot(&mut self, slot: Option<Slot>, effects: &mut Effects) {
        let (readers, again) = self.devices.offload.on_next_slot();
        if again {
            effects.push(Effect::Device(DeviceOrder::QueryNextSlot));
        }
        let next = self.spine.phase2().map(|leading| leading.tally.next());
        for reader in readers {
            let index = slot.zip(next).map(|(slot, next)| slot.max(next));
            let taken = index.is_some_and(|index| self.reading.add_read(reader, index));
            if let (Reader::Local(token), false) = (reader, taken) {
                effects.push(Effect::ReadFailed { token });
            }
        }
    }
}
