//! Stream names: their syntax and maximum length.

use std::{fmt, str::FromStr};

pub const NAME_BYTES_MAX: usize = 200;

/// The name of a stream: 1 to [`NAME_BYTES_MAX`] ASCII letters, digits and `. _ - : /`.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Name(Box<str>);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BadName;

impl Name {
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl FromStr for Name {
    type Err = BadName;

    fn from_str(text: &str) -> Result<Self, BadName> {
        let allowed = |byte: u8| byte.is_ascii_alphanumeric() || b"._-:/".contains(&byte);
        let sound = (1..=NAME_BYTES_MAX).contains(&text.len()) && text.bytes().all(allowed);
        sound.then(|| Self(text.into())).ok_or(BadName)
    }
}

impl fmt::Display for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl fmt::Display for BadName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "the name of a stream has 1 to {NAME_BYTES_MAX} letters, digits and characters of \
             \"._-:/\""
        )
    }
}

impl std::error::Error for BadName {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_short_printable_names_are_valid() {
        let longest = "x".repeat(NAME_BYTES_MAX);
        for good in ["a", "backup/2026-11-23.tar", "raw-1-7", "A:b_c", &longest] {
            assert_eq!(good.parse::<Name>().unwrap().as_str(), good);
        }
        let longer = format!("{longest}x");
        for bad in ["", " ", "a b", "a\n", "ü", "a\0", &longer] {
            assert_eq!(bad.parse::<Name>(), Err(BadName), "{bad:?}");
        }
    }
}
