//! Compact encodings of small collections: listpack, ziplist, intset, zipmap.

use std::borrow::Cow;

use super::types::Malformed;

/// Element of a compact encoding. Numbers are given as their digits.
pub(super) type PackedElement<'a> = Cow<'a, [u8]>;

const END_MARK: u8 = 0xff;

/// Rest of the bytes of one encoding.
struct ByteReader<'a> {
    rest: &'a [u8],
    error: Malformed,
}

impl<'a> ByteReader<'a> {
    fn take_bytes(&mut self, length: usize) -> Result<&'a [u8], Malformed> {
        let (taken, rest) = self.rest.split_at_checked(length).ok_or(self.error)?;
        self.rest = rest;
        Ok(taken)
    }

    fn read_byte(&mut self) -> Result<u8, Malformed> {
        self.read_array().map(|[byte]| byte)
    }

    fn read_array<const N: usize>(&mut self) -> Result<[u8; N], Malformed> {
        let (taken, rest) = self.rest.split_first_chunk().ok_or(self.error)?;
        self.rest = rest;
        Ok(*taken)
    }

    fn read_u32(&mut self) -> Result<usize, Malformed> {
        let length = u32::from_le_bytes(self.read_array()?);
        usize::try_from(length).map_err(|_| self.error)
    }

    /// Reads a signed number of `N` bytes, at most 8, in little-endian order.
    fn read_int<const N: usize>(&mut self) -> Result<i64, Malformed> {
        let taken: [u8; N] = self.read_array()?;
        let mut wide = [0; 8];
        wide[8 - N..].copy_from_slice(&taken);
        Ok(i64::from_le_bytes(wide) >> (64 - 8 * N))
    }
}

fn to_digits<'a>(number: i64) -> PackedElement<'a> {
    Cow::Owned(number.to_string().into_bytes())
}

/// Elements of a listpack or ziplist.
pub(super) struct PackedElements<'a> {
    reader: ByteReader<'a>,
    read_element: fn(&mut ByteReader<'a>) -> Result<Option<PackedElement<'a>>, Malformed>,
}

impl<'a> PackedElements<'a> {
    pub(super) fn listpack(bytes: &'a [u8]) -> Result<Self, Malformed> {
        let mut cut = ByteReader { rest: bytes, error: Malformed("a listpack makes no sense") };
        let same = cut.read_u32()? == bytes.len();
        cut.take_bytes(2)?;
        if same {
            Ok(Self { reader: cut, read_element: read_listpack_element })
        } else {
            Err(cut.error)
        }
    }

    pub(super) fn ziplist(bytes: &'a [u8]) -> Result<Self, Malformed> {
        let mut cut = ByteReader { rest: bytes, error: Malformed("a ziplist makes no sense") };
        let same = cut.read_u32()? == bytes.len();
        cut.take_bytes(6)?;
        if same {
            Ok(Self { reader: cut, read_element: read_ziplist_element })
        } else {
            Err(cut.error)
        }
    }

    pub(super) fn zipmap(bytes: &'a [u8]) -> Result<Self, Malformed> {
        let mut cut = ByteReader { rest: bytes, error: Malformed("a zipmap makes no sense") };
        cut.take_bytes(1)?;
        Ok(Self { reader: cut, read_element: read_zipmap_key })
    }

    /// Returns the next element, or `None` at the end.
    pub(super) fn next(&mut self) -> Result<Option<PackedElement<'a>>, Malformed> {
        match (self.read_element)(&mut self.reader)? {
            None if !self.reader.rest.is_empty() => Err(self.reader.error),
            element => Ok(element),
        }
    }

    /// Returns the next element, which must be there.
    pub(super) fn next_required(&mut self) -> Result<PackedElement<'a>, Malformed> {
        self.next()?.ok_or(self.reader.error)
    }

    /// Returns the next element, which must be a number.
    pub(super) fn next_int(&mut self) -> Result<i64, Malformed> {
        let element = self.next_required()?;
        let number = std::str::from_utf8(&element).ok().and_then(|text| text.parse().ok());
        number.ok_or(self.reader.error)
    }

    /// Returns the value after a key of a zipmap.
    pub(super) fn next_zipmap_value(&mut self) -> Result<PackedElement<'a>, Malformed> {
        let length = self.reader.read_byte()?;
        let length = read_zipmap_length(&mut self.reader, length)?;
        let free = self.reader.read_byte()?;
        let value = self.reader.take_bytes(length)?;
        self.reader.take_bytes(free.into())?;
        Ok(Cow::Borrowed(value))
    }
}

fn read_listpack_element<'a>(
    cut: &mut ByteReader<'a>,
) -> Result<Option<PackedElement<'a>>, Malformed> {
    let before = cut.rest.len();
    let first = cut.read_byte()?;
    let low = |bits: u8| usize::from(first & ((1 << bits) - 1));
    let element = match first {
        END_MARK => return Ok(None),
        0..=0x7f => to_digits(first.into()),
        0x80..=0xbf => Cow::Borrowed(cut.take_bytes(low(6))?),
        0xc0..=0xdf => {
            let number = i64::try_from(low(5) << 8 | usize::from(cut.read_byte()?));
            let number = number.map_err(|_| cut.error)?;
            to_digits(if number < 1 << 12 { number } else { number - (1 << 13) })
        }
        0xe0..=0xef => {
            let length = low(4) << 8 | usize::from(cut.read_byte()?);
            Cow::Borrowed(cut.take_bytes(length)?)
        }
        0xf0 => {
            let length = cut.read_u32()?;
            Cow::Borrowed(cut.take_bytes(length)?)
        }
        0xf1 => to_digits(cut.read_int::<2>()?),
        0xf2 => to_digits(cut.read_int::<3>()?),
        0xf3 => to_digits(cut.read_int::<4>()?),
        0xf4 => to_digits(cut.read_int::<8>()?),
        _ => return Err(cut.error),
    };
    // The length of the element follows it, for reading backwards.
    cut.take_bytes(match before - cut.rest.len() {
        0..=127 => 1,
        128..=16_382 => 2,
        16_383..=2_097_150 => 3,
        2_097_151..=268_435_454 => 4,
        _ => 5,
    })?;
    Ok(Some(element))
}

fn read_ziplist_element<'a>(
    cut: &mut ByteReader<'a>,
) -> Result<Option<PackedElement<'a>>, Malformed> {
    match cut.read_byte()? {
        END_MARK => return Ok(None),
        0xfe => _ = cut.take_bytes(4)?,
        _ => {}
    }
    let first = cut.read_byte()?;
    Ok(Some(match first {
        0..=0x3f => Cow::Borrowed(cut.take_bytes(first.into())?),
        0x40..=0x7f => {
            let length = usize::from(first & 0x3f) << 8 | usize::from(cut.read_byte()?);
            Cow::Borrowed(cut.take_bytes(length)?)
        }
        0x80 => {
            let length = u32::from_be_bytes(cut.read_array()?);
            Cow::Borrowed(cut.take_bytes(usize::try_from(length).map_err(|_| cut.error)?)?)
        }
        0xc0 => to_digits(cut.read_int::<2>()?),
        0xd0 => to_digits(cut.read_int::<4>()?),
        0xe0 => to_digits(cut.read_int::<8>()?),
        0xf0 => to_digits(cut.read_int::<3>()?),
        0xfe => to_digits(cut.read_int::<1>()?),
        0xf1..=0xfd => to_digits(i64::from(first & 0x0f) - 1),
        _ => return Err(cut.error),
    }))
}

fn read_zipmap_length(cut: &mut ByteReader<'_>, first: u8) -> Result<usize, Malformed> {
    match first {
        0..=253 => Ok(first.into()),
        254 => cut.read_u32(),
        END_MARK => Err(cut.error),
    }
}

fn read_zipmap_key<'a>(cut: &mut ByteReader<'a>) -> Result<Option<PackedElement<'a>>, Malformed> {
    match cut.read_byte()? {
        END_MARK => Ok(None),
        first => {
            let length = read_zipmap_length(cut, first)?;
            Ok(Some(Cow::Borrowed(cut.take_bytes(length)?)))
        }
    }
}

/// Returns the members of an intset, one after another.
pub(super) fn intset_members(
    bytes: &[u8],
) -> Result<impl Iterator<Item = i64> + use<'_>, Malformed> {
    let mut cut = ByteReader { rest: bytes, error: Malformed("an intset makes no sense") };
    let (width, count) = (cut.read_u32()?, cut.read_u32()?);
    if ![2, 4, 8].contains(&width) || count.checked_mul(width) != Some(cut.rest.len()) {
        return Err(cut.error);
    }
    let member = move |bytes: &[u8]| {
        let mut wide = [0; 8];
        wide[8 - width..].copy_from_slice(bytes);
        i64::from_le_bytes(wide) >> (64 - 8 * width)
    };
    Ok(cut.rest.chunks_exact(width).map(member))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn all(mut elements: PackedElements<'_>) -> Result<Vec<Vec<u8>>, Malformed> {
        let mut all = Vec::new();
        while let Some(element) = elements.next()? {
            all.push(element.into_owned());
        }
        Ok(all)
    }

    /// Bytes by hand, after the comments of `listpack.c`.
    #[test]
    fn a_listpack_has_numbers_of_every_width() {
        let body = b"\x05\x01\x81a\x02\xdf\xff\x02\xc0\xff\x02\xf1\x00\x80\x03\xf2\xff\xff\xff\x04\
                     \xf3\x00\x00\x00\x80\x05\xf4\xff\xff\xff\xff\xff\xff\xff\x7f\x09\xff";
        let mut bytes = (u32::try_from(body.len() + 6).unwrap()).to_le_bytes().to_vec();
        bytes.extend_from_slice(b"\x08\x00");
        bytes.extend_from_slice(body);
        let expected =
            ["5", "a", "-1", "255", "-32768", "-1", "-2147483648", "9223372036854775807"];
        let expected: Vec<Vec<u8>> = expected.iter().map(|text| text.as_bytes().to_vec()).collect();
        assert_eq!(all(PackedElements::listpack(&bytes).unwrap()), Ok(expected));
        for cut in 0..bytes.len() {
            assert!(PackedElements::listpack(&bytes[..cut]).is_err(), "{cut}");
        }
    }

    #[test]
    fn a_zipmap_has_free_bytes_after_values() {
        let mut map = PackedElements::zipmap(b"\x02\x01a\x02\x01bcz\x01d\x00\x00\xff").unwrap();
        assert_eq!(*map.next_required().unwrap(), b"a"[..]);
        assert_eq!(*map.next_zipmap_value().unwrap(), b"bc"[..]);
        assert_eq!(*map.next_required().unwrap(), b"d"[..]);
        assert_eq!(*map.next_zipmap_value().unwrap(), b""[..]);
        assert_eq!(map.next(), Ok(None));
    }

    #[test]
    fn an_intset_is_as_long_as_it_says() {
        let bytes = b"\x02\x00\x00\x00\x02\x00\x00\x00\xff\xff\x07\x00";
        assert!(intset_members(bytes).unwrap().eq([-1, 7]));
        assert!(intset_members(&bytes[..10]).is_err());
        let long = b"\x08\x00\x00\x00\x01\x00\x00\x00\xfe\xff\xff\xff\xff\xff\xff\xff";
        assert!(intset_members(long).unwrap().eq([-2]));
        assert!(intset_members(b"\x00\x00\x00\x00\xff\xff\xff\xff").is_err());
    }
}
