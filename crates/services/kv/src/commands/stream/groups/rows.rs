//! Rows of consumer groups: their names and values, all part of the stored format.
//!
//! | Name | Value |
//! |---|---|
//! | `g` and the group's name | [`Group`] |
//! | `c`, number of the group, name of the consumer | [`Consumer`] |
//! | `n`, number of the group, number of the consumer | name of the consumer |
//! | `p`, number of the group, id | [`Pending`] |
//! | `q`, number of the group, number of the consumer, id | empty |
//!
//! Numbers in names have eight bytes, big-endian, so that rows are in the order of numbers and ids.

use std::ops::ControlFlow;

use super::super::rows::View;
use crate::{
    encode::{Decoder, Encoder, Malformed},
    store::{Span, stream::EntryId},
};

/// State of a consumer group.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Group {
    pub(super) number: u64,
    /// Id of the last entry delivered for the first time.
    pub(super) last: EntryId,
    /// Number of entries from the first one ever added to `last`; `None` if unknown.
    pub(super) read: Option<u64>,
    /// Number of entries delivered and not acknowledged.
    pub(super) pending: u64,
    pub(super) consumers: u64,
    /// Lowest pending id, [`EntryId::MAX`] if none, so that a walk from the first pending entry
    /// does not pass the marks of removed ones.
    pub(super) first: EntryId,
}

/// State of a consumer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Consumer {
    pub(super) number: u64,
    /// Unix time in milliseconds of the consumer's last command.
    pub(super) last_command_ms: u64,
    /// Time of the last delivery to the consumer; `None` if there was none.
    pub(super) active_ms: Option<u64>,
    pub(super) pending: u64,
    /// Lowest id pending for the consumer, [`EntryId::MAX`] if none.
    pub(super) first: EntryId,
}

/// Delivery of an entry that is not acknowledged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Pending {
    /// Number of the consumer.
    pub(super) consumer: u64,
    pub(super) delivered_ms: u64,
    /// Number of deliveries so far.
    pub(super) deliveries: u64,
}

/// Encoding of a missing number.
const NONE: u64 = u64::MAX;

fn decode_optional(number: u64) -> Option<u64> {
    (number != NONE).then_some(number)
}

fn read_id(from: &mut Decoder<'_>) -> Result<EntryId, Malformed> {
    let (id, rest) = from.0.split_at_checked(EntryId::BYTES).ok_or(Malformed)?;
    from.0 = rest;
    EntryId::from_bytes(id).ok_or(Malformed)
}

impl Group {
    pub(super) const fn new(number: u64, last: EntryId, read: Option<u64>) -> Self {
        Self { number, last, read, pending: 0, consumers: 0, first: EntryId::MAX }
    }

    pub(super) fn to_bytes(self) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(Self::BYTES);
        Encoder(&mut bytes).word(self.number);
        bytes.extend_from_slice(&self.last.to_bytes());
        let read = self.read.unwrap_or(NONE);
        Encoder(&mut bytes).word(read).word(self.pending).word(self.consumers);
        bytes.extend_from_slice(&self.first.to_bytes());
        bytes
    }

    fn from_bytes(bytes: &[u8]) -> Result<Self, Malformed> {
        let from = &mut Decoder(bytes);
        let group = Self {
            number: from.word()?,
            last: read_id(from)?,
            read: decode_optional(from.word()?),
            pending: from.word()?,
            consumers: from.word()?,
            first: read_id(from)?,
        };
        from.end().map(|()| group)
    }

    pub(super) const BYTES: usize = 4 * 8 + 2 * EntryId::BYTES;

    /// Returns the number of the group's rows.
    pub(super) const fn rows(&self) -> u64 {
        let rows = self.pending.saturating_add(self.consumers);
        rows.saturating_mul(2).saturating_add(1)
    }
}

impl Consumer {
    pub(super) const fn new(number: u64, last_command_ms: u64) -> Self {
        Self { number, last_command_ms, active_ms: None, pending: 0, first: EntryId::MAX }
    }

    pub(super) fn to_bytes(self) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(Self::BYTES);
        let active = self.active_ms.unwrap_or(NONE);
        Encoder(&mut bytes)
            .word(self.number)
            .word(self.last_command_ms)
            .word(active)
            .word(self.pending);
        bytes.extend_from_slice(&self.first.to_bytes());
        bytes
    }

    fn from_bytes(bytes: &[u8]) -> Result<Self, Malformed> {
        let from = &mut Decoder(bytes);
        let consumer = Self {
            number: from.word()?,
            last_command_ms: from.word()?,
            active_ms: decode_optional(from.word()?),
            pending: from.word()?,
            first: read_id(from)?,
        };
        from.end().map(|()| consumer)
    }

    pub(super) const BYTES: usize = 4 * 8 + EntryId::BYTES;
}

impl Pending {
    pub(super) fn to_bytes(self) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(Self::BYTES);
        Encoder(&mut bytes).word(self.consumer).word(self.delivered_ms).word(self.deliveries);
        bytes
    }

    fn from_bytes(bytes: &[u8]) -> Result<Self, Malformed> {
        let from = &mut Decoder(bytes);
        let (consumer, delivered_ms, deliveries) = (from.word()?, from.word()?, from.word()?);
        from.end().map(|()| Self { consumer, delivered_ms, deliveries })
    }

    pub(super) const BYTES: usize = 3 * 8;
}

/// Names of rows.
pub(super) mod name {
    use crate::store::stream::EntryId;

    pub(in super::super) const GROUP: u8 = b'g';
    pub(in super::super) const CONSUMER: u8 = b'c';
    pub(in super::super) const NAME: u8 = b'n';
    pub(in super::super) const PENDING: u8 = b'p';
    pub(in super::super) const OWNED: u8 = b'q';

    pub(in super::super) fn group(name: &[u8]) -> Vec<u8> {
        [&[GROUP], name].concat()
    }

    /// Returns the beginning of the names of a group's rows of one kind.
    pub(in super::super) fn rows_prefix(kind: u8, group: u64) -> Vec<u8> {
        [&[kind][..], &group.to_be_bytes()].concat()
    }

    pub(in super::super) fn consumer(group: u64, name: &[u8]) -> Vec<u8> {
        [&rows_prefix(CONSUMER, group), name].concat()
    }

    pub(in super::super) fn name(group: u64, consumer: u64) -> Vec<u8> {
        [&rows_prefix(NAME, group)[..], &consumer.to_be_bytes()].concat()
    }

    pub(in super::super) fn pending_row(group: u64, id: EntryId) -> Vec<u8> {
        [&rows_prefix(PENDING, group)[..], &id.to_bytes()].concat()
    }

    pub(in super::super) fn owned(group: u64, consumer: u64, id: EntryId) -> Vec<u8> {
        [&rows_prefix(OWNED, group)[..], &consumer.to_be_bytes(), &id.to_bytes()].concat()
    }
}

/// Returns the id at the end of a row's name.
fn id_in(name: &[u8]) -> Option<EntryId> {
    EntryId::from_bytes(name.last_chunk::<{ EntryId::BYTES }>()?)
}

/// A visitor gets no row that makes no sense.
impl View<'_> {
    pub(super) fn group(&self, name: &[u8]) -> Option<Group> {
        Group::from_bytes(&self.row(&name::group(name))?).ok()
    }

    pub(super) fn consumer(&self, group: u64, name: &[u8]) -> Option<Consumer> {
        Consumer::from_bytes(&self.row(&name::consumer(group, name))?).ok()
    }

    pub(super) fn consumer_name(&self, group: u64, consumer: u64) -> Option<Vec<u8>> {
        Some(self.row(&name::name(group, consumer))?.to_vec())
    }

    pub(super) fn pending(&self, group: u64, id: EntryId) -> Option<Pending> {
        Pending::from_bytes(&self.row(&name::pending_row(group, id))?).ok()
    }

    /// Visits the groups in the order of their names.
    pub(super) fn each_group(&self, visit: &mut dyn FnMut(&[u8], Group) -> ControlFlow<()>) {
        let span = Span { from: &[name::GROUP], to: Some(&[name::GROUP + 1]), is_backward: false };
        self.store.rows(self.header.id, span, &mut |name, value| match (
            name.get(1..),
            Group::from_bytes(value),
        ) {
            (Some(name), Ok(group)) => visit(name, group),
            _ => ControlFlow::Continue(()),
        });
    }

    /// Visits the consumers of a group in the order of their names.
    pub(super) fn each_consumer(
        &self,
        group: u64,
        visit: &mut dyn FnMut(&[u8], Consumer) -> ControlFlow<()>,
    ) {
        let from = name::rows_prefix(name::CONSUMER, group);
        let to = rows_end(name::CONSUMER, group);
        let span = Span { from: &from, to: Some(&to), is_backward: false };
        self.store.rows(self.header.id, span, &mut |name, value| match (
            name.get(from.len()..),
            Consumer::from_bytes(value),
        ) {
            (Some(name), Ok(consumer)) => visit(name, consumer),
            _ => ControlFlow::Continue(()),
        });
    }

    /// Visits the pending entries of a group with ids from `from` to `to`, both inclusive.
    pub(super) fn each_pending(
        &self,
        group: u64,
        (from, to): (EntryId, EntryId),
        back: bool,
        visit: &mut dyn FnMut(EntryId, Pending) -> ControlFlow<()>,
    ) {
        let from = name::pending_row(group, from);
        let to = [name::pending_row(group, to), vec![0]].concat();
        let span = Span { from: &from, to: Some(&to), is_backward: back };
        self.store.rows(self.header.id, span, &mut |name, value| match (
            id_in(name),
            Pending::from_bytes(value),
        ) {
            (Some(id), Ok(pending)) => visit(id, pending),
            _ => ControlFlow::Continue(()),
        });
    }

    /// Visits the ids pending for a consumer from `from` to `to`, both inclusive.
    pub(super) fn each_owned(
        &self,
        (group, consumer): (u64, u64),
        (from, to): (EntryId, EntryId),
        visit: &mut dyn FnMut(EntryId) -> ControlFlow<()>,
    ) {
        let from = name::owned(group, consumer, from);
        let to = [name::owned(group, consumer, to), vec![0]].concat();
        let span = Span { from: &from, to: Some(&to), is_backward: false };
        self.store.rows(self.header.id, span, &mut |name, _| match id_in(name) {
            Some(id) => visit(id),
            None => ControlFlow::Continue(()),
        });
    }
}

/// Returns the exclusive upper bound of the names of a group's rows of one kind.
pub(super) fn rows_end(kind: u8, group: u64) -> Vec<u8> {
    match group.checked_add(1) {
        Some(next) => name::rows_prefix(kind, next),
        None => vec![kind.saturating_add(1)],
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ID: EntryId = EntryId { ms: 0x0102, seq: 3 };

    #[test]
    fn encoding_of_stored_rows_is_stable() {
        let id = [0, 0, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 0, 0, 0, 3];
        let words = |numbers: &[u64]| -> Vec<u8> {
            numbers.iter().flat_map(|number| number.to_le_bytes()).collect()
        };
        let group = Group {
            number: 1,
            last: ID,
            read: None,
            pending: 4,
            consumers: 5,
            first: EntryId::MAX,
        };
        let bytes = [words(&[1]), id.to_vec(), words(&[u64::MAX, 4, 5]), vec![0xff; 16]].concat();
        assert_eq!(group.to_bytes(), bytes);
        assert_eq!(bytes.len(), Group::BYTES);
        assert_eq!(Group::from_bytes(&bytes), Ok(group));
        let consumer =
            Consumer { number: 1, last_command_ms: 2, active_ms: Some(3), pending: 4, first: ID };
        let bytes = [words(&[1, 2, 3, 4]), id.to_vec()].concat();
        assert_eq!(consumer.to_bytes(), bytes);
        assert_eq!(bytes.len(), Consumer::BYTES);
        assert_eq!(Consumer::from_bytes(&bytes), Ok(consumer));
        let pending = Pending { consumer: 1, delivered_ms: 2, deliveries: 3 };
        let bytes = words(&[1, 2, 3]);
        assert_eq!(pending.to_bytes(), bytes);
        assert_eq!(bytes.len(), Pending::BYTES);
        assert_eq!(Pending::from_bytes(&bytes), Ok(pending));
        assert!(Pending::from_bytes(&[&bytes[..], &[0]].concat()).is_err());
        let number = [0, 0, 0, 0, 0, 0, 0, 7];
        let other = [0, 0, 0, 0, 0, 0, 1, 0];
        assert_eq!(name::group(b"x"), b"gx");
        assert_eq!(name::consumer(7, b"x"), [b"c", &number[..], b"x"].concat());
        assert_eq!(name::name(7, 256), [b"n", &number[..], &other].concat());
        assert_eq!(name::pending_row(7, ID), [b"p", &number[..], &id].concat());
        assert_eq!(name::owned(7, 256, ID), [b"q", &number[..], &other, &id].concat());
        assert_eq!(rows_end(name::PENDING, u64::MAX), b"q");
    }
}
