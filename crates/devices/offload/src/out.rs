//! Frames that a step sends, listed in the caller's buffer.

use crate::{Routes, port::FrameOrigin};

/// Side of a device at which a frame arrives or leaves.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Port {
    #[default]
    Network,
    /// The node that owns the device.
    Owner,
}

impl Port {
    pub const fn opposite(self) -> Self {
        match self {
            Self::Network => Self::Owner,
            Self::Owner => Self::Network,
        }
    }
}

/// Maximum number of frames per step: one for each route, plus a vote and a decision for the owner,
/// because a host sends both if its own vote completes a decision.
pub const FRAMES_MAX: usize = Routes::MAX + 2;

/// List of at most [`FRAMES_MAX`] frames, stored back to back.
#[derive(Debug)]
pub struct OutputFrames<'a> {
    bytes: &'a mut [u8],
    used_bytes: usize,
    frames: [(Port, usize); FRAMES_MAX],
    count: usize,
    /// Number of leading frames that were caused by the arriving frame rather than by the host's
    /// other program.
    caused_by_arrival: usize,
}

impl<'a> OutputFrames<'a> {
    /// Creates an empty list. The buffer must have space for [`FRAMES_MAX`] frames of the group.
    pub const fn new(bytes: &'a mut [u8]) -> Self {
        Self {
            bytes,
            used_bytes: 0,
            frames: [(Port::Network, 0); FRAMES_MAX],
            count: 0,
            caused_by_arrival: 0,
        }
    }

    pub const fn clear(&mut self) {
        (self.used_bytes, self.count, self.caused_by_arrival) = (0, 0, 0);
    }

    /// Returns each frame with the port to send it to.
    pub fn frames(&self) -> impl Iterator<Item = (Port, &[u8])> {
        let mut at = 0;
        self.frames[..self.count].iter().map(move |(port, length)| {
            let frame = &self.bytes[at..at + length];
            at += length;
            (*port, frame)
        })
    }

    /// Returns each frame for the owner with its [`FrameOrigin`]. `from` is the port at which the
    /// step's input frame arrived.
    pub fn frames_for_owner(&self, from: Port) -> impl Iterator<Item = (FrameOrigin, &[u8])> {
        let came = move |at| match from {
            Port::Network if at < self.caused_by_arrival => FrameOrigin::NetworkResponse,
            Port::Network | Port::Owner => FrameOrigin::LocalResponse,
        };
        let all = self.frames().enumerate();
        let ours = all.filter(|(_, (port, _))| *port == Port::Owner);
        ours.map(move |(at, (_, frame))| (came(at), frame))
    }

    /// Returns the first frame addressed to the group `group`.
    pub(crate) fn first_to_group(&self, group: [u8; 6]) -> Option<&[u8]> {
        let mut left = self.frames().filter(|(port, frame)| {
            *port == Port::Network && frame.first_chunk::<6>() == Some(&group)
        });
        left.next().map(|(_, frame)| frame)
    }

    /// Appends the frames for the owner from another step.
    pub(crate) fn append_owner_frames(&mut self, other: &OutputFrames<'_>) {
        for (port, frame) in other.frames() {
            if port == Port::Owner {
                self.push(port, frame.len()).copy_from_slice(frame);
                self.caused_by_arrival -= 1;
            }
        }
    }

    /// Appends a frame of `length` bytes and returns them. Panics if the caller's buffer is too
    /// small.
    pub(crate) fn push(&mut self, port: Port, length: usize) -> &mut [u8] {
        let from = self.used_bytes;
        assert!(
            self.bytes.len() - from >= length && self.count < FRAMES_MAX,
            "a buffer of {} bytes is too small for {FRAMES_MAX} frames of {length}",
            self.bytes.len()
        );
        self.frames[self.count] = (port, length);
        self.count += 1;
        self.caused_by_arrival += 1;
        self.used_bytes += length;
        &mut self.bytes[from..from + length]
    }
}
