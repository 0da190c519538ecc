//! The etcd Lease service: grants, revokes and lists leases, and keeps them alive.

use std::sync::Arc;

use quorate::Role;
use tokio::sync::{mpsc, oneshot};
use tonic::{Code, Request, Response, Status, Streaming, async_trait};

use super::{
    asking::{Freshness, ReplicaAccess},
    errors,
    gate::Requester,
    keeping::{KeepAliveQueue, KeepAliveResult},
    queue::{Queued, ResponseStream},
};
use crate::{
    command::{Command, LeaseGrant, LeasesPage, LeasesRequest, Query},
    proto::etcdserverpb::{
        LeaseGrantRequest, LeaseGrantResponse, LeaseKeepAliveRequest, LeaseKeepAliveResponse,
        LeaseLeasesRequest, LeaseLeasesResponse, LeaseRevokeRequest, LeaseRevokeResponse,
        LeaseStatus, LeaseTimeToLiveRequest, LeaseTimeToLiveResponse,
        lease_server::Lease as LeaseService,
    },
};

/// Maximum number of responses queued for a client. While the queue is full, the stream waits.
const QUEUED_RESPONSES_MAX: usize = 16;
/// Maximum number of keep-alives in flight per stream.
const KEEP_ALIVES_IN_FLIGHT_MAX: usize = 128;
/// Approximate memory of a stream, in bytes.
const STREAM_MEMORY_BYTES: usize = 32 << 10;
/// Approximate memory of a lease in a list, in bytes.
const LEASE_MEMORY_BYTES: usize = 32;

#[derive(Debug)]
pub(super) struct Lease {
    pub(super) replica_access: Arc<ReplicaAccess>,
    pub(super) keep_alive_queue: KeepAliveQueue,
}

/// Returns a random lease id. A collision is very unlikely, and detected when the lease is granted.
pub(super) fn random_id() -> Result<i64, Status> {
    let random = quorate::random_bytes().map_err(|error| Status::internal(error.to_string()))?;
    // Positive, as etcd's ids are.
    Ok(i64::from_le_bytes(random) & i64::MAX)
}

#[async_trait]
impl LeaseService for Lease {
    type LeaseKeepAliveStream = ResponseStream<LeaseKeepAliveResponse>;

    async fn lease_grant(
        &self,
        request: Request<LeaseGrantRequest>,
    ) -> Result<Response<LeaseGrantResponse>, Status> {
        let asker = self.replica_access.require_role(&request, Role::Writer)?;
        let LeaseGrantRequest { ttl, id } = request.into_inner();
        let is_chosen_here = id == 0;
        self.replica_access.check_quota(0).await?;
        loop {
            let id = match id {
                0 => random_id()?,
                id => id,
            };
            let granted = move |now_ms| Command::Grant(LeaseGrant { id, ttl, now_ms });
            let done = self.replica_access.execute_timed(&asker, granted).await;
            let (mut answer, _): (LeaseGrantResponse, _) = match done {
                Err(status) if is_chosen_here && status.code() == Code::FailedPrecondition => {
                    continue;
                }
                done => done?,
            };
            self.replica_access.complete_header(&mut answer.header);
            return Ok(Response::new(answer));
        }
    }

    async fn lease_revoke(
        &self,
        request: Request<LeaseRevokeRequest>,
    ) -> Result<Response<LeaseRevokeResponse>, Status> {
        let asker = self.replica_access.require_role(&request, Role::Writer)?;
        let command = Command::Revoke(request.into_inner());
        let (mut answer, _): (LeaseRevokeResponse, _) =
            self.replica_access.execute(&asker, &command).await?;
        self.replica_access.complete_header(&mut answer.header);
        Ok(Response::new(answer))
    }

    async fn lease_keep_alive(
        &self,
        request: Request<Streaming<LeaseKeepAliveRequest>>,
    ) -> Result<Response<Self::LeaseKeepAliveStream>, Status> {
        let asker = self.replica_access.fix_identity(&Requester::from_request(&request)).await?;
        let share = self.replica_access.memory.try_reserve(STREAM_MEMORY_BYTES);
        let share = share.ok_or_else(errors::memory_exceeded)?;
        let (answers, receiver) = mpsc::channel(QUEUED_RESPONSES_MAX);
        let (line, waiting) = mpsc::channel(KEEP_ALIVES_IN_FLIGHT_MAX);
        let asking = Arc::clone(&self.replica_access);
        tokio::spawn(async move {
            send_in_order(&asking, waiting, answers).await;
            drop(share);
        });
        let (asking, keeper) = (Arc::clone(&self.replica_access), self.keep_alive_queue.clone());
        tokio::spawn(handle_keep_alives(asking, keeper, asker, request.into_inner(), line));
        Ok(Response::new(ResponseStream(receiver)))
    }

    async fn lease_time_to_live(
        &self,
        request: Request<LeaseTimeToLiveRequest>,
    ) -> Result<Response<LeaseTimeToLiveResponse>, Status> {
        let asker = self.replica_access.require_role(&request, Role::Reader)?;
        let query = Query::Lease(request.into_inner());
        let asked = self.replica_access.query(&asker, &query, Freshness::Linearizable);
        let (mut answer, share): (LeaseTimeToLiveResponse, _) = asked.await?;
        self.replica_access.complete_header(&mut answer.header);
        let mut response = Response::new(answer);
        response.extensions_mut().insert(Arc::new(share));
        Ok(response)
    }

    async fn lease_leases(
        &self,
        request: Request<LeaseLeasesRequest>,
    ) -> Result<Response<LeaseLeasesResponse>, Status> {
        let asker = self.replica_access.require_role(&request, Role::Reader)?;
        let mut answer = LeaseLeasesResponse::default();
        let mut share = self.replica_access.memory.empty_share();
        let (mut from, mut freshness) = (Some(0), Freshness::Linearizable);
        while let Some(first) = from {
            let query = Query::Leases(LeasesRequest { from: first });
            let (page, _): (LeasesPage, _) =
                self.replica_access.query(&asker, &query, freshness).await?;
            // This node's state is now at least as new as the first page, so later pages can be
            // read locally.
            freshness = Freshness::Local;
            if !share.try_grow(page.ids.len() * LEASE_MEMORY_BYTES) {
                return Err(errors::memory_exceeded());
            }
            let leases = page.ids.into_iter().map(|id| LeaseStatus { id });
            answer.leases.extend(leases);
            answer.header = self.replica_access.response_header(page.revision);
            from = page.next;
        }
        let mut response = Response::new(answer);
        response.extensions_mut().insert(Arc::new(share));
        Ok(response)
    }
}

type PendingResult = oneshot::Receiver<Result<KeepAliveResult, Status>>;

/// Handles the keep-alive requests on a client's stream.
async fn handle_keep_alives(
    asking: Arc<ReplicaAccess>,
    keeper: KeepAliveQueue,
    asker: Requester,
    mut requests: Streaming<LeaseKeepAliveRequest>,
    line: mpsc::Sender<Result<PendingResult, Status>>,
) {
    loop {
        let request = tokio::select! {
            () = line.closed() => return,
            request = requests.message() => request,
        };
        let coming = match request {
            Ok(Some(LeaseKeepAliveRequest { id })) => {
                handle_keep_alive(&asking, &keeper, &asker, id).await
            }
            Ok(None) => return,
            Err(status) => Err(status),
        };
        let ends = coming.is_err();
        if line.send(coming).await.is_err() || ends {
            return;
        }
    }
}

async fn handle_keep_alive(
    asking: &ReplicaAccess,
    keeper: &KeepAliveQueue,
    asker: &Requester,
    id: i64,
) -> Result<PendingResult, Status> {
    asking.recheck_role(asker, Role::Writer)?;
    keeper.queue_keep_alive(asking, asker, id).await
}

/// Sends responses in the order of the requests, until one is an error.
async fn send_in_order(
    asking: &ReplicaAccess,
    mut waiting: mpsc::Receiver<Result<PendingResult, Status>>,
    answers: mpsc::Sender<Queued<LeaseKeepAliveResponse>>,
) {
    loop {
        let coming = tokio::select! {
            () = answers.closed() => return,
            coming = waiting.recv() => coming,
        };
        let kept = match coming {
            None => return,
            Some(Err(status)) => Err(status),
            Some(Ok(coming)) => coming.await.unwrap_or_else(|_| Err(errors::server_stopped())),
        };
        let answer = kept.map(|KeepAliveResult { id, ttl, revision }| LeaseKeepAliveResponse {
            header: asking.response_header(revision),
            id,
            ttl,
        });
        let ends = answer.is_err();
        if answers.send(answer.into()).await.is_err() || ends {
            return;
        }
    }
}
