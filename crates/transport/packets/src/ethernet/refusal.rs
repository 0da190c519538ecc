//! Reasons for refusing frames, each with a counter.

use crate::counted::{Reason, ReasonCounts};

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u8)]
pub enum FrameRefusal {
    /// The kernel's description of the frame is invalid. This never happens on a healthy system.
    Slot,
    /// The frame is longer than a slot: the sender's MTU is larger than this interface's was at
    /// [`bind`](crate::ethernet::EthernetSocket::bind).
    Cut,
    /// The frame belongs to another VLAN.
    Vlan,
    /// The frame is for another node, for all nodes, or for a multicast group that was not joined.
    Elsewhere,
    EtherType,
    /// The frame is too short for its header.
    Short,
    /// The length field is zero, or larger than the frame.
    Length,
}

impl FrameRefusal {
    pub const ALL: [Self; 7] = [
        Self::Slot,
        Self::Cut,
        Self::Vlan,
        Self::Elsewhere,
        Self::EtherType,
        Self::Short,
        Self::Length,
    ];

    pub const fn name(self) -> &'static str {
        match self {
            Self::Slot => "slot",
            Self::Cut => "cut",
            Self::Vlan => "vlan",
            Self::Elsewhere => "elsewhere",
            Self::EtherType => "ether-type",
            Self::Short => "short",
            Self::Length => "length",
        }
    }
}

impl Reason for FrameRefusal {
    const ALL: &'static [Self] = &Self::ALL;

    fn index(self) -> usize {
        self as usize
    }

    fn name(self) -> &'static str {
        self.name()
    }
}

pub type FrameRefusalCounts = ReasonCounts<FrameRefusal>;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::counted::has_unique_indexes;

    #[test]
    fn every_reason_has_its_own_index() {
        assert!(has_unique_indexes::<FrameRefusal>());
    }
}
