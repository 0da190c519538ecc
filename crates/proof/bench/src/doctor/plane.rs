//! Planes to examine: transports that carry messages between nodes.

use serde::Serialize;

/// A transport between nodes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Plane {
    /// TCP connection to each peer. Works everywhere.
    Tcp,
    /// UDP datagrams to each peer.
    Udp,
    /// Multicast datagrams to all peers.
    Multicast,
    /// Raw Ethernet frames to all peers, without IP.
    Ethernet,
    /// UDP datagrams that each member passes on to the next.
    Chain,
}

impl Plane {
    /// All planes, in the order of the report.
    pub const ALL: [Self; 5] = [Self::Tcp, Self::Udp, Self::Multicast, Self::Ethernet, Self::Chain];

    pub const fn name(self) -> &'static str {
        match self {
            Self::Tcp => "tcp",
            Self::Udp => "udp",
            Self::Multicast => "multicast",
            Self::Ethernet => "ethernet",
            Self::Chain => "chain",
        }
    }

    /// Returns whether nodes of this version support the plane.
    pub const fn is_supported(self) -> bool {
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
