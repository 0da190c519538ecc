//! Owner requests to a device in the kernel, as function calls. Each sends one frame to the owner's
//! port and receives one in response.

use quorate_offload::{
    Descriptor, Form, Header, Number, PackedBallot, Reason, State, Type,
    header::{COORDINATOR, HEADER_BYTES, HINT},
    port::Program,
};

use crate::xdp::{Device, Entry, Failed, Fate};

/// Parameters with which to arm an acceptor ([offload-5]).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Arm {
    /// The only ballot in which the acceptor votes.
    pub ballot: PackedBallot,
    /// Position of the acceptor in the configuration of the ballot's era.
    pub position: u8,
    /// Lowest slot in which the acceptor votes.
    pub floor: u64,
}

/// Parameters with which to start a coordinator ([offload-5]).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Start {
    pub ballot: PackedBallot,
    /// First slot to assign: one past the leader's last proposal.
    pub first: u64,
    /// First slot that the coordinator may not assign.
    pub limit: u64,
    /// Number of members that form a quorum; any such set does ([offload-10]).
    pub quorum: u8,
    /// Number of positions in the configuration.
    pub members: u8,
    /// Set if decisions are only hints.
    pub hint: bool,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CellContents {
    /// Ballot of the vote or the proposal. May be older than the armed one.
    pub ballot: PackedBallot,
    pub value: Descriptor,
    /// The value, without padding.
    pub bytes: Vec<u8>,
}

/// Access to one program of a device through control calls.
#[derive(Clone, Copy)]
pub struct Calls<'a> {
    device: &'a Device,
    program: Program,
}

impl Device {
    /// Returns the calls to one of the device's programs. If the device does not have the program,
    /// calls get no response.
    pub const fn calls(&self, program: Program) -> Calls<'_> {
        Calls { device: self, program }
    }
}

impl Calls<'_> {
    /// Sets the device's boot if it is not set yet.
    pub fn begin(&self, boot: u32) -> Result<State, Failed> {
        let mut header = self.plain(Type::Boot);
        header.boot = boot;
        self.control(&header)
    }

    /// [offload-5] Arms the acceptor to vote in the ballot of `arm`. May be repeated with the same
    /// ballot if the response was lost.
    pub fn arm(&self, number: Number, arm: Arm) -> Result<State, Failed> {
        if arm.position >= 16 {
            return Err(Failed::Refused(Reason::Range));
        }
        let mut header = self.call(Type::Arm, number);
        (header.ballot, header.position, header.slot) = (arm.ballot, arm.position, arm.floor);
        self.control(&header)
    }

    /// [offload-5] Starts the coordinator, which assigns slots in the ballot of `start`.
    pub fn start(&self, number: Number, start: Start) -> Result<State, Failed> {
        let mut header = self.call(Type::Arm, number);
        (header.ballot, header.slot, header.voted) = (start.ballot, start.first, start.limit);
        (header.value.kind, header.value.origin) = (start.quorum, start.members.into());
        header.flags |= if start.hint { HINT } else { 0 };
        self.control(&header)
    }

    /// [offload-14] Discards the slots below `floor`. An acceptor ignores `limit`.
    pub fn raise_floor(&self, number: Number, floor: u64, limit: u64) -> Result<State, Failed> {
        let mut header = self.call(Type::Floor, number);
        (header.slot, header.voted) = (floor, limit);
        self.control(&header)
    }

    /// Fences the program: an acceptor stops voting, and a coordinator stops assigning slots and
    /// counting votes. The owner must drain the device before it reads the program's state
    /// ([offload-8], [offload-12]).
    pub fn fence(&self, number: Number) -> Result<State, Failed> {
        self.control(&self.call(Type::Fence, number))
    }

    /// Queries the program's state: boot, ballot, floor and next slot ([offload-18]). A query has
    /// no call number.
    pub fn state(&self) -> Result<State, Failed> {
        self.control(&self.plain(Type::Ask))
    }

    /// [offload-7] Returns the contents of a slot's cell, or `None` if the cell does not store the
    /// slot.
    pub fn read(&self, slot: u64) -> Result<Option<CellContents>, Failed> {
        let mut header = self.plain(Type::Read);
        header.slot = slot;
        let (fate, header, room) = self.ask(&header)?;
        if fate != Fate::ToOwner || header.kind != Type::Cell || header.slot != slot {
            return Err(Failed::Answer);
        }
        let bytes = room.get(..header.value.length.into());
        Ok((header.voted != 0).then(|| CellContents {
            ballot: PackedBallot(header.voted),
            value: header.value,
            bytes: bytes.unwrap_or(&room).to_vec(),
        }))
    }

    /// [offload-19] Returns the proposal of a slot as a frame, which the owner has to send because
    /// the kernel can only send in response to a received frame.
    pub fn tick(&self, slot: u64, form: Form) -> Result<Vec<u8>, Failed> {
        let mut header = self.plain(Type::Tick);
        header.slot = slot;
        let mut frame = self.frame(form, &header)?;
        match self.device.put(Entry::Owner, &mut frame)? {
            Fate::ToNetwork => Ok(frame),
            Fate::ToOwner => Err(refusal(&parse(&frame)?.0)),
            Fate::Taken | Fate::Passed => Err(Failed::Refused(Reason::Stale)),
        }
    }

    fn plain(&self, kind: Type) -> Header {
        let mut header = Header::submit(self.device.settings.setup.group, Descriptor::NONE, 0);
        header.kind = kind;
        if self.program == Program::Coordinator {
            header.flags = COORDINATOR;
        }
        header
    }

    fn call(&self, kind: Type, number: Number) -> Header {
        let mut header = self.plain(kind);
        header.boot = number.device_boot;
        header.value.origin_boot = number.owner_boot;
        header.value.counter = number.counter;
        header
    }

    fn frame(&self, form: Form, header: &Header) -> Result<Vec<u8>, Failed> {
        let setup = &self.device.settings.setup;
        let room = vec![0; setup.room];
        let mut buffer = vec![0; form.room_at() + room.len()];
        form.write(&mut buffer, &setup.owner, &setup.own, header, &room)
            .ok_or(Failed::Room(setup.room))?;
        Ok(buffer)
    }

    fn ask(&self, header: &Header) -> Result<(Fate, Header, Vec<u8>), Failed> {
        let mut frame = self.frame(Form::Raw, header)?;
        let fate = self.device.put(Entry::Owner, &mut frame)?;
        let (header, room) = parse(&frame)?;
        Ok((fate, header, room.to_vec()))
    }

    fn control(&self, header: &Header) -> Result<State, Failed> {
        let (fate, answer, _) = self.ask(header)?;
        match (fate, answer.kind) {
            (Fate::ToOwner, Type::Done) => Ok(State {
                boot: answer.boot,
                ballot: answer.ballot,
                position: answer.position,
                floor: answer.slot,
                next: answer.voted,
                hint: answer.flags & HINT != 0,
            }),
            (Fate::ToOwner, Type::Refused) => Err(refusal(&answer)),
            _ => Err(Failed::Answer),
        }
    }
}

/// Splits a raw frame into header and value area.
fn parse(frame: &[u8]) -> Result<(Header, &[u8]), Failed> {
    let form = Form::Raw;
    let header = frame.get(form.header_at()..).ok_or(Failed::Answer)?;
    let header: &[u8; HEADER_BYTES] = header.first_chunk().ok_or(Failed::Answer)?;
    let header = Header::read(header).ok_or(Failed::Answer)?;
    Ok((header, frame.get(form.room_at()..).unwrap_or_default()))
}

fn refusal(header: &Header) -> Failed {
    let reason = Reason::ALL.get(usize::from(header.reason));
    reason.map_or(Failed::Answer, |reason| Failed::Refused(*reason))
}
