//! Coordinates: of a command in the log (version), and of a key in the store's order (position).

use quorate_replica::service::CommandId;
use xxhash_rust::xxh3::xxh3_64;

/// Command that last changed a key. An `Option` of it is `None` for an absent key.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Version {
    /// Slot of the command.
    pub slot: u64,
    /// Index of the command in its batch.
    pub index: u32,
}

impl Version {
    /// Version before every command.
    pub const ABSENT: Self = Self { slot: 0, index: 0 };
}

impl From<CommandId> for Version {
    fn from(id: CommandId) -> Self {
        Self { slot: id.slot.0, index: id.index }
    }
}

/// Position of a key in the store's order: a hash of 48 bits, never 0.
///
/// Stores are ordered by ⟨position, key⟩. A SCAN cursor is a position: it needs no memory on any
/// node, means the same on all nodes and after a restart, and fits the numbers of clients that
/// parse it as a double.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Position(u64);

impl Position {
    /// Position before every key.
    pub const START: Self = Self(0);
    /// Lowest position that a key can have.
    pub(crate) const FIRST: Self = Self(1);
    pub(super) const BITS: u32 = 48;
    /// Size of an encoded position.
    pub(crate) const BYTES: usize = 6;
    const MAX: u64 = (1 << Self::BITS) - 1;

    /// Returns the position of a key. Part of the store's format and of the meaning of cursors.
    pub fn of(key: &[u8]) -> Self {
        Self((xxh3_64(key) >> (64 - Self::BITS)).max(1))
    }

    /// Converts a client's cursor; `None` if no key can have that position.
    pub const fn from_cursor(cursor: u64) -> Option<Self> {
        if cursor <= Self::MAX { Some(Self(cursor)) } else { None }
    }

    /// Returns the position as a cursor.
    pub const fn cursor(self) -> u64 {
        self.0
    }

    /// Decodes a position.
    pub(super) fn from_bytes(bytes: [u8; 6]) -> Self {
        Self(bytes.iter().fold(0, |sum, byte| sum << 8 | u64::from(*byte)))
    }

    /// Encodes the position so that bytes sort like positions.
    pub fn to_bytes(self) -> [u8; 6] {
        let [_, _, bytes @ ..] = self.0.to_be_bytes();
        bytes
    }
}
