//! Devices in a world: votes that count, and reports to their owners.

use quorate_core::{
    device::DeviceReport, effect::Role, input::Input, record::Class, slot::SlotRange, value::Value,
};

use super::World;
use crate::{
    device::StepResult,
    observer::{Property, Violation},
};

impl World {
    /// Carries out the next of this node's orders to its device.
    pub(super) fn carry_out_order(&mut self, at: usize, whole: bool) -> Result<(), Violation> {
        let done = self.sites[at].device.carry_out_order(whole);
        self.apply_step_result(at, done)
    }

    /// Carries out all of this node's orders to its device, as happens before a clean stop.
    pub(super) fn carry_out_all_orders(&mut self, at: usize) -> Result<(), Violation> {
        while self.sites[at].device.is_busy() {
            self.carry_out_order(at, true)?;
            let done = self.sites[at].device.end_steps();
            self.apply_step_result(at, done)?;
        }
        Ok(())
    }

    /// Delivers a frame to a node's device, which may outlive the node's process.
    pub(super) fn receive_frame(
        &mut self,
        at: usize,
        frame: usize,
        whole: bool,
    ) -> Result<(), Violation> {
        let frame = self.frames[frame];
        let node = self.sites[at].node.as_ref();
        let has_vote = node.is_none_or(|node| node.role() != Role::Learner);
        let done = self.sites[at].device.handle_frame(frame, whole, has_vote);
        self.apply_step_result(at, done)
    }

    /// Completes the device steps in flight.
    pub(super) fn end_device_steps(&mut self, at: usize) -> Result<(), Violation> {
        let done = self.sites[at].device.end_steps();
        self.apply_step_result(at, done)
    }

    /// Lets the device assign a slot to a waiting value.
    pub(super) fn assign_device_slot(
        &mut self,
        at: usize,
        whole: bool,
        hole: bool,
    ) -> Result<(), Violation> {
        let done = match hole {
            true => self.sites[at].device.cancel_assignment(),
            false => self.sites[at].device.assign_waiting_value(whole),
        };
        self.apply_step_result(at, done)
    }

    /// Delivers the coordinator's report of assigned and counted slots to the owner.
    pub(super) fn deliver_device_report(&mut self, at: usize) -> Result<(), Violation> {
        for word in self.sites[at].device.take_report() {
            self.report_to_node(at, word)?;
        }
        Ok(())
    }

    /// Delivers one vote that the device reported to the owner, or loses it.
    pub(super) fn deliver_vote_report(
        &mut self,
        at: usize,
        which: usize,
        lost: bool,
    ) -> Result<(), Violation> {
        if which >= self.sites[at].device.unreported_votes.len() {
            return Ok(());
        }
        let word = self.sites[at].device.unreported_votes.remove(which);
        if lost {
            return Ok(());
        }
        self.report_to_node(at, word)
    }

    /// Cuts and restores a device's power.
    pub(super) fn reset_device(&mut self, at: usize) -> Result<(), Violation> {
        let used = self.sites[at].device.lose_power();
        if used {
            self.situations.device_power_losses += 1;
            self.report_to_node(at, DeviceReport::Lost)?;
        }
        Ok(())
    }

    /// Starts or ends the use of a node's device.
    pub(super) fn use_device(&mut self, at: usize, yes: bool) -> Result<(), Violation> {
        if self.setup.device_cells == 0 {
            return Ok(());
        }
        // [offload-9] A device that has not carried out its orders counts as late.
        if !yes && self.sites[at].device.is_busy() {
            return self.report_to_node(at, DeviceReport::Late);
        }
        let cells = if yes { self.setup.device_cells } else { 0 };
        self.step_node(at, Input::Offload { cells })
    }

    /// Fences the device before a new process sends its first message ([offload-9]).
    pub(super) fn detach_device(&mut self, at: usize) -> Result<(), Violation> {
        let done = self.sites[at].device.detach_owner();
        self.apply_step_result(at, done)
    }

    fn apply_step_result(&mut self, at: usize, done: StepResult) -> Result<(), Violation> {
        for (ballot, slot, value) in done.votes {
            self.situations.device_votes += 1;
            self.judge_device_vote(at, ballot, slot, value)?;
        }
        if done.conflict {
            let seen = Err("a device saw two values for one slot of one ballot".to_owned());
            self.observer.to_violation(Property::Alarm, seen)?;
        }
        for frame in done.frames {
            if self.frames.last() != Some(&frame) {
                self.frames.push(frame);
            }
        }
        for word in done.reports {
            self.report_to_node(at, word)?;
        }
        Ok(())
    }

    /// [offload-10] Checks a vote of a device. In groups in which in-memory votes count, it counts
    /// as its member's vote.
    fn judge_device_vote(
        &mut self,
        at: usize,
        ballot: quorate_core::ballot::Ballot,
        slot: quorate_core::slot::Slot,
        value: Value,
    ) -> Result<(), Violation> {
        let range = SlotRange::one(slot);
        if self.storage_class() != Class::Volatile {
            return Ok(());
        }
        let site = &mut self.sites[at];
        let member = site.device_member;
        let before = if site.member == member {
            site.remembered_promise()
        } else {
            quorate_core::ballot::Ballot::ZERO
        };
        site.device_votes.insert(slot, (ballot, value));
        self.observer.check_cast(member, before, ballot, range, value)?;
        self.observer.record_vote(member, ballot, range, value)
    }

    fn report_to_node(&mut self, at: usize, word: DeviceReport) -> Result<(), Violation> {
        let held = match &word {
            DeviceReport::Voted { slot, value, .. } => vec![(*slot, *value)],
            DeviceReport::Assigned { slot, value, .. } => vec![(*slot, *value)],
            DeviceReport::CountedValue { slot, value, .. } => vec![(*slot, *value)],
            DeviceReport::Fenced { votes, .. } => votes.clone(),
            DeviceReport::TakenBack { from, assigned: rest, .. } => {
                let mut at = *from;
                let mut all = Vec::new();
                for value in rest {
                    all.extend(value.map(|value| (at, value)));
                    at = at.next();
                }
                all
            }
            _ => Vec::new(),
        };
        match &word {
            DeviceReport::TakenBack { .. } => self.situations.assignments_withdrawn += 1,
            DeviceReport::Fenced { votes, .. } => {
                self.situations.fenced_devices += u64::from(!votes.is_empty())
            }
            DeviceReport::Counted { .. } => self.situations.device_counted_reports += 1,
            DeviceReport::CountedValue { .. } => self.situations.device_decisions_learned += 1,
            DeviceReport::Assigned { .. } => self.situations.device_assigned_slots += 1,
            _ => {}
        }
        // Frames carry the bytes of their values.
        for (slot, value) in held {
            self.sites[at].hold_bytes(&value, SlotRange::one(slot));
        }
        self.step_node(at, Input::Device(word))
    }
}
