//! Rollback detection: remembers what other nodes have reported about their logs and starts. A node
//! that reconnects with less than it has reported has lost state that it vouched for ([lie-2]).
//!
//! A log counts its writes across all processes of a folder, and the count never falls. If a node
//! has reported its log as being on stable storage up to a number, the log still reaches that
//! number after every crash, unless the disk lied. So one number suffices, whatever the log
//! contains. A folder counts its starts in the same way.

use alloc::vec::Vec;
use core::fmt;

use crate::{
    level::Level,
    node_id::{Incarnation, Member, NodeId, PEERS_MAX},
};

/// Lowest level at which nodes report the state of their logs. Nodes of earlier releases report
/// nothing, and receive no such requests ([lie-1]).
pub const MIN_LEVEL: Level = Level(10);

/// Maximum number of incarnations, and of starts, that a node advances at once because of another
/// node's claim. The limit keeps false claims from using up all of them ([lie-4]).
pub const STEPS_MAX: u32 = 1 << 20;

/// End of a node's log on stable storage, as the number of a log write in an incarnation. Any write
/// of a later incarnation is further.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct LogEnd {
    /// Incarnation of the node that wrote the log.
    pub incarnation: Incarnation,
    /// Number of the last log write on stable storage. The first write of a log is number 1.
    pub last_write: u64,
}

/// End of a node's log and its start count, as stored in the node's folder or as remembered by
/// another node.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Memory {
    /// End of the node's log.
    pub log_end: LogEnd,
    /// Number of the node's last start; 0 if unknown.
    pub boot: u32,
}

impl Memory {
    /// [lie-4] Returns whether a node whose folder has this state was further ahead before. If it
    /// was, it has forgotten votes, promises, or names that it allocated ([value-2]).
    pub fn fell_behind(self, remembered: Self) -> bool {
        remembered.log_end > self.log_end || remembered.boot > self.boot
    }

    /// [lie-4] Returns whether a node with this state may skip ahead of the state `remembered`.
    pub fn may_skip_to(self, remembered: Self) -> bool {
        let (own, other) = (self.log_end.incarnation.0, remembered.log_end.incarnation.0);
        other.saturating_sub(own) <= STEPS_MAX
            && remembered.boot.saturating_sub(self.boot) <= STEPS_MAX
    }

    /// Returns the later log end and the later start count.
    #[must_use]
    pub fn max(self, other: Self) -> Self {
        Self { log_end: self.log_end.max(other.log_end), boot: self.boot.max(other.boot) }
    }
}

impl fmt::Display for Memory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { log_end: LogEnd { incarnation, last_write: to }, boot } = self;
        write!(f, "write {to} of incarnation {} and start {boot}", incarnation.0)
    }
}

/// Reports of another node, as this one remembers them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct RememberedReports {
    node: NodeId,
    incarnation: Incarnation,
    /// Number of the node's last start.
    boot: u32,
    /// Highest log write reported over earlier connections.
    earlier_write: u64,
    /// Highest log write reported over the current connection.
    current_write: u64,
}

impl RememberedReports {
    fn memory(&self) -> Memory {
        let to = self.current_write.max(self.earlier_write);
        Memory {
            log_end: LogEnd { incarnation: self.incarnation, last_write: to },
            boot: self.boot,
        }
    }
}

/// Reports of other nodes, remembered for the lifetime of this process.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct RollbackDetector {
    remembered: Vec<RememberedReports>,
}

impl RollbackDetector {
    /// Records a new connection to a member and the number of its start. Returns the state of the
    /// node that has been remembered so far. The node's reports over this connection must reach it
    /// ([lie-5]). The start number proves nothing, because it may have gone back with the folder,
    /// or with all of the machine's memory.
    pub fn record_connection(&mut self, member: Member, boot: u32) -> Memory {
        let Some(known) = self.remembered.iter_mut().find(|known| known.node == member.node) else {
            self.record_report(member, boot, 0);
            return Memory::default();
        };
        let memory = known.memory();
        known.earlier_write = memory.log_end.last_write;
        known.boot = known.boot.max(boot);
        memory
    }

    /// Records the report of member `from` that its log is on stable storage up to write `to`.
    /// Fails with the state reported earlier if that was higher ([lie-5]).
    ///
    /// A report that is lower than another one over the same connection is not an error, because
    /// messages may overtake each other.
    pub fn record_log_end(&mut self, from: Member, to: u64) -> Result<(), Memory> {
        let Some(known) = self.remembered.iter_mut().find(|one| one.node == from.node) else {
            self.record_report(from, 0, to);
            return Ok(());
        };
        if from.incarnation > known.incarnation {
            *known = RememberedReports {
                incarnation: from.incarnation,
                earlier_write: 0,
                current_write: to,
                ..*known
            };
            return Ok(());
        }
        if from.incarnation < known.incarnation {
            return Err(known.memory());
        }
        known.current_write = known.current_write.max(to);
        match to < known.earlier_write {
            true => Err(known.memory()),
            false => Ok(()),
        }
    }

    fn record_report(&mut self, member: Member, boot: u32, to: u64) {
        let Member { node, incarnation } = member;
        if self.remembered.len() < PEERS_MAX {
            self.remembered.push(RememberedReports {
                node,
                incarnation,
                boot,
                earlier_write: 0,
                current_write: to,
            });
        }
    }

    /// Returns the furthest log end and the latest start that this node has reported ([lie-3]).
    pub fn memory_of(&self, node: NodeId) -> Memory {
        let known = self.remembered.iter().find(|known| known.node == node);
        known.map_or(Memory::default(), RememberedReports::memory)
    }

    /// Once the table is full, forgets the nodes for which `is_known` is false, because any peer
    /// with the cluster's id may claim any node id.
    pub fn evict_unknown(&mut self, is_known: impl Fn(NodeId) -> bool) {
        if self.remembered.len() == PEERS_MAX {
            self.remembered.retain(|known| is_known(known.node));
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
        Memory { log_end: LogEnd { incarnation: Incarnation(incarnation), last_write: to }, boot }
    }

    /// [lie-2] A process's reports grow. A late message with a lower one revokes nothing.
    #[test]
    fn late_lower_report_is_not_a_loss() {
        let mut witness = RollbackDetector::default();
        assert_eq!(witness.memory_of(NODE), Memory::default());
        for to in [4, 7, 5] {
            assert_eq!(witness.record_log_end(member(0), to), Ok(()));
        }
        assert_eq!(witness.memory_of(NODE), memory(0, 7, 0));
    }

    /// [lie-5] After it reconnects, a node must report at least as much as before. Otherwise each
    /// of its messages shows the loss.
    #[test]
    fn reconnecting_with_a_shorter_log_reveals_the_loss() {
        let mut witness = RollbackDetector::default();
        assert_eq!(witness.record_connection(member(0), 5), Memory::default());
        assert_eq!(witness.record_log_end(member(0), 7), Ok(()));
        assert_eq!(witness.record_connection(member(0), 6), memory(0, 7, 5));
        assert_eq!(witness.record_log_end(member(0), 7), Ok(()));
        assert_eq!(witness.record_log_end(member(0), 9), Ok(()));
        assert_eq!(witness.record_connection(member(0), 4), memory(0, 9, 6));
        assert_eq!(witness.record_log_end(member(0), 8), Err(memory(0, 9, 6)));
        assert_eq!(witness.record_log_end(member(0), 8), Err(memory(0, 9, 6)));
        assert_eq!(witness.memory_of(NODE), memory(0, 9, 6));
        assert_eq!(witness.record_log_end(member(0), 9), Ok(()));
    }

    /// [lie-2] A node that admitted its loss is a new member whose log may begin anywhere; its
    /// starts are still counted.
    #[test]
    fn new_incarnation_starts_without_earlier_reports() {
        let mut witness = RollbackDetector::default();
        witness.record_connection(member(0), 3);
        assert_eq!(witness.record_log_end(member(0), 9), Ok(()));
        witness.record_connection(member(1), 4);
        assert_eq!(witness.record_log_end(member(1), 4), Ok(()));
        assert_eq!(witness.memory_of(NODE), memory(1, 4, 4));
        // The node's identity went back as well.
        assert_eq!(witness.record_log_end(member(0), 12), Err(memory(1, 4, 4)));
    }

    /// [lie-4] A node that still has everything it reported continues.
    #[test]
    fn node_that_still_has_all_it_reported_continues() {
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
            assert_eq!(own.may_skip_to(remembered), passes, "{own:?} {remembered:?}");
        }
    }

    #[test]
    fn memory_is_bounded_and_members_are_kept() {
        let mut witness = RollbackDetector::default();
        for node in 1..1000 {
            assert_eq!(witness.record_log_end(Member::first(node), 5), Ok(()));
            witness.evict_unknown(|node| node.0 <= 3);
        }
        assert!(witness.remembered.len() <= PEERS_MAX);
        assert!((1..=3).all(|node| witness.memory_of(NodeId(node)).log_end.last_write == 5));
    }
}
