//! The arguments of a request, as positions in its bytes.

use std::fmt;

/// Range of an argument in the bytes of its request.
#[derive(Clone, Copy, Debug)]
pub(super) struct Span {
    pub(super) from: usize,
    pub(super) to: usize,
}

/// Arguments of a request. The first is the command's name, so there is at least one.
#[derive(Clone, Copy)]
pub struct Arguments<'a> {
    bytes: &'a [u8],
    spans: &'a [Span],
}

impl<'a> Arguments<'a> {
    /// Creates the arguments that occupy `spans` in `bytes`.
    pub(super) const fn new(bytes: &'a [u8], spans: &'a [Span]) -> Self {
        Self { bytes, spans }
    }

    /// Returns the number of arguments, including the name.
    pub const fn len(&self) -> usize {
        self.spans.len()
    }

    pub const fn is_empty(&self) -> bool {
        self.spans.is_empty()
    }

    /// Returns an argument, or an empty one if `index` is out of range.
    pub fn at(&self, index: usize) -> &'a [u8] {
        self.spans.get(index).map_or(&[], |span| &self.bytes[span.from..span.to])
    }

    /// Returns the arguments without the first `count`.
    pub fn from(&self, count: usize) -> Self {
        Self { bytes: self.bytes, spans: self.spans.get(count..).unwrap_or(&[]) }
    }

    /// Iterates over all arguments, including the name.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = &'a [u8]> + use<'a> {
        let bytes = self.bytes;
        self.spans.iter().map(move |span| &bytes[span.from..span.to])
    }
}

impl fmt::Debug for Arguments<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list()
            .entries(self.iter().map(|argument| argument.escape_ascii().to_string()))
            .finish()
    }
}
