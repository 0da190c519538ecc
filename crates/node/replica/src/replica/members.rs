//! Membership of the group: requests of operators and joining nodes, and their execution by the
//! leader ([era-8], [join-1], [member-2], [volatile-2]).

use quorate_core::{
    ballot::Era,
    configuration::{Change, Configuration},
    input::Input,
    node_id::{Member, NodeId},
    quorum::{MemberSet, Phase},
    slot::Slot,
    time::Time,
    value::Value,
};
use quorate_log::disk::Disk;

use super::Replica;
use crate::{
    group::{
        As, Command, Denied, Goal, Group, Plan,
        asking::{Answer, Ask, LastPlan, Listed, Members, PeerTable, Refused, Underway},
        goal_of,
        planner::{self, NoPath, Sight, losses_survived},
        with,
    },
    peers::Peers,
    ports::{front::Failure, plane::Plane, service::StateMachine},
    proposing::{batch::Kind, gather::Waiter},
    steering::{LOOK_MS, goal_text, steps_to_show},
};

/// Hint shown if a voter cannot take the place of another node.
const AS_LEARNER: &str = "start the new node with `--as learner`; if it already votes, run \
                          'quorate member demote' on it and repeat the command";
/// Hint shown if a voter cannot take the place of another node because the quorum rule needs that
/// node's weight.
const AS_LEARNER_OR_RULE: &str = "start the new node with `--as learner`; if it already votes, change the rule with \
                                  'quorate member quorum' and repeat the command";

/// Hint shown if replacing a node by a voter would leave the group with fewer votes than it needs.
const NAME_A_NEW_NODE: &str = "name a new node that was started with `--as learner`; to make the group smaller, \
                               use 'quorate member remove'";

/// A plan that is not proposed yet.
struct Wanted {
    plan: Plan,
    /// Members that gain weight and therefore must be caught up.
    rising: Vec<Member>,
}

/// Maximum lag, in values, at which a node counts as caught up.
const LEVEL_VALUES: u64 = 4096;

impl<D: Disk, S: StateMachine> Replica<D, S> {
    /// Starts a request to the group under the new number `asked`. The caller takes the outcome
    /// with [`Replica::take_group_answer`]. With `dry_run`, the plan is only shown and nothing is
    /// changed.
    pub fn ask_group(&mut self, now: Time, asked: u64, ask: Ask, dry_run: bool) {
        let begun = match dry_run || ask.needs_table() {
            true => self.judge_later(now, asked, ask, dry_run),
            false => self.begin_ask(now, asked, ask, dry_run),
        };
        if let Err(refused) = begun {
            self.steering.answer(asked, Err(refused));
        }
    }

    /// [read-7] Delays a request until a linearizable read shows that this node is up to date.
    fn judge_later(
        &mut self,
        now: Time,
        asked: u64,
        ask: Ask,
        dry_run: bool,
    ) -> Result<(), Refused> {
        self.is_open()?;
        self.reading.accept(now, Waiter::Operator(asked))?;
        self.steering.judge_later(asked, ask, dry_run);
        Ok(())
    }

    /// [read-7] Checks operators' requests for which this node has applied everything that was
    /// decided before them.
    pub(super) fn judge_asks(&mut self, now: Time) {
        while let Some(asked) = self.completions.take_judged() {
            if let Some((ask, dry_run)) = self.steering.take_unjudged(asked)
                && let Err(refused) = self.begin_ask(now, asked, ask, dry_run)
            {
                self.steering.answer(asked, Err(refused));
            }
        }
    }

    /// Takes the next outcome of a request, if there is one.
    pub fn take_group_answer(&mut self) -> Option<(u64, Result<Answer, Refused>)> {
        while let Some((asked, ended)) = self.completions.take_group() {
            let unjudged = self.steering.take_unjudged(asked).is_some();
            let standing = self.standing();
            let left = standing.known_to.0.saturating_sub(standing.applied_to.0);
            match ended {
                Err(Failure::NoQuorum) if unjudged && left > 0 => {
                    self.steering.answer(
                        asked,
                        Err(Refused::new(
                            "unavailable",
                            format!("this node is still applying its log: {left} slots are left"),
                            "ask again when it has, or ask another node",
                        )),
                    );
                }
                ended => self.steering.on_ended(asked, ended),
            }
        }
        self.steering.take_answer()
    }

    /// Returns the group's table as of the applied slots: ids, addresses and the plan.
    pub fn group(&self) -> &Group {
        self.applying.membership().table()
    }

    /// Returns whether this node has applied its own removal ([member-1]).
    pub fn is_removed(&self) -> bool {
        self.is_spent(self.member.node)
    }

    /// Returns the condition for which the plan in progress waits, if this node leads.
    pub(super) fn plan_waits(&self) -> Option<String> {
        let leads = self.protocol.leads();
        let waits = self.steering.waits().filter(|_| leads);
        waits.map(ToOwned::to_owned)
    }

    pub(super) fn is_spent(&self, node: NodeId) -> bool {
        let identity = self.applying.membership().eras().identity(node);
        identity.is_some_and(|identity| identity.spent)
    }

    /// Returns the nodes and their addresses if they changed since the last call.
    pub fn take_peer_table(&mut self) -> Option<PeerTable> {
        let membership = self.applying.membership();
        if self.steering.returned_version == Some(membership.version()) {
            return None;
        }
        self.steering.returned_version = Some(membership.version());
        let known = membership.table().nodes();
        let spent = membership.eras().ids().iter().filter(|id| id.spent);
        Some(PeerTable {
            peers: known.map(|(node, known)| (node, known.peer.clone())).collect(),
            removed: spent.map(|id| id.node).collect(),
        })
    }

    /// Returns the group's members as applied by this node.
    pub fn members(&self, now: Time) -> Members {
        let membership = self.applying.membership();
        let (table, eras) = (membership.table(), membership.eras());
        let peers = self.known_peers(now);
        let listed = |(node, known): (NodeId, &crate::group::Known)| {
            let peer = peers.iter().find(|peer| peer.member.node == node);
            let voter = eras.current().member_of(node);
            Listed {
                node,
                known: known.clone(),
                member: voter.map_or_else(
                    || peer.map_or(Member::first(node.0), |peer| peer.member),
                    |voter| voter.member,
                ),
                weight: voter.map_or(0, |voter| voter.weight),
                auxiliary: voter.is_some_and(|voter| voter.auxiliary),
                connected: peer.is_some_and(|peer| peer.connected),
                lag: peer.and_then(|peer| peer.lag),
            }
        };
        let underway = |plan: &Plan| {
            // Operators call this often, so a plan found earlier is reused; a leader searches once
            // per plan.
            let known = self.steering.rest(plan.id, eras.era());
            let changes = known.unwrap_or_else(|| {
                let changes = self.way(now, eras.current(), plan);
                changes.unwrap_or_default()
            });
            let left = plan.leaving.iter().copied();
            let left: Vec<NodeId> = left.filter(|node| !self.is_spent(*node)).collect();
            Underway {
                id: plan.id,
                what: plan.what.clone(),
                steps: steps_to_show(eras.current(), &changes, &left),
                waits: self.plan_waits(),
            }
        };
        let held = self.protocol.node().held().quorum;
        Members {
            era: eras.era(),
            nodes: table.nodes().map(listed).collect(),
            plan: table.plan().map(underway),
            last: table.ended().map(|ended| LastPlan { ended, settled: held > ended.at }),
            removed: {
                let spent = eras.ids().iter().filter(|id| id.spent);
                spent.map(|id| id.node).collect()
            },
        }
    }

    fn begin_ask(&mut self, now: Time, asked: u64, ask: Ask, dry_run: bool) -> Result<(), Refused> {
        self.is_open()?;
        self.applying.takes_commands()?;
        let command = match ask {
            Ask::Join { nonce, node, peer, role } => {
                Command::Allocate { nonce: Some(nonce), node, peer, role }
            }
            Ask::Reserve { peer, role } => {
                Command::Allocate { nonce: None, node: None, peer, role }
            }
            Ask::Priority(node, priority) => Command::Priority { node, priority },
            Ask::Address(node, peer) => Command::Address { node, peer },
            Ask::Cancel => match self.group().plan() {
                Some(plan) => Command::Cancel { plan: plan.id },
                None => {
                    self.steering.answer(asked, Ok(Answer::Already));
                    return Ok(());
                }
            },
            Ask::Users(command) => return self.begin_users(now, asked, &command, dry_run),
            Ask::Raise => {
                self.check_leads()?;
                return self.begin_raise(now, asked, dry_run);
            }
            other => return self.begin_plan(now, asked, &other, dry_run),
        };
        // [member-4] Checked at every level, because only this node decides whether to propose the
        // command.
        let membership = self.applying.membership();
        membership.table().check_addresses(&command, membership.eras())?;
        if dry_run {
            // Only a plan has steps to show. Other commands are refused if they would be denied.
            let membership = self.applying.membership();
            let (mut table, at) = (membership.table().clone(), self.applying.applied_to());
            table.execute(at, &command.encode(), membership.eras()).map_err(Refused::from)?;
            self.steering.answer(asked, Ok(Answer::Planned(None, Vec::new())));
            return Ok(());
        }
        self.propose_command(now, Waiter::Operator(asked), &command)
    }

    /// Starts a request to change users. Users have a separate table, but its commands go through
    /// the log like all others.
    fn begin_users(
        &mut self,
        now: Time,
        asked: u64,
        command: &quorate_access::Command,
        dry_run: bool,
    ) -> Result<(), Refused> {
        if dry_run {
            let would = self.applying.access().would(command.clone());
            would.map_err(Denied::Users)?;
            self.steering.answer(asked, Ok(Answer::Done));
            return Ok(());
        }
        let origin = self.proposing.origin();
        let waiter = Waiter::Operator(asked);
        Ok(origin.accept_for(now, Kind::Access, waiter, &command.encode())?)
    }

    fn propose_command(
        &mut self,
        now: Time,
        waiter: Waiter,
        command: &Command,
    ) -> Result<(), Refused> {
        let origin = self.proposing.origin();
        Ok(origin.accept_for(now, Kind::Group, waiter, &command.encode())?)
    }

    fn begin_plan(
        &mut self,
        now: Time,
        asked: u64,
        ask: &Ask,
        dry_run: bool,
    ) -> Result<(), Refused> {
        if dry_run {
            // The steps depend on which nodes are alive, and only the leader knows that.
            self.check_leads()?;
        }
        let Some(wanted) = self.wanted(ask)? else {
            self.steering.answer(asked, Ok(Answer::Already));
            return Ok(());
        };
        if let Some(plan) = self.group().plan() {
            // If the request is repeated, its plan is already in progress.
            let asked_before = (&plan.goal, &plan.then, &plan.leaving);
            if asked_before == (&wanted.plan.goal, &wanted.plan.then, &wanted.plan.leaving) {
                let (id, current) = (plan.id, self.applying.membership().eras().current());
                let changes = self.way(now, current, plan).unwrap_or_default();
                let steps = steps_to_show(current, &changes, &plan.leaving);
                self.steering.answer(asked, Ok(Answer::Planned(Some(id), steps)));
                return Ok(());
            }
            return Err(Denied::UnderWay(plan.id).into());
        }
        let Wanted { plan, rising } = wanted;
        let membership = self.applying.membership();
        // [member-4] Checked at every level, as in `begin_ask`.
        membership.table().check_goal(&plan.goal, membership.eras()).map_err(|denied| {
            let refused = Refused::from(denied);
            match (denied, &rising[..]) {
                (Denied::AddressTaken(old), [new]) => {
                    let new = new.node;
                    let message = format!(
                        "node {old} votes at the address of node {new} already: if its folder is lost, \
                         run 'quorate member replace {old} {new}'"
                    );
                    Refused { message, ..refused }
                }
                _ => refused,
            }
        })?;
        for member in &rising {
            self.check_level(now, *member)?;
        }
        let (era, current) = (membership.eras().era(), membership.eras().current());
        let by_voter = match *ask {
            Ask::Replace { new, .. } => current.member_of(new).is_some(),
            _ => false,
        };
        let changes = self.way(now, current, &plan).map_err(|why| match by_voter {
            // The quorum rule would lose the old node's weight; a learner can take it over.
            true => Refused { hint: AS_LEARNER_OR_RULE, ..no_way(why) },
            false => no_way(why),
        })?;
        self.check_alive(now, current, &changes)?;
        if by_voter {
            check_bears(current, &changes, &plan.leaving)?;
        }
        let steps = steps_to_show(current, &changes, &plan.leaving);
        if dry_run {
            self.steering.answer(asked, Ok(Answer::Planned(None, steps)));
            return Ok(());
        }
        let command = Command::Plan {
            era,
            goal: plan.goal,
            then: plan.then,
            leaving: plan.leaving,
            what: plan.what,
        };
        self.propose_command(now, Waiter::Operator(asked), &command)?;
        self.steering.wait(asked, steps);
        Ok(())
    }

    /// Returns an error unless this node leads: only a leader can raise the level or show the steps
    /// of a plan.
    fn check_leads(&self) -> Result<(), Refused> {
        if self.protocol.leads() {
            return Ok(());
        }
        let leader = self.protocol.node().leader();
        let message = match leader {
            Some(leader) => format!("node {leader} leads, not this one"),
            None => "no leader with a quorum is known".to_owned(),
        };
        Err(Refused::new("not_leader", message, "ask the leader"))
    }

    /// Returns the plan for a request; `None` if the requested state is already in force.
    fn wanted(&self, ask: &Ask) -> Result<Option<Wanted>, Refused> {
        let current = self.applying.membership().eras().current();
        let goal = goal_of(current);
        let weight = |node| current.member_of(node).map_or(0, |voter| voter.weight);
        let mut rising = Vec::new();
        let (mut then, mut leaving) = (Vec::new(), Vec::new());
        let (goal, what) = match *ask {
            Ask::Promote(node) if weight(node) > 0 => return Ok(None),
            Ask::Promote(node) => {
                let member = self.met(node)?;
                rising.push(member);
                let known = self.group().known(node);
                if known.is_some_and(|known| known.role == As::Auxiliary) {
                    let auxiliary = true;
                    then.push(Change::Role { member, auxiliary });
                }
                (with(goal, member, 1), format!("promote node {node}"))
            }
            Ask::Weight(node, 0) | Ask::Demote(node) if weight(node) == 0 => {
                self.check_known(node)?;
                return Ok(None);
            }
            Ask::Weight(node, 0) | Ask::Demote(node) => {
                (without(goal, node), format!("demote node {node}"))
            }
            Ask::Weight(node, wanted) if weight(node) == wanted => return Ok(None),
            Ask::Weight(node, wanted) => {
                let member = self.met(node)?;
                if weight(node) < wanted {
                    rising.push(member);
                }
                let what = format!("give node {node} the weight {wanted}");
                (with(goal, member, wanted), what)
            }
            Ask::Auxiliary(node, auxiliary) => {
                self.check_known(node)?;
                let Some(voter) = current.member_of(node) else {
                    return Err(Refused::new(
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
            Ask::Quorum(rule) if current.rule() == rule => return Ok(None),
            Ask::Quorum(rule) => {
                then.push(Change::Rule(rule));
                (goal, format!("let a quorum be {rule}"))
            }
            Ask::Remove(node) => {
                if self.is_spent(node) {
                    return Ok(None);
                }
                self.check_known(node)?;
                leaving.push(node);
                (without(goal, node), format!("remove node {node}"))
            }
            Ask::Replace { old, new } => {
                if self.is_spent(old) && weight(new) > 0 {
                    return Ok(None);
                }
                self.check_known(old)?;
                if old == new {
                    return Err(Refused::new(
                        "bad_request",
                        "a node cannot take its own place",
                        "name the node that leaves, then the one that comes",
                    ));
                }
                let plan = self.group().plan();
                let begun = plan.is_some_and(|plan| plan.leaving.contains(&old));
                // A voter of the same weight keeps its weight, and only the old node leaves. Other
                // weights do not change.
                let (has, takes) = (weight(new), weight(old));
                if has > 0 && takes > 0 && has != takes && !begun {
                    return Err(Refused::new(
                        "already_votes",
                        format!(
                            "node {new} votes with weight {has}, and node {old} with weight {takes}: \
                             a node can be replaced by a learner or by a voter of the same weight"
                        ),
                        AS_LEARNER,
                    ));
                }
                let member = self.met(new)?;
                let gets = weight(old).max(weight(new)).max(1);
                if weight(new) < gets {
                    rising.push(member);
                }
                leaving.push(old);
                let goal = with(without(goal, old), member, gets);
                (goal, format!("replace node {old} by node {new}"))
            }
            Ask::Join { .. }
            | Ask::Reserve { .. }
            | Ask::Priority(..)
            | Ask::Address(..)
            | Ask::Users(_)
            | Ask::Raise
            | Ask::Cancel => return Ok(None),
        };
        if goal.is_empty() {
            return Err(Refused::new(
                "last_voter",
                "no voter would be left",
                "promote another node first",
            ));
        }
        let plan = Plan { id: 0, goal, then, leaving, what };
        Ok(Some(Wanted { plan, rising }))
    }

    fn check_known(&self, node: NodeId) -> Result<(), Refused> {
        match self.group().known(node) {
            Some(_) => Ok(()),
            None => Err(Denied::UnknownNode(node).into()),
        }
    }

    /// Returns the incarnation of a node that has weight, or otherwise the connected incarnation.
    fn met(&self, node: NodeId) -> Result<Member, Refused> {
        self.check_known(node)?;
        let current = self.applying.membership().eras().current();
        if let Some(voter) = current.member_of(node) {
            return Ok(voter.member);
        }
        if node == self.member.node {
            return Ok(self.member);
        }
        self.peers.member(node).ok_or_else(|| {
            Refused::new(
                "not_connected",
                format!("node {node} is not connected"),
                "start it, and wait until `quorate member list` shows it",
            )
        })
    }

    /// [join-1] Checks that a member is caught up, since only such a member may gain weight. A node
    /// that does not lead does not know the lag; the leader checks again before the step.
    fn check_level(&self, now: Time, member: Member) -> Result<(), Refused> {
        if !self.protocol.leads() {
            return Ok(());
        }
        match self.lag(now, member) {
            Some(lag) if self.is_level(lag) => Ok(()),
            Some(lag) => Err(Refused::new(
                "not_caught_up",
                format!("node {} is {lag} slots behind", member.node),
                "wait until it is caught up; 'quorate status' shows how far it is",
            )),
            None => Err(Refused::new(
                "not_caught_up",
                format!("node {} is not connected", member.node),
                "start it, and wait until it is caught up",
            )),
        }
    }

    /// Returns the lag of a member in slots; `None` if this node is not a leader in contact with
    /// it.
    pub(super) fn lag(&self, now: Time, member: Member) -> Option<u64> {
        if member == self.member {
            return Some(0);
        }
        let met = self.peers.member(member.node) == Some(member);
        let followers = self.protocol.node().followers(now);
        let mut followers = followers.into_iter();
        let follower = followers.find(|(node, heard, _)| *node == member.node && *heard && met);
        follower.map(|(_, _, lag)| lag)
    }

    /// [join-1] Returns whether a lag in slots amounts to at most a few values. A single value may
    /// cover very many slots.
    fn is_level(&self, lag: u64) -> bool {
        let leading = self.protocol.node().leading();
        let tally = leading.map(|leading| (leading.tally.next(), leading.tally.len()));
        let (next, under_way) = tally.unwrap_or_default();
        let at = Slot(next.0.saturating_sub(lag));
        let values = self.applying.history().values_since(at);
        let values = values.map(|values| (values + under_way) as u64);
        let most = LEVEL_VALUES.min(self.window_slots);
        lag <= most || values.is_some_and(|values| values <= most)
    }

    /// Returns the path to the plan's goal that this node would take as leader.
    fn way(&self, now: Time, from: &Configuration, plan: &Plan) -> Result<Vec<Change>, NoPath> {
        let living = self.living_of(now, from, &plan.goal);
        let sight = Sight {
            leader: Some(self.member),
            lives: &|member| living.contains(&member),
            gone: &|member| has_forgotten(&self.peers, member),
        };
        planner::whole(from, plan, sight)
    }

    /// Returns the live members among those that have weight now or will have it. A node that does
    /// not lead assumes that all of them are alive.
    fn living_of(&self, now: Time, from: &Configuration, goal: &Goal) -> Vec<Member> {
        let members = from.members().iter().map(|voter| voter.member);
        let all = members.chain(goal.keys().copied());
        let leads = self.protocol.leads();
        all.filter(|member| !leads || self.lag(now, *member).is_some()).collect()
    }

    /// Returns the members of this configuration that this leader is in contact with.
    fn living(&self, now: Time, configuration: &Configuration) -> MemberSet {
        let members = configuration.members().iter().enumerate();
        let heard = members.filter(|(_, voter)| self.lag(now, voter.member).is_some());
        heard.fold(MemberSet::default(), |set, (at, _)| set.with(at))
    }

    fn is_alive(&self, now: Time, configuration: &Configuration) -> bool {
        let living = self.living(now, configuration);
        configuration.is_quorum(Phase::One, living) && configuration.is_quorum(Phase::Two, living)
    }

    /// Checks that the live voters form a quorum after every step. A node that does not lead does
    /// not know which nodes are alive; the leader checks before each step.
    fn check_alive(
        &self,
        now: Time,
        from: &Configuration,
        changes: &[Change],
    ) -> Result<(), Refused> {
        if !self.protocol.leads() {
            return Ok(());
        }
        let mut at = from.clone();
        for change in changes {
            at = at.changed(*change).map_err(|_| Refused::from(Denied::Impossible))?;
            if !self.is_alive(now, &at) {
                return Err(Refused::new(
                    "too_few_alive",
                    format!(
                        "after {change} too few of the voters would be alive to form a quorum ({})",
                        goal_text(&goal_of(&at))
                    ),
                    "start the nodes that are down, or remove them first",
                ));
            }
        }
        Ok(())
    }

    /// As leader, continues the plan, readmits members that forgot their votes, and hands
    /// leadership to the member that should have it.
    pub(super) fn steer(&mut self, now: Time, plane: &mut dyn Plane) {
        if !self.steers() {
            return;
        }
        if self.is_plan_due(now) {
            self.follow_plan(now, plane);
        }
        if now >= self.steering.look_at {
            self.steering.look_at = now.plus_ms(LOOK_MS);
            self.raise(now, plane);
            self.take_back(now);
            self.hand_over(now);
        }
    }

    /// Returns whether the plan's next change may be proposed: the last change is in force, or was
    /// proposed long enough ago.
    fn is_plan_due(&self, now: Time) -> bool {
        let era = self.protocol.node().era();
        self.group().plan().is_some() && self.steering.is_due(now, era)
    }

    /// Returns whether this node leads and is not stopping.
    fn steers(&self) -> bool {
        self.protocol.leads() && !self.ending.is_requested()
    }

    /// Returns when the leader next works on membership, if this node leads.
    pub(super) fn steer_at(&self) -> Option<Time> {
        if !self.steers() {
            return None;
        }
        let planned = self.group().plan().map(|_| self.steering.try_at());
        planned.into_iter().chain([self.steering.look_at]).min()
    }

    fn follow_plan(&mut self, now: Time, plane: &mut dyn Plane) {
        self.steering.tried(now, self.protocol.node().era());
        match self.change_wanted(now) {
            Ok(Some(change)) => {
                let era = self.protocol.node().era();
                let value = Value::Reconfigure { era, change };
                self.steering.go_on();
                self.step(now, Input::Propose { value, slots: 1 }, plane);
            }
            Ok(None) => {}
            Err(why) => self.steering.wait_for(why),
        }
    }

    /// Returns the next change of the plan, or as `Err` the condition for which the plan waits.
    fn change_wanted(&mut self, now: Time) -> Result<Option<Change>, String> {
        let membership = self.applying.membership();
        let era = membership.eras().era();
        if era != self.protocol.node().era() {
            // A change of era is decided but not applied here yet.
            return Ok(None);
        }
        let Some(plan) = membership.table().plan().cloned() else {
            return Ok(None);
        };
        let current = membership.eras().current().clone();
        if plan.is_reached(&current) {
            let left = plan.leaving.iter().find(|node| !self.is_spent(**node));
            return Ok(left.map(|node| Change::Remove(*node)));
        }
        let mut wanted = plan.goal.keys();
        let forgot = wanted.find(|member| has_forgotten(&self.peers, **member));
        if let Some(member) = forgot {
            let node = member.node;
            self.renew(now, era, &plan);
            return Err(format!("node {node} has forgotten its votes since"));
        }
        if let Some(heir) = self.heir(now, &current, &plan.goal) {
            self.transfer_to(now, heir);
            return Err(format!("node {} is to lead on", heir.node));
        }
        let living = self.living_of(now, &current, &plan.goal);
        let peers = &self.peers;
        let sight = Sight {
            leader: Some(self.member),
            lives: &|member| living.contains(&member),
            gone: &|member| has_forgotten(peers, member),
        };
        let Some(change) = self.steering.next(&plan, era, &current, sight) else {
            return Err("there is no way any more; cancel it".to_owned());
        };
        if let Change::Increment(member) = change {
            self.check_level(now, member).map_err(|refused| refused.message)?;
        }
        let next = current.changed(change).map_err(|_| format!("{change} is invalid"))?;
        if !self.is_alive(now, &next) {
            return Err(format!("after {change} too few of the voters would be alive"));
        }
        Ok(Some(change))
    }

    /// [volatile-2] Renews a plan with a member that will never return, so that the plan continues
    /// with the current member of the same node. Ending the plan instead would leave fewer voters
    /// than requested.
    fn renew(&mut self, now: Time, era: Era, plan: &Plan) {
        let renewed = plan.renewed(|member| match self.peers.member(member.node) {
            Some(met) if met.incarnation > member.incarnation => met,
            _ => member,
        });
        let command = Command::Plan {
            era,
            goal: renewed.goal,
            then: renewed.then,
            leaving: renewed.leaving,
            what: renewed.what,
        };
        if self.steering.may_command(now) {
            let _ = self.propose_command(now, Waiter::Service, &command);
        }
    }

    /// If the plan removes this leader's weight, returns the member to which to hand leadership, if
    /// another member can lead.
    fn heir(&self, now: Time, current: &Configuration, goal: &Goal) -> Option<Member> {
        if goal.get(&self.member).is_some_and(|weight| *weight > 0) {
            return None;
        }
        let others = current.members().iter().filter(|voter| {
            let stays = goal.get(&voter.member).is_some_and(|weight| *weight > 0);
            let fit = !self.protocol.node().is_unfit(voter.member.node);
            stays && fit && voter.member != self.member && !voter.auxiliary
        });
        let level = others.filter_map(|voter| {
            let lag = self.lag(now, voter.member)?;
            self.is_level(lag).then_some((lag, voter.member))
        });
        level.min().map(|(_, member)| member)
    }

    fn transfer_to(&mut self, now: Time, to: Member) {
        // A handover requested by an operator continues, and reports its own outcome.
        let busy = self.protocol.node().is_handing_over();
        if !busy && self.steering.may_hand_over(now) {
            self.ending.transfer(Some(to.node), &mut self.protocol);
        }
    }

    /// [volatile-2] Readmits a node that forgot its votes and returned as another member. Moves the
    /// weight of the old member to the new one, without an operator's request.
    fn take_back(&mut self, now: Time) {
        if self.group().plan().is_some() {
            return;
        }
        let eras = self.applying.membership().eras();
        let current = eras.current();
        let forgot = current.members().iter().find_map(|voter| {
            let old = voter.member;
            let met = self.peers.member(old.node)?;
            let lag = self.lag(now, met)?;
            let newer = met.incarnation > old.incarnation && lag <= self.window_slots;
            newer.then_some((old, met, voter.weight, voter.auxiliary))
        });
        let Some((old, new, weight, auxiliary)) = forgot else {
            return;
        };
        let goal = with(without(goal_of(current), old.node), new, weight);
        let role = Change::Role { member: new, auxiliary: true };
        let plan = Plan {
            id: 0,
            goal,
            then: auxiliary.then_some(role).into_iter().collect(),
            leaving: Vec::new(),
            what: format!("take node {} back, which forgot its votes", old.node),
        };
        let way = self.way(now, current, &plan);
        let alive = way.is_ok_and(|changes| self.check_alive(now, current, &changes).is_ok());
        if !alive {
            return;
        }
        let command = Command::Plan {
            era: eras.era(),
            goal: plan.goal,
            then: plan.then,
            leaving: plan.leaving,
            what: plan.what,
        };
        // If the command is not accepted, a later check retries. If it is proposed twice, the
        // second is denied.
        if self.steering.may_command(now) {
            let _ = self.propose_command(now, Waiter::Service, &command);
        }
    }

    /// Hands leadership to a member that can lead, because this node is about to serve no requests
    /// for a while.
    pub(super) fn give_way(&mut self, now: Time) {
        let members = self.protocol.node().configuration().members().iter();
        let others = members.filter(|voter| {
            let fit = !self.protocol.node().is_unfit(voter.member.node);
            fit && !voter.auxiliary && voter.member != self.member
        });
        let level = others.filter_map(|voter| Some((self.lag(now, voter.member)?, voter.member)));
        let best = level.filter(|(lag, _)| *lag <= self.window_slots).min();
        if let Some((_, to)) = best {
            self.transfer_to(now, to);
        }
    }

    /// Hands leadership to the caught-up member with the highest priority, if its priority is above
    /// this node's own.
    fn hand_over(&mut self, now: Time) {
        if now < self.steering.stays_until || self.group().plan().is_some() {
            return;
        }
        let table = self.group();
        let priority = |node| table.known(node).map_or(0, |known| known.priority);
        let own = priority(self.member.node);
        let members = self.protocol.node().configuration().members().iter();
        let fit = |node| !self.protocol.node().is_unfit(node);
        let better = members.filter(|voter| {
            let node = voter.member.node;
            !voter.auxiliary && priority(node) > own && fit(node)
        });
        let level = better.filter(|voter| {
            let lag = self.lag(now, voter.member);
            lag.is_some_and(|lag| lag <= self.window_slots)
        });
        let best = level.max_by_key(|voter| priority(voter.member.node));
        if let Some(to) = best.map(|voter| voter.member) {
            self.transfer_to(now, to);
        }
    }
}

/// [volatile-1] Returns whether the node has returned as a later member, so that this member will
/// never return.
fn has_forgotten(peers: &Peers, member: Member) -> bool {
    let met = peers.member(member.node);
    met.is_some_and(|met| met.incarnation > member.incarnation)
}

fn without(mut goal: Goal, node: NodeId) -> Goal {
    goal.retain(|member, _| member.node != node);
    goal
}

fn no_way(why: NoPath) -> Refused {
    let message = match why {
        NoPath::Empty => "no voter would be left",
        NoPath::TooMany => "a cluster has at most 16 voters",
        NoPath::TooHeavy => "a weight is at most 64",
        NoPath::Invalid => "quorums would not meet, or weights overflow, on every way there",
    };
    Refused::new("impossible", message, "choose other weights")
}

/// Checks that the group will survive as many losses as before. If a voter takes the place of
/// another, the group has one vote fewer.
fn check_bears(
    current: &Configuration,
    changes: &[Change],
    leaving: &[NodeId],
) -> Result<(), Refused> {
    let removals = leaving.iter().map(|node| Change::Remove(*node));
    let mut after = current.clone();
    for change in changes.iter().copied().chain(removals) {
        if let Ok(next) = after.changed(change) {
            after = next;
        }
    }
    let bears = |at: &Configuration| losses_survived(at, &|_| true).unwrap_or(0);
    let (before, after) = (bears(current), bears(&after));
    if after < before {
        return Err(Refused::new(
            "already_votes",
            format!(
                "the new node votes already: without the old one the group would survive the loss of {after} \
                 voters, and it survives {before} now"
            ),
            NAME_A_NEW_NODE,
        ));
    }
    Ok(())
}
