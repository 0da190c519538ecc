//! Health of the cluster: its quorum, the number of failures that it tolerates, and advice to the
//! operator. The web page at the admin address uses the same rules and texts (`health.js`).

use std::time::{Duration, Instant};

use quorate_admin::{
    quorum::AvailableVotes,
    units::format_span,
    view::{ClusterView, MemberView},
};

use super::{
    cluster::{Cluster, ClusterSnapshot, Node},
    gather::NodeResponse,
};

/// Severity of a state, mildest first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Severity {
    Good,
    Note,
    Wait,
    Bad,
}

/// Message shown above everything else.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Banner {
    pub(super) severity: Severity,
    pub(super) title: String,
    pub(super) message: String,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum QuorumHealth {
    Unknown,
    QuorumLost,
    /// Some voters are down. One more failure would lose the quorum.
    NoSpareVoter,
    /// All voters are up, but there are too few to tolerate a failure.
    TooFewVoters,
    HasSpare,
}

/// Voters of the cluster, divided into those that are up and those that are down.
#[derive(Clone, Debug)]
pub(super) struct VoterHealth<'a> {
    pub(super) voters: Vec<&'a MemberView>,
    pub(super) voters_up: Vec<&'a MemberView>,
    voters_down: Vec<&'a MemberView>,
    votes: AvailableVotes,
    pub(super) quorum_health: QuorumHealth,
}

/// Returns which voters are up: those connected to the leader or, without a leader, those that
/// respond.
pub(super) fn voter_health<'a>(now: &ClusterSnapshot<'a>) -> VoterHealth<'a> {
    let lives = |member: &MemberView| {
        let node = now.node(member.node);
        let fresh = node.and_then(Node::fresh_view);
        if fresh.is_some_and(|view| view.role == "learner") {
            return false;
        }
        if Some(member.node) == now.leader {
            return true;
        }
        match now.leader_status {
            Some(_) => member.connected && !node.is_some_and(|node| node.is_starting),
            None => fresh.is_some(),
        }
    };
    let voters: Vec<_> = now.members.iter().filter(|member| member.weight > 0).collect();
    let (alive, gone): (Vec<_>, Vec<_>) = voters.iter().partition(|member| lives(member));
    let quorum = now.best_view.map_or("", |view| &view.quorum);
    let weights = voters.iter().map(|member| (member.weight, lives(member)));
    let votes = AvailableVotes::count_votes(quorum, weights, now.leader.is_some());
    let level = match () {
        () if voters.is_empty() => QuorumHealth::Unknown,
        () if votes.is_quorum_lost => QuorumHealth::QuorumLost,
        () if votes.tolerates_failure => QuorumHealth::HasSpare,
        () if gone.is_empty() => QuorumHealth::TooFewVoters,
        () => QuorumHealth::NoSpareVoter,
    };
    VoterHealth { voters, voters_up: alive, voters_down: gone, votes, quorum_health: level }
}

fn format_names(members: &[&MemberView]) -> String {
    let ids: Vec<_> = members.iter().map(|member| member.node.to_string()).collect();
    match &ids[..] {
        [] => "the others".to_owned(),
        [only] => format!("node {only}"),
        [first @ .., last] => format!("nodes {} and {last}", first.join(", ")),
    }
}

/// Returns the banners to show, the most severe one first.
pub(super) fn banners(now: &ClusterSnapshot<'_>) -> Vec<Banner> {
    if now.is_silent() {
        return vec![silence_banner(now)];
    }
    let standing = voter_health(now);
    let mut all: Vec<Banner> = quorum_banner(now, &standing).into_iter().collect();
    if standing.quorum_health != QuorumHealth::QuorumLost && now.leader.is_none() {
        all.push(Banner {
            severity: Severity::Wait,
            title: "There is no leader at the moment.".to_owned(),
            message: "Writes wait. An election usually takes less than a second; if this persists, check the network between the nodes.".to_owned(),
        });
    }
    let fresh = || now.nodes.iter().filter_map(Node::fresh_view);
    let clusters = fresh().map(|view| &view.cluster);
    if let Some(other) =
        fresh().map(|view| &view.cluster).find(|cluster| clusters.clone().next() != Some(cluster))
    {
        all.push(Banner {
            severity: Severity::Bad,
            title: "Nodes of two different clusters answer.".to_owned(),
            message: format!("One is {other}. Give addresses of one cluster with --admin."),
        });
    }
    all.extend(fresh().filter_map(|view| {
        Some(Banner {
            severity: Severity::Bad,
            title: format!("Node {}: {}", view.node, view.error.as_ref()?),
            message: "docs/operate.md tells you what to do about each error.".to_owned(),
        })
    }));
    all
}

fn silence_banner(now: &ClusterSnapshot<'_>) -> Banner {
    let age = now.silence_duration().map_or_else(String::new, |age| {
        format!("Everything below is {} old. ", format_span(age.as_secs()))
    });
    let troubles = now.nodes.iter().filter_map(|node| node.last_failure);
    let strangers = now.unreachable_addresses.values().map(String::as_str);
    let reasons: Vec<_> = troubles.chain(strangers).collect();
    let (is, title) = match (reasons.is_empty(), now.nodes.is_empty()) {
        (true, true) => (Severity::Wait, "No answer yet."),
        _ => (Severity::Bad, "No node answers."),
    };
    Banner {
        severity: is,
        title: title.to_owned(),
        message: format!("{age}Retrying. {}", reasons.join("; ")),
    }
}

fn quorum_banner(now: &ClusterSnapshot<'_>, standing: &VoterHealth<'_>) -> Option<Banner> {
    let VoterHealth { voters, voters_up: alive, voters_down: gone, votes, quorum_health: level } =
        standing;
    let trouble = |member: &&MemberView| now.node(member.node)?.last_failure;
    let reasons: Vec<_> = gone.iter().filter_map(trouble).collect();
    let why = match reasons.is_empty() {
        true => String::new(),
        false => format!(" ({})", reasons.join("; ")),
    };
    let others = format_names(gone);
    let (is, title, what) = match level {
        QuorumHealth::Unknown | QuorumHealth::HasSpare => return None,
        QuorumHealth::QuorumLost => (
            Severity::Bad,
            votes.lost_quorum_text(),
            format!(
                "Restart {others}{why}. No acknowledged write is lost as long as their folders exist. Only if they are permanently lost, use quorate recover: docs/operate/lost-majority.md."
            ),
        ),
        QuorumHealth::NoSpareVoter => (
            Severity::Wait,
            format!(
                "One failure away from quorum loss: {} of {} voters are up.",
                alive.len(),
                voters.len()
            ),
            format!(
                "Restart {others}{why}, or replace it: quorate member replace. Stop no other node until then."
            ),
        ),
        QuorumHealth::TooFewVoters => (
            Severity::Note,
            match voters.len() {
                1 => "A cluster of one tolerates no failure.".to_owned(),
                count => format!("These {count} voters tolerate no failure."),
            },
            "Add nodes: three voters tolerate one failure, five tolerate two.".to_owned(),
        ),
    };
    Some(Banner { severity: is, title, message: what })
}

/// Returns the message about a lost quorum if the responses of a single query show one.
pub(crate) fn lost_quorum_text(view: &ClusterView) -> Option<String> {
    let at = Instant::now();
    let mut cluster = Cluster::new(Duration::ZERO);
    for answer in &view.nodes {
        cluster.record_response(NodeResponse::Answer(String::new(), answer.clone()), at);
    }
    let now = cluster.snapshot_at(at);
    let standing = voter_health(&now);
    let banner = quorum_banner(&now, &standing)
        .filter(|_| standing.quorum_health == QuorumHealth::QuorumLost)?;
    Some(format!("{} {}", banner.title, banner.message))
}

/// Returns a summary of the cluster's health in one or two words.
pub(super) fn health_summary(now: &ClusterSnapshot<'_>) -> (Severity, &'static str) {
    if now.is_silent() {
        return match now.nodes.is_empty() && now.unreachable_addresses.is_empty() {
            true => (Severity::Wait, "connecting"),
            false => (Severity::Bad, "no answer: stale"),
        };
    }
    match voter_health(now).quorum_health {
        QuorumHealth::QuorumLost => (Severity::Bad, "no quorum"),
        _ if now.leader.is_none() => (Severity::Wait, "no leader"),
        QuorumHealth::NoSpareVoter => (Severity::Wait, "no spare"),
        QuorumHealth::Unknown | QuorumHealth::TooFewVoters | QuorumHealth::HasSpare => {
            (Severity::Good, "serves")
        }
    }
}

#[cfg(test)]
mod tests {
    use quorate_admin::view::NodeView;

    use super::{super::fixtures::sample_cluster, *};

    /// Modifies a healthy cluster and checks the resulting banners.
    fn check(
        change: impl Fn(NodeView) -> Option<NodeView>,
        expected: (Severity, &'static str),
        titles: &[&str],
    ) -> Vec<Banner> {
        let at = Instant::now();
        let cluster = sample_cluster(at, change);
        let now = cluster.snapshot_at(at);
        let all = banners(&now);
        let said: Vec<_> = all.iter().map(|banner| &*banner.title).collect();
        assert_eq!((health_summary(&now), &said[..]), (expected, titles));
        all
    }

    /// Makes the given nodes unresponsive and disconnected.
    fn without(gone: &'static [u32]) -> impl Fn(NodeView) -> Option<NodeView> {
        move |mut view| {
            for member in &mut view.members {
                member.connected = !gone.contains(&member.node);
            }
            if gone.contains(&1) {
                view.leader = None;
                view.role = "candidate".to_owned();
            }
            (!gone.contains(&view.node)).then_some(view)
        }
    }

    #[test]
    fn three_of_three_survive_a_failure() {
        check(Some, (Severity::Good, "serves"), &[]);
    }

    #[test]
    fn two_of_three_are_one_failure_away() {
        let title = "One failure away from quorum loss: 2 of 3 voters are up.";
        let banner = check(without(&[3]), (Severity::Wait, "no spare"), &[title]).swap_remove(0);
        assert_eq!(
            banner.message,
            "Restart node 3 (no node answers at admin:3: refused), or replace it: quorate member replace. Stop no other node until then."
        );
        let detail = "There is no leader at the moment.";
        check(without(&[1]), (Severity::Wait, "no leader"), &[title, detail]);
    }

    #[test]
    fn one_of_three_has_lost_the_quorum() {
        let title = "Quorum lost: 1 of 2 needed votes available. Nothing is written.";
        let banner = check(without(&[1, 3]), (Severity::Bad, "no quorum"), &[title]).swap_remove(0);
        assert!(banner.message.starts_with("Restart nodes 1 and 3 ("), "{}", banner.message);
        assert!(banner.message.contains("docs/operate/lost-majority.md"));
    }

    /// A leader continues with the weight that writes need, even if an election would fail.
    #[test]
    fn health_uses_the_quorum_rule_and_weights() {
        let flexible = |mut view: NodeView| {
            view.quorum = "flexible:3,1".to_owned();
            without(&[2, 3])(view)
        };
        let edge = "One failure away from quorum loss: 1 of 3 voters are up.";
        check(flexible, (Severity::Wait, "no spare"), &[edge]);
        let heavy = |mut view: NodeView| {
            view.members[0].weight = 5;
            Some(view)
        };
        check(heavy, (Severity::Good, "serves"), &["These 3 voters tolerate no failure."]);
    }

    #[test]
    fn node_without_votes_does_not_count_and_its_error_is_shown() {
        let forgot = |mut view: NodeView| {
            if view.node == 3 {
                view.role = "learner".to_owned();
                view.error = Some("it has forgotten votes".to_owned());
            }
            Some(view)
        };
        let edge = "One failure away from quorum loss: 2 of 3 voters are up.";
        let error = "Node 3: it has forgotten votes";
        check(forgot, (Severity::Wait, "no spare"), &[edge, error]);
    }

    #[test]
    fn nodes_of_two_clusters_cause_a_warning() {
        let other = |mut view: NodeView| {
            if view.node == 3 {
                view.cluster = "cd".to_owned();
            }
            Some(view)
        };
        check(other, (Severity::Good, "serves"), &["Nodes of two different clusters answer."]);
    }

    /// Nodes that do not respond to this program do not imply a lost quorum.
    #[test]
    fn no_answer_does_not_imply_a_lost_quorum() {
        let at = Instant::now();
        let cluster = sample_cluster(at, Some);
        let later = at + Duration::from_secs(75);
        let now = cluster.snapshot_at(later);
        assert_eq!(health_summary(&now), (Severity::Bad, "no answer: stale"));
        let all = banners(&now);
        assert_eq!(all.len(), 1);
        assert_eq!(all[0].title, "No node answers.");
        assert!(all[0].message.starts_with("Everything below is 75 s old."));
    }
}
