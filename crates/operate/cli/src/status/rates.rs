//! Rates of a watched cluster, computed from the difference between two polls.

use std::{
    collections::{BTreeMap, VecDeque},
    time::Duration,
};

use quorate_admin::view::{Answer, ClusterView};

/// Number of polls for which throughput is remembered.
const LOOKS: usize = 40;

/// Rates between the last two polls, and the throughput at earlier polls.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Rates {
    last: Option<Counters>,
    /// Slots decided per second at each poll, oldest first. 0 if unknown.
    pub(super) decided: VecDeque<u64>,
    /// Slots applied per second by each node whose rate is known.
    pub(super) applied: BTreeMap<u32, u64>,
    /// Payload bytes per second that the leader sends to each node.
    pub(super) sent: BTreeMap<u32, u64>,
}

/// Counters of the nodes' processes, which only a restart decreases.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Counters {
    leader: Option<u32>,
    decided: u64,
    applied: BTreeMap<u32, u64>,
    sent: BTreeMap<u32, u64>,
}

impl Counters {
    fn of(cluster: &ClusterView) -> Self {
        let views = || cluster.nodes.iter().filter_map(Answer::view);
        let leader = views().find(|view| Some(view.node) == cluster.leader);
        let members = leader.into_iter().flat_map(|leader| &leader.members);
        let others = members.filter(|member| Some(member.node) != cluster.leader);
        Self {
            leader: cluster.leader,
            decided: decided(cluster),
            applied: views().map(|view| (view.node, view.applied)).collect(),
            sent: others.map(|member| (member.node, member.payload_bytes_sent)).collect(),
        }
    }
}

/// Returns the highest decided slot reported by any node.
pub(super) fn decided(cluster: &ClusterView) -> u64 {
    let views = cluster.nodes.iter().filter_map(Answer::view);
    views.map(|view| view.decided).max().unwrap_or(0)
}

impl Rates {
    /// Updates the rates with a poll made `after` the previous one.
    pub(super) fn update(&mut self, cluster: &ClusterView, after: Duration) {
        let now = Counters::of(cluster);
        let ms = u64::try_from(after.as_millis()).unwrap_or(u64::MAX);
        // A decreased counter belongs to a restarted process.
        let rate = |from: u64, to: u64| to.checked_sub(from)?.saturating_mul(1000).checked_div(ms);
        let rates = |from: &BTreeMap<u32, u64>, to: &BTreeMap<u32, u64>| {
            let rate = |(node, to): (&u32, &u64)| Some((*node, rate(*from.get(node)?, *to)?));
            to.iter().filter_map(rate).collect()
        };
        let Some(last) = self.last.replace(now.clone()) else {
            return;
        };
        self.decided.push_back(rate(last.decided, now.decided).unwrap_or(0));
        if self.decided.len() > LOOKS {
            self.decided.pop_front();
        }
        self.applied = rates(&last.applied, &now.applied);
        self.sent = match last.leader == now.leader {
            true => rates(&last.sent, &now.sent),
            false => BTreeMap::new(),
        };
    }
}
