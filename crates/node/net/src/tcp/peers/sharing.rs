//! Division of the bandwidth between connections and datagrams. While frames are sent by datagram,
//! connections use only the bandwidth that datagrams leave ([rate-4]).

use quorate_core::{node_id::NodeId, time::Time};
use quorate_wire::Lane;

use super::{Peers, stage::Stage};
use crate::{
    cx::PeerCx,
    sources::LinkId,
    tcp::share::{BandwidthShare, UNREACHED_BYTES_MAX},
};

impl Peers {
    /// Returns the number of bytes that may be written to a connection now. Handshakes are not
    /// limited.
    pub(super) fn write_limit(&mut self, id: LinkId, now: Time) -> usize {
        let open = matches!(self.links.stage(id), Some(Stage::Open { .. }));
        match (&mut self.bandwidth_share, &self.packets) {
            (Some(share), Some(side)) if open && side.reaches_any() => {
                share.record_datagrams(side.sent_bytes(), now);
                share.available_bytes(now)
            }
            _ => usize::MAX,
        }
    }

    /// Records that `bytes` bytes were written.
    pub(super) fn record_written_bytes(&mut self, bytes: usize, now: Time) {
        if let Some(share) = &mut self.bandwidth_share {
            share.record_sent(bytes, now);
        }
    }

    /// Defers the output of a connection until bandwidth is available again.
    pub(super) fn wait_for_share(&mut self, id: LinkId, cx: &mut PeerCx<'_>) {
        if self.links.get(id).is_some_and(|link| link.unsent_bytes() > 0) {
            self.links.pause(id);
            self.register_interest(id, cx);
        }
    }

    /// Returns when connections that wait for their share of the bandwidth may write again.
    pub(super) fn next_write_at(&self) -> Option<Time> {
        let waits = self.links.has_paused();
        self.bandwidth_share.as_ref().filter(|_| waits).map(BandwidthShare::next_send_at)
    }

    /// Flushes the connections that wait for bandwidth, once it is available again.
    pub(super) fn flush_paused(&mut self, cx: &mut PeerCx<'_>) {
        if self.next_write_at().is_some_and(|at| at <= cx.now.time) {
            for id in self.links.take_paused() {
                self.write(id, cx);
            }
        }
    }

    /// Returns the queue limit for a peer on this lane. A peer that datagrams do not reach, while
    /// they reach other peers, gets a short queue.
    pub(super) fn queue_bytes_max(&self, to: NodeId, lane: Lane) -> usize {
        let side = self.packets.as_ref().filter(|_| lane == Lane::Control);
        let passed_over = side.is_some_and(|side| side.reaches_any() && !side.reaches(to));
        if passed_over { UNREACHED_BYTES_MAX } else { usize::MAX }
    }
}
