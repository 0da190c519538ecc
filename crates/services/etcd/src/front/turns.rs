//! Queues for locks and elections. The keys under a prefix form a queue in the order of their
//! creation; the first key holds the lock or is the leader. Clients can also create such queues
//! themselves.

use std::sync::Arc;

use bytes::Bytes;
use tokio::{
    runtime::Handle,
    sync::broadcast::{Receiver, error::RecvError},
};
use tonic::{Code, Status};

use super::{
    asking::ReplicaAccess,
    errors,
    gate::Requester,
    hub::{EventBatch, EventHub},
    kv,
    memory::MemoryShare,
};
use crate::{
    command::{Command, LeaseGrant},
    mvcc::KeySelection,
    proto::{
        etcdserverpb::{
            Compare, DeleteRangeRequest, LeaseGrantResponse, PutRequest, RangeRequest, RequestOp,
            TxnRequest, TxnResponse, compare::TargetUnion, range_request::SortOrder,
            range_request::SortTarget, request_op::Request, response_op::Response,
        },
        mvccpb::KeyValue,
    },
};

/// Time to live, in seconds, of the lease created for clients without one, as in etcd. It is not
/// kept alive.
const DEFAULT_LEASE_TTL_S: i64 = 60;

/// Approximate memory of a waiting client, in bytes.
const WAITER_MEMORY_BYTES: usize = 8 << 10;

/// Access to queues, including waiting for a turn.
#[derive(Clone, Debug)]
pub(super) struct KeyQueues {
    pub(super) replica_access: Arc<ReplicaAccess>,
    pub(super) hub: Arc<EventHub>,
}

/// A place in a queue, which is given up when its client stops waiting.
#[derive(Debug)]
pub(super) struct QueuePlace {
    replica_access: Arc<ReplicaAccess>,
    pub(super) key: Bytes,
    pub(super) created_revision: i64,
    pub(super) lease_id: i64,
    /// Previous value of the key, if it was already in the queue.
    pub(super) previous_value: Option<KeyValue>,
    /// Revision at which the place was created or found.
    pub(super) revision: i64,
    deletes_on_drop: bool,
    _share: MemoryShare,
}

impl Drop for QueuePlace {
    fn drop(&mut self) {
        if !self.deletes_on_drop {
            return;
        }
        let (asking, key, created) =
            (Arc::clone(&self.replica_access), self.key.clone(), self.created_revision);
        if let Ok(runtime) = Handle::try_current() {
            // If this fails, the key is deleted when its lease expires.
            runtime.spawn(async move {
                drop(delete_if_created_at(&asking, &Requester::Member, key, created).await)
            });
        }
    }
}

fn to_request_op(request: Request) -> RequestOp {
    RequestOp { request: Some(request) }
}

/// Returns the comparison that the key was created at `revision`, or does not exist if `revision`
/// is 0.
fn is_created(key: &Bytes, revision: i64) -> Compare {
    Compare {
        target: 1,
        key: key.clone(),
        target_union: Some(TargetUnion::CreateRevision(revision)),
        ..Compare::default()
    }
}

/// Returns the key prefix of a queue.
pub(super) fn queue_prefix(name: &[u8]) -> Bytes {
    [name, b"/"].concat().into()
}

/// Returns the end of the range of all keys with `prefix`.
fn prefix_end(prefix: &[u8]) -> Bytes {
    let mut end = prefix.to_vec();
    while let Some(last) = end.pop() {
        if let Some(next) = last.checked_add(1) {
            end.push(next);
            return end.into();
        }
    }
    Bytes::from_static(&[0])
}

async fn execute_txn(
    asking: &ReplicaAccess,
    asker: &Requester,
    txn: TxnRequest,
) -> Result<(TxnResponse, i64), Status> {
    let (answer, _): (TxnResponse, _) = asking.execute(asker, &Command::Txn(txn)).await?;
    let revision = answer.header.as_ref().map_or(0, |header| header.revision);
    Ok((answer, revision))
}

/// Puts a value if the key was created at `created`. Returns the revision of the put, or `None` if
/// the key was deleted or created again.
pub(super) async fn put_if_created_at(
    asking: &ReplicaAccess,
    asker: &Requester,
    put: PutRequest,
    created: i64,
) -> Result<Option<i64>, Status> {
    let txn = TxnRequest {
        compare: vec![is_created(&put.key, created)],
        success: vec![to_request_op(Request::RequestPut(put))],
        failure: Vec::new(),
    };
    let (answer, revision) = execute_txn(asking, asker, txn).await?;
    Ok(answer.succeeded.then_some(revision))
}

/// Deletes the key if it was created at `created`. Returns the current revision.
pub(super) async fn delete_if_created_at(
    asking: &ReplicaAccess,
    asker: &Requester,
    key: Bytes,
    created: i64,
) -> Result<i64, Status> {
    let delete = DeleteRangeRequest { key: key.clone(), ..DeleteRangeRequest::default() };
    let txn = TxnRequest {
        compare: vec![is_created(&key, created)],
        success: vec![to_request_op(Request::RequestDeleteRange(delete))],
        failure: Vec::new(),
    };
    let (_, revision) = execute_txn(asking, asker, txn).await?;
    Ok(revision)
}

impl KeyQueues {
    /// Adds a key, attached to a lease, to the queue of a prefix.
    pub(super) async fn enqueue_key(
        &self,
        asker: &Requester,
        prefix: &[u8],
        lease: i64,
        value: Bytes,
    ) -> Result<QueuePlace, Status> {
        let share = self.hub.memory.try_reserve(WAITER_MEMORY_BYTES);
        let share = share.ok_or_else(errors::memory_exceeded)?;
        let lease = match lease {
            0 => self.grant_lease(asker).await?,
            lease => lease,
        };
        let key = Bytes::from([prefix, format!("{lease:x}").as_bytes()].concat());
        let put = PutRequest { key: key.clone(), value, lease, ..PutRequest::default() };
        let get = RangeRequest { key: key.clone(), ..RangeRequest::default() };
        let txn = TxnRequest {
            compare: vec![is_created(&key, 0)],
            success: vec![to_request_op(Request::RequestPut(put))],
            failure: vec![to_request_op(Request::RequestRange(get))],
        };
        let (answer, revision) = execute_txn(&self.replica_access, asker, txn).await?;
        let response = answer.responses.into_iter().next();
        let before = match response.and_then(|response| response.response) {
            Some(Response::ResponseRange(found)) => found.kvs.into_iter().next(),
            _ => None,
        };
        Ok(QueuePlace {
            replica_access: Arc::clone(&self.replica_access),
            key,
            created_revision: before.as_ref().map_or(revision, |before| before.create_revision),
            lease_id: lease,
            deletes_on_drop: before.is_none(),
            _share: share,
            previous_value: before,
            revision,
        })
    }

    async fn grant_lease(&self, asker: &Requester) -> Result<i64, Status> {
        loop {
            let id = super::lease::random_id()?;
            let ttl = DEFAULT_LEASE_TTL_S;
            let granted = move |now_ms| Command::Grant(LeaseGrant { id, ttl, now_ms });
            match self.replica_access.execute_timed::<LeaseGrantResponse>(asker, granted).await {
                Err(status) if status.code() == Code::FailedPrecondition => {}
                granted => return granted.map(|_| id),
            }
        }
    }

    /// Waits until this key is first in the queue. Returns the current revision, or `None` if the
    /// key was deleted.
    pub(super) async fn wait_for_turn(
        &self,
        asker: &Requester,
        place: &mut QueuePlace,
        prefix: &[u8],
    ) -> Result<Option<i64>, Status> {
        // Subscribes before reading, so that no later change is missed.
        let mut batches = self.hub.subscribe();
        loop {
            let before = RangeRequest {
                max_create_revision: place.created_revision.saturating_sub(1),
                sort_order: SortOrder::Descend.into(),
                ..first_key_request(prefix)
            };
            let ahead = match place.created_revision {
                // No key can have been created earlier.
                ..=1 => None,
                _ => self.find_first(asker, before).await?.0,
            };
            let Some(ahead) = ahead else { break };
            // Waits only for the key directly ahead, so that a change does not wake all clients in
            // the queue.
            wait_for_change(&mut batches, KeySelection::Single(&ahead.key)).await?;
        }
        let own = RangeRequest {
            key: place.key.clone(),
            keys_only: true,
            serializable: true,
            ..RangeRequest::default()
        };
        let (own, revision) = self.find_first(asker, own).await?;
        let is_there = own.is_some_and(|own| own.create_revision == place.created_revision);
        // From now on the client owns the key, or the key is gone.
        place.deletes_on_drop = false;
        Ok(is_there.then_some(revision))
    }

    /// Returns the first key in the queue and the revision, according to this node's local state.
    pub(super) async fn first_local(
        &self,
        asker: &Requester,
        prefix: &[u8],
    ) -> Result<(Option<KeyValue>, i64), Status> {
        let request = RangeRequest { keys_only: false, ..first_key_request(prefix) };
        self.find_first(asker, request).await
    }

    /// Returns the first key in the queue and the revision, linearizably.
    pub(super) async fn first_linearizable(
        &self,
        asker: &Requester,
        prefix: &[u8],
    ) -> Result<(Option<KeyValue>, i64), Status> {
        let request =
            RangeRequest { keys_only: false, serializable: false, ..first_key_request(prefix) };
        self.find_first(asker, request).await
    }

    async fn find_first(
        &self,
        asker: &Requester,
        request: RangeRequest,
    ) -> Result<(Option<KeyValue>, i64), Status> {
        let ask = || kv::read_range(&self.replica_access, asker, request.clone());
        let (found, _) = super::asking::retry_while_busy(ask).await?;
        let revision = found.header.as_ref().map_or(0, |header| header.revision);
        Ok((found.kvs.into_iter().next(), revision))
    }
}

/// Returns a request for the oldest key of a prefix.
fn first_key_request(prefix: &[u8]) -> RangeRequest {
    RangeRequest {
        key: Bytes::copy_from_slice(prefix),
        range_end: prefix_end(prefix),
        limit: 1,
        sort_order: SortOrder::Ascend.into(),
        sort_target: SortTarget::Create.into(),
        keys_only: true,
        serializable: true,
        ..RangeRequest::default()
    }
}

/// Like [`wait_for_change`], for any key with the given prefix.
pub(super) async fn wait_for_prefix(
    batches: &mut Receiver<Arc<EventBatch>>,
    prefix: &[u8],
) -> Result<(), Status> {
    let end = prefix_end(prefix);
    wait_for_change(batches, KeySelection::from_range(prefix, &end)).await
}

/// Waits until one of `keys` has or may have changed.
pub(super) async fn wait_for_change(
    batches: &mut Receiver<Arc<EventBatch>>,
    keys: KeySelection<'_>,
) -> Result<(), Status> {
    loop {
        let batch = match batches.recv().await {
            Ok(batch) => batch,
            Err(RecvError::Lagged(_)) => return Ok(()),
            Err(RecvError::Closed) => return Err(errors::server_stopped()),
        };
        let mut happened = batch.events.iter().filter_map(|event| event.kv.as_ref());
        // A gap in the batches may hide a change of any key.
        if batch.to < batch.from || happened.any(|kv| keys.contains(&kv.key)) {
            return Ok(());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn end_of_a_prefix_is_the_next_other_key() {
        assert_eq!(prefix_end(b"a/"), &b"a0"[..]);
        assert_eq!(prefix_end(b"a\xff"), &b"b"[..]);
        assert_eq!(prefix_end(b"\xff\xff"), &b"\0"[..], "to the end of all keys");
        assert_eq!(queue_prefix(b"name"), &b"name/"[..]);
    }
}
