//! Generates image items from an etcd snapshot, in store row order.

use super::{bad::Bad, contents::Contents};
use crate::{
    image,
    mvcc::{
        LEASES_MAX, TTL_MAX, TTL_MIN,
        bring::{self, StoreEntry},
    },
};

/// Time added to leases, in milliseconds, for the new cluster to start and clients to find it.
pub const LEASE_GRACE_MS: u64 = 300_000;

/// Parameters of an import that the snapshot does not contain.
#[derive(Clone, Debug)]
pub struct Settings {
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
enum Stage {
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
pub struct Items<'c> {
    contents: &'c Contents<'c>,
    auth: Vec<(Vec<u8>, Vec<u8>)>,
    /// Time in Unix milliseconds from which leases run again.
    begins_ms: u64,
    /// Deadlines of leases, with their ids.
    deadlines: Vec<(u64, u64)>,
    /// Keys attached to leases, as the id of the lease and the index of the key's newest change.
    attached: Vec<(u64, usize)>,
    stage: Stage,
    /// Position within the section.
    position: usize,
}

impl<'c> Items<'c> {
    /// Creates a generator at the first item.
    ///
    /// # Errors
    ///
    /// Fails if the snapshot exceeds a limit of this service.
    pub fn new(contents: &'c Contents<'c>, settings: &Settings) -> Result<Self, Bad> {
        let leases = contents.leases();
        if leases.len() as u64 > LEASES_MAX {
            let what = format!("it has {} leases, more than {LEASES_MAX}", leases.len());
            return Err(Bad::Unfit(what));
        }
        let auth = contents.auth().rows(&settings.secret, settings.root_hash.as_deref());
        let auth = auth.map_err(Bad::Unfit)?;
        let begins_ms = settings.now_ms.saturating_add(LEASE_GRACE_MS);
        let deadline = |(id, ttl): &(i64, i64)| (deadline(begins_ms, *ttl), id.cast_unsigned());
        let deadlines = leases.iter().map(deadline);
        let mut items = Self {
            contents,
            auth,
            begins_ms,
            deadlines: deadlines.collect(),
            attached: Vec::new(),
            stage: Stage::Head,
            position: 0,
        };
        items.attach();
        items.deadlines.sort_unstable();
        Ok(items)
    }

    fn attach(&mut self) {
        for place in 0..self.contents.changes() {
            let Some((index, true)) = self.contents.by_key(place) else {
                continue;
            };
            let lease = self.contents.lease_after(index).cast_unsigned();
            // A lease that no longer exists is only a number in the record.
            if lease != 0 && self.has_lease(lease) {
                self.attached.push((lease, index));
            }
        }
        // The keys are already in order.
        self.attached.sort_by_key(|(lease, _)| *lease);
    }

    fn has_lease(&self, id: u64) -> bool {
        let leases = self.contents.leases();
        let found = leases.binary_search_by_key(&id, |(id, _)| id.cast_unsigned());
        found.is_ok()
    }

    /// Restarts at the first item.
    pub const fn rewind(&mut self) {
        (self.stage, self.position) = (Stage::Head, 0);
    }

    /// Writes the next item to `item`. Returns `false` at the end.
    ///
    /// # Errors
    ///
    /// Fails if the file cannot be read or has changed.
    pub fn next(&mut self, item: &mut Vec<u8>) -> Result<bool, Bad> {
        loop {
            if self.stage == Stage::Head {
                image::encode_head(item);
                self.stage = Stage::Auth;
                return Ok(true);
            }
            let at = self.position;
            self.position += 1;
            let (row, next) = match self.stage {
                Stage::Head | Stage::End => return Ok(false),
                Stage::Auth => (self.auth_row(at), Stage::Current),
                Stage::Current => (self.current(at)?, Stage::Deadlines),
                Stage::Deadlines => (self.deadline(at), Stage::History),
                Stage::History => (self.history(at)?, Stage::Attached),
                Stage::Attached => (self.attached(at), Stage::Leases),
                Stage::Leases => (self.lease_row(at), Stage::Revisions),
                Stage::Revisions => (self.revision(at), Stage::State),
                Stage::State => (self.state(at), Stage::End),
            };
            match row {
                Row::One((key, value)) => {
                    image::encode_entry(&key, &value, item);
                    return Ok(true);
                }
                Row::None => {}
                Row::SectionEnd => (self.stage, self.position) = (next, 0),
            }
        }
    }

    fn auth_row(&self, at: usize) -> Row {
        let row = self.auth.get(at);
        row.map_or(Row::SectionEnd, |(key, value)| Row::One((key.clone(), value.clone().into())))
    }

    fn current(&self, at: usize) -> Result<Row, Bad> {
        match self.contents.by_key(at) {
            None => Ok(Row::SectionEnd),
            Some((_, false)) => Ok(Row::None),
            Some((index, true)) => {
                let record = self.contents.record_at(index)?;
                let change = self.contents.revision_of_change(index);
                Ok(change
                    .map_or(Row::SectionEnd, |(_, _, key)| Row::One(bring::current(key, &record))))
            }
        }
    }

    fn history(&self, at: usize) -> Result<Row, Bad> {
        let Some((index, false)) = self.contents.by_key(at) else {
            let more = at < self.contents.changes();
            return Ok(if more { Row::None } else { Row::SectionEnd });
        };
        let Some((revision, deletes, key)) = self.contents.revision_of_change(index) else {
            return Ok(Row::SectionEnd);
        };
        let record = match deletes {
            true => None,
            false => Some(self.contents.record_at(index)?),
        };
        Ok(Row::One(bring::history(key, revision, record.as_ref())))
    }

    fn deadline(&self, at: usize) -> Row {
        let deadline = self.deadlines.get(at);
        deadline
            .map_or(Row::SectionEnd, |(at, id)| Row::One(bring::deadline(*at, id.cast_signed())))
    }

    fn attached(&self, at: usize) -> Row {
        let attached = self.attached.get(at);
        let row = attached.and_then(|(lease, index)| {
            let (_, _, key) = self.contents.revision_of_change(*index)?;
            Some(bring::attached(lease.cast_signed(), key))
        });
        row.map_or(Row::SectionEnd, Row::One)
    }

    fn lease_row(&self, at: usize) -> Row {
        let Some((id, ttl)) = self.contents.leases().get(at) else {
            return Row::SectionEnd;
        };
        let number = id.cast_unsigned();
        let first = self.attached.partition_point(|(lease, _)| *lease < number);
        let behind = self.attached.partition_point(|(lease, _)| *lease <= number);
        let deadline = deadline(self.begins_ms, *ttl);
        let keys = (behind - first) as u64;
        Row::One(bring::lease(*id, granted(*ttl), deadline, keys))
    }

    fn revision(&self, at: usize) -> Row {
        let change = self.contents.revision_of_change(at);
        change.map_or(Row::SectionEnd, |(at, deletes, key)| {
            Row::One(bring::revision(at, deletes, key))
        })
    }

    /// Returns the row with the state, unless nothing was ever changed.
    fn state(&self, at: usize) -> Row {
        let contents = self.contents;
        let leases = contents.leases().len() as u64;
        let is_new = contents.changes() == 0 && contents.compacted() < 0 && leases == 0;
        match at {
            0 if !is_new => Row::One(bring::state(
                contents.revision(),
                contents.compacted(),
                contents.scrubbed(),
                leases,
            )),
            _ => Row::SectionEnd,
        }
    }
}

/// A row at a position of a section.
enum Row {
    One(StoreEntry),
    /// The position has no entry, but later positions may have entries.
    None,
    /// The section has no more entries.
    SectionEnd,
}

fn granted(ttl: i64) -> i64 {
    ttl.clamp(TTL_MIN, TTL_MAX)
}

fn deadline(begins_ms: u64, ttl: i64) -> u64 {
    begins_ms.saturating_add(granted(ttl).unsigned_abs().saturating_mul(1000))
}
