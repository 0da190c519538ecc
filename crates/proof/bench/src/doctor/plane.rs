//! Planes: ways to move messages between nodes.

use serde::Serialize;

/// A way to move messages between nodes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Plane {
    /// A connection to each peer; works anywhere.
    Tcp,
    /// Datagrams to each peer.
    Udp,
    /// Datagrams to all at once.
    Multicast,
    /// The same without IP.
    Ethernet,
    /// Datagrams from one member to the next.
    Chain,
}

impl Plane {
    /// All of them.
    pub const ALL: [Self; 5] = [Self::Tcp, Self::Udp, Self::Multicast, Self::Ethernet, Self::Chain];

    /// As in the JSON.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Tcp => "tcp",
            Self::Udp => "udp",
            Self::Multicast => "multicast",
            Self::Ethernet => "ethernet",
            Self::Chain => "chain",
        }
    }

    /// Returns whether nodes of this version can use it.
    pub const fn is_spoken(self) -> bool {
        match self {
            Self::Tcp | Self::Udp | Self::Multicast | Self::Ethernet | Self::Chain => true,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_those_of_the_json() {
        for plane in Plane::ALL {
            assert_eq!(serde_json::to_value(plane).unwrap(), plane.name());
        }
    }
}
