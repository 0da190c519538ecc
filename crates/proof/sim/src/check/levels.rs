//! Feature levels: no node uses a level that its release does not support, the level rises only
//! once every node of the group has run a release that supports the new level, and all nodes raise
//! it at the same slot ([level-5], [level-8]).

use std::collections::BTreeMap;

use quorate_core::{level::Level, slot::Slot};

use super::{Verdict, Violation};

/// Levels of the group that nodes have used.
#[derive(Debug, Default)]
pub struct UsedLevels {
    /// First and last position at which a node used each level.
    positions: BTreeMap<Level, (Slot, Slot)>,
}

impl UsedLevels {
    /// Returns whether any node has used a level above the base level.
    pub fn is_raised(&self) -> bool {
        self.positions.keys().any(|level| *level > Level::BASE)
    }

    pub fn was_used(&self, level: Level) -> bool {
        self.positions.contains_key(&level)
    }

    /// Checks the level of a node that has applied all slots below `applied_to`: its release
    /// supports the level, and every other node had the same level at this position.
    pub fn check_level(
        &mut self,
        node: usize,
        release: Level,
        level: Level,
        applied_to: Slot,
    ) -> Verdict {
        let broken = |detail: String| {
            let detail = format!("node {} {detail}", node + 1);
            Err(Violation::new("levels", detail))
        };
        if level > release {
            return broken(format!("is at level {level}, in a release that supports {release}"));
        }
        let (first, last) = self.positions.entry(level).or_insert((applied_to, applied_to));
        (*first, *last) = ((*first).min(applied_to), (*last).max(applied_to));
        let mut neighbours = self.positions.iter().zip(self.positions.iter().skip(1));
        match neighbours.find(|((_, (_, lower)), (_, (higher, _)))| higher <= lower) {
            Some(((low, (_, lower)), (high, (higher, _)))) => broken(format!(
                "and another differ: one was at level {low} at slot {lower}, one at level {high} at {higher}"
            )),
            None => Ok(()),
        }
    }

    /// Returns the violation of a log that raises the level beyond what its node's release
    /// supports.
    pub fn unsupported_level(node: usize, release: Level) -> Verdict {
        let detail = format!(
            "node {} opened a folder that a release which supports {release} cannot read",
            node + 1
        );
        Err(Violation::new("levels", detail))
    }

    /// Returns the violation of a node that never ran a release supporting the group's level.
    pub fn unsupported_group_level(node: usize) -> Verdict {
        let detail = format!("the level rose, and node {} never supported it", node + 1);
        Err(Violation::new("levels", detail))
    }
}
