//! The coordinator: assigns slots in one ballot, proposes values in them, counts votes.

use crate::{
    Cell, Cells, Counters, Header, Number, Out, PackedBallot, Port, Reason, Routes, Setup, State,
    Type, Verdict,
    admit::{Admitted, accept, arrive, is_for_coordinator},
    device::Device,
    header::{COORDINATOR, HINT, REPEAT},
};

/// Record that a coordinator is started with; replaced as a whole ([offload-17]).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Start {
    /// The only ballot in which the coordinator assigns slots.
    pub ballot: PackedBallot,
    /// One past the leader's last proposal ([offload-5]).
    pub first: u64,
    /// First slot that the coordinator may not assign.
    pub limit: u64,
    /// Number of members that form a quorum; any of them will do ([offload-10]).
    pub quorum: u8,
    /// Number of positions.
    pub members: u8,
    /// Votes are volatile but the group is durable, so decisions are hints.
    pub hint: bool,
    /// Destinations of proposals.
    pub proposals: Routes,
    /// Destinations of decisions.
    pub decisions: Routes,
}

/// A coordinator. Stores values until the floor passes them.
#[derive(Debug)]
pub struct Coordinator<'a> {
    device: Device<'a>,
    /// Destinations of proposals when a frame starts the coordinator.
    proposals: Routes,
    decisions: Routes,
    started: Option<Start>,
    /// Next slot to assign; kept when the coordinator is stopped ([offload-12]).
    next: u64,
    /// Highest ballot that the coordinator was started with.
    last: PackedBallot,
}

impl<'a> Coordinator<'a> {
    /// Creates a coordinator without a boot, stopped.
    ///
    /// # Panics
    /// If the size of the value area is not a multiple of 8, or is above 1408 bytes.
    pub fn new(setup: Setup, proposals: Routes, decisions: Routes, cells: Cells<'a>) -> Self {
        Self {
            device: Device::new(setup, COORDINATOR, cells),
            proposals,
            decisions,
            started: None,
            next: 0,
            last: PackedBallot::NONE,
        }
    }

    /// Forgets everything, as after a power cycle ([offload-9]).
    pub fn forget(&mut self) {
        self.device.forget();
        self.started = None;
        self.next = 0;
        self.last = PackedBallot::NONE;
    }

    /// Returns the coordinator's state.
    pub fn state(&self) -> State {
        let started = self.started.as_ref();
        State {
            boot: self.device.order.boot(),
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

    /// Returns the counts of frames, by outcome.
    pub fn counters(&self) -> &Counters {
        &self.device.counters
    }

    /// [offload-18] Returns one past the last assigned slot: the index for reads that have arrived.
    pub const fn next(&self) -> u64 {
        self.next
    }

    /// [offload-12] Returns the proposal in a slot, also when stopped. A leader that withdraws the
    /// allocation adopts it. Without one, no proposal ever left the device, since values are stored
    /// before frames are sent.
    pub fn proposal(&self, slot: u64) -> Option<(&Cell, &[u8])> {
        self.device.held(slot)
    }

    /// Sets the device's boot, if it has none yet.
    pub fn begin(&mut self, boot: u32) -> Result<(), Reason> {
        self.device.order.begin(boot)
    }

    /// [offload-5] Starts assigning slots in this ballot.
    pub fn start(&mut self, number: Number, start: Start) -> Result<(), Reason> {
        self.device.order.admit(number)?;
        let counts = 1 <= start.quorum && start.quorum <= start.members && start.members <= 16;
        if start.ballot == PackedBallot::NONE || !counts {
            return Err(Reason::Range);
        }
        // [offload-17] A running coordinator has to be stopped first, even to be started with the
        // same record.
        if self.started.is_some() {
            return Err(Reason::Armed);
        }
        if start.ballot < self.last {
            return Err(Reason::Ballot);
        }
        // [offload-12] A slot that was assigned in this ballot has a value already.
        if start.first < self.device.floor || (start.ballot == self.last && start.first < self.next)
        {
            return Err(Reason::Floor);
        }
        self.last = start.ballot;
        self.next = start.first;
        // Slots assigned before were adopted, otherwise it would not be started again: their cells
        // are free.
        self.device.floor = start.first;
        self.started = Some(start);
        Ok(())
    }

    /// [offload-14] Forgets proposals below the floor, and assigns slots up to this limit. Neither
    /// ever decreases.
    pub fn raise_floor(&mut self, number: Number, floor: u64, limit: u64) -> Result<(), Reason> {
        self.device.order.admit(number)?;
        let start = self.started.as_mut().ok_or(Reason::Disarmed)?;
        // Slots above the next were not assigned, so they are not decided.
        if floor < self.device.floor || floor > self.next || limit < start.limit {
            return Err(Reason::Floor);
        }
        self.device.floor = floor;
        start.limit = limit;
        Ok(())
    }

    /// [offload-12] Stops assigning slots and counting votes; `next` and the cells stay to be read.
    pub fn stop(&mut self, number: Number) -> Result<(), Reason> {
        self.device.order.admit(number)?;
        self.started = None;
        Ok(())
    }

    /// Processes one frame.
    pub fn step(&mut self, from: Port, frame: &[u8], out: &mut Out<'_>) -> Verdict {
        match arrive(&self.device.setup, from, frame) {
            Ok(asked) => self.on_arrival(&asked, out),
            Err(reason) => self.device.turn_away(reason),
        }
    }

    /// Processes a valid frame of the group.
    pub(crate) fn on_arrival(&mut self, asked: &Admitted<'_>, out: &mut Out<'_>) -> Verdict {
        if let Err(reason) = accept(asked, takes) {
            return self.device.turn_away(reason);
        }
        let done = match asked.header.kind {
            Type::Submit => self.on_submit(asked, out),
            Type::Phase2b => self.on_phase2b(asked, out),
            Type::Tick => self.on_tick(asked, out),
            Type::Read => self.on_read(asked, out),
            Type::Ask => return self.on_ask(asked, out),
            _ => self.on_control(asked, out),
        };
        let reason = done.err().unwrap_or(Reason::None);
        self.device.finish(asked, reason, &self.state(), out)
    }

    /// [offload-14] Claims the cell, then raises `next`, as one step. Beyond the limit or the ring
    /// it is full, and the sender gets a refusal.
    fn on_submit(&mut self, asked: &Admitted<'_>, out: &mut Out<'_>) -> Result<(), Reason> {
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
            // Its own proposal does not count as a vote ([offload-10]).
            voters: 0,
        };
        // Stored before it is sent ([offload-12]).
        self.device.cells.put(cell, asked.room);
        self.next = slot + 1;
        let header = Header { slot, ..self.proposal_header(start, &asked.header) };
        self.device.send_all(asked, &start.proposals, &header, None, out);
        Ok(())
    }

    /// [offload-10] Counts a position once, for a slot of this start, in exactly this ballot.
    fn on_phase2b(&mut self, asked: &Admitted<'_>, out: &mut Out<'_>) -> Result<(), Reason> {
        let start = self.started.as_ref().ok_or(Reason::Stale)?;
        let (slot, position) = (asked.header.slot, asked.header.position);
        // The cell of a slot below the first one may belong to an earlier start; the floor excludes
        // it.
        let given_out = self.device.floor <= slot && slot < self.next;
        let cell = self.device.cells.at(slot);
        let counts = asked.header.ballot == start.ballot && position < start.members;
        if !given_out || !counts || !cell.holds(start.ballot, slot) {
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
        // Crossed once: later votes do not cause a second decision.
        if voters.count_ones() != u32::from(start.quorum) {
            return Ok(());
        }
        let hint = if start.hint { HINT } else { 0 };
        let header = Header {
            kind: Type::Decided,
            position: 0,
            flags: hint | COORDINATOR,
            boot: self.device.order.boot(),
            ..asked.header
        };
        let (header, room) = self.device.shown(header);
        self.device.send_all(asked, &start.decisions, &header, Some(room), out);
        let owner = &self.device.setup.owner;
        self.device.send(asked, Port::Owner, owner, &header, Some(room), out);
        Ok(())
    }

    /// [offload-19] Proposes a slot again, unchanged. The owner names the oldest undecided one.
    fn on_tick(&self, asked: &Admitted<'_>, out: &mut Out<'_>) -> Result<(), Reason> {
        let start = self.started.as_ref().ok_or(Reason::Disarmed)?;
        let slot = asked.header.slot;
        let given_out = self.device.floor <= slot && slot < self.next;
        if !given_out || !self.device.cells.at(slot).holds(start.ballot, slot) {
            return Err(Reason::Stale);
        }
        let header = self.proposal_header(start, &asked.header);
        let (header, room) = self.device.shown(header);
        let header = Header { voted: 0, flags: COORDINATOR | REPEAT, ..header };
        self.device.send_all(asked, &start.proposals, &header, Some(room), out);
        Ok(())
    }

    /// [offload-7] [offload-12] Answers a read with the proposal of a slot.
    fn on_read(&self, asked: &Admitted<'_>, out: &mut Out<'_>) -> Result<(), Reason> {
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
        let (header, room) = self.device.shown(header);
        let owner = &self.device.setup.owner;
        self.device.send(asked, Port::Owner, owner, &header, Some(room), out);
        Ok(())
    }

    fn on_ask(&mut self, asked: &Admitted<'_>, out: &mut Out<'_>) -> Verdict {
        self.device.done(asked, &self.state(), out);
        Verdict::Taken
    }

    /// [offload-17] Carries out a control call of the owner.
    fn on_control(&mut self, asked: &Admitted<'_>, out: &mut Out<'_>) -> Result<(), Reason> {
        let header = &asked.header;
        let number = header.number();
        match header.kind {
            Type::Arm => {
                let start = Start {
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
            _ => self.begin(header.boot)?,
        }
        self.device.done(asked, &self.state(), out);
        Ok(())
    }

    fn proposal_header(&self, start: &Start, asked: &Header) -> Header {
        Header {
            kind: Type::Phase2a,
            position: 0,
            ballot: start.ballot,
            voted: 0,
            reason: 0,
            flags: COORDINATOR,
            boot: self.device.order.boot(),
            ..*asked
        }
    }
}

pub(crate) fn takes(header: &Header) -> bool {
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
