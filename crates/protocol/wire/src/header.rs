//! The fixed header. Each field has the same offset in all messages, so that planes can rewrite
//! frames in place.
//!
//! A role outside the node (kernel, switch) turns a request into its response by changing a few
//! fields and the header's own checksum. The body and its checksum do not change. A field that a
//! kind does not use is written as zero and ignored when read. Everything is little-endian.

use quorate_core::{
    ballot::{Ballot, Era},
    node_id::{Incarnation, Member, NodeId},
    slot::Slot,
};

use crate::{
    kind,
    value::VALUE_BYTES,
    words::{u32_at, u64_at},
};

pub const HEADER_BYTES: usize = 160;
/// First bytes of every frame: `QRTE`.
pub const MAGIC: [u8; 4] = *b"QRTE";
/// Version of the header layout.
pub const FORMAT_VERSION: u8 = 1;

/// Flag for frames whose body contains the bytes of the value.
pub const FLAG_BYTES: u16 = 1;
/// Flag that encodes `Phase2a::with_bytes`.
pub const FLAG_WITH_BYTES: u16 = 2;
/// Flag that encodes `PreVoteReply::granted`.
pub const FLAG_GRANTED: u16 = 4;
/// Flag that encodes `SnapshotOffer::busy`.
pub const FLAG_BUSY: u16 = 8;
/// Flag that encodes `Heartbeat::auxiliary`.
pub const FLAG_AUXILIARY: u16 = 16;
/// Flag that encodes `HeartbeatReply::unfit`.
pub const FLAG_UNFIT: u16 = 32;
/// Flag that encodes `HeartbeatReply::disk_full`.
pub const FLAG_DISK_FULL: u16 = 64;

/// Name, offset and length of each field, as documented in `docs/spec/wire.md`.
pub const FIELDS: [(&str, usize, usize); 22] = [
    ("magic", 0, 4),
    ("format", 4, 1),
    ("kind", 5, 1),
    ("flags", 6, 2),
    ("header_check", 8, 4),
    ("body_length", 12, 4),
    ("body_check", 16, 4),
    ("sender.node", 20, 4),
    ("sender.incarnation", 24, 4),
    ("ballot", 28, 12),
    ("promised", 40, 12),
    ("code", 52, 4),
    ("from", 56, 8),
    ("to", 64, 8),
    ("decided_to", 72, 8),
    ("volatile_to", 80, 8),
    ("durable_to", 88, 8),
    ("check", 96, 8),
    ("sent_to", 104, 8),
    ("number", 112, 8),
    ("value", 120, 32),
    ("group", 152, 8),
];

/// Fields of the header between magic and value.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Header {
    pub(crate) kind: u8,
    pub(crate) flags: u16,
    pub(crate) body_length: u32,
    pub(crate) body_check: u32,
    pub(crate) sender: Member,
    pub(crate) ballot: Ballot,
    pub(crate) promised: Ballot,
    pub(crate) code: u32,
    pub(crate) from: u64,
    pub(crate) to: u64,
    pub(crate) decided_to: u64,
    pub(crate) volatile_to: u64,
    pub(crate) durable_to: u64,
    pub(crate) check: u64,
    pub(crate) sent_to: u64,
    pub(crate) number: u64,
    pub(crate) value: [u8; VALUE_BYTES],
    /// Number of the group, on planes without a handshake; zero if a handshake identified the
    /// group.
    pub(crate) group: u64,
}

/// Reason for rejecting a header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum InvalidHeader {
    Magic,
    Version(u8),
    Check,
}

/// Returns the offset at which frames of kind `kind` contain the end of the sender's log ([lie-1]),
/// in a field that the kind does not use otherwise; `None` if they do not contain it. It is in the
/// kinds that depend on records of the log, and in one kind that all nodes send to each other.
pub(crate) const fn durable_seq_offset(kind: u8) -> Option<usize> {
    match kind {
        kind::PHASE1A
        | kind::PHASE1B
        | kind::PHASE2A
        | kind::PHASE2B
        | kind::RING_VOTE
        | kind::DECIDED
        | kind::LASTING_REPLY
        | kind::APPLIED => Some(104),
        kind::HEARTBEAT | kind::HEARTBEAT_REPLY => Some(144),
        _ => None,
    }
}

impl Header {
    /// Stores the log write up to which the sender's log is on stable storage.
    pub(crate) fn set_durable_seq(&mut self, to: u64) {
        match durable_seq_offset(self.kind) {
            Some(104) => self.sent_to = to,
            Some(_) => self.value[24..32].copy_from_slice(&to.to_le_bytes()),
            None => {}
        }
    }

    /// Encodes the header, including its checksum.
    pub(crate) fn write(&self) -> [u8; HEADER_BYTES] {
        let mut bytes = [0; HEADER_BYTES];
        bytes[0..4].copy_from_slice(&MAGIC);
        bytes[4] = FORMAT_VERSION;
        bytes[5] = self.kind;
        bytes[6..8].copy_from_slice(&self.flags.to_le_bytes());
        bytes[12..16].copy_from_slice(&self.body_length.to_le_bytes());
        bytes[16..20].copy_from_slice(&self.body_check.to_le_bytes());
        bytes[20..24].copy_from_slice(&self.sender.node.0.to_le_bytes());
        bytes[24..28].copy_from_slice(&self.sender.incarnation.0.to_le_bytes());
        bytes[28..40].copy_from_slice(&ballot_bytes(self.ballot));
        bytes[40..52].copy_from_slice(&ballot_bytes(self.promised));
        bytes[52..56].copy_from_slice(&self.code.to_le_bytes());
        let words = [
            self.from,
            self.to,
            self.decided_to,
            self.volatile_to,
            self.durable_to,
            self.check,
            self.sent_to,
            self.number,
        ];
        for (place, word) in bytes[56..120].chunks_exact_mut(8).zip(words) {
            place.copy_from_slice(&word.to_le_bytes());
        }
        bytes[120..152].copy_from_slice(&self.value);
        bytes[152..160].copy_from_slice(&self.group.to_le_bytes());
        let check = header_check(&bytes);
        bytes[8..12].copy_from_slice(&check.to_le_bytes());
        bytes
    }

    /// Decodes the header if magic, version and checksum are valid.
    pub(crate) fn read(bytes: &[u8; HEADER_BYTES]) -> Result<Self, InvalidHeader> {
        if bytes[0..4] != MAGIC {
            return Err(InvalidHeader::Magic);
        }
        if bytes[4] != FORMAT_VERSION {
            return Err(InvalidHeader::Version(bytes[4]));
        }
        if u32_at(bytes, 8) != header_check(bytes) {
            return Err(InvalidHeader::Check);
        }
        let mut value = [0; VALUE_BYTES];
        value.copy_from_slice(&bytes[120..152]);
        Ok(Self {
            kind: bytes[5],
            flags: u16::from_le_bytes([bytes[6], bytes[7]]),
            body_length: u32_at(bytes, 12),
            body_check: u32_at(bytes, 16),
            sender: Member {
                node: NodeId(u32_at(bytes, 20)),
                incarnation: Incarnation(u32_at(bytes, 24)),
            },
            ballot: ballot(bytes, 28),
            promised: ballot(bytes, 40),
            code: u32_at(bytes, 52),
            from: u64_at(bytes, 56),
            to: u64_at(bytes, 64),
            decided_to: u64_at(bytes, 72),
            volatile_to: u64_at(bytes, 80),
            durable_to: u64_at(bytes, 88),
            check: u64_at(bytes, 96),
            sent_to: u64_at(bytes, 104),
            number: u64_at(bytes, 112),
            value,
            group: u64_at(bytes, 152),
        })
    }
}

/// Decodes the end of the proposed slots from the header of a proposal; `None` for other frames.
pub fn proposed_end(header: &[u8]) -> Option<Slot> {
    let header = header.first_chunk::<HEADER_BYTES>()?;
    (header[5] == kind::PHASE2A).then(|| Slot(u64_at(header, 64)))
}

/// Returns the CRC-32C of the header, excluding the four bytes of the checksum itself.
fn header_check(bytes: &[u8; HEADER_BYTES]) -> u32 {
    crc32c::crc32c_append(crc32c::crc32c(&bytes[..8]), &bytes[12..])
}

/// Encodes a ballot as era, round, node.
pub(crate) fn ballot_bytes(ballot: Ballot) -> [u8; 12] {
    let mut bytes = [0; 12];
    bytes[0..4].copy_from_slice(&ballot.era.0.to_le_bytes());
    bytes[4..8].copy_from_slice(&ballot.round.to_le_bytes());
    bytes[8..12].copy_from_slice(&ballot.node.0.to_le_bytes());
    bytes
}

/// Decodes the ballot at offset `at`. The caller has checked that twelve bytes exist there.
pub(crate) fn ballot(bytes: &[u8], at: usize) -> Ballot {
    Ballot {
        era: Era(u32_at(bytes, at)),
        round: u32_at(bytes, at + 4),
        node: NodeId(u32_at(bytes, at + 8)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_cover_the_header_without_gap_or_overlap() {
        let mut next = 0;
        for (name, offset, length) in FIELDS {
            assert_eq!(offset, next, "{name}");
            next += length;
        }
        assert_eq!(next, HEADER_BYTES);
    }

    /// Every field is where the table says, and changing it affects no other bytes.
    #[test]
    fn each_field_changes_its_own_bytes_only() {
        let one = Ballot { era: Era(u32::MAX), round: u32::MAX, node: NodeId(u32::MAX) };
        let plain = Header::default();
        let cases = [
            ("kind", Header { kind: 255, ..plain }),
            ("flags", Header { flags: u16::MAX, ..plain }),
            ("body_length", Header { body_length: u32::MAX, ..plain }),
            ("body_check", Header { body_check: u32::MAX, ..plain }),
            ("ballot", Header { ballot: one, ..plain }),
            ("promised", Header { promised: one, ..plain }),
            ("code", Header { code: u32::MAX, ..plain }),
            ("from", Header { from: u64::MAX, ..plain }),
            ("to", Header { to: u64::MAX, ..plain }),
            ("decided_to", Header { decided_to: u64::MAX, ..plain }),
            ("volatile_to", Header { volatile_to: u64::MAX, ..plain }),
            ("durable_to", Header { durable_to: u64::MAX, ..plain }),
            ("check", Header { check: u64::MAX, ..plain }),
            ("sent_to", Header { sent_to: u64::MAX, ..plain }),
            ("number", Header { number: u64::MAX, ..plain }),
            ("value", Header { value: [255; VALUE_BYTES], ..plain }),
            ("group", Header { group: u64::MAX, ..plain }),
        ];
        let before = plain.write();
        for (name, header) in cases {
            let after = header.write();
            let (_, offset, length) = FIELDS.into_iter().find(|field| field.0 == name).unwrap();
            for at in (0..HEADER_BYTES).filter(|at| !(8..12).contains(at)) {
                let inside = (offset..offset + length).contains(&at);
                assert_eq!(before[at] != after[at], inside, "{name}, byte {at}");
            }
            assert_eq!(Header::read(&after), Ok(header));
        }
    }
}
