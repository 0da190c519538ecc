//! Queries the status of all nodes of a cluster in parallel.

use std::{collections::BTreeMap, fmt, thread, time::Duration};

use crate::{
    client::{self, Refusal, tls_remedy},
    view::{Answer, ClusterView, NodeView, STARTING_CODE},
};

/// Timeout for a request to one node.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(3);
/// Maximum number of nodes to query, which limits the requests that a malicious member list can
/// cause.
pub const QUERIED_NODES_MAX: usize = 64;

/// Error for a cluster in which no node responded, or which rejects the user.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NoResponse {
    /// One reason per node.
    pub reasons: Vec<String>,
    /// Rejection of the user. It is the same on all nodes.
    pub refusal: Option<Refusal>,
}

impl NoResponse {
    pub fn add_reason(&mut self, reason: String, refusal: Option<Refusal>) {
        self.reasons.push(reason);
        self.refusal = self.refusal.take().or_else(|| refusal.filter(Refusal::rejects_user));
    }

    pub fn hint(&self) -> &str {
        let tls = self.reasons.iter().find_map(|reason| tls_remedy(reason));
        let other = "check that a node is running, and give its address with --admin";
        self.refusal.as_ref().map_or(tls.unwrap_or(other), |refusal| &refusal.hint)
    }
}

impl fmt::Display for NoResponse {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.refusal {
            Some(refusal) => f.write_str(&refusal.message),
            None => f.write_str(&self.reasons.join("; ")),
        }
    }
}

impl std::error::Error for NoResponse {}

/// Queries the given nodes, and the members listed in the newest configuration among their
/// responses. Given nodes that are not members are only reported as such.
pub fn query_cluster(addresses: &[String]) -> Result<ClusterView, NoResponse> {
    query_cluster_with(addresses, &query_in_parallel)
}

/// A function that sends requests to nodes, each with its expected id if that is known.
type QueryFunction<'a> = &'a dyn Fn(&[(Option<u32>, String)]) -> Vec<(Answer, Option<Refusal>)>;

fn query_cluster_with(
    addresses: &[String],
    ask: QueryFunction<'_>,
) -> Result<ClusterView, NoResponse> {
    let mut silent = NoResponse::default();
    let mut answers: Vec<(String, Answer)> = Vec::new();
    let mut next: Vec<(Option<u32>, String)> =
        addresses.iter().take(QUERIED_NODES_MAX).map(|address| (None, address.clone())).collect();
    while !next.is_empty() {
        for ((_, address), (answer, refusal)) in next.iter().zip(ask(&next)) {
            if let Answer::Unreachable { error, .. } = &answer {
                silent.add_reason(error.clone(), refusal);
            }
            answers.push((address.clone(), answer));
        }
        identify_silent(&mut answers);
        next = unqueried_members(&answers);
    }
    match silent.reasons.len() == answers.len() {
        true => Err(silent),
        false => Ok(combine_responses(answers)),
    }
}

/// Adds ids to the nodes that did not respond, based on the admin addresses that other nodes list.
fn identify_silent(answers: &mut [(String, Answer)]) {
    let views = answers.iter().filter_map(|(_, answer)| answer.node_view());
    let members = views.flat_map(|view| &view.members);
    let known: BTreeMap<String, u32> =
        members.filter_map(|member| Some((member.admin.clone()?, member.node))).collect();
    for (address, answer) in answers {
        if let Answer::Unreachable { node, .. } | Answer::Starting { node, .. } = answer {
            *node = node.or_else(|| known.get(address).copied());
        }
    }
}

/// Returns the response with the newest configuration of the first cluster that responded.
fn newest_configuration(answers: &[(String, Answer)]) -> Option<&NodeView> {
    let views = || answers.iter().filter_map(|(_, answer)| answer.node_view());
    let cluster = &views().next()?.cluster;
    let ours = views().filter(|view| view.cluster == *cluster);
    ours.max_by_key(|view| (!view.removed, view.era, view.applied))
}

/// Returns the members of the newest configuration whose addresses have not been queried.
fn unqueried_members(answers: &[(String, Answer)]) -> Vec<(Option<u32>, String)> {
    let room = QUERIED_NODES_MAX.saturating_sub(answers.len());
    let members = newest_configuration(answers).map_or(&[][..], |view| &view.members);
    let silent = members.iter().filter(|member| !has_answer(answers, member.node));
    let places = silent.filter_map(|member| Some((Some(member.node), member.admin.clone()?)));
    places.filter(|(_, place)| answers.iter().all(|(asked, _)| asked != place)).take(room).collect()
}

fn has_answer(answers: &[(String, Answer)], node: u32) -> bool {
    answers.iter().any(|(_, answer)| answer.node() == Some(node))
}

/// Combines the responses into the state of the cluster.
fn combine_responses(answers: Vec<(String, Answer)>) -> ClusterView {
    let newest = newest_configuration(&answers).cloned();
    let newest = newest.as_ref().filter(|view| !view.removed && !view.members.is_empty());
    let (mut nodes, mut strangers) = (Vec::new(), Vec::new());
    for member in newest.iter().flat_map(|view| &view.members).take(QUERIED_NODES_MAX) {
        if !has_answer(&answers, member.node) {
            let error = format!("the admin address of node {} is not known", member.node);
            nodes.push(Answer::Unreachable { node: Some(member.node), error });
        }
    }
    for (address, answer) in answers {
        let (Answer::Node(view), Some(newest)) = (&answer, newest) else {
            nodes.push(answer);
            continue;
        };
        let is_member = newest.members.iter().any(|member| member.node == view.node);
        if view.cluster != newest.cluster {
            strangers.push(format!("{address} belongs to cluster {}", view.cluster));
        } else if !is_member {
            let node = view.node;
            strangers.push(format!("{address}: node {node} is not a member of the cluster"));
        } else if !nodes.iter().filter_map(Answer::node_view).any(|known| known.node == view.node) {
            nodes.push(answer);
        }
    }
    ClusterView { strangers, ..ClusterView::new(nodes) }
}

fn query_in_parallel(asked: &[(Option<u32>, String)]) -> Vec<(Answer, Option<Refusal>)> {
    thread::scope(|scope| {
        let ask = |(node, address)| {
            scope.spawn(move || query_with_refusal(node, address, REQUEST_TIMEOUT))
        };
        let threads: Vec<_> = asked.iter().map(|(node, address)| ask((*node, address))).collect();
        threads.into_iter().map(|thread| thread.join().expect("asking does not panic")).collect()
    })
}

/// Queries the status of one node within `wait`. A response from a node with another id is an
/// error.
pub fn query_node(node: Option<u32>, address: &str, wait: Duration) -> Answer {
    query_with_refusal(node, address, wait).0
}

/// Like [`query_node`], but also returns the rejection of the user if the node sent one.
fn query_with_refusal(
    node: Option<u32>,
    address: &str,
    wait: Duration,
) -> (Answer, Option<Refusal>) {
    let failed = |error: String| Answer::Unreachable { node, error };
    let response = match client::get(address, "/status", wait) {
        Ok(response) => response,
        Err(error) => return (failed(format!("no node answers at {address}: {error}")), None),
    };
    let answer = match response.parse_json::<NodeView>() {
        Ok(view) if node.is_some_and(|node| node != view.node) => {
            failed(format!("node {} answers at {address}", view.node))
        }
        Ok(view) => Answer::Node(Box::new(view)),
        Err(refusal) if refusal.code == STARTING_CODE => Answer::Starting {
            node: node.or(refusal.node),
            error: refusal.message,
            progress: refusal.progress.map(|progress| *progress),
        },
        Err(refusal) if refusal.rejects_user() => {
            let error = format!("{address}: {}; {}", refusal.message, refusal.hint);
            return (failed(error), Some(refusal));
        }
        Err(refusal) => failed(format!("{address}: {}", refusal.message)),
    };
    (answer, None)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        problem::{Kind, Problem},
        view::MemberView,
    };

    /// Returns the response of a node that knows these members. Node N listens at `h:N`.
    fn node(node: u32, era: u64, members: &[u32]) -> NodeView {
        let member = |node: &u32| {
            let admin = Some(format!("h:{node}"));
            MemberView { node: *node, admin, ..MemberView::default() }
        };
        let members = members.iter().map(member).collect();
        NodeView { node, era, members, cluster: "c".to_owned(), ..NodeView::default() }
    }

    /// Queries these nodes. Returns the ids, in brackets without a status, and the notes.
    fn asked(addresses: &[&str], nodes: &[NodeView]) -> (String, Vec<String>) {
        let ask = |asked: &[(Option<u32>, String)]| {
            let answer = |(node, address): &(Option<u32>, String)| {
                let view = nodes.iter().find(|view| *address == format!("h:{}", view.node));
                let silent = Answer::Unreachable { node: *node, error: String::new() };
                (view.map_or(silent, |view| Answer::Node(Box::new(view.clone()))), None)
            };
            asked.iter().map(answer).collect()
        };
        let addresses: Vec<String> = addresses.iter().map(|&address| address.to_owned()).collect();
        let cluster = query_cluster_with(&addresses, &ask).unwrap();
        let shown = |answer: &Answer| match (answer.node_view(), answer.node()) {
            (Some(view), _) => view.node.to_string(),
            (None, node) => format!("({})", node.unwrap_or_default()),
        };
        let nodes: Vec<String> = cluster.nodes.iter().map(shown).collect();
        (nodes.join(" "), cluster.strangers)
    }

    #[test]
    fn members_of_the_newest_configuration_are_found() {
        let old = NodeView { removed: true, ..node(3, 4, &[1, 2, 3]) };
        let now = [node(1, 6, &[1, 2, 4]), node(2, 6, &[1, 2, 4]), old, node(4, 6, &[1, 2, 4])];
        let left = vec!["h:3: node 3 is not a member of the cluster".to_owned()];
        assert_eq!(asked(&["h:1"], &now), ("1 2 4".to_owned(), Vec::new()));
        assert_eq!(asked(&["h:1", "h:2", "h:3"], &now), ("1 2 4".to_owned(), left.clone()));
        // A removed node knows where the others were.
        assert_eq!(asked(&["h:3"], &now), ("1 2 4".to_owned(), left));
        assert_eq!(asked(&["h:3"], &now[2..3]), ("(1) (2) 3".to_owned(), Vec::new()));
        // A member that is down, and an address that no member has.
        assert_eq!(asked(&["h:4", "h:9"], &now[1..]), ("(1) 2 4 (0)".to_owned(), Vec::new()));
        let foreign = NodeView { cluster: "d".to_owned(), ..node(9, 9, &[9]) };
        let both = [now[0].clone(), now[1].clone(), now[3].clone(), foreign];
        let strangers = vec!["h:9 belongs to cluster d".to_owned()];
        assert_eq!(asked(&["h:2", "h:9"], &both), ("1 2 4".to_owned(), strangers));
    }

    /// A rejected user is reported once, with the hint of the node.
    #[test]
    fn rejected_user_is_reported_once() {
        let text = |text: &str| text.to_owned();
        let (message, hint) = (text("why"), text("what"));
        let refusal = Refusal { code: text("no_role"), message, hint, ..Refusal::default() };
        let mut silent = NoResponse::default();
        silent.add_reason(text("h:1: down"), Some(Refusal::default()));
        assert_eq!(silent.to_string(), "h:1: down");
        assert_eq!(Problem::from(silent.clone()).kind, Kind::Unreachable);
        silent.add_reason(text("h:2: why"), Some(refusal.clone()));
        silent.add_reason(text("h:3: why"), Some(refusal));
        assert_eq!((&*silent.to_string(), silent.hint()), ("why", "what"));
        assert_eq!(Problem::from(silent).kind, Kind::Failed);
    }
}
