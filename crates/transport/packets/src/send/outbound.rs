//! Outgoing channel of this node. It numbers messages, splits them into datagrams, and retains
//! these until they may be dropped.

use quorate_core::node_id::Member;

use crate::{
    buffer::{DatagramBuffer, DatagramRun},
    header::{HEADER_BYTES, Header, Kind},
    limits::{Limits, MESSAGE_BYTES_MAX},
    trust::{TagKey, keys::KeyId},
};

/// An outgoing channel, to the multicast group or to one node.
pub struct OutboundChannel {
    header_template: Header,
    receiver: Option<Member>,
    payload_bytes: usize,
    buffer: DatagramBuffer,
    next_number: u64,
    /// Number below which all datagrams have been passed to the caller.
    sent_to: u64,
    /// Number below which datagrams may be freed.
    released_to: u64,
    /// Total size of the datagrams that may not be freed, in bytes.
    unreleased_bytes: usize,
    held_bytes_max: usize,
    datagram_bytes: usize,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PushedNumbers {
    /// Number of the message's first datagram, which names the message.
    pub first: u64,
    /// One past the number of its last datagram.
    pub end: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PushError {
    /// The message is longer than [`MESSAGE_BYTES_MAX`], has more parts than can be numbered, or is
    /// larger than the buffer.
    TooLong,
    /// Undecided messages fill the window, so the caller has to wait ([rate-1]).
    Full,
    /// The channel has stopped, because a frame from a higher ballot's leader arrived ([rate-3]).
    Stopped,
}

impl OutboundChannel {
    /// Creates a channel. `template` contains the sender, boot, group, channel and audience of its
    /// datagrams, the first of which gets the number `next`.
    pub(crate) fn new(template: Header, to: Option<Member>, next: u64, limits: &Limits) -> Self {
        let buffer_bytes = match to {
            Some(_) => limits.unicast_buffer_bytes,
            None => limits.buffer_bytes,
        };
        let numbers = buffer_bytes / limits.datagram_bytes;
        Self {
            header_template: template,
            receiver: to,
            payload_bytes: limits.datagram_bytes - HEADER_BYTES,
            buffer: DatagramBuffer::new(buffer_bytes, numbers.clamp(1 << 10, 1 << 16)),
            next_number: next,
            sent_to: next,
            released_to: next,
            unreleased_bytes: 0,
            held_bytes_max: limits.window_bytes.min(buffer_bytes / 2),
            datagram_bytes: limits.datagram_bytes,
        }
    }

    /// Returns the number of bytes that can be queued before undecided messages fill the window
    /// ([rate-1]).
    pub const fn window_bytes_left(&self) -> usize {
        self.held_bytes_max.saturating_sub(self.unreleased_bytes)
    }

    pub const fn next_number(&self) -> u64 {
        self.next_number
    }

    pub const fn sent_to(&self) -> u64 {
        self.sent_to
    }

    pub const fn to(&self) -> Option<Member> {
        self.receiver
    }

    /// Returns whether any datagrams wait to be sent.
    pub const fn has_unsent(&self) -> bool {
        self.sent_to < self.next_number
    }

    /// Returns the total size of the unsent datagrams, but at most `bound`.
    pub fn unsent_bytes_within(&self, bound: usize) -> usize {
        let mut bytes = 0;
        for number in self.sent_to..self.next_number {
            bytes += self.buffer.datagram(number).map_or(0, <[u8]>::len);
            if bytes >= bound {
                return bound;
            }
        }
        bytes
    }

    /// Splits a message into datagrams, numbers them and seals them ([pkt-1], [pkt-4]). The message
    /// is accepted entirely or not at all. An empty window accepts a message of any length.
    /// `message` consists of slices to concatenate.
    pub fn push(
        &mut self,
        message: &[&[u8]],
        key: KeyId,
        seal: &TagKey,
    ) -> Result<PushedNumbers, PushError> {
        let length: usize = message.iter().map(|piece| piece.len()).sum();
        let parts = length.div_ceil(self.payload_bytes).max(1);
        let count = u16::try_from(parts).map_err(|_| PushError::TooLong)?;
        let bytes = length + parts * HEADER_BYTES;
        if length > MESSAGE_BYTES_MAX || !self.buffer.could_hold(bytes, parts) {
            return Err(PushError::TooLong);
        }
        if self.unreleased_bytes > 0 && bytes > self.window_bytes_left() {
            return Err(PushError::Full);
        }
        let first = self.next_number;
        let end = first.checked_add(count.into()).ok_or(PushError::TooLong)?;
        let mut pieces = UnreadSlices::new(message);
        for index in 0..count {
            let at = usize::from(index) * self.payload_bytes;
            let part_bytes = (length - at).min(self.payload_bytes);
            let header = Header {
                kind: Kind::Fragment,
                key,
                number: first + u64::from(index),
                index,
                part_count: count,
                ..self.header_template
            };
            let released = self.released_to;
            let datagram_bytes = HEADER_BYTES + part_bytes;
            let room =
                self.buffer.insert(header.number, datagram_bytes, |number| number < released);
            let Some(room) = room else {
                for number in (first..header.number).rev() {
                    self.buffer.remove_newest(number);
                }
                return Err(PushError::Full);
            };
            room[..HEADER_BYTES].copy_from_slice(&header.bytes());
            pieces.fill(&mut room[HEADER_BYTES..]);
            seal.write_tag(room, self.receiver);
        }
        self.next_number = end;
        self.unreleased_bytes += bytes;
        Ok(PushedNumbers { first, end })
    }

    /// Returns the next datagrams that one system call can send: at most `bytes_max` bytes, or a
    /// single datagram. They count as sent.
    pub fn next_run(&mut self, bytes_max: usize) -> Option<DatagramRun<'_>> {
        if !self.has_unsent() {
            return None;
        }
        let count = (self.next_number - self.sent_to).min(SEGMENTS_MAX);
        let run = self.buffer.run(self.sent_to, count, bytes_max.min(BYTES_PER_CALL_MAX));
        let run = run.expect("what is not sent is not released, and so not freed");
        self.sent_to = run.numbers.end;
        Some(run)
    }

    /// Takes back the last datagrams of a [`Self::next_run`], starting at `number`, because they
    /// were not sent. The next [`Self::next_run`] returns them again.
    pub fn unsend_from(&mut self, number: u64) {
        let sent = self.released_to..=self.sent_to;
        assert!(sent.contains(&number), "taken, and not decided");
        self.sent_to = number;
    }

    /// [pkt-8] Releases all messages below `number`, because they are decided and announced. Their
    /// datagrams may be dropped when space is needed. Unsent datagrams are kept.
    pub fn release_to(&mut self, number: u64) {
        let to = number.min(self.sent_to);
        while self.released_to < to {
            let datagram = self.buffer.datagram(self.released_to);
            self.unreleased_bytes -= datagram.map_or(0, <[u8]>::len).min(self.unreleased_bytes);
            self.released_to += 1;
        }
    }

    /// Returns a sent datagram, or `None` if it is no longer retained.
    pub fn datagram(&self, number: u64) -> Option<&[u8]> {
        let sent = number < self.sent_to;
        sent.then(|| self.buffer.datagram(number)).flatten()
    }

    /// [rate-3] Withdraws unsent messages, whose numbers no node has seen. If only part of a
    /// message was sent, the rest counts as sent and is available for repairs, because a node with
    /// a part waits for the whole message and for everything after it.
    pub fn withdraw_unsent(&mut self) {
        self.sent_to = self.end_of_partly_sent();
        for number in (self.sent_to..self.next_number).rev() {
            let length = self.buffer.datagram(number).map_or(0, <[u8]>::len);
            self.unreleased_bytes -= length.min(self.unreleased_bytes);
            assert!(self.buffer.remove_newest(number), "the newest datagram");
        }
        self.next_number = self.sent_to;
    }

    /// Returns the end of the message of which only part has been sent, or the end of the sent
    /// datagrams if there is no such message.
    fn end_of_partly_sent(&self) -> u64 {
        let next = self.buffer.datagram(self.sent_to).map(Header::read);
        match next {
            Some(Ok((header, ..))) if header.index > 0 => {
                let rest = header.part_count.saturating_sub(header.index);
                self.next_number.min(self.sent_to + u64::from(rest))
            }
            _ => self.sent_to,
        }
    }

    pub const fn datagram_bytes(&self) -> usize {
        self.datagram_bytes
    }
}

/// Unread rest of a message that was passed in several slices.
struct UnreadSlices<'a> {
    rest: &'a [u8],
    following_slices: std::slice::Iter<'a, &'a [u8]>,
}

impl<'a> UnreadSlices<'a> {
    fn new(message: &'a [&'a [u8]]) -> Self {
        Self { rest: &[], following_slices: message.iter() }
    }

    /// Fills the buffer with the next bytes of the message, which must have enough.
    fn fill(&mut self, mut into: &mut [u8]) {
        while !into.is_empty() {
            let count = self.rest.len().min(into.len());
            let (now, later) = self.rest.split_at(count);
            let (filled, empty) = into.split_at_mut(count);
            filled.copy_from_slice(now);
            (self.rest, into) = (later, empty);
            if !into.is_empty() {
                self.rest = self.following_slices.next().expect("no more than the message has");
            }
        }
    }
}

/// Maximum number of datagrams that the kernel splits out of one buffer.
const SEGMENTS_MAX: u64 = 64;
/// Maximum number of bytes in one call: the most that UDP carries before it is split.
const BYTES_PER_CALL_MAX: usize = 65_000;

#[cfg(test)]
mod tests {
    use quorate_core::node_id::NodeId;

    use super::*;
    use crate::trust::{GroupIdentity, TagContext};

    const GROUP: GroupIdentity = GroupIdentity { cluster: 1, group: 1, generation: 0 };

    struct Sender {
        outbound: OutboundChannel,
        seal: TagKey,
    }

    impl Sender {
        fn new(buffer_bytes: usize) -> Self {
            let limits = Limits { buffer_bytes, ..Limits::for_mtu(1500) };
            let template = Header {
                kind: Kind::Fragment,
                key: 0,
                channel: 1,
                is_unicast: false,
                sender: NodeId(1),
                boot: 1,
                group: 0,
                number: 1,
                index: 0,
                part_count: 1,
            };
            let place = TagContext { group: GROUP, sender: Member::first(1), boot: 1, channel: 1 };
            Self {
                outbound: OutboundChannel::new(template, None, 1, &limits),
                seal: TagKey::new(None, &place),
            }
        }

        fn push(&mut self, length: usize) -> Result<PushedNumbers, PushError> {
            let message = vec![7; length];
            let (head, tail) = message.split_at(length / 3);
            self.outbound.push(&[head, &[], tail], 0, &self.seal)
        }
    }

    /// [rate-1] [pkt-8] Undecided messages fill the window, however many were sent. Released
    /// messages free space, but are kept for repairs until the space is needed.
    #[test]
    fn undecided_messages_fill_the_window() {
        let mut sender = Sender::new(100_000);
        assert_eq!(sender.outbound.window_bytes_left(), 50_000);
        let mut pushed = 0;
        while sender.push(1000).is_ok() {
            pushed += 1;
        }
        assert_eq!((pushed, sender.push(1000)), (50_000 / 1044, Err(PushError::Full)));
        while sender.outbound.next_run(usize::MAX).is_some() {}
        assert_eq!(sender.push(1000), Err(PushError::Full));
        sender.outbound.release_to(11);
        for _ in 0..10 {
            sender.push(1000).unwrap();
        }
        assert_eq!(sender.push(1000), Err(PushError::Full));
        assert!(sender.outbound.datagram(1).is_some());
        // Unsent messages are not released.
        sender.outbound.release_to(u64::MAX);
        assert_eq!(sender.outbound.window_bytes_left(), 50_000 - 10 * 1044);
        for _ in 0..5 {
            while sender.outbound.next_run(usize::MAX).is_some() {}
            sender.outbound.release_to(u64::MAX);
            for _ in 0..40 {
                sender.push(1000).unwrap();
            }
        }
        assert!(sender.outbound.datagram(1).is_none());
    }

    /// [pkt-8] Many small datagrams use up the numbers before the bytes, but undecided ones are
    /// still retained.
    #[test]
    fn undecided_datagrams_are_kept_when_numbers_run_out() {
        let mut sender = Sender::new(1 << 20);
        let mut pushed = 0;
        while sender.push(1).is_ok() {
            pushed += 1;
        }
        assert_eq!((pushed, sender.push(1)), (1024, Err(PushError::Full)));
        while sender.outbound.next_run(usize::MAX).is_some() {}
        assert!((1..=1024).all(|number| sender.outbound.datagram(number).is_some()));
        sender.outbound.release_to(2);
        assert!(sender.push(1).is_ok() && sender.push(1) == Err(PushError::Full));
    }

    #[test]
    fn unsent_datagrams_are_returned_again() {
        let mut sender = Sender::new(100_000);
        sender.push(10_000).unwrap();
        let whole = sender.outbound.next_run(usize::MAX).unwrap().bytes.to_vec();
        sender.outbound.unsend_from(4);
        assert!(sender.outbound.datagram(3).is_some() && sender.outbound.datagram(4).is_none());
        let again = sender.outbound.next_run(usize::MAX).unwrap();
        assert_eq!(again.numbers, 4..9);
        assert_eq!(again.bytes, &whole[3 * 1472..]);
        // None were released in between.
        sender.outbound.unsend_from(4);
        sender.outbound.release_to(u64::MAX);
        assert!(sender.outbound.has_unsent());
    }

    /// [rate-3] A message that was sent in part stays whole for repairs. The numbers of later
    /// messages are free again.
    #[test]
    fn only_whole_unsent_messages_are_withdrawn() {
        let mut sender = Sender::new(100_000);
        let parts = |sent: PushedNumbers| sent.end - sent.first;
        assert_eq!(parts(sender.push(4000).unwrap()), 3);
        assert_eq!(parts(sender.push(4000).unwrap()), 3);
        assert_eq!(sender.outbound.next_run(1).unwrap().numbers, 1..2);
        sender.outbound.withdraw_unsent();
        assert_eq!((sender.outbound.sent_to(), sender.outbound.next_number()), (4, 4));
        assert!((1..4).all(|number| sender.outbound.datagram(number).is_some()));
        assert!(!sender.outbound.has_unsent() && sender.outbound.datagram(4).is_none());
        // Between two messages, and when nothing is left, everything is withdrawn.
        assert_eq!(sender.push(10).unwrap(), PushedNumbers { first: 4, end: 5 });
        sender.outbound.withdraw_unsent();
        sender.outbound.withdraw_unsent();
        assert_eq!((sender.outbound.sent_to(), sender.outbound.next_number()), (4, 4));
        sender.outbound.release_to(4);
        assert_eq!(sender.outbound.window_bytes_left(), 50_000);
    }

    /// [pkt-4] A message that can never fit is too long, which differs from a full window.
    #[test]
    fn message_that_can_never_fit_is_too_long() {
        let mut sender = Sender::new(100_000);
        assert_eq!(sender.push(100_000), Err(PushError::TooLong));
        let all = sender.push(90_000).unwrap();
        assert_eq!(all, PushedNumbers { first: 1, end: 65 });
        let mut sender = Sender::new(64 << 20);
        assert_eq!(sender.push(MESSAGE_BYTES_MAX + 1), Err(PushError::TooLong));
        assert!(sender.push(MESSAGE_BYTES_MAX).is_ok());
    }
}
