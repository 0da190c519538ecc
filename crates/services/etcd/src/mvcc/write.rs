//! A transaction in progress: numbers its changes and can undo them.

use std::ops::ControlFlow;

use bytes::Bytes;

use super::{
    base::Mvcc,
    budget::Budget,
    layout::{
        Change, KEY_BYTES_MAX, Lease, Record, Revision, attachment_place, current_place,
        history_place_at, lease_place, revision_place,
    },
    read::{FoundRecord, KeySelection},
};
use crate::{
    proto::etcdserverpb::{
        DeleteRangeRequest, DeleteRangeResponse, PutRequest, PutResponse, ResponseHeader,
    },
    refusal::Refusal,
};

/// Number of keys to delete at a time, which bounds memory.
const DELETE_BATCH_MAX: usize = 1000;

pub(super) fn response_header(revision: i64) -> Option<ResponseHeader> {
    Some(ResponseHeader { revision, ..ResponseHeader::default() })
}

/// A transaction in progress. Its changes become a revision when it is finished.
pub(super) struct Transaction<'m> {
    pub(super) mvcc: &'m mut Mvcc,
    change_count: u64,
    /// Previous values of changed entries, in the order of the changes. `None` if nothing can fail
    /// after the first change, so that undo is never needed.
    undo_log: Option<Vec<(Vec<u8>, Option<Bytes>)>>,
}

impl<'m> Transaction<'m> {
    /// Starts a transaction that can be undone.
    pub(super) const fn new(mvcc: &'m mut Mvcc) -> Self {
        Self { mvcc, change_count: 0, undo_log: Some(Vec::new()) }
    }

    /// Starts a transaction for a single request. It is never undone, so it stores no undo data, no
    /// matter how much it deletes.
    pub(super) const fn single_request(mvcc: &'m mut Mvcc) -> Self {
        Self { mvcc, change_count: 0, undo_log: None }
    }

    const fn revision(&self) -> i64 {
        self.mvcc.state.revision.saturating_add(1)
    }

    /// Returns the revision that reads see.
    pub(super) const fn visible_revision(&self) -> i64 {
        match self.change_count {
            0 => self.mvcc.state.revision,
            _ => self.revision(),
        }
    }

    /// Commits the transaction and returns the current revision.
    pub(super) fn finish(self) -> i64 {
        let mut state = self.mvcc.state;
        state.revision = self.visible_revision();
        self.mvcc.set_state(state);
        state.revision
    }

    pub(super) fn roll_back(self) {
        for (place, old) in self.undo_log.into_iter().flatten().rev() {
            match old {
                Some(old) => self.mvcc.store.put(&place, old),
                None => self.mvcc.store.remove(&place),
            }
        }
    }

    fn set(&mut self, place: Vec<u8>, old: Option<Bytes>, new: Option<Bytes>) {
        self.mvcc.store.replace(&place, old.as_ref(), new);
        if let Some(undo) = &mut self.undo_log {
            undo.push((place, old));
        }
    }

    fn next(&mut self) -> Revision {
        let next = Revision { main: self.revision(), sub: self.change_count };
        self.change_count += 1;
        next
    }

    /// Moves the current record of a key to the history, before the key changes, and returns it.
    fn move_to_history(&mut self, key: &[u8], old: &Bytes) -> Option<Record> {
        let record = Record::decode(old)?;
        let place = history_place_at(key, record.revision);
        self.set(place, None, Some(old.clone()));
        Some(record)
    }

    /// Moves a key from lease `old` to lease `new`. An id of 0 means no lease.
    fn move_lease(&mut self, key: &[u8], old: i64, new: i64) {
        if old == new {
            return;
        }
        // Imported records may refer to a lease that did not exist any more in etcd.
        if old != 0
            && let place = attachment_place(old, key)
            && let Some(there) = self.mvcc.store.get(&place)
        {
            self.set(place, Some(there), None);
            self.update_key_count(old, |keys| keys.saturating_sub(1));
        }
        if new != 0 {
            self.set(attachment_place(new, key), None, Some(Bytes::new()));
            self.update_key_count(new, |keys| keys.saturating_add(1));
        }
    }

    /// Applies `count` to the number of a lease's keys, if it is stored.
    fn update_key_count(&mut self, id: i64, count: impl FnOnce(u64) -> u64) {
        let place = lease_place(id);
        let old = self.mvcc.store.get(&place);
        if let Some(mut lease) = old.as_deref().and_then(Lease::decode) {
            lease.key_count = count(lease.key_count);
            self.set(place, old, Some(lease.encode()));
        }
    }

    fn set_key(&mut self, key: &[u8], old: Option<Bytes>, value: Bytes, lease: i64) {
        let before = old.as_ref().and_then(|old| self.move_to_history(key, old));
        let had = before.as_ref().map_or(0, |before| before.lease);
        self.move_lease(key, had, lease);
        let at = self.next();
        let record = Record {
            revision: at,
            created_revision: before.as_ref().map_or(at.main, |before| before.created_revision),
            version: before.map_or(0, |before| before.version).saturating_add(1),
            lease,
            value,
        };
        self.set(current_place(key), old, Some(record.encode()));
        self.set(revision_place(at), None, Some(Change::encode(false, key)));
    }

    pub(super) fn delete_key(&mut self, key: &[u8]) {
        let place = current_place(key);
        let Some(old) = self.mvcc.store.get(&place) else {
            return;
        };
        let before = self.move_to_history(key, &old);
        self.move_lease(key, before.map_or(0, |before| before.lease), 0);
        let at = self.next();
        self.set(place, Some(old), None);
        // An empty record in the history marks a deletion.
        self.set(history_place_at(key, at), None, Some(Bytes::new()));
        self.set(revision_place(at), None, Some(Change::encode(true, key)));
    }

    pub(super) fn put(
        &mut self,
        request: &PutRequest,
        budget: &mut Budget,
    ) -> Result<PutResponse, Refusal> {
        let old = self.mvcc.store.get(&current_place(&request.key));
        let before = old.as_ref().and_then(Record::decode);
        let kept = || before.as_ref().ok_or(Refusal::KeyNotFound);
        let value = match request.ignore_value {
            true => kept()?.value.clone(),
            false => request.value.clone(),
        };
        let had = before.as_ref().map_or(0, |before| before.lease);
        let lease = match request.ignore_lease {
            true => kept()?.lease,
            false => request.lease,
        };
        if lease != had {
            self.mvcc.has_room_for_key(lease)?;
        }
        if let Some(before) = before.as_ref().filter(|_| request.prev_kv) {
            budget.charge_answer(request.key.len(), before.value.len())?;
        }
        self.set_key(&request.key, old, value, lease);
        let prev_kv = before.filter(|_| request.prev_kv).map(|record| {
            let key = request.key.clone();
            FoundRecord { key, record }.into()
        });
        Ok(PutResponse { header: response_header(self.visible_revision()), prev_kv })
    }

    pub(super) fn delete(
        &mut self,
        request: &DeleteRangeRequest,
        budget: &mut Budget,
    ) -> Result<DeleteRangeResponse, Refusal> {
        let (mut deleted, mut prev_kvs) = (0, Vec::new());
        let mut from = request.key.clone();
        loop {
            let keys = match KeySelection::from_range(&request.key, &request.range_end) {
                KeySelection::Span(_, to) => KeySelection::Span(&from, to),
                one => one,
            };
            // If previous values are requested, the response is charged before anything changes.
            let most = match request.prev_kv {
                true => usize::MAX,
                false => DELETE_BATCH_MAX,
            };
            let found = self.find_keys(keys, most, request.prev_kv, budget)?;
            for one in &found {
                self.delete_key(&one.key);
            }
            deleted += found.len();
            match found.last() {
                Some(last) if found.len() == most => from = [&last.key[..], &[0]].concat().into(),
                _ => {
                    if request.prev_kv {
                        prev_kvs = found.into_iter().map(Into::into).collect();
                    }
                    break;
                }
            }
        }
        Ok(DeleteRangeResponse {
            header: response_header(self.visible_revision()),
            deleted: i64::try_from(deleted).unwrap_or(i64::MAX),
            prev_kvs,
        })
    }

    /// Returns at most `most` keys to delete.
    fn find_keys(
        &self,
        keys: KeySelection<'_>,
        most: usize,
        with_values: bool,
        budget: &mut Budget,
    ) -> Result<Vec<FoundRecord>, Refusal> {
        let mut found: Vec<FoundRecord> = Vec::new();
        let mut outcome = Ok(());
        self.mvcc.visit_current(keys, &mut |key, mut record| {
            if with_values {
                outcome = budget.charge_answer(key.len(), record.value.len());
            } else {
                record.value = Bytes::new();
            }
            if self.undo_log.is_some() {
                outcome = outcome.and_then(|()| budget.charge_undo(key.len()));
            }
            let key = Bytes::copy_from_slice(key);
            found.push(FoundRecord { key, record });
            match outcome {
                Ok(()) if found.len() < most => ControlFlow::Continue(()),
                _ => ControlFlow::Break(()),
            }
        });
        outcome.map(|()| found)
    }
}

impl Mvcc {
    /// Puts a key in one revision.
    pub fn put(
        &mut self,
        request: &PutRequest,
        mut budget: Budget,
    ) -> Result<PutResponse, Refusal> {
        self.check_put(request)?;
        let mut writing = Transaction::single_request(self);
        let done = writing.put(request, &mut budget)?;
        writing.finish();
        Ok(done)
    }

    /// Deletes a range in one revision.
    pub fn delete(
        &mut self,
        request: &DeleteRangeRequest,
        mut budget: Budget,
    ) -> Result<DeleteRangeResponse, Refusal> {
        let mut writing = Transaction::single_request(self);
        let done = writing.delete(request, &mut budget)?;
        writing.finish();
        Ok(done)
    }

    pub(super) fn check_put(&self, request: &PutRequest) -> Result<(), Refusal> {
        if request.key.len() > KEY_BYTES_MAX {
            return Err(Refusal::KeyTooLong);
        }
        let needs_key = request.ignore_value || request.ignore_lease;
        if needs_key && self.current_record(&request.key).is_none() {
            return Err(Refusal::KeyNotFound);
        }
        match request.lease {
            0 => Ok(()),
            id => match self.live_lease(id) {
                Some(_) => Ok(()),
                None => Err(Refusal::LeaseNotFound),
            },
        }
    }
}
