//! Read-only views of membership: the list for operators, and the conditions for changes.

use quorate_core::{
    ballot::Era,
    configuration::{Change, Configuration},
    level::Level,
    node_id::{Member, NodeId},
    quorum::{MemberSet, Phase},
    time::Time,
};
use quorate_log::disk::Disk;

use crate::{
    group::{
        Plan,
        asking::{GroupRefusal, GroupRequest, LastPlan, ListedNode, MemberList, PlanInProgress},
        command::{CommandDenied, MemberRole},
        current_goal,
        planner::{self, Goal, MemberFacts, NoPath},
        with_weight,
    },
    members::{
        MembersView,
        driver::{describe_steps, format_goal},
    },
    peers::Peers,
    ports::{
        service::StateMachine,
        status::{LevelStatus, NodeLevelStatus, Peer},
    },
};

/// Hint shown if a voter cannot take the place of another node.
const LEARNER_HINT: &str = "start the new node with `--as learner`; if it already votes, run \
                          'quorate member demote' on it and repeat the command";
/// A plan that is not proposed yet.
pub(crate) struct UnproposedPlan {
    pub(super) plan: Plan,
    /// Members that gain weight and therefore must be caught up.
    pub(super) gaining_members: Vec<Member>,
}

impl<D: Disk, S: StateMachine> MembersView<'_, D, S> {
    /// Returns the condition that holds up the plan in progress, if this node leads.
    pub(crate) fn plan_wait_reason(&self) -> Option<String> {
        let leads = self.spine.protocol.is_leader();
        let waits = self.driver.wait_reason().filter(|_| leads);
        waits.map(ToOwned::to_owned)
    }

    /// Returns the group's members as applied by this node. `peers` are the nodes that it knows.
    pub(crate) fn list_members(&self, now: Time, peers: &[Peer]) -> MemberList {
        let membership = self.spine.applying.membership();
        let (table, eras) = (membership.table(), membership.eras());
        let listed = |(node, known): (NodeId, &crate::group::NodeEntry)| {
            let peer = peers.iter().find(|peer| peer.member.node == node);
            let voter = eras.current().member_of(node);
            ListedNode {
                node,
                entry: known.clone(),
                member: voter.map_or_else(
                    || peer.map_or(Member::first(node.0), |peer| peer.member),
                    |voter| voter.member,
                ),
                weight: voter.map_or(0, |voter| voter.weight),
                is_auxiliary: voter.is_some_and(|voter| voter.auxiliary),
                is_connected: peer.is_some_and(|peer| peer.connected),
                lag_slots: peer.and_then(|peer| peer.lag),
            }
        };
        let underway = |plan: &Plan| {
            // Operators call this often, so a plan found earlier is reused; a leader searches once
            // per plan.
            let known = self.driver.remaining_changes(plan.id, eras.era());
            let changes = known.unwrap_or_else(|| {
                let changes = self.path_to_goal(now, eras.current(), plan);
                changes.unwrap_or_default()
            });
            let left = plan.nodes_to_remove.iter().copied();
            let left: Vec<NodeId> = left.filter(|node| !self.spine.is_id_removed(*node)).collect();
            PlanInProgress {
                id: plan.id,
                description: plan.description.clone(),
                remaining_steps: describe_steps(eras.current(), &changes, &left),
                wait_reason: self.plan_wait_reason(),
            }
        };
        let held = self.spine.node().held_slots().quorum;
        MemberList {
            era: eras.era(),
            nodes: table.nodes().map(listed).collect(),
            plan: table.plan().map(underway),
            last_plan: table
                .last_end()
                .map(|ended| LastPlan { end: ended, is_settled: held > ended.slot }),
            removed_nodes: {
                let spent = eras.identities().iter().filter(|id| id.is_removed);
                spent.map(|id| id.node).collect()
            },
        }
    }

    /// Returns an error unless this node leads: only a leader can raise the level or show the steps
    /// of a plan.
    pub(crate) fn check_leads(&self) -> Result<(), GroupRefusal> {
        if self.spine.protocol.is_leader() {
            return Ok(());
        }
        let leader = self.spine.node().leader();
        let message = match leader {
            Some(leader) => format!("node {leader} leads, not this one"),
            None => "no leader with a quorum is known".to_owned(),
        };
        Err(GroupRefusal::new("not_leader", message, "ask the leader"))
    }

    /// Returns the plan that fulfils a request; `None` if the requested state is already in force.
    pub(crate) fn plan_for(
        &self,
        ask: &GroupRequest,
    ) -> Result<Option<UnproposedPlan>, GroupRefusal> {
        let current = self.spine.applying.membership().eras().current();
        let goal = current_goal(current);
        let weight = |node| current.member_of(node).map_or(0, |voter| voter.weight);
        let mut rising = Vec::new();
        let (mut then, mut leaving) = (Vec::new(), Vec::new());
        let (goal, what) = match *ask {
            GroupRequest::Promote(node) if weight(node) > 0 => return Ok(None),
            GroupRequest::Promote(node) => {
                let member = self.current_incarnation(node)?;
                rising.push(member);
                let known = self.spine.group().entry_of(node);
                if known.is_some_and(|known| known.role == MemberRole::Auxiliary) {
                    let auxiliary = true;
                    then.push(Change::Role { member, auxiliary });
                }
                (with_weight(goal, member, 1), format!("promote node {node}"))
            }
            GroupRequest::Weight(node, 0) | GroupRequest::Demote(node) if weight(node) == 0 => {
                self.check_known(node)?;
                return Ok(None);
            }
            GroupRequest::Weight(node, 0) | GroupRequest::Demote(node) => {
                (without_node(goal, node), format!("demote node {node}"))
            }
            GroupRequest::Weight(node, wanted) if weight(node) == wanted => return Ok(None),
            GroupRequest::Weight(node, wanted) => {
                let member = self.current_incarnation(node)?;
                if weight(node) < wanted {
                    rising.push(member);
                }
                let what = format!("give node {node} the weight {wanted}");
                (with_weight(goal, member, wanted), what)
            }
            GroupRequest::Auxiliary(node, auxiliary) => {
                self.check_known(node)?;
                let Some(voter) = current.member_of(node) else {
                    return Err(GroupRefusal::new(
                        "no_vote",
                        format!("node {node} has no vote"),
                        "promote it first",
                    ));
                };
                if voter.auxiliary == auxiliary {
                    return Ok(None);
                }
                let member = voter.member;
                then.push(Change::Role { member, auxiliary });
                let what = if auxiliary {
                    format!("make node {node} an auxiliary")
                } else {
                    format!("make node {node} a full replica")
                };
                (goal, what)
            }
            GroupRequest::Quorum(rule) if current.rule() == rule => return Ok(None),
            GroupRequest::Quorum(rule) => {
                then.push(Change::Rule(rule));
                (goal, format!("let a quorum be {rule}"))
            }
            GroupRequest::Remove(node) => {
                if self.spine.is_id_removed(node) {
                    return Ok(None);
                }
                self.check_known(node)?;
                leaving.push(node);
                (without_node(goal, node), format!("remove node {node}"))
            }
            GroupRequest::Replace { old, new } => {
                if self.spine.is_id_removed(old) && weight(new) > 0 {
                    return Ok(None);
                }
                self.check_known(old)?;
                if old == new {
                    return Err(GroupRefusal::new(
                        "bad_request",
                        "a node cannot take its own place",
                        "name the node that leaves, then the one that comes",
                    ));
                }
                let plan = self.spine.group().plan();
                let begun = plan.is_some_and(|plan| plan.nodes_to_remove.contains(&old));
                // If the new node already votes with the same weight, only the old node leaves, and
                // no weight changes otherwise.
                let (has, takes) = (weight(new), weight(old));
                if has > 0 && takes > 0 && has != takes && !begun {
                    return Err(GroupRefusal::new(
                        "already_votes",
                        format!(
                            "node {new} votes with weight {has}, and node {old} with weight {takes}: \
                             a node can be replaced by a learner or by a voter of the same weight"
                        ),
                        LEARNER_HINT,
                    ));
                }
                let member = self.current_incarnation(new)?;
                let gets = weight(old).max(weight(new)).max(1);
                if weight(new) < gets {
                    rising.push(member);
                }
                leaving.push(old);
                let goal = with_weight(without_node(goal, old), member, gets);
                (goal, format!("replace node {old} by node {new}"))
            }
            GroupRequest::Join { .. }
            | GroupRequest::Reserve { .. }
            | GroupRequest::Priority(..)
            | GroupRequest::Address(..)
            | GroupRequest::Users(_)
            | GroupRequest::Raise
            | GroupRequest::Cancel => return Ok(None),
        };
        if goal.is_empty() {
            return Err(GroupRefusal::new(
                "last_voter",
                "no voter would be left",
                "promote another node first",
            ));
        }
        let plan =
            Plan { id: 0, goal, later_changes: then, nodes_to_remove: leaving, description: what };
        Ok(Some(UnproposedPlan { plan, gaining_members: rising }))
    }

    pub(crate) fn check_known(&self, node: NodeId) -> Result<(), GroupRefusal> {
        match self.spine.group().entry_of(node) {
            Some(_) => Ok(()),
            None => Err(CommandDenied::UnknownNode(node).into()),
        }
    }

    /// Returns the incarnation of this node that has weight or, failing that, the connected one.
    pub(crate) fn current_incarnation(&self, node: NodeId) -> Result<Member, GroupRefusal> {
        self.check_known(node)?;
        let current = self.spine.applying.membership().eras().current();
        if let Some(voter) = current.member_of(node) {
            return Ok(voter.member);
        }
        if node == self.spine.identity.member.node {
            return Ok(self.spine.identity.member);
        }
        self.spine.peers.member(node).ok_or_else(|| {
            GroupRefusal::new(
                "not_connected",
                format!("node {node} is not connected"),
                "start it, and wait until `quorate member list` shows it",
            )
        })
    }

    /// [join-1] Checks that a member is caught up, the condition for gaining weight. Only a leader
    /// knows how far members lag; any other node skips the check, and the leader repeats it before
    /// the step.
    pub(crate) fn check_level(&self, now: Time, member: Member) -> Result<(), GroupRefusal> {
        if !self.spine.protocol.is_leader() {
            return Ok(());
        }
        match self.spine.member_lag(now, member) {
            Some(lag) if self.spine.is_caught_up(lag) => Ok(()),
            Some(lag) => Err(GroupRefusal::new(
                "not_caught_up",
                format!("node {} is {lag} slots behind", member.node),
                "wait until it is caught up; 'quorate status' shows how far it is",
            )),
            None => Err(GroupRefusal::new(
                "not_caught_up",
                format!("node {} is not connected", member.node),
                "start it, and wait until it is caught up",
            )),
        }
    }

    /// Returns the path to the plan's goal that this node would take as leader.
    pub(crate) fn path_to_goal(
        &self,
        now: Time,
        from: &Configuration,
        plan: &Plan,
    ) -> Result<Vec<Change>, NoPath> {
        let living = self.live_plan_members(now, from, &plan.goal);
        let sight = MemberFacts {
            leader: Some(self.spine.identity.member),
            is_alive: &|member| living.contains(&member),
            is_gone: &|member| has_forgotten(&self.spine.peers, member),
        };
        planner::plan_changes(from, plan, sight)
    }

    /// Returns the live members among those that have weight now or will have it. A node that does
    /// not lead assumes that all of them are alive.
    pub(crate) fn live_plan_members(
        &self,
        now: Time,
        from: &Configuration,
        goal: &Goal,
    ) -> Vec<Member> {
        let members = from.members().iter().map(|voter| voter.member);
        let all = members.chain(goal.keys().copied());
        let leads = self.spine.protocol.is_leader();
        all.filter(|member| !leads || self.spine.member_lag(now, *member).is_some()).collect()
    }

    /// Returns the members of `configuration` with which this leader is in contact.
    pub(crate) fn live_members(&self, now: Time, configuration: &Configuration) -> MemberSet {
        let members = configuration.members().iter().enumerate();
        let heard = members.filter(|(_, voter)| self.spine.member_lag(now, voter.member).is_some());
        heard.fold(MemberSet::default(), |set, (at, _)| set.with(at))
    }

    pub(crate) fn is_alive(&self, now: Time, configuration: &Configuration) -> bool {
        let living = self.live_members(now, configuration);
        configuration.is_quorum(Phase::One, living) && configuration.is_quorum(Phase::Two, living)
    }

    /// Checks that the live voters form a quorum after every step. Only a leader knows which nodes
    /// are alive; any other node skips the check, and the leader repeats it before each step.
    pub(crate) fn check_alive(
        &self,
        now: Time,
        from: &Configuration,
        changes: &[Change],
    ) -> Result<(), GroupRefusal> {
        if !self.spine.protocol.is_leader() {
            return Ok(());
        }
        let mut at = from.clone();
        for change in changes {
            at = at.after_change(*change).map_err(|_| GroupRefusal::from(CommandDenied::NoPath))?;
            if !self.is_alive(now, &at) {
                return Err(GroupRefusal::new(
                    "too_few_alive",
                    format!(
                        "after {change} too few of the voters would be alive to form a quorum ({})",
                        format_goal(&current_goal(&at))
                    ),
                    "start the nodes that are down, or remove them first",
                ));
            }
        }
        Ok(())
    }

    /// Returns whether the plan's next change may be proposed: the last change is in force, or was
    /// proposed long enough ago.
    pub(crate) fn is_plan_due(&self, now: Time) -> bool {
        let era = self.spine.node().era();
        self.spine.group().plan().is_some() && self.driver.is_due(now, era)
    }

    /// Returns when the leader next works on membership, if this node leads.
    pub(crate) fn steer_at(&self) -> Option<Time> {
        let planned = self.spine.group().plan().map(|_| self.driver.next_attempt_at());
        planned.into_iter().chain([self.driver.next_check_at()]).min()
    }

    /// Returns the member to which to hand leadership if the plan removes this leader's weight and
    /// another member can lead.
    pub(crate) fn choose_heir(
        &self,
        now: Time,
        current: &Configuration,
        goal: &Goal,
    ) -> Option<Member> {
        if goal.get(&self.spine.identity.member).is_some_and(|weight| *weight > 0) {
            return None;
        }
        let others = current.members().iter().filter(|voter| {
            let stays = goal.get(&voter.member).is_some_and(|weight| *weight > 0);
            let fit = !self.spine.node().is_unfit(voter.member.node);
            stays && fit && voter.member != self.spine.identity.member && !voter.auxiliary
        });
        let level = others.filter_map(|voter| {
            let lag = self.spine.member_lag(now, voter.member)?;
            self.spine.is_caught_up(lag).then_some((lag, voter.member))
        });
        level.min().map(|(_, member)| member)
    }

    /// Returns the group's level, and each node's supported level as far as it is known here.
    pub(crate) fn level_status(&self, now: Time) -> LevelStatus {
        let (level, own) = (self.spine.level(), self.spine.identity.member.node);
        let to = level.next();
        let nodes = self.joined_nodes().map(|node| NodeLevelStatus {
            node,
            supported_level: match node == own {
                true => Some(self.driver.level_raises.supported_level()),
                false => self.driver.level_raises.supported_level_of(node),
            },
        });
        let supported = to <= self.driver.level_raises.supported_level();
        let leads = self.spine.protocol.is_leader();
        let held_back = match supported && leads {
            true => self.raise_obstacles(now, to),
            false => Vec::new(),
        };
        let due = match supported && leads && held_back.is_empty() {
            true => self.raise_at(),
            false => None,
        };
        LevelStatus {
            level,
            supported_level: self.driver.level_raises.supported_level(),
            nodes: nodes.collect(),
            raise_obstacles: held_back,
            raise_in_ms: due.map(|at| at.0.saturating_sub(now.0) / 1_000),
        }
    }

    /// Returns when a leader raises the level without an operator's request ([level-6],
    /// [level-11]).
    pub(crate) fn raise_at(&self) -> Option<Time> {
        let founded = self.spine.applying.membership().eras().era() == Era(0);
        self.driver.level_raises.raise_due_at(self.joined_nodes(), founded)
    }

    /// Iterates over all nodes that have joined under their id, both voters and learners.
    pub(crate) fn joined_nodes(&self) -> impl Iterator<Item = NodeId> + '_ {
        let nodes = self.spine.group().nodes();
        let come = nodes.filter(|(_, known)| known.has_joined());
        come.map(|(node, _)| node)
    }

    /// [level-5] Returns why the group cannot use this level yet, one reason per line.
    pub(crate) fn raise_obstacles(&self, now: Time, to: Level) -> Vec<String> {
        let own = self.spine.identity.member;
        let eras = self.spine.applying.membership().eras();
        let mut reasons: Vec<String> = self
            .joined_nodes()
            .filter(|node| *node != own.node)
            .filter_map(|node| match self.driver.level_raises.supported_level_of(node) {
                None => Some(format!("node {node} is not connected")),
                Some(newest) if newest < to => {
                    Some(format!("node {node} runs a release that supports level {newest} at most"))
                }
                Some(_) => None,
            })
            .collect();
        let members = eras.current().members().iter().map(|voter| voter.member);
        let unheard = members
            .filter(|member| *member != own && self.spine.member_lag(now, *member).is_none())
            .filter(|member| self.driver.level_raises.supported_level_of(member.node) >= Some(to));
        reasons.extend(unheard.map(|member| format!("node {member} does not answer")));
        if eras.era() != self.spine.node().era() {
            reasons.push("the members are being changed".to_owned());
        }
        reasons
    }

    pub(crate) fn check_held_back(&self, now: Time, to: Level) -> Result<(), GroupRefusal> {
        let reasons = self.raise_obstacles(now, to);
        match reasons.is_empty() {
            true => Ok(()),
            false => Err(GroupRefusal::new(
                "held_back",
                format!("the cluster cannot use level {to} yet: {}", reasons.join("; ")),
                "upgrade and start these nodes, or remove those that are gone",
            )),
        }
    }
}

/// [volatile-1] Returns whether the node has returned as a later member, so that this member will
/// never return.
pub(super) fn has_forgotten(peers: &Peers, member: Member) -> bool {
    let met = peers.member(member.node);
    met.is_some_and(|met| met.incarnation > member.incarnation)
}

pub(super) fn without_node(mut goal: Goal, node: NodeId) -> Goal {
    goal.retain(|member, _| member.node != node);
    goal
}
