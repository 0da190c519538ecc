//! `POST /act`: executes a button's request, or forwards it to the node that must execute it.
//!
//! A page may communicate only with the node that served it, but changes to the group must go to
//! the leader. Only these requests are forwarded. This node authorises the caller, with the same
//! roles that the target would require.

use std::{sync::Arc, time::Duration};

use axum::{
    Extension,
    extract::State,
    http::{StatusCode, header::CONTENT_TYPE},
    response::{IntoResponse as _, Response},
};
use quorate_access::Role;
use quorate_core::node_id::NodeId;
use serde::Deserialize;
use tokio::{sync::Semaphore, task::spawn_blocking};

use super::super::{
    Admin,
    access::{Requester, check_role},
    failure::{Failure, JsonBody},
    handle_members, required_role, snapshot, transfer,
};
use crate::{
    client,
    members::MembersRequest,
    view::{SnapshotRequest, TransferRequest},
};

/// Maximum number of forwarded requests in flight.
const FORWARDED_MAX: usize = 4;
/// Timeout for a forwarded request, longer than any such request takes.
const FORWARD_TIMEOUT: Duration = Duration::from_secs(15);

/// Limits the number of forwarded requests in flight.
#[derive(Clone, Debug)]
pub(in super::super) struct ForwardLimit(Arc<Semaphore>);

impl Default for ForwardLimit {
    fn default() -> Self {
        Self(Arc::new(Semaphore::new(FORWARDED_MAX)))
    }
}

/// Body of `POST /act`.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct ActRequest {
    /// Id of the node that must execute the action.
    node: u32,
    act: ButtonAction,
}

/// Action requested by a button.
#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "snake_case")]
enum ButtonAction {
    /// `POST /transfer`
    Transfer(TransferRequest),
    /// `POST /members`
    Members(MembersRequest),
    /// `POST /snapshot`
    Snapshot(SnapshotRequest),
}

/// Executes or forwards the action. The response is the one that the corresponding path returns.
pub(super) async fn handle_act(
    State(admin): State<Admin>,
    Extension(asker): Extension<Requester>,
    JsonBody(request): JsonBody<ActRequest>,
) -> Result<Response, Failure> {
    // The roles are checked here, because the target only sees this node's certificate, which
    // permits everything.
    let needs = match &request.act {
        ButtonAction::Transfer(_) | ButtonAction::Snapshot(_) => Role::Operator,
        ButtonAction::Members(asked) => required_role(asked),
    };
    check_role(&asker, needs)?;
    if admin.node_id() != Some(NodeId(request.node)) {
        return forward_to_leader(&admin, request).await;
    }
    let admin = State(admin);
    Ok(match request.act {
        ButtonAction::Transfer(asked) => transfer(admin, JsonBody(asked)).await?.into_response(),
        ButtonAction::Members(asked) => {
            handle_members(admin, Extension(asker), JsonBody(asked)).await?.into_response()
        }
        ButtonAction::Snapshot(asked) => snapshot(admin, JsonBody(asked)).await?.into_response(),
    })
}

async fn forward_to_leader(admin: &Admin, request: ActRequest) -> Result<Response, Failure> {
    let ActRequest { node, act } = request;
    let (status, _) = admin.status().await?;
    let mut peers = status.peers.iter();
    let peer = peers.find(|peer| peer.member.node == NodeId(node));
    let address = peer.map(|peer| peer.addresses.admin.clone());
    let Some(address) = address.filter(|address| !address.is_empty()) else {
        let why = "this node does not know yet where to ask that one; nothing was done";
        return Err(Failure::unavailable("unknown_address", why));
    };
    let _place = admin.forward_limit.0.try_acquire().map_err(|_| {
        Failure::unavailable("busy", "too much is being asked of other nodes already")
    })?;
    let (path, body) = match &act {
        ButtonAction::Transfer(asked) => ("/transfer", serde_json::to_string(asked)),
        ButtonAction::Members(asked) => ("/members", serde_json::to_string(asked)),
        ButtonAction::Snapshot(asked) => ("/snapshot", serde_json::to_string(asked)),
    };
    let body = body.expect("texts and numbers are always JSON");
    let asked = spawn_blocking(move || client::post(&address, path, &body, FORWARD_TIMEOUT)).await;
    let answer = match asked {
        Ok(Ok(answer)) => answer,
        Ok(Err(error)) => return Err(unreachable_failure(&error.to_string())),
        Err(_) => return Err(unreachable_failure("it could not be asked")),
    };
    let status = StatusCode::from_u16(answer.status).unwrap_or(StatusCode::BAD_GATEWAY);
    let kind = [(CONTENT_TYPE, "application/json")];
    Ok((status, kind, answer.body).into_response())
}

fn unreachable_failure(why: &str) -> Failure {
    Failure::new(
        StatusCode::BAD_GATEWAY,
        "unreachable",
        why,
        "it may have been done: look, or open the page of that node",
    )
}
