//! The etcd KV service: range, put, delete, txn and compaction.

use std::{sync::Arc, time::Duration};

use prost::Message;
use quorate::Role;
use tokio::time::sleep;
use tonic::{Code, Request, Response, Status, async_trait};

use super::{
    asking::{Freshness, ReplicaAccess},
    errors,
    gate::Requester,
    memory::MemoryShare,
    queue::ResponseStream,
    range_stream,
};
use crate::{
    check,
    command::{Command, Query},
    mvcc::{PAGE_VISITS_MAX, Paging, is_readonly, is_serializable},
    proto::etcdserverpb::{
        CompactionRequest, CompactionResponse, DeleteRangeRequest, DeleteRangeResponse, PutRequest,
        PutResponse, RangeRequest, RangeResponse, RangeStreamResponse, TxnRequest, TxnResponse,
        kv_server::Kv as KvService,
    },
};

/// Polling interval while waiting for the removal of compacted history.
const SCRUB_POLL_INTERVAL: Duration = Duration::from_millis(20);
/// Maximum number of restarts of a range whose revision was compacted.
const RESTARTS_MAX: u32 = 3;

#[derive(Debug)]
pub(super) struct Kv {
    pub(super) replica_access: Arc<ReplicaAccess>,
}

impl Kv {
    /// Waits until this node has removed all history before `revision`.
    async fn wait_for_scrub(&self, revision: i64) -> Result<(), Status> {
        loop {
            let figures = self.replica_access.figures(Freshness::Local).await?;
            if figures.is_scrubbed && figures.compacted_revision >= revision {
                return Ok(());
            }
            sleep(SCRUB_POLL_INTERVAL).await;
        }
    }
}

/// Reads a range page by page, so that a large one does not delay other work of the node. The pages
/// are charged to the memory budget.
pub(super) async fn read_range(
    asking: &ReplicaAccess,
    asker: &Requester,
    request: RangeRequest,
) -> Result<(RangeResponse, MemoryShare), Status> {
    let freshness = Freshness::from_serializable(request.serializable);
    let mut restarts = 0;
    let mut share = asking.memory.empty_share();
    let mut paging = Paging::new(request);
    loop {
        let freshness = match paging.has_begun() {
            true => Freshness::Local,
            false => freshness,
        };
        let query = Query::Page(paging.next(PAGE_VISITS_MAX));
        match asking.query(asker, &query, freshness).await {
            Ok((page, of_page)) => {
                let is_last = paging.add_page(page).map_err(errors::refusal_status)?;
                drop(of_page);
                let bytes = usize::try_from(paging.bytes()).unwrap_or(usize::MAX);
                if !share.resize(bytes) {
                    return Err(errors::memory_exceeded());
                }
                if is_last {
                    return Ok((paging.finish(), share));
                }
            }
            // The revision of the first page has been compacted.
            Err(status)
                if status.code() == Code::OutOfRange
                    && paging.may_restart()
                    && restarts < RESTARTS_MAX =>
            {
                restarts += 1;
                paging = paging.restart();
            }
            Err(status) => return Err(status),
        }
    }
}

/// Returns a response whose memory is charged until it is sent.
fn charged_response<M: Message>(answer: M, share: MemoryShare) -> Response<M> {
    let mut response = Response::new(answer);
    response.extensions_mut().insert(Arc::new(share));
    response
}

#[async_trait]
impl KvService for Kv {
    async fn range(
        &self,
        request: Request<RangeRequest>,
    ) -> Result<Response<RangeResponse>, Status> {
        let asker = self.replica_access.require_role(&request, Role::Reader)?;
        let request = request.into_inner();
        check::check_range(&request).map_err(errors::refusal_status)?;
        let (mut range, share) = read_range(&self.replica_access, &asker, request).await?;
        self.replica_access.complete_header(&mut range.header);
        Ok(charged_response(range, share))
    }

    type RangeStreamStream = ResponseStream<RangeStreamResponse>;

    async fn range_stream(
        &self,
        request: Request<RangeRequest>,
    ) -> Result<Response<Self::RangeStreamStream>, Status> {
        let asker = self.replica_access.require_role(&request, Role::Reader)?;
        let request = request.into_inner();
        check::check_range_stream(&request).map_err(errors::range_not_streamable)?;
        Ok(Response::new(range_stream::start(&self.replica_access, asker, request)))
    }

    async fn put(&self, request: Request<PutRequest>) -> Result<Response<PutResponse>, Status> {
        let asker = self.replica_access.require_role(&request, Role::Writer)?;
        let request = request.into_inner();
        check::check_put(&request).map_err(errors::refusal_status)?;
        let room = request.key.len() + request.value.len();
        self.replica_access.check_quota(room).await?;
        let (mut done, share): (PutResponse, _) =
            self.replica_access.execute(&asker, &Command::Put(request)).await?;
        self.replica_access.complete_header(&mut done.header);
        Ok(charged_response(done, share))
    }

    async fn delete_range(
        &self,
        request: Request<DeleteRangeRequest>,
    ) -> Result<Response<DeleteRangeResponse>, Status> {
        let asker = self.replica_access.require_role(&request, Role::Writer)?;
        let request = request.into_inner();
        check::check_delete(&request).map_err(errors::refusal_status)?;
        let command = Command::Delete(request);
        let (mut done, share): (DeleteRangeResponse, _) =
            self.replica_access.execute(&asker, &command).await?;
        self.replica_access.complete_header(&mut done.header);
        Ok(charged_response(done, share))
    }

    async fn txn(&self, request: Request<TxnRequest>) -> Result<Response<TxnResponse>, Status> {
        let readonly = is_readonly(request.get_ref());
        let needed = match readonly {
            true => Role::Reader,
            false => Role::Writer,
        };
        let asker = self.replica_access.require_role(&request, needed)?;
        let request = request.into_inner();
        check::check_txn(&request).map_err(errors::refusal_status)?;
        if readonly {
            let freshness = Freshness::from_serializable(is_serializable(&request));
            let query = Query::Txn(request);
            let (mut done, share): (TxnResponse, _) =
                self.replica_access.query(&asker, &query, freshness).await?;
            self.replica_access.complete_header(&mut done.header);
            return Ok(charged_response(done, share));
        }
        let (mut done, share): (TxnResponse, _) =
            self.replica_access.execute(&asker, &Command::Txn(request)).await?;
        self.replica_access.complete_header(&mut done.header);
        Ok(charged_response(done, share))
    }

    async fn compact(
        &self,
        request: Request<CompactionRequest>,
    ) -> Result<Response<CompactionResponse>, Status> {
        let asker = self.replica_access.require_role(&request, Role::Writer)?;
        let request = request.into_inner();
        let (revision, physical) = (request.revision, request.physical);
        let command = Command::Compact(request);
        let (mut done, share): (CompactionResponse, _) =
            self.replica_access.execute(&asker, &command).await?;
        if physical {
            self.wait_for_scrub(revision).await?;
        }
        self.replica_access.complete_header(&mut done.header);
        Ok(charged_response(done, share))
    }
}
