//! The catalogue: encodes and decodes the list of a store's contents and their locations. The table
//! of its fields is in `docs/spec/stream-store.md`.

use std::collections::BTreeMap;

use quorate_core::{node_id::NodeId, slot::Slot, value::StreamName};

use super::{
    chunk::{BlockSpan, Chunk},
    layout::{ChunkAddress, Layout, POSITION_MAX},
    space::Space,
    spares::{CutBlocks, UnitBuffers},
    stream::Stream,
};

const MAGIC: [u8; 8] = *b"qrtecatl";
const VERSION: u16 = 1;
/// Maximum size of a catalogue in bytes, enough to describe more than a million GiB.
pub(super) const BYTES_MAX: u64 = 64 << 30;
/// Upper bound of attempt numbers, far above the number of times that a part of a stream can be
/// lost.
pub(super) const ATTEMPTS_MAX: u32 = 1 << 31;

pub(super) type Streams = BTreeMap<StreamName, Stream>;

pub(super) fn encode(at: Slot, layout: Layout, streams: &Streams) -> Vec<u8> {
    let mut out = MAGIC.to_vec();
    put16(&mut out, VERSION);
    for sizes in [layout.unit_bytes, layout.chunk_bytes, layout.chunks_per_file] {
        put32(&mut out, sizes);
    }
    put64(&mut out, at.0);
    put64(&mut out, streams.len() as u64);
    for (name, stream) in streams {
        for part in [name.owner.0, name.boot, name.number] {
            put32(&mut out, part);
        }
        put64(&mut out, stream.retained_from());
        put64(&mut out, stream.chunks().len() as u64);
        for ((part, attempt), chunk) in stream.chunks() {
            put64(&mut out, *part);
            put32(&mut out, *attempt);
            put64(&mut out, chunk.address.file);
            put32(&mut out, chunk.address.index);
            out.push(u8::from(chunk.is_closed));
            let spans = chunk.spans();
            put16(&mut out, count16(spans.len()));
            for span in spans {
                put16(&mut out, span.from);
                put16(&mut out, span.end_block);
                put32(&mut out, span.checksum);
            }
        }
        put64(&mut out, stream.memory_only_bytes().count() as u64);
        for (position, bytes) in stream.memory_only_bytes() {
            put64(&mut out, position);
            put32(&mut out, u32::try_from(bytes.len()).expect("of a unit at most"));
            out.extend_from_slice(bytes);
        }
    }
    out
}

fn count16(count: usize) -> u16 {
    u16::try_from(count).expect("a chunk has at most 4096 blocks")
}

fn put16(out: &mut Vec<u8>, number: u16) {
    out.extend_from_slice(&number.to_le_bytes());
}

fn put32(out: &mut Vec<u8>, number: u32) {
    out.extend_from_slice(&number.to_le_bytes());
}

fn put64(out: &mut Vec<u8>, number: u64) {
    out.extend_from_slice(&number.to_le_bytes());
}

/// A catalogue whose head was decoded.
#[derive(Debug)]
pub(super) struct Catalogue<'a> {
    pub(super) slot: Slot,
    pub(super) layout: Layout,
    fields: Fields<'a>,
}

/// Decodes the head of a catalogue.
pub(super) fn open(bytes: &[u8]) -> Result<Catalogue<'_>, &'static str> {
    let mut fields = Fields(bytes);
    if fields.take(8) != Some(&MAGIC) {
        return Err("it does not begin as one");
    }
    if fields.u16() != Some(VERSION) {
        return Err("it is of another version");
    }
    let head = |fields: &mut Fields<'_>| {
        let layout = Layout {
            unit_bytes: fields.u32()?,
            chunk_bytes: fields.u32()?,
            chunks_per_file: fields.u32()?,
        };
        Some((layout.validated()?, Slot(fields.u64()?)))
    };
    let (layout, at) = head(&mut fields).ok_or("its head cannot be read")?;
    Ok(Catalogue { slot: at, layout, fields })
}

impl Catalogue<'_> {
    /// Decodes the streams, and claims their chunks from `space`. Skips bytes in files that do not
    /// exist. Passes whole blocks that have no chunk yet to `cut`.
    pub(super) fn decode_streams(
        mut self,
        space: &mut Space,
        spares: &mut UnitBuffers,
        mut cut: impl FnMut(StreamName, u64, CutBlocks),
    ) -> Result<Streams, &'static str> {
        const SHORT: &str = "it ends too early";
        let mut streams = Streams::new();
        let count = self.fields.u64().ok_or(SHORT)?;
        for _ in 0..count {
            let name = self.fields.name().ok_or(SHORT)?;
            let kept_from = self.fields.u64().ok_or(SHORT)?;
            if kept_from > POSITION_MAX {
                return Err("a stream is kept from nowhere");
            }
            let mut stream = Stream::from_catalogue(kept_from);
            let chunks = self.fields.u64().ok_or(SHORT)?;
            for _ in 0..chunks {
                self.decode_chunk(&mut stream, space)?;
            }
            let loose = self.fields.u64().ok_or(SHORT)?;
            for _ in 0..loose {
                let (position, bytes) = self.fields.piece().ok_or(SHORT)?;
                let end = position.checked_add(bytes.len() as u64);
                let range = position..end.unwrap_or(u64::MAX);
                let sound = range.end <= POSITION_MAX && position >= kept_from;
                if !sound || stream.held_ranges().first_missing(range.clone()) != Some(range) {
                    return Err("bytes are in two places, or nowhere");
                }
                stream.add_bytes(position, bytes, self.layout, spares, |position, made| {
                    cut(name, position, made);
                });
            }
            if streams.insert(name, stream).is_some() {
                return Err("a stream is there twice");
            }
        }
        if !self.fields.0.is_empty() {
            return Err("it does not end where it should");
        }
        Ok(streams)
    }

    fn decode_chunk(&mut self, stream: &mut Stream, space: &mut Space) -> Result<(), &'static str> {
        const SHORT: &str = "it ends within a chunk";
        let head = |fields: &mut Fields<'_>| {
            let key = (fields.u64()?, fields.u32()?);
            let address = ChunkAddress { file: fields.u64()?, index: fields.u32()? };
            Some((key, address, fields.u8()?, fields.u16()?))
        };
        let (key, address, closed, spans) = head(&mut self.fields).ok_or(SHORT)?;
        let there = key.0 < POSITION_MAX / self.layout.chunk_bytes_u64() && key.1 < ATTEMPTS_MAX;
        if !there || closed > 1 {
            return Err("a chunk holds nothing that there is");
        }
        let mut chunk = Chunk::new(address, closed == 1);
        for _ in 0..spans {
            let span = |fields: &mut Fields<'_>| {
                Some(BlockSpan {
                    from: fields.u16()?,
                    end_block: fields.u16()?,
                    checksum: fields.u32()?,
                    is_pending: false,
                    is_durable: true,
                })
            };
            let span = span(&mut self.fields).ok_or(SHORT)?;
            let unit = self.layout.blocks_per_unit();
            let sound = span.from < span.end_block
                && span.end_block <= self.layout.blocks_per_chunk()
                && span.from / unit == (span.end_block - 1) / unit;
            if !sound || !chunk.add_if_free(span) {
                return Err("blocks of a chunk are in two places, or nowhere");
            }
        }
        if !space.has_file(address.file) {
            return Ok(());
        }
        if !space.mark_used(address) || !stream.restore_chunk(key, chunk, self.layout) {
            return Err("a chunk is there twice, or nowhere");
        }
        Ok(())
    }
}

/// Decoder that reads fields from the front of a byte slice and checks every length.
#[derive(Debug)]
pub(super) struct Fields<'a>(pub(super) &'a [u8]);

impl<'a> Fields<'a> {
    fn take(&mut self, count: usize) -> Option<&'a [u8]> {
        let (taken, rest) = self.0.split_at_checked(count)?;
        self.0 = rest;
        Some(taken)
    }

    fn array<const N: usize>(&mut self) -> Option<[u8; N]> {
        self.take(N)?.try_into().ok()
    }

    fn u8(&mut self) -> Option<u8> {
        self.array().map(u8::from_le_bytes)
    }

    pub(super) fn u16(&mut self) -> Option<u16> {
        self.array().map(u16::from_le_bytes)
    }

    pub(super) fn u32(&mut self) -> Option<u32> {
        self.array().map(u32::from_le_bytes)
    }

    pub(super) fn u64(&mut self) -> Option<u64> {
        self.array().map(u64::from_le_bytes)
    }

    fn piece(&mut self) -> Option<(u64, &'a [u8])> {
        let (position, length) = (self.u64()?, self.u32()?);
        Some((position, self.take(length as usize)?))
    }

    fn name(&mut self) -> Option<StreamName> {
        Some(StreamName { owner: NodeId(self.u32()?), boot: self.u32()?, number: self.u32()? })
    }
}
