//! Ballots: ⟨era, round, node⟩, compared in that order ([ballot-1]).

use core::fmt;

use crate::node_id::NodeId;

/// Number of a configuration. It grows by one with each reconfiguration that takes effect.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Era(pub u32);

impl Era {
    /// Returns the era after this one. Overflow would take four billion reconfigurations, so it is
    /// not checked.
    pub const fn next(self) -> Self {
        Self(self.0 + 1)
    }
}

/// A node's attempt to lead. Ballots are compared by the fields in order: era, round, node.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Ballot {
    /// Era of the configuration whose quorum decides phase 1 of this ballot ([era-5]).
    pub era: Era,
    /// Round number. A node never uses a round twice within an era, even across restarts
    /// ([ballot-2]).
    pub round: u32,
    /// The node that leads in this ballot.
    pub node: NodeId,
}

impl Ballot {
    /// A ballot below every ballot that a node can start, because rounds start at 1.
    pub const ZERO: Self = Self { era: Era(0), round: 0, node: NodeId(0) };
}

impl fmt::Display for Era {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// Formats as `era.round.node`, for example `0.3.2`.
impl fmt::Display for Ballot {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}.{}", self.era, self.round, self.node)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// [ballot-1] The era is compared before round and node, so a ballot of a later era is above
    /// every ballot of an earlier one. Otherwise an acceptor that promised it would keep voting for
    /// the old era.
    #[test]
    fn ballots_compare_by_era_first() {
        let ballot = |era, round, node| Ballot { era: Era(era), round, node: NodeId(node) };
        let ascending = [
            Ballot::ZERO,
            ballot(0, 1, 2),
            ballot(0, 2, 1),
            ballot(0, u32::MAX, 9),
            ballot(1, 1, 1),
            ballot(1, 1, 2),
            ballot(2, 1, 1),
        ];
        assert!(ascending.windows(2).all(|pair| pair[0] < pair[1]));
    }
}
