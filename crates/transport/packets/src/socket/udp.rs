//! A UDP socket that sends many datagrams in one call, and receives many in one.

use std::{
    io::{self, IoSliceMut},
    net::{IpAddr, Ipv4Addr, SocketAddr},
};

use quinn_udp::{RecvMeta, Transmit, UdpSocketState};
use rustix::{
    fd::{AsFd, BorrowedFd, OwnedFd},
    io::Errno,
    net::{self, AddressFamily, SocketFlags, SocketType, sockopt},
};

use crate::{
    limits::DATAGRAM_BYTES_MAX,
    socket::{Interface, ReceiveBufferSize, SocketError},
};

/// Number of buffers per receive call. Each receives datagrams that the kernel coalesced from one
/// sender. A call that fills fewer buffers has drained the socket.
pub const RECEIVE_BUFFERS: usize = 8;
const LOOPBACK: &str = "lo";
/// Maximum total size of coalesced datagrams, in bytes.
const COALESCED_BYTES_MAX: usize = 65_536;

/// A non-blocking UDP socket.
pub struct Udp {
    socket: OwnedFd,
    state: UdpSocketState,
    local: SocketAddr,
    buffered: ReceiveBufferSize,
    receive_buffer: Vec<u8>,
}

/// Outcome of sending a run of datagrams.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SendResult {
    /// The kernel accepted all of them.
    All,
    /// The device dropped the given number of datagrams for lack of space. They count as lost, and
    /// the rate must drop ([rate-2]).
    Dropped(usize),
    /// The socket is full after the given number of datagrams. The rest was not sent and can be
    /// sent once the socket is writable.
    Blocked(usize),
    /// The datagrams exceed the path's MTU and may not be fragmented ([pkt-4]). The caller must use
    /// smaller ones.
    TooLong,
}

impl Udp {
    /// Opens a socket for unicast datagrams and for sending to groups.
    pub fn bind(address: SocketAddr, receive_bytes: usize) -> Result<Self, SocketError> {
        let socket = open(address)?;
        net::bind(&socket, &address)
            .map_err(|error| SocketError::Bind { address, source: error.into() })?;
        Self::from_socket(socket, receive_bytes)
    }

    /// Opens a socket that receives a multicast group on one interface. Several processes of a
    /// machine may join the same group.
    pub fn join(
        group: SocketAddr,
        interface: &str,
        receive_bytes: usize,
    ) -> Result<Self, SocketError> {
        if !group.ip().is_multicast() {
            return Err(SocketError::NotMulticast(group));
        }
        let socket = open(group)?;
        let interface = Interface::look_up(interface, &socket)?;
        let option = |option| move |error: Errno| option_error(option, error);
        sockopt::set_socket_reuseaddr(&socket, true).map_err(option("SO_REUSEADDR"))?;
        // A socket that is bound to the group does not receive datagrams for other addresses with
        // the same port.
        net::bind(&socket, &interface.with_scope_id(group))
            .map_err(|error| SocketError::Bind { address: group, source: error.into() })?;
        let (any, index) = (Ipv4Addr::UNSPECIFIED, interface.index);
        let joined = match group.ip() {
            IpAddr::V4(ip) => {
                sockopt::set_ip_add_membership_with_ifindex(&socket, &ip, &any, index)
            }
            IpAddr::V6(ip) => sockopt::set_ipv6_add_membership(&socket, &ip, index),
        };
        joined.map_err(|error| SocketError::Join {
            group,
            interface: interface.name.clone(),
            source: error.into(),
        })?;
        Self::from_socket(socket, receive_bytes)
    }

    /// Makes datagrams to groups leave through an interface, limited to its network segment. On the
    /// loopback interface, other sockets of this machine receive them, too.
    pub fn set_group_interface(&self, interface: &str) -> Result<Interface, SocketError> {
        let interface = Interface::look_up(interface, &self.socket)?;
        // Only on the loopback interface do other processes of this machine receive the datagrams.
        // Elsewhere a sender would receive everything that it sends.
        let loops = interface.name == LOOPBACK;
        let (socket, index) = (&self.socket, interface.index);
        if self.local.is_ipv6() {
            sockopt::set_ipv6_multicast_if(socket, index)
                .map_err(|error| option_error("IPV6_MULTICAST_IF", error))?;
            sockopt::set_ipv6_multicast_hops(socket, 1)
                .map_err(|error| option_error("IPV6_MULTICAST_HOPS", error))?;
            sockopt::set_ipv6_multicast_loop(socket, loops)
                .map_err(|error| option_error("IPV6_MULTICAST_LOOP", error))?;
            return Ok(interface);
        }
        let any = Ipv4Addr::UNSPECIFIED;
        sockopt::set_ip_multicast_if_with_ifindex(socket, &any, &any, index)
            .map_err(|error| option_error("IP_MULTICAST_IF", error))?;
        sockopt::set_ip_multicast_ttl(socket, 1)
            .map_err(|error| option_error("IP_MULTICAST_TTL", error))?;
        sockopt::set_ip_multicast_loop(socket, loops)
            .map_err(|error| option_error("IP_MULTICAST_LOOP", error))?;
        Ok(interface)
    }

    fn from_socket(socket: OwnedFd, receive_bytes: usize) -> Result<Self, SocketError> {
        let option = |option| move |source| SocketError::Option { option, source };
        let buffered =
            ReceiveBufferSize::receive(&socket, receive_bytes).map_err(option("SO_RCVBUF"))?;
        let state = UdpSocketState::new((&socket).into());
        let state = state.map_err(option("IP_MTU_DISCOVER or IP_PKTINFO"))?;
        if state.may_fragment() {
            // [pkt-4] IP fragmentation would lose the whole datagram whenever one fragment is lost.
            let source = io::ErrorKind::Unsupported.into();
            return Err(option("IP_MTU_DISCOVER")(source));
        }
        let local =
            net::getsockname(&socket).map_err(|error| option_error("getsockname", error))?;
        let local =
            SocketAddr::try_from(local).map_err(|error| option_error("getsockname", error))?;
        Ok(Self {
            socket,
            state,
            local,
            buffered,
            receive_buffer: vec![0; RECEIVE_BUFFERS * COALESCED_BYTES_MAX],
        })
    }

    pub const fn local(&self) -> SocketAddr {
        self.local
    }

    /// Returns the size of the kernel's receive buffer.
    pub const fn buffered(&self) -> ReceiveBufferSize {
        self.buffered
    }

    /// Returns the number of datagrams that the kernel can split from one call, or 1 if it does not
    /// split.
    pub fn segments_max(&self) -> usize {
        self.state.max_gso_segments()
    }

    /// Sends datagrams that are stored back to back. All have the same length, except the last,
    /// which may be shorter. If the device cannot split them, they are sent one by one.
    pub fn send(
        &self,
        to: SocketAddr,
        bytes: &[u8],
        segment_bytes: usize,
    ) -> io::Result<SendResult> {
        let segment_bytes = segment_bytes.max(1);
        let mut rest = bytes;
        let (mut dropped, mut left) = (0, 0);
        while !rest.is_empty() {
            // Before it is split, the run is a single IP packet.
            let fit = (DATAGRAM_BYTES_MAX / segment_bytes).max(1);
            let at_once = self.state.max_gso_segments().clamp(1, fit) * segment_bytes;
            let (now, later) = rest.split_at(rest.len().min(at_once));
            let segments = now.len().div_ceil(segment_bytes);
            let transmit = Transmit {
                destination: to,
                ecn: None,
                contents: now,
                segment_size: (segments > 1).then_some(segment_bytes),
                src_ip: None,
            };
            match self.state.try_send((&self.socket).into(), &transmit) {
                Ok(()) => {}
                // The device turned out not to split. Send the same bytes again, one datagram at a
                // time.
                Err(_) if segments > 1 && self.state.max_gso_segments() == 1 => continue,
                Err(error) => match Errno::from_io_error(&error) {
                    Some(Errno::MSGSIZE) => return Ok(SendResult::TooLong),
                    Some(Errno::AGAIN) => return Ok(SendResult::Blocked(left)),
                    Some(Errno::NOBUFS) => dropped += segments,
                    _ => return Err(error),
                },
            }
            left += segments;
            rest = later;
        }
        Ok(if dropped == 0 { SendResult::All } else { SendResult::Dropped(dropped) })
    }

    /// Receives a batch of datagrams in one call, and passes each with its source to `take`.
    /// Returns the number of datagrams, or 0 if none are waiting.
    pub fn receive(&mut self, mut take: impl FnMut(SocketAddr, &[u8])) -> io::Result<usize> {
        let mut metas = [RecvMeta::default(); RECEIVE_BUFFERS];
        let mut chunks = self.receive_buffer.chunks_mut(COALESCED_BYTES_MAX);
        let mut buffers: [IoSliceMut<'_>; RECEIVE_BUFFERS] =
            std::array::from_fn(|_| IoSliceMut::new(chunks.next().expect("BATCH of them")));
        let received = self.state.recv((&self.socket).into(), &mut buffers, &mut metas);
        let messages = match received {
            Ok(messages) => messages,
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(0),
            // An ICMP error that concerns an earlier datagram, not this socket.
            Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => return Ok(0),
            Err(error) => return Err(error),
        };
        let mut datagrams = 0;
        for (meta, buffer) in metas.iter().zip(&buffers).take(messages) {
            let joined = &buffer[..meta.len.min(buffer.len())];
            for datagram in joined.chunks(meta.stride.max(1)) {
                take(meta.addr, datagram);
                datagrams += 1;
            }
        }
        Ok(datagrams)
    }
}

impl AsFd for Udp {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

fn open(address: SocketAddr) -> Result<OwnedFd, SocketError> {
    let family = match address {
        SocketAddr::V4(_) => AddressFamily::INET,
        SocketAddr::V6(_) => AddressFamily::INET6,
    };
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    net::socket_with(family, SocketType::DGRAM, flags, None)
        .map_err(|error| SocketError::Bind { address, source: error.into() })
}

fn option_error(option: &'static str, error: Errno) -> SocketError {
    SocketError::Option { option, source: error.into() }
}
