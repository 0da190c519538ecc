//! The etcd Cluster service: lists and changes the members.
//!
//! Adding a member reserves an id, which a node later takes with `quorate start --join`. The node
//! becomes a voter once it is caught up, automatically or by promotion. Changes of voters are plans
//! of the group; the response is sent when they are complete.

use std::{sync::Arc, time::Duration};

use quorate::{
    NodeId, Role,
    members::{
        GroupAnswer, GroupError, GroupRefusal, GroupRequest, ListedNode, MemberList, MemberRole,
    },
};
use tokio::time::{Instant, sleep};
use tonic::{Request, Response, Status, async_trait};

use super::{
    asking::{Freshness, ReplicaAccess},
    errors,
    gate::Requester,
};
use crate::proto::etcdserverpb::{
    Member, MemberAddRequest, MemberAddResponse, MemberListRequest, MemberListResponse,
    MemberPromoteRequest, MemberPromoteResponse, MemberRemoveRequest, MemberRemoveResponse,
    MemberUpdateRequest, MemberUpdateResponse, cluster_server::Cluster as ClusterService,
};

/// Maximum time for which a response waits for a change to complete.
const PLAN_TIMEOUT: Duration = Duration::from_secs(10);
/// Polling interval of changes in progress.
const PLAN_POLL_INTERVAL: Duration = Duration::from_millis(50);

#[derive(Debug)]
pub(super) struct Cluster(pub(super) Arc<ReplicaAccess>);

fn bad_urls() -> Status {
    Status::invalid_argument("etcdserver: given member URLs are invalid")
}

fn member_not_found() -> Status {
    Status::not_found("etcdserver: member not found")
}

/// Returns the peer address in a request's list of URLs, which must have exactly one entry.
fn peer_address(urls: &[String]) -> Result<String, Status> {
    let [url] = urls else {
        return Err(bad_urls());
    };
    let stripped = ["http://", "https://"].iter().find_map(|scheme| url.strip_prefix(scheme));
    let address = stripped.ok_or_else(bad_urls)?;
    let port = address.rsplit_once(':').filter(|(host, _)| !host.is_empty());
    match port.and_then(|(_, port)| port.parse::<u16>().ok()) {
        Some(_) if !address.contains(['/', '?', '#', '@', ' ']) => Ok(address.to_owned()),
        _ => Err(bad_urls()),
    }
}

/// Converts the group's refusal to the error that etcd's clients expect.
fn refusal_status(GroupRefusal { code, message, hint }: GroupRefusal) -> Status {
    let said = format!("etcdserver: {message}; {hint}");
    match code {
        "unknown_node" | "removed" => member_not_found(),
        "not_caught_up" | "not_connected" => Status::failed_precondition(
            "etcdserver: can only promote a learner member which is in sync with leader",
        ),
        "last_voter" | "too_few_alive" | "impossible" => Status::failed_precondition(
            "etcdserver: re-configuration failed due to not enough started members",
        ),
        "bad_address" => bad_urls(),
        "address_taken" => Status::failed_precondition("etcdserver: Peer URLs already exists"),
        // etcd has no messages for these. The conflicting operation will end, and the client may
        // retry.
        "under_way" | "other_era" | "busy" => Status::unavailable(said),
        "unknown_outcome" => unknown_outcome(),
        _ => Status::failed_precondition(said),
    }
}

/// Returns the error for an unknown outcome, on which clients do not retry automatically.
fn unknown_outcome() -> Status {
    Status::unavailable("etcdserver: request timed out")
}

fn group_error_status(error: GroupError) -> Status {
    match error {
        GroupError::Refused(why) => refusal_status(why),
        GroupError::Unanswered(_) => unknown_outcome(),
    }
}

impl Cluster {
    async fn member_table(&self) -> Result<MemberList, Status> {
        let members = self.0.send_to_node(quorate::Handle::members).await?;
        members.map_err(|_| errors::server_stopped())
    }

    /// Returns all members that have an id, according to this node's local state.
    async fn members(&self) -> Result<Vec<Member>, Status> {
        let known = self.member_table().await?;
        let status = self.0.status().await?;
        let scheme = match self.0.uses_tls {
            true => "https",
            false => "http",
        };
        let urls = |address: &str| match address {
            "" => Vec::new(),
            address => vec![format!("{scheme}://{address}")],
        };
        let member = |listed: &ListedNode| {
            let node = listed.node;
            let peer = status.peers.iter().find(|peer| peer.member.node == node);
            // A reserved member that has not started has neither an address nor a name.
            let name = peer.map_or_else(String::new, |_| node.to_string());
            let address = peer.map(|peer| &peer.addresses);
            let own = address.map_or("", |own| &own.peer);
            Member {
                id: u64::from(node.0),
                name,
                peer_ur_ls: urls(if own.is_empty() { &listed.entry.peer } else { own }),
                client_ur_ls: urls(address.map_or("", |own| &own.client)),
                is_learner: listed.weight == 0,
            }
        };
        Ok(known.nodes.iter().map(member).collect())
    }

    /// Sends a request to the group and waits until its plan is complete.
    async fn change_group(&self, ask: GroupRequest) -> Result<GroupAnswer, Status> {
        let answer = self.0.send_to_node(move |handle| handle.ask_group(ask, false)).await?;
        let answer = answer.map_err(group_error_status)?;
        if let GroupAnswer::Planned(Some(plan), _) = answer {
            self.wait_for_plan(plan).await?;
        }
        Ok(answer)
    }

    /// Waits until a plan is complete. On a timeout the plan continues, and a repeated request
    /// waits for it again.
    async fn wait_for_plan(&self, plan: u64) -> Result<(), Status> {
        let begun = Instant::now();
        while begun.elapsed() < PLAN_TIMEOUT {
            let known = self.member_table().await?;
            if known.plan.is_none_or(|underway| underway.id != plan) {
                return Ok(());
            }
            sleep(PLAN_POLL_INTERVAL).await;
        }
        Err(unknown_outcome())
    }

    /// Waits until this node reflects everything acknowledged before.
    async fn wait_until_current(&self) -> Result<(), Status> {
        self.0.figures(Freshness::Linearizable).await.map(drop)
    }

    /// Finds a member in any state, linearizably.
    async fn find_member(&self, id: u64) -> Result<ListedNode, Status> {
        self.wait_until_current().await?;
        let known = self.member_table().await?;
        let found = known.nodes.into_iter().find(|listed| u64::from(listed.node.0) == id);
        found.ok_or_else(member_not_found)
    }

    /// Requires the role that may change the membership ([access-1]).
    async fn require_role<T>(&self, request: &Request<T>) -> Result<Requester, Status> {
        let asker = self.0.require_role(request, Role::Admin)?;
        self.0.require_root(&asker).await?;
        Ok(asker)
    }
}

#[async_trait]
impl ClusterService for Cluster {
    async fn member_add(
        &self,
        request: Request<MemberAddRequest>,
    ) -> Result<Response<MemberAddResponse>, Status> {
        self.require_role(&request).await?;
        let request = request.into_inner();
        let peer = peer_address(&request.peer_ur_ls)?;
        let known = self.member_table().await?;
        if known.nodes.iter().any(|listed| listed.entry.peer == peer) {
            return Err(Status::failed_precondition("etcdserver: Peer URLs already exists"));
        }
        let role = match request.is_learner {
            true => MemberRole::Learner,
            false => MemberRole::Voter,
        };
        let GroupAnswer::Node(NodeId(id)) =
            self.change_group(GroupRequest::Reserve { peer, role }).await?
        else {
            return Err(Status::internal("etcdserver: no id was given out"));
        };
        Ok(Response::new(MemberAddResponse {
            header: self.0.response_header(0),
            member: Some(Member {
                id: u64::from(id),
                name: String::new(),
                peer_ur_ls: request.peer_ur_ls,
                client_ur_ls: Vec::new(),
                is_learner: request.is_learner,
            }),
            members: self.members().await?,
        }))
    }

    async fn member_remove(
        &self,
        request: Request<MemberRemoveRequest>,
    ) -> Result<Response<MemberRemoveResponse>, Status> {
        self.require_role(&request).await?;
        let listed = self.find_member(request.get_ref().id).await?;
        self.change_group(GroupRequest::Remove(listed.node)).await?;
        Ok(Response::new(MemberRemoveResponse {
            header: self.0.response_header(0),
            members: self.members().await?,
        }))
    }

    async fn member_update(
        &self,
        request: Request<MemberUpdateRequest>,
    ) -> Result<Response<MemberUpdateResponse>, Status> {
        self.require_role(&request).await?;
        let request = request.into_inner();
        let peer = peer_address(&request.peer_ur_ls)?;
        let listed = self.find_member(request.id).await?;
        self.change_group(GroupRequest::Address(listed.node, peer)).await?;
        Ok(Response::new(MemberUpdateResponse {
            header: self.0.response_header(0),
            members: self.members().await?,
        }))
    }

    async fn member_list(
        &self,
        request: Request<MemberListRequest>,
    ) -> Result<Response<MemberListResponse>, Status> {
        let asker = self.0.require_role(&request, Role::Reader)?;
        self.0.require_user(&asker).await?;
        if request.get_ref().linearizable {
            self.wait_until_current().await?;
        }
        let members = self.members().await?;
        Ok(Response::new(MemberListResponse { header: self.0.response_header(0), members }))
    }

    async fn member_promote(
        &self,
        request: Request<MemberPromoteRequest>,
    ) -> Result<Response<MemberPromoteResponse>, Status> {
        self.require_role(&request).await?;
        let listed = self.find_member(request.get_ref().id).await?;
        if listed.weight > 0 {
            let what = "etcdserver: can only promote a learner member";
            return Err(Status::failed_precondition(what));
        }
        self.change_group(GroupRequest::Promote(listed.node)).await?;
        Ok(Response::new(MemberPromoteResponse {
            header: self.0.response_header(0),
            members: self.members().await?,
        }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn member_has_exactly_one_valid_peer_url() {
        let peer = |urls: &[&str]| {
            let urls: Vec<String> = urls.iter().map(|url| (*url).to_owned()).collect();
            peer_address(&urls).ok()
        };
        assert_eq!(peer(&["http://h:2380"]).as_deref(), Some("h:2380"));
        assert_eq!(peer(&["https://[::1]:1"]).as_deref(), Some("[::1]:1"));
        let bad: [&[&str]; 8] = [
            &[],
            &["http://a:1", "http://b:1"],
            &["h:2380"],
            &["http://h"],
            &["http://:1"],
            &["http://h:70000"],
            &["http://h:1/path"],
            &["unix://h:1"],
        ];
        for urls in bad {
            assert_eq!(peer(urls), None, "{urls:?}");
        }
    }
}
