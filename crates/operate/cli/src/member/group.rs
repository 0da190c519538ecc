//! Sends operator requests to the cluster: chooses the receiving node, and another if it fails.

use std::{
    collections::BTreeSet,
    thread,
    time::{Duration, Instant},
};

use quorate_admin::{
    client::{self, Refusal},
    look::NoResponse,
    members::{MembersOutcome, MembersRequest, MembersView},
};

use clap::Args;

use crate::{
    addresses::{DEFAULT_ADMIN, address_argument},
    output::{Exit, Problem},
    reporting::report_waiting,
};

/// Timeout for a request for the member list.
const MEMBERS_TIMEOUT: Duration = Duration::from_secs(3);
/// Timeout for a change request, longer than the node's own, so that the node reports the error.
const CHANGE_TIMEOUT: Duration = Duration::from_secs(15);
/// Time for which a request is retried while leaders change or nodes restart.
const RETRY_TIMEOUT: Duration = Duration::from_secs(30);
/// Pause between two attempts.
const RETRY_PAUSE: Duration = Duration::from_millis(200);
/// Lag in slots above which a leader's view of the members counts as outdated.
const OUTDATED_LAG_SLOTS: u64 = 4096;
/// Maximum number of nodes to query, which limits the requests that a malicious member list can
/// cause.
const QUERIED_NODES_MAX: usize = 64;

/// Nodes to send requests to.
#[derive(Args, Clone, Debug)]
pub(crate) struct Where {
    /// Admin addresses of one or more nodes; the other members are found
    #[arg(long, env = "QUORATE_ADMIN", value_name = "ADDR[,…]", value_delimiter = ',', default_value = DEFAULT_ADMIN, value_parser = address_argument)]
    pub(super) admin: Vec<String>,
}

/// Addresses of a cluster's nodes.
#[derive(Debug)]
pub(super) struct GroupClient {
    /// Admin addresses, beginning with those given by the user.
    addresses: Vec<String>,
    /// Id of the cluster that responded first. Responses from other clusters are ignored.
    cluster_id: Option<String>,
    /// Admin address of the leader at the last poll.
    leader_address: Option<String>,
}

/// Responses of at least one node, with the admin addresses.
#[derive(Debug)]
pub(super) struct Responses(Vec<(String, MembersView)>);

impl Responses {
    /// Returns the leader in the highest ballot that any node reports.
    pub(super) fn reported_leader(&self) -> Option<u32> {
        let claims = self.0.iter().filter_map(|(_, view)| Some((view.ballot, view.leader?)));
        claims.max().map(|(_, leader)| leader)
    }

    /// Returns the leader's view. If the leader did not respond or lags far behind, returns the
    /// view of the node that has applied most.
    pub(super) fn newest_view(&self) -> &MembersView {
        let leader = self.reported_leader();
        let views = || self.0.iter().map(|(_, view)| view);
        let most = views().max_by_key(|view| view.applied).expect("a node answered");
        views()
            .find(|view| Some(view.node) == leader && view.leader == leader)
            .filter(|view| view.applied.saturating_add(OUTDATED_LAG_SLOTS) >= most.applied)
            .unwrap_or(most)
    }

    /// Returns the admin address of a node, if known.
    pub(super) fn admin_address_of(&self, node: u32) -> Option<String> {
        let own = self.0.iter().find(|(_, view)| view.node == node);
        let told = || {
            let mut views = self.0.iter();
            views.find_map(|(_, view)| view.find_node(node)?.admin.clone())
        };
        own.map(|(place, _)| place.clone()).or_else(told)
    }

    /// Returns the admin addresses that the responses list.
    fn admin_addresses(&self) -> impl Iterator<Item = &String> {
        let listed = self.0.iter().flat_map(|(_, view)| &view.nodes);
        listed.filter_map(|listed| listed.admin.as_ref())
    }
}

impl GroupClient {
    /// Creates a group from the admin addresses given by the user.
    pub(super) fn new(given: &[String]) -> Self {
        let mut seen = BTreeSet::new();
        let places = given.iter().filter(|place| seen.insert(*place));
        Self {
            addresses: places.take(QUERIED_NODES_MAX).cloned().collect(),
            cluster_id: None,
            leader_address: None,
        }
    }

    /// Returns all admin addresses.
    pub(super) fn admin_addresses(&self) -> Vec<String> {
        self.addresses.clone()
    }

    /// Queries all nodes, including those that the responses list.
    pub(super) fn poll_all(&mut self) -> Result<Responses, NoResponse> {
        let asked = self.addresses.len();
        let (mut seen, mut silent) = self.query_from(0);
        if self.addresses.len() > asked {
            let (more, reasons) = self.query_from(asked);
            seen.extend(more);
            silent.reasons.extend(reasons.reasons);
            silent.refusal = silent.refusal.or(reasons.refusal);
        }
        if seen.is_empty() {
            return Err(silent);
        }
        let seen = Responses(seen);
        self.leader_address =
            seen.reported_leader().and_then(|leader| seen.admin_address_of(leader));
        Ok(seen)
    }

    /// Queries only the leader if it has not changed, else all nodes. Cheap enough for repeated
    /// calls.
    pub(super) fn poll_leader(&mut self) -> Result<Responses, NoResponse> {
        let leader = self.leader_address.clone();
        let view = leader.and_then(|place| Some((place.clone(), request_view(&place).ok()?)));
        match view {
            Some((place, view))
                if self.is_same_cluster(&view) && view.leader == Some(view.node) =>
            {
                Ok(Responses(vec![(place, view)]))
            }
            _ => self.poll_all(),
        }
    }

    /// Queries the addresses starting at index `from` in parallel. Adds the addresses that the
    /// responses list.
    fn query_from(&mut self, from: usize) -> (Vec<(String, MembersView)>, NoResponse) {
        let answers: Vec<Result<MembersView, (String, Option<Refusal>)>> = thread::scope(|scope| {
            let places = self.addresses[from..].iter();
            let threads: Vec<_> = places.map(|place| scope.spawn(|| request_view(place))).collect();
            let answers = threads.into_iter().map(|thread| thread.join());
            answers.map(|answer| answer.expect("asking does not panic")).collect()
        });
        let places: Vec<String> = self.addresses[from..].to_vec();
        let (mut seen, mut silent) = (Vec::new(), NoResponse::default());
        for (place, answer) in places.into_iter().zip(answers) {
            match answer {
                Ok(view) if self.is_same_cluster(&view) => seen.push((place, view)),
                Ok(view) => {
                    silent.add_reason(format!("{place} belongs to cluster {}", view.cluster), None)
                }
                Err((reason, refusal)) => silent.add_reason(reason, refusal),
            }
        }
        let seen = Responses(seen);
        for place in seen.admin_addresses() {
            if self.addresses.len() < QUERIED_NODES_MAX && !self.addresses.contains(place) {
                self.addresses.push(place.clone());
            }
        }
        (seen.0, silent)
    }

    fn is_same_cluster(&mut self, view: &MembersView) -> bool {
        *self.cluster_id.get_or_insert_with(|| view.cluster.clone()) == view.cluster
    }

    /// Sends a request to the leader, or to any node if every node can handle it. Retries when the
    /// leader changes or the outcome is unknown, because a repeated request has no further effect.
    pub(super) fn send_request(
        &mut self,
        request: &MembersRequest,
    ) -> Result<MembersOutcome, Problem> {
        let body = serde_json::to_string(request).expect("plain data");
        let until = Instant::now() + RETRY_TIMEOUT;
        let _waiting = report_waiting(RETRY_TIMEOUT);
        let mut seen = self.poll_all()?;
        loop {
            let mut problem = no_leader_problem();
            for place in candidate_addresses(&seen, request) {
                let response = match client::post(&place, "/members", &body, CHANGE_TIMEOUT) {
                    Ok(response) => response,
                    Err(error) => {
                        problem = Problem::unreachable_node(&place, error);
                        continue;
                    }
                };
                match response.parse_json() {
                    Ok(asked) => return Ok(asked),
                    Err(refusal) => {
                        problem = refusal_problem(response.status, &refusal);
                        if !is_temporary(&refusal.code) {
                            return Err(problem);
                        }
                    }
                }
            }
            if Instant::now() >= until {
                return Err(problem);
            }
            thread::sleep(RETRY_PAUSE);
            // If no node responds now, the addresses of the last poll are reused.
            if let Ok(now) = self.poll_all() {
                seen = now;
            }
        }
    }
}

/// Returns the admin addresses to try, beginning with the leader's. Those of the other nodes follow
/// if the request needs no plan.
fn candidate_addresses(seen: &Responses, request: &MembersRequest) -> Vec<String> {
    let leader = seen.reported_leader();
    let first = leader.and_then(|leader| seen.admin_address_of(leader));
    let any = request.add.is_some()
        || request.priority.is_some()
        || request.address.is_some()
        || request.cancel;
    let others = seen.0.iter().filter(|_| any).map(|(place, _)| place);
    let others = others.filter(|place| Some(*place) != first.as_ref()).cloned();
    first.iter().cloned().chain(others).collect()
}

fn request_view(place: &str) -> Result<MembersView, (String, Option<Refusal>)> {
    let response = client::get(place, "/members", MEMBERS_TIMEOUT)
        .map_err(|error| (format!("no node answers at {place}: {error}"), None))?;
    response
        .parse_json()
        .map_err(|refusal| (format!("{place}: {}", refusal.message), Some(refusal)))
}

fn no_leader_problem() -> Problem {
    let what = "no leader with a quorum is known";
    Problem::new(Exit::Unreachable, "no_leader", what)
        .with_hint("'quorate status' shows which nodes are missing")
}

/// Returns whether the error is temporary, so that the same request may succeed later or on another
/// node.
fn is_temporary(code: &str) -> bool {
    const PASSING: [&str; 11] = [
        "not_leader",
        "no_quorum",
        "busy",
        "stopping",
        "stopped",
        "unavailable",
        "starting",
        "timed_out",
        "unknown_outcome",
        "other_era",
        "failed",
    ];
    PASSING.contains(&code)
}

/// Converts a node's refusal to a problem with the same code.
pub(super) fn refusal_problem(status: u16, refusal: &Refusal) -> Problem {
    const CODES: [&str; 30] = [
        "already_votes",
        "bad_address",
        "bad_answer",
        "bad_request",
        "busy",
        "failed",
        "foreign_page",
        "full",
        "held_back",
        "impossible",
        "last_voter",
        "malformed",
        "no_plan",
        "no_quorum",
        "no_target",
        "not_caught_up",
        "not_connected",
        "not_leader",
        "other_era",
        "removed",
        "starting",
        "stopped",
        "stopping",
        "taken",
        "timed_out",
        "too_few_alive",
        "unavailable",
        "under_way",
        "unknown_node",
        "unknown_outcome",
    ];
    let code = CODES.into_iter().find(|code| *code == refusal.code);
    let exit = match status {
        422 => Exit::Usage,
        _ if status >= 500 || is_temporary(&refusal.code) => Exit::Unreachable,
        _ => Exit::Failed,
    };
    Problem::new(exit, code.unwrap_or("refused"), &refusal.message).with_hint(&*refusal.hint)
}

#[cfg(test)]
pub(super) mod tests {
    use quorate_admin::{members::ListedView, view::BallotView};

    use super::*;

    pub(in crate::member) fn view(
        node: u32,
        leader: Option<u32>,
        round: u64,
        applied: u64,
    ) -> MembersView {
        let listed = |node: u32| ListedView {
            node,
            peer: None,
            client: None,
            admin: (node < 4).then(|| format!("h:{node}")),
            role: "voter".to_owned(),
            asked: "voter".to_owned(),
            weight: 1,
            priority: 0,
            incarnation: 0,
            joined: true,
            connected: true,
            lag: None,
        };
        MembersView {
            cluster: "ab".to_owned(),
            quorum: "majority".to_owned(),
            node,
            leader,
            ballot: BallotView { era: 0, round, node: leader.unwrap_or(node) },
            applied,
            era: 0,
            nodes: (1..=4).map(listed).collect(),
            plan: None,
            last: None,
            removed: Vec::new(),
        }
    }

    fn seen(views: &[MembersView]) -> Responses {
        let place = |view: &MembersView| (format!("at:{}", view.node), view.clone());
        Responses(views.iter().map(place).collect())
    }

    #[test]
    fn leader_is_preferred_if_it_answers() {
        let views = [view(1, Some(1), 7, 90), view(2, Some(2), 8, 80)];
        let both = seen(&views);
        assert_eq!((both.reported_leader(), both.newest_view().node), (Some(2), 2));
        let old = view(3, Some(2), 8, 85);
        let without = seen(&[views[0].clone(), old]);
        assert_eq!((without.reported_leader(), without.newest_view().node), (Some(2), 1));
        let applying = seen(&[view(1, Some(2), 8, 9_000), view(2, Some(2), 8, 80)]);
        assert_eq!(applying.newest_view().node, 1, "its table is old");
        assert_eq!(without.admin_address_of(2).as_deref(), Some("h:2"));
        assert_eq!(without.admin_address_of(1).as_deref(), Some("at:1"));
        assert_eq!(without.admin_address_of(4), None);
    }

    /// Requests that need a plan are sent to the leader. Any node handles other requests.
    #[test]
    fn only_requests_without_a_plan_go_to_other_nodes() {
        let seen = seen(&[view(1, Some(2), 7, 90), view(3, Some(2), 7, 90)]);
        let plan = MembersRequest { promote: Some(4), ..MembersRequest::default() };
        assert_eq!(candidate_addresses(&seen, &plan), ["h:2"]);
        let cancel = MembersRequest { cancel: true, ..MembersRequest::default() };
        assert_eq!(candidate_addresses(&seen, &cancel), ["h:2", "at:1", "at:3"]);
    }

    #[test]
    fn a_refusal_keeps_its_code() {
        let refusal = |code: &str| Refusal {
            code: code.to_owned(),
            message: "m".to_owned(),
            hint: "h".to_owned(),
            node: None,
            progress: None,
        };
        let problem = refusal_problem(409, &refusal("under_way"));
        assert_eq!((problem.exit, problem.code), (Exit::Failed, "under_way"));
        let problem = refusal_problem(409, &refusal("not_leader"));
        assert_eq!((problem.exit, problem.code), (Exit::Unreachable, "not_leader"));
        let problem = refusal_problem(422, &refusal("bad_address"));
        assert_eq!((problem.exit, problem.code), (Exit::Usage, "bad_address"));
        let problem = refusal_problem(418, &refusal("teapot"));
        assert_eq!((problem.exit, problem.code), (Exit::Failed, "refused"));
    }

    /// The exit code is 3, and every address is listed with its reason.
    #[test]
    fn unreachable_group_is_an_error_at_once() {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let closed = listener.local_addr().unwrap().to_string();
        let mut group = GroupClient::new(&[closed.clone(), closed.clone()]);
        let problem = group.send_request(&MembersRequest::default()).unwrap_err();
        assert_eq!((problem.exit, problem.code), (Exit::Unreachable, "unreachable"));
        assert_eq!(problem.message.matches(&closed).count(), 1);
    }
}
