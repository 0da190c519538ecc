//! Handlers that list and change users and their roles.

use axum::{Json, extract::State, http::StatusCode};
use quorate_replica::{group::asking::GroupRequest, status::Peer};

use super::{
    Admin, UNKNOWN_USERS_TEXT,
    failure::{Failure, JsonBody},
};
use crate::users::{UsersRequest, UsersView};

pub(super) async fn handle_users(State(admin): State<Admin>) -> Result<Json<UsersView>, Failure> {
    let users = admin.run_blocking(|handle, _| handle.users()).await?;
    match users.map_err(Failure::unanswered)? {
        Some(users) => Ok(Json(UsersView::new(&users))),
        None => Err(Failure::unavailable("unknown_users", UNKNOWN_USERS_TEXT)),
    }
}

/// Changes the users' table. Requires the JSON content type for the same reason as `transfer`.
pub(super) async fn handle_change(
    State(admin): State<Admin>,
    JsonBody(request): JsonBody<UsersRequest>,
) -> Result<Json<UsersView>, Failure> {
    let certified = admin.protection.trust().is_some();
    let changed = admin.run_blocking(move |handle, _| {
        let anyway = request.ignores_disconnected();
        let command = request.into_command().map_err(|why| Failure::bad_request(&why))?;
        let users = handle.users().map_err(Failure::unanswered)?;
        let users = users.ok_or_else(|| Failure::unavailable("unknown_users", UNKNOWN_USERS_TEXT))?;
        if let Ok(after) = users.after_command(command.clone())
            && !after.is_unrestricted()
        {
            if !certified && !after.has_admin_with_password() {
                return Err(Failure::new(
                    StatusCode::CONFLICT,
                    "no_way_in",
                    "users could not be changed any more: this node asks for no certificates, and no admin has a password",
                    "give an admin a password: `quorate user set NAME --role admin --password-file FILE`",
                ));
            }
            if users.is_unrestricted() && !anyway {
                let status = handle.status().map_err(Failure::unanswered)?;
                check_all_connected(&status.peers)?;
            }
        }
        let done = handle.ask_group(GroupRequest::Users(command), false);
        done.map_err(Failure::from_group_error)?;
        let users = handle.users().map_err(Failure::unanswered)?;
        Ok(UsersView::new(&users.unwrap_or_default()))
    });
    changed.await?.map(Json)
}

/// [access-2] Refuses to create the first user while a node is disconnected. Until it has caught
/// up, that node would use its empty table, which admits every client. A starting node uses no
/// table ([access-4]), and an auxiliary serves no clients.
fn check_all_connected(peers: &[Peer]) -> Result<(), Failure> {
    let away = |peer: &&Peer| !peer.connected && !peer.auxiliary;
    let away = peers.iter().filter(away);
    let away: Vec<String> = away.map(|peer| peer.member.node.to_string()).collect();
    if away.is_empty() {
        return Ok(());
    }
    let (noun, verb) = if away.len() == 1 { ("node", "is") } else { ("nodes", "are") };
    let what = format!(
        "{noun} {} {verb} not connected, and would let every client in until caught up, unless it is restarted",
        away.join(", ")
    );
    Err(Failure::new(
        StatusCode::CONFLICT,
        "nodes_away",
        &what,
        "make the first user when all nodes are up; remove those that will not come back with `quorate member remove N`; or \
         say --yes to make it all the same",
    ))
}

#[cfg(test)]
mod tests {
    use quorate_core::node_id::Member;
    use quorate_replica::status::{Addresses, PeerPlane};

    use super::*;

    fn peer(node: u32, connected: bool, auxiliary: bool) -> Peer {
        Peer {
            member: Member::first(node),
            weight: 1,
            auxiliary,
            connected,
            lag: None,
            payload_bytes_sent: 0,
            engaged: None,
            addresses: Addresses::default(),
            plane: PeerPlane::default(),
        }
    }

    #[test]
    fn disconnected_nodes_are_named_in_the_refusal() {
        let (here, away, auxiliary) =
            (peer(1, true, false), |node| peer(node, false, false), peer(4, false, true));
        assert!(check_all_connected(&[here.clone(), auxiliary.clone()]).is_ok());
        let why = |peers: &[Peer]| format!("{:?}", check_all_connected(peers).unwrap_err());
        let one = why(&[here.clone(), away(2), auxiliary]);
        assert!(one.contains("nodes_away") && one.contains("node 2 is not"), "{one}");
        let both = why(&[here, away(2), away(3)]);
        assert!(both.contains("nodes 2, 3 are not"), "{both}");
    }
}
