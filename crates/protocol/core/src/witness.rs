//! What other nodes said of their logs: who comes back with less than it said has lost what it
//! promised ([lie-2]).
//!
//! A log counts its writes, in all processes of a folder, and never goes back: what a node said to
//! be on stable storage up to a number is there after every crash, unless its disk lied. So one
//! number tells, whatever is in the log.

use alloc::vec::Vec;

use crate::{
    flow::PEERS_MAX,
    level::Level,
    node_id::{Incarnation, Member, NodeId},
};

/// Nodes of releases before this level say nothing of their logs, and are asked nothing ([lie-1]).
pub const SINCE: Level = Level(10);

/// Nodes rarely take a new incarnation, so a claim to remember one further above a node's own is
/// false.
const STEPS_MAX: u32 = 1_000;

/// How far a node's log is on stable storage: all its writes up to this number, as this
/// incarnation. A later incarnation is further, whatever it has.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Written {
    /// In which incarnation.
    pub incarnation: Incarnation,
    /// The number of its last log write; the first of a log is 1.
    pub to: u64,
}

impl Written {
    /// [lie-4] Whether a node that has this on its disk said more before: it has forgotten votes or
    /// promises. A false claim cannot use up all of a node's incarnations.
    pub fn fell_behind(self, remembered: Self) -> bool {
        let steps = remembered.incarnation.0.saturating_sub(self.incarnation.0);
        remembered > self && steps <= STEPS_MAX
    }
}

/// What is known of one node.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Known {
    node: NodeId,
    incarnation: Incarnation,
    /// What was said over earlier connections at most.
    before: u64,
    /// What is said over this one at most.
    to: u64,
}

impl Known {
    fn written(&self) -> Written {
        Written { incarnation: self.incarnation, to: self.to.max(self.before) }
    }
}

/// What other nodes said, as long as this process lives.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Witness {
    known: Vec<Known>,
}

impl Witness {
    /// A new connection to a node stands: whatever it says over it is at least what it said before
    /// ([lie-5]). The number of its process does not tell: it may have gone back with the folder,
    /// or with all of the machine's memory.
    pub fn met(&mut self, node: NodeId) {
        let mut known = self.known.iter_mut();
        if let Some(known) = known.find(|known| known.node == node) {
            known.before = known.written().to;
        }
    }

    /// This member says that its log is on stable storage up to this write. What was said before,
    /// if that was more ([lie-5]).
    ///
    /// Less than what was said over this very connection is no news: messages overtake each other.
    pub fn hear(&mut self, from: Member, to: u64) -> Result<(), Written> {
        let fresh = Known { node: from.node, incarnation: from.incarnation, before: 0, to };
        let room = self.known.len() < PEERS_MAX;
        let Some(known) = self.known.iter_mut().find(|one| one.node == from.node) else {
            if room {
                self.known.push(fresh);
            }
            return Ok(());
        };
        if from.incarnation > known.incarnation {
            *known = fresh;
            return Ok(());
        }
        if from.incarnation < known.incarnation {
            return Err(known.written());
        }
        known.to = known.to.max(to);
        match to < known.before {
            true => Err(known.written()),
            false => Ok(()),
        }
    }

    /// The most that this node said ([lie-3]).
    pub fn recall(&self, node: NodeId) -> Option<Written> {
        let known = self.known.iter().find(|known| known.node == node)?;
        Some(known.written())
    }

    /// Forgets nodes that are none of these: whoever has the cluster's id may say any node's.
    pub fn keep(&mut self, is_known: impl Fn(NodeId) -> bool) {
        if self.known.len() == PEERS_MAX {
            self.known.retain(|known| is_known(known.node));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NODE: NodeId = NodeId(3);

    fn member(incarnation: u32) -> Member {
        Member { node: NODE, incarnation: Incarnation(incarnation) }
    }

    fn written(incarnation: u32, to: u64) -> Written {
        Written { incarnation: Incarnation(incarnation), to }
    }

    /// [lie-2] A process says more and more; what comes late says less, and takes nothing back.
    #[test]
    fn what_overtakes_is_no_loss() {
        let mut witness = Witness::default();
        assert_eq!(witness.recall(NODE), None);
        for to in [4, 7, 5] {
            assert_eq!(witness.hear(member(0), to), Ok(()));
        }
        assert_eq!(witness.recall(NODE), Some(written(0, 7)));
    }

    /// [lie-5] Whoever connects begins with all that was said before; each message of one that does
    /// not shows it.
    #[test]
    fn who_comes_back_with_less_is_found_out() {
        let mut witness = Witness::default();
        witness.met(NODE);
        assert_eq!(witness.hear(member(0), 7), Ok(()));
        witness.met(NODE);
        assert_eq!(witness.hear(member(0), 7), Ok(()));
        assert_eq!(witness.hear(member(0), 9), Ok(()));
        witness.met(NODE);
        assert_eq!(witness.hear(member(0), 8), Err(written(0, 9)));
        assert_eq!(witness.hear(member(0), 8), Err(written(0, 9)));
        assert_eq!(witness.recall(NODE), Some(written(0, 9)));
        assert_eq!(witness.hear(member(0), 9), Ok(()));
    }

    /// [lie-2] A node that owned up is another member, and its log begins where it may.
    #[test]
    fn a_new_incarnation_begins_anew() {
        let mut witness = Witness::default();
        assert_eq!(witness.hear(member(0), 9), Ok(()));
        witness.met(NODE);
        assert_eq!(witness.hear(member(1), 4), Ok(()));
        assert_eq!(witness.recall(NODE), Some(written(1, 4)));
        // Its identity went back as well.
        assert_eq!(witness.hear(member(0), 12), Err(written(1, 4)));
    }

    /// [lie-4]
    #[test]
    fn who_has_all_that_it_said_goes_on() {
        for (own, remembered, behind) in [
            (written(0, 9), written(0, 9), false),
            (written(0, 12), written(0, 9), false),
            (written(0, 8), written(0, 9), true),
            (written(1, 2), written(0, 9), false),
            (written(0, 12), written(1, 2), true),
            (written(0, 0), Written::default(), false),
            (written(2, 12), written(1_002, 1), true),
            (written(2, 12), written(1_003, 1), false),
            (written(2, 12), written(u32::MAX, u64::MAX), false),
        ] {
            assert_eq!(own.fell_behind(remembered), behind, "{own:?} {remembered:?}");
        }
    }

    #[test]
    fn memory_is_bounded_and_members_are_kept() {
        let mut witness = Witness::default();
        for node in 1..1000 {
            assert_eq!(witness.hear(Member::first(node), 5), Ok(()));
            witness.keep(|node| node.0 <= 3);
        }
        assert!(witness.known.len() <= PEERS_MAX);
        assert!((1..=3).all(|node| witness.recall(NodeId(node)).is_some()));
    }
}
