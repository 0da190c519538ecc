//! Compact encodings of small collections: listpack, ziplist, intset, zipmap.

use std::borrow::Cow;

use super::types::Malformed;

/// Element of a compact encoding. Numbers are given as their digits.
pub(super) type Packed<'a> = Cow<'a, [u8]>;

const END: u8 = 0xff;

/// Rest of the bytes of one encoding.
struct Cut<'a> {
    rest: &'a [u8],
    wrong: Malformed,
}

impl<'a> Cut<'a> {
    fn take(&mut self, length: usize) -> Result<&'a [u8], Malformed> {
        let (taken, rest) = self.rest.split_at_checked(length).ok_or(self.wrong)?;
        self.rest = rest;
        Ok(taken)
    }

    fn byte(&mut self) -> Result<u8, Malformed> {
        self.array().map(|[byte]| byte)
    }

    fn array<const N: usize>(&mut self) -> Result<[u8; N], Malformed> {
        let (taken, rest) = self.rest.split_first_chunk().ok_or(self.wrong)?;
        self.rest = rest;
        Ok(*taken)
    }

    fn u32_le(&mut self) -> Result<usize, Malformed> {
        let length = u32::from_le_bytes(self.array()?);
        usize::try_from(length).map_err(|_| self.wrong)
    }

    /// Reads a signed number of `N` bytes, at most 8, in little-endian order.
    fn int<const N: usize>(&mut self) -> Result<i64, Malformed> {
        let taken: [u8; N] = self.array()?;
        let mut wide = [0; 8];
        wide[8 - N..].copy_from_slice(&taken);
        Ok(i64::from_le_bytes(wide) >> (64 - 8 * N))
    }
}

fn digits<'a>(number: i64) -> Packed<'a> {
    Cow::Owned(number.to_string().into_bytes())
}

/// Elements of a listpack or ziplist.
pub(super) struct Elements<'a> {
    cut: Cut<'a>,
    read: fn(&mut Cut<'a>) -> Result<Option<Packed<'a>>, Malformed>,
}

impl<'a> Elements<'a> {
    pub(super) fn listpack(bytes: &'a [u8]) -> Result<Self, Malformed> {
        let mut cut = Cut { rest: bytes, wrong: Malformed("a listpack makes no sense") };
        let same = cut.u32_le()? == bytes.len();
        cut.take(2)?;
        if same { Ok(Self { cut, read: listpack_element }) } else { Err(cut.wrong) }
    }

    pub(super) fn ziplist(bytes: &'a [u8]) -> Result<Self, Malformed> {
        let mut cut = Cut { rest: bytes, wrong: Malformed("a ziplist makes no sense") };
        let same = cut.u32_le()? == bytes.len();
        cut.take(6)?;
        if same { Ok(Self { cut, read: ziplist_element }) } else { Err(cut.wrong) }
    }

    pub(super) fn zipmap(bytes: &'a [u8]) -> Result<Self, Malformed> {
        let mut cut = Cut { rest: bytes, wrong: Malformed("a zipmap makes no sense") };
        cut.take(1)?;
        Ok(Self { cut, read: zipmap_key })
    }

    /// Returns the next element, or `None` at the end.
    pub(super) fn next(&mut self) -> Result<Option<Packed<'a>>, Malformed> {
        match (self.read)(&mut self.cut)? {
            None if !self.cut.rest.is_empty() => Err(self.cut.wrong),
            element => Ok(element),
        }
    }

    /// Returns the next element, which must be there.
    pub(super) fn need(&mut self) -> Result<Packed<'a>, Malformed> {
        self.next()?.ok_or(self.cut.wrong)
    }

    /// Returns the next element, which must be a number.
    pub(super) fn need_int(&mut self) -> Result<i64, Malformed> {
        let element = self.need()?;
        let number = std::str::from_utf8(&element).ok().and_then(|text| text.parse().ok());
        number.ok_or(self.cut.wrong)
    }

    /// Returns the value after a key of a zipmap.
    pub(super) fn need_zipmap_value(&mut self) -> Result<Packed<'a>, Malformed> {
        let length = self.cut.byte()?;
        let length = zipmap_length(&mut self.cut, length)?;
        let free = self.cut.byte()?;
        let value = self.cut.take(length)?;
        self.cut.take(free.into())?;
        Ok(Cow::Borrowed(value))
    }
}

fn listpack_element<'a>(cut: &mut Cut<'a>) -> Result<Option<Packed<'a>>, Malformed> {
    let before = cut.rest.len();
    let first = cut.byte()?;
    let low = |bits: u8| usize::from(first & ((1 << bits) - 1));
    let element = match first {
        END => return Ok(None),
        0..=0x7f => digits(first.into()),
        0x80..=0xbf => Cow::Borrowed(cut.take(low(6))?),
        0xc0..=0xdf => {
            let number = i64::try_from(low(5) << 8 | usize::from(cut.byte()?));
            let number = number.map_err(|_| cut.wrong)?;
            digits(if number < 1 << 12 { number } else { number - (1 << 13) })
        }
        0xe0..=0xef => {
            let length = low(4) << 8 | usize::from(cut.byte()?);
            Cow::Borrowed(cut.take(length)?)
        }
        0xf0 => {
            let length = cut.u32_le()?;
            Cow::Borrowed(cut.take(length)?)
        }
        0xf1 => digits(cut.int::<2>()?),
        0xf2 => digits(cut.int::<3>()?),
        0xf3 => digits(cut.int::<4>()?),
        0xf4 => digits(cut.int::<8>()?),
        _ => return Err(cut.wrong),
    };
    // The length of the element follows it, for reading backwards.
    cut.take(match before - cut.rest.len() {
        0..=127 => 1,
        128..=16_382 => 2,
        16_383..=2_097_150 => 3,
        2_097_151..=268_435_454 => 4,
        _ => 5,
    })?;
    Ok(Some(element))
}

fn ziplist_element<'a>(cut: &mut Cut<'a>) -> Result<Option<Packed<'a>>, Malformed> {
    match cut.byte()? {
        END => return Ok(None),
        0xfe => _ = cut.take(4)?,
        _ => {}
    }
    let first = cut.byte()?;
    Ok(Some(match first {
        0..=0x3f => Cow::Borrowed(cut.take(first.into())?),
        0x40..=0x7f => {
            let length = usize::from(first & 0x3f) << 8 | usize::from(cut.byte()?);
            Cow::Borrowed(cut.take(length)?)
        }
        0x80 => {
            let length = u32::from_be_bytes(cut.array()?);
            Cow::Borrowed(cut.take(usize::try_from(length).map_err(|_| cut.wrong)?)?)
        }
        0xc0 => digits(cut.int::<2>()?),
        0xd0 => digits(cut.int::<4>()?),
        0xe0 => digits(cut.int::<8>()?),
        0xf0 => digits(cut.int::<3>()?),
        0xfe => digits(cut.int::<1>()?),
        0xf1..=0xfd => digits(i64::from(first & 0x0f) - 1),
        _ => return Err(cut.wrong),
    }))
}

fn zipmap_length(cut: &mut Cut<'_>, first: u8) -> Result<usize, Malformed> {
    match first {
        0..=253 => Ok(first.into()),
        254 => cut.u32_le(),
        END => Err(cut.wrong),
    }
}

fn zipmap_key<'a>(cut: &mut Cut<'a>) -> Result<Option<Packed<'a>>, Malformed> {
    match cut.byte()? {
        END => Ok(None),
        first => {
            let length = zipmap_length(cut, first)?;
            Ok(Some(Cow::Borrowed(cut.take(length)?)))
        }
    }
}

/// Returns the members of an intset, one after another.
pub(super) fn intset(bytes: &[u8]) -> Result<impl Iterator<Item = i64> + use<'_>, Malformed> {
    let mut cut = Cut { rest: bytes, wrong: Malformed("an intset makes no sense") };
    let (width, count) = (cut.u32_le()?, cut.u32_le()?);
    if ![2, 4, 8].contains(&width) || count.checked_mul(width) != Some(cut.rest.len()) {
        return Err(cut.wrong);
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

    fn all(mut elements: Elements<'_>) -> Result<Vec<Vec<u8>>, Malformed> {
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
        assert_eq!(all(Elements::listpack(&bytes).unwrap()), Ok(expected));
        for cut in 0..bytes.len() {
            assert!(Elements::listpack(&bytes[..cut]).is_err(), "{cut}");
        }
    }

    #[test]
    fn a_zipmap_has_free_bytes_after_values() {
        let mut map = Elements::zipmap(b"\x02\x01a\x02\x01bcz\x01d\x00\x00\xff").unwrap();
        assert_eq!(*map.need().unwrap(), b"a"[..]);
        assert_eq!(*map.need_zipmap_value().unwrap(), b"bc"[..]);
        assert_eq!(*map.need().unwrap(), b"d"[..]);
        assert_eq!(*map.need_zipmap_value().unwrap(), b""[..]);
        assert_eq!(map.next(), Ok(None));
    }

    #[test]
    fn an_intset_is_as_long_as_it_says() {
        let bytes = b"\x02\x00\x00\x00\x02\x00\x00\x00\xff\xff\x07\x00";
        assert!(intset(bytes).unwrap().eq([-1, 7]));
        assert!(intset(&bytes[..10]).is_err());
        let long = b"\x08\x00\x00\x00\x01\x00\x00\x00\xfe\xff\xff\xff\xff\xff\xff\xff";
        assert!(intset(long).unwrap().eq([-2]));
        assert!(intset(b"\x00\x00\x00\x00\xff\xff\xff\xff").is_err());
    }
}
