//! Options of a protocol node, fixed at its start.

use crate::{laying::Route, lease::LeaseRules, node_id::Member};

/// Options of a node, chosen by the caller and constant while the node runs.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Options {
    /// This node's id and incarnation.
    pub member: Member,
    /// Maximum interval between a leader's heartbeats, in milliseconds.
    pub heartbeat_ms: u64,
    /// Minimum election timeout in milliseconds. The actual timeout is random.
    pub election_min_ms: u64,
    /// Maximum election timeout in milliseconds.
    pub election_max_ms: u64,
    /// Maximum number of proposals in flight.
    pub inflight_max: usize,
    /// Proposals for slots at or above `decided_to + window_slots` are refused ([p2-3]).
    pub window_slots: u64,
    /// A leader sends proposals to a phase-2 quorum only, and to all nodes when a reply is late.
    pub thrifty: bool,
    /// Route of votes to this node when it leads, until [`crate::input::Input::Route`] changes it.
    pub route: Route,
    /// Seed for the randomised timeouts. It must differ between nodes and between starts.
    pub seed: u64,
    /// Rules for leases ([read-4]); `None` if the group does not use leases.
    pub leases: Option<LeaseRules>,
    /// Time for which an earlier process may have granted a lease, in microseconds; 0 if it cannot
    /// have granted one.
    pub earlier_lease_us: u64,
    /// Time to wait for other nodes to connect before leading as a quorum by itself ([lie-6]), in
    /// microseconds; 0 if no other node can know this node's group yet.
    pub lead_alone_wait_us: u64,
}
