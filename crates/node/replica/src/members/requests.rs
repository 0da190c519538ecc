//! Operators' and joining nodes' requests to change the group ([member-2], [member-4], [join-1]).

use quorate_core::{
    configuration::{Change, Configuration},
    node_id::NodeId,
    time::Time,
};
use quorate_log::disk::Disk;

use crate::{
    group::{
        Command,
        asking::{GroupAnswer, GroupRefusal, GroupRequest},
        command::CommandDenied,
        planner::{NoPath, losses_survived},
    },
    members::{MembersWork, driver::describe_steps, view::UnproposedPlan},
    ports::service::StateMachine,
    proposing::{batch::Kind, gather::Waiter},
};

/// Hint shown if a voter cannot replace a node because the quorum rule needs that node's weight.
const LEARNER_OR_RULE_HINT: &str = "start the new node with `--as learner`; if it already votes, change the rule with \
                                  'quorate member quorum' and repeat the command";

/// Hint shown if replacing a node with a voter would leave the group with fewer votes than it
/// needs.
const NEW_NODE_HINT: &str = "name a new node that was started with `--as learner`; to make the group smaller, \
                               use 'quorate member remove'";

impl<D: Disk, S: StateMachine> MembersWork<'_, D, S> {
    pub(crate) fn begin_ask(
        &mut self,
        now: Time,
        asked: u64,
        ask: GroupRequest,
        dry_run: bool,
    ) -> Result<(), GroupRefusal> {
        self.spine.applying.check_accepts_commands()?;
        let command = match ask {
            GroupRequest::Join { nonce, node, peer, role } => {
                Command::Allocate { nonce: Some(nonce), node, peer, role }
            }
            GroupRequest::Reserve { peer, role } => {
                Command::Allocate { nonce: None, node: None, peer, role }
            }
            GroupRequest::Priority(node, priority) => Command::Priority { node, priority },
            GroupRequest::Address(node, peer) => Command::Address { node, peer },
            GroupRequest::Cancel => match self.spine.group().plan() {
                Some(plan) => Command::Cancel { plan: plan.id },
                None => {
                    self.driver.answer_operator(asked, Ok(GroupAnswer::AlreadyDone));
                    return Ok(());
                }
            },
            GroupRequest::Users(command) => return self.begin_users(now, asked, &command, dry_run),
            GroupRequest::Raise => {
                self.view().check_leads()?;
                return self.begin_raise(now, asked, dry_run);
            }
            other => return self.begin_plan(now, asked, &other, dry_run),
        };
        // [member-4] Checked at every level, since only this node decides whether to propose.
        let membership = self.spine.applying.membership();
        membership.table().check_addresses(&command, membership.eras())?;
        if dry_run {
            // Only a plan has steps to show. Any other command is refused here if its execution
            // would be denied.
            let membership = self.spine.applying.membership();
            let (mut table, at) = (membership.table().clone(), self.spine.applying.applied_to());
            table.execute(at, &command.encode(), membership.eras()).map_err(GroupRefusal::from)?;
            self.driver.answer_operator(asked, Ok(GroupAnswer::Planned(None, Vec::new())));
            return Ok(());
        }
        self.propose_command(now, Waiter::Operator(asked), &command)
    }

    /// Starts a request to change users, which goes through the log. A dry run only checks it.
    pub(crate) fn begin_users(
        &mut self,
        now: Time,
        asked: u64,
        command: &quorate_access::Command,
        dry_run: bool,
    ) -> Result<(), GroupRefusal> {
        if dry_run {
            let would = self.spine.applying.access().preview_reply(command.clone());
            would.map_err(CommandDenied::UsersDenied)?;
            self.driver.answer_operator(asked, Ok(GroupAnswer::Done));
            return Ok(());
        }
        let origin = self.spine.proposing.origin_mut();
        let waiter = Waiter::Operator(asked);
        Ok(origin.accept_for(now, Kind::Access, waiter, &command.encode())?)
    }

    pub(crate) fn propose_command(
        &mut self,
        now: Time,
        waiter: Waiter,
        command: &Command,
    ) -> Result<(), GroupRefusal> {
        let origin = self.spine.proposing.origin_mut();
        Ok(origin.accept_for(now, Kind::Group, waiter, &command.encode())?)
    }

    pub(crate) fn begin_plan(
        &mut self,
        now: Time,
        asked: u64,
        ask: &GroupRequest,
        dry_run: bool,
    ) -> Result<(), GroupRefusal> {
        if dry_run {
            // The steps depend on which nodes are alive, and only the leader knows that.
            self.view().check_leads()?;
        }
        let Some(wanted) = self.view().plan_for(ask)? else {
            self.driver.answer_operator(asked, Ok(GroupAnswer::AlreadyDone));
            return Ok(());
        };
        if let Some(plan) = self.spine.group().plan() {
            // If the request is repeated, its plan is already in progress.
            let asked_before = (&plan.goal, &plan.later_changes, &plan.nodes_to_remove);
            if asked_before
                == (&wanted.plan.goal, &wanted.plan.later_changes, &wanted.plan.nodes_to_remove)
            {
                let (id, current) = (plan.id, self.spine.applying.membership().eras().current());
                let changes = self.view().path_to_goal(now, current, plan).unwrap_or_default();
                let steps = describe_steps(current, &changes, &plan.nodes_to_remove);
                self.driver.answer_operator(asked, Ok(GroupAnswer::Planned(Some(id), steps)));
                return Ok(());
            }
            return Err(CommandDenied::UnderWay(plan.id).into());
        }
        let UnproposedPlan { plan, gaining_members: rising } = wanted;
        let membership = self.spine.applying.membership();
        // [member-4] Checked at every level, as in `begin_ask`.
        membership.table().check_goal(&plan.goal, membership.eras()).map_err(|denied| {
            let refused = GroupRefusal::from(denied);
            match (denied, &rising[..]) {
                (CommandDenied::AddressTaken(old), [new]) => {
                    let new = new.node;
                    let message = format!(
                        "node {old} votes at the address of node {new} already: if its folder is lost, \
                         run 'quorate member replace {old} {new}'"
                    );
                    GroupRefusal { message, ..refused }
                }
                _ => refused,
            }
        })?;
        for member in &rising {
            self.view().check_level(now, *member)?;
        }
        let (era, current) = (membership.eras().era(), membership.eras().current());
        let by_voter = match *ask {
            GroupRequest::Replace { new, .. } => current.member_of(new).is_some(),
            _ => false,
        };
        let changes =
            self.view().path_to_goal(now, current, &plan).map_err(|why| match by_voter {
                // The quorum rule would lose the old node's weight; a learner could take it over.
                true => GroupRefusal { hint: LEARNER_OR_RULE_HINT, ..refuse_no_path(why) },
                false => refuse_no_path(why),
            })?;
        self.view().check_alive(now, current, &changes)?;
        if by_voter {
            check_bears(current, &changes, &plan.nodes_to_remove)?;
        }
        let steps = describe_steps(current, &changes, &plan.nodes_to_remove);
        if dry_run {
            self.driver.answer_operator(asked, Ok(GroupAnswer::Planned(None, steps)));
            return Ok(());
        }
        let command = Command::Plan {
            era,
            goal: plan.goal,
            later_changes: plan.later_changes,
            nodes_to_remove: plan.nodes_to_remove,
            description: plan.description,
        };
        self.propose_command(now, Waiter::Operator(asked), &command)?;
        self.driver.add_waiting_operator(asked, steps);
        Ok(())
    }
}

fn refuse_no_path(why: NoPath) -> GroupRefusal {
    let message = match why {
        NoPath::Empty => "no voter would be left",
        NoPath::TooMany => "a cluster has at most 16 voters",
        NoPath::TooHeavy => "a weight is at most 64",
        NoPath::Invalid => "quorums would not meet, or weights overflow, on every way there",
    };
    GroupRefusal::new("impossible", message, "choose other weights")
}

/// Checks that the group will survive as many losses as before. Replacing a voter with another
/// voter leaves the group with one vote fewer.
fn check_bears(
    current: &Configuration,
    changes: &[Change],
    leaving: &[NodeId],
) -> Result<(), GroupRefusal> {
    let removals = leaving.iter().map(|node| Change::Remove(*node));
    let mut after = current.clone();
    for change in changes.iter().copied().chain(removals) {
        if let Ok(next) = after.after_change(change) {
            after = next;
        }
    }
    let bears = |at: &Configuration| losses_survived(at, &|_| true).unwrap_or(0);
    let (before, after) = (bears(current), bears(&after));
    if after < before {
        return Err(GroupRefusal::new(
            "already_votes",
            format!(
                "the new node votes already: without the old one the group would survive the loss of {after} \
                 voters, and it survives {before} now"
            ),
            NEW_NODE_HINT,
        ));
    }
    Ok(())
}
