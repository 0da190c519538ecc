//! Cache of memory images of machines that have compiled a script.
//!
//! A run that starts from an image is charged the cost of compilation, so it differs only in time
//! from a run that compiles.

use std::collections::VecDeque;

use crate::machine::MemoryImage;

/// Maximum total size in bytes of texts and images.
const CACHE_BYTES_MAX: usize = 16 << 20;

/// Initial memory of a run, and the fuel for compilation.
type CompiledImage = (MemoryImage, u64);

/// Most recently executed scripts, latest first.
#[derive(Default)]
pub(crate) struct ImageCache {
    entries: VecDeque<(Box<[u8]>, CompiledImage)>,
    bytes: usize,
}

impl ImageCache {
    /// Returns the image of a script and the fuel for its compilation.
    pub(crate) fn get(&mut self, text: &[u8]) -> Option<(&MemoryImage, u64)> {
        let at = self.entries.iter().position(|(known, _)| **known == *text)?;
        if at > 0 {
            let found = self.entries.remove(at)?;
            self.entries.push_front(found);
        }
        self.entries.front().map(|(_, (image, fuel))| (image, *fuel))
    }

    /// Stores an image. Evicts the least recently used ones if the limit is exceeded.
    pub(crate) fn insert(&mut self, text: &[u8], make: impl FnOnce() -> CompiledImage) {
        let compiled = make();
        self.bytes += text.len() + compiled.0.bytes();
        self.entries.push_front((text.into(), compiled));
        while self.bytes > CACHE_BYTES_MAX
            && let Some((text, (image, _))) = self.entries.pop_back()
        {
            self.bytes -= text.len() + image.bytes();
        }
    }
}
