//! An image of a store: where it is in the order of the store, and the items that it consists of.
//!
//! `docs/spec/snapshot.md`, "Items of the key-value service", has the encoding.

use std::borrow::Cow;

use quorate_core::slot::Slot;
use quorate_replica::service::{Imaged, LoadError};

use super::{Bytes, Entry, Position, Version, merge::Merge, table::Table};
use crate::{
    encode::{Decoder, Encoder, Fault, Malformed},
    key::{KEY_BYTES_MAX, Key},
};

/// Version of the items.
const FORMAT: u8 = 1;
/// What an item costs besides its bytes, about; so that small ones do not make a turn long.
const ITEM_BYTES: usize = 32;
/// A longer value fits no store.
const VALUE_BYTES_MAX: usize = u32::MAX as usize;

/// First bytes of items.
mod kind {
    pub(super) const HEAD: u8 = 0;
    pub(super) const KEY: u8 = 1;
    pub(super) const KEY_WITH_DEADLINE: u8 = 2;
}

/// A place in the order of stores.
pub(super) type Place<'a> = (Position, Cow<'a, [u8]>);

/// What a layer of a store has from `from` on; `None` stands for a key that was removed.
pub(super) fn records(
    layer: &Table,
    from: Position,
) -> impl Iterator<Item = (Place<'_>, Option<Entry<'_>>)> {
    layer.from(from).map(|(position, record)| {
        let place = (position, Cow::Borrowed(record.key()));
        (place, (!record.is_absent()).then(|| record.entry()))
    })
}

/// How far an image is.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Cursor {
    position: Position,
    /// The last key at it that was passed; `None`: none was.
    key: Option<Box<[u8]>>,
}

impl Cursor {
    /// Nothing before it is left.
    pub(super) const fn position(&self) -> Position {
        self.position
    }

    /// Whether the image is behind this place already.
    pub(super) fn has_passed(&self, position: Position, key: &[u8]) -> bool {
        position < self.position
            || (position == self.position && self.key.as_deref().is_some_and(|last| key <= last))
    }

    /// Passes what is at and behind the cursor to `each`, about `bytes` of it.
    pub(super) fn go_on(
        &mut self,
        from_here: Merge<'_, Place<'_>, Option<Entry<'_>>>,
        bytes: usize,
        each: &mut dyn FnMut(&[u8], &Entry<'_>),
    ) -> Imaged {
        let (mut cost, mut given) = (0_usize, false);
        for ((position, key), entry) in from_here {
            if self.has_passed(position, &key) {
                continue;
            }
            cost = cost.saturating_add(ITEM_BYTES);
            if let Some(entry) = entry {
                each(&key, &entry);
                given = true;
                cost = cost.saturating_add(key.len() + entry.value.len());
            }
            if given && cost >= bytes {
                (self.position, self.key) = (position, Some(key.into()));
                return Imaged::More;
            }
        }
        Imaged::End
    }
}

/// Writes the first item of an image.
pub fn encode_head(keys: u64, item: &mut Vec<u8>) {
    item.clear();
    Encoder(item).byte(kind::HEAD).byte(FORMAT).count(keys);
}

/// Writes the item of a key.
pub fn encode_key(key: &[u8], entry: &Entry<'_>, item: &mut Vec<u8>) {
    item.clear();
    let Version { slot, index } = entry.version;
    let mut to = Encoder(item);
    match entry.deadline {
        None => to.byte(kind::KEY),
        Some(deadline) => to.byte(kind::KEY_WITH_DEADLINE).count(deadline),
    };
    to.count(slot).count(index.into()).bytes(key);
    item.extend_from_slice(&entry.value);
}

/// The items of an image on their way in. Whatever they say, only images of stores pass.
#[derive(Debug, Default)]
pub struct Items {
    /// What the head says, without the keys that have come.
    keys_left: Option<u64>,
    last: Cursor,
    /// No key has a later version.
    newest: u64,
}

/// A key that comes in.
#[derive(Debug)]
pub struct Loaded<'a> {
    /// It is new: every one comes once.
    pub key: Key<'a>,
    /// All that it has.
    pub entry: Entry<'a>,
}

impl From<Malformed> for LoadError {
    fn from(_: Malformed) -> Self {
        Self::Malformed("an item cannot be read")
    }
}

impl Items {
    /// Whether nothing came in.
    pub fn is_empty(&self) -> bool {
        self.keys_left.is_none()
    }

    /// The next item; `None`: it was the head.
    pub fn take<'a>(&mut self, item: &'a [u8]) -> Result<Option<Loaded<'a>>, LoadError> {
        let mut from = Decoder(item);
        let kind = from.byte()?;
        let Some(keys_left) = &mut self.keys_left else {
            return self.take_head(kind, from).map(|()| None);
        };
        let deadline = match kind {
            kind::KEY => None,
            kind::KEY_WITH_DEADLINE => Some(from.count()?),
            _ => return Err(LoadError::Malformed("an item of an unknown kind")),
        };
        let (slot, index) = (from.count()?, from.count()?);
        let index = u32::try_from(index).map_err(|_| Malformed)?;
        let key = from.key().map_err(|fault| match fault {
            Fault::Malformed => Malformed.into(),
            _ => LoadError::Malformed("a key is too long"),
        })?;
        let value = from.0;
        *keys_left = keys_left
            .checked_sub(1)
            .ok_or(LoadError::Malformed("there are more keys than it says"))?;
        if deadline == Some(u64::MAX) || slot == 0 || value.len() > VALUE_BYTES_MAX {
            return Err(LoadError::Malformed("a key has what no key can have"));
        }
        let position = Position::of(key.bytes());
        if self.last.has_passed(position, key.bytes()) {
            return Err(LoadError::Malformed("keys are out of order"));
        }
        self.last = Cursor {
            position,
            key: Some(key.bytes().into()),
        };
        self.newest = self.newest.max(slot);
        let entry = Entry {
            value: Bytes::Borrowed(value),
            version: Version { slot, index },
            deadline,
        };
        Ok(Some(Loaded { key, entry }))
    }

    fn take_head(&mut self, kind: u8, mut from: Decoder<'_>) -> Result<(), LoadError> {
        if kind != kind::HEAD {
            return Err(LoadError::Malformed("it does not begin with a head"));
        }
        if from.byte()? != FORMAT {
            return Err(LoadError::Malformed(
                "this version does not know its format",
            ));
        }
        self.keys_left = Some(from.count()?);
        Ok(from.end()?)
    }

    /// There are no more items, and every slot below `at` is in them: whether that can be.
    pub fn end(&self, at: Slot) -> Result<(), LoadError> {
        if self.keys_left != Some(0) {
            return Err(LoadError::Malformed("keys are missing"));
        }
        if self.newest >= at.0 {
            return Err(LoadError::Malformed("a key is newer than the image"));
        }
        Ok(())
    }
}

const _: () = assert!(KEY_BYTES_MAX < VALUE_BYTES_MAX);

#[cfg(test)]
mod tests {
    use super::*;

    fn key_item(key: &[u8], slot: u64, deadline: Option<u64>, value: &[u8]) -> Vec<u8> {
        let mut item = Vec::new();
        let entry = Entry {
            value: Bytes::Borrowed(value),
            version: Version { slot, index: 3 },
            deadline,
        };
        encode_key(key, &entry, &mut item);
        item
    }

    fn head(keys: u64) -> Vec<u8> {
        let mut item = Vec::new();
        encode_head(keys, &mut item);
        item
    }

    /// Two keys in their order.
    fn two() -> [&'static [u8]; 2] {
        let mut keys: [&[u8]; 2] = [b"a", b"b"];
        keys.sort_by_key(|key| Position::of(key));
        keys
    }

    #[test]
    fn items_stay_as_they_are() {
        assert_eq!(head(300), [0, 1, 0xac, 2]);
        assert_eq!(key_item(b"k", 5, None, b"val"), b"\x01\x05\x03\x01kval");
        let expected = b"\x02\x80\x01\x05\x03\x01kval";
        assert_eq!(key_item(b"k", 5, Some(128), b"val"), expected);
    }

    #[test]
    fn what_is_no_image_is_refused() {
        let [first, second] = two();
        let (first, second) = (
            key_item(first, 5, None, b"1"),
            key_item(second, 9, Some(7), b"2"),
        );
        let check = |items: &[&[u8]], at: u64| {
            let mut state = Items::default();
            for item in items {
                state.take(item)?;
            }
            state.end(Slot(at))
        };
        assert_eq!(check(&[&head(2), &first, &second], 10), Ok(()));
        assert_eq!(check(&[&head(0)], 1), Ok(()));
        let long = key_item(&[b'k'; KEY_BYTES_MAX + 1], 5, None, b"");
        let refused: &[(&[&[u8]], u64)] = &[
            (&[&head(2), &first, &second], 9),
            (&[&head(2), &first], 10),
            (&[&head(1), &first, &second], 10),
            (&[&head(2), &second, &first], 10),
            (&[&head(2), &first, &first], 10),
            (&[&first, &second], 10),
            (&[&head(2), &head(2)], 10),
            (&[], 10),
            (&[&[0, 2, 0]], 10),
            (&[&[0, 1, 0, 0]], 10),
            (&[&head(1), &[]], 10),
            (&[&head(1), &[3]], 10),
            (&[&head(1), &long], 10),
            (&[&head(1), &key_item(b"k", 0, None, b"")], 10),
            (&[&head(1), &key_item(b"k", 1, Some(u64::MAX), b"")], 10),
        ];
        for (items, at) in refused {
            let result = check(items, *at);
            assert!(matches!(result, Err(LoadError::Malformed(_))), "{items:?}");
        }
        // Whatever is cut off.
        for end in 0..first.len() - 1 {
            assert!(check(&[&head(1), &first[..end]], 10).is_err());
        }
    }
}
