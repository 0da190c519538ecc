//! The table as rows, which persistent services store next to their data and snapshots contain.
//!
//! There are two rows for each stream: its pieces, which change when a writer opens or closes it,
//! and its end, which changes with every byte. There is one row for each owner: the last inner
//! stream that it opened. Keys are `S` and the name, `E` and the name, `O` and the owner.

use std::collections::{BTreeMap, VecDeque};
use std::fmt;

use quorate_core::{node_id::NodeId, value::StreamName};

use super::{AGE_MARKS_MAX, FORMER_WRITERS_MAX, PIECES_MAX, Piece, STREAMS_MAX, Stream, Table};
use crate::{
    codec::{Fields, put_stream, put64},
    command::{Retention, Writer},
    name::Name,
};

/// A key with its value, or with `None` if the row was removed.
pub type RowChange = (Vec<u8>, Option<Vec<u8>>);

/// Kind of a stream's row.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum RowKind {
    Pieces,
    End,
}

impl RowKind {
    pub(super) const ALL: [Self; 2] = [Self::Pieces, Self::End];

    const fn prefix(self) -> u8 {
        match self {
            Self::Pieces => b'S',
            Self::End => b'E',
        }
    }

    fn key(self, name: &Name) -> Vec<u8> {
        [&[self.prefix()], name.as_str().as_bytes()].concat()
    }
}

const OWNER_PREFIX: u8 = b'O';

/// Key of the last assigned id: an owner's key without the owner's number.
const LAST_ID_KEY: &[u8] = &[OWNER_PREFIX];

fn owner_key(owner: NodeId) -> Vec<u8> {
    [&[OWNER_PREFIX][..], &owner.0.to_be_bytes()[..]].concat()
}

fn owner_value((boot, number): (u32, u32)) -> Vec<u8> {
    [boot.to_be_bytes(), number.to_be_bytes()].concat()
}

fn decode_owner(key: &[u8], value: &[u8]) -> Option<(NodeId, (u32, u32))> {
    let (mut key, mut value) = (Fields(key), Fields(value));
    let owner = NodeId(key.u32()?);
    let last = (value.u32()?, value.u32()?);
    key.finish(())?;
    value.finish((owner, last))
}

const FORMAT: u8 = 1;

/// Error for rows that no version of this program can have written: malformed or inconsistent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MalformedRows(pub &'static str);

impl fmt::Display for MalformedRows {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "the table of streams: {}", self.0)
    }
}

impl std::error::Error for MalformedRows {}

impl Table {
    /// Returns whether `key` belongs to a row of the table.
    pub fn is_table_key(key: &[u8]) -> bool {
        matches!(key.first(), Some(&(b'S' | b'E' | OWNER_PREFIX)))
    }

    /// Returns whether `key` is that of a stream's main row, which exists as long as the stream
    /// does.
    pub fn is_stream_key(key: &[u8]) -> bool {
        key.first() == Some(&RowKind::Pieces.prefix())
    }

    /// Returns all rows, in order of their keys.
    pub fn all_rows(&self) -> impl Iterator<Item = (Vec<u8>, Vec<u8>)> + '_ {
        let ends = self.streams.iter().map(|(name, named)| {
            let value = named.next_position.to_be_bytes().to_vec();
            (RowKind::End.key(name), value)
        });
        let pieces = self.streams.iter().map(|(name, named)| {
            let value = encode(named);
            (RowKind::Pieces.key(name), value)
        });
        let owners = self.last_opened.iter();
        let owners = owners.map(|(owner, last)| (owner_key(*owner), owner_value(*last)));
        let last = (self.last_stream_id > 0).then(|| {
            let value = self.last_stream_id.to_be_bytes().to_vec();
            (LAST_ID_KEY.to_vec(), value)
        });
        ends.chain(last).chain(owners).chain(pieces)
    }

    /// Returns the rows that changed since the last call.
    pub fn take_changed_rows(&mut self) -> impl Iterator<Item = RowChange> + '_ {
        let unsaved = std::mem::take(&mut self.unsaved_rows);
        let owners = std::mem::take(&mut self.unsaved_owners);
        let owners = owners.into_iter().map(|owner| {
            let value = self.last_opened.get(&owner).copied().map(owner_value);
            (owner_key(owner), value)
        });
        let created = unsaved.iter().any(|(_, part)| *part == RowKind::End);
        let last = (created && self.last_stream_id > 0).then(|| {
            let value = self.last_stream_id.to_be_bytes().to_vec();
            (LAST_ID_KEY.to_vec(), Some(value))
        });
        let streams = unsaved.into_iter().map(|(name, part)| {
            let value = self.streams.get(&name).map(|named| match part {
                RowKind::Pieces => encode(named),
                RowKind::End => named.next_position.to_be_bytes().to_vec(),
            });
            (part.key(&name), value)
        });
        owners.chain(last).chain(streams)
    }

    pub fn restore(
        rows: impl IntoIterator<Item = (Vec<u8>, Vec<u8>)>,
    ) -> Result<Self, MalformedRows> {
        let mut table = Self::default();
        let mut ends = BTreeMap::new();
        for (key, value) in rows {
            if key == LAST_ID_KEY {
                let last = value.try_into().map(u64::from_be_bytes);
                table.last_stream_id =
                    last.map_err(|_| MalformedRows("an id of another length"))?;
                continue;
            }
            let (prefix, text) = key.split_first().ok_or(MalformedRows("an empty key"))?;
            if *prefix == OWNER_PREFIX {
                let owner =
                    decode_owner(text, &value).ok_or(MalformedRows("an owner without a number"))?;
                table.last_opened.extend([owner]);
                continue;
            }
            let name = std::str::from_utf8(text).ok();
            let name: Name = name
                .and_then(|text| text.parse().ok())
                .ok_or(MalformedRows("a key without a name"))?;
            if *prefix == b'E' {
                let end = value.try_into().map(u64::from_be_bytes);
                ends.insert(name, end.map_err(|_| MalformedRows("an end of another length"))?);
            } else {
                let named = decode(&value).ok_or(MalformedRows("a stream that cannot be read"))?;
                table.streams.insert(name, named);
            }
        }
        if table.streams.len() > STREAMS_MAX || ends.len() != table.streams.len() {
            return Err(MalformedRows("rows that do not belong together"));
        }
        for (name, named) in &mut table.streams {
            named.next_position =
                *ends.get(name).ok_or(MalformedRows("a stream without an end"))?;
            let last = named.last_piece();
            let mut below = named.age_marks.iter().map(|(_, below)| *below);
            let ahead = below.any(|below| below > named.next_position);
            if named.next_position < last.start_position
                || named.start > named.next_position
                || ahead
            {
                return Err(MalformedRows("a stream that ends before it starts"));
            }
            if named.open {
                table.open.insert(last.stream, name.clone());
            }
            for piece in &named.pieces {
                if !table.inner_streams.insert(piece.stream) {
                    return Err(MalformedRows("an inner stream that two pieces name"));
                }
                let StreamName { owner, boot, number } = piece.stream;
                let known = table.last_opened.get(&owner);
                if known.is_none_or(|known| *known < (boot, number)) {
                    return Err(MalformedRows("an inner stream that its owner did not open"));
                }
            }
        }
        Ok(table)
    }
}

fn encode(named: &Stream) -> Vec<u8> {
    let mut out = vec![FORMAT, u8::from(named.finished) | u8::from(named.open) << 1];
    put64(named.id, &mut out);
    put64(named.created_ms, &mut out);
    out.extend_from_slice(&named.writer.0.to_be_bytes());
    put64(named.start, &mut out);
    named.retention.encode(&mut out);
    put64(named.age_marks.len() as u64, &mut out);
    for (at, below) in &named.age_marks {
        put64(*at, &mut out);
        put64(*below, &mut out);
    }
    put64(named.former_writers.len() as u64, &mut out);
    for writer in &named.former_writers {
        out.extend_from_slice(&writer.0.to_be_bytes());
    }
    for piece in &named.pieces {
        put_stream(piece.stream, &mut out);
        put64(piece.start_position, &mut out);
    }
    out
}

fn decode(bytes: &[u8]) -> Option<Stream> {
    let mut fields = Fields(bytes);
    if fields.u8()? != FORMAT {
        return None;
    }
    let flags = fields.u8()?;
    let mut named = Stream {
        finished: flags & 1 != 0,
        open: flags & 2 != 0,
        id: fields.u64()?,
        created_ms: fields.u64()?,
        writer: Writer(fields.u128()?),
        former_writers: VecDeque::new(),
        start: fields.u64()?,
        next_position: 0,
        retention: Retention::decode(&mut fields)?,
        age_marks: VecDeque::new(),
        pieces: Vec::new(),
    };
    let marks = fields.u64()?;
    if marks > AGE_MARKS_MAX as u64 {
        return None;
    }
    for _ in 0..marks {
        named.age_marks.push_back((fields.u64()?, fields.u64()?));
    }
    let former = fields.u64()?;
    if former > FORMER_WRITERS_MAX as u64 {
        return None;
    }
    for _ in 0..former {
        named.former_writers.push_back(Writer(fields.u128()?));
    }
    while !fields.0.is_empty() {
        let piece = Piece { stream: fields.stream()?, start_position: fields.u64()? };
        let sound =
            named.pieces.last().is_none_or(|last| last.start_position < piece.start_position);
        if !sound || named.pieces.len() >= PIECES_MAX {
            return None;
        }
        named.pieces.push(piece);
    }
    let sound = flags < 4 && !named.pieces.is_empty() && !(named.open && named.finished);
    sound.then_some(named)
}
