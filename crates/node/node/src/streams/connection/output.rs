//! Output queue of a client: frames, and stream bytes that share the memory they were read into.

use std::{collections::VecDeque, ops::Range};

use quorate_log::disk::Blocks;
use quorate_wire::streams::{NodeFrame, STREAM_BYTES_MAX, bytes_head};

/// Minimum number of bytes that are shared; fewer are copied. Another system call costs about as
/// much as the copy, and a reference retains more memory than the bytes need.
const SHARED_BYTES_MIN: usize = 4 << 10;

#[derive(Debug, Default)]
pub(super) struct Output {
    leading_frames: Vec<u8>,
    /// Stream bytes and the frames after them, all of which follow the leading frames.
    shared_parts: VecDeque<SharedPart>,
    shared_part_bytes: usize,
}

/// Shared stream bytes, whose frame head precedes them in the queue, and the frames after them.
#[derive(Debug)]
struct SharedPart {
    bytes: Blocks,
    /// Range of the stream bytes that has not been sent.
    unsent_range: Range<usize>,
    following_frames: Vec<u8>,
}

impl Output {
    pub(super) fn len(&self) -> usize {
        self.leading_frames.len() + self.shared_part_bytes
    }

    pub(super) const fn is_empty(&self) -> bool {
        self.leading_frames.is_empty() && self.shared_part_bytes == 0
    }

    /// Returns the memory retained by the queue, in bytes.
    pub(super) const fn held_bytes(&self) -> usize {
        self.leading_frames.capacity() + self.shared_part_bytes
    }

    /// Releases all but `bytes` bytes of unused memory, if the queue is empty.
    pub(super) fn shrink_to(&mut self, bytes: usize) {
        self.leading_frames.shrink_to(bytes);
    }

    pub(super) fn queue_answer(&mut self, answer: &NodeFrame<'_>) {
        self.append_frame(|frames| answer.encode(frames));
    }

    /// Appends stream bytes as data frames. `position` is the position of the first byte.
    pub(super) fn queue_shared_bytes(&mut self, mut position: u64, bytes: &Blocks) {
        let mut from = 0;
        while from < bytes.len() {
            let to = bytes.len().min(from + STREAM_BYTES_MAX);
            let head = bytes_head(position, to - from);
            let shared = to - from >= SHARED_BYTES_MIN;
            self.append_frame(|frames| {
                frames.extend_from_slice(&head);
                if !shared {
                    frames.extend_from_slice(&bytes[from..to]);
                }
            });
            if shared {
                self.shared_part_bytes += to - from;
                self.shared_parts.push_back(SharedPart {
                    bytes: bytes.clone(),
                    unsent_range: from..to,
                    following_frames: Vec::new(),
                });
            }
            position += (to - from) as u64;
            from = to;
        }
    }

    fn append_frame(&mut self, append: impl FnOnce(&mut Vec<u8>)) {
        match self.shared_parts.back_mut() {
            Some(part) => {
                let before = part.following_frames.len();
                append(&mut part.following_frames);
                self.shared_part_bytes += part.following_frames.len() - before;
            }
            None => append(&mut self.leading_frames),
        }
    }

    /// Returns the next contiguous bytes to send.
    pub(super) fn next_bytes(&self) -> &[u8] {
        match self.shared_parts.front() {
            Some(part) if self.leading_frames.is_empty() => &part.bytes[part.unsent_range.clone()],
            _ => &self.leading_frames,
        }
    }

    /// Removes `count` sent bytes from the front of the queue.
    pub(super) fn consume(&mut self, count: usize) {
        if !self.leading_frames.is_empty() {
            self.leading_frames.drain(..count);
            return;
        }
        let Some(part) = self.shared_parts.front_mut() else {
            return;
        };
        part.unsent_range.start += count;
        self.shared_part_bytes -= count;
        if part.unsent_range.is_empty()
            && let Some(part) = self.shared_parts.pop_front()
        {
            self.shared_part_bytes -= part.following_frames.len();
            self.leading_frames = part.following_frames;
        }
    }
}

#[cfg(test)]
mod tests {
    use quorate_log::disk::BlockPool;
    use quorate_wire::streams::HEAD_BYTES;

    use super::*;

    fn bytes(length: usize) -> Blocks {
        let bytes: Vec<u8> = (0..length).map(|at| (at % 251) as u8).collect();
        BlockPool::new(0, 0).copy_bytes(&bytes)
    }

    /// Returns the whole output, as sent in parts of at most `most` bytes.
    fn sent(output: &mut Output, most: usize) -> Vec<u8> {
        let mut all = Vec::new();
        while !output.is_empty() {
            let length = output.len();
            let piece = &output.next_bytes()[..output.next_bytes().len().min(most)];
            assert!(!piece.is_empty(), "{length} bytes wait");
            all.extend_from_slice(piece);
            let count = piece.len();
            output.consume(count);
            assert_eq!(output.len(), length - count);
        }
        assert!(output.next_bytes().is_empty() && output.shared_parts.is_empty());
        all
    }

    #[test]
    fn frames_and_bytes_are_sent_in_order_for_any_split() {
        let lengths = [1, SHARED_BYTES_MIN - 1, SHARED_BYTES_MIN, STREAM_BYTES_MAX + 1, 1 << 20];
        let (mut expected, mut position) = (Vec::new(), 7);
        for length in lengths {
            for part in bytes(length).chunks(STREAM_BYTES_MAX) {
                let bytes = part;
                NodeFrame::Bytes { position, bytes }.encode(&mut expected);
                position += part.len() as u64;
            }
            NodeFrame::Done { position }.encode(&mut expected);
        }
        for most in [1, HEAD_BYTES, 4096, usize::MAX] {
            let (mut output, mut position) = (Output::default(), 7);
            for length in lengths {
                output.queue_shared_bytes(position, &bytes(length));
                position += length as u64;
                output.queue_answer(&NodeFrame::Done { position });
            }
            assert_eq!(output.len(), expected.len());
            assert!(sent(&mut output, most) == expected, "by {most}");
        }
    }

    #[test]
    fn long_bytes_are_shared_until_they_are_sent() {
        let (long, short) = (bytes(SHARED_BYTES_MIN), bytes(SHARED_BYTES_MIN - 1));
        let mut output = Output::default();
        output.queue_shared_bytes(0, &long);
        output.queue_shared_bytes(SHARED_BYTES_MIN as u64, &short);
        assert_eq!((long.holder_count(), short.holder_count()), (2, 1));
        output.consume(output.next_bytes().len());
        output.consume(SHARED_BYTES_MIN - 1);
        assert_eq!(long.holder_count(), 2, "not its last byte");
        output.consume(1);
        assert_eq!(long.holder_count(), 1);
    }
}
