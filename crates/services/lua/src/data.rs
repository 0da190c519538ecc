//! Replies of commands and scripts, and their encoding inside the machine: a tag followed by the
//! contents, with numbers in little-endian order (`machine/values.c`).

use crate::{REPLY_DEPTH_MAX, number};

/// Reply, independent of the protocol version.
#[derive(Clone, Debug, PartialEq)]
#[expect(missing_docs, reason = "named after the types of RESP3")]
pub enum Data {
    Null,
    Boolean(bool),
    Integer(i64),
    /// Kept as text, so that it stays as the command wrote it.
    Double(Vec<u8>),
    Bulk(Vec<u8>),
    Status(Vec<u8>),
    Error(Vec<u8>),
    Verbatim(Vec<u8>),
    BigNumber(Vec<u8>),
    Array(Vec<Self>),
    Set(Vec<Self>),
    Map(Vec<(Self, Self)>),
    /// List of pairs: a flat array in RESP2, an array of pairs in RESP3.
    Pairs(Vec<(Self, Self)>),
    /// Pairs: an array of pairs in RESP2, a map in RESP3.
    NestedMap(Vec<(Self, Self)>),
}

/// Upper bound of the memory of an element, in the machine and here.
const ELEMENT_BYTES: usize = 32;
/// Maximum size of a script's reply, in which each element counts [`ELEMENT_BYTES`] plus its bytes.
const OUTPUT_BYTES_MAX: usize = 32 << 20;

/// Returns an upper bound of a reply's size in the machine; `None` if nested too deeply.
pub(crate) fn size_bound(data: &Data, depth: usize) -> Option<usize> {
    let pairs = |list: &[(Data, Data)], depth| {
        list.iter().try_fold(0, |sum, (one, other)| {
            Some(sum + ELEMENT_BYTES + size_bound(one, depth)? + size_bound(other, depth)?)
        })
    };
    let inner = match data {
        Data::Null | Data::Boolean(_) | Data::Integer(_) => 0,
        Data::Double(bytes)
        | Data::Bulk(bytes)
        | Data::Status(bytes)
        | Data::Error(bytes)
        | Data::Verbatim(bytes)
        | Data::BigNumber(bytes) => bytes.len(),
        _ if depth >= REPLY_DEPTH_MAX => return None,
        Data::Array(items) | Data::Set(items) => {
            items.iter().try_fold(0, |sum, item| Some(sum + size_bound(item, depth + 1)?))?
        }
        Data::Map(list) => pairs(list, depth + 1)?,
        Data::Pairs(list) | Data::NestedMap(list) => pairs(list, depth + 2)?,
    };
    Some(ELEMENT_BYTES + inner)
}

fn encode_count(number: usize, out: &mut Vec<u8>) {
    // A reply has less than 2^32 bytes, since its size has been charged.
    out.extend(u32::try_from(number).unwrap_or(u32::MAX).to_le_bytes());
}

fn text(tag: u8, bytes: &[u8], out: &mut Vec<u8>) {
    out.push(tag);
    encode_count(bytes.len(), out);
    out.extend(bytes);
}

fn encode_double(tag: u8, number: f64, out: &mut Vec<u8>) {
    let number = if number.is_nan() { f64::from_bits(0x7ff8 << 48) } else { number };
    out.push(tag);
    out.extend(number.to_le_bytes());
}

fn encode_list<'a>(
    tag: u8,
    items: impl ExactSizeIterator<Item = &'a Data>,
    version: u32,
    out: &mut Vec<u8>,
) {
    out.push(tag);
    encode_count(items.len(), out);
    for item in items {
        encode_reply(item, version, out);
    }
}

fn encode_pairs(tag: u8, each: usize, list: &[(Data, Data)], version: u32, out: &mut Vec<u8>) {
    out.push(tag);
    encode_count(list.len() * each, out);
    for (one, other) in list {
        encode_reply(one, version, out);
        encode_reply(other, version, out);
    }
}

fn encode_nested_pairs(list_of_pairs: &[(Data, Data)], version: u32, out: &mut Vec<u8>) {
    out.push(b'*');
    encode_count(list_of_pairs.len(), out);
    for (one, other) in list_of_pairs {
        encode_list(b'*', [one, other].into_iter(), version, out);
    }
}

/// Encodes a command's reply for a script, with Redis' conversions for protocol version `version`.
pub(crate) fn encode_reply(data: &Data, version: u32, out: &mut Vec<u8>) {
    match data {
        Data::Null => out.push(if version == 3 { b'n' } else { b'f' }),
        Data::Boolean(value) if version == 3 => out.push(if *value { b't' } else { b'f' }),
        Data::Boolean(value) => encode_double(b':', f64::from(u8::from(*value)), out),
        #[expect(clippy::cast_precision_loss, reason = "Lua has no other numbers")]
        Data::Integer(value) => encode_double(b':', *value as f64, out),
        Data::Double(bytes) if version == 3 => {
            let number = str::from_utf8(bytes).ok().and_then(|text| text.parse().ok());
            encode_double(b',', number.unwrap_or(f64::NAN), out);
        }
        Data::Verbatim(bytes) if version == 3 => text(b'=', bytes, out),
        Data::BigNumber(bytes) if version == 3 => text(b'(', bytes, out),
        Data::Bulk(bytes)
        | Data::Double(bytes)
        | Data::Verbatim(bytes)
        | Data::BigNumber(bytes) => text(b'$', bytes, out),
        Data::Status(bytes) => text(b'+', bytes, out),
        Data::Error(bytes) => text(b'-', bytes, out),
        Data::Set(items) if version == 3 => encode_list(b'~', items.iter(), version, out),
        Data::Array(items) | Data::Set(items) => encode_list(b'*', items.iter(), version, out),
        Data::Map(items) | Data::NestedMap(items) if version == 3 => {
            encode_pairs(b'%', 1, items, version, out);
        }
        Data::Pairs(items) if version == 3 => encode_nested_pairs(items, version, out),
        Data::NestedMap(items) => encode_nested_pairs(items, version, out),
        Data::Map(items) | Data::Pairs(items) => encode_pairs(b'*', 2, items, version, out),
    }
}

/// Reader of the machine's output, which is untrusted.
pub(crate) struct OutputReader<'a> {
    bytes: &'a [u8],
    /// Version of RESP that the script selected.
    resp_version: u32,
    /// Remaining size allowed for the reply.
    bytes_left: usize,
}

impl<'a> OutputReader<'a> {
    pub(crate) const fn new(bytes: &'a [u8], version: u32) -> Self {
        Self { bytes, resp_version: version, bytes_left: OUTPUT_BYTES_MAX }
    }

    pub(crate) const fn is_empty(&self) -> bool {
        self.bytes.is_empty()
    }

    fn take_bytes(&mut self, length: usize) -> Option<&'a [u8]> {
        let (taken, rest) = self.bytes.split_at_checked(length)?;
        self.bytes = rest;
        Some(taken)
    }

    fn take_number<const N: usize>(&mut self) -> Option<[u8; N]> {
        self.take_bytes(N)?.try_into().ok()
    }

    /// Returns the next byte string.
    pub(crate) fn text(&mut self) -> Option<&'a [u8]> {
        let length = u32::from_le_bytes(self.take_number()?);
        self.take_bytes(usize::try_from(length).ok()?)
    }

    fn read_items<T>(&mut self, mut item: impl FnMut(&mut Self) -> Option<T>) -> Option<Vec<T>> {
        let count = u32::from_le_bytes(self.take_number()?);
        (0..count).map(|_| item(self)).collect()
    }

    /// Returns the next value, or `None` if the bytes are malformed or exceed a limit.
    pub(crate) fn value(&mut self, depth: usize) -> Option<Data> {
        self.bytes_left = self.bytes_left.checked_sub(ELEMENT_BYTES)?;
        let tag = self.take_number::<1>()?;
        if matches!(&tag, b"*" | b"~" | b"%") && depth >= REPLY_DEPTH_MAX {
            return None;
        }
        Some(match &tag {
            b"t" if self.resp_version == 3 => Data::Boolean(true),
            b"f" if self.resp_version == 3 => Data::Boolean(false),
            b"t" => Data::Integer(1),
            b"n" | b"f" => Data::Null,
            b":" => Data::Integer(i64::from_le_bytes(self.take_number()?)),
            b"," => {
                Data::Double(number::text(f64::from_le_bytes(self.take_number()?)).into_bytes())
            }
            b"$" => Data::Bulk(self.text()?.to_vec()),
            b"+" => Data::Status(self.text()?.to_vec()),
            b"-" => Data::Error(self.text()?.to_vec()),
            b"=" => Data::Verbatim(self.text()?.to_vec()),
            b"(" => Data::BigNumber(self.text()?.to_vec()),
            b"*" => Data::Array(self.read_items(|this| this.value(depth + 1))?),
            b"~" => Data::Set(self.read_items(|this| this.value(depth + 1))?),
            b"%" => Data::Map(
                self.read_items(|this| Some((this.value(depth + 1)?, this.value(depth + 1)?)))?,
            ),
            _ => return None,
        })
    }
}
