//! The service Cluster: who belongs to it.

use std::sync::Arc;

use quorate::Role;
use tonic::{Request, Response, Status, async_trait};

use super::{
    asking::{Asking, Freshness},
    errors,
};
use crate::proto::etcdserverpb::{
    Member, MemberAddRequest, MemberAddResponse, MemberListRequest, MemberListResponse,
    MemberPromoteRequest, MemberPromoteResponse, MemberRemoveRequest, MemberRemoveResponse,
    MemberUpdateRequest, MemberUpdateResponse, cluster_server::Cluster as ClusterService,
};

/// How members are changed instead.
const CHANGES: &str = "changing members over this interface (use 'quorate member')";

#[derive(Debug)]
pub(super) struct Cluster(pub(super) Arc<Asking>);

impl Cluster {
    async fn members(&self) -> Result<Vec<Member>, Status> {
        let status = self.0.status().await?;
        let scheme = match self.0.secure {
            true => "https",
            false => "http",
        };
        let urls = |address: &str| match address {
            "" => Vec::new(),
            address => vec![format!("{scheme}://{address}")],
        };
        let members = status.peers.iter().map(|peer| Member {
            id: u64::from(peer.member.node.0),
            name: peer.member.node.to_string(),
            peer_ur_ls: urls(&peer.addresses.peer),
            client_ur_ls: urls(&peer.addresses.client),
            is_learner: peer.weight == 0,
        });
        Ok(members.collect())
    }
}

#[async_trait]
impl ClusterService for Cluster {
    async fn member_add(
        &self,
        _: Request<MemberAddRequest>,
    ) -> Result<Response<MemberAddResponse>, Status> {
        Err(errors::missing(CHANGES))
    }

    async fn member_remove(
        &self,
        _: Request<MemberRemoveRequest>,
    ) -> Result<Response<MemberRemoveResponse>, Status> {
        Err(errors::missing(CHANGES))
    }

    async fn member_update(
        &self,
        _: Request<MemberUpdateRequest>,
    ) -> Result<Response<MemberUpdateResponse>, Status> {
        Err(errors::missing(CHANGES))
    }

    async fn member_list(
        &self,
        request: Request<MemberListRequest>,
    ) -> Result<Response<MemberListResponse>, Status> {
        let asker = self.0.allow(&request, Role::Reader)?;
        self.0.needs_user(&asker).await?;
        if request.get_ref().linearizable {
            // This node is then as far as everybody was.
            self.0.figures(Freshness::Linearizable).await?;
        }
        let members = self.members().await?;
        Ok(Response::new(MemberListResponse {
            header: self.0.header(0),
            members,
        }))
    }

    async fn member_promote(
        &self,
        _: Request<MemberPromoteRequest>,
    ) -> Result<Response<MemberPromoteResponse>, Status> {
        Err(errors::missing(CHANGES))
    }
}
