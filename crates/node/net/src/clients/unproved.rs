//! Unauthenticated client connections, bounded in number and lifetime, unknown to the front end.

use std::collections::VecDeque;

use quorate_core::time::Time;
use quorate_replica::{
    front::{ConnectionId, Endpoints},
    seldom::Seldom,
};
use quorate_tls::NodeTrust;

use crate::{
    sources::{Interest, Token},
    tcp::socket::Socket,
};

/// All unauthenticated connections, oldest first.
#[derive(Debug)]
pub(super) struct UnauthenticatedClients {
    pub(super) trust: Option<NodeTrust>,
    pub(super) connections: VecDeque<UnauthenticatedConnection>,
    pub(super) log_limit: Seldom,
}

#[derive(Debug)]
pub(super) struct UnauthenticatedConnection {
    pub(super) id: ConnectionId,
    pub(super) socket: Socket,
    pub(super) token: Token,
    pub(super) endpoints: Endpoints,
    pub(super) deadline: Time,
    pub(super) interest: Interest,
}

impl UnauthenticatedClients {
    pub(super) fn new(trust: Option<NodeTrust>) -> Self {
        Self { trust, connections: VecDeque::new(), log_limit: Seldom::default() }
    }

    pub(super) const fn has_trust(&self) -> bool {
        self.trust.is_some()
    }

    /// Returns the authentication deadline of the oldest connection.
    pub(super) fn oldest_deadline(&self) -> Option<Time> {
        self.connections.front().map(|stranger| stranger.deadline)
    }

    pub(super) fn position(&self, id: ConnectionId) -> Option<usize> {
        self.connections.iter().position(|stranger| stranger.id == id)
    }
}
