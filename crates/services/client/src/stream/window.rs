//! Written bytes that are not yet known to be durable, with checks of the positions that nodes
//! report.

use std::collections::VecDeque;

use super::error::Error;

/// Bounded buffer of the bytes that may have to be sent again. All positions are positions in the
/// stream.
#[derive(Debug)]
pub(super) struct ResendBuffer {
    /// Buffered bytes, the first at position `durable_position`.
    bytes: VecDeque<u8>,
    bytes_max: usize,
    /// Position below which all bytes are decided, as reported by a node.
    durable_position: u64,
    /// Position of the next byte to send on the current connection.
    next: u64,
    /// End of the bytes sent on any connection.
    sent_position: u64,
}

impl ResendBuffer {
    /// Creates an empty window for a stream that continues at `position`.
    pub(super) const fn new(bytes_max: usize, position: u64) -> Self {
        Self {
            bytes: VecDeque::new(),
            bytes_max,
            durable_position: position,
            next: position,
            sent_position: position,
        }
    }

    pub(super) const fn durable_position(&self) -> u64 {
        self.durable_position
    }

    pub(super) fn written_position(&self) -> u64 {
        self.durable_position + self.bytes.len() as u64
    }

    pub(super) fn free_bytes(&self) -> usize {
        self.bytes_max - self.bytes.len()
    }

    /// Returns whether the current connection has unacknowledged bytes.
    pub(super) const fn has_unacknowledged(&self) -> bool {
        self.next > self.durable_position
    }

    /// Returns whether the current connection has sent all written bytes.
    pub(super) fn is_all_sent(&self) -> bool {
        self.next == self.written_position()
    }

    /// Buffers as many bytes as fit and returns their number.
    pub(super) fn write(&mut self, bytes: &[u8]) -> usize {
        let count = bytes.len().min(self.free_bytes());
        self.bytes.extend(&bytes[..count]);
        count
    }

    /// Appends up to `count` unsent bytes to `out` and marks them as sent.
    pub(super) fn take_unsent(&mut self, count: usize, out: &mut Vec<u8>) {
        let from = usize::try_from(self.next - self.durable_position).expect("within the buffer");
        let to = self.bytes.len().min(from + count);
        let (front, back) = self.bytes.as_slices();
        let split = front.len();
        out.extend_from_slice(&front[from.min(split)..to.min(split)]);
        out.extend_from_slice(&back[from.saturating_sub(split)..to.saturating_sub(split)]);
        self.next = self.durable_position + to as u64;
        self.sent_position = self.sent_position.max(self.next);
    }

    /// Handles the reopening of the stream at `position`: all bytes below it are decided, and all
    /// others must be sent again.
    pub(super) fn on_reopened(&mut self, position: u64) -> Result<(), Error> {
        self.discard_below(position, self.sent_position)?;
        self.next = position;
        Ok(())
    }

    /// Handles an acknowledgement that all bytes below `position` are decided.
    pub(super) fn on_acknowledged(&mut self, position: u64) -> Result<(), Error> {
        self.discard_below(position, self.next)
    }

    /// Handles the close of the stream at `position`, below which all bytes are decided.
    pub(super) fn on_closed(&mut self, position: u64) -> Result<(), Error> {
        self.discard_below(position, self.sent_position)?;
        match self.bytes.is_empty() {
            true => Ok(()),
            false => Err(Error::ClosedEarly {
                written_position: self.written_position(),
                closed_position: position,
            }),
        }
    }

    fn discard_below(&mut self, position: u64, sent: u64) -> Result<(), Error> {
        if position > sent {
            return Err(Error::NodeAhead { sent_position: sent, node_position: position });
        }
        let Some(count) = position.checked_sub(self.durable_position) else {
            return Err(Error::AcknowledgedLost {
                acknowledged_position: self.durable_position,
                node_position: position,
            });
        };
        let count = usize::try_from(count).expect("within the buffer");
        self.bytes.drain(..count);
        self.durable_position = position;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sent(window: &mut ResendBuffer, count: usize) -> Vec<u8> {
        let mut out = Vec::new();
        window.take_unsent(count, &mut out);
        out
    }

    #[test]
    fn unacknowledged_bytes_are_resent_from_a_bounded_buffer() {
        let mut window = ResendBuffer::new(4, 10);
        assert_eq!(window.write(b"abcdef"), 4);
        assert_eq!(window.write(b"ef"), 0);
        assert_eq!(sent(&mut window, 3), b"abc");
        window.on_acknowledged(12).unwrap();
        // The buffer is a ring, and these bytes wrap around.
        assert_eq!(window.write(b"efg"), 2);
        assert_eq!(sent(&mut window, 9), b"def");
        assert!(window.is_all_sent() && window.has_unacknowledged());
        window.on_reopened(13).unwrap();
        assert_eq!(sent(&mut window, 9), b"def");
        window.on_closed(16).unwrap();
        assert_eq!((window.durable_position(), window.written_position()), (16, 16));
        assert!(!window.has_unacknowledged());
    }

    #[test]
    fn acknowledgements_below_or_beyond_the_sent_bytes_are_errors() {
        let mut window = ResendBuffer::new(9, 10);
        window.write(b"abcde");
        sent(&mut window, 3);
        let ahead = Error::NodeAhead { sent_position: 13, node_position: 14 };
        assert_eq!(window.on_acknowledged(14), Err(ahead.clone()));
        assert_eq!(window.on_reopened(14), Err(ahead));
        window.on_acknowledged(12).unwrap();
        let lost = Error::AcknowledgedLost { acknowledged_position: 12, node_position: 11 };
        assert_eq!(window.on_acknowledged(11), Err(lost.clone()));
        assert_eq!(window.on_reopened(11), Err(lost));
        let short = Error::ClosedEarly { written_position: 15, closed_position: 13 };
        assert_eq!(window.on_closed(13), Err(short));
    }

    /// When a stream is reopened, the response may cover bytes sent on an earlier connection. A
    /// plain acknowledgement may not.
    #[test]
    fn bytes_of_an_earlier_connection_count_when_it_is_opened_again() {
        let mut window = ResendBuffer::new(9, 0);
        window.write(b"abcde");
        sent(&mut window, 5);
        window.on_reopened(2).unwrap();
        let ahead = Error::NodeAhead { sent_position: 2, node_position: 5 };
        assert_eq!(window.on_acknowledged(5), Err(ahead));
        window.on_reopened(5).unwrap();
        assert!(window.is_all_sent());
    }
}
