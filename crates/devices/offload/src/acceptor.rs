//! The acceptor: votes in one ballot and stores its votes. It makes no promises.

use crate::{
    CallNumber, Cell, Cells, Counters, Header, OutputFrames, PackedBallot, Port, Reason, Routes,
    Setup, State, Type, Verdict,
    admit::{Admitted, check_contents, is_for_coordinator, parse_frame},
    device::Device,
    header::REPEAT,
};

/// Parameters for arming an acceptor. A new record replaces all of them ([offload-17]).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ArmParameters {
    /// The only ballot in which the acceptor votes.
    pub ballot: PackedBallot,
    /// The acceptor's position in the configuration of the ballot's era.
    pub position: u8,
    /// Lowest slot in which the acceptor votes.
    pub floor: u64,
    pub votes: Routes,
}

/// An acceptor, which stores its votes and the bytes of their values.
#[derive(Debug)]
pub struct Acceptor<'a> {
    device: Device<'a>,
    /// Destinations of votes, used when the acceptor is armed by a frame.
    vote_routes: Routes,
    armed: Option<ArmParameters>,
    /// Highest ballot with which the acceptor has been armed.
    last_armed: PackedBallot,
}

impl<'a> Acceptor<'a> {
    /// Creates a disarmed acceptor without a boot. Panics if the size of the value area is not a
    /// multiple of 8, or is above 1408 bytes.
    pub fn new(setup: Setup, votes: Routes, cells: Cells<'a>) -> Self {
        Self {
            device: Device::new(setup, 0, cells),
            vote_routes: votes,
            armed: None,
            last_armed: PackedBallot::NONE,
        }
    }

    /// Clears all state, as a power cycle does ([offload-9]).
    pub fn clear_state(&mut self) {
        self.device.clear_state();
        self.armed = None;
        self.last_armed = PackedBallot::NONE;
    }

    pub fn state(&self) -> State {
        let armed = self.armed.as_ref();
        State {
            boot: self.device.call_order.boot(),
            ballot: armed.map_or(PackedBallot::NONE, |arm| arm.ballot),
            position: armed.map_or(0, |arm| arm.position),
            floor: self.device.floor,
            next: 0,
            hint: false,
        }
    }

    pub(crate) const fn setup(&self) -> &Setup {
        &self.device.setup
    }

    pub fn counters(&self) -> &Counters {
        &self.device.counters
    }

    /// Returns the stored vote for a slot, in any ballot, even if the acceptor is disarmed
    /// ([offload-7], [offload-8]).
    pub fn vote(&self, slot: u64) -> Option<(&Cell, &[u8])> {
        self.device.cell_of_slot(slot)
    }

    /// Sets the device's boot if it is not set yet.
    pub fn set_boot(&mut self, boot: u32) -> Result<(), Reason> {
        self.device.call_order.set_boot(boot)
    }

    /// [offload-5] Arms the acceptor to vote in the ballot of `arm`.
    pub fn arm(&mut self, number: CallNumber, arm: ArmParameters) -> Result<(), Reason> {
        self.device.call_order.accept_call(number)?;
        if arm.ballot == PackedBallot::NONE || arm.position >= 16 {
            return Err(Reason::Range);
        }
        // [offload-17] A different record is accepted only while disarmed. The same record is a
        // retry after a lost response.
        let same =
            |armed: &ArmParameters| armed.ballot == arm.ballot && armed.position == arm.position;
        if !self.armed.as_ref().is_none_or(same) {
            return Err(Reason::Armed);
        }
        // In a lower ballot, its votes would overwrite those of a higher one.
        if arm.ballot < self.last_armed {
            return Err(Reason::Ballot);
        }
        // [offload-6] A cell never returns to a lower slot, no matter which owner arms the
        // acceptor.
        if arm.floor < self.device.floor {
            return Err(Reason::Floor);
        }
        self.last_armed = arm.ballot;
        self.device.floor = arm.floor;
        self.armed = Some(arm);
        Ok(())
    }

    /// [offload-14] Raises the floor and discards the votes below it.
    pub fn raise_floor(&mut self, number: CallNumber, floor: u64) -> Result<(), Reason> {
        self.device.call_order.accept_call(number)?;
        if floor < self.device.floor {
            return Err(Reason::Floor);
        }
        self.device.floor = floor;
        Ok(())
    }

    /// [offload-8] Stops voting. A step is atomic, so there is nothing to drain. The votes remain
    /// readable.
    pub fn fence(&mut self, number: CallNumber) -> Result<(), Reason> {
        self.device.call_order.accept_call(number)?;
        self.armed = None;
        Ok(())
    }

    pub fn step(&mut self, from: Port, frame: &[u8], out: &mut OutputFrames<'_>) -> Verdict {
        match parse_frame(&self.device.setup, from, frame) {
            Ok(asked) => self.on_arrival(&asked, out),
            Err(reason) => self.count_rejected(reason),
        }
    }

    /// Counts a frame that is invalid or belongs to another group.
    pub(crate) fn count_rejected(&mut self, reason: Reason) -> Verdict {
        self.device.count_rejected(reason)
    }

    /// Processes a frame that [`parse_frame`] has checked.
    pub(crate) fn on_arrival(
        &mut self,
        asked: &Admitted<'_>,
        out: &mut OutputFrames<'_>,
    ) -> Verdict {
        if let Err(reason) = check_contents(asked, is_handled) {
            return self.device.count_rejected(reason);
        }
        let done = match asked.header.kind {
            Type::Phase1a => self.on_phase1a(asked, out),
            Type::Phase2a => self.on_phase2a(asked, out),
            Type::Read => self.on_read_cell(asked, out),
            Type::Ask => return self.on_query(asked, out),
            _ => self.on_control(asked, out),
        };
        let reason = done.err().unwrap_or(Reason::None);
        self.device.finish_step(asked, reason, &self.state(), out)
    }

    /// [offload-6] Votes for a proposal. A repeated proposal gets the stored vote again.
    fn on_phase2a(
        &mut self,
        asked: &Admitted<'_>,
        out: &mut OutputFrames<'_>,
    ) -> Result<(), Reason> {
        let armed = self.armed.as_ref().ok_or(Reason::Disarmed)?;
        let slot = asked.header.slot;
        if asked.header.ballot != armed.ballot {
            return Err(Reason::Ballot);
        }
        if slot < self.device.floor {
            return Err(Reason::Floor);
        }
        if !self.device.cells.is_within(self.device.floor, slot) {
            return Err(Reason::Full);
        }
        let cell = self.device.cells.at(slot);
        if cell.is_holding(armed.ballot, slot) {
            // The stored vote is sent, regardless of the proposal's contents. A receiver that
            // compares descriptors detects a difference ([count-1]).
            let (header, room) = self.device.with_cell_contents(Header {
                flags: REPEAT,
                ..self.reply_header(Type::Phase2b, armed, &asked.header)
            });
            self.device.send_along_routes(asked, &armed.votes, &header, Some(room), out);
            return Ok(());
        }
        // The check and the write are one step, so no reader sees the cell in between.
        let cell = Cell {
            ballot: armed.ballot,
            slot,
            value: asked.header.value,
            sum: asked.header.sum,
            voters: 0,
        };
        self.device.cells.put(cell, asked.room);
        let header = self.reply_header(Type::Phase2b, armed, &asked.header);
        self.device.send_along_routes(asked, &armed.votes, &header, None, out);
        // The owner logs the vote when it receives this copy.
        let owner = &self.device.setup.owner;
        self.device.send_rewritten(asked, Port::Owner, owner, &header, None, out);
        Ok(())
    }

    /// [offload-7] Sends the stored vote for a slot. Stores nothing and promises nothing.
    fn on_phase1a(&self, asked: &Admitted<'_>, out: &mut OutputFrames<'_>) -> Result<(), Reason> {
        let armed = self.armed.as_ref().ok_or(Reason::Disarmed)?;
        let header = self.reply_header(Type::Phase1b, armed, &asked.header);
        let (header, room) = self.device.with_cell_contents(header);
        self.device.send_along_routes(asked, &armed.votes, &header, Some(room), out);
        Ok(())
    }

    /// Sends a cell to the owner, even if the acceptor is disarmed, because the owner reads out the
    /// votes after a fence ([offload-7], [offload-8]).
    fn on_read_cell(&self, asked: &Admitted<'_>, out: &mut OutputFrames<'_>) -> Result<(), Reason> {
        let state = self.state();
        let header = Header {
            kind: Type::Cell,
            position: state.position,
            ballot: state.ballot,
            reason: 0,
            flags: 0,
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
                let arm = ArmParameters {
                    ballot: header.ballot,
                    position: header.position,
                    floor: header.slot,
                    votes: self.vote_routes,
                };
                self.arm(number, arm)?;
            }
            Type::Floor => self.raise_floor(number, header.slot)?,
            Type::Fence => self.fence(number)?,
            _ => self.set_boot(header.boot)?,
        }
        self.device.send_state(asked, &self.state(), out);
        Ok(())
    }

    fn reply_header(&self, kind: Type, armed: &ArmParameters, asked: &Header) -> Header {
        Header {
            kind,
            position: armed.position,
            ballot: armed.ballot,
            voted: armed.ballot.0,
            reason: 0,
            flags: 0,
            boot: self.device.call_order.boot(),
            ..*asked
        }
    }
}

pub(crate) fn is_handled(header: &Header) -> bool {
    match header.kind {
        Type::Phase1a | Type::Phase2a => true,
        Type::Read | Type::Arm | Type::Floor | Type::Fence | Type::Ask | Type::Boot => {
            !is_for_coordinator(header)
        }
        Type::Submit
        | Type::Phase1b
        | Type::Phase2b
        | Type::Decided
        | Type::Refused
        | Type::Tick
        | Type::Cell
        | Type::Done => false,
    }
}
