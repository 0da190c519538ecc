//! What an operator wants of a plane.

use std::net::{Ipv4Addr, SocketAddr, SocketAddrV4};

use super::keys::KeyFile;

/// Where a group meets if nobody says another place: of the block for one organisation, which no router forwards.
pub const GROUP_ADDRESS: SocketAddr =
    SocketAddr::V4(SocketAddrV4::new(Ipv4Addr::new(239, 81, 84, 69), 7455));

/// How frames travel.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum Kind {
    /// By connections alone.
    #[default]
    Tcp,
    /// Control frames by datagrams to each peer; the rest by connections.
    Udp,
    /// The same, and what several peers get goes to an IP multicast group, once.
    Multicast,
    /// The same without IP: frames of our own EtherType on one interface.
    Ethernet,
}

impl Kind {
    /// All of them.
    pub const ALL: [Self; 4] = [Self::Tcp, Self::Udp, Self::Multicast, Self::Ethernet];

    /// On the command line.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Tcp => "tcp",
            Self::Udp => "udp",
            Self::Multicast => "multicast",
            Self::Ethernet => "ethernet",
        }
    }

    /// The one of this name.
    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| kind.name() == name)
    }
}

/// What a node is started with.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Wanted {
    /// How frames travel if this machine and the peers allow it.
    pub kind: Kind,
    /// Where datagrams leave and groups are joined; `None`: where the address for peers is.
    pub interface: Option<String>,
    /// The multicast group; `None`: [`GROUP_ADDRESS`].
    pub group: Option<SocketAddr>,
    /// The keys of datagrams ([pkt-3]).
    pub keys: Option<KeyFile>,
    /// Whoever can send datagrams here is trusted: no key is needed.
    pub trusted: bool,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn planes_have_names() {
        for kind in Kind::ALL {
            assert_eq!(Kind::named(kind.name()), Some(kind));
        }
        assert_eq!(Kind::named("carrier pigeon"), None);
        assert!(GROUP_ADDRESS.ip().is_multicast());
    }
}
