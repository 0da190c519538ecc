//! `POST /join`: dials the joining node, has the group assign it an id, and returns the description
//! of the cluster.

use std::net::{IpAddr, SocketAddr};

use axum::http::StatusCode;
use quorate_core::node_id::NodeId;
use quorate_net::{Handle, check_waiting_at, host::JoinData};
use quorate_replica::group::{
    MemberRole,
    asking::{GroupAnswer, GroupRequest, ListedNode},
};

use quorate_tls::NodeTrust;

use super::failure::Failure;
use crate::joining::{JoinAnswer, JoinRequest, LOOPBACK_PEER_CODE, Place, UNREACHABLE_PEER_CODE};

/// Assigns an id to the data folder. A retry gets the same id ([join-2]).
pub(super) fn assign_id(
    handle: &Handle,
    request: &JoinRequest,
    trust: Option<&NodeTrust>,
) -> Result<JoinAnswer, Failure> {
    let (nonce, role) = parse_request(request)?;
    let charter = handle.charter().map_err(Failure::unanswered)?;
    let via = request.via.as_deref().and_then(|text| text.parse().ok());
    ensure_own_address(handle, &charter, via)?;
    // A node that cannot be dialled now would become an unreachable member.
    check_waiting_at(&request.peer, nonce, trust).map_err(|why| {
        let node = charter.node;
        let what = format!("node {node} cannot connect to it at {}: {why}", request.peer);
        let hint = "start it with a --peer address that the other nodes can reach";
        Failure::new(StatusCode::CONFLICT, UNREACHABLE_PEER_CODE, &what, hint)
    })?;
    let node = match request.node {
        Some(node) => Some(NodeId(node)),
        None => reserved_id(handle, &request.peer)?,
    };
    let ask = GroupRequest::Join { nonce, node, peer: request.peer.clone(), role };
    let answer = handle.ask_group(ask, false).map_err(Failure::from_group_error)?;
    let GroupAnswer::Node(node) = answer else {
        return Err(Failure::unavailable("failed", "it got no id"));
    };
    let charter = handle.charter().map_err(Failure::unanswered)?;
    let members = handle.members().map_err(Failure::unanswered)?;
    let mut listed = members.nodes.iter();
    let learns =
        listed.any(|listed| listed.node == node && listed.entry.role == MemberRole::Learner);
    Ok(join_answer(&charter, node, learns))
}

/// Returns the id reserved for a peer address, if any. The caller must have dialled it.
fn reserved_id(handle: &Handle, peer: &str) -> Result<Option<NodeId>, Failure> {
    let members = handle.members().map_err(Failure::unanswered)?;
    let waits = |listed: &&ListedNode| !listed.entry.has_joined() && listed.entry.peer == peer;
    Ok(members.nodes.iter().find(waits).map(|listed| listed.node))
}

fn parse_request(request: &JoinRequest) -> Result<(u64, MemberRole), Failure> {
    let bad = |what| {
        let status = StatusCode::UNPROCESSABLE_ENTITY;
        let hint = "docs/operate.md shows the body";
        Failure::new(status, "bad_request", what, hint)
    };
    let nonce = u64::from_str_radix(&request.nonce, 16);
    let nonce = nonce.map_err(|_| bad("nonce is a hexadecimal number"))?;
    let role = MemberRole::from_name(&request.role);
    let role = role.ok_or_else(|| bad("as is voter, learner or auxiliary"))?;
    Ok((nonce, role))
}

/// Ensures that the group has an address at which other nodes can dial this one. The only node of a
/// cluster may have moved since the founding, so its address is updated. With several nodes,
/// operators choose the address, unless it is unspecified or loopback.
fn ensure_own_address(
    handle: &Handle,
    charter: &JoinData,
    via: Option<IpAddr>,
) -> Result<(), Failure> {
    let Some(via) = via.filter(|via| !via.is_unspecified()) else {
        return Ok(());
    };
    let (own, peers) = (charter.node, &charter.address_book.peers);
    let known = peers.get(&own).cloned();
    let address = if peers.len() == 1 {
        let status = handle.status().map_err(Failure::unanswered)?;
        let mut members = status.peers.into_iter();
        let member = members.find(|peer| peer.member.node == own);
        member.map(|member| member.addresses.peer)
    } else {
        known.clone()
    };
    // A host name was chosen by an operator, so it is not replaced.
    let Some(listens) = address.and_then(|text| text.parse().ok()) else {
        return Ok(());
    };
    let reached = dialable_address(own, listens, via)?.to_string();
    if known.as_ref() != Some(&reached) {
        let moved = handle.ask_group(GroupRequest::Address(own, reached), false);
        moved.map_err(Failure::from_group_error)?;
    }
    Ok(())
}

/// Returns the address at which peers can dial this node, which a joining node reached at `via`.
fn dialable_address(own: NodeId, listens: SocketAddr, via: IpAddr) -> Result<SocketAddr, Failure> {
    match listens.ip() {
        ip if ip.is_unspecified() => Ok(SocketAddr::new(via, listens.port())),
        ip if ip.is_loopback() && !via.is_loopback() => {
            let what = format!(
                "node {own} listens for peers at {listens}, where only its own machine can reach it"
            );
            let hint = "restart it with a --peer address that the other nodes can reach";
            let status = StatusCode::CONFLICT;
            Err(Failure::new(status, LOOPBACK_PEER_CODE, &what, hint))
        }
        _ => Ok(listens),
    }
}

fn join_answer(charter: &JoinData, node: NodeId, learns: bool) -> JoinAnswer {
    let JoinData { founded, address_book: book, .. } = charter;
    let place = |(node, peer): (&NodeId, &String)| Place { node: node.0, peer: peer.clone() };
    let founding = founded.members.iter().map(|(node, peer)| (node, peer));
    JoinAnswer {
        cluster: format!("{:032x}", founded.cluster),
        node: node.0,
        durability: founded.class.name().to_owned(),
        store: founded.store.clone(),
        founding: founding.map(place).collect(),
        auxiliaries: founded.terms.auxiliaries.iter().map(|node| node.0).collect(),
        quorum: founded.terms.quorum_rule.to_string(),
        at: book.as_of_slot.0,
        peers: book.peers.iter().map(place).collect(),
        removed: book.removed_nodes.iter().map(|node| node.0).collect(),
        learns,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn join_needs_an_address_that_others_can_dial() {
        let reached = |listens: &str, via: &str| {
            let (listens, via) = (listens.parse().unwrap(), via.parse().unwrap());
            dialable_address(NodeId(1), listens, via).map(|address| address.to_string())
        };
        for (listens, via, expected) in [
            ("0.0.0.0:7451", "10.0.0.1", "10.0.0.1:7451"),
            ("[::]:7451", "10.0.0.1", "10.0.0.1:7451"),
            ("0.0.0.0:7451", "127.0.0.1", "127.0.0.1:7451"),
            ("10.0.0.1:7451", "192.168.0.1", "10.0.0.1:7451"),
            ("127.0.0.1:7451", "127.0.0.1", "127.0.0.1:7451"),
        ] {
            assert_eq!(reached(listens, via).unwrap(), expected);
        }
        let refused = reached("127.0.0.1:7451", "10.0.0.1").unwrap_err();
        let expected =
            "node 1 listens for peers at 127.0.0.1:7451, where only its own machine can reach it";
        assert!(format!("{refused:?}").contains(expected));
        assert!(format!("{refused:?}").contains(LOOPBACK_PEER_CODE));
    }

    #[test]
    fn join_request_is_parsed_or_refused() {
        let request = |nonce: &str, role: &str| JoinRequest {
            nonce: nonce.to_owned(),
            peer: "a:1".to_owned(),
            role: role.to_owned(),
            node: None,
            via: None,
        };
        let understood = |nonce, role| parse_request(&request(nonce, role)).ok();
        assert_eq!(understood("ff", "learner"), Some((255, MemberRole::Learner)));
        assert_eq!(understood("1123456789abcdef0", "voter"), None);
        assert_eq!(understood("", "voter"), None);
        assert_eq!(understood("1", "king"), None);
    }
}
