//! Changes to the set of peers while the node runs. The group's table lists the peers, but a node
//! with the cluster's id may connect before this node has learned of it ([member-3]).
//!
//! A hello proves nothing, so the number of peers outside the table is bounded, and a silent one is
//! disconnected to admit the next. The configuration decides which votes count.

use quorate_core::{level::Level, node_id::NodeId};
use quorate_wire::{Frame, Lane, RefusalCode};

use super::{Peers, journal::ConnectionChange, stage::Stage, table::FormerRole};
use crate::{cx::PeerCx, host::TurnTimes, sources::LinkId};

impl Peers {
    /// Adopts the group's table and its level, if they have changed.
    pub(crate) fn adopt_table(&mut self, cx: &mut PeerCx<'_>) {
        self.follow_level(cx);
        let Some(table) = cx.host.take_peer_table() else {
            return;
        };
        for attempt in self.table.adopt_table(&table, cx.now.time) {
            self.close_link(attempt, cx);
        }
        for guest in self.table.guests().collect::<Vec<_>>() {
            if self.table.is_overfull() {
                self.disconnect_unlisted(guest, cx);
            }
        }
    }

    /// [level-7] Notifies and disconnects each peer that does not support the level in use.
    fn follow_level(&mut self, cx: &mut PeerCx<'_>) {
        let levels = cx.host.levels();
        if levels == std::mem::replace(&mut self.levels, levels) {
            return;
        }
        let me = self.identity.member.node;
        for (node, newest) in self.peers_below_level() {
            let reason = format!(
                "node {node} supports level {newest} at most, and the cluster of node {me} is at level {} now: install \
                 the release on node {node} that the other nodes run",
                levels.lowest
            );
            self.journal.log_problem(node, &reason);
            self.refuse_and_close(node, RefusalCode::Version, &reason, cx);
        }
    }

    /// Returns the connected peers that do not support the level in use, with their newest levels.
    fn peers_below_level(&self) -> Vec<(NodeId, Level)> {
        let peers = self.table.connected_nodes().filter_map(|node| {
            let (_, id) = self.table.open_lanes(node).next()?;
            match self.links.stage(id)? {
                Stage::Open { levels, .. } => Some((node, levels.newest)),
                _ => None,
            }
        });
        peers.filter(|(_, newest)| *newest < self.levels.lowest).collect()
    }

    /// Notifies and disconnects removed nodes whose grace period is over.
    pub(super) fn disconnect_removed(&mut self, cx: &mut PeerCx<'_>) {
        for node in self.table.overdue_removed(cx.now.time) {
            self.disconnect_unlisted(node, cx);
        }
    }

    /// Ensures that a node has a table entry or can get one, if necessary by disconnecting a silent
    /// guest. Returns `false` if there is no free entry.
    pub(super) fn make_room(&mut self, node: NodeId, cx: &mut PeerCx<'_>) -> bool {
        if self.table.has_node(node) {
            return true;
        }
        if self.table.is_full()
            && let Some(idle) = self.idle_guest(cx.now)
        {
            self.disconnect_unlisted(idle, cx);
        }
        !self.table.is_full()
    }

    /// Returns the oldest guest from which no frame arrived recently.
    pub(super) fn idle_guest(&self, now: TurnTimes) -> Option<NodeId> {
        let mut guests = self.table.guests();
        guests.find(|guest| self.newest_live_boot(*guest, now).is_none())
    }

    /// Closes all connections with a node outside the table. Notifies a removed node first.
    fn disconnect_unlisted(&mut self, node: NodeId, cx: &mut PeerCx<'_>) {
        if self.table.is_removed(node) {
            let reason = format!("node {node} was removed from the cluster");
            return self.refuse_and_close(node, RefusalCode::NodeRemoved, &reason, cx);
        }
        let open: Vec<_> = self.table.open_lanes(node).collect();
        for (_, id) in open {
            self.close_with_reason(id, "it makes room for others", cx);
        }
        self.table.forget_guest(node);
    }

    /// Sends a node the reason and then closes all connections with it.
    fn refuse_and_close(
        &mut self,
        node: NodeId,
        code: RefusalCode,
        reason: &str,
        cx: &mut PeerCx<'_>,
    ) {
        let open: Vec<_> = self.table.open_lanes(node).collect();
        for (lane, id) in open {
            if lane != Lane::Control {
                self.close_with_reason(id, reason, cx);
                continue;
            }
            self.queue_frame(id, &Frame::Refused(code, reason));
            let deadline = cx.now.time.plus_ms(self.limits.close_timeout_ms);
            self.links.begin_leaving(id, deadline);
            if self.table.record_closed(node, lane, id, cx.now.time) == Some(FormerRole::Open)
                && self.table.set_connected(node, false)
            {
                let why = reason.to_owned();
                self.journal.log_change(cx.now.time, ConnectionChange::Disconnected { node, why });
                self.stop_datagrams(node);
                cx.host.peer_down(cx.now, node);
            }
        }
        self.table.forget_guest(node);
    }

    fn close_with_reason(&mut self, id: LinkId, why: &str, cx: &mut PeerCx<'_>) {
        if let Some(link) = self.links.get_mut(id) {
            link.set_end_reason(why.to_owned());
        }
        self.close_link(id, cx);
    }
}
