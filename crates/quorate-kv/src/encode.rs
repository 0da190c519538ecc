//! Bytes of a replicated command: how its fields are written into the log, how they are read back.
//!
//! Lengths and counts are LEB128, deadlines and slots eight bytes little-endian. These bytes live
//! as long as the log does: a layout never changes under the same operation number.

/// The bytes are not a command. Deterministic: every node says so of the same bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Malformed;

/// Appends fields to a buffer.
#[derive(Debug)]
pub struct Encoder<'a>(pub &'a mut Vec<u8>);

impl Encoder<'_> {
    /// One byte.
    pub fn byte(&mut self, value: u8) -> &mut Self {
        self.0.push(value);
        self
    }

    /// A small unsigned number.
    pub fn count(&mut self, mut value: u64) -> &mut Self {
        while value >= 0x80 {
            self.0.push(value.to_le_bytes()[0] | 0x80);
            value >>= 7;
        }
        self.0.push(value.to_le_bytes()[0]);
        self
    }

    /// A length or number of items.
    pub fn length(&mut self, value: usize) -> &mut Self {
        self.count(value as u64)
    }

    /// A signed number of which most are small: zigzag.
    pub fn signed(&mut self, value: i64) -> &mut Self {
        self.count((value.cast_unsigned() << 1) ^ (value >> 63).cast_unsigned())
    }

    /// Eight bytes.
    pub fn word(&mut self, value: u64) -> &mut Self {
        self.0.extend_from_slice(&value.to_le_bytes());
        self
    }

    /// A string of bytes with its length before it.
    pub fn bytes(&mut self, value: &[u8]) -> &mut Self {
        self.length(value.len());
        self.0.extend_from_slice(value);
        self
    }
}

/// Takes fields from the front of a slice.
#[derive(Clone, Copy, Debug)]
pub struct Decoder<'a>(pub &'a [u8]);

impl<'a> Decoder<'a> {
    /// One byte.
    pub fn byte(&mut self) -> Result<u8, Malformed> {
        let (&first, rest) = self.0.split_first().ok_or(Malformed)?;
        self.0 = rest;
        Ok(first)
    }

    /// A small unsigned number.
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

    /// A length or number of items.
    pub fn length(&mut self) -> Result<usize, Malformed> {
        usize::try_from(self.count()?).map_err(|_| Malformed)
    }

    /// A signed number.
    pub fn signed(&mut self) -> Result<i64, Malformed> {
        let value = self.count()?;
        Ok((value >> 1).cast_signed() ^ -(value & 1).cast_signed())
    }

    /// Eight bytes.
    pub fn word(&mut self) -> Result<u64, Malformed> {
        let (head, rest) = self.0.split_first_chunk().ok_or(Malformed)?;
        self.0 = rest;
        Ok(u64::from_le_bytes(*head))
    }

    /// A string of bytes with its length before it.
    pub fn bytes(&mut self) -> Result<&'a [u8], Malformed> {
        let length = self.length()?;
        let (head, rest) = self.0.split_at_checked(length).ok_or(Malformed)?;
        self.0 = rest;
        Ok(head)
    }

    /// Nothing may follow.
    pub fn end(&self) -> Result<(), Malformed> {
        if self.0.is_empty() {
            Ok(())
        } else {
            Err(Malformed)
        }
    }

    /// A counted list, checked as a whole and then walked without a second thought.
    pub fn list(&mut self) -> Result<List<'a>, Malformed> {
        let count = self.length()?;
        let start = self.0;
        for _ in 0..count {
            self.bytes()?;
        }
        Ok(List {
            count,
            bytes: Decoder(&start[..start.len() - self.0.len()]),
        })
    }
}

/// Strings of bytes, one after the other.
#[derive(Clone, Copy, Debug)]
pub struct List<'a> {
    count: usize,
    bytes: Decoder<'a>,
}

impl<'a> List<'a> {
    /// How many.
    pub const fn len(&self) -> usize {
        self.count
    }

    /// Whether there are none.
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_come_back_as_they_were_written() {
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
