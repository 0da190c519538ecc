//! Client connections: sockets of the front end's state machines, with back-pressure in both
//! directions.

mod away;
mod place;
mod proving;
mod unproved;

use quorate_core::time::Time;
use quorate_replica::{
    front::{ConnectionId, Endpoints, Front, InputDecision, ListenerKind},
    pressure::{Pressure, heaviest},
    seldom::Seldom,
};
use quorate_tls::NodeTrust;
use rustc_hash::FxHashMap;

use self::{
    place::{ReactorSocket, SocketOwner},
    unproved::UnauthenticatedClients,
};
use crate::{
    cx::Cx,
    gates::AcceptOutcome,
    host::ClientHost,
    limits::Limits,
    listen::Listener,
    sources::{Interest, Ready, Source, Token},
    stats::Stats,
    tcp::socket::{self, Socket, TransferOutcome},
    threads::{IoSpread, ReactorLoad, Threads},
};

/// Number of bytes read at once from a client without a backlog.
const READ_BYTES: usize = 64 << 10;
/// Number of bytes read per turn from a client that is sending a large command.
const READ_LARGE_BYTES: usize = 1 << 20;

#[derive(Debug)]
pub(crate) struct Clients {
    limits: Limits,
    connections: FxHashMap<ConnectionId, Client>,
    /// Next connection id. Starts at 1, because operators and clients see the ids.
    next_id: u64,
    /// Buffer shared by the reads of all clients.
    read_buffer: Vec<u8>,
    /// Total number of bytes in the backlogs of all clients.
    backlog_bytes: usize,
    /// Rate limit for the log line about clients that use too much memory.
    shed_log_limit: Seldom,
    /// Rate limit for the log line about reset connections.
    reset_log_limit: Seldom,
    /// Clients that are not being read because their front accepts no input or reading is suspended
    /// for all.
    paused_clients: Vec<ConnectionId>,
    /// Reading is suspended for all clients until the load on the host has fallen.
    is_reading_suspended: bool,
    /// Clients that have half-closed their connection or whose connection is being closed.
    closing_clients: Vec<ConnectionId>,
    /// Clients with output that has not been passed to their socket.
    unflushed_clients: Vec<ConnectionId>,
    /// Connections that have not authenticated yet and are unknown to the front.
    unauthenticated: UnauthenticatedClients,
    pub(crate) threads: Threads,
    reactor_load: ReactorLoad,
    /// Connections are currently handed over to the I/O threads.
    is_handing_over: bool,
    /// Connections to recall from the I/O threads, a few per turn.
    to_recall: Vec<ConnectionId>,
    /// Number of bytes of output that the I/O threads hold while the fronts still hold them, too.
    handed_bytes: usize,
    pub(crate) stats: Stats,
}

#[derive(Debug)]
struct Client {
    socket_owner: SocketOwner,
    /// Received bytes that the front has not consumed.
    backlog: Vec<u8>,
    stage: Stage,
    /// The client has shut down its sending side, but the front has not been notified yet.
    is_end_unreported: bool,
    is_paused: bool,
    /// An I/O thread may own the socket ([io-2]).
    may_be_handed_over: bool,
    /// Number of reads since connections are handed over to the I/O threads.
    read_count: u32,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    Open,
    /// The client has shut down its sending side; requests already received are still answered.
    HalfClosed,
    /// All output has been sent. Input is discarded until the client closes or this deadline
    /// passes.
    AwaitingClose(Time),
}

impl Clients {
    pub(crate) fn new(limits: Limits, trust: Option<NodeTrust>, threads: Threads) -> Self {
        Self {
            is_handing_over: threads.are_enabled() && limits.io_spread == IoSpread::Always,
            threads,
            reactor_load: ReactorLoad::default(),
            to_recall: Vec::new(),
            handed_bytes: 0,
            unauthenticated: UnauthenticatedClients::new(trust),
            limits,
            connections: FxHashMap::default(),
            next_id: 1,
            read_buffer: vec![0; READ_BYTES],
            backlog_bytes: 0,
            shed_log_limit: Seldom::default(),
            reset_log_limit: Seldom::default(),
            paused_clients: Vec::new(),
            is_reading_suspended: false,
            closing_clients: Vec::new(),
            unflushed_clients: Vec::new(),
            stats: Stats::default(),
        }
    }

    pub(crate) fn is_full(&self) -> bool {
        self.connections.len() >= self.limits.clients_max
    }

    /// Accepts the connections waiting at `listener`, up to the client limit.
    pub(crate) fn accept_connections(
        &mut self,
        listener: Listener<'_>,
        door: ListenerKind,
        cx: &mut Cx<'_, impl ClientHost>,
    ) -> std::io::Result<AcceptOutcome> {
        loop {
            if self.is_full() {
                return Ok(AcceptOutcome::LimitReached);
            }
            let Some(socket) = socket::accept(&listener)? else {
                return Ok(AcceptOutcome::AcceptedAll);
            };
            if matches!(listener, Listener::Tcp(_)) {
                socket.tune_for_client();
            }
            let ends = Endpoints { door, ..socket.endpoints() };
            let id = ConnectionId(self.next_id);
            self.next_id += 1;
            if matches!(listener, Listener::Tcp(_)) && self.unauthenticated.has_trust() {
                self.add_unauthenticated(id, socket, ends, cx)?;
                continue;
            }
            let token = cx.sources.add(&socket, Source::Client(id), Interest::READ)?;
            self.add_client(id, socket, token, ends, cx);
        }
    }

    /// Adds the client and notifies its front.
    fn add_client(
        &mut self,
        id: ConnectionId,
        socket: Socket,
        token: Token,
        ends: Endpoints,
        cx: &mut Cx<'_, impl ClientHost>,
    ) {
        let client = Client {
            socket_owner: SocketOwner::Reactor(ReactorSocket {
                socket,
                token,
                interest: Interest::READ,
                is_send_blocked: false,
            }),
            backlog: Vec::new(),
            stage: Stage::Open,
            is_end_unreported: false,
            is_paused: false,
            may_be_handed_over: ends.door == ListenerKind::Commands,
            read_count: 0,
        };
        self.connections.insert(id, client);
        self.stats.clients_accepted += 1;
        let (front, mut requests) = cx.host.front_and_requests(cx.now);
        front.handle_opened(id, ends, &mut requests);
    }

    /// Reads from or writes to a client whose socket is ready.
    pub(crate) fn on_ready(
        &mut self,
        id: ConnectionId,
        ready: Ready,
        cx: &mut Cx<'_, impl ClientHost>,
    ) {
        let Some(client) = self.connections.get_mut(&id) else {
            return;
        };
        // Requests received before the connection broke are still executed, as if the client had
        // waited. After that, no client is left to receive a reply.
        if ready.is_broken && !(ready.is_readable && client.stage == Stage::Open) {
            return self.close_client(id, cx);
        }
        if ready.is_writable
            && let SocketOwner::Reactor(here) = &mut client.socket_owner
        {
            here.is_send_blocked = false;
            self.unflushed_clients.push(id);
        }
        if ready.is_readable {
            self.read_all(id, cx);
            if self.is_handing_over {
                self.hand_over_socket(id, cx);
            }
        }
    }

    /// Reads all available data. The TLS session may hold data that the poller does not see.
    fn read_all(&mut self, id: ConnectionId, cx: &mut Cx<'_, impl ClientHost>) {
        self.read(id, cx);
        while self.connections.get(&id).is_some_and(Client::has_buffered_input) {
            self.read(id, cx);
        }
        if self.connections.get(&id).is_some_and(Client::has_unsent_output) {
            self.unflushed_clients.push(id);
        }
    }

    /// Feeds clients whose front accepts input again.
    pub(crate) fn feed_clients(&mut self, cx: &mut Cx<'_, impl ClientHost>) {
        for id in std::mem::take(&mut self.paused_clients) {
            self.is_reading_suspended = self.must_suspend_reading(cx.host);
            let Some(client) = self.connections.get_mut(&id) else {
                continue;
            };
            if self.is_reading_suspended || !cx.host.front().accepts_input(id) {
                self.paused_clients.push(id);
                continue;
            }
            client.is_paused = false;
            if !client.backlog.is_empty() {
                self.feed_front(id, 0, cx);
            }
            if self.connections.get(&id).is_some_and(Client::has_buffered_input) {
                self.read_all(id, cx);
            }
            self.report_end(id, cx);
            self.register_interest(id, cx);
        }
    }

    /// Returns whether [`Self::feed_clients`] has work now.
    pub(crate) fn has_resumable_clients(&self, host: &impl ClientHost) -> bool {
        let ready = |id: &ConnectionId| host.front().accepts_input(*id);
        !self.must_suspend_reading(host) && self.paused_clients.iter().any(ready)
    }

    /// Returns whether reading is suspended for all clients. Reading resumes only well below the
    /// load at which it was suspended, because each change costs a system call per client.
    fn must_suspend_reading(&self, host: &impl ClientHost) -> bool {
        if self.held_bytes(host) > self.limits.clients_bytes_max {
            return true;
        }
        match host.pressure() {
            Pressure::Low => false,
            Pressure::Medium => self.is_reading_suspended,
            Pressure::High => true,
        }
    }

    /// Sends the front's output to its clients.
    pub(crate) fn flush(&mut self, cx: &mut Cx<'_, impl ClientHost>) {
        while let Some(id) = cx.host.front_mut().next_dirty() {
            self.unflushed_clients.push(id);
        }
        // Requests of half-closed clients may have ended without output.
        self.unflushed_clients.extend_from_slice(&self.closing_clients);
        for id in std::mem::take(&mut self.unflushed_clients) {
            self.write(id, cx);
        }
        self.threads.flush();
    }

    fn held_bytes(&self, host: &impl ClientHost) -> usize {
        self.backlog_bytes + self.handed_bytes + host.front().held_bytes()
    }

    /// Closes the clients that use the most memory, so that the remaining clients can continue.
    pub(crate) fn close_largest(&mut self, cx: &mut Cx<'_, impl ClientHost>) {
        let of = self.limits.clients_bytes_max;
        loop {
            let total = self.held_bytes(cx.host);
            let held = |(id, client): (&ConnectionId, &Client)| {
                let held = client.backlog.len() + client.handed_bytes();
                (*id, held + cx.host.front().held_bytes_of(*id))
            };
            let clients = self.connections.iter().map(held);
            let Some((id, bytes)) = heaviest(total, of, clients) else {
                return;
            };
            if let Some(untold) = self.shed_log_limit.allow_line(cx.now.time) {
                tracing::warn!(
                    client = id.0,
                    bytes,
                    total,
                    of,
                    untold,
                    "closed the client that held most of the memory for clients (--client-memory)"
                );
            }
            self.stats.clients_shed += 1;
            self.close_client(id, cx);
        }
    }

    /// Closes connections whose farewell has expired, and those that did not authenticate in time.
    pub(crate) fn run_timers(&mut self, cx: &mut Cx<'_, impl ClientHost>) {
        self.close_overdue(cx);
        let connections = &self.connections;
        self.closing_clients.retain(|id| connections.contains_key(id));
        let late = self.closing_clients.iter().filter(|id| {
            matches!(self.connections[id].stage, Stage::AwaitingClose(until) if until <= cx.now.time)
        });
        for id in late.copied().collect::<Vec<_>>() {
            self.close_client(id, cx);
        }
    }

    /// Returns the next time at which [`Self::run_timers`] has work.
    pub(crate) fn next_timer_at(&self) -> Option<Time> {
        let leaving = self.closing_clients.iter().filter_map(|id| self.connections.get(id));
        let times = leaving.filter_map(|client| match client.stage {
            Stage::AwaitingClose(until) => Some(until),
            Stage::Open | Stage::HalfClosed => None,
        });
        times.chain(self.unauthenticated.oldest_deadline()).min()
    }

    /// Stops reading from all clients. Requests already accepted are completed.
    pub(crate) fn stop_reading(&mut self, cx: &mut Cx<'_, impl ClientHost>) {
        self.limits.clients_max = 0;
        self.close_all_unauthenticated(cx);
        let open = self.connections.iter_mut().filter(|(_, client)| client.stage == Stage::Open);
        let mut stopped = Vec::new();
        for (id, client) in open {
            client.stage = Stage::HalfClosed;
            stopped.push(*id);
        }
        for id in stopped {
            self.closing_clients.push(id);
            self.recall_socket(id);
            self.register_interest(id, cx);
        }
    }

    pub(crate) fn is_all_output_sent(&self, host: &mut impl ClientHost) -> bool {
        let mut ids = self.connections.keys().copied();
        ids.all(|id| host.front_mut().output(id).is_empty())
            && !self
                .connections
                .values()
                .any(|client| client.is_on_thread() || client.has_unsent_output())
    }

    fn read(&mut self, id: ConnectionId, cx: &mut Cx<'_, impl ClientHost>) {
        self.is_reading_suspended = self.must_suspend_reading(cx.host);
        let Some(client) = self.connections.get_mut(&id) else {
            return;
        };
        if client.is_paused || client.stage == Stage::HalfClosed {
            return;
        }
        if self.is_reading_suspended && client.stage == Stage::Open {
            self.stats.client_holds += 1;
            return self.pause_reading(id, cx);
        }
        let mut limit = usize::MAX;
        if client.backlog.is_empty() && client.stage == Stage::Open {
            match self.read_into_front(id, cx) {
                Some(most) => limit = most,
                None => return,
            }
        }
        let Some(client) = self.connections.get_mut(&id) else {
            return;
        };
        // During a large command the front is called less often, because it may parse from the
        // start each time.
        let wanted = client.backlog.len().clamp(READ_BYTES, READ_LARGE_BYTES);
        let SocketOwner::Reactor(here) = &mut client.socket_owner else {
            return;
        };
        let mut total = 0;
        while total < wanted {
            self.stats.calls_client_read += 1;
            let into = self.read_buffer.len().min(limit);
            match here.socket.read(&mut self.read_buffer[..into]) {
                TransferOutcome::Ended(None) => {
                    self.feed_front(id, 0, cx);
                    return self.half_close(id, cx);
                }
                TransferOutcome::Transferred(count) => {
                    self.stats.client_bytes_in += count as u64;
                    total += count;
                    if matches!(client.stage, Stage::AwaitingClose(_)) {
                        continue;
                    }
                    if client.backlog.is_empty() && wanted == READ_BYTES {
                        // In the usual case, the front parses the read buffer in place.
                        return self.feed_front(id, count, cx);
                    }
                    append_backlog(&mut client.backlog, &self.read_buffer[..count]);
                    self.backlog_bytes += count;
                }
                TransferOutcome::Blocked => break,
                TransferOutcome::Ended(Some(_)) => return self.close_client(id, cx),
            }
        }
        self.feed_front(id, 0, cx);
    }

    /// Lets the front read directly into its own buffer; returns `None` if it did, otherwise the
    /// maximum number of bytes that it accepts.
    fn read_into_front(
        &mut self,
        id: ConnectionId,
        cx: &mut Cx<'_, impl ClientHost>,
    ) -> Option<usize> {
        let client = self.connections.get_mut(&id)?;
        let SocketOwner::Reactor(here) = &mut client.socket_owner else {
            return None;
        };
        let mut moved = TransferOutcome::Transferred(0);
        let mut read = |into: &mut [u8]| {
            moved = here.socket.read(into);
            match moved {
                TransferOutcome::Transferred(count) => count,
                TransferOutcome::Blocked | TransferOutcome::Ended(_) => 0,
            }
        };
        let intake = {
            let (front, mut requests) = cx.host.front_and_requests(cx.now);
            front.read_input(id, &mut requests, &mut read)
        };
        if let InputDecision::AtMost(bytes) = intake {
            return Some(bytes);
        }
        self.stats.calls_client_read += 1;
        match moved {
            TransferOutcome::Transferred(count) => {
                self.stats.client_bytes_in += count as u64;
                if !cx.host.front().accepts_input(id) {
                    self.pause_reading(id, cx);
                }
            }
            TransferOutcome::Blocked => {}
            TransferOutcome::Ended(None) => self.half_close(id, cx),
            TransferOutcome::Ended(Some(_)) => self.close_client(id, cx),
        }
        None
    }

    /// Passes the backlog to the front or, without a backlog, the first `fresh` bytes of
    /// `read_buffer`.
    fn feed_front(&mut self, id: ConnectionId, fresh: usize, cx: &mut Cx<'_, impl ClientHost>) {
        let Some(client) = self.connections.get_mut(&id) else {
            return;
        };
        if matches!(client.stage, Stage::AwaitingClose(_)) {
            return;
        }
        if fresh > 0 {
            let (front, mut requests) = cx.host.front_and_requests(cx.now);
            let used = front.receive_bytes(id, &self.read_buffer[..fresh], &mut requests);
            client.backlog.extend_from_slice(&self.read_buffer[used.min(fresh)..fresh]);
            self.backlog_bytes += client.backlog.len();
        } else if !client.backlog.is_empty() {
            let (front, mut requests) = cx.host.front_and_requests(cx.now);
            let used = front.receive_bytes(id, &client.backlog, &mut requests);
            let used = used.min(client.backlog.len());
            client.backlog.drain(..used);
            if client.backlog.is_empty() {
                client.backlog = Vec::new();
            }
            self.backlog_bytes -= used;
        }
        let backlog = client.backlog.len();
        if backlog > self.limits.client_backlog_bytes_max {
            tracing::warn!(backlog, "closed a client: its command is too large or never ends");
            return self.close_client(id, cx);
        }
        if !cx.host.front().accepts_input(id) && !client.is_paused {
            self.pause_reading(id, cx);
        }
    }

    /// Stops reading from a client until [`Self::feed_clients`]. The client must not be paused
    /// already.
    fn pause_reading(&mut self, id: ConnectionId, cx: &mut Cx<'_, impl ClientHost>) {
        if let Some(client) = self.connections.get_mut(&id) {
            client.is_paused = true;
            self.paused_clients.push(id);
            self.register_interest(id, cx);
        }
    }

    /// Handles the end of a client's input. The client may still be waiting for replies.
    fn half_close(&mut self, id: ConnectionId, cx: &mut Cx<'_, impl ClientHost>) {
        let Some(client) = self.connections.get_mut(&id) else {
            return;
        };
        match client.stage {
            Stage::Open => {
                client.stage = Stage::HalfClosed;
                client.is_end_unreported = true;
                self.closing_clients.push(id);
                self.report_end(id, cx);
                self.register_interest(id, cx);
            }
            Stage::HalfClosed => {}
            Stage::AwaitingClose(_) => self.close_client(id, cx),
        }
    }

    /// Notifies the front of the end of the input, once the front has consumed all data before it.
    fn report_end(&mut self, id: ConnectionId, cx: &mut Cx<'_, impl ClientHost>) {
        if let Some(client) = self.connections.get_mut(&id)
            && client.backlog.is_empty()
            && std::mem::take(&mut client.is_end_unreported)
        {
            let (front, mut requests) = cx.host.front_and_requests(cx.now);
            front.half_closed(id, &mut requests);
        }
    }

    fn write(&mut self, id: ConnectionId, cx: &mut Cx<'_, impl ClientHost>) {
        let Some(client) = self.connections.get_mut(&id) else {
            return;
        };
        let SocketOwner::Reactor(here) = &mut client.socket_owner else {
            return self.pass_output(id, cx);
        };
        if here.socket.has_unsent_output()
            && matches!(here.socket.flush(), TransferOutcome::Ended(_))
        {
            return self.close_client(id, cx);
        }
        let front = cx.host.front_mut();
        while !here.is_send_blocked {
            let output = front.output(id);
            if output.is_empty() {
                break;
            }
            self.stats.calls_client_write += 1;
            match here.socket.write(output) {
                TransferOutcome::Transferred(count) => {
                    front.record_sent(id, count);
                    self.stats.client_bytes_out += count as u64;
                }
                TransferOutcome::Blocked => here.is_send_blocked = true,
                TransferOutcome::Ended(_) => return self.close_client(id, cx),
            }
        }
        let empty = !here.is_send_blocked && !here.socket.has_unsent_output();
        if empty {
            self.close_if_done(id, cx);
        }
        self.register_interest(id, cx);
    }

    /// Closes a client that is broken, half-closed or closing, once its output has been sent.
    fn close_if_done(&mut self, id: ConnectionId, cx: &mut Cx<'_, impl ClientHost>) {
        let Some(client) = self.connections.get_mut(&id) else {
            return;
        };
        let SocketOwner::Reactor(here) = &mut client.socket_owner else {
            return;
        };
        if let Some(why) = cx.host.front().reset_reason(id) {
            if let Some(untold) = self.reset_log_limit.allow_line(cx.now.time) {
                tracing::warn!(client = id.0, why, untold, "reset the connection of a client");
            }
            self.stats.clients_reset += 1;
            here.socket.reset_at_close();
            return self.close_client(id, cx);
        }
        match client.stage {
            Stage::HalfClosed if client.is_paused || cx.host.front().is_busy(id) => {}
            Stage::HalfClosed => self.close_client(id, cx),
            Stage::Open if cx.host.front().should_close(id) => {
                // Closing at once with unread input would reset the connection and discard the last
                // reply in transit.
                here.socket.finish_writing();
                let until = cx.now.time.plus_ms(self.limits.close_timeout_ms);
                client.stage = Stage::AwaitingClose(until);
                client.is_paused = false;
                self.closing_clients.push(id);
            }
            Stage::Open | Stage::AwaitingClose(_) => {}
        }
    }

    /// Registers the socket for the events that the connection currently needs.
    fn register_interest(&mut self, id: ConnectionId, cx: &mut Cx<'_, impl ClientHost>) {
        let Some(client) = self.connections.get_mut(&id) else {
            return;
        };
        let read = !client.is_paused && client.stage != Stage::HalfClosed;
        let here = match &mut client.socket_owner {
            SocketOwner::Reactor(here) => here,
            SocketOwner::Thread(away) => return away.set_reading(id, read, &mut self.threads),
        };
        let interest = Interest { read, write: here.socket.waits_to_write(here.is_send_blocked) };
        if interest == here.interest {
            return;
        }
        here.interest = interest;
        if let Err(error) = cx.sources.change(&here.socket, here.token, interest) {
            tracing::warn!(%error, "cannot register a client connection with the poller");
            self.close_client(id, cx);
        }
    }

    fn close_client(&mut self, id: ConnectionId, cx: &mut Cx<'_, impl ClientHost>) {
        if let Some(client) = self.connections.remove(&id) {
            match &client.socket_owner {
                SocketOwner::Reactor(here) => cx.sources.remove(here.token),
                // The I/O thread still has the socket, which is closed once it is returned.
                SocketOwner::Thread(away) => {
                    away.recall_socket(id, &mut self.threads);
                    self.handed_bytes -= away.handed_bytes;
                }
            }
            self.forget_client(id, &client, cx);
        }
    }

    fn forget_client(
        &mut self,
        id: ConnectionId,
        client: &Client,
        cx: &mut Cx<'_, impl ClientHost>,
    ) {
        self.backlog_bytes -= client.backlog.len();
        self.stats.clients_closed += 1;
        let (front, mut requests) = cx.host.front_and_requests(cx.now);
        front.handle_closed(id, &mut requests);
    }
}

impl Client {
    const fn is_on_thread(&self) -> bool {
        matches!(self.socket_owner, SocketOwner::Thread(_))
    }

    const fn handed_bytes(&self) -> usize {
        match &self.socket_owner {
            SocketOwner::Reactor(_) => 0,
            SocketOwner::Thread(away) => away.handed_bytes,
        }
    }

    /// Returns whether a read would return data without waiting, which the poller does not see.
    fn has_buffered_input(&self) -> bool {
        let takes = !self.is_paused && self.stage != Stage::HalfClosed;
        takes
            && matches!(&self.socket_owner, SocketOwner::Reactor(here) if here.socket.has_buffered_input())
    }

    fn has_unsent_output(&self) -> bool {
        matches!(&self.socket_owner, SocketOwner::Reactor(here) if here.socket.has_unsent_output())
    }
}

/// Appends to a backlog. A large backlog grows by a quarter at a time, because only its length is
/// accounted for, not its capacity.
fn append_backlog(backlog: &mut Vec<u8>, bytes: &[u8]) {
    let length = backlog.len();
    if length > READ_LARGE_BYTES && backlog.capacity() - length < bytes.len() {
        backlog.reserve_exact(bytes.len().max(length / 4));
    }
    backlog.extend_from_slice(bytes);
}
