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
        asking::{Answer, Ask, Refused},
        command::Denied,
        planner::{NoPath, losses_survived},
    },
    members::{MembersWork, driver::steps_to_show, view::UnproposedPlan},
    ports::service::StateMachine,
    proposing::{batch::Kind, gather::Waiter},
};

/// Hint shown if a voter cannot replace a node because the quorum rule needs that node's weight.
const AS_LEARNER_OR_RULE: &str = "start the new node with `--as learner`; if it already votes, change the rule with \
                                  'quorate member quorum' and repeat the command";

/// Hint shown if replacing a node with a voter would leave the group with fewer votes than it
/// needs.
const NAME_A_NEW_NODE: &str = "name a new node that was started with `--as learner`; to make the group smaller, \
                               use 'quorate member remove'";

impl<D: Disk, S: StateMachine> MembersWork<'_, D, S> {
    pub(crate) fn begin_ask(
        &mut self,
        now: Time,
        asked: u64,
        ask: Ask,
        dry_run: bool,
    ) -> Result<(), Refused> {
        self.spine.applying.takes_commands()?;
        let command = match ask {
            Ask::Join { nonce, node, peer, role } => {
                Command::Allocate { nonce: Some(nonce), node, peer, role }
            }
            Ask::Reserve { peer, role } => {
                Command::Allocate { nonce: None, node: None, peer, role }
            }
            Ask::Priority(node, priority) => Command::Priority { node, priority },
            Ask::Address(node, peer) => Command::Address { node, peer },
            Ask::Cancel => match self.spine.group().plan() {
                Some(plan) => Command::Cancel { plan: plan.id },
                None => {
                    self.driver.answer_operator(asked, Ok(Answer::Already));
                    return Ok(());
                }
            },
            Ask::Users(command) => return self.begin_users(now, asked, &command, dry_run),
            Ask::Raise => {
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
            table.execute(at, &command.encode(), membership.eras()).map_err(Refused::from)?;
            self.driver.answer_operator(asked, Ok(Answer::Planned(None, Vec::new())));
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
    ) -> Result<(), Refused> {
        if dry_run {
            let would = self.spine.applying.access().would(command.clone());
            would.map_err(Denied::Users)?;
            self.driver.answer_operator(asked, Ok(Answer::Done));
            return Ok(());
        }
        let origin = self.spine.proposing.origin();
        let waiter = Waiter::Operator(asked);
        Ok(origin.accept_for(now, Kind::Access, waiter, &command.encode())?)
    }

    pub(crate) fn propose_command(
        &mut self,
        now: Time,
        waiter: Waiter,
        command: &Command,
    ) -> Result<(), Refused> {
        let origin = self.spine.proposing.origin();
        Ok(origin.accept_for(now, Kind::Group, waiter, &command.encode())?)
    }

    pub(crate) fn begin_plan(
        &mut self,
        now: Time,
        asked: u64,
        ask: &Ask,
        dry_run: bool,
    ) -> Result<(), Refused> {
        if dry_run {
            // The steps depend on which nodes are alive, and only the leader knows that.
            self.view().check_leads()?;
        }
        let Some(wanted) = self.view().plan_for(ask)? else {
            self.driver.answer_operator(asked, Ok(Answer::Already));
            return Ok(());
        };
        if let Some(plan) = self.spine.group().plan() {
            // If the request is repeated, its plan is already in progress.
            let asked_before = (&plan.goal, &plan.then, &plan.leaving);
            if asked_before == (&wanted.plan.goal, &wanted.plan.then, &wanted.plan.leaving) {
                let (id, current) = (plan.id, self.spine.applying.membership().eras().current());
                let changes = self.view().way(now, current, plan).unwrap_or_default();
                let steps = steps_to_show(current, &changes, &plan.leaving);
                self.driver.answer_operator(asked, Ok(Answer::Planned(Some(id), steps)));
                return Ok(());
            }
            return Err(Denied::UnderWay(plan.id).into());
        }
        let UnproposedPlan { plan, rising } = wanted;
        let membership = self.spine.applying.membership();
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
            self.view().check_level(now, *member)?;
        }
        let (era, current) = (membership.eras().era(), membership.eras().current());
        let by_voter = match *ask {
            Ask::Replace { new, .. } => current.member_of(new).is_some(),
            _ => false,
        };
        let changes = self.view().way(now, current, &plan).map_err(|why| match by_voter {
            // The quorum rule would lose the old node's weight; a learner could take it over.
            true => Refused { hint: AS_LEARNER_OR_RULE, ..no_way(why) },
            false => no_way(why),
        })?;
        self.view().check_alive(now, current, &changes)?;
        if by_voter {
            check_bears(current, &changes, &plan.leaving)?;
        }
        let steps = steps_to_show(current, &changes, &plan.leaving);
        if dry_run {
            self.driver.answer_operator(asked, Ok(Answer::Planned(None, steps)));
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
        self.driver.add_waiting_operator(asked, steps);
        Ok(())
    }
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

/// Checks that the group will survive as many losses as before. Replacing a voter with another
/// voter leaves the group with one vote fewer.
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
