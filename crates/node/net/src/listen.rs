//! Binding of a node's addresses. Every failure is reported before the node starts to run.

use std::{
    fmt::Display,
    fs,
    io::{self, ErrorKind},
    net::{SocketAddr, TcpListener},
    os::{
        fd::{AsFd, BorrowedFd},
        unix::{
            fs::{FileTypeExt, MetadataExt},
            net::{UnixListener, UnixStream},
        },
    },
    path::{Path, PathBuf},
};

use quorate_core::node_id::NodeId;
use quorate_replica::status::PlaneKind;
use quorate_tls::{NodeTrust, Protection};
use thiserror::Error;

use crate::{
    device,
    plane::{PlaneRefusal, PlaneSettings, Sockets},
    starting::StartupResponder,
};

/// Maximum number of connections waiting for `accept`; the kernel caps it at `net.core.somaxconn`.
const LISTEN_BACKLOG: i32 = 4096;

/// Failure to listen on an address, with the flag that set the address.
#[derive(Debug, Error)]
#[error("cannot listen on {flag} {address}: {reason}")]
pub struct BindError {
    /// Command-line flag that set the address.
    pub flag: &'static str,
    /// Address that was passed with the flag.
    pub address: String,
    /// Reason why the address cannot be used.
    #[source]
    pub reason: BindReason,
}

/// Reason why the node cannot listen on an address.
#[derive(Debug, Error)]
pub enum BindReason {
    /// Another socket already uses the port.
    #[error("the address is in use by another process")]
    AddressInUse(#[source] io::Error),
    /// Another process accepts connections at the socket file.
    #[error("the socket is in use by another process")]
    SocketInUse,
    /// No interface of this machine has the address.
    #[error("this machine has no such address")]
    NotLocal(#[source] io::Error),
    /// The operating system denies access.
    #[error("permission denied")]
    PermissionDenied(#[source] io::Error),
    /// The text is not a valid address.
    #[error("{0}")]
    Malformed(io::Error),
    /// The path names a file that is not a socket.
    #[error("there is a file that is no socket")]
    NotASocket,
    /// Other machines could connect, but authentication is not configured.
    #[error("other machines can reach this address, and there is no authentication")]
    Unprotected,
    /// Another error of the operating system.
    #[error("{0}")]
    Other(io::Error),
}

impl BindReason {
    /// Returns advice for the operator on how to fix the problem.
    pub const fn hint(&self) -> &'static str {
        match self {
            Self::AddressInUse(_) => "stop that process, or choose another address",
            Self::SocketInUse => "stop that process, or choose another path",
            Self::NotLocal(_) => "use an address of this machine, or 0.0.0.0 for all of them",
            Self::PermissionDenied(_) => {
                "ports below 1024 and other users' folders need more rights"
            }
            Self::Malformed(_) => "write it as HOST:PORT",
            Self::NotASocket => "choose another path",
            Self::Unprotected => {
                "use --tls DIR with certificates from 'quorate cert', or --insecure on a network where everyone is trusted"
            }
            Self::Other(_) => "check the address",
        }
    }

    pub const fn is_in_use(&self) -> bool {
        matches!(self, Self::AddressInUse(_) | Self::SocketInUse)
    }
}

impl From<io::Error> for BindReason {
    fn from(error: io::Error) -> Self {
        match error.kind() {
            ErrorKind::AddrInUse => Self::AddressInUse(error),
            ErrorKind::AddrNotAvailable => Self::NotLocal(error),
            ErrorKind::PermissionDenied => Self::PermissionDenied(error),
            ErrorKind::InvalidInput => Self::Malformed(error),
            _ => Self::Other(error),
        }
    }
}

impl BindError {
    fn new(flag: &'static str, address: impl Display, reason: impl Into<BindReason>) -> Self {
        Self { flag, address: address.to_string(), reason: reason.into() }
    }
}

/// Bound listening sockets of a node, for peers and clients.
#[derive(Debug)]
pub struct Listeners {
    pub(crate) peer: TcpListener,
    pub(crate) client: Option<TcpListener>,
    pub(crate) socket: Option<SocketFile>,
    pub(crate) stream: Option<TcpListener>,
    pub(crate) raw: Option<TcpListener>,
    peer_address: SocketAddr,
    client_address: Option<SocketAddr>,
    stream_address: Option<SocketAddr>,
    raw_address: Option<SocketAddr>,
    datagrams: Option<Sockets>,
    device: Option<device::BoundCandidates>,
    protection: Protection,
}

impl Listeners {
    /// Binds the addresses of `--peer`, `--client` and `--client-socket`. Port 0 means any.
    pub fn bind(
        peer: &str,
        client: &str,
        socket: Option<&Path>,
        protection: Protection,
    ) -> Result<Self, BindError> {
        let mut listeners = Self::bind_peers(peer, protection)?;
        let (client, client_address) = listeners.bind_tcp("--client", client)?;
        let socket = socket.map(SocketFile::bind).transpose()?;
        listeners.client = Some(client);
        listeners.client_address = Some(client_address);
        listeners.socket = socket;
        Ok(listeners)
    }

    /// Binds only the address of `--peer`, for a node whose clients run in its own process.
    pub fn bind_peers(peer: &str, protection: Protection) -> Result<Self, BindError> {
        let (peer, peer_address) = bind_tcp("--peer", peer, &protection)?;
        if let Protection::Insecure = protection
            && !peer_address.ip().is_loopback()
        {
            tracing::warn!(
                address = %peer_address,
                "--insecure: anyone who can connect to this node can act as a member, and read and write everything"
            );
        }
        Ok(Self {
            peer,
            client: None,
            socket: None,
            stream: None,
            raw: None,
            peer_address,
            client_address: None,
            stream_address: None,
            raw_address: None,
            datagrams: None,
            device: None,
            protection,
        })
    }

    /// Also binds the address of `--stream`.
    pub fn bind_streams(&mut self, stream: &str) -> Result<(), BindError> {
        let (stream, stream_address) = self.bind_tcp("--stream", stream)?;
        self.stream = Some(stream);
        self.stream_address = Some(stream_address);
        Ok(())
    }

    /// Binds the address of `--stream-raw` too.
    pub fn bind_raw_streams(&mut self, raw: &str) -> Result<(), BindError> {
        let (raw, raw_address) = self.bind_tcp("--stream-raw", raw)?;
        self.raw = Some(raw);
        self.raw_address = Some(raw_address);
        Ok(())
    }

    fn bind_tcp(
        &self,
        flag: &'static str,
        address: &str,
    ) -> Result<(TcpListener, SocketAddr), BindError> {
        bind_tcp(flag, address, &self.protection)
    }

    /// Returns the trust settings for certificates, if certificates are required.
    pub const fn trust(&self) -> Option<&NodeTrust> {
        self.protection.trust()
    }

    /// Opens the datagram sockets that `wanted` configures, or the best available ones, at the
    /// address of the peer listener.
    pub fn bind_datagrams(&mut self, wanted: &PlaneSettings) -> Result<(), PlaneRefusal> {
        self.datagrams = Sockets::open(wanted, self.peer_address)?;
        Ok(())
    }

    /// Opens the socket of the configured device, if any, at the address of the peer listener.
    /// Called after [`Self::bind_datagrams`], so that only one warning about keys is logged.
    pub fn bind_device(
        &mut self,
        kind: &device::Kind,
        wanted: &PlaneSettings,
    ) -> Result<(), device::DeviceRefusal> {
        self.device = device::BoundCandidates::open(kind, wanted, self.peer_address)?;
        let is_used = self.device.is_some() || self.datagrams.is_some();
        if wanted.trusted && is_used && !self.peer_address.ip().is_loopback() {
            tracing::warn!(
                address = %self.peer_address,
                "--plane-trusted: anyone who can send frames to this node can act as a member: vote, decide, and make nodes execute different commands"
            );
        }
        Ok(())
    }

    pub(crate) const fn take_device(&mut self) -> Option<device::BoundCandidates> {
        self.device.take()
    }

    /// Returns this node's transport for frames, used with peers that support it.
    pub fn plane_kind(&self) -> PlaneKind {
        self.datagrams.as_ref().map_or(PlaneKind::Tcp, Sockets::plane_kind)
    }

    pub(crate) const fn take_datagrams(&mut self) -> Option<Sockets> {
        self.datagrams.take()
    }

    /// Answers connections to the peer address on behalf of the starting node, until the returned
    /// value is dropped. `node` is `None` while the node waits for an id, and `cluster` until it
    /// knows its cluster.
    pub fn answer_while_starting(
        &self,
        node: impl Into<Option<NodeId>>,
        cluster: Option<u128>,
    ) -> io::Result<StartupResponder> {
        StartupResponder::start_responder(&self.peer, node.into(), cluster, self.trust().cloned())
    }

    pub const fn peer_address(&self) -> SocketAddr {
        self.peer_address
    }

    /// Takes the client listener, for a protocol that the reactor does not serve.
    /// [`Self::client_address`] still returns its address afterwards.
    pub const fn take_client(&mut self) -> Option<TcpListener> {
        self.client.take()
    }

    /// Returns the client address, if the node listens for clients.
    pub const fn client_address(&self) -> Option<SocketAddr> {
        self.client_address
    }

    /// Returns the address for byte stream clients, if the node listens for them.
    pub const fn stream_address(&self) -> Option<SocketAddr> {
        self.stream_address
    }

    /// Returns the address for clients that send raw stream bytes, if the node listens for them.
    pub const fn raw_stream_address(&self) -> Option<SocketAddr> {
        self.raw_address
    }
}

/// TCP or Unix-socket client listener.
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

fn bind_tcp(
    flag: &'static str,
    address: &str,
    protection: &Protection,
) -> Result<(TcpListener, SocketAddr), BindError> {
    let bound = TcpListener::bind(address).and_then(|listener| {
        // The standard library's 128 is too small: if the queue overflows, a client waits for a
        // second.
        rustix::net::listen(&listener, LISTEN_BACKLOG)?;
        listener.set_nonblocking(true)?;
        let address = listener.local_addr()?;
        Ok((listener, address))
    });
    let (listener, bound) = bound.map_err(|error| BindError::new(flag, address, error))?;
    if matches!(protection, Protection::Loopback) && !bound.ip().is_loopback() {
        return Err(BindError::new(flag, address, BindReason::Unprotected));
    }
    Ok((listener, bound))
}

/// File of a Unix socket; removed on drop.
#[derive(Debug)]
pub(crate) struct SocketFile {
    pub(crate) listener: UnixListener,
    path: PathBuf,
    /// Device and inode of the file, so that a later file of another process at the same path is
    /// not removed.
    file_identity: Option<(u64, u64)>,
}

impl SocketFile {
    const FLAG: &'static str = "--client-socket";

    fn bind(path: &Path) -> Result<Self, BindError> {
        let refuse = |reason| BindError::new(Self::FLAG, path.display(), reason);
        Self::remove_stale_file(path).map_err(refuse)?;
        let listener = UnixListener::bind(path).map_err(|error| refuse(error.into()))?;
        let blocking = listener.set_nonblocking(true);
        blocking.map_err(|error| refuse(error.into()))?;
        Ok(Self { listener, path: path.to_owned(), file_identity: file_identity(path) })
    }

    /// Removes a socket file left by a killed process, at which no process accepts connections.
    fn remove_stale_file(path: &Path) -> Result<(), BindReason> {
        let Ok(found) = fs::symlink_metadata(path) else {
            return Ok(());
        };
        if !found.file_type().is_socket() {
            return Err(BindReason::NotASocket);
        }
        match UnixStream::connect(path) {
            Err(error) if error.kind() == ErrorKind::ConnectionRefused => {
                tracing::info!(path = %path.display(), "removing a stale client socket");
                Ok(fs::remove_file(path)?)
            }
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(()),
            Ok(_) | Err(_) => Err(BindReason::SocketInUse),
        }
    }
}

impl Drop for SocketFile {
    fn drop(&mut self) {
        if self.file_identity.is_some() && file_identity(&self.path) == self.file_identity {
            let _ = fs::remove_file(&self.path);
        }
    }
}

fn file_identity(path: &Path) -> Option<(u64, u64)> {
    fs::symlink_metadata(path).ok().map(|found| (found.dev(), found.ino()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn port_in_use_is_an_error_with_flag_and_address() {
        let first =
            Listeners::bind("127.0.0.1:0", "127.0.0.1:0", None, Protection::Loopback).unwrap();
        let taken = first.client_address().expect("bound").to_string();
        let error = Listeners::bind("127.0.0.1:0", &taken, None, Protection::Loopback).unwrap_err();
        assert_eq!(
            error.to_string(),
            format!("cannot listen on --client {taken}: the address is in use by another process")
        );
        assert_eq!(error.reason.hint(), "stop that process, or choose another address");
    }

    #[test]
    fn stream_port_in_use_is_distinguished_from_other_errors() {
        let mut first = Listeners::bind_peers("127.0.0.1:0", Protection::Loopback).unwrap();
        assert_eq!(first.stream_address(), None);
        first.bind_streams("127.0.0.1:0").unwrap();
        let taken = first.stream_address().expect("bound").to_string();
        let mut second = Listeners::bind_peers("127.0.0.1:0", Protection::Loopback).unwrap();
        let error = second.bind_streams(&taken).unwrap_err();
        assert_eq!((error.flag, error.reason.is_in_use()), ("--stream", true));
        let error = second.bind_streams("nonsense").unwrap_err();
        assert_eq!((error.flag, error.reason.is_in_use()), ("--stream", false));
        assert_eq!(second.stream_address(), None);
    }

    #[test]
    fn plain_text_beyond_loopback_needs_an_explicit_setting() {
        let everywhere = |protection| Listeners::bind_peers("0.0.0.0:0", protection);
        let error = everywhere(Protection::Loopback).unwrap_err();
        assert_eq!(
            error.to_string(),
            "cannot listen on --peer 0.0.0.0:0: other machines can reach this address, and there is no authentication"
        );
        assert!(error.reason.hint().contains("--insecure"));
        let mut insecure = everywhere(Protection::Insecure).unwrap();
        insecure.bind_streams("0.0.0.0:0").unwrap();
        let mut plain = Listeners::bind_peers("127.0.0.1:0", Protection::Loopback).unwrap();
        assert!(plain.bind_streams("0.0.0.0:0").is_err());
        assert!(plain.bind_raw_streams("0.0.0.0:0").is_err());
    }

    #[test]
    fn invalid_address_is_an_error_with_a_hint() {
        let error =
            Listeners::bind("nonsense", "127.0.0.1:0", None, Protection::Loopback).unwrap_err();
        assert_eq!((error.flag, error.reason.hint()), ("--peer", "write it as HOST:PORT"));
    }

    #[test]
    fn socket_file_is_removed_at_the_end_and_a_stale_one_replaced() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("client.sock");
        drop(UnixListener::bind(&path).unwrap()); // the file stays
        assert!(path.exists());
        let file = SocketFile::bind(&path).unwrap();
        drop(UnixStream::connect(&path).unwrap());
        drop(file);
        assert!(!path.exists());
    }

    #[test]
    fn socket_in_use_and_plain_file_are_not_removed() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("client.sock");
        let _running = SocketFile::bind(&path).unwrap();
        let error = SocketFile::bind(&path).unwrap_err();
        assert!(matches!(error.reason, BindReason::SocketInUse), "{error}");
        assert!(error.reason.is_in_use());
        let plain = folder.path().join("plain");
        fs::write(&plain, "precious").unwrap();
        let error = SocketFile::bind(&plain).unwrap_err();
        assert!(matches!(error.reason, BindReason::NotASocket), "{error}");
        assert!(!error.reason.is_in_use());
        assert_eq!(fs::read(&plain).unwrap(), b"precious");
    }
}
