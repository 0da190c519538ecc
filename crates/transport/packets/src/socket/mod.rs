//! UDP sockets for an endpoint: many datagrams in a call, multicast on one interface, nothing cut
//! by IP.
//!
//! [`udp`] is a socket, [`interface`] where a group is joined, [`buffer`] how much the kernel
//! keeps. They know nothing of what datagrams say, and no clock. [`reach`] is for `quorate doctor`:
//! does a group reach anybody?
//!
//! Segmentation (UDP_SEGMENT), coalescing (UDP_GRO), `recvmmsg` and the ban of fragments are
//! `quinn-udp`'s: it keeps the control messages, which `rustix` does not have, and falls back where
//! a device cannot cut. What it does not do, multicast and buffers above the usual bound, is done
//! with `rustix`.

pub mod buffer;
pub mod interface;
pub mod reach;
pub mod udp;

use std::{io, net::SocketAddr};

pub use buffer::Buffered;
pub use interface::Interface;
pub use udp::{BATCH, Sent, Udp};

/// Why there is no socket.
#[derive(Debug, thiserror::Error)]
pub enum Failed {
    /// No such interface.
    #[error("there is no interface {name}: {source}")]
    Interface {
        /// As it was given.
        name: String,
        source: io::Error,
    },
    /// The address is in use, or not this machine's.
    #[error("cannot listen for datagrams at {address}: {source}")]
    Bind {
        /// Where.
        address: SocketAddr,
        source: io::Error,
    },
    /// The address is no group.
    #[error(
        "{0} is no multicast group: they are 224.0.0.0 to 239.255.255.255, and those of ff00::/8"
    )]
    NoGroup(SocketAddr),
    /// The group cannot be joined.
    #[error(
        "cannot join {group} on {interface}: {source}; net.ipv4.igmp_max_memberships bounds the groups"
    )]
    Join {
        /// Which group.
        group: SocketAddr,
        /// On which interface.
        interface: String,
        source: io::Error,
    },
    /// Nothing can be sent there.
    #[error("cannot send to {group} from {interface}: {source}")]
    Send {
        /// Which group.
        group: SocketAddr,
        /// From which interface.
        interface: String,
        source: io::Error,
    },
    /// An option is missing.
    #[error("the system lacks {option} for datagrams: {source}")]
    Option {
        /// Which.
        option: &'static str,
        source: io::Error,
    },
}
