//! Transfer of this node's snapshot to peers, piece by piece on request, and the part of the log
//! that these peers need afterwards.

use std::collections::BTreeMap;

use quorate_core::{node_id::NodeId, slot::Slot, time::Time};

use super::manifest::Manifest;

/// Maximum number of bytes sent to a peer beyond those that it acknowledged.
const WINDOW_BYTES: u64 = 4 << 20;
/// Time in milliseconds after which a transfer is dropped if the peer has neither requested nor
/// been sent any bytes, or counts as stalled if it makes no progress. The peer will ask again.
const SILENCE_TIMEOUT_MS: u64 = 30_000;
/// Maximum number of peers served concurrently.
const SERVED_PEERS_MAX: usize = 16;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Transfer {
    slot: Slot,
    digest: u128,
    /// Offset that the peer requested last. The peer has everything below it.
    requested_offset: u64,
    /// Offset of the next byte to send.
    next_to_send: u64,
    /// Offset of the next byte to read. Bytes from `next_to_send` to this offset are being read.
    next_to_read: u64,
    /// Time of the peer's last request.
    last_request_at: Time,
    /// Highest offset that the peer has requested, and the highest offset that it has been sent.
    furthest_offsets: (u64, u64),
    /// Time at which the transfer last made progress.
    last_progress_at: Time,
    /// The connection was lost. The peer will ask again if it can.
    is_disconnected: bool,
}

impl Transfer {
    /// Returns the end of the bytes that may be sent now; 0 if the peer requested another snapshot.
    fn sendable_end(&self, manifest: &Manifest) -> u64 {
        let this = (self.slot, self.digest) == (manifest.slot, manifest.digest);
        // The peer may request any offset, even beyond the end.
        let end = manifest.bytes.min(self.requested_offset.saturating_add(WINDOW_BYTES));
        if this { end } else { 0 }
    }

    /// Updates the highest offsets requested and sent.
    fn record_progress(&mut self, now: Time) {
        let (asked, sent) = self.furthest_offsets;
        if self.requested_offset > asked || self.next_to_send > sent {
            self.last_progress_at = now;
        }
        self.furthest_offsets = (asked.max(self.requested_offset), sent.max(self.next_to_send));
    }
}

fn is_recent(now: Time, at: Time) -> bool {
    now.since_us(at) < SILENCE_TIMEOUT_MS * 1000
}

/// All transfers from this node.
#[derive(Debug, Default)]
pub(crate) struct Serving {
    transfers: BTreeMap<NodeId, Transfer>,
    /// Peers that catch up from the log, with the start and time of each one's last request.
    log_learners: BTreeMap<NodeId, (Slot, Time)>,
    /// Peer served last; the next turn starts after it.
    last_served: NodeId,
}

impl Serving {
    /// Handles a request from a peer that has everything below `offset` of a snapshot. Returns
    /// `false` if no further peer can be served. A repeated request, or one after a lost
    /// connection, means that bytes in flight were lost.
    pub(crate) fn handle_request(
        &mut self,
        now: Time,
        from: NodeId,
        at: Slot,
        digest: u128,
        offset: u64,
    ) -> bool {
        self.forget_silent(now);
        let full = self.is_full();
        match self.transfers.get_mut(&from) {
            Some(transfer) if (transfer.slot, transfer.digest) == (at, digest) => {
                transfer.last_request_at = now;
                if transfer.is_disconnected
                    || offset <= transfer.requested_offset
                    || offset > transfer.next_to_send
                {
                    (transfer.next_to_send, transfer.next_to_read) = (offset, offset);
                }
                transfer.requested_offset = offset;
                transfer.is_disconnected = false;
                transfer.record_progress(now);
            }
            None if full => return false,
            Some(_) | None => {
                if self.transfers.len() >= SERVED_PEERS_MAX {
                    self.transfers.retain(|_, transfer| !transfer.is_disconnected);
                }
                let transfer = Transfer {
                    slot: at,
                    digest,
                    requested_offset: offset,
                    next_to_send: offset,
                    next_to_read: offset,
                    last_request_at: now,
                    furthest_offsets: (offset, offset),
                    last_progress_at: now,
                    is_disconnected: false,
                };
                self.transfers.insert(from, transfer);
            }
        }
        true
    }

    fn forget_silent(&mut self, now: Time) {
        self.transfers.retain(|_, transfer| {
            is_recent(now, transfer.last_request_at.max(transfer.last_progress_at))
        });
        self.log_learners.retain(|_, (_, at)| is_recent(now, *at));
    }

    /// Records that a peer requested this node's log from slot `from` on.
    pub(crate) fn record_learner(&mut self, now: Time, node: NodeId, from: Slot) {
        self.forget_silent(now);
        // A peer that requests the log from here has installed the snapshot.
        let installed = |transfer: &Transfer| transfer.slot <= from;
        if self.transfers.get(&node).is_some_and(installed) {
            self.transfers.remove(&node);
        }
        if self.log_learners.len() < SERVED_PEERS_MAX || self.log_learners.contains_key(&node) {
            self.log_learners.insert(node, (from, now));
        }
    }

    /// [snap-4] Returns the first slot of the log that must be retained for peers that are making
    /// progress with a snapshot or with catching up. `holds` returns the slot below which a peer
    /// has reported everything.
    pub(crate) fn first_needed_slot(
        &self,
        now: Time,
        holds: impl Fn(NodeId) -> Slot,
    ) -> Option<Slot> {
        let transfers = self.transfers.values();
        let sent = transfers
            .filter(|transfer| is_recent(now, transfer.last_progress_at))
            .map(|transfer| transfer.slot);
        let learning = self.log_learners.iter();
        let learned = learning
            .filter(|(_, (_, at))| is_recent(now, *at))
            .map(|(node, (from, _))| holds(*node).max(*from));
        sent.chain(learned).min()
    }

    /// Returns whether a peer is receiving this snapshot and makes progress.
    pub(crate) fn makes_progress(&self, now: Time, manifest: &Manifest) -> bool {
        let mut transfers = self.transfers.values();
        transfers.any(|transfer| {
            (transfer.slot, transfer.digest) == (manifest.slot, manifest.digest)
                && is_recent(now, transfer.last_progress_at)
        })
    }

    pub(crate) fn is_sending(&self, manifest: &Manifest) -> bool {
        let mut transfers = self.transfers.values();
        transfers
            .any(|transfer| (transfer.slot, transfer.digest) == (manifest.slot, manifest.digest))
    }

    #[cfg(test)]
    pub(crate) fn len(&self) -> usize {
        self.transfers.len()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.transfers.is_empty()
    }

    pub(crate) fn is_full(&self) -> bool {
        let here = self.transfers.values().filter(|transfer| !transfer.is_disconnected);
        here.count() >= SERVED_PEERS_MAX
    }

    /// Returns the next peer for which to read, and the offset to read from. Considers only peers
    /// that requested this snapshot.
    pub(crate) fn next_read(&mut self, now: Time, manifest: &Manifest) -> Option<(NodeId, u64)> {
        self.forget_silent(now);
        let wants = |(node, transfer): (&NodeId, &Transfer)| {
            let more = !transfer.is_disconnected
                && transfer.next_to_read < transfer.sendable_end(manifest);
            more.then_some((*node, transfer.next_to_read))
        };
        let behind = NodeId(self.last_served.0.saturating_add(1))..;
        let mut turns = self.transfers.range(behind).chain(&self.transfers);
        let next = turns.find_map(wants)?;
        self.last_served = next.0;
        Some(next)
    }

    /// Records that bytes below `end` are being read for a peer.
    pub(crate) fn record_reading(&mut self, to: NodeId, end: u64) {
        if let Some(transfer) = self.transfers.get_mut(&to) {
            transfer.next_to_read = end;
        }
    }

    /// Restarts reading for a peer after a failed read or send, since later bytes are useless
    /// without these.
    pub(crate) fn restart_reading(&mut self, to: NodeId) {
        if let Some(transfer) = self.transfers.get_mut(&to) {
            transfer.next_to_read = transfer.next_to_send;
        }
    }

    /// Returns the part of `content` to send to the peer, and its offset, given that `content`
    /// begins at `offset`. Returns `None` if the peer no longer needs it.
    pub(crate) fn piece_to_send<'a>(
        &self,
        to: NodeId,
        manifest: &Manifest,
        offset: u64,
        content: &'a [u8],
    ) -> Option<(u64, &'a [u8])> {
        let transfer = self.transfers.get(&to)?;
        let this = (transfer.slot, transfer.digest) == (manifest.slot, manifest.digest);
        let skipped = usize::try_from(transfer.next_to_send.checked_sub(offset)?).ok()?;
        let piece = content.get(skipped..).filter(|piece| !piece.is_empty())?;
        this.then_some((transfer.next_to_send, piece))
    }

    /// Records that `bytes` more bytes were sent to the peer.
    pub(crate) fn record_sent(&mut self, now: Time, to: NodeId, bytes: usize) {
        if let Some(transfer) = self.transfers.get_mut(&to) {
            transfer.next_to_send += bytes as u64;
            transfer.next_to_read = transfer.next_to_read.max(transfer.next_to_send);
            transfer.record_progress(now);
        }
    }

    /// Pauses the transfer to a disconnected peer. The peer may return soon.
    pub(crate) fn pause_transfer(&mut self, node: NodeId) {
        if let Some(transfer) = self.transfers.get_mut(&node) {
            transfer.is_disconnected = true;
        }
    }

    /// Drops all transfers because the snapshot can no longer be sent. Peers will request another
    /// one.
    pub(crate) fn drop_all(&mut self) {
        self.transfers.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::snapshots::layout::ChunkLayout;

    const ONE: NodeId = NodeId(1);
    const TWO: NodeId = NodeId(2);
    const TWENTY: NodeId = NodeId(20);

    fn manifest(bytes: u64) -> Manifest {
        Manifest { slot: Slot(9), layout: ChunkLayout::DEFAULT, first_part: 1, bytes, digest: 5 }
    }

    fn handle_request(serving: &mut Serving, from: NodeId, offset: u64) -> bool {
        serving.handle_request(Time(0), from, Slot(9), 5, offset)
    }

    #[test]
    fn peer_is_sent_at_most_a_window_ahead() {
        let (mut serving, all) = (Serving::default(), manifest(10 << 20));
        assert!(handle_request(&mut serving, ONE, 0));
        assert_eq!(serving.next_read(Time(0), &all), Some((ONE, 0)));
        serving.record_sent(Time(0), ONE, 4 << 20);
        assert_eq!(serving.next_read(Time(0), &all), None, "the window is full");
        handle_request(&mut serving, ONE, 1 << 20);
        assert_eq!(serving.next_read(Time(0), &all), Some((ONE, 4 << 20)));
        handle_request(&mut serving, ONE, 1 << 20);
        assert_eq!(serving.next_read(Time(0), &all), Some((ONE, 1 << 20)), "it was lost");
        handle_request(&mut serving, ONE, 10 << 20);
        assert_eq!(serving.next_read(Time(0), &all), None, "all is there");
        handle_request(&mut serving, ONE, u64::MAX);
        assert_eq!(serving.next_read(Time(0), &all), None, "more than there is");
    }

    /// Pieces are sent in order. If a send fails, the later reads in flight are repeated.
    #[test]
    fn reads_ahead_are_repeated_after_a_failed_send() {
        let (mut serving, all) = (Serving::default(), manifest(1000));
        handle_request(&mut serving, ONE, 0);
        for (from, end) in [(0, 100), (100, 200), (200, 300)] {
            assert_eq!(serving.next_read(Time(0), &all), Some((ONE, from)));
            serving.record_reading(ONE, end);
        }
        serving.record_sent(Time(0), ONE, 100);
        assert_eq!(serving.next_read(Time(0), &all), Some((ONE, 300)));
        // There is no space for the second piece.
        assert!(serving.piece_to_send(ONE, &all, 100, &[7; 100]).is_some());
        serving.restart_reading(ONE);
        assert_eq!(serving.piece_to_send(ONE, &all, 200, &[7; 100]), None);
        assert_eq!(serving.next_read(Time(0), &all), Some((ONE, 100)));
    }

    #[test]
    fn peers_take_turns_and_another_snapshot_is_not_mixed_in() {
        let (mut serving, all) = (Serving::default(), manifest(10 << 20));
        handle_request(&mut serving, ONE, 0);
        handle_request(&mut serving, TWO, 100);
        assert_eq!(serving.next_read(Time(0), &all), Some((ONE, 0)));
        assert_eq!(serving.next_read(Time(0), &all), Some((TWO, 100)));
        assert_eq!(serving.next_read(Time(0), &all), Some((ONE, 0)));
        let other = Manifest { digest: 6, ..all };
        assert_eq!(serving.next_read(Time(0), &other), None);
        assert_eq!(serving.piece_to_send(TWO, &all, 96, b"0123456"), Some((100, &b"456"[..])));
        assert_eq!(serving.piece_to_send(TWO, &other, 96, b"0123456"), None);
        assert_eq!(serving.piece_to_send(TWO, &all, 101, b"0123456"), None);
        assert_eq!(serving.piece_to_send(TWO, &all, 90, b"0123456789"), None);
    }

    #[test]
    fn peers_are_bounded_and_silent_ones_forgotten() {
        let mut serving = Serving::default();
        for node in 0..SERVED_PEERS_MAX as u32 {
            assert!(handle_request(&mut serving, NodeId(node), 0));
        }
        assert!(!handle_request(&mut serving, NodeId(99), 0));
        let later = Time(SILENCE_TIMEOUT_MS * 1000);
        assert!(serving.handle_request(later, NodeId(99), Slot(9), 5, 0));
        assert_eq!(serving.len(), 1);

        // A peer that lost its connection does not prevent others from being served.
        for node in 0..SERVED_PEERS_MAX as u32 - 1 {
            assert!(serving.handle_request(later, NodeId(node), Slot(9), 5, 0));
        }
        assert!(!serving.handle_request(later, TWENTY, Slot(9), 5, 0));
        serving.pause_transfer(NodeId(3));
        assert!(serving.handle_request(later, TWENTY, Slot(9), 5, 0));
        assert_eq!(serving.len(), SERVED_PEERS_MAX);
    }

    /// [snap-4] A peer that repeats its requests does not delay trimming for long.
    #[test]
    fn log_is_retained_only_for_peers_that_progress() {
        let (mut serving, all) = (Serving::default(), manifest(10 << 20));
        let at = |seconds: u64| Time(0).plus_ms(seconds * 1000);
        let state = |serving: &Serving, seconds| {
            (
                serving.makes_progress(at(seconds), &all),
                serving.first_needed_slot(at(seconds), |_| Slot(0)).map(|slot| slot.0),
            )
        };
        assert_eq!(state(&serving, 0), (false, None));
        serving.handle_request(at(0), ONE, Slot(9), 5, 0);
        assert_eq!(state(&serving, 29), (true, Some(9)));
        serving.handle_request(at(20), ONE, Slot(9), 5, 0);
        assert_eq!(state(&serving, 30), (false, None), "it has got nothing");
        // The log is retained for a slow peer as long as it makes progress.
        for seconds in (20..200).step_by(20) {
            serving.record_sent(at(seconds), ONE, 100);
            assert_eq!(serving.next_read(at(seconds), &all).unwrap().0, ONE);
            assert_eq!(state(&serving, seconds + 29), (true, Some(9)));
        }
        // The connection is lost and restored.
        serving.pause_transfer(ONE);
        assert_eq!(serving.next_read(at(200), &all), None);
        assert_eq!(state(&serving, 200), (true, Some(9)));
        serving.handle_request(at(200), ONE, Slot(9), 5, 500);
        assert_eq!(serving.next_read(at(200), &all), Some((ONE, 500)));
        // The peer has the whole snapshot, and needs the log after it.
        serving.record_learner(at(201), ONE, Slot(9));
        assert_eq!(state(&serving, 201), (false, Some(9)));
        serving.record_learner(at(210), ONE, Slot(70));
        assert_eq!(state(&serving, 239), (false, Some(70)));
        // The peer reports its progress.
        let needs =
            serving.first_needed_slot(at(239), |peer| Slot(if peer == ONE { 90 } else { 99 }));
        assert_eq!(needs, Some(Slot(90)));
        assert_eq!(state(&serving, 240), (false, None));
    }
}
