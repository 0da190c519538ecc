//! Reasons that a socket cannot be opened or used, each with advice.

use std::io;

use crate::ethernet::Mac;

/// An error of a raw socket.
#[derive(Debug, thiserror::Error)]
pub enum Failed {
    /// The process lacks the capability for such a socket.
    #[error(
        "raw Ethernet needs the right CAP_NET_RAW ({source}): `setcap cap_net_raw+ep` on the program, or \
         AmbientCapabilities=CAP_NET_RAW in its unit"
    )]
    Rights { source: io::Error },
    /// No such interface.
    #[error("there is no interface {name}: {source}; `ip link` lists them")]
    Interface {
        /// Name as passed in.
        name: String,
        source: io::Error,
    },
    /// The interface has frames of another kind.
    #[error(
        "{name} is no Ethernet interface: its hardware type is {hardware}, not 1; choose another"
    )]
    NotEthernet {
        name: String,
        /// Hardware type, as the system numbers them (`ARPHRD_…`).
        hardware: u16,
    },
    /// The number is not an EtherType.
    #[error("{0:#06x} is no EtherType: they begin at 0x0600; 0x88b5 and 0x88b6 are for local use")]
    NoEtherType(u16),
    /// The address is not a group.
    #[error(
        "{0} is no group address: the lowest bit of its first byte is 1, and it is not all ones"
    )]
    NoGroup(Mac),
    /// The group cannot be joined.
    #[error("cannot join {group} on {interface}: {source}; net.core.optmem_max bounds the groups")]
    Join {
        group: Mac,
        /// Name of the interface.
        interface: String,
        source: io::Error,
    },
    /// The kernel lacks packet sockets, or a part of them.
    #[error("the system lacks {option} for raw Ethernet: {source}; the kernel needs CONFIG_PACKET")]
    Option {
        /// Name of the missing part.
        option: &'static str,
        source: io::Error,
    },
    /// There is not enough memory for the smallest receive ring.
    #[error("there is no receive ring of {bytes} bytes: {source}; free memory")]
    Ring {
        /// Size of the smallest ring.
        bytes: usize,
        source: io::Error,
    },
    /// The interface is down. Frames sent meanwhile are lost; the socket works again when the
    /// interface is up.
    #[error("{interface} is down: `ip link set {interface} up`, and the socket goes on")]
    Down {
        /// Name of the interface.
        interface: String,
    },
    /// The interface was removed, or moved to another namespace. The socket can no longer be used.
    #[error("{interface} is gone: when it is there again, a new socket is needed")]
    Gone {
        /// Name of the interface.
        interface: String,
    },
    /// Sending or receiving failed for another reason.
    #[error("raw Ethernet on {interface}: {source}")]
    Io {
        /// Name of the interface.
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
