//! Why frames are not taken, counted by reason.

/// Why a frame is not taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u8)]
pub enum Refusal {
    /// What the kernel says of the frame cannot be; never in health.
    Slot,
    /// It was longer than a slot: somebody's MTU is larger than this interface's was at [`bind`](crate::Ethernet::bind).
    Cut,
    /// It is for another VLAN.
    Vlan,
    /// It is for somebody else, for everybody, or for a group that was not joined.
    Elsewhere,
    /// It is of another EtherType.
    EtherType,
    /// It is too short for its header.
    Short,
    /// The length that it names is none, or more than it has.
    Length,
}

impl Refusal {
    /// All of them.
    pub const ALL: [Self; 7] = [
        Self::Slot,
        Self::Cut,
        Self::Vlan,
        Self::Elsewhere,
        Self::EtherType,
        Self::Short,
        Self::Length,
    ];

    /// For metrics.
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

/// How many frames were not taken, by reason.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Refusals([u64; Refusal::ALL.len()]);

impl Refusals {
    /// One more.
    pub(crate) fn count(&mut self, refusal: Refusal) {
        self.0[refusal as usize] += 1;
    }

    /// How many of this reason.
    pub const fn of(&self, refusal: Refusal) -> u64 {
        self.0[refusal as usize]
    }

    /// All reasons.
    pub fn iter(&self) -> impl Iterator<Item = (Refusal, u64)> + '_ {
        Refusal::ALL.into_iter().zip(self.0)
    }

    /// Of all reasons.
    pub fn sum(&self) -> u64 {
        self.0.iter().sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_reason_has_its_own_place() {
        for (at, refusal) in Refusal::ALL.into_iter().enumerate() {
            assert_eq!(refusal as usize, at, "{}", refusal.name());
        }
    }
}
