//! Rates of a watched cluster, computed from the difference between two polls.

use std::{
    collections::{BTreeMap, VecDeque},
    time::Duration,
};

use quorate_admin::view::{Answer, ClusterView};

/// Number of polls for which throughput is remembered.
const POLLS_REMEMBERED: usize = 40;

/// Rates between the last two polls, and the throughput at earlier polls.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct ClusterRates {
    last_counters: Option<Counters>,
    /// Slots decided per second at each poll, oldest first. 0 if unknown.
    pub(super) decided_history: VecDeque<u64>,
    /// Slots applied per second by each node whose rate is known.
    pub(super) applied_rates: BTreeMap<u32, u64>,
    /// Payload bytes per second that the leader sends to each node.
    pub(super) sent_rates: BTreeMap<u32, u64>,
}

/// Counters of the nodes' processes, which only a restart decreases.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Counters {
    leader: Option<u32>,
    decided: u64,
    applied: BTreeMap<u32, u64>,
    sent_bytes: BTreeMap<u32, u64>,
}

impl Counters {
    fn from_cluster(cluster: &ClusterView) -> Self {
        let views = || cluster.nodes.iter().filter_map(Answer::node_view);
        let leader = views().find(|view| Some(view.node) == cluster.leader);
        let members = leader.into_iter().flat_map(|leader| &leader.members);
        let others = members.filter(|member| Some(member.node) != cluster.leader);
        Self {
            leader: cluster.leader,
            decided: highest_decided(cluster),
            applied: views().map(|view| (view.node, view.applied)).collect(),
            sent_bytes: others.map(|member| (member.node, member.payload_bytes_sent)).collect(),
        }
    }
}

/// Returns the highest decided slot reported by any node.
pub(super) fn highest_decided(cluster: &ClusterView) -> u64 {
    let views = cluster.nodes.iter().filter_map(Answer::node_view);
    views.map(|view| view.decided).max().unwrap_or(0)
}

impl ClusterRates {
    /// Updates the rates with a poll made `after` the previous one.
    pub(super) fn update(&mut self, cluster: &ClusterView, after: Duration) {
        let now = Counters::from_cluster(cluster);
        let ms = u64::try_from(after.as_millis()).unwrap_or(u64::MAX);
        // A decreased counter belongs to a restarted process.
        let rate = |from: u64, to: u64| to.checked_sub(from)?.saturating_mul(1000).checked_div(ms);
        let rates = |from: &BTreeMap<u32, u64>, to: &BTreeMap<u32, u64>| {
            let rate = |(node, to): (&u32, &u64)| Some((*node, rate(*from.get(node)?, *to)?));
            to.iter().filter_map(rate).collect()
        };
        let Some(last) = self.last_counters.replace(now.clone()) else {
            return;
        };
        self.decided_history.push_back(rate(last.decided, now.decided).unwrap_or(0));
        if self.decided_history.len() > POLLS_REMEMBERED {
            self.decided_history.pop_front();
        }
        self.applied_rates = rates(&last.applied, &now.applied);
        self.sent_rates = match last.leader == now.leader {
            true => rates(&last.sent_bytes, &now.sent_bytes),
            false => BTreeMap::new(),
        };
    }
}
