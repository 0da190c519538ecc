//! Reasons for refusing datagrams, each with a counter. On a healthy network, only the counters of
//! ordinary losses increase.

use crate::{
    counted::{Reason, ReasonCounts},
    header::Malformed,
    trust::window::NotNew,
};

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u8)]
pub enum Refusal {
    /// The bytes are not a datagram of this protocol.
    Malformed,
    /// The datagram has another format version.
    Version,
    /// The datagram belongs to another group of nodes, or to another generation of this one.
    Group,
    /// The datagram is this node's own, looped back by multicast or replayed.
    Own,
    /// No handshake has introduced the sender.
    Stranger,
    OldBoot,
    /// The datagram is from a boot that no handshake has named, so it is not trusted.
    Boot,
    /// The handshake did not name the channel, or the datagram has the wrong audience.
    Channel,
    /// The datagram was sealed with a key that this node does not have, or without a key while keys
    /// are in use.
    Key,
    /// The tag is wrong: the datagram was changed in transit, forged, or is for another node.
    Tag,
    /// The number is below the first one that the handshake named.
    Before,
    /// The number is too far below the newest one of its channel.
    Old,
    Repeated,
    /// The datagram is a repair of one that is not missing.
    Unwanted,
    /// The datagram answers a probe that this node did not send or that was already answered.
    Unasked,
}

impl Refusal {
    pub const ALL: [Self; 15] = [
        Self::Malformed,
        Self::Version,
        Self::Group,
        Self::Own,
        Self::Stranger,
        Self::OldBoot,
        Self::Boot,
        Self::Channel,
        Self::Key,
        Self::Tag,
        Self::Before,
        Self::Old,
        Self::Repeated,
        Self::Unwanted,
        Self::Unasked,
    ];

    pub const fn name(self) -> &'static str {
        match self {
            Self::Malformed => "malformed",
            Self::Version => "version",
            Self::Group => "group",
            Self::Own => "own",
            Self::Stranger => "stranger",
            Self::OldBoot => "old-boot",
            Self::Boot => "boot",
            Self::Channel => "channel",
            Self::Key => "key",
            Self::Tag => "tag",
            Self::Before => "before",
            Self::Old => "old",
            Self::Repeated => "repeated",
            Self::Unwanted => "unwanted",
            Self::Unasked => "unasked",
        }
    }
}

impl From<Malformed> for Refusal {
    fn from(malformed: Malformed) -> Self {
        match malformed {
            Malformed::Version(_) => Self::Version,
            Malformed::Short | Malformed::Kind(_) | Malformed::Field(_) => Self::Malformed,
        }
    }
}

impl From<NotNew> for Refusal {
    fn from(not_new: NotNew) -> Self {
        match not_new {
            NotNew::BeforeHandshake => Self::Before,
            NotNew::TooOld => Self::Old,
            NotNew::Seen => Self::Repeated,
        }
    }
}

impl Reason for Refusal {
    const ALL: &'static [Self] = &Self::ALL;

    fn index(self) -> usize {
        self as usize
    }

    fn name(self) -> &'static str {
        self.name()
    }
}

pub type Refusals = ReasonCounts<Refusal>;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::counted::has_unique_indexes;

    #[test]
    fn every_reason_has_its_own_index() {
        assert!(has_unique_indexes::<Refusal>());
    }
}
