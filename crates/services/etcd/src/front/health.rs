//! Health checks of this member with the gRPC health protocol.

use std::{sync::Arc, time::Duration};

use tokio::{
    sync::mpsc,
    time::{MissedTickBehavior, interval},
};
use tonic::{Request, Response, Status, async_trait};

use super::{
    asking::ReplicaAccess,
    errors,
    queue::{Queued, ResponseStream},
};
use crate::proto::health::{
    HealthCheckRequest, HealthCheckResponse, health_check_response::ServingStatus,
    health_server::Health as HealthService,
};

/// Interval between checks for watchers.
const CHECK_INTERVAL: Duration = Duration::from_secs(1);
/// Approximate memory of a stream, in bytes.
const STREAM_MEMORY_BYTES: usize = 8 << 10;

/// Services whose health can be queried. The empty name means the whole member.
const SERVICES: [&str; 10] = [
    "",
    "etcdserverpb.Auth",
    "etcdserverpb.KV",
    "etcdserverpb.Watch",
    "etcdserverpb.Lease",
    "etcdserverpb.Cluster",
    "etcdserverpb.Maintenance",
    "v3lockpb.Lock",
    "v3electionpb.Election",
    "grpc.health.v1.Health",
];

#[derive(Debug)]
pub(super) struct Health(pub(super) Arc<ReplicaAccess>);

fn health_response(status: ServingStatus) -> HealthCheckResponse {
    HealthCheckResponse { status: status.into() }
}

/// Returns the health of the member, which is serving while there is a leader.
fn member_health(asking: &ReplicaAccess) -> ServingStatus {
    match asking.has_leader() {
        true => ServingStatus::Serving,
        false => ServingStatus::NotServing,
    }
}

#[async_trait]
impl HealthService for Health {
    type WatchStream = ResponseStream<HealthCheckResponse>;

    async fn check(
        &self,
        request: Request<HealthCheckRequest>,
    ) -> Result<Response<HealthCheckResponse>, Status> {
        match SERVICES.contains(&&*request.get_ref().service) {
            true => Ok(Response::new(health_response(member_health(&self.0)))),
            false => Err(Status::not_found("unknown service")),
        }
    }

    async fn watch(
        &self,
        request: Request<HealthCheckRequest>,
    ) -> Result<Response<Self::WatchStream>, Status> {
        let share = self.0.memory.try_reserve(STREAM_MEMORY_BYTES);
        let share = share.ok_or_else(errors::memory_exceeded)?;
        let is_known = SERVICES.contains(&&*request.get_ref().service);
        let (answers, receiver) = mpsc::channel::<Queued<HealthCheckResponse>>(1);
        let asking = Arc::clone(&self.0);
        tokio::spawn(async move {
            let mut ticks = interval(CHECK_INTERVAL);
            ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
            let mut said = None;
            loop {
                tokio::select! {
                    () = answers.closed() => break,
                    _ = ticks.tick() => {}
                }
                let now = match is_known {
                    true => member_health(&asking),
                    false => ServingStatus::ServiceUnknown,
                };
                if said != Some(now) && answers.send(Ok(health_response(now)).into()).await.is_err()
                {
                    break;
                }
                said = Some(now);
            }
            drop(share);
        });
        Ok(Response::new(ResponseStream(receiver)))
    }
}
