//! Owner requests to a device in the kernel, as function calls. Each sends one frame to the owner's
//! port and receives one in response.

use quorate_offload::{
    CallNumber, Descriptor, Encapsulation, Header, PackedBallot, Reason, State, Type,
    header::{COORDINATOR, HEADER_BYTES, HINT},
    port::Program,
};

use crate::xdp::{Device, EntryPoint, FrameFate, XdpError};

/// Parameters with which to arm an acceptor ([offload-5]).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ArmParameters {
    /// The only ballot in which the acceptor votes.
    pub ballot: PackedBallot,
    /// Position of the acceptor in the configuration of the ballot's era.
    pub position: u8,
    /// Lowest slot in which the acceptor votes.
    pub floor: u64,
}

/// Parameters with which to start a coordinator ([offload-5]).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StartParameters {
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
pub struct ControlCalls<'a> {
    device: &'a Device,
    program: Program,
}

impl Device {
    /// Returns the calls to one of the device's programs. If the device does not have the program,
    /// calls get no response.
    pub const fn control_calls(&self, program: Program) -> ControlCalls<'_> {
        ControlCalls { device: self, program }
    }
}

impl ControlCalls<'_> {
    /// Sets the device's boot if it is not set yet.
    pub fn set_boot(&self, boot: u32) -> Result<State, XdpError> {
        let mut header = self.empty_header(Type::Boot);
        header.boot = boot;
        self.call_for_state(&header)
    }

    /// [offload-5] Arms the acceptor to vote in the ballot of `arm`. May be repeated with the same
    /// ballot if the response was lost.
    pub fn arm(&self, number: CallNumber, arm: ArmParameters) -> Result<State, XdpError> {
        if arm.position >= 16 {
            return Err(XdpError::Refused(Reason::Range));
        }
        let mut header = self.call_header(Type::Arm, number);
        (header.ballot, header.position, header.slot) = (arm.ballot, arm.position, arm.floor);
        self.call_for_state(&header)
    }

    /// [offload-5] Starts the coordinator, which assigns slots in the ballot of `start`.
    pub fn start(&self, number: CallNumber, start: StartParameters) -> Result<State, XdpError> {
        let mut header = self.call_header(Type::Arm, number);
        (header.ballot, header.slot, header.voted) = (start.ballot, start.first, start.limit);
        (header.value.kind, header.value.origin) = (start.quorum, start.members.into());
        header.flags |= if start.hint { HINT } else { 0 };
        self.call_for_state(&header)
    }

    /// [offload-14] Discards the slots below `floor`. An acceptor ignores `limit`.
    pub fn raise_floor(
        &self,
        number: CallNumber,
        floor: u64,
        limit: u64,
    ) -> Result<State, XdpError> {
        let mut header = self.call_header(Type::Floor, number);
        (header.slot, header.voted) = (floor, limit);
        self.call_for_state(&header)
    }

    /// Fences the program: an acceptor stops voting, and a coordinator stops assigning slots and
    /// counting votes. The owner must drain the device before it reads the program's state
    /// ([offload-8], [offload-12]).
    pub fn fence(&self, number: CallNumber) -> Result<State, XdpError> {
        self.call_for_state(&self.call_header(Type::Fence, number))
    }

    /// Queries the program's state: boot, ballot, floor and next slot ([offload-18]). A query has
    /// no call number.
    pub fn query_state(&self) -> Result<State, XdpError> {
        self.call_for_state(&self.empty_header(Type::Ask))
    }

    /// [offload-7] Returns the contents of a slot's cell, or `None` if the cell does not store the
    /// slot.
    pub fn read_cell(&self, slot: u64) -> Result<Option<CellContents>, XdpError> {
        let mut header = self.empty_header(Type::Read);
        header.slot = slot;
        let (fate, header, room) = self.run_call(&header)?;
        if fate != FrameFate::ToOwner || header.kind != Type::Cell || header.slot != slot {
            return Err(XdpError::MismatchedAnswer);
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
    pub fn retransmission_frame(
        &self,
        slot: u64,
        form: Encapsulation,
    ) -> Result<Vec<u8>, XdpError> {
        let mut header = self.empty_header(Type::Tick);
        header.slot = slot;
        let mut frame = self.encode_frame(form, &header)?;
        match self.device.run_program(EntryPoint::Owner, &mut frame)? {
            FrameFate::ToNetwork => Ok(frame),
            FrameFate::ToOwner => Err(refusal_error(&split_frame(&frame)?.0)),
            FrameFate::Consumed | FrameFate::PassedOn => Err(XdpError::Refused(Reason::Stale)),
        }
    }

    fn empty_header(&self, kind: Type) -> Header {
        let mut header = Header::new_submit(self.device.settings.setup.group, Descriptor::NONE, 0);
        header.kind = kind;
        if self.program == Program::Coordinator {
            header.flags = COORDINATOR;
        }
        header
    }

    fn call_header(&self, kind: Type, number: CallNumber) -> Header {
        let mut header = self.empty_header(kind);
        header.boot = number.device_boot;
        header.value.origin_boot = number.owner_boot;
        header.value.counter = number.counter;
        header
    }

    fn encode_frame(&self, form: Encapsulation, header: &Header) -> Result<Vec<u8>, XdpError> {
        let setup = &self.device.settings.setup;
        let room = vec![0; setup.room];
        let mut buffer = vec![0; form.room_offset() + room.len()];
        form.write_frame(&mut buffer, &setup.owner, &setup.own_address, header, &room)
            .ok_or(XdpError::InvalidRoom(setup.room))?;
        Ok(buffer)
    }

    fn run_call(&self, header: &Header) -> Result<(FrameFate, Header, Vec<u8>), XdpError> {
        let mut frame = self.encode_frame(Encapsulation::Raw, header)?;
        let fate = self.device.run_program(EntryPoint::Owner, &mut frame)?;
        let (header, room) = split_frame(&frame)?;
        Ok((fate, header, room.to_vec()))
    }

    fn call_for_state(&self, header: &Header) -> Result<State, XdpError> {
        let (fate, answer, _) = self.run_call(header)?;
        match (fate, answer.kind) {
            (FrameFate::ToOwner, Type::Done) => Ok(State {
                boot: answer.boot,
                ballot: answer.ballot,
                position: answer.position,
                floor: answer.slot,
                next: answer.voted,
                hint: answer.flags & HINT != 0,
            }),
            (FrameFate::ToOwner, Type::Refused) => Err(refusal_error(&answer)),
            _ => Err(XdpError::MismatchedAnswer),
        }
    }
}

/// Splits a raw frame into header and value area.
fn split_frame(frame: &[u8]) -> Result<(Header, &[u8]), XdpError> {
    let form = Encapsulation::Raw;
    let header = frame.get(form.header_offset()..).ok_or(XdpError::MismatchedAnswer)?;
    let header: &[u8; HEADER_BYTES] = header.first_chunk().ok_or(XdpError::MismatchedAnswer)?;
    let header = Header::read(header).ok_or(XdpError::MismatchedAnswer)?;
    Ok((header, frame.get(form.room_offset()..).unwrap_or_default()))
}

fn refusal_error(header: &Header) -> XdpError {
    let reason = Reason::ALL.get(usize::from(header.reason));
    reason.map_or(XdpError::MismatchedAnswer, |reason| XdpError::Refused(*reason))
}
