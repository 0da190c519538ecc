//! JSON form of the feature level: the current level, and the reasons that block the next one.

use quorate_replica::status::{LevelStatus, NodeLevelStatus};
use serde::{Deserialize, Serialize};

use crate::units::format_span;

/// Feature levels, according to one node.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct LevelView {
    /// Level in use. 0 if the responding node's release predates feature levels.
    pub level: u16,
    /// Highest level that this node's release supports.
    pub supports: u16,
    /// All nodes of the cluster, sorted by id.
    pub nodes: Vec<NodeLevelView>,
    /// Reasons why the next level cannot be activated. Only the leader reports them.
    pub held_back: Vec<String>,
    /// Seconds until the leader raises the level automatically. Null if no raise is scheduled or
    /// something blocks the next level.
    pub raise_in_s: Option<u64>,
}

/// Highest level that a node's release supports.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct NodeLevelView {
    pub node: u32,
    /// Highest supported level. Null if the node is not connected.
    pub newest: Option<u16>,
}

impl LevelView {
    /// Creates the JSON form of a node's feature level status.
    pub fn new(status: &LevelStatus) -> Self {
        let of = |of: &NodeLevelStatus| NodeLevelView {
            node: of.node.0,
            newest: of.supported_level.map(|level| level.0),
        };
        Self {
            level: status.level.0,
            supports: status.supported_level.0,
            nodes: status.nodes.iter().map(of).collect(),
            held_back: status.raise_obstacles.clone(),
            raise_in_s: status.raise_in_ms.map(|ms| ms.div_ceil(1_000)),
        }
    }

    /// Returns whether this node's release supports a higher level than the one in use.
    pub const fn has_higher_level(&self) -> bool {
        self.level > 0 && self.supports > self.level
    }

    /// Describes when the level will be raised, or what blocks the raise, according to the leader.
    pub fn raise_outlook(&self) -> String {
        let next = u32::from(self.level) + 1;
        match (self.has_higher_level(), self.raise_in_s) {
            (false, _) => "every release that the nodes run supports no more".to_owned(),
            _ if !self.held_back.is_empty() => {
                format!("level {next} is held back: {}", self.held_back.join("; "))
            }
            (true, Some(seconds)) => format!("level {next} follows in {}", format_span(seconds)),
            (true, None) => format!("level {next} waits for `quorate member feature --raise`"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn prospect_says_when_or_why_not_the_level_rises() {
        let view = LevelView { level: 8, supports: 9, ..LevelView::default() };
        assert_eq!(view.raise_outlook(), "level 9 waits for `quorate member feature --raise`");
        let due = LevelView { raise_in_s: Some(3_600), ..view.clone() };
        assert!(due.raise_outlook().starts_with("level 9 follows in "));
        let held = LevelView { held_back: vec!["node 2 is not connected".to_owned()], ..due };
        assert_eq!(held.raise_outlook(), "level 9 is held back: node 2 is not connected");
        let risen = LevelView { level: 9, ..view.clone() };
        assert!(!risen.has_higher_level() && view.has_higher_level());
        assert!(!LevelView::default().has_higher_level(), "a release before levels");
    }
}
