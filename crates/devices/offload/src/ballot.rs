//! Ballots packed into 64 bits: 16 for the era, 32 for the round, 16 for the node. Their numeric
//! order is that of ballots.

use quorate_core::{
    ballot::{Ballot, Era},
    node_id::NodeId,
};

/// A ballot in 64 bits. Zero means no ballot.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PackedBallot(pub u64);

impl PackedBallot {
    /// Absence of a ballot: the device is not armed, or the cell contains no vote.
    pub const NONE: Self = Self(0);

    /// Packs a ballot, or returns `None` if it does not fit. Such a ballot is never truncated, and
    /// its phase 2 is not offloaded ([offload-5]).
    pub fn pack(ballot: Ballot) -> Option<Self> {
        let era = u16::try_from(ballot.era.0).ok()?;
        let node = u16::try_from(ballot.node.0).ok()?;
        Some(Self(u64::from(era) << 48 | u64::from(ballot.round) << 16 | u64::from(node)))
    }

    pub fn unpack(self) -> Ballot {
        let [a, b, c, d, e, f, g, h] = self.0.to_be_bytes();
        Ballot {
            era: Era(u16::from_be_bytes([a, b]).into()),
            round: u32::from_be_bytes([c, d, e, f]),
            node: NodeId(u16::from_be_bytes([g, h]).into()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ballot(era: u32, round: u32, node: u32) -> Ballot {
        Ballot { era: Era(era), round, node: NodeId(node) }
    }

    #[test]
    fn packed_ballots_round_trip_and_keep_their_order() {
        let mut last = PackedBallot::NONE;
        for ballot in [
            ballot(0, 1, 1),
            ballot(0, 1, 0xffff),
            ballot(0, u32::MAX, 0),
            ballot(1, 0, 1),
            ballot(0xffff, u32::MAX, 0xffff),
        ] {
            let packed = PackedBallot::pack(ballot).unwrap();
            assert_eq!(packed.unpack(), ballot);
            assert!(packed > last, "{ballot}");
            last = packed;
        }
    }

    #[test]
    fn ballots_out_of_range_are_refused_not_wrapped() {
        for ballot in [ballot(0x1_0000, 1, 1), ballot(0, 1, 0x1_0000)] {
            assert_eq!(PackedBallot::pack(ballot), None, "{ballot}");
        }
    }
}
