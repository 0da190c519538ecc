//! Collections: the types of keys, and the reference from a key to its rows.
//!
//! A collection's key has a small header as value. The elements are rows, stored apart from the
//! keys under the id in the header. Ids are never reused, so deleting, expiring or renaming a key
//! abandons or moves all rows without touching them.

use std::ops::Deref;

use super::{places::Version, stream::Log};

/// Type of the value of a key.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u8)]
pub enum Kind {
    /// The string itself; includes lock records.
    #[default]
    String = 0,
    /// Rows are fields with values.
    Hash = 1,
    /// Rows are elements, in order.
    List = 2,
    /// Rows are members.
    Set = 3,
    /// Each member has a row with its score and a row in order of scores.
    Zset = 4,
    /// Rows are entries, in order of their ids, and those of groups.
    Stream = 5,
}

impl Kind {
    /// Returns the type of a number, which is part of stored formats.
    pub const fn from_byte(byte: u8) -> Option<Self> {
        Some(match byte {
            0 => Self::String,
            1 => Self::Hash,
            2 => Self::List,
            3 => Self::Set,
            4 => Self::Zset,
            5 => Self::Stream,
            _ => return None,
        })
    }

    /// Returns the name with which TYPE replies.
    pub const fn name(self) -> &'static str {
        match self {
            Self::String => "string",
            Self::Hash => "hash",
            Self::List => "list",
            Self::Set => "set",
            Self::Zset => "zset",
            Self::Stream => "stream",
        }
    }

    pub const fn has_rows(self) -> bool {
        !matches!(self, Self::String)
    }

    /// Returns the number of rows per element.
    pub const fn rows_per_element(self) -> u64 {
        match self {
            Self::String => 0,
            Self::Hash | Self::List | Self::Set | Self::Stream => 1,
            Self::Zset => 2,
        }
    }
}

/// Permanent identifier of a collection's rows.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Id {
    /// Version of the command that created the collection.
    pub version: Version,
    /// Number of collections that the same command (a transaction) created before.
    pub number: u32,
}

impl Id {
    pub const BYTES: usize = 16;

    /// Encodes the id as bytes that sort like ids.
    pub fn to_bytes(self) -> [u8; Self::BYTES] {
        let mut bytes = [0; Self::BYTES];
        bytes[..8].copy_from_slice(&self.version.slot.to_be_bytes());
        bytes[8..12].copy_from_slice(&self.version.index.to_be_bytes());
        bytes[12..].copy_from_slice(&self.number.to_be_bytes());
        bytes
    }

    pub fn from_bytes(bytes: &[u8]) -> Option<Self> {
        let (slot, rest) = bytes.split_first_chunk()?;
        let (index, rest) = rest.split_first_chunk()?;
        let (number, []) = rest.split_first_chunk()? else {
            return None;
        };
        Some(Self {
            version: Version { slot: u64::from_be_bytes(*slot), index: u32::from_be_bytes(*index) },
            number: u32::from_be_bytes(*number),
        })
    }
}

/// Header of a collection, stored as the value of its key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Header {
    pub id: Id,
    /// Number of elements. At least 1, except for streams: another empty collection does not exist.
    pub count: u64,
    /// Total size in bytes of the names and values of all elements.
    pub bytes: u64,
    /// Position of a list's first element; 0 for other types.
    pub first: u64,
    /// Deadlines of a hash's fields; `None` if none ever had one.
    pub field_deadlines: Option<FieldDeadlines>,
    /// State of a stream; `None` for other types.
    pub log: Option<Log>,
}

/// Summary of the deadlines of a hash's fields.
///
/// A hash whose fields all have deadlines expires with the last one. Its key is stored with that
/// deadline, unless its own is earlier, so it expires like any other key.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FieldDeadlines {
    /// Number of fields with a deadline.
    pub fields: u64,
    /// Earliest deadline of a stored field, which may have passed.
    pub next: u64,
    /// Deadline set on the key itself.
    pub deadline: Option<u64>,
    /// Expired fields removed since a command last changed the hash.
    pub removed: u64,
}

/// Encoded header, without memory allocation.
#[derive(Clone, Copy, Debug)]
pub struct EncodedHeader {
    bytes: [u8; Header::BYTES_MAX],
    length: usize,
}

impl Deref for EncodedHeader {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.bytes[..self.length]
    }
}

impl Header {
    /// Size without deadlines.
    pub const BYTES: usize = Id::BYTES + 3 * 8;
    /// Size with deadlines.
    pub const TIMED_BYTES: usize = Self::BYTES + 4 * 8;
    /// Size of a stream's header.
    pub const STREAM_BYTES: usize = Self::BYTES + Log::BYTES;
    const BYTES_MAX: usize = Self::STREAM_BYTES;
    /// Encoding of a missing deadline.
    const NO_DEADLINE: u64 = u64::MAX;

    /// Encodes the header. Part of the formats of stores and snapshots.
    pub fn to_bytes(self) -> EncodedHeader {
        let (mut bytes, mut length) = ([0; Self::BYTES_MAX], Self::BYTES);
        bytes[..16].copy_from_slice(&self.id.to_bytes());
        bytes[16..24].copy_from_slice(&self.count.to_le_bytes());
        bytes[24..32].copy_from_slice(&self.bytes.to_le_bytes());
        bytes[32..40].copy_from_slice(&self.first.to_le_bytes());
        if let Some(timed) = self.field_deadlines {
            length = Self::TIMED_BYTES;
            let deadline = timed.deadline.unwrap_or(Self::NO_DEADLINE);
            bytes[40..48].copy_from_slice(&timed.fields.to_le_bytes());
            bytes[48..56].copy_from_slice(&timed.next.to_le_bytes());
            bytes[56..64].copy_from_slice(&deadline.to_le_bytes());
            bytes[64..72].copy_from_slice(&timed.removed.to_le_bytes());
        }
        if let Some(log) = self.log {
            length = Self::STREAM_BYTES;
            bytes[Self::BYTES..].copy_from_slice(&log.to_bytes());
        }
        EncodedHeader { bytes, length }
    }

    pub fn from_bytes(stored: &[u8]) -> Option<Self> {
        let (id, rest) = stored.split_at_checked(Id::BYTES)?;
        let (count, rest) = rest.split_first_chunk()?;
        let (bytes, rest) = rest.split_first_chunk()?;
        let (first, rest) = rest.split_first_chunk()?;
        let (mut timed, mut log) = (None, None);
        if let Ok(rest) = rest.try_into() {
            log = Some(Log::from_bytes(rest));
        } else if !rest.is_empty() {
            timed = Some(FieldDeadlines::from_bytes(rest)?);
        }
        Some(Self {
            id: Id::from_bytes(id)?,
            count: u64::from_le_bytes(*count),
            bytes: u64::from_le_bytes(*bytes),
            first: u64::from_le_bytes(*first),
            field_deadlines: timed,
            log,
        })
    }

    /// Returns the number of rows of a collection of this type.
    pub const fn rows(&self, kind: Kind) -> u64 {
        let rows = self.count.saturating_mul(kind.rows_per_element());
        match (self.field_deadlines, self.log) {
            // Each deadline has a row by field and a row by time.
            (Some(timed), _) => rows.saturating_add(timed.fields.saturating_mul(2)),
            (None, Some(log)) => rows.saturating_add(log.group_rows),
            (None, None) => rows,
        }
    }
}

impl FieldDeadlines {
    fn from_bytes(stored: &[u8]) -> Option<Self> {
        let (fields, rest) = stored.split_first_chunk()?;
        let (next, rest) = rest.split_first_chunk()?;
        let (deadline, rest) = rest.split_first_chunk()?;
        let (removed, []) = rest.split_first_chunk()? else {
            return None;
        };
        let deadline = u64::from_le_bytes(*deadline);
        Some(Self {
            fields: u64::from_le_bytes(*fields),
            next: u64::from_le_bytes(*next),
            deadline: (deadline != Header::NO_DEADLINE).then_some(deadline),
            removed: u64::from_le_bytes(*removed),
        })
    }
}

/// Returns the earliest deadline of a field in a key's value.
pub(super) fn earliest_field_deadline(kind: Kind, value: &[u8]) -> Option<u64> {
    if kind != Kind::Hash || value.len() != Header::TIMED_BYTES {
        return None;
    }
    let (fields, rest) = value[Header::BYTES..].split_first_chunk()?;
    let next = rest.first_chunk()?;
    (u64::from_le_bytes(*fields) > 0).then_some(u64::from_le_bytes(*next))
}

/// Returns the collection's id in a key's value.
pub(super) fn collection_id(kind: Kind, value: &[u8]) -> Option<Id> {
    if !kind.has_rows() {
        return None;
    }
    Id::from_bytes(value.get(..Id::BYTES)?)
}

/// Maximum length of a row's name, which with the store's prefix is a key of the tree on disk.
pub const NAME_BYTES_MAX: usize = (64 << 10) - 32;

#[cfg(test)]
mod tests {
    use super::{super::stream::EntryId, *};

    const HEADER: Header = Header {
        id: Id { version: Version { slot: 0x0102, index: 3 }, number: 4 },
        count: 5,
        bytes: 6,
        first: 1 << 63,
        field_deadlines: None,
        log: None,
    };

    #[test]
    fn header_encoding_is_stable() {
        let mut expected = Vec::new();
        expected.extend_from_slice(&[0, 0, 0, 0, 0, 0, 1, 2, 0, 0, 0, 3, 0, 0, 0, 4]);
        for number in [5_u64, 6, 1 << 63] {
            expected.extend_from_slice(&number.to_le_bytes());
        }
        assert_eq!(*HEADER.to_bytes(), *expected);
        assert_eq!(Header::from_bytes(&expected), Some(HEADER));
        assert_eq!(Header::from_bytes(&expected[1..]), None);
        assert_eq!(collection_id(Kind::Hash, &expected), Some(HEADER.id));
        assert_eq!(collection_id(Kind::String, &expected), None);
        assert_eq!(earliest_field_deadline(Kind::Hash, &expected), None);
        let timed = FieldDeadlines { fields: 2, next: 7, deadline: None, removed: 3 };
        let header = Header { field_deadlines: Some(timed), ..HEADER };
        for number in [2, 7, u64::MAX, 3] {
            expected.extend_from_slice(&number.to_le_bytes());
        }
        assert_eq!(*header.to_bytes(), *expected);
        assert_eq!(Header::from_bytes(&expected), Some(header));
        assert_eq!(Header::from_bytes(&expected[..expected.len() - 1]), None);
        assert_eq!(collection_id(Kind::Hash, &expected), Some(HEADER.id));
        assert_eq!(earliest_field_deadline(Kind::Hash, &expected), Some(7));
        assert_eq!(earliest_field_deadline(Kind::Set, &expected), None);
        assert_eq!(header.rows(Kind::Hash), 5 + 2 * 2);
        let log = Log {
            first: EntryId { ms: 0x0102, seq: 3 },
            last: EntryId { ms: 4, seq: 5 },
            deleted: EntryId { ms: 6, seq: 7 },
            added: 8,
            group_rows: 9,
            next_number: 10,
        };
        let header = Header { log: Some(log), ..HEADER };
        expected.truncate(Header::BYTES);
        for number in [0x0102, 3, 4, 5, 6, 7_u64] {
            expected.extend_from_slice(&number.to_be_bytes());
        }
        for number in [8, 9, 10_u64] {
            expected.extend_from_slice(&number.to_le_bytes());
        }
        assert_eq!(*header.to_bytes(), *expected);
        assert_eq!(Header::from_bytes(&expected), Some(header));
        assert_eq!(Header::from_bytes(&expected[..expected.len() - 1]), None);
        assert_eq!(earliest_field_deadline(Kind::Hash, &expected), None);
        assert_eq!(header.rows(Kind::Stream), 5 + 9);
    }

    #[test]
    fn kind_numbers_are_stable() {
        for byte in 0..=255 {
            match Kind::from_byte(byte) {
                Some(kind) => assert_eq!(kind as u8, byte),
                None => assert!(byte > 5),
            }
        }
    }
}
