//! Listeners, and whether each currently accepts connections.

use std::{io, net::TcpListener};

use quorate_core::time::Time;

use crate::{
    limits::Limits,
    listen::{Listener, Listeners, SocketFile},
    sources::{Interest, Source, Sources, Token},
};

/// Outcome of accepting the connections that wait at a listener.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum AcceptOutcome {
    /// All waiting connections were accepted.
    AcceptedAll,
    /// The connection limit is reached.
    LimitReached,
}

/// All listeners of a node, with their gates.
#[derive(Debug)]
pub(crate) struct Gates {
    listeners: Listeners,
    peer_gate: Gate,
    peer_token: Token,
    client_gate: Gate,
    client_token: Option<Token>,
    socket_token: Option<Token>,
    stream_token: Option<Token>,
    raw_token: Option<Token>,
    limits: Limits,
}

#[derive(Debug, Default)]
struct Gate {
    state: GateState,
    has_logged_failure: bool,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum GateState {
    #[default]
    Open,
    /// Descriptors or memory ran out; paused until this time.
    Paused(Time),
    /// The connection limit is reached.
    Full,
    /// Permanently closed.
    Closed,
}

impl Gates {
    pub(crate) fn new(
        listeners: Listeners,
        limits: Limits,
        sources: &mut Sources,
    ) -> io::Result<Self> {
        let Listeners { peer, client, socket, stream, raw, .. } = &listeners;
        let peer = sources.add(peer, Source::PeerListener, Interest::READ)?;
        let client = client
            .as_ref()
            .map(|client| sources.add(client, Source::ClientListener, Interest::READ));
        let socket = socket.as_ref().map(|SocketFile { listener, .. }| {
            sources.add(listener, Source::ClientSocket, Interest::READ)
        });
        let stream = stream
            .as_ref()
            .map(|stream| sources.add(stream, Source::StreamListener, Interest::READ));
        let raw = raw.as_ref().map(|raw| sources.add(raw, Source::RawListener, Interest::READ));
        Ok(Self {
            peer_token: peer,
            client_token: client.transpose()?,
            socket_token: socket.transpose()?,
            stream_token: stream.transpose()?,
            raw_token: raw.transpose()?,
            listeners,
            peer_gate: Gate::default(),
            client_gate: Gate::default(),
            limits,
        })
    }

    pub(crate) const fn peer_listener(&self) -> &TcpListener {
        &self.listeners.peer
    }

    pub(crate) fn client_listener(&self) -> Option<Listener<'_>> {
        self.listeners.client.as_ref().map(Listener::Tcp)
    }

    pub(crate) fn socket_listener(&self) -> Option<Listener<'_>> {
        let socket = self.listeners.socket.as_ref();
        socket.map(|file| Listener::Unix(&file.listener))
    }

    pub(crate) fn stream_listener(&self) -> Option<Listener<'_>> {
        self.listeners.stream.as_ref().map(Listener::Tcp)
    }

    pub(crate) fn raw_stream_listener(&self) -> Option<Listener<'_>> {
        self.listeners.raw.as_ref().map(Listener::Tcp)
    }

    /// Handles the result of accepting peers. Returns whether this closed the gate.
    pub(crate) fn on_peers_accepted(
        &mut self,
        accepted: io::Result<AcceptOutcome>,
        now: Time,
        sources: &Sources,
    ) -> io::Result<bool> {
        let open = self.peer_gate.handle_accepted("peers", accepted, now, &self.limits);
        self.update_watched(!open, sources)
    }

    /// Handles the result of accepting clients. Returns whether this closed the gate.
    pub(crate) fn on_clients_accepted(
        &mut self,
        accepted: io::Result<AcceptOutcome>,
        now: Time,
        sources: &Sources,
    ) -> io::Result<bool> {
        let open = self.client_gate.handle_accepted("clients", accepted, now, &self.limits);
        self.update_watched(!open, sources)
    }

    /// Opens the gates that need no longer be closed. Returns whether there were any.
    pub(crate) fn reopen(
        &mut self,
        now: Time,
        clients_full: bool,
        sources: &Sources,
    ) -> io::Result<bool> {
        let peers = self.peer_gate.reopen(now, false);
        let clients = self.client_gate.reopen(now, clients_full);
        self.update_watched(peers || clients, sources)
    }

    /// Returns whether new clients must wait until others disconnect.
    pub(crate) fn are_clients_full(&self) -> bool {
        self.client_gate.state == GateState::Full
    }

    /// Returns the next time at which [`Self::reopen`] has work.
    pub(crate) fn next_reopen_at(&self) -> Option<Time> {
        let times = [self.peer_gate.next_reopen_at(), self.client_gate.next_reopen_at()];
        times.into_iter().flatten().min()
    }

    /// Stops accepting clients. Removes the client socket's file, which shows that the node is
    /// stopping.
    pub(crate) fn shut_clients(&mut self, sources: &mut Sources) -> io::Result<bool> {
        self.client_gate.state = GateState::Closed;
        if let Some(token) = self.socket_token.take() {
            sources.remove(token);
        }
        self.listeners.socket = None;
        self.update_watched(true, sources)
    }

    /// Updates the poller to the open gates if `changed`, and returns `changed`.
    fn update_watched(&self, changed: bool, sources: &Sources) -> io::Result<bool> {
        if !changed {
            return Ok(false);
        }
        let Listeners { peer, client, socket, stream, raw, .. } = &self.listeners;
        sources.change(peer, self.peer_token, self.peer_gate.interest())?;
        let interest = self.client_gate.interest();
        if let (Some(client), Some(token)) = (client, self.client_token) {
            sources.change(client, token, interest)?;
        }
        if let (Some(stream), Some(token)) = (stream, self.stream_token) {
            sources.change(stream, token, interest)?;
        }
        if let (Some(raw), Some(token)) = (raw, self.raw_token) {
            sources.change(raw, token, interest)?;
        }
        if let (Some(file), Some(token)) = (socket, self.socket_token) {
            sources.change(&file.listener, token, interest)?;
        }
        Ok(true)
    }
}

impl Gate {
    fn interest(&self) -> Interest {
        if self.state == GateState::Open { Interest::READ } else { Interest::NOTHING }
    }

    const fn next_reopen_at(&self) -> Option<Time> {
        match self.state {
            GateState::Paused(until) => Some(until),
            GateState::Open | GateState::Full | GateState::Closed => None,
        }
    }

    /// Handles the result of accepting. Returns whether the gate remains open.
    fn handle_accepted(
        &mut self,
        whom: &str,
        accepted: io::Result<AcceptOutcome>,
        now: Time,
        limits: &Limits,
    ) -> bool {
        match accepted {
            Ok(AcceptOutcome::AcceptedAll) => {
                self.has_logged_failure = false;
                true
            }
            Ok(AcceptOutcome::LimitReached) => {
                self.close_gate(GateState::Full);
                if !std::mem::replace(&mut self.has_logged_failure, true) {
                    let max = limits.clients_max;
                    tracing::warn!(
                        "connection limit reached: {max} {whom} are connected; further ones wait"
                    );
                }
                false
            }
            Err(error) => {
                self.close_gate(GateState::Paused(now.plus_ms(limits.accept_pause_ms)));
                if !std::mem::replace(&mut self.has_logged_failure, true) {
                    tracing::warn!(
                        "cannot accept {whom}, retrying every {} ms: {error}",
                        limits.accept_pause_ms
                    );
                }
                false
            }
        }
    }

    fn close_gate(&mut self, state: GateState) {
        if self.state != GateState::Closed {
            self.state = state;
        }
    }

    /// Opens the gate if it need no longer be closed. Returns whether it did.
    fn reopen(&mut self, now: Time, full: bool) -> bool {
        let open = match self.state {
            GateState::Paused(until) => until <= now,
            GateState::Full => !full,
            GateState::Open | GateState::Closed => false,
        };
        if open {
            self.state = GateState::Open;
        }
        open
    }
}
