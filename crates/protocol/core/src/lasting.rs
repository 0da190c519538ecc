//! Durability of the decided prefix across a crash of all nodes: the part on stable storage on this
//! node, the parts that other members reported, and the nodes that wait for it ([class-2],
//! [last-1]).
//!
//! In a durable group, everything decided is durable. In a volatile group, a decision says nothing
//! about disks, and votes are the wrong evidence, because a vote on stable storage may be for a
//! value that another ballot replaced. What counts is what a restart would find decided. While a
//! client or a peer waits for more, the log writes another record to restate the decided prefix.

use alloc::vec::Vec;

use crate::{
    node_id::{Member, NodeId, PEERS_MAX},
    record::RecordSeq,
    slot::Slot,
    time::Time,
};

/// Progress of the durable decided prefix, on this node and as reported by others.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct DurablePrefix {
    /// Every slot below this one is durable on this node.
    durable_here_to: Slot,
    /// Record that restates the decided prefix, while the record is being written.
    restating_record: Option<RecordSeq>,
    /// Nodes that wait for a slot to be on this node's disk, each with that slot.
    waiting_nodes: Vec<(NodeId, Slot)>,
    /// Members that reported how far their logs are durable, each with the end of its durable
    /// slots.
    member_reports: Vec<(Member, Slot)>,
    /// Clients of this node are waiting until every slot below this one is durable in the group.
    awaited_to: Slot,
    /// Clients have been notified that every slot below this one is durable.
    notified_to: Slot,
    /// End of the slots in the outstanding request, and the time at which the request was sent.
    last_request: Option<(Slot, Time)>,
}

impl DurablePrefix {
    /// Returns whether there are no waiting clients or nodes.
    pub fn is_idle(&self) -> bool {
        self.awaited_to <= self.notified_to && self.waiting_nodes.is_empty()
    }

    /// Records that clients of this node wait until everything below `to` is durable in the group.
    pub fn await_durable(&mut self, to: Slot) {
        self.awaited_to = self.awaited_to.max(to);
    }

    /// Returns the slot below which clients of this node have been notified of durability.
    pub fn notified_to(&self) -> Slot {
        self.notified_to
    }

    /// Records that a peer waits until everything below `to` is durable on this node. A later
    /// request replaces an earlier one.
    pub fn on_request(&mut self, from: NodeId, to: Slot) {
        let room = self.waiting_nodes.len() < PEERS_MAX;
        match self.waiting_nodes.iter_mut().find(|(node, _)| *node == from) {
            Some((_, wanted)) => *wanted = to,
            None if room => self.waiting_nodes.push((from, to)),
            // The table is full, so the peer has to repeat its request.
            None => {}
        }
    }

    /// Drops a disconnected node's request. The node sends a new one after reconnecting.
    pub fn disconnect(&mut self, node: NodeId) {
        self.waiting_nodes.retain(|(waits, _)| *waits != node);
    }

    /// [last-2] Records a member's report that everything below `to` is durable on its node.
    pub fn on_reply(&mut self, from: Member, to: Slot) {
        let room = self.member_reports.len() < PEERS_MAX;
        let mut known = self.member_reports.iter_mut();
        match known.find(|(member, _)| member.node == from.node) {
            Some((member, said)) if *member == from => *said = to.max(*said),
            Some((member, _)) if member.incarnation > from.incarnation => {}
            Some(known) => *known = (from, to),
            None if room => self.member_reports.push((from, to)),
            None => {}
        }
    }

    /// Returns the end of the slots that this member reported as durable; slot 0 if it reported
    /// none.
    pub fn reported_to(&self, by: Member) -> Slot {
        let said = self.member_reports.iter().find(|(member, _)| *member == by);
        said.map_or(Slot(0), |(_, to)| *to)
    }

    /// [last-1] Records that everything below `here_to` is durable on this node, and that
    /// everything below `held_to` is decided and held. Returns whether a client or a peer waits for
    /// another record, in which the log restates the decided prefix.
    pub fn update(
        &mut self,
        here_to: Slot,
        held_to: Slot,
        is_durable: impl Fn(RecordSeq) -> bool,
    ) -> bool {
        self.durable_here_to = here_to;
        self.restating_record = self.restating_record.filter(|record| !is_durable(*record));
        self.restating_record.is_none() && held_to > here_to && self.is_awaited()
    }

    /// Records the number of the record that restates the decided prefix.
    pub fn record_restatement(&mut self, record: RecordSeq) {
        self.restating_record = Some(record);
    }

    /// Returns whether a client or a peer waits for slots that are not durable on this node yet.
    fn is_awaited(&self) -> bool {
        let by_peers = self.waiting_nodes.iter().any(|(_, to)| *to > self.durable_here_to);
        by_peers || (self.awaited_to > self.notified_to && self.awaited_to > self.durable_here_to)
    }

    /// Returns whether a client or a peer waits for something that this log has not written yet.
    pub fn awaits_disk(&self) -> bool {
        self.restating_record.is_some() && !self.is_idle()
    }

    /// Removes and returns a peer whose request is satisfied up to `here_to`.
    pub fn next_answer(&mut self, here_to: Slot) -> Option<NodeId> {
        let at = self.waiting_nodes.iter().position(|(_, to)| *to <= here_to)?;
        Some(self.waiting_nodes.swap_remove(at).0)
    }

    /// Records that everything below `to` is durable in the group. Returns whether a waiting client
    /// should be notified.
    pub fn advance_notified(&mut self, to: Slot) -> bool {
        let news = self.awaited_to > self.notified_to && to > self.notified_to;
        if news {
            self.notified_to = to;
        }
        news
    }

    /// Returns the request to send to other members, if one is due. One request serves all waiting
    /// clients, and is repeated after `retry_us` without a reply.
    pub fn next_request(&mut self, now: Time, retry_us: u64) -> Option<Slot> {
        if self.awaited_to <= self.notified_to {
            self.last_request = None;
            return None;
        }
        let open = self
            .last_request
            .is_some_and(|(to, at)| to > self.notified_to && now.since_us(at) < retry_us);
        if open {
            return None;
        }
        self.last_request = Some((self.awaited_to, now));
        Some(self.awaited_to)
    }

    /// Returns the time at which the outstanding request is to be repeated.
    pub fn wake_at(&self, retry_us: u64) -> Option<Time> {
        self.last_request.map(|(_, at)| at.plus_us(retry_us))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::node_id::Incarnation;

    const RETRY_US: u64 = 1000;

    /// Calls `update`, and returns whether the log should restate more.
    fn looked(lasting: &mut DurablePrefix, here_to: u64, held_to: u64, persisted: u64) -> bool {
        let safe = |record: RecordSeq| record.0 <= persisted;
        lasting.update(Slot(here_to), Slot(held_to), safe)
    }

    /// [last-1] The log restates the decided prefix one record at a time, and only while a client
    /// or peer waits.
    #[test]
    fn decided_prefix_is_restated_only_while_a_node_waits() {
        let mut lasting = DurablePrefix::default();
        assert!(!looked(&mut lasting, 2, 5, 9), "no node waits");
        lasting.on_request(NodeId(2), Slot(8));
        assert!(looked(&mut lasting, 2, 5, 9));
        lasting.record_restatement(RecordSeq(10));
        assert!(lasting.awaits_disk());
        assert!(!looked(&mut lasting, 2, 8, 9), "one is in progress");
        assert!(looked(&mut lasting, 5, 8, 10), "for what was decided since then");
        lasting.record_restatement(RecordSeq(12));
        assert_eq!(lasting.next_answer(Slot(5)), None);
        assert!(!looked(&mut lasting, 8, 9, 12), "no node waits for that");
        assert!(!lasting.awaits_disk());
        assert_eq!(lasting.next_answer(Slot(8)), Some(NodeId(2)));
    }

    /// [last-2] A report belongs to an incarnation. A late report from an old incarnation revokes
    /// nothing.
    #[test]
    fn reports_count_only_for_their_incarnation() {
        let first = Member::first(2);
        let second = Member { incarnation: Incarnation(1), ..first };
        let mut lasting = DurablePrefix::default();
        lasting.on_reply(first, Slot(7));
        lasting.on_reply(first, Slot(4));
        assert_eq!(lasting.reported_to(first), Slot(7));
        lasting.on_reply(second, Slot(3));
        lasting.on_reply(first, Slot(9));
        assert_eq!(lasting.reported_to(first), Slot(0));
        assert_eq!(lasting.reported_to(second), Slot(3));
    }

    #[test]
    fn one_request_serves_all_waiters_and_is_repeated() {
        let mut lasting = DurablePrefix::default();
        assert_eq!(lasting.next_request(Time(0), RETRY_US), None);
        lasting.await_durable(Slot(5));
        assert_eq!(lasting.next_request(Time(0), RETRY_US), Some(Slot(5)));
        lasting.await_durable(Slot(8));
        lasting.await_durable(Slot(6));
        assert_eq!(lasting.next_request(Time(999), RETRY_US), None);
        assert_eq!(lasting.wake_at(RETRY_US), Some(Time(1000)));
        assert_eq!(lasting.next_request(Time(1000), RETRY_US), Some(Slot(8)));
        assert!(lasting.advance_notified(Slot(6)));
        assert_eq!(lasting.next_request(Time(1001), RETRY_US), None);
        assert!(!lasting.advance_notified(Slot(6)) && !lasting.is_idle());
        assert!(lasting.advance_notified(Slot(9)) && lasting.is_idle());
        assert_eq!(lasting.next_request(Time(1002), RETRY_US), None);
        assert_eq!(lasting.wake_at(RETRY_US), None);
        assert!(!lasting.advance_notified(Slot(12)), "no node waits");
    }

    #[test]
    fn peers_are_answered_once_the_requested_slots_are_durable() {
        let mut lasting = DurablePrefix::default();
        lasting.on_request(NodeId(2), Slot(5));
        lasting.on_request(NodeId(3), Slot(7));
        lasting.on_request(NodeId(2), Slot(6));
        assert_eq!(lasting.next_answer(Slot(5)), None);
        assert_eq!(lasting.next_answer(Slot(6)), Some(NodeId(2)));
        assert_eq!(lasting.next_answer(Slot(6)), None);
        lasting.disconnect(NodeId(3));
        assert!(lasting.is_idle());
    }
}
