//! Admission of peer connections. The verdict on a `Hello` or a `Welcome` is a pure function.

use quorate_core::{level::Levels, node_id::NodeId};
use quorate_wire::{Hello, RefusalCode};

use crate::{host::JoinRefusal, identity::Identity};

/// Conditions under which a node admits a greeter.
#[derive(Clone, Copy, Debug)]
pub struct Expectation<'a> {
    pub identity: &'a Identity,
    /// Levels that this node supports, all of them at least the group's level.
    pub levels: Levels,
    /// The greeter's id was removed from the group.
    pub is_removed: bool,
    /// This node's peer table has a free entry for the greeter.
    pub has_free_entry: bool,
    /// The node that was dialled, if this node opened the connection.
    pub dialled: Option<NodeId>,
    /// Boot number of the live connection of a process with the greeter's id, if there is one.
    pub connected_boot: Option<u32>,
}

/// Returns `Ok` if the greeter is admitted. The checks are ordered by their use to an operator: a
/// foreign cluster explains all other problems. A greeter with the cluster's id may be unknown,
/// because this node may not have learned of it yet ([member-3]).
pub fn check_hello(expected: &Expectation<'_>, hello: &Hello<'_>) -> Result<(), JoinRefusal> {
    let identity = expected.identity;
    let (me, greeter) = (identity.member.node, hello.from.node);
    let refuse = |code, reason: String| Err(JoinRefusal { code, reason });
    if expected.levels.agreed(hello.levels).is_none() {
        return refuse(
            RefusalCode::Version,
            describe_level_mismatch((greeter, hello.levels), (me, expected.levels)),
        );
    }
    if hello.cluster != identity.cluster {
        return refuse(
            RefusalCode::ForeignCluster,
            // The cluster's id is not disclosed, since it would allow a stranger to greet as a
            // peer.
            format!("node {greeter} does not belong to the cluster of node {me}"),
        );
    }
    if greeter == me {
        return refuse(
            RefusalCode::DuplicateNode,
            format!("both ends say that they are node {me}"),
        );
    }
    if expected.is_removed {
        return refuse(
            RefusalCode::NodeRemoved,
            format!("node {greeter} was removed from the cluster"),
        );
    }
    if hello.to != me || expected.dialled.is_some_and(|dialled| dialled != greeter) {
        let meant = expected.dialled.unwrap_or(hello.to);
        let found = if expected.dialled.is_some() { greeter } else { me };
        return refuse(
            RefusalCode::WrongNode,
            format!("node {meant} was expected at this address, node {found} is there"),
        );
    }
    if expected.dialled.is_none() && greeter < me {
        return refuse(
            RefusalCode::UnexpectedFrame,
            format!("node {me} dials node {greeter}, not the other way round"),
        );
    }
    if !expected.has_free_entry {
        return refuse(
            RefusalCode::UnknownNode,
            format!("node {me} does not know node {greeter}, and has no place for more nodes"),
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

/// [level-7] Describes which of the two nodes needs another release.
fn describe_level_mismatch(greeter: (NodeId, Levels), own: (NodeId, Levels)) -> String {
    let (old, new) = match greeter.1.newest < own.1.lowest {
        true => (greeter, own),
        false => (own, greeter),
    };
    format!(
        "node {} supports level {} at most, and the cluster of node {} is at level {} or above: install the release on \
         node {0} that the other nodes run",
        old.0, old.1.newest, new.0, new.1.lowest
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use quorate_core::{level::Level, node_id::Member};
    use quorate_replica::status::Addresses;
    use quorate_wire::Lane;

    fn check(change: impl FnOnce(&mut Hello<'_>, &mut Expectation<'_>), expected: &str) {
        let identity = Identity {
            cluster: 0xc,
            member: Member::first(2),
            boot: 7,
            addresses: Addresses::default(),
        };
        let mut expectation = Expectation {
            identity: &identity,
            levels: Levels::SUPPORTED,
            is_removed: false,
            has_free_entry: true,
            dialled: None,
            connected_boot: None,
        };
        let mut hello = Hello {
            levels: Levels::SUPPORTED,
            cluster: 0xc,
            from: Member::first(3),
            boot: 5,
            to: NodeId(2),
            lane: Lane::Control,
            client: "",
            admin: "",
            stream: "",
        };
        change(&mut hello, &mut expectation);
        let judged = match check_hello(&expectation, &hello) {
            Ok(()) => "ok".to_owned(),
            Err(JoinRefusal { code, reason }) => format!("{code:?}: {reason}"),
        };
        assert_eq!(judged, expected);
    }

    #[test]
    fn known_peer_is_accepted_on_either_side() {
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

    const fn levels(lowest: u16, newest: u16) -> Levels {
        Levels { lowest: Level(lowest), newest: Level(newest) }
    }

    /// [level-3] Nodes of earlier releases are admitted, even those of the first release, which
    /// send one version and no levels. So are nodes of the next release.
    #[test]
    fn nodes_of_neighbouring_releases_are_accepted() {
        check(|hello, _| hello.levels = levels(8, 8), "ok");
        check(|hello, _| hello.levels = levels(8, 9), "ok");
        check(|hello, _| hello.levels = levels(9, 11), "ok");
    }

    /// [level-7] A node that is too old for the cluster learns which release to install.
    #[test]
    fn node_that_is_too_old_is_told_which_release_to_install() {
        check(
            |hello, expected| {
                (hello.levels, expected.levels) = (levels(8, 8), levels(9, 9));
            },
            "Version: node 3 supports level 8 at most, and the cluster of node 2 is at level 9 or above: install the \
             release on node 3 that the other nodes run",
        );
        check(
            |hello, _| hello.levels = levels(11, 12),
            "Version: node 2 supports level 10 at most, and the cluster of node 3 is at level 11 or above: install the \
             release on node 2 that the other nodes run",
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
            |hello, _| hello.from = Member::first(1),
            "UnexpectedFrame: node 2 dials node 1, not the other way round",
        );
        check(
            |_, expected| expected.has_free_entry = false,
            "UnknownNode: node 2 does not know node 3, and has no place for more nodes",
        );
    }

    /// A removed node learns first that it was removed, even if the other side has to dial or the
    /// address is wrong. A node of another cluster does not learn which nodes were removed.
    #[test]
    fn removed_node_is_refused_with_that_reason() {
        for (from, to) in [(3, 2), (1, 2), (3, 1)] {
            check(
                |hello, expected| {
                    (hello.from, hello.to) = (Member::first(from), NodeId(to));
                    expected.is_removed = true;
                },
                &format!("NodeRemoved: node {from} was removed from the cluster"),
            );
        }
        check(
            |hello, expected| (hello.cluster, expected.is_removed) = (0xd, true),
            "ForeignCluster: node 3 does not belong to the cluster of node 2",
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
