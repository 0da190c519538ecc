//! The owner's work while its acceptor is armed: reports each vote once, reads votes that the tap
//! missed, and raises the floor.

use crate::{
    Header, Type,
    port::{DeviceShape, Program},
};
use quorate_core::{slot::Slot, time::Time};

use crate::owner::{
    call::{CallResponse, ControlCall},
    desk::TurnContext,
    event::{Event, LossReason},
    frames::ReceivedFrame,
    reader::CellReader,
    ring::SeenSlots,
    settings::{Settings, Timeouts},
    stuck::StallTimer,
};

/// Maximum number of missed votes to read concurrently.
const MISSED_READS_MAX: usize = 16;

/// Votes of one acceptor since it was armed.
#[derive(Debug)]
pub(crate) struct VoteTap {
    /// Floor that the device last reported.
    pub(crate) floor: u64,
    /// Highest floor requested from the device.
    requested_floor_max: u64,
    wanted_floor: u64,
    call: Option<ControlCall>,
    reported_slots: SeenSlots,
    /// Slot below which every vote from the floor on has been reported.
    reported_contiguous_to: u64,
    /// Exclusive upper bound of the slots whose votes have been reported.
    reported_end: u64,
    gap_timer: StallTimer,
    /// Backoff for raising the floor while no votes arrive.
    idle_timer: StallTimer,
    /// Time at which to read all cells whose votes have not been reported, because frames were
    /// lost.
    read_missing_at: Option<Time>,
    /// Number of votes whose descriptor is invalid, which count as no-ops.
    pub(crate) invalid_vote_count: u64,
}

impl VoteTap {
    pub(crate) fn new(shape: &DeviceShape) -> Self {
        Self {
            floor: 0,
            requested_floor_max: 0,
            wanted_floor: 0,
            call: None,
            reported_slots: SeenSlots::new(shape.cells.into()),
            reported_contiguous_to: 0,
            reported_end: 0,
            gap_timer: StallTimer::default(),
            idle_timer: StallTimer::default(),
            read_missing_at: None,
            invalid_vote_count: 0,
        }
    }

    /// Cancels all work in progress before a fence or another record.
    pub(crate) fn cancel_work(&mut self) {
        (self.call, self.read_missing_at) = (None, None);
    }

    /// Resets the state for arming with `floor`. `again` is set if the acceptor is armed again in
    /// the same ballot without a fence in between.
    pub(crate) fn begin_armed(&mut self, floor: u64, again: bool) {
        self.cancel_work();
        self.requested_floor_max = self.requested_floor_max.max(floor);
        if !again {
            self.reported_slots.clear();
            (self.reported_contiguous_to, self.reported_end) = (floor, floor);
        }
    }

    /// [offload-14] Sets the target of the floor. Returns whether it changed.
    pub(crate) fn raise_floor(&mut self, floor: Slot) -> bool {
        let before = self.wanted_floor;
        self.wanted_floor = before.max(floor.0);
        self.wanted_floor > before
    }

    /// Handles the report that the device dropped frames for lack of space.
    pub(crate) fn on_lost(&mut self, now: Time, pace: &Timeouts) {
        if self.read_missing_at.is_none() {
            self.read_missing_at = Some(now.plus_us(pace.slot_retry_us));
        }
    }

    /// Reports a vote in the armed ballot, received from the tap or read from a cell, unless it has
    /// already been reported.
    pub(crate) fn on_vote(&mut self, heard: &ReceivedFrame<'_>, desk: &mut TurnContext<'_>) {
        let slot = heard.header.slot;
        let top = self.requested_floor_max.max(self.floor);
        let within = slot >= self.floor && slot.saturating_sub(top) < desk.frames.cells();
        if !within || self.reported_slots.is_seen(slot) {
            return;
        }
        let (vote, known) = heard.slot_value();
        self.invalid_vote_count += u64::from(!known);
        self.reported_slots.mark_seen(slot);
        self.reported_end = self.reported_end.max(slot.saturating_add(1));
        desk.push_event(Event::Voted(vote));
    }

    /// Handles a response to the call that raises the floor. Returns `false` for any other frame.
    pub(crate) fn hear(&mut self, said: &Header, settings: &Settings) -> bool {
        let Some(answer) = self.call.as_mut().and_then(|call| call.on_frame(said, settings)) else {
            return false;
        };
        self.call = None;
        let floor = match answer {
            CallResponse::Done(said) => said.slot,
            // The device's floor is already higher.
            CallResponse::Refused(_, said) => said.voted,
        };
        self.floor = self.floor.max(floor);
        true
    }

    /// Does all work that is due while the acceptor is armed.
    pub(crate) fn do_due_work(
        &mut self,
        desk: &mut TurnContext<'_>,
        reader: &mut CellReader,
    ) -> Result<(), LossReason> {
        self.raise_floor_if_due(desk)?;
        let cells = desk.frames.cells();
        if self.read_missing_at.is_some_and(|due| desk.now >= due) && reader.is_idle() {
            self.read_missing_at = None;
            let all = self.floor..self.floor.saturating_add(cells);
            all.filter(|slot| !self.reported_slots.is_seen(*slot))
                .for_each(|slot| reader.read_slot(slot));
        }
        // Either the acceptor has not voted in this slot, or the frame was lost. Only reading the
        // cell tells.
        let first = self.reported_slots.first_unseen(self.reported_contiguous_to.max(self.floor));
        self.reported_contiguous_to = first;
        let hole = (first < self.reported_end).then_some(first);
        if self.gap_timer.is_due(desk.now, hole, desk.timeouts().slot_retry_us) {
            let holes =
                (first..self.reported_end).filter(|slot| !self.reported_slots.is_seen(*slot));
            holes.take(MISSED_READS_MAX).for_each(|slot| reader.read_slot(slot));
        }
        Ok(())
    }

    /// [offload-14] Raises the floor once that frees an eighth of the ring, or once no votes above
    /// it have arrived for a while.
    fn raise_floor_if_due(&mut self, desk: &mut TurnContext<'_>) -> Result<(), LossReason> {
        if let Some(call) = &mut self.call {
            return call.send_if_due(desk);
        }
        let gain = self.wanted_floor.saturating_sub(self.floor);
        let idle = gain > 0 && self.wanted_floor >= self.reported_end;
        let (idle, slot_us) = (idle.then_some(self.reported_end), desk.timeouts().slot_retry_us);
        let idle = self.idle_timer.is_due(desk.now, idle, slot_us);
        if !idle && gain < (desk.frames.cells() / 8).max(1) {
            return Ok(());
        }
        let mut header = desk.frames.empty_header(Program::Acceptor, Type::Floor);
        header.slot = self.wanted_floor;
        self.requested_floor_max = self.requested_floor_max.max(self.wanted_floor);
        let mut call = ControlCall::new(Program::Acceptor, header);
        call.send_if_due(desk)?;
        self.call = Some(call);
        Ok(())
    }

    pub(crate) const fn call(&self) -> Option<&ControlCall> {
        self.call.as_ref()
    }

    pub(crate) fn due_times(&self, pace: &Timeouts) -> impl Iterator<Item = Time> {
        let call = self.call.as_ref().map(|call| call.next_due_at(pace));
        let stuck =
            [&self.gap_timer, &self.idle_timer].map(|stuck| stuck.next_due_at(pace.slot_retry_us));
        stuck.into_iter().chain([call, self.read_missing_at]).flatten()
    }
}
