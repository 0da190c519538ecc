//! `quorate status --wait`: waits until every node serves.

use std::{
    thread,
    time::{Duration, Instant},
};

use quorate_admin::{
    client,
    look::query_cluster,
    progress::{Progress, ProgressReport},
    view::{Answer, ClusterView, NodeView},
};
use serde_json::Value as Json;

use crate::output::{Exit, Problem};

/// Interval between polls.
const POLL_INTERVAL: Duration = Duration::from_millis(200);
/// Timeout for a readiness check.
const READY_TIMEOUT: Duration = Duration::from_secs(3);
/// HTTP status of `/ready` on a node that serves.
const READY_STATUS: u16 = 200;

/// Waits until all nodes serve, and returns their status. After `at_most`, returns an error that
/// lists what is still missing.
pub(super) fn wait_until_serving(
    admin: &[String],
    at_most: Duration,
) -> Result<ClusterView, Problem> {
    crate::signals::exit_when_interrupted()?;
    let until = Instant::now() + at_most;
    let mut progress = Progress::start();
    loop {
        let missing = match query_cluster(admin) {
            Ok(cluster) => match cluster.nodes.iter().find_map(not_serving_reason) {
                // Polls again, because some statuses predate the readiness of all nodes.
                None => return Ok(query_cluster(admin)?),
                Some(missing) => missing,
            },
            Err(silent) => silent.to_string(),
        };
        if Instant::now() >= until {
            let seconds = at_most.as_secs();
            let what = format_args!("not all nodes serve after {seconds} s: {missing}");
            return Err(Problem::new(Exit::Unreachable, "not_ready", what)
                .with_hint("'quorate status' shows what each node says"));
        }
        progress.report(|| ProgressReport::text(format_args!("waiting: {missing}")));
        thread::sleep(POLL_INTERVAL);
    }
}

/// Returns why a node does not serve yet, or `None` if it serves.
fn not_serving_reason(answer: &Answer) -> Option<String> {
    match answer {
        Answer::Unreachable { error, .. } => Some(error.clone()),
        Answer::Starting { node, error, .. } => {
            let name = node.map_or_else(|| "a node".to_owned(), |node| format!("node {node}"));
            Some(format!("{name}: {error}"))
        }
        Answer::Node(view) => {
            not_ready_reason(view).map(|why| format!("node {}: {why}", view.node))
        }
    }
}

fn not_ready_reason(view: &NodeView) -> Option<String> {
    // An auxiliary votes but serves no commands.
    if view.role == "auxiliary" {
        return view.leader.is_none().then(|| "it knows no leader".to_owned());
    }
    let own = view.members.iter().find(|member| member.node == view.node);
    // Without a known admin address, a node that responds and has a leader counts as ready.
    let Some(admin) = own.and_then(|member| member.admin.as_ref()) else {
        return view.leader.is_none().then(|| "it knows no leader".to_owned());
    };
    match client::get(admin, "/ready", READY_TIMEOUT) {
        Ok(response) if response.status == READY_STATUS => None,
        Ok(response) => {
            let refusal = response.parse_json::<Json>().err().unwrap_or_default();
            Some(refusal.message)
        }
        Err(error) => Some(error.to_string()),
    }
}
