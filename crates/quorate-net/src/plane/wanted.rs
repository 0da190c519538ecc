//! What an operator wants of a plane.

use std::net::{Ipv4Addr, SocketAddr, SocketAddrV4};

use quorate_replica::status::Way;

use super::keys::KeyFile;

/// Where a group meets if nobody says another place: of the block for one organisation, which no router forwards.
pub const GROUP_ADDRESS: SocketAddr =
    SocketAddr::V4(SocketAddrV4::new(Ipv4Addr::new(239, 81, 84, 69), 7455));

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
    /// Of 10 000 datagrams that arrive, so many are taken for lost: for experiments.
    pub lost_of_10000: u32,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_usual_group_is_one() {
        assert!(GROUP_ADDRESS.ip().is_multicast());
    }
}
