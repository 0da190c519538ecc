//! The service Lease.

use std::{
    sync::Arc,
    time::{SystemTime, UNIX_EPOCH},
};

use quorate::{Role, Who};
use tokio::sync::mpsc;
use tonic::{Code, Request, Response, Status, Streaming, async_trait};

use super::{
    asking::{Asking, Caller, Freshness},
    errors,
    watch::Answers,
};
use crate::{
    command::{Command, Granted, KeptAlive, Query},
    proto::etcdserverpb::{
        LeaseGrantRequest, LeaseGrantResponse, LeaseKeepAliveRequest, LeaseKeepAliveResponse,
        LeaseLeasesRequest, LeaseLeasesResponse, LeaseRevokeRequest, LeaseRevokeResponse,
        LeaseTimeToLiveRequest, LeaseTimeToLiveResponse, lease_server::Lease as LeaseService,
    },
    refusal::Refusal,
};

/// Answers that wait for a client; then its stream waits.
const ANSWERS_MAX: usize = 16;

#[derive(Debug)]
pub(super) struct Lease(pub(super) Arc<Asking>);

/// This node's clock: a lease lasts from when its request was taken.
fn now_ms() -> u64 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH);
    u64::try_from(now.unwrap_or_default().as_millis()).unwrap_or(u64::MAX)
}

/// An id that nobody has, very likely.
fn some_id() -> Result<i64, Status> {
    let random = quorate::random().map_err(|error| Status::internal(error.to_string()))?;
    // A positive number.
    Ok(i64::from_le_bytes(random) & i64::MAX)
}

#[async_trait]
impl LeaseService for Lease {
    type LeaseKeepAliveStream = Answers<LeaseKeepAliveResponse>;

    async fn lease_grant(
        &self,
        request: Request<LeaseGrantRequest>,
    ) -> Result<Response<LeaseGrantResponse>, Status> {
        self.0.allow(&request, Role::Writer)?;
        let LeaseGrantRequest { ttl, id } = request.into_inner();
        loop {
            let granted = Granted {
                id: match id {
                    0 => some_id()?,
                    id => id,
                },
                ttl,
                now_ms: now_ms(),
            };
            let answer = self.0.execute(&Command::Grant(granted)).await;
            let mut answer: LeaseGrantResponse = match answer {
                Err(status) if id == 0 && status.code() == Code::FailedPrecondition => continue,
                answer => answer?,
            };
            self.0.fill(&mut answer.header);
            return Ok(Response::new(answer));
        }
    }

    async fn lease_revoke(
        &self,
        request: Request<LeaseRevokeRequest>,
    ) -> Result<Response<LeaseRevokeResponse>, Status> {
        self.0.allow(&request, Role::Writer)?;
        let command = Command::Revoke(request.into_inner());
        let mut answer: LeaseRevokeResponse = self.0.execute(&command).await?;
        self.0.fill(&mut answer.header);
        Ok(Response::new(answer))
    }

    async fn lease_keep_alive(
        &self,
        request: Request<Streaming<LeaseKeepAliveRequest>>,
    ) -> Result<Response<Self::LeaseKeepAliveStream>, Status> {
        let caller = request.extensions().get::<Caller>();
        let who = caller.map_or(Who::Nobody, |caller| caller.0.clone());
        let (answers, receiver) = mpsc::channel(ANSWERS_MAX);
        let asking = Arc::clone(&self.0);
        let mut requests = request.into_inner();
        tokio::spawn(async move {
            loop {
                let request = tokio::select! {
                    () = answers.closed() => return,
                    request = requests.message() => request,
                };
                let answer = match request {
                    Ok(Some(request)) => keep_alive(&asking, &who, request.id).await,
                    Ok(None) => return,
                    Err(status) => Err(status),
                };
                let ends = answer.is_err();
                if answers.send(answer).await.is_err() || ends {
                    return;
                }
            }
        });
        Ok(Response::new(Answers(receiver)))
    }

    async fn lease_time_to_live(
        &self,
        request: Request<LeaseTimeToLiveRequest>,
    ) -> Result<Response<LeaseTimeToLiveResponse>, Status> {
        self.0.allow(&request, Role::Reader)?;
        let query = Query::Lease(request.into_inner());
        let asked = self.0.query(&query, Freshness::Linearizable);
        let mut answer: LeaseTimeToLiveResponse = asked.await?;
        self.0.fill(&mut answer.header);
        Ok(Response::new(answer))
    }

    async fn lease_leases(
        &self,
        request: Request<LeaseLeasesRequest>,
    ) -> Result<Response<LeaseLeasesResponse>, Status> {
        self.0.allow(&request, Role::Reader)?;
        let asked = self.0.query(&Query::Leases, Freshness::Linearizable);
        let mut answer: LeaseLeasesResponse = asked.await?;
        self.0.fill(&mut answer.header);
        Ok(Response::new(answer))
    }
}

/// One lease begins anew. One that is not there has no time left, as etcd says it.
async fn keep_alive(asking: &Asking, who: &Who, id: i64) -> Result<LeaseKeepAliveResponse, Status> {
    asking.allow_who(who, Role::Writer)?;
    let command = Command::KeepAlive(KeptAlive {
        id,
        now_ms: now_ms(),
    });
    let gone = errors::refused(Refusal::LeaseNotFound);
    let mut answer = match asking.execute::<LeaseKeepAliveResponse>(&command).await {
        Err(status) if status.message() == gone.message() => {
            let revision = asking.figures(Freshness::Local).await?.revision;
            LeaseKeepAliveResponse {
                header: asking.header(revision),
                id,
                ttl: 0,
            }
        }
        answer => answer?,
    };
    asking.fill(&mut answer.header);
    Ok(answer)
}
