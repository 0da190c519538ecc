//! Connections from a node that claims to be an already connected peer.
//!
//! A hello proves nothing, because anyone who knows the cluster's id can send one. So a connection
//! that has only sent a hello does not replace a live one. The newcomer waits until it has sent
//! another frame, or until the live connection has been silent for the duration of a handshake. A
//! machine that is back after a power loss meets one of these conditions within that time; an
//! attacker who replays a hello meets neither.

use quorate_core::node_id::NodeId;
use quorate_replica::plane::ReceivedFrame;
use quorate_wire::{BODY_BYTES_MAX, Frame, Lane, Malformed};

use super::{
    Peers,
    link::Link,
    stage::{Greeter, Stage, Verdict},
};
use crate::{cx::PeerCx, host::TurnTimes, sources::LinkId};

impl Peers {
    /// Returns whether a frame arrived on this connection recently.
    fn is_alive(&self, id: LinkId, now: TurnTimes) -> bool {
        let heard = self.links.get(id).and_then(Link::last_frame_at);
        heard.is_some_and(|at| now.time.since_us(at) < self.limits.handshake_timeout_ms * 1000)
    }

    /// Returns the connections that a new connection of the greeter's process would replace: the
    /// one of the same lane, and all those of older processes.
    pub(super) fn links_to_replace(
        &self,
        node: NodeId,
        lane: Lane,
        boot: u32,
    ) -> impl Iterator<Item = LinkId> {
        self.table.open_lanes(node).filter_map(move |(other, id)| {
            let stage = self.links.stage(id)?;
            let older = matches!(stage, Stage::Open { boot: known, .. } if known < boot);
            (other == lane || older).then_some(id)
        })
    }

    /// Returns the newest boot number among the live connections with this peer.
    pub(super) fn newest_live_boot(&self, node: NodeId, now: TurnTimes) -> Option<u32> {
        let open = self.table.open_lanes(node).map(|(_, id)| id);
        let boots = open.filter(|id| self.is_alive(*id, now)).filter_map(|id| {
            match self.links.stage(id)? {
                Stage::Open { boot, .. } => Some(boot),
                _ => None,
            }
        });
        boots.max()
    }

    /// Returns whether a greeter would replace a live connection.
    pub(super) fn would_replace_live(&self, greeter: &Greeter, now: TurnTimes) -> bool {
        self.links_to_replace(greeter.member.node, greeter.lane, greeter.boot)
            .any(|id| self.is_alive(id, now))
    }

    /// Makes a connection wait for its first frame after the hello.
    pub(super) fn wait_for_first_frame(&mut self, id: LinkId, greeter: Greeter, now: TurnTimes) {
        let deadline = now.time.plus_ms(self.limits.handshake_timeout_ms);
        if let Some(link) = self.links.get_mut(id) {
            link.wait_for_admission(greeter, deadline);
        }
    }

    /// Handles a newcomer's first frame after the hello. A valid frame puts the connection into
    /// use; any other closes it.
    pub(super) fn on_newcomer_frame(
        &mut self,
        id: LinkId,
        received: ReceivedFrame<'_>,
        cx: &mut PeerCx<'_>,
    ) -> Verdict {
        let greeting = matches!(
            received.frame,
            Frame::Hello(_)
                | Frame::Welcome(_)
                | Frame::Join(_)
                | Frame::Founding(_)
                | Frame::Refused(..)
        );
        let greeter = self.greeter(id);
        let Some(greeter) = greeter.filter(|greeter| greeter.member == received.from && !greeting)
        else {
            return Verdict::Close;
        };
        let (member, lane) = (greeter.member, greeter.lane);
        if !self.admit_newcomer(id, cx) {
            return Verdict::Close;
        }
        self.on_peer_frame(id, member, lane, received, cx)
    }

    /// Puts a newcomer's connection into use if its input starts a frame longer than a greeting.
    /// Returns whether it did.
    pub(super) fn begins_long_frame(
        &mut self,
        id: LinkId,
        malformed: Malformed,
        cx: &mut PeerCx<'_>,
    ) -> bool {
        let is_newcomer = self.greeter(id).is_some();
        let long =
            matches!(malformed, Malformed::TooLong { length, .. } if length <= BODY_BYTES_MAX);
        is_newcomer && long && self.admit_newcomer(id, cx)
    }

    fn greeter(&self, id: LinkId) -> Option<&Greeter> {
        self.links.get(id)?.greeter()
    }

    /// Replaces the peer's connections with the newcomer's, unless a newer process is connected.
    fn admit_newcomer(&mut self, id: LinkId, cx: &mut PeerCx<'_>) -> bool {
        let Some(node) = self.greeter(id).map(|greeter| greeter.member.node) else {
            return false;
        };
        let living = self.newest_live_boot(node, cx.now);
        let Some(greeter) = self.links.get_mut(id).and_then(Link::take_greeter) else {
            return false;
        };
        if living.is_some_and(|boot| boot > greeter.boot) {
            return false;
        }
        self.open_link(id, greeter, cx)
    }

    /// Admits the newcomers that no longer have a live connection to wait for, and closes those
    /// that sent no frame in time.
    pub(super) fn settle_newcomers(&mut self, cx: &mut PeerCx<'_>) {
        for id in self.links.newcomers() {
            let Some(greeter) = self.greeter(id) else {
                continue;
            };
            let node = greeter.member.node;
            if !self.would_replace_live(greeter, cx.now) {
                if !self.admit_newcomer(id, cx) {
                    self.close_link(id, cx);
                }
            } else if self.links.is_overdue(id, cx.now.time) {
                let what = "a second connection in its name said nothing; the one in use stays";
                self.journal.log_problem(node, what);
                self.close_link(id, cx);
            }
        }
    }
}
