//! Keys, and how long they may be: one limit for all commands and both stores.

use std::fmt;

/// Most bytes of a key: 64 KiB less 16.
///
/// Replicated commands are executed or refused by it, so it is the same on every node and in every
/// version. The tree on disk takes keys of 65 535 bytes, and the store puts up to 15 before a
/// client's ([`crate::store::lsm`] asserts that they fit, the index of deadlines included). This is
/// the largest limit with which every key may have a deadline, so no key that an earlier version
/// could keep has become unreachable.
pub const KEY_BYTES_MAX: usize = (64 << 10) - 16;

/// The error for a longer key, or pattern of keys.
pub const KEY_TOO_LONG: &str =
    "TOOBIG not executed: a key, or a pattern of keys, may have 65520 bytes";

/// Most bytes of a field of a hash, or a member of a set or sorted set: 64 KiB less 64. They are
/// names of rows, which have more before them than keys do.
pub const FIELD_BYTES_MAX: usize = (64 << 10) - 64;

/// The error for a longer field or member.
pub const FIELD_TOO_LONG: &str = "TOOBIG not executed: a field or a member may have 65472 bytes; values and elements of lists may be longer";

/// A key that every store can keep.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Key<'a>(&'a [u8]);

/// More than [`KEY_BYTES_MAX`] bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TooLong;

impl<'a> Key<'a> {
    /// Creates a key of these bytes.
    pub const fn new(bytes: &'a [u8]) -> Result<Self, TooLong> {
        if bytes.len() <= KEY_BYTES_MAX { Ok(Self(bytes)) } else { Err(TooLong) }
    }

    /// The key as the client wrote it.
    pub const fn bytes(self) -> &'a [u8] {
        self.0
    }
}

/// A key in the program's text is short enough, or the program does not compile.
impl<'a, const BYTES: usize> From<&'a [u8; BYTES]> for Key<'a> {
    fn from(bytes: &'a [u8; BYTES]) -> Self {
        const { assert!(BYTES <= KEY_BYTES_MAX) };
        Self(bytes)
    }
}

impl fmt::Debug for Key<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "\"{}\"", self.0.escape_ascii())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_text_names_the_limit() {
        assert!(KEY_TOO_LONG.contains(&format!("{KEY_BYTES_MAX} bytes")));
        assert!(FIELD_TOO_LONG.contains(&format!("{FIELD_BYTES_MAX} bytes")));
        assert!(Key::new(&[0; KEY_BYTES_MAX]).is_ok());
        assert_eq!(Key::new(&[0; KEY_BYTES_MAX + 1]), Err(TooLong));
    }
}
