//! Reference model: a plain list of all changes, from which it computes the outcome of each
//! request. Shares no code with the service except the messages.

use std::collections::{BTreeMap, BTreeSet};

use quorate_etcd::{
    proto::{
        etcdserverpb::{
            Compare, DeleteRangeRequest, DeleteRangeResponse, PutRequest, PutResponse,
            RangeRequest, RangeResponse, RequestOp, ResponseHeader, ResponseOp, TxnRequest,
            TxnResponse, compare::TargetUnion, request_op::Request, response_op::Response,
        },
        mvccpb::{Event, KeyValue},
    },
    refusal::Refusal,
};

type Keys = BTreeMap<Vec<u8>, KeyValue>;

/// Revision, key, and the value with its lease unless deleted.
type Change = (i64, Vec<u8>, Option<(Vec<u8>, i64)>);

#[derive(Clone)]
pub struct Model {
    pub revision: i64,
    pub compacted: i64,
    /// Group's time.
    pub time: u64,
    log: Vec<Change>,
    /// Granted seconds and deadline of each lease.
    leases: BTreeMap<i64, (i64, u64)>,
}

fn header(revision: i64) -> Option<ResponseHeader> {
    Some(ResponseHeader { revision, ..ResponseHeader::default() })
}

fn is_in(key: &[u8], from: &[u8], end: &[u8]) -> bool {
    match end {
        [] => key == from,
        [0] => key >= from,
        end => key >= from && key < end,
    }
}

fn step(keys: &mut Keys, (main, key, value): &Change) {
    let Some((value, lease)) = value else {
        keys.remove(key);
        return;
    };
    let new =
        || KeyValue { key: key.clone().into(), create_revision: *main, ..KeyValue::default() };
    let kv = keys.entry(key.clone()).or_insert_with(new);
    kv.mod_revision = *main;
    kv.version += 1;
    kv.value = value.clone().into();
    kv.lease = *lease;
}

impl Model {
    pub const fn new() -> Self {
        Self { revision: 1, compacted: -1, time: 0, log: Vec::new(), leases: BTreeMap::new() }
    }

    /// Returns all keys at the end of `revision`.
    fn at(&self, revision: i64) -> Keys {
        let mut keys = Keys::new();
        for change in self.log.iter().take_while(|change| change.0 <= revision) {
            step(&mut keys, change);
        }
        keys
    }

    /// Returns the number of changes left once all discarded history is removed.
    pub fn kept(&self) -> usize {
        let below: Vec<_> = self.log.iter().filter(|change| change.0 < self.compacted).collect();
        let last: BTreeMap<_, _> = below.iter().map(|(_, key, value)| (key, value)).collect();
        let living = last.values().filter(|value| value.is_some());
        self.log.len() - below.len() + living.count()
    }

    /// Returns the revision that counts as current within a transaction.
    fn now(&self, begun: i64) -> i64 {
        let changed = self.log.last().is_some_and(|change| change.0 > begun);
        begun + i64::from(changed)
    }

    pub fn range(&self, request: &RangeRequest, now: i64) -> Result<RangeResponse, Refusal> {
        if request.revision > now {
            return Err(Refusal::FutureRevision);
        }
        let revision = if request.revision > 0 { request.revision } else { now };
        if revision < self.compacted {
            return Err(Refusal::Compacted);
        }
        let all = self.at(revision).into_values();
        let all: Vec<_> =
            all.filter(|kv| is_in(&kv.key, &request.key, &request.range_end)).collect();
        let count = i64::try_from(all.len()).unwrap();
        let mut kvs = all;
        if request.count_only {
            kvs.clear();
        }
        let bound = |bound: i64, holds: bool| bound == 0 || holds;
        kvs.retain(|kv| {
            bound(request.min_mod_revision, kv.mod_revision >= request.min_mod_revision)
                && bound(request.max_mod_revision, kv.mod_revision <= request.max_mod_revision)
                && bound(
                    request.min_create_revision,
                    kv.create_revision >= request.min_create_revision,
                )
                && bound(
                    request.max_create_revision,
                    kv.create_revision <= request.max_create_revision,
                )
        });
        if request.sort_order == 2 {
            // Reversed twice, equal keys stay in order.
            kvs.reverse();
        }
        match request.sort_target {
            0 => kvs.sort_by(|a, b| a.key.cmp(&b.key)),
            1 => kvs.sort_by_key(|kv| kv.version),
            2 => kvs.sort_by_key(|kv| kv.create_revision),
            3 => kvs.sort_by_key(|kv| kv.mod_revision),
            _ => kvs.sort_by(|a, b| a.value.cmp(&b.value)),
        }
        if request.sort_order == 2 {
            kvs.reverse();
        }
        let mut more = false;
        if request.limit > 0 {
            let limit = usize::try_from(request.limit).unwrap();
            more = kvs.len() > limit;
            kvs.truncate(limit);
        }
        if request.keys_only {
            kvs.iter_mut().for_each(|kv| kv.value.clear());
        }
        Ok(RangeResponse { header: header(now), kvs, more, count })
    }

    fn put_within(&mut self, request: &PutRequest, begun: i64) -> Result<PutResponse, Refusal> {
        let before = self.at(i64::MAX).remove(&request.key[..]);
        if (request.ignore_value || request.ignore_lease) && before.is_none() {
            return Err(Refusal::KeyNotFound);
        }
        let value = match (&before, request.ignore_value) {
            (Some(before), true) => before.value.to_vec(),
            _ => request.value.to_vec(),
        };
        let lease = match (&before, request.ignore_lease) {
            (Some(before), true) => before.lease,
            _ => request.lease,
        };
        let change = Some((value, lease));
        self.log.push((begun + 1, request.key.to_vec(), change));
        Ok(PutResponse { header: header(begun + 1), prev_kv: before.filter(|_| request.prev_kv) })
    }

    fn delete_within(&mut self, request: &DeleteRangeRequest, begun: i64) -> DeleteRangeResponse {
        let keys = self.at(i64::MAX).into_values();
        let gone: Vec<_> =
            keys.filter(|kv| is_in(&kv.key, &request.key, &request.range_end)).collect();
        for kv in &gone {
            self.log.push((begun + 1, kv.key.to_vec(), None));
        }
        DeleteRangeResponse {
            header: header(self.now(begun)),
            deleted: i64::try_from(gone.len()).unwrap(),
            prev_kvs: if request.prev_kv { gone } else { Vec::new() },
        }
    }

    /// Undoes all changes if one fails.
    fn atomically<T>(
        &mut self,
        work: impl FnOnce(&mut Self, i64) -> Result<T, Refusal>,
    ) -> Result<T, Refusal> {
        let (before, begun) = (self.log.len(), self.revision);
        let done = work(self, begun);
        if done.is_err() {
            self.log.truncate(before);
        }
        self.revision = self.now(begun);
        done
    }

    fn has(&self, put: &PutRequest) -> Result<(), Refusal> {
        let needed = put.ignore_value || put.ignore_lease;
        if needed && !self.at(i64::MAX).contains_key(&put.key[..]) {
            return Err(Refusal::KeyNotFound);
        }
        match put.lease {
            0 => Ok(()),
            id => self.lease(id).map(drop),
        }
    }

    pub fn put(&mut self, request: &PutRequest) -> Result<PutResponse, Refusal> {
        self.has(request)?;
        self.atomically(|model, begun| model.put_within(request, begun))
    }

    pub fn delete(&mut self, request: &DeleteRangeRequest) -> Result<DeleteRangeResponse, Refusal> {
        self.atomically(|model, begun| Ok(model.delete_within(request, begun)))
    }

    fn holds(&self, compare: &Compare) -> bool {
        let keys = self.at(i64::MAX).into_values();
        let mut kvs: Vec<_> =
            keys.filter(|kv| is_in(&kv.key, &compare.key, &compare.range_end)).collect();
        if kvs.is_empty() {
            if compare.target == 3 {
                return false;
            }
            kvs.push(KeyValue::default());
        }
        let (mut number, mut bytes) = (0, Vec::new());
        match (&compare.target_union, compare.target) {
            (Some(TargetUnion::Version(wanted)), 0)
            | (Some(TargetUnion::CreateRevision(wanted)), 1)
            | (Some(TargetUnion::ModRevision(wanted)), 2)
            | (Some(TargetUnion::Lease(wanted)), 4) => number = *wanted,
            (Some(TargetUnion::Value(wanted)), 3) => bytes = wanted.to_vec(),
            _ => {}
        }
        kvs.iter().all(|kv| {
            let order = match compare.target {
                0 => kv.version.cmp(&number),
                1 => kv.create_revision.cmp(&number),
                2 => kv.mod_revision.cmp(&number),
                3 => kv.value[..].cmp(&bytes[..]),
                _ => kv.lease.cmp(&number),
            };
            match compare.result {
                0 => order.is_eq(),
                1 => order.is_gt(),
                2 => order.is_lt(),
                _ => order.is_ne(),
            }
        })
    }

    /// Selects the branches, from the outside in, and checks them before anything changes.
    fn choose(&self, txn: &TxnRequest, taken: &mut Vec<bool>) {
        let succeeded = txn.compare.iter().all(|compare| self.holds(compare));
        taken.push(succeeded);
        for op in branch(txn, succeeded) {
            if let Some(Request::RequestTxn(txn)) = &op.request {
                self.choose(txn, taken);
            }
        }
    }

    fn check(
        &self,
        txn: &TxnRequest,
        taken: &mut impl Iterator<Item = bool>,
    ) -> Result<(), Refusal> {
        let succeeded = taken.next().unwrap();
        for op in branch(txn, succeeded) {
            match &op.request {
                Some(Request::RequestRange(range)) if range.revision != 0 => {
                    if range.revision > self.revision {
                        return Err(Refusal::FutureRevision);
                    }
                    if range.revision < self.compacted {
                        return Err(Refusal::Compacted);
                    }
                }
                Some(Request::RequestPut(put)) => self.has(put)?,
                Some(Request::RequestTxn(txn)) => self.check(txn, taken)?,
                _ => {}
            }
        }
        Ok(())
    }

    fn run(
        &mut self,
        txn: &TxnRequest,
        taken: &mut impl Iterator<Item = bool>,
        begun: i64,
    ) -> Result<TxnResponse, Refusal> {
        let succeeded = taken.next().unwrap();
        let mut responses = Vec::new();
        for op in branch(txn, succeeded) {
            let response = match op.request.as_ref().unwrap() {
                Request::RequestRange(range) => {
                    let now = self.now(begun);
                    Response::ResponseRange(self.range(range, now)?)
                }
                Request::RequestPut(put) => Response::ResponsePut(self.put_within(put, begun)?),
                Request::RequestDeleteRange(delete) => {
                    Response::ResponseDeleteRange(self.delete_within(delete, begun))
                }
                Request::RequestTxn(txn) => Response::ResponseTxn(self.run(txn, taken, begun)?),
            };
            let response = Some(response);
            responses.push(ResponseOp { response });
        }
        Ok(TxnResponse { header: header(0), succeeded, responses })
    }

    pub fn txn(&mut self, txn: &TxnRequest) -> Result<TxnResponse, Refusal> {
        let mut taken = Vec::new();
        self.choose(txn, &mut taken);
        self.check(txn, &mut taken.iter().copied())?;
        let mut taken = taken.into_iter();
        let done = self.atomically(|model, begun| model.run(txn, &mut taken, begun));
        done.map(|mut answer| {
            answer.header = header(self.revision);
            answer
        })
    }

    pub fn compact(&mut self, revision: i64) -> Result<i64, Refusal> {
        if revision <= self.compacted {
            return Err(Refusal::Compacted);
        }
        if revision > self.revision {
            return Err(Refusal::FutureRevision);
        }
        self.compacted = revision;
        Ok(self.revision)
    }

    /// Returns a lease, unless expired.
    fn lease(&self, id: i64) -> Result<(i64, u64), Refusal> {
        let lease = self.leases.get(&id).copied();
        let lease = lease.filter(|(_, deadline)| *deadline > self.time);
        lease.ok_or(Refusal::LeaseNotFound)
    }

    fn end(&mut self, id: i64) {
        if self.leases.remove(&id).is_some() {
            let keys = self.at(i64::MAX).into_values();
            let gone: Vec<_> = keys.filter(|kv| kv.lease == id).collect();
            for kv in &gone {
                self.log.push((self.revision + 1, kv.key.to_vec(), None));
            }
            self.revision += i64::from(!gone.is_empty());
        }
    }

    fn set_lease(&mut self, id: i64, ttl: i64, now_ms: u64) -> i64 {
        let deadline = now_ms.max(self.time) + u64::try_from(ttl).unwrap() * 1000;
        let (_, old) = self.leases.get(&id).copied().unwrap_or_default();
        self.leases.insert(id, (ttl, old.max(deadline)));
        ttl
    }

    pub fn grant(&mut self, id: i64, ttl: i64, now_ms: u64) -> Result<i64, Refusal> {
        if self.lease(id).is_ok() {
            return Err(Refusal::LeaseExists);
        }
        self.end(id);
        Ok(self.set_lease(id, ttl.max(1), now_ms))
    }

    pub fn keep_alive(&mut self, id: i64, now_ms: u64) -> Result<i64, Refusal> {
        let (ttl, _) = self.lease(id)?;
        Ok(self.set_lease(id, ttl, now_ms))
    }

    pub fn revoke(&mut self, id: i64) -> Result<i64, Refusal> {
        self.lease(id)?;
        self.end(id);
        Ok(self.revision)
    }

    /// Ends expired leases and returns whether there were any.
    pub fn expire(&mut self) -> bool {
        let ended = self.leases.iter().filter(|(_, lease)| lease.1 <= self.time);
        let mut ended: Vec<_> = ended.map(|(id, lease)| (lease.1, *id)).collect();
        ended.sort_unstable();
        for (_, id) in &ended {
            self.end(*id);
        }
        !ended.is_empty()
    }

    /// Returns the earliest deadline in the future.
    pub fn next_deadline(&self) -> Option<u64> {
        let deadlines = self.leases.values().map(|(_, deadline)| *deadline);
        deadlines.filter(|deadline| *deadline > self.time).min()
    }

    /// Returns the leases that exist, with their keys.
    pub fn leases(&self) -> BTreeMap<i64, Vec<bytes::Bytes>> {
        let here = self.leases.keys().filter(|id| self.lease(**id).is_ok());
        let keys_of = |id: i64| {
            let keys = self.at(i64::MAX).into_values();
            keys.filter(|kv| kv.lease == id).map(|kv| kv.key).collect()
        };
        here.map(|id| (*id, keys_of(*id))).collect()
    }

    /// Returns all events from revision `from` on, with previous key-value pairs.
    pub fn events(&self, from: i64) -> Result<Vec<Event>, Refusal> {
        if from < self.compacted {
            return Err(Refusal::Compacted);
        }
        let (mut events, mut keys) = (Vec::new(), Keys::new());
        for change in &self.log {
            let (main, key, value) = change;
            step(&mut keys, change);
            if *main < from {
                continue;
            }
            let deleted =
                KeyValue { key: key.clone().into(), mod_revision: *main, ..KeyValue::default() };
            let kv = keys.get(key).cloned().unwrap_or(deleted);
            let created = kv.create_revision == kv.mod_revision;
            let known = *main > self.compacted && !created;
            events.push(Event {
                r#type: i32::from(value.is_none()),
                kv: Some(kv),
                prev_kv: known.then(|| self.at(main - 1).remove(key)).flatten(),
            });
        }
        Ok(events)
    }

    /// Returns every key that has ever existed.
    pub fn keys(&self) -> BTreeSet<Vec<u8>> {
        self.log.iter().map(|(_, key, _)| key.clone()).collect()
    }
}

fn branch(txn: &TxnRequest, succeeded: bool) -> &[RequestOp] {
    if succeeded { &txn.success } else { &txn.failure }
}
