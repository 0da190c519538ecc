//! Phase 2 in devices, from the leader's side: hands phase 2 of its ballot to devices, and
//! withdraws it ([offload-5], [offload-10]–[offload-15], [offload-18]).

use alloc::vec::Vec;

use super::fencing::FLOOR_PARTS;
use crate::{
    ballot::Ballot,
    class::Class,
    device::{DeviceReport, Order},
    effect::{Effect, Effects, Refusal},
    explanation::Explanation,
    fence::Begin,
    leader::{Leading, set_of},
    message::Message,
    node::Node,
    node_id::Member,
    offload::Stage,
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
const REST_HEARTBEATS: u64 = 25;

impl Node {
    /// Handles a report from this node's device.
    pub(in crate::node) fn on_device_report(
        &mut self,
        now: Time,
        word: DeviceReport,
        effects: &mut Effects,
    ) {
        match word {
            DeviceReport::Armed { ballot } => self.on_armed_here(ballot, effects),
            DeviceReport::Voted { ballot, slot, value } => {
                self.on_voted(now, ballot, slot, value, effects)
            }
            DeviceReport::Fenced { ballot, votes } => self.on_fenced(now, ballot, &votes, effects),
            DeviceReport::Started { ballot } => {
                if self.devices.offload.stage == Stage::Starting(ballot) {
                    self.devices.offload.stage = Stage::There(ballot);
                }
            }
            DeviceReport::Given { ballot, slot, value } => {
                self.on_given(now, ballot, slot, value, effects)
            }
            DeviceReport::Counted { ballot, range } => self.on_counted(ballot, range, effects),
            DeviceReport::CountedValue { ballot, slot, value } => {
                self.on_told(now, ballot, slot, value, effects)
            }
            DeviceReport::TakenBack { ballot, from, rest } => {
                self.on_taken_back(now, ballot, from, &rest, effects);
            }
            DeviceReport::Stopped { ballot } => self.on_stopped(now, ballot, effects),
            DeviceReport::Next { slot } => self.on_next(slot, effects),
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
            self.fence_off(effects);
        }
    }

    /// Records that a member's device votes in a ballot of this node.
    pub(in crate::node) fn on_armed(&mut self, from: Member, ballot: Ballot, floor: Slot) {
        if self.leads_in(ballot) {
            self.devices.offload.note_armed(from, floor);
        }
    }

    fn leads_in(&self, ballot: Ballot) -> bool {
        self.spine.leading().map(Leading::ballot) == Some(ballot)
    }

    /// [offload-5] Returns whether devices may be used in the current ballot. The ballot needs a
    /// single configuration of the form "any q of n", and nothing in progress that would end the
    /// ballot.
    fn may_offload(&self) -> bool {
        let Some(leading) = self.spine.leading() else {
            return false;
        };
        let ballot = leading.ballot();
        let eras = self.spine.learner().eras();
        let change = |value: &Value| matches!(value, Value::Reconfigure { .. });
        let steady = ballot.era == eras.era()
            && leading.before.is_none()
            && !leading.tally.proposals().any(|p| change(&p.value))
            && self.spine.phase1().is_none()
            && !self.handover.is_in_progress()
            && self.spine.acceptor().promised() == ballot;
        // [offload-16] Numbers that do not fit into a frame are refused, never truncated.
        let fits = ballot.era.0 <= u16::MAX.into() && ballot.node.0 <= u16::MAX.into();
        let plain = eras.current().any_of().is_some() && !self.spine.options().thrifty;
        self.devices.offload.cells > 0 && steady && fits && plain && !self.spine.pending().failed()
    }

    /// Returns whether the members whose devices vote in this leader's ballot form a phase-2
    /// quorum.
    fn enough_armed(&self) -> bool {
        let own = self.spine.options().member;
        let there = |member: &Member| {
            *member == own
                || self
                    .spine
                    .peers()
                    .peer(member.node)
                    .is_some_and(|peer| peer.connected && peer.member == *member)
        };
        let armed = self.devices.offload.armed().iter().map(|(member, _)| *member);
        let armed: Vec<Member> = armed.filter(there).collect();
        let configuration = self.spine.learner().eras().current();
        configuration.is_quorum(Phase::Two, set_of(configuration, &armed))
    }

    /// At each heartbeat, asks members to let their devices vote, and starts this node's device
    /// once enough members have done so.
    pub(in crate::node) fn offload(&mut self, now: Time, effects: &mut Effects) {
        if self.devices.offload.cells == 0 {
            return;
        }
        let may = self.may_offload() && now >= self.devices.offload.rests_until;
        let decided_to = self.spine.learner().decided_to();
        let open = self.spine.leading().is_some_and(|leading| !leading.tally.is_empty());
        // [offload-19] A device that assigns no slots makes no progress either.
        let open = open || (self.devices.offload.is_out() && self.devices.offload.waiting > 0);
        let stuck_us = STUCK_HEARTBEATS * self.spine.options().heartbeat_ms * 1000;
        let stuck = self.devices.offload.is_stuck(now, decided_to, open, stuck_us);
        match self.devices.offload.stage {
            Stage::Here if may && self.enough_armed() => self.start_device(effects),
            Stage::There(_) | Stage::Starting(_) if !may || stuck || !self.enough_armed() => {
                self.take_back(effects);
            }
            Stage::Here
            | Stage::Starting(_)
            | Stage::There(_)
            | Stage::TakingBack(_)
            | Stage::Stopping(_) => {}
        }
        if may {
            self.ask_to_arm(now, effects);
        }
    }

    fn ask_to_arm(&mut self, now: Time, effects: &mut Effects) {
        let Some(leading) = self.spine.leading() else { return };
        let slot = self.spine.learner().decided_to();
        let Some(prefix) = leading.tally.prefix_at(slot) else {
            return;
        };
        let begin = Begin { ballot: leading.ballot(), slot, prefix };
        let message = Message::Arm { ballot: begin.ballot, slot, prefix };
        effects.send_all(self.spine.peers().connected(), &message);
        self.on_arm(now, self.spine.options().member.node, begin, effects);
    }

    /// [offload-5] Starts the device. Until the device is withdrawn, only it assigns slots of this
    /// ballot.
    fn start_device(&mut self, effects: &mut Effects) {
        let Some(leading) = self.spine.leading() else { return };
        let (ballot, first) = (leading.ballot(), leading.tally.next());
        let Some((quorum, members)) = self.spine.learner().eras().current().any_of() else {
            return;
        };
        let limit = self.limit(first);
        self.devices.offload.limit = limit;
        self.devices.offload.waiting = 0;
        self.devices.offload.stage = Stage::Starting(ballot);
        let hint = self.spine.pending().class() == Class::Durable;
        effects.push(Effect::Device(Order::Start { ballot, first, limit, quorum, members, hint }));
        effects.explain(Explanation::Offloads { ballot });
    }

    /// [offload-14] Returns the first slot that may not be assigned yet. It is limited by the cells
    /// of a quorum's devices, the cells of this node's device, the window, and the number of
    /// proposals in flight.
    fn limit(&self, floor: Slot) -> Slot {
        let cells = self.devices.offload.cells;
        let armed = self.devices.offload.armed();
        let configuration = self.spine.learner().eras().current();
        let of_quorum = configuration.reached(Phase::Two, |voter| {
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
        let (Stage::There(ballot), Some(leading)) =
            (self.devices.offload.stage, self.spine.leading())
        else {
            return;
        };
        if leading.ballot() != ballot {
            return;
        }
        let floor = self.spine.learner().decided_to().min(leading.tally.next());
        let limit = self.limit(floor);
        let step = (self.devices.offload.cells / FLOOR_PARTS).max(1);
        let short = leading.tally.next().plus(step) > self.devices.offload.limit;
        if limit >= self.devices.offload.limit.plus(step)
            || (short && limit > self.devices.offload.limit)
        {
            self.devices.offload.limit = limit;
            effects.push(Effect::Device(Order::Allow { floor, limit }));
        }
    }

    /// [offload-12] Moves slot assignment back to this node. This completes once the device has
    /// been read out.
    pub(in crate::node) fn take_back(&mut self, effects: &mut Effects) {
        if let Stage::There(ballot) | Stage::Starting(ballot) = self.devices.offload.stage {
            self.devices.offload.stage = Stage::TakingBack(ballot);
            effects.push(Effect::Device(Order::TakeBack { ballot }));
        }
    }

    /// [offload-12] Stops the device because this node no longer leads. The device must have
    /// stopped before the node leads again.
    pub(in crate::node) fn stop_device(&mut self, effects: &mut Effects) {
        for reader in self.devices.offload.take_looking() {
            if let Reader::Local(token) = reader {
                effects.push(Effect::ReadFailed { token });
            }
        }
        if let Stage::There(ballot) | Stage::Starting(ballot) | Stage::TakingBack(ballot) =
            self.devices.offload.stage
        {
            self.devices.offload.stage = Stage::Stopping(ballot);
            effects.push(Effect::Device(Order::Stop { ballot }));
        }
    }

    /// Passes a value to the device instead of proposing it on this node. Returns the reason for
    /// refusing the value, if it is refused.
    pub(in crate::node) fn submit(
        &mut self,
        value: Value,
        slots: u64,
        effects: &mut Effects,
    ) -> Option<Refusal> {
        match self.devices.offload.stage {
            Stage::TakingBack(_) | Stage::Stopping(_) | Stage::Here => Some(Refusal::Busy),
            Stage::There(_) | Stage::Starting(_) => {
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
                self.devices.offload.waiting += 1;
                effects.push(Effect::Device(Order::Submit { value }));
                None
            }
        }
    }

    /// [offload-10] Adopts a slot that the device assigned as this leader's proposal.
    fn on_given(
        &mut self,
        now: Time,
        ballot: Ballot,
        slot: Slot,
        value: Value,
        effects: &mut Effects,
    ) {
        let next = self.spine.leading().map(|leading| leading.tally.next());
        let out = matches!(self.devices.offload.stage, Stage::There(b) | Stage::Starting(b) | Stage::TakingBack(b) if b == ballot);
        if !self.leads_in(ballot) || !out || next != Some(slot) {
            return;
        }
        self.devices.offload.waiting = self.devices.offload.waiting.saturating_sub(1);
        self.adopt(now, value, effects);
    }

    fn adopt(&mut self, now: Time, value: Value, effects: &mut Effects) {
        let own = self.spine.options().member.node;
        self.propose(now, value, 1, true, own, effects);
        let next = self.spine.leading().map(|leading| leading.tally.next());
        while let Some((from, vote)) = next.and_then(|next| self.devices.offload.next_early(next)) {
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
        if self.devices.offload.stage != Stage::TakingBack(ballot) || !self.leads_in(ballot) {
            return self.on_stopped(now, ballot, effects);
        }
        let mut at = from;
        for value in rest {
            let next = self.spine.leading().map(|leading| leading.tally.next());
            if next == Some(at) {
                self.adopt(now, value.unwrap_or(Value::NoOp), effects);
            }
            at = at.next();
        }
        effects.explain(Explanation::TakesBack { ballot });
        // Leave time for the cause of the withdrawal to pass.
        self.devices.offload.rests_until =
            now.plus_ms(REST_HEARTBEATS * self.spine.options().heartbeat_ms);
        self.come_back(effects);
    }

    /// Lets this node assign slots again. Members that received proposals only through their
    /// devices now receive them from this node.
    fn come_back(&mut self, effects: &mut Effects) {
        self.devices.offload.stage = Stage::Here;
        let next = self.spine.leading().map(|leading| leading.tally.next());
        let next = next.unwrap_or_default();
        for reader in self.devices.offload.take_looking() {
            let _ = self.reading.add_read(reader, next);
        }
        for node in self.spine.rewind_to_votes() {
            self.resend(node, effects);
        }
    }

    fn on_stopped(&mut self, now: Time, ballot: Ballot, effects: &mut Effects) {
        match self.devices.offload.stage {
            Stage::Stopping(stopped) if stopped == ballot => {
                self.devices.offload.stage = Stage::Here
            }
            // The device could not start, or was withdrawn before it started, so it assigned no
            // slots.
            Stage::Starting(started) | Stage::TakingBack(started)
                if started == ballot && self.leads_in(ballot) =>
            {
                self.devices.offload.rests_until =
                    now.plus_ms(REST_HEARTBEATS * self.spine.options().heartbeat_ms);
                self.come_back(effects);
            }
            Stage::Here
            | Stage::Starting(_)
            | Stage::There(_)
            | Stage::TakingBack(_)
            | Stage::Stopping(_) => {}
        }
    }

    /// [offload-18] Asks the device for the index of a read, because only the device knows it while
    /// it assigns slots. Returns `false` if too many reads wait.
    pub(in crate::node) fn look_next(&mut self, reader: Reader, effects: &mut Effects) -> bool {
        if self.devices.offload.looking() >= crate::reads::GATHERED_MAX {
            return false;
        }
        if self.devices.offload.queue_read(reader) {
            effects.push(Effect::Device(Order::LookNext));
        }
        true
    }

    fn on_next(&mut self, slot: Option<Slot>, effects: &mut Effects) {
        let (readers, again) = self.devices.offload.looked();
        if again {
            effects.push(Effect::Device(Order::LookNext));
        }
        let next = self.spine.leading().map(|leading| leading.tally.next());
        for reader in readers {
            let index = slot.zip(next).map(|(slot, next)| slot.max(next));
            let taken = index.is_some_and(|index| self.reading.add_read(reader, index));
            if let (Reader::Local(token), false) = (reader, taken) {
                effects.push(Effect::ReadFailed { token });
            }
        }
    }
}
