//! One thread that owns all sockets, the clock and the order of things within a turn.

use std::{
    io,
    sync::Arc,
    time::{Instant, SystemTime, UNIX_EPOCH},
};

use quorate_core::{
    node_id::{Member, NodeId},
    time::Time,
};
use quorate_replica::status::Addresses;

use crate::{
    clients::{Accepted, Clients, Listener},
    desk::Desk,
    handle::{Handle, Metrics, Shared},
    host::{Host, Now},
    limits::Limits,
    listen::{Listeners, SocketFile},
    poller::{Events, Interest, Poller, Ready},
    stats::Stats,
    tcp::peers::Peers,
};

/// Who this node is, as it tells others.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Identity {
    /// The group.
    pub cluster: u128,
    /// The node, in its present life.
    pub member: Member,
    /// Its process start.
    pub boot: u32,
    /// Where others find it.
    pub addresses: Addresses,
}

/// Where a node of the group listens for peers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PeerAddress {
    /// The node.
    pub node: NodeId,
    /// `HOST:PORT`.
    pub address: String,
}

/// What a reactor is started with.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Settings {
    /// Who this node is.
    pub identity: Identity,
    /// All nodes of the group; this one may be among them.
    pub peers: Vec<PeerAddress>,
    /// Capacities and waits.
    pub limits: Limits,
    /// Where the jitter of retries comes from; different on every node and start.
    pub seed: u64,
}

// Tokens: clients count from 1 (theirs are shown to people), the rest lies far above.
const FIRST_CLIENT: u64 = 1;
const FIRST_LINK: u64 = 1 << 62;
const WAKE: u64 = 1 << 63;
const PEER_LISTENER: u64 = WAKE + 1;
const CLIENT_LISTENER: u64 = WAKE + 2;
const CLIENT_SOCKET: u64 = WAKE + 3;
const HOST_WAKE: u64 = WAKE + 4;

/// The loop around a [`Host`].
#[derive(Debug)]
pub struct Reactor<H> {
    host: H,
    listeners: Listeners,
    poller: Arc<Poller>,
    peers: Peers,
    clients: Clients,
    shared: Arc<Shared>,
    limits: Limits,
    stats: Stats,
    started: Instant,
    peer_gate: Gate,
    client_gate: Gate,
    desk: Desk,
    /// When the host wants to be polled at the latest.
    host_wake: Option<Time>,
    /// Set once a stop was asked for: when patience ends.
    stop_by: Option<Time>,
    _end: EndGuard,
}

/// Tells waiting threads that no answer will come, however the reactor ends.
#[derive(Debug)]
struct EndGuard(Arc<Shared>);

impl Drop for EndGuard {
    fn drop(&mut self) {
        self.0.end();
    }
}

/// Whether new connections are taken.
#[derive(Debug, Default)]
struct Gate {
    state: GateState,
    complained: bool,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum GateState {
    #[default]
    Open,
    /// Out of descriptors or memory: until then.
    Paused(Time),
    /// As many connections as may be.
    Full,
    /// For good.
    Shut,
}

impl<H: Host> Reactor<H> {
    /// Takes over the listeners and the host. Nothing happens before [`Self::run`].
    pub fn new(settings: Settings, listeners: Listeners, host: H) -> io::Result<(Self, Handle)> {
        let Settings {
            identity,
            peers,
            limits,
            seed,
        } = settings;
        let commands_max = limits.commands_max;
        let poller = Arc::new(Poller::new()?);
        let shared = Shared::new(commands_max)?;
        poller.add(shared.wake(), WAKE, Interest::READ)?;
        poller.add(&listeners.peer, PEER_LISTENER, Interest::READ)?;
        if let Some(client) = &listeners.client {
            poller.add(client, CLIENT_LISTENER, Interest::READ)?;
        }
        if let Some(SocketFile { listener, .. }) = &listeners.socket {
            poller.add(listener, CLIENT_SOCKET, Interest::READ)?;
        }
        for fd in host.wake_fds() {
            poller.add(fd, HOST_WAKE, Interest::READ)?;
        }
        let peers = Peers::new(
            identity,
            &peers,
            limits.clone(),
            poller.clone(),
            shared.clone(),
            seed,
            FIRST_LINK,
        );
        let reactor = Self {
            host,
            listeners,
            peers,
            clients: Clients::new(limits.clone(), poller.clone(), FIRST_CLIENT),
            poller,
            limits,
            stats: Stats::default(),
            started: Instant::now(),
            peer_gate: Gate::default(),
            client_gate: Gate::default(),
            desk: Desk::new(commands_max),
            host_wake: Some(Time(0)),
            stop_by: None,
            _end: EndGuard(shared.clone()),
            shared: shared.clone(),
        };
        Ok((reactor, Handle::new(shared)))
    }

    /// Turns until a stop was asked for and everything accepted is finished; gives the host back.
    pub fn run(mut self) -> io::Result<H> {
        let mut events = Events::new();
        while self.turn(&mut events)? {}
        Ok(self.host)
    }

    /// One turn; `false` after the last. The order is the design's (§5): arrivals, the protocol,
    /// sends, then the write, then what clients get.
    fn turn(&mut self, events: &mut Events) -> io::Result<bool> {
        self.poller.wait(self.patience_us(), events)?;
        let now = self.clock();
        self.stats.turns += 1;
        self.stats.calls_wait += 1;
        for event in &events.ready {
            self.on_ready(*event, now)?;
        }
        self.peers.on_time(now, &mut self.host);
        self.clients.on_time(now, &mut self.host);
        self.reopen_gates(now)?;
        self.clients.resume(now, &mut self.host);
        self.host.poll(&mut now.turn(&mut self.peers));
        self.peers.flush(now, &mut self.host);
        self.host.submit(now);
        self.stats.submits += 1;
        self.clients.flush(now, &mut self.host);
        self.clients.shed(now, &mut self.host);
        self.host_wake = self.host.end_turn(self.time());
        self.answer();
        Ok(!self.is_finished(now))
    }

    fn time(&self) -> Time {
        time_since(self.started)
    }

    fn clock(&self) -> Now {
        let wall = SystemTime::now()
            .duration_since(UNIX_EPOCH)
            .unwrap_or_default();
        Now {
            time: self.time(),
            wall_ms: u64::try_from(wall.as_millis()).unwrap_or(u64::MAX),
        }
    }

    /// How long nothing may happen; `None` for ever.
    fn patience_us(&self) -> Option<u64> {
        // The end of a turn may have made work for the next.
        let place_free = self.client_gate.state == GateState::Full && !self.clients.is_full();
        if place_free || self.peers.has_unsent() || self.clients.can_resume(&self.host) {
            return Some(0);
        }
        let times = [
            self.host_wake,
            self.peers.next_time(),
            self.clients.next_time(),
            self.peer_gate.next_time(),
            self.client_gate.next_time(),
            self.stop_by,
        ];
        let next = times.into_iter().flatten().min()?;
        Some(next.since_us(self.time()))
    }

    fn on_ready(&mut self, ready: Ready, now: Now) -> io::Result<()> {
        match ready.token {
            WAKE => self.on_mail(now),
            PEER_LISTENER => return self.accept_peers(now),
            CLIENT_LISTENER | CLIENT_SOCKET => return self.accept_clients(ready.token, now),
            // `Host::poll` is called in each turn.
            HOST_WAKE => {}
            link if link >= FIRST_LINK => self.peers.on_ready(ready, now, &mut self.host),
            _ => self.clients.on_ready(ready, now, &mut self.host),
        }
        Ok(())
    }

    fn on_mail(&mut self, now: Now) {
        let mail = self.shared.take();
        for resolved in mail.news {
            self.peers.on_resolved(resolved, now);
        }
        for command in mail.questions {
            self.desk.take(command, now, &mut self.host);
        }
        if mail.stop && self.stop_by.is_none() {
            self.begin_stop(now);
        }
    }

    fn answer(&mut self) {
        let Self {
            desk,
            host,
            peers,
            stats,
            clients,
            ..
        } = self;
        let time = time_since(self.started);
        desk.answer(
            host,
            |mut status| {
                status.notices.extend(peers.notices(time));
                status
            },
            |mut text| {
                let stats = stats.plus(&peers.stats).plus(&clients.stats);
                stats.render(&mut text);
                Metrics { stats, text }
            },
        );
    }

    // Accepting.

    fn accept_peers(&mut self, now: Now) -> io::Result<()> {
        match self.peers.accept(&self.listeners.peer, now, &mut self.host) {
            Ok(()) => {
                self.peer_gate.complained = false;
                Ok(())
            }
            Err(error) => {
                self.stats.accept_pauses += 1;
                self.peer_gate.pause("peers", &error, now, &self.limits);
                self.watch_listeners()
            }
        }
    }

    fn accept_clients(&mut self, which: u64, now: Now) -> io::Result<()> {
        let Listeners { client, socket, .. } = &self.listeners;
        let listener = match (which, socket, client) {
            (CLIENT_SOCKET, Some(socket), _) => Listener::Unix(&socket.listener),
            (CLIENT_LISTENER, _, Some(client)) => Listener::Tcp(client),
            _ => return Ok(()),
        };
        match self.clients.accept(listener, now, &mut self.host) {
            Ok(Accepted::All) => {
                self.client_gate.complained = false;
                return Ok(());
            }
            Ok(Accepted::Full) => {
                self.stats.accept_pauses += 1;
                self.client_gate.fill(self.limits.clients_max);
            }
            Err(error) => {
                self.stats.accept_pauses += 1;
                self.client_gate.pause("clients", &error, now, &self.limits);
            }
        }
        self.watch_listeners()
    }

    fn reopen_gates(&mut self, now: Now) -> io::Result<()> {
        let full = self.clients.is_full();
        let peer = self.peer_gate.reopen(now, false);
        let client = self.client_gate.reopen(now, full);
        if peer || client {
            self.watch_listeners()
        } else {
            Ok(())
        }
    }

    fn watch_listeners(&self) -> io::Result<()> {
        let Listeners {
            peer,
            client,
            socket,
            ..
        } = &self.listeners;
        self.poller
            .change(peer, PEER_LISTENER, self.peer_gate.interest())?;
        if let Some(client) = client {
            self.poller
                .change(client, CLIENT_LISTENER, self.client_gate.interest())?;
        }
        if let Some(socket) = socket {
            self.poller
                .change(&socket.listener, CLIENT_SOCKET, self.client_gate.interest())?;
        }
        Ok(())
    }

    // Stopping.

    fn begin_stop(&mut self, now: Now) {
        tracing::info!("stopping: finishing what was accepted");
        self.stop_by = Some(now.time.plus_ms(self.limits.stop_ms));
        self.client_gate.state = GateState::Shut;
        // The file of the client socket goes at once: its absence says that the node stops.
        self.listeners.socket = None;
        if let Err(error) = self.watch_listeners() {
            tracing::warn!(%error, "cannot close the listeners before the end");
        }
        self.host.stop(now);
        self.clients.stop_reading(now, &mut self.host);
    }

    fn is_finished(&mut self, now: Now) -> bool {
        let Some(by) = self.stop_by else { return false };
        if self.host.stopped() && !self.peers.has_unsent() && self.clients.all_sent(&mut self.host)
        {
            return true;
        }
        if by <= now.time {
            tracing::warn!("stopped although not everything accepted was finished in time");
            return true;
        }
        false
    }
}

fn time_since(start: Instant) -> Time {
    Time(u64::try_from(start.elapsed().as_micros()).unwrap_or(u64::MAX))
}

impl Gate {
    fn interest(&self) -> Interest {
        if self.state == GateState::Open {
            Interest::READ
        } else {
            Interest::NOTHING
        }
    }

    const fn next_time(&self) -> Option<Time> {
        match self.state {
            GateState::Paused(until) => Some(until),
            GateState::Open | GateState::Full | GateState::Shut => None,
        }
    }

    fn pause(&mut self, whom: &str, error: &io::Error, now: Now, limits: &Limits) {
        if self.state != GateState::Shut {
            self.state = GateState::Paused(now.time.plus_ms(limits.accept_pause_ms));
        }
        if !std::mem::replace(&mut self.complained, true) {
            tracing::warn!(
                "cannot accept {whom}, trying again every {} ms: {error}",
                limits.accept_pause_ms
            );
        }
    }

    fn fill(&mut self, max: usize) {
        if self.state != GateState::Shut {
            self.state = GateState::Full;
        }
        if !std::mem::replace(&mut self.complained, true) {
            tracing::warn!("{max} clients are connected, as many as may be; further ones wait");
        }
    }

    /// Whether it opened.
    fn reopen(&mut self, now: Now, full: bool) -> bool {
        let open = match self.state {
            GateState::Paused(until) => until <= now.time,
            GateState::Full => !full,
            GateState::Open | GateState::Shut => false,
        };
        if open {
            self.state = GateState::Open;
        }
        open
    }
}
