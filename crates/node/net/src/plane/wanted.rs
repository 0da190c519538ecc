//! What an operator wants of a plane.

use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV4, SocketAddrV6};

use quorate_replica::status::Way;

use super::keys::KeyFile;

/// Where a group meets if nobody says another place: of the block for one organisation, which no
/// router forwards.
pub const GROUP_ADDRESS: SocketAddr =
    SocketAddr::V4(SocketAddrV4::new(Ipv4Addr::new(239, 81, 84, 69), 7455));

/// The same where peers have addresses of IPv6: a group of a site that nobody else has, which no
/// router forwards without being told to.
pub const GROUP_ADDRESS_V6: SocketAddr = SocketAddr::V6(SocketAddrV6::new(
    Ipv6Addr::new(0xff15, 0, 0, 0, 0, 0, 0x5152, 0x5445),
    7455,
    0,
    0,
));

/// What a node is started with.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Wanted {
    /// How frames travel if this machine and the peers allow it.
    pub way: Way,
    /// Where datagrams leave and groups are joined; `None`: where the address for peers is.
    pub interface: Option<String>,
    /// The multicast group; `None`: [`GROUP_ADDRESS`].
    pub group: Option<SocketAddr>,
    /// The keys of datagrams ([pkt-3]).
    pub keys: Option<KeyFile>,
    /// Whoever can send datagrams here is trusted: no key is needed.
    pub trusted: bool,
    /// What the interface carries, in megabits per second, if it does not say so itself.
    pub megabits: Option<u64>,
    /// What the kernel shall keep of datagrams that were not read yet; `None`: 16 MiB of each
    /// socket.
    pub receive_bytes: Option<usize>,
    /// How raw frames are to get from the interface.
    pub frames: Frames,
    /// Of 10 000 datagrams that arrive, so many are taken for lost: for experiments.
    pub lost_of_10000: u32,
}

/// How raw frames are to get from the interface ([`Way::Ethernet`]).
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
    /// The one of this name.
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
