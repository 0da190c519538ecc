//! A UDP socket: a run of datagrams in one call, many arrivals in one.

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
    socket::{Buffered, Failed, Interface},
};

/// Buffers of one call that receives; each takes what the kernel joined of one sender. A call that
/// gives fewer datagrams left none behind.
pub const BATCH: usize = 8;
/// Loopback interface.
const LOOPBACK: &str = "lo";
/// Longest of these.
const JOINED_BYTES_MAX: usize = 65_536;

/// A socket that does not block.
pub struct Udp {
    socket: OwnedFd,
    state: UdpSocketState,
    local: SocketAddr,
    buffered: Buffered,
    arrivals: Vec<u8>,
}

/// Outcome of sending a run of datagrams.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sent {
    /// The kernel has all of them.
    All,
    /// This many had no room in the device: as good as lost, and a sign to slow down ([rate-2]).
    Dropped(usize),
    /// The socket is full behind this many: the others did not leave, and may when it has room.
    Blocked(usize),
    /// Longer than the path takes: nothing is cut ([pkt-4]). Smaller ones are needed.
    TooLong,
}

impl Udp {
    /// A socket for single nodes, and for sending to groups.
    pub fn bind(address: SocketAddr, receive_bytes: usize) -> Result<Self, Failed> {
        let socket = open(address)?;
        net::bind(&socket, &address)
            .map_err(|error| Failed::Bind { address, source: error.into() })?;
        Self::over(socket, receive_bytes)
    }

    /// A socket that hears one group on one interface. Several processes of a machine may.
    pub fn join(group: SocketAddr, interface: &str, receive_bytes: usize) -> Result<Self, Failed> {
        if !group.ip().is_multicast() {
            return Err(Failed::NoGroup(group));
        }
        let socket = open(group)?;
        let interface = Interface::named(interface, &socket)?;
        let option = |option| move |error: Errno| lacking(option, error);
        sockopt::set_socket_reuseaddr(&socket, true).map_err(option("SO_REUSEADDR"))?;
        // Bound to the group, it hears nothing that is for other addresses of the port.
        net::bind(&socket, &interface.scoped(group))
            .map_err(|error| Failed::Bind { address: group, source: error.into() })?;
        let (any, index) = (Ipv4Addr::UNSPECIFIED, interface.index);
        let joined = match group.ip() {
            IpAddr::V4(ip) => {
                sockopt::set_ip_add_membership_with_ifindex(&socket, &ip, &any, index)
            }
            IpAddr::V6(ip) => sockopt::set_ipv6_add_membership(&socket, &ip, index),
        };
        joined.map_err(|error| Failed::Join {
            group,
            interface: interface.name.clone(),
            source: error.into(),
        })?;
        Self::over(socket, receive_bytes)
    }

    /// From now on what is sent to a group leaves at this interface, goes no further than its
    /// segment, and comes back to other sockets of this machine.
    pub fn send_groups_at(&self, interface: &str) -> Result<Interface, Failed> {
        let interface = Interface::named(interface, &self.socket)?;
        // Other processes of this machine hear it at loopback only: elsewhere a sender would take
        // in all that it sends.
        let loops = interface.name == LOOPBACK;
        let (socket, index) = (&self.socket, interface.index);
        if self.local.is_ipv6() {
            sockopt::set_ipv6_multicast_if(socket, index)
                .map_err(|error| lacking("IPV6_MULTICAST_IF", error))?;
            sockopt::set_ipv6_multicast_hops(socket, 1)
                .map_err(|error| lacking("IPV6_MULTICAST_HOPS", error))?;
            sockopt::set_ipv6_multicast_loop(socket, loops)
                .map_err(|error| lacking("IPV6_MULTICAST_LOOP", error))?;
            return Ok(interface);
        }
        let any = Ipv4Addr::UNSPECIFIED;
        sockopt::set_ip_multicast_if_with_ifindex(socket, &any, &any, index)
            .map_err(|error| lacking("IP_MULTICAST_IF", error))?;
        sockopt::set_ip_multicast_ttl(socket, 1)
            .map_err(|error| lacking("IP_MULTICAST_TTL", error))?;
        sockopt::set_ip_multicast_loop(socket, loops)
            .map_err(|error| lacking("IP_MULTICAST_LOOP", error))?;
        Ok(interface)
    }

    fn over(socket: OwnedFd, receive_bytes: usize) -> Result<Self, Failed> {
        let option = |option| move |source| Failed::Option { option, source };
        let buffered = Buffered::receive(&socket, receive_bytes).map_err(option("SO_RCVBUF"))?;
        let state = UdpSocketState::new((&socket).into());
        let state = state.map_err(option("IP_MTU_DISCOVER or IP_PKTINFO"))?;
        if state.may_fragment() {
            // [pkt-4] A datagram that IP cuts is lost with each of its parts.
            let source = io::ErrorKind::Unsupported.into();
            return Err(option("IP_MTU_DISCOVER")(source));
        }
        let local = net::getsockname(&socket).map_err(|error| lacking("getsockname", error))?;
        let local = SocketAddr::try_from(local).map_err(|error| lacking("getsockname", error))?;
        Ok(Self { socket, state, local, buffered, arrivals: vec![0; BATCH * JOINED_BYTES_MAX] })
    }

    /// Returns its address.
    pub const fn local(&self) -> SocketAddr {
        self.local
    }

    /// Returns the size of the kernel's buffer.
    pub const fn buffered(&self) -> Buffered {
        self.buffered
    }

    /// Datagrams that the kernel cuts out of one call; 1 if it cuts none.
    pub fn segments_max(&self) -> usize {
        self.state.max_gso_segments()
    }

    /// Sends datagrams that lie one behind the other, all of one length but for the last, which may
    /// be shorter. A device that cannot cut them gets them one by one.
    pub fn send(&self, to: SocketAddr, bytes: &[u8], segment_bytes: usize) -> io::Result<Sent> {
        let segment_bytes = segment_bytes.max(1);
        let mut rest = bytes;
        let (mut dropped, mut left) = (0, 0);
        while !rest.is_empty() {
            // What is cut is one packet of IP until then.
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
                // Now it is known that the device cannot: the same bytes again, one by one.
                Err(_) if segments > 1 && self.state.max_gso_segments() == 1 => continue,
                Err(error) => match Errno::from_io_error(&error) {
                    Some(Errno::MSGSIZE) => return Ok(Sent::TooLong),
                    Some(Errno::AGAIN) => return Ok(Sent::Blocked(left)),
                    Some(Errno::NOBUFS) => dropped += segments,
                    _ => return Err(error),
                },
            }
            left += segments;
            rest = later;
        }
        Ok(if dropped == 0 { Sent::All } else { Sent::Dropped(dropped) })
    }

    /// Takes what arrived, as much as one call gives: each datagram, with its source, goes to
    /// `take`. How many there were; none: nothing waits.
    pub fn receive(&mut self, mut take: impl FnMut(SocketAddr, &[u8])) -> io::Result<usize> {
        let mut metas = [RecvMeta::default(); BATCH];
        let mut chunks = self.arrivals.chunks_mut(JOINED_BYTES_MAX);
        let mut buffers: [IoSliceMut<'_>; BATCH] =
            std::array::from_fn(|_| IoSliceMut::new(chunks.next().expect("BATCH of them")));
        let received = self.state.recv((&self.socket).into(), &mut buffers, &mut metas);
        let messages = match received {
            Ok(messages) => messages,
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(0),
            // What an earlier datagram met at its destination; nothing is wrong here.
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

fn open(address: SocketAddr) -> Result<OwnedFd, Failed> {
    let family = match address {
        SocketAddr::V4(_) => AddressFamily::INET,
        SocketAddr::V6(_) => AddressFamily::INET6,
    };
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    net::socket_with(family, SocketType::DGRAM, flags, None)
        .map_err(|error| Failed::Bind { address, source: error.into() })
}

fn lacking(option: &'static str, error: Errno) -> Failed {
    Failed::Option { option, source: error.into() }
}
