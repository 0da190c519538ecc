//! The two ends of a list: left and right.

use crate::{
    command::{Refusal, SYNTAX},
    encode::{Decoder, Malformed},
};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum End {
    Left = 0,
    Right = 1,
}

impl End {
    pub(crate) fn parse(word: &[u8]) -> Result<Self, Refusal> {
        match &*word.to_ascii_lowercase() {
            b"left" => Ok(Self::Left),
            b"right" => Ok(Self::Right),
            _ => Err(SYNTAX.into()),
        }
    }

    pub(crate) fn decode(from: &mut Decoder<'_>) -> Result<Self, Malformed> {
        match from.byte()? {
            0 => Ok(Self::Left),
            1 => Ok(Self::Right),
            _ => Err(Malformed),
        }
    }

    /// Returns the name of the event for a push at this end.
    pub(super) const fn pushed(self) -> &'static str {
        match self {
            Self::Left => "lpush",
            Self::Right => "rpush",
        }
    }

    /// Returns the name of the event for a pop from this end.
    pub(super) const fn popped(self) -> &'static str {
        match self {
            Self::Left => "lpop",
            Self::Right => "rpop",
        }
    }
}
