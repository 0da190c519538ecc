//! JSON forms of `GET /members` and `POST /members`: the membership of the group.

use quorate_core::{node_id::NodeId, quorum::QuorumRule};
use quorate_replica::{
    group::{
        ADDRESS_BYTES_MAX, As,
        asking::{self, Answer, Ask, LastPlan, Listed, Members, Underway},
    },
    status::{Addresses, Status},
};
use serde::{Deserialize, Serialize};

use crate::view::BallotView;

/// Everything about the members, as one node has applied it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct MembersView {
    /// 32 hexadecimal digits.
    pub cluster: String,
    /// The answering node.
    pub node: u32,
    /// The leader, as far as that node knows.
    pub leader: Option<u32>,
    /// The highest that it knows.
    pub ballot: BallotView,
    /// Every slot below is applied there.
    pub applied: u64,
    /// The era of the configuration.
    pub era: u64,
    /// Nodes that have an id, in order.
    pub nodes: Vec<ListedView>,
    /// The plan in progress.
    pub plan: Option<UnderwayView>,
    /// The plan that ended last.
    pub last: Option<LastPlanView>,
    /// Nodes that were removed; their ids are never used again.
    pub removed: Vec<u32>,
}

/// A node that has an id.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ListedView {
    /// Its id.
    pub node: u32,
    /// Address for peers.
    pub peer: Option<String>,
    /// Address for clients.
    pub client: Option<String>,
    /// Address for operators.
    pub admin: Option<String>,
    /// Role: `voter`, `learner` or `auxiliary`.
    pub role: String,
    /// Requested role: the same words.
    #[serde(rename = "as")]
    pub asked: String,
    /// Weight of its vote; 0 if it has none.
    pub weight: u32,
    /// Preference as leader: the highest leads if several could.
    pub priority: u32,
    /// Number of restarts without its votes.
    pub incarnation: u32,
    /// A folder has this id; otherwise it is reserved.
    pub joined: bool,
    /// The answering node is connected to it.
    pub connected: bool,
    /// Slots that it is behind; known to the leader only.
    pub lag: Option<u64>,
}

/// One step of a plan.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct StepView {
    /// The change, for people.
    pub change: String,
    /// The weights behind it.
    pub weights: Vec<WeightView>,
}

/// Weight of a vote.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct WeightView {
    /// Whose.
    pub node: u32,
    /// In which incarnation.
    pub incarnation: u32,
    /// At least 1.
    pub weight: u32,
}

/// A plan in progress.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct UnderwayView {
    /// Its number.
    pub id: u64,
    /// The requested change.
    pub what: String,
    /// Remaining steps, as the answering node would take them.
    pub steps: Vec<StepView>,
    /// The condition that it waits for; known to the leader only.
    pub waits: Option<String>,
}

/// The plan that ended last.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LastPlanView {
    /// Its number.
    pub id: u64,
    /// The goal was reached; otherwise the plan was cancelled.
    pub reached: bool,
    /// The slot of what ended it.
    pub slot: u64,
    /// [era-9] Whether enough of the others hold everything up to there: who left may be switched
    /// off.
    pub settled: bool,
}

/// Body of `POST /members`: one wish, and whether it is only to be shown what would be done.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct MembersRequest {
    /// An id for a node that comes later.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub add: Option<AddRequest>,
    /// Give it a vote.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub promote: Option<u32>,
    /// Take its vote.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub demote: Option<u32>,
    /// Remove it permanently.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub remove: Option<u32>,
    /// A node, and what its vote is to weigh.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub weight: Option<(u32, u32)>,
    /// Make this voter an auxiliary, or not: its id, true or false.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub auxiliary: Option<(u32, bool)>,
    /// The new quorum rule: `majority` or `flexible:Q1,Q2`.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub quorum: Option<String>,
    /// A node, and its priority.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub priority: Option<(u32, u32)>,
    /// The node that leaves, and the one that takes its place.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub replace: Option<(u32, u32)>,
    /// A node, and where it listens for peers.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub address: Option<(u32, String)>,
    /// The cluster uses the next feature level.
    #[serde(skip_serializing_if = "is_false")]
    pub raise: bool,
    /// End the plan in progress where it is.
    #[serde(skip_serializing_if = "is_false")]
    pub cancel: bool,
    /// Nothing is done.
    #[serde(skip_serializing_if = "is_false")]
    pub dry_run: bool,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde's signature")]
const fn is_false(flag: &bool) -> bool {
    !*flag
}

/// A node that is to come.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct AddRequest {
    /// Its future address for peers.
    pub peer: String,
    /// Its role.
    #[serde(rename = "as", default = "voter")]
    pub asked: String,
}

fn voter() -> String {
    As::Voter.name().to_owned()
}

/// Code of the error for an unknown outcome.
pub const UNKNOWN_OUTCOME: &str = "unknown_outcome";

/// Answer of `POST /members`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "result", rename_all = "snake_case")]
pub enum Asked {
    /// This id was given out, now or before.
    Node {
        /// The id.
        node: u32,
    },
    /// Done.
    Done,
    /// Already the case.
    NothingToDo,
    /// These steps are in progress, or would be.
    Planned {
        /// The number of the plan; null: it was only asked for.
        plan: Option<u64>,
        /// In order.
        steps: Vec<StepView>,
    },
}

impl MembersRequest {
    /// Converts it to a request, and whether it is a dry run; or explains why it is invalid.
    pub fn ask(self) -> Result<(Ask, bool), String> {
        let Self {
            add,
            promote,
            demote,
            remove,
            weight,
            auxiliary,
            quorum,
            priority,
            replace,
            address,
            raise,
            cancel,
            dry_run,
        } = self;
        let quorum = quorum.map(|rule| {
            let parsed = QuorumRule::parse(&rule);
            parsed.map(Ask::Quorum).ok_or_else(|| {
                format!("\"quorum\": must be majority or flexible:Q1,Q2 (got {rule})")
            })
        });
        let add = add.map(AddRequest::ask).transpose()?;
        let address = address.map(|(node, peer)| {
            let peer = checked(peer)?;
            Ok::<_, String>(Ask::Address(NodeId(node), peer))
        });
        let wishes = [
            add,
            promote.map(|node| Ask::Promote(NodeId(node))),
            demote.map(|node| Ask::Demote(NodeId(node))),
            remove.map(|node| Ask::Remove(NodeId(node))),
            weight.map(|(node, weight)| Ask::Weight(NodeId(node), weight)),
            auxiliary.map(|(node, auxiliary)| Ask::Auxiliary(NodeId(node), auxiliary)),
            quorum.transpose()?,
            priority.map(|(node, priority)| Ask::Priority(NodeId(node), priority)),
            replace.map(|(old, new)| Ask::Replace { old: NodeId(old), new: NodeId(new) }),
            address.transpose()?,
            raise.then_some(Ask::Raise),
            cancel.then_some(Ask::Cancel),
        ];
        let mut wishes = wishes.into_iter().flatten();
        match (wishes.next(), wishes.next()) {
            (Some(ask), None) => Ok((ask, dry_run)),
            (None, _) => Err("the request names no change".to_owned()),
            (Some(_), Some(_)) => Err("the request names more than one change".to_owned()),
        }
    }
}

impl AddRequest {
    fn ask(self) -> Result<Ask, String> {
        let role = As::named(&self.asked);
        let role = role.ok_or_else(|| format!("\"as\": not a role: {}", self.asked))?;
        let peer = checked(self.peer)?;
        Ok(Ask::Reserve { peer, role })
    }
}

/// Checks that `HOST:PORT` can be dialled.
fn checked(peer: String) -> Result<String, String> {
    let parts = peer.rsplit_once(':');
    let host_and_port = parts.filter(|(host, port)| {
        let port = port.parse::<u16>().is_ok_and(|port| port > 0);
        port && !host.is_empty() && !peer.chars().any(char::is_whitespace)
    });
    match host_and_port {
        Some(_) if peer.len() <= ADDRESS_BYTES_MAX => Ok(peer),
        _ => Err(format!("the address must be HOST:PORT (got {peer})")),
    }
}

impl MembersView {
    /// Creates the view of the node with this status.
    pub fn new(members: &Members, status: &Status) -> Self {
        Self {
            cluster: format!("{:032x}", status.cluster),
            node: status.member.node.0,
            leader: status.leader.map(|leader| leader.0),
            ballot: BallotView::new(status.ballot),
            applied: status.applied_to.0,
            era: members.era.0.into(),
            nodes: members
                .nodes
                .iter()
                .map(|listed| {
                    let mut peers = status.peers.iter();
                    let peer = peers.find(|peer| peer.member.node == listed.node);
                    ListedView::new(listed, peer.map(|peer| &peer.addresses))
                })
                .collect(),
            plan: members.plan.as_ref().map(UnderwayView::new),
            last: members.last.map(LastPlanView::new),
            removed: members.removed.iter().map(|node| node.0).collect(),
        }
    }

    /// A node with this id.
    pub fn listed(&self, node: u32) -> Option<&ListedView> {
        self.nodes.iter().find(|listed| listed.node == node)
    }

    /// Returns the weights of all voters.
    pub fn weights(&self) -> Vec<WeightView> {
        let voters = self.nodes.iter().filter(|listed| listed.weight > 0);
        let weight = |listed: &ListedView| WeightView {
            node: listed.node,
            incarnation: listed.incarnation,
            weight: listed.weight,
        };
        voters.map(weight).collect()
    }
}

impl ListedView {
    fn new(listed: &Listed, addresses: Option<&Addresses>) -> Self {
        let known = |address: &String| (!address.is_empty()).then(|| address.clone());
        let role = match () {
            () if listed.weight == 0 => As::Learner,
            () if listed.auxiliary => As::Auxiliary,
            () => As::Voter,
        };
        Self {
            node: listed.node.0,
            peer: known(&listed.known.peer),
            client: addresses.and_then(|addresses| known(&addresses.client)),
            admin: addresses.and_then(|addresses| known(&addresses.admin)),
            role: role.name().to_owned(),
            asked: listed.known.role.name().to_owned(),
            weight: listed.weight,
            priority: listed.known.priority,
            incarnation: listed.member.incarnation.0,
            joined: listed.known.has_come(),
            connected: listed.connected,
            lag: listed.lag,
        }
    }
}

impl UnderwayView {
    fn new(plan: &Underway) -> Self {
        Self {
            id: plan.id,
            what: plan.what.clone(),
            steps: plan.steps.iter().map(StepView::new).collect(),
            waits: plan.waits.clone(),
        }
    }
}

impl LastPlanView {
    const fn new(last: LastPlan) -> Self {
        Self {
            id: last.ended.id,
            reached: last.ended.reached,
            slot: last.ended.at.0,
            settled: last.settled,
        }
    }
}

impl StepView {
    fn new(step: &asking::Step) -> Self {
        let weights = step.weights.iter();
        Self {
            change: step.change.clone(),
            weights: weights
                .map(|(member, weight)| WeightView {
                    node: member.node.0,
                    incarnation: member.incarnation.0,
                    weight: *weight,
                })
                .collect(),
        }
    }
}

impl Asked {
    /// Converts the group's answer.
    pub fn new(answer: &Answer) -> Self {
        match answer {
            Answer::Node(node) => Self::Node { node: node.0 },
            Answer::Done => Self::Done,
            Answer::Already => Self::NothingToDo,
            Answer::Planned(plan, steps) => {
                Self::Planned { plan: *plan, steps: steps.iter().map(StepView::new).collect() }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use quorate_core::{
        ballot::{Ballot, Era},
        node_id::Member,
        slot::Slot,
    };
    use quorate_replica::{
        group::{Ended, Known},
        status::{Peer, PeerPlane},
    };

    use super::*;

    fn members() -> Members {
        let listed = |node: u32, weight, peer: &str| Listed {
            node: NodeId(node),
            known: Known {
                nonce: (node == 2).then_some(7),
                peer: peer.to_owned(),
                priority: node,
                founding: node == 1,
                ..Known::default()
            },
            member: Member::first(node),
            weight,
            auxiliary: false,
            connected: node == 1,
            lag: (node == 2).then_some(5),
        };
        Members {
            era: Era(4),
            nodes: vec![listed(1, 2, "h:1"), listed(2, 0, "h:2"), listed(5, 0, "")],
            plan: Some(Underway {
                id: 90,
                what: "promote node 2".to_owned(),
                steps: vec![asking::Step {
                    change: "increment node 2".to_owned(),
                    weights: vec![(Member::first(1), 2), (Member::first(2), 1)],
                }],
                waits: Some("node 2 is 5 slots behind".to_owned()),
            }),
            last: Some(LastPlan {
                ended: Ended { id: 70, reached: true, at: Slot(75) },
                settled: true,
            }),
            removed: vec![NodeId(3), NodeId(4)],
        }
    }

    /// The names are fixed: scripts rely on them.
    #[test]
    fn members_have_the_documented_fields() {
        let status = Status {
            leader: Some(NodeId(1)),
            ballot: Ballot { era: Era(4), round: 7, node: NodeId(1) },
            applied_to: Slot(95),
            peers: vec![Peer {
                member: Member::first(1),
                weight: 2,
                auxiliary: false,
                connected: true,
                lag: None,
                payload_bytes_sent: 0,
                engaged: None,
                addresses: Addresses { admin: "h:9".to_owned(), ..Addresses::default() },
                plane: PeerPlane::default(),
            }],
            ..crate::view::tests::status()
        };
        let view = MembersView::new(&members(), &status);
        let json = serde_json::to_value(&view).unwrap();
        let expected = serde_json::json!({
            "cluster": "000000000000000000000000000000ab",
            "node": 1,
            "leader": 1,
            "ballot": {"era": 4, "round": 7, "node": 1},
            "applied": 95,
            "era": 4,
            "nodes": [
                {"node": 1, "peer": "h:1", "client": null, "admin": "h:9", "role": "voter", "as": "voter",
                 "weight": 2, "priority": 1, "incarnation": 0, "joined": true, "connected": true, "lag": null},
                {"node": 2, "peer": "h:2", "client": null, "admin": null, "role": "learner", "as": "voter",
                 "weight": 0, "priority": 2, "incarnation": 0, "joined": true, "connected": false, "lag": 5},
                {"node": 5, "peer": null, "client": null, "admin": null, "role": "learner", "as": "voter",
                 "weight": 0, "priority": 5, "incarnation": 0, "joined": false, "connected": false, "lag": null},
            ],
            "plan": {"id": 90, "what": "promote node 2", "waits": "node 2 is 5 slots behind", "steps": [
                {"change": "increment node 2", "weights": [
                    {"node": 1, "incarnation": 0, "weight": 2}, {"node": 2, "incarnation": 0, "weight": 1}]}]},
            "last": {"id": 70, "reached": true, "slot": 75, "settled": true},
            "removed": [3, 4],
        });
        assert_eq!(json, expected);
        assert_eq!(serde_json::from_value::<MembersView>(json).unwrap(), view);
        assert_eq!(view.weights().len(), 1);
    }

    #[test]
    fn a_wish_is_read_from_its_json() {
        let ask = |text: &str| {
            let request: Result<MembersRequest, _> = serde_json::from_str(text);
            request.map_err(|error| error.to_string())?.ask()
        };
        let node = NodeId;
        for (text, expected) in [
            (r#"{"promote": 4}"#, Ask::Promote(node(4))),
            (r#"{"demote": 4}"#, Ask::Demote(node(4))),
            (r#"{"remove": 2}"#, Ask::Remove(node(2))),
            (r#"{"weight": [3, 2]}"#, Ask::Weight(node(3), 2)),
            (r#"{"auxiliary": [3, true]}"#, Ask::Auxiliary(node(3), true)),
            (
                r#"{"quorum": "flexible:3,1"}"#,
                Ask::Quorum(QuorumRule::Flexible { phase1: 3, phase2: 1 }),
            ),
            (r#"{"priority": [1, 5]}"#, Ask::Priority(node(1), 5)),
            (r#"{"replace": [2, 4]}"#, Ask::Replace { old: node(2), new: node(4) }),
            (r#"{"address": [2, "h:7"]}"#, Ask::Address(node(2), "h:7".to_owned())),
            (
                r#"{"add": {"peer": "h:7", "as": "learner"}}"#,
                Ask::Reserve { peer: "h:7".to_owned(), role: As::Learner },
            ),
            (r#"{"raise": true}"#, Ask::Raise),
            (r#"{"cancel": true}"#, Ask::Cancel),
        ] {
            assert_eq!(ask(text), Ok((expected.clone(), false)), "{text}");
            let dry = text.replacen('{', "{\"dry_run\": true, ", 1);
            assert_eq!(ask(&dry), Ok((expected, true)), "{dry}");
        }
        for text in [
            "{}",
            r#"{"dry_run": true}"#,
            r#"{"cancel": false}"#,
            r#"{"promote": 4, "remove": 4}"#,
            r#"{"promotion": 4}"#,
            r#"{"promote": -4}"#,
            r#"{"weight": [1]}"#,
            r#"{"address": [2, "h"]}"#,
            r#"{"address": [2, "h:0"]}"#,
            r#"{"address": [2, "a b:1"]}"#,
            r#"{"add": {"peer": "h:7", "as": "king"}}"#,
            r#"{"add": {"as": "voter"}}"#,
        ] {
            assert!(ask(text).is_err(), "{text}");
        }
        let long = format!(r#"{{"address": [2, "{}:1"]}}"#, "h".repeat(300));
        assert!(ask(&long).is_err());
    }

    #[test]
    fn an_answer_has_the_documented_fields() {
        let json = |answer: &Answer| serde_json::to_value(Asked::new(answer)).unwrap();
        let node = serde_json::json!({"result": "node", "node": 4});
        assert_eq!(json(&Answer::Node(NodeId(4))), node);
        assert_eq!(json(&Answer::Done), serde_json::json!({"result": "done"}));
        assert_eq!(json(&Answer::Already), serde_json::json!({"result": "nothing_to_do"}));
        assert_eq!(
            json(&Answer::Planned(None, Vec::new())),
            serde_json::json!({"result": "planned", "plan": null, "steps": []})
        );
    }
}
