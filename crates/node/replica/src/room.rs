//! Full disks of members, as far as this node knows them, and the data that they make the group
//! refuse ([room-1], [room-2]).

use std::collections::BTreeSet;

use quorate_core::{
    node_id::NodeId,
    quorum::{MemberSet, Phase},
    time::Time,
};
use quorate_log::disk::{Disk, Family};

use crate::{observing::events::Event, ports::service::StateMachine, spine::Spine};

/// Interval in milliseconds between checks of the disk's free space.
const CHECK_INTERVAL_MS: u64 = 100;

/// Free space in bytes below which a disk counts as full, in addition to a segment of the log. The
/// store already waits at half of it.
const RESERVE_BYTES: u64 = 128 << 20;

/// Full disks of the group, as far as this node knows them.
#[derive(Debug, Default)]
pub(crate) struct FullDisks {
    /// Set while this node's disk has less free space than the reserve.
    is_own_full: bool,
    next_check_at: Time,
    /// Peers whose last reply to this leader reported a full disk.
    full_peers: BTreeSet<NodeId>,
    /// Member with a full disk that the last leader named in its heartbeat.
    full_member: Option<NodeId>,
}

impl FullDisks {
    /// [room-1] Checks, if that is due, whether this node's disk is full except for its reserve.
    /// Returns the result of the last check.
    pub(crate) fn check_own_disk<D: Disk, S: StateMachine>(
        &mut self,
        now: Time,
        spine: &mut Spine<D, S>,
    ) -> bool {
        if now >= self.next_check_at {
            self.next_check_at = now.plus_ms(CHECK_INTERVAL_MS);
            let log = spine.storing.log();
            let free = log.disk().free_bytes(Family::Log);
            if self.update_free_space(free, log.segment_bytes()) {
                let (is_full, free_bytes) = (self.is_own_full, free.unwrap_or(0));
                spine.observing.queue_event(Event::DiskFull { is_full, free_bytes });
            }
        }
        self.is_own_full
    }

    /// [room-2] Returns a voter whose full disk prevents the group from accepting more data: the
    /// voters in contact with this leader that have space left do not form a quorum. On other
    /// nodes, returns what the last leader reported.
    pub(crate) fn refusing_member<D: Disk, S: StateMachine>(
        &self,
        now: Time,
        spine: &Spine<D, S>,
    ) -> Option<NodeId> {
        if !spine.protocol.is_leader() {
            return self.full_member;
        }
        if !self.is_own_full && self.full_peers.is_empty() {
            return None;
        }
        let own = spine.identity.member.node;
        let lacks_room =
            |node| if node == own { self.is_own_full } else { self.full_peers.contains(&node) };
        let configuration = spine.node().configuration();
        let voters = || configuration.members().iter().map(|voter| voter.member);
        let first = voters().find(|voter| lacks_room(voter.node))?.node;
        let roomy = voters().enumerate().filter(|(_, voter)| {
            !lacks_room(voter.node) && spine.member_lag(now, *voter).is_some()
        });
        let roomy = roomy.fold(MemberSet::default(), |set, (at, _)| set.with(at));
        (!configuration.is_quorum(Phase::Two, roomy)).then_some(first)
    }

    /// Returns the free space in bytes that this node's disk needs for more data; `None` unless it
    /// is full.
    pub(crate) fn missing_free_bytes<D: Disk, S: StateMachine>(
        &self,
        spine: &Spine<D, S>,
    ) -> Option<u64> {
        let segment = spine.storing.log().segment_bytes();
        self.is_own_full.then(|| self.needed_free_bytes(segment))
    }

    /// Returns notices for operators if a full disk prevents the group from accepting data, or this
    /// node's disk is full.
    pub(crate) fn notices<D: Disk, S: StateMachine>(
        &self,
        now: Time,
        spine: &Spine<D, S>,
    ) -> impl Iterator<Item = String> + use<D, S> {
        let refused = self.refusing_member(now, spine).map(|node| {
            format!(
                "the disk of node {node} is full: data is refused, but commands that only remove data are accepted while its reserve lasts"
            )
        });
        let own = self.missing_free_bytes(spine).map(|needed| {
            let free = spine.storing.log().disk().free_bytes(Family::Log).unwrap_or(0);
            let others = match refused {
                Some(_) => "",
                None => "; the other members have room for more data",
            };
            format!(
                "the disk is full: {} MiB free, {} MiB needed{others}",
                free >> 20,
                needed >> 20
            )
        });
        refused.into_iter().chain(own)
    }

    /// Returns the free space in bytes that this node's disk needs for more data. A disk that was
    /// full needs another `segment`, so that the state does not flap.
    fn needed_free_bytes(&self, segment: u64) -> u64 {
        RESERVE_BYTES + if self.is_own_full { 2 * segment } else { segment }
    }

    /// Updates the state of this node's disk from its free space, which is `None` if not known.
    /// Returns whether the state changed.
    fn update_free_space(&mut self, free: Option<u64>, segment: u64) -> bool {
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
