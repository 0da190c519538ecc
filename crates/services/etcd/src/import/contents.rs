//! Contents of etcd's buckets: revisions, leases, users and roles.
//!
//! For each revision, memory holds its key and about 80 bytes with the location of its record.
//! Values are read on demand.

use prost::Message;

use super::{
    bad::ImportError,
    bolt::{Bucket, DatabaseSource, Element, PageTrees, VisitElement},
};
use crate::{
    auth::{ImportedAuth, ImportedRole, ImportedUser},
    mvcc::{KEY_BYTES_MAX, Record, Revision},
    proto::{authpb::Permission, mvccpb::KeyValue},
};

/// Size of a revision as a key of its bucket, in bytes. A deletion has one more byte.
const REVISION_BYTES: usize = 17;
const DELETED_MARK: u8 = b't';
/// Maximum number of buckets; etcd has ten.
const BUCKETS_MAX: usize = 1000;
/// Maximum number of users, and of roles.
const NAME_COUNT_MAX: usize = 100_000;

/// A lease as stored by etcd.
#[derive(Clone, PartialEq, Eq, Message)]
struct LeaseRow {
    #[prost(int64, tag = "1")]
    id: i64,
    #[prost(int64, tag = "2")]
    ttl: i64,
}

/// A user as stored by etcd.
#[derive(Clone, PartialEq, Eq, Message)]
struct UserRow {
    #[prost(bytes = "vec", tag = "1")]
    name: Vec<u8>,
    #[prost(bytes = "vec", tag = "2")]
    password: Vec<u8>,
    #[prost(string, repeated, tag = "3")]
    roles: Vec<String>,
}

/// A role as stored by etcd.
#[derive(Clone, PartialEq, Message)]
struct RoleRow {
    #[prost(bytes = "vec", tag = "1")]
    name: Vec<u8>,
    #[prost(message, repeated, tag = "2")]
    permissions: Vec<Permission>,
}

/// Summary of a snapshot, as printed by `etcdutl snapshot status`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SnapshotStatus {
    /// CRC-32C over all buckets.
    pub hash: u32,
    /// Revision of the last change.
    pub revision: i64,
    pub total_keys: u64,
    /// Size of all pages in use, in bytes.
    pub total_size: u64,
    /// Version of etcd whose format the snapshot has; empty for versions before 3.6.
    pub version: String,
}

#[derive(Clone, Copy, Debug)]
struct Change {
    revision: Revision,
    is_deletion: bool,
    lease: i64,
    /// Offset and length of the key in `key_bytes`.
    key: (usize, u32),
    /// Offset and length of the record in the file.
    record_location: (u64, u32),
}

/// Contents of a snapshot, with values read on demand.
pub struct SnapshotContents<'s> {
    source: &'s dyn DatabaseSource,
    status: SnapshotStatus,
    /// Keys of the changes, concatenated.
    key_bytes: Vec<u8>,
    /// All changes, ordered by revision.
    changes: Vec<Change>,
    /// Indexes of the changes, ordered by key, and newest first for each key.
    by_key: Vec<usize>,
    /// Leases with their granted seconds, ordered by id.
    leases: Vec<(i64, i64)>,
    auth: ImportedAuth,
    scheduled_compaction: i64,
    finished_compaction: i64,
}

fn decode_number(bytes: &[u8]) -> Option<u64> {
    Some(u64::from_be_bytes(bytes.try_into().ok()?))
}

/// Decodes a revision. Returns it with a flag for changes that deleted their key.
fn decode_revision(bytes: &[u8]) -> Option<(Revision, bool)> {
    let (revision, mark) = bytes.split_at_checked(REVISION_BYTES)?;
    let deletes = match mark {
        [] => false,
        [DELETED_MARK] => true,
        _ => return None,
    };
    let (main, rest) = revision.split_first_chunk::<8>()?;
    let (_, sub) = rest.split_first()?;
    let revision = Revision { main: i64::from_be_bytes(*main), sub: decode_number(sub)? };
    // In etcd both are signed.
    let counted = revision.is_possible() && i64::try_from(revision.sub).is_ok();
    counted.then_some((revision, deletes))
}

impl<'s> SnapshotContents<'s> {
    /// Reads a snapshot from the first `bytes` bytes of a source.
    ///
    /// # Errors
    ///
    /// Fails if the bytes are not a complete snapshot of etcd, or if it contains data that this
    /// service does not support.
    pub fn read(source: &'s dyn DatabaseSource, bytes: u64) -> Result<Self, ImportError> {
        let mut trees = PageTrees::open(source, bytes)?;
        let mut buckets = Vec::new();
        let root = trees.root();
        trees.visit_bucket(&root, &mut |element: Element<'_>| {
            if element.is_bucket && buckets.len() < BUCKETS_MAX {
                buckets.push((element.key.to_vec(), element.bucket()?));
                return Ok(());
            }
            Err(ImportError::damaged(element.value_offset, "its list of buckets makes no sense"))
        })?;
        let mut contents = Self {
            source,
            status: SnapshotStatus { total_size: trees.bytes(), ..SnapshotStatus::default() },
            key_bytes: Vec::new(),
            changes: Vec::new(),
            by_key: Vec::new(),
            leases: Vec::new(),
            auth: ImportedAuth::default(),
            scheduled_compaction: -1,
            finished_compaction: -1,
        };
        for wanted in ["key", "meta"] {
            if !buckets.iter().any(|(name, _)| name == wanted.as_bytes()) {
                return Err(ImportError::NotEtcd(wanted));
            }
        }
        for (name, bucket) in &buckets {
            contents.read_bucket(&mut trees, name, bucket)?;
        }
        contents.sort_by_key();
        Ok(contents)
    }

    fn read_bucket(
        &mut self,
        trees: &mut PageTrees<'_>,
        name: &[u8],
        bucket: &Bucket,
    ) -> Result<(), ImportError> {
        let mut hash = crc32c::crc32c_append(self.status.hash, name);
        let mut take: Box<VisitElement<'_>> = match name {
            b"key" => Box::new(|element| self.read_change(element)),
            b"meta" => Box::new(|element| self.read_meta(element)),
            b"lease" => Box::new(|element| self.read_lease(element)),
            b"auth" => Box::new(|element| self.read_auth_state(element)),
            b"authUsers" => Box::new(|element| self.read_user(element)),
            b"authRoles" => Box::new(|element| self.read_role(element)),
            // Members, alarms and versions belong to the old cluster and are not imported.
            _ => Box::new(|_| Ok(())),
        };
        trees.visit_bucket(bucket, &mut |element| {
            hash = crc32c::crc32c_append(crc32c::crc32c_append(hash, element.key), element.value);
            match element.is_bucket {
                true => {
                    Err(ImportError::damaged(element.value_offset, "a bucket lies in a bucket"))
                }
                false => take(element),
            }
        })?;
        drop(take);
        self.status.hash = hash;
        Ok(())
    }

    fn sort_by_key(&mut self) {
        let mut by_key: Vec<usize> = (0..self.changes.len()).collect();
        by_key.sort_unstable_by(|a, b| {
            let [one, other] =
                [a, b].map(|index| self.revision_of_change(*index).map(|change| change.2));
            // For equal keys, later changes come first. They have higher indexes.
            one.cmp(&other).then(b.cmp(a))
        });
        self.by_key = by_key;
        let now = (0..self.changes.len()).filter(|at| matches!(self.by_key(*at), Some((_, true))));
        self.status.total_keys = now.count() as u64;
    }

    fn read_change(
        &mut self,
        Element { key, value, value_offset: at, .. }: Element<'_>,
    ) -> Result<(), ImportError> {
        let wrong = |what| ImportError::damaged(at, what);
        let (revision, deletes) =
            decode_revision(key).ok_or_else(|| wrong("a revision makes no sense"))?;
        let kv = KeyValue::decode(value).map_err(|_| wrong("a record makes no sense"))?;
        let record = decode_record(revision, &kv);
        let sane = deletes || (kv.mod_revision == revision.main && record.is_possible());
        if kv.key.is_empty() || !sane {
            return Err(wrong("a record contradicts its revision"));
        }
        if kv.key.len() > KEY_BYTES_MAX {
            let what = format!("it has a key of {} bytes, more than {KEY_BYTES_MAX}", kv.key.len());
            return Err(ImportError::Unsupported(what));
        }
        let lengths = (u32::try_from(kv.key.len()), u32::try_from(value.len()));
        let (Ok(key_bytes), Ok(record_bytes)) = lengths else {
            return Err(wrong("a record is too long"));
        };
        self.changes.push(Change {
            revision,
            is_deletion: deletes,
            lease: kv.lease,
            key: (self.key_bytes.len(), key_bytes),
            record_location: (at, record_bytes),
        });
        self.key_bytes.extend_from_slice(&kv.key);
        self.status.revision = revision.main;
        Ok(())
    }

    fn read_meta(
        &mut self,
        Element { key, value, value_offset: at, .. }: Element<'_>,
    ) -> Result<(), ImportError> {
        let compacted = || match decode_revision(value) {
            Some((revision, false)) => Ok(revision.main),
            _ => Err(ImportError::damaged(at, "the compacted revision makes no sense")),
        };
        match key {
            b"scheduledCompactRev" => self.scheduled_compaction = compacted()?,
            b"finishedCompactRev" => self.finished_compaction = compacted()?,
            b"storageVersion" => {
                let version = std::str::from_utf8(value).ok();
                let plain = |letter: u8| letter.is_ascii_alphanumeric() || b".-+".contains(&letter);
                let version = version.filter(|text| text.len() <= 64 && text.bytes().all(plain));
                let version =
                    version.ok_or(ImportError::damaged(at, "its version makes no sense"))?;
                version.clone_into(&mut self.status.version);
            }
            _ => {}
        }
        Ok(())
    }

    fn read_lease(
        &mut self,
        Element { key, value, value_offset: at, .. }: Element<'_>,
    ) -> Result<(), ImportError> {
        let lease = LeaseRow::decode(value).ok();
        let id = decode_number(key).map(u64::cast_signed);
        match lease {
            Some(lease) if Some(lease.id) == id && lease.id != 0 => {
                self.leases.push((lease.id, lease.ttl));
                Ok(())
            }
            _ => Err(ImportError::damaged(at, "a lease makes no sense")),
        }
    }

    fn read_auth_state(
        &mut self,
        Element { key, value, value_offset: at, .. }: Element<'_>,
    ) -> Result<(), ImportError> {
        match key {
            b"authEnabled" => self.auth.enabled = value == [1],
            b"authRevision" => {
                let revision = decode_number(value);
                self.auth.auth_revision = revision
                    .ok_or(ImportError::damaged(at, "the revision of auth makes no sense"))?;
            }
            _ => {}
        }
        Ok(())
    }

    fn read_user(
        &mut self,
        Element { key, value, value_offset: at, .. }: Element<'_>,
    ) -> Result<(), ImportError> {
        let user = UserRow::decode(value).ok().filter(|user| user.name == key);
        let text = |bytes: Vec<u8>| String::from_utf8(bytes).ok();
        let user = user.and_then(|user| {
            Some(ImportedUser {
                name: text(user.name)?,
                hash: text(user.password)?,
                roles: user.roles,
            })
        });
        let user = user.filter(|_| self.auth.users.len() < NAME_COUNT_MAX);
        let user = user.ok_or(ImportError::damaged(at, "a user makes no sense"))?;
        self.auth.users.push(user);
        Ok(())
    }

    fn read_role(
        &mut self,
        Element { key, value, value_offset: at, .. }: Element<'_>,
    ) -> Result<(), ImportError> {
        let role = RoleRow::decode(value).ok().filter(|role| role.name == key);
        let role = role.and_then(|role| {
            Some(ImportedRole {
                name: String::from_utf8(role.name).ok()?,
                permissions: role.permissions,
            })
        });
        let role = role.filter(|_| self.auth.roles.len() < NAME_COUNT_MAX);
        let role = role.ok_or(ImportError::damaged(at, "a role makes no sense"))?;
        self.auth.roles.push(role);
        Ok(())
    }

    pub const fn status(&self) -> &SnapshotStatus {
        &self.status
    }

    /// Returns the compacted revision; -1 if history has never been compacted.
    pub fn compacted_revision(&self) -> i64 {
        self.scheduled_compaction.max(self.finished_compaction)
    }

    /// Returns the revision up to which compacted history has been removed.
    pub(super) fn scrubbed_revision(&self) -> i64 {
        self.finished_compaction.min(self.compacted_revision()).max(0)
    }

    /// Returns the revision of the snapshot: that of the last stored change, or the compacted
    /// revision if it is higher, which happens when the last changes were deletions and have been
    /// removed.
    pub fn revision(&self) -> i64 {
        self.status.revision.max(self.compacted_revision()).max(1)
    }

    pub const fn auth(&self) -> &ImportedAuth {
        &self.auth
    }

    /// Returns the leases with their granted seconds, ordered by id as unsigned numbers.
    pub fn leases(&self) -> &[(i64, i64)] {
        &self.leases
    }

    pub(super) const fn changes(&self) -> usize {
        self.changes.len()
    }

    /// Returns the revision of a change, whether it deleted the key, and the key.
    pub(super) fn revision_of_change(&self, index: usize) -> Option<(Revision, bool, &[u8])> {
        let change = self.changes.get(index)?;
        let (from, length) = change.key;
        let key = self.key_bytes.get(from..from.checked_add(length as usize)?)?;
        Some((change.revision, change.is_deletion, key))
    }

    /// Returns the index of the change at position `place` in key order, and whether it made the
    /// current record of its key.
    pub(super) fn by_key(&self, place: usize) -> Option<(usize, bool)> {
        let index = *self.by_key.get(place)?;
        let (_, deletes, key) = self.revision_of_change(index)?;
        let newer = place.checked_sub(1).and_then(|before| self.by_key.get(before));
        let newer = newer.and_then(|newer| self.revision_of_change(*newer));
        let is_newest = newer.is_none_or(|(_, _, of)| of != key);
        Some((index, is_newest && !deletes))
    }

    /// Returns the lease of the key after a change; 0 for none.
    pub(super) fn lease_after(&self, index: usize) -> i64 {
        self.changes.get(index).map_or(0, |change| change.lease)
    }

    pub(super) fn record_at(&self, index: usize) -> Result<Record, ImportError> {
        let Some((change, (_, _, key))) =
            self.changes.get(index).zip(self.revision_of_change(index))
        else {
            return Err(ImportError::damaged(0, "it changed while it was read"));
        };
        let (at, length) = change.record_location;
        let mut bytes = vec![0; length as usize];
        self.source.read_at(at, &mut bytes)?;
        let kv = KeyValue::decode(&bytes[..]).ok();
        let kv = kv.filter(|kv| kv.key == key && kv.mod_revision == change.revision.main);
        let record = kv.map(|kv| decode_record(change.revision, &kv));
        let record = record.filter(Record::is_possible);
        record.ok_or(ImportError::damaged(at, "it changed while it was read"))
    }
}

fn decode_record(revision: Revision, kv: &KeyValue) -> Record {
    Record {
        revision,
        created_revision: kv.create_revision,
        version: kv.version,
        lease: kv.lease,
        value: kv.value.clone(),
    }
}
