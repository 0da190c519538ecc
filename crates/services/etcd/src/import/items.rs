//! Generates image items from an etcd snapshot, in store row order.

use super::{bad::ImportError, contents::SnapshotContents};
use crate::{
    image,
    mvcc::{
        LEASES_MAX, TTL_S_MAX, TTL_S_MIN,
        bring::{self, StoreEntry},
    },
};

/// Time added to leases, in milliseconds, for the new cluster to start and clients to find it.
pub const LEASE_GRACE_MS: u64 = 300_000;

/// Parameters of an import that the snapshot does not contain.
#[derive(Clone, Debug)]
pub struct ImportSettings {
    /// Current time in Unix milliseconds. Leases run again from then on.
    pub now_ms: u64,
    /// Key that will sign tokens, if auth is enabled.
    pub secret: [u8; crate::auth::SECRET_BYTES],
    /// Hash of a new password for root, if it is to be set. etcd's own hashes have another format,
    /// which no password matches.
    pub root_hash: Option<String>,
}

/// Section of the image being generated.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ItemSection {
    Head,
    /// Users, roles and the state of auth.
    Auth,
    Current,
    Deadlines,
    History,
    Attached,
    Leases,
    Revisions,
    State,
    End,
}

/// A generator of the items. Keys are sorted in memory, and values are read from the file.
pub struct ImageItems<'c> {
    contents: &'c SnapshotContents<'c>,
    auth: Vec<(Vec<u8>, Vec<u8>)>,
    /// Time in Unix milliseconds from which leases run again.
    lease_start_ms: u64,
    /// Deadlines of leases, with their ids.
    deadlines: Vec<(u64, u64)>,
    /// Keys attached to leases, as the id of the lease and the index of the key's newest change.
    lease_keys: Vec<(u64, usize)>,
    stage: ItemSection,
    /// Position within the section.
    position: usize,
}

impl<'c> ImageItems<'c> {
    /// Creates a generator at the first item.
    ///
    /// # Errors
    ///
    /// Fails if the snapshot exceeds a limit of this service.
    pub fn new(
        contents: &'c SnapshotContents<'c>,
        settings: &ImportSettings,
    ) -> Result<Self, ImportError> {
        let leases = contents.leases();
        if leases.len() as u64 > LEASES_MAX {
            let what = format!("it has {} leases, more than {LEASES_MAX}", leases.len());
            return Err(ImportError::Unsupported(what));
        }
        let auth = contents.auth().to_rows(&settings.secret, settings.root_hash.as_deref());
        let auth = auth.map_err(ImportError::Unsupported)?;
        let begins_ms = settings.now_ms.saturating_add(LEASE_GRACE_MS);
        let deadline = |(id, ttl): &(i64, i64)| (deadline(begins_ms, *ttl), id.cast_unsigned());
        let deadlines = leases.iter().map(deadline);
        let mut items = Self {
            contents,
            auth,
            lease_start_ms: begins_ms,
            deadlines: deadlines.collect(),
            lease_keys: Vec::new(),
            stage: ItemSection::Head,
            position: 0,
        };
        items.collect_lease_keys();
        items.deadlines.sort_unstable();
        Ok(items)
    }

    fn collect_lease_keys(&mut self) {
        for place in 0..self.contents.changes() {
            let Some((index, true)) = self.contents.by_key(place) else {
                continue;
            };
            let lease = self.contents.lease_after(index).cast_unsigned();
            // A lease that no longer exists is only a number in the record.
            if lease != 0 && self.has_lease(lease) {
                self.lease_keys.push((lease, index));
            }
        }
        // The keys are already in order.
        self.lease_keys.sort_by_key(|(lease, _)| *lease);
    }

    fn has_lease(&self, id: u64) -> bool {
        let leases = self.contents.leases();
        let found = leases.binary_search_by_key(&id, |(id, _)| id.cast_unsigned());
        found.is_ok()
    }

    /// Restarts at the first item.
    pub const fn rewind(&mut self) {
        (self.stage, self.position) = (ItemSection::Head, 0);
    }

    /// Writes the next item to `item`. Returns `false` at the end.
    ///
    /// # Errors
    ///
    /// Fails if the file cannot be read or has changed.
    pub fn next(&mut self, item: &mut Vec<u8>) -> Result<bool, ImportError> {
        loop {
            if self.stage == ItemSection::Head {
                image::encode_head(item);
                self.stage = ItemSection::Auth;
                return Ok(true);
            }
            let at = self.position;
            self.position += 1;
            let (row, next) = match self.stage {
                ItemSection::Head | ItemSection::End => return Ok(false),
                ItemSection::Auth => (self.auth_row(at), ItemSection::Current),
                ItemSection::Current => (self.current_row(at)?, ItemSection::Deadlines),
                ItemSection::Deadlines => (self.deadline_row(at), ItemSection::History),
                ItemSection::History => (self.history_row(at)?, ItemSection::Attached),
                ItemSection::Attached => (self.attachment_row(at), ItemSection::Leases),
                ItemSection::Leases => (self.lease_row(at), ItemSection::Revisions),
                ItemSection::Revisions => (self.revision_row(at), ItemSection::State),
                ItemSection::State => (self.state_row(at), ItemSection::End),
            };
            match row {
                SectionRow::One((key, value)) => {
                    image::encode_entry(&key, &value, item);
                    return Ok(true);
                }
                SectionRow::None => {}
                SectionRow::SectionEnd => (self.stage, self.position) = (next, 0),
            }
        }
    }

    fn auth_row(&self, at: usize) -> SectionRow {
        let row = self.auth.get(at);
        row.map_or(SectionRow::SectionEnd, |(key, value)| {
            SectionRow::One((key.clone(), value.clone().into()))
        })
    }

    fn current_row(&self, at: usize) -> Result<SectionRow, ImportError> {
        match self.contents.by_key(at) {
            None => Ok(SectionRow::SectionEnd),
            Some((_, false)) => Ok(SectionRow::None),
            Some((index, true)) => {
                let record = self.contents.record_at(index)?;
                let change = self.contents.revision_of_change(index);
                Ok(change.map_or(SectionRow::SectionEnd, |(_, _, key)| {
                    SectionRow::One(bring::current_entry(key, &record))
                }))
            }
        }
    }

    fn history_row(&self, at: usize) -> Result<SectionRow, ImportError> {
        let Some((index, false)) = self.contents.by_key(at) else {
            let more = at < self.contents.changes();
            return Ok(if more { SectionRow::None } else { SectionRow::SectionEnd });
        };
        let Some((revision, deletes, key)) = self.contents.revision_of_change(index) else {
            return Ok(SectionRow::SectionEnd);
        };
        let record = match deletes {
            true => None,
            false => Some(self.contents.record_at(index)?),
        };
        Ok(SectionRow::One(bring::history_entry(key, revision, record.as_ref())))
    }

    fn deadline_row(&self, at: usize) -> SectionRow {
        let deadline = self.deadlines.get(at);
        deadline.map_or(SectionRow::SectionEnd, |(at, id)| {
            SectionRow::One(bring::deadline_entry(*at, id.cast_signed()))
        })
    }

    fn attachment_row(&self, at: usize) -> SectionRow {
        let attached = self.lease_keys.get(at);
        let row = attached.and_then(|(lease, index)| {
            let (_, _, key) = self.contents.revision_of_change(*index)?;
            Some(bring::attachment_entry(lease.cast_signed(), key))
        });
        row.map_or(SectionRow::SectionEnd, SectionRow::One)
    }

    fn lease_row(&self, at: usize) -> SectionRow {
        let Some((id, ttl)) = self.contents.leases().get(at) else {
            return SectionRow::SectionEnd;
        };
        let number = id.cast_unsigned();
        let first = self.lease_keys.partition_point(|(lease, _)| *lease < number);
        let behind = self.lease_keys.partition_point(|(lease, _)| *lease <= number);
        let deadline = deadline(self.lease_start_ms, *ttl);
        let keys = (behind - first) as u64;
        SectionRow::One(bring::lease_entry(*id, granted(*ttl), deadline, keys))
    }

    fn revision_row(&self, at: usize) -> SectionRow {
        let change = self.contents.revision_of_change(at);
        change.map_or(SectionRow::SectionEnd, |(at, deletes, key)| {
            SectionRow::One(bring::revision_entry(at, deletes, key))
        })
    }

    /// Returns the row with the state, unless nothing was ever changed.
    fn state_row(&self, at: usize) -> SectionRow {
        let contents = self.contents;
        let leases = contents.leases().len() as u64;
        let is_new = contents.changes() == 0 && contents.compacted_revision() < 0 && leases == 0;
        match at {
            0 if !is_new => SectionRow::One(bring::state_entry(
                contents.revision(),
                contents.compacted_revision(),
                contents.scrubbed_revision(),
                leases,
            )),
            _ => SectionRow::SectionEnd,
        }
    }
}

/// A row at a position of a section.
enum SectionRow {
    One(StoreEntry),
    /// The position has no entry, but later positions may have entries.
    None,
    /// The section has no more entries.
    SectionEnd,
}

fn granted(ttl: i64) -> i64 {
    ttl.clamp(TTL_S_MIN, TTL_S_MAX)
}

fn deadline(begins_ms: u64, ttl: i64) -> u64 {
    begins_ms.saturating_add(granted(ttl).unsigned_abs().saturating_mul(1000))
}
