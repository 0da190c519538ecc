//! Feature levels: a node sends and writes only what every node of the group can read ([level-1]).
//!
//! A level is the number of the protocol version that introduced it. A release supports its own
//! level and at least the previous one. The group's level is decided in the log and never falls.

use core::fmt;

use crate::value::Value;

/// A feature level, supported by a release or used by a group.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Level(pub u16);

/// A new group starts at the base level.
impl Default for Level {
    fn default() -> Self {
        Self::BASE
    }
}

impl Level {
    /// The oldest level that this release supports, and the level of a new group. Every replica
    /// derives the group's level from this constant and the log. So it must not change as long as
    /// logs of groups founded at this level can be opened.
    pub const BASE: Self = Self(8);
    /// The newest level that this release knows.
    pub const NEWEST: Self = Self(10);

    /// [level-2] Returns the level that introduced this kind of value. Nodes of an earlier level
    /// cannot read the value. The match is exhaustive, so a new kind does not compile until its
    /// level is stated.
    pub const fn of(value: &Value) -> Self {
        match value {
            Value::NoOp
            | Value::Batch(_)
            | Value::Content { .. }
            | Value::CloseStream(_)
            | Value::RegisterSession { .. }
            | Value::ExpireSession { .. }
            | Value::Reconfigure { .. }
            | Value::AllocateNode { .. }
            | Value::Now { .. } => Self(8),
            // A node that does not support the new level must stop reading here.
            Value::Raise { to, .. } => *to,
        }
    }

    /// Returns the level after this one.
    pub const fn next(self) -> Self {
        Self(self.0.saturating_add(1))
    }
}

impl fmt::Display for Level {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// Levels that a node supports, from the lowest that it may use with the group to the newest that
/// it knows.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Levels {
    /// Peers that support only lower levels are refused.
    pub lowest: Level,
    /// The newest level of the node's release.
    pub newest: Level,
}

impl Levels {
    /// Levels that this release supports in a group at the base level.
    pub const SUPPORTED: Self = Self { lowest: Level::BASE, newest: Level::NEWEST };

    /// [level-3] Returns the level that two nodes use with each other, the newest that both know;
    /// `None` if that level is too old for one of them.
    pub fn agreed(self, other: Self) -> Option<Level> {
        let newest = self.newest.min(other.newest);
        (newest >= self.lowest.max(other.lowest)).then_some(newest)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn levels(lowest: u16, newest: u16) -> Levels {
        Levels { lowest: Level(lowest), newest: Level(newest) }
    }

    /// [level-3] Neighbouring releases agree on a level; distant ones do not.
    #[test]
    fn neighbouring_releases_agree_on_a_level_distant_ones_do_not() {
        for (one, other, agreed) in [
            (levels(8, 9), levels(8, 8), Some(8)),
            (levels(8, 9), levels(8, 9), Some(9)),
            (levels(8, 9), levels(9, 10), Some(9)),
            (levels(9, 9), levels(8, 9), Some(9)),
            // The group already uses level 9.
            (levels(9, 9), levels(8, 8), None),
            (levels(9, 10), levels(8, 8), None),
            // A release that supports more levels than the previous one.
            (levels(8, 10), levels(8, 9), Some(9)),
            (levels(8, 10), levels(8, 8), Some(8)),
            (levels(10, 10), levels(8, 9), None),
        ] {
            assert_eq!(one.agreed(other), agreed.map(Level), "{one:?} {other:?}");
            assert_eq!(other.agreed(one), agreed.map(Level), "{other:?} {one:?}");
        }
    }
}
