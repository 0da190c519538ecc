//! Output queue of a client: frames, and stream bytes that share the memory they were read into.

use std::{collections::VecDeque, ops::Range};

use quorate_log::disk::Blocks;
use quorate_wire::streams::{Answer, BYTES_MAX, bytes_head};

/// Minimum number of bytes that are shared; fewer are copied. Another system call costs about as
/// much as the copy, and a reference retains more memory than the bytes need.
const SHARED_BYTES_MIN: usize = 4 << 10;

#[derive(Debug, Default)]
pub(super) struct Output {
    frames: Vec<u8>,
    /// Stream bytes and the frames after them, all of which follow the leading frames.
    parts: VecDeque<Part>,
    parts_bytes: usize,
}

/// Shared stream bytes, whose frame head precedes them in the queue, and the frames after them.
#[derive(Debug)]
struct Part {
    bytes: Blocks,
    /// Range of the stream bytes that has not been sent.
    unsent: Range<usize>,
    frames: Vec<u8>,
}

impl Output {
    pub(super) fn len(&self) -> usize {
        self.frames.len() + self.parts_bytes
    }

    pub(super) const fn is_empty(&self) -> bool {
        self.frames.is_empty() && self.parts_bytes == 0
    }

    /// Returns the memory retained by the queue, in bytes.
    pub(super) const fn held_bytes(&self) -> usize {
        self.frames.capacity() + self.parts_bytes
    }

    /// Releases all but `bytes` bytes of unused memory, if the queue is empty.
    pub(super) fn shrink_to(&mut self, bytes: usize) {
        self.frames.shrink_to(bytes);
    }

    pub(super) fn queue_answer(&mut self, answer: &Answer<'_>) {
        self.append(|frames| answer.encode(frames));
    }

    /// Appends stream bytes as data frames. `position` is the position of the first byte.
    pub(super) fn say_bytes(&mut self, mut position: u64, bytes: &Blocks) {
        let mut from = 0;
        while from < bytes.len() {
            let to = bytes.len().min(from + BYTES_MAX);
            let head = bytes_head(position, to - from);
            let shared = to - from >= SHARED_BYTES_MIN;
            self.append(|frames| {
                frames.extend_from_slice(&head);
                if !shared {
                    frames.extend_from_slice(&bytes[from..to]);
                }
            });
            if shared {
                self.parts_bytes += to - from;
                self.parts.push_back(Part {
                    bytes: bytes.clone(),
                    unsent: from..to,
                    frames: Vec::new(),
                });
            }
            position += (to - from) as u64;
            from = to;
        }
    }

    fn append(&mut self, append: impl FnOnce(&mut Vec<u8>)) {
        match self.parts.back_mut() {
            Some(part) => {
                let before = part.frames.len();
                append(&mut part.frames);
                self.parts_bytes += part.frames.len() - before;
            }
            None => append(&mut self.frames),
        }
    }

    /// Returns the next contiguous bytes to send.
    pub(super) fn next_bytes(&self) -> &[u8] {
        match self.parts.front() {
            Some(part) if self.frames.is_empty() => &part.bytes[part.unsent.clone()],
            _ => &self.frames,
        }
    }

    /// Removes `count` sent bytes from the front of the queue.
    pub(super) fn sent(&mut self, count: usize) {
        if !self.frames.is_empty() {
            self.frames.drain(..count);
            return;
        }
        let Some(part) = self.parts.front_mut() else {
            return;
        };
        part.unsent.start += count;
        self.parts_bytes -= count;
        if part.unsent.is_empty()
            && let Some(part) = self.parts.pop_front()
        {
            self.parts_bytes -= part.frames.len();
            self.frames = part.frames;
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
        BlockPool::new(0, 0).copy(&bytes)
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
            output.sent(count);
            assert_eq!(output.len(), length - count);
        }
        assert!(output.next_bytes().is_empty() && output.parts.is_empty());
        all
    }

    #[test]
    fn frames_and_bytes_are_sent_in_order_for_any_split() {
        let lengths = [1, SHARED_BYTES_MIN - 1, SHARED_BYTES_MIN, BYTES_MAX + 1, 1 << 20];
        let (mut expected, mut position) = (Vec::new(), 7);
        for length in lengths {
            for part in bytes(length).chunks(BYTES_MAX) {
                let bytes = part;
                Answer::Bytes { position, bytes }.encode(&mut expected);
                position += part.len() as u64;
            }
            Answer::Done { position }.encode(&mut expected);
        }
        for most in [1, HEAD_BYTES, 4096, usize::MAX] {
            let (mut output, mut position) = (Output::default(), 7);
            for length in lengths {
                output.say_bytes(position, &bytes(length));
                position += length as u64;
                output.queue_answer(&Answer::Done { position });
            }
            assert_eq!(output.len(), expected.len());
            assert!(sent(&mut output, most) == expected, "by {most}");
        }
    }

    #[test]
    fn long_bytes_are_shared_until_they_are_sent() {
        let (long, short) = (bytes(SHARED_BYTES_MIN), bytes(SHARED_BYTES_MIN - 1));
        let mut output = Output::default();
        output.say_bytes(0, &long);
        output.say_bytes(SHARED_BYTES_MIN as u64, &short);
        assert_eq!((long.holders(), short.holders()), (2, 1));
        output.sent(output.next_bytes().len());
        output.sent(SHARED_BYTES_MIN - 1);
        assert_eq!(long.holders(), 2, "not its last byte");
        output.sent(1);
        assert_eq!(long.holders(), 1);
    }
}
