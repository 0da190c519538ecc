//! The 62-byte header at the start of every device frame, big-endian. `docs/spec/offload.md` §3
//! specifies the fields.

use crate::{CallNumber, PackedBallot, Reason};

pub const HEADER_BYTES: usize = 62;
/// Maximum size of the value area in bytes. With it, a frame just fits into an Ethernet frame of
/// 1500 bytes.
pub const ROOM_BYTES_MAX: usize = 1408;
/// First byte of the header. The upper half identifies the protocol, the lower half its version,
/// which is 1.
pub const MAGIC: u8 = 0xb1;

/// Flag: no durable votes were counted for this decision ([offload-10]).
pub const HINT: u16 = 1;
/// Flag: the frame is a retransmission.
pub const REPEAT: u16 = 2;
/// Flag: a tag follows the value. No program of this crate accepts such frames.
pub const KEYED: u16 = 4;
/// Flag: the frame is sent by or to a coordinator. Distinguishes types that both programs handle.
pub const COORDINATOR: u16 = 8;
pub const FLAGS: u16 = HINT | REPEAT | COORDINATOR;

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u8)]
pub enum Type {
    /// Submits a value, to be assigned a slot.
    Submit = 0,
    /// Queries the vote for a slot, without a promise ([offload-7]).
    Phase1a = 1,
    /// Reports the vote for a slot.
    Phase1b = 2,
    /// Proposes a value for a slot.
    Phase2a = 3,
    /// Reports a vote for a value.
    Phase2b = 4,
    /// Reports that a quorum voted for a value.
    Decided = 5,
    Refused = 6,
    /// Owner's request to propose a slot again.
    Tick = 7,
    /// Owner's request to read a cell.
    Read = 8,
    /// Reports the contents of a cell.
    Cell = 9,
    /// Owner's request to arm the acceptor, or to start the coordinator.
    Arm = 10,
    /// Owner's request to raise the floor, and also the limit of a coordinator.
    Floor = 11,
    /// Owner's request to disarm the acceptor, or to stop the coordinator.
    Fence = 12,
    /// Owner's query for the program's state.
    Ask = 13,
    /// Reports the program's state.
    Done = 14,
    /// Owner's request to set the boot if it is not set yet.
    Boot = 15,
}

impl Type {
    /// All types, in the order of their numbers.
    pub const ALL: [Self; 16] = [
        Self::Submit,
        Self::Phase1a,
        Self::Phase1b,
        Self::Phase2a,
        Self::Phase2b,
        Self::Decided,
        Self::Refused,
        Self::Tick,
        Self::Read,
        Self::Cell,
        Self::Arm,
        Self::Floor,
        Self::Fence,
        Self::Ask,
        Self::Done,
        Self::Boot,
    ];

    const fn from_nibble(nibble: u8) -> Self {
        Self::ALL[(nibble & 15) as usize]
    }
}

/// Identity of a value. Equal descriptors mean equal bytes ([value-2]).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Descriptor {
    /// Kind of the value, numbered as in `docs/spec/wire.md`. 0 means no value.
    pub kind: u8,
    /// Node that assigned the value's identity.
    pub origin: u32,
    /// Boot of the origin's process.
    pub origin_boot: u32,
    /// Counter that the origin increments within its boot.
    pub counter: u64,
    /// Length of the value's bytes.
    pub length: u16,
    pub crc: u32,
}

impl Descriptor {
    pub const NONE: Self =
        Self { kind: 0, origin: 0, origin_boot: 0, counter: 0, length: 0, crc: 0 };

    /// Returns whether devices carry values of this kind ([offload-15]).
    pub const fn is_offloadable(self) -> bool {
        matches!(self.kind, 1 | 2 | 4 | 5 | 6 | 8)
    }
}

/// A decoded header, without the constant magic.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Header {
    pub kind: Type,
    /// Position of the sending member, in the configuration of the ballot's era.
    pub position: u8,
    /// Hash of the cluster, generation and number of the group.
    pub group: u32,
    /// Slot of the value. Control calls store the floor or the first slot here.
    pub slot: u64,
    /// Ballot of the program's record, or of the proposal.
    pub ballot: PackedBallot,
    /// Ballot of the vote. Start and floor calls store the limit here; refusals and states, the
    /// floor or the next slot.
    pub voted: u64,
    /// Number of the [`Reason`] for a refusal.
    pub reason: u8,
    /// Combination of [`HINT`], [`REPEAT`] and [`COORDINATOR`].
    pub flags: u16,
    /// Boot of the sending device, for diagnosis. In control calls, boot of the addressed device.
    pub boot: u32,
    /// Descriptor of the value. Control calls use some of its fields for their arguments (see
    /// [`crate::control`]).
    pub value: Descriptor,
    /// One's-complement sum of the value area.
    pub sum: u16,
}

impl Header {
    /// Decodes a header. Returns `None` if the magic differs.
    pub fn read(bytes: &[u8; HEADER_BYTES]) -> Option<Self> {
        (bytes[0] == MAGIC).then(|| Self {
            kind: Type::from_nibble(bytes[1] >> 4),
            position: bytes[1] & 15,
            group: u32::from_be_bytes(bytes_at(bytes, 2)),
            slot: u64::from_be_bytes(bytes_at(bytes, 6)),
            ballot: PackedBallot(u64::from_be_bytes(bytes_at(bytes, 14))),
            voted: u64::from_be_bytes(bytes_at(bytes, 22)),
            reason: bytes[31],
            flags: u16::from_be_bytes(bytes_at(bytes, 32)),
            boot: u32::from_be_bytes(bytes_at(bytes, 34)),
            value: Descriptor {
                kind: bytes[30],
                origin: u32::from_be_bytes(bytes_at(bytes, 38)),
                origin_boot: u32::from_be_bytes(bytes_at(bytes, 42)),
                counter: u64::from_be_bytes(bytes_at(bytes, 46)),
                length: u16::from_be_bytes(bytes_at(bytes, 54)),
                crc: u32::from_be_bytes(bytes_at(bytes, 58)),
            },
            sum: u16::from_be_bytes(bytes_at(bytes, 56)),
        })
    }

    /// Encodes the header. Panics if the position has more than four bits.
    pub fn bytes(&self) -> [u8; HEADER_BYTES] {
        assert!(self.position < 16, "position {}", self.position);
        let mut bytes = [0; HEADER_BYTES];
        let mut put = |at: usize, part: &[u8]| bytes[at..at + part.len()].copy_from_slice(part);
        put(0, &[MAGIC, (self.kind as u8) << 4 | self.position]);
        put(2, &self.group.to_be_bytes());
        put(6, &self.slot.to_be_bytes());
        put(14, &self.ballot.0.to_be_bytes());
        put(22, &self.voted.to_be_bytes());
        put(30, &[self.value.kind, self.reason]);
        put(32, &self.flags.to_be_bytes());
        put(34, &self.boot.to_be_bytes());
        put(38, &self.value.origin.to_be_bytes());
        put(42, &self.value.origin_boot.to_be_bytes());
        put(46, &self.value.counter.to_be_bytes());
        put(54, &self.value.length.to_be_bytes());
        put(56, &self.sum.to_be_bytes());
        put(58, &self.value.crc.to_be_bytes());
        bytes
    }

    pub const fn call_number(&self) -> CallNumber {
        CallNumber {
            device_boot: self.boot,
            owner_boot: self.value.origin_boot,
            counter: self.value.counter,
        }
    }

    /// Creates the header that submits a value. `sum` is the checksum of the value area.
    pub const fn new_submit(group: u32, value: Descriptor, sum: u16) -> Self {
        Self {
            kind: Type::Submit,
            position: 0,
            group,
            slot: 0,
            ballot: PackedBallot::NONE,
            voted: 0,
            reason: Reason::None as u8,
            flags: 0,
            boot: 0,
            value,
            sum,
        }
    }
}

fn bytes_at<const N: usize>(bytes: &[u8; HEADER_BYTES], at: usize) -> [u8; N] {
    core::array::from_fn(|offset| bytes[at + offset])
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Every bit of the header belongs to one field and survives encoding and decoding.
    #[test]
    fn every_header_bit_survives_decoding_and_encoding() {
        for bit in 8..HEADER_BYTES * 8 {
            let mut bytes = [0; HEADER_BYTES];
            bytes[0] = MAGIC;
            bytes[bit / 8] |= 0x80 >> (bit % 8);
            assert_eq!(Header::read(&bytes).unwrap().bytes(), bytes, "bit {bit}");
        }
    }

    #[test]
    fn other_magic_or_version_is_ignored() {
        let mut bytes = [0; HEADER_BYTES];
        for magic in 0..=u8::MAX {
            bytes[0] = magic;
            assert_eq!(Header::read(&bytes).is_some(), magic == MAGIC);
        }
    }

    #[test]
    fn types_match_their_numbers() {
        for (number, kind) in (0..).zip(Type::ALL) {
            assert_eq!(kind as u8, number);
        }
    }

    #[test]
    fn content_and_reconfiguration_are_not_carried() {
        let carried = (0..=u8::MAX).filter(|kind| {
            let value = Descriptor { kind: *kind, ..Descriptor::NONE };
            value.is_offloadable()
        });
        assert!(carried.eq([1, 2, 4, 5, 6, 8]));
    }
}
