//! Transports for datagrams: UDP, with or without a multicast group, or raw Ethernet.

use std::{
    io,
    net::{IpAddr, SocketAddr},
};

use quorate_packets::ethernet::{EthernetSocket, FrameRefusalCounts, Mac, ReceiveMode};
use quorate_packets::socket::{RECEIVE_BUFFERS, SendResult, Udp};

use crate::sources::{DatagramSocket, Interest, Source, Sources, Token};

/// Maximum number of receive calls per socket and turn; each returns several datagrams.
const RECEIVE_CALLS_MAX: usize = 16;

/// Open sockets of one transport.
pub(crate) enum Wire {
    /// UDP datagrams over IP.
    Udp {
        /// Socket that receives datagrams addressed to this node and sends all datagrams.
        unicast: Udp,
        /// Socket that receives from the multicast group, and its address; `None` without a group.
        group: Option<(Udp, SocketAddr)>,
    },
    /// Raw frames on one interface. The same socket receives from the group.
    Ethernet(EthernetSocket),
}

/// Datagram address of a receiver.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ReceiverAddress {
    Ip(SocketAddr),
    Mac(Mac),
}

/// Number of received datagrams, and number of system calls that received them.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct ReceivedCounts {
    pub(crate) calls: u64,
    pub(crate) datagrams: u64,
}

impl Wire {
    /// Group address on raw Ethernet, a locally administered multicast address.
    pub(crate) const ETHERNET_GROUP: Mac = Mac([0x03, b'Q', b'R', b'T', b'E', 1]);

    /// Registers the sockets for reading. Returns the token of the sending socket.
    pub(crate) fn register_sockets(&self, sources: &mut Sources) -> io::Result<Token> {
        let hears = |hears| Source::Datagrams(hears);
        match self {
            Self::Udp { unicast: one, group } => {
                if let Some((group, _)) = group {
                    sources.add(group, hears(DatagramSocket::Group), Interest::READ)?;
                }
                sources.add(one, hears(DatagramSocket::Unicast), Interest::READ)
            }
            Self::Ethernet(socket) => {
                for more in socket.xdp_sockets() {
                    sources.add(more, hears(DatagramSocket::Unicast), Interest::READ)?;
                }
                sources.add(socket, hears(DatagramSocket::Unicast), Interest::READ)
            }
        }
    }

    /// Starts or stops watching for the sending socket to become writable.
    pub(crate) fn watch_writable(
        &self,
        token: Token,
        write: bool,
        sources: &Sources,
    ) -> io::Result<()> {
        let interest = Interest { read: true, write };
        match self {
            Self::Udp { unicast: one, .. } => sources.change(one, token, interest),
            Self::Ethernet(socket) => sources.change(socket, token, interest),
        }
    }

    pub(crate) const fn has_group(&self) -> bool {
        match self {
            Self::Udp { group, .. } => group.is_some(),
            Self::Ethernet(_) => true,
        }
    }

    /// Returns the group's address; `None` if no group is in use.
    pub(crate) fn group(&self) -> Option<ReceiverAddress> {
        match self {
            Self::Udp { group, .. } => group.as_ref().map(|(_, place)| ReceiverAddress::Ip(*place)),
            Self::Ethernet(_) => Some(ReceiverAddress::Mac(Self::ETHERNET_GROUP)),
        }
    }

    /// Returns this node's datagram address as announced to peers. An unspecified IP address is
    /// left out, so that only the port is announced.
    pub(crate) fn address(&self) -> String {
        match self {
            Self::Udp { unicast: one, .. } => match one.local() {
                // Peers send datagrams to the address from which the connection comes.
                local if local.ip().is_unspecified() => format!(":{}", local.port()),
                local => local.to_string(),
            },
            Self::Ethernet(socket) => socket.local().to_string(),
        }
    }

    /// Returns the datagram address of a peer that announced `address` over a connection from
    /// `from`; `None` if it is unreachable.
    pub(crate) fn receiver_address(
        &self,
        address: &str,
        from: Option<IpAddr>,
    ) -> Option<ReceiverAddress> {
        match self {
            Self::Udp { .. } => match address.strip_prefix(':') {
                Some(port) => Some(ReceiverAddress::Ip(SocketAddr::new(from?, port.parse().ok()?))),
                None => address.parse().ok().map(ReceiverAddress::Ip),
            },
            Self::Ethernet(_) => {
                let mac: Mac = address.parse().ok()?;
                let one = !mac.is_multicast() && mac != Mac::BROADCAST;
                one.then_some(ReceiverAddress::Mac(mac))
            }
        }
    }

    /// Returns how raw frames are read; `None` with UDP.
    pub(crate) fn raw_frame_mode(&self) -> Option<ReceiveMode> {
        match self {
            Self::Udp { .. } => None,
            Self::Ethernet(socket) => Some(socket.mode()),
        }
    }

    /// Returns the counts of refused raw frames; `None` with UDP.
    pub(crate) fn refusals(&self) -> Option<&FrameRefusalCounts> {
        match self {
            Self::Udp { .. } => None,
            Self::Ethernet(socket) => Some(socket.refusal_counts()),
        }
    }

    /// Receives the datagrams that arrived at a socket, up to a limit.
    pub(crate) fn receive(
        &mut self,
        hears: DatagramSocket,
        mut take: impl FnMut(&[u8]),
    ) -> io::Result<ReceivedCounts> {
        let mut taken = ReceivedCounts::default();
        for _ in 0..RECEIVE_CALLS_MAX {
            taken.calls += 1;
            let (count, usual) = match self {
                Self::Udp { unicast: one, group } => {
                    let socket = match (hears, group) {
                        (DatagramSocket::Group, Some((group, _))) => group,
                        _ => one,
                    };
                    (socket.receive(|_, datagram| take(datagram))?, RECEIVE_BUFFERS)
                }
                Self::Ethernet(socket) => {
                    let received = socket.receive(|_, datagram| take(datagram));
                    (received.map_err(io::Error::other)?, 1)
                }
            };
            taken.datagrams += count as u64;
            // Datagrams that arrive later wake this node again.
            if count < usual {
                break;
            }
        }
        Ok(taken)
    }

    /// Sends the datagrams in `bytes`, each `segment_bytes` long.
    pub(crate) fn send(
        &mut self,
        to: ReceiverAddress,
        bytes: &[u8],
        segment_bytes: usize,
    ) -> io::Result<SendResult> {
        match (self, to) {
            (Self::Udp { unicast: one, .. }, ReceiverAddress::Ip(to)) => {
                one.send(to, bytes, segment_bytes)
            }
            (Self::Ethernet(socket), ReceiverAddress::Mac(to)) => {
                let sent = socket.send(to, bytes, segment_bytes);
                sent.map_err(io::Error::other)
            }
            _ => Err(io::ErrorKind::AddrNotAvailable.into()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn receiver_address_is_the_stated_one_or_that_of_the_connection() {
        let one = Udp::bind("127.0.0.1:0".parse().unwrap(), 4096).unwrap();
        let mut wire = Wire::Udp { unicast: one, group: None };
        let from = Some("10.0.0.9".parse().unwrap());
        let ip = |text: &str| Some(ReceiverAddress::Ip(text.parse().unwrap()));
        assert_eq!(wire.receiver_address("10.0.0.1:7451", from), ip("10.0.0.1:7451"));
        assert_eq!(wire.receiver_address(":7451", from), ip("10.0.0.9:7451"));
        assert_eq!(wire.receiver_address("[::1]:1", None), ip("[::1]:1"));
        for bad in ["", ":", ":x", "host:1", ":99999", "10.0.0.1", "02:00:00:00:00:01"] {
            assert_eq!(wire.receiver_address(bad, from), None, "{bad}");
        }
        assert_eq!(wire.receiver_address(":1", None), None);
        assert!(Wire::ETHERNET_GROUP.is_multicast());
        let mac = ReceiverAddress::Mac(Mac([2, 0, 0, 0, 0, 1]));
        assert!(wire.send(mac, b"x", 1).is_err(), "a place of another wire");
    }
}
