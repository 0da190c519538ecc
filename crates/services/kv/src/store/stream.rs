//! Stream entry ids, and the part of a stream that is stored with its key.

use std::fmt;

/// Id of an entry, which orders the entries of a stream.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct EntryId {
    /// Unix time in milliseconds, unless the client chose the id.
    pub ms: u64,
    /// Number among the entries of the same millisecond.
    pub seq: u64,
}

impl EntryId {
    pub const MIN: Self = Self { ms: 0, seq: 0 };
    pub const MAX: Self = Self { ms: u64::MAX, seq: u64::MAX };
    pub const BYTES: usize = 16;

    /// Returns the next higher id; `None` for the highest.
    pub const fn next(self) -> Option<Self> {
        match (self.seq.checked_add(1), self.ms.checked_add(1)) {
            (Some(seq), _) => Some(Self { seq, ..self }),
            (None, Some(ms)) => Some(Self { ms, seq: 0 }),
            (None, None) => None,
        }
    }

    /// Returns the next lower id; `None` for the lowest.
    pub const fn previous(self) -> Option<Self> {
        match (self.seq.checked_sub(1), self.ms.checked_sub(1)) {
            (Some(seq), _) => Some(Self { seq, ..self }),
            (None, Some(ms)) => Some(Self { ms, seq: u64::MAX }),
            (None, None) => None,
        }
    }

    /// Encodes the id as bytes that sort like ids. Part of the stored format.
    pub fn to_bytes(self) -> [u8; Self::BYTES] {
        let mut bytes = [0; Self::BYTES];
        bytes[..8].copy_from_slice(&self.ms.to_be_bytes());
        bytes[8..].copy_from_slice(&self.seq.to_be_bytes());
        bytes
    }

    pub fn from_bytes(bytes: &[u8]) -> Option<Self> {
        let (ms, rest) = bytes.split_first_chunk()?;
        let (seq, []) = rest.split_first_chunk()? else {
            return None;
        };
        Some(Self { ms: u64::from_be_bytes(*ms), seq: u64::from_be_bytes(*seq) })
    }
}

impl fmt::Display for EntryId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}-{}", self.ms, self.seq)
    }
}

/// Part of a stream's header that other types do not have.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Log {
    /// Id of the first entry, unless there are none. Walks begin here, so they do not pass the
    /// marks of removed entries.
    pub first: EntryId,
    /// Highest id that an entry ever had, or that XSETID has set.
    pub last: EntryId,
    /// Highest id of an entry removed by XDEL.
    pub deleted: EntryId,
    /// Number of entries ever added.
    pub added: u64,
    /// Number of rows besides those of entries: groups, consumers, pending entries.
    pub group_rows: u64,
    /// Number that the next group or consumer gets. Numbers are never reused.
    pub next_number: u64,
}

impl Log {
    pub const BYTES: usize = 3 * EntryId::BYTES + 3 * 8;

    /// Encodes the state. Part of the formats of stores and snapshots.
    pub(super) fn to_bytes(self) -> [u8; Self::BYTES] {
        let mut bytes = [0; Self::BYTES];
        for (part, id) in
            bytes.chunks_mut(EntryId::BYTES).zip([self.first, self.last, self.deleted])
        {
            part.copy_from_slice(&id.to_bytes());
        }
        let numbers = [self.added, self.group_rows, self.next_number];
        for (part, number) in bytes[3 * EntryId::BYTES..].chunks_mut(8).zip(numbers) {
            part.copy_from_slice(&number.to_le_bytes());
        }
        bytes
    }

    pub(super) fn from_bytes(stored: &[u8; Self::BYTES]) -> Self {
        let id = |at: usize| {
            let bytes = &stored[at * EntryId::BYTES..][..EntryId::BYTES];
            EntryId::from_bytes(bytes).unwrap_or_default()
        };
        let number = |at: usize| {
            let mut bytes = [0; 8];
            bytes.copy_from_slice(&stored[3 * EntryId::BYTES + 8 * at..][..8]);
            u64::from_le_bytes(bytes)
        };
        Self {
            first: id(0),
            last: id(1),
            deleted: id(2),
            added: number(0),
            group_rows: number(1),
            next_number: number(2),
        }
    }
}
