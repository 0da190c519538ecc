//! Settings of a packet plane, as given by an operator.

use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV4, SocketAddrV6};

use quorate_replica::status::PlaneKind;

use super::keys::KeyFile;

/// Default multicast group, in the organization-local block that no router forwards.
pub const GROUP_ADDRESS: SocketAddr =
    SocketAddr::V4(SocketAddrV4::new(Ipv4Addr::new(239, 81, 84, 69), 7455));

/// Default multicast group if peers have IPv6 addresses: an unassigned site-local group. Routers do
/// not forward it unless configured to.
pub const GROUP_ADDRESS_V6: SocketAddr = SocketAddr::V6(SocketAddrV6::new(
    Ipv6Addr::new(0xff15, 0, 0, 0, 0, 0, 0x5152, 0x5445),
    7455,
    0,
    0,
));

/// Operator's settings for a packet plane.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PlaneSettings {
    /// Transport for frames, if this machine and its peers support it.
    pub plane_kind: PlaneKind,
    /// Interface for datagrams and multicast; `None` for the interface that has the peer address.
    pub interface: Option<String>,
    /// The multicast group; `None` for [`GROUP_ADDRESS`].
    pub group: Option<SocketAddr>,
    /// The datagram keys; `None` to send without one ([pkt-3]).
    pub keys: Option<KeyFile>,
    /// Every sender that can reach this network is trusted, so no key is needed.
    pub trusted: bool,
    /// Capacity of the interface in megabits per second, if it does not report one.
    pub megabits: Option<u64>,
    /// Size in bytes of the kernel's receive buffer for datagrams; `None` for 16 MiB per socket.
    pub receive_bytes: Option<usize>,
    /// Method of reading and writing raw frames on the interface.
    pub frames: FrameAccess,
    /// Number of received datagrams to drop out of every 10 000, to simulate loss in experiments.
    pub drops_per_10000: u32,
}

/// Method of reading and writing raw frames on the interface ([`PlaneKind::Ethernet`]).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum FrameAccess {
    /// AF_XDP if the device writes directly to the process's memory, otherwise packet sockets.
    Auto,
    /// Packet sockets, which work on every interface.
    #[default]
    Packet,
    /// AF_XDP if available, even if the kernel copies frames. Otherwise packet sockets.
    Xdp,
}

impl FrameAccess {
    pub fn from_name(name: &str) -> Option<Self> {
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
    fn default_groups_are_multicast_addresses() {
        assert!(GROUP_ADDRESS.ip().is_multicast() && GROUP_ADDRESS_V6.ip().is_multicast());
    }
}
