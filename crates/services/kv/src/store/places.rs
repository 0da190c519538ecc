//! Where things stand: a command in the log, a key in the order of the store.

use quorate_replica::service::CommandId;
use xxhash_rust::xxh3::xxh3_64;

/// The command that changed a key last; `None` in its place means that the key is absent.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Version {
    /// The command's slot.
    pub slot: u64,
    /// Its place in the batch.
    pub index: u32,
}

impl Version {
    /// Before every log.
    pub const ABSENT: Self = Self { slot: 0, index: 0 };
}

impl From<CommandId> for Version {
    fn from(id: CommandId) -> Self {
        Self { slot: id.slot.0, index: id.index }
    }
}

/// Position of a key in the order of the store: a hash of 48 bits, never 0.
///
/// Stores are ordered by ⟨position, key⟩. A SCAN cursor is a position, so it needs no memory on any
/// node, means the same on all of them and after a restart, and fits the numbers of clients that
/// read it into a double.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Position(u64);

impl Position {
    /// Before every key.
    pub const START: Self = Self(0);
    /// The least position of a key: the start itself is not used.
    pub(crate) const FIRST: Self = Self(1);
    pub(super) const BITS: u32 = 48;
    /// Bytes of a position.
    pub(crate) const BYTES: usize = 6;
    const MAX: u64 = (1 << Self::BITS) - 1;

    /// The position of a key. Part of the store's format and of the meaning of cursors.
    pub fn of(key: &[u8]) -> Self {
        Self((xxh3_64(key) >> (64 - Self::BITS)).max(1))
    }

    /// A cursor as a client gave it; `None` if no key can be there.
    pub const fn from_cursor(cursor: u64) -> Option<Self> {
        if cursor <= Self::MAX { Some(Self(cursor)) } else { None }
    }

    /// Returns the position as a cursor.
    pub const fn cursor(self) -> u64 {
        self.0
    }

    /// From its six bytes.
    pub(super) fn from_bytes(bytes: [u8; 6]) -> Self {
        Self(bytes.iter().fold(0, |sum, byte| sum << 8 | u64::from(*byte)))
    }

    /// Six bytes that sort alike.
    pub fn to_bytes(self) -> [u8; 6] {
        let [_, _, bytes @ ..] = self.0.to_be_bytes();
        bytes
    }
}
