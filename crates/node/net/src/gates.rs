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
pub(crate) enum Accepted {
    /// All waiting connections were accepted.
    All,
    /// The connection limit is reached.
    Full,
}

/// All listeners of a node, with their gates.
#[derive(Debug)]
pub(crate) struct Gates {
    listeners: Listeners,
    peers: Gate,
    peer: Token,
    clients: Gate,
    client: Option<Token>,
    socket: Option<Token>,
    stream: Option<Token>,
    raw: Option<Token>,
    limits: Limits,
}

#[derive(Debug, Default)]
struct Gate {
    state: GateState,
    complained: bool,
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
    Shut,
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
            peer,
            client: client.transpose()?,
            socket: socket.transpose()?,
            stream: stream.transpose()?,
            raw: raw.transpose()?,
            listeners,
            peers: Gate::default(),
            clients: Gate::default(),
            limits,
        })
    }

    pub(crate) const fn peers(&self) -> &TcpListener {
        &self.listeners.peer
    }

    pub(crate) fn clients(&self) -> Option<Listener<'_>> {
        self.listeners.client.as_ref().map(Listener::Tcp)
    }

    pub(crate) fn socket(&self) -> Option<Listener<'_>> {
        let socket = self.listeners.socket.as_ref();
        socket.map(|file| Listener::Unix(&file.listener))
    }

    pub(crate) fn streams(&self) -> Option<Listener<'_>> {
        self.listeners.stream.as_ref().map(Listener::Tcp)
    }

    pub(crate) fn raw_streams(&self) -> Option<Listener<'_>> {
        self.listeners.raw.as_ref().map(Listener::Tcp)
    }

    /// Handles the result of accepting peers. Returns whether this closed the gate.
    pub(crate) fn on_peers(
        &mut self,
        accepted: io::Result<Accepted>,
        now: Time,
        sources: &Sources,
    ) -> io::Result<bool> {
        let open = self.peers.handle_accepted("peers", accepted, now, &self.limits);
        self.watch(!open, sources)
    }

    /// Handles the result of accepting clients. Returns whether this closed the gate.
    pub(crate) fn on_clients(
        &mut self,
        accepted: io::Result<Accepted>,
        now: Time,
        sources: &Sources,
    ) -> io::Result<bool> {
        let open = self.clients.handle_accepted("clients", accepted, now, &self.limits);
        self.watch(!open, sources)
    }

    /// Opens the gates that need no longer be closed. Returns whether there were any.
    pub(crate) fn reopen(
        &mut self,
        now: Time,
        clients_full: bool,
        sources: &Sources,
    ) -> io::Result<bool> {
        let peers = self.peers.reopen(now, false);
        let clients = self.clients.reopen(now, clients_full);
        self.watch(peers || clients, sources)
    }

    /// Returns whether new clients must wait until others disconnect.
    pub(crate) fn waits_for_room(&self) -> bool {
        self.clients.state == GateState::Full
    }

    /// Returns the next time at which [`Self::reopen`] has work.
    pub(crate) fn next_time(&self) -> Option<Time> {
        let times = [self.peers.next_time(), self.clients.next_time()];
        times.into_iter().flatten().min()
    }

    /// Stops accepting clients. Removes the client socket's file, which shows that the node is
    /// stopping.
    pub(crate) fn shut_clients(&mut self, sources: &mut Sources) -> io::Result<bool> {
        self.clients.state = GateState::Shut;
        if let Some(token) = self.socket.take() {
            sources.remove(token);
        }
        self.listeners.socket = None;
        self.watch(true, sources)
    }

    /// Updates the poller to the open gates if `changed`, and returns `changed`.
    fn watch(&self, changed: bool, sources: &Sources) -> io::Result<bool> {
        if !changed {
            return Ok(false);
        }
        let Listeners { peer, client, socket, stream, raw, .. } = &self.listeners;
        sources.change(peer, self.peer, self.peers.interest())?;
        let interest = self.clients.interest();
        if let (Some(client), Some(token)) = (client, self.client) {
            sources.change(client, token, interest)?;
        }
        if let (Some(stream), Some(token)) = (stream, self.stream) {
            sources.change(stream, token, interest)?;
        }
        if let (Some(raw), Some(token)) = (raw, self.raw) {
            sources.change(raw, token, interest)?;
        }
        if let (Some(file), Some(token)) = (socket, self.socket) {
            sources.change(&file.listener, token, interest)?;
        }
        Ok(true)
    }
}

impl Gate {
    fn interest(&self) -> Interest {
        if self.state == GateState::Open { Interest::READ } else { Interest::NOTHING }
    }

    const fn next_time(&self) -> Option<Time> {
        match self.state {
            GateState::Paused(until) => Some(until),
            GateState::Open | GateState::Full | GateState::Shut => None,
        }
    }

    /// Handles the result of accepting. Returns whether the gate remains open.
    fn handle_accepted(
        &mut self,
        whom: &str,
        accepted: io::Result<Accepted>,
        now: Time,
        limits: &Limits,
    ) -> bool {
        match accepted {
            Ok(Accepted::All) => {
                self.complained = false;
                true
            }
            Ok(Accepted::Full) => {
                self.close_gate(GateState::Full);
                if !std::mem::replace(&mut self.complained, true) {
                    let max = limits.clients_max;
                    tracing::warn!(
                        "connection limit reached: {max} {whom} are connected; further ones wait"
                    );
                }
                false
            }
            Err(error) => {
                self.close_gate(GateState::Paused(now.plus_ms(limits.accept_pause_ms)));
                if !std::mem::replace(&mut self.complained, true) {
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
        if self.state != GateState::Shut {
            self.state = state;
        }
    }

    /// Opens the gate if it need no longer be closed. Returns whether it did.
    fn reopen(&mut self, now: Time, full: bool) -> bool {
        let open = match self.state {
            GateState::Paused(until) => until <= now,
            GateState::Full => !full,
            GateState::Open | GateState::Shut => false,
        };
        if open {
            self.state = GateState::Open;
        }
        open
    }
}
