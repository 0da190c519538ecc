//! Decoder of fields from the front of a slice, with big-endian numbers and checked lengths.

/// Bytes to be decoded.
#[derive(Clone, Copy, Debug)]
pub(crate) struct FieldReader<'a>(pub(crate) &'a [u8]);

impl<'a> FieldReader<'a> {
    pub(crate) fn byte(&mut self) -> Option<u8> {
        let (first, rest) = self.0.split_first()?;
        self.0 = rest;
        Some(*first)
    }

    pub(crate) fn u16(&mut self) -> Option<u16> {
        Some(u16::from_be_bytes([self.byte()?, self.byte()?]))
    }

    /// Reads a length-prefixed text.
    pub(crate) fn text(&mut self) -> Option<&'a str> {
        let length = usize::from(self.u16()?);
        let (bytes, rest) = self.0.split_at_checked(length)?;
        self.0 = rest;
        std::str::from_utf8(bytes).ok()
    }
}

/// Appends a length-prefixed text. A text that is too long is truncated, and then refused by the
/// node that executes the command.
pub(crate) fn put_text(text: &str, out: &mut Vec<u8>) {
    let bytes = &text.as_bytes()[..text.len().min(usize::from(u16::MAX))];
    let length = u16::try_from(bytes.len()).unwrap_or(u16::MAX);
    out.extend_from_slice(&length.to_be_bytes());
    out.extend_from_slice(bytes);
}
