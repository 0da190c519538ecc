//! UDP sockets for an endpoint: many datagrams per call, multicast on one interface, no IP
//! fragmentation.
//!
//! [`udp`] is a socket, [`interface`] the interface on which a multicast group is joined, and
//! [`buffer`] the size of the kernel's buffer. None of them interprets datagrams or reads a clock.
//! [`reach`] tests whether a group reaches its members, for `quorate doctor`.
//!
//! `quinn-udp` provides segmentation (UDP_SEGMENT), coalescing (UDP_GRO), `recvmmsg` and the
//! don't-fragment option. Unlike `rustix`, it implements the control messages for these, and it
//! falls back if a device cannot segment. Multicast and buffer sizes use `rustix`, as `quinn-udp`
//! does not cover them.

pub mod buffer;
pub mod interface;
pub mod reach;
pub mod udp;

use std::{io, net::SocketAddr};

pub use buffer::ReceiveBufferSize;
pub use interface::Interface;
pub use udp::{RECEIVE_BUFFERS, SendResult, Udp};

#[derive(Debug, thiserror::Error)]
pub enum SocketError {
    #[error("there is no interface {name}: {source}")]
    Interface { name: String, source: io::Error },
    /// The address is in use, or is not an address of this machine.
    #[error("cannot listen for datagrams at {address}: {source}")]
    Bind { address: SocketAddr, source: io::Error },
    /// The address is not a multicast group.
    #[error(
        "{0} is no multicast group: they are 224.0.0.0 to 239.255.255.255, and those of ff00::/8"
    )]
    NotMulticast(SocketAddr),
    /// The multicast group cannot be joined.
    #[error(
        "cannot join {group} on {interface}: {source}; net.ipv4.igmp_max_memberships bounds the groups"
    )]
    Join { group: SocketAddr, interface: String, source: io::Error },
    /// The socket cannot send to the multicast group through the interface.
    #[error("cannot send to {group} from {interface}: {source}")]
    Send { group: SocketAddr, interface: String, source: io::Error },
    /// The kernel does not support a socket option.
    #[error("the system lacks {option} for datagrams: {source}")]
    Option { option: &'static str, source: io::Error },
}
