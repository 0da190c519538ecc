//! Peers that are sent this node's snapshot, a piece at a time, each as far as it asked.

use std::collections::BTreeMap;

use quorate_core::{node_id::NodeId, slot::Slot, time::Time};

use super::manifest::Manifest;

/// Bytes that a peer is sent beyond what it has said to have.
const WINDOW_BYTES: u64 = 4 << 20;
/// A peer that has not asked for this long is forgotten; it will ask again.
const SILENCE_MS: u64 = 30_000;
/// Most peers that are served at a time.
const PEERS_MAX: usize = 16;

/// One peer's transfer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Transfer {
    at: Slot,
    digest: u128,
    /// What the peer said last to have.
    asked: u64,
    /// What it is sent next.
    next: u64,
    /// When it asked last.
    heard: Time,
}

impl Transfer {
    /// What lies below may be sent now, if this is the snapshot that the peer wants.
    fn end(&self, manifest: &Manifest) -> u64 {
        let this = (self.at, self.digest) == (manifest.at, manifest.digest);
        // The peer may say that it has whatever it likes.
        let end = manifest.bytes.min(self.asked.saturating_add(WINDOW_BYTES));
        if this { end } else { 0 }
    }
}

/// All transfers from this node.
#[derive(Debug, Default)]
pub(crate) struct Serving {
    transfers: BTreeMap<NodeId, Transfer>,
    /// Who was served last; the next in order is next.
    last: NodeId,
}

impl Serving {
    /// A peer has everything below `offset` of that snapshot and wants more. `false`: there is no room
    /// for another peer. A question that is repeated says that what was sent got lost.
    pub(crate) fn ask(
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
            Some(transfer) if (transfer.at, transfer.digest) == (at, digest) => {
                transfer.heard = now;
                if offset <= transfer.asked || offset > transfer.next {
                    transfer.next = offset;
                }
                transfer.asked = offset;
            }
            None if full => return false,
            Some(_) | None => {
                let transfer = Transfer {
                    at,
                    digest,
                    asked: offset,
                    next: offset,
                    heard: now,
                };
                self.transfers.insert(from, transfer);
            }
        }
        true
    }

    fn forget_silent(&mut self, now: Time) {
        self.transfers
            .retain(|_, transfer| now.since_us(transfer.heard) < SILENCE_MS * 1000);
    }

    /// Whether this snapshot is being sent to somebody.
    pub(crate) fn uses(&self, manifest: &Manifest) -> bool {
        let mut transfers = self.transfers.values();
        transfers.any(|transfer| (transfer.at, transfer.digest) == (manifest.at, manifest.digest))
    }

    /// How many peers are served.
    #[cfg(test)]
    pub(crate) fn len(&self) -> usize {
        self.transfers.len()
    }

    /// Whether nobody is served.
    pub(crate) fn is_empty(&self) -> bool {
        self.transfers.is_empty()
    }

    /// Whether no other peer can be served now.
    pub(crate) fn is_full(&self) -> bool {
        self.transfers.len() >= PEERS_MAX
    }

    /// Whose turn it is, and from where on; only those who want this snapshot.
    pub(crate) fn next(&mut self, now: Time, manifest: &Manifest) -> Option<(NodeId, u64)> {
        self.forget_silent(now);
        let wants = |(node, transfer): (&NodeId, &Transfer)| {
            (transfer.next < transfer.end(manifest)).then_some((*node, transfer.next))
        };
        let behind = NodeId(self.last.0.saturating_add(1))..;
        let mut turns = self.transfers.range(behind).chain(&self.transfers);
        let next = turns.find_map(wants)?;
        self.last = next.0;
        Some(next)
    }

    /// The part of `content`, which begins at `offset`, that the peer is to be sent; `None` if it does not
    /// want it any more.
    pub(crate) fn piece<'a>(
        &self,
        to: NodeId,
        manifest: &Manifest,
        offset: u64,
        content: &'a [u8],
    ) -> Option<(u64, &'a [u8])> {
        let transfer = self.transfers.get(&to)?;
        let this = (transfer.at, transfer.digest) == (manifest.at, manifest.digest);
        let skipped = usize::try_from(transfer.next.checked_sub(offset)?).ok()?;
        let piece = content.get(skipped..).filter(|piece| !piece.is_empty())?;
        this.then_some((transfer.next, piece))
    }

    /// It was sent that much more.
    pub(crate) fn sent(&mut self, to: NodeId, bytes: usize) {
        if let Some(transfer) = self.transfers.get_mut(&to) {
            transfer.next += bytes as u64;
        }
    }

    /// A peer is gone.
    pub(crate) fn stop(&mut self, node: NodeId) {
        self.transfers.remove(&node);
    }

    /// The snapshot can be sent no more: who wants it asks for another.
    pub(crate) fn clear(&mut self) {
        self.transfers.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::snapshots::layout::Layout;

    const ONE: NodeId = NodeId(1);
    const TWO: NodeId = NodeId(2);

    fn manifest(bytes: u64) -> Manifest {
        Manifest {
            at: Slot(9),
            layout: Layout::USUAL,
            first_part: 1,
            bytes,
            digest: 5,
        }
    }

    fn ask(serving: &mut Serving, from: NodeId, offset: u64) -> bool {
        serving.ask(Time(0), from, Slot(9), 5, offset)
    }

    #[test]
    fn a_peer_is_sent_a_window_beyond_what_it_has() {
        let (mut serving, all) = (Serving::default(), manifest(10 << 20));
        assert!(ask(&mut serving, ONE, 0));
        assert_eq!(serving.next(Time(0), &all), Some((ONE, 0)));
        serving.sent(ONE, 4 << 20);
        assert_eq!(serving.next(Time(0), &all), None, "the window is full");
        ask(&mut serving, ONE, 1 << 20);
        assert_eq!(serving.next(Time(0), &all), Some((ONE, 4 << 20)));
        ask(&mut serving, ONE, 1 << 20);
        assert_eq!(
            serving.next(Time(0), &all),
            Some((ONE, 1 << 20)),
            "it was lost"
        );
        ask(&mut serving, ONE, 10 << 20);
        assert_eq!(serving.next(Time(0), &all), None, "all is there");
        ask(&mut serving, ONE, u64::MAX);
        assert_eq!(serving.next(Time(0), &all), None, "more than there is");
    }

    #[test]
    fn peers_take_turns_and_another_snapshot_is_not_mixed_in() {
        let (mut serving, all) = (Serving::default(), manifest(10 << 20));
        ask(&mut serving, ONE, 0);
        ask(&mut serving, TWO, 100);
        assert_eq!(serving.next(Time(0), &all), Some((ONE, 0)));
        assert_eq!(serving.next(Time(0), &all), Some((TWO, 100)));
        assert_eq!(serving.next(Time(0), &all), Some((ONE, 0)));
        let other = Manifest { digest: 6, ..all };
        assert_eq!(serving.next(Time(0), &other), None);
        assert_eq!(
            serving.piece(TWO, &all, 96, b"0123456"),
            Some((100, &b"456"[..]))
        );
        assert_eq!(serving.piece(TWO, &other, 96, b"0123456"), None);
        assert_eq!(serving.piece(TWO, &all, 101, b"0123456"), None);
        assert_eq!(serving.piece(TWO, &all, 90, b"0123456789"), None);
    }

    #[test]
    fn peers_are_bounded_and_silent_ones_forgotten() {
        let mut serving = Serving::default();
        for node in 0..PEERS_MAX as u32 {
            assert!(ask(&mut serving, NodeId(node), 0));
        }
        assert!(!ask(&mut serving, NodeId(99), 0));
        let later = Time(SILENCE_MS * 1000);
        assert!(serving.ask(later, NodeId(99), Slot(9), 5, 0));
        assert_eq!(serving.len(), 1);
    }
}
