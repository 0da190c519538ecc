//! User names. A name in a certificate and a name with a password refer to the same user.

use std::{borrow::Borrow, fmt};

/// Maximum length of a name in bytes, the same as for a DNS label.
pub const NAME_BYTES_MAX: usize = 63;
/// Name of callers that have not authenticated.
pub const DEFAULT: &str = "default";

/// User name of lower-case letters, digits and dashes.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Name(String);

impl Name {
    pub fn new(text: &str) -> Option<Self> {
        let fine = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-';
        let is_name = (1..=NAME_BYTES_MAX).contains(&text.len())
            && text.bytes().all(fine)
            && !text.starts_with('-')
            && !text.ends_with('-');
        is_name.then(|| Self(text.to_owned()))
    }

    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Returns whether this is [`DEFAULT`].
    pub fn is_default(&self) -> bool {
        self.0 == DEFAULT
    }
}

impl fmt::Display for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl Borrow<str> for Name {
    fn borrow(&self) -> &str {
        &self.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_labels_are_valid_names() {
        for text in ["a", "ann", "web-1", "0", &"x".repeat(63)] {
            assert_eq!(Name::new(text).unwrap().as_str(), text);
        }
        for text in ["", "-", "-a", "a-", "Ann", "a b", "a.b", "ä", &"x".repeat(64)] {
            assert_eq!(Name::new(text), None, "{text}");
        }
        assert!(Name::new(DEFAULT).unwrap().is_default());
    }
}
