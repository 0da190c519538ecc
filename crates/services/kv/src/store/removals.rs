//! Versions of absent keys for WATCH, which detects with them that a key was created and removed
//! again ([watch-1]).
//!
//! The version of a key is lost with it. This record retains the latest version removed in each of
//! 65 536 groups of keys, in at most a few megabytes. `docs/spec/watch.md` has the argument.

use std::collections::{BTreeMap, BTreeSet};

use quorate_core::slot::Slot;
use quorate_replica::service::{MetaChange, Metadata};
use xxhash_rust::xxh3::Xxh3;

use super::places::{Database, Position, Version};
use crate::encode::{Decoder, Encoder, Malformed};

/// Number of low bits of a position that are not part of the group's number.
const SHIFT: u32 = Position::BITS - u16::BITS;
/// Number of bits by which a database's number is shifted in the number of a group.
const DATABASE_SHIFT: u32 = 12;
/// Prefix of the metadata keys of this record. The replica uses no such key.
const META: &[u8] = b"kv.gone.";

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Removals {
    /// True if the record is part of the replicated state, and thus equal on all nodes ([watch-3]).
    replicated: bool,
    /// Minimum version of any absent key.
    minimum_version: Version,
    /// Latest removed version in each group. Invariant: all are above the floor.
    groups: BTreeMap<u16, Version>,
    /// Groups changed since the last commit; `None` stands for the floor.
    changed: BTreeSet<Option<u16>>,
}

/// Returns the group of a key. Equal names in different databases have different groups, since
/// programs often use the same names in several.
const fn group_of(database: Database, position: Position) -> u16 {
    (position.cursor() >> SHIFT) as u16 ^ (database.number() as u16) << DATABASE_SHIFT
}

impl Removals {
    /// Creates a record that lacks the removals below `slot`.
    pub fn from(slot: Slot) -> Self {
        // The floor is below every later command, including the one that makes the record
        // replicated.
        let minimum_version = Version { slot: slot.0.saturating_sub(1), index: u32::MAX };
        Self { minimum_version, ..Self::default() }
    }

    /// [watch-1] Returns the version of an absent key.
    pub fn version(&self, database: Database, position: Position) -> Version {
        let group = self.groups.get(&group_of(database, position));
        group.map_or(self.minimum_version, |version| *version)
    }

    /// Records the removal of a key with this version ([watch-1]).
    pub fn record_removal(&mut self, database: Database, position: Position, version: Version) {
        if version > self.version(database, position) {
            let group = group_of(database, position);
            self.groups.insert(group, version);
            self.note_change(Some(group));
        }
    }

    /// [watch-2] Raises the version of all absent keys to `floor`.
    pub fn raise_minimum(&mut self, floor: Version) {
        self.minimum_version = floor;
        for group in std::mem::take(&mut self.groups).into_keys() {
            self.note_change(Some(group));
        }
        self.note_change(None);
    }

    /// Makes the record part of the replicated state ([watch-3]). From the command `since` on, it
    /// is equal on all nodes.
    pub fn replicate(&mut self, since: Version) {
        if !self.replicated {
            self.raise_minimum(since);
            self.replicated = true;
            self.note_change(None);
        }
    }

    fn note_change(&mut self, entry: Option<u16>) {
        if self.replicated {
            self.changed.insert(entry);
        }
    }

    pub fn is_unchanged(&self) -> bool {
        self.changed.is_empty()
    }

    pub fn commit(&mut self) -> Vec<MetaChange> {
        let changed = std::mem::take(&mut self.changed);
        changed.into_iter().map(|entry| self.as_change(entry)).collect()
    }

    fn as_change(&self, entry: Option<u16>) -> MetaChange {
        let (group, version) = match entry {
            None => (Vec::new(), Some(&self.minimum_version)),
            Some(group) => (group.to_be_bytes().to_vec(), self.groups.get(&group)),
        };
        let value = version.map(|version| {
            let mut bytes = Vec::new();
            write_version(*version, &mut Encoder(&mut bytes));
            bytes
        });
        MetaChange { key: [META, &group].concat(), value }
    }

    /// Returns the whole record as metadata, for a store that has none of it yet.
    pub fn as_metadata(&self) -> impl Iterator<Item = MetaChange> {
        let groups = self.groups.keys().copied().map(Some);
        let entries = std::iter::once(None).chain(groups).filter(|_| self.replicated);
        entries.map(|entry| self.as_change(entry))
    }

    /// Removes the record from the metadata of position `at` and returns it.
    pub fn restore(meta: &mut Metadata, at: Slot) -> Self {
        let mut removals = Self::from(at);
        for (key, value) in meta.extract_if(.., |(key, _)| key.starts_with(META)) {
            let Ok(version) = read_version(&mut Decoder(&value)) else {
                continue;
            };
            match key[META.len()..] {
                [] => (removals.replicated, removals.minimum_version) = (true, version),
                [high, low] => {
                    removals.groups.insert(u16::from_be_bytes([high, low]), version);
                }
                _ => {}
            }
        }
        removals
    }

    /// Encodes the record as a snapshot item. Returns `false` if snapshots do not contain it.
    pub fn encode(&self, out: &mut Encoder<'_>) -> bool {
        write_version(self.minimum_version, out);
        for (group, version) in &self.groups {
            write_version(*version, out.count((*group).into()));
        }
        self.replicated
    }

    pub fn decode(from: &mut Decoder<'_>) -> Result<Self, Malformed> {
        let floor = read_version(from)?;
        let mut removals = Self { replicated: true, minimum_version: floor, ..Self::default() };
        while from.end().is_err() {
            let group = u16::try_from(from.count()?).map_err(|_| Malformed)?;
            let version = read_version(from)?;
            let last = removals.groups.last_key_value();
            if version <= floor || last.is_some_and(|(last, _)| *last >= group) {
                return Err(Malformed);
            }
            removals.groups.insert(group, version);
        }
        Ok(removals)
    }

    pub fn newest(&self) -> u64 {
        let groups = self.groups.values().map(|version| version.slot);
        groups.fold(self.minimum_version.slot, u64::max)
    }

    /// Adds the record to a fingerprint of the state, if it is replicated.
    pub(super) fn digest(&self, hasher: &mut Xxh3) {
        let mut bytes = Vec::new();
        if self.encode(&mut Encoder(&mut bytes)) {
            hasher.update(&bytes);
        }
    }
}

fn write_version(version: Version, out: &mut Encoder<'_>) {
    out.count(version.slot).count(version.index.into());
}

fn read_version(from: &mut Decoder<'_>) -> Result<Version, Malformed> {
    let slot = from.count()?;
    Ok(Version { slot, index: u32::try_from(from.count()?).map_err(|_| Malformed)? })
}
