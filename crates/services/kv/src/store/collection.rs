//! Collections: what kind a key is of, and how the rows of a collection are found from its key.
//!
//! The key of a collection holds a small header. Its elements are rows beside the keys, under the id that the
//! header names. An id is never used twice, so a key that is deleted, expires or is renamed takes its rows along, or
//! leaves them behind, without touching one of them.

use super::Version;

/// What a key holds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u8)]
pub enum Kind {
    /// The value is the string itself; locks are strings of their own form.
    #[default]
    String = 0,
    /// Fields with values.
    Hash = 1,
    /// Elements in the order of their places.
    List = 2,
    /// Members.
    Set = 3,
    /// Members with a score each, in the order of scores.
    Zset = 4,
}

impl Kind {
    /// The kind with this number. Part of every format.
    pub const fn from_byte(byte: u8) -> Option<Self> {
        Some(match byte {
            0 => Self::String,
            1 => Self::Hash,
            2 => Self::List,
            3 => Self::Set,
            4 => Self::Zset,
            _ => return None,
        })
    }

    /// What TYPE calls it.
    pub const fn name(self) -> &'static str {
        match self {
            Self::String => "string",
            Self::Hash => "hash",
            Self::List => "list",
            Self::Set => "set",
            Self::Zset => "zset",
        }
    }

    /// Whether its elements are rows.
    pub const fn has_rows(self) -> bool {
        !matches!(self, Self::String)
    }

    /// How many rows each element has.
    pub const fn rows_each(self) -> u64 {
        match self {
            Self::String => 0,
            Self::Hash | Self::List | Self::Set => 1,
            Self::Zset => 2,
        }
    }
}

/// What the rows of one collection are found by, forever: the command that began the collection, and how many
/// others the same command had begun before.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Id {
    /// The command.
    pub version: Version,
    /// A transaction may begin several.
    pub number: u32,
}

impl Id {
    /// Bytes of an id.
    pub const BYTES: usize = 16;

    /// Bytes that sort alike.
    pub fn to_bytes(self) -> [u8; Self::BYTES] {
        let mut bytes = [0; Self::BYTES];
        bytes[..8].copy_from_slice(&self.version.slot.to_be_bytes());
        bytes[8..12].copy_from_slice(&self.version.index.to_be_bytes());
        bytes[12..].copy_from_slice(&self.number.to_be_bytes());
        bytes
    }

    /// The same backwards.
    pub fn from_bytes(bytes: &[u8]) -> Option<Self> {
        let (slot, rest) = bytes.split_first_chunk()?;
        let (index, rest) = rest.split_first_chunk()?;
        let (number, []) = rest.split_first_chunk()? else {
            return None;
        };
        Some(Self {
            version: Version {
                slot: u64::from_be_bytes(*slot),
                index: u32::from_be_bytes(*index),
            },
            number: u32::from_be_bytes(*number),
        })
    }
}

/// What the key of a collection holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Header {
    /// Where the rows are.
    pub id: Id,
    /// Elements; a collection without any does not exist.
    pub count: u64,
    /// Bytes of all names and values.
    pub bytes: u64,
    /// The place of a list's first element; 0 in others.
    pub first: u64,
}

impl Header {
    /// Bytes of a header.
    pub const BYTES: usize = Id::BYTES + 3 * 8;

    /// As it is stored: part of the format of stores and images.
    pub fn to_bytes(self) -> [u8; Self::BYTES] {
        let mut bytes = [0; Self::BYTES];
        bytes[..16].copy_from_slice(&self.id.to_bytes());
        bytes[16..24].copy_from_slice(&self.count.to_le_bytes());
        bytes[24..32].copy_from_slice(&self.bytes.to_le_bytes());
        bytes[32..].copy_from_slice(&self.first.to_le_bytes());
        bytes
    }

    /// What stored bytes say.
    pub fn from_bytes(stored: &[u8]) -> Option<Self> {
        let (id, rest) = stored.split_at_checked(Id::BYTES)?;
        let (count, rest) = rest.split_first_chunk()?;
        let (bytes, rest) = rest.split_first_chunk()?;
        let (first, []) = rest.split_first_chunk()? else {
            return None;
        };
        Some(Self {
            id: Id::from_bytes(id)?,
            count: u64::from_le_bytes(*count),
            bytes: u64::from_le_bytes(*bytes),
            first: u64::from_le_bytes(*first),
        })
    }
}

/// The id in a value of this kind.
pub(super) fn id_in(kind: Kind, value: &[u8]) -> Option<Id> {
    if !kind.has_rows() {
        return None;
    }
    Id::from_bytes(value.get(..Id::BYTES)?)
}

/// Most bytes of a row's name: with what stores put before it, a key of the tree on disk.
pub const NAME_BYTES_MAX: usize = (64 << 10) - 32;

#[cfg(test)]
mod tests {
    use super::*;

    const HEADER: Header = Header {
        id: Id {
            version: Version {
                slot: 0x0102,
                index: 3,
            },
            number: 4,
        },
        count: 5,
        bytes: 6,
        first: 1 << 63,
    };

    #[test]
    fn headers_stay_as_they_are() {
        let mut expected = Vec::new();
        expected.extend_from_slice(&[0, 0, 0, 0, 0, 0, 1, 2, 0, 0, 0, 3, 0, 0, 0, 4]);
        for number in [5_u64, 6, 1 << 63] {
            expected.extend_from_slice(&number.to_le_bytes());
        }
        assert_eq!(HEADER.to_bytes().as_slice(), expected);
        assert_eq!(Header::from_bytes(&expected), Some(HEADER));
        assert_eq!(Header::from_bytes(&expected[1..]), None);
        assert_eq!(id_in(Kind::Hash, &expected), Some(HEADER.id));
        assert_eq!(id_in(Kind::String, &expected), None);
    }

    #[test]
    fn kinds_keep_their_numbers() {
        for byte in 0..=255 {
            match Kind::from_byte(byte) {
                Some(kind) => assert_eq!(kind as u8, byte),
                None => assert!(byte > 4),
            }
        }
    }
}
