//! Tests whether multicast reaches the members of a running cluster. All members listen, each sends
//! in turn, and all report the datagrams they received.

use std::{net::SocketAddrV4, thread, time::Duration};

use quorate_admin::{
    client,
    reaching::{
        HeardRequest, HeardView, LISTEN_MS_MAX, ListenRequest, Listening, SendRequest, Sent,
    },
    view::{Answer, ClusterView},
};
use serde::{Serialize, de::DeserializeOwned};

use crate::doctor::{finding::Finding, plane::Plane};

/// Timeout for a request to a member. It exceeds the time for which a member listens or sends.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(15);
const MEMBERS_MAX: usize = 64;
const NAMED_MAX: usize = 6;

/// A member that can take part in the test.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TestMember {
    pub node: u32,
    pub admin: String,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReachOptions {
    pub group: SocketAddrV4,
    /// Interface on each member; `None` for the interface of the member's peer address.
    pub interface: Option<String>,
    /// Number of datagrams that each member sends.
    pub datagram_count: u32,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct ReachReport {
    /// Multicast group as `ADDRESS:PORT`.
    pub group: String,
    pub count: u32,
    /// Members in the order of the matrix rows and columns.
    pub members: Vec<ListeningMember>,
    /// One row per sender.
    pub matrix: Vec<SenderRow>,
    /// Failed requests to members, with the reason for each.
    pub problems: Vec<String>,
}

/// A member and the interface on which it listened.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct ListeningMember {
    pub node: u32,
    /// Name of the interface; null if the member did not listen.
    pub interface: Option<String>,
}

/// Matrix row with the datagrams of one sender, as counted by each receiver.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct SenderRow {
    pub sender: u32,
    /// Number of datagrams sent; null if the sender failed.
    pub sent: Option<u32>,
    /// Number of datagrams received by each member; null for a member that sent no report.
    pub heard: Vec<Option<u32>>,
}

/// Draws a random token that distinguishes this test from concurrent ones.
pub fn draw_test_token() -> u64 {
    let mut bytes = [0; 8];
    let random = rustix::rand::getrandom(&mut bytes, rustix::rand::GetRandomFlags::empty());
    match random {
        Ok(8) => u64::from_le_bytes(bytes),
        // A process id distinguishes concurrent tests well enough.
        _ => u64::from(std::process::id()) << 32,
    }
}

/// Returns the members that can take part, and the reasons why others cannot.
pub fn test_members(cluster: &ClusterView, given: &[String]) -> (Vec<TestMember>, Vec<String>) {
    let (mut members, mut problems) = (Vec::new(), Vec::new());
    for answer in cluster.nodes.iter().take(MEMBERS_MAX) {
        match answer {
            Answer::Node(view) => {
                let own = view.members.iter().find(|member| member.node == view.node);
                let admin = own.and_then(|own| own.admin.clone());
                let admin = admin.or_else(|| match given {
                    [only] if cluster.nodes.len() == 1 => Some(only.clone()),
                    _ => None,
                });
                match admin {
                    Some(admin) => members.push(TestMember { node: view.node, admin }),
                    None => {
                        problems.push(format!("the admin address of node {} is unknown", view.node))
                    }
                }
            }
            Answer::Starting { node, error, .. } => {
                problems.push(format!("{} is starting: {error}", node_name(*node)))
            }
            Answer::Unreachable { error, .. } => problems.push(error.clone()),
        }
    }
    (members, problems)
}

fn node_name(node: Option<u32>) -> String {
    node.map_or_else(|| "a node".to_owned(), |node| format!("node {node}"))
}

/// Runs the test on all members and collects the reports.
pub fn run_test(
    members: &[TestMember],
    mut problems: Vec<String>,
    wish: &ReachOptions,
) -> ReachReport {
    let token = format!("{:016x}", draw_test_token());
    let group = wish.group.to_string();
    let listen = |member: &TestMember| {
        let request = ListenRequest {
            group: group.clone(),
            interface: wish.interface.clone(),
            listen_ms: LISTEN_MS_MAX,
            token: token.clone(),
        };
        post::<Listening>(member, "", &request)
    };
    let listening = request_all(members, listen);
    // Members send one at a time, so that they do not cause each other's datagrams to be lost.
    let send = |member: &TestMember| {
        let request = SendRequest {
            group: group.clone(),
            interface: wish.interface.clone(),
            token: token.clone(),
            sender: member.node,
            count: wish.datagram_count,
        };
        post::<Sent>(member, "/send", &request)
    };
    let sent: Vec<_> = members.iter().map(send).collect();
    let heard = request_all(members, |member| {
        let request = HeardRequest { token: token.clone() };
        post::<HeardView>(member, "/heard", &request)
    });
    let mut placed = Vec::new();
    for (member, listening) in members.iter().zip(&listening) {
        problems.extend(listening.as_ref().err().cloned());
        placed.push(ListeningMember {
            node: member.node,
            interface: listening.as_ref().ok().map(|it| it.interface.clone()),
        });
    }
    problems.extend(sent.iter().filter_map(|sent| sent.as_ref().err().cloned()));
    // A member that failed to listen is already in the list of problems.
    let deaf = heard.iter().zip(&listening).filter(|(_, listening)| listening.is_ok());
    problems.extend(deaf.filter_map(|(heard, _)| heard.as_ref().err().cloned()));
    let row = |(member, sent): (&TestMember, &Result<Sent, String>)| SenderRow {
        sender: member.node,
        sent: sent.as_ref().ok().map(|sent| sent.sent),
        heard: heard
            .iter()
            .map(|heard| heard.as_ref().ok().map(|heard| heard_from(heard, member.node)))
            .collect(),
    };
    ReachReport {
        group,
        count: wish.datagram_count,
        matrix: members.iter().zip(&sent).map(row).collect(),
        members: placed,
        problems,
    }
}

fn heard_from(heard: &HeardView, sender: u32) -> u32 {
    let mut all = heard.heard.iter();
    all.find(|heard| heard.sender == sender).map_or(0, |heard| heard.count)
}

fn request_all<T: Send>(
    members: &[TestMember],
    ask: impl Fn(&TestMember) -> Result<T, String> + Sync,
) -> Vec<Result<T, String>> {
    let ask = &ask;
    thread::scope(|scope| {
        let threads: Vec<_> =
            members.iter().map(|member| scope.spawn(move || ask(member))).collect();
        let answers =
            threads.into_iter().map(|thread| thread.join().expect("asking does not panic"));
        answers.collect()
    })
}

fn post<T: DeserializeOwned>(
    member: &TestMember,
    path: &str,
    body: &impl Serialize,
) -> Result<T, String> {
    let body = serde_json::to_string(body).map_err(|error| error.to_string())?;
    let path = format!("/doctor/multicast{path}");
    let response = client::post(&member.admin, &path, &body, REQUEST_TIMEOUT);
    let response =
        response.map_err(|error| format!("node {} at {}: {error}", member.node, member.admin))?;
    response.parse_json().map_err(|refusal| {
        let old = response.status == 404;
        let why = if old { "its version is too old for this test" } else { &refusal.message };
        format!("node {}: {why}", member.node)
    })
}

impl ReachReport {
    /// Evaluates the matrix. `wanted` means that the user named the group, so a failure to reach it
    /// is a problem.
    pub fn reach_finding(&self, wanted: bool) -> Finding {
        let name = "reach";
        let planes = &[Plane::Multicast];
        let (mut silent, mut lossy, mut untold) = (Vec::new(), Vec::new(), 0);
        for row in &self.matrix {
            for (placed, heard) in self.members.iter().zip(&row.heard) {
                let pair = format!("{} → {}", row.sender, placed.node);
                match (heard, row.sent) {
                    _ if placed.node == row.sender => {}
                    (Some(0), Some(1..)) => silent.push(pair),
                    (Some(heard), Some(sent)) if *heard < sent => {
                        lossy.push(format!("{pair}: {heard} of {sent}"))
                    }
                    (Some(_), Some(_)) => {}
                    (None, _) | (_, None) => untold += 1,
                }
            }
        }
        let hint = "switches: IGMP snooping wants a querier; clouds often have no multicast; firewalls: UDP to the \
                    group; several interfaces: --interface";
        let problems = self.problems.join("; ");
        let found = if !silent.is_empty() {
            let what = format!("nothing received: {} for {}", join_first(&silent), self.group);
            let found = match wanted {
                true => Finding::failing(name, what, hint),
                false => Finding::warning(name, what, hint),
            };
            found.blocking(planes)
        } else if !lossy.is_empty() {
            Finding::warning(name, format!("some datagrams are lost: {}", join_first(&lossy)), hint)
                .with_planes(planes)
        } else if untold > 0 || !self.problems.is_empty() {
            let hint = "'quorate status' shows which nodes are missing";
            Finding::unknown(name, "not every member could be asked", hint).with_planes(planes)
        } else if self.members.len() < 2 {
            Finding::unknown(
                name,
                "there are no other members",
                "give the address of a cluster with several nodes",
            )
            .with_planes(planes)
        } else {
            let what =
                format!("{} members receive {} from each other", self.members.len(), self.group);
            Finding::ok(name, what).with_planes(planes)
        };
        found.with_detail(problems)
    }
}

fn join_first(all: &[String]) -> String {
    let shown = all[..all.len().min(NAMED_MAX)].join(", ");
    match all.len().saturating_sub(NAMED_MAX) {
        0 => shown,
        more => format!("{shown} and {more} more"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::doctor::finding::FindingState;

    fn reach(heard: [[Option<u32>; 2]; 2]) -> ReachReport {
        let placed = |node| ListeningMember { node, interface: Some("eth0".to_owned()) };
        let row = |sender, heard: [Option<u32>; 2]| SenderRow {
            sender,
            sent: Some(200),
            heard: heard.to_vec(),
        };
        ReachReport {
            group: "239.81.84.69:7460".to_owned(),
            count: 200,
            members: vec![placed(1), placed(2)],
            matrix: vec![row(1, heard[0]), row(2, heard[1])],
            problems: Vec::new(),
        }
    }

    #[test]
    fn members_that_receive_no_multicast_are_named() {
        let all = Some(200);
        let good = reach([[all, all], [all, all]]).reach_finding(true);
        assert_eq!((good.state, good.blocks), (FindingState::Ok, false), "{good:?}");
        // Datagrams that return to their own sender do not count.
        let own = reach([[Some(0), all], [all, Some(0)]]).reach_finding(true);
        assert_eq!(own.state, FindingState::Ok);
        let silent = reach([[all, Some(0)], [all, all]]);
        assert_eq!(silent.reach_finding(true).state, FindingState::Failing);
        assert_eq!(silent.reach_finding(false).state, FindingState::Warning);
        assert!(
            silent.reach_finding(false).blocks
                && silent.reach_finding(false).what.starts_with("nothing received: 1 → 2")
        );
        let lossy = reach([[all, Some(199)], [all, all]]).reach_finding(true);
        assert_eq!((lossy.state, lossy.blocks), (FindingState::Warning, false));
        assert_eq!(lossy.what, "some datagrams are lost: 1 → 2: 199 of 200");
        let untold = reach([[all, None], [all, all]]).reach_finding(true);
        assert_eq!((untold.state, untold.blocks), (FindingState::Unknown, false));
    }

    #[test]
    fn single_member_has_an_unknown_reach() {
        let mut one = reach([[Some(200); 2]; 2]);
        one.members.truncate(1);
        one.matrix.truncate(1);
        assert_eq!(one.reach_finding(true).state, FindingState::Unknown);
    }

    #[test]
    fn unreachable_member_is_named() {
        let gone = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let member = TestMember { node: 3, admin: gone.local_addr().unwrap().to_string() };
        drop(gone);
        let wish = ReachOptions {
            group: "239.81.84.69:7460".parse().unwrap(),
            interface: None,
            datagram_count: 5,
        };
        let reach = run_test(&[member], Vec::new(), &wish);
        assert_eq!(reach.matrix[0].heard, [None]);
        assert!(reach.problems[0].starts_with("node 3 at 127.0.0.1:"), "{reach:?}");
        assert_ne!(draw_test_token(), draw_test_token());
    }
}
