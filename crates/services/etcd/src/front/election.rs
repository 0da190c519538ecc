//! The etcd Election service: the first client in a queue is the leader and publishes a value.

use std::sync::Arc;

use quorate::Role;
use tokio::sync::mpsc;
use tonic::{Request, Response, Status, async_trait};

use super::{
    errors,
    gate::Requester,
    memory::MemoryShare,
    queue::{Queued, ResponseStream},
    turns::{
        KeyQueues, delete_if_created_at, put_if_created_at, queue_prefix, wait_for_change,
        wait_for_prefix,
    },
};
use crate::{
    mvcc::KeySelection,
    proto::{
        etcdserverpb::PutRequest,
        v3electionpb::{
            CampaignRequest, CampaignResponse, LeaderKey, LeaderRequest, LeaderResponse,
            ProclaimRequest, ProclaimResponse, ResignRequest, ResignResponse,
            election_server::Election as ElectionService,
        },
    },
};

/// Maximum number of responses queued for a client. While the queue is full, the stream waits.
const QUEUED_RESPONSES_MAX: usize = 4;
/// Approximate memory of a stream, in bytes.
const STREAM_MEMORY_BYTES: usize = 16 << 10;

#[derive(Debug)]
pub(super) struct Election(pub(super) KeyQueues);

fn missing_leader() -> Status {
    Status::invalid_argument("\"leader\" field must be provided")
}

fn not_leader() -> Status {
    Status::unknown("election: not leader")
}

#[async_trait]
impl ElectionService for Election {
    type ObserveStream = ResponseStream<LeaderResponse>;

    async fn campaign(
        &self,
        request: Request<CampaignRequest>,
    ) -> Result<Response<CampaignResponse>, Status> {
        let asking = &self.0.replica_access;
        let asker = asking.require_role(&request, Role::Writer)?;
        let asker = asking.fix_identity(&asker).await?;
        let CampaignRequest { name, lease, value } = request.into_inner();
        let prefix = queue_prefix(&name);
        let mut place = self.0.enqueue_key(&asker, &prefix, lease, value.clone()).await?;
        if place.previous_value.as_ref().is_some_and(|before| before.value != value) {
            // The client was already in the queue, but with another value.
            let put = PutRequest {
                key: place.key.clone(),
                value,
                lease: place.lease_id,
                ..PutRequest::default()
            };
            let put = put_if_created_at(asking, &asker, put, place.created_revision).await?;
            place.revision = put.ok_or_else(not_leader)?;
        }
        let Some(revision) = self.0.wait_for_turn(&asker, &mut place, &prefix).await? else {
            return Err(Status::unknown("election: session is expired"));
        };
        Ok(Response::new(CampaignResponse {
            header: asking.response_header(revision.max(place.revision)),
            leader: Some(LeaderKey {
                name,
                key: place.key.clone(),
                rev: place.created_revision,
                lease: place.lease_id,
            }),
        }))
    }

    async fn proclaim(
        &self,
        request: Request<ProclaimRequest>,
    ) -> Result<Response<ProclaimResponse>, Status> {
        let asking = &self.0.replica_access;
        let asker = asking.require_role(&request, Role::Writer)?;
        let ProclaimRequest { leader, value } = request.into_inner();
        let leader = leader.ok_or_else(missing_leader)?;
        let put =
            PutRequest { key: leader.key, value, lease: leader.lease, ..PutRequest::default() };
        let revision = put_if_created_at(asking, &asker, put, leader.rev).await?;
        Ok(Response::new(ProclaimResponse {
            header: asking.response_header(revision.ok_or_else(not_leader)?),
        }))
    }

    async fn leader(
        &self,
        request: Request<LeaderRequest>,
    ) -> Result<Response<LeaderResponse>, Status> {
        let asking = &self.0.replica_access;
        let asker = asking.require_role(&request, Role::Reader)?;
        let prefix = queue_prefix(&request.get_ref().name);
        let (kv, revision) = self.0.first_linearizable(&asker, &prefix).await?;
        let kv = kv.ok_or_else(|| Status::unknown("election: no leader"))?;
        Ok(Response::new(LeaderResponse { header: asking.response_header(revision), kv: Some(kv) }))
    }

    async fn observe(
        &self,
        request: Request<LeaderRequest>,
    ) -> Result<Response<Self::ObserveStream>, Status> {
        let asker = self.0.replica_access.require_role(&request, Role::Reader)?;
        let asker = self.0.replica_access.fix_identity(&asker).await?;
        let share = self.0.hub.memory.try_reserve(STREAM_MEMORY_BYTES);
        let share = share.ok_or_else(errors::memory_exceeded)?;
        let (answers, receiver) = mpsc::channel(QUEUED_RESPONSES_MAX);
        let (turns, name) = (self.0.clone(), request.into_inner().name);
        tokio::spawn(async move {
            let observed = tokio::select! {
                observed = observe(&turns, &asker, &name, &answers) => observed,
                () = answers.closed() => return,
            };
            if let Err(status) = observed {
                let _ = answers.send(Err(status).into()).await;
            }
            drop(share);
        });
        Ok(Response::new(ResponseStream(receiver)))
    }

    async fn resign(
        &self,
        request: Request<ResignRequest>,
    ) -> Result<Response<ResignResponse>, Status> {
        let asking = &self.0.replica_access;
        let asker = asking.require_role(&request, Role::Writer)?;
        let leader = request.into_inner().leader.ok_or_else(missing_leader)?;
        let revision = delete_if_created_at(asking, &asker, leader.key, leader.rev).await?;
        Ok(Response::new(ResignResponse { header: asking.response_header(revision) }))
    }
}

/// Sends the leader and its value after every change. Values that are replaced before the next read
/// are skipped.
async fn observe(
    turns: &KeyQueues,
    asker: &Requester,
    name: &[u8],
    answers: &mpsc::Sender<Queued<LeaderResponse>>,
) -> Result<(), Status> {
    let prefix = queue_prefix(name);
    let mut batches = turns.hub.subscribe();
    let mut last = 0;
    loop {
        let (leader, revision) = turns.first_local(asker, &prefix).await?;
        let Some(kv) = leader else {
            wait_for_prefix(&mut batches, &prefix).await?;
            continue;
        };
        let key = kv.key.clone();
        if kv.mod_revision != last {
            last = kv.mod_revision;
            let own: MemoryShare = turns.hub.memory.reserve(kv.key.len() + kv.value.len()).await;
            let answer = LeaderResponse {
                header: turns.replica_access.response_header(revision),
                kv: Some(kv),
            };
            let queued = Queued::with_memory(answer, own, None::<Arc<MemoryShare>>);
            if answers.send(queued).await.is_err() {
                return Ok(());
            }
        }
        wait_for_change(&mut batches, KeySelection::Single(&key)).await?;
    }
}
