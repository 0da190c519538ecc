//! `quorate status --wait`: until every node serves.

use std::{
    thread,
    time::{Duration, Instant},
};

use quorate_admin::{
    client,
    look::{Silent, look},
    progress::{HowFar, Progress},
    view::{Answer, ClusterView, NodeView},
};
use serde_json::Value as Json;

use crate::output::{Exit, Problem};

/// Interval of looks.
const PAUSE: Duration = Duration::from_millis(200);
/// A node has so long to say whether it serves.
const WAIT: Duration = Duration::from_secs(3);
/// HTTP status of `/ready` when a node serves.
const READY: u16 = 200;

/// Waits until all nodes serve and returns their views; after `at_most`, an error that says what is
/// missing.
pub(super) fn wait(admin: &[String], at_most: Duration) -> Result<ClusterView, Problem> {
    crate::signals::exit_when_interrupted()?;
    let until = Instant::now() + at_most;
    let mut progress = Progress::start();
    loop {
        let missing = match look(admin) {
            Ok(cluster) => match cluster.nodes.iter().find_map(missing) {
                // Their views of now: the earlier ones are of before they served.
                None => return Ok(look(admin)?),
                Some(missing) => missing,
            },
            Err(Silent(reasons)) => reasons.join("; "),
        };
        if Instant::now() >= until {
            let seconds = at_most.as_secs();
            let what = format_args!("not all nodes serve after {seconds} s: {missing}");
            return Err(Problem::new(Exit::Unreachable, "not_ready", what)
                .hint("'quorate status' shows what each node says"));
        }
        progress.tell(|| HowFar::text(format_args!("waiting: {missing}")));
        thread::sleep(PAUSE);
    }
}

/// Why a node does not serve yet, if it does not.
fn missing(answer: &Answer) -> Option<String> {
    match answer {
        Answer::Unreachable { error, .. } => Some(error.clone()),
        Answer::Starting { node, error, .. } => {
            let name = node.map_or_else(|| "a node".to_owned(), |node| format!("node {node}"));
            Some(format!("{name}: {error}"))
        }
        Answer::Node(view) => unready(view).map(|why| format!("node {}: {why}", view.node)),
    }
}

fn unready(view: &NodeView) -> Option<String> {
    // It takes no commands, and is there for votes.
    if view.role == "auxiliary" {
        return view.leader.is_none().then(|| "it knows no leader".to_owned());
    }
    let own = view.members.iter().find(|member| member.node == view.node);
    // Who does not say where it listens is believed: it has answered, and knows a leader.
    let Some(admin) = own.and_then(|member| member.admin.as_ref()) else {
        return view.leader.is_none().then(|| "it knows no leader".to_owned());
    };
    match client::get(admin, "/ready", WAIT) {
        Ok(response) if response.status == READY => None,
        Ok(response) => {
            let refusal = response.json::<Json>().err().unwrap_or_default();
            Some(refusal.message)
        }
        Err(error) => Some(error.to_string()),
    }
}
