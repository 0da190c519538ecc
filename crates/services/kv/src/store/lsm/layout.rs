//! Format of stored keys and values in the LSM tree.

use fjall::Slice;
use quorate_core::slot::Slot;

use crate::{
    key::KEY_BYTES_MAX,
    store::{
        Bytes, Database, DeadlineKind, Entry, Position, ReplacedEntry, Stamp, Version,
        collection::{Id, Kind, NAME_BYTES_MAX},
    },
};

/// First byte of a stored key.
pub(super) mod kind {
    pub(crate) const STATE: u8 = 0;
    pub(crate) const META: u8 = 1;
    pub(crate) const DEADLINE: u8 = 2;
    pub(crate) const DATA: u8 = 3;
    pub(crate) const ROW: u8 = 4;
    /// Dropped collection whose rows are still to be removed.
    pub(crate) const DROPPED: u8 = 5;
    /// Earliest deadline of the fields of a hash.
    pub(crate) const FIELD_DEADLINE: u8 = 6;
    /// Copy of the header of a value that is in a separate file and has a deadline.
    pub(crate) const APART_HEADER: u8 = 7;
}

/// Key of the last commit's state.
pub(super) const STATE_KEY: [u8; 1] = [kind::STATE];
/// Key of the highest generation that a load has begun. If it is above the generation in the state,
/// the load failed and left data.
pub(super) const NEWEST_KEY: [u8; 2] = [kind::STATE, 1];
/// Key of a copy of the last state that was written with an index. A release without the index
/// updates only the state, so the two then differ.
pub(super) const INDEXED_KEY: [u8; 2] = [kind::STATE, 2];
/// Key of the table of databases, which is absent as long as there has been only database 0.
pub(super) const DATABASES_KEY: [u8; 2] = [kind::STATE, 3];

pub(super) const FORMAT: u8 = 1;
/// Size of the header of a stored value: slot, index and type, deadline.
const HEADER_BYTES: usize = 8 + 4 + 8;
/// Number of bits for the index; the bits above it are the type. No batch has 2^28 commands.
const INDEX_BITS: u32 = 28;
/// Size of the prefix of a stored key: kind, generation.
const PREFIX_BYTES: usize = 1 + 6;
/// Number of bytes before a client's key: prefix, position.
const KEY_BYTES: usize = PREFIX_BYTES + 6;
/// Number of bytes before a client's key: prefix, deadline.
const DEADLINE_BYTES: usize = PREFIX_BYTES + 8;
/// Number of bytes before the name of a row: prefix, id.
const ROW_BYTES: usize = PREFIX_BYTES + Id::BYTES;
/// Encoding of the absence of a deadline.
const NO_DEADLINE: u64 = u64::MAX;

/// Bound of generations in a sound store. Stored keys have six bytes for one, and no store begins
/// as many as to get from here to the last.
pub(super) const GENERATIONS_END: u64 = 1 << 47;

/// Maximum length of a key in the tree. The tree asserts that the length fits in 16 bits.
const TREE_KEY_BYTES_MAX: usize = u16::MAX as usize;

// Every key of a client fits, with any prefix.
const _: () = assert!(KEY_BYTES + KEY_BYTES_MAX <= TREE_KEY_BYTES_MAX);
const _: () = assert!(DEADLINE_BYTES + KEY_BYTES_MAX <= TREE_KEY_BYTES_MAX);
const _: () = assert!(ROW_BYTES + NAME_BYTES_MAX < TREE_KEY_BYTES_MAX);

/// Contents of a database.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Space {
    /// Generation of the keys. A flush ends it, which hides all its keys. They are then removed
    /// gradually; removing them at once would take a commit as large as the store.
    pub(super) generation: u64,
    pub(super) keys: u64,
    /// True if the index of deadlines is complete: a key of this generation whose value is in a
    /// separate file has an entry [`kind::APART_HEADER`] if and only if it has a deadline. Such
    /// entries of other keys have no meaning. For database 0, see [`INDEXED_KEY`].
    pub(super) indexed: bool,
}

impl Space {
    pub(super) const fn new(generation: u64) -> Self {
        Self { generation, keys: 0, indexed: true }
    }
}

/// State stored with the data of a commit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct State {
    pub(super) applied_position: Slot,
    /// Each generation below this one is that of a database or has no data.
    pub(super) oldest: u64,
    /// Highest generation begun so far.
    pub(super) newest: u64,
    /// Contents of the databases; `None` if nothing has been written since the last flush.
    /// Invariant: database 0 has contents, and all generations differ.
    pub(super) spaces: [Option<Space>; Database::COUNT],
    /// See [`Store::since`](crate::store::Store::since).
    pub(super) since: [Version; Database::COUNT],
    /// True if there have been other databases than database 0. The table of databases is then
    /// stored, as generations could otherwise begin anew among the remains of old ones.
    pub(super) has_table: bool,
}

impl State {
    pub(super) const EMPTY: Self = {
        let mut spaces = [None; Database::COUNT];
        spaces[0] = Some(Space::new(0));
        Self {
            applied_position: Slot::FIRST,
            oldest: 0,
            newest: 0,
            spaces,
            since: [Version::ABSENT; Database::COUNT],
            has_table: false,
        }
    };

    /// Returns the contents of database 0.
    pub(super) fn first(&self) -> Space {
        self.spaces[0].expect("database 0 always has contents")
    }

    pub(super) fn first_mut(&mut self) -> &mut Space {
        self.spaces[0].as_mut().expect("database 0 always has contents")
    }

    /// Returns the generations of all databases in ascending order.
    pub(super) fn live_generations(&self) -> Vec<u64> {
        let spaces = self.spaces.iter().flatten();
        let mut live: Vec<u64> = spaces.map(|space| space.generation).collect();
        live.sort_unstable();
        live
    }

    /// Notes that a generation has ended.
    pub(super) fn end_generation(&mut self, generation: u64) {
        self.oldest = self.oldest.min(generation);
    }

    pub(super) fn to_bytes(self) -> Vec<u8> {
        let Space { generation, keys, .. } = self.first();
        let mut bytes = vec![FORMAT];
        bytes.extend_from_slice(&self.applied_position.0.to_le_bytes());
        bytes.extend_from_slice(&keys.to_le_bytes());
        bytes.extend_from_slice(&generation.to_le_bytes());
        bytes.extend_from_slice(&self.oldest.to_le_bytes());
        bytes
    }

    /// Decodes a state. Returns `None` if it has another format or makes no sense.
    pub(super) fn from_bytes(bytes: &[u8]) -> Option<Self> {
        let (&FORMAT, rest) = bytes.split_first()? else {
            return None;
        };
        let (slot, rest) = rest.split_first_chunk()?;
        let (keys, rest) = rest.split_first_chunk()?;
        let (generation, rest) = rest.split_first_chunk()?;
        let (oldest, []) = rest.split_first_chunk()? else {
            return None;
        };
        let generation = u64::from_le_bytes(*generation);
        if generation >= GENERATIONS_END {
            return None;
        }
        let mut state = Self {
            applied_position: Slot(u64::from_le_bytes(*slot)),
            oldest: u64::from_le_bytes(*oldest),
            newest: generation,
            ..Self::EMPTY
        };
        let keys = u64::from_le_bytes(*keys);
        *state.first_mut() = Space { generation, keys, indexed: false };
        Some(state)
    }
}

pub(super) fn data_key(generation: u64, position: Position, key: &[u8]) -> Vec<u8> {
    let mut stored = Vec::with_capacity(KEY_BYTES + key.len());
    stored.push(kind::DATA);
    stored.extend_from_slice(&generation_bytes(generation));
    stored.extend_from_slice(&position.to_bytes());
    stored.extend_from_slice(key);
    stored
}

/// Splits a stored data key into its position and the client's key.
pub(super) fn parse_data_key(stored: &[u8]) -> Option<(Position, &[u8])> {
    let (head, key) = stored.split_at_checked(KEY_BYTES)?;
    let (_, position) = head.split_last_chunk()?;
    Some((Position::from_bytes(*position), key))
}

pub(super) fn deadline_key(
    generation: u64,
    of: DeadlineKind,
    deadline: u64,
    key: &[u8],
) -> Vec<u8> {
    let kind = match of {
        DeadlineKind::Keys => kind::DEADLINE,
        DeadlineKind::Fields => kind::FIELD_DEADLINE,
    };
    let mut stored = prefix(kind, generation);
    stored.extend_from_slice(&deadline.to_be_bytes());
    stored.extend_from_slice(key);
    stored
}

/// Splits the stored key of a deadline into the time and the client's key.
pub(super) fn parse_deadline_key(stored: &[u8]) -> Option<(u64, &[u8])> {
    let (_, rest) = stored.split_at_checked(PREFIX_BYTES)?;
    let (deadline, key) = rest.split_first_chunk()?;
    Some((u64::from_be_bytes(*deadline), key))
}

/// Returns the stored key of the header that belongs to the value stored under `data_key`.
pub(super) fn apart_header_key(data_key: &[u8]) -> Vec<u8> {
    let mut stored = data_key.to_vec();
    stored[0] = kind::APART_HEADER;
    stored
}

pub(super) fn header_of(stored: &[u8]) -> &[u8] {
    &stored[..HEADER_BYTES]
}

fn generation_bytes(generation: u64) -> [u8; 6] {
    let [_, _, bytes @ ..] = generation.to_be_bytes();
    bytes
}

/// Returns the prefix of the stored keys of a kind and generation.
pub(super) fn prefix(kind: u8, generation: u64) -> Vec<u8> {
    let mut stored = vec![kind];
    stored.extend_from_slice(&generation_bytes(generation));
    stored
}

/// Returns the generation in a stored key; `None` for the state and the metadata.
pub(super) fn generation_of(stored: &[u8]) -> Option<u64> {
    let (kind, rest) = stored.split_first()?;
    let [a, b, c, d, e, f] = *rest.first_chunk()?;
    (*kind >= kind::DEADLINE).then(|| u64::from_be_bytes([0, 0, a, b, c, d, e, f]))
}

pub(super) fn row_key(generation: u64, id: Id, name: &[u8]) -> Vec<u8> {
    let mut stored = prefix(kind::ROW, generation);
    stored.extend_from_slice(&id.to_bytes());
    stored.extend_from_slice(name);
    stored
}

/// Returns the exclusive upper bound of a collection's rows.
pub(super) fn rows_end(generation: u64, id: Id) -> Vec<u8> {
    let mut stored = row_key(generation, id, b"");
    // Some byte is below 255, because no generation is that high.
    while stored.pop_if(|last| *last == u8::MAX).is_some() {}
    if let Some(last) = stored.last_mut() {
        *last += 1;
    }
    stored
}

pub(super) fn parse_row_key(stored: &[u8]) -> Option<&[u8]> {
    stored.get(ROW_BYTES..)
}

/// Encodes the key that marks a dropped collection.
pub(super) fn dropped_collection_key(generation: u64, id: Id) -> Vec<u8> {
    let mut stored = prefix(kind::DROPPED, generation);
    stored.extend_from_slice(&id.to_bytes());
    stored
}

pub(super) fn parse_dropped_collection_key(stored: &[u8]) -> Option<Id> {
    Id::from_bytes(stored.get(PREFIX_BYTES..)?)
}

fn header(stored: &[u8]) -> Option<Stamp> {
    let (slot, rest) = stored.split_first_chunk()?;
    let (index, rest) = rest.split_first_chunk()?;
    let (deadline, _) = rest.split_first_chunk()?;
    let index = u32::from_le_bytes(*index);
    let kind = Kind::from_byte(u8::try_from(index >> INDEX_BITS).ok()?)?;
    let version =
        Version { slot: u64::from_le_bytes(*slot), index: index & ((1 << INDEX_BITS) - 1) };
    let deadline = u64::from_le_bytes(*deadline);
    Some(Stamp { version, deadline: (deadline != NO_DEADLINE).then_some(deadline), kind })
}

/// Decodes what is stored of a key that is about to change.
pub(super) fn decode_replaced(stored: &[u8]) -> Option<ReplacedEntry> {
    let stamp = header(stored)?;
    let old = ReplacedEntry::new(&stored[HEADER_BYTES..], stamp);
    (old.id.is_some() == stamp.kind.has_rows()).then_some(old)
}

pub(super) fn stored_value(entry: &Entry<'_>) -> Vec<u8> {
    let index = entry.version.index & ((1 << INDEX_BITS) - 1);
    let index = index | u32::from(entry.kind as u8) << INDEX_BITS;
    let mut stored = Vec::with_capacity(HEADER_BYTES + entry.value.len());
    stored.extend_from_slice(&entry.version.slot.to_le_bytes());
    stored.extend_from_slice(&index.to_le_bytes());
    stored.extend_from_slice(&entry.deadline.unwrap_or(NO_DEADLINE).to_le_bytes());
    stored.extend_from_slice(&entry.value);
    stored
}

pub(super) fn entry(stored: Slice) -> Option<Entry<'static>> {
    let Stamp { version, deadline, kind } = header(&stored)?;
    Some(Entry { value: Bytes::Shared(stored, HEADER_BYTES), version, deadline, kind })
}
