//! The header of 62 bytes that every frame of a device has, big-endian. `docs/spec/offload.md` §3
//! is its table.

use crate::{Number, PackedBallot, Reason};

/// Bytes before the value.
pub const HEADER_BYTES: usize = 62;
/// Longest room for a value; a frame of it fits into an Ethernet frame of 1500 bytes.
pub const ROOM_BYTES_MAX: usize = 1408;
/// Upper half: whose frame it is; lower half: version 1.
pub const MAGIC: u8 = 0xb1;

/// A decision that counted no durable votes ([offload-10]).
pub const HINT: u16 = 1;
/// The frame was sent before.
pub const REPEAT: u16 = 2;
/// A tag stands behind the value. No program here takes such frames.
pub const KEYED: u16 = 4;
/// To or from a coordinator, where the type alone is ambiguous.
pub const COORDINATOR: u16 = 8;
/// Flags that may be set.
pub const FLAGS: u16 = HINT | REPEAT | COORDINATOR;

/// Type of a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u8)]
pub enum Type {
    /// Give this value a slot.
    Submit = 0,
    /// Which vote does this slot have? No promise is asked for ([offload-7]).
    Phase1a = 1,
    /// The vote of a slot.
    Phase1b = 2,
    /// Vote for this value in this slot.
    Phase2a = 3,
    /// I voted for it.
    Phase2b = 4,
    /// A quorum voted for it.
    Decided = 5,
    /// No, and why.
    Refused = 6,
    /// Owner: propose this slot again.
    Tick = 7,
    /// Owner: what does this cell hold?
    Read = 8,
    /// Contents of a cell.
    Cell = 9,
    /// Owner: arm an acceptor, start a coordinator.
    Arm = 10,
    /// Owner: raise the floor, and a coordinator's limit.
    Floor = 11,
    /// Owner: disarm, or stop.
    Fence = 12,
    /// Owner: say how it stands.
    Ask = 13,
    /// State of the program.
    Done = 14,
    /// Owner: your boot, if you have none.
    Boot = 15,
}

impl Type {
    /// All of them, in the order of their numbers.
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

/// Which value it is: equal descriptors mean equal bytes ([value-2]).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Descriptor {
    /// As in frames of `docs/spec/wire.md`; 0: none.
    pub kind: u8,
    /// The node that named it.
    pub origin: u32,
    /// Process start of that node.
    pub origin_boot: u32,
    /// Counts within the boot.
    pub counter: u64,
    /// Bytes of the value.
    pub length: u16,
    /// CRC-32C of the value.
    pub crc: u32,
}

impl Descriptor {
    /// Nothing.
    pub const NONE: Self =
        Self { kind: 0, origin: 0, origin_boot: 0, counter: 0, length: 0, crc: 0 };

    /// Returns whether a device carries values of this kind: any but content and reconfiguration
    /// ([offload-15]).
    pub const fn is_carried(self) -> bool {
        matches!(self.kind, 1 | 2 | 4 | 5 | 6 | 8)
    }
}

/// All fields but the magic, which is always the same.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Header {
    /// Type of the frame.
    pub kind: Type,
    /// Position of the sending member, in the configuration of the ballot's era.
    pub position: u8,
    /// Hash of cluster, generation and number.
    pub group: u32,
    /// Which slot. Control: floor or first slot.
    pub slot: u64,
    /// Ballot of the device's record, or of the proposal.
    pub ballot: PackedBallot,
    /// Ballot of the vote. Start and floor: the limit. Refusals and states: floor or next slot.
    pub voted: u64,
    /// Reason of a refusal, by number.
    pub reason: u8,
    /// [`HINT`], [`REPEAT`], [`COORDINATOR`].
    pub flags: u16,
    /// Boot of the device, for diagnosis; boot of the addressed device in control.
    pub boot: u32,
    /// Which value. Control uses some of its fields, as [`crate::control`] says.
    pub value: Descriptor,
    /// One's-complement sum of the value's room.
    pub sum: u16,
}

impl Header {
    /// Returns `None` if the magic is another's.
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

    /// Returns its bytes.
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

    /// Returns the number of a call of control.
    pub const fn number(&self) -> Number {
        Number {
            device_boot: self.boot,
            owner_boot: self.value.origin_boot,
            counter: self.value.counter,
        }
    }

    /// Returns a client's request for a slot for a value. `sum` is that of its room.
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

    /// Each byte of the header belongs to one field, and comes back.
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
