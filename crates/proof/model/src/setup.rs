//! How a world is set up: its nodes, their options, what a plane loses.

use quorate_core::{configuration::Configuration, laying::Route, lease::Leases, message::Message};

/// How a world is set up.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Setup {
    /// Number of nodes, members or not.
    pub nodes: usize,
    /// The founding configuration.
    pub founding: Configuration,
    /// Shape of the options of every node.
    pub heartbeat_ms: u64,
    /// Shortest election time-out.
    pub election_min_ms: u64,
    /// Longest.
    pub election_max_ms: u64,
    /// Most proposals in flight.
    pub inflight_max: usize,
    /// Slots that an acceptor holds.
    pub window_slots: u64,
    /// Whether leaders send proposals to just a quorum.
    pub thrifty: bool,
    /// How votes come to leaders, to begin with.
    pub route: Route,
    /// Seeds the nodes' own dice.
    pub seed: u64,
    /// Whether messages are kept sorted, so that equal soups are equal states.
    pub sorted: bool,
    /// Message kinds that never reach the soup.
    pub silent: Silent,
    /// Leases, if there are any ([read-4]).
    pub leases: Option<Leases>,
    /// How fast each node's clock is, in parts per million; those that are not listed are right.
    pub rates_ppm: Vec<u64>,
    /// Whether every chosen value must be held where every phase-1 quorum finds it ([era-12]).
    pub holders: bool,
    /// Whether clients ask what is in memory at a quorum ([less-1]).
    pub early: bool,
    /// Whether nodes apply what they decide some time later; else at once.
    pub lag: bool,
    /// How many slots each program of a node's device holds; 0: there are no devices.
    pub cells: u64,
    /// Whether decided content is learned without bytes that did not come along ([snap-5]).
    pub bare: bool,
    /// Whether nodes say how far their logs are, and remember it of each other ([lie-1]).
    pub witness: bool,
}

/// Message kinds that a plane loses always, to keep a soup small.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Silent {
    /// Heartbeats and their answers.
    pub heartbeats: bool,
    /// Refusals.
    pub preempted: bool,
    /// Announced decisions.
    pub decided: bool,
    /// Questions for, and answers with, decided values.
    pub catchup: bool,
}

impl Silent {
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
