//! Commands of the values service, and the replies to them.
//!
//! | command | bytes |
//! |---|---|
//! | append | 1, behaviour when full (0 refuse, 1 forget the oldest), maximum bytes retained (8), the value |
//! | trim | 2, the first slot to retain (8) |
//! | bundle | 3, behaviour when full, maximum bytes retained (8), then one or more values, each prefixed with its length (4) |
//!
//! Submitted values are sent in bundles; those of a bundle are appended up to the limit. Single
//! appends were written by earlier versions, and are still decoded from their logs.
//!
//! Numbers are little-endian. The limit is sent along with the values, so that every node applies
//! the same one, regardless of its own settings.

/// Overhead in bytes charged for each value, so that the number of empty values is bounded as well.
pub const VALUE_OVERHEAD_BYTES: u64 = 64;
/// Size in bytes of a bundle's header, before the values.
pub const BUNDLE_HEADER_BYTES: usize = 10;
/// Size in bytes of the length before each value of a bundle.
pub const LENGTH_FIELD_BYTES: usize = 4;

const APPEND_KIND: u8 = 1;
const TRIM_KIND: u8 = 2;
const BUNDLE_KIND: u8 = 3;

/// Behaviour if a value would exceed the limit of retained values.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum WhenFull {
    /// Refuses the value until slots are trimmed.
    #[default]
    Refuse,
    /// Trims as many of the oldest values as needed, even if a reader still needs them.
    ForgetOldest,
}

/// Encoded values of a bundle: at least one, each prefixed with its length. Validated on creation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Values<'a>(&'a [u8]);

impl<'a> Values<'a> {
    /// Parses the values of a bundle. Returns `None` if the bytes are invalid or a value is too
    /// long.
    pub fn parse(bytes: &'a [u8], value_bytes_max: usize) -> Option<Self> {
        let mut rest = bytes;
        while !rest.is_empty() {
            let value = take_value(&mut rest)?;
            if value.len() > value_bytes_max {
                return None;
            }
        }
        (!bytes.is_empty()).then_some(Self(bytes))
    }

    /// Returns the values in encoded form.
    pub const fn bytes(self) -> &'a [u8] {
        self.0
    }

    /// Appends a value to an encoded bundle.
    pub fn push(value: &[u8], to: &mut Vec<u8>) {
        let length = u32::try_from(value.len()).expect("values are bounded");
        to.extend(length.to_le_bytes());
        to.extend(value);
    }
}

impl<'a> IntoIterator for Values<'a> {
    type Item = &'a [u8];
    type IntoIter = ValuesIter<'a>;

    fn into_iter(self) -> ValuesIter<'a> {
        ValuesIter(self.0)
    }
}

/// Iterator over the values of a bundle.
#[derive(Clone, Debug)]
pub struct ValuesIter<'a>(&'a [u8]);

impl<'a> Iterator for ValuesIter<'a> {
    type Item = &'a [u8];

    fn next(&mut self) -> Option<&'a [u8]> {
        take_value(&mut self.0)
    }
}

fn take_value<'a>(from: &mut &'a [u8]) -> Option<&'a [u8]> {
    let (length, rest) = from.split_first_chunk()?;
    let length = usize::try_from(u32::from_le_bytes(*length)).ok()?;
    let (value, rest) = rest.split_at_checked(length)?;
    *from = rest;
    Some(value)
}

/// Replicated command of the values service.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Command<'a> {
    /// Appends a single value.
    Append {
        /// Maximum size in bytes of the retained values, including this one.
        retained_bytes_max: u64,
        /// Behaviour if the value would exceed the limit.
        when_full: WhenFull,
        /// Contents of the value.
        value: &'a [u8],
    },
    /// Trims all slots below `below`.
    Trim {
        /// First slot to retain.
        below: u64,
    },
    /// Appends values in order, up to the first one that does not fit.
    Bundle {
        /// Maximum size in bytes of the retained values, including those of the bundle.
        retained_bytes_max: u64,
        /// Behaviour if a value would exceed the limit.
        when_full: WhenFull,
        /// Values to append.
        values: Values<'a>,
    },
}

fn encode_append(kind: u8, when_full: WhenFull, held_max: u64, rest: &[u8]) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(BUNDLE_HEADER_BYTES + rest.len());
    bytes.extend([kind, u8::from(when_full == WhenFull::ForgetOldest)]);
    bytes.extend(held_max.to_le_bytes());
    bytes.extend(rest);
    bytes
}

fn decode_append(bytes: &[u8]) -> Option<(WhenFull, u64, &[u8])> {
    let (full, rest) = bytes.split_first()?;
    let (held_max, rest) = rest.split_first_chunk()?;
    let when_full = match full {
        0 => WhenFull::Refuse,
        1 => WhenFull::ForgetOldest,
        _ => return None,
    };
    Some((when_full, u64::from_le_bytes(*held_max), rest))
}

impl<'a> Command<'a> {
    /// Encodes the command.
    pub fn encode(&self) -> Vec<u8> {
        match *self {
            Self::Append { retained_bytes_max: held_max, when_full, value } => {
                encode_append(APPEND_KIND, when_full, held_max, value)
            }
            Self::Bundle { retained_bytes_max: held_max, when_full, values } => {
                encode_append(BUNDLE_KIND, when_full, held_max, values.bytes())
            }
            Self::Trim { below } => {
                let mut bytes = vec![TRIM_KIND];
                bytes.extend(below.to_le_bytes());
                bytes
            }
        }
    }

    /// Decodes a command. Returns `None` if the bytes are not one.
    pub fn decode(bytes: &'a [u8]) -> Option<Self> {
        match bytes.split_first()? {
            (&APPEND_KIND, rest) => {
                let (when_full, held_max, value) = decode_append(rest)?;
                Some(Self::Append { retained_bytes_max: held_max, when_full, value })
            }
            (&BUNDLE_KIND, rest) => {
                let (when_full, held_max, values) = decode_append(rest)?;
                Some(Self::Bundle {
                    retained_bytes_max: held_max,
                    when_full,
                    // The values' size was checked when they were submitted.
                    values: Values::parse(values, usize::MAX)?,
                })
            }
            (&TRIM_KIND, rest) => {
                Some(Self::Trim { below: u64::from_le_bytes(rest.try_into().ok()?) })
            }
            _ => None,
        }
    }
}

/// A reply to a command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reply {
    /// The value was appended.
    Appended {
        /// Slot of the value. Slots start at 1 and have no gaps.
        slot: u64,
    },
    /// All slots below `first_retained` have been trimmed.
    Trimmed {
        /// First retained slot, or the next one to be assigned if there is none.
        first_retained: u64,
    },
    /// The value was refused because the retained values have reached their limit.
    Full {
        /// First retained slot.
        first_retained: u64,
        /// Size of the retained values in bytes, including overhead.
        retained_bytes: u64,
    },
    /// The bytes are not a valid command.
    Malformed,
    /// The first `appended_count` values of a bundle were appended, in consecutive slots.
    Bundled {
        /// Slot of the first value, or the next slot if no value was appended.
        first_slot: u64,
        /// Number of appended values. The remaining ones exceeded the capacity.
        appended_count: u64,
        /// First retained slot.
        first_retained: u64,
        /// Size of the retained values in bytes, including overhead.
        retained_bytes: u64,
    },
}

impl Reply {
    /// Appends the encoded reply to `to`.
    pub fn encode(&self, to: &mut Vec<u8>) {
        let (kind, words) = match *self {
            Self::Appended { slot } => (0, [slot, 0]),
            Self::Trimmed { first_retained: first } => (1, [first, 0]),
            Self::Full { first_retained: first, retained_bytes: held } => (2, [first, held]),
            Self::Malformed => (3, [0, 0]),
            Self::Bundled {
                first_slot: slot,
                appended_count: count,
                first_retained: first,
                retained_bytes: held,
            } => {
                to.push(4);
                for word in [slot, count, first, held] {
                    to.extend(word.to_le_bytes());
                }
                return;
            }
        };
        to.push(kind);
        for word in words {
            to.extend(word.to_le_bytes());
        }
    }

    /// Decodes a reply. Returns `None` if the bytes are not one.
    pub fn decode(bytes: &[u8]) -> Option<Self> {
        let (kind, rest) = bytes.split_first()?;
        if *kind == 4 {
            let words: [u8; 32] = rest.try_into().ok()?;
            let [slot, count, first, held] = [0, 8, 16, 24].map(|at| word_at(&words, at));
            return Some(Self::Bundled {
                first_slot: slot?,
                appended_count: count?,
                first_retained: first?,
                retained_bytes: held?,
            });
        }
        let (a, rest) = rest.split_first_chunk()?;
        let (a, b) = (u64::from_le_bytes(*a), u64::from_le_bytes(rest.try_into().ok()?));
        match (kind, a, b) {
            (0, slot, 0) => Some(Self::Appended { slot }),
            (1, first, 0) => Some(Self::Trimmed { first_retained: first }),
            (2, first, held) => Some(Self::Full { first_retained: first, retained_bytes: held }),
            (3, 0, 0) => Some(Self::Malformed),
            _ => None,
        }
    }
}

/// Range of the retained slots, in reply to the only query, which has an empty encoding.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RetainedRange {
    /// First retained slot, or `next` if there is none.
    pub first_retained: u64,
    /// Next slot to be assigned.
    pub next: u64,
    /// Size of the retained values in bytes, including overhead.
    pub bytes: u64,
}

impl RetainedRange {
    /// Appends the encoded answer to `to`.
    pub fn encode(&self, to: &mut Vec<u8>) {
        for word in [self.first_retained, self.next, self.bytes] {
            to.extend(word.to_le_bytes());
        }
    }

    /// Decodes an answer. Returns `None` if the bytes are not one.
    pub fn decode(bytes: &[u8]) -> Option<Self> {
        let words: [u8; 24] = bytes.try_into().ok()?;
        Some(Self {
            first_retained: word_at(&words, 0)?,
            next: word_at(&words, 8)?,
            bytes: word_at(&words, 16)?,
        })
    }
}

fn word_at(words: &[u8], at: usize) -> Option<u64> {
    let (word, _) = words.get(at..)?.split_first_chunk()?;
    Some(u64::from_le_bytes(*word))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn commands_and_replies_round_trip() {
        for command in [
            Command::Append {
                retained_bytes_max: 7,
                when_full: WhenFull::ForgetOldest,
                value: b"",
            },
            Command::Append {
                retained_bytes_max: u64::MAX,
                when_full: WhenFull::Refuse,
                value: b"\0value",
            },
            Command::Trim { below: 9 },
            Command::Bundle {
                retained_bytes_max: 7,
                when_full: WhenFull::Refuse,
                values: Values::parse(b"\x03\0\0\0one\0\0\0\0", 3).unwrap(),
            },
        ] {
            assert_eq!(Command::decode(&command.encode()), Some(command));
        }
        for reply in [
            Reply::Appended { slot: 1 },
            Reply::Trimmed { first_retained: 2 },
            Reply::Full { first_retained: 3, retained_bytes: 4 },
            Reply::Malformed,
            Reply::Bundled {
                first_slot: 1,
                appended_count: 2,
                first_retained: 3,
                retained_bytes: 4,
            },
        ] {
            let mut bytes = Vec::new();
            reply.encode(&mut bytes);
            assert_eq!(Reply::decode(&bytes), Some(reply));
        }
        for nonsense in [
            &b""[..],
            &[0],
            &[1, 2, 0, 0, 0, 0, 0, 0, 0, 0],
            &[2, 0],
            &[3; 9],
            &[3, 0, 7, 0, 0, 0, 0, 0, 0, 0],
            &[3, 0, 7, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0],
            &[3, 0, 7, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0],
            &[4; 17],
        ] {
            assert_eq!(Command::decode(nonsense), None);
            assert_eq!(Reply::decode(nonsense), None);
        }
    }

    #[test]
    fn values_are_parsed_one_by_one_within_their_bound() {
        let mut bytes = Vec::new();
        for value in [&b"one"[..], b"", b"three"] {
            Values::push(value, &mut bytes);
        }
        let values = Values::parse(&bytes, 5).unwrap();
        let values: Vec<&[u8]> = values.into_iter().collect();
        assert_eq!(values, [&b"one"[..], b"", b"three"]);
        assert_eq!(Values::parse(&bytes, 4), None, "one is too long");
        assert_eq!(Values::parse(&[], 4), None, "there is none");
        for cut in [1, 4, 8, bytes.len() - 1] {
            assert_eq!(Values::parse(&bytes[..cut], 5), None, "cut at {cut}");
        }
    }
}
