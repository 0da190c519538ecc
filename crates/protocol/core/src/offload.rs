//! State of offloading: the part of phase 2 of its ballot that a leader has handed to devices
//! ([offload-5], [offload-12]–[offload-14]). The rules are in `node/devices/offloading.rs`.

use alloc::vec::Vec;

use crate::{
    ballot::Ballot, message::Phase2b, node_id::Member, reads::Reader, slot::Slot, time::Time,
};

/// Current assigner of slots in this leader's ballot: the node, its device, or neither during a
/// change.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum AssignmentStage {
    /// This node assigns slots.
    #[default]
    OnNode,
    /// The device was ordered to assign slots, but has not responded yet.
    Starting(Ballot),
    /// The device assigns slots.
    OnDevice(Ballot),
    /// No slots are assigned until the device has been read out.
    TakingBack(Ballot),
    /// No slots are assigned until the device has stopped, because this node no longer leads.
    Stopping(Ballot),
}

/// Maximum number of stored votes that arrived before the device reported their slots.
const EARLY_VOTES_MAX: usize = 32;

/// A leader's view of phase 2 in devices.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Offload {
    /// Number of slots for which each program of this node's device has room; 0 if there is no
    /// device or it must not be used.
    pub cells: u64,
    /// Current assigner of slots, or the change in progress.
    pub stage: AssignmentStage,
    /// Members whose devices vote in the leader's ballot, each with the first slot of its cells.
    armed_members: Vec<(Member, Slot)>,
    /// First slot that may not be assigned yet.
    pub assignment_limit: Slot,
    /// After a withdrawal, the device is not used again before this time.
    pub rests_until: Time,
    /// End of the decided prefix, and the time of the last progress.
    progress: (Slot, Time),
    /// Time of the next check of the devices.
    next_check_at: Time,
    /// Number of submitted values to which the device has not assigned a slot yet, as far as this
    /// node knows.
    pub unassigned_count: u64,
    /// Reads that wait for the device to report a read index.
    waiting_reads: Vec<Reader>,
    /// Number of waiting reads that the outstanding query to the device covers; 0 if none is
    /// outstanding.
    queried_reads: usize,
    early_votes: Vec<(Member, Phase2b)>,
}

impl Offload {
    /// Returns whether no device was ever available.
    pub fn is_unused(&self) -> bool {
        let Self { progress, next_check_at: look_at, .. } = *self;
        *self == Self { progress, next_check_at: look_at, ..Self::default() }
    }

    /// Returns whether the device assigns slots, or did so and has not been read out yet.
    pub fn is_active(&self) -> bool {
        self.stage != AssignmentStage::OnNode
    }

    /// Returns whether this node's device sends proposals to this member's device, so that this
    /// node need not send them to the member.
    pub fn device_reaches(&self, member: Member) -> bool {
        self.is_active() && self.armed_members.iter().any(|(armed, _)| *armed == member)
    }

    /// Clears the armed members for a new ballot.
    pub fn restart(&mut self, now: Time, decided_to: Slot) {
        self.armed_members.clear();
        self.early_votes.clear();
        self.progress = (decided_to, now);
        self.next_check_at = now;
    }

    /// Returns whether a check of the devices is due, and schedules the next one `every_ms` later.
    pub fn is_due(&mut self, now: Time, every_ms: u64) -> bool {
        let due = now >= self.next_check_at;
        if due {
            self.next_check_at = now.plus_ms(every_ms);
        }
        due
    }

    /// Records that the device of this member votes in the leader's ballot, from slot `floor`
    /// onwards.
    pub fn note_armed(&mut self, member: Member, floor: Slot) {
        self.armed_members.retain(|(armed, _)| armed.node != member.node || *armed == member);
        match self.armed_members.iter_mut().find(|(armed, _)| *armed == member) {
            Some((_, known)) => *known = floor.max(*known),
            None => self.armed_members.push((member, floor)),
        }
    }

    /// Records that this member's device no longer votes in the ballot.
    pub fn record_disarmed(&mut self, member: Member) {
        self.armed_members.retain(|(armed, _)| *armed != member);
    }

    /// Returns the armed members, each with the first slot of its cells.
    pub fn armed_members(&self) -> &[(Member, Slot)] {
        &self.armed_members
    }

    /// Returns whether proposals are outstanding and nothing has been decided for `for_us`.
    pub fn is_stuck(&mut self, now: Time, decided_to: Slot, open: bool, for_us: u64) -> bool {
        if decided_to != self.progress.0 || !open {
            self.progress = (decided_to, now);
        }
        now.since_us(self.progress.1) >= for_us
    }

    /// [offload-18] Queues a read whose index only the device knows. Returns whether to query the
    /// device.
    pub fn queue_read(&mut self, reader: Reader) -> bool {
        self.waiting_reads.push(reader);
        if self.queried_reads > 0 {
            return false;
        }
        self.queried_reads = self.waiting_reads.len();
        true
    }

    /// Handles the device's report of its next slot. Returns the reads that were queued before the
    /// query was sent, and whether to query the device again for later reads.
    pub fn on_next_slot(&mut self) -> (Vec<Reader>, bool) {
        let rest = self.waiting_reads.split_off(self.queried_reads);
        let answered = core::mem::replace(&mut self.waiting_reads, rest);
        self.queried_reads = self.waiting_reads.len();
        (answered, self.queried_reads > 0)
    }

    /// Removes and returns all reads that wait for the device.
    pub fn take_waiting_reads(&mut self) -> Vec<Reader> {
        self.queried_reads = 0;
        core::mem::take(&mut self.waiting_reads)
    }

    /// Returns the number of waiting reads.
    pub fn waiting_read_count(&self) -> usize {
        self.waiting_reads.len()
    }

    /// [offload-10] Stores a vote for slots that the device has not reported yet. Only the newest
    /// vote of each member is stored.
    pub fn store_early_vote(&mut self, from: Member, vote: Phase2b) {
        self.early_votes.retain(|(member, _)| *member != from);
        if self.early_votes.len() < EARLY_VOTES_MAX {
            self.early_votes.push((from, vote));
        }
    }

    /// Removes and returns a stored vote whose slots have all been reported by now.
    pub fn next_early_vote(&mut self, next: Slot) -> Option<(Member, Phase2b)> {
        let at = self.early_votes.iter().position(|(_, vote)| vote.volatile_to <= next)?;
        Some(self.early_votes.swap_remove(at))
    }
}
