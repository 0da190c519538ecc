//! Log lines about peers for the operator, each logged once or rate-limited.

use std::collections::BTreeSet;

use quorate_core::{
    node_id::{Member, NodeId},
    time::Time,
};

use super::link::CLOSED_PREFIX;
use crate::{complaints::LoggedProblems, limiter::Limiter, tcp::foreign::ForeignClaims};

/// Length in milliseconds of the window in which the log lines about a peer's connects and
/// disconnects are rate-limited.
const LOG_WINDOW_MS: u64 = 10_000;
const LOG_BURST: u32 = 6;
/// Hint logged when the addresses of two clusters overlap.
const FOREIGN_CLUSTER_HINT: &str = "one of the two was founded with an empty folder, or the address belongs to another \
     cluster; they exchange no data. Bring back the folder, or correct the list";

/// Hint logged when this node was removed.
const REMOVED_HINT: &str = "stop it; it may join again with an empty folder and a new id";

/// Writer of log lines about peers. It remembers which lines it has already logged.
#[derive(Debug)]
pub(super) struct PeerLog {
    me: NodeId,
    logged_problems: LoggedProblems,
    change_limiter: Limiter<NodeId, ConnectionChange>,
    foreign_claims: ForeignClaims,
    /// Peers that claim that this node was removed.
    removed_by: BTreeSet<NodeId>,
}

/// Kinds of rate-limited log lines about a peer.
#[derive(Debug)]
pub(super) enum ConnectionChange {
    Connected { member: Member, boot: u32 },
    Disconnected { node: NodeId, why: String },
}

impl PeerLog {
    pub(super) fn new(me: NodeId) -> Self {
        Self {
            me,
            logged_problems: LoggedProblems::default(),
            change_limiter: Limiter::new(LOG_WINDOW_MS),
            foreign_claims: ForeignClaims::default(),
            removed_by: BTreeSet::new(),
        }
    }

    /// Logs a peer's behaviour that needs attention.
    pub(super) fn log_problem(&mut self, node: NodeId, what: &str) {
        if self.logged_problems.is_new(&subject_of(node), what) {
            tracing::warn!(peer = node.0, "{what}");
        }
    }

    pub(super) fn log_stranger_problem(&mut self, remote: &str, what: &str) {
        if self.logged_problems.is_new(remote, what) {
            tracing::warn!(%remote, "closed a peer connection: {what}");
        }
    }

    pub(super) fn log_unreachable(&mut self, node: NodeId, address: &str, why: &str) {
        if self.logged_problems.is_new(&subject_of(node), why) {
            tracing::info!(peer = node.0, %address, "cannot reach a peer: {why}");
        }
    }

    /// Logs a temporary refusal by a peer.
    pub(super) fn log_temporary_refusal(&mut self, node: NodeId, reason: &str) {
        if self.logged_problems.is_new(&subject_of(node), reason) {
            tracing::info!(peer = node.0, "not yet connected: {reason}");
        }
    }

    /// Logs that a known node claims to belong to another cluster.
    pub(super) fn log_foreign_claim(&mut self, node: NodeId, address: &str, now: Time) {
        if self.foreign_claims.record_claim(node, now) {
            tracing::error!(peer = node.0, %address, "the peer belongs to another cluster: {FOREIGN_CLUSTER_HINT}");
        }
    }

    /// Logs a claim that this node was removed. Call it only for nodes in the table of peers.
    pub(super) fn log_removed_claim(&mut self, by: NodeId) {
        if self.removed_by.is_empty() {
            tracing::error!(peer = by.0, "this node was removed from the cluster: {REMOVED_HINT}");
        }
        self.removed_by.insert(by);
    }

    /// Returns whether this peer claimed that this node was removed, and has not admitted it since.
    pub(super) fn is_removed_by(&self, by: NodeId) -> bool {
        self.removed_by.contains(&by)
    }

    pub(super) fn forget_problems(&mut self, node: NodeId) {
        self.removed_by.remove(&node);
        self.logged_problems.forget_subject(&subject_of(node));
        self.foreign_claims.forget_node(node);
    }

    pub(super) fn log_change(&mut self, now: Time, news: ConnectionChange) {
        let node = match &news {
            ConnectionChange::Connected { member, .. } => member.node,
            ConnectionChange::Disconnected { node, .. } => *node,
        };
        if let Some((news, left_out)) = self.change_limiter.admit_line(now, node, LOG_BURST, news) {
            self.write(&news, left_out);
        }
    }

    /// Logs the delayed lines that are now due.
    pub(super) fn log_due_lines(&mut self, now: Time) {
        while let Some((news, left_out)) = self.change_limiter.next_due(now) {
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
            format!("node {node} at {address} belongs to another cluster: {FOREIGN_CLUSTER_HINT}")
        };
        let removed = |by: &NodeId| {
            format!("node {by} says that this node was removed from the cluster: {REMOVED_HINT}")
        };
        let removed = self.removed_by.first().map(removed);
        self.foreign_claims.nodes(now).map(notice).chain(removed).collect()
    }

    fn write(&self, news: &ConnectionChange, left_out: u64) {
        let node = self.me.0;
        let left_out = (left_out > 0).then_some(left_out);
        match news {
            ConnectionChange::Connected { member, boot } => {
                tracing::info!(node, peer = %member, boot, left_out, "peer connected");
            }
            // This is also what an ordinary restart of a peer looks like.
            ConnectionChange::Disconnected { node: peer, why }
                if why.starts_with(CLOSED_PREFIX) =>
            {
                tracing::info!(node, peer = peer.0, left_out, "peer disconnected: {why}");
            }
            ConnectionChange::Disconnected { node: peer, why } => {
                tracing::warn!(node, peer = peer.0, left_out, "peer disconnected: {why}");
            }
        }
    }
}

fn subject_of(node: NodeId) -> String {
    format!("node {node}")
}
