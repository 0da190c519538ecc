//! Settings of a plane, as an operator gives them.

use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV4, SocketAddrV6};

use quorate_replica::status::Way;

use super::keys::KeyFile;

/// Default multicast group: of the block for one organisation, which no router forwards.
pub const GROUP_ADDRESS: SocketAddr =
    SocketAddr::V4(SocketAddrV4::new(Ipv4Addr::new(239, 81, 84, 69), 7455));

/// The same for peers with IPv6 addresses: a site-local group that is not in use elsewhere, which
/// no router forwards unless configured to.
pub const GROUP_ADDRESS_V6: SocketAddr = SocketAddr::V6(SocketAddrV6::new(
    Ipv6Addr::new(0xff15, 0, 0, 0, 0, 0, 0x5152, 0x5445),
    7455,
    0,
    0,
));

/// Settings that a node is started with.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Wanted {
    /// Transport of frames, if this machine and the peers allow it.
    pub way: Way,
    /// Interface where datagrams leave and groups are joined; `None`: that of the address for
    /// peers.
    pub interface: Option<String>,
    /// The multicast group; `None`: [`GROUP_ADDRESS`].
    pub group: Option<SocketAddr>,
    /// The keys of datagrams ([pkt-3]).
    pub keys: Option<KeyFile>,
    /// All senders that reach this network are trusted: no key is needed.
    pub trusted: bool,
    /// Capacity of the interface in megabits per second, if it does not report one.
    pub megabits: Option<u64>,
    /// Receive buffer of the kernel for datagrams; `None`: 16 MiB of each socket.
    pub receive_bytes: Option<usize>,
    /// Access to raw frames of the interface.
    pub frames: Frames,
    /// Received datagrams treated as lost, of 10 000: for experiments.
    pub lost_of_10000: u32,
}

/// Access to raw frames of the interface ([`Way::Ethernet`]).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Frames {
    /// By AF_XDP where the device writes them where they are read, else by packet sockets.
    Auto,
    /// By packet sockets.
    #[default]
    Packet,
    /// By AF_XDP, also where the kernel copies them, else by packet sockets.
    Xdp,
}

impl Frames {
    /// Returns the one of this name.
    pub fn named(name: &str) -> Option<Self> {
        match name {
            "auto" => Some(Self::Auto),
            "packet" => Some(Self::Packet),
            "xdp" => Some(Self::Xdp),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_usual_group_is_one() {
        assert!(GROUP_ADDRESS.ip().is_multicast() && GROUP_ADDRESS_V6.ip().is_multicast());
    }
}
