//! Encodes and decodes numbers and names: big-endian, with each text preceded by its length.

use quorate_core::{node_id::NodeId, value::StreamName};

use crate::name::Name;

/// Decoder that reads fields from the front of a byte slice and checks every length.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Fields<'a>(pub(crate) &'a [u8]);

impl<'a> Fields<'a> {
    fn take_bytes<const N: usize>(&mut self) -> Option<[u8; N]> {
        let (head, rest) = self.0.split_first_chunk()?;
        self.0 = rest;
        Some(*head)
    }

    pub(crate) fn u8(&mut self) -> Option<u8> {
        self.take_bytes().map(|[byte]: [u8; 1]| byte)
    }

    pub(crate) fn u32(&mut self) -> Option<u32> {
        self.take_bytes().map(u32::from_be_bytes)
    }

    pub(crate) fn u64(&mut self) -> Option<u64> {
        self.take_bytes().map(u64::from_be_bytes)
    }

    pub(crate) fn u128(&mut self) -> Option<u128> {
        self.take_bytes().map(u128::from_be_bytes)
    }

    pub(crate) fn name(&mut self) -> Option<Name> {
        let length = usize::from(self.u8()?);
        let (text, rest): (&'a [u8], _) = self.0.split_at_checked(length)?;
        self.0 = rest;
        std::str::from_utf8(text).ok()?.parse().ok()
    }

    pub(crate) fn stream(&mut self) -> Option<StreamName> {
        Some(StreamName { owner: NodeId(self.u32()?), boot: self.u32()?, number: self.u32()? })
    }

    /// Returns `value` if no bytes are left over. The last step of decoding.
    pub(crate) fn finish<T>(self, value: T) -> Option<T> {
        self.0.is_empty().then_some(value)
    }
}

pub(crate) fn put_name(name: &Name, out: &mut Vec<u8>) {
    let text = name.as_str().as_bytes();
    out.push(u8::try_from(text.len()).expect("a name has at most NAME_BYTES_MAX bytes"));
    out.extend_from_slice(text);
}

pub(crate) fn put_stream(stream: StreamName, out: &mut Vec<u8>) {
    for word in [stream.owner.0, stream.boot, stream.number] {
        out.extend_from_slice(&word.to_be_bytes());
    }
}

pub(crate) fn put64(number: u64, out: &mut Vec<u8>) {
    out.extend_from_slice(&number.to_be_bytes());
}
