//! Input buffer of a connection. The body of a long frame is received into its own buffer, so that
//! it can be stored without a copy.

use quorate_log::disk::{BlockPool, Filling};
use quorate_replica::{Payload, plane::ReceivedFrame};
use quorate_wire::{
    Decoded, Malformed, body_checksum, decode, decode_checked, frame::STREAM_PIECE_BYTES_MAX,
    header::HEADER_BYTES, sender_durable_seq, stream_position,
};

use super::socket::{Socket, TransferOutcome};

/// Capacity in bytes above which an empty buffer is released.
const RETAINED_BYTES_MAX: usize = 1 << 20;
/// Minimum length in bytes of a body with its own buffer, above which a system call costs less than
/// the copy.
const LONG_BODY_BYTES: usize = 32 << 10;
/// Maximum number of unused buffers for long bodies that are retained.
const FREE_BUFFERS_MAX: usize = 32;
/// Maximum number of bytes read after a long frame: enough for a few short frames or the header of
/// the next long frame, whose body then goes to its own buffer.
const AFTER_LONG_READ_BYTES: usize = 4 << 10;

/// Received bytes. Those in `bytes[start..end]` have not been consumed.
#[derive(Debug, Default)]
pub(crate) struct Inbox {
    bytes: Vec<u8>,
    start: usize,
    end: usize,
    missing_bytes: usize,
    /// Length of the frame last returned by [`Self::next_frame`].
    returned_length: usize,
    /// The long frame that is being received or was just returned. The unconsumed bytes follow it.
    long_frame: Option<LongFrame>,
    after_long: bool,
    /// The last read filled the buffer, so more data may be available.
    has_filled_buffer: bool,
}

/// A frame whose body has its own buffer.
#[derive(Debug)]
struct LongFrame {
    header: [u8; HEADER_BYTES],
    body: LongBody,
}

#[derive(Debug)]
enum LongBody {
    Arriving(Filling),
    Whole(Payload),
}

pub(crate) fn new_block_pool() -> BlockPool {
    BlockPool::new(STREAM_PIECE_BYTES_MAX, FREE_BUFFERS_MAX)
}

impl Inbox {
    /// Returns the next complete frame, or `None` if more bytes must arrive. Call
    /// [`Self::consume_frame`] after using the frame. Buffers for long bodies come from the pool.
    pub(crate) fn next_frame(
        &mut self,
        body_bytes_max: usize,
        pool: &BlockPool,
    ) -> Result<Option<ReceivedFrame<'_>>, Malformed> {
        if self.long_frame.is_some() {
            let long = self.long_frame.as_mut();
            return long.map_or(Ok(None), |long| long.next_frame(body_bytes_max));
        }
        let unused = &self.bytes[self.start..self.end];
        match decode(unused, body_bytes_max)? {
            Decoded::Frame { from, frame, used_bytes: used } => {
                self.returned_length = used;
                Ok(Some(ReceivedFrame {
                    from,
                    frame,
                    body_checksum: unused.first_chunk().map(body_checksum),
                    logged_to: unused.first_chunk().map_or(0, sender_durable_seq),
                    body: None,
                }))
            }
            Decoded::NeedMore(more) => {
                // The length was checked against the limit: only peers are allowed long frames.
                let length = (unused.len() + more).saturating_sub(HEADER_BYTES);
                if length >= LONG_BODY_BYTES
                    && let Some((header, body)) = unused.split_first_chunk()
                {
                    self.long_frame = Some(LongFrame::start_frame(*header, length, body, pool));
                    (self.start, self.end, self.missing_bytes) = (0, 0, 0);
                } else {
                    // The next read makes space for the whole frame, so that its start is moved
                    // only once.
                    self.missing_bytes = more;
                }
                Ok(None)
            }
        }
    }

    /// Consumes the frame last returned by [`Self::next_frame`].
    pub(crate) fn consume_frame(&mut self) {
        self.after_long = self.long_frame.take().is_some();
        if !self.after_long {
            self.consume(self.returned_length);
        }
    }

    pub(crate) fn discard_all(&mut self) {
        self.long_frame = None;
        self.after_long = false;
        self.missing_bytes = 0;
        self.consume(self.end - self.start);
    }

    /// Returns whether another read should follow at once because it will probably find data, as
    /// between the parts of long frames.
    pub(crate) const fn should_read_again(&self) -> bool {
        self.has_filled_buffer && (self.after_long || self.long_frame.is_some())
    }

    /// Makes one read of at most `limit` bytes, or of the rest of a long frame.
    pub(crate) fn read(&mut self, from: &mut Socket, limit: usize) -> TransferOutcome {
        if let Some(LongFrame { body: LongBody::Arriving(body), .. }) = &mut self.long_frame {
            let moved = from.read(body.spare_memory());
            if let TransferOutcome::Transferred(count) = moved {
                body.record_written(count);
            }
            self.has_filled_buffer = body.free_bytes() == 0;
            return moved;
        }
        let limit = if self.after_long { limit.min(AFTER_LONG_READ_BYTES) } else { limit };
        self.make_room(self.missing_bytes.max(limit));
        let end = self.bytes.len().min(self.end + limit);
        let moved = from.read(&mut self.bytes[self.end..end]);
        if let TransferOutcome::Transferred(count) = moved {
            self.has_filled_buffer = self.end + count == end;
            self.end += count;
            self.missing_bytes = self.missing_bytes.saturating_sub(count);
        }
        moved
    }

    fn consume(&mut self, count: usize) {
        self.start += count;
        debug_assert!(self.start <= self.end, "consumed what never came");
        if self.start == self.end {
            (self.start, self.end) = (0, 0);
            if self.bytes.len() > RETAINED_BYTES_MAX {
                self.bytes = Vec::new();
            }
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

impl LongFrame {
    /// Starts a long frame. Stream bytes are aligned so that they can be written to disk from this
    /// buffer.
    fn start_frame(
        header: [u8; HEADER_BYTES],
        length: usize,
        first: &[u8],
        pool: &BlockPool,
    ) -> Self {
        let mut body = pool.start_filling(stream_position(&header).unwrap_or(0), length);
        body.append_bytes(first);
        Self { header, body: LongBody::Arriving(body) }
    }

    /// Returns the frame once it is complete.
    fn next_frame(
        &mut self,
        body_bytes_max: usize,
    ) -> Result<Option<ReceivedFrame<'_>>, Malformed> {
        if let LongBody::Arriving(body) = &mut self.body {
            let Some(body) = body.take_full() else {
                return Ok(None);
            };
            self.body = LongBody::Whole(body.into());
        }
        let LongBody::Whole(body) = &self.body else {
            return Ok(None);
        };
        let check = |_: &[u8]| body.checksum();
        let (from, frame) = decode_checked(&self.header, body, check, body_bytes_max)?;
        Ok(Some(ReceivedFrame {
            from,
            frame,
            body_checksum: Some(body_checksum(&self.header)),
            logged_to: sender_durable_seq(&self.header),
            body: Some(body),
        }))
    }
}

#[cfg(test)]
mod tests {
    use std::{
        io::Write,
        os::{fd::OwnedFd, unix::net::UnixStream},
    };

    use quorate_core::{
        node_id::{Member, NodeId},
        value::{BatchName, StreamName, Value},
    };
    use quorate_wire::{BODY_BYTES_MAX, Frame, checksum, encode};

    use super::*;

    fn forward(byte: u8, length: usize) -> Vec<u8> {
        let bytes = vec![byte; length];
        let value = Value::Batch(BatchName {
            origin: NodeId(2),
            length: u32::try_from(length).unwrap(),
            checksum: checksum(&bytes),
            ..BatchName::default()
        });
        let mut out = Vec::new();
        let frame = Frame::Forward { value, bytes: &bytes };
        encode(Member::first(2), &frame, &mut out).unwrap();
        out
    }

    /// Collects the received bodies: byte and length of each, and whether it has its own buffer.
    fn collect_bodies(inbox: &mut Inbox, seen: &mut Vec<(u8, usize, bool)>) {
        while let Some(received) = inbox.next_frame(BODY_BYTES_MAX, &new_block_pool()).unwrap() {
            let Frame::Forward { bytes, .. } = received.frame else {
                panic!("{received:?}");
            };
            assert_eq!(received.from, Member::first(2));
            assert_eq!(received.body_checksum, Some(checksum(bytes)));
            assert!(received.body.is_none_or(|body| body[..] == *bytes));
            assert!(bytes.iter().all(|byte| *byte == bytes[0]));
            seen.push((bytes[0], bytes.len(), received.body.is_some()));
            inbox.consume_frame();
        }
    }

    fn between_long() -> Inbox {
        Inbox { after_long: true, ..Inbox::default() }
    }

    fn pair() -> (UnixStream, Socket) {
        let (here, there) = UnixStream::pair().unwrap();
        there.set_nonblocking(true).unwrap();
        (here, Socket::from(OwnedFd::from(there)))
    }

    #[test]
    fn frames_are_complete_for_any_split_of_the_bytes() {
        const LONG: usize = LONG_BODY_BYTES;
        let frames =
            [(1, 10), (2, LONG), (3, LONG + 77), (4, 20), (5, LONG - 1), (6, 3 * LONG), (7, 1)];
        let stream: Vec<u8> =
            frames.iter().flat_map(|(byte, length)| forward(*byte, *length)).collect();
        for step in [1, 159, 160, 161, 4095, 50_001, stream.len()] {
            let (mut here, mut there) = pair();
            let (mut inbox, mut seen) = (Inbox::default(), Vec::new());
            for part in stream.chunks(step.min(100_000)) {
                here.write_all(part).unwrap();
                while let TransferOutcome::Transferred(_) = inbox.read(&mut there, 64 << 10) {
                    collect_bodies(&mut inbox, &mut seen);
                }
            }
            let came: Vec<_> = seen.iter().map(|(byte, length, _)| (*byte, *length)).collect();
            assert_eq!(came, frames, "in steps of {step}");
            for (_, length, apart) in seen {
                assert!(length >= LONG || !apart, "a short frame needs no buffer of its own");
            }
            assert!(inbox.long_frame.is_none() && inbox.start == inbox.end);
            drop(here);
            assert_eq!(inbox.read(&mut there, 5), TransferOutcome::Ended(None));
        }
    }

    /// After a long frame only a little is read, so that the next body goes into its own buffer.
    #[test]
    fn bodies_of_long_frames_in_a_row_are_not_copied() {
        let (mut here, mut there) = pair();
        let (mut inbox, mut seen) = (between_long(), Vec::new());
        for byte in 0..4 {
            here.write_all(&forward(byte, LONG_BODY_BYTES)).unwrap();
        }
        let mut reads = 0;
        while let TransferOutcome::Transferred(_) = inbox.read(&mut there, 256 << 10) {
            reads += 1;
            collect_bodies(&mut inbox, &mut seen);
            assert!(inbox.should_read_again() || seen.len() == 4);
        }
        assert_eq!((seen.len(), reads), (4, 8));
        assert!(seen.iter().all(|(.., apart)| *apart));
    }

    #[test]
    fn retained_body_outlives_the_inbox() {
        let (mut here, mut there) = pair();
        let mut inbox = between_long();
        here.write_all(&forward(7, LONG_BODY_BYTES)).unwrap();
        let kept = loop {
            assert!(matches!(inbox.read(&mut there, 1 << 20), TransferOutcome::Transferred(_)));
            if let Some(received) = inbox.next_frame(BODY_BYTES_MAX, &new_block_pool()).unwrap() {
                break received.body.unwrap().clone();
            }
        };
        assert_eq!(kept.reference_count(), 2);
        inbox.consume_frame();
        assert_eq!((kept.reference_count(), kept.len()), (1, LONG_BODY_BYTES));
    }

    #[test]
    fn stream_bytes_are_received_into_aligned_memory() {
        let (position, whole) = (4096 * 5 + 100, 4096 * 20);
        let bytes: Vec<u8> = (0..whole).map(|at| (at % 251) as u8).collect();
        let frame = Frame::StreamBytes { stream: StreamName::default(), position, bytes: &bytes };
        let mut out = Vec::new();
        encode(Member::first(2), &frame, &mut out).unwrap();
        let (mut here, mut there) = pair();
        here.write_all(&out).unwrap();
        let mut inbox = between_long();
        let body = loop {
            assert!(matches!(inbox.read(&mut there, 1 << 20), TransferOutcome::Transferred(_)));
            if let Some(received) = inbox.next_frame(BODY_BYTES_MAX, &new_block_pool()).unwrap() {
                break received.body.unwrap().clone();
            }
        };
        assert_eq!(*body, *bytes);
        let place = body.as_ptr().align_offset(4096) as u64;
        assert_eq!((position + place) % 4096, 0);
    }

    #[test]
    fn a_long_body_that_was_damaged_is_malformed() {
        let (mut here, mut there) = pair();
        let mut inbox = between_long();
        let mut frame = forward(7, LONG_BODY_BYTES);
        *frame.last_mut().unwrap() ^= 1;
        here.write_all(&frame).unwrap();
        let malformed = loop {
            assert!(matches!(inbox.read(&mut there, 1 << 20), TransferOutcome::Transferred(_)));
            match inbox.next_frame(BODY_BYTES_MAX, &new_block_pool()) {
                Ok(received) => assert!(received.is_none()),
                Err(malformed) => break malformed,
            }
        };
        assert_eq!(malformed, Malformed::BodyCheck);
        inbox.discard_all();
        assert!(inbox.next_frame(BODY_BYTES_MAX, &new_block_pool()).unwrap().is_none());
    }
}
