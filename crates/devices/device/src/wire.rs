//! Interface to the network: sends and receives frames of other devices.

use std::os::fd::BorrowedFd;

/// Received frames, in reusable buffers.
#[derive(Debug, Default)]
pub struct Arrived {
    frames: Vec<Vec<u8>>,
    count: usize,
}

impl Arrived {
    /// Maximum number of frames received before the owner's next turn.
    pub const MAX: usize = 32;

    /// Removes all frames.
    pub fn clear(&mut self) {
        self.count = 0;
    }

    /// Returns whether the maximum is reached.
    pub fn is_full(&self) -> bool {
        self.count == Self::MAX
    }

    /// Adds an empty frame to be filled.
    pub fn push(&mut self) -> &mut Vec<u8> {
        if self.frames.len() == self.count {
            self.frames.push(Vec::new());
        }
        let frame = &mut self.frames[self.count];
        frame.clear();
        self.count += 1;
        frame
    }

    /// Removes the last frame, which turned out to be invalid.
    pub fn drop_last(&mut self) {
        self.count = self.count.saturating_sub(1);
    }

    pub fn iter(&self) -> impl Iterator<Item = &[u8]> {
        self.frames[..self.count].iter().map(Vec::as_slice)
    }
}

/// Carries whole frames. An undeliverable frame is lost: owners retransmit, devices do not.
pub trait Wire: Send + 'static {
    /// Sends a frame to its destinations.
    fn send(&mut self, frame: &[u8]);

    /// Receives pending frames, up to the maximum; never blocks.
    fn receive(&mut self, arrived: &mut Arrived);

    /// Returns the number of frames dropped because of their sender; never decreases.
    fn strangers(&self) -> u64 {
        0
    }

    /// Returns a descriptor that is readable while frames are pending.
    fn socket(&self) -> BorrowedFd<'_>;
}
