//! `quorate member`: who belongs to the cluster, and how operators change that.

mod drain;
mod follow;
mod group;
mod show;

use clap::{Args, Subcommand};
use quorate_admin::members::{AddRequest, Asked, MembersRequest};
use quorate_core::quorum::QuorumRule;
use serde::Serialize;

use crate::{
    config::address_argument,
    output::{self, Exit, Output, Problem},
    status::DEFAULT_ADMIN,
};

use self::{
    follow::{Ended, Follower},
    group::Group,
};

/// A node id as an argument.
fn node_id() -> impl clap::builder::TypedValueParser<Value = u32> {
    clap::value_parser!(u32).range(1..)
}

/// What is to be done with the members.
#[derive(Debug, Subcommand)]
pub(crate) enum MemberCommand {
    /// Who belongs to the cluster: roles, weights, priorities, the plan under way
    List(Where),
    /// Reserve an id for a new node, and print the line that starts it
    ///
    /// The id is for the machine at --peer: asked for again with the same address, it is the same id until a
    /// node has come with it. A node may also join without a reserved id: `quorate start --join`.
    Add(AddArgs),
    /// Take a node out of the cluster for good; says when it may be switched off
    ///
    /// Its vote is taken away, then its id: neither can come back, and its folder is refused from then on. A
    /// node that leads hands over first. When it has ended, wait for "may be switched off": until then the
    /// others may still need what that node has.
    Remove(OneNode),
    /// Give a learner a vote
    ///
    /// It has to be caught up. A node that joined as a voter asks for this by itself.
    Promote(OneNode),
    /// Take a node's vote away; it goes on as a learner
    Demote(OneNode),
    /// Say how much a node's vote weighs; 1 is usual, 0 is none
    Weight(WeightArgs),
    /// Spare a voter the data while the others are enough, or end that with --off
    ///
    /// An auxiliary has a vote, executes nothing, and is sent values only while another voter is missing. The
    /// other voters must be a quorum without it.
    Auxiliary(AuxiliaryArgs),
    /// Say what a quorum is: majority or flexible:Q1,Q2
    ///
    /// Q1 is the weight that an election needs, Q2 that of a write: any Q1 must share a voter with any Q2. While
    /// it is flexible, nodes can come and go only as far as that stays so.
    Quorum(QuorumArgs),
    /// Say who leads if several could: the highest that is caught up
    Priority(PriorityArgs),
    /// Let a node that has joined take the place of another one, which leaves for good
    ///
    /// It gets the old one's weight. The old one may be dead. Says when it may be switched off, as remove.
    Replace(ReplaceArgs),
    /// Say where a node listens for peers from now on
    ///
    /// Say it first, then restart that node with --peer.
    Address(AddressArgs),
    /// End the plan under way where it is; what was done stays
    Cancel(CancelArgs),
    /// Move leadership away from a node, for maintenance
    ///
    /// If its priority is above another voter's, it is set to 0 first, so that leadership does not return; the
    /// output says what it was.
    Drain(DrainArgs),
}

/// Whom to ask.
#[derive(Args, Clone, Debug)]
pub(crate) struct Where {
    /// Admin addresses of one or more nodes; the others are found
    #[arg(long, env = "QUORATE_ADMIN", value_name = "ADDR[,…]", value_delimiter = ',', default_value = DEFAULT_ADMIN, value_parser = address_argument)]
    admin: Vec<String>,
}

/// Whom to ask, and whether it is only to be shown what would be done.
#[derive(Args, Clone, Debug)]
struct Ask {
    #[command(flatten)]
    place: Where,
    /// Show what would be done, and do nothing
    #[arg(long)]
    dry_run: bool,
}

/// The same for what takes several steps.
#[derive(Args, Clone, Debug)]
pub(crate) struct Steps {
    #[command(flatten)]
    ask: Ask,
    /// Do not wait for the end: the cluster goes on by itself
    #[arg(long)]
    no_wait: bool,
}

/// One node.
#[derive(Args, Clone, Debug)]
pub(crate) struct OneNode {
    /// Its id
    #[arg(value_name = "NODE", value_parser = node_id())]
    node: u32,
    #[command(flatten)]
    steps: Steps,
}

/// A node that comes later.
#[derive(Args, Clone, Debug)]
pub(crate) struct AddArgs {
    /// Where it will listen for peers; the other nodes must reach it there
    #[arg(long, value_name = "ADDR", value_parser = address_argument)]
    peer: String,
    /// What it is to become
    #[arg(long = "as", value_name = "ROLE", value_parser = ["voter", "learner", "auxiliary"], default_value = "voter")]
    role: String,
    #[command(flatten)]
    ask: Ask,
}

/// A node and a weight.
#[derive(Args, Clone, Debug)]
pub(crate) struct WeightArgs {
    /// Its id
    #[arg(value_name = "NODE", value_parser = node_id())]
    node: u32,
    /// What its vote weighs; 0: it has none
    #[arg(value_name = "WEIGHT")]
    weight: u32,
    #[command(flatten)]
    steps: Steps,
}

/// A voter that is to be spared, or not any more.
#[derive(Args, Clone, Debug)]
pub(crate) struct AuxiliaryArgs {
    /// Its id
    #[arg(value_name = "NODE", value_parser = node_id())]
    node: u32,
    /// It becomes a full replica
    #[arg(long)]
    off: bool,
    #[command(flatten)]
    steps: Steps,
}

/// A quorum rule.
#[derive(Args, Clone, Debug)]
pub(crate) struct QuorumArgs {
    /// majority or flexible:Q1,Q2
    #[arg(value_name = "RULE", value_parser = rule)]
    rule: QuorumRule,
    #[command(flatten)]
    steps: Steps,
}

fn rule(text: &str) -> Result<QuorumRule, &'static str> {
    QuorumRule::parse(text).ok_or("majority, or flexible:Q1,Q2 with two weights of at least 1")
}

/// A node and a priority.
#[derive(Args, Clone, Debug)]
pub(crate) struct PriorityArgs {
    /// Its id
    #[arg(value_name = "NODE", value_parser = node_id())]
    node: u32,
    /// 0 at first; among equal ones, leadership stays where it is
    #[arg(value_name = "PRIORITY")]
    priority: u32,
    #[command(flatten)]
    ask: Ask,
}

/// Two nodes.
#[derive(Args, Clone, Debug)]
pub(crate) struct ReplaceArgs {
    /// Who leaves
    #[arg(value_name = "OLD", value_parser = node_id())]
    old: u32,
    /// Who takes its place
    #[arg(value_name = "NEW", value_parser = node_id())]
    new: u32,
    #[command(flatten)]
    steps: Steps,
}

/// A node and an address.
#[derive(Args, Clone, Debug)]
pub(crate) struct AddressArgs {
    /// Its id
    #[arg(value_name = "NODE", value_parser = node_id())]
    node: u32,
    /// Where it will listen for peers
    #[arg(value_name = "ADDR", value_parser = address_argument)]
    peer: String,
    #[command(flatten)]
    ask: Ask,
}

/// Nothing but whom to ask.
#[derive(Args, Clone, Debug)]
pub(crate) struct CancelArgs {
    #[command(flatten)]
    ask: Ask,
}

/// A node that is to lead no more.
#[derive(Args, Clone, Debug)]
pub(crate) struct DrainArgs {
    /// Its id
    #[arg(value_name = "NODE", value_parser = node_id())]
    node: u32,
    #[command(flatten)]
    ask: Ask,
}

/// An id that was reserved.
#[derive(Debug, PartialEq, Eq, Serialize)]
struct Added {
    node: u32,
    peer: String,
    #[serde(rename = "as")]
    role: String,
    /// The line that starts it.
    start: String,
}

/// Runs the command.
pub(crate) fn run(command: &MemberCommand, output: Output) -> Result<Exit, Problem> {
    let wish = MembersRequest::default();
    match command {
        MemberCommand::List(place) => list(place, output),
        MemberCommand::Add(args) => add(args, output),
        MemberCommand::Remove(OneNode { node, steps }) => {
            let wish = MembersRequest {
                remove: Some(*node),
                ..wish
            };
            change(wish, steps, Some(*node), output)
        }
        MemberCommand::Promote(OneNode { node, steps }) => {
            let wish = MembersRequest {
                promote: Some(*node),
                ..wish
            };
            change(wish, steps, None, output)
        }
        MemberCommand::Demote(OneNode { node, steps }) => {
            let wish = MembersRequest {
                demote: Some(*node),
                ..wish
            };
            change(wish, steps, None, output)
        }
        MemberCommand::Weight(args) => {
            let wish = MembersRequest {
                weight: Some((args.node, args.weight)),
                ..wish
            };
            change(wish, &args.steps, None, output)
        }
        MemberCommand::Auxiliary(args) => {
            let wish = MembersRequest {
                auxiliary: Some((args.node, !args.off)),
                ..wish
            };
            change(wish, &args.steps, None, output)
        }
        MemberCommand::Quorum(args) => {
            let wish = MembersRequest {
                quorum: Some(args.rule.to_string()),
                ..wish
            };
            change(wish, &args.steps, None, output)
        }
        MemberCommand::Replace(args) => {
            let wish = MembersRequest {
                replace: Some((args.old, args.new)),
                ..wish
            };
            change(wish, &args.steps, Some(args.old), output)
        }
        MemberCommand::Priority(args) => {
            let wish = MembersRequest {
                priority: Some((args.node, args.priority)),
                ..wish
            };
            let done = format!("node {} has priority {}", args.node, args.priority);
            at_once(wish, &args.ask, &done, output)
        }
        MemberCommand::Address(args) => {
            let wish = MembersRequest {
                address: Some((args.node, args.peer.clone())),
                ..wish
            };
            let done = format!(
                "node {} is looked for at {}: restart it there",
                args.node, args.peer
            );
            at_once(wish, &args.ask, &done, output)
        }
        MemberCommand::Cancel(args) => {
            let wish = MembersRequest {
                cancel: true,
                ..wish
            };
            at_once(wish, &args.ask, "the plan has ended where it was", output)
        }
        MemberCommand::Drain(args) => {
            let mut group = Group::new(&args.ask.place.admin);
            let drained = drain::drain(&mut group, args.node, args.ask.dry_run)?;
            output.result(&drained, || drained.to_string());
            Ok(Exit::Done)
        }
    }
}

fn list(place: &Where, output: Output) -> Result<Exit, Problem> {
    let mut group = Group::new(&place.admin);
    let seen = group.look()?;
    let view = seen.newest();
    output.result(view, || show::list(view, seen.leader()));
    Ok(Exit::Done)
}

fn add(args: &AddArgs, output: Output) -> Result<Exit, Problem> {
    let mut group = Group::new(&args.ask.place.admin);
    let request = MembersRequest {
        add: Some(AddRequest {
            peer: args.peer.clone(),
            asked: args.role.clone(),
        }),
        dry_run: args.ask.dry_run,
        ..MembersRequest::default()
    };
    let asked = group.ask(&request)?;
    let Asked::Node { node } = asked else {
        output.result(&asked, || WOULD_BE_DONE.to_owned());
        return Ok(Exit::Done);
    };
    let added = Added {
        node,
        peer: args.peer.clone(),
        role: args.role.clone(),
        start: start_line(node, args, &group.admins()),
    };
    output.result(&added, || {
        format!(
            "node {node} is reserved; start it with\n\n  {}\n",
            added.start
        )
    });
    Ok(Exit::Done)
}

const WOULD_BE_DONE: &str = "it would be done; nothing was";

/// The folder is the reader's choice; client and admin addresses are those of that machine.
fn start_line(node: u32, args: &AddArgs, admins: &[String]) -> String {
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

/// What is done at once, or would be.
fn at_once(wish: MembersRequest, ask: &Ask, done: &str, output: Output) -> Result<Exit, Problem> {
    let request = MembersRequest {
        dry_run: ask.dry_run,
        ..wish
    };
    let asked = Group::new(&ask.place.admin).ask(&request)?;
    output.result(&asked, || match asked {
        Asked::NothingToDo => show::NOTHING_TO_DO.to_owned(),
        Asked::Planned { .. } => WOULD_BE_DONE.to_owned(),
        Asked::Done | Asked::Node { .. } => done.to_owned(),
    });
    Ok(Exit::Done)
}

/// What takes a plan: shows its steps, and follows it to its end. `leaves`: who may be switched off then.
fn change(
    wish: MembersRequest,
    steps: &Steps,
    leaves: Option<u32>,
    output: Output,
) -> Result<Exit, Problem> {
    let dry_run = steps.ask.dry_run;
    let request = MembersRequest { dry_run, ..wish };
    let mut group = Group::new(&steps.ask.place.admin);
    let before = group.look()?.newest().era;
    let (plan, planned) = match group.ask(&request)? {
        Asked::Planned { plan, steps } => (plan, steps),
        Asked::NothingToDo | Asked::Done | Asked::Node { .. } => {
            let mut ended = Ended::nothing_to_do(&mut group)?;
            if !output.json {
                output::print(show::NOTHING_TO_DO);
            }
            if let Some(node) = leaves.filter(|_| !dry_run && !steps.no_wait) {
                ended.settled = Some(follow::settle(&mut group, None, node, output)?);
            }
            output.result(&ended, || show::ended(&ended, leaves));
            return Ok(Exit::Done);
        }
    };
    if !output.json {
        output::print(&show::steps(&planned));
    }
    let Some(plan) = plan.filter(|_| !steps.no_wait) else {
        let underway = Ended::underway(plan, planned, before);
        output.result(&underway, || show::underway(plan));
        return Ok(Exit::Done);
    };
    crate::signals::end_at_first(|| {
        output::progress("the plan goes on without this command; `quorate member list` shows it");
    })?;
    let mut follower = Follower::new(plan, planned, before, output);
    let mut ended = follower.follow(&mut group, &request)?;
    if let Some(node) = leaves {
        ended.settled = Some(follow::settle(&mut group, Some(plan), node, output)?);
    }
    output.result(&ended, || show::ended(&ended, leaves));
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
            start_line(4, &args, &admins),
            "quorate start --data DIR --join a:1,b:2 --node 4 --peer h:7451 --as learner"
        );
    }
}
