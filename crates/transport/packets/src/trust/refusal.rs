//! Reasons for refusing datagrams, each with a count. On a healthy network all counts are zero,
//! except for ordinary losses.

use crate::{
    counted::{Counted, Reason},
    header::Malformed,
    trust::window::NotNew,
};

/// The reason that a datagram is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u8)]
pub enum Refusal {
    /// Not a datagram of this protocol.
    Malformed,
    /// Another version of the layout.
    Version,
    /// From another group, or another generation of this one.
    Group,
    /// This node's own datagram, returned by the group's loop or replayed.
    Own,
    /// From a node that no handshake has introduced.
    Stranger,
    /// From an older boot of its sender.
    OldBoot,
    /// From another boot than the handshake named; nothing in it is trusted.
    Boot,
    /// On a channel that the handshake did not name, or for the wrong audience.
    Channel,
    /// Made with a key that this node does not have, or with none where keys are used.
    Key,
    /// The tag is wrong: changed in transit, forged, or for another node.
    Tag,
    /// The number is below that of the handshake.
    Before,
    /// The number is too far below the newest one of its channel.
    Old,
    /// The number was already seen.
    Repeated,
    /// A repair of a datagram that is not missing.
    Unwanted,
    /// An answer to a probe that this node did not send, or that was already answered.
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

    /// Returns the name used in metrics.
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
            NotNew::Before => Self::Before,
            NotNew::Old => Self::Old,
            NotNew::Seen => Self::Repeated,
        }
    }
}

impl Reason for Refusal {
    const ALL: &'static [Self] = &Self::ALL;

    fn place(self) -> usize {
        self as usize
    }

    fn name(self) -> &'static str {
        self.name()
    }
}

/// Counts of refused datagrams, by reason.
pub type Refusals = Counted<Refusal>;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::counted::has_own_places;

    #[test]
    fn every_reason_has_its_own_place() {
        assert!(has_own_places::<Refusal>());
    }
}
