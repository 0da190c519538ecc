//! Changes: a transaction that is under way, numbers them, and can take them back.

use std::ops::ControlFlow;

use bytes::Bytes;

use super::{
    Budget, Mvcc,
    layout::{Change, Record, Revision, attached, current, history_at, revision},
    read::{Found, Keys},
};
use crate::{
    proto::etcdserverpb::{
        DeleteRangeRequest, DeleteRangeResponse, PutRequest, PutResponse, ResponseHeader,
    },
    refusal::Refusal,
};

/// The revision of a part's answer.
pub(super) fn header(revision: i64) -> Option<ResponseHeader> {
    Some(ResponseHeader {
        revision,
        ..ResponseHeader::default()
    })
}

/// A transaction that changes something, perhaps. It counts once it is finished.
pub(super) struct Writing<'m> {
    pub(super) mvcc: &'m mut Mvcc,
    /// Changes so far.
    changes: u64,
    /// What stood where something else stands now, in the order of the changes.
    undo: Vec<(Vec<u8>, Option<Bytes>)>,
}

impl<'m> Writing<'m> {
    pub(super) const fn new(mvcc: &'m mut Mvcc) -> Self {
        Self {
            mvcc,
            changes: 0,
            undo: Vec::new(),
        }
    }

    /// The revision of its changes.
    const fn revision(&self) -> i64 {
        self.mvcc.state.revision + 1
    }

    /// The revision that its reads see.
    pub(super) fn now(&self) -> i64 {
        self.mvcc.state.revision + i64::from(self.changes > 0)
    }

    /// All of it counts. The revision now.
    pub(super) fn finish(self) -> i64 {
        let mut state = self.mvcc.state;
        state.revision = self.now();
        self.mvcc.set_state(state);
        state.revision
    }

    /// Nothing of it counts.
    pub(super) fn take_back(self) {
        for (place, old) in self.undo.into_iter().rev() {
            match old {
                Some(old) => self.mvcc.store.put(&place, old),
                None => self.mvcc.store.remove(&place),
            }
        }
    }

    fn set(&mut self, place: Vec<u8>, old: Option<Bytes>, new: Option<Bytes>) {
        match new {
            Some(new) => self.mvcc.store.put(&place, new),
            None => self.mvcc.store.remove(&place),
        }
        self.undo.push((place, old));
    }

    /// The number of the next change.
    fn next(&mut self) -> Revision {
        let next = Revision {
            main: self.revision(),
            sub: self.changes,
        };
        self.changes += 1;
        next
    }

    /// What a key has becomes history.
    fn retire(&mut self, key: &[u8], old: &Bytes) -> Option<Record> {
        let record = Record::decode(old)?;
        let place = history_at(key, record.revision);
        self.set(place, None, Some(old.clone()));
        Some(record)
    }

    /// A key goes with another lease, or none; 0 is none.
    fn move_lease(&mut self, key: &[u8], old: i64, new: i64) {
        if old == new {
            return;
        }
        if old != 0 {
            self.set(attached(old, key), Some(Bytes::new()), None);
        }
        if new != 0 {
            self.set(attached(new, key), None, Some(Bytes::new()));
        }
    }

    fn set_key(&mut self, key: &[u8], value: Bytes, lease: i64) {
        let place = current(key);
        let old = self.mvcc.store.get(&place);
        let before = old.as_ref().and_then(|old| self.retire(key, old));
        let had = before.as_ref().map_or(0, |before| before.lease);
        self.move_lease(key, had, lease);
        let at = self.next();
        let record = Record {
            revision: at,
            created: before.as_ref().map_or(at.main, |before| before.created),
            version: before.map_or(0, |before| before.version).saturating_add(1),
            lease,
            value,
        };
        self.set(place, old, Some(record.encode()));
        self.set(revision(at), None, Some(Change::encode(false, key)));
    }

    pub(super) fn delete_key(&mut self, key: &[u8]) {
        let place = current(key);
        let Some(old) = self.mvcc.store.get(&place) else {
            return;
        };
        let before = self.retire(key, &old);
        self.move_lease(key, before.map_or(0, |before| before.lease), 0);
        let at = self.next();
        self.set(place, Some(old), None);
        // No record: the key was deleted.
        self.set(history_at(key, at), None, Some(Bytes::new()));
        self.set(revision(at), None, Some(Change::encode(true, key)));
    }

    pub(super) fn put(
        &mut self,
        request: &PutRequest,
        budget: &mut Budget,
    ) -> Result<PutResponse, Refusal> {
        let looks = request.ignore_value || request.ignore_lease || request.prev_kv;
        let before = looks.then(|| self.mvcc.now(&request.key)).flatten();
        let kept = || before.as_ref().ok_or(Refusal::KeyNotFound);
        let value = match request.ignore_value {
            true => kept()?.value.clone(),
            false => request.value.clone(),
        };
        let lease = match request.ignore_lease {
            true => kept()?.lease,
            false => request.lease,
        };
        if let Some(before) = before.as_ref().filter(|_| request.prev_kv) {
            budget.answer(request.key.len(), before.value.len())?;
        }
        self.set_key(&request.key, value, lease);
        let prev_kv = before.filter(|_| request.prev_kv).map(|record| {
            let key = request.key.clone();
            Found { key, record }.into()
        });
        Ok(PutResponse {
            header: header(self.now()),
            prev_kv,
        })
    }

    pub(super) fn delete(
        &mut self,
        request: &DeleteRangeRequest,
        budget: &mut Budget,
    ) -> Result<DeleteRangeResponse, Refusal> {
        let mut found: Vec<Found> = Vec::new();
        let mut outcome = Ok(());
        let keys = Keys::of(&request.key, &request.range_end);
        self.mvcc.each_now(keys, &mut |key, mut record| {
            if request.prev_kv {
                outcome = budget.answer(key.len(), record.value.len());
            } else {
                record.value = Bytes::new();
            }
            let key = Bytes::copy_from_slice(key);
            found.push(Found { key, record });
            match outcome {
                Ok(()) => ControlFlow::Continue(()),
                Err(_) => ControlFlow::Break(()),
            }
        });
        outcome?;
        for one in &found {
            self.delete_key(&one.key);
        }
        let deleted = i64::try_from(found.len()).unwrap_or(i64::MAX);
        let prev_kvs = match request.prev_kv {
            true => found.into_iter().map(Into::into).collect(),
            false => Vec::new(),
        };
        Ok(DeleteRangeResponse {
            header: header(self.now()),
            deleted,
            prev_kvs,
        })
    }
}

impl Mvcc {
    /// A change that is all or nothing.
    fn writing<T>(
        &mut self,
        work: impl FnOnce(&mut Writing<'_>, &mut Budget) -> Result<T, Refusal>,
        mut budget: Budget,
    ) -> Result<T, Refusal> {
        let mut writing = Writing::new(self);
        let done = work(&mut writing, &mut budget);
        match done {
            Ok(_) => drop(writing.finish()),
            Err(_) => writing.take_back(),
        }
        done
    }

    /// Puts a key.
    pub fn put(&mut self, request: &PutRequest, budget: Budget) -> Result<PutResponse, Refusal> {
        self.check_put(request)?;
        self.writing(|writing, budget| writing.put(request, budget), budget)
    }

    /// Deletes keys.
    pub fn delete(
        &mut self,
        request: &DeleteRangeRequest,
        budget: Budget,
    ) -> Result<DeleteRangeResponse, Refusal> {
        self.writing(|writing, budget| writing.delete(request, budget), budget)
    }

    /// What a put needs to be there.
    pub(super) fn check_put(&self, request: &PutRequest) -> Result<(), Refusal> {
        let needs_key = request.ignore_value || request.ignore_lease;
        if needs_key && self.now(&request.key).is_none() {
            return Err(Refusal::KeyNotFound);
        }
        match request.lease {
            0 => Ok(()),
            id => match self.lease(id) {
                Some(_) => Ok(()),
                None => Err(Refusal::LeaseNotFound),
            },
        }
    }
}
