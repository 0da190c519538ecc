//! Quorum rules as data, checked to intersect ([era-4], features G8).
//!
//! Sets of members are bit masks over the positions in a configuration's member list, so a check of
//! all subsets is a loop over integers (n ≤ 16).

use core::fmt;

/// A set of members of a configuration, by position in its member list.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct MemberSet(pub u16);

impl MemberSet {
    /// Returns this set with the member at `index` added.
    pub const fn with(self, index: usize) -> Self {
        Self(self.0 | 1 << index)
    }

    /// Returns whether the set contains the member at `index`.
    pub const fn has(self, index: usize) -> bool {
        self.0 & (1 << index) != 0
    }
}

/// Rule that determines which members form a quorum.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum QuorumRule {
    /// A quorum has more than half of the weight, in both phases. Consecutive configurations
    /// intersect if weights change in steps of one.
    #[default]
    Majority,
    /// A quorum has at least a given weight. Only phase-1 and phase-2 quorums must intersect each
    /// other (Flexible Paxos).
    Flexible {
        /// Minimum weight of a phase-1 quorum.
        phase1: u32,
        /// Minimum weight of a phase-2 quorum.
        phase2: u32,
    },
    /// Members form rows of `columns` members, in list order. A phase-1 quorum includes a whole
    /// row, a phase-2 quorum one member of every row.
    Grid {
        /// Number of members per row. It must divide the number of members.
        columns: u8,
    },
}

/// Text form of a rule: `majority`, `flexible:Q1,Q2` or `grid:COLUMNS`.
impl QuorumRule {
    /// Parses `majority` or `flexible:Q1,Q2`.
    pub fn parse(text: &str) -> Option<Self> {
        if text == "majority" {
            return Some(Self::Majority);
        }
        let (phase1, phase2) = text.strip_prefix("flexible:")?.split_once(',')?;
        let (phase1, phase2) = (phase1.parse().ok()?, phase2.parse().ok()?);
        (phase1 > 0 && phase2 > 0).then_some(Self::Flexible { phase1, phase2 })
    }
}

impl fmt::Display for QuorumRule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Majority => f.write_str("majority"),
            Self::Flexible { phase1, phase2 } => write!(f, "flexible:{phase1},{phase2}"),
            Self::Grid { columns } => write!(f, "grid:{columns}"),
        }
    }
}

/// Phase of the protocol that a quorum is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Phase {
    /// Phase 1, in which promises are made.
    One,
    /// Phase 2, in which votes are cast.
    Two,
}

/// Members that voted, as the input to a quorum rule.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct VotingMembers {
    /// Members that voted.
    pub set: MemberSet,
    /// Total weight of the members that voted.
    pub weight: u64,
    /// Total weight of all members of the configuration.
    pub weight_all: u64,
    /// Number of members of the configuration.
    pub members: usize,
}

impl QuorumRule {
    /// [era-4] Returns the equivalent rule for weights multiplied by `factor`; `None` on overflow.
    pub fn multiplied(self, factor: u32) -> Option<Self> {
        self.scaled(|threshold| threshold.checked_mul(factor))
    }

    /// Returns the equivalent rule for weights divided by `factor`; `None` if a threshold is not
    /// divisible.
    pub fn divided(self, factor: u32) -> Option<Self> {
        let whole = |threshold: &u32| factor > 0 && threshold.is_multiple_of(factor);
        self.scaled(|threshold| Some(threshold).filter(whole).map(|some| some / factor))
    }

    fn scaled(self, by: impl Fn(u32) -> Option<u32>) -> Option<Self> {
        Some(match self {
            Self::Flexible { phase1, phase2 } => {
                Self::Flexible { phase1: by(phase1)?, phase2: by(phase2)? }
            }
            Self::Majority | Self::Grid { .. } => self,
        })
    }

    /// Encodes the rule as its kind and two numbers.
    pub const fn to_words(self) -> [u32; 3] {
        match self {
            Self::Majority => [0, 0, 0],
            Self::Flexible { phase1, phase2 } => [1, phase1, phase2],
            Self::Grid { columns } => [2, columns as u32, 0],
        }
    }

    /// Decodes a rule from [`Self::to_words`]; `None` if the kind is unknown.
    pub fn from_words(words: [u32; 3]) -> Option<Self> {
        match words {
            [0, 0, 0] => Some(Self::Majority),
            [1, phase1, phase2] => Some(Self::Flexible { phase1, phase2 }),
            [2, columns, 0] => Some(Self::Grid { columns: u8::try_from(columns).ok()? }),
            _ => None,
        }
    }

    /// Returns whether these votes form a quorum for `phase`.
    pub fn satisfied(self, phase: Phase, voting: VotingMembers) -> bool {
        let VotingMembers { set, weight, weight_all, members } = voting;
        match self {
            Self::Majority => weight * 2 > weight_all,
            Self::Flexible { phase1, phase2 } => {
                let need = if phase == Phase::One { phase1 } else { phase2 };
                weight >= u64::from(need)
            }
            Self::Grid { columns } => {
                let columns = usize::from(columns.max(1));
                let mut rows = (0..members).step_by(columns);
                let row = |start: usize| start..(start + columns).min(members);
                match phase {
                    Phase::One => rows.any(|start| row(start).all(|index| set.has(index))),
                    Phase::Two => rows.all(|start| row(start).any(|index| set.has(index))),
                }
            }
        }
    }
}
