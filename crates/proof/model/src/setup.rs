//! Setup of a world: its nodes, their options, and messages that a plane loses.

use quorate_core::{configuration::Configuration, laying::Route, lease::Leases, message::Message};

/// Setup of a world.
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
    /// Leaders send proposals to just a quorum.
    pub thrifty: bool,
    /// Initial route of votes to leaders.
    pub route: Route,
    /// Seeds the nodes' own dice.
    pub seed: u64,
    /// Messages are kept sorted, so that equal soups are equal states.
    pub sorted: bool,
    /// Message kinds that never reach the soup.
    pub silent: Silent,
    /// Leases, if there are any ([read-4]).
    pub leases: Option<Leases>,
    /// Rate of each node's clock, in parts per million; those that are not listed are right.
    pub rates_ppm: Vec<u64>,
    /// Every chosen value must be held where every phase-1 quorum finds it ([era-12]).
    pub holders: bool,
    /// Clients ask what is in memory at a quorum ([less-1]).
    pub early: bool,
    /// Nodes apply what they decide some time later; else at once.
    pub lag: bool,
    /// Slots that each program of a node's device holds; 0: there are no devices.
    pub cells: u64,
    /// Decided content is learned without bytes that did not come along ([snap-5]).
    pub bare: bool,
    /// Nodes report how far their logs are, and remember it of each other ([lie-1]).
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
