//! Streams: entries in listpacks, groups, consumers and pending entries.

use std::{collections::BTreeMap, io::Read};

use super::{
    input::Input,
    packed::PackedElements,
    types::{Element, EntryId, Malformed, Pending, RdbVisitor, ReadError, StreamState},
};

/// Versions of a stream's format, by what was added.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum StreamForm {
    First,
    /// Counters of entries (Redis 7.0).
    Counters,
    /// Time of a consumer's last activity (Redis 7.2).
    Activity,
}

const DELETED_FLAG: i64 = 1;
const SAME_FIELDS_FLAG: i64 = 2;

pub(super) fn read_stream<R: Read>(
    form: StreamForm,
    input: &mut Input<R>,
    visitor: &mut dyn RdbVisitor,
) -> Result<(), ReadError> {
    for _ in 0..input.read_length()? {
        let id = input.read_string()?;
        let id = <[u8; 16]>::try_from(id)
            .map_err(|_| input.malformed_at_position("an id is not 16 bytes"))?;
        let (ms, sequence) = id.split_at(8);
        let number = |bytes: &[u8]| bytes.iter().fold(0, |all, &byte| all << 8 | u64::from(byte));
        let first = EntryId { ms: number(ms), sequence: number(sequence) };
        let pack = input.read_string()?;
        read_entries(first, &pack, input, visitor)?;
    }
    let (length, last) = (input.read_length()?, input.id()?);
    let counters = match form {
        StreamForm::First => None,
        StreamForm::Counters | StreamForm::Activity => {
            let _first = input.id()?;
            Some((input.id()?, input.read_length()?))
        }
    };
    visitor.visit_element(Element::State(StreamState { length, last_id: last, counters }))?;
    for _ in 0..input.read_length()? {
        read_group(form, input, visitor)?;
    }
    Ok(())
}

fn read_entries<R: Read>(
    first: EntryId,
    pack: &[u8],
    input: &Input<R>,
    visitor: &mut dyn RdbVisitor,
) -> Result<(), ReadError> {
    let mut entries = input.locate_error(ListpackEntries::new(first, pack))?;
    while let Some((id, fields)) = input.locate_error(entries.next())? {
        visitor.visit_element(Element::Entry(id, &fields))?;
    }
    Ok(())
}

/// Id of an entry, with its fields and values in turn.
type StreamEntry = (EntryId, Vec<Vec<u8>>);

/// Entries of one listpack.
struct ListpackEntries<'a> {
    elements: PackedElements<'a>,
    master_id: EntryId,
    /// Fields of the master entry, which others may refer to.
    master_fields: Vec<Vec<u8>>,
    entries_left: i64,
}

impl<'a> ListpackEntries<'a> {
    fn new(first: EntryId, pack: &'a [u8]) -> Result<Self, Malformed> {
        let mut elements = PackedElements::listpack(pack)?;
        let left = elements.next_int()?.checked_add(elements.next_int()?);
        let left = left.ok_or(MALFORMED_ENTRIES)?;
        let count = elements.next_int()?;
        let mut fields = Vec::new();
        for _ in 0..count {
            fields.push(elements.next_required()?.into_owned());
        }
        elements.next_int()?;
        Ok(Self { elements, master_id: first, master_fields: fields, entries_left: left })
    }

    /// Returns the next entry that is not deleted.
    fn next(&mut self) -> Result<Option<StreamEntry>, Malformed> {
        while self.entries_left > 0 {
            self.entries_left -= 1;
            let flags = self.elements.next_int()?;
            // Differences wrap, as in the server.
            let id = EntryId {
                ms: self.master_id.ms.wrapping_add_signed(self.elements.next_int()?),
                sequence: self.master_id.sequence.wrapping_add_signed(self.elements.next_int()?),
            };
            let mut fields = Vec::new();
            if flags & SAME_FIELDS_FLAG != 0 {
                for name in &self.master_fields {
                    fields.push(name.clone());
                    fields.push(self.elements.next_required()?.into_owned());
                }
            } else {
                for _ in 0..self.elements.next_int()? {
                    fields.push(self.elements.next_required()?.into_owned());
                    fields.push(self.elements.next_required()?.into_owned());
                }
            }
            self.elements.next_int()?;
            if fields.is_empty() {
                return Err(MALFORMED_ENTRIES);
            }
            if flags & DELETED_FLAG == 0 {
                return Ok(Some((id, fields)));
            }
        }
        match self.elements.next()? {
            None => Ok(None),
            Some(_) => Err(MALFORMED_ENTRIES),
        }
    }
}

const MALFORMED_ENTRIES: Malformed = Malformed("the entries of a stream make no sense");

fn read_group<R: Read>(
    form: StreamForm,
    input: &mut Input<R>,
    visitor: &mut dyn RdbVisitor,
) -> Result<(), ReadError> {
    let (name, last) = (input.read_string()?, input.id()?);
    let read = match form {
        StreamForm::First => None,
        // -1 stands for an unknown number.
        StreamForm::Counters | StreamForm::Activity => {
            Some(input.read_length()?).filter(|&read| read != u64::MAX)
        }
    };
    visitor.visit_element(Element::Group(&name, last, read))?;
    let mut pending = BTreeMap::new();
    for _ in 0..input.read_length()? {
        let id = input.read_raw_id()?;
        let delivered_ms = input.read_unix_ms()?;
        pending.insert(id, Pending { id, delivered_ms, deliveries: input.read_length()? });
    }
    for _ in 0..input.read_length()? {
        let name = input.read_string()?;
        let _seen_ms = input.read_unix_ms()?;
        if form == StreamForm::Activity {
            let _active_ms = input.read_unix_ms()?;
        }
        visitor.visit_element(Element::Consumer(&name))?;
        for _ in 0..input.read_length()? {
            let id = input.read_raw_id()?;
            let pending = pending.remove(&id);
            let pending =
                pending.ok_or_else(|| input.malformed_at_position("an entry is not pending"))?;
            visitor.visit_element(Element::Pending(pending))?;
        }
    }
    Ok(())
}
