//! Bytes on their way: what came and is not used yet, what waits to leave.

use super::socket::{Moved, Socket};

/// Buffers above this are released when they are empty.
const KEEP_BYTES: usize = 1 << 20;

/// Received bytes: `bytes[start..end]` are not used yet.
#[derive(Debug, Default)]
pub(crate) struct Inbox {
    bytes: Vec<u8>,
    start: usize,
    end: usize,
    wanted: usize,
}

impl Inbox {
    /// What is there.
    pub(crate) fn unused(&self) -> &[u8] {
        &self.bytes[self.start..self.end]
    }

    /// The first `count` bytes are done with.
    pub(crate) fn consume(&mut self, count: usize) {
        self.start += count;
        debug_assert!(self.start <= self.end, "consumed what never came");
        if self.start == self.end {
            (self.start, self.end) = (0, 0);
            if self.bytes.len() > KEEP_BYTES {
                self.bytes = Vec::new();
            }
        }
    }

    /// A frame has begun that needs this many bytes more: the next reads make room for all of them
    /// at once, so that its beginning is moved at most once. The caller has bounded the number.
    pub(crate) fn want(&mut self, more: usize) {
        self.wanted = more;
    }

    /// One read of at most `limit` bytes.
    pub(crate) fn read(&mut self, from: &mut Socket, limit: usize) -> Moved {
        self.make_room(self.wanted.max(limit));
        let end = self.bytes.len().min(self.end + limit);
        let moved = from.read(&mut self.bytes[self.end..end]);
        if let Moved::Some(count) = moved {
            self.end += count;
            self.wanted = self.wanted.saturating_sub(count);
        }
        moved
    }

    fn make_room(&mut self, room: usize) {
        if self.bytes.len() - self.end >= room {
            return;
        }
        self.bytes.copy_within(self.start..self.end, 0);
        (self.start, self.end) = (0, self.end - self.start);
        if self.bytes.len() < self.end + room {
            self.bytes.resize(self.end + room, 0);
        }
    }
}

/// Bytes to send: those from `sent` on.
#[derive(Debug, Default)]
pub(crate) struct Outbox {
    bytes: Vec<u8>,
    sent: usize,
}

impl Outbox {
    /// How much waits.
    pub(crate) fn len(&self) -> usize {
        self.bytes.len() - self.sent
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Where to append.
    pub(crate) fn tail(&mut self) -> &mut Vec<u8> {
        // Moving is paid for by the bytes sent since the last time.
        if self.sent > self.bytes.len() / 2 {
            self.bytes.drain(..self.sent);
            self.sent = 0;
        }
        &mut self.bytes
    }

    /// One write of everything, as far as it goes.
    pub(crate) fn write(&mut self, to: &mut Socket) -> Moved {
        let moved = to.write(&self.bytes[self.sent..]);
        if let Moved::Some(count) = moved {
            self.sent += count;
            if self.is_empty() {
                self.bytes.clear();
                self.bytes.shrink_to(KEEP_BYTES);
                self.sent = 0;
            }
        }
        moved
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::{
        io::{Read, Write},
        os::{fd::OwnedFd, unix::net::UnixStream},
    };

    #[test]
    fn an_inbox_keeps_the_unused_end_in_front_of_what_follows() {
        let (mut here, there) = UnixStream::pair().unwrap();
        let mut there = Socket::from(OwnedFd::from(there));
        let mut inbox = Inbox::default();
        let mut seen = Vec::new();
        for chunk in [b"abcde", b"fghij", b"klmno"] {
            here.write_all(chunk).unwrap();
            inbox.want(7);
            assert_eq!(inbox.read(&mut there, 5), Moved::Some(5));
            seen.extend_from_slice(&inbox.unused()[..4]);
            inbox.consume(4);
        }
        assert_eq!(
            (seen.as_slice(), inbox.unused()),
            (&b"abcdefghijkl"[..], &b"mno"[..])
        );
        drop(here);
        assert_eq!(inbox.read(&mut there, 5), Moved::Ended(None));
    }

    #[test]
    fn an_outbox_sends_each_byte_once_across_partial_writes() {
        let (here, mut there) = UnixStream::pair().unwrap();
        here.set_nonblocking(true).unwrap();
        let mut here = Socket::from(OwnedFd::from(here));
        let mut outbox = Outbox::default();
        let (mut expected, mut received) = (Vec::new(), Vec::new());
        for round in 0..60u8 {
            let chunk = vec![round; 70_000];
            expected.extend_from_slice(&chunk);
            outbox.tail().extend_from_slice(&chunk);
            let _ = outbox.write(&mut here);
            let mut part = vec![0; 30_000];
            there.read_exact(&mut part).unwrap();
            received.extend_from_slice(&part);
        }
        let mut part = vec![0; 100_000];
        while received.len() < expected.len() {
            let _ = outbox.write(&mut here);
            let count = there.read(&mut part).unwrap();
            received.extend_from_slice(&part[..count]);
        }
        assert!(received == expected && outbox.is_empty());
    }
}
