//! Layout of keys, revisions and records in the ordered store.
//!
//! | First byte | Then | Value |
//! |---|---|---|
//! | `c` | a key | its current record; absent if the key is deleted |
//! | `h` | a key, escaped, and a revision, newest first | an earlier record, or nothing: the key was deleted |
//! | `r` | a revision | its change: put or delete, and the key |
//! | `l` | a lease | its granted time, its deadline, and the number of its keys |
//! | `k` | a lease and a key | nothing: the key is attached to the lease |
//! | `d` | a deadline and a lease | nothing |
//! | `a` | a kind of alarm and a member | nothing |
//! | `s` | – | the revision, the compacted revision, and the number of leases |
//!
//! Capital letters belong to [`crate::auth`], and `z` is [the size](crate::store::counted).
//!
//! The current record of a key takes one lookup, the history of a key is contiguous, and the
//! changes since a revision are a range. The layout is part of the snapshot format.

use bytes::{BufMut as _, Bytes};

pub(super) const STATE_TAG: &[u8] = b"s";
const CURRENT_TAG: u8 = b'c';
const HISTORY_TAG: u8 = b'h';
const REVISIONS_TAG: u8 = b'r';
const LEASES_TAG: u8 = b'l';
const ATTACHED_TAG: u8 = b'k';
const DEADLINES_TAG: u8 = b'd';
const ALARMS_TAG: u8 = b'a';

/// Maximum length of a key. The tree on disk accepts 64 KiB, and escaping may double the length of
/// a key in the history. The limit applies to all stores, because the outcome of a command must not
/// depend on the kind of store.
pub const KEY_BYTES_MAX: usize = 16 << 10;
/// Maximum length of a key in the store. Keys in the history are the longest.
pub(crate) const STORE_KEY_BYTES_MAX: usize = 1 + 2 * KEY_BYTES_MAX + 2 + 16;

/// Maximum revision in an image, which leaves enough higher revisions for the life of any cluster.
const REVISION_MAX: i64 = i64::MAX / 2;

/// Revision of a change.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Revision {
    /// Revision of the transaction.
    pub main: i64,
    /// Index of the change within the transaction.
    pub sub: u64,
}

impl Revision {
    /// Returns the revision of a transaction's first change.
    pub(super) const fn first_of(main: i64) -> Self {
        Self { main, sub: 0 }
    }

    /// Encodes the revision in an order-preserving way. Stored revisions are never negative.
    fn to_bytes(self) -> [u8; 16] {
        let mut bytes = [0; 16];
        bytes[..8].copy_from_slice(&self.main.to_be_bytes());
        bytes[8..].copy_from_slice(&self.sub.to_be_bytes());
        bytes
    }

    /// Returns whether a transaction could have this revision.
    pub(crate) fn is_possible(self) -> bool {
        (1..=REVISION_MAX).contains(&self.main)
    }

    fn from_bytes(bytes: [u8; 16]) -> Self {
        let number = u128::from_be_bytes(bytes);
        #[expect(clippy::cast_possible_truncation, reason = "the halves of 128 bits")]
        let (main, sub) = ((number >> 64) as u64, number as u64);
        Self { main: main.cast_signed(), sub }
    }
}

/// Returns the place of the current record of a key.
pub(super) fn current_place(key: &[u8]) -> Vec<u8> {
    let mut place = Vec::with_capacity(1 + key.len());
    place.push(CURRENT_TAG);
    place.extend_from_slice(key);
    place
}

pub(super) const fn current_end() -> [u8; 1] {
    [CURRENT_TAG + 1]
}

pub(super) fn current_key(place: &[u8]) -> &[u8] {
    place.get(1..).unwrap_or_default()
}

/// Returns the start of the history of `key` and of all later keys.
pub(super) fn history_place(key: &[u8]) -> Vec<u8> {
    let mut place = Vec::with_capacity(3 + key.len() + 16);
    place.push(HISTORY_TAG);
    for byte in key {
        place.push(*byte);
        if *byte == 0 {
            place.push(0xff);
        }
    }
    // The terminator sorts before any byte that can follow in a longer key.
    place.extend_from_slice(&[0, 1]);
    place
}

pub(super) fn history_end_of(key: &[u8]) -> Vec<u8> {
    let mut place = history_place(key);
    if let Some(last) = place.last_mut() {
        *last += 1;
    }
    place
}

pub(super) const fn history_end() -> [u8; 1] {
    [HISTORY_TAG + 1]
}

/// Returns the place in history of a key's record at `revision`. Earlier revisions follow it.
pub(super) fn history_place_at(key: &[u8], revision: Revision) -> Vec<u8> {
    let mut place = history_place(key);
    place.extend(revision.to_bytes().map(|byte| !byte));
    place
}

pub(super) fn parse_history(place: &[u8]) -> Option<(Vec<u8>, Revision)> {
    let (escaped, revision) = place.get(1..)?.split_last_chunk::<16>()?;
    let escaped = escaped.strip_suffix(&[0, 1])?;
    let mut key = Vec::with_capacity(escaped.len());
    let mut bytes = escaped.iter();
    while let Some(byte) = bytes.next() {
        key.push(*byte);
        if *byte == 0 && bytes.next() != Some(&0xff) {
            return None;
        }
    }
    Some((key, Revision::from_bytes(revision.map(|byte| !byte))))
}

pub(super) fn revision_place(revision: Revision) -> Vec<u8> {
    let mut place = Vec::with_capacity(17);
    place.push(REVISIONS_TAG);
    place.extend_from_slice(&revision.to_bytes());
    place
}

pub(super) fn parse_revision(place: &[u8]) -> Option<Revision> {
    let bytes = place.get(1..)?.try_into().ok()?;
    Some(Revision::from_bytes(bytes))
}

/// Put or deletion of a key, stored under its revision.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Change {
    pub(super) is_deletion: bool,
    pub(super) key: Bytes,
}

impl Change {
    pub(super) fn encode(deletes: bool, key: &[u8]) -> Bytes {
        let mut bytes = Vec::with_capacity(1 + key.len());
        bytes.push(u8::from(deletes));
        bytes.extend_from_slice(key);
        bytes.into()
    }

    pub(super) fn decode(bytes: &Bytes) -> Option<Self> {
        let deletes = match bytes.first()? {
            0 => false,
            1 => true,
            _ => return None,
        };
        Some(Self { is_deletion: deletes, key: bytes.slice(1..) })
    }
}

/// State of a key after a change.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Record {
    /// Revision of the change that made this record.
    pub revision: Revision,
    /// Revision of the transaction that created the key.
    pub created_revision: i64,
    /// Number of puts since the key was created.
    pub version: i64,
    /// Lease of the key; 0 for none.
    pub lease: i64,
    pub value: Bytes,
}

impl Record {
    const HEAD_BYTES: usize = 40;

    /// Returns whether the values are in their ranges, so that later arithmetic does not overflow.
    pub(crate) fn is_possible(&self) -> bool {
        let sane = |count| (1..=REVISION_MAX).contains(&count);
        self.revision.is_possible() && sane(self.created_revision) && sane(self.version)
    }

    pub(super) fn encode(&self) -> Bytes {
        let mut bytes = Vec::with_capacity(Self::HEAD_BYTES + self.value.len());
        bytes.extend_from_slice(&self.revision.to_bytes());
        for number in [self.created_revision, self.version, self.lease] {
            bytes.put_i64(number);
        }
        bytes.extend_from_slice(&self.value);
        bytes.into()
    }

    /// Decodes a record. Empty bytes mark a deleted key, and give `None`.
    pub(super) fn decode(bytes: &Bytes) -> Option<Self> {
        let (head, _) = bytes.split_first_chunk::<{ Self::HEAD_BYTES }>()?;
        let (revision, numbers) = head.split_first_chunk::<16>()?;
        let number = |at: usize| {
            let bytes = numbers.get(at * 8..at * 8 + 8)?;
            Some(i64::from_be_bytes(bytes.try_into().ok()?))
        };
        Some(Self {
            revision: Revision::from_bytes(*revision),
            created_revision: number(0)?,
            version: number(1)?,
            lease: number(2)?,
            value: bytes.slice(Self::HEAD_BYTES..),
        })
    }
}

/// Lease, whose keys are deleted when it ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Lease {
    /// Granted time to live in seconds.
    pub granted_ttl_s: i64,
    /// Time at which the lease expires, in Unix milliseconds.
    pub deadline_ms: u64,
    /// Number of attached keys.
    pub key_count: u64,
}

impl Lease {
    const BYTES: usize = 24;

    pub(super) fn encode(&self) -> Bytes {
        let mut bytes = Vec::with_capacity(Self::BYTES);
        bytes.put_i64(self.granted_ttl_s);
        bytes.put_u64(self.deadline_ms);
        bytes.put_u64(self.key_count);
        bytes.into()
    }

    pub(super) fn decode(bytes: &[u8]) -> Option<Self> {
        let (granted, rest) = bytes.split_first_chunk::<8>()?;
        let (deadline, keys) = rest.split_first_chunk::<8>()?;
        Some(Self {
            granted_ttl_s: i64::from_be_bytes(*granted),
            deadline_ms: u64::from_be_bytes(*deadline),
            key_count: u64::from_be_bytes(keys.try_into().ok()?),
        })
    }
}

pub(super) fn lease_place(id: i64) -> Vec<u8> {
    [&[LEASES_TAG][..], &id.to_be_bytes()].concat()
}

pub(super) const fn leases_end() -> [u8; 1] {
    [LEASES_TAG + 1]
}

pub(super) fn parse_lease(place: &[u8]) -> Option<i64> {
    let id = place.get(1..)?.try_into().ok()?;
    Some(i64::from_be_bytes(id))
}

/// Returns the place of the entry that attaches a key to a lease.
pub(super) fn attachment_place(id: i64, key: &[u8]) -> Vec<u8> {
    [&[ATTACHED_TAG][..], &id.to_be_bytes(), key].concat()
}

/// Returns the exclusive end of a lease's attachments.
pub(super) fn attached_end(id: i64) -> Vec<u8> {
    let number = u64::from_be_bytes(id.to_be_bytes());
    match number.checked_add(1) {
        Some(next) => [&[ATTACHED_TAG][..], &next.to_be_bytes()].concat(),
        None => vec![ATTACHED_TAG + 1],
    }
}

/// Returns the attached key at `place`.
pub(super) fn parse_attached(place: &[u8]) -> Option<&[u8]> {
    place.get(9..)
}

/// Returns the place of a lease in the index by deadline.
pub(super) fn deadline_place(at: u64, id: i64) -> Vec<u8> {
    [&[DEADLINES_TAG][..], &at.to_be_bytes(), &id.to_be_bytes()].concat()
}

pub(super) fn deadlines_place(at: u64) -> Vec<u8> {
    [&[DEADLINES_TAG][..], &at.to_be_bytes()].concat()
}

pub(super) const fn deadlines_end() -> [u8; 1] {
    [DEADLINES_TAG + 1]
}

pub(super) fn parse_deadline(place: &[u8]) -> Option<(u64, i64)> {
    let (at, id) = place.get(1..)?.split_first_chunk::<8>()?;
    let id = i64::from_be_bytes(id.try_into().ok()?);
    Some((u64::from_be_bytes(*at), id))
}

pub(super) fn alarm_place(kind: u8, member: u64) -> Vec<u8> {
    [&[ALARMS_TAG, kind][..], &member.to_be_bytes()].concat()
}

pub(super) const fn alarms_end() -> [u8; 1] {
    [ALARMS_TAG + 1]
}

pub(super) fn parse_alarm(place: &[u8]) -> Option<(u8, u64)> {
    let (kind, member) = place.get(1..)?.split_first()?;
    Some((*kind, u64::from_be_bytes(member.try_into().ok()?)))
}

/// State of the service other than keys, leases and alarms.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct State {
    /// Revision of the last transaction that changed something; 1 if none has.
    pub(super) revision: i64,
    /// Revision before which history was compacted; -1 if history has never been compacted.
    pub(super) compacted_revision: i64,
    /// Revision before which compacted history has been removed.
    pub(super) scrubbed_revision: Revision,
    /// Number of stored leases, including expired ones.
    pub(super) lease_count: u64,
}

impl State {
    pub(super) const EMPTY: Self = Self {
        revision: 1,
        compacted_revision: -1,
        scrubbed_revision: Revision { main: 0, sub: 0 },
        lease_count: 0,
    };
    const BYTES: usize = 40;

    pub(super) fn encode(&self) -> Bytes {
        let mut bytes = Vec::with_capacity(Self::BYTES);
        bytes.put_i64(self.revision);
        bytes.put_i64(self.compacted_revision);
        bytes.extend_from_slice(&self.scrubbed_revision.to_bytes());
        bytes.put_u64(self.lease_count);
        bytes.into()
    }

    pub(super) fn decode(bytes: &[u8]) -> Option<Self> {
        let bytes: &[u8; Self::BYTES] = bytes.try_into().ok()?;
        let (revision, rest) = bytes.split_first_chunk::<8>()?;
        let (compacted, rest) = rest.split_first_chunk::<8>()?;
        let (scrubbed, leases) = rest.split_first_chunk::<16>()?;
        let state = Self {
            revision: i64::from_be_bytes(*revision),
            compacted_revision: i64::from_be_bytes(*compacted),
            scrubbed_revision: Revision::from_bytes(*scrubbed),
            lease_count: u64::from_be_bytes(leases.try_into().ok()?),
        };
        let makes_sense = (1..=REVISION_MAX).contains(&state.revision)
            && (-1..=state.revision).contains(&state.compacted_revision)
            && (0..=state.revision).contains(&state.scrubbed_revision.main);
        makes_sense.then_some(state)
    }
}

/// Returns whether this release could have written the entry, so that later arithmetic on it does
/// not overflow.
pub(crate) fn is_valid_entry(place: &[u8], value: &[u8]) -> bool {
    let is_record = || {
        let record = value.split_first_chunk::<{ Record::HEAD_BYTES }>();
        let record = record.and_then(|(head, _)| Record::decode(&Bytes::copy_from_slice(head)));
        record.is_some_and(|record| record.is_possible())
    };
    let fits = |key: &[u8]| key.len() <= KEY_BYTES_MAX;
    match place.first() {
        Some(&CURRENT_TAG) => fits(current_key(place)) && is_record(),
        Some(&HISTORY_TAG) => {
            parse_history(place).is_some_and(|(key, at)| fits(&key) && at.is_possible())
                && (value.is_empty() || is_record())
        }
        Some(&REVISIONS_TAG) => {
            parse_revision(place).is_some_and(Revision::is_possible)
                && value.split_first().is_some_and(|(what, key)| *what <= 1 && fits(key))
        }
        Some(&LEASES_TAG) => parse_lease(place).is_some() && Lease::decode(value).is_some(),
        Some(&ATTACHED_TAG) => parse_attached(place).is_some_and(fits) && value.is_empty(),
        Some(&ALARMS_TAG) => parse_alarm(place).is_some() && value.is_empty(),
        Some(&DEADLINES_TAG) => parse_deadline(place).is_some() && value.is_empty(),
        _ => place == STATE_TAG && State::decode(value).is_some(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// History sorts by key, then from the newest revision to the oldest, whatever bytes keys have.
    #[test]
    fn history_sorts_by_key_and_then_backwards() {
        let keys: [&[u8]; 9] =
            [b"", b"\0", b"\0\0", b"\0\x01", b"\0\xff", b"\x01", b"a", b"a\0", b"ab"];
        let revisions = [(9, 0), (3, 7), (3, 6), (1, u64::MAX), (0, 0)];
        let mut places = Vec::new();
        for key in keys {
            for (main, sub) in revisions {
                let revision = Revision { main, sub };
                let place = history_place_at(key, revision);
                assert!(history_place(key) < place && place < history_end_of(key));
                assert_eq!(parse_history(&place), Some((key.to_vec(), revision)));
                places.push(place);
            }
        }
        assert!(places.is_sorted());
        assert!(places.iter().all(|place| place[..] < history_end()[..]));
    }

    #[test]
    fn malformed_rows_are_refused() {
        assert_eq!(parse_history(b"h"), None);
        assert_eq!(parse_history(&[b'h'; 30]), None);
        assert_eq!(parse_revision(b"r1"), None);
        assert_eq!(Record::decode(&Bytes::from_static(&[0; 39])), None);
        assert_eq!(State::decode(&[0xff; 40]), None);
        assert_eq!(State::decode(&State::EMPTY.encode()), Some(State::EMPTY));
        assert_eq!(Change::decode(&Bytes::from_static(&[2])), None);
    }
}
