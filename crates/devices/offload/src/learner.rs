//! The learner, which counts votes by ballot, descriptor and position, and reports each decided
//! value once.
//!
//! A learner belongs to an owner, or to a client outside the group. It reports values as *decided*
//! frames at the owner's port. The owner restores the order and recovers lost frames, from an
//! acceptor or from a peer over TCP.

use crate::{
    CallNumber, Cell, Cells, Counters, Header, OutputFrames, PackedBallot, Port, Reason, Setup,
    State, Type, Verdict,
    admit::{Admitted, parse_and_check},
    checksum::crc32c,
    device::Device,
    header::HINT,
};

/// Parameters by which a learner counts. A new record replaces all of them ([offload-17]).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CountParameters {
    /// The only ballot whose votes count.
    pub ballot: PackedBallot,
    /// Lowest slot to count.
    pub floor: u64,
    /// Number of members that form a quorum; any such set does.
    pub quorum: u8,
    /// Number of positions in the configuration, at most 16.
    pub members: u8,
    /// Set if the group is durable. Device votes are volatile, so decisions are then only hints
    /// ([offload-10]).
    pub hint: bool,
}

#[derive(Debug)]
pub struct Learner<'a> {
    device: Device<'a>,
    counted_ballot: Option<CountParameters>,
}

/// Value of `voters` once the slot's value has been reported. A full set of 16 members has the same
/// value, but then the slot's value has been reported as well.
const VOTERS_REPORTED: u16 = u16::MAX;

impl<'a> Learner<'a> {
    /// Creates a learner that does not count yet. Panics if the size of the value area is not a
    /// multiple of 8, or is above 1408 bytes.
    pub fn new(setup: Setup, cells: Cells<'a>) -> Self {
        Self { device: Device::new(setup, 0, cells), counted_ballot: None }
    }

    pub fn state(&self) -> State {
        let counting = self.counted_ballot.as_ref();
        State {
            boot: self.device.call_order.boot(),
            ballot: counting.map_or(PackedBallot::NONE, |count| count.ballot),
            position: 0,
            floor: self.device.floor,
            next: 0,
            hint: counting.is_some_and(|count| count.hint),
        }
    }

    pub fn counters(&self) -> &Counters {
        &self.device.counters
    }

    /// Returns the stored state of a slot, decided or not.
    pub fn stored_slot(&self, slot: u64) -> Option<(&Cell, &[u8])> {
        self.device.cell_of_slot(slot)
    }

    /// Sets the learner's boot if it is not set yet.
    pub fn set_boot(&mut self, boot: u32) -> Result<(), Reason> {
        self.device.call_order.set_boot(boot)
    }

    /// [offload-11] Starts counting votes in the ballot of `count`. Votes of other ballots are
    /// discarded.
    pub fn start_counting(
        &mut self,
        number: CallNumber,
        count: CountParameters,
    ) -> Result<(), Reason> {
        self.device.call_order.accept_call(number)?;
        let counts = 1 <= count.quorum && count.quorum <= count.members && count.members <= 16;
        if count.ballot == PackedBallot::NONE || !counts {
            return Err(Reason::Range);
        }
        if count.floor < self.device.floor {
            return Err(Reason::Floor);
        }
        self.device.floor = count.floor;
        self.counted_ballot = Some(count);
        Ok(())
    }

    /// [offload-14] Discards the slots below `floor`, whose values the owner has from other
    /// sources.
    pub fn raise_floor(&mut self, number: CallNumber, floor: u64) -> Result<(), Reason> {
        self.device.call_order.accept_call(number)?;
        if floor < self.device.floor {
            return Err(Reason::Floor);
        }
        self.device.floor = floor;
        Ok(())
    }

    /// [offload-8] Stops reporting values. Any further votes are for a ballot below the owner's
    /// promise.
    pub fn stop(&mut self, number: CallNumber) -> Result<(), Reason> {
        self.device.call_order.accept_call(number)?;
        self.counted_ballot = None;
        Ok(())
    }

    pub fn step(&mut self, from: Port, frame: &[u8], out: &mut OutputFrames<'_>) -> Verdict {
        let asked = match parse_and_check(&self.device.setup, from, frame, is_handled) {
            Ok(asked) => asked,
            Err(reason) => return self.device.count_rejected(reason),
        };
        let done = match asked.header.kind {
            Type::Phase2b => self.on_phase2b(&asked, out),
            _ => self.on_decided(&asked, out),
        };
        self.device.counters.count(done.err().unwrap_or(Reason::None));
        Verdict::Consumed
    }

    fn on_phase2b(
        &mut self,
        asked: &Admitted<'_>,
        out: &mut OutputFrames<'_>,
    ) -> Result<(), Reason> {
        let count = self.counted_ballot.ok_or(Reason::Disarmed)?;
        if asked.header.position >= count.members {
            return Err(Reason::Stale);
        }
        self.check_and_store(&count, asked)?;
        let bit = 1_u16 << asked.header.position;
        let cell = self.device.cells.at_mut(asked.header.slot);
        if cell.voters & bit != 0 {
            return Err(Reason::Stale);
        }
        cell.voters |= bit;
        if cell.voters.count_ones() >= u32::from(count.quorum) {
            self.report_value(asked, count.hint, out);
        }
        Ok(())
    }

    /// [offload-11] Handles a decision that another program counted. Hints are ignored.
    fn on_decided(
        &mut self,
        asked: &Admitted<'_>,
        out: &mut OutputFrames<'_>,
    ) -> Result<(), Reason> {
        let count = self.counted_ballot.ok_or(Reason::Disarmed)?;
        if count.hint || asked.header.flags & HINT != 0 {
            return Err(Reason::Hint);
        }
        self.check_and_store(&count, asked)?;
        self.report_value(asked, false, out);
        Ok(())
    }

    /// Checks that a frame belongs to the current count. Stores the first frame for a slot if its
    /// bytes match its descriptor, because those bytes are reported later.
    fn check_and_store(
        &mut self,
        count: &CountParameters,
        asked: &Admitted<'_>,
    ) -> Result<(), Reason> {
        let (slot, value) = (asked.header.slot, asked.header.value);
        let within = self.device.cells.is_within(self.device.floor, slot);
        if asked.header.ballot != count.ballot || !within {
            return Err(Reason::Stale);
        }
        let cell = self.device.cells.at(slot);
        if cell.is_holding(count.ballot, slot) {
            // [count-1] The conflicting vote is not counted, and the conflict is reported.
            if cell.value != value {
                return Err(Reason::Conflict);
            }
            if cell.voters == VOTERS_REPORTED {
                return Err(Reason::Stale);
            }
            return Ok(());
        }
        // The checksum is that of the value's origin. No device on the path has verified the bytes.
        let bytes = asked.room.get(..usize::from(value.length)).ok_or(Reason::Value)?;
        if crc32c(bytes) != value.crc {
            return Err(Reason::Checksum);
        }
        let cell = Cell { ballot: count.ballot, slot, value, sum: asked.header.sum, voters: 0 };
        self.device.cells.put(cell, asked.room);
        Ok(())
    }

    fn report_value(&mut self, asked: &Admitted<'_>, hint: bool, out: &mut OutputFrames<'_>) {
        self.device.cells.at_mut(asked.header.slot).voters = VOTERS_REPORTED;
        let header = Header {
            kind: Type::Decided,
            position: 0,
            flags: if hint { HINT } else { 0 },
            boot: self.device.call_order.boot(),
            ..asked.header
        };
        let (header, room) = self.device.with_cell_contents(header);
        let owner = &self.device.setup.owner;
        self.device.send_rewritten(asked, Port::Owner, owner, &header, Some(room), out);
    }
}

fn is_handled(header: &Header) -> bool {
    matches!(header.kind, Type::Phase2b | Type::Decided)
}
