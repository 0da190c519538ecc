//! Refusal of data for which the members' disks have no room, while commands that remove data
//! still have some ([room-1], [room-2]). Nothing here affects what is decided.

use std::collections::BTreeSet;

use quorate_core::{
    node_id::NodeId,
    quorum::{MemberSet, Phase},
    time::Time,
};
use quorate_log::disk::{Disk, Family};

use super::Replica;
use crate::{observing::events::Event, ports::service::StateMachine};

/// Free space below which a disk counts as full, in addition to a segment of the log. The store
/// waits at half of it.
const RESERVE_BYTES: u64 = 128 << 20;
/// Interval between two looks at the disk, in milliseconds.
const LOOK_MS: u64 = 100;

/// Full disks of the group, as far as this node knows them.
#[derive(Debug, Default)]
pub(super) struct Room {
    /// Set while this node's disk has less free space than the reserve.
    full: bool,
    look_at: Time,
    /// Peers that last replied to this leader that their disks are full.
    full_peers: BTreeSet<NodeId>,
    /// Member that the last leader named in its heartbeat.
    named: Option<NodeId>,
}

impl Room {
    /// Updates the state of this node's disk from its free space; `None` if that is not known.
    /// Returns whether the state changed. A disk that was full needs another `segment` of space, so
    /// that the state does not flap.
    fn look(&mut self, free: Option<u64>, segment: u64) -> bool {
        let wanted = RESERVE_BYTES + if self.full { 2 * segment } else { segment };
        let was = std::mem::replace(&mut self.full, free.is_some_and(|free| free < wanted));
        was != self.full
    }

    /// Records a peer's reply to this leader.
    pub(super) fn on_reply(&mut self, from: NodeId, full: bool) {
        match full {
            true => self.full_peers.insert(from),
            false => self.full_peers.remove(&from),
        };
    }

    /// Records the member that the leader names.
    pub(super) fn on_leader(&mut self, named: Option<NodeId>) {
        self.named = named;
    }
}

impl<D: Disk, S: StateMachine> Replica<D, S> {
    /// [room-1] Looks whether this node's disk is full but for its reserve, if a look is due.
    /// Returns the result of the last look.
    pub(super) fn look_at_disk(&mut self, now: Time) -> bool {
        if now >= self.room.look_at {
            self.room.look_at = now.plus_ms(LOOK_MS);
            let log = self.spine.storing.log();
            let free = log.disk().free_bytes(Family::Log);
            if self.room.look(free, log.segment_bytes()) {
                let (full, free) = (self.room.full, free.unwrap_or(0));
                self.spine.observing.tell(Event::DiskFull { full, free });
            }
        }
        self.room.full
    }

    /// [room-2] Returns a member whose full disk keeps the group from taking more data: the members
    /// that this leader is in contact with are no quorum without those that have no room. A node
    /// that does not lead knows what the last leader said.
    pub(super) fn full_disk(&self, now: Time) -> Option<NodeId> {
        if !self.spine.protocol.leads() {
            return self.room.named;
        }
        let (own, room) = (self.spine.own.member.node, &self.room);
        let lacks_room =
            |node| if node == own { room.full } else { room.full_peers.contains(&node) };
        let configuration = self.spine.node().configuration();
        let voters = || configuration.members().iter().map(|voter| voter.member);
        let first = voters().find(|voter| lacks_room(voter.node))?.node;
        let roomy = voters()
            .enumerate()
            .filter(|(_, voter)| !lacks_room(voter.node) && self.spine.lag(now, *voter).is_some());
        let roomy = roomy.fold(MemberSet::default(), |set, (at, _)| set.with(at));
        (!configuration.is_quorum(Phase::Two, roomy)).then_some(first)
    }

    /// Returns a notice for operators if a disk is full.
    pub(super) fn room_notice(&self, now: Time) -> Option<String> {
        match self.full_disk(now) {
            Some(node) => Some(format!(
                "the disk of node {node} is full: data is refused, and can be removed while there is a reserve"
            )),
            None if self.room.full => {
                Some("the disk is full; the other members have room for more data".to_owned())
            }
            None => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// [room-1] A disk that was full needs more space than one that was not.
    #[test]
    fn a_disk_at_the_edge_does_not_flap() {
        let mut room = Room::default();
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
            assert_eq!(room.look(free, segment), changed, "{free:?}");
        }
    }
}
