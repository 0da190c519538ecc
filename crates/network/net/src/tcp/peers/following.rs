//! Who the peers are changes while the node runs: the group's table says so, and whoever has the
//! cluster's id may come before that was heard ([member-3]).
//!
//! A hello proves nothing, so those that the table does not have are bounded, and one that says nothing
//! makes room for the next. Votes are another matter: whose count is the configuration's business.

use quorate_core::node_id::NodeId;
use quorate_wire::{Frame, Lane, RefusalCode};

use super::{Peers, journal::News, table::Was};
use crate::{cx::PeerCx, host::Now};

impl Peers {
    /// Takes over the group's table, if it has changed.
    pub(crate) fn follow(&mut self, cx: &mut PeerCx<'_>) {
        let Some(table) = cx.host.take_table() else {
            return;
        };
        for attempt in self.table.follow(&table, cx.now.time) {
            self.close(attempt, cx);
        }
        for guest in self.table.guests().collect::<Vec<_>>() {
            if self.table.is_overfull() {
                self.send_away(guest, cx);
            }
        }
    }

    /// Removed nodes that have had their time are told, and go.
    pub(super) fn part(&mut self, cx: &mut PeerCx<'_>) {
        for node in self.table.parting(cx.now.time) {
            self.send_away(node, cx);
        }
    }

    /// A place for this node: a guest that says nothing makes room. Whether there is one.
    pub(super) fn make_room(&mut self, node: NodeId, cx: &mut PeerCx<'_>) -> bool {
        if self.table.has(node) {
            return true;
        }
        if self.table.is_full()
            && let Some(idle) = self.idle_guest(cx.now)
        {
            self.send_away(idle, cx);
        }
        !self.table.is_full()
    }

    /// A guest by whose connections nothing came lately, the oldest first.
    pub(super) fn idle_guest(&self, now: Now) -> Option<NodeId> {
        let mut guests = self.table.guests();
        guests.find(|guest| self.living_boot(*guest, now).is_none())
    }

    /// Ends all connections with a node that the group's table does not have. One that was removed hears
    /// that it was.
    fn send_away(&mut self, node: NodeId, cx: &mut PeerCx<'_>) {
        let removed = self.table.is_removed(node);
        let why = if removed {
            "it was removed from the cluster"
        } else {
            "it makes room for others"
        };
        let open: Vec<_> = self.table.open_lanes(node).collect();
        for (lane, id) in open {
            if !removed || lane != Lane::Control {
                if let Some(link) = self.links.get_mut(id) {
                    link.lose(why.to_owned());
                }
                self.close(id, cx);
                continue;
            }
            let reason = format!("node {node} was removed from the cluster");
            self.say(id, &Frame::Refused(RefusalCode::Removed, &reason));
            let deadline = cx.now.time.plus_ms(self.limits.farewell_ms);
            self.links.part(id, deadline);
            if self.table.closed(node, lane, id, cx.now.time) == Some(Was::Open)
                && self.table.set_up(node, false)
            {
                let why = why.to_owned();
                self.journal.tell(cx.now.time, News::Went { node, why });
                self.part_datagrams(node);
                cx.host.peer_down(cx.now, node);
            }
        }
        self.table.forget_guest(node);
    }
}
