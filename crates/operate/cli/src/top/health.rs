//! Health of the cluster: its quorum, the number of failures that it tolerates, and advice to the
//! operator. The web page at the admin address uses the same rules and texts (`health.js`).

use std::time::{Duration, Instant};

use quorate_admin::{
    quorum::Votes,
    units::span,
    view::{ClusterView, MemberView},
};

use super::{
    cluster::{Cluster, Node, Now},
    gather::News,
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
    pub(super) is: Severity,
    pub(super) title: String,
    pub(super) what: String,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Level {
    Unknown,
    Lost,
    /// Some voters are down. One more failure would lose the quorum.
    Edge,
    /// All voters are up, but there are too few to tolerate a failure.
    Small,
    Spare,
}

/// Voters of the cluster, divided into those that are up and those that are down.
#[derive(Clone, Debug)]
pub(super) struct Standing<'a> {
    pub(super) voters: Vec<&'a MemberView>,
    pub(super) alive: Vec<&'a MemberView>,
    gone: Vec<&'a MemberView>,
    votes: Votes,
    pub(super) level: Level,
}

/// Returns which voters are up: those connected to the leader or, without a leader, those that
/// respond.
pub(super) fn standing<'a>(now: &Now<'a>) -> Standing<'a> {
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
    let quorum = now.teller.map_or("", |view| &view.quorum);
    let weights = voters.iter().map(|member| (member.weight, lives(member)));
    let votes = Votes::count(quorum, weights, now.leader.is_some());
    let level = match () {
        () if voters.is_empty() => Level::Unknown,
        () if votes.is_lost => Level::Lost,
        () if votes.is_spare => Level::Spare,
        () if gone.is_empty() => Level::Small,
        () => Level::Edge,
    };
    Standing { voters, alive, gone, votes, level }
}

fn named(members: &[&MemberView]) -> String {
    let ids: Vec<_> = members.iter().map(|member| member.node.to_string()).collect();
    match &ids[..] {
        [] => "the others".to_owned(),
        [only] => format!("node {only}"),
        [first @ .., last] => format!("nodes {} and {last}", first.join(", ")),
    }
}

/// Returns the banners to show, the most severe one first.
pub(super) fn banners(now: &Now<'_>) -> Vec<Banner> {
    if now.is_silent() {
        return vec![silent(now)];
    }
    let standing = standing(now);
    let mut all: Vec<Banner> = quorum(now, &standing).into_iter().collect();
    if standing.level != Level::Lost && now.leader.is_none() {
        all.push(Banner {
            is: Severity::Wait,
            title: "There is no leader at the moment.".to_owned(),
            what: "Writes wait. An election usually takes less than a second; if this persists, check the network between the nodes.".to_owned(),
        });
    }
    let fresh = || now.nodes.iter().filter_map(Node::fresh_view);
    let clusters = fresh().map(|view| &view.cluster);
    if let Some(other) =
        fresh().map(|view| &view.cluster).find(|cluster| clusters.clone().next() != Some(cluster))
    {
        all.push(Banner {
            is: Severity::Bad,
            title: "Nodes of two different clusters answer.".to_owned(),
            what: format!("One is {other}. Give addresses of one cluster with --admin."),
        });
    }
    all.extend(fresh().filter_map(|view| {
        Some(Banner {
            is: Severity::Bad,
            title: format!("Node {}: {}", view.node, view.error.as_ref()?),
            what: "docs/operate.md tells you what to do about each error.".to_owned(),
        })
    }));
    all
}

fn silent(now: &Now<'_>) -> Banner {
    let age = now.silent_for().map_or_else(String::new, |age| {
        format!("Everything below is {} old. ", span(age.as_secs()))
    });
    let troubles = now.nodes.iter().filter_map(|node| node.trouble);
    let strangers = now.strangers.values().map(String::as_str);
    let reasons: Vec<_> = troubles.chain(strangers).collect();
    let (is, title) = match (reasons.is_empty(), now.nodes.is_empty()) {
        (true, true) => (Severity::Wait, "No answer yet."),
        _ => (Severity::Bad, "No node answers."),
    };
    Banner { is, title: title.to_owned(), what: format!("{age}Retrying. {}", reasons.join("; ")) }
}

fn quorum(now: &Now<'_>, standing: &Standing<'_>) -> Option<Banner> {
    let Standing { voters, alive, gone, votes, level } = standing;
    let trouble = |member: &&MemberView| now.node(member.node)?.trouble;
    let reasons: Vec<_> = gone.iter().filter_map(trouble).collect();
    let why = match reasons.is_empty() {
        true => String::new(),
        false => format!(" ({})", reasons.join("; ")),
    };
    let others = named(gone);
    let (is, title, what) = match level {
        Level::Unknown | Level::Spare => return None,
        Level::Lost => (
            Severity::Bad,
            votes.lost_text(),
            format!(
                "Restart {others}{why}. No acknowledged write is lost as long as their folders exist. Only if they are permanently lost, use quorate recover: docs/operate/lost-majority.md."
            ),
        ),
        Level::Edge => (
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
        Level::Small => (
            Severity::Note,
            match voters.len() {
                1 => "A cluster of one tolerates no failure.".to_owned(),
                count => format!("These {count} voters tolerate no failure."),
            },
            "Add nodes: three voters tolerate one failure, five tolerate two.".to_owned(),
        ),
    };
    Some(Banner { is, title, what })
}

/// Returns the message about a lost quorum if the responses of a single query show one.
pub(crate) fn lost_quorum(view: &ClusterView) -> Option<String> {
    let at = Instant::now();
    let mut cluster = Cluster::new(Duration::ZERO);
    for answer in &view.nodes {
        cluster.take(News::Answer(String::new(), answer.clone()), at);
    }
    let now = cluster.read(at);
    let standing = standing(&now);
    let banner = quorum(&now, &standing).filter(|_| standing.level == Level::Lost)?;
    Some(format!("{} {}", banner.title, banner.what))
}

/// Returns a summary of the cluster's health in one or two words.
pub(super) fn pill(now: &Now<'_>) -> (Severity, &'static str) {
    if now.is_silent() {
        return match now.nodes.is_empty() && now.strangers.is_empty() {
            true => (Severity::Wait, "connecting"),
            false => (Severity::Bad, "no answer: stale"),
        };
    }
    match standing(now).level {
        Level::Lost => (Severity::Bad, "no quorum"),
        _ if now.leader.is_none() => (Severity::Wait, "no leader"),
        Level::Edge => (Severity::Wait, "no spare"),
        Level::Unknown | Level::Small | Level::Spare => (Severity::Good, "serves"),
    }
}

#[cfg(test)]
mod tests {
    use quorate_admin::view::NodeView;

    use super::{super::fixtures::cluster, *};

    /// Modifies a healthy cluster and checks the resulting banners.
    fn check(
        change: impl Fn(NodeView) -> Option<NodeView>,
        expected: (Severity, &'static str),
        titles: &[&str],
    ) -> Vec<Banner> {
        let at = Instant::now();
        let cluster = cluster(at, change);
        let now = cluster.read(at);
        let all = banners(&now);
        let said: Vec<_> = all.iter().map(|banner| &*banner.title).collect();
        assert_eq!((pill(&now), &said[..]), (expected, titles));
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
            banner.what,
            "Restart node 3 (no node answers at admin:3: refused), or replace it: quorate member replace. Stop no other node until then."
        );
        let detail = "There is no leader at the moment.";
        check(without(&[1]), (Severity::Wait, "no leader"), &[title, detail]);
    }

    #[test]
    fn one_of_three_has_lost_the_quorum() {
        let title = "Quorum lost: 1 of 2 needed votes available. Nothing is written.";
        let banner = check(without(&[1, 3]), (Severity::Bad, "no quorum"), &[title]).swap_remove(0);
        assert!(banner.what.starts_with("Restart nodes 1 and 3 ("), "{}", banner.what);
        assert!(banner.what.contains("docs/operate/lost-majority.md"));
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
        let cluster = cluster(at, Some);
        let later = at + Duration::from_secs(75);
        let now = cluster.read(later);
        assert_eq!(pill(&now), (Severity::Bad, "no answer: stale"));
        let all = banners(&now);
        assert_eq!(all.len(), 1);
        assert_eq!(all[0].title, "No node answers.");
        assert!(all[0].what.starts_with("Everything below is 75 s old."));
    }
}
