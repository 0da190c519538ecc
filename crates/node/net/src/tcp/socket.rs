//! Non-blocking stream socket: dialling, accepting, reading, writing, and detection of dead peers.
//!
//! All bytes exchanged with peers and clients pass through the reads and writes of [`Socket`]. The
//! TLS layer below them is in `secured`.

use std::{
    io::{self, IoSlice},
    net::{IpAddr, SocketAddr},
    os::fd::{AsFd, BorrowedFd, OwnedFd},
    time::Duration,
};

use quorate_access::Who;
use quorate_replica::front::{Endpoints, ListenerKind};
use quorate_tls::session::Session;
use rustix::{
    io::Errno,
    net::{
        AddressFamily, RecvFlags, SendAncillaryBuffer, SendFlags, Shutdown, SocketAddrAny,
        SocketFlags, SocketType, socket_with, sockopt,
    },
};

use super::secured;
pub(crate) use super::secured::TransferOutcome;

/// One non-blocking connection, with its TLS session if it has one.
#[derive(Debug)]
pub(crate) struct Socket {
    fd: OwnedFd,
    session: Option<Box<Session>>,
}

impl AsFd for Socket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

impl From<OwnedFd> for Socket {
    fn from(fd: OwnedFd) -> Self {
        Self { fd, session: None }
    }
}

/// Accepts the next waiting connection, if any, skipping those that broke while waiting.
pub(crate) fn accept(listener: impl AsFd) -> io::Result<Option<Socket>> {
    loop {
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        match rustix::net::accept_with(&listener, flags) {
            Ok(socket) => return Ok(Some(socket.into())),
            Err(Errno::AGAIN) => return Ok(None),
            Err(Errno::CONNABORTED | Errno::INTR | Errno::PROTO | Errno::PERM) => {}
            Err(error) => return Err(error.into()),
        }
    }
}

impl Socket {
    /// Starts a connection. The socket becomes writable once it succeeded or failed
    /// ([`Self::check_connected`]).
    pub(crate) fn start_connecting(address: SocketAddr) -> io::Result<Self> {
        let family = if address.is_ipv4() { AddressFamily::INET } else { AddressFamily::INET6 };
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        let socket = socket_with(family, SocketType::STREAM, flags, None)?;
        match rustix::net::connect(&socket, &address) {
            Ok(()) | Err(Errno::INPROGRESS | Errno::INTR) => Ok(socket.into()),
            Err(error) => Err(error.into()),
        }
    }

    /// Checks that the connection started by [`Self::start_connecting`] is established.
    pub(crate) fn check_connected(&self) -> io::Result<()> {
        Ok(sockopt::socket_error(&self.fd)??)
    }

    /// Sets the options for a peer. Small messages are sent at once, and a peer whose kernel
    /// acknowledges nothing for `silence_ms` is considered dead. Otherwise a peer whose machine
    /// lost power would look connected for hours.
    pub(crate) fn tune_for_peer(&self, silence_ms: u32) -> io::Result<()> {
        let probe = Duration::from_millis(u64::from(silence_ms) / 4).max(Duration::from_secs(1));
        sockopt::set_tcp_nodelay(&self.fd, true)?;
        sockopt::set_socket_keepalive(&self.fd, true)?;
        sockopt::set_tcp_keepidle(&self.fd, probe)?;
        sockopt::set_tcp_keepintvl(&self.fd, probe)?;
        sockopt::set_tcp_keepcnt(&self.fd, 3)?;
        sockopt::set_tcp_user_timeout(&self.fd, silence_ms)?;
        Ok(())
    }

    /// Sets the options for a client. Replies are sent at once, and a vanished client is noticed
    /// within minutes. Sockets other than TCP refuse these options and do not need them.
    pub(crate) fn tune_for_client(&self) {
        let _ = sockopt::set_tcp_nodelay(&self.fd, true);
        let _ = sockopt::set_socket_keepalive(&self.fd, true);
        let _ = sockopt::set_tcp_keepidle(&self.fd, Duration::from_secs(60));
        let _ = sockopt::set_tcp_keepintvl(&self.fd, Duration::from_secs(20));
    }

    /// Encrypts the connection with this session from now on; `None` leaves it unencrypted.
    pub(crate) fn with_session(mut self, session: Option<Session>) -> Self {
        self.session = session.map(Box::new);
        self
    }

    pub(crate) fn session(&self) -> Option<&Session> {
        self.session.as_deref()
    }

    /// Returns whether data can be exchanged: any TLS handshake is complete.
    pub(crate) fn is_established(&self) -> bool {
        self.session().is_none_or(Session::is_established)
    }

    pub(crate) fn failure(&self) -> Option<&str> {
        self.session()?.failure()
    }

    /// Returns whether a read would find data that the poller does not see.
    pub(crate) fn has_buffered_input(&self) -> bool {
        self.session().is_some_and(Session::has_buffered_input)
    }

    pub(crate) fn has_unsent_output(&self) -> bool {
        self.session().is_some_and(Session::has_unsent)
    }

    /// Returns whether to wait until the socket is writable. `has_output` is set if the connection
    /// has output.
    pub(crate) fn waits_to_write(&self, has_output: bool) -> bool {
        self.has_unsent_output() || (has_output && self.is_established())
    }

    /// Sends as many of the pending bytes as possible.
    pub(crate) fn flush(&mut self) -> TransferOutcome {
        match &mut self.session {
            Some(session) => secured::flush(&self.fd, session),
            None => TransferOutcome::Transferred(0),
        }
    }

    /// Makes one read. It may return fewer bytes than fit in the buffer.
    pub(crate) fn read(&mut self, into: &mut [u8]) -> TransferOutcome {
        if let Some(session) = &mut self.session {
            return secured::read(&self.fd, session, into);
        }
        match rustix::net::recv(&self.fd, into, RecvFlags::empty()) {
            Ok((_, 0)) => TransferOutcome::Ended(None),
            Ok((_, count)) => TransferOutcome::Transferred(count),
            Err(Errno::AGAIN | Errno::INTR) => TransferOutcome::Blocked,
            Err(error) => TransferOutcome::Ended(Some(error)),
        }
    }

    /// Makes one write, possibly of only the first part of the bytes.
    pub(crate) fn write(&mut self, bytes: &[u8]) -> TransferOutcome {
        if let Some(session) = &mut self.session {
            return secured::write(&self.fd, session, &[IoSlice::new(bytes)]);
        }
        match rustix::net::send(&self.fd, bytes, SendFlags::NOSIGNAL) {
            Ok(count) => TransferOutcome::Transferred(count),
            Err(Errno::AGAIN | Errno::INTR) => TransferOutcome::Blocked,
            Err(error) => TransferOutcome::Ended(Some(error)),
        }
    }

    /// Makes one write of several consecutive pieces, possibly partial.
    pub(crate) fn write_pieces(&mut self, pieces: &[IoSlice<'_>]) -> TransferOutcome {
        if let Some(session) = &mut self.session {
            return secured::write(&self.fd, session, pieces);
        }
        let mut control = SendAncillaryBuffer::default();
        match rustix::net::sendmsg(&self.fd, pieces, &mut control, SendFlags::NOSIGNAL) {
            Ok(count) => TransferOutcome::Transferred(count),
            Err(Errno::AGAIN | Errno::INTR) => TransferOutcome::Blocked,
            Err(error) => TransferOutcome::Ended(Some(error)),
        }
    }

    /// Ends the output. Bytes already written are still delivered. Has no effect on a broken
    /// connection. Call it again while there are unsent bytes.
    pub(crate) fn finish_writing(&mut self) {
        if let Some(session) = &mut self.session {
            session.finish();
            if secured::flush(&self.fd, session) == TransferOutcome::Blocked {
                return;
            }
        }
        let _ = rustix::net::shutdown(&self.fd, Shutdown::Write);
    }

    /// Makes a later close reset the connection and drop undelivered data. Only TCP sockets support
    /// this.
    pub(crate) fn reset_at_close(&self) {
        let _ = sockopt::set_socket_linger(&self.fd, Some(Duration::ZERO));
    }

    /// Returns both endpoints of a client's connection, in the format of Redis' `CLIENT LIST`.
    pub(crate) fn endpoints(&self) -> Endpoints {
        let text = |address: Option<SocketAddrAny>| match address.map(SocketAddr::try_from) {
            Some(Ok(address)) => address.to_string(),
            _ => "unix:0".to_owned(),
        };
        Endpoints {
            door: ListenerKind::Commands,
            peer: text(rustix::net::getpeername(&self.fd).ok().flatten()),
            local: text(rustix::net::getsockname(&self.fd).ok()),
            identity: self.session().map_or(Who::Anonymous, Session::peer_identity),
        }
    }

    /// Returns the IP address of the other end, without its port, which strangers can choose.
    pub(crate) fn remote_host(&self) -> String {
        self.remote_ip().map_or_else(|| "a peer that is gone".to_owned(), |ip| ip.to_string())
    }

    pub(crate) fn remote_ip(&self) -> Option<IpAddr> {
        let address = rustix::net::getpeername(&self.fd).ok().flatten()?;
        SocketAddr::try_from(address).ok().map(|address| address.ip())
    }
}
