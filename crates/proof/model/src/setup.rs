//! Setup of a world: its nodes, their options, and the messages that are always lost.

use quorate_core::{
    configuration::Configuration, laying::Route, lease::LeaseRules, message::Message,
};

/// Fixed parameters of a world.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct WorldSetup {
    /// Number of nodes, members or not.
    pub node_count: usize,
    pub founding_configuration: Configuration,
    pub heartbeat_ms: u64,
    pub election_min_ms: u64,
    pub election_max_ms: u64,
    /// Maximum number of proposals in flight.
    pub inflight_max: usize,
    /// Size of an acceptor's window, in slots.
    pub window_slots: u64,
    /// Leaders send proposals to a quorum only.
    pub is_thrifty: bool,
    /// Initial route of votes to leaders.
    pub route: Route,
    /// Seed for the random numbers that the nodes draw themselves.
    pub seed: u64,
    /// The soup is sorted, so that equal soups are equal states.
    pub sorts_soup: bool,
    /// Kinds of messages that are never added to the soup.
    pub lost_messages: LostMessages,
    /// Rules for leases ([read-4]); `None` if the group does not use leases.
    pub lease_rules: Option<LeaseRules>,
    /// Rate of each node's clock in parts per million. Clocks that are not listed are exact.
    pub clock_rates_ppm: Vec<u64>,
    /// Checks that every phase-1 quorum includes a holder of every chosen value ([era-12]).
    pub checks_holders: bool,
    /// Clients request notifications about values in memory at a quorum ([less-1]).
    pub notifies_in_memory: bool,
    /// Nodes apply decisions after a delay instead of at once.
    pub delays_apply: bool,
    /// Number of slots that each program of a node's device has space for; 0 if nodes have no
    /// devices.
    pub device_cells: u64,
    /// Decided content is learned even without its bytes ([snap-5]).
    pub learns_without_bytes: bool,
    /// Nodes report the ends of their logs, and remember the ends that others report ([lie-1]).
    pub detects_rollback: bool,
    /// Restricts the run to the spine of the core, and checks that nodes use no wing.
    pub spine_only: bool,
}

/// Kinds of messages that are always lost, to keep a soup small.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct LostMessages {
    /// Heartbeats and their replies.
    pub heartbeats: bool,
    /// Refusals because of a higher promise.
    pub preempted: bool,
    /// Announcements that slots are decided.
    pub decided: bool,
    /// Catch-up requests and replies.
    pub catchup: bool,
}

impl LostMessages {
    pub(crate) fn loses(self, message: &Message) -> bool {
        match message {
            Message::Heartbeat(_) | Message::HeartbeatReply(_) => self.heartbeats,
            Message::Preempted { .. } => self.preempted,
            Message::Decided { .. } => self.decided,
            Message::CatchupRequest { .. } | Message::Learn { .. } | Message::BelowStart { .. } => {
                self.catchup
            }
            _ => false,
        }
    }
}
