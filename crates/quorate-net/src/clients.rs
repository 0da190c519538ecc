//! Client connections: sockets for the front's state machines, with back-pressure both ways.

use std::{
    net::TcpListener,
    os::fd::{AsFd, BorrowedFd, OwnedFd},
    os::unix::net::UnixListener,
    sync::Arc,
};

use quorate_core::time::Time;
use quorate_replica::{
    front::{ConnectionId, Front},
    pressure::{Pressure, heaviest},
    seldom::Seldom,
};
use rustc_hash::FxHashMap;
use rustix::{
    io::Errno,
    net::{RecvFlags, SendFlags, Shutdown},
};

use crate::{
    host::{ClientSide, Now},
    limits::Limits,
    poller::{Interest, Poller, Ready},
    stats::Stats,
    tcp::socket,
};

/// One read of a client that has nothing left over.
const READ_BYTES: usize = 64 << 10;
/// One round of reading of a client in the middle of a large command.
const READ_LARGE_BYTES: usize = 1 << 20;

/// All clients.
#[derive(Debug)]
pub(crate) struct Clients {
    limits: Limits,
    poller: Arc<Poller>,
    connections: FxHashMap<u64, Client>,
    next_token: u64,
    /// Where every read lands first.
    scratch: Vec<u8>,
    /// Unused bytes of all clients.
    backlog_bytes: usize,
    /// Complaints about clients that hold too much.
    hoarders: Seldom,
    /// Clients that are not read: their front takes nothing at the moment, or all are held.
    paused: Vec<u64>,
    /// The host was full, and is not empty enough again.
    held: bool,
    /// Clients that have closed their half, or are being sent off.
    leaving: Vec<u64>,
    /// Clients with output to send.
    dirty: Vec<u64>,
    pub(crate) stats: Stats,
}

#[derive(Debug)]
struct Client {
    socket: OwnedFd,
    /// Bytes that the front has not used.
    backlog: Vec<u8>,
    stage: Stage,
    interest: Interest,
    paused: bool,
    /// The socket is full.
    blocked: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    Open,
    /// The client has sent its last byte; what it asked for is still answered.
    HalfClosed,
    /// Everything is sent; what still comes is discarded until the client closes or this time.
    Farewell(Time),
}

/// A listener for clients.
#[derive(Debug)]
pub(crate) enum Listener<'a> {
    Tcp(&'a TcpListener),
    Unix(&'a UnixListener),
}

impl AsFd for Listener<'_> {
    fn as_fd(&self) -> BorrowedFd<'_> {
        match self {
            Self::Tcp(listener) => listener.as_fd(),
            Self::Unix(listener) => listener.as_fd(),
        }
    }
}

/// What became of accepting.
#[derive(Debug)]
pub(crate) enum Accepted {
    /// Nobody waits any more.
    All,
    /// As many clients are connected as may be.
    Full,
}

impl Clients {
    pub(crate) fn new(limits: Limits, poller: Arc<Poller>, first_token: u64) -> Self {
        Self {
            limits,
            poller,
            connections: FxHashMap::default(),
            next_token: first_token,
            scratch: vec![0; READ_BYTES],
            backlog_bytes: 0,
            hoarders: Seldom::default(),
            paused: Vec::new(),
            held: false,
            leaving: Vec::new(),
            dirty: Vec::new(),
            stats: Stats::default(),
        }
    }

    pub(crate) fn is_full(&self) -> bool {
        self.connections.len() >= self.limits.clients_max
    }

    /// Takes whoever waits at the listener, as long as there is room.
    pub(crate) fn accept(
        &mut self,
        listener: Listener<'_>,
        now: Now,
        host: &mut impl ClientSide,
    ) -> std::io::Result<Accepted> {
        loop {
            if self.is_full() {
                return Ok(Accepted::Full);
            }
            let Some(socket) = socket::accept(&listener)? else {
                return Ok(Accepted::All);
            };
            if matches!(listener, Listener::Tcp(_)) {
                socket::tune_client(&socket);
            }
            let ends = socket::ends(&socket);
            let token = self.next_token;
            self.poller.add(&socket, token, Interest::READ)?;
            self.next_token += 1;
            let client = Client {
                socket,
                backlog: Vec::new(),
                stage: Stage::Open,
                interest: Interest::READ,
                paused: false,
                blocked: false,
            };
            self.connections.insert(token, client);
            self.stats.clients_accepted += 1;
            let (front, mut requests) = host.front_and_requests(now);
            front.opened(ConnectionId(token), ends, &mut requests);
        }
    }

    /// Something happened to one of the sockets.
    pub(crate) fn on_ready(&mut self, ready: Ready, now: Now, host: &mut impl ClientSide) {
        let Some(client) = self.connections.get_mut(&ready.token) else {
            return;
        };
        // What came before the end is still executed, as if the client had waited; then nobody is
        // left to read an answer.
        if ready.broken && !(ready.read && client.stage == Stage::Open) {
            return self.close(ready.token, now, host);
        }
        if ready.write {
            client.blocked = false;
            self.dirty.push(ready.token);
        }
        if ready.read {
            self.read(ready.token, now, host);
        }
    }

    /// Feeds clients whose front takes input again.
    pub(crate) fn resume(&mut self, now: Now, host: &mut impl ClientSide) {
        for token in std::mem::take(&mut self.paused) {
            self.held = self.is_held(host);
            let Some(client) = self.connections.get_mut(&token) else {
                continue;
            };
            if self.held || !host.front().ready(ConnectionId(token)) {
                self.paused.push(token);
                continue;
            }
            client.paused = false;
            if !client.backlog.is_empty() {
                self.feed(token, 0, now, host);
            }
            self.watch(token, now, host);
        }
    }

    /// Whether [`Self::resume`] has something to do at once.
    pub(crate) fn can_resume(&self, host: &impl ClientSide) -> bool {
        let ready = |token: &u64| host.front().ready(ConnectionId(*token));
        !self.is_held(host) && self.paused.iter().any(ready)
    }

    /// Whether nobody is to be read. Ends well below where it began, for each change of mind costs a
    /// call per client.
    fn is_held(&self, host: &impl ClientSide) -> bool {
        if self.held_bytes(host) > self.limits.clients_bytes_max {
            return true;
        }
        match host.pressure() {
            Pressure::Low => false,
            Pressure::Some => self.held,
            Pressure::High => true,
        }
    }

    /// Sends what the front has for its clients.
    pub(crate) fn flush(&mut self, now: Now, host: &mut impl ClientSide) {
        while let Some(ConnectionId(token)) = host.front_mut().next_dirty() {
            self.dirty.push(token);
        }
        // Requests of clients that have closed their half may have ended without output.
        self.dirty.extend_from_slice(&self.leaving);
        for token in std::mem::take(&mut self.dirty) {
            self.write(token, now, host);
        }
    }

    /// Memory that all clients hold.
    fn held_bytes(&self, host: &impl ClientSide) -> usize {
        self.backlog_bytes + host.front().held_bytes()
    }

    /// Who holds most of the memory for clients pays, so that the others go on.
    pub(crate) fn shed(&mut self, now: Now, host: &mut impl ClientSide) {
        let of = self.limits.clients_bytes_max;
        loop {
            let total = self.held_bytes(host);
            let held = |(token, client): (&u64, &Client)| {
                let id = ConnectionId(*token);
                (id, client.backlog.len() + host.front().held_bytes_of(id))
            };
            let clients = self.connections.iter().map(held);
            let Some((ConnectionId(token), bytes)) = heaviest(total, of, clients) else {
                return;
            };
            if let Some(untold) = self.hoarders.say(now.time) {
                tracing::warn!(
                    client = token,
                    bytes,
                    total,
                    of,
                    untold,
                    "closed the client that held most of the memory for clients (--client-memory)"
                );
            }
            self.stats.clients_shed += 1;
            self.close(token, now, host);
        }
    }

    /// Ends farewells that have lasted long enough.
    pub(crate) fn on_time(&mut self, now: Now, host: &mut impl ClientSide) {
        let connections = &self.connections;
        self.leaving.retain(|token| connections.contains_key(token));
        let late = self.leaving.iter().filter(|token| {
            matches!(self.connections[token].stage, Stage::Farewell(until) if until <= now.time)
        });
        for token in late.copied().collect::<Vec<_>>() {
            self.close(token, now, host);
        }
    }

    /// When [`Self::on_time`] has something to do.
    pub(crate) fn next_time(&self) -> Option<Time> {
        let leaving = self
            .leaving
            .iter()
            .filter_map(|token| self.connections.get(token));
        let times = leaving.filter_map(|client| match client.stage {
            Stage::Farewell(until) => Some(until),
            Stage::Open | Stage::HalfClosed => None,
        });
        times.min()
    }

    /// No client is read from any more: what was accepted is being finished.
    pub(crate) fn stop_reading(&mut self, now: Now, host: &mut impl ClientSide) {
        self.limits.clients_max = 0;
        let open = self
            .connections
            .iter_mut()
            .filter(|(_, client)| client.stage == Stage::Open);
        let mut stopped = Vec::new();
        for (token, client) in open {
            client.stage = Stage::HalfClosed;
            stopped.push(*token);
        }
        for token in stopped {
            self.leaving.push(token);
            self.watch(token, now, host);
        }
    }

    /// Whether all that the clients have to get is sent.
    pub(crate) fn all_sent(&self, host: &mut impl ClientSide) -> bool {
        let mut tokens = self.connections.keys().copied();
        tokens.all(|token| host.front_mut().output(ConnectionId(token)).is_empty())
    }

    fn read(&mut self, token: u64, now: Now, host: &mut impl ClientSide) {
        self.held = self.is_held(host);
        let Some(client) = self.connections.get_mut(&token) else {
            return;
        };
        if client.paused || client.stage == Stage::HalfClosed {
            return;
        }
        if self.held && client.stage == Stage::Open {
            self.stats.client_holds += 1;
            return self.pause(token, now, host);
        }
        // In the middle of a large command the front is called less often, for it may look at the
        // command's beginning each time.
        let wanted = client.backlog.len().clamp(READ_BYTES, READ_LARGE_BYTES);
        let mut total = 0;
        while total < wanted {
            self.stats.calls_client_read += 1;
            match rustix::net::recv(&client.socket, &mut self.scratch[..], RecvFlags::empty()) {
                Ok((_, 0)) => {
                    self.feed(token, 0, now, host);
                    return self.half_close(token, now, host);
                }
                Ok((_, count)) => {
                    self.stats.client_bytes_in += count as u64;
                    total += count;
                    if matches!(client.stage, Stage::Farewell(_)) {
                        continue;
                    }
                    if client.backlog.is_empty() && wanted == READ_BYTES {
                        // The usual case: the front reads from where the kernel wrote.
                        return self.feed(token, count, now, host);
                    }
                    keep(&mut client.backlog, &self.scratch[..count]);
                    self.backlog_bytes += count;
                }
                Err(Errno::AGAIN | Errno::INTR) => break,
                Err(_) => return self.close(token, now, host),
            }
        }
        self.feed(token, 0, now, host);
    }

    /// Gives the front what is left over, or the first `fresh` bytes of the scratch buffer.
    fn feed(&mut self, token: u64, fresh: usize, now: Now, host: &mut impl ClientSide) {
        let Some(client) = self.connections.get_mut(&token) else {
            return;
        };
        let id = ConnectionId(token);
        if matches!(client.stage, Stage::Farewell(_)) {
            return;
        }
        if fresh > 0 {
            let (front, mut requests) = host.front_and_requests(now);
            let used = front.received(id, &self.scratch[..fresh], &mut requests);
            client
                .backlog
                .extend_from_slice(&self.scratch[used.min(fresh)..fresh]);
            self.backlog_bytes += client.backlog.len();
        } else if !client.backlog.is_empty() {
            let (front, mut requests) = host.front_and_requests(now);
            let used = front.received(id, &client.backlog, &mut requests);
            let used = used.min(client.backlog.len());
            client.backlog.drain(..used);
            if client.backlog.is_empty() {
                client.backlog = Vec::new();
            }
            self.backlog_bytes -= used;
        }
        let backlog = client.backlog.len();
        if backlog > self.limits.client_backlog_bytes_max {
            tracing::warn!(
                backlog,
                "closed a client: too many bytes that make no command"
            );
            return self.close(token, now, host);
        }
        if !host.front().ready(id) && !client.paused {
            self.pause(token, now, host);
        }
    }

    /// Reads nothing of this client until [`Self::resume`]; it is not paused yet.
    fn pause(&mut self, token: u64, now: Now, host: &mut impl ClientSide) {
        if let Some(client) = self.connections.get_mut(&token) {
            client.paused = true;
            self.paused.push(token);
            self.watch(token, now, host);
        }
    }

    /// The client has sent its last byte. It may still want its answers.
    fn half_close(&mut self, token: u64, now: Now, host: &mut impl ClientSide) {
        let Some(client) = self.connections.get_mut(&token) else {
            return;
        };
        match client.stage {
            Stage::Open => {
                client.stage = Stage::HalfClosed;
                self.leaving.push(token);
                self.watch(token, now, host);
            }
            Stage::HalfClosed => {}
            Stage::Farewell(_) => self.close(token, now, host),
        }
    }

    fn write(&mut self, token: u64, now: Now, host: &mut impl ClientSide) {
        let Some(client) = self.connections.get_mut(&token) else {
            return;
        };
        let id = ConnectionId(token);
        let output = host.front_mut().output(id);
        let mut sent = 0;
        while sent < output.len() && !client.blocked {
            self.stats.calls_client_write += 1;
            match rustix::net::send(&client.socket, &output[sent..], SendFlags::NOSIGNAL) {
                Ok(count) => sent += count,
                Err(Errno::INTR) => {}
                Err(Errno::AGAIN) => client.blocked = true,
                Err(_) => return self.close(token, now, host),
            }
        }
        output.drain(..sent);
        let empty = output.is_empty();
        if sent > 0 {
            host.front_mut().sent(id);
            self.stats.client_bytes_out += sent as u64;
        }
        if empty {
            client.blocked = false;
            self.after_output(token, now, host);
        }
        self.watch(token, now, host);
    }

    /// Everything is sent: is it time to part?
    fn after_output(&mut self, token: u64, now: Now, host: &mut impl ClientSide) {
        let Some(client) = self.connections.get_mut(&token) else {
            return;
        };
        let id = ConnectionId(token);
        match client.stage {
            Stage::HalfClosed if client.paused || host.front().is_busy(id) => {}
            Stage::HalfClosed => self.close(token, now, host),
            Stage::Open if host.front().closing(id) => {
                // Closing at once, with input unread, would destroy the last reply on its way.
                let _ = rustix::net::shutdown(&client.socket, Shutdown::Write);
                let until = now.time.plus_ms(self.limits.farewell_ms);
                client.stage = Stage::Farewell(until);
                client.paused = false;
                self.leaving.push(token);
            }
            Stage::Open | Stage::Farewell(_) => {}
        }
    }

    /// Watches the socket for what can be done now.
    fn watch(&mut self, token: u64, now: Now, host: &mut impl ClientSide) {
        let Some(client) = self.connections.get_mut(&token) else {
            return;
        };
        let read = !client.paused && client.stage != Stage::HalfClosed;
        let interest = Interest {
            read,
            write: client.blocked,
        };
        if interest == client.interest {
            return;
        }
        client.interest = interest;
        if let Err(error) = self.poller.change(&client.socket, token, interest) {
            tracing::warn!(%error, "cannot watch a client");
            self.close(token, now, host);
        }
    }

    fn close(&mut self, token: u64, now: Now, host: &mut impl ClientSide) {
        if let Some(client) = self.connections.remove(&token) {
            self.backlog_bytes -= client.backlog.len();
            self.stats.clients_closed += 1;
            let (front, mut requests) = host.front_and_requests(now);
            front.closed(ConnectionId(token), &mut requests);
        }
    }
}

/// Appends to what is left over. It grows by quarters once it is large, for it is counted by its length.
fn keep(backlog: &mut Vec<u8>, bytes: &[u8]) {
    let length = backlog.len();
    if length > READ_LARGE_BYTES && backlog.capacity() - length < bytes.len() {
        backlog.reserve_exact(bytes.len().max(length / 4));
    }
    backlog.extend_from_slice(bytes);
}
