//! Who may talk to this node: the judgement over a `Hello` or a `Welcome`. Pure.

use quorate_core::node_id::NodeId;
use quorate_wire::{Hello, PROTOCOL_VERSION, RefusalCode};

use crate::{host::Refused, identity::Identity};

/// What a node asks of who greets it.
#[derive(Clone, Copy, Debug)]
pub struct Expectation<'a> {
    /// This node.
    pub identity: &'a Identity,
    /// The nodes that it knows.
    pub known: &'a [NodeId],
    /// Whom it dialled, if it did.
    pub dialled: Option<NodeId>,
    /// The process start of the connected peer with the greeter's id, if there is one that lives.
    pub connected_boot: Option<u32>,
}

/// `Ok` if the greeter may speak. The order of checks is the order of what an operator must know
/// first: a foreign cluster explains everything else.
pub fn judge(expected: &Expectation<'_>, hello: &Hello<'_>) -> Result<(), Refused> {
    let identity = expected.identity;
    let (me, greeter) = (identity.member.node, hello.from.node);
    let refuse = |code, reason: String| Err(Refused { code, reason });
    if hello.version != PROTOCOL_VERSION {
        return refuse(
            RefusalCode::Version,
            format!(
                "node {greeter} speaks protocol version {}, node {me} speaks {PROTOCOL_VERSION}",
                hello.version
            ),
        );
    }
    if hello.cluster != identity.cluster {
        return refuse(
            RefusalCode::ForeignCluster,
            // Strangers are not told the id: with it they could greet as a peer.
            format!("node {greeter} does not belong to the cluster of node {me}"),
        );
    }
    if greeter == me {
        return refuse(
            RefusalCode::DuplicateNode,
            format!("both ends say that they are node {me}"),
        );
    }
    if hello.to != me || expected.dialled.is_some_and(|dialled| dialled != greeter) {
        let meant = expected.dialled.unwrap_or(hello.to);
        let found = if expected.dialled.is_some() {
            greeter
        } else {
            me
        };
        return refuse(
            RefusalCode::WrongNode,
            format!("node {meant} was expected at this address, node {found} is there"),
        );
    }
    if !expected.known.contains(&greeter) {
        return refuse(
            RefusalCode::UnknownNode,
            format!("node {greeter} is not among the nodes that node {me} knows"),
        );
    }
    if expected.dialled.is_none() && greeter < me {
        return refuse(
            RefusalCode::Unexpected,
            format!("node {me} dials node {greeter}, not the other way round"),
        );
    }
    if let Some(boot) = expected.connected_boot.filter(|boot| *boot > hello.boot) {
        return refuse(
            RefusalCode::DuplicateNode,
            format!(
                "a newer process is connected as node {greeter} (boot {boot} > {})",
                hello.boot
            ),
        );
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use quorate_core::node_id::Member;
    use quorate_replica::status::Addresses;
    use quorate_wire::Lane;

    fn check(change: impl FnOnce(&mut Hello<'_>, &mut Expectation<'_>), expected: &str) {
        let identity = Identity {
            cluster: 0xc,
            member: Member::first(2),
            boot: 7,
            addresses: Addresses::default(),
        };
        let known = [NodeId(1), NodeId(2), NodeId(3)];
        let mut expectation = Expectation {
            identity: &identity,
            known: &known,
            dialled: None,
            connected_boot: None,
        };
        let mut hello = Hello {
            version: PROTOCOL_VERSION,
            cluster: 0xc,
            from: Member::first(3),
            boot: 5,
            to: NodeId(2),
            lane: Lane::Control,
            client: "",
            admin: "",
        };
        change(&mut hello, &mut expectation);
        let judged = match judge(&expectation, &hello) {
            Ok(()) => "ok".to_owned(),
            Err(Refused { code, reason }) => format!("{code:?}: {reason}"),
        };
        assert_eq!(judged, expected);
    }

    #[test]
    fn a_known_peer_is_welcome_on_either_side() {
        check(|_, _| {}, "ok");
        check(
            |hello, expected| {
                hello.from = Member::first(1);
                expected.dialled = Some(NodeId(1));
            },
            "ok",
        );
    }

    #[test]
    fn a_peer_of_another_cluster_is_refused() {
        check(
            |hello, _| hello.cluster = 0xd,
            "ForeignCluster: node 3 does not belong to the cluster of node 2",
        );
    }

    #[test]
    fn a_newer_peer_is_refused() {
        check(
            |hello, _| hello.version = PROTOCOL_VERSION + 1,
            "Version: node 3 speaks protocol version 3, node 2 speaks 2",
        );
    }

    #[test]
    fn a_wrong_node_is_refused() {
        check(
            |hello, _| hello.to = NodeId(1),
            "WrongNode: node 1 was expected at this address, node 2 is there",
        );
        check(
            |_, expected| expected.dialled = Some(NodeId(1)),
            "WrongNode: node 1 was expected at this address, node 3 is there",
        );
        check(
            |hello, _| hello.from = Member::first(9),
            "UnknownNode: node 9 is not among the nodes that node 2 knows",
        );
        check(
            |hello, _| hello.from = Member::first(1),
            "Unexpected: node 2 dials node 1, not the other way round",
        );
    }

    #[test]
    fn a_duplicate_node_is_refused_unless_it_is_the_newer_process() {
        check(
            |hello, _| hello.from = Member::first(2),
            "DuplicateNode: both ends say that they are node 2",
        );
        check(
            |_, expected| expected.connected_boot = Some(6),
            "DuplicateNode: a newer process is connected as node 3 (boot 6 > 5)",
        );
        check(|_, expected| expected.connected_boot = Some(5), "ok");
        check(|_, expected| expected.connected_boot = Some(4), "ok");
    }
}
