//! `quorate member`: shows and changes the members of the cluster.

mod drain;
mod ended;
mod feature;
mod follow;
mod group;
mod show;

use clap::{Args, Subcommand};
use quorate_admin::members::{AddRequest, MembersOutcome, MembersRequest};
use quorate_core::quorum::QuorumRule;
use serde::Serialize;

use crate::{
    addresses::address_argument,
    output::{self, Exit, Output, Problem},
};

use self::{
    ended::PlanOutcome,
    feature::FeatureArgs,
    follow::PlanFollower,
    group::{GroupClient, Where},
};
use crate::values::{must_be, node_argument};

/// Subcommands of `quorate member`.
#[derive(Debug, Subcommand)]
pub(crate) enum MemberCommand {
    /// List the members: roles, weights, priorities, and the change in progress
    List(Where),
    /// Reserve an id for a new node and print the command that starts it
    ///
    /// The id is for the machine at --peer: until a node has joined with it, the same address gets
    /// the same id again. A node can also join without a reserved id: 'quorate start --join'.
    Add(AddArgs),
    /// Remove a node permanently, and say when it may be switched off
    ///
    /// The node loses its vote, then its id. The id is never reused, and the cluster refuses the
    /// node's folder from then on. A leader hands over first. Keep the node running until the
    /// output says "may be switched off": until then the others may still need its data.
    Remove(OneNode),
    /// Give a learner a vote
    ///
    /// The node must be caught up. A node that joined as a voter requests this itself.
    Promote(OneNode),
    /// Take a node's vote away; it continues as a learner
    Demote(OneNode),
    /// Set the weight of a node's vote; 1 is usual, 0 means no vote
    Weight(WeightArgs),
    /// Make a voter an auxiliary, or a full replica again with --off
    ///
    /// An auxiliary votes but executes no commands, and receives values only while another voter is
    /// down. The other voters must form a quorum without it.
    Auxiliary(AuxiliaryArgs),
    /// Set the quorum rule: majority or flexible:Q1,Q2
    ///
    /// An election needs voters with a total weight of Q1, a write of Q2. Any Q1 must share a voter
    /// with any Q2; membership changes that would break this are refused.
    Quorum(QuorumArgs),
    /// Set a node's priority: the caught-up node with the highest priority leads
    Priority(PriorityArgs),
    /// Replace a member with a node that has joined; the old one leaves permanently
    ///
    /// The new node gets the weight of the old one, which may be dead. It is a learner ('quorate
    /// start --as learner'), or a voter of the same weight. The output says when the old node may
    /// be switched off.
    Replace(ReplaceArgs),
    /// Change the peer address of a node
    ///
    /// Run this first, then restart the node with the new --peer.
    Address(AddressArgs),
    /// Show the feature level of the cluster, which release each node supports, and what holds the
    /// next level back
    ///
    /// A cluster begins to use what only a newer release knows when every node runs it: by default
    /// 24 h after the last node was upgraded (quorate start --feature-level), at once in a new
    /// cluster, or with --raise. Until then, the previous release can be installed again.
    Feature(FeatureArgs),
    /// Stop the change in progress; the steps already done remain
    Cancel(CancelArgs),
    /// Move leadership away from a node, for maintenance
    ///
    /// If the node's priority is above another voter's, it is set to 0 first so that leadership
    /// does not return. The output gives the previous priority.
    Drain(DrainArgs),
}

/// Nodes to contact, and the dry-run flag.
#[derive(Args, Clone, Debug)]
struct Ask {
    #[command(flatten)]
    place: Where,
    /// Show what would be done without doing it
    #[arg(long)]
    dry_run: bool,
}

/// Nodes to contact for a change that takes several steps, and whether to wait for it.
#[derive(Args, Clone, Debug)]
pub(crate) struct Steps {
    #[command(flatten)]
    ask: Ask,
    /// Return as soon as the change is accepted; the cluster completes it
    #[arg(long)]
    no_wait: bool,
}

/// A node's id, with the common flags.
#[derive(Args, Clone, Debug)]
pub(crate) struct OneNode {
    /// Id of the node
    #[arg(value_name = "NODE", value_parser = node_argument)]
    node: u32,
    #[command(flatten)]
    steps: Steps,
}

/// Arguments of `quorate member add`.
#[derive(Args, Clone, Debug)]
pub(crate) struct AddArgs {
    /// Peer address of the new node; the other nodes must be able to reach it
    #[arg(long, value_name = "ADDR", value_parser = address_argument)]
    peer: String,
    /// Role of the new node
    #[arg(long = "as", value_name = "ROLE", value_parser = ["voter", "learner", "auxiliary"], default_value = "voter")]
    role: String,
    #[command(flatten)]
    ask: Ask,
}

/// Arguments of `quorate member weight`.
#[derive(Args, Clone, Debug)]
pub(crate) struct WeightArgs {
    /// Id of the node
    #[arg(value_name = "NODE", value_parser = node_argument)]
    node: u32,
    /// Weight of its vote; 0 means no vote
    #[arg(value_name = "WEIGHT")]
    weight: u32,
    #[command(flatten)]
    steps: Steps,
}

/// Arguments of `quorate member auxiliary`.
#[derive(Args, Clone, Debug)]
pub(crate) struct AuxiliaryArgs {
    /// Id of the node
    #[arg(value_name = "NODE", value_parser = node_argument)]
    node: u32,
    /// Make it a full replica again
    #[arg(long)]
    off: bool,
    #[command(flatten)]
    steps: Steps,
}

/// Arguments of `quorate member quorum`.
#[derive(Args, Clone, Debug)]
pub(crate) struct QuorumArgs {
    /// majority or flexible:Q1,Q2
    #[arg(value_name = "RULE", value_parser = parse_rule)]
    rule: QuorumRule,
    #[command(flatten)]
    steps: Steps,
}

fn parse_rule(text: &str) -> Result<QuorumRule, String> {
    let what = "majority, or flexible:Q1,Q2 with two weights of at least 1";
    QuorumRule::parse(text).ok_or_else(|| must_be(what, text))
}

/// Arguments of `quorate member priority`.
#[derive(Args, Clone, Debug)]
pub(crate) struct PriorityArgs {
    /// Id of the node
    #[arg(value_name = "NODE", value_parser = node_argument)]
    node: u32,
    /// Initially 0; among equal priorities, leadership stays where it is
    #[arg(value_name = "PRIORITY")]
    priority: u32,
    #[command(flatten)]
    ask: Ask,
}

/// Arguments of `quorate member replace`.
#[derive(Args, Clone, Debug)]
pub(crate) struct ReplaceArgs {
    /// Id of the node that leaves
    #[arg(value_name = "OLD", value_parser = node_argument)]
    old: u32,
    /// Id of the node that takes its place
    #[arg(value_name = "NEW", value_parser = node_argument)]
    new: u32,
    #[command(flatten)]
    steps: Steps,
}

/// Arguments of `quorate member address`.
#[derive(Args, Clone, Debug)]
pub(crate) struct AddressArgs {
    /// Id of the node
    #[arg(value_name = "NODE", value_parser = node_argument)]
    node: u32,
    /// Its new peer address
    #[arg(value_name = "ADDR", value_parser = address_argument)]
    peer: String,
    #[command(flatten)]
    ask: Ask,
}

/// Arguments of `quorate member cancel`.
#[derive(Args, Clone, Debug)]
pub(crate) struct CancelArgs {
    #[command(flatten)]
    ask: Ask,
}

/// Arguments of `quorate member drain`.
#[derive(Args, Clone, Debug)]
pub(crate) struct DrainArgs {
    /// Id of the node
    #[arg(value_name = "NODE", value_parser = node_argument)]
    node: u32,
    #[command(flatten)]
    ask: Ask,
}

/// Result of `quorate member add`: the reserved id.
#[derive(Debug, PartialEq, Eq, Serialize)]
struct Added {
    node: u32,
    peer: String,
    #[serde(rename = "as")]
    role: String,
    /// Command line that starts the new node.
    start: String,
}

pub(crate) fn run(command: &MemberCommand, output: Output) -> Result<Exit, Problem> {
    let wish = MembersRequest::default();
    match command {
        MemberCommand::List(place) => list_members(place, output),
        MemberCommand::Add(args) => add_member(args, output),
        MemberCommand::Remove(OneNode { node, steps }) => {
            let wish = MembersRequest { remove: Some(*node), ..wish };
            execute_plan(wish, steps, Some(*node), output)
        }
        MemberCommand::Promote(OneNode { node, steps }) => {
            let wish = MembersRequest { promote: Some(*node), ..wish };
            execute_plan(wish, steps, None, output)
        }
        MemberCommand::Demote(OneNode { node, steps }) => {
            let wish = MembersRequest { demote: Some(*node), ..wish };
            execute_plan(wish, steps, None, output)
        }
        MemberCommand::Weight(args) => {
            let wish = MembersRequest { weight: Some((args.node, args.weight)), ..wish };
            execute_plan(wish, &args.steps, None, output)
        }
        MemberCommand::Auxiliary(args) => {
            let wish = MembersRequest { auxiliary: Some((args.node, !args.off)), ..wish };
            execute_plan(wish, &args.steps, None, output)
        }
        MemberCommand::Quorum(args) => {
            let wish = MembersRequest { quorum: Some(args.rule.to_string()), ..wish };
            execute_plan(wish, &args.steps, None, output)
        }
        MemberCommand::Replace(args) => {
            let wish = MembersRequest { replace: Some((args.old, args.new)), ..wish };
            execute_plan(wish, &args.steps, Some(args.old), output)
        }
        MemberCommand::Priority(args) => {
            let wish = MembersRequest { priority: Some((args.node, args.priority)), ..wish };
            let done = format!("node {} has priority {}", args.node, args.priority);
            execute_request(wish, &args.ask, &done, output)
        }
        MemberCommand::Address(args) => {
            let wish = MembersRequest { address: Some((args.node, args.peer.clone())), ..wish };
            let done = format!(
                "the other nodes now use {1} for node {0}: restart it with that --peer",
                args.node, args.peer
            );
            execute_request(wish, &args.ask, &done, output)
        }
        MemberCommand::Feature(args) => feature::run(args, output),
        MemberCommand::Cancel(args) => {
            let wish = MembersRequest { cancel: true, ..wish };
            execute_request(
                wish,
                &args.ask,
                "the change was stopped; completed steps remain",
                output,
            )
        }
        MemberCommand::Drain(args) => {
            let mut group = GroupClient::new(&args.ask.place.admin);
            let drained = drain::drain_node(&mut group, args.node, args.ask.dry_run)?;
            output.print_result(&drained, || drained.to_string());
            Ok(Exit::Done)
        }
    }
}

fn list_members(place: &Where, output: Output) -> Result<Exit, Problem> {
    let mut group = GroupClient::new(&place.admin);
    let seen = group.poll_all()?;
    let view = seen.newest_view();
    output.print_result(view, || show::format_members(view, seen.reported_leader()));
    Ok(Exit::Done)
}

fn add_member(args: &AddArgs, output: Output) -> Result<Exit, Problem> {
    let mut group = GroupClient::new(&args.ask.place.admin);
    let request = MembersRequest {
        add: Some(AddRequest { peer: args.peer.clone(), asked: args.role.clone() }),
        dry_run: args.ask.dry_run,
        ..MembersRequest::default()
    };
    let asked = group.send_request(&request)?;
    let MembersOutcome::Node { node } = asked else {
        output.print_result(&asked, || DRY_RUN_POSSIBLE.to_owned());
        return Ok(Exit::Done);
    };
    let added = Added {
        node,
        peer: args.peer.clone(),
        role: args.role.clone(),
        start: start_command_line(node, args, &group.admin_addresses()),
    };
    output.print_result(&added, || {
        format!("node {node} is reserved; start it with\n\n  {}\n", added.start)
    });
    Ok(Exit::Done)
}

const DRY_RUN_POSSIBLE: &str = "dry run: the change is possible; nothing was changed";

/// Returns the command line that starts the new node, with placeholders for the data folder and the
/// client and admin addresses.
fn start_command_line(node: u32, args: &AddArgs, admins: &[String]) -> String {
    let role = match args.role.as_str() {
        "voter" => String::new(),
        role => format!(" --as {role}"),
    };
    format!(
        "quorate start --data DIR --join {} --node {node} --peer {}{role}",
        admins.join(","),
        args.peer
    )
}

/// Executes a request that takes effect at once, or with `--dry-run` only shows its effect.
fn execute_request(
    wish: MembersRequest,
    ask: &Ask,
    done: &str,
    output: Output,
) -> Result<Exit, Problem> {
    let request = MembersRequest { dry_run: ask.dry_run, ..wish };
    let asked = GroupClient::new(&ask.place.admin).send_request(&request)?;
    output.print_result(&asked, || match asked {
        MembersOutcome::NothingToDo => show::NOTHING_TO_DO.to_owned(),
        MembersOutcome::Planned { .. } => DRY_RUN_POSSIBLE.to_owned(),
        MembersOutcome::Done | MembersOutcome::Node { .. } => done.to_owned(),
    });
    Ok(Exit::Done)
}

/// Executes a request that takes several steps. Shows the steps and follows the plan to its end.
/// `leaves` is the node that may be switched off afterwards.
fn execute_plan(
    wish: MembersRequest,
    steps: &Steps,
    leaves: Option<u32>,
    output: Output,
) -> Result<Exit, Problem> {
    let dry_run = steps.ask.dry_run;
    let request = MembersRequest { dry_run, ..wish };
    let mut group = GroupClient::new(&steps.ask.place.admin);
    let before = group.poll_all()?.newest_view().era;
    let (plan, planned) = match group.send_request(&request)? {
        MembersOutcome::Planned { plan, steps } => (plan, steps),
        MembersOutcome::NothingToDo | MembersOutcome::Done | MembersOutcome::Node { .. } => {
            let mut ended = PlanOutcome::already_in_effect(&mut group)?;
            if !output.json {
                output::print_line(show::NOTHING_TO_DO);
            }
            if let Some(node) = leaves.filter(|_| !dry_run && !steps.no_wait) {
                ended.settled = Some(follow::wait_until_removable(&mut group, None, node, output)?);
            }
            output.print_result(&ended, || show::format_outcome(&ended, leaves, None));
            return Ok(Exit::Done);
        }
    };
    if !output.json {
        output::print_line(&show::format_steps(&planned));
    }
    let Some(plan) = plan.filter(|_| !steps.no_wait) else {
        let underway = PlanOutcome::still_planned(plan, planned, before);
        output.print_result(&underway, || show::format_underway(plan));
        return Ok(Exit::Done);
    };
    crate::signals::end_at_first_signal(|| {
        output::progress(
            "the change continues without this command; 'quorate member list' shows its progress",
        );
    })?;
    let mut follower = PlanFollower::new(plan, planned, before, output);
    let mut ended = follower.follow_plan(&mut group, &request)?;
    if let Some(node) = leaves {
        ended.settled = Some(follow::wait_until_removable(&mut group, Some(plan), node, output)?);
    }
    let left = leaves.and_then(|_| group.poll_leader().ok());
    let left = left.as_ref().map(|seen| seen.newest_view());
    output.print_result(&ended, || show::format_outcome(&ended, leaves, left));
    Ok(Exit::Done)
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Debug, Parser)]
    struct Line {
        #[command(subcommand)]
        command: MemberCommand,
    }

    fn parse(line: &str) -> Result<MemberCommand, clap::Error> {
        let words = ["member"].into_iter().chain(line.split(' '));
        Line::try_parse_from(words).map(|line| line.command)
    }

    #[test]
    fn commands_are_read() {
        for line in [
            "list",
            "list --admin a:1,b:2",
            "add --peer h:7451",
            "add --peer h:7451 --as learner --dry-run",
            "remove 2",
            "remove 2 --no-wait --admin a:1",
            "promote 4 --dry-run",
            "demote 4",
            "weight 3 0",
            "priority 1 5",
            "replace 2 4",
            "address 2 h:7451",
            "cancel",
            "feature",
            "feature --raise --dry-run --admin a:1",
            "feature --raise --yes",
            "drain 1 --dry-run",
        ] {
            assert!(parse(line).is_ok(), "{line}");
        }
        for line in [
            "",
            "add",
            "add --peer h",
            "add --peer h:1 --as king",
            "remove",
            "remove 0",
            "remove -1",
            "remove 2 3",
            "weight 3",
            "weight 3 -1",
            "weight 3 4294967296",
            "priority 1",
            "priority 1 5 --no-wait",
            "replace 2",
            "address 2 nowhere",
            "drain",
            "feature --dry-run",
            "feature --yes",
            "drain all",
            "list --admin nonsense",
            "quiesce 1",
        ] {
            assert!(parse(line).is_err(), "{line}");
        }
    }

    #[test]
    fn the_start_line_is_complete() {
        let Ok(MemberCommand::Add(args)) = parse("add --peer h:7451 --as learner") else {
            panic!("not read");
        };
        let admins = ["a:1".to_owned(), "b:2".to_owned()];
        assert_eq!(
            start_command_line(4, &args, &admins),
            "quorate start --data DIR --join a:1,b:2 --node 4 --peer h:7451 --as learner"
        );
    }
}
