//! What is ordered, and what every node replies to it.
//!
//! | command | bytes |
//! |---|---|
//! | append | 1, what to do when full (0 refuse, 1 forget the oldest), most bytes held (8), the value |
//! | trim | 2, the first slot to be kept (8) |
//!
//! Numbers are little-endian. The bound of what is held travels with each value, so that every node applies the
//! same one, whatever its own settings are.

/// What a value costs beside its bytes: so a flood of empty values is bounded, too.
pub const VALUE_OVERHEAD: u64 = 64;
/// Bytes of an append before its value.
pub const APPEND_HEAD: usize = 10;

const APPEND: u8 = 1;
const TRIM: u8 = 2;

/// What happens to a value that would make what is held exceed the bound.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum WhenFull {
    /// It is refused until something is trimmed.
    #[default]
    Refuse,
    /// As many of the oldest values as need be are forgotten, whoever still wants them.
    ForgetOldest,
}

/// A command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Command<'a> {
    /// Append this value.
    Append {
        /// Most bytes that may be held with it.
        held_max: u64,
        /// What to do otherwise.
        when_full: WhenFull,
        /// Any bytes.
        value: &'a [u8],
    },
    /// Forget all slots below.
    Trim {
        /// The first slot to be kept.
        below: u64,
    },
}

impl<'a> Command<'a> {
    /// As bytes.
    pub fn encode(&self) -> Vec<u8> {
        match *self {
            Self::Append {
                held_max,
                when_full,
                value,
            } => {
                let mut bytes = Vec::with_capacity(APPEND_HEAD + value.len());
                bytes.extend([APPEND, u8::from(when_full == WhenFull::ForgetOldest)]);
                bytes.extend(held_max.to_le_bytes());
                bytes.extend(value);
                bytes
            }
            Self::Trim { below } => {
                let mut bytes = vec![TRIM];
                bytes.extend(below.to_le_bytes());
                bytes
            }
        }
    }

    /// Of any bytes; `None`: they are no command.
    pub fn decode(bytes: &'a [u8]) -> Option<Self> {
        match bytes.split_first()? {
            (&APPEND, rest) => {
                let (full, rest) = rest.split_first()?;
                let (held_max, value) = rest.split_first_chunk()?;
                let when_full = match full {
                    0 => WhenFull::Refuse,
                    1 => WhenFull::ForgetOldest,
                    _ => return None,
                };
                let held_max = u64::from_le_bytes(*held_max);
                Some(Self::Append {
                    held_max,
                    when_full,
                    value,
                })
            }
            (&TRIM, rest) => Some(Self::Trim {
                below: u64::from_le_bytes(rest.try_into().ok()?),
            }),
            _ => None,
        }
    }
}

/// What a command did.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reply {
    /// The value is in this slot.
    Appended {
        /// From 1, without gaps.
        slot: u64,
    },
    /// All slots below `first` are forgotten.
    Trimmed {
        /// The first slot that is held, or the next one to be given out.
        first: u64,
    },
    /// Nothing was appended: too much is held.
    Full {
        /// The first slot that is held.
        first: u64,
        /// What is held, with its overhead.
        held: u64,
    },
    /// That was no command.
    Malformed,
}

impl Reply {
    /// Appends it as bytes.
    pub fn encode(&self, to: &mut Vec<u8>) {
        let (kind, words) = match *self {
            Self::Appended { slot } => (0, [slot, 0]),
            Self::Trimmed { first } => (1, [first, 0]),
            Self::Full { first, held } => (2, [first, held]),
            Self::Malformed => (3, [0, 0]),
        };
        to.push(kind);
        for word in words {
            to.extend(word.to_le_bytes());
        }
    }

    /// Of any bytes; `None`: they are no reply.
    pub fn decode(bytes: &[u8]) -> Option<Self> {
        let (kind, rest) = bytes.split_first()?;
        let (a, rest) = rest.split_first_chunk()?;
        let (a, b) = (
            u64::from_le_bytes(*a),
            u64::from_le_bytes(rest.try_into().ok()?),
        );
        match (kind, a, b) {
            (0, slot, 0) => Some(Self::Appended { slot }),
            (1, first, 0) => Some(Self::Trimmed { first }),
            (2, first, held) => Some(Self::Full { first, held }),
            (3, 0, 0) => Some(Self::Malformed),
            _ => None,
        }
    }
}

/// Which slots are held, as the answer to the only question: an empty one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Held {
    /// The first that is held; `next` if none is.
    pub first: u64,
    /// The next one to be given out.
    pub next: u64,
    /// Bytes that are held, with their overhead.
    pub bytes: u64,
}

impl Held {
    /// Appends it as bytes.
    pub fn encode(&self, to: &mut Vec<u8>) {
        for word in [self.first, self.next, self.bytes] {
            to.extend(word.to_le_bytes());
        }
    }

    /// Of any bytes; `None`: they are no answer.
    pub fn decode(bytes: &[u8]) -> Option<Self> {
        let words: [u8; 24] = bytes.try_into().ok()?;
        let word = |at: usize| {
            let (word, _) = words[at..].split_first_chunk()?;
            Some(u64::from_le_bytes(*word))
        };
        Some(Self {
            first: word(0)?,
            next: word(8)?,
            bytes: word(16)?,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn commands_and_replies_come_back() {
        for command in [
            Command::Append {
                held_max: 7,
                when_full: WhenFull::ForgetOldest,
                value: b"",
            },
            Command::Append {
                held_max: u64::MAX,
                when_full: WhenFull::Refuse,
                value: b"\0value",
            },
            Command::Trim { below: 9 },
        ] {
            assert_eq!(Command::decode(&command.encode()), Some(command));
        }
        for reply in [
            Reply::Appended { slot: 1 },
            Reply::Trimmed { first: 2 },
            Reply::Full { first: 3, held: 4 },
            Reply::Malformed,
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
        ] {
            assert_eq!(Command::decode(nonsense), None);
            assert_eq!(Reply::decode(nonsense), None);
        }
    }
}
