//! State and responses shared by both programs: cells, counters, and the order of control calls.

use crate::{
    Address, Cell, Cells, Counters, Descriptor, Header, Out, PackedBallot, Port, Reason, Routes,
    Setup, State, Type, Verdict,
    admit::{Admitted, is_control},
    checksum::sum,
    control::Order,
    header::{HINT, ROOM_BYTES_MAX},
};

/// State of a program, without the record that it is armed with.
#[derive(Debug)]
pub(crate) struct Device<'a> {
    pub(crate) setup: Setup,
    /// Flag set in all frames of the program: [`COORDINATOR`](crate::header::COORDINATOR), or 0.
    pub(crate) role: u16,
    pub(crate) cells: Cells<'a>,
    pub(crate) counters: Counters,
    pub(crate) order: Order,
    pub(crate) floor: u64,
}

impl<'a> Device<'a> {
    pub(crate) fn new(setup: Setup, role: u16, cells: Cells<'a>) -> Self {
        assert!(setup.is_sound(), "a room of {} bytes", setup.room);
        Self {
            setup,
            role,
            cells,
            counters: Counters::default(),
            order: Order::default(),
            floor: 0,
        }
    }

    /// Clears all state, as a power cycle does.
    pub(crate) fn forget(&mut self) {
        self.cells.clear();
        self.counters = Counters::default();
        self.order = Order::default();
        self.floor = 0;
    }

    /// Counts a frame that was not admitted.
    pub(crate) fn turn_away(&mut self, reason: Reason) -> Verdict {
        self.counters.count(reason);
        if reason.passes() { Verdict::Pass } else { Verdict::Taken }
    }

    /// Ends a step: counts its outcome, and sends a refusal if one is due.
    pub(crate) fn finish(
        &mut self,
        asked: &Admitted<'_>,
        reason: Reason,
        state: &State,
        out: &mut Out<'_>,
    ) -> Verdict {
        let mut reason = reason;
        if reason.answers() {
            // Responses go to the owner's configured address, regardless of the source address in
            // the call.
            let to =
                if is_control(asked.header.kind) { Some(self.setup.owner) } else { asked.source() };
            match to {
                Some(to) => self.refuse(asked, &to, reason, state, out),
                None => reason = Reason::Source,
            }
        }
        self.counters.count(reason);
        Verdict::Taken
    }

    /// Returns the frame to its sender as a refusal, with its slot, descriptor and value area, so
    /// that the sender can identify it.
    fn refuse(
        &self,
        asked: &Admitted<'_>,
        to: &Address,
        reason: Reason,
        state: &State,
        out: &mut Out<'_>,
    ) {
        let header = Header {
            kind: Type::Refused,
            position: state.position,
            ballot: state.ballot,
            voted: state.floor.max(state.next),
            reason: reason as u8,
            flags: self.role,
            boot: state.boot,
            ..asked.header
        };
        self.send(asked, asked.from, to, &header, None, out);
    }

    /// Sends the program's state to the owner.
    pub(crate) fn done(&self, asked: &Admitted<'_>, state: &State, out: &mut Out<'_>) {
        let hint = if state.hint { HINT } else { 0 };
        let room = u16::try_from(self.setup.room).expect("a room of at most 1408 bytes");
        let counter = match asked.header.kind {
            Type::Ask => self.counters.at(asked.header.value.origin).unwrap_or(0),
            _ => asked.header.value.counter,
        };
        let header = Header {
            kind: Type::Done,
            position: state.position,
            slot: state.floor,
            ballot: state.ballot,
            voted: state.next,
            flags: self.role | hint,
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
        self.send(asked, Port::Owner, &self.setup.owner, &header, None, out);
    }

    /// Returns the contents of a slot's cell, in any ballot, or `None` if the cell stores another
    /// slot ([offload-7]).
    pub(crate) fn held(&self, slot: u64) -> Option<(&Cell, &[u8])> {
        let cell = self.cells.at(slot);
        let held = cell.ballot != PackedBallot::NONE && cell.slot == slot;
        held.then(|| (cell, self.cells.room(slot)))
    }

    /// Adds the contents of the slot's cell to a header. Returns the header and the cell's value
    /// area.
    pub(crate) fn shown(&self, header: Header) -> (Header, &[u8]) {
        const NOTHING: [u8; ROOM_BYTES_MAX] = [0; ROOM_BYTES_MAX];
        let (voted, value, sum, room) = match self.held(header.slot) {
            Some((cell, room)) => (cell.ballot.0, cell.value, cell.sum, room),
            None => (0, Descriptor::NONE, 0, &NOTHING[..self.setup.room]),
        };
        let header = Header { voted, value, sum, ..header };
        (header, room)
    }

    /// Sends a copy of the frame along each route.
    pub(crate) fn send_all(
        &self,
        asked: &Admitted<'_>,
        routes: &Routes,
        header: &Header,
        room: Option<&[u8]>,
        out: &mut Out<'_>,
    ) {
        for to in routes.iter() {
            self.send(asked, Port::Network, to, header, room, out);
        }
    }

    /// Rewrites the frame that arrived and sends it. `room` replaces its value area unless it is
    /// `None`.
    pub(crate) fn send(
        &self,
        asked: &Admitted<'_>,
        port: Port,
        to: &Address,
        header: &Header,
        room: Option<&[u8]>,
        out: &mut Out<'_>,
    ) {
        let frame = out.push(port, asked.frame.len());
        frame.copy_from_slice(asked.frame);
        if let Some(room) = room {
            frame[asked.form.room_at()..].copy_from_slice(room);
        }
        debug_assert_eq!(sum(0, &frame[asked.form.room_at()..]), header.sum);
        asked.form.rewrite(frame, &self.setup.own, to, header);
    }
}
