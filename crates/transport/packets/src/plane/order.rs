//! Message order: a message to one node is delivered after everything that its sender sent to the
//! multicast group before.
//!
//! The message contains the number of the sender's next datagram to the group; lower numbers
//! precede it. It waits until all of those are delivered or given up ([gap-2]). Otherwise a
//! heartbeat that overtook a proposal would be taken as proof that the proposal was lost. The
//! message also states how many of those datagrams were unsent, because only sent ones can be
//! missing. Each channel delivers in order by itself. Messages to the group cannot contain a number
//! for each receiver's own channel, so they may overtake messages sent to one node.

use std::collections::{BTreeMap, VecDeque};

use quorate_core::node_id::NodeId;

/// Length of the prefix of a message to one node, in bytes.
pub(crate) const PREDECESSORS_BYTES: usize = 12;
/// Maximum number of waiting messages from one sender. Beyond it, the oldest is released.
const WAITING_MAX: usize = 4096;
/// Maximum total size of the waiting messages from one sender, in bytes.
const WAITING_BYTES_MAX: usize = 16 << 20;

/// Multicast datagrams that precede a message to one node.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct PrecedingMulticast {
    /// Number below which datagrams precede the frame.
    pub(crate) next: u64,
    /// Number below which datagrams had been sent when the message was sent.
    pub(crate) group_sent_to: u64,
}

impl PrecedingMulticast {
    /// Encodes the prefix of the frame.
    pub(crate) fn bytes(self) -> [u8; PREDECESSORS_BYTES] {
        // A channel's window never contains more datagrams than that.
        let unsent =
            u32::try_from(self.next.saturating_sub(self.group_sent_to)).unwrap_or(u32::MAX);
        let mut bytes = [0; PREDECESSORS_BYTES];
        bytes[..8].copy_from_slice(&self.next.to_le_bytes());
        bytes[8..].copy_from_slice(&unsent.to_le_bytes());
        bytes
    }
}

/// Splits a message to one node into its prefix and its frame.
pub(crate) fn split_predecessors(message: &[u8]) -> Option<(PrecedingMulticast, &[u8])> {
    let (next, rest) = message.split_first_chunk()?;
    let (unsent, frame) = rest.split_first_chunk()?;
    let next = u64::from_le_bytes(*next);
    let sent_to = next.saturating_sub(u32::from_le_bytes(*unsent).into());
    Some((PrecedingMulticast { next, group_sent_to: sent_to }, frame))
}

/// Messages that wait for multicast datagrams.
#[derive(Clone, Debug, Default)]
pub(crate) struct WaitingUnicast(BTreeMap<NodeId, SenderQueue>);

#[derive(Clone, Debug, Default)]
struct SenderQueue {
    waiting_messages: VecDeque<(u64, Vec<u8>)>,
    bytes: usize,
}

impl WaitingUnicast {
    /// Adds a message that follows the group's datagrams below `behind`. If an earlier message has
    /// a higher number, the numbers in between were withdrawn, or the group no longer reaches this
    /// node, so earlier messages must not wait for them ([rate-3]). Otherwise all messages of the
    /// sender would wait until it sends to the group again.
    pub(crate) fn add(&mut self, from: NodeId, behind: u64, message: Vec<u8>) {
        let waiting = self.0.entry(from).or_default();
        let earlier = waiting.waiting_messages.iter_mut().rev();
        for (before, _) in earlier.take_while(|(before, _)| *before > behind) {
            *before = behind;
        }
        waiting.bytes += message.len();
        waiting.waiting_messages.push_back((behind, message));
    }

    /// Removes and returns the messages that are due, given that all of the group's datagrams below
    /// `done_to` were delivered or given up.
    pub(crate) fn release_due(&mut self, from: NodeId, done_to: u64) -> Vec<Vec<u8>> {
        let waiting = self.0.get_mut(&from);
        waiting.map_or_else(Vec::new, |waiting| waiting.release_due(done_to))
    }

    /// Drops the waiting messages of a sender.
    pub(crate) fn drop_sender(&mut self, from: NodeId) {
        self.0.remove(&from);
    }
}

impl SenderQueue {
    fn release_due(&mut self, done_to: u64) -> Vec<Vec<u8>> {
        let mut released = Vec::new();
        while let Some((behind, _)) = self.waiting_messages.front() {
            let full = self.waiting_messages.len() > WAITING_MAX || self.bytes > WAITING_BYTES_MAX;
            if *behind > done_to && !full {
                break;
            }
            if let Some((_, message)) = self.waiting_messages.pop_front() {
                self.bytes -= message.len();
                released.push(message);
            }
        }
        released
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FROM: NodeId = NodeId(2);

    /// [gap-2] Neither a message to one node nor a later one overtakes what was sent to the
    /// multicast group before.
    #[test]
    fn message_waits_for_earlier_multicast_messages() {
        let mut order = WaitingUnicast::default();
        order.add(FROM, 5, vec![1]);
        assert_eq!(order.release_due(FROM, 5), [[1]]);
        order.add(FROM, 7, vec![2]);
        order.add(FROM, 7, vec![3]);
        assert!(order.release_due(FROM, 6).is_empty(), "behind what is in flight");
        order.add(NodeId(3), 1, vec![9]);
        assert_eq!(order.release_due(NodeId(3), 1), [[9]], "of another one");
        assert_eq!(order.release_due(FROM, 7), [[2], [3]]);
        assert!(order.release_due(FROM, 7).is_empty());
    }

    /// [rate-3] Withdrawn datagrams never arrive. Earlier ones still may.
    #[test]
    fn lower_number_ends_the_wait_for_withdrawn_datagrams() {
        let mut order = WaitingUnicast::default();
        order.add(FROM, 5, vec![1]);
        order.add(FROM, 9, vec![2]);
        order.add(FROM, 12, vec![3]);
        assert!(order.release_due(FROM, 4).is_empty());
        order.add(FROM, 7, vec![4]);
        assert_eq!(order.release_due(FROM, 6), [[1]]);
        assert_eq!(order.release_due(FROM, 7), [[2], [3], [4]]);
    }

    #[test]
    fn waiting_messages_are_bounded_and_can_be_dropped() {
        let mut order = WaitingUnicast::default();
        for _ in 0..WAITING_MAX {
            order.add(FROM, 9, vec![1]);
        }
        assert!(order.release_due(FROM, 0).is_empty());
        order.add(FROM, 9, vec![2]);
        assert_eq!(order.release_due(FROM, 0).len(), 1);
        order.add(FROM, 9, vec![3; WAITING_BYTES_MAX]);
        assert_eq!(order.release_due(FROM, 0).len(), WAITING_MAX);
        order.drop_sender(FROM);
        assert!(order.release_due(FROM, 10).is_empty());
    }

    #[test]
    fn message_has_its_predecessors_before_the_frame() {
        let behind = PrecedingMulticast { next: 258, group_sent_to: 250 };
        let message = [&behind.bytes()[..], b"frame"].concat();
        assert_eq!(split_predecessors(&message), Some((behind, &b"frame"[..])));
        assert_eq!(split_predecessors(&message[..PREDECESSORS_BYTES - 1]), None);
        // A stranger claims that more datagrams are unsent than exist.
        let wild = [&1_u64.to_le_bytes()[..], &[0xff; 4]].concat();
        let none_sent = PrecedingMulticast { next: 1, group_sent_to: 0 };
        assert_eq!(split_predecessors(&wild), Some((none_sent, &b""[..])));
    }
}
