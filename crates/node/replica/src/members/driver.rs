//! Membership changes in progress: operators' unanswered requests, and the leader's next step of a
//! plan, one change at a time ([member-2], [cast-6]).
//!
//! This module contains only the state. Each step is computed from the current configuration
//! (`group/planner`), so that a new leader continues the plan of the previous one. The replica
//! checks requests and takes the steps (`steps`).

use std::collections::{BTreeMap, VecDeque};

use quorate_core::{
    ballot::Era,
    configuration::{Change, Configuration},
    level::Level,
    node_id::NodeId,
    time::Time,
};

use crate::{
    group::{
        CommandDenied, CommandEffect, CommandReply, Plan,
        asking::{GroupAnswer, GroupRefusal, GroupRequest, PlanStep},
        planner::{self, Goal, MemberFacts},
    },
    members::rising::LevelRaises,
    ports::front::Failure,
};

/// Delay in milliseconds before a change that was proposed but has no result is retried.
const RETRY_MS: u64 = 20;
/// Minimum interval in milliseconds between handovers of leadership for a plan or a priority.
const HANDOVER_INTERVAL_MS: u64 = 2_000;
/// Minimum interval in milliseconds between commands that a leader proposes on its own.
const COMMAND_INTERVAL_MS: u64 = 1_000;
/// Interval in milliseconds at which a leader checks for a better leader or a node to readmit.
const CHECK_INTERVAL_MS: u64 = 250;

/// Remaining changes of a plan, as computed for one era.
#[derive(Debug)]
struct PlannedPath {
    plan: u64,
    era: Era,
    changes: VecDeque<Change>,
}

/// Membership changes in progress.
#[derive(Debug)]
pub(crate) struct MembershipDriver {
    /// Operators' requests, by number, until this node has applied the slots decided before them
    /// ([read-7]). The flag marks a dry run.
    unchecked_requests: BTreeMap<u64, (GroupRequest, bool)>,
    /// Steps to show to each waiting operator, by the number of the request.
    waiting_operators: BTreeMap<u64, Vec<PlanStep>>,
    answers: VecDeque<(u64, Result<GroupAnswer, GroupRefusal>)>,
    planned_path: Option<PlannedPath>,
    /// Last era in which a change was tried, and the earliest time of the next attempt in that era.
    last_attempt: (Era, Time),
    /// Minimum time in milliseconds for which leadership stays, unless a request or a plan moves
    /// it.
    leadership_stay_ms: u64,
    next_check_at: Time,
    /// Earliest time of the next handover, whatever its reason.
    hand_over_at: Time,
    /// Time until which this node keeps leadership unless a request moves it ([live-4]). A plan
    /// counts as a request: it may move leadership, and the new leader keeps it as well.
    stays_until: Time,
    /// Earliest time of the next command that the leader proposes on its own.
    next_command_at: Time,
    /// Condition that holds up the plan, for display.
    wait_reason: Option<String>,
    /// The leader could not propose in the last turn, because it changes the era without a casting
    /// vote.
    is_pausing: bool,
    /// Version of the group's table whose table of peers was last returned.
    returned_version: Option<u64>,
    /// Levels that other nodes support, and operators' requests that wait for a raise.
    pub(super) level_raises: LevelRaises,
    /// Level of the group at the last check.
    pub(super) raised_to: Option<Level>,
    /// Node to which leadership is to be handed.
    pub(super) heir: Option<NodeId>,
}

impl MembershipDriver {
    /// Creates the state. A leader keeps leadership for `bounce_ms` unless a request moves it.
    pub(crate) fn new(bounce_ms: u64, rising: LevelRaises) -> Self {
        Self {
            unchecked_requests: BTreeMap::new(),
            waiting_operators: BTreeMap::new(),
            answers: VecDeque::new(),
            planned_path: None,
            last_attempt: (Era(0), Time(0)),
            leadership_stay_ms: bounce_ms,
            next_check_at: Time(0),
            hand_over_at: Time(0),
            stays_until: Time(0),
            next_command_at: Time(0),
            wait_reason: None,
            is_pausing: false,
            returned_version: None,
            level_raises: rising,
            raised_to: None,
            heir: None,
        }
    }

    /// Returns whether the leader's next check is due. If so, delays the one after it.
    pub(crate) fn take_due_check(&mut self, now: Time) -> bool {
        let due = now >= self.next_check_at;
        if due {
            self.next_check_at = now.plus_ms(CHECK_INTERVAL_MS);
        }
        due
    }

    pub(crate) fn next_check_at(&self) -> Time {
        self.next_check_at
    }

    /// Makes the leader's next check due as soon as possible.
    pub(crate) fn check_soon(&mut self, now: Time) {
        self.next_check_at = now;
    }

    /// Returns whether this node keeps leadership for now, unless a request moves it.
    pub(crate) fn keeps_leadership(&self, now: Time) -> bool {
        now < self.stays_until
    }

    pub(crate) fn take_heir(&mut self) -> Option<NodeId> {
        self.heir.take()
    }

    /// Marks a version of the table as returned. Returns `false` if it was marked before.
    pub(crate) fn mark_version_returned(&mut self, version: u64) -> bool {
        self.returned_version.replace(version) != Some(version)
    }

    pub(crate) fn level_raises(&self) -> &LevelRaises {
        &self.level_raises
    }

    pub(crate) fn level_raises_mut(&mut self) -> &mut LevelRaises {
        &mut self.level_raises
    }

    /// Returns whether the next change may be tried in this era.
    pub(crate) fn is_due(&self, now: Time, era: Era) -> bool {
        era != self.last_attempt.0 || now >= self.last_attempt.1
    }

    pub(crate) fn record_attempt(&mut self, now: Time, era: Era) {
        self.last_attempt = (era, now.plus_ms(RETRY_MS));
    }

    pub(crate) fn next_attempt_at(&self) -> Time {
        self.last_attempt.1
    }

    /// Returns whether the leader may propose a command by itself, and if so delays the next.
    pub(crate) fn may_command(&mut self, now: Time) -> bool {
        let may = now >= self.next_command_at;
        if may {
            self.next_command_at = now.plus_ms(COMMAND_INTERVAL_MS);
        }
        may
    }

    /// Stores an operator's request until it can be checked.
    pub(crate) fn queue_request(&mut self, asked: u64, ask: GroupRequest, dry_run: bool) {
        self.unchecked_requests.insert(asked, (ask, dry_run));
    }

    /// Removes and returns the request with number `asked`, if it is waiting to be checked.
    pub(crate) fn take_unchecked(&mut self, asked: u64) -> Option<(GroupRequest, bool)> {
        self.unchecked_requests.remove(&asked)
    }

    /// Registers an operator that waits for the result of a command, with the steps to show then.
    pub(crate) fn add_waiting_operator(&mut self, asked: u64, steps: Vec<PlanStep>) {
        self.waiting_operators.insert(asked, steps);
    }

    pub(crate) fn answer_operator(
        &mut self,
        asked: u64,
        answer: Result<GroupAnswer, GroupRefusal>,
    ) {
        self.answers.push_back((asked, answer));
    }

    /// Answers the operator for whom the ended command was proposed.
    pub(crate) fn on_ended(&mut self, asked: u64, ended: Result<CommandReply, Failure>) {
        let steps = self.waiting_operators.remove(&asked).unwrap_or_default();
        let answer = match ended {
            Ok(Ok(CommandEffect::Done)) => Ok(GroupAnswer::Done),
            Ok(Ok(CommandEffect::Node(node))) => Ok(GroupAnswer::Node(node)),
            Ok(Ok(CommandEffect::Plan(plan))) => Ok(GroupAnswer::Planned(Some(plan), steps)),
            Ok(Err(denied)) => Err(denied.into()),
            Err(failure) => Err(failure.into()),
        };
        self.answer_operator(asked, answer);
    }

    /// Takes the next answer to a request, with the number of the request.
    pub(crate) fn take_answer(&mut self) -> Option<(u64, Result<GroupAnswer, GroupRefusal>)> {
        self.answers.pop_front()
    }

    pub(crate) fn wait_reason(&self) -> Option<&str> {
        self.wait_reason.as_deref()
    }

    /// Records the condition that holds up the plan. The set of live nodes may change meanwhile, so
    /// the steps will be computed again.
    pub(crate) fn set_wait_reason(&mut self, why: String) {
        self.wait_reason = Some(why);
        self.planned_path = None;
    }

    /// Records that nothing holds up the plan any longer.
    pub(crate) fn clear_wait_reason(&mut self) {
        self.wait_reason = None;
    }

    /// Returns whether proposals are waiting for a change of era ([cast-5]).
    pub(crate) fn is_pausing(&self) -> bool {
        self.is_pausing
    }

    /// Sets whether the leader could not propose in this turn because it moves to another era.
    pub(crate) fn set_pausing(&mut self, pauses: bool) {
        self.is_pausing = pauses;
    }

    /// Returns whether leadership may be handed over. If so, delays the next handover.
    pub(crate) fn may_hand_over(&mut self, now: Time) -> bool {
        let may = now >= self.hand_over_at;
        if may {
            self.hand_over_at = now.plus_ms(HANDOVER_INTERVAL_MS);
        }
        may
    }

    /// Resets the state of a node that has just been elected, because earlier results are void.
    pub(crate) fn on_elected(&mut self, now: Time) {
        self.planned_path = None;
        self.wait_reason = None;
        self.last_attempt = (Era(0), now);
        self.next_check_at = now;
        self.hand_over_at = now;
        self.stays_until = now.plus_ms(self.leadership_stay_ms);
    }

    /// Returns the next change of this plan in this era, if any is left.
    pub(crate) fn next_change(
        &mut self,
        plan: &Plan,
        era: Era,
        configuration: &Configuration,
        sight: MemberFacts<'_>,
    ) -> Option<Change> {
        let known = |way: &PlannedPath| (way.plan, way.era) == (plan.id, era);
        if !self.planned_path.as_ref().is_some_and(known) {
            let changes = self.compute_changes(plan, era, configuration, sight);
            self.planned_path = Some(PlannedPath { plan: plan.id, era, changes });
        }
        self.planned_path.as_ref()?.changes.front().copied()
    }

    /// Returns the remaining changes computed for this plan in this era.
    pub(crate) fn remaining_changes(&self, plan: u64, era: Era) -> Option<Vec<Change>> {
        let way = self.planned_path.as_ref();
        let way = way.filter(|way| (way.plan, way.era) == (plan, era))?;
        Some(way.changes.iter().copied().collect())
    }

    /// Returns the remaining steps computed for the previous era if the first of them led to this
    /// era; otherwise computes new ones.
    fn compute_changes(
        &mut self,
        plan: &Plan,
        era: Era,
        configuration: &Configuration,
        sight: MemberFacts<'_>,
    ) -> VecDeque<Change> {
        let before = self.planned_path.take().filter(|way| way.plan == plan.id);
        let rest = before.filter(|way| way.era.next() == era).map(|mut way| {
            way.changes.pop_front();
            way.changes
        });
        let leads_there = |rest: &VecDeque<Change>| {
            let mut at = Ok(configuration.clone());
            for change in rest {
                at = at.and_then(|at| at.after_change(*change));
            }
            at.is_ok_and(|at| plan.is_reached(&at))
        };
        rest.filter(leads_there).unwrap_or_else(|| {
            let changes = planner::plan_changes(configuration, plan, sight);
            changes.map_or_else(|_| VecDeque::new(), VecDeque::from)
        })
    }
}

/// Returns a plan's steps for display: changes with the resulting weights, then removals.
pub(crate) fn describe_steps(
    configuration: &Configuration,
    changes: &[Change],
    leaving: &[NodeId],
) -> Vec<PlanStep> {
    let mut at = configuration.clone();
    let mut steps = Vec::new();
    let removals = leaving.iter().map(|node| Change::Remove(*node));
    for change in changes.iter().copied().chain(removals) {
        let Ok(next) = at.after_change(change) else {
            break;
        };
        at = next;
        let members = at.members().iter();
        steps.push(PlanStep {
            change: describe_change(change),
            weights: members.map(|voter| (voter.member, voter.weight)).collect(),
        });
    }
    steps
}

fn describe_change(change: Change) -> String {
    match change {
        Change::Increment(member) => format!("node {member}: + 1"),
        Change::Decrement(member) => format!("node {member}: - 1"),
        Change::Multiply(factor) => format!("all weights * {factor}"),
        Change::Divide(factor) => format!("all weights / {factor}"),
        Change::Remove(node) => format!("node {node} is removed"),
        Change::Role { member, auxiliary: true } => format!("node {member} becomes an auxiliary"),
        Change::Role { member, auxiliary: false } => {
            format!("node {member} becomes a full replica")
        }
        Change::Rule(rule) => format!("a quorum is {rule}"),
    }
}

/// Formats the weights of a goal, such as `1:1 2:1 4:1`.
pub(crate) fn format_goal(goal: &Goal) -> String {
    let weights = goal.iter().filter(|(_, weight)| **weight > 0);
    let weights = weights.map(|(member, weight)| format!("{}:{weight}", member.node));
    weights.collect::<Vec<_>>().join(" ")
}

impl From<CommandDenied> for GroupRefusal {
    fn from(denied: CommandDenied) -> Self {
        let (code, hint) = match denied {
            CommandDenied::Malformed => ("malformed", "use the same version on all nodes"),
            CommandDenied::BadAddress => ("bad_address", "give HOST:PORT, at most 256 bytes"),
            CommandDenied::UnknownNode(_) => {
                ("unknown_node", "'quorate member list' lists the nodes")
            }
            CommandDenied::IdTaken(_) => ("taken", "reserve another id with `quorate member add`"),
            CommandDenied::AddressTaken(_) => {
                ("address_taken", "use another address, or replace the node that has this one")
            }
            CommandDenied::Removed(_) => {
                ("removed", "start with an empty folder to join as a new node")
            }
            CommandDenied::TableFull => {
                ("full", "`quorate member remove` frees the ids of nodes that are gone")
            }
            CommandDenied::UnderWay(_) => (
                "under_way",
                "wait until it ends, or end it where it is with `quorate member cancel`",
            ),
            CommandDenied::OtherEra(_) => ("other_era", "look again with `quorate member list`"),
            CommandDenied::NoPath => ("impossible", "choose other weights"),
            CommandDenied::NoSuchPlan => {
                ("no_plan", "`quorate member list` shows the plan in progress")
            }
            CommandDenied::UsersDenied(denied) => users_denied(denied),
        };
        Self::new(code, denied.to_string(), hint)
    }
}

const fn users_denied(denied: quorate_access::Denied) -> (&'static str, &'static str) {
    use quorate_access::Denied;
    match denied {
        Denied::Malformed => ("malformed", "use the same version on all nodes"),
        Denied::InvalidName => ("bad_name", "names of users are those that certificates have"),
        Denied::UnknownUser => ("unknown_user", "`quorate user list` shows who there is"),
        Denied::NoRole => ("no_role", "give --role reader, writer, operator or admin"),
        Denied::Full => ("full", "remove users who are gone: `quorate user remove`"),
        Denied::LastAdmin => (
            "last_admin",
            "make another user an admin first; `quorate user open` lets every client do everything again",
        ),
        Denied::InvalidHash => ("bad_hash", "give the password, and not its hash"),
    }
}

impl From<Failure> for GroupRefusal {
    fn from(failure: Failure) -> Self {
        match failure {
            Failure::Unknown | Failure::ReplyForgotten => Self::new(
                "unknown_outcome",
                "the outcome is unknown: it may have been done",
                "check with 'quorate member list'; repeating the request is harmless",
            ),
            Failure::Stopping => Self::new("stopping", "this node stops", "ask another node"),
            Failure::Voteless => Self::new(
                "voteless",
                "this node cannot vote: its log failed, or its device does not answer or lost votes",
                "ask another node; 'quorate status' says which it is",
            ),
            Failure::Busy => Self::new("busy", "too much waits here", "try again"),
            Failure::Unavailable => Self::new(
                "unavailable",
                "the service of this node cannot work at the moment",
                "ask another node",
            ),
            // Unreachable: these requests are no reads, and commands for the group's table neither
            // need a level nor are refused for lack of space.
            Failure::Level
            | Failure::DiskFull(_)
            | Failure::Removed
            | Failure::Diverged
            | Failure::NotLasting
            | Failure::Stale
            | Failure::Overtaken
            | Failure::NoQuorum
            | Failure::TooBig
            | Failure::NoSession
            | Failure::SessionFull => Self::new(
                "no_quorum",
                "no leader with a quorum took it in time; nothing was done",
                "'quorate status' shows which nodes are missing",
            ),
        }
    }
}
