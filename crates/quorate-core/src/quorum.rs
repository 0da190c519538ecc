//! What counts as enough: quorum rules as data, checked to meet ([era-4], features G8).
//!
//! Sets of members are bit masks over the positions in a configuration's member list, so a check
//! over all subsets is a loop over integers (n ≤ 16).

/// Members of a configuration, by position in its list.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct MemberSet(pub u16);

impl MemberSet {
    /// This set and the member at `index`.
    pub const fn with(self, index: usize) -> Self {
        Self(self.0 | 1 << index)
    }

    /// Whether the member at `index` is inside.
    pub const fn has(self, index: usize) -> bool {
        self.0 & (1 << index) != 0
    }
}

/// How members combine to a quorum.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum QuorumRule {
    /// More than half of the weight, in both phases. Weight steps of one keep it intersecting.
    #[default]
    Majority,
    /// At least this much weight; phase 1 and phase 2 need only meet each other (Flexible Paxos).
    Flexible {
        /// Weight for a promise quorum.
        phase1: u32,
        /// Weight for a vote quorum.
        phase2: u32,
    },
    /// Members in rows of `columns`, in list order: phase 1 needs a whole row, phase 2 one member
    /// of every row.
    Grid {
        /// Members per row; the count of members is a multiple of it.
        columns: u8,
    },
}

/// Which of the two phases a quorum is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Phase {
    /// Promises.
    One,
    /// Votes.
    Two,
}

/// Members of a configuration, as a rule sees them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Voting {
    /// Who votes.
    pub set: MemberSet,
    /// The weight of those who vote.
    pub weight: u64,
    /// The weight of all members.
    pub weight_all: u64,
    /// How many members there are.
    pub members: usize,
}

impl QuorumRule {
    /// Whether those who vote are a quorum for `phase`.
    pub fn satisfied(self, phase: Phase, voting: Voting) -> bool {
        let Voting {
            set,
            weight,
            weight_all,
            members,
        } = voting;
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
