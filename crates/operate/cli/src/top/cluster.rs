//! Summary of the status received from a cluster: the leader, the members, and the age of each
//! node's status.

use std::{
    collections::BTreeMap,
    time::{Duration, Instant},
};

use quorate_admin::{
    look::QUERIED_NODES_MAX,
    tuning::TuningView,
    view::{Answer, MemberView, NodeView, ProgressView},
};

use super::{
    gather::{NodeResponse, REQUEST_TIMEOUT},
    text::{sanitize_document, sanitize_text},
};

/// Responses received from one node.
#[derive(Clone, Debug, Default)]
struct NodeState {
    /// Last status, and the time at which it was received.
    last_status: Option<(Instant, Box<NodeView>)>,
    /// Reason why the last request returned no status.
    last_failure: Option<String>,
    /// Set if the node responds but has not finished starting.
    is_starting: bool,
    progress: Option<ProgressView>,
}

/// Responses received from all nodes. All texts are sanitized, and all sizes are bounded.
#[derive(Clone, Debug)]
pub(super) struct Cluster {
    nodes: BTreeMap<u32, NodeState>,
    /// Addresses at which none of the nodes responds, each with the reason.
    unreachable_addresses: BTreeMap<String, String>,
    tuning: Option<(u32, Box<TuningView>)>,
    /// Age above which a status counts as stale.
    stale_after: Duration,
}

/// State of a node at one point in time.
#[derive(Clone, Copy, Debug)]
pub(super) struct Node<'a> {
    pub(super) node: u32,
    /// Last status of the node, even if stale.
    pub(super) view: Option<&'a NodeView>,
    /// Age of the last status.
    pub(super) age: Option<Duration>,
    pub(super) is_stale: bool,
    pub(super) is_starting: bool,
    pub(super) last_failure: Option<&'a str>,
    pub(super) progress: Option<&'a ProgressView>,
}

impl<'a> Node<'a> {
    /// Returns the node's last status, unless it is stale.
    pub(super) fn fresh_view(&self) -> Option<&'a NodeView> {
        self.view.filter(|_| !self.is_stale)
    }
}

/// State of the cluster at one point in time.
#[derive(Clone, Debug)]
pub(super) struct ClusterSnapshot<'a> {
    pub(super) time: Instant,
    /// All nodes, sorted by id.
    pub(super) nodes: Vec<Node<'a>>,
    /// Leader in the highest ballot that any node reports.
    pub(super) leader: Option<u32>,
    /// Status of the leader, if it is fresh.
    pub(super) leader_status: Option<&'a NodeView>,
    /// Status of the node with the most reliable view of the cluster.
    pub(super) best_view: Option<&'a NodeView>,
    pub(super) members: &'a [MemberView],
    pub(super) tuning: Option<&'a TuningView>,
    /// Addresses at which none of the nodes responds, each with the reason.
    pub(super) unreachable_addresses: &'a BTreeMap<String, String>,
}

impl Cluster {
    /// Creates an empty state. `every` is the polling interval.
    pub(super) fn new(every: Duration) -> Self {
        Self {
            nodes: BTreeMap::new(),
            unreachable_addresses: BTreeMap::new(),
            tuning: None,
            stale_after: every + REQUEST_TIMEOUT,
        }
    }

    /// Records a response received at `at`.
    pub(super) fn record_response(&mut self, news: NodeResponse, at: Instant) {
        let (address, answer) = match news {
            NodeResponse::Tuning(node, view) => {
                self.tuning = sanitize_document(&*view).map(|view| (node, Box::new(view)));
                return;
            }
            NodeResponse::Answer(address, answer) => (address, answer),
        };
        let Some(node) = answer.node() else {
            if let Answer::Starting { error, .. } | Answer::Unreachable { error, .. } = answer
                && self.unreachable_addresses.len() < QUERIED_NODES_MAX
            {
                self.unreachable_addresses.insert(sanitize_text(&address), sanitize_text(&error));
            }
            return;
        };
        self.unreachable_addresses.remove(&sanitize_text(&address));
        self.evict_for(node);
        let heard = self.nodes.entry(node).or_default();
        (heard.is_starting, heard.progress, heard.last_failure) = (false, None, None);
        match answer {
            Answer::Node(view) => match sanitize_document(&*view) {
                Some(view) => heard.last_status = Some((at, Box::new(view))),
                None => heard.last_failure = Some("its status cannot be understood".to_owned()),
            },
            Answer::Starting { error, progress, .. } => {
                heard.is_starting = true;
                heard.progress = progress.and_then(|progress| sanitize_document(&progress));
                heard.last_failure = Some(sanitize_text(&error));
            }
            Answer::Unreachable { error, .. } => heard.last_failure = Some(sanitize_text(&error)),
        }
    }

    /// Makes room for `for_node`, unless it is already recorded: if the limit is reached, removes
    /// the node that has been silent for the longest time.
    fn evict_for(&mut self, for_node: u32) {
        if self.nodes.contains_key(&for_node) || self.nodes.len() < QUERIED_NODES_MAX {
            return;
        }
        let said = |heard: &NodeState| heard.last_status.as_ref().map(|(at, _)| *at);
        let oldest = self.nodes.iter().min_by_key(|(_, heard)| said(heard));
        if let Some(oldest) = oldest.map(|(node, _)| *node) {
            self.nodes.remove(&oldest);
        }
    }

    /// Summarizes the state at time `at`.
    pub(super) fn snapshot_at(&self, at: Instant) -> ClusterSnapshot<'_> {
        let mut nodes: BTreeMap<u32, Node<'_>> = self
            .nodes
            .iter()
            .map(|(node, heard)| (*node, self.node_at(*node, heard, at)))
            .collect();
        let fresh = || nodes.values().filter_map(Node::fresh_view);
        // A deposed leader may still report itself as the leader.
        let claims = fresh().filter_map(|view| Some((view.ballot, view.leader?)));
        let leader = claims.max().map(|(_, leader)| leader);
        let leading = fresh().find(|view| Some(view.node) == leader);
        let known = fresh().max_by_key(|view| (!view.removed, view.applied));
        let last = || {
            let views = nodes.values().filter_map(|node| Some((node.age?, node.view?)));
            views.min_by_key(|(age, _)| *age).map(|(_, view)| view)
        };
        let teller = leading.or(known).or_else(last);
        let members = teller.map_or(&[][..], |view| &view.members);
        // A node that has left the cluster is not shown once it stops responding.
        let is_member = |node: &u32| members.iter().any(|member| member.node == *node);
        if !members.is_empty() {
            nodes.retain(|id, node| !node.is_stale || node.is_starting || is_member(id));
        }
        for member in members {
            let unheard = Node {
                node: member.node,
                view: None,
                age: None,
                is_stale: true,
                is_starting: false,
                last_failure: None,
                progress: None,
            };
            nodes.entry(member.node).or_insert(unheard);
        }
        let tuning = self.tuning.as_ref();
        ClusterSnapshot {
            time: at,
            nodes: nodes.into_values().collect(),
            leader,
            leader_status: leading,
            best_view: teller,
            members,
            tuning: tuning.filter(|(node, _)| Some(*node) == leader).map(|(_, view)| &**view),
            unreachable_addresses: &self.unreachable_addresses,
        }
    }

    fn node_at<'a>(&self, node: u32, heard: &'a NodeState, at: Instant) -> Node<'a> {
        let said = heard.last_status.as_ref();
        let age = said.map(|(said, _)| at.saturating_duration_since(*said));
        let is_stale = heard.is_starting || age.is_none_or(|age| age > self.stale_after);
        let view = said.map(|(_, view)| &**view);
        let own = view.and_then(|view| view.progress.as_ref());
        Node {
            node,
            view,
            age,
            is_stale,
            is_starting: heard.is_starting,
            last_failure: heard.last_failure.as_deref(),
            progress: heard.progress.as_ref().or(own.filter(|_| !is_stale)),
        }
    }
}

impl<'a> ClusterSnapshot<'a> {
    pub(super) fn node(&self, id: u32) -> Option<&Node<'a>> {
        self.nodes.iter().find(|node| node.node == id)
    }

    /// Returns a member as seen by the node with the most reliable view.
    pub(super) fn member(&self, id: u32) -> Option<&'a MemberView> {
        self.members.iter().find(|member| member.node == id)
    }

    /// Returns a node's lag in slots, as reported by its leader.
    pub(super) fn lag_slots(&self, id: u32) -> Option<u64> {
        let mut members = self.leader_status?.members.iter();
        members.find(|member| member.node == id)?.lag
    }

    /// Returns whether no node responds at present.
    pub(super) fn is_silent(&self) -> bool {
        let is_there = |node: &Node<'_>| !node.is_stale || node.is_starting;
        !self.nodes.iter().any(is_there)
    }

    /// Returns the time since the latest status of any node.
    pub(super) fn silence_duration(&self) -> Option<Duration> {
        self.nodes.iter().filter_map(|node| node.age).min()
    }
}

#[cfg(test)]
mod tests {
    use super::{super::fixtures, *};

    const SECOND: Duration = Duration::from_secs(1);

    #[test]
    fn silent_node_becomes_stale_and_its_status_has_an_age() {
        let at = Instant::now();
        let mut cluster = fixtures::sample_cluster(at, Some);
        let later = at + 3 * SECOND;
        fixtures::record_status(&mut cluster, later, |view| (view.node != 3).then_some(view));
        let now = cluster.snapshot_at(later);
        // A single refusal does not mean that it has gone; its last status is still fresh.
        assert!(!now.node(3).unwrap().is_stale);
        let last = later + SECOND;
        let now = cluster.snapshot_at(last);
        let node = now.node(3).unwrap();
        assert!(node.is_stale && node.view.is_some());
        assert_eq!(node.age, Some(4 * SECOND));
        assert_eq!(node.last_failure, Some("no node answers at admin:3: refused"));
        assert!(!now.node(1).unwrap().is_stale && !now.is_silent());
        assert!(cluster.snapshot_at(last + 60 * SECOND).is_silent());
    }

    #[test]
    fn deposed_leader_is_not_shown_as_the_leader() {
        let at = Instant::now();
        let cluster = fixtures::sample_cluster(at, |mut view| {
            if view.node != 1 {
                view.leader = Some(2);
                view.ballot.round += 1;
            }
            Some(view)
        });
        let now = cluster.snapshot_at(at);
        assert_eq!(now.leader, Some(2));
        assert_eq!(now.leader_status.map(|view| view.node), Some(2));
        // The previous leader's choice is no longer in use.
        assert!(now.tuning.is_none());
    }

    #[test]
    fn silent_members_are_listed_and_removed_ones_are_not() {
        let at = Instant::now();
        let mut cluster = Cluster::new(SECOND);
        let mut view = fixtures::sample_status(1);
        view.members.retain(|member| member.node != 2);
        let gone = Answer::Unreachable { node: Some(2), error: "refused".to_owned() };
        cluster.record_response(NodeResponse::Answer("admin:2".to_owned(), gone), at);
        cluster.record_response(
            NodeResponse::Answer("h".to_owned(), Answer::Node(Box::new(view))),
            at,
        );
        let now = cluster.snapshot_at(at);
        let nodes: Vec<u32> = now.nodes.iter().map(|node| node.node).collect();
        assert_eq!(nodes, [1, 3]);
        assert!(now.node(3).unwrap().is_stale);
    }

    #[test]
    fn unidentified_address_is_listed_until_a_node_answers() {
        let at = Instant::now();
        let mut cluster = Cluster::new(SECOND);
        let gone = Answer::Unreachable { node: None, error: "refused\x1b[2J".to_owned() };
        cluster.record_response(NodeResponse::Answer("h:9".to_owned(), gone), at);
        let now = cluster.snapshot_at(at);
        assert!(now.is_silent());
        assert_eq!(now.unreachable_addresses["h:9"], "refused\u{fffd}[2J");
        let answer = Answer::Node(Box::new(fixtures::sample_status(1)));
        cluster.record_response(NodeResponse::Answer("h:9".to_owned(), answer), at);
        assert!(cluster.snapshot_at(at).unreachable_addresses.is_empty());
    }

    #[test]
    fn memory_for_many_nodes_is_bounded() {
        let at = Instant::now();
        let mut cluster = Cluster::new(SECOND);
        for node in 1..1000 {
            let mut view = fixtures::sample_status(1);
            view.node = node;
            let answer = Answer::Node(Box::new(view));
            cluster
                .record_response(NodeResponse::Answer("h".to_owned(), answer), at + SECOND * node);
        }
        assert_eq!(cluster.nodes.len(), QUERIED_NODES_MAX);
        assert!(cluster.nodes.contains_key(&999));
    }
}
