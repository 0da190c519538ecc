//! The `Wire` trait: a network through which a device exchanges frames with others.

use std::os::fd::BorrowedFd;

#[derive(Debug, Default)]
pub struct ArrivedFrames {
    frames: Vec<Vec<u8>>,
    count: usize,
}

impl ArrivedFrames {
    /// Maximum number of frames received in one turn of the thread.
    pub const MAX: usize = 32;

    pub fn clear(&mut self) {
        self.count = 0;
    }

    pub fn is_full(&self) -> bool {
        self.count == Self::MAX
    }

    /// Adds an empty frame and returns it to be filled.
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

/// A network connection that transports whole frames. A frame that cannot be delivered is lost;
/// retransmission is up to the owner.
pub trait Wire: Send + 'static {
    /// Sends a frame to its destination addresses.
    fn send(&mut self, frame: &[u8]);

    /// Receives waiting frames until `arrived` is full. Never blocks.
    fn receive(&mut self, arrived: &mut ArrivedFrames);

    /// Returns the number of frames dropped because of their sender. Never decreases.
    fn dropped_strangers(&self) -> u64 {
        0
    }

    /// Returns a descriptor that is readable while frames are waiting.
    fn readable_fd(&self) -> BorrowedFd<'_>;
}
