//! State of offloading: how far a leader has handed phase 2 of its ballot to devices ([offload-5],
//! [offload-12]–[offload-14]). What may be handed over, and when, is in `node/offloading.rs`.

use alloc::vec::Vec;

use crate::{
    ballot::Ballot, message::Phase2b, node_id::Member, reads::Reader, slot::Slot, time::Time,
};

/// Assigner of the slots of this leader's ballot.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Stage {
    /// This node.
    #[default]
    Here,
    /// The device: it was ordered to, and has not answered.
    Starting(Ballot),
    /// The device.
    There(Ballot),
    /// None, until the device was read out.
    TakingBack(Ballot),
    /// None, until the device has come to rest: this node leads no more.
    Stopping(Ballot),
}

/// Most votes of members that are kept because they arrived before their slots were reported.
const EARLY_MAX: usize = 32;

/// Phase 2 outside of this node, as its leader knows it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Offload {
    /// Slots that each program of this node's device holds; 0: there is no device to be used.
    pub cells: u64,
    /// Assigner of slots.
    pub stage: Stage,
    /// Members whose devices vote in the leader's ballot, and where their cells begin.
    armed: Vec<(Member, Slot)>,
    /// The first slot that may not be assigned yet.
    pub limit: Slot,
    /// The device is not used again before this time, after it was withdrawn.
    pub rests_until: Time,
    /// Slots below were decided at the last look, and since when.
    progress: (Slot, Time),
    /// Time of the next check whether devices are to be used.
    look_at: Time,
    /// Values that the device was given and has not given a slot to, as far as that is known.
    pub waiting: u64,
    /// Reads whose index the device is asked for.
    looking: Vec<Reader>,
    /// Number of waiting reads that the open question to the device covers; 0 while none is open.
    asked: usize,
    early: Vec<(Member, Phase2b)>,
}

impl Offload {
    /// Returns whether the device assigns slots, or did and was not read out.
    pub fn is_out(&self) -> bool {
        self.stage != Stage::Here
    }

    /// Returns whether this node proposes to that member's device, and not to the member itself.
    pub fn reaches(&self, member: Member) -> bool {
        self.is_out() && self.armed.iter().any(|(armed, _)| *armed == member)
    }

    /// Clears the armed members for the ballot that begins.
    pub fn restart(&mut self, now: Time, decided_to: Slot) {
        self.armed.clear();
        self.early.clear();
        self.progress = (decided_to, now);
        self.look_at = now;
    }

    /// Returns whether devices are due to be checked; once every `every_ms`.
    pub fn is_due(&mut self, now: Time, every_ms: u64) -> bool {
        let due = now >= self.look_at;
        if due {
            self.look_at = now.plus_ms(every_ms);
        }
        due
    }

    /// Notes that the device of this member votes in the leader's ballot from this slot on.
    pub fn note_armed(&mut self, member: Member, floor: Slot) {
        self.armed.retain(|(armed, _)| armed.node != member.node || *armed == member);
        match self.armed.iter_mut().find(|(armed, _)| *armed == member) {
            Some((_, known)) => *known = floor.max(*known),
            None => self.armed.push((member, floor)),
        }
    }

    /// Notes that this member's device no longer votes in the ballot.
    pub fn disarmed(&mut self, member: Member) {
        self.armed.retain(|(armed, _)| *armed != member);
    }

    /// Returns the armed members, and their first slots.
    pub fn armed(&self) -> &[(Member, Slot)] {
        &self.armed
    }

    /// Returns whether proposals are open and nothing was decided for `for_us`.
    pub fn is_stuck(&mut self, now: Time, decided_to: Slot, open: bool, for_us: u64) -> bool {
        if decided_to != self.progress.0 || !open {
            self.progress = (decided_to, now);
        }
        now.since_us(self.progress.1) >= for_us
    }

    /// [offload-18] Queues a read whose index is not known here. Returns whether the device has to
    /// be asked.
    pub fn look(&mut self, reader: Reader) -> bool {
        self.looking.push(reader);
        if self.asked > 0 {
            return false;
        }
        self.asked = self.looking.len();
        true
    }

    /// Handles the device's answer: returns the reads that came before it was asked, and whether it
    /// has to be asked again.
    pub fn looked(&mut self) -> (Vec<Reader>, bool) {
        let rest = self.looking.split_off(self.asked);
        let answered = core::mem::replace(&mut self.looking, rest);
        self.asked = self.looking.len();
        (answered, self.asked > 0)
    }

    /// Takes all reads that wait for the device.
    pub fn take_looking(&mut self) -> Vec<Reader> {
        self.asked = 0;
        core::mem::take(&mut self.looking)
    }

    /// Returns the number of waiting reads.
    pub fn looking(&self) -> usize {
        self.looking.len()
    }

    /// [offload-10] Keeps a vote for slots that were not reported yet; of each member the newest.
    pub fn keep_early(&mut self, from: Member, vote: Phase2b) {
        self.early.retain(|(member, _)| *member != from);
        if self.early.len() < EARLY_MAX {
            self.early.push((from, vote));
        }
    }

    /// Returns a vote that waited, if all its slots were reported by now.
    pub fn next_early(&mut self, next: Slot) -> Option<(Member, Phase2b)> {
        let at = self.early.iter().position(|(_, vote)| vote.volatile_to <= next)?;
        Some(self.early.swap_remove(at))
    }
}
