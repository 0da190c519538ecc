//! The service Maintenance: how a member is.

use std::sync::Arc;

use quorate::{NodeId, Role};
use tonic::{Request, Response, Status, async_trait};

use super::{
    VERSION,
    asking::{Asking, Freshness, term_of},
    errors,
};
use crate::proto::etcdserverpb::{
    AlarmRequest, AlarmResponse, DefragmentRequest, DefragmentResponse, HashKvRequest,
    HashKvResponse, MoveLeaderRequest, MoveLeaderResponse, StatusRequest, StatusResponse,
    alarm_request::AlarmAction, maintenance_server::Maintenance as MaintenanceService,
};

#[derive(Debug)]
pub(super) struct Maintenance(pub(super) Arc<Asking>);

fn size(bytes: u64) -> i64 {
    i64::try_from(bytes).unwrap_or(i64::MAX)
}

#[async_trait]
impl MaintenanceService for Maintenance {
    /// There are no alarms: a node whose disk is full says so itself, and takes writes again when there is room.
    async fn alarm(
        &self,
        request: Request<AlarmRequest>,
    ) -> Result<Response<AlarmResponse>, Status> {
        self.0.allow(&request, Role::Reader)?;
        if request.get_ref().action() == AlarmAction::Activate {
            return Err(errors::missing("raising an alarm"));
        }
        Ok(Response::new(AlarmResponse {
            header: self.0.header(0),
            alarms: Vec::new(),
        }))
    }

    async fn status(
        &self,
        request: Request<StatusRequest>,
    ) -> Result<Response<StatusResponse>, Status> {
        self.0.allow(&request, Role::Reader)?;
        let status = self.0.status().await?;
        let figures = self.0.figures(Freshness::Local).await?;
        let mut errors: Vec<String> = status.error.iter().cloned().collect();
        if status.leader.is_none() {
            errors.push("etcdserver: no leader".to_owned());
        }
        let mut peers = status.peers.iter();
        let own = peers.find(|peer| peer.member.node == self.0.node());
        Ok(Response::new(StatusResponse {
            header: self.0.header(figures.revision),
            version: VERSION.to_owned(),
            db_size: size(figures.bytes),
            leader: status.leader.map_or(0, |leader| u64::from(leader.0)),
            raft_index: status.decided_to.0,
            raft_term: term_of(&status),
            raft_applied_index: status.applied_to.0,
            errors,
            db_size_in_use: size(figures.bytes),
            is_learner: own.is_none_or(|own| own.weight == 0),
            storage_version: VERSION.to_owned(),
            // There is none.
            db_size_quota: 0,
        }))
    }

    /// Done: there is nothing to do.
    async fn defragment(
        &self,
        request: Request<DefragmentRequest>,
    ) -> Result<Response<DefragmentResponse>, Status> {
        self.0.allow(&request, Role::Operator)?;
        Ok(Response::new(DefragmentResponse {
            header: self.0.header(0),
        }))
    }

    async fn hash_kv(&self, _: Request<HashKvRequest>) -> Result<Response<HashKvResponse>, Status> {
        Err(errors::missing("HashKV"))
    }

    async fn move_leader(
        &self,
        request: Request<MoveLeaderRequest>,
    ) -> Result<Response<MoveLeaderResponse>, Status> {
        self.0.allow(&request, Role::Operator)?;
        let bad = || Status::failed_precondition("etcdserver: bad leader transferee");
        let target = u32::try_from(request.get_ref().target_id).map_err(|_| bad())?;
        let status = self.0.status().await?;
        if status.leader != Some(self.0.node()) {
            return Err(errors::not_leader());
        }
        let to = NodeId(target);
        let moved = self.0.node_says(move |handle| handle.transfer(Some(to)));
        moved.await?.map_err(|_| bad())?;
        Ok(Response::new(MoveLeaderResponse {
            header: self.0.header(0),
        }))
    }
}
