//! A message to one node is given out behind everything that the group got before it.
//!
//! It names the number that the sender's next datagram to the group would have: everything below was sent before it. It
//! waits until that is delivered or given up ([gap-2]): a heartbeat that overtook a proposal would be taken for its
//! loss. Each channel keeps its own order anyway. What goes to the group can name no number of each receiver's own
//! channel, and may overtake what one of them is sent.

use std::collections::{BTreeMap, VecDeque};

use quorate_core::node_id::NodeId;

/// Bytes before the frame of a message to one node.
pub(crate) const BEHIND_BYTES: usize = 8;
/// Messages of one sender that wait; with more, the oldest waits no longer.
const WAITING_MAX: usize = 4096;
/// And their bytes.
const WAITING_BYTES_MAX: usize = 16 << 20;

/// What comes before the frame.
pub(crate) fn behind(next_to_group: u64) -> [u8; BEHIND_BYTES] {
    next_to_group.to_le_bytes()
}

/// The number that a message to one node names, and its frame.
pub(crate) fn split(message: &[u8]) -> Option<(u64, &[u8])> {
    let (behind, frame) = message.split_first_chunk()?;
    Some((u64::from_le_bytes(*behind), frame))
}

/// Messages that wait for datagrams to the group.
#[derive(Clone, Debug, Default)]
pub(crate) struct Order(BTreeMap<NodeId, Waiting>);

#[derive(Clone, Debug, Default)]
struct Waiting {
    messages: VecDeque<(u64, Vec<u8>)>,
    bytes: usize,
}

impl Order {
    /// A message came that is behind what the group got below this number.
    pub(crate) fn add(&mut self, from: NodeId, behind: u64, message: Vec<u8>) {
        let waiting = self.0.entry(from).or_default();
        waiting.bytes += message.len();
        waiting.messages.push_back((behind, message));
    }

    /// What may be given out: everything to the group below this number was delivered or given up.
    pub(crate) fn release(&mut self, from: NodeId, done_to: u64) -> Vec<Vec<u8>> {
        let waiting = self.0.get_mut(&from);
        waiting.map_or_else(Vec::new, |waiting| waiting.release(done_to))
    }

    /// Nothing of it is wanted any more.
    pub(crate) fn forget(&mut self, from: NodeId) {
        self.0.remove(&from);
    }
}

impl Waiting {
    fn release(&mut self, done_to: u64) -> Vec<Vec<u8>> {
        let mut released = Vec::new();
        while let Some((behind, _)) = self.messages.front() {
            let full = self.messages.len() > WAITING_MAX || self.bytes > WAITING_BYTES_MAX;
            if *behind > done_to && !full {
                break;
            }
            if let Some((_, message)) = self.messages.pop_front() {
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

    /// [gap-2] Neither a message nor one behind it overtakes what was sent to the group before.
    #[test]
    fn a_message_waits_for_what_the_group_got_before_it() {
        let mut order = Order::default();
        order.add(FROM, 5, vec![1]);
        assert_eq!(order.release(FROM, 5), [[1]]);
        order.add(FROM, 7, vec![2]);
        order.add(FROM, 6, vec![3]);
        assert!(order.release(FROM, 6).is_empty(), "behind one that waits");
        order.add(NodeId(3), 1, vec![9]);
        assert_eq!(order.release(NodeId(3), 1), [[9]], "of another one");
        assert_eq!(order.release(FROM, 7), [[2], [3]]);
        assert!(order.release(FROM, 7).is_empty());
    }

    #[test]
    fn what_waits_is_bounded_and_can_be_forgotten() {
        let mut order = Order::default();
        for _ in 0..WAITING_MAX {
            order.add(FROM, 9, vec![1]);
        }
        assert!(order.release(FROM, 0).is_empty());
        order.add(FROM, 9, vec![2]);
        assert_eq!(order.release(FROM, 0).len(), 1);
        order.add(FROM, 9, vec![3; WAITING_BYTES_MAX]);
        assert_eq!(order.release(FROM, 0).len(), WAITING_MAX);
        order.forget(FROM);
        assert!(order.release(FROM, 10).is_empty());
    }

    #[test]
    fn a_message_names_a_number_before_its_frame() {
        let message = [&behind(258)[..], b"frame"].concat();
        assert_eq!(split(&message), Some((258, &b"frame"[..])));
        assert_eq!(split(&message[..7]), None);
    }
}
