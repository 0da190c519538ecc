//! Admission of nodes by the founder ([era-11]).

use quorate_wire::{Join, RefusalCode};

use crate::{
    founding::hash_members,
    home::Home,
    host::{Founded, JoinRefusal},
    identity::{Founding, Identity, IdentityError},
};

/// Returns the founding record as sent to every node of the group.
pub(crate) fn founding_record(founding: &Founding) -> Founded {
    let members = founding.members.iter();
    Founded {
        cluster: founding.cluster,
        class: founding.class,
        store: founding.store.clone(),
        members: members.map(|(node, address)| (*node, address.clone())).collect(),
        terms: founding.terms.clone(),
    }
}

/// Answers, as the founder, a node without a cluster. An admission is durable when this returns.
pub(crate) fn admit_join<H: Home>(
    identity: &mut Identity<H>,
    join: Join,
) -> Result<Founded, JoinRefusal> {
    let refused = |code, reason: String| Err(JoinRefusal { code, reason });
    let founding = identity.founding();
    let members = &founding.members;
    if members.keys().next() != Some(&founding.node) {
        let reason = format!("node {} did not found this cluster", founding.node);
        return refused(RefusalCode::NotFounder, reason);
    }
    if !members.contains_key(&join.node) {
        let reason = format!("node {} is not a member of this cluster", join.node);
        return refused(RefusalCode::UnknownNode, reason);
    }
    if join.node == founding.node {
        let reason = format!("node {} is the founder itself", join.node);
        return refused(RefusalCode::DuplicateNode, reason);
    }
    if join.list_hash != hash_members(members, &founding.terms) {
        let reason = "its --cluster, --auxiliary or --quorum differs from the founder's".to_owned();
        return refused(RefusalCode::ListDiffers, reason);
    }
    let founded = founding_record(founding);
    match identity.admit_node(join.node, join.nonce) {
        Ok(()) => Ok(founded),
        Err(error @ IdentityError::AlreadyAdmitted { .. }) => {
            refused(RefusalCode::DuplicateNode, error.to_string())
        }
        // The node may retry.
        Err(error) => refused(RefusalCode::Other(0), error.to_string()),
    }
}
