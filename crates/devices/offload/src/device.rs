//! State and responses shared by both programs: cells, counters, and the order of control calls.

use crate::{
    Address, Cell, Cells, Counters, Descriptor, Header, OutputFrames, PackedBallot, Port, Reason,
    Routes, Setup, State, Type, Verdict,
    admit::{Admitted, is_control},
    checksum::ones_complement_sum,
    control::CallOrder,
    header::{HINT, ROOM_BYTES_MAX},
};

/// State of a program, without the record that it is armed with.
#[derive(Debug)]
pub(crate) struct Device<'a> {
    pub(crate) setup: Setup,
    /// Flag set in all frames of the program: [`COORDINATOR`](crate::header::COORDINATOR), or 0.
    pub(crate) role_flag: u16,
    pub(crate) cells: Cells<'a>,
    pub(crate) counters: Counters,
    pub(crate) call_order: CallOrder,
    pub(crate) floor: u64,
}

impl<'a> Device<'a> {
    pub(crate) fn new(setup: Setup, role: u16, cells: Cells<'a>) -> Self {
        assert!(setup.has_valid_room(), "a room of {} bytes", setup.room);
        Self {
            setup,
            role_flag: role,
            cells,
            counters: Counters::default(),
            call_order: CallOrder::default(),
            floor: 0,
        }
    }

    /// Clears all state, as a power cycle does.
    pub(crate) fn clear_state(&mut self) {
        self.cells.clear();
        self.counters = Counters::default();
        self.call_order = CallOrder::default();
        self.floor = 0;
    }

    /// Counts a frame that was not admitted.
    pub(crate) fn count_rejected(&mut self, reason: Reason) -> Verdict {
        self.counters.count(reason);
        if reason.is_passed_on() { Verdict::PassOn } else { Verdict::Consumed }
    }

    /// Ends a step: counts its outcome, and sends a refusal if one is due.
    pub(crate) fn finish_step(
        &mut self,
        asked: &Admitted<'_>,
        reason: Reason,
        state: &State,
        out: &mut OutputFrames<'_>,
    ) -> Verdict {
        let mut reason = reason;
        if reason.is_answered() {
            // Responses go to the owner's configured address, regardless of the source address in
            // the call.
            let to =
                if is_control(asked.header.kind) { Some(self.setup.owner) } else { asked.source() };
            match to {
                Some(to) => self.send_refusal(asked, &to, reason, state, out),
                None => reason = Reason::Source,
            }
        }
        self.counters.count(reason);
        Verdict::Consumed
    }

    /// Returns the frame to its sender as a refusal, with its slot, descriptor and value area, so
    /// that the sender can identify it.
    fn send_refusal(
        &self,
        asked: &Admitted<'_>,
        to: &Address,
        reason: Reason,
        state: &State,
        out: &mut OutputFrames<'_>,
    ) {
        let header = Header {
            kind: Type::Refused,
            position: state.position,
            ballot: state.ballot,
            voted: state.floor.max(state.next),
            reason: reason as u8,
            flags: self.role_flag,
            boot: state.boot,
            ..asked.header
        };
        self.send_rewritten(asked, asked.from, to, &header, None, out);
    }

    /// Sends the program's state to the owner.
    pub(crate) fn send_state(
        &self,
        asked: &Admitted<'_>,
        state: &State,
        out: &mut OutputFrames<'_>,
    ) {
        let hint = if state.hint { HINT } else { 0 };
        let room = u16::try_from(self.setup.room).expect("a room of at most 1408 bytes");
        let counter = match asked.header.kind {
            Type::Ask => self.counters.count_numbered(asked.header.value.origin).unwrap_or(0),
            _ => asked.header.value.counter,
        };
        let header = Header {
            kind: Type::Done,
            position: state.position,
            slot: state.floor,
            ballot: state.ballot,
            voted: state.next,
            flags: self.role_flag | hint,
            boot: state.boot,
            value: Descriptor {
                kind: 0,
                counter,
                length: room,
                crc: self.cells.count(),
                ..asked.header.value
            },
            ..asked.header
        };
        self.send_rewritten(asked, Port::Owner, &self.setup.owner, &header, None, out);
    }

    /// Returns the contents of a slot's cell, in any ballot, or `None` if the cell stores another
    /// slot ([offload-7]).
    pub(crate) fn cell_of_slot(&self, slot: u64) -> Option<(&Cell, &[u8])> {
        let cell = self.cells.at(slot);
        let held = cell.ballot != PackedBallot::NONE && cell.slot == slot;
        held.then(|| (cell, self.cells.room(slot)))
    }

    /// Adds the contents of the slot's cell to a header. Returns the header and the cell's value
    /// area.
    pub(crate) fn with_cell_contents(&self, header: Header) -> (Header, &[u8]) {
        const NOTHING: [u8; ROOM_BYTES_MAX] = [0; ROOM_BYTES_MAX];
        let (voted, value, sum, room) = match self.cell_of_slot(header.slot) {
            Some((cell, room)) => (cell.ballot.0, cell.value, cell.sum, room),
            None => (0, Descriptor::NONE, 0, &NOTHING[..self.setup.room]),
        };
        let header = Header { voted, value, sum, ..header };
        (header, room)
    }

    /// Sends a copy of the frame along each route.
    pub(crate) fn send_along_routes(
        &self,
        asked: &Admitted<'_>,
        routes: &Routes,
        header: &Header,
        room: Option<&[u8]>,
        out: &mut OutputFrames<'_>,
    ) {
        for to in routes.iter() {
            self.send_rewritten(asked, Port::Network, to, header, room, out);
        }
    }

    /// Rewrites the frame that arrived and sends it. `room` replaces its value area unless it is
    /// `None`.
    pub(crate) fn send_rewritten(
        &self,
        asked: &Admitted<'_>,
        port: Port,
        to: &Address,
        header: &Header,
        room: Option<&[u8]>,
        out: &mut OutputFrames<'_>,
    ) {
        let frame = out.push(port, asked.frame.len());
        frame.copy_from_slice(asked.frame);
        if let Some(room) = room {
            frame[asked.form.room_offset()..].copy_from_slice(room);
        }
        debug_assert_eq!(ones_complement_sum(0, &frame[asked.form.room_offset()..]), header.sum);
        asked.form.rewrite_frame(frame, &self.setup.own_address, to, header);
    }
}
