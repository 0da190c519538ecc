//! What counts as enough: quorum rules as data, checked to meet ([era-4], features G8).
//!
//! Sets of members are bit masks over the positions in a configuration's member list, so a check
//! over all subsets is a loop over integers (n ≤ 16).

use crate::configuration::Configuration;

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

impl QuorumRule {
    /// Whether `set` is a quorum of `configuration` for `phase`.
    pub fn satisfied(self, configuration: &Configuration, phase: Phase, set: MemberSet) -> bool {
        match self {
            Self::Majority => configuration.weight_of(set) * 2 > configuration.weight(),
            Self::Flexible { phase1, phase2 } => {
                let need = if phase == Phase::One { phase1 } else { phase2 };
                configuration.weight_of(set) >= u64::from(need)
            }
            Self::Grid { columns } => {
                let columns = usize::from(columns.max(1));
                let mut rows = (0..configuration.members().len()).step_by(columns);
                let row =
                    |start: usize| start..(start + columns).min(configuration.members().len());
                match phase {
                    Phase::One => rows.any(|start| row(start).all(|index| set.has(index))),
                    Phase::Two => rows.all(|start| row(start).any(|index| set.has(index))),
                }
            }
        }
    }
}

/// Whether every phase-`p` quorum of `a` shares a member with every phase-`q` quorum of `b`.
///
/// Exact, by subsets: two quorums can be disjoint iff some set of `a`'s members is a quorum there
/// while everybody else forms one in `b`; quorums only grow with members, so that is enough.
pub fn quorums_meet(a: &Configuration, p: Phase, b: &Configuration, q: Phase) -> bool {
    let all_a = 1u32 << a.members().len();
    (0..all_a).all(|bits| {
        #[expect(clippy::cast_possible_truncation, reason = "at most 16 members")]
        let set = MemberSet(bits as u16);
        if !a.rule().satisfied(a, p, set) {
            return true;
        }
        let mut rest = MemberSet::default();
        for (index, voter) in b.members().iter().enumerate() {
            let inside = a.position(voter.member).is_some_and(|at| set.has(at));
            if !inside {
                rest = rest.with(index);
            }
        }
        !b.rule().satisfied(b, q, rest)
    })
}
