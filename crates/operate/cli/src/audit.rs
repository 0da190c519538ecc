//! `quorate audit`: shows the actions of operators on all nodes in chronological order.

use std::time::Duration;

use clap::Args;
use quorate_admin::{
    client,
    look::query_cluster,
    users::AuditRecord,
    view::{Answer, ClusterView},
};

use crate::values::{Number, Unit};
use crate::{
    addresses::{DEFAULT_ADMIN, address_argument},
    output::{Exit, Output, Problem, progress},
    stream::format_time,
};

/// Timeout for a request to one node.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(10);

/// Arguments of `quorate audit`.
#[derive(Args, Clone, Debug)]
#[command(
    after_help = "Each node records the actions of operators in audit.jsonl in its folder; this command shows the last ones of all nodes."
)]
pub(crate) struct AuditArgs {
    /// Admin addresses of one or more nodes; the other members are found
    #[arg(long, env = "QUORATE_ADMIN", value_name = "ADDR[,…]", value_delimiter = ',', default_value = DEFAULT_ADMIN, value_parser = address_argument)]
    admin: Vec<String>,
    /// Number of actions to show
    #[arg(long, value_name = "N", default_value_t = 50, value_parser = Number::between(1, 10_000, Unit::Count).argument::<u32>())]
    last: u32,
}

pub(crate) fn run(args: &AuditArgs, output: Output) -> Result<Exit, Problem> {
    let cluster = query_cluster(&args.admin)?;
    let mut records = Vec::new();
    let mut missing = 0;
    for address in admin_addresses(&cluster, &args.admin) {
        match request_records(&address) {
            Ok(more) => records.extend(more),
            Err(problem) if problem.code == "forbidden" => return Err(problem),
            Err(problem) => {
                missing += 1;
                progress(&format!("no answer from a node: {problem}"));
            }
        }
    }
    records.sort_by_key(|record| record.at_ms);
    let surplus = records.len().saturating_sub(args.last as usize);
    records.drain(..surplus);
    output.print_result(&records, || format_records(&records));
    Ok(match missing {
        0 => Exit::Done,
        _ => Exit::Unreachable,
    })
}

/// Returns the admin addresses of all members.
fn admin_addresses(cluster: &ClusterView, given: &[String]) -> Vec<String> {
    let views = cluster.nodes.iter().filter_map(Answer::node_view);
    let members = views.flat_map(|view| &view.members);
    let mut all: Vec<String> =
        members.filter_map(|member| member.admin.clone()).chain(given.iter().cloned()).collect();
    all.sort();
    all.dedup();
    all
}

fn request_records(address: &str) -> Result<Vec<AuditRecord>, Problem> {
    let response = client::get(address, "/audit", REQUEST_TIMEOUT);
    let response = response.map_err(|error| Problem::unreachable_node(address, error))?;
    response.parse_json().map_err(|refusal| {
        let (exit, code) = match response.status {
            401 | 403 => (Exit::Failed, "forbidden"),
            _ => (Exit::Unreachable, "unavailable"),
        };
        Problem::new(exit, code, refusal.message).with_hint(refusal.hint)
    })
}

fn format_records(records: &[AuditRecord]) -> String {
    if records.is_empty() {
        return "these nodes have recorded no actions".to_owned();
    }
    let mut text = String::new();
    for record in records {
        let AuditRecord { at_ms, node, who, by, from, action, body, status, untold } = record;
        let done = if *status < 400 { "done" } else { "REFUSED" };
        text += &format!(
            "{}  node {node}  {done} {status}  {who} (by {by}, {from})  {action}",
            format_time(at_ms / 1000)
        );
        if !body.is_empty() {
            text += &format!("  {body}");
        }
        if *untold > 0 {
            text += &format!("  (and {untold} more attempts)");
        }
        text.push('\n');
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_action_is_one_line() {
        let record = AuditRecord {
            at_ms: 1_700_000_000_123,
            node: 2,
            who: "ann".to_owned(),
            by: "certificate".to_owned(),
            from: "10.0.0.9:5000".to_owned(),
            action: "POST /transfer".to_owned(),
            body: "{\"to\":3}".to_owned(),
            status: 403,
            untold: 4,
        };
        let expected = "2023-11-14T22:13:20Z  node 2  REFUSED 403  ann (by certificate, 10.0.0.9:5000)  POST /transfer  {\"to\":3}  \
                        (and 4 more attempts)\n";
        assert_eq!(format_records(&[record]), expected);
        assert_eq!(format_records(&[]), "these nodes have recorded no actions");
    }
}
