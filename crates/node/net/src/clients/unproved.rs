//! Unauthenticated client connections, bounded in number and lifetime, unknown to the front end.

use std::collections::VecDeque;

use quorate_core::time::Time;
use quorate_replica::{
    front::{ConnectionId, Endpoints},
    seldom::Seldom,
};
use quorate_tls::Trust;

use crate::{
    sources::{Interest, Token},
    tcp::socket::Socket,
};

/// All unauthenticated connections, oldest first.
#[derive(Debug)]
pub(super) struct UnauthenticatedClients {
    pub(super) trust: Option<Trust>,
    pub(super) strangers: VecDeque<Stranger>,
    pub(super) complaints: Seldom,
}

#[derive(Debug)]
pub(super) struct Stranger {
    pub(super) id: ConnectionId,
    pub(super) socket: Socket,
    pub(super) token: Token,
    pub(super) ends: Endpoints,
    pub(super) deadline: Time,
    pub(super) interest: Interest,
}

impl UnauthenticatedClients {
    pub(super) fn new(trust: Option<Trust>) -> Self {
        Self { trust, strangers: VecDeque::new(), complaints: Seldom::default() }
    }

    pub(super) const fn has_trust(&self) -> bool {
        self.trust.is_some()
    }

    /// Returns the authentication deadline of the oldest connection.
    pub(super) fn next_time(&self) -> Option<Time> {
        self.strangers.front().map(|stranger| stranger.deadline)
    }

    pub(super) fn position(&self, id: ConnectionId) -> Option<usize> {
        self.strangers.iter().position(|stranger| stranger.id == id)
    }
}
