//! Requests the status of all nodes of a cluster in parallel.

use std::{
    collections::{BTreeMap, BTreeSet},
    thread,
    time::Duration,
};

use crate::{
    client,
    view::{Answer, ClusterView, NodeView, STARTING},
};

/// Timeout for a request to one node.
const WAIT: Duration = Duration::from_secs(3);
/// Maximum number of nodes queried. It limits the requests that a malicious member list can cause.
pub const NODES_MAX: usize = 64;

/// Error codes of a node that runs but rejects the caller. The node's hint is shown to the user.
const REFUSED: [&str; 3] = ["not_proved", "no_role", "forbidden"];

/// Error for a cluster in which no node responded. Contains one reason per node.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{}", .0.join("; "))]
pub struct NoResponse(pub Vec<String>);

/// Queries the given nodes. If only one address is given, also queries the members that this node
/// lists.
pub fn query_cluster(addresses: &[String]) -> Result<ClusterView, NoResponse> {
    let asked: Vec<(Option<u32>, String)> =
        addresses.iter().take(NODES_MAX).map(|address| (None, address.clone())).collect();
    let mut answers = ask_all(&asked);
    if let ([(_, address)], [Answer::Node(view)]) = (&asked[..], &answers[..]) {
        let (others, unknown) = others(view, address);
        let others = ask_all(&others);
        answers.extend(others);
        answers.extend(unknown);
    }
    let silent = |answer: &Answer| match answer {
        Answer::Unreachable { error, .. } => Some(error.clone()),
        Answer::Node(_) | Answer::Starting { .. } => None,
    };
    if let Some(reasons) = answers.iter().map(silent).collect::<Option<Vec<_>>>() {
        return Err(NoResponse(reasons));
    }
    name_silent(&asked, &mut answers);
    Ok(ClusterView::new(answers))
}

/// Adds ids to the nodes that did not respond, based on the admin addresses that other nodes list.
fn name_silent(asked: &[(Option<u32>, String)], answers: &mut [Answer]) {
    let views = answers.iter().filter_map(Answer::view);
    let members = views.flat_map(|view| &view.members);
    let known: BTreeMap<String, u32> =
        members.filter_map(|member| Some((member.admin.clone()?, member.node))).collect();
    for ((_, address), answer) in asked.iter().zip(answers) {
        if let Answer::Unreachable { node, .. } | Answer::Starting { node, .. } = answer {
            *node = node.or_else(|| known.get(address).copied());
        }
    }
}

/// Returns the other members to query. Members whose admin address is unknown are returned as
/// unreachable.
fn others(view: &NodeView, asked: &str) -> (Vec<(Option<u32>, String)>, Vec<Answer>) {
    let mut places = Vec::new();
    let mut unknown = Vec::new();
    let mut seen = BTreeSet::from([view.node]);
    for member in view.members.iter().take(NODES_MAX) {
        if !seen.insert(member.node) {
            continue;
        }
        match &member.admin {
            Some(admin) if admin != asked => places.push((Some(member.node), admin.clone())),
            _ => unknown.push(Answer::Unreachable {
                node: Some(member.node),
                error: format!("node {} does not know its admin address", view.node),
            }),
        }
    }
    (places, unknown)
}

fn ask_all(asked: &[(Option<u32>, String)]) -> Vec<Answer> {
    thread::scope(|scope| {
        let ask = |(node, address)| scope.spawn(move || query_node(node, address, WAIT));
        let threads: Vec<_> = asked.iter().map(|(node, address)| ask((*node, address))).collect();
        threads.into_iter().map(|thread| thread.join().expect("asking does not panic")).collect()
    })
}

/// Requests the status of one node, with the timeout `wait`. A response from another node counts as
/// unreachable.
pub fn query_node(node: Option<u32>, address: &str, wait: Duration) -> Answer {
    let failed = |error: String| Answer::Unreachable { node, error };
    let response = match client::get(address, "/status", wait) {
        Ok(response) => response,
        Err(error) => return failed(format!("no node answers at {address}: {error}")),
    };
    match response.json::<NodeView>() {
        Ok(view) if node.is_some_and(|node| node != view.node) => {
            failed(format!("node {} answers at {address}", view.node))
        }
        Ok(view) => Answer::Node(Box::new(view)),
        Err(refusal) if refusal.code == STARTING => Answer::Starting {
            node: node.or(refusal.node),
            error: refusal.message,
            progress: refusal.progress.map(|progress| *progress),
        },
        Err(refusal) if REFUSED.contains(&&*refusal.code) => {
            failed(format!("{address}: {}; {}", refusal.message, refusal.hint))
        }
        Err(refusal) => failed(format!("{address}: {}", refusal.message)),
    }
}
