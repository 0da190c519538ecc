//! Checks that every program makes on a frame before interpreting it. All devices make them in the
//! same order, so that all refuse a frame for the same reason.

use crate::{
    Address, Encapsulation, Header, Port, Reason, Setup, Type,
    checksum::ones_complement_sum,
    header::{COORDINATOR, FLAGS, HEADER_BYTES},
};

/// A valid frame from the group, split into its parts.
#[derive(Clone, Copy, Debug)]
pub struct Admitted<'a> {
    pub from: Port,
    pub form: Encapsulation,
    /// All bytes of the frame, including the encapsulation.
    pub frame: &'a [u8],
    pub header: Header,
    pub room: &'a [u8],
}

impl Admitted<'_> {
    /// Returns the sender's address, or `None` if it is not that of a single station. It is not
    /// authenticated.
    pub fn source(&self) -> Option<Address> {
        self.form.from(self.frame)
    }
}

/// Parses a frame. Fails with the [`Reason`] if it is not a valid frame from the group, addressed
/// to this station ([offload-16]).
pub fn parse_frame<'a>(setup: &Setup, from: Port, frame: &'a [u8]) -> Result<Admitted<'a>, Reason> {
    let form = Encapsulation::parse(frame, setup.own_address.port)?;
    let header: &[u8; HEADER_BYTES] =
        frame[form.header_offset()..].first_chunk().expect("a header was seen");
    let header = Header::read(header).ok_or(Reason::Foreign)?;
    if header.group != setup.group {
        return Err(Reason::Group);
    }
    let to = Encapsulation::destination_mac(frame);
    if to != setup.own_address.mac && to != setup.heard_group {
        return Err(Reason::Elsewhere);
    }
    if !form.has_room(frame, setup.room) {
        return Err(Reason::Length);
    }
    // [offload-6] [offload-16] The sum is checked before anything is written, so a frame corrupted
    // in transit causes no vote.
    let room = &frame[form.room_offset()..];
    form.verify_checksums(frame)?;
    if ones_complement_sum(0, room) != header.sum {
        return Err(Reason::Checksum);
    }
    Ok(Admitted { from, form, frame, header, room })
}

/// Parses a frame and checks its contents, or returns the reason to refuse it ([offload-16]).
/// `takes` returns whether the program handles a header.
pub fn parse_and_check<'a>(
    setup: &Setup,
    from: Port,
    frame: &'a [u8],
    takes: fn(&Header) -> bool,
) -> Result<Admitted<'a>, Reason> {
    let arrived = parse_frame(setup, from, frame)?;
    check_contents(&arrived, takes)?;
    Ok(arrived)
}

/// Checks the contents of a frame that [`parse_frame`] returned.
pub(crate) fn check_contents(
    arrived: &Admitted<'_>,
    takes: fn(&Header) -> bool,
) -> Result<(), Reason> {
    let header = &arrived.header;
    if !takes(header) {
        return Err(Reason::Other);
    }
    if arrived.from == Port::Network && is_control(header.kind) {
        return Err(Reason::Port);
    }
    if !has_unused_fields_zero(header) {
        return Err(Reason::Reserved);
    }
    if has_value(header.kind) {
        let fits = usize::from(header.value.length) <= arrived.room.len();
        if !fits || !header.value.is_offloadable() {
            return Err(Reason::Value);
        }
    }
    Ok(())
}

/// Returns whether the frame is addressed to the coordinator. Only meaningful for types that both
/// programs handle.
pub(crate) const fn is_for_coordinator(header: &Header) -> bool {
    header.flags & COORDINATOR != 0
}

/// [offload-17] Returns whether only the owner may send this type.
pub(crate) const fn is_control(kind: Type) -> bool {
    matches!(
        kind,
        Type::Tick | Type::Read | Type::Arm | Type::Floor | Type::Fence | Type::Ask | Type::Boot
    )
}

const fn has_value(kind: Type) -> bool {
    matches!(kind, Type::Submit | Type::Phase2a | Type::Phase2b | Type::Decided)
}

/// Returns whether all fields that this type does not use are zero.
const fn has_unused_fields_zero(header: &Header) -> bool {
    if header.flags & !FLAGS != 0 || header.reason != 0 {
        return false;
    }
    if header.position != 0 && !matches!(header.kind, Type::Phase2b | Type::Arm) {
        return false;
    }
    match header.kind {
        Type::Submit => header.slot == 0 && header.ballot.0 == 0 && header.voted == 0,
        Type::Phase2a => header.voted == 0,
        Type::Phase2b => header.voted == header.ballot.0,
        _ => true,
    }
}
