//! Items of an image: a head with the format, and then one entry of the store each, in order.

use quorate::LoadError;

use crate::{auth, mvcc, store::counted};

/// First item: a name and the version of the format.
const HEAD: &[u8] = b"etcd\x03";
/// First item of a version that did not contain the size.
const HEAD_2: &[u8] = b"etcd\x02";
/// Bytes of the length of a key.
const LENGTH_BYTES: usize = 4;

/// The head.
pub(crate) fn encode_head(item: &mut Vec<u8>) {
    item.clear();
    item.extend_from_slice(HEAD);
}

/// An entry. Keys are below 4 GiB: requests are.
pub(crate) fn encode_entry(key: &[u8], value: &[u8], item: &mut Vec<u8>) {
    item.clear();
    let length = u32::try_from(key.len()).unwrap_or(u32::MAX);
    item.extend_from_slice(&length.to_le_bytes());
    item.extend_from_slice(key);
    item.extend_from_slice(value);
}

/// An entry's key and value.
pub type Entry<'i> = (&'i [u8], &'i [u8]);

/// Decodes an item other than the head into its key and value.
fn entry(item: &[u8]) -> Option<Entry<'_>> {
    let (length, rest) = item.split_first_chunk::<LENGTH_BYTES>()?;
    rest.split_at_checked(usize::try_from(u32::from_le_bytes(*length)).ok()?)
}

/// Returns the revision of all keys, if this item contains it.
pub fn revision_of(item: &[u8]) -> Option<i64> {
    let (key, value) = entry(item)?;
    mvcc::bring::revision_of(key, value)
}

/// Returns the replacement of that item in an image whose revision is higher by `by`, with all
/// history before it compacted; `None` if it cannot be so high.
pub fn raised(item: &[u8], by: u64) -> Option<Vec<u8>> {
    let (key, value) = entry(item)?;
    let mut raised = Vec::new();
    encode_entry(key, &mvcc::bring::raised(value, by)?, &mut raised);
    Some(raised)
}

/// Items on arrival; they may be arbitrary bytes.
#[derive(Debug, Default)]
pub struct Items {
    has_head: bool,
    /// The key of the last entry.
    last: Vec<u8>,
}

impl Items {
    /// Returns whether no item has arrived.
    pub fn is_empty(&self) -> bool {
        !self.has_head
    }

    /// The next item; the entry that it is, if it is no head.
    pub fn take<'i>(&mut self, item: &'i [u8]) -> Result<Option<Entry<'i>>, LoadError> {
        if !self.has_head {
            self.has_head = item == HEAD || item == HEAD_2;
            return match self.has_head {
                true => Ok(None),
                false => Err(LoadError::Malformed("it is not an image of this service")),
            };
        }
        let (key, value) = entry(item).ok_or(LoadError::Malformed("an entry is cut off"))?;
        if *key <= *self.last {
            return Err(LoadError::Malformed("entries are out of order"));
        }
        let is_known = mvcc::is_place(key, value)
            || auth::is_place(key, value)
            || counted::is_place(key, value);
        if !is_known {
            return Err(LoadError::Malformed("an entry makes no sense"));
        }
        self.last.clear();
        self.last.extend_from_slice(key);
        Ok(Some((key, value)))
    }

    /// Checks that the image may end here.
    pub fn end(&self) -> Result<(), LoadError> {
        match self.has_head {
            true => Ok(()),
            false => Err(LoadError::Malformed("it has no head")),
        }
    }
}
