//! Packet plane traffic over TCP: introductions, and frames that are not sent as datagrams.

use quorate_core::node_id::{Member, NodeId};
use quorate_packets::plane::Event;
use quorate_replica::{
    plane::ReceivedFrame,
    status::{PeerPlane, PlaneKind},
};
use quorate_wire::{BODY_BYTES_MAX, Datagrams, Decoded, Frame, Lane, decode, sender_durable_seq};

use super::{Peers, is_replica_frame, stage::Stage};
use crate::{
    cx::PeerCx,
    host::TurnTimes,
    plane::{KeyFile, packets::PacketPlane},
    sources::{DatagramSocket, LinkId},
};

impl Peers {
    /// Sends a newly connected peer the introduction of this node's datagrams ([pkt-2]).
    pub(super) fn introduce_datagrams(&mut self, id: LinkId, peer: Member, now: TurnTimes) {
        let packets = self.packets.as_mut();
        if let Some(said) = packets.and_then(|packets| packets.register_peer(peer, now.time)) {
            self.queue_frame(id, &Frame::Datagrams(said.frame()));
        }
    }

    pub(super) fn on_datagrams_introduced(
        &mut self,
        id: LinkId,
        peer: Member,
        said: &Datagrams<'_>,
        now: TurnTimes,
    ) {
        let Some(link) = self.links.get(id) else {
            return;
        };
        let Stage::Open { boot, .. } = link.stage() else {
            return;
        };
        let from = link.socket().remote_ip();
        let Some(packets) = &mut self.packets else {
            return;
        };
        if let Err(why) = packets.introduce((peer, boot), said, from, now.time) {
            let what = format!("uses TCP only: {why}");
            self.journal.log_problem(peer.node, &what);
        }
    }

    /// Stops using datagrams to a peer whose connection has ended.
    pub(super) fn stop_datagrams(&mut self, node: NodeId) {
        if let Some(packets) = &mut self.packets {
            packets.forget_peer(node);
        }
    }

    /// Handles received datagrams, or a socket that can send again.
    pub(crate) fn on_datagrams(
        &mut self,
        hears: DatagramSocket,
        (read, write): (bool, bool),
        cx: &mut PeerCx<'_>,
    ) {
        let Self { packets, stats, .. } = self;
        let Some(packets) = packets else {
            return;
        };
        let unblocked = if write { packets.unblock(cx.sources) } else { Ok(()) };
        let received =
            if read { packets.process_datagrams(hears, cx.now.time, stats) } else { Ok(()) };
        if let Err(error) = unblocked.and(received) {
            // For example, the interface is down. Probes show that nothing arrives.
            tracing::debug!(%error, "datagrams cannot be read");
        }
        self.take_datagram_events(cx);
    }

    /// Runs the packet plane's due timers.
    pub(super) fn run_datagram_timers(&mut self, cx: &mut PeerCx<'_>) {
        if let Some(packets) = &mut self.packets {
            packets.run_timers(cx.now.time);
            self.take_datagram_events(cx);
        }
    }

    /// Sends the datagrams that the rate limit allows.
    pub(super) fn flush_datagrams(&mut self, cx: &PeerCx<'_>) {
        let Self { packets, stats, .. } = self;
        let Some(packets) = packets else {
            return;
        };
        if let Err(error) = packets.flush(cx.now.time, cx.sources, stats) {
            tracing::warn!(%error, "cannot register the datagram socket with the poller");
        }
    }

    fn take_datagram_events(&mut self, cx: &mut PeerCx<'_>) {
        while let Some(event) = self.packets.as_mut().and_then(|packets| packets.next_event()) {
            match event {
                Event::Frame { from, bytes } => self.on_datagram_frame(from, &bytes, cx),
                Event::Up { node, is_by_group: by_group, rtt_us } => {
                    let way = self.plane_kind(by_group);
                    tracing::info!(
                        peer = node.0,
                        rtt_us,
                        by_group,
                        "peer reachable by {}",
                        way.name()
                    );
                }
                Event::Down { node, is_by_group: by_group } => {
                    let way = self.plane_kind(by_group);
                    let next = if by_group { "UDP to this peer" } else { "TCP" };
                    tracing::warn!(
                        peer = node.0,
                        by_group,
                        "peer no longer reachable by {}: using {next}",
                        way.name()
                    );
                }
            }
        }
    }

    fn plane_kind(&self, by_group: bool) -> PlaneKind {
        let packets = self.packets.as_ref();
        packets.map_or(PlaneKind::Tcp, |packets| packets.plane_kind(by_group))
    }

    /// Handles a complete frame received in datagrams. The datagrams' tag identified the sender,
    /// and the frame must name the same sender.
    fn on_datagram_frame(&mut self, from: Member, bytes: &[u8], cx: &mut PeerCx<'_>) {
        let decoded = decode(bytes, BODY_BYTES_MAX);
        let link = self.table.open_link(from.node, Lane::Control);
        let (Ok(Decoded::Frame { from: said, frame, used_bytes: used }), Some(link)) =
            (decoded, link)
        else {
            self.stats.datagram_frames_refused += 1;
            return;
        };
        if said != from || used != bytes.len() || !is_replica_frame(&frame) {
            self.stats.datagram_frames_refused += 1;
            return;
        }
        self.stats.frames_in += 1;
        self.stats.frames_in_datagrams += 1;
        if let Some(link) = self.links.get_mut(link) {
            link.note_frame(cx.now.time);
        }
        let received = ReceivedFrame {
            logged_to: bytes.first_chunk().map_or(0, sender_durable_seq),
            ..ReceivedFrame::without_attributes(from, frame)
        };
        cx.host.handle_frame(&mut cx.now.turn(self), Lane::Control, received);
    }

    pub(crate) fn peer_plane(&self, node: NodeId) -> PeerPlane {
        let packets = self.packets.as_ref();
        let mut plane = packets.and_then(|packets| packets.status(node)).unwrap_or_default();
        let link = self.table.open_link(node, Lane::Control).and_then(|link| self.links.get(link));
        // Without a probe, use the kernel's measurement.
        plane.rtt_us = plane.rtt_us.or_else(|| link?.rtt_us());
        plane
    }

    pub(crate) fn why_plane(&self) -> Option<String> {
        self.packets.as_ref().and_then(PacketPlane::why_plane)
    }

    pub(crate) fn adopt_key_file(&mut self, file: &KeyFile, now: TurnTimes) {
        let Some(packets) = &mut self.packets else {
            return;
        };
        match packets.adopt_key_file(file) {
            Ok(true) => {
                tracing::info!(
                    "accepting datagrams with the new key; sending with it once every peer has it"
                );
                let peers: Vec<NodeId> = self.table.peer_nodes().collect();
                for node in peers {
                    let open = self.table.open_link(node, Lane::Control);
                    let member = open.and_then(|id| Some((id, self.links.get(id)?.member()?)));
                    if let Some((id, member)) = member {
                        self.introduce_datagrams(id, member, now);
                    }
                }
            }
            Ok(false) => {}
            Err(why) => tracing::error!("{why}"),
        }
    }

    pub(crate) fn datagram_metrics(&self, out: &mut String) {
        if let Some(packets) = &self.packets {
            packets.append_metrics(out);
        }
    }
}
