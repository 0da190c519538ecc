//! Output queue of a connection: whole frames, with short bodies copied and long ones shared.

use std::{collections::VecDeque, io::IoSlice};

use quorate_replica::{Payload, plane::FrameBody};

use super::socket::{Socket, TransferOutcome};

/// Capacity in bytes above which an empty buffer is released.
const RETAINED_BYTES_MAX: usize = 1 << 20;
/// Minimum length of a shared body in bytes. A further piece in a write costs the kernel about as
/// much as a copy of this length, and a reference retains memory that its owner may have released.
const SHARED_BYTES_MIN: usize = 4 << 10;
/// Maximum number of pieces in one write.
const PIECES_MAX: usize = 64;

#[derive(Debug, Default)]
pub(crate) struct Outbox {
    pieces: VecDeque<Piece>,
    /// Number of bytes of the first piece already sent.
    sent_bytes: usize,
    /// Number of unsent bytes, including shared ones.
    len: usize,
    /// An empty buffer that is reused for the next copied bytes.
    spare: Vec<u8>,
}

#[derive(Debug)]
enum Piece {
    /// Copied bytes: whole frames, and frame headers whose bodies follow as shared pieces.
    Copied(Vec<u8>),
    /// A frame body that may have other owners.
    Shared(Payload),
}

impl Piece {
    fn bytes(&self) -> &[u8] {
        match self {
            Self::Copied(bytes) => bytes,
            Self::Shared(payload) => payload,
        }
    }
}

impl Outbox {
    pub(crate) const fn len(&self) -> usize {
        self.len
    }

    pub(crate) const fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Appends a frame, sharing its body if the body is long.
    pub(crate) fn push(&mut self, header: &[u8], body: FrameBody<'_>) {
        self.copy(header);
        match body {
            FrameBody::Shared(payload) if payload.len() >= SHARED_BYTES_MIN => {
                self.len += payload.len();
                self.pieces.push_back(Piece::Shared(payload.clone()));
            }
            body => self.copy(body.bytes()),
        }
    }

    fn copy(&mut self, bytes: &[u8]) {
        if bytes.is_empty() {
            return;
        }
        self.len += bytes.len();
        let only = self.pieces.len() == 1;
        if let Some(Piece::Copied(last)) = self.pieces.back_mut() {
            // Amortised: the move costs no more than sending the bytes since the previous one.
            if only && self.sent_bytes > last.len() / 2 {
                last.drain(..self.sent_bytes);
                self.sent_bytes = 0;
            }
            last.extend_from_slice(bytes);
        } else {
            let mut piece = std::mem::take(&mut self.spare);
            piece.extend_from_slice(bytes);
            self.pieces.push_back(Piece::Copied(piece));
        }
    }

    /// Writes as much as possible, at most `limit` bytes.
    pub(crate) fn write(&mut self, to: &mut Socket, limit: usize) -> TransferOutcome {
        let mut total = 0;
        while !self.is_empty() && total < limit {
            let (moved, offered) = self.write_once(to, limit - total);
            match moved {
                TransferOutcome::Transferred(count) => {
                    self.consume(count);
                    total += count;
                    if count < offered {
                        break;
                    }
                }
                TransferOutcome::Blocked if total > 0 => break,
                other => return other,
            }
        }
        TransferOutcome::Transferred(total)
    }

    /// Makes one system call. Returns its outcome and the number of bytes passed to it.
    fn write_once(&self, to: &mut Socket, limit: usize) -> (TransferOutcome, usize) {
        let first = self.pieces.front().map_or(&[][..], |piece| &piece.bytes()[self.sent_bytes..]);
        if self.pieces.len() == 1 || first.len() >= limit {
            let first = &first[..first.len().min(limit)];
            return (to.write(first), first.len());
        }
        let mut slices = [IoSlice::new(&[]); PIECES_MAX];
        slices[0] = IoSlice::new(first);
        let (mut count, mut left) = (1, limit - first.len());
        for (slice, piece) in slices[1..].iter_mut().zip(self.pieces.iter().skip(1)) {
            if left == 0 {
                break;
            }
            let bytes = &piece.bytes()[..piece.bytes().len().min(left)];
            *slice = IoSlice::new(bytes);
            left -= bytes.len();
            count += 1;
        }
        let offered = slices[..count].iter().map(|slice| slice.len()).sum();
        (to.write_pieces(&slices[..count]), offered)
    }

    /// Removes `count` sent bytes. Pieces that were sent completely are released.
    fn consume(&mut self, count: usize) {
        self.len -= count;
        self.sent_bytes += count;
        while let Some(first) = self.pieces.front()
            && self.sent_bytes >= first.bytes().len()
        {
            self.sent_bytes -= first.bytes().len();
            if let Some(Piece::Copied(mut buffer)) = self.pieces.pop_front()
                && buffer.capacity() <= RETAINED_BYTES_MAX
            {
                buffer.clear();
                self.spare = buffer;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::{
        io::Read,
        os::{fd::OwnedFd, unix::net::UnixStream},
    };

    use super::*;

    fn pair() -> (Socket, UnixStream) {
        let (here, there) = UnixStream::pair().unwrap();
        here.set_nonblocking(true).unwrap();
        (Socket::from(OwnedFd::from(here)), there)
    }

    fn payload(byte: u8, length: usize) -> Payload {
        Payload::new(vec![byte; length])
    }

    #[test]
    fn each_byte_is_sent_once_across_partial_writes() {
        let (mut here, mut there) = pair();
        let mut outbox = Outbox::default();
        let (mut expected, mut received) = (Vec::new(), Vec::new());
        for round in 0..60u8 {
            let body = payload(round, 70_000);
            expected.extend_from_slice(&[round; 160]);
            expected.extend_from_slice(&body);
            let shared = round % 3 == 0;
            let body = if shared { FrameBody::Shared(&body) } else { FrameBody::Borrowed(&body) };
            outbox.push(&[round; 160], body);
            let _ = outbox.write(&mut here, usize::MAX);
            let mut part = vec![0; 30_000];
            there.read_exact(&mut part).unwrap();
            received.extend_from_slice(&part);
        }
        let mut part = vec![0; 100_000];
        while received.len() < expected.len() {
            let _ = outbox.write(&mut here, usize::MAX);
            let count = there.read(&mut part).unwrap();
            received.extend_from_slice(&part[..count]);
        }
        assert!(received == expected && outbox.is_empty());
    }

    #[test]
    fn never_writes_more_than_the_limit() {
        for limit in [1, 8, 9, SHARED_BYTES_MIN, SHARED_BYTES_MIN + 8, 2 * SHARED_BYTES_MIN] {
            let (mut here, mut there) = pair();
            let mut outbox = Outbox::default();
            let mut expected = Vec::new();
            for round in 0..4u8 {
                let body = payload(round, SHARED_BYTES_MIN);
                outbox.push(&[round + 10; 8], FrameBody::Shared(&body));
                expected.extend_from_slice(&[round + 10; 8]);
                expected.extend_from_slice(&body);
            }
            let mut received = Vec::new();
            while !outbox.is_empty() {
                let wanted = limit.min(outbox.len());
                assert_eq!(outbox.write(&mut here, limit), TransferOutcome::Transferred(wanted));
                let mut part = vec![0; wanted];
                there.read_exact(&mut part).unwrap();
                received.extend_from_slice(&part);
            }
            assert!(received == expected, "{limit}");
        }
    }

    /// The kernel may accept any part of a write, and the next write begins at the next byte.
    #[test]
    fn a_write_may_end_at_any_byte_of_header_or_body() {
        let frames = [
            ([1; 8], Some(payload(2, SHARED_BYTES_MIN))),
            ([3; 8], None),
            ([4; 8], Some(payload(5, 3))),
            ([6; 8], Some(payload(7, SHARED_BYTES_MIN + 1))),
        ];
        let mut expected = Vec::new();
        for (header, body) in &frames {
            expected.extend_from_slice(header);
            expected.extend(body.iter().flat_map(|body| body.iter()));
        }
        let fill = |outbox: &mut Outbox| {
            for (header, body) in &frames {
                let body = body.as_ref().map_or(FrameBody::Borrowed(&[]), FrameBody::Shared);
                outbox.push(header, body);
            }
        };
        let edges = |at: usize| (at.saturating_sub(9)..at + 9).collect::<Vec<_>>();
        let cuts = [0, 8, 8 + SHARED_BYTES_MIN, 24 + SHARED_BYTES_MIN, expected.len()];
        for cut in cuts.into_iter().flat_map(edges).filter(|cut| *cut <= expected.len()) {
            let mut outbox = Outbox::default();
            fill(&mut outbox);
            outbox.consume(cut);
            assert_eq!(outbox.len(), expected.len() - cut);
            let (mut here, mut there) = pair();
            assert_eq!(
                outbox.write(&mut here, usize::MAX),
                TransferOutcome::Transferred(expected.len() - cut)
            );
            let mut rest = vec![0; expected.len() - cut];
            there.read_exact(&mut rest).unwrap();
            assert!(rest == expected[cut..], "cut at {cut}");
            assert!(outbox.is_empty() && outbox.pieces.is_empty(), "cut at {cut}");
        }
    }

    #[test]
    fn more_pieces_than_one_write_accepts_are_sent_in_order() {
        let (mut here, mut there) = pair();
        let mut outbox = Outbox::default();
        let mut expected = Vec::new();
        // Short enough for a socket's buffer, in many pieces.
        for round in 0..40u8 {
            let body = payload(round, SHARED_BYTES_MIN);
            outbox.push(&[round], FrameBody::Shared(&body));
            expected.push(round);
            expected.extend_from_slice(&body);
        }
        assert!(outbox.pieces.len() > PIECES_MAX);
        let mut received = vec![0; expected.len()];
        let mut read_to = 0;
        while !outbox.is_empty() {
            let TransferOutcome::Transferred(count) = outbox.write(&mut here, usize::MAX) else {
                panic!("the other side reads all");
            };
            there.read_exact(&mut received[read_to..read_to + count]).unwrap();
            read_to += count;
        }
        assert!(received == expected);
    }

    #[test]
    fn a_payload_is_released_when_every_queue_has_sent_it_or_died() {
        let body = payload(1, SHARED_BYTES_MIN);
        let mut outboxes = [(); 3].map(|()| Outbox::default());
        for outbox in &mut outboxes {
            outbox.push(&[0; 160], FrameBody::Shared(&body));
            assert_eq!(outbox.len(), 160 + SHARED_BYTES_MIN, "shared bytes count for each");
        }
        assert_eq!(body.reference_count(), 4);
        let [mut first, mut second, third] = outboxes;
        let (mut here, _there) = pair();
        first.write(&mut here, usize::MAX);
        assert_eq!(body.reference_count(), 3, "sent");
        second.consume(160 + SHARED_BYTES_MIN - 1);
        assert_eq!(body.reference_count(), 3, "not its last byte");
        drop(third);
        assert_eq!(body.reference_count(), 2, "a connection that died");
        second.consume(1);
        assert_eq!(body.reference_count(), 1);
    }

    #[test]
    fn a_short_body_is_copied() {
        let body = payload(1, SHARED_BYTES_MIN - 1);
        let mut outbox = Outbox::default();
        outbox.push(&[0; 160], FrameBody::Shared(&body));
        assert_eq!((body.reference_count(), outbox.pieces.len()), (1, 1));
    }
}
