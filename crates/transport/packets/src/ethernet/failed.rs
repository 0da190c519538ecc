//! Why there is no socket, or why it cannot go on; each says what to do.

use std::io;

use crate::ethernet::Mac;

/// An error of a raw socket.
#[derive(Debug, thiserror::Error)]
pub enum Failed {
    /// The process may not have such a socket.
    #[error(
        "raw Ethernet needs the right CAP_NET_RAW ({source}): `setcap cap_net_raw+ep` on the program, or \
         AmbientCapabilities=CAP_NET_RAW in its unit"
    )]
    Rights { source: io::Error },
    /// No such interface.
    #[error("there is no interface {name}: {source}; `ip link` lists them")]
    Interface {
        /// As it was given.
        name: String,
        source: io::Error,
    },
    /// The interface has frames of another kind.
    #[error(
        "{name} is no Ethernet interface: its hardware type is {hardware}, not 1; choose another"
    )]
    NotEthernet {
        /// Its name.
        name: String,
        /// As the system numbers them (`ARPHRD_…`).
        hardware: u16,
    },
    /// The number is none of an EtherType.
    #[error("{0:#06x} is no EtherType: they begin at 0x0600; 0x88b5 and 0x88b6 are for local use")]
    NoEtherType(u16),
    /// The address is no group.
    #[error(
        "{0} is no group address: the lowest bit of its first byte is 1, and it is not all ones"
    )]
    NoGroup(Mac),
    /// The group cannot be joined.
    #[error("cannot join {group} on {interface}: {source}; net.core.optmem_max bounds the groups")]
    Join {
        /// Which group.
        group: Mac,
        /// On which interface.
        interface: String,
        source: io::Error,
    },
    /// The kernel lacks packet sockets, or a part of them.
    #[error("the system lacks {option} for raw Ethernet: {source}; the kernel needs CONFIG_PACKET")]
    Option {
        /// Which part.
        option: &'static str,
        source: io::Error,
    },
    /// There is no memory for the smallest receive ring.
    #[error("there is no receive ring of {bytes} bytes: {source}; free memory")]
    Ring {
        /// Bytes of the smallest ring.
        bytes: usize,
        source: io::Error,
    },
    /// The interface is down. What is sent meanwhile is lost; the socket goes on when it is up
    /// again.
    #[error("{interface} is down: `ip link set {interface} up`, and the socket goes on")]
    Down {
        /// Its name.
        interface: String,
    },
    /// The interface was removed, or moved to another namespace. The socket is of no more use.
    #[error("{interface} is gone: when it is there again, a new socket is needed")]
    Gone {
        /// Its name.
        interface: String,
    },
    /// Sending or receiving failed otherwise.
    #[error("raw Ethernet on {interface}: {source}")]
    Io {
        /// Its name.
        interface: String,
        source: io::Error,
    },
}

impl Failed {
    /// Returns whether the socket recovers by itself when the interface is up again.
    pub const fn passes(&self) -> bool {
        matches!(self, Self::Down { .. })
    }
}
