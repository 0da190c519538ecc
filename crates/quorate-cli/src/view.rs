//! What `GET /status` and `quorate status` show: the fixed JSON form of a node.

use std::collections::BTreeMap;

use quorate_core::{effect::Role, node_id::NodeId};
use quorate_replica::status::{Peer, Status};
use serde::{Deserialize, Serialize};

use quorate::class_name;

use crate::config::Store;

/// A node.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct NodeView {
    pub(crate) cluster: String,
    pub(crate) node: u32,
    pub(crate) role: String,
    pub(crate) leader: Option<u32>,
    pub(crate) era: u64,
    pub(crate) ballot: BallotView,
    pub(crate) decided: u64,
    pub(crate) applied: u64,
    pub(crate) durable: u64,
    pub(crate) durability: String,
    pub(crate) store: String,
    pub(crate) log_bytes: u64,
    pub(crate) version: String,
    pub(crate) error: Option<String>,
    #[serde(default)]
    pub(crate) notices: Vec<String>,
    pub(crate) members: Vec<MemberView>,
}

/// A ballot.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub(crate) struct BallotView {
    pub(crate) era: u64,
    pub(crate) round: u64,
    pub(crate) node: u32,
}

/// A node as another one sees it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct MemberView {
    pub(crate) node: u32,
    pub(crate) peer: Option<String>,
    pub(crate) client: Option<String>,
    pub(crate) admin: Option<String>,
    pub(crate) role: String,
    pub(crate) weight: u32,
    pub(crate) connected: bool,
    pub(crate) lag: Option<u64>,
}

/// A cluster, as `quorate status` prints it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(crate) struct ClusterView {
    pub(crate) cluster: Option<String>,
    pub(crate) leader: Option<u32>,
    pub(crate) nodes: Vec<Answer>,
}

/// What became of asking one node.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(untagged)]
pub(crate) enum Answer {
    /// It answered.
    Node(Box<NodeView>),
    /// It did not.
    Unreachable {
        /// Its id, if that is known.
        node: Option<u32>,
        /// Why.
        error: String,
    },
}

impl Answer {
    pub(crate) fn node(&self) -> Option<u32> {
        match self {
            Self::Node(view) => Some(view.node),
            Self::Unreachable { node, .. } => *node,
        }
    }

    pub(crate) fn view(&self) -> Option<&NodeView> {
        match self {
            Self::Node(view) => Some(view),
            Self::Unreachable { .. } => None,
        }
    }
}

const fn role_name(role: Role) -> &'static str {
    match role {
        Role::Leader => "leader",
        Role::Follower => "follower",
        Role::Candidate => "candidate",
        Role::Learner => "learner",
        Role::Auxiliary => "auxiliary",
    }
}

impl NodeView {
    /// Of a running node.
    pub(crate) fn new(status: &Status, store: Store) -> Self {
        Self {
            cluster: format!("{:032x}", status.cluster),
            node: status.member.node.0,
            role: role_name(status.role).to_owned(),
            leader: status.leader.map(|leader| leader.0),
            era: status.era.0.into(),
            ballot: BallotView {
                era: status.ballot.era.0.into(),
                round: status.ballot.round.into(),
                node: status.ballot.node.0,
            },
            decided: status.decided_to.0,
            applied: status.applied_to.0,
            durable: status.durable_to.0,
            durability: class_name(status.class).to_owned(),
            store: store.name().to_owned(),
            log_bytes: status.log_bytes,
            version: env!("CARGO_PKG_VERSION").to_owned(),
            error: status.error.clone(),
            notices: status.notices.clone(),
            members: status
                .peers
                .iter()
                .map(|peer| MemberView::new(peer, status))
                .collect(),
        }
    }
}

impl MemberView {
    fn new(peer: &Peer, status: &Status) -> Self {
        let known = |address: &String| (!address.is_empty()).then(|| address.clone());
        let node = peer.member.node;
        Self {
            node: node.0,
            peer: known(&peer.addresses.peer),
            client: known(&peer.addresses.client),
            admin: known(&peer.addresses.admin),
            role: member_role(peer, node, status).to_owned(),
            weight: peer.weight,
            connected: peer.connected,
            lag: peer.lag,
        }
    }
}

/// A node knows its own role exactly, and of others what the configuration and the ballot say.
fn member_role(peer: &Peer, node: NodeId, status: &Status) -> &'static str {
    let role = match () {
        () if node == status.member.node => status.role,
        () if status.leader == Some(node) => Role::Leader,
        () if peer.weight == 0 => Role::Learner,
        () if peer.auxiliary => Role::Auxiliary,
        () => Role::Follower,
    };
    role_name(role)
}

impl ClusterView {
    /// Sorted by id; the leader is whom the highest ballot names.
    pub(crate) fn new(mut nodes: Vec<Answer>) -> Self {
        nodes.sort_by_key(|answer| answer.node().unwrap_or(u32::MAX));
        let views = || nodes.iter().filter_map(Answer::view);
        let claims = views().filter_map(|view| Some((view.ballot, view.leader?)));
        let leader = claims.max().map(|(_, leader)| leader);
        let mut clusters: BTreeMap<&str, usize> = BTreeMap::new();
        for view in views() {
            *clusters.entry(&view.cluster).or_default() += 1;
        }
        let commonest = clusters.into_iter().max_by_key(|(_, count)| *count);
        Self {
            cluster: commonest.map(|(id, _)| id.to_owned()),
            leader,
            nodes,
        }
    }
}

#[cfg(test)]
mod tests {
    use quorate_core::{
        ballot::{Ballot, Era},
        node_id::{Incarnation, Member},
        record::Class,
        slot::Slot,
    };
    use quorate_replica::status::Addresses;

    use super::*;

    fn status() -> Status {
        let peer = |node, weight| Peer {
            member: Member {
                node: NodeId(node),
                incarnation: Incarnation(0),
            },
            weight,
            auxiliary: false,
            connected: node == 1,
            lag: None,
            addresses: Addresses {
                peer: format!("h:{node}"),
                ..Addresses::default()
            },
        };
        Status {
            cluster: 0xab,
            member: Member::first(1),
            role: Role::Leader,
            leader: Some(NodeId(1)),
            era: Era(1),
            ballot: Ballot {
                era: Era(1),
                round: 7,
                node: NodeId(1),
            },
            decided_to: Slot(9),
            applied_to: Slot(8),
            durable_to: Slot(10),
            class: Class::Durable,
            log_bytes: 4096,
            error: None,
            notices: Vec::new(),
            peers: vec![peer(1, 1), peer(2, 1), peer(3, 0)],
        }
    }

    /// The names are fixed: scripts rely on them.
    #[test]
    fn a_node_has_the_documented_fields() {
        let view = NodeView::new(&status(), Store::Lsm);
        let json = serde_json::to_value(&view).unwrap();
        let expected = serde_json::json!({
            "cluster": "000000000000000000000000000000ab",
            "node": 1,
            "role": "leader",
            "leader": 1,
            "era": 1,
            "ballot": {"era": 1, "round": 7, "node": 1},
            "decided": 9,
            "applied": 8,
            "durable": 10,
            "durability": "durable",
            "store": "lsm",
            "log_bytes": 4096,
            "version": env!("CARGO_PKG_VERSION"),
            "error": null,
            "notices": [],
            "members": [
                {"node": 1, "peer": "h:1", "client": null, "admin": null, "role": "leader",
                 "weight": 1, "connected": true, "lag": null},
                {"node": 2, "peer": "h:2", "client": null, "admin": null, "role": "follower",
                 "weight": 1, "connected": false, "lag": null},
                {"node": 3, "peer": "h:3", "client": null, "admin": null, "role": "learner",
                 "weight": 0, "connected": false, "lag": null},
            ],
        });
        assert_eq!(json, expected);
        assert_eq!(serde_json::from_value::<NodeView>(json).unwrap(), view);
    }

    /// A deposed leader may still believe in itself.
    #[test]
    fn the_leader_is_whom_the_highest_ballot_names() {
        let view = |node, leader, round| {
            let mut view = NodeView::new(&status(), Store::Lsm);
            (view.node, view.leader, view.ballot.round) = (node, leader, round);
            Answer::Node(Box::new(view))
        };
        let gone = Answer::Unreachable {
            node: Some(2),
            error: "refused".to_owned(),
        };
        let cluster = ClusterView::new(vec![view(3, Some(3), 8), gone, view(1, Some(1), 7)]);
        assert_eq!(cluster.leader, Some(3));
        let nodes: Vec<_> = cluster.nodes.iter().map(Answer::node).collect();
        assert_eq!(nodes, [Some(1), Some(2), Some(3)]);
        let json = serde_json::to_value(&cluster).unwrap();
        assert_eq!(
            json["nodes"][1],
            serde_json::json!({"node": 2, "error": "refused"})
        );
    }
}
