//! Authentication of client connections: those that fail are closed.

use quorate_replica::front::{ConnectionId, Endpoints};
use quorate_tls::Trust;

use super::{Client, Clients, SocketOwner, unproved::Stranger};
use crate::{
    cx::Cx,
    host::ClientSide,
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
        cx: &mut Cx<'_, impl ClientSide>,
    ) -> std::io::Result<()> {
        let session = self.unproved.trust.as_ref().map(Trust::client_in);
        let socket = socket.secured(session);
        let token = cx.sources.add(&socket, Source::Unproved(id), Interest::READ)?;
        self.unproved.strangers.push_back(Stranger {
            id,
            socket,
            token,
            ends,
            deadline: cx.now.time.plus_ms(self.limits.prove_ms),
            interest: Interest::READ,
        });
        if self.unproved.strangers.len() > self.limits.unproved_max {
            self.dismiss(0, Some("too many others came"), cx);
        }
        Ok(())
    }

    /// Continues the handshake of an unauthenticated connection whose socket is ready.
    pub(crate) fn on_unproved(
        &mut self,
        id: ConnectionId,
        ready: Ready,
        cx: &mut Cx<'_, impl ClientSide>,
    ) {
        let Some(at) = self.unproved.position(id) else {
            return;
        };
        let stranger = &mut self.unproved.strangers[at];
        let ended = if ready.read || ready.is_broken {
            // Nothing is consumed: the input belongs to the front once the connection is a client.
            stranger.socket.read(&mut [])
        } else {
            stranger.socket.flush()
        };
        if matches!(ended, TransferOutcome::Ended(_)) {
            return self.dismiss(at, None, cx);
        }
        if stranger.socket.is_established() {
            return self.let_in(at, cx);
        }
        let interest = Interest { read: true, write: stranger.socket.waits_to_write(false) };
        if interest != stranger.interest {
            stranger.interest = interest;
            if cx.sources.change(&stranger.socket, stranger.token, interest).is_err() {
                self.dismiss(at, None, cx);
            }
        }
    }

    /// Turns an authenticated connection into a client. At the client limit, closes the connection
    /// without a reply, as if it were still in the kernel's queue.
    fn let_in(&mut self, at: usize, cx: &mut Cx<'_, impl ClientSide>) {
        if self.is_full() {
            return self.dismiss(at, Some("no place for more clients"), cx);
        }
        let Some(stranger) = self.unproved.strangers.remove(at) else {
            return;
        };
        let Stranger { id, socket, token, ends, interest, .. } = stranger;
        let ends = Endpoints { door: ends.door, ..socket.ends() };
        cx.sources.set_source(token, Source::Client(id));
        self.add_client(id, socket, token, ends, cx);
        if let Some(Client { place: SocketOwner::Here(here), .. }) = self.connections.get_mut(&id) {
            here.interest = interest;
        }
        // The first command may have arrived together with the end of the handshake.
        self.read_all(id, cx);
        self.dirty.push(id);
        self.register_interest(id, cx);
    }

    pub(super) fn dismiss_late(&mut self, cx: &mut Cx<'_, impl ClientSide>) {
        while self.unproved.next_time().is_some_and(|at| at <= cx.now.time) {
            self.dismiss(0, Some("no handshake in time"), cx);
        }
    }

    /// Closes all unauthenticated connections, because the node is stopping.
    pub(super) fn dismiss_all(&mut self, cx: &mut Cx<'_, impl ClientSide>) {
        for stranger in std::mem::take(&mut self.unproved.strangers) {
            cx.sources.remove(stranger.token);
        }
    }

    fn dismiss(&mut self, at: usize, why: Option<&str>, cx: &mut Cx<'_, impl ClientSide>) {
        let Some(stranger) = self.unproved.strangers.remove(at) else {
            return;
        };
        cx.sources.remove(stranger.token);
        self.stats.tls_failures += 1;
        let why = why.or(stranger.socket.failure()).unwrap_or("it went away");
        if let Some(untold) = self.unproved.complaints.allow_line(cx.now.time) {
            tracing::warn!(
                from = stranger.socket.remote_host(),
                why,
                untold,
                "refused a client that did not prove its identity"
            );
        }
    }
}
