//! The header of every datagram: 44 bytes, each field at a fixed offset.

use core::fmt;

use quorate_core::node_id::NodeId;

/// Length of the header, in bytes.
pub const HEADER_BYTES: usize = 44;
/// Length of the tag, the last field of the header.
pub const TAG_BYTES: usize = 16;
/// Offset of the tag, which covers all bytes before it and the payload.
pub const TAG_OFFSET: usize = HEADER_BYTES - TAG_BYTES;
pub const VERSION: u8 = 1;
/// Number of the control channel, whose datagrams are never retransmitted: requests, repairs,
/// probes.
pub const CONTROL_CHANNEL: u8 = 0;

/// Flag: the datagram is for one node, which the tag covers. If not set, it is for all listeners of
/// the multicast group.
const FLAG_UNICAST: u8 = 1;

/// Name, offset and length of each field, as `docs/spec/packets.md` shows them.
pub const FIELDS: [(&str, usize, usize); 11] = [
    ("kind", 0, 1),
    ("key", 1, 1),
    ("channel", 2, 1),
    ("flags", 3, 1),
    ("sender", 4, 4),
    ("boot", 8, 4),
    ("group", 12, 4),
    ("number", 16, 8),
    ("index", 24, 2),
    ("count", 26, 2),
    ("tag", TAG_OFFSET, TAG_BYTES),
];

/// Kind of a datagram, which determines the format of its payload.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u8)]
pub enum Kind {
    /// Part of a message.
    Fragment = 1,
    /// End of a silent channel ([told-2]).
    Tail = 2,
    /// A request for datagrams that did not arrive ([pkt-7]).
    Nak = 3,
    /// A receiver's report of datagrams lost in the first transmission ([rate-2]).
    Report = 4,
    /// An answer to a NAK: the sender does not have the requested numbers, so requesting them again
    /// is useless ([pkt-1]).
    Gone = 5,
    /// Part of a retransmitted datagram ([pkt-5]).
    Repair = 6,
    /// A probe that tests whether a node is reachable ([pkt-2]).
    Probe = 7,
    Answer = 8,
    /// The nodes that forward multicast datagrams ([chain-1]).
    Chain = 9,
}

impl Kind {
    pub const ALL: [Self; 9] = [
        Self::Fragment,
        Self::Tail,
        Self::Nak,
        Self::Report,
        Self::Gone,
        Self::Repair,
        Self::Probe,
        Self::Answer,
        Self::Chain,
    ];

    fn of(number: u8) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| *kind as u8 == number)
    }

    /// Returns whether datagrams of this kind may be sent by multicast. Requests and their answers
    /// may not.
    const fn is_multicast_allowed(self) -> bool {
        matches!(self, Self::Fragment | Self::Tail | Self::Probe)
    }

    /// Returns whether datagrams of this kind may consist of several parts.
    const fn is_divisible(self) -> bool {
        matches!(self, Self::Fragment | Self::Repair)
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Malformed {
    /// The bytes are shorter than a header.
    Short,
    /// The datagram has another format version.
    Version(u8),
    Kind(u8),
    /// A field has an invalid value.
    Field(&'static str),
}

impl fmt::Display for Malformed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Short => write!(f, "a datagram of less than {HEADER_BYTES} bytes"),
            Self::Version(version) => {
                write!(f, "datagram format {version}, this build speaks {VERSION}")
            }
            Self::Kind(kind) => write!(f, "unknown datagram kind {kind}"),
            Self::Field(name) => write!(f, "impossible {name}"),
        }
    }
}

impl core::error::Error for Malformed {}

/// The header of a datagram, without its tag.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Header {
    pub kind: Kind,
    /// Number of the key that the tag was made with. 0 means no key: the tag is a checksum.
    pub key: u8,
    /// Number of the sender's channel. [`CONTROL_CHANNEL`] for everything except fragments.
    pub channel: u8,
    /// Set if the datagram is for one node rather than for the multicast group.
    pub is_unicast: bool,
    /// Node that sent this datagram.
    pub sender: NodeId,
    pub boot: u32,
    /// Part of the hash of the node group's identity. Separates groups of nodes on one network
    /// segment before the tag is checked.
    pub group: u32,
    /// Sequence number within ⟨sender, boot, channel⟩, starting at 1 ([pkt-1]).
    pub number: u64,
    pub index: u16,
    pub part_count: u16,
}

impl Header {
    /// Returns the number of the first part, which names the message ([pkt-4]).
    pub const fn first_number(&self) -> u64 {
        self.number - self.index as u64
    }

    /// Encodes the header, with a tag of zeros.
    pub fn bytes(&self) -> [u8; HEADER_BYTES] {
        let mut bytes = [0; HEADER_BYTES];
        bytes[0] = VERSION << 4 | self.kind as u8;
        bytes[1] = self.key;
        bytes[2] = self.channel;
        bytes[3] = if self.is_unicast { FLAG_UNICAST } else { 0 };
        bytes[4..8].copy_from_slice(&self.sender.0.to_le_bytes());
        bytes[8..12].copy_from_slice(&self.boot.to_le_bytes());
        bytes[12..16].copy_from_slice(&self.group.to_le_bytes());
        bytes[16..24].copy_from_slice(&self.number.to_le_bytes());
        bytes[24..26].copy_from_slice(&self.index.to_le_bytes());
        bytes[26..28].copy_from_slice(&self.part_count.to_le_bytes());
        bytes
    }

    /// Splits a datagram into header, tag and payload. The caller must verify the tag before
    /// trusting them.
    pub fn read(datagram: &[u8]) -> Result<(Self, [u8; TAG_BYTES], &[u8]), Malformed> {
        let Some((head, payload)) = datagram.split_first_chunk::<HEADER_BYTES>() else {
            return Err(Malformed::Short);
        };
        let [first, key, channel, flags, rest @ ..] = *head;
        if first >> 4 != VERSION {
            return Err(Malformed::Version(first >> 4));
        }
        let kind = Kind::of(first & 15).ok_or(Malformed::Kind(first & 15))?;
        if flags & !FLAG_UNICAST != 0 || (flags == 0 && !kind.is_multicast_allowed()) {
            return Err(Malformed::Field("flags"));
        }
        if (channel == CONTROL_CHANNEL) == (kind == Kind::Fragment) {
            return Err(Malformed::Field("channel"));
        }
        let mut fields = Fields(&rest);
        let header = Self {
            kind,
            key,
            channel,
            is_unicast: flags & FLAG_UNICAST != 0,
            sender: NodeId(fields.u32()?),
            boot: fields.u32()?,
            group: fields.u32()?,
            number: fields.u64()?,
            index: fields.u16()?,
            part_count: fields.u16()?,
        };
        // [pkt-1] Numbers begin at 1 and never wrap, so each part of the message must have a valid
        // one.
        let index = u64::from(header.index);
        let last = header
            .number
            .checked_add(u64::from(header.part_count) - index.min(header.part_count.into()));
        if header.index >= header.part_count || (header.part_count > 1 && !kind.is_divisible()) {
            return Err(Malformed::Field("index"));
        }
        if header.number <= index || last.is_none() {
            return Err(Malformed::Field("number"));
        }
        Ok((header, fields.take_bytes()?, payload))
    }
}

/// A decoder that reads fields from the front of a byte slice.
pub(crate) struct Fields<'a>(pub(crate) &'a [u8]);

impl<'a> Fields<'a> {
    pub(crate) fn take_bytes<const N: usize>(&mut self) -> Result<[u8; N], Malformed> {
        let (first, rest) = self.0.split_first_chunk().ok_or(Malformed::Field("length"))?;
        self.0 = rest;
        Ok(*first)
    }

    pub(crate) fn u8(&mut self) -> Result<u8, Malformed> {
        Ok(u8::from_le_bytes(self.take_bytes()?))
    }

    pub(crate) fn u16(&mut self) -> Result<u16, Malformed> {
        Ok(u16::from_le_bytes(self.take_bytes()?))
    }

    pub(crate) fn u32(&mut self) -> Result<u32, Malformed> {
        Ok(u32::from_le_bytes(self.take_bytes()?))
    }

    pub(crate) fn u64(&mut self) -> Result<u64, Malformed> {
        Ok(u64::from_le_bytes(self.take_bytes()?))
    }

    pub(crate) fn zeros<const N: usize>(&mut self) -> Result<(), Malformed> {
        let zeros = self.take_bytes::<N>()? == [0; N];
        zeros.then_some(()).ok_or(Malformed::Field("zeros"))
    }

    pub(crate) fn finish<T>(self, value: T) -> Result<T, Malformed> {
        let end = self.0.is_empty();
        end.then_some(value).ok_or(Malformed::Field("length"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn header() -> Header {
        Header {
            kind: Kind::Fragment,
            key: 1,
            channel: 1,
            is_unicast: false,
            sender: NodeId(1),
            boot: 1,
            group: 7,
            number: 9,
            index: 2,
            part_count: 3,
        }
    }

    /// [pkt-1] Numbers begin at 1 and never wrap, for each part of a message. Unknown flags, kinds
    /// and channels are refused.
    #[test]
    fn impossible_headers_are_refused() {
        let read = |header: Header| Header::read(&header.bytes()).map(|(header, ..)| header);
        assert_eq!(read(header()), Ok(header()));
        let with = |change: &dyn Fn(&mut Header)| {
            let mut changed = header();
            change(&mut changed);
            read(changed).map(|_| ())
        };
        let field = |name| Err(Malformed::Field(name));
        assert_eq!(with(&|header| header.index = 3), field("index"));
        assert_eq!(with(&|header| header.part_count = 0), field("index"));
        assert_eq!(with(&|header| header.number = 2), field("number"));
        assert_eq!(with(&|header| header.number = 3), Ok(()));
        assert_eq!(with(&|header| header.number = u64::MAX), field("number"));
        assert_eq!(with(&|header| header.number = u64::MAX - 1), Ok(()));
        assert_eq!(with(&|header| header.channel = CONTROL_CHANNEL), field("channel"));
        // Requests for packets and their answers are for one node, unfragmented, and on the control
        // channel.
        let control = Header {
            kind: Kind::Nak,
            channel: CONTROL_CHANNEL,
            is_unicast: true,
            index: 0,
            part_count: 1,
            ..header()
        };
        assert_eq!(read(control), Ok(control));
        let to_all = Header { is_unicast: false, ..control };
        assert_eq!(read(to_all), Err(Malformed::Field("flags")));
        let in_parts = Header { part_count: 2, ..control };
        assert_eq!(read(in_parts), Err(Malformed::Field("index")));
        let elsewhere = Header { channel: 1, ..control };
        assert_eq!(read(elsewhere), Err(Malformed::Field("channel")));

        let mut bytes = header().bytes();
        assert_eq!(Header::read(&bytes[..43]), Err(Malformed::Short));
        bytes[3] = 2;
        assert_eq!(Header::read(&bytes), Err(Malformed::Field("flags")));
        bytes[0] = 0x21;
        assert_eq!(Header::read(&bytes), Err(Malformed::Version(2)));
        bytes[0] = 0x1a;
        assert_eq!(Header::read(&bytes), Err(Malformed::Kind(10)));
    }
}
