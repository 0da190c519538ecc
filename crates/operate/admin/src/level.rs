//! The feature level in the fixed JSON form of a node: what the cluster uses, and what holds the
//! next one back.

use quorate_replica::status::{LevelOf, LevelStatus};
use serde::{Deserialize, Serialize};

use crate::units::span;

/// Feature levels, as one node tells of them.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct LevelView {
    /// The level in use; 0 from a release before levels.
    pub level: u16,
    /// The newest that this node's release supports.
    pub supports: u16,
    /// Every node of the cluster, in order.
    pub nodes: Vec<LevelOfView>,
    /// Reasons why the cluster cannot use the next level; given by a leader only.
    pub held_back: Vec<String>,
    /// When the leader raises it by itself; null: not at all, or not before what holds it back is
    /// gone.
    pub raise_in_s: Option<u64>,
}

/// Levels that a node's release supports.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LevelOfView {
    /// Its id.
    pub node: u32,
    /// The newest level; null: it is not connected.
    pub newest: Option<u16>,
}

impl LevelView {
    /// The same.
    pub fn new(status: &LevelStatus) -> Self {
        let of =
            |of: &LevelOf| LevelOfView { node: of.node.0, newest: of.newest.map(|level| level.0) };
        Self {
            level: status.level.0,
            supports: status.supports.0,
            nodes: status.nodes.iter().map(of).collect(),
            held_back: status.held_back.clone(),
            raise_in_s: status.raise_in_ms.map(|ms| ms.div_ceil(1_000)),
        }
    }

    /// Returns whether the release could do more than the cluster uses.
    pub const fn may_rise(&self) -> bool {
        self.level > 0 && self.supports > self.level
    }

    /// Describes the next raise, as the leader knows it, for people.
    pub fn prospect(&self) -> String {
        let next = u32::from(self.level) + 1;
        match (self.may_rise(), self.raise_in_s) {
            (false, _) => "every release that the nodes run supports no more".to_owned(),
            _ if !self.held_back.is_empty() => {
                format!("level {next} is held back: {}", self.held_back.join("; "))
            }
            (true, Some(seconds)) => format!("level {next} follows in {}", span(seconds)),
            (true, None) => format!("level {next} waits for `quorate member feature --raise`"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_comes_of_it_is_told() {
        let view = LevelView { level: 8, supports: 9, ..LevelView::default() };
        assert_eq!(view.prospect(), "level 9 waits for `quorate member feature --raise`");
        let due = LevelView { raise_in_s: Some(3_600), ..view.clone() };
        assert!(due.prospect().starts_with("level 9 follows in "));
        let held = LevelView { held_back: vec!["node 2 is not connected".to_owned()], ..due };
        assert_eq!(held.prospect(), "level 9 is held back: node 2 is not connected");
        let risen = LevelView { level: 9, ..view.clone() };
        assert!(!risen.may_rise() && view.may_rise());
        assert!(!LevelView::default().may_rise(), "a release before levels");
    }
}
