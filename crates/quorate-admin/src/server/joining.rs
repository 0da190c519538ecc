//! A folder wants to join: it is dialled back, gets an id by the log, and is told what it has to know.

use std::net::{IpAddr, SocketAddr};

use axum::http::StatusCode;
use quorate_core::node_id::NodeId;
use quorate_net::{GroupError, Handle, Unanswered, host::Charter, waits_at};
use quorate_replica::group::{
    As,
    asking::{Answer, Ask},
};

use super::failure::Failure;
use crate::joining::{
    JoinAnswer, JoinRequest, LOOPBACK_PEER, MembersAnswer, MembersRequest, Place, UNREACHABLE_PEER,
};

/// Gives an id to a folder. Asked again, the same one ([join-2]).
pub(super) fn join(handle: &Handle, request: &JoinRequest) -> Result<JoinAnswer, Failure> {
    let (nonce, role) = understood(request)?;
    let charter = handle.charter().map_err(Failure::unanswered)?;
    let via = request.via.as_deref().and_then(|text| text.parse().ok());
    make_reachable(handle, &charter, via)?;
    // Who cannot be dialled now would be a member that nobody reaches.
    waits_at(&request.peer, nonce).map_err(|why| {
        let node = charter.node;
        let what = format!("node {node} cannot dial it at {}: {why}", request.peer);
        let hint = "start it with a --peer address that the other nodes can dial";
        Failure::new(StatusCode::CONFLICT, UNREACHABLE_PEER, &what, hint)
    })?;
    let ask = Ask::Join {
        nonce,
        node: request.node.map(NodeId),
        peer: request.peer.clone(),
        role,
    };
    let answer = handle.group(ask, false).map_err(Failure::group)?;
    let Answer::Node(node) = answer else {
        return Err(Failure::unavailable("failed", "it got no id"));
    };
    let charter = handle.charter().map_err(Failure::unanswered)?;
    Ok(told(&charter, node))
}

/// Does what is wanted of the members.
pub(super) fn change(handle: &Handle, request: &MembersRequest) -> Result<MembersAnswer, Failure> {
    let MembersRequest::Promote(node) = *request;
    let answer = handle.group(Ask::Promote(NodeId(node)), false);
    let plan = match answer.map_err(Failure::group)? {
        Answer::Planned(plan, _) => plan,
        Answer::Node(_) | Answer::Done | Answer::Already => None,
    };
    Ok(MembersAnswer { plan })
}

fn understood(request: &JoinRequest) -> Result<(u64, As), Failure> {
    let bad = |what| {
        let status = StatusCode::UNPROCESSABLE_ENTITY;
        let hint = "docs/operate.md shows the body";
        Failure::new(status, "bad_request", what, hint)
    };
    let nonce = u64::from_str_radix(&request.nonce, 16);
    let nonce = nonce.map_err(|_| bad("nonce is a hexadecimal number"))?;
    let role = As::named(&request.role);
    let role = role.ok_or_else(|| bad("as is voter, learner or auxiliary"))?;
    Ok((nonce, role))
}

/// Others must be able to dial this node, and the group must know where: a node that was founded alone may
/// listen everywhere, or elsewhere than at its founding.
fn make_reachable(handle: &Handle, charter: &Charter, via: Option<IpAddr>) -> Result<(), Failure> {
    let Some(via) = via.filter(|via| !via.is_unspecified()) else {
        return Ok(());
    };
    let status = handle.status().map_err(Failure::unanswered)?;
    let own = charter.node;
    let peer = status.peers.iter().find(|peer| peer.member.node == own);
    let listens = peer.map(|peer| peer.addresses.peer.as_str());
    // A name is what an operator gave.
    let Some(listens) = listens.and_then(|text| text.parse::<SocketAddr>().ok()) else {
        return Ok(());
    };
    let reached = match listens.ip() {
        ip if ip.is_unspecified() => SocketAddr::new(via, listens.port()),
        ip if ip.is_loopback() && !via.is_loopback() => {
            let what = format!(
                "node {own} listens for peers at {listens}, where only its own machine can dial it"
            );
            let hint = "start it again with a --peer address that the other nodes can dial";
            return Err(Failure::new(
                StatusCode::CONFLICT,
                LOOPBACK_PEER,
                &what,
                hint,
            ));
        }
        _ => listens,
    };
    let reached = reached.to_string();
    if charter.book.peers.get(&own) != Some(&reached) {
        let moved = handle.group(Ask::Address(own, reached), false);
        moved.map_err(Failure::group)?;
    }
    Ok(())
}

fn told(charter: &Charter, node: NodeId) -> JoinAnswer {
    let Charter { founded, book, .. } = charter;
    let place = |(node, peer): (&NodeId, &String)| Place {
        node: node.0,
        peer: peer.clone(),
    };
    let founding = founded.members.iter().map(|(node, peer)| (node, peer));
    JoinAnswer {
        cluster: format!("{:032x}", founded.cluster),
        node: node.0,
        durability: founded.class.name().to_owned(),
        store: founded.store.clone(),
        founding: founding.map(place).collect(),
        at: book.at.0,
        peers: book.peers.iter().map(place).collect(),
        removed: book.removed.iter().map(|node| node.0).collect(),
    }
}

impl Failure {
    /// Nothing came of what was asked of the group.
    fn group(error: GroupError) -> Self {
        let refused = match error {
            GroupError::Unanswered(Unanswered::TimedOut) => {
                let what = "it may have been done, or may yet be; asking again is harmless";
                return Self::unavailable("unknown_outcome", what);
            }
            GroupError::Unanswered(why) => return Self::unanswered(why),
            GroupError::Refused(refused) => refused,
        };
        let status = match refused.code {
            "unknown_outcome" | "stopping" | "busy" | "unavailable" | "no_quorum" => {
                StatusCode::SERVICE_UNAVAILABLE
            }
            _ => StatusCode::CONFLICT,
        };
        Self::new(status, refused.code, &refused.message, refused.hint)
    }
}
