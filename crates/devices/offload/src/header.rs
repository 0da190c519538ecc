//! The header of 62 bytes that every frame of a device has, big-endian. `docs/spec/offload.md` §3
//! is its table.

use crate::{Number, PackedBallot, Reason};

/// Length of the header, in bytes.
pub const HEADER_BYTES: usize = 62;
/// Maximum size of the value area; such a frame fits into an Ethernet frame of 1500 bytes.
pub const ROOM_BYTES_MAX: usize = 1408;
/// First byte of the header. Upper half: the protocol; lower half: version 1.
pub const MAGIC: u8 = 0xb1;

/// Flag: a decision that counted no durable votes ([offload-10]).
pub const HINT: u16 = 1;
/// Flag: the frame was sent before.
pub const REPEAT: u16 = 2;
/// Flag: a tag follows the value. No program here accepts such frames.
pub const KEYED: u16 = 4;
/// Flag: to or from a coordinator, where the type alone is ambiguous.
pub const COORDINATOR: u16 = 8;
/// Flags that may be set.
pub const FLAGS: u16 = HINT | REPEAT | COORDINATOR;

/// Type of a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u8)]
pub enum Type {
    /// Requests a slot for this value.
    Submit = 0,
    /// Requests the vote of a slot, without a promise ([offload-7]).
    Phase1a = 1,
    /// The vote of a slot.
    Phase1b = 2,
    /// Requests a vote for this value in this slot.
    Phase2a = 3,
    /// A vote for this value.
    Phase2b = 4,
    /// Reports that a quorum voted for this value.
    Decided = 5,
    /// A refusal, with its reason.
    Refused = 6,
    /// From the owner: propose this slot again.
    Tick = 7,
    /// From the owner: read this cell.
    Read = 8,
    /// Contents of a cell.
    Cell = 9,
    /// From the owner: arm an acceptor, or start a coordinator.
    Arm = 10,
    /// From the owner: raise the floor, and a coordinator's limit.
    Floor = 11,
    /// From the owner: disarm, or stop.
    Fence = 12,
    /// From the owner: query the state.
    Ask = 13,
    /// State of the program.
    Done = 14,
    /// From the owner: set the boot, if there is none.
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

    const fn of(nibble: u8) -> Self {
        Self::ALL[(nibble & 15) as usize]
    }
}

/// Identity of a value: equal descriptors mean equal bytes ([value-2]).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Descriptor {
    /// As in frames of `docs/spec/wire.md`; 0 is none.
    pub kind: u8,
    /// The node that named the value.
    pub origin: u32,
    /// Boot of that node's process.
    pub origin_boot: u32,
    /// Counter within the boot.
    pub counter: u64,
    /// Length of the value, in bytes.
    pub length: u16,
    /// CRC-32C of the value.
    pub crc: u32,
}

impl Descriptor {
    /// No value.
    pub const NONE: Self =
        Self { kind: 0, origin: 0, origin_boot: 0, counter: 0, length: 0, crc: 0 };

    /// Returns whether a device carries values of this kind: any but content and reconfiguration
    /// ([offload-15]).
    pub const fn is_carried(self) -> bool {
        matches!(self.kind, 1 | 2 | 4 | 5 | 6 | 8)
    }
}

/// All fields except the magic, which is constant.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Header {
    pub kind: Type,
    /// Position of the sending member, in the configuration of the ballot's era.
    pub position: u8,
    /// Hash of cluster, generation and number.
    pub group: u32,
    /// Slot of the value. In control calls: floor or first slot.
    pub slot: u64,
    /// Ballot of the device's record, or of the proposal.
    pub ballot: PackedBallot,
    /// Ballot of the vote. In start and floor calls: the limit. In refusals and states: floor or
    /// next slot.
    pub voted: u64,
    /// Reason of a refusal, by number.
    pub reason: u8,
    /// [`HINT`], [`REPEAT`], [`COORDINATOR`].
    pub flags: u16,
    /// Boot of the device, for diagnosis; boot of the addressed device in control calls.
    pub boot: u32,
    /// Descriptor of the value. Control calls use some of its fields, see [`crate::control`].
    pub value: Descriptor,
    /// One's-complement sum of the value area.
    pub sum: u16,
}

impl Header {
    /// Decodes a header; `None` if the magic differs.
    pub fn read(bytes: &[u8; HEADER_BYTES]) -> Option<Self> {
        (bytes[0] == MAGIC).then(|| Self {
            kind: Type::of(bytes[1] >> 4),
            position: bytes[1] & 15,
            group: u32::from_be_bytes(part(bytes, 2)),
            slot: u64::from_be_bytes(part(bytes, 6)),
            ballot: PackedBallot(u64::from_be_bytes(part(bytes, 14))),
            voted: u64::from_be_bytes(part(bytes, 22)),
            reason: bytes[31],
            flags: u16::from_be_bytes(part(bytes, 32)),
            boot: u32::from_be_bytes(part(bytes, 34)),
            value: Descriptor {
                kind: bytes[30],
                origin: u32::from_be_bytes(part(bytes, 38)),
                origin_boot: u32::from_be_bytes(part(bytes, 42)),
                counter: u64::from_be_bytes(part(bytes, 46)),
                length: u16::from_be_bytes(part(bytes, 54)),
                crc: u32::from_be_bytes(part(bytes, 58)),
            },
            sum: u16::from_be_bytes(part(bytes, 56)),
        })
    }

    /// Encodes the header.
    ///
    /// # Panics
    /// If the position has more than four bits.
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

    /// Returns the number of a control call.
    pub const fn number(&self) -> Number {
        Number {
            device_boot: self.boot,
            owner_boot: self.value.origin_boot,
            counter: self.value.counter,
        }
    }

    /// Returns a client's request for a slot for a value. `sum` is that of the value area.
    pub const fn submit(group: u32, value: Descriptor, sum: u16) -> Self {
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

fn part<const N: usize>(bytes: &[u8; HEADER_BYTES], at: usize) -> [u8; N] {
    core::array::from_fn(|offset| bytes[at + offset])
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Each byte of the header belongs to one field, and survives a round trip.
    #[test]
    fn every_bit_comes_back() {
        for bit in 8..HEADER_BYTES * 8 {
            let mut bytes = [0; HEADER_BYTES];
            bytes[0] = MAGIC;
            bytes[bit / 8] |= 0x80 >> (bit % 8);
            assert_eq!(Header::read(&bytes).unwrap().bytes(), bytes, "bit {bit}");
        }
    }

    #[test]
    fn another_magic_or_version_is_somebody_elses() {
        let mut bytes = [0; HEADER_BYTES];
        for magic in 0..=u8::MAX {
            bytes[0] = magic;
            assert_eq!(Header::read(&bytes).is_some(), magic == MAGIC);
        }
    }

    #[test]
    fn types_have_their_numbers() {
        for (number, kind) in (0..).zip(Type::ALL) {
            assert_eq!(kind as u8, number);
        }
    }

    #[test]
    fn content_and_reconfiguration_are_not_carried() {
        let carried = (0..=u8::MAX).filter(|kind| {
            let value = Descriptor { kind: *kind, ..Descriptor::NONE };
            value.is_carried()
        });
        assert!(carried.eq([1, 2, 4, 5, 6, 8]));
    }
}
