//! The service KV.

use std::{sync::Arc, time::Duration};

use prost::Message;
use quorate::{Failure, NotDone, Role};
use tokio::time::sleep;
use tonic::{Code, Request, Response, Status, async_trait};

use super::{
    asking::{Asking, Freshness},
    errors,
    memory::Memory,
};
use crate::{
    check,
    command::{Command, Query},
    mvcc::{PAGE_VISITS_MAX, Paging, is_readonly, is_serializable},
    proto::etcdserverpb::{
        CompactionRequest, CompactionResponse, DeleteRangeRequest, DeleteRangeResponse, PutRequest,
        PutResponse, RangeRequest, RangeResponse, TxnRequest, TxnResponse,
        kv_server::Kv as KvService,
    },
};

/// How often it is looked whether a compaction is done.
const SCRUB_PERIOD: Duration = Duration::from_millis(20);
/// How often a range may begin again because its revision was compacted meanwhile.
const RESTARTS_MAX: u32 = 3;

#[derive(Debug)]
pub(super) struct Kv {
    asking: Arc<Asking>,
    memory: Memory,
}

impl Kv {
    pub(super) const fn new(asking: Arc<Asking>, memory: Memory) -> Self {
        Self { asking, memory }
    }

    /// A range, page by page, so that a large one does not keep the node from what is urgent.
    async fn read(&self, request: RangeRequest) -> Result<RangeResponse, Status> {
        let freshness = Freshness::of(request.serializable);
        let mut restarts = 0;
        let mut paging = Paging::new(request);
        loop {
            let freshness = match paging.is_begun() {
                true => Freshness::Local,
                false => freshness,
            };
            let query = Query::Page(paging.next(PAGE_VISITS_MAX));
            match self.asking.query(&query, freshness).await {
                Ok(page) => {
                    if paging.add(page).map_err(errors::refused)? {
                        return Ok(paging.finish());
                    }
                }
                // The present of a while ago was compacted.
                Err(status)
                    if status.code() == Code::OutOfRange
                        && paging.may_restart()
                        && restarts < RESTARTS_MAX =>
                {
                    restarts += 1;
                    paging = paging.restarted();
                }
                Err(status) => return Err(status),
            }
        }
    }

    /// Waits until this node has removed what was before this revision.
    async fn removed_before(&self, revision: i64) -> Result<(), Status> {
        loop {
            let figures = self.asking.figures(Freshness::Local).await?;
            if figures.is_scrubbed && figures.compacted >= revision {
                return Ok(());
            }
            sleep(SCRUB_PERIOD).await;
        }
    }

    /// An answer whose memory is counted until it is sent.
    fn answer<M: Message>(&self, answer: M) -> Result<Response<M>, Status> {
        let share = self.memory.take(answer.encoded_len());
        let share = share.ok_or_else(errors::too_many)?;
        let mut response = Response::new(answer);
        response.extensions_mut().insert(Arc::new(share));
        Ok(response)
    }

    /// The same of a write, which is done: nobody may hear that it was refused.
    fn written<M: Message>(&self, answer: M) -> Result<Response<M>, Status> {
        self.answer(answer)
            .map_err(|_| errors::failed(NotDone(Failure::Unknown)))
    }
}

#[async_trait]
impl KvService for Kv {
    async fn range(
        &self,
        request: Request<RangeRequest>,
    ) -> Result<Response<RangeResponse>, Status> {
        self.asking.allow(&request, Role::Reader)?;
        let request = request.into_inner();
        check::range(&request).map_err(errors::refused)?;
        let mut answer = self.read(request).await?;
        self.asking.fill(&mut answer.header);
        self.answer(answer)
    }

    async fn put(&self, request: Request<PutRequest>) -> Result<Response<PutResponse>, Status> {
        self.asking.allow(&request, Role::Writer)?;
        let request = request.into_inner();
        check::put(&request).map_err(errors::refused)?;
        let mut answer: PutResponse = self.asking.execute(&Command::Put(request)).await?;
        self.asking.fill(&mut answer.header);
        self.written(answer)
    }

    async fn delete_range(
        &self,
        request: Request<DeleteRangeRequest>,
    ) -> Result<Response<DeleteRangeResponse>, Status> {
        self.asking.allow(&request, Role::Writer)?;
        let request = request.into_inner();
        check::delete(&request).map_err(errors::refused)?;
        let command = Command::Delete(request);
        let mut answer: DeleteRangeResponse = self.asking.execute(&command).await?;
        self.asking.fill(&mut answer.header);
        self.written(answer)
    }

    async fn txn(&self, request: Request<TxnRequest>) -> Result<Response<TxnResponse>, Status> {
        let readonly = is_readonly(request.get_ref());
        let needed = match readonly {
            true => Role::Reader,
            false => Role::Writer,
        };
        self.asking.allow(&request, needed)?;
        let request = request.into_inner();
        check::txn(&request).map_err(errors::refused)?;
        if readonly {
            let freshness = Freshness::of(is_serializable(&request));
            let query = Query::Txn(request);
            let mut answer: TxnResponse = self.asking.query(&query, freshness).await?;
            self.asking.fill(&mut answer.header);
            return self.answer(answer);
        }
        let mut answer: TxnResponse = self.asking.execute(&Command::Txn(request)).await?;
        self.asking.fill(&mut answer.header);
        self.written(answer)
    }

    async fn compact(
        &self,
        request: Request<CompactionRequest>,
    ) -> Result<Response<CompactionResponse>, Status> {
        self.asking.allow(&request, Role::Writer)?;
        let request = request.into_inner();
        let (revision, physical) = (request.revision, request.physical);
        let command = Command::Compact(request);
        let mut answer: CompactionResponse = self.asking.execute(&command).await?;
        if physical {
            self.removed_before(revision).await?;
        }
        self.asking.fill(&mut answer.header);
        self.written(answer)
    }
}
