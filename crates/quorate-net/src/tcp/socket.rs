//! Stream sockets that never block: dial, accept, and what a dead peer means.

use std::{io, net::SocketAddr, os::fd::OwnedFd, time::Duration};

use quorate_replica::front::Endpoints;
use rustix::{
    io::Errno,
    net::{AddressFamily, SocketAddrAny, SocketFlags, SocketType, socket_with, sockopt},
};

/// Starts a connection; readiness to write tells how it went ([`dialled`]).
pub(crate) fn dial(address: SocketAddr) -> io::Result<OwnedFd> {
    let family = if address.is_ipv4() {
        AddressFamily::INET
    } else {
        AddressFamily::INET6
    };
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let socket = socket_with(family, SocketType::STREAM, flags, None)?;
    match rustix::net::connect(&socket, &address) {
        Ok(()) | Err(Errno::INPROGRESS | Errno::INTR) => Ok(socket),
        Err(error) => Err(error.into()),
    }
}

/// Whether the connection that [`dial`] started stands.
pub(crate) fn dialled(socket: &OwnedFd) -> io::Result<()> {
    Ok(sockopt::socket_error(socket)??)
}

/// The next connection that waits, if any. Those that went away while waiting are passed over.
pub(crate) fn accept(listener: impl std::os::fd::AsFd) -> io::Result<Option<OwnedFd>> {
    loop {
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        match rustix::net::accept_with(&listener, flags) {
            Ok(socket) => return Ok(Some(socket)),
            Err(Errno::AGAIN) => return Ok(None),
            Err(Errno::CONNABORTED | Errno::INTR | Errno::PROTO | Errno::PERM) => {}
            Err(error) => return Err(error.into()),
        }
    }
}

/// Small messages leave at once, and a peer that says nothing for `silence_ms`, not even by its
/// kernel, is gone: without this a peer whose machine lost power would look connected for hours.
pub(crate) fn tune_peer(socket: &OwnedFd, silence_ms: u32) -> io::Result<()> {
    let probe = Duration::from_millis(u64::from(silence_ms) / 4).max(Duration::from_secs(1));
    sockopt::set_tcp_nodelay(socket, true)?;
    sockopt::set_socket_keepalive(socket, true)?;
    sockopt::set_tcp_keepidle(socket, probe)?;
    sockopt::set_tcp_keepintvl(socket, probe)?;
    sockopt::set_tcp_keepcnt(socket, 3)?;
    sockopt::set_tcp_user_timeout(socket, silence_ms)?;
    Ok(())
}

/// Replies leave at once; clients that vanished are noticed within minutes. Fails on sockets that
/// are no TCP, which is no matter.
pub(crate) fn tune_client(socket: &OwnedFd) {
    let _ = sockopt::set_tcp_nodelay(socket, true);
    let _ = sockopt::set_socket_keepalive(socket, true);
    let _ = sockopt::set_tcp_keepidle(socket, Duration::from_secs(60));
    let _ = sockopt::set_tcp_keepintvl(socket, Duration::from_secs(20));
}

/// Both ends of a client's connection, in Redis' form.
pub(crate) fn ends(socket: &OwnedFd) -> Endpoints {
    let text = |address: Option<SocketAddrAny>| match address.map(SocketAddr::try_from) {
        Some(Ok(address)) => address.to_string(),
        _ => "unix:0".to_owned(),
    };
    Endpoints {
        peer: text(rustix::net::getpeername(socket).ok().flatten()),
        local: text(rustix::net::getsockname(socket).ok()),
    }
}

/// Who is at the other end, without the port: strangers choose that.
pub(crate) fn remote_host(socket: &OwnedFd) -> String {
    let address = rustix::net::getpeername(socket).ok().flatten();
    match address.map(SocketAddr::try_from) {
        Some(Ok(address)) => address.ip().to_string(),
        _ => "a peer that is gone".to_owned(),
    }
}
