//! The owner's work while its acceptor is armed: reports each vote once, reads votes that the tap
//! missed, and raises the floor.

use crate::{
    Header, Type,
    port::{Program, Shape},
};
use quorate_core::{slot::Slot, time::Time};

use crate::owner::{
    call::{Answer, Call},
    desk::TurnContext,
    event::{Event, Loss},
    frames::ReceivedFrame,
    reader::Reader,
    ring::Ring,
    settings::{Pace, Settings},
    stuck::StallTimer,
};

/// Maximum number of missed votes to read concurrently.
const HOLES_MAX: usize = 16;

/// Votes of one acceptor since it was armed.
#[derive(Debug)]
pub(crate) struct Tap {
    /// Floor that the device last reported.
    pub(crate) floor: u64,
    /// Highest floor requested from the device.
    told_floor: u64,
    wanted_floor: u64,
    call: Option<Call>,
    told: Ring,
    /// Slot below which every vote from the floor on has been reported.
    told_to: u64,
    /// Exclusive upper bound of the slots whose votes have been reported.
    highest: u64,
    hole: StallTimer,
    /// Backoff for raising the floor while no votes arrive.
    idle: StallTimer,
    /// Time at which to read all cells whose votes have not been reported, because frames were
    /// lost.
    sweep: Option<Time>,
    /// Number of votes whose descriptor is invalid, which count as no-ops.
    pub(crate) unknown: u64,
}

impl Tap {
    pub(crate) fn new(shape: &Shape) -> Self {
        Self {
            floor: 0,
            told_floor: 0,
            wanted_floor: 0,
            call: None,
            told: Ring::new(shape.cells.into()),
            told_to: 0,
            highest: 0,
            hole: StallTimer::default(),
            idle: StallTimer::default(),
            sweep: None,
            unknown: 0,
        }
    }

    /// Cancels all work in progress before a fence or another record.
    pub(crate) fn pause(&mut self) {
        (self.call, self.sweep) = (None, None);
    }

    /// Resets the state for arming with `floor`. `again` is set if the acceptor is armed again in
    /// the same ballot without a fence in between.
    pub(crate) fn begin(&mut self, floor: u64, again: bool) {
        self.pause();
        self.told_floor = self.told_floor.max(floor);
        if !again {
            self.told.clear();
            (self.told_to, self.highest) = (floor, floor);
        }
    }

    /// [offload-14] Sets the target of the floor. Returns whether it changed.
    pub(crate) fn raise_floor(&mut self, floor: Slot) -> bool {
        let before = self.wanted_floor;
        self.wanted_floor = before.max(floor.0);
        self.wanted_floor > before
    }

    /// Handles the report that the device dropped frames for lack of space.
    pub(crate) fn on_lost(&mut self, now: Time, pace: &Pace) {
        if self.sweep.is_none() {
            self.sweep = Some(now.plus_us(pace.slot_us));
        }
    }

    /// Reports a vote in the armed ballot, received from the tap or read from a cell, unless it has
    /// already been reported.
    pub(crate) fn on_vote(&mut self, heard: &ReceivedFrame<'_>, desk: &mut TurnContext<'_>) {
        let slot = heard.header.slot;
        let top = self.told_floor.max(self.floor);
        let within = slot >= self.floor && slot.saturating_sub(top) < desk.frames.cells();
        if !within || self.told.has(slot) {
            return;
        }
        let (vote, known) = heard.held();
        self.unknown += u64::from(!known);
        self.told.see(slot);
        self.highest = self.highest.max(slot.saturating_add(1));
        desk.tell(Event::Voted(vote));
    }

    /// Handles a response to the call that raises the floor. Returns `false` for any other frame.
    pub(crate) fn hear(&mut self, said: &Header, settings: &Settings) -> bool {
        let Some(answer) = self.call.as_mut().and_then(|call| call.hear(said, settings)) else {
            return false;
        };
        self.call = None;
        let floor = match answer {
            Answer::Done(said) => said.slot,
            // The device's floor is already higher.
            Answer::Refused(_, said) => said.voted,
        };
        self.floor = self.floor.max(floor);
        true
    }

    /// Does all work that is due while the acceptor is armed.
    pub(crate) fn keep_up(
        &mut self,
        desk: &mut TurnContext<'_>,
        reader: &mut Reader,
    ) -> Result<(), Loss> {
        self.raise(desk)?;
        let cells = desk.frames.cells();
        if self.sweep.is_some_and(|due| desk.now >= due) && reader.is_idle() {
            self.sweep = None;
            let all = self.floor..self.floor.saturating_add(cells);
            all.filter(|slot| !self.told.has(*slot)).for_each(|slot| reader.want(slot));
        }
        // Either the acceptor has not voted in this slot, or the frame was lost. Only reading the
        // cell tells.
        let first = self.told.first_unseen(self.told_to.max(self.floor));
        self.told_to = first;
        let hole = (first < self.highest).then_some(first);
        if self.hole.is_due(desk.now, hole, desk.pace().slot_us) {
            let holes = (first..self.highest).filter(|slot| !self.told.has(*slot));
            holes.take(HOLES_MAX).for_each(|slot| reader.want(slot));
        }
        Ok(())
    }

    /// [offload-14] Raises the floor once that frees an eighth of the ring, or once no votes above
    /// it have arrived for a while.
    fn raise(&mut self, desk: &mut TurnContext<'_>) -> Result<(), Loss> {
        if let Some(call) = &mut self.call {
            return call.advance(desk);
        }
        let gain = self.wanted_floor.saturating_sub(self.floor);
        let idle = gain > 0 && self.wanted_floor >= self.highest;
        let (idle, slot_us) = (idle.then_some(self.highest), desk.pace().slot_us);
        let idle = self.idle.is_due(desk.now, idle, slot_us);
        if !idle && gain < (desk.frames.cells() / 8).max(1) {
            return Ok(());
        }
        let mut header = desk.frames.plain(Program::Acceptor, Type::Floor);
        header.slot = self.wanted_floor;
        self.told_floor = self.told_floor.max(self.wanted_floor);
        let mut call = Call::new(Program::Acceptor, header);
        call.advance(desk)?;
        self.call = Some(call);
        Ok(())
    }

    pub(crate) const fn call(&self) -> Option<&Call> {
        self.call.as_ref()
    }

    pub(crate) fn due(&self, pace: &Pace) -> impl Iterator<Item = Time> {
        let call = self.call.as_ref().map(|call| call.due(pace));
        let stuck = [&self.hole, &self.idle].map(|stuck| stuck.due(pace.slot_us));
        stuck.into_iter().chain([call, self.sweep]).flatten()
    }
}
