//! Units of length.

use crate::{
    command::Refusal,
    encode::{Decoder, Malformed},
};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Unit {
    Meter = 0,
    Kilometer = 1,
    Foot = 2,
    Mile = 3,
}

impl Unit {
    pub(super) fn parse(word: &[u8]) -> Result<Self, Refusal> {
        match &*word.to_ascii_lowercase() {
            b"m" => Ok(Self::Meter),
            b"km" => Ok(Self::Kilometer),
            b"ft" => Ok(Self::Foot),
            b"mi" => Ok(Self::Mile),
            _ => Err("ERR unsupported unit provided. please use M, KM, FT, MI".into()),
        }
    }

    pub(super) fn decode(from: &mut Decoder<'_>) -> Result<Self, Malformed> {
        Ok(match from.byte()? {
            0 => Self::Meter,
            1 => Self::Kilometer,
            2 => Self::Foot,
            3 => Self::Mile,
            _ => return Err(Malformed),
        })
    }

    pub(super) const fn meters(self) -> f64 {
        match self {
            Self::Meter => 1.0,
            Self::Kilometer => 1000.0,
            Self::Foot => 0.3048,
            Self::Mile => 1609.34,
        }
    }
}
