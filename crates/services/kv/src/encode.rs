//! Encoding of the fields of a replicated command.
//!
//! Lengths and counts are LEB128; deadlines and slots are eight bytes, little-endian. The log
//! retains encoded commands, so the layout of an operation number never changes.

use crate::key::{FIELD_BYTES_MAX, FIELD_TOO_LONG, KEY_TOO_LONG, Key, TooLong};

/// Error for bytes that are not a valid command, the same on all nodes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Malformed;

/// Reason for rejecting a command without effect. It depends only on the command and the state, so
/// all nodes agree.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    Malformed,
    /// A key is longer than stores accept. Fronts refuse it, but another version may have logged
    /// it.
    KeyTooLong,
    /// A field or member is longer than stores accept.
    FieldTooLong,
    /// The batch has no copying budget left for the command.
    Budget,
    /// The command or its batch would exceed the limit of visits ([visit-2]).
    Visits,
}

impl Fault {
    pub const fn text(self) -> &'static str {
        match self {
            Self::Malformed => "ERR malformed command",
            Self::KeyTooLong => KEY_TOO_LONG,
            Self::FieldTooLong => FIELD_TOO_LONG,
            Self::Visits => {
                "TOOBIG not executed: a command may take 1048576 visits of elements (docs/commands.md); \
    ask for fewer elements, or go step by step as with SCAN"
            }
            Self::Budget => {
                // The code is not BUSY, which asks for a retry, because a session stores this reply
                // permanently under the number.
                "TOOBIG not executed: commands that are under way together may copy 256 MiB within \
                 the store; send fewer at a time"
            }
        }
    }
}

impl From<Malformed> for Fault {
    fn from(_: Malformed) -> Self {
        Self::Malformed
    }
}

impl From<TooLong> for Fault {
    fn from(_: TooLong) -> Self {
        Self::KeyTooLong
    }
}

/// Writer that appends encoded fields to a buffer.
#[derive(Debug)]
pub struct Encoder<'a>(pub &'a mut Vec<u8>);

impl Encoder<'_> {
    pub fn byte(&mut self, value: u8) -> &mut Self {
        self.0.push(value);
        self
    }

    /// Appends an unsigned LEB128 number.
    pub fn count(&mut self, mut value: u64) -> &mut Self {
        while value >= 0x80 {
            self.0.push(value.to_le_bytes()[0] | 0x80);
            value >>= 7;
        }
        self.0.push(value.to_le_bytes()[0]);
        self
    }

    pub fn length(&mut self, value: usize) -> &mut Self {
        self.count(value as u64)
    }

    /// Appends a signed number in zigzag encoding.
    pub fn signed(&mut self, value: i64) -> &mut Self {
        self.count((value.cast_unsigned() << 1) ^ (value >> 63).cast_unsigned())
    }

    /// Appends eight bytes, little-endian.
    pub fn word(&mut self, value: u64) -> &mut Self {
        self.0.extend_from_slice(&value.to_le_bytes());
        self
    }

    /// Appends a length-prefixed byte string.
    pub fn bytes(&mut self, value: &[u8]) -> &mut Self {
        self.length(value.len());
        self.0.extend_from_slice(value);
        self
    }

    pub fn keys(&mut self, keys: &[&[u8]]) -> &mut Self {
        self.length(keys.len());
        for key in keys {
            self.bytes(key);
        }
        self
    }
}

/// Reader that consumes encoded fields from the start of a slice.
#[derive(Clone, Copy, Debug)]
pub struct Decoder<'a>(pub &'a [u8]);

impl<'a> Decoder<'a> {
    pub fn byte(&mut self) -> Result<u8, Malformed> {
        let (&first, rest) = self.0.split_first().ok_or(Malformed)?;
        self.0 = rest;
        Ok(first)
    }

    /// Reads an unsigned LEB128 number.
    pub fn count(&mut self) -> Result<u64, Malformed> {
        let mut value = 0u64;
        for shift in (0..64).step_by(7) {
            let byte = self.byte()?;
            let bits = u64::from(byte & 0x7f);
            if shift == 63 && bits > 1 {
                return Err(Malformed);
            }
            value |= bits << shift;
            if byte & 0x80 == 0 {
                return Ok(value);
            }
        }
        Err(Malformed)
    }

    pub fn length(&mut self) -> Result<usize, Malformed> {
        usize::try_from(self.count()?).map_err(|_| Malformed)
    }

    /// Reads a signed number in zigzag encoding.
    pub fn signed(&mut self) -> Result<i64, Malformed> {
        let value = self.count()?;
        Ok((value >> 1).cast_signed() ^ -(value & 1).cast_signed())
    }

    /// Reads eight bytes, little-endian.
    pub fn word(&mut self) -> Result<u64, Malformed> {
        let (head, rest) = self.0.split_first_chunk().ok_or(Malformed)?;
        self.0 = rest;
        Ok(u64::from_le_bytes(*head))
    }

    /// Reads a length-prefixed byte string.
    pub fn bytes(&mut self) -> Result<&'a [u8], Malformed> {
        let length = self.length()?;
        let (head, rest) = self.0.split_at_checked(length).ok_or(Malformed)?;
        self.0 = rest;
        Ok(head)
    }

    /// Reads a length-prefixed key; fails if it is too long.
    pub fn key(&mut self) -> Result<Key<'a>, Fault> {
        Ok(Key::new(self.bytes()?)?)
    }

    /// Reads the length-prefixed name of a field or member; fails if it is too long.
    pub fn field(&mut self) -> Result<&'a [u8], Fault> {
        check_field(self.bytes()?)
    }

    /// Fails unless all input has been consumed.
    pub fn end(&self) -> Result<(), Malformed> {
        if self.0.is_empty() { Ok(()) } else { Err(Malformed) }
    }

    /// Reads a counted list. Checks all of it, so that iteration cannot fail.
    pub fn list(&mut self) -> Result<List<'a>, Malformed> {
        let count = self.length()?;
        let start = self.0;
        for _ in 0..count {
            self.bytes()?;
        }
        Ok(List { count, bytes: Decoder(&start[..start.len() - self.0.len()]) })
    }

    /// Reads a counted list. Checks every `step`-th item after the first `skip` as the name of a
    /// field or member.
    pub fn fields(&mut self, skip: usize, step: usize) -> Result<List<'a>, Fault> {
        let list = self.list()?;
        let mut fields = list.skip(skip).step_by(step);
        fields.try_for_each(|field| check_field(field).map(drop))?;
        Ok(list)
    }

    pub fn keys(&mut self) -> Result<Keys<'a>, Fault> {
        let list = self.list()?;
        check_keys(list)?;
        Ok(Keys(list))
    }

    /// Reads a counted list of alternating keys and values.
    pub fn pairs(&mut self) -> Result<Pairs<'a>, Fault> {
        let list = self.list()?;
        if list.len() % 2 != 0 {
            return Err(Fault::Malformed);
        }
        check_keys(list.step_by(2))?;
        Ok(Pairs(list))
    }
}

const fn check_field(field: &[u8]) -> Result<&[u8], Fault> {
    if field.len() <= FIELD_BYTES_MAX { Ok(field) } else { Err(Fault::FieldTooLong) }
}

fn check_keys<'a>(mut keys: impl Iterator<Item = &'a [u8]>) -> Result<(), TooLong> {
    keys.try_for_each(|key| Key::new(key).map(drop))
}

/// Byte strings that have been checked.
#[derive(Clone, Copy, Debug)]
pub struct List<'a> {
    count: usize,
    bytes: Decoder<'a>,
}

impl<'a> List<'a> {
    pub const fn len(&self) -> usize {
        self.count
    }

    pub const fn is_empty(&self) -> bool {
        self.count == 0
    }
}

impl<'a> Iterator for List<'a> {
    type Item = &'a [u8];

    fn next(&mut self) -> Option<&'a [u8]> {
        self.bytes.bytes().ok()
    }
}

/// Keys that have been checked.
#[derive(Clone, Copy, Debug)]
pub struct Keys<'a>(List<'a>);

impl Keys<'_> {
    pub const fn len(&self) -> usize {
        self.0.len()
    }

    pub const fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

impl<'a> Iterator for Keys<'a> {
    type Item = Key<'a>;

    fn next(&mut self) -> Option<Key<'a>> {
        Key::new(self.0.next()?).ok()
    }
}

/// Key-value pairs, the lengths of whose keys have been checked.
#[derive(Clone, Copy, Debug)]
pub struct Pairs<'a>(List<'a>);

impl Pairs<'_> {
    pub const fn len(&self) -> usize {
        self.0.len() / 2
    }

    pub const fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

impl<'a> Iterator for Pairs<'a> {
    type Item = (Key<'a>, &'a [u8]);

    fn next(&mut self) -> Option<(Key<'a>, &'a [u8])> {
        Some((Key::new(self.0.next()?).ok()?, self.0.next()?))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_round_trip() {
        let mut bytes = Vec::new();
        let numbers = [0, 1, 127, 128, 300, u64::from(u32::MAX), u64::MAX];
        let signed = [0, -1, 1, 63, -64, i64::MIN, i64::MAX];
        let mut encoder = Encoder(&mut bytes);
        for number in numbers {
            encoder.count(number).word(number);
        }
        for number in signed {
            encoder.signed(number);
        }
        encoder.bytes(b"").bytes(b"abc").byte(7);
        let mut decoder = Decoder(&bytes);
        for number in numbers {
            assert_eq!(decoder.count(), Ok(number));
            assert_eq!(decoder.word(), Ok(number));
        }
        for number in signed {
            assert_eq!(decoder.signed(), Ok(number));
        }
        assert_eq!(decoder.bytes(), Ok(&b""[..]));
        assert_eq!(decoder.bytes(), Ok(&b"abc"[..]));
        assert_eq!(decoder.end(), Err(Malformed));
        assert_eq!(decoder.byte(), Ok(7));
        assert_eq!(decoder.end(), Ok(()));
    }

    #[test]
    fn short_or_overlong_fields_are_malformed() {
        assert_eq!(Decoder(&[5, 1, 2]).bytes(), Err(Malformed));
        assert_eq!(Decoder(&[0xff; 11]).count(), Err(Malformed));
        assert_eq!(Decoder(&[0x80]).count(), Err(Malformed));
        assert_eq!(Decoder(&[1, 2, 3]).word(), Err(Malformed));
        assert!(Decoder(&[0xff, 0xff, 0xff, 0x7f]).list().is_err());
    }
}
