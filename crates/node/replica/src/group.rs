//! Members of the group: assigned ids, the nodes' addresses, and the plan in progress. This is
//! replicated state: it is a function of the log and part of every snapshot ([snap-1], [member-2]).
//!
//! Weights belong to the core and change by reconfigurations. All other attributes of a member are
//! stored here. They are changed by commands (`command`), which travel in batches like those of
//! clients and are executed by every node. A plan contains the target weights; the leader moves
//! towards them one step at a time (`members/steps`, `planner`).

pub mod asking;
mod codec;
pub mod command;
pub mod planner;

use std::collections::BTreeMap;

use quorate_core::{
    ballot::Era,
    configuration::{Change, Configuration, InvalidConfiguration},
    level::Level,
    node_id::{Member, NodeId},
    quorum::QuorumRule,
    reconfigure::Eras,
    slot::Slot,
};

use quorate_wire::checksum;

pub use self::command::{Command, CommandDenied, CommandEffect, CommandReply, MemberRole};
pub use self::planner::Goal;

/// Maximum number of ids that are assigned and not removed, including founding members. Bounds the
/// memory that unauthenticated nodes can use on every node by joining.
pub const NODES_MAX: usize = 64;
/// Maximum length of an address in bytes.
pub const ADDRESS_BYTES_MAX: usize = 256;
/// [member-4] First level at which the table itself rejects duplicate addresses.
const UNIQUE_ADDRESSES_LEVEL: Level = Level(10);
/// Maximum length of a plan's description in bytes.
const DESCRIPTION_BYTES_MAX: usize = 256;

/// Entry of a node to which an id was assigned.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NodeEntry {
    /// Nonce of the folder that joined under this id ([join-2]); `None` if the id is reserved for a
    /// node that has not joined yet, or belongs to a founding member.
    pub nonce: Option<u64>,
    /// Address for peers.
    pub peer: String,
    /// Intended or current role.
    pub role: MemberRole,
    /// Priority as leader. Among several candidates, the one with the highest priority leads.
    pub priority: u32,
    /// The node is a founding member.
    pub is_founding: bool,
}

impl NodeEntry {
    /// Returns whether a node has joined under this id; otherwise the id is only reserved.
    pub const fn has_joined(&self) -> bool {
        self.is_founding || self.nonce.is_some()
    }
}

/// Target weights and roles of the members, and nodes to remove.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Plan {
    /// Slot of the command that made the plan.
    pub id: u64,
    /// Target weights.
    pub goal: Goal,
    /// Changes of roles and of the quorum rule, made once the weights have reached their targets.
    pub later_changes: Vec<Change>,
    /// Nodes to remove once they have no weight; their ids are never used again ([member-1]).
    pub nodes_to_remove: Vec<NodeId>,
    /// Description of the operator's request, for display.
    pub description: String,
}

impl Plan {
    /// Returns the changes of roles and of the quorum rule that remain after this configuration's
    /// weights. If quorums of the target rule do not intersect those of the current rule, the
    /// changes include an intermediate rule whose quorums intersect both ([era-4]).
    pub fn remaining_changes(&self, configuration: &Configuration) -> Vec<Change> {
        let mut left = Vec::new();
        for change in &self.later_changes {
            match *change {
                Change::Role { member, auxiliary } => {
                    if configuration.is_auxiliary(member) != auxiliary {
                        left.push(*change);
                    }
                }
                Change::Rule(wanted) if configuration.rule() == wanted => {}
                Change::Rule(wanted) => {
                    if configuration.after_change(*change).is_err() {
                        left.extend(joint_rule(configuration, wanted).map(Change::Rule));
                    }
                    left.push(*change);
                }
                _ => left.push(*change),
            }
        }
        left
    }

    /// Returns whether everything except removals has reached its target.
    pub fn is_reached(&self, configuration: &Configuration) -> bool {
        has_weights(configuration, &self.goal) && self.remaining_changes(configuration).is_empty()
    }

    /// Returns the same plan with the nodes' current members, since some nodes may have forgotten
    /// their votes and have a new incarnation.
    pub fn with_current_members(&self, now: impl Fn(Member) -> Member) -> Self {
        let goal = self.goal.iter();
        let role = |change: &Change| match *change {
            Change::Role { member, auxiliary } => Change::Role { member: now(member), auxiliary },
            other => other,
        };
        Self {
            goal: goal.map(|(member, weight)| (now(*member), *weight)).collect(),
            later_changes: self.later_changes.iter().map(role).collect(),
            ..self.clone()
        }
    }

    fn is_renewal_of(&self, other: &Self) -> bool {
        let later = |member: Member| {
            let mut members = self.goal.keys().copied();
            let of_node = |later: &Member| {
                later.node == member.node && later.incarnation > member.incarnation
            };
            members.find(of_node).unwrap_or(member)
        };
        let renewed = Self { id: self.id, ..other.with_current_members(later) };
        self.goal != other.goal && *self == renewed
    }

    /// Returns the final configuration of the plan, if it is valid.
    fn final_configuration(
        &self,
        from: &Configuration,
    ) -> Result<Configuration, InvalidConfiguration> {
        let weighed = planner::goal_configuration(from, &self.goal)?;
        let left = self.remaining_changes(&weighed);
        left.into_iter().try_fold(weighed, |at, change| at.after_change(change))
    }
}

/// Returns a rule whose quorums satisfy both the current rule and the target rule, if there is one.
fn joint_rule(configuration: &Configuration, wanted: QuorumRule) -> Option<QuorumRule> {
    let most = u32::try_from(configuration.weight() / 2 + 1).ok()?;
    let thresholds = |rule| match rule {
        QuorumRule::Majority => Some((most, most)),
        QuorumRule::Flexible { phase1, phase2 } => Some((phase1, phase2)),
        QuorumRule::Grid { .. } => None,
    };
    let (now, then) = (thresholds(configuration.rule())?, thresholds(wanted)?);
    Some(QuorumRule::Flexible { phase1: now.0.max(then.0), phase2: now.1.max(then.1) })
}

/// Outcome of a finished plan.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PlanEnd {
    /// Id of the plan: the slot of the command that made it.
    pub id: u64,
    /// The plan reached its goal.
    pub is_goal_reached: bool,
    /// Slot of the plan's last change, or of the command that cancelled it.
    pub slot: Slot,
}

/// The replicated table of members.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Group {
    nodes: BTreeMap<NodeId, NodeEntry>,
    /// Nonces of removed nodes. A node that presents one of them is informed of its removal.
    removed_nonces: BTreeMap<u64, NodeId>,
    /// Lowest id that has never been assigned.
    next: u32,
    plan: Option<Plan>,
    last_end: Option<PlanEnd>,
    level: Level,
}

impl Group {
    /// Creates the table of a group founded by `members`.
    pub fn founded(members: impl IntoIterator<Item = (NodeId, String)>) -> Self {
        let known = |(node, peer)| {
            let known = NodeEntry { peer, is_founding: true, ..NodeEntry::default() };
            (node, known)
        };
        let nodes: BTreeMap<NodeId, NodeEntry> = members.into_iter().map(known).collect();
        let last = nodes.last_key_value().map_or(0, |(node, _)| node.0);
        Self { nodes, next: last.saturating_add(1), ..Self::default() }
    }

    /// Iterates over the nodes that have an id, ordered by id.
    pub fn nodes(&self) -> impl Iterator<Item = (NodeId, &NodeEntry)> {
        self.nodes.iter().map(|(node, known)| (*node, known))
    }

    /// Returns the entry of a node; `None` if its id has never been assigned, or has been removed.
    pub fn entry_of(&self, node: NodeId) -> Option<&NodeEntry> {
        self.nodes.get(&node)
    }

    pub fn next_id(&self) -> u32 {
        self.next
    }

    /// [level-5] Returns the group's current level.
    pub fn level(&self) -> Level {
        self.level
    }

    /// Returns the group with initial level `level`, taken from a backup ([level-10]).
    #[must_use]
    pub fn with_level(self, level: Level) -> Self {
        Self { level, ..self }
    }

    /// [level-5] Returns a checksum of the ids of the nodes that joined. A raise contains the
    /// checksum of the nodes that the leader queried.
    pub fn joined_nodes_checksum(&self) -> u32 {
        let come = self.nodes.iter().filter(|(_, known)| known.has_joined());
        let ids: Vec<u8> = come.flat_map(|(node, _)| node.0.to_be_bytes()).collect();
        checksum(&ids)
    }

    /// [level-5] Executes a decided raise that was proposed in this era, and returns whether it
    /// takes effect. It does not if the group's nodes differ from those that the leader queried, or
    /// if `to` is not the next level.
    pub fn raise_level(&mut self, era: Era, nodes: u32, to: Level, eras: &Eras) -> bool {
        let counts =
            era == eras.era() && nodes == self.joined_nodes_checksum() && to == self.level.next();
        if counts {
            self.level = to;
        }
        counts
    }

    pub fn plan(&self) -> Option<&Plan> {
        self.plan.as_ref()
    }

    pub fn last_end(&self) -> Option<PlanEnd> {
        self.last_end
    }

    /// Executes a command that was decided in `slot`, with the eras in force before it. Execution
    /// is deterministic; a refusal is returned as a reply.
    pub fn execute(&mut self, slot: Slot, command: &[u8], eras: &Eras) -> CommandReply {
        let Some(command) = Command::decode(command) else {
            return Err(CommandDenied::Malformed);
        };
        if self.level >= UNIQUE_ADDRESSES_LEVEL {
            self.check_addresses(&command, eras)?;
        }
        match command {
            Command::Allocate { nonce, node, peer, role } => {
                self.allocate_id(nonce, node, peer, role)
            }
            Command::Address { node, peer } => self.change_address(node, peer),
            Command::Priority { node, priority } => self.set_priority(node, priority),
            Command::Plan {
                era: named,
                goal,
                later_changes: then,
                nodes_to_remove: leaving,
                description: what,
            } => {
                let plan = Plan {
                    id: slot.0,
                    goal,
                    later_changes: then,
                    nodes_to_remove: leaving,
                    description: what,
                };
                self.adopt_plan(slot, plan, named, eras)
            }
            Command::Cancel { plan } => self.cancel_plan(slot, plan),
        }
    }

    /// [member-4] Refuses a command that would assign a node an address that another node uses. The
    /// exception is a learner: it may join at the address of a voter to replace it.
    pub fn check_addresses(&self, command: &Command, eras: &Eras) -> Result<(), CommandDenied> {
        match command {
            Command::Allocate { nonce: None, peer, .. } => self.check_free(peer, |_, _| true),
            Command::Allocate { nonce, node, peer, role } => {
                let is_own =
                    |id: NodeId, known: &NodeEntry| known.nonce == *nonce || Some(id) == *node;
                let own = self.nodes().find(|(id, known)| is_own(*id, known));
                match own.map_or(*role, |(_, known)| known.role) {
                    MemberRole::Learner => Ok(()),
                    _ => self.check_free(peer, |id, known| {
                        let votes = eras.current().member_of(id).is_some();
                        !is_own(id, known) && (votes || known.role != MemberRole::Learner)
                    }),
                }
            }
            Command::Address { node, peer } => self.check_free(peer, |id, _| id != *node),
            Command::Plan { goal, .. } => self.check_goal(goal, eras),
            Command::Priority { .. } | Command::Cancel { .. } => Ok(()),
        }
    }

    /// [member-4] Refuses an address of one of the nodes for which `counts` returns `true`.
    fn check_free(
        &self,
        peer: &str,
        counts: impl Fn(NodeId, &NodeEntry) -> bool,
    ) -> Result<(), CommandDenied> {
        let mut nodes = self.nodes();
        let taken = nodes.find(|(id, known)| {
            known.has_joined() && !peer.is_empty() && known.peer == peer && counts(*id, known)
        });
        taken.map_or(Ok(()), |(node, _)| Err(CommandDenied::AddressTaken(node)))
    }

    /// [member-4] Refuses weights that give a node its first vote at the address of another voter.
    pub fn check_goal(&self, goal: &Goal, eras: &Eras) -> Result<(), CommandDenied> {
        let voters = goal.iter().filter(|(_, weight)| **weight > 0).map(|(member, _)| member.node);
        let place = |node: NodeId| self.entry_of(node).map_or("", |known| known.peer.as_str());
        let new = voters.clone().filter(|node| eras.current().member_of(*node).is_none());
        let mut pairs = new.flat_map(|new| voters.clone().map(move |other| (new, other)));
        let twice = pairs.find(|(new, other)| {
            new != other && !place(*new).is_empty() && place(*new) == place(*other)
        });
        twice.map_or(Ok(()), |(_, other)| Err(CommandDenied::AddressTaken(other)))
    }

    fn allocate_id(
        &mut self,
        nonce: Option<u64>,
        node: Option<NodeId>,
        peer: String,
        role: MemberRole,
    ) -> CommandReply {
        if peer.len() > ADDRESS_BYTES_MAX || peer.is_empty() {
            return Err(CommandDenied::BadAddress);
        }
        if let Some(node) = nonce.and_then(|nonce| self.removed_nonces.get(&nonce)) {
            return Err(CommandDenied::Removed(*node));
        }
        let by_nonce =
            |(_, known): &(&NodeId, &mut NodeEntry)| nonce.is_some() && known.nonce == nonce;
        if let Some((node, known)) = self.nodes.iter_mut().find(by_nonce) {
            // The same folder requests an id again, perhaps from another address.
            known.peer = peer;
            return Ok(CommandEffect::Node(*node));
        }
        if let Some(node) = node {
            let known = self.nodes.get_mut(&node).ok_or(CommandDenied::UnknownNode(node))?;
            if known.has_joined() || nonce.is_none() {
                return Err(CommandDenied::IdTaken(node));
            }
            known.nonce = nonce;
            known.peer = peer;
            return Ok(CommandEffect::Node(node));
        }
        let kept = |(_, known): &(&NodeId, &mut NodeEntry)| {
            nonce.is_none() && !known.has_joined() && known.peer == peer
        };
        if let Some((node, known)) = self.nodes.iter_mut().find(kept) {
            // The id is already reserved for this address: the operator has repeated the request.
            known.role = role;
            return Ok(CommandEffect::Node(*node));
        }
        if self.nodes.len() >= NODES_MAX {
            return Err(CommandDenied::TableFull);
        }
        let node = NodeId(self.next);
        self.next = self.next.checked_add(1).ok_or(CommandDenied::TableFull)?;
        let known = NodeEntry { nonce, peer, role, ..NodeEntry::default() };
        self.nodes.insert(node, known);
        Ok(CommandEffect::Node(node))
    }

    fn change_address(&mut self, node: NodeId, peer: String) -> CommandReply {
        if peer.len() > ADDRESS_BYTES_MAX || peer.is_empty() {
            return Err(CommandDenied::BadAddress);
        }
        let known = self.nodes.get_mut(&node).ok_or(CommandDenied::UnknownNode(node))?;
        known.peer = peer;
        Ok(CommandEffect::Done)
    }

    fn set_priority(&mut self, node: NodeId, priority: u32) -> CommandReply {
        let known = self.nodes.get_mut(&node).ok_or(CommandDenied::UnknownNode(node))?;
        known.priority = priority;
        Ok(CommandEffect::Done)
    }

    /// Adopts a plan unless it is based on an outdated state, as when two operators act at once.
    /// The plan in progress may be renewed under its own id, since callers wait for that id to end.
    fn adopt_plan(&mut self, slot: Slot, mut plan: Plan, named: Era, eras: &Eras) -> CommandReply {
        if let Some(other) = &self.plan {
            if !plan.is_renewal_of(other) {
                return Err(CommandDenied::UnderWay(other.id));
            }
            plan.id = other.id;
        }
        if plan.description.len() > DESCRIPTION_BYTES_MAX {
            return Err(CommandDenied::Malformed);
        }
        if named != eras.era() {
            return Err(CommandDenied::OtherEra(eras.era()));
        }
        let unknown = plan.goal.keys().map(|member| member.node);
        let unknown = unknown.chain(plan.nodes_to_remove.iter().copied());
        if let Some(node) = unknown.into_iter().find(|node| !self.nodes.contains_key(node)) {
            return Err(CommandDenied::UnknownNode(node));
        }
        // The outcome must not depend on the node that runs the search, or on a later version of
        // the search. So only the final configuration is checked.
        let last = plan.final_configuration(eras.current());
        let heavy = |weight: &u32| *weight > planner::TARGET_WEIGHT_MAX;
        let keeps_leaving = plan.nodes_to_remove.iter().any(|node| {
            let weight = |(member, weight): (&Member, &u32)| member.node == *node && *weight > 0;
            plan.goal.iter().any(weight)
        });
        if last.is_err() || keeps_leaving || plan.goal.values().any(heavy) {
            return Err(CommandDenied::NoPath);
        }
        let id = plan.id;
        self.plan = Some(plan);
        self.apply_eras(slot, eras);
        Ok(CommandEffect::Plan(id))
    }

    fn cancel_plan(&mut self, at: Slot, id: u64) -> CommandReply {
        match self.plan.take_if(|plan| plan.id == id) {
            Some(_) => {
                let reached = false;
                self.last_end = Some(PlanEnd { id, is_goal_reached: reached, slot: at });
                Ok(CommandEffect::Done)
            }
            None => Err(CommandDenied::NoSuchPlan),
        }
    }

    /// Applies the eras in force after this slot: drops removed nodes, and ends a plan that reached
    /// its goal.
    pub fn apply_eras(&mut self, at: Slot, eras: &Eras) {
        let spent = |node: NodeId| eras.identity(node).is_some_and(|id| id.is_removed);
        let gone = self.nodes.extract_if(.., |node, _| spent(*node));
        let gone = gone.filter_map(|(node, known)| Some((known.nonce?, node)));
        self.removed_nonces.extend(gone);
        let reached = |plan: &mut Plan| {
            plan.is_reached(eras.current()) && plan.nodes_to_remove.iter().all(|node| spent(*node))
        };
        if let Some(Plan { id, .. }) = self.plan.take_if(reached) {
            let reached = true;
            self.last_end = Some(PlanEnd { id, is_goal_reached: reached, slot: at });
        }
    }
}

/// Returns whether the weights match the goal.
pub fn has_weights(configuration: &Configuration, goal: &Goal) -> bool {
    let wanted = goal.iter().filter(|(_, weight)| **weight > 0);
    current_goal(configuration).iter().eq(wanted)
}

/// Returns the weights of the configuration's members, the starting point for a plan's goal.
pub fn current_goal(configuration: &Configuration) -> Goal {
    let members = configuration.members().iter();
    members.map(|voter| (voter.member, voter.weight)).collect()
}

/// Returns the goal with the weight of one member changed; a weight of 0 removes the member.
pub fn with_weight(mut goal: Goal, member: Member, weight: u32) -> Goal {
    goal.insert(member, weight);
    goal.retain(|_, weight| *weight > 0);
    goal
}

#[cfg(test)]
mod tests {
    use quorate_core::{class::Class, node_id::Incarnation, value::Value};

    use super::*;

    fn group() -> (Group, Configuration) {
        let members = (1..=3).map(|node| (NodeId(node), format!("n{node}:1")));
        let voters = (1..=3).map(Member::first);
        let configuration = Configuration::majority_of(voters, Class::Durable).unwrap();
        (Group::founded(members), configuration)
    }

    fn run(group: &mut Group, slot: u64, command: &Command) -> CommandReply {
        let (_, configuration) = self::group();
        group.execute(Slot(slot), &command.encode(), &Eras::founded(configuration))
    }

    fn allocate(nonce: Option<u64>, node: Option<u32>) -> Command {
        Command::Allocate {
            nonce,
            node: node.map(NodeId),
            peer: "here:1".to_owned(),
            role: MemberRole::Voter,
        }
    }

    /// [join-2] A folder that repeats its request gets the same id; another folder gets another id.
    #[test]
    fn id_is_allocated_once_per_nonce_and_never_reused() {
        let (mut group, _) = group();
        let four = Ok(CommandEffect::Node(NodeId(4)));
        assert_eq!(run(&mut group, 1, &allocate(Some(7), None)), four);
        assert_eq!(run(&mut group, 2, &allocate(Some(7), None)), four);
        let five = Ok(CommandEffect::Node(NodeId(5)));
        assert_eq!(run(&mut group, 3, &allocate(Some(8), None)), five);
        let six = Ok(CommandEffect::Node(NodeId(6)));
        assert_eq!(run(&mut group, 4, &allocate(None, None)), six, "kept for another");
        assert_eq!(run(&mut group, 5, &allocate(Some(9), Some(6))), six);
        assert_eq!(run(&mut group, 6, &allocate(Some(9), Some(6))), six, "again");
        for (nonce, node) in [(Some(10), 6), (Some(10), 1), (None, 6)] {
            let taken = Err(CommandDenied::IdTaken(NodeId(node)));
            assert_eq!(run(&mut group, 7, &allocate(nonce, Some(node))), taken);
        }
        let unknown = Err(CommandDenied::UnknownNode(NodeId(9)));
        assert_eq!(run(&mut group, 8, &allocate(Some(11), Some(9))), unknown);
    }

    /// An operator that reserves an id for the same address again does not use up another id.
    #[test]
    fn only_one_id_is_reserved_per_address() {
        let (mut group, _) = group();
        let keep = |peer: &str, role| Command::Allocate {
            nonce: None,
            node: None,
            peer: peer.to_owned(),
            role,
        };
        let four = Ok(CommandEffect::Node(NodeId(4)));
        assert_eq!(run(&mut group, 1, &keep("a:1", MemberRole::Voter)), four);
        assert_eq!(run(&mut group, 2, &keep("a:1", MemberRole::Learner)), four);
        assert_eq!(group.entry_of(NodeId(4)).unwrap().role, MemberRole::Learner);
        let five = Ok(CommandEffect::Node(NodeId(5)));
        assert_eq!(run(&mut group, 3, &keep("b:1", MemberRole::Voter)), five);
        // Once a node has joined, another one may use its address: a machine whose folder was lost.
        let come = Command::Allocate {
            nonce: Some(7),
            node: Some(NodeId(4)),
            peer: "a:1".to_owned(),
            role: MemberRole::Voter,
        };
        assert_eq!(run(&mut group, 4, &come), four);
        let six = Ok(CommandEffect::Node(NodeId(6)));
        assert_eq!(run(&mut group, 5, &keep("a:1", MemberRole::Voter)), six);
        let seven = Ok(CommandEffect::Node(NodeId(7)));
        assert_eq!(run(&mut group, 6, &keep("n2:1", MemberRole::Voter)), seven);
    }

    /// [member-4] From the level on, the table rejects duplicate addresses. Below it, the table
    /// executes such commands, as an older release does.
    #[test]
    fn duplicate_voter_addresses_are_refused() {
        let at = |level| group().0.with_level(Level(level));
        let ask = |nonce, role| {
            let peer = "n3:1".to_owned();
            Command::Allocate { nonce, node: None, peer, role }
        };
        let taken = Err(CommandDenied::AddressTaken(NodeId(3)));
        for command in [
            ask(None, MemberRole::Voter),
            ask(None, MemberRole::Learner),
            ask(Some(7), MemberRole::Voter),
            ask(Some(7), MemberRole::Auxiliary),
            Command::Address { node: NodeId(2), peer: "n3:1".to_owned() },
        ] {
            assert_eq!(run(&mut at(10), 1, &command), taken);
            assert!(run(&mut at(9), 1, &command).is_ok());
        }
        let mut group = at(10);
        let four = Ok(CommandEffect::Node(NodeId(4)));
        assert_eq!(run(&mut group, 1, &ask(Some(7), MemberRole::Learner)), four);
        assert_eq!(run(&mut group, 2, &ask(Some(7), MemberRole::Learner)), four, "again");
        let plan = |nodes: &[u32], leaving| Command::Plan {
            era: Era(0),
            goal: nodes.iter().map(|node| (Member::first(*node), 1)).collect(),
            later_changes: Vec::new(),
            nodes_to_remove: leaving,
            description: String::new(),
        };
        assert_eq!(run(&mut group, 3, &plan(&[1, 2, 3, 4], Vec::new())), taken);
        let replaced = run(&mut group, 4, &plan(&[1, 2, 4], vec![NodeId(3)]));
        assert_eq!(replaced, Ok(CommandEffect::Plan(4)));
    }

    /// [level-5] A raise takes effect only for the nodes that the leader queried, and for one level
    /// at a time. Until the first raise, the table is encoded as by releases without levels.
    #[test]
    fn raise_applies_only_to_the_queried_nodes_and_era() {
        let (mut group, configuration) = group();
        let mut eras = Eras::founded(configuration);
        let (era, sum) = (eras.era(), group.joined_nodes_checksum());
        assert_eq!(group.encode()[0], 1, "as every release wrote it");
        assert!(!group.raise_level(era, sum ^ 1, Level(9), &eras));
        assert!(!group.raise_level(Era(1), sum, Level(9), &eras));
        for level in [7, 8, 10, u16::MAX] {
            assert!(!group.raise_level(era, sum, Level(level), &eras), "{level}");
        }
        // In the meantime a node joined, or a weight changed.
        let mut with_four = group.clone();
        run(&mut with_four, 1, &allocate(None, None)).unwrap();
        assert_eq!(with_four.joined_nodes_checksum(), sum, "an id that is kept is no node");
        run(&mut with_four, 2, &allocate(Some(7), Some(4))).unwrap();
        assert!(!with_four.raise_level(era, sum, Level(9), &eras));
        let change = Change::Multiply(2);
        assert!(eras.apply_decided(Slot(3), &Value::Reconfigure { era, change }));
        assert!(!group.raise_level(era, sum, Level(9), &eras));
        assert_eq!(group.level(), Level(8));
        assert!(group.raise_level(eras.era(), sum, Level(9), &eras));
        assert!(!group.raise_level(eras.era(), sum, Level(9), &eras), "twice");
        assert_eq!(group.level(), Level(9));
        let bytes = group.encode();
        assert_eq!(bytes[0], 2, "a release before levels refuses it");
        assert_eq!(Group::decode(&bytes), Some(group));
        let mut odd = bytes;
        odd[2] = 8;
        assert_eq!(Group::decode(&odd), None, "one table, one form");
    }

    #[test]
    fn ids_are_bounded() {
        let (mut group, _) = group();
        for nonce in 0..NODES_MAX as u64 - 3 {
            assert!(run(&mut group, nonce, &allocate(Some(nonce), None)).is_ok());
        }
        assert_eq!(run(&mut group, 99, &allocate(Some(99), None)), Err(CommandDenied::TableFull));
    }

    /// A removed node learns of its removal and gets no other id, however late its request.
    #[test]
    fn a_removed_node_gets_no_other_id() {
        let (mut group, configuration) = group();
        let four = run(&mut group, 1, &allocate(Some(7), None));
        assert_eq!(four, Ok(CommandEffect::Node(NodeId(4))));
        let mut eras = Eras::founded(configuration);
        let change = Change::Remove(NodeId(4));
        eras.apply_decided(Slot(2), &Value::Reconfigure { era: Era(0), change });
        group.apply_eras(Slot(2), &eras);
        assert_eq!(group.entry_of(NodeId(4)), None);
        let removed = Err(CommandDenied::Removed(NodeId(4)));
        assert_eq!(run(&mut group, 3, &allocate(Some(7), None)), removed);
        assert_eq!(Group::decode(&group.encode()), Some(group));
    }

    /// When two operators act concurrently, one wins, and the other gets an error.
    #[test]
    fn one_plan_at_a_time_and_only_in_its_era() {
        let (mut group, configuration) = group();
        run(&mut group, 1, &allocate(Some(7), None)).unwrap();
        let goal = with_weight(current_goal(&configuration), Member::first(4), 1);
        let plan = |era, goal: &Goal| Command::Plan {
            era: Era(era),
            goal: goal.clone(),
            later_changes: vec![],
            nodes_to_remove: vec![],
            description: "add node 4".to_owned(),
        };
        let late = run(&mut group, 2, &plan(3, &goal));
        assert_eq!(late, Err(CommandDenied::OtherEra(Era(0))));
        assert_eq!(run(&mut group, 3, &plan(0, &goal)), Ok(CommandEffect::Plan(3)));
        assert_eq!(run(&mut group, 4, &plan(0, &goal)), Err(CommandDenied::UnderWay(3)));
        assert_eq!(
            run(&mut group, 5, &Command::Cancel { plan: 4 }),
            Err(CommandDenied::NoSuchPlan)
        );
        let mut eras = Eras::founded(configuration.clone());
        group.apply_eras(Slot(6), &eras);
        assert!(group.plan().is_some());
        let change = Change::Increment(Member::first(4));
        assert!(eras.apply_decided(Slot(7), &Value::Reconfigure { era: Era(0), change }));
        group.apply_eras(Slot(7), &eras);
        let ended = PlanEnd { id: 3, is_goal_reached: true, slot: Slot(7) };
        assert_eq!((group.plan(), group.last_end()), (None, Some(ended)));
        let stranger = with_weight(goal, Member::first(9), 1);
        let unknown = Err(CommandDenied::UnknownNode(NodeId(9)));
        assert_eq!(run(&mut group, 6, &plan(0, &stranger)), unknown);
        assert_eq!(run(&mut group, 7, &plan(0, &Goal::new())), Err(CommandDenied::NoPath));
    }

    /// [volatile-2] A plan continues with the new member id of a node that lost its votes.
    #[test]
    fn plan_is_renewed_only_for_a_node_that_lost_its_votes() {
        let (mut group, configuration) = group();
        let later = |node, incarnation| Member {
            node: NodeId(node),
            incarnation: Incarnation(incarnation),
        };
        let role = |member| Change::Role { member, auxiliary: true };
        let plan = |member, weight, what: &str| {
            let mut goal = current_goal(&configuration);
            goal.remove(&Member::first(3));
            Command::Plan {
                era: Era(0),
                goal: with_weight(goal, member, weight),
                later_changes: vec![role(member)],
                nodes_to_remove: vec![],
                description: what.to_owned(),
            }
        };
        let first = plan(later(3, 1), 1, "take node 3 back");
        assert_eq!(run(&mut group, 5, &first), Ok(CommandEffect::Plan(5)));
        let renewed = plan(later(3, 2), 1, "take node 3 back");
        assert_eq!(run(&mut group, 6, &renewed), Ok(CommandEffect::Plan(5)));
        let under_way = group.plan().unwrap().clone();
        assert_eq!(under_way.id, 5);
        assert_eq!(under_way.goal.get(&later(3, 2)), Some(&1));
        assert_eq!(under_way.later_changes, [role(later(3, 2))]);
        for other in [
            first,
            renewed,
            plan(later(3, 3), 2, "take node 3 back"),
            plan(later(3, 3), 1, "something else"),
        ] {
            assert_eq!(run(&mut group, 7, &other), Err(CommandDenied::UnderWay(5)));
        }
        assert_eq!(group.plan(), Some(&under_way));
    }

    #[test]
    fn table_round_trips_and_truncation_is_refused() {
        let (mut group, configuration) = group();
        run(&mut group, 1, &allocate(Some(7), None)).unwrap();
        run(&mut group, 2, &allocate(None, None)).unwrap();
        let priority = Command::Priority { node: NodeId(2), priority: 9 };
        run(&mut group, 3, &priority).unwrap();
        let plan = Command::Plan {
            era: Era(0),
            goal: with_weight(current_goal(&configuration), Member::first(4), 2),
            later_changes: vec![
                Change::Role { member: Member::first(3), auxiliary: true },
                Change::Rule(QuorumRule::Flexible { phase1: 4, phase2: 2 }),
            ],
            nodes_to_remove: vec![NodeId(5)],
            description: "x".to_owned(),
        };
        run(&mut group, 4, &plan).unwrap();
        let bytes = group.encode();
        assert_eq!(Group::decode(&bytes), Some(group));
        for cut in 0..bytes.len() {
            assert_eq!(Group::decode(&bytes[..cut]), None, "cut at {cut}");
        }
        assert_eq!(Group::decode(&[&bytes[..], &[0]].concat()), None);
    }

    #[test]
    fn malformed_commands_are_denied() {
        let (mut group, configuration) = group();
        for bytes in [&b""[..], b"x", &[1, 2, 3], &[255; 40]] {
            let denied = group.execute(Slot(1), bytes, &Eras::founded(configuration.clone()));
            assert_eq!(denied, Err(CommandDenied::Malformed));
        }
        let long = Command::Address { node: NodeId(1), peer: "x".repeat(ADDRESS_BYTES_MAX + 1) };
        assert_eq!(run(&mut group, 1, &long), Err(CommandDenied::BadAddress));
    }
}
