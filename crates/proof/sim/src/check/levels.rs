//! Feature levels: no node uses one that its release does not support, none rises before every node
//! of the group ran a release that supports it, and all nodes rise at the same slot ([level-5],
//! [level-8]).

use std::collections::BTreeMap;

use quorate_core::{level::Level, slot::Slot};

use super::{Verdict, Violation};

/// Observed levels of the group.
#[derive(Debug, Default)]
pub struct Levels {
    /// First and last position of each level that some node was at.
    seen: BTreeMap<Level, (Slot, Slot)>,
}

impl Levels {
    /// Returns whether any node was seen above the base level.
    pub fn is_raised(&self) -> bool {
        self.seen.keys().any(|level| *level > Level::BASE)
    }

    /// Returns whether any node was seen at this level.
    pub fn has_seen(&self, level: Level) -> bool {
        self.seen.contains_key(&level)
    }

    /// A node has applied everything below `applied_to`, and is at this level.
    ///
    /// # Errors
    /// Its release does not support it, or another node was at another level there.
    pub fn stands(
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
        let (first, last) = self.seen.entry(level).or_insert((applied_to, applied_to));
        (*first, *last) = ((*first).min(applied_to), (*last).max(applied_to));
        let mut neighbours = self.seen.iter().zip(self.seen.iter().skip(1));
        match neighbours.find(|((_, (_, lower)), (_, (higher, _)))| higher <= lower) {
            Some(((low, (_, lower)), (high, (higher, _)))) => broken(format!(
                "and another differ: one was at level {low} at slot {lower}, one at level {high} at {higher}"
            )),
            None => Ok(()),
        }
    }

    /// A node has the raise in its log, and its release does not know what that is.
    ///
    /// # Errors
    /// Always.
    pub fn cannot_read(node: usize, release: Level) -> Verdict {
        let detail = format!(
            "node {} opened a folder that a release which supports {release} cannot read",
            node + 1
        );
        Err(Violation::new("levels", detail))
    }

    /// A node of the group never ran a release that supports what the group uses now.
    ///
    /// # Errors
    /// Always.
    pub fn never_asked(node: usize) -> Verdict {
        let detail = format!("the level rose, and node {} never supported it", node + 1);
        Err(Violation::new("levels", detail))
    }
}
