//! Encoding of a snapshot's stream: items, each preceded by its kind and its length.
//!
//! | bytes | what |
//! |---|---|
//! | 1 | kind: 1 header, 2 metadata, 3 item of the service |
//! | 4 | length |
//! | length | content |
//!
//! The header comes first, then the metadata in the order of their keys, then the service's items.

use crate::ports::service::MetaChange;

const KIND_HEADER: u8 = 1;
const KIND_META: u8 = 2;
const KIND_SERVICE: u8 = 3;

/// Length in bytes of the head that precedes an item's content.
const ITEM_HEAD_BYTES: usize = 5;
/// Maximum length of an item in bytes, for the largest value with its key and attributes.
const ITEM_BYTES_MAX: usize = 64 << 20;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Item<'a> {
    /// Header of the snapshot (see `header.rs`).
    Header(&'a [u8]),
    /// Key and value of the replica's metadata.
    Meta(&'a [u8], &'a [u8]),
    /// An item of the service.
    Service(&'a [u8]),
}

/// Error returned if bytes are not a valid snapshot stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Malformed(pub(crate) &'static str);

fn put_item(kind: u8, parts: &[&[u8]], out: &mut Vec<u8>) {
    let length: usize = parts.iter().map(|part| part.len()).sum();
    out.push(kind);
    let length = u32::try_from(length).expect("items are bounded");
    out.extend_from_slice(&length.to_le_bytes());
    for part in parts {
        out.extend_from_slice(part);
    }
}

impl Item<'_> {
    pub(crate) fn encode(&self, out: &mut Vec<u8>) {
        match self {
            Self::Header(bytes) => put_item(KIND_HEADER, &[bytes], out),
            Self::Meta(key, value) => {
                let length = u32::try_from(key.len()).expect("keys are short");
                put_item(KIND_META, &[&length.to_le_bytes(), key, value], out);
            }
            Self::Service(bytes) => put_item(KIND_SERVICE, &[bytes], out),
        }
    }
}

impl<'a> Item<'a> {
    fn decode(kind: u8, content: &'a [u8]) -> Result<Self, Malformed> {
        match kind {
            KIND_HEADER => Ok(Self::Header(content)),
            KIND_META => {
                let cut = || {
                    let (length, rest) = content.split_first_chunk()?;
                    let length = usize::try_from(u32::from_le_bytes(*length)).ok()?;
                    rest.split_at_checked(length)
                };
                let (key, value) = cut().ok_or(Malformed("a key is longer than its item"))?;
                Ok(Self::Meta(key, value))
            }
            KIND_SERVICE => Ok(Self::Service(content)),
            _ => Err(Malformed("an item of an unknown kind")),
        }
    }
}

/// Incremental decoder that accepts the stream in pieces of any length.
#[derive(Debug, Default)]
pub(crate) struct ItemDecoder {
    /// Bytes of the item that is still incomplete.
    partial_item: Vec<u8>,
}

impl ItemDecoder {
    /// Decodes the next bytes of the stream. Passes each item that they complete to `each`.
    pub(crate) fn feed<E: From<Malformed>>(
        &mut self,
        mut bytes: &[u8],
        mut each: impl FnMut(Item<'_>) -> Result<(), E>,
    ) -> Result<(), E> {
        while !bytes.is_empty() {
            if self.partial_item.is_empty()
                && let Some((kind, content, behind)) = split_item(bytes)?
            {
                each(Item::decode(kind, content)?)?;
                bytes = behind;
                continue;
            }
            let need = first_item_bytes(&self.partial_item)?;
            let taken = bytes.len().min(need - self.partial_item.len());
            let (now, behind) = bytes.split_at(taken);
            self.partial_item.extend_from_slice(now);
            bytes = behind;
            if let Some((kind, content, _)) = split_item(&self.partial_item)? {
                each(Item::decode(kind, content)?)?;
                self.partial_item.clear();
            }
        }
        Ok(())
    }

    /// Returns whether the stream may end here, with no item incomplete.
    pub(crate) fn is_between_items(&self) -> bool {
        self.partial_item.is_empty()
    }
}

/// Kind and content of an item, and the bytes that follow it.
type Split<'a> = (u8, &'a [u8], &'a [u8]);

fn split_item(bytes: &[u8]) -> Result<Option<Split<'_>>, Malformed> {
    let need = first_item_bytes(bytes)?;
    if bytes.len() < ITEM_HEAD_BYTES.max(need) {
        return Ok(None);
    }
    let (item, behind) = bytes.split_at(need);
    Ok(Some((item[0], &item[ITEM_HEAD_BYTES..], behind)))
}

/// Returns the encoded length of the first item, or that of a head if the head is incomplete.
fn first_item_bytes(bytes: &[u8]) -> Result<usize, Malformed> {
    let Some((_, length)) = bytes.get(..ITEM_HEAD_BYTES).and_then(|head| head.split_first()) else {
        return Ok(ITEM_HEAD_BYTES);
    };
    let length = length.try_into().map_or(0, u32::from_le_bytes);
    match usize::try_from(length) {
        Ok(length) if length <= ITEM_BYTES_MAX => Ok(ITEM_HEAD_BYTES + length),
        _ => Err(Malformed("an item is longer than any honest one")),
    }
}

pub(crate) fn meta_change(key: &[u8], value: &[u8]) -> MetaChange {
    MetaChange { key: key.to_vec(), value: Some(value.to_vec()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn items_are_decoded_for_any_split_of_the_stream() {
        let large = vec![7; 1000];
        let items = [
            Item::Header(b"header"),
            Item::Meta(b"key", b""),
            Item::Meta(b"", b"value"),
            Item::Service(b""),
            Item::Service(&large),
            Item::Service(b"x"),
        ];
        let mut stream = Vec::new();
        items.iter().for_each(|item| item.encode(&mut stream));
        for piece in [1, 2, 3, 5, 7, 64, 999, stream.len()] {
            let (mut reader, mut count) = (ItemDecoder::default(), 0);
            for bytes in stream.chunks(piece) {
                let fed: Result<(), Malformed> = reader.feed(bytes, |item| {
                    assert_eq!(item, items[count]);
                    count += 1;
                    Ok(())
                });
                fed.unwrap();
            }
            assert_eq!((count, reader.is_between_items()), (items.len(), true));
        }
    }

    #[test]
    fn truncated_stream_is_detected_and_invalid_one_refused() {
        let mut stream = Vec::new();
        Item::Service(b"abc").encode(&mut stream);
        let mut items = ItemDecoder::default();
        let none = |_: Item<'_>| -> Result<(), Malformed> { panic!("no item is whole") };
        items.feed(&stream[..7], none).unwrap();
        assert!(!items.is_between_items());
        for bytes in [
            &[9, 0, 0, 0, 0][..],
            &[KIND_SERVICE, 0, 0, 0, 255],
            &[KIND_META, 2, 0, 0, 0, 1, 1],
            &[KIND_META, 5, 0, 0, 0, 2, 0, 0, 0, 1],
        ] {
            let refused: Result<(), Malformed> = ItemDecoder::default().feed(bytes, |_| Ok(()));
            assert!(refused.is_err(), "{bytes:?}");
        }
    }
}
