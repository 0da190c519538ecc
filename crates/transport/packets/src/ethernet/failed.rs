//! Errors from opening or using a raw socket, each with advice.

use std::io;

use crate::ethernet::Mac;

#[derive(Debug, thiserror::Error)]
pub enum EthernetError {
    #[error(
        "raw Ethernet needs the right CAP_NET_RAW ({source}): `setcap cap_net_raw+ep` on the program, or \
         AmbientCapabilities=CAP_NET_RAW in its unit"
    )]
    NoPermission { source: io::Error },
    #[error("there is no interface {name}: {source}; `ip link` lists them")]
    Interface { name: String, source: io::Error },
    /// The interface does not carry Ethernet frames.
    #[error(
        "{name} is no Ethernet interface: its hardware type is {hardware}, not 1; choose another"
    )]
    NotEthernet {
        name: String,
        /// Hardware type, as numbered by the system (`ARPHRD_…`).
        hardware: u16,
    },
    #[error("{0:#06x} is no EtherType: they begin at 0x0600; 0x88b5 and 0x88b6 are for local use")]
    InvalidEtherType(u16),
    #[error(
        "{0} is no group address: the lowest bit of its first byte is 1, and it is not all ones"
    )]
    NotMulticast(Mac),
    /// The multicast group cannot be joined.
    #[error("cannot join {group} on {interface}: {source}; net.core.optmem_max bounds the groups")]
    Join { group: Mac, interface: String, source: io::Error },
    /// The kernel lacks packet sockets or one of their options.
    #[error("the system lacks {option} for raw Ethernet: {source}; the kernel needs CONFIG_PACKET")]
    SocketOption { option: &'static str, source: io::Error },
    /// There is not enough memory for the smallest receive ring.
    #[error("there is no receive ring of {bytes} bytes: {source}; free memory")]
    Ring { bytes: usize, source: io::Error },
    /// The interface is down. Frames sent in this state are lost. The socket works again once the
    /// interface is up.
    #[error("{interface} is down: `ip link set {interface} up`, and the socket goes on")]
    InterfaceDown { interface: String },
    /// The interface was removed or moved to another namespace. The socket can no longer be used.
    #[error("{interface} is gone: when it is there again, a new socket is needed")]
    InterfaceGone { interface: String },
    /// Sending or receiving failed for another reason.
    #[error("raw Ethernet on {interface}: {source}")]
    Io { interface: String, source: io::Error },
}

impl EthernetError {
    /// Returns whether the socket works again, without being reopened, once the interface is up.
    pub const fn is_temporary(&self) -> bool {
        matches!(self, Self::InterfaceDown { .. })
    }
}
