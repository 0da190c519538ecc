//! Full disks of members, as far as this node knows them ([room-1]).

use std::collections::BTreeSet;

use quorate_core::{node_id::NodeId, time::Time};

/// Free space in bytes below which a disk counts as full, in addition to a segment of the log. The
/// store already waits at half of it.
const RESERVE_BYTES: u64 = 128 << 20;

/// Full disks of the group, as far as this node knows them.
#[derive(Debug, Default)]
pub(crate) struct FullDisks {
    /// Set while this node's disk has less free space than the reserve.
    pub(crate) is_own_full: bool,
    pub(crate) next_check_at: Time,
    /// Peers whose last reply to this leader reported a full disk.
    pub(crate) full_peers: BTreeSet<NodeId>,
    /// Member with a full disk that the last leader named in its heartbeat.
    pub(crate) full_member: Option<NodeId>,
}

impl FullDisks {
    /// Returns the free space in bytes that this node's disk needs for more data. A disk that was
    /// full needs another `segment`, so that the state does not flap.
    pub(crate) fn needed_free_bytes(&self, segment: u64) -> u64 {
        RESERVE_BYTES + if self.is_own_full { 2 * segment } else { segment }
    }

    /// Updates the state of this node's disk from its free space, which is `None` if not known.
    /// Returns whether the state changed.
    pub(crate) fn update_free_space(&mut self, free: Option<u64>, segment: u64) -> bool {
        let needed = self.needed_free_bytes(segment);
        let was = std::mem::replace(&mut self.is_own_full, free.is_some_and(|free| free < needed));
        was != self.is_own_full
    }

    /// Records a peer's reply to this leader.
    pub(crate) fn on_reply(&mut self, from: NodeId, full: bool) {
        match full {
            true => self.full_peers.insert(from),
            false => self.full_peers.remove(&from),
        };
    }

    pub(crate) fn on_leader(&mut self, named: Option<NodeId>) {
        self.full_member = named;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// [room-1] A disk that was full needs more space than one that was not.
    #[test]
    fn disk_near_the_limit_does_not_flap() {
        let mut room = FullDisks::default();
        let segment = 64 << 20;
        let edge = RESERVE_BYTES + segment;
        for (free, changed) in [
            (None, false),
            (Some(edge), false),
            (Some(edge - 1), true),
            (Some(edge + segment - 1), false),
            (Some(edge + segment), true),
            (Some(0), true),
            (None, true),
        ] {
            assert_eq!(room.update_free_space(free, segment), changed, "{free:?}");
        }
    }
}
