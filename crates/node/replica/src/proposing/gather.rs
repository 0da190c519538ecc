//! Accepted commands that wait for a batch, and reads executed between two of them. Reads have a
//! position in the order, but no bytes in the batch.

use std::collections::VecDeque;

use quorate_core::time::Time;

use crate::{
    limits::COMMAND_OVERHEAD_BYTES,
    ports::outcome::{StreamTag, Tag},
    proposing::batch::BatchEntry,
};

/// Recipient of the reply to a command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Waiter {
    /// A front that expects the reply once the command is executed.
    Front(Tag),
    /// A front that expects the reply once the command is durable at a quorum ([class-2]).
    FrontDurable(Tag),
    /// A front that expects a notification once the command is in memory at a quorum ([class-2]).
    FrontEarly(Tag),
    /// A front that was notified early. The command must still be executed, but its reply is
    /// dropped.
    AlreadyNotified,
    /// An operator, by the number of the request.
    Operator(u64),
    /// A front that made a request on streams.
    Stream(StreamTag),
    /// A front whose request timed out with an unknown outcome.
    TimedOut,
    /// The service itself. It gets no reply.
    Service,
}

/// Metadata of a waiting command or read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct QueuedItem {
    pub(crate) waiter: Waiter,
    pub(crate) deadline: Time,
    /// Length of the encoded entry in bytes; 0 for a read.
    pub(crate) encoded_bytes: usize,
    /// The command must not share a batch with others.
    pub(crate) is_alone_in_batch: bool,
}

impl QueuedItem {
    pub(crate) const fn is_read(&self) -> bool {
        self.encoded_bytes == 0
    }
}

/// Queue in order of acceptance. The encoded entries are contiguous, ready to be copied into a
/// batch.
#[derive(Debug, Default)]
pub(crate) struct CommandQueue {
    items: VecDeque<QueuedItem>,
    /// Number of items that are reads.
    read_count: usize,
    /// Number of queued commands that must not share a batch.
    alone_in_batch_count: usize,
    bytes: Vec<u8>,
    removed_bytes: usize,
}

impl CommandQueue {
    /// Returns the memory of the queue, in bytes, that counts towards its limit.
    pub(crate) fn charged_bytes(&self) -> usize {
        self.entry_bytes() + self.items.len() * COMMAND_OVERHEAD_BYTES
    }

    fn entry_bytes(&self) -> usize {
        self.bytes.len() - self.removed_bytes
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.items.is_empty()
    }

    pub(crate) fn len(&self) -> usize {
        self.items.len() - self.read_count
    }

    pub(crate) fn push(&mut self, waiter: Waiter, deadline: Time, entry: &BatchEntry<'_>) {
        entry.encode(&mut self.bytes);
        let encoded_bytes = entry.encoded_bytes();
        self.items.push_back(QueuedItem {
            waiter,
            deadline,
            encoded_bytes,
            is_alone_in_batch: false,
        });
    }

    /// Marks the last command to get a batch without other commands.
    pub(crate) fn mark_alone_in_batch(&mut self) {
        if let Some(item) = self.items.back_mut() {
            item.is_alone_in_batch = true;
            self.alone_in_batch_count += 1;
        }
    }

    /// Appends a read after the commands that are queued now.
    pub(crate) fn push_read(&mut self, waiter: Waiter, deadline: Time) {
        self.read_count += 1;
        self.items.push_back(QueuedItem {
            waiter,
            deadline,
            encoded_bytes: 0,
            is_alone_in_batch: false,
        });
    }

    /// Returns whether the queued commands fill a batch of `batch_bytes`.
    pub(crate) fn is_full(&self, batch_bytes: usize) -> bool {
        self.entry_bytes() >= batch_bytes
    }

    /// Returns the total length of the entries that fit into the next batch, and at least that of
    /// the first entry; 0 if only reads are queued.
    pub(crate) fn next_bytes(&self, batch_bytes: usize) -> usize {
        self.next_batch(batch_bytes).1
    }

    fn next_batch(&self, batch_bytes: usize) -> (usize, usize) {
        let all = self.entry_bytes();
        if all <= batch_bytes && self.alone_in_batch_count == 0 {
            return (self.items.len(), all);
        }
        let (mut count, mut bytes) = (0, 0);
        for item in &self.items {
            if count > 0 && (item.is_alone_in_batch || bytes + item.encoded_bytes > batch_bytes) {
                break;
            }
            count += 1;
            bytes += item.encoded_bytes;
            if item.is_alone_in_batch {
                break;
            }
        }
        (count, bytes)
    }

    /// Removes the commands of the next batch, and passes their encoded entries to `build`.
    pub(crate) fn take_batch<T>(
        &mut self,
        batch_bytes: usize,
        build: impl FnOnce(&[u8]) -> T,
    ) -> (Vec<QueuedItem>, T) {
        let (count, bytes) = self.next_batch(batch_bytes);
        let built = build(&self.bytes[self.removed_bytes..self.removed_bytes + bytes]);
        let items: Vec<QueuedItem> = self.items.drain(..count).collect();
        if self.read_count > 0 {
            self.read_count -= items.iter().filter(|item| item.is_read()).count();
        }
        self.alone_in_batch_count -= items.iter().filter(|item| item.is_alone_in_batch).count();
        self.consume(bytes);
        (items, built)
    }

    fn consume(&mut self, bytes: usize) {
        self.removed_bytes += bytes;
        if self.removed_bytes == self.bytes.len() {
            self.bytes.clear();
            self.removed_bytes = 0;
            self.bytes.shrink_to(1 << 20);
        } else if self.removed_bytes > self.bytes.len() / 2 {
            // Amortised: no more bytes are moved than were taken since the last move.
            self.bytes.drain(..self.removed_bytes);
            self.removed_bytes = 0;
        }
    }

    /// Returns commands to the front of the queue, in this order.
    pub(crate) fn put_back(&mut self, commands: Vec<(QueuedItem, &[u8])>) {
        let mut bytes = Vec::new();
        let mut items = VecDeque::with_capacity(commands.len() + self.items.len());
        for (item, encoded) in commands {
            self.read_count += usize::from(item.is_read());
            self.alone_in_batch_count += usize::from(item.is_alone_in_batch);
            bytes.extend_from_slice(encoded);
            items.push_back(item);
        }
        bytes.extend_from_slice(&self.bytes[self.removed_bytes..]);
        items.append(&mut self.items);
        (self.items, self.bytes, self.removed_bytes) = (items, bytes, 0);
    }

    /// Returns the index of the first command that may time out. [less-4] A command whose client
    /// was already notified never does, and is retained until it is executed.
    fn first_expiring(&self) -> Option<usize> {
        let mut items = self.items.iter();
        items.position(|item| item.waiter != Waiter::AlreadyNotified)
    }

    /// Returns the deadline of the first command that may time out.
    pub(crate) fn deadline(&self) -> Option<Time> {
        Some(self.items[self.first_expiring()?].deadline)
    }

    /// Removes and returns the first command that may time out, if its deadline has passed.
    pub(crate) fn pop_expired(&mut self, now: Time) -> Option<(QueuedItem, Vec<u8>)> {
        let at = self.first_expiring()?;
        let item = self.items[at];
        if item.deadline > now {
            return None;
        }
        let before = self.items.drain(..at).collect::<Vec<QueuedItem>>();
        self.items.pop_front();
        self.read_count -= usize::from(item.is_read());
        self.alone_in_batch_count -= usize::from(item.is_alone_in_batch);
        let kept: usize = before.iter().map(|item| item.encoded_bytes).sum();
        let from = self.removed_bytes + kept;
        let bytes = self.bytes[from..from + item.encoded_bytes].to_vec();
        match kept {
            0 => self.consume(item.encoded_bytes),
            _ => drop(self.bytes.drain(from..from + item.encoded_bytes)),
        }
        before.into_iter().rev().for_each(|item| self.items.push_front(item));
        Some((item, bytes))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::proposing::batch::Kind;

    fn push(gather: &mut CommandQueue, tag: u64, command: &[u8]) {
        gather.push(Waiter::Front(Tag(tag)), Time(tag), &BatchEntry { kind: Kind::Plain, command });
    }

    fn take_batch(gather: &mut CommandQueue, batch_bytes: usize) -> (Vec<u64>, usize) {
        let (items, length) = gather.take_batch(batch_bytes, <[u8]>::len);
        (items.iter().map(|item| item.deadline.0).collect(), length)
    }

    #[test]
    fn large_command_gets_a_batch_of_its_own() {
        let mut gather = CommandQueue::default();
        push(&mut gather, 1, &[0; 10]);
        push(&mut gather, 2, &[0; 10]);
        push(&mut gather, 3, &[0; 100]);
        push(&mut gather, 4, &[0; 10]);
        assert_eq!(take_batch(&mut gather, 40), (vec![1, 2], 30));
        assert_eq!(gather.next_bytes(40), 105);
        assert_eq!(take_batch(&mut gather, 40), (vec![3], 105));
        assert_eq!(take_batch(&mut gather, 40), (vec![4], 15));
        assert_eq!(gather.charged_bytes(), 0);
    }

    /// [visit-3] A heavy command gets its own batch, and the turn ends between two of them.
    #[test]
    fn a_heavy_command_has_a_batch_of_its_own() {
        let mut gather = CommandQueue::default();
        for tag in 1..=5 {
            push(&mut gather, tag, b"a");
            if [2, 3].contains(&tag) {
                gather.mark_alone_in_batch();
            }
        }
        assert_eq!(take_batch(&mut gather, 100).0, [1]);
        let (items, bytes) = gather.take_batch(100, <[u8]>::to_vec);
        gather.put_back(vec![(items[0], &bytes)]);
        assert!(gather.pop_expired(Time(2)).is_some_and(|(item, _)| item.is_alone_in_batch));
        assert_eq!(take_batch(&mut gather, 100).0, [3]);
        assert_eq!(take_batch(&mut gather, 100).0, [4, 5]);
    }

    /// [less-4] A command whose client was notified must be executed, however long that takes.
    /// Later commands time out as usual.
    #[test]
    fn command_already_reported_never_expires() {
        let mut gather = CommandQueue::default();
        let told = |deadline, command| {
            let entry = BatchEntry { kind: Kind::Plain, command };
            (Waiter::AlreadyNotified, Time(deadline), entry)
        };
        let (waiter, deadline, entry) = told(1, b"one");
        gather.push(waiter, deadline, &entry);
        push(&mut gather, 2, b"two");
        push(&mut gather, 3, b"three");
        assert_eq!(gather.deadline(), Some(Time(2)));
        let (item, bytes) = gather.pop_expired(Time(2)).unwrap();
        assert_eq!((item.waiter, &bytes[bytes.len() - 3..]), (Waiter::Front(Tag(2)), &b"two"[..]));
        assert_eq!(gather.pop_expired(Time(2)), None);
        assert!(gather.pop_expired(Time(9)).is_some());
        assert_eq!((gather.deadline(), gather.pop_expired(Time(9))), (None, None));
        let bytes = gather.take_batch(100, <[u8]>::to_vec).1;
        assert!(bytes.ends_with(b"one"));
        assert_eq!(gather.charged_bytes(), 0);
    }

    #[test]
    fn commands_put_back_come_first_and_in_order() {
        let mut gather = CommandQueue::default();
        push(&mut gather, 1, b"a");
        push(&mut gather, 2, b"b");
        let (items, bytes) = gather.take_batch(100, <[u8]>::to_vec);
        push(&mut gather, 3, b"c");
        let (first, second) = bytes.split_at(items[0].encoded_bytes);
        gather.put_back(vec![(items[0], first), (items[1], second)]);
        let (items, bytes) = gather.take_batch(100, <[u8]>::to_vec);
        assert_eq!(items.iter().map(|item| item.deadline.0).collect::<Vec<_>>(), [1, 2, 3]);
        let whole = crate::proposing::batch::encode_batch(
            crate::proposing::batch::BatchHeader { session: 1, sequence: 1 },
            &bytes,
        );
        let batch = crate::proposing::batch::Batch::parse(&whole).unwrap();
        assert_eq!(batch.entries().map(|entry| entry.command[0]).collect::<Vec<_>>(), b"abc");
    }

    /// A read adds no bytes to a batch, and keeps its position among the commands.
    #[test]
    fn reads_keep_their_position_and_add_no_bytes() {
        let mut gather = CommandQueue::default();
        let read =
            |gather: &mut CommandQueue, tag| gather.push_read(Waiter::Front(Tag(tag)), Time(tag));
        push(&mut gather, 1, b"a");
        read(&mut gather, 2);
        push(&mut gather, 3, &[0; 10]);
        read(&mut gather, 4);
        read(&mut gather, 5);
        push(&mut gather, 6, b"b");
        assert_eq!((gather.len(), gather.next_bytes(22)), (3, 21));
        assert_eq!(take_batch(&mut gather, 22), (vec![1, 2, 3, 4, 5], 21));
        assert_eq!(gather.len(), 1);
        read(&mut gather, 7);
        let (items, bytes) = gather.take_batch(100, <[u8]>::to_vec);
        assert_eq!((gather.len(), gather.is_empty()), (0, true));
        read(&mut gather, 8);
        assert_eq!((gather.next_bytes(100), gather.is_empty()), (0, false));
        gather.put_back(vec![(items[0], &bytes), (items[1], &[])]);
        assert_eq!(gather.len(), 1);
        assert_eq!(take_batch(&mut gather, 100), (vec![6, 7, 8], 6));
        read(&mut gather, 9);
        assert!(gather.pop_expired(Time(9)).is_some_and(|(item, _)| item.is_read()));
        assert_eq!((gather.len(), gather.charged_bytes()), (0, 0));
    }

    #[test]
    fn only_overdue_commands_expire() {
        let mut gather = CommandQueue::default();
        push(&mut gather, 1, b"a");
        push(&mut gather, 5, b"b");
        assert_eq!(gather.pop_expired(Time(0)), None);
        assert_eq!(gather.pop_expired(Time(3)).map(|(item, _)| item.deadline), Some(Time(1)));
        assert_eq!(gather.pop_expired(Time(3)), None);
        assert_eq!(gather.deadline(), Some(Time(5)));
    }
}
