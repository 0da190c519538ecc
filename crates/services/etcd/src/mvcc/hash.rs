//! Hash of everything that can be read at a revision. Nodes with equal contents have equal hashes,
//! regardless of how much compacted history each has already removed.
//!
//! The hash covers the keys as of the compacted revision, then the later changes in order. It is
//! computed page by page, so that the node can do other work in between.

use std::ops::ControlFlow;

use bytes::Bytes;
use xxhash_rust::xxh3::Xxh3;

use super::{
    base::Mvcc,
    layout::{Change, Record, Revision, parse_revision, revision_place},
    read::KeySelection,
};
use crate::{
    command::{HashPage, HashRequest},
    refusal::Refusal,
};

/// Maximum number of keys and changes visited per page.
const VISITS_MAX: usize = 5_000;
/// Approximate number of bytes visited per page.
const PAGE_BYTES: usize = 4 << 20;
/// Odd multiplier with well-distributed bits, which makes the hash depend on the order of entries.
const FACTOR: u64 = 0x9e37_79b9_7f4a_7c15;

/// A hash in progress, and the cost of the current page.
struct HashProgress {
    hash: u64,
    visits: usize,
    bytes: usize,
}

impl HashProgress {
    fn add_record(&mut self, key: &[u8], at: Revision, record: Option<&Record>) {
        let mut hasher = Xxh3::new();
        let mut number = |number: u64| hasher.update(&number.to_be_bytes());
        number(key.len() as u64);
        number(at.main.cast_unsigned());
        number(at.sub);
        number(u64::from(record.is_some()));
        if let Some(record) = record {
            let Record { revision, created_revision: created, version, lease, .. } = record;
            number(revision.sub);
            for part in [revision.main, *created, *version, *lease] {
                number(part.cast_unsigned());
            }
        }
        hasher.update(key);
        let value = record.map_or(&[][..], |record| &record.value);
        hasher.update(value);
        self.bytes += key.len() + value.len();
        self.hash = (self.hash.rotate_left(23) ^ hasher.digest()).wrapping_mul(FACTOR);
    }

    /// Counts a visit and returns whether the page is full.
    fn count_visit(&mut self) -> bool {
        self.visits += 1;
        self.visits >= VISITS_MAX || self.bytes >= PAGE_BYTES
    }
}

impl Mvcc {
    pub fn hash_page(&self, request: &HashRequest) -> Result<HashPage, Refusal> {
        let compacted = self.state.compacted_revision;
        let at = match request.revision {
            0 => self.state.revision,
            at if at > self.state.revision => return Err(Refusal::FutureRevision),
            at => at,
        };
        // The partial hash was computed for another compacted revision.
        let has_moved = request.is_begun && request.compacted_revision != compacted;
        if at < compacted || has_moved {
            return Err(Refusal::Compacted);
        }
        let mut hashing = HashProgress { hash: request.hash, visits: 0, bytes: 0 };
        let next = match request.covers_changes {
            false => self.hash_keys(&request.from, compacted, &mut hashing),
            true => None,
        };
        let (of_changes, next) = match next {
            Some(next) => (false, next),
            None => (true, self.hash_changes(request, at, &mut hashing)),
        };
        Ok(HashPage {
            revision: self.state.revision,
            hashed_revision: at,
            compacted_revision: compacted,
            hash: hashing.hash,
            continues_with_changes: of_changes,
            next,
        })
    }

    /// Hashes the keys from `from` on, as of the compacted revision. Returns the start of the next
    /// page, if any.
    fn hash_keys(&self, from: &[u8], compacted: i64, hashing: &mut HashProgress) -> Option<Bytes> {
        if compacted < 1 {
            return None;
        }
        let mut next = None;
        self.visit_at_revision(KeySelection::Span(from, None), compacted, &mut |key, record| {
            if let Some(record) = record {
                hashing.add_record(key, record.revision, Some(&record));
            }
            if hashing.count_visit() {
                next = Some([key, &[0]].concat().into());
                return ControlFlow::Break(());
            }
            ControlFlow::Continue(())
        });
        next
    }

    /// Hashes the changes after the compacted revision. Returns the start of the next page; empty
    /// at the end.
    fn hash_changes(&self, request: &HashRequest, at: i64, hashing: &mut HashProgress) -> Bytes {
        let first = revision_place(Revision::first_of(
            self.state.compacted_revision.max(0).saturating_add(1),
        ));
        let from = match request.covers_changes {
            true => &request.from[..],
            false => &first[..],
        };
        let to = revision_place(Revision::first_of(at.saturating_add(1)));
        let mut next = Bytes::new();
        if hashing.visits > 0 && hashing.count_visit() {
            return Bytes::copy_from_slice(from);
        }
        self.store.scan(from, &to, &mut |place, change| {
            if let (Some(at), Some(change)) = (parse_revision(place), Change::decode(change)) {
                let record = match change.is_deletion {
                    true => None,
                    false => self.record_at(&change.key, at),
                };
                hashing.add_record(&change.key, at, record.as_ref());
            }
            if hashing.count_visit() {
                next = [place, &[0]].concat().into();
                return ControlFlow::Break(());
            }
            ControlFlow::Continue(())
        });
        next
    }
}
