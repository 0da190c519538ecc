//! Written bytes that are not yet known to be durable, with checks of the positions that nodes
//! report.

use std::collections::VecDeque;

use super::error::Error;

/// Bounded buffer of the bytes that may have to be sent again. All positions are positions in the
/// stream.
#[derive(Debug)]
pub(super) struct Window {
    /// Buffered bytes, the first at position `durable`.
    bytes: VecDeque<u8>,
    bytes_max: usize,
    /// Position below which all bytes are decided, as reported by a node.
    durable: u64,
    /// Position of the next byte to send on the current connection.
    next: u64,
    /// End of the bytes sent on any connection.
    sent: u64,
}

impl Window {
    /// Creates an empty window for a stream that continues at `position`.
    pub(super) const fn new(bytes_max: usize, position: u64) -> Self {
        Self {
            bytes: VecDeque::new(),
            bytes_max,
            durable: position,
            next: position,
            sent: position,
        }
    }

    pub(super) const fn durable(&self) -> u64 {
        self.durable
    }

    pub(super) fn written(&self) -> u64 {
        self.durable + self.bytes.len() as u64
    }

    pub(super) fn room(&self) -> usize {
        self.bytes_max - self.bytes.len()
    }

    /// Returns whether the current connection has unacknowledged bytes.
    pub(super) const fn is_unanswered(&self) -> bool {
        self.next > self.durable
    }

    /// Returns whether the current connection has sent all written bytes.
    pub(super) fn is_sent(&self) -> bool {
        self.next == self.written()
    }

    /// Buffers as many bytes as fit and returns their number.
    pub(super) fn write(&mut self, bytes: &[u8]) -> usize {
        let count = bytes.len().min(self.room());
        self.bytes.extend(&bytes[..count]);
        count
    }

    /// Appends up to `count` unsent bytes to `out` and marks them as sent.
    pub(super) fn take(&mut self, count: usize, out: &mut Vec<u8>) {
        let from = usize::try_from(self.next - self.durable).expect("within the buffer");
        let to = self.bytes.len().min(from + count);
        let (front, back) = self.bytes.as_slices();
        let split = front.len();
        out.extend_from_slice(&front[from.min(split)..to.min(split)]);
        out.extend_from_slice(&back[from.saturating_sub(split)..to.saturating_sub(split)]);
        self.next = self.durable + to as u64;
        self.sent = self.sent.max(self.next);
    }

    /// Handles the reopening of the stream at `position`: all bytes below it are decided, and all
    /// others must be sent again.
    pub(super) fn opened(&mut self, position: u64) -> Result<(), Error> {
        self.forget(position, self.sent)?;
        self.next = position;
        Ok(())
    }

    /// Handles an acknowledgement that all bytes below `position` are decided.
    pub(super) fn acknowledged(&mut self, position: u64) -> Result<(), Error> {
        self.forget(position, self.next)
    }

    /// Handles the close of the stream at `position`, below which all bytes are decided.
    pub(super) fn closed(&mut self, position: u64) -> Result<(), Error> {
        self.forget(position, self.sent)?;
        match self.bytes.is_empty() {
            true => Ok(()),
            false => Err(Error::Short { written: self.written(), position }),
        }
    }

    fn forget(&mut self, position: u64, sent: u64) -> Result<(), Error> {
        if position > sent {
            return Err(Error::Ahead { sent, position });
        }
        let Some(count) = position.checked_sub(self.durable) else {
            return Err(Error::Lost { acknowledged: self.durable, position });
        };
        let count = usize::try_from(count).expect("within the buffer");
        self.bytes.drain(..count);
        self.durable = position;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sent(window: &mut Window, count: usize) -> Vec<u8> {
        let mut out = Vec::new();
        window.take(count, &mut out);
        out
    }

    #[test]
    fn unacknowledged_bytes_are_resent_from_a_bounded_buffer() {
        let mut window = Window::new(4, 10);
        assert_eq!(window.write(b"abcdef"), 4);
        assert_eq!(window.write(b"ef"), 0);
        assert_eq!(sent(&mut window, 3), b"abc");
        window.acknowledged(12).unwrap();
        // The buffer is a ring, and these bytes wrap around.
        assert_eq!(window.write(b"efg"), 2);
        assert_eq!(sent(&mut window, 9), b"def");
        assert!(window.is_sent() && window.is_unanswered());
        window.opened(13).unwrap();
        assert_eq!(sent(&mut window, 9), b"def");
        window.closed(16).unwrap();
        assert_eq!((window.durable(), window.written()), (16, 16));
        assert!(!window.is_unanswered());
    }

    #[test]
    fn acknowledgements_below_or_beyond_the_sent_bytes_are_errors() {
        let mut window = Window::new(9, 10);
        window.write(b"abcde");
        sent(&mut window, 3);
        let ahead = Error::Ahead { sent: 13, position: 14 };
        assert_eq!(window.acknowledged(14), Err(ahead.clone()));
        assert_eq!(window.opened(14), Err(ahead));
        window.acknowledged(12).unwrap();
        let lost = Error::Lost { acknowledged: 12, position: 11 };
        assert_eq!(window.acknowledged(11), Err(lost.clone()));
        assert_eq!(window.opened(11), Err(lost));
        let short = Error::Short { written: 15, position: 13 };
        assert_eq!(window.closed(13), Err(short));
    }

    /// When a stream is reopened, the response may cover bytes sent on an earlier connection. A
    /// plain acknowledgement may not.
    #[test]
    fn bytes_of_an_earlier_connection_count_when_it_is_opened_again() {
        let mut window = Window::new(9, 0);
        window.write(b"abcde");
        sent(&mut window, 5);
        window.opened(2).unwrap();
        let ahead = Error::Ahead { sent: 2, position: 5 };
        assert_eq!(window.acknowledged(5), Err(ahead));
        window.opened(5).unwrap();
        assert!(window.is_sent());
    }
}
