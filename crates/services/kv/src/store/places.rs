//! Versions, positions and databases. A version is a command's place in the log; a position is a
//! key's place in the store's order; a database is one of the keyspaces that SELECT selects.

use quorate_replica::service::CommandId;
use xxhash_rust::xxh3::xxh3_64;

/// Place in the log of the last command that changed a key.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Version {
    /// Slot of the batch with the command.
    pub slot: u64,
    pub index: u32,
}

impl Version {
    /// Version below that of any command.
    pub const ABSENT: Self = Self { slot: 0, index: 0 };
}

impl From<CommandId> for Version {
    fn from(id: CommandId) -> Self {
        Self { slot: id.slot.0, index: id.index }
    }
}

/// Position of a key in the store's order: a hash of 48 bits, never 0.
///
/// Stores are ordered by ⟨position, key⟩, and a SCAN cursor is a position. Cursors thus need no
/// memory, are valid on all nodes and after a restart, and are exact in clients that parse numbers
/// as doubles.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Position(u64);

impl Position {
    /// Position below that of any key.
    pub const START: Self = Self(0);
    pub(crate) const FIRST: Self = Self(1);
    pub(super) const BITS: u32 = 48;
    pub(crate) const BYTES: usize = 6;
    const MAX: u64 = (1 << Self::BITS) - 1;

    /// Returns the position of a key. This function is part of the stored format and of the meaning
    /// of cursors.
    pub fn of(key: &[u8]) -> Self {
        Self((xxh3_64(key) >> (64 - Self::BITS)).max(1))
    }

    /// Returns the position of a client's cursor, or `None` if no key can have it.
    pub const fn from_cursor(cursor: u64) -> Option<Self> {
        if cursor <= Self::MAX { Some(Self(cursor)) } else { None }
    }

    pub const fn cursor(self) -> u64 {
        self.0
    }

    pub(super) fn from_bytes(bytes: [u8; 6]) -> Self {
        Self(bytes.iter().fold(0, |sum, byte| sum << 8 | u64::from(*byte)))
    }

    /// Encodes the position as bytes with the same order.
    pub fn to_bytes(self) -> [u8; 6] {
        let [_, _, bytes @ ..] = self.0.to_be_bytes();
        bytes
    }
}

/// Number of a database: a keyspace of its own, as clients select it with SELECT.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Database(u8);

impl Database {
    /// Database of new connections, and the only one below level 10.
    pub const ZERO: Self = Self(0);
    /// Number of databases. It is part of the format, because scripts observe it.
    pub const COUNT: usize = 16;

    /// Returns the database with a number, or `None` if there is none.
    pub fn new(number: u64) -> Option<Self> {
        let number = u8::try_from(number).ok()?;
        (usize::from(number) < Self::COUNT).then_some(Self(number))
    }

    /// Returns all databases in ascending order.
    pub fn all() -> impl DoubleEndedIterator<Item = Self> {
        (0..Self::COUNT as u8).map(Self)
    }

    pub const fn number(self) -> u8 {
        self.0
    }

    /// Returns the place of the database in an array of [`Self::COUNT`] elements.
    pub const fn index(self) -> usize {
        self.0 as usize
    }

    /// Returns the database's bit in a set of databases.
    pub const fn bit(self) -> u16 {
        1 << self.0
    }
}
