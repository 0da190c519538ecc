//! Authentication of client connections: those that fail are closed.

use quorate_replica::front::{ConnectionId, Endpoints};
use quorate_tls::NodeTrust;

use super::{Client, Clients, SocketOwner, unproved::UnauthenticatedConnection};
use crate::{
    cx::Cx,
    host::ClientHost,
    sources::{Interest, Ready, Source},
    tcp::socket::{Socket, TransferOutcome},
};

impl Clients {
    /// Adds a new connection, closing the oldest unauthenticated one if there are too many.
    pub(super) fn add_unauthenticated(
        &mut self,
        id: ConnectionId,
        socket: Socket,
        ends: Endpoints,
        cx: &mut Cx<'_, impl ClientHost>,
    ) -> std::io::Result<()> {
        let session = self.unauthenticated.trust.as_ref().map(NodeTrust::incoming_client_session);
        let socket = socket.with_session(session);
        let token = cx.sources.add(&socket, Source::UnauthenticatedClient(id), Interest::READ)?;
        self.unauthenticated.connections.push_back(UnauthenticatedConnection {
            id,
            socket,
            token,
            endpoints: ends,
            deadline: cx.now.time.plus_ms(self.limits.authentication_timeout_ms),
            interest: Interest::READ,
        });
        if self.unauthenticated.connections.len() > self.limits.unauthenticated_max {
            self.close_unauthenticated(0, Some("too many others came"), cx);
        }
        Ok(())
    }

    /// Continues the handshake of an unauthenticated connection whose socket is ready.
    pub(crate) fn on_unauthenticated_ready(
        &mut self,
        id: ConnectionId,
        ready: Ready,
        cx: &mut Cx<'_, impl ClientHost>,
    ) {
        let Some(at) = self.unauthenticated.position(id) else {
            return;
        };
        let stranger = &mut self.unauthenticated.connections[at];
        let ended = if ready.is_readable || ready.is_broken {
            // Nothing is consumed: the input belongs to the front once the connection is a client.
            stranger.socket.read(&mut [])
        } else {
            stranger.socket.flush()
        };
        if matches!(ended, TransferOutcome::Ended(_)) {
            return self.close_unauthenticated(at, None, cx);
        }
        if stranger.socket.is_established() {
            return self.admit_client(at, cx);
        }
        let interest = Interest { read: true, write: stranger.socket.waits_to_write(false) };
        if interest != stranger.interest {
            stranger.interest = interest;
            if cx.sources.change(&stranger.socket, stranger.token, interest).is_err() {
                self.close_unauthenticated(at, None, cx);
            }
        }
    }

    /// Turns an authenticated connection into a client. At the client limit, closes the connection
    /// without a reply, as if it were still in the kernel's queue.
    fn admit_client(&mut self, at: usize, cx: &mut Cx<'_, impl ClientHost>) {
        if self.is_full() {
            return self.close_unauthenticated(at, Some("no place for more clients"), cx);
        }
        let Some(stranger) = self.unauthenticated.connections.remove(at) else {
            return;
        };
        let UnauthenticatedConnection { id, socket, token, endpoints: ends, interest, .. } =
            stranger;
        let ends = Endpoints { door: ends.door, ..socket.endpoints() };
        cx.sources.set_source(token, Source::Client(id));
        self.add_client(id, socket, token, ends, cx);
        if let Some(Client { socket_owner: SocketOwner::Reactor(here), .. }) =
            self.connections.get_mut(&id)
        {
            here.interest = interest;
        }
        // The first command may have arrived together with the end of the handshake.
        self.read_all(id, cx);
        self.unflushed_clients.push(id);
        self.register_interest(id, cx);
    }

    pub(super) fn close_overdue(&mut self, cx: &mut Cx<'_, impl ClientHost>) {
        while self.unauthenticated.oldest_deadline().is_some_and(|at| at <= cx.now.time) {
            self.close_unauthenticated(0, Some("no handshake in time"), cx);
        }
    }

    /// Closes all unauthenticated connections, because the node is stopping.
    pub(super) fn close_all_unauthenticated(&mut self, cx: &mut Cx<'_, impl ClientHost>) {
        for stranger in std::mem::take(&mut self.unauthenticated.connections) {
            cx.sources.remove(stranger.token);
        }
    }

    fn close_unauthenticated(
        &mut self,
        at: usize,
        why: Option<&str>,
        cx: &mut Cx<'_, impl ClientHost>,
    ) {
        let Some(stranger) = self.unauthenticated.connections.remove(at) else {
            return;
        };
        cx.sources.remove(stranger.token);
        self.stats.tls_failures += 1;
        let why = why.or(stranger.socket.failure()).unwrap_or("it went away");
        if let Some(untold) = self.unauthenticated.log_limit.allow_line(cx.now.time) {
            tracing::warn!(
                from = stranger.socket.remote_host(),
                why,
                untold,
                "refused a client that did not prove its identity"
            );
        }
    }
}
