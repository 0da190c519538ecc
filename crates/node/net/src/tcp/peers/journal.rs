//! Log lines about peers for the operator, each logged once or rate-limited.

use std::collections::BTreeSet;

use quorate_core::{
    node_id::{Member, NodeId},
    time::Time,
};

use super::link::CLOSED;
use crate::{complaints::LoggedProblems, limiter::Limiter, tcp::foreign::Foreign};

/// Length in milliseconds of the window in which the log lines about a peer's connects and
/// disconnects are rate-limited.
const LOG_WINDOW_MS: u64 = 10_000;
const LOG_BURST: u32 = 6;
/// Hint logged when the addresses of two clusters overlap.
const OTHER_CLUSTER: &str = "one of the two was founded with an empty folder, or the address belongs to another \
     cluster; they exchange no data. Bring back the folder, or correct the list";

/// Hint logged when this node was removed.
const REMOVED: &str = "stop it; it may join again with an empty folder and a new id";

/// Writer of log lines about peers. It remembers which lines it has already logged.
#[derive(Debug)]
pub(super) struct Journal {
    me: NodeId,
    complaints: LoggedProblems,
    news: Limiter<NodeId, News>,
    foreign: Foreign,
    /// Peers that claim that this node was removed.
    removed_by: BTreeSet<NodeId>,
}

/// Kinds of rate-limited log lines about a peer.
#[derive(Debug)]
pub(super) enum News {
    Came { member: Member, boot: u32 },
    Went { node: NodeId, why: String },
}

impl Journal {
    pub(super) fn new(me: NodeId) -> Self {
        Self {
            me,
            complaints: LoggedProblems::default(),
            news: Limiter::new(LOG_WINDOW_MS),
            foreign: Foreign::default(),
            removed_by: BTreeSet::new(),
        }
    }

    /// Logs a peer's behaviour that needs attention.
    pub(super) fn complain(&mut self, node: NodeId, what: &str) {
        if self.complaints.is_new(&about(node), what) {
            tracing::warn!(peer = node.0, "{what}");
        }
    }

    pub(super) fn complain_of_stranger(&mut self, remote: &str, what: &str) {
        if self.complaints.is_new(remote, what) {
            tracing::warn!(%remote, "closed a peer connection: {what}");
        }
    }

    pub(super) fn unreachable(&mut self, node: NodeId, address: &str, why: &str) {
        if self.complaints.is_new(&about(node), why) {
            tracing::info!(peer = node.0, %address, "cannot reach a peer: {why}");
        }
    }

    /// Logs a temporary refusal by a peer.
    pub(super) fn not_yet(&mut self, node: NodeId, reason: &str) {
        if self.complaints.is_new(&about(node), reason) {
            tracing::info!(peer = node.0, "not yet connected: {reason}");
        }
    }

    /// Logs that a known node claims to belong to another cluster.
    pub(super) fn foreign(&mut self, node: NodeId, address: &str, now: Time) {
        if self.foreign.record_claim(node, now) {
            tracing::error!(peer = node.0, %address, "the peer belongs to another cluster: {OTHER_CLUSTER}");
        }
    }

    /// Logs a claim that this node was removed. Call it only for nodes in the table of peers.
    pub(super) fn removed(&mut self, by: NodeId) {
        if self.removed_by.is_empty() {
            tracing::error!(peer = by.0, "this node was removed from the cluster: {REMOVED}");
        }
        self.removed_by.insert(by);
    }

    /// Returns whether this peer claimed that this node was removed, and has not admitted it since.
    pub(super) fn is_removed_by(&self, by: NodeId) -> bool {
        self.removed_by.contains(&by)
    }

    pub(super) fn forget_problems(&mut self, node: NodeId) {
        self.removed_by.remove(&node);
        self.complaints.forget_subject(&about(node));
        self.foreign.forget_node(node);
    }

    pub(super) fn log_change(&mut self, now: Time, news: News) {
        let node = match &news {
            News::Came { member, .. } => member.node,
            News::Went { node, .. } => *node,
        };
        if let Some((news, left_out)) = self.news.offer(now, node, LOG_BURST, news) {
            self.write(&news, left_out);
        }
    }

    /// Logs the delayed lines that are now due.
    pub(super) fn on_time(&mut self, now: Time) {
        while let Some((news, left_out)) = self.news.next_due(now) {
            self.write(&news, left_out);
        }
    }

    /// Returns the problems that need an operator now. `address` maps a node to its address.
    pub(super) fn notices<'a>(
        &self,
        now: Time,
        address: impl Fn(NodeId) -> Option<&'a str>,
    ) -> Vec<String> {
        let notice = |node: NodeId| {
            let address = address(node).unwrap_or_default();
            format!("node {node} at {address} belongs to another cluster: {OTHER_CLUSTER}")
        };
        let removed = |by: &NodeId| {
            format!("node {by} says that this node was removed from the cluster: {REMOVED}")
        };
        let removed = self.removed_by.first().map(removed);
        self.foreign.nodes(now).map(notice).chain(removed).collect()
    }

    fn write(&self, news: &News, left_out: u64) {
        let node = self.me.0;
        let left_out = (left_out > 0).then_some(left_out);
        match news {
            News::Came { member, boot } => {
                tracing::info!(node, peer = %member, boot, left_out, "peer connected");
            }
            // This is also what an ordinary restart of a peer looks like.
            News::Went { node: peer, why } if why.starts_with(CLOSED) => {
                tracing::info!(node, peer = peer.0, left_out, "peer disconnected: {why}");
            }
            News::Went { node: peer, why } => {
                tracing::warn!(node, peer = peer.0, left_out, "peer disconnected: {why}");
            }
        }
    }
}

fn about(node: NodeId) -> String {
    format!("node {node}")
}
