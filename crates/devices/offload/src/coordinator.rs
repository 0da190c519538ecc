//! The coordinator: assigns slots in one ballot, proposes values in them, and counts votes.

use crate::{
    CallNumber, Cell, Cells, Counters, Header, OutputFrames, PackedBallot, Port, Reason, Routes,
    Setup, State, Type, Verdict,
    admit::{Admitted, check_contents, is_for_coordinator, parse_frame},
    device::Device,
    header::{COORDINATOR, HINT, REPEAT},
};

/// Parameters of a coordinator's start. A new start replaces all of them ([offload-17]).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StartParameters {
    /// The only ballot in which the coordinator assigns slots.
    pub ballot: PackedBallot,
    /// First slot to assign: one past the leader's last proposal ([offload-5]).
    pub first: u64,
    /// First slot that the coordinator may not assign.
    pub limit: u64,
    /// Number of members that form a quorum; any such set does ([offload-10]).
    pub quorum: u8,
    /// Number of positions in the configuration, at most 16.
    pub members: u8,
    /// Set if the group is durable. Device votes are volatile, so decisions are then only hints.
    pub hint: bool,
    pub proposals: Routes,
    pub decisions: Routes,
}

/// A coordinator, which stores each value until the floor passes its slot.
#[derive(Debug)]
pub struct Coordinator<'a> {
    device: Device<'a>,
    /// Destinations of proposals, used when the start arrives as a frame.
    proposals: Routes,
    decisions: Routes,
    started: Option<StartParameters>,
    /// Next slot to assign. Stopping the coordinator does not change it ([offload-12]).
    next: u64,
    /// Highest ballot in which the coordinator has been started.
    last_started: PackedBallot,
}

impl<'a> Coordinator<'a> {
    /// Creates a stopped coordinator without a boot. Panics if the size of the value area is not a
    /// multiple of 8, or is above 1408 bytes.
    pub fn new(setup: Setup, proposals: Routes, decisions: Routes, cells: Cells<'a>) -> Self {
        Self {
            device: Device::new(setup, COORDINATOR, cells),
            proposals,
            decisions,
            started: None,
            next: 0,
            last_started: PackedBallot::NONE,
        }
    }

    /// Clears all state, as a power cycle does ([offload-9]).
    pub fn clear_state(&mut self) {
        self.device.clear_state();
        self.started = None;
        self.next = 0;
        self.last_started = PackedBallot::NONE;
    }

    pub fn state(&self) -> State {
        let started = self.started.as_ref();
        State {
            boot: self.device.call_order.boot(),
            ballot: started.map_or(PackedBallot::NONE, |start| start.ballot),
            position: 0,
            floor: self.device.floor,
            next: self.next,
            hint: started.is_some_and(|start| start.hint),
        }
    }

    pub(crate) const fn setup(&self) -> &Setup {
        &self.device.setup
    }

    pub fn counters(&self) -> &Counters {
        &self.device.counters
    }

    /// [offload-18] Returns one past the last assigned slot, which is the read index of
    /// linearizable reads.
    pub const fn next(&self) -> u64 {
        self.next
    }

    /// [offload-12] Returns the proposal stored for a slot, even if the coordinator is stopped. A
    /// leader that withdraws the allocation adopts the proposal. If there is none, no proposal for
    /// the slot ever left the device, because values are stored before frames are sent.
    pub fn stored_proposal(&self, slot: u64) -> Option<(&Cell, &[u8])> {
        self.device.cell_of_slot(slot)
    }

    /// Sets the device's boot if it is not set yet.
    pub fn set_boot(&mut self, boot: u32) -> Result<(), Reason> {
        self.device.call_order.set_boot(boot)
    }

    /// [offload-5] Starts assigning slots in the ballot of `start`.
    pub fn start(&mut self, number: CallNumber, start: StartParameters) -> Result<(), Reason> {
        self.device.call_order.accept_call(number)?;
        let counts = 1 <= start.quorum && start.quorum <= start.members && start.members <= 16;
        if start.ballot == PackedBallot::NONE || !counts {
            return Err(Reason::Range);
        }
        // [offload-17] A running coordinator must be stopped before it is started again, even with
        // the same record.
        if self.started.is_some() {
            return Err(Reason::Armed);
        }
        if start.ballot < self.last_started {
            return Err(Reason::Ballot);
        }
        // [offload-12] A slot that was assigned in this ballot already has a value.
        if start.first < self.device.floor
            || (start.ballot == self.last_started && start.first < self.next)
        {
            return Err(Reason::Floor);
        }
        self.last_started = start.ballot;
        self.next = start.first;
        // The owner has adopted the slots assigned earlier, or it would not restart the
        // coordinator. So their cells are free.
        self.device.floor = start.first;
        self.started = Some(start);
        Ok(())
    }

    /// [offload-14] Discards proposals below `floor` and allows assignments below `limit`. Neither
    /// bound ever decreases.
    pub fn raise_floor(
        &mut self,
        number: CallNumber,
        floor: u64,
        limit: u64,
    ) -> Result<(), Reason> {
        self.device.call_order.accept_call(number)?;
        let start = self.started.as_mut().ok_or(Reason::Disarmed)?;
        // Slots from `next` on are unassigned, so they cannot be decided.
        if floor < self.device.floor || floor > self.next || limit < start.limit {
            return Err(Reason::Floor);
        }
        self.device.floor = floor;
        start.limit = limit;
        Ok(())
    }

    /// [offload-12] Stops assigning slots and counting votes. `next` and the cells remain readable.
    pub fn stop(&mut self, number: CallNumber) -> Result<(), Reason> {
        self.device.call_order.accept_call(number)?;
        self.started = None;
        Ok(())
    }

    pub fn step(&mut self, from: Port, frame: &[u8], out: &mut OutputFrames<'_>) -> Verdict {
        match parse_frame(&self.device.setup, from, frame) {
            Ok(asked) => self.on_arrival(&asked, out),
            Err(reason) => self.device.count_rejected(reason),
        }
    }

    /// Processes a frame that was checked by [`parse_frame`].
    pub(crate) fn on_arrival(
        &mut self,
        asked: &Admitted<'_>,
        out: &mut OutputFrames<'_>,
    ) -> Verdict {
        if let Err(reason) = check_contents(asked, is_handled) {
            return self.device.count_rejected(reason);
        }
        let done = match asked.header.kind {
            Type::Submit => self.on_submit(asked, out),
            Type::Phase2b => self.on_phase2b(asked, out),
            Type::Tick => self.on_tick(asked, out),
            Type::Read => self.on_read_cell(asked, out),
            Type::Ask => return self.on_query(asked, out),
            _ => self.on_control(asked, out),
        };
        let reason = done.err().unwrap_or(Reason::None);
        self.device.finish_step(asked, reason, &self.state(), out)
    }

    /// [offload-14] Assigns the next slot to a value: fills its cell, then advances `next`, in one
    /// step. Returns [`Reason::Full`] at the limit or if the ring is full.
    fn on_submit(
        &mut self,
        asked: &Admitted<'_>,
        out: &mut OutputFrames<'_>,
    ) -> Result<(), Reason> {
        let start = self.started.as_ref().ok_or(Reason::Disarmed)?;
        let slot = self.next;
        if slot >= start.limit || !self.device.cells.is_within(self.device.floor, slot) {
            return Err(Reason::Full);
        }
        let cell = Cell {
            ballot: start.ballot,
            slot,
            value: asked.header.value,
            sum: asked.header.sum,
            // A proposal does not count as the coordinator's own vote ([offload-10]).
            voters: 0,
        };
        // The value is stored before the proposal is sent ([offload-12]).
        self.device.cells.put(cell, asked.room);
        self.next = slot + 1;
        let header = Header { slot, ..self.proposal_header(start, &asked.header) };
        self.device.send_along_routes(asked, &start.proposals, &header, None, out);
        Ok(())
    }

    /// [offload-10] Counts a vote for an assigned slot. Each position is counted once, and only in
    /// the ballot of the start.
    fn on_phase2b(
        &mut self,
        asked: &Admitted<'_>,
        out: &mut OutputFrames<'_>,
    ) -> Result<(), Reason> {
        let start = self.started.as_ref().ok_or(Reason::Stale)?;
        let (slot, position) = (asked.header.slot, asked.header.position);
        // A slot below the first one may share its cell with an earlier start, so slots below the
        // floor do not count.
        let given_out = self.device.floor <= slot && slot < self.next;
        let cell = self.device.cells.at(slot);
        let counts = asked.header.ballot == start.ballot && position < start.members;
        if !given_out || !counts || !cell.is_holding(start.ballot, slot) {
            return Err(Reason::Stale);
        }
        if cell.value != asked.header.value {
            return Err(Reason::Conflict);
        }
        let voters = cell.voters | 1 << position;
        if voters == cell.voters {
            return Err(Reason::Stale);
        }
        self.device.cells.at_mut(slot).voters = voters;
        // The count equals the quorum only once, so later votes do not cause a second decision.
        if voters.count_ones() != u32::from(start.quorum) {
            return Ok(());
        }
        let hint = if start.hint { HINT } else { 0 };
        let header = Header {
            kind: Type::Decided,
            position: 0,
            flags: hint | COORDINATOR,
            boot: self.device.call_order.boot(),
            ..asked.header
        };
        let (header, room) = self.device.with_cell_contents(header);
        self.device.send_along_routes(asked, &start.decisions, &header, Some(room), out);
        let owner = &self.device.setup.owner;
        self.device.send_rewritten(asked, Port::Owner, owner, &header, Some(room), out);
        Ok(())
    }

    /// [offload-19] Sends the proposal of a slot again, unchanged. The owner requests this for the
    /// oldest undecided slots.
    fn on_tick(&self, asked: &Admitted<'_>, out: &mut OutputFrames<'_>) -> Result<(), Reason> {
        let start = self.started.as_ref().ok_or(Reason::Disarmed)?;
        let slot = asked.header.slot;
        let given_out = self.device.floor <= slot && slot < self.next;
        if !given_out || !self.device.cells.at(slot).is_holding(start.ballot, slot) {
            return Err(Reason::Stale);
        }
        let header = self.proposal_header(start, &asked.header);
        let (header, room) = self.device.with_cell_contents(header);
        let header = Header { voted: 0, flags: COORDINATOR | REPEAT, ..header };
        self.device.send_along_routes(asked, &start.proposals, &header, Some(room), out);
        Ok(())
    }

    /// Sends the contents of a slot's cell to the owner ([offload-7], [offload-12]).
    fn on_read_cell(&self, asked: &Admitted<'_>, out: &mut OutputFrames<'_>) -> Result<(), Reason> {
        let state = self.state();
        let header = Header {
            kind: Type::Cell,
            position: 0,
            ballot: state.ballot,
            reason: 0,
            flags: COORDINATOR,
            boot: state.boot,
            ..asked.header
        };
        let (header, room) = self.device.with_cell_contents(header);
        let owner = &self.device.setup.owner;
        self.device.send_rewritten(asked, Port::Owner, owner, &header, Some(room), out);
        Ok(())
    }

    fn on_query(&mut self, asked: &Admitted<'_>, out: &mut OutputFrames<'_>) -> Verdict {
        self.device.send_state(asked, &self.state(), out);
        Verdict::Consumed
    }

    /// [offload-17] Executes a control call of the owner.
    fn on_control(
        &mut self,
        asked: &Admitted<'_>,
        out: &mut OutputFrames<'_>,
    ) -> Result<(), Reason> {
        let header = &asked.header;
        let number = header.call_number();
        match header.kind {
            Type::Arm => {
                let start = StartParameters {
                    ballot: header.ballot,
                    first: header.slot,
                    limit: header.voted,
                    quorum: header.value.kind,
                    members: u8::try_from(header.value.origin).unwrap_or(u8::MAX),
                    hint: header.flags & HINT != 0,
                    proposals: self.proposals,
                    decisions: self.decisions,
                };
                self.start(number, start)?;
            }
            Type::Floor => self.raise_floor(number, header.slot, header.voted)?,
            Type::Fence => self.stop(number)?,
            _ => self.set_boot(header.boot)?,
        }
        self.device.send_state(asked, &self.state(), out);
        Ok(())
    }

    fn proposal_header(&self, start: &StartParameters, asked: &Header) -> Header {
        Header {
            kind: Type::Phase2a,
            position: 0,
            ballot: start.ballot,
            voted: 0,
            reason: 0,
            flags: COORDINATOR,
            boot: self.device.call_order.boot(),
            ..*asked
        }
    }
}

pub(crate) fn is_handled(header: &Header) -> bool {
    match header.kind {
        Type::Submit | Type::Phase2b | Type::Tick => true,
        Type::Read | Type::Arm | Type::Floor | Type::Fence | Type::Ask | Type::Boot => {
            is_for_coordinator(header)
        }
        Type::Phase1a
        | Type::Phase1b
        | Type::Phase2a
        | Type::Decided
        | Type::Refused
        | Type::Cell
        | Type::Done => false,
    }
}
