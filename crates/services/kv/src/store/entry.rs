//! Entry of a key: its value and metadata.

use std::ops::Deref;

use super::{
    collection::{Header, Id, Kind, collection_id, earliest_field_deadline},
    places::Version,
};

/// Bytes of a value, in memory or shared with the cache of the LSM tree.
#[derive(Debug)]
pub enum Bytes<'a> {
    Borrowed(&'a [u8]),
    /// A value from the LSM tree, after a stored prefix of the given length.
    Shared(fjall::Slice, usize),
}

impl Deref for Bytes<'_> {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        match self {
            Self::Borrowed(bytes) => bytes,
            Self::Shared(slice, from) => &slice[*from..],
        }
    }
}

/// Value of a key with its metadata.
#[derive(Debug)]
pub struct Entry<'a> {
    pub value: Bytes<'a>,
    /// Version of the command that last changed the key.
    pub version: Version,
    /// Group time in milliseconds at which the key expires.
    pub deadline: Option<u64>,
    pub kind: Kind,
}

impl Entry<'_> {
    pub const fn stamp(&self) -> Stamp {
        Stamp { version: self.version, deadline: self.deadline, kind: self.kind }
    }

    /// Returns the deadline set on the key itself, not on a hash's fields.
    pub fn own_deadline(&self) -> Option<u64> {
        if self.kind == Kind::Hash
            && let Some(timed) =
                Header::from_bytes(&self.value).and_then(|header| header.field_deadlines)
        {
            return timed.deadline;
        }
        self.deadline
    }

    /// [time-2] Returns whether the key exists at this group time.
    pub fn exists_at(&self, group_ms: u64) -> bool {
        exists_at(self.deadline, group_ms)
    }
}

/// Metadata of a value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stamp {
    /// Version of the command that last changed the key.
    pub version: Version,
    /// Group time in milliseconds at which the key expires.
    pub deadline: Option<u64>,
    pub kind: Kind,
}

impl Stamp {
    pub const fn string(version: Version, deadline: Option<u64>) -> Self {
        Self { version, deadline, kind: Kind::String }
    }

    /// Mark of a removed key in a layer above others.
    pub(super) const ABSENT: Self = Self::string(Version::ABSENT, None);
}

/// Key that is about to be replaced or removed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct ReplacedEntry {
    pub(super) version: Version,
    pub(super) deadline: Option<u64>,
    /// Earliest deadline of a hash's field.
    pub(super) next: Option<u64>,
    /// Id of the key's rows.
    pub(super) id: Option<Id>,
}

impl ReplacedEntry {
    pub(super) fn new(value: &[u8], stamp: Stamp) -> Self {
        let Stamp { version, deadline, kind } = stamp;
        Self {
            version,
            deadline,
            next: earliest_field_deadline(kind, value),
            id: collection_id(kind, value),
        }
    }

    /// Returns the deadline of the key and the earliest one of its fields.
    pub(super) const fn deadlines(&self) -> [Option<u64>; 2] {
        [self.deadline, self.next]
    }
}

/// [time-2] Returns whether a key or field with deadline `deadline` exists at group time
/// `group_ms`.
pub(super) fn exists_at(deadline: Option<u64>, group_ms: u64) -> bool {
    deadline.is_none_or(|deadline| deadline > group_ms)
}
