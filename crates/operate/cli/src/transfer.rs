//! `quorate transfer`: hands leadership to another node.

use std::time::Duration;

use clap::Args;
use quorate_admin::{
    client,
    look::query_cluster,
    view::{Answer, ClusterView, TransferRequest, Transferred},
};

use crate::values::node_argument;
use crate::{
    addresses::{DEFAULT_ADMIN, address_argument},
    output::{Exit, Output, Problem},
};

/// Request timeout. It exceeds the node's own timeout, so that the node reports the error.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(15);

/// Arguments of `quorate transfer`.
#[derive(Args, Clone, Debug)]
pub(crate) struct TransferArgs {
    /// Id of the node that should lead [default: the most advanced follower]
    #[arg(long, env = "QUORATE_TO", value_name = "NODE", value_parser = node_argument)]
    to: Option<u32>,
    /// Admin address of any node
    #[arg(long, env = "QUORATE_ADMIN", value_name = "ADDR", value_delimiter = ',', default_value = DEFAULT_ADMIN, value_parser = address_argument)]
    admin: Vec<String>,
}

pub(crate) fn run(args: &TransferArgs, output: Output) -> Result<Exit, Problem> {
    let cluster = query_cluster(&args.admin)?;
    let address = leader_address(&cluster)?;
    let body = serde_json::to_string(&TransferRequest { to: args.to }).expect("plain data");
    let response = client::post(&address, "/transfer", &body, REQUEST_TIMEOUT)
        .map_err(|error| Problem::unreachable_node(&address, error))?;
    let transferred: Transferred = response.parse_json().map_err(|refusal| {
        let exit = if response.status >= 500 { Exit::Unreachable } else { Exit::Failed };
        Problem::new(exit, "transfer_failed", refusal.message).with_hint(refusal.hint)
    })?;
    output.print_result(&transferred, || transferred.leader.to_string());
    Ok(Exit::Done)
}

fn leader_address(cluster: &ClusterView) -> Result<String, Problem> {
    let leader = cluster.leader.ok_or_else(|| {
        Problem::new(Exit::Unreachable, "no_leader", "no leader with a quorum is known")
            .with_hint("'quorate status' shows which nodes are missing")
    })?;
    let members = cluster.nodes.iter().filter_map(Answer::node_view).flat_map(|view| &view.members);
    let known =
        members.filter(|member| member.node == leader).find_map(|member| member.admin.clone());
    known.ok_or_else(|| {
        Problem::new(
            Exit::Unreachable,
            "unreachable",
            format_args!("the admin address of the leader, node {leader}, is not known"),
        )
        .with_hint("give it with --admin")
    })
}
