//! JSON forms of `GET /members` and `POST /members`.

use quorate_core::{node_id::NodeId, quorum::QuorumRule};
use quorate_replica::{
    group::{
        ADDRESS_BYTES_MAX, MemberRole,
        asking::{
            self, GroupAnswer, GroupRequest, LastPlan, ListedNode, MemberList, PlanInProgress,
        },
    },
    status::{Addresses, Status},
};
use serde::{Deserialize, Serialize};

use crate::view::BallotView;

/// Membership of the cluster, as applied by one node.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct MembersView {
    /// Cluster id, 32 hexadecimal digits.
    pub cluster: String,
    /// Id of the responding node.
    pub node: u32,
    /// Leader known to the responding node.
    pub leader: Option<u32>,
    /// Highest ballot known to the responding node.
    pub ballot: BallotView,
    /// Slot below which the responding node has applied everything.
    pub applied: u64,
    /// Era of the current configuration.
    pub era: u64,
    /// Quorum rule: `majority` or `flexible:Q1,Q2`.
    #[serde(default)]
    pub quorum: String,
    /// All nodes that have an id, sorted by id.
    pub nodes: Vec<ListedView>,
    pub plan: Option<PlanInProgressView>,
    /// Membership plan that ended most recently.
    pub last: Option<LastPlanView>,
    /// Ids of removed nodes, which are never reused.
    pub removed: Vec<u32>,
}

/// A node that has an id, whether or not it has joined.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ListedView {
    pub node: u32,
    pub peer: Option<String>,
    pub client: Option<String>,
    pub admin: Option<String>,
    /// Current role: `voter`, `learner` or `auxiliary`.
    pub role: String,
    /// Requested role, with the same values as `role`.
    #[serde(rename = "as")]
    pub asked: String,
    /// Weight of the node's vote. 0 means that the node has no vote.
    pub weight: u32,
    /// Leader priority. Among the eligible nodes, the one with the highest priority leads.
    pub priority: u32,
    /// Incarnation of the node, that is, the number of restarts in which it lost its votes.
    pub incarnation: u32,
    /// Set if a data folder uses the id. Otherwise the id is only reserved.
    pub joined: bool,
    /// Set if the responding node is connected to the node.
    pub connected: bool,
    /// Number of slots by which the node lags behind the leader. Only the leader reports it.
    pub lag: Option<u64>,
}

/// A step of a membership plan.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct StepView {
    /// Human-readable description of the change.
    pub change: String,
    /// Vote weights after this step.
    pub weights: Vec<WeightView>,
}

/// Weight of one node's vote.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct WeightView {
    pub node: u32,
    pub incarnation: u32,
    /// Weight, at least 1.
    pub weight: u32,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PlanInProgressView {
    pub id: u64,
    /// Human-readable description of the requested change.
    pub what: String,
    /// Remaining steps, as the responding node predicts them.
    pub steps: Vec<StepView>,
    /// Condition that the next step waits for. Only the leader reports it.
    pub waits: Option<String>,
}

/// The membership plan that ended most recently.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LastPlanView {
    pub id: u64,
    /// Set if the plan reached its goal. Otherwise it was cancelled.
    pub reached: bool,
    /// Slot of the command that ended the plan.
    pub slot: u64,
    /// [era-9] Set once enough members store everything up to `slot` for removed nodes to stop.
    pub settled: bool,
}

/// Body of `POST /members`. It requests exactly one change, optionally as a dry run.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct MembersRequest {
    /// Reserve an id for a new node.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub add: Option<AddRequest>,
    /// Node that gets a vote.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub promote: Option<u32>,
    /// Node that loses its vote.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub demote: Option<u32>,
    /// Node to remove permanently.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub remove: Option<u32>,
    /// Node, and its new vote weight.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub weight: Option<(u32, u32)>,
    /// Node to convert. `true` makes it an auxiliary, `false` a full voter.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub auxiliary: Option<(u32, bool)>,
    /// New quorum rule: `majority` or `flexible:Q1,Q2`.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub quorum: Option<String>,
    /// Node, and its new leader priority.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub priority: Option<(u32, u32)>,
    /// Node to remove, and the node that replaces it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub replace: Option<(u32, u32)>,
    /// Node, and its new peer address.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub address: Option<(u32, String)>,
    /// Activate the next feature level.
    #[serde(skip_serializing_if = "is_false")]
    pub raise: bool,
    /// Cancel the plan in progress. Its completed steps remain in effect.
    #[serde(skip_serializing_if = "is_false")]
    pub cancel: bool,
    /// Return the steps without executing them.
    #[serde(skip_serializing_if = "is_false")]
    pub dry_run: bool,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde's signature")]
const fn is_false(flag: &bool) -> bool {
    !*flag
}

/// Parameters of a new node.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct AddRequest {
    pub peer: String,
    /// Requested role: `voter`, `learner` or `auxiliary`.
    #[serde(rename = "as", default = "voter")]
    pub asked: String,
}

fn voter() -> String {
    MemberRole::Voter.name().to_owned()
}

/// Error code for a request whose outcome is unknown.
pub const UNKNOWN_OUTCOME_CODE: &str = "unknown_outcome";

/// Response to `POST /members`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "result", rename_all = "snake_case")]
pub enum MembersOutcome {
    /// Id that was assigned to the new node by this request or an earlier one.
    Node { node: u32 },
    /// The change has taken effect.
    Done,
    /// The requested state was already in effect.
    NothingToDo,
    /// The change takes these steps. `plan` is the number of the plan, or null in a dry run.
    Planned { plan: Option<u64>, steps: Vec<StepView> },
}

impl MembersRequest {
    /// Converts the request to a command for the group, and returns it with the dry-run flag.
    /// Returns an error message if the request does not contain exactly one valid change.
    pub fn into_commands(self) -> Result<(GroupRequest, bool), String> {
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
            parsed.map(GroupRequest::Quorum).ok_or_else(|| {
                format!("\"quorum\": must be majority or flexible:Q1,Q2 (got {rule})")
            })
        });
        let add = add.map(AddRequest::into_command).transpose()?;
        let address = address.map(|(node, peer)| {
            let peer = check_peer_address(peer)?;
            Ok::<_, String>(GroupRequest::Address(NodeId(node), peer))
        });
        let wishes = [
            add,
            promote.map(|node| GroupRequest::Promote(NodeId(node))),
            demote.map(|node| GroupRequest::Demote(NodeId(node))),
            remove.map(|node| GroupRequest::Remove(NodeId(node))),
            weight.map(|(node, weight)| GroupRequest::Weight(NodeId(node), weight)),
            auxiliary.map(|(node, auxiliary)| GroupRequest::Auxiliary(NodeId(node), auxiliary)),
            quorum.transpose()?,
            priority.map(|(node, priority)| GroupRequest::Priority(NodeId(node), priority)),
            replace.map(|(old, new)| GroupRequest::Replace { old: NodeId(old), new: NodeId(new) }),
            address.transpose()?,
            raise.then_some(GroupRequest::Raise),
            cancel.then_some(GroupRequest::Cancel),
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
    fn into_command(self) -> Result<GroupRequest, String> {
        let role = MemberRole::from_name(&self.asked);
        let role = role.ok_or_else(|| format!("\"as\": not a role: {}", self.asked))?;
        let peer = check_peer_address(self.peer)?;
        Ok(GroupRequest::Reserve { peer, role })
    }
}

/// Returns `peer` if it has the form `HOST:PORT`, else an error message.
fn check_peer_address(peer: String) -> Result<String, String> {
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
    /// Creates the JSON form of the members that the responding node lists.
    pub fn new(members: &MemberList, status: &Status) -> Self {
        Self {
            cluster: format!("{:032x}", status.cluster),
            node: status.member.node.0,
            leader: status.leader.map(|leader| leader.0),
            ballot: BallotView::new(status.ballot),
            applied: status.applied_to.0,
            era: members.era.0.into(),
            quorum: status.quorum.to_string(),
            nodes: members
                .nodes
                .iter()
                .map(|listed| {
                    let mut peers = status.peers.iter();
                    let peer = peers.find(|peer| peer.member.node == listed.node);
                    ListedView::new(listed, peer.map(|peer| &peer.addresses))
                })
                .collect(),
            plan: members.plan.as_ref().map(PlanInProgressView::new),
            last: members.last_plan.map(LastPlanView::new),
            removed: members.removed_nodes.iter().map(|node| node.0).collect(),
        }
    }

    pub fn find_node(&self, node: u32) -> Option<&ListedView> {
        self.nodes.iter().find(|listed| listed.node == node)
    }

    /// Returns the vote weights of all voters.
    pub fn voter_weights(&self) -> Vec<WeightView> {
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
    fn new(listed: &ListedNode, addresses: Option<&Addresses>) -> Self {
        let known = |address: &String| (!address.is_empty()).then(|| address.clone());
        let role = match () {
            () if listed.weight == 0 => MemberRole::Learner,
            () if listed.is_auxiliary => MemberRole::Auxiliary,
            () => MemberRole::Voter,
        };
        Self {
            node: listed.node.0,
            peer: known(&listed.entry.peer),
            client: addresses.and_then(|addresses| known(&addresses.client)),
            admin: addresses.and_then(|addresses| known(&addresses.admin)),
            role: role.name().to_owned(),
            asked: listed.entry.role.name().to_owned(),
            weight: listed.weight,
            priority: listed.entry.priority,
            incarnation: listed.member.incarnation.0,
            joined: listed.entry.has_joined(),
            connected: listed.is_connected,
            lag: listed.lag_slots,
        }
    }
}

impl PlanInProgressView {
    fn new(plan: &PlanInProgress) -> Self {
        Self {
            id: plan.id,
            what: plan.description.clone(),
            steps: plan.remaining_steps.iter().map(StepView::new).collect(),
            waits: plan.wait_reason.clone(),
        }
    }
}

impl LastPlanView {
    const fn new(last: LastPlan) -> Self {
        Self {
            id: last.end.id,
            reached: last.end.is_goal_reached,
            slot: last.end.slot.0,
            settled: last.is_settled,
        }
    }
}

impl StepView {
    fn new(step: &asking::PlanStep) -> Self {
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

impl MembersOutcome {
    /// Converts the group's answer to its JSON form.
    pub fn new(answer: &GroupAnswer) -> Self {
        match answer {
            GroupAnswer::Node(node) => Self::Node { node: node.0 },
            GroupAnswer::Done => Self::Done,
            GroupAnswer::AlreadyDone => Self::NothingToDo,
            GroupAnswer::Planned(plan, steps) => {
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
        group::{NodeEntry, PlanEnd},
        status::{Peer, PeerPlane},
    };

    use super::*;

    fn members() -> MemberList {
        let listed = |node: u32, weight, peer: &str| ListedNode {
            node: NodeId(node),
            entry: NodeEntry {
                nonce: (node == 2).then_some(7),
                peer: peer.to_owned(),
                priority: node,
                is_founding: node == 1,
                ..NodeEntry::default()
            },
            member: Member::first(node),
            weight,
            is_auxiliary: false,
            is_connected: node == 1,
            lag_slots: (node == 2).then_some(5),
        };
        MemberList {
            era: Era(4),
            nodes: vec![listed(1, 2, "h:1"), listed(2, 0, "h:2"), listed(5, 0, "")],
            plan: Some(PlanInProgress {
                id: 90,
                description: "promote node 2".to_owned(),
                remaining_steps: vec![asking::PlanStep {
                    change: "increment node 2".to_owned(),
                    weights: vec![(Member::first(1), 2), (Member::first(2), 1)],
                }],
                wait_reason: Some("node 2 is 5 slots behind".to_owned()),
            }),
            last_plan: Some(LastPlan {
                end: PlanEnd { id: 70, is_goal_reached: true, slot: Slot(75) },
                is_settled: true,
            }),
            removed_nodes: vec![NodeId(3), NodeId(4)],
        }
    }

    /// The field names are fixed, because scripts rely on them.
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
            "quorum": "majority",
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
        assert_eq!(view.voter_weights().len(), 1);
    }

    #[test]
    fn members_request_is_parsed_from_json() {
        let ask = |text: &str| {
            let request: Result<MembersRequest, _> = serde_json::from_str(text);
            request.map_err(|error| error.to_string())?.into_commands()
        };
        let node = NodeId;
        for (text, expected) in [
            (r#"{"promote": 4}"#, GroupRequest::Promote(node(4))),
            (r#"{"demote": 4}"#, GroupRequest::Demote(node(4))),
            (r#"{"remove": 2}"#, GroupRequest::Remove(node(2))),
            (r#"{"weight": [3, 2]}"#, GroupRequest::Weight(node(3), 2)),
            (r#"{"auxiliary": [3, true]}"#, GroupRequest::Auxiliary(node(3), true)),
            (
                r#"{"quorum": "flexible:3,1"}"#,
                GroupRequest::Quorum(QuorumRule::Flexible { phase1: 3, phase2: 1 }),
            ),
            (r#"{"priority": [1, 5]}"#, GroupRequest::Priority(node(1), 5)),
            (r#"{"replace": [2, 4]}"#, GroupRequest::Replace { old: node(2), new: node(4) }),
            (r#"{"address": [2, "h:7"]}"#, GroupRequest::Address(node(2), "h:7".to_owned())),
            (
                r#"{"add": {"peer": "h:7", "as": "learner"}}"#,
                GroupRequest::Reserve { peer: "h:7".to_owned(), role: MemberRole::Learner },
            ),
            (r#"{"raise": true}"#, GroupRequest::Raise),
            (r#"{"cancel": true}"#, GroupRequest::Cancel),
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
        let json =
            |answer: &GroupAnswer| serde_json::to_value(MembersOutcome::new(answer)).unwrap();
        let node = serde_json::json!({"result": "node", "node": 4});
        assert_eq!(json(&GroupAnswer::Node(NodeId(4))), node);
        assert_eq!(json(&GroupAnswer::Done), serde_json::json!({"result": "done"}));
        assert_eq!(json(&GroupAnswer::AlreadyDone), serde_json::json!({"result": "nothing_to_do"}));
        assert_eq!(
            json(&GroupAnswer::Planned(None, Vec::new())),
            serde_json::json!({"result": "planned", "plan": null, "steps": []})
        );
    }
}
