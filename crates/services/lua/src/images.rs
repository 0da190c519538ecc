//! Cache of memory images of machines that have compiled a script.
//!
//! A run that starts from an image is charged the cost of compilation, so it differs only in time
//! from a run that compiles.

use std::collections::VecDeque;

use crate::machine::Image;

/// Maximum total size in bytes of texts and images.
const BYTES_MAX: usize = 16 << 20;

/// Initial memory of a run, and the fuel for compilation.
type Compiled = (Image, u64);

/// Most recently executed scripts, latest first.
#[derive(Default)]
pub(crate) struct Images {
    known: VecDeque<(Box<[u8]>, Compiled)>,
    bytes: usize,
}

impl Images {
    /// Returns the image of a script and the fuel for its compilation.
    pub(crate) fn get(&mut self, text: &[u8]) -> Option<(&Image, u64)> {
        let at = self.known.iter().position(|(known, _)| **known == *text)?;
        if at > 0 {
            let found = self.known.remove(at)?;
            self.known.push_front(found);
        }
        self.known.front().map(|(_, (image, fuel))| (image, *fuel))
    }

    /// Stores an image. Evicts the least recently used ones if the limit is exceeded.
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
