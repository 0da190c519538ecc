//! Sends a run of datagrams as frames, many in one system call.
//!
//! A send ring (PACKET_TX_RING) was measured and costs the same per frame. Most of the cost is the
//! frame's path through the kernel, and frames that stay on the machine are copied in any case.

use std::io::IoSlice;

use rustix::{
    fd::BorrowedFd,
    io::Errno,
    net::{MMsgHdr, SendAncillaryBuffer, SendFlags, sendmmsg, sendmsg},
};

use crate::ethernet::frame::HEADER_BYTES;

/// Maximum number of frames per call.
const FRAMES_PER_CALL_MAX: usize = 64;

/// Datagrams of equal length, except for the last one, which may be shorter, with the headers of
/// their frames.
pub(crate) struct FrameRun<'a> {
    pub(crate) bytes: &'a [u8],
    /// Length of each datagram except the last, at least one byte.
    pub(crate) segment_bytes: usize,
    /// Header of all datagrams except the last.
    pub(crate) header: [u8; HEADER_BYTES],
    pub(crate) last_header: [u8; HEADER_BYTES],
}

impl FrameRun<'_> {
    pub(crate) fn datagrams(&self) -> usize {
        self.bytes.len().div_ceil(self.segment_bytes)
    }

    /// Passes frames from index `from` on to the kernel, as many as one call can send. There must
    /// be at least one. Returns how many the kernel accepted.
    pub(crate) fn send(&self, socket: BorrowedFd<'_>, from: usize) -> Result<usize, Errno> {
        let flags = SendFlags::DONTWAIT;
        let count = (self.datagrams() - from).min(FRAMES_PER_CALL_MAX);
        if count == 1 {
            let mut control = SendAncillaryBuffer::default();
            return sendmsg(socket, &self.io_slices(from), &mut control, flags).map(|_| 1);
        }
        let parts: [_; FRAMES_PER_CALL_MAX] = std::array::from_fn(|at| self.io_slices(from + at));
        let mut controls: [_; FRAMES_PER_CALL_MAX] =
            std::array::from_fn(|_| SendAncillaryBuffer::default());
        let mut controls = controls.iter_mut();
        let mut messages = parts.each_ref().map(|parts| {
            let control = controls.next().expect("BATCH of them");
            MMsgHdr::new(parts, control)
        });
        sendmmsg(socket, &mut messages[..count], flags)
    }

    /// Returns the two parts of a frame. They are empty past the end of the run and are then not
    /// sent.
    fn io_slices(&self, at: usize) -> [IoSlice<'_>; 2] {
        self.frame_slices(at).map(IoSlice::new)
    }

    /// Returns a frame as two byte slices.
    pub(crate) fn frame_slices(&self, at: usize) -> [&[u8]; 2] {
        let begin = (at * self.segment_bytes).min(self.bytes.len());
        let rest = &self.bytes[begin..];
        let header = if rest.len() > self.segment_bytes { &self.header } else { &self.last_header };
        let datagram = &rest[..rest.len().min(self.segment_bytes)];
        [header, datagram]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_datagram_has_the_header_of_its_length() {
        let check = |length: usize, expected: &[(u8, usize)]| {
            let bytes: Vec<u8> = (0..length).map(|at| at as u8).collect();
            let run = FrameRun {
                bytes: &bytes,
                segment_bytes: 10,
                header: [1; HEADER_BYTES],
                last_header: [2; HEADER_BYTES],
            };
            assert_eq!(run.datagrams(), expected.len());
            let frames: Vec<_> = (0..run.datagrams()).map(|at| run.io_slices(at)).collect();
            let heads = frames.iter().map(|[header, data]| (header[0], data.len()));
            assert_eq!(heads.collect::<Vec<_>>(), expected);
            let whole: Vec<u8> = frames.iter().flat_map(|[_, data]| data.to_vec()).collect();
            assert_eq!(whole, bytes);
            assert!(run.io_slices(run.datagrams())[1].is_empty());
        };
        check(0, &[]);
        check(1, &[(2, 1)]);
        check(10, &[(2, 10)]);
        check(11, &[(1, 10), (2, 1)]);
        check(30, &[(1, 10), (1, 10), (2, 10)]);
    }
}
