//! Items of a state image: a head with the format version, then one item per entry of the store, in
//! order.

use quorate::LoadError;

use crate::{auth, mvcc, store::counted};

/// First item: the name and version of the format.
const HEAD_V1: &[u8] = b"etcd\x03";
/// First item of format version 2, which has no row for the size.
const HEAD_V2: &[u8] = b"etcd\x02";
/// Size of the length field before a key.
const LENGTH_BYTES: usize = 4;

pub(crate) fn encode_head(item: &mut Vec<u8>) {
    item.clear();
    item.extend_from_slice(HEAD_V1);
}

/// Encodes an entry. Keys are shorter than 4 GiB, as requests are.
pub(crate) fn encode_entry(key: &[u8], value: &[u8], item: &mut Vec<u8>) {
    item.clear();
    let length = u32::try_from(key.len()).unwrap_or(u32::MAX);
    item.extend_from_slice(&length.to_le_bytes());
    item.extend_from_slice(key);
    item.extend_from_slice(value);
}

pub type Entry<'i> = (&'i [u8], &'i [u8]);

/// Decodes an item other than the head.
fn decode_entry(item: &[u8]) -> Option<Entry<'_>> {
    let (length, rest) = item.split_first_chunk::<LENGTH_BYTES>()?;
    rest.split_at_checked(usize::try_from(u32::from_le_bytes(*length)).ok()?)
}

/// Returns the revision of the whole state, if this item contains it.
pub fn item_revision(item: &[u8]) -> Option<i64> {
    let (key, value) = decode_entry(item)?;
    mvcc::bring::entry_revision(key, value)
}

/// Returns a replacement for the item with the revision, which is raised by `by`, with all earlier
/// history compacted. Returns `None` if the revision cannot be that high.
pub fn raise_revision(item: &[u8], by: u64) -> Option<Vec<u8>> {
    let (key, value) = decode_entry(item)?;
    let mut raised = Vec::new();
    encode_entry(key, &mvcc::bring::raise_revision(value, by)?, &mut raised);
    Some(raised)
}

/// A validator of received items, which may contain arbitrary bytes.
#[derive(Debug, Default)]
pub struct ItemValidator {
    has_head: bool,
    /// Last key received.
    last_key: Vec<u8>,
}

impl ItemValidator {
    /// Returns whether no item has been received.
    pub fn is_empty(&self) -> bool {
        !self.has_head
    }

    /// Validates the next item. Returns its entry, unless it is the head.
    pub fn validate_item<'i>(&mut self, item: &'i [u8]) -> Result<Option<Entry<'i>>, LoadError> {
        if !self.has_head {
            self.has_head = item == HEAD_V1 || item == HEAD_V2;
            return match self.has_head {
                true => Ok(None),
                false => Err(LoadError::Malformed("it is not an image of this service")),
            };
        }
        let (key, value) = decode_entry(item).ok_or(LoadError::Malformed("an entry is cut off"))?;
        if *key <= *self.last_key {
            return Err(LoadError::Malformed("entries are out of order"));
        }
        let is_known = mvcc::is_valid_entry(key, value)
            || auth::is_valid_entry(key, value)
            || counted::is_size_row(key, value);
        if !is_known {
            return Err(LoadError::Malformed("an entry makes no sense"));
        }
        self.last_key.clear();
        self.last_key.extend_from_slice(key);
        Ok(Some((key, value)))
    }

    /// Checks that the image is complete.
    pub fn check_complete(&self) -> Result<(), LoadError> {
        match self.has_head {
            true => Ok(()),
            false => Err(LoadError::Malformed("it has no head")),
        }
    }
}
