//! Witness of other nodes' logs and starts: a node that reconnects with less than it reported has
//! lost what it promised ([lie-2]).
//!
//! A log counts its writes, in all processes of a folder, and never goes back: a log that a node
//! reported to be on stable storage up to a number is there after every crash, unless its disk
//! lied. So one number is enough, whatever is in the log. A folder counts its starts likewise.

use alloc::vec::Vec;
use core::fmt;

use crate::{
    level::Level,
    node_id::{Incarnation, Member, NodeId, PEERS_MAX},
};

/// Nodes of releases before this level say nothing of their logs, and are asked nothing ([lie-1]).
pub const SINCE: Level = Level(10);

/// Most incarnations, and most starts, that a node takes over unseen at once: false claims must
/// not use up all of them ([lie-4]).
pub const STEPS_MAX: u32 = 1 << 20;

/// Extent of a node's log on stable storage: all its writes up to this number, as this incarnation.
/// A later incarnation is further, whatever it has.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Written {
    /// The node's incarnation.
    pub incarnation: Incarnation,
    /// The number of its last log write; the first of a log is 1.
    pub to: u64,
}

/// A node's log and starts, as its folder has them or as another node remembers them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Memory {
    /// Extent of its log.
    pub written: Written,
    /// The number of its last start; 0 if none is known.
    pub boot: u32,
}

impl Memory {
    /// [lie-4] Returns whether a node whose folder has this was further before: it has forgotten
    /// votes or promises, or names that it gave ([value-2]).
    pub fn fell_behind(self, remembered: Self) -> bool {
        remembered.written > self.written || remembered.boot > self.boot
    }

    /// [lie-4] Returns whether a node that has this may come to be above what is remembered.
    pub fn may_pass(self, remembered: Self) -> bool {
        let (own, other) = (self.written.incarnation.0, remembered.written.incarnation.0);
        other.saturating_sub(own) <= STEPS_MAX
            && remembered.boot.saturating_sub(self.boot) <= STEPS_MAX
    }

    /// Returns the later of each.
    #[must_use]
    pub fn max(self, other: Self) -> Self {
        Self { written: self.written.max(other.written), boot: self.boot.max(other.boot) }
    }
}

impl fmt::Display for Memory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { written: Written { incarnation, to }, boot } = self;
        write!(f, "write {to} of incarnation {} and start {boot}", incarnation.0)
    }
}

/// A witness's memory of one node.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Known {
    node: NodeId,
    incarnation: Incarnation,
    /// Its last start.
    boot: u32,
    /// Highest number reported over earlier connections.
    before: u64,
    /// Highest number reported over this connection.
    to: u64,
}

impl Known {
    fn memory(&self) -> Memory {
        let to = self.to.max(self.before);
        Memory { written: Written { incarnation: self.incarnation, to }, boot: self.boot }
    }
}

/// Reports of other nodes, as long as this process lives.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Witness {
    known: Vec<Known>,
}

impl Witness {
    /// Notes a new connection to a member, which reported the number of its start; returns what was
    /// remembered of its node before. Its reports over this connection are at least that ([lie-5]),
    /// and the number of its start proves nothing: it may have gone back with the folder, or with
    /// all of the machine's memory.
    pub fn meet(&mut self, member: Member, boot: u32) -> Memory {
        let Some(known) = self.known.iter_mut().find(|known| known.node == member.node) else {
            self.learn(member, boot, 0);
            return Memory::default();
        };
        let memory = known.memory();
        known.before = memory.written.to;
        known.boot = known.boot.max(boot);
        memory
    }

    /// Notes this member's report that its log is on stable storage up to this write; returns the
    /// earlier report if that was more ([lie-5]).
    ///
    /// Less than an earlier report over this very connection is no news: messages overtake each
    /// other.
    pub fn hear(&mut self, from: Member, to: u64) -> Result<(), Memory> {
        let Some(known) = self.known.iter_mut().find(|one| one.node == from.node) else {
            self.learn(from, 0, to);
            return Ok(());
        };
        if from.incarnation > known.incarnation {
            *known = Known { incarnation: from.incarnation, before: 0, to, ..*known };
            return Ok(());
        }
        if from.incarnation < known.incarnation {
            return Err(known.memory());
        }
        known.to = known.to.max(to);
        match to < known.before {
            true => Err(known.memory()),
            false => Ok(()),
        }
    }

    fn learn(&mut self, member: Member, boot: u32, to: u64) {
        let Member { node, incarnation } = member;
        if self.known.len() < PEERS_MAX {
            self.known.push(Known { node, incarnation, boot, before: 0, to });
        }
    }

    /// Returns the highest report of this node ([lie-3]).
    pub fn recall(&self, node: NodeId) -> Memory {
        let known = self.known.iter().find(|known| known.node == node);
        known.map_or(Memory::default(), Known::memory)
    }

    /// Forgets nodes that are none of these: any peer with the cluster's id may name any node.
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

    fn memory(incarnation: u32, to: u64, boot: u32) -> Memory {
        Memory { written: Written { incarnation: Incarnation(incarnation), to }, boot }
    }

    /// [lie-2] A process reports more and more; a late message reports less, and revokes nothing.
    #[test]
    fn what_overtakes_is_no_loss() {
        let mut witness = Witness::default();
        assert_eq!(witness.recall(NODE), Memory::default());
        for to in [4, 7, 5] {
            assert_eq!(witness.hear(member(0), to), Ok(()));
        }
        assert_eq!(witness.recall(NODE), memory(0, 7, 0));
    }

    /// [lie-5] A node that connects begins with all that it reported before; if it does not, each
    /// of its messages shows it.
    #[test]
    fn who_comes_back_with_less_is_found_out() {
        let mut witness = Witness::default();
        assert_eq!(witness.meet(member(0), 5), Memory::default());
        assert_eq!(witness.hear(member(0), 7), Ok(()));
        assert_eq!(witness.meet(member(0), 6), memory(0, 7, 5));
        assert_eq!(witness.hear(member(0), 7), Ok(()));
        assert_eq!(witness.hear(member(0), 9), Ok(()));
        assert_eq!(witness.meet(member(0), 4), memory(0, 9, 6));
        assert_eq!(witness.hear(member(0), 8), Err(memory(0, 9, 6)));
        assert_eq!(witness.hear(member(0), 8), Err(memory(0, 9, 6)));
        assert_eq!(witness.recall(NODE), memory(0, 9, 6));
        assert_eq!(witness.hear(member(0), 9), Ok(()));
    }

    /// [lie-2] A node that owned up is another member, and its log begins where it may; its starts
    /// are counted on.
    #[test]
    fn a_new_incarnation_begins_anew() {
        let mut witness = Witness::default();
        witness.meet(member(0), 3);
        assert_eq!(witness.hear(member(0), 9), Ok(()));
        witness.meet(member(1), 4);
        assert_eq!(witness.hear(member(1), 4), Ok(()));
        assert_eq!(witness.recall(NODE), memory(1, 4, 4));
        // Its identity went back as well.
        assert_eq!(witness.hear(member(0), 12), Err(memory(1, 4, 4)));
    }

    /// [lie-4]
    #[test]
    fn who_has_all_that_it_said_goes_on() {
        for (own, remembered, behind, passes) in [
            (memory(0, 9, 2), memory(0, 9, 2), false, true),
            (memory(0, 12, 2), memory(0, 9, 1), false, true),
            (memory(0, 8, 2), memory(0, 9, 2), true, true),
            (memory(1, 2, 2), memory(0, 9, 2), false, true),
            (memory(0, 12, 2), memory(1, 2, 2), true, true),
            (memory(0, 12, 2), memory(0, 9, 3), true, true),
            (memory(0, 0, 1), Memory::default(), false, true),
            (memory(2, 12, 2), memory(STEPS_MAX + 2, 1, 2), true, true),
            (memory(2, 12, 2), memory(STEPS_MAX + 3, 1, 2), true, false),
            (memory(2, 12, 2), memory(2, 1, STEPS_MAX + 3), true, false),
            (memory(2, 12, 2), memory(u32::MAX, u64::MAX, u32::MAX), true, false),
        ] {
            assert_eq!(own.fell_behind(remembered), behind, "{own:?} {remembered:?}");
            assert_eq!(own.may_pass(remembered), passes, "{own:?} {remembered:?}");
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
        assert!((1..=3).all(|node| witness.recall(NodeId(node)).written.to == 5));
    }
}
