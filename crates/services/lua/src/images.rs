//! Memories of machines that have compiled a script, by its text.
//!
//! A run that begins with one costs what compilation cost, so nothing but time tells it from one
//! that compiles.

use std::collections::VecDeque;

use crate::machine::Image;

/// Bytes of all texts and images together.
const BYTES_MAX: usize = 16 << 20;

/// The memory that a run begins with, and the fuel that compilation cost.
type Compiled = (Image, u64);

/// The scripts that ran last, the last one first.
#[derive(Default)]
pub(crate) struct Images {
    known: VecDeque<(Box<[u8]>, Compiled)>,
    bytes: usize,
}

impl Images {
    /// Returns the image of a script, and the fuel that compilation cost.
    pub(crate) fn get(&mut self, text: &[u8]) -> Option<(&Image, u64)> {
        let at = self.known.iter().position(|(known, _)| **known == *text)?;
        if at > 0 {
            let found = self.known.remove(at)?;
            self.known.push_front(found);
        }
        self.known.front().map(|(_, (image, fuel))| (image, *fuel))
    }

    /// Keeps an image, and forgets the oldest ones that have no room next to it.
    pub(crate) fn put(&mut self, text: &[u8], make: impl FnOnce() -> Compiled) {
        let compiled = make();
        self.bytes += text.len() + compiled.0.bytes();
        self.known.push_front((text.into(), compiled));
        while self.bytes > BYTES_MAX
            && let Some((text, (image, _))) = self.known.pop_back()
        {
            self.bytes -= text.len() + image.bytes();
        }
    }
}
