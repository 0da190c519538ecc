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
    pub(super) fn obey(&mut self, at: usize, whole: bool) -> Result<(), Violation> {
        let done = self.sites[at].device.obey(whole);
        self.done(at, done)
    }

    /// Carries out all of this node's orders to its device, as happens before a clean stop.
    pub(super) fn obey_all(&mut self, at: usize) -> Result<(), Violation> {
        while self.sites[at].device.is_busy() {
            self.obey(at, true)?;
            let done = self.sites[at].device.step_ends();
            self.done(at, done)?;
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
        self.done(at, done)
    }

    /// Completes the device steps in flight.
    pub(super) fn step_ends(&mut self, at: usize) -> Result<(), Violation> {
        let done = self.sites[at].device.step_ends();
        self.done(at, done)
    }

    /// Lets the device assign a slot to a waiting value.
    pub(super) fn give_slot(
        &mut self,
        at: usize,
        whole: bool,
        hole: bool,
    ) -> Result<(), Violation> {
        let done = match hole {
            true => self.sites[at].device.skip(),
            false => self.sites[at].device.submit(whole),
        };
        self.done(at, done)
    }

    /// Delivers the coordinator's report of assigned and counted slots to the owner.
    pub(super) fn tell_given(&mut self, at: usize) -> Result<(), Violation> {
        for word in self.sites[at].device.take_report() {
            self.say(at, word)?;
        }
        Ok(())
    }

    /// Delivers one vote that the device reported to the owner, or loses it.
    pub(super) fn tap(&mut self, at: usize, which: usize, lost: bool) -> Result<(), Violation> {
        if which >= self.sites[at].device.tap.len() {
            return Ok(());
        }
        let word = self.sites[at].device.tap.remove(which);
        if lost {
            return Ok(());
        }
        self.say(at, word)
    }

    /// Cuts and restores a device's power.
    pub(super) fn reset_device(&mut self, at: usize) -> Result<(), Violation> {
        let used = self.sites[at].device.forget();
        if used {
            self.seen.device_forgot += 1;
            self.say(at, DeviceReport::Lost)?;
        }
        Ok(())
    }

    /// Starts or ends the use of a node's device.
    pub(super) fn use_device(&mut self, at: usize, yes: bool) -> Result<(), Violation> {
        if self.setup.cells == 0 {
            return Ok(());
        }
        // [offload-9] A device that has not carried out its orders counts as late.
        if !yes && self.sites[at].device.is_busy() {
            return self.say(at, DeviceReport::Late);
        }
        let cells = if yes { self.setup.cells } else { 0 };
        self.step(at, Input::Offload { cells })
    }

    /// Fences the device before a new process sends its first message ([offload-9]).
    pub(super) fn leave_device(&mut self, at: usize) -> Result<(), Violation> {
        let done = self.sites[at].device.leave_owner();
        self.done(at, done)
    }

    fn done(&mut self, at: usize, done: StepResult) -> Result<(), Violation> {
        for (ballot, slot, value) in done.votes {
            self.seen.device_votes += 1;
            self.judge_device_vote(at, ballot, slot, value)?;
        }
        if done.conflict {
            let seen = Err("a device saw two values for one slot of one ballot".to_owned());
            self.observer.judge(Property::Alarm, seen)?;
        }
        for frame in done.frames {
            if self.frames.last() != Some(&frame) {
                self.frames.push(frame);
            }
        }
        for word in done.words {
            self.say(at, word)?;
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
        if self.class() != Class::Volatile {
            return Ok(());
        }
        let site = &mut self.sites[at];
        let member = site.device_of;
        let before = if site.member == member {
            site.voted_before()
        } else {
            quorate_core::ballot::Ballot::ZERO
        };
        site.device_cast.insert(slot, (ballot, value));
        self.observer.casts(member, before, ballot, range, value)?;
        self.observer.voted(member, ballot, range, value)
    }

    fn say(&mut self, at: usize, word: DeviceReport) -> Result<(), Violation> {
        let held = match &word {
            DeviceReport::Voted { slot, value, .. } => vec![(*slot, *value)],
            DeviceReport::Given { slot, value, .. } => vec![(*slot, *value)],
            DeviceReport::CountedValue { slot, value, .. } => vec![(*slot, *value)],
            DeviceReport::Fenced { votes, .. } => votes.clone(),
            DeviceReport::TakenBack { from, rest, .. } => {
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
            DeviceReport::TakenBack { .. } => self.seen.taken_back += 1,
            DeviceReport::Fenced { votes, .. } => self.seen.fenced += u64::from(!votes.is_empty()),
            DeviceReport::Counted { .. } => self.seen.device_counted += 1,
            DeviceReport::CountedValue { .. } => self.seen.device_told += 1,
            DeviceReport::Given { .. } => self.seen.given += 1,
            _ => {}
        }
        // Frames carry the bytes of their values.
        for (slot, value) in held {
            self.sites[at].hold(&value, SlotRange::one(slot));
        }
        self.step(at, Input::Device(word))
    }
}
