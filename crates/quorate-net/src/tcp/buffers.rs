//! Bytes on their way: what came and is not used yet, what waits to leave.

use std::os::fd::AsFd;

use rustix::{
    io::Errno,
    net::{RecvFlags, SendFlags},
};

/// Buffers above this are given back when they are empty.
const KEEP_BYTES: usize = 1 << 20;

/// How a read or write ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Moved {
    /// So many bytes; more may be possible.
    Some(usize),
    /// Nothing is possible now.
    Blocked,
    /// The other side has closed, or the connection is broken.
    Ended(Option<Errno>),
}

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
    pub(crate) fn read(&mut self, from: impl AsFd, limit: usize) -> Moved {
        self.make_room(self.wanted.max(limit));
        let end = self.bytes.len().min(self.end + limit);
        match rustix::net::recv(from, &mut self.bytes[self.end..end], RecvFlags::empty()) {
            Ok((_, 0)) => Moved::Ended(None),
            Ok((_, count)) => {
                self.end += count;
                self.wanted = self.wanted.saturating_sub(count);
                Moved::Some(count)
            }
            Err(Errno::AGAIN | Errno::INTR) => Moved::Blocked,
            Err(error) => Moved::Ended(Some(error)),
        }
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
    pub(crate) fn write(&mut self, to: impl AsFd) -> Moved {
        match rustix::net::send(to, &self.bytes[self.sent..], SendFlags::NOSIGNAL) {
            Ok(count) => {
                self.sent += count;
                if self.is_empty() {
                    self.bytes.clear();
                    self.bytes.shrink_to(KEEP_BYTES);
                    self.sent = 0;
                }
                Moved::Some(count)
            }
            Err(Errno::AGAIN | Errno::INTR) => Moved::Blocked,
            Err(error) => Moved::Ended(Some(error)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::{
        io::{Read, Write},
        os::unix::net::UnixStream,
    };

    #[test]
    fn an_inbox_keeps_the_unused_end_in_front_of_what_follows() {
        let (mut here, there) = UnixStream::pair().unwrap();
        let mut inbox = Inbox::default();
        let mut seen = Vec::new();
        for chunk in [b"abcde", b"fghij", b"klmno"] {
            here.write_all(chunk).unwrap();
            inbox.want(7);
            assert_eq!(inbox.read(&there, 5), Moved::Some(5));
            seen.extend_from_slice(&inbox.unused()[..4]);
            inbox.consume(4);
        }
        assert_eq!(
            (seen.as_slice(), inbox.unused()),
            (&b"abcdefghijkl"[..], &b"mno"[..])
        );
        drop(here);
        assert_eq!(inbox.read(&there, 5), Moved::Ended(None));
    }

    #[test]
    fn an_outbox_sends_each_byte_once_across_partial_writes() {
        let (here, mut there) = UnixStream::pair().unwrap();
        here.set_nonblocking(true).unwrap();
        let mut outbox = Outbox::default();
        let (mut expected, mut received) = (Vec::new(), Vec::new());
        for round in 0..60u8 {
            let chunk = vec![round; 70_000];
            expected.extend_from_slice(&chunk);
            outbox.tail().extend_from_slice(&chunk);
            let _ = outbox.write(&here);
            let mut part = vec![0; 30_000];
            there.read_exact(&mut part).unwrap();
            received.extend_from_slice(&part);
        }
        let mut part = vec![0; 100_000];
        while received.len() < expected.len() {
            let _ = outbox.write(&here);
            let count = there.read(&mut part).unwrap();
            received.extend_from_slice(&part[..count]);
        }
        assert!(received == expected && outbox.is_empty());
    }
}
