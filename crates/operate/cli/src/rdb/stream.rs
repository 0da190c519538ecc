//! Streams: entries in listpacks, groups, consumers and pending entries.

use std::{collections::BTreeMap, io::Read};

use super::{
    input::Input,
    packed::Elements,
    types::{Element, EntryId, Malformed, Pending, ReadError, StreamState, Visitor},
};

/// Versions of a stream's format, by what was added.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Form {
    First,
    /// Counters of entries (Redis 7.0).
    Counters,
    /// Time of a consumer's last activity (Redis 7.2).
    Activity,
}

const DELETED: i64 = 1;
const SAME_FIELDS: i64 = 2;

pub(super) fn read<R: Read>(
    form: Form,
    input: &mut Input<R>,
    visitor: &mut dyn Visitor,
) -> Result<(), ReadError> {
    for _ in 0..input.length()? {
        let id = input.string()?;
        let id = <[u8; 16]>::try_from(id).map_err(|_| input.malformed("an id is not 16 bytes"))?;
        let (ms, sequence) = id.split_at(8);
        let number = |bytes: &[u8]| bytes.iter().fold(0, |all, &byte| all << 8 | u64::from(byte));
        let first = EntryId { ms: number(ms), sequence: number(sequence) };
        let pack = input.string()?;
        read_entries(first, &pack, input, visitor)?;
    }
    let (length, last) = (input.length()?, input.id()?);
    let counters = match form {
        Form::First => None,
        Form::Counters | Form::Activity => {
            let _first = input.id()?;
            Some((input.id()?, input.length()?))
        }
    };
    visitor.element(Element::State(StreamState { length, last, counters }))?;
    for _ in 0..input.length()? {
        read_group(form, input, visitor)?;
    }
    Ok(())
}

fn read_entries<R: Read>(
    first: EntryId,
    pack: &[u8],
    input: &Input<R>,
    visitor: &mut dyn Visitor,
) -> Result<(), ReadError> {
    let mut entries = input.sensible(Entries::new(first, pack))?;
    while let Some((id, fields)) = input.sensible(entries.next())? {
        visitor.element(Element::Entry(id, &fields))?;
    }
    Ok(())
}

/// Id of an entry, with its fields and values in turn.
type Entry = (EntryId, Vec<Vec<u8>>);

/// Entries of one listpack.
struct Entries<'a> {
    elements: Elements<'a>,
    first: EntryId,
    /// Fields of the master entry, which others may refer to.
    fields: Vec<Vec<u8>>,
    left: i64,
}

impl<'a> Entries<'a> {
    fn new(first: EntryId, pack: &'a [u8]) -> Result<Self, Malformed> {
        let mut elements = Elements::listpack(pack)?;
        let left = elements.need_int()?.checked_add(elements.need_int()?);
        let left = left.ok_or(WRONG)?;
        let count = elements.need_int()?;
        let mut fields = Vec::new();
        for _ in 0..count {
            fields.push(elements.need()?.into_owned());
        }
        elements.need_int()?;
        Ok(Self { elements, first, fields, left })
    }

    /// Returns the next entry that is not deleted.
    fn next(&mut self) -> Result<Option<Entry>, Malformed> {
        while self.left > 0 {
            self.left -= 1;
            let flags = self.elements.need_int()?;
            // Differences wrap, as in the server.
            let id = EntryId {
                ms: self.first.ms.wrapping_add_signed(self.elements.need_int()?),
                sequence: self.first.sequence.wrapping_add_signed(self.elements.need_int()?),
            };
            let mut fields = Vec::new();
            if flags & SAME_FIELDS != 0 {
                for name in &self.fields {
                    fields.push(name.clone());
                    fields.push(self.elements.need()?.into_owned());
                }
            } else {
                for _ in 0..self.elements.need_int()? {
                    fields.push(self.elements.need()?.into_owned());
                    fields.push(self.elements.need()?.into_owned());
                }
            }
            self.elements.need_int()?;
            if fields.is_empty() {
                return Err(WRONG);
            }
            if flags & DELETED == 0 {
                return Ok(Some((id, fields)));
            }
        }
        match self.elements.next()? {
            None => Ok(None),
            Some(_) => Err(WRONG),
        }
    }
}

const WRONG: Malformed = Malformed("the entries of a stream make no sense");

fn read_group<R: Read>(
    form: Form,
    input: &mut Input<R>,
    visitor: &mut dyn Visitor,
) -> Result<(), ReadError> {
    let (name, last) = (input.string()?, input.id()?);
    let read = match form {
        Form::First => None,
        // -1 stands for an unknown number.
        Form::Counters | Form::Activity => Some(input.length()?).filter(|&read| read != u64::MAX),
    };
    visitor.element(Element::Group(&name, last, read))?;
    let mut pending = BTreeMap::new();
    for _ in 0..input.length()? {
        let id = input.raw_id()?;
        let delivered_ms = input.moment_ms()?;
        pending.insert(id, Pending { id, delivered_ms, deliveries: input.length()? });
    }
    for _ in 0..input.length()? {
        let name = input.string()?;
        let _seen_ms = input.moment_ms()?;
        if form == Form::Activity {
            let _active_ms = input.moment_ms()?;
        }
        visitor.element(Element::Consumer(&name))?;
        for _ in 0..input.length()? {
            let id = input.raw_id()?;
            let pending = pending.remove(&id);
            let pending = pending.ok_or_else(|| input.malformed("an entry is not pending"))?;
            visitor.element(Element::Pending(pending))?;
        }
    }
    Ok(())
}
