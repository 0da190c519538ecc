//! The etcd Lock service: a client holds a lock while its key exists and is first in the queue. The
//! key is deleted with its lease.

use bytes::Bytes;
use quorate::Role;
use tonic::{Request, Response, Status, async_trait};

use super::{
    errors,
    turns::{KeyQueues, queue_prefix},
};
use crate::{
    check,
    command::Command,
    proto::{
        etcdserverpb::{DeleteRangeRequest, DeleteRangeResponse},
        v3lockpb::{
            LockRequest, LockResponse, UnlockRequest, UnlockResponse,
            lock_server::Lock as LockService,
        },
    },
};

#[derive(Debug)]
pub(super) struct Lock(pub(super) KeyQueues);

#[async_trait]
impl LockService for Lock {
    async fn lock(&self, request: Request<LockRequest>) -> Result<Response<LockResponse>, Status> {
        let asking = &self.0.replica_access;
        let asker = asking.require_role(&request, Role::Writer)?;
        let asker = asking.fix_identity(&asker).await?;
        let LockRequest { name, lease } = request.into_inner();
        let prefix = queue_prefix(&name);
        let mut place = self.0.enqueue_key(&asker, &prefix, lease, Bytes::new()).await?;
        let Some(revision) = self.0.wait_for_turn(&asker, &mut place, &prefix).await? else {
            return Err(Status::unknown("mutex: session is expired"));
        };
        Ok(Response::new(LockResponse {
            header: asking.response_header(revision),
            key: place.key.clone(),
        }))
    }

    async fn unlock(
        &self,
        request: Request<UnlockRequest>,
    ) -> Result<Response<UnlockResponse>, Status> {
        let asking = &self.0.replica_access;
        let asker = asking.require_role(&request, Role::Writer)?;
        let delete =
            DeleteRangeRequest { key: request.into_inner().key, ..DeleteRangeRequest::default() };
        check::check_delete(&delete).map_err(errors::refusal_status)?;
        let command = Command::Delete(delete);
        let (mut done, _): (DeleteRangeResponse, _) = asking.execute(&asker, &command).await?;
        asking.complete_header(&mut done.header);
        let header = done.header;
        Ok(Response::new(UnlockResponse { header }))
    }
}
