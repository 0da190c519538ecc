//! Feature levels: what a node may say and write, as the whole group knows how to read it
//! ([level-1]).
//!
//! A level is the number of the protocol version that brought it. A release supports its own level
//! and, at least, the one before; the group's level is decided in the log, and never goes back.

use core::fmt;

use crate::value::Value;

/// Level that a release supports, or a group uses.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Level(pub u16);

/// The level at which a group begins.
impl Default for Level {
    fn default() -> Self {
        Self::BASE
    }
}

impl Level {
    /// The oldest level that this release works at, and what a group begins with. That is part of
    /// what every replica derives from the log: it stays as long as logs of groups that were
    /// founded so are opened.
    pub const BASE: Self = Self(8);
    /// The newest level that this release knows.
    pub const NEWEST: Self = Self(10);

    /// [level-2] Returns the level that introduced this kind of value: a node of an earlier one
    /// cannot read it. Exhaustive, so that a new kind does not compile until its level is stated.
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
            // A node that does not support the raised level may not read on.
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

/// Levels that a node supports: from the lowest that it may speak, as the group uses it already, to
/// the newest that it knows.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Levels {
    /// Everything below is refused.
    pub lowest: Level,
    /// The newest level of its release.
    pub newest: Level,
}

impl Levels {
    /// Levels that this release supports in a group that uses nothing new yet.
    pub const SUPPORTED: Self = Self { lowest: Level::BASE, newest: Level::NEWEST };

    /// [level-3] Returns the level that two nodes speak: the newest that both know, if neither
    /// finds it too old.
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

    /// [level-3]
    #[test]
    fn neighbours_agree_and_strangers_do_not() {
        for (one, other, agreed) in [
            (levels(8, 9), levels(8, 8), Some(8)),
            (levels(8, 9), levels(8, 9), Some(9)),
            (levels(8, 9), levels(9, 10), Some(9)),
            (levels(9, 9), levels(8, 9), Some(9)),
            // The group uses 9 already.
            (levels(9, 9), levels(8, 8), None),
            (levels(9, 10), levels(8, 8), None),
            // A release that supports more than the one before.
            (levels(8, 10), levels(8, 9), Some(9)),
            (levels(8, 10), levels(8, 8), Some(8)),
            (levels(10, 10), levels(8, 9), None),
        ] {
            assert_eq!(one.agreed(other), agreed.map(Level), "{one:?} {other:?}");
            assert_eq!(other.agreed(one), agreed.map(Level), "{other:?} {one:?}");
        }
    }
}
