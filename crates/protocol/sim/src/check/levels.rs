//! Feature levels: no node uses one that its release does not support, none rises before every node of the group ran a
//! release that supports it, and all nodes rise at the same slot ([level-5], [level-8]).

use quorate_core::{level::Level, slot::Slot};

use super::{Verdict, Violation};

/// What was seen of the group's level.
#[derive(Debug, Default)]
pub struct Levels {
    /// Some node had applied everything below, at the base level.
    at_base: Slot,
    /// The first position at which some node was above it.
    raised: Option<Slot>,
}

impl Levels {
    /// Whether any node was seen above the base level.
    pub fn is_raised(&self) -> bool {
        self.raised.is_some()
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
            return broken(format!(
                "is at level {level}, in a release that supports {release}"
            ));
        }
        match level {
            Level::BASE => self.at_base = self.at_base.max(applied_to),
            _ => {
                let raised = self
                    .raised
                    .map_or(applied_to, |raised| raised.min(applied_to));
                self.raised = Some(raised);
            }
        }
        match self.raised {
            Some(raised) if raised <= self.at_base => broken(format!(
                "and another differ: one was at level 8 at slot {}, one above it at {raised}",
                self.at_base
            )),
            _ => Ok(()),
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
