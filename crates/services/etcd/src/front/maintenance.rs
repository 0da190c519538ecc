//! The etcd Maintenance service: reports and manages the state of a member.

use std::sync::Arc;

use quorate::{NodeId, Role};
use tonic::{Code, Request, Response, Status, async_trait};

use super::{
    asking::{Freshness, ReplicaAccess, term_of},
    errors,
    gate::Requester,
    queue::ResponseStream,
    settings::ETCD_VERSION,
    snapshot,
};
use crate::{
    command::{Command, HashPage, HashRequest as HashRequestPage, Query},
    proto::etcdserverpb::{
        AlarmRequest, AlarmResponse, DefragmentRequest, DefragmentResponse, DowngradeRequest,
        DowngradeResponse, HashKvRequest, HashKvResponse, HashRequest, HashResponse,
        MoveLeaderRequest, MoveLeaderResponse, SnapshotRequest, SnapshotResponse, StatusRequest,
        StatusResponse, alarm_request::AlarmAction,
        maintenance_server::Maintenance as MaintenanceService,
    },
};

/// Maximum number of restarts of a hash because history was compacted.
const RESTARTS_MAX: u32 = 3;

#[derive(Debug)]
pub(super) struct Maintenance(pub(super) Arc<ReplicaAccess>);

fn saturating_size(bytes: u64) -> i64 {
    i64::try_from(bytes).unwrap_or(i64::MAX)
}

/// Folds a 64-bit hash to the 32 bits of responses.
const fn fold_hash(hash: u64) -> u32 {
    #[expect(clippy::cast_possible_truncation, reason = "both halves are in it")]
    let folded = ((hash >> 32) ^ hash) as u32;
    folded
}

impl Maintenance {
    /// Hashes all data on this node. Returns the last page, which contains the hash.
    async fn hash_revision(&self, asker: &Requester, at: i64) -> Result<HashPage, Status> {
        let first = HashRequestPage { revision: at, ..HashRequestPage::default() };
        let (mut request, mut restarts) = (first.clone(), 0);
        loop {
            let query = Query::Hash(request.clone());
            match self.0.query::<HashPage>(asker, &query, Freshness::Local).await {
                Ok((page, _)) => match HashRequestPage::after_page(&page) {
                    Some(next) => request = next,
                    None => return Ok(page),
                },
                // The partial hash was computed for another compacted revision.
                Err(status)
                    if status.code() == Code::OutOfRange
                        && request.is_begun
                        && restarts < RESTARTS_MAX =>
                {
                    restarts += 1;
                    request = first.clone();
                }
                Err(status) => return Err(status),
            }
        }
    }
}

#[async_trait]
impl MaintenanceService for Maintenance {
    type SnapshotStream = ResponseStream<SnapshotResponse>;

    async fn alarm(
        &self,
        request: Request<AlarmRequest>,
    ) -> Result<Response<AlarmResponse>, Status> {
        let action = AlarmAction::try_from(request.get_ref().action);
        let action =
            action.map_err(|_| Status::invalid_argument("etcdserver: unknown alarm action"))?;
        let needed = match action {
            AlarmAction::Get => Role::Reader,
            AlarmAction::Activate | AlarmAction::Deactivate => Role::Operator,
        };
        let asker = self.0.require_role(&request, needed)?;
        let request = request.into_inner();
        let (mut answer, _): (AlarmResponse, _) = match action {
            AlarmAction::Get => {
                let query = Query::Alarms(request);
                self.0.query(&asker, &query, Freshness::Linearizable).await?
            }
            _ => self.0.execute(&asker, &Command::Alarm(request)).await?,
        };
        self.0.complete_header(&mut answer.header);
        Ok(Response::new(answer))
    }

    async fn status(
        &self,
        request: Request<StatusRequest>,
    ) -> Result<Response<StatusResponse>, Status> {
        let asker = self.0.require_role(&request, Role::Reader)?;
        self.0.require_user(&asker).await?;
        let status = self.0.status().await?;
        let figures = self.0.figures(Freshness::Local).await?;
        let mut errors: Vec<String> = status.error.iter().cloned().collect();
        if status.leader.is_none() {
            errors.push("etcdserver: no leader".to_owned());
        }
        let alarms = self.0.alarms(&asker).await?;
        errors.extend(alarms.iter().map(|alarm| {
            let kind = alarm.alarm().as_str_name();
            // The same text as in etcd.
            format!("memberID:{} alarm:{kind} ", alarm.member_id)
        }));
        let mut peers = status.peers.iter();
        let own = peers.find(|peer| peer.member.node == self.0.node_id());
        Ok(Response::new(StatusResponse {
            header: self.0.response_header(figures.revision),
            version: ETCD_VERSION.to_owned(),
            db_size: saturating_size(figures.bytes),
            leader: status.leader.map_or(0, |leader| u64::from(leader.0)),
            raft_index: status.decided_to.0,
            raft_term: term_of(&status),
            raft_applied_index: status.applied_to.0,
            errors,
            db_size_in_use: saturating_size(figures.bytes),
            is_learner: own.is_none_or(|own| own.weight == 0),
            storage_version: ETCD_VERSION.to_owned(),
            db_size_quota: saturating_size(self.0.quota_bytes),
        }))
    }

    /// Does nothing: the store needs no defragmentation.
    async fn defragment(
        &self,
        request: Request<DefragmentRequest>,
    ) -> Result<Response<DefragmentResponse>, Status> {
        let asker = self.0.require_role(&request, Role::Operator)?;
        self.0.require_root(&asker).await?;
        // As in etcd, the response has no header.
        Ok(Response::new(DefragmentResponse::default()))
    }

    /// Hashes as [`Maintenance::hash_kv`] does, at the current revision.
    async fn hash(&self, request: Request<HashRequest>) -> Result<Response<HashResponse>, Status> {
        let asker = self.0.require_role(&request, Role::Reader)?;
        let page = self.hash_revision(&asker, 0).await?;
        Ok(Response::new(HashResponse {
            header: self.0.response_header(page.revision),
            hash: fold_hash(page.hash),
        }))
    }

    async fn hash_kv(
        &self,
        request: Request<HashKvRequest>,
    ) -> Result<Response<HashKvResponse>, Status> {
        let asker = self.0.require_role(&request, Role::Reader)?;
        let page = self.hash_revision(&asker, request.get_ref().revision).await?;
        Ok(Response::new(HashKvResponse {
            header: self.0.response_header(page.revision),
            hash: fold_hash(page.hash),
            compact_revision: page.compacted_revision,
            hash_revision: page.hashed_revision,
        }))
    }

    async fn snapshot(
        &self,
        request: Request<SnapshotRequest>,
    ) -> Result<Response<Self::SnapshotStream>, Status> {
        // A snapshot contains everything, including access rights.
        let asker = self.0.require_role(&request, Role::Operator)?;
        self.0.require_root(&asker).await?;
        snapshot::start_snapshot(&self.0).await.map(Response::new)
    }

    async fn downgrade(
        &self,
        request: Request<DowngradeRequest>,
    ) -> Result<Response<DowngradeResponse>, Status> {
        let asker = self.0.require_role(&request, Role::Operator)?;
        self.0.require_root(&asker).await?;
        let why = "etcdserver: downgrade is not supported: the versions of Quorate are not those of etcd; take a backup, \
                   and restore it with the version that is wanted";
        Err(Status::failed_precondition(why))
    }

    async fn move_leader(
        &self,
        request: Request<MoveLeaderRequest>,
    ) -> Result<Response<MoveLeaderResponse>, Status> {
        let asker = self.0.require_role(&request, Role::Operator)?;
        self.0.require_root(&asker).await?;
        let bad = || Status::failed_precondition("etcdserver: bad leader transferee");
        let target = u32::try_from(request.get_ref().target_id).map_err(|_| bad())?;
        let status = self.0.status().await?;
        if status.leader != Some(self.0.node_id()) {
            return Err(errors::not_leader());
        }
        let to = NodeId(target);
        let moved = self.0.send_to_node(move |handle| handle.transfer(Some(to)));
        moved.await?.map_err(|_| bad())?;
        // As in etcd, the response has no header.
        Ok(Response::new(MoveLeaderResponse::default()))
    }
}
