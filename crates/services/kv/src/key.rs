//! Keys, and their maximum length, which is the same for all commands and both stores.

use std::fmt;

/// Maximum length of a key in bytes: 64 KiB less 16.
///
/// The limit decides whether a replicated command is executed, so it is equal in all nodes and
/// versions. The tree on disk accepts keys of 65 535 bytes, and the store adds a prefix of up to 15
/// bytes ([`crate::store::lsm`] asserts that they fit, including the index of deadlines). This is
/// the largest limit with which every key can have a deadline, so all keys of earlier versions stay
/// reachable.
pub const KEY_BYTES_MAX: usize = (64 << 10) - 16;

/// Error for a key or key pattern that is too long.
pub const KEY_TOO_LONG: &str =
    "TOOBIG not executed: a key, or a pattern of keys, may have 65520 bytes";

/// Maximum length of a field or member in bytes: 64 KiB less 64, since rows have a longer prefix
/// than keys.
pub const FIELD_BYTES_MAX: usize = (64 << 10) - 64;

pub const FIELD_TOO_LONG: &str = "TOOBIG not executed: a field or a member may have 65472 bytes; values and elements of lists may be longer";

/// Key whose length is within the limit.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Key<'a>(&'a [u8]);

/// Error for a key longer than [`KEY_BYTES_MAX`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TooLong;

impl<'a> Key<'a> {
    /// Creates a key, or fails if it is too long.
    pub const fn new(bytes: &'a [u8]) -> Result<Self, TooLong> {
        if bytes.len() <= KEY_BYTES_MAX { Ok(Self(bytes)) } else { Err(TooLong) }
    }

    pub const fn bytes(self) -> &'a [u8] {
        self.0
    }
}

/// Converts a literal. A literal that is too long does not compile.
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
    fn errors_name_the_length_limit() {
        assert!(KEY_TOO_LONG.contains(&format!("{KEY_BYTES_MAX} bytes")));
        assert!(FIELD_TOO_LONG.contains(&format!("{FIELD_BYTES_MAX} bytes")));
        assert!(Key::new(&[0; KEY_BYTES_MAX]).is_ok());
        assert_eq!(Key::new(&[0; KEY_BYTES_MAX + 1]), Err(TooLong));
    }
}
