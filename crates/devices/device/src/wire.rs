//! A wire: where frames of other devices come from and go to.

use std::os::fd::BorrowedFd;

/// Frames of one wait, in memory that is used again.
#[derive(Debug, Default)]
pub struct Arrived {
    frames: Vec<Vec<u8>>,
    count: usize,
}

impl Arrived {
    /// Most that are taken before the owner has its turn.
    pub const MAX: usize = 32;

    /// Forgets all.
    pub fn clear(&mut self) {
        self.count = 0;
    }

    /// Returns whether there is no room for one more.
    pub fn is_full(&self) -> bool {
        self.count == Self::MAX
    }

    /// Adds one more frame, empty, to be filled.
    pub fn push(&mut self) -> &mut Vec<u8> {
        if self.frames.len() == self.count {
            self.frames.push(Vec::new());
        }
        let frame = &mut self.frames[self.count];
        frame.clear();
        self.count += 1;
        frame
    }

    /// Removes the last one, which was no frame.
    pub fn drop_last(&mut self) {
        self.count = self.count.saturating_sub(1);
    }

    /// Returns all frames.
    pub fn iter(&self) -> impl Iterator<Item = &[u8]> {
        self.frames[..self.count].iter().map(Vec::as_slice)
    }
}

/// Carries whole frames. What cannot be carried is lost: devices repeat nothing, their owners do.
pub trait Wire: Send + 'static {
    /// Sends a frame that a program made, to the stations that it names.
    fn send(&mut self, frame: &[u8]);

    /// Takes what arrived, as much as there is room for; never waits.
    fn receive(&mut self, arrived: &mut Arrived);

    /// Frames of the group that were not taken, because of who sent them; never falls.
    fn strangers(&self) -> u64 {
        0
    }

    /// Returns a descriptor that is readable while there is something to receive.
    fn socket(&self) -> BorrowedFd<'_>;
}
