//! Units written to stable storage before a record names them ([disk-5]), and how they are found
//! again after a restart.
//!
//! A *placed* unit is written durably at once, before it is decided, together with the available
//! units after it. The caller learns from [`Store::next_durable_placed`] when it is on stable
//! storage, and stores its place in a record of the log ([`Store::places`]). The record contains
//! none of the bytes. At start the caller passes the contents of such records to the store
//! ([`Store::claim_recorded_places`]) before any other write, because until the next checkpoint
//! only the records refer to those chunks.
//!
//! Places in a record become invalid when their chunks are freed. Freed chunks are reused only
//! after a durable catalogue ([trim-4]), so a catalogue overrides a record, and a later record
//! overrides an earlier one. If the bytes differ nevertheless, their checksums reveal it on a read.

use std::{collections::BTreeMap, ops::Range};

use quorate_core::value::StreamName;
use quorate_log::disk::{Blocks, CHECKED_BYTES, Disk, Durability, Output};

use super::{
    Store,
    catalogue::{ATTEMPTS_MAX, Fields},
    chunk::BlockSpan,
    layout::{ChunkAddress, Layout, POSITION_MAX},
    stream::{FreedBytes, Stream},
};

/// Location and checksum of blocks of a stream that are on stable storage.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StoredPlace {
    /// Index of the chunk within the stream, and the number of the attempt to store it.
    key: (u64, u32),
    address: ChunkAddress,
    /// First of the blocks, counted from the start of the chunk.
    from: u16,
    end_block: u16,
    checksum: u32,
}

impl StoredPlace {
    pub const BYTES: usize = 32;

    pub fn encode_all(places: &[Self]) -> Vec<u8> {
        let mut out = Vec::with_capacity(places.len() * Self::BYTES);
        for place in places {
            out.extend_from_slice(&place.key.0.to_le_bytes());
            out.extend_from_slice(&place.key.1.to_le_bytes());
            out.extend_from_slice(&place.address.file.to_le_bytes());
            out.extend_from_slice(&place.address.index.to_le_bytes());
            out.extend_from_slice(&place.from.to_le_bytes());
            out.extend_from_slice(&place.end_block.to_le_bytes());
            out.extend_from_slice(&place.checksum.to_le_bytes());
        }
        out
    }

    /// Decodes places, or returns `None` if the bytes are malformed.
    /// [`Store::claim_recorded_places`] verifies the places.
    pub fn decode_all(bytes: &[u8]) -> Option<Vec<Self>> {
        let mut fields = Fields(bytes);
        let mut places = Vec::new();
        while !fields.0.is_empty() {
            places.push(Self {
                key: (fields.u64()?, fields.u32()?),
                address: ChunkAddress { file: fields.u64()?, index: fields.u32()? },
                from: fields.u16()?,
                end_block: fields.u16()?,
                checksum: fields.u32()?,
            });
        }
        Some(places)
    }

    fn block_span(&self) -> BlockSpan {
        BlockSpan {
            from: self.from,
            end_block: self.end_block,
            checksum: self.checksum,
            is_pending: false,
            is_durable: true,
        }
    }

    /// Returns whether the place can exist in a store with layout `layout`.
    fn is_within(&self, layout: Layout) -> bool {
        let unit = layout.blocks_per_unit();
        let there =
            self.key.0 < POSITION_MAX / layout.chunk_bytes_u64() && self.key.1 < ATTEMPTS_MAX;
        let blocks = self.from < self.end_block && self.end_block <= layout.blocks_per_chunk();
        there
            && blocks
            && self.from / unit == (self.end_block - 1) / unit
            && self.address.index < layout.chunks_per_file
    }
}

/// Bytes to place: whole units of a stream, in memory.
#[derive(Clone, Copy, Debug)]
pub struct UnitBytes<'a> {
    bytes: &'a [u8],
    /// Shared memory that contains the bytes, and their offset in it. The disk writes from there if
    /// the bytes are suitably aligned.
    shared_blocks: Option<(&'a Blocks, usize)>,
}

impl<'a> UnitBytes<'a> {
    /// Creates a bulk whose bytes are copied before they are written.
    pub fn to_copy(bytes: &'a [u8]) -> Self {
        let whole = None;
        Self { bytes, shared_blocks: whole }
    }

    /// Creates a bulk that is written without copying, if it is suitably aligned.
    pub fn shared(blocks: &'a Blocks, range: Range<usize>) -> Self {
        Self { shared_blocks: Some((blocks, range.start)), bytes: &blocks[range] }
    }

    fn aligned_output(&self) -> Option<Output> {
        let (blocks, at) = self.shared_blocks?;
        blocks.aligned_part(at..at + self.bytes.len())
    }

    /// Returns the CRC-32C of each unit if they have been computed.
    fn unit_checksums(&self, unit_bytes: usize) -> Option<&'a [u32]> {
        let (blocks, at) = self.shared_blocks?;
        let known = unit_bytes == CHECKED_BYTES && at.is_multiple_of(CHECKED_BYTES);
        known.then(|| &blocks.piece_checksums()[at / CHECKED_BYTES..])
    }
}

/// Stream and key that own a chunk, and whether a catalogue lists it.
type ChunkOwner = (StreamName, (u64, u32), bool);

impl Store {
    /// Writes whole units of one chunk of a stream at once. Returns `false` and does nothing if the
    /// bytes are not whole units, if some of them are already stored, or if no chunk is available.
    /// The caller may then use [`Self::put_bytes`].
    pub fn place_units<D: Disk>(
        &mut self,
        stream: StreamName,
        position: u64,
        bulk: UnitBytes<'_>,
        disk: &mut D,
    ) -> bool {
        let layout = self.layout;
        let end = position.saturating_add(bulk.bytes.len() as u64);
        let whole = position.is_multiple_of(layout.unit_bytes_u64())
            && end.is_multiple_of(layout.unit_bytes_u64());
        let part = position / layout.chunk_bytes_u64();
        let one_chunk =
            position < end && end <= POSITION_MAX && part == (end - 1) / layout.chunk_bytes_u64();
        if !whole || !one_chunk || self.failure.is_some() || self.shortage().is_some() {
            return false;
        }
        let range = position..end;
        let known = self.streams.get(&stream);
        let is_new = known.is_none_or(|known| {
            known.retained_from() <= position
                && known.held_ranges().first_missing(range.clone()) == Some(range.clone())
        });
        // Bytes that already wait for a chunk are served first.
        if !is_new || self.writes.has_waiting_cuts() {
            return false;
        }
        let created = known.is_none();
        self.streams.entry(stream).or_default();
        let Some(address) = self.chunk_for(stream, part) else {
            if created {
                self.streams.remove(&stream);
            }
            self.file_space.create_ahead(true, self.limits.disk_reserve_bytes, disk);
            return false;
        };
        let known = self.streams.get_mut(&stream).expect("just looked at");
        known.mark_stored(range);
        let unit = layout.unit_bytes as usize;
        let known = bulk.unit_checksums(unit);
        let check = |number: usize| match known {
            Some(known) => known[number],
            None => crc32c::crc32c(&bulk.bytes[number * unit..][..unit]),
        };
        let output = bulk.aligned_output();
        let output = output.unwrap_or_else(|| self.unit_buffers.copy_to_buffer(bulk.bytes).into());
        let bytes = bulk.bytes.len();
        let durability = Durability::Flushed;
        self.queue_write(stream, position, (output, bytes), check, address, durability);
        self.assign_and_write(disk);
        self.create_files_ahead(disk);
        true
    }

    /// Returns the next placed bytes that have reached stable storage. Each range is returned once.
    pub fn next_durable_placed(&mut self) -> Option<(StreamName, Range<u64>)> {
        self.writes.next_durable_placed()
    }

    /// Returns the places of the bytes in `range`, or `None` unless all of them are known to be on
    /// stable storage.
    pub fn places(&self, stream: StreamName, range: Range<u64>) -> Option<Vec<StoredPlace>> {
        let known = self.streams.get(&stream)?;
        known.durable_places(range, self.layout)
    }

    /// Restores placed bytes from the places in records, where they are still valid. Call it in the
    /// order of the records, before any put, placement or checkpoint.
    pub fn claim_recorded_places<D: Disk>(
        &mut self,
        said: impl IntoIterator<Item = (StreamName, Vec<StoredPlace>)>,
        disk: &mut D,
    ) {
        let mut owners = None;
        let mut again = Vec::new();
        for (stream, places) in said {
            let owners = owners.get_or_insert_with(|| self.chunk_owners());
            for place in places {
                if self.assign_chunk(stream, place, owners) {
                    let known = self.streams.get_mut(&stream).expect("its chunk was claimed");
                    let before = known.gathered_bytes();
                    let freed = known.claim_span(place.key, place.block_span(), self.layout);
                    self.writes.update_gathered(stream, before, known.gathered_bytes());
                    self.writes.subtract_waiting(freed.cut_bytes);
                    again.extend(
                        freed.displaced_bytes.into_iter().map(|(at, bytes)| (stream, at, bytes)),
                    );
                }
            }
        }
        for (stream, position, bytes) in again {
            self.put_bytes(stream, position, &bytes, disk);
        }
    }

    fn chunk_owners(&self) -> BTreeMap<ChunkAddress, ChunkOwner> {
        let of = |(name, stream): (&StreamName, &Stream)| {
            let name = *name;
            let chunks: Vec<_> =
                stream.chunks().map(|(key, chunk)| (chunk.address, (name, *key, true))).collect();
            chunks
        };
        self.streams.iter().flat_map(of).collect()
    }

    /// Assigns the chunk of a place to a stream. Returns `false` if the place is invalid or
    /// outdated.
    fn assign_chunk(
        &mut self,
        stream: StreamName,
        place: StoredPlace,
        owners: &mut BTreeMap<ChunkAddress, ChunkOwner>,
    ) -> bool {
        if !place.is_within(self.layout) || !self.file_space.has_file(place.address.file) {
            return false;
        }
        match owners.get(&place.address) {
            Some((of, key, _)) if (*of, *key) == (stream, place.key) => return true,
            Some((.., true)) => return false,
            _ => {}
        }
        // Another chunk with the same part of the stream is older, unless the catalogue lists it.
        let other = self.streams.get(&stream).and_then(|known| known.address_of(place.key));
        if let Some(other) = other {
            if owners.get(&other).is_none_or(|(.., catalogued)| *catalogued) {
                return false;
            }
            owners.remove(&other);
            self.disown_chunk(stream, place.key);
            self.file_space.free_chunk(other);
        }
        match owners.insert(place.address, (stream, place.key, false)) {
            Some((of, key, _)) => self.disown_chunk(of, key),
            None if !self.file_space.mark_used(place.address) => {
                owners.remove(&place.address);
                return false;
            }
            None => {}
        }
        let known = self.streams.entry(stream).or_default();
        known.claim_chunk(place.key, place.address);
        true
    }

    fn disown_chunk(&mut self, stream: StreamName, key: (u64, u32)) {
        let layout = self.layout;
        if let Some(known) = self.streams.get_mut(&stream) {
            known.disown_chunk(key, layout);
        }
    }
}

impl Stream {
    /// Returns the places of the bytes in `range`, or `None` unless all of them are known to be on
    /// stable storage.
    fn durable_places(&self, range: Range<u64>, layout: Layout) -> Option<Vec<StoredPlace>> {
        if self.held_ranges().first_missing(range.clone()).is_some() {
            return None;
        }
        let mut found = Vec::new();
        let mut at = range.start;
        while at < range.end {
            let part = at / layout.chunk_bytes_u64();
            let block = layout.block_in_chunk(at);
            let (key, chunk, span) = self.chunks_of_part(part).find_map(|(key, chunk)| {
                let span = chunk.spans_from(block).first()?;
                Some((*key, chunk, *span))
            })?;
            if !span.is_durable {
                return None;
            }
            at = self.positions(part, &span, layout).end;
            found.push(StoredPlace {
                key,
                address: chunk.address,
                from: span.from,
                end_block: span.end_block,
                checksum: span.checksum,
            });
        }
        Some(found)
    }

    /// Adds a span named by a record to its chunk, and removes its bytes from memory.
    fn claim_span(&mut self, key: (u64, u32), span: BlockSpan, layout: Layout) -> FreedBytes {
        let range = self.positions(key.0, &span, layout);
        let elsewhere = |(other, chunk): (&(u64, u32), &super::chunk::Chunk)| {
            *other != key && chunk.overlaps(span)
        };
        if range.is_empty() || self.chunks_of_part(key.0).any(elsewhere) {
            return FreedBytes::default();
        }
        let freed = self.take_from_memory(range.clone());
        self.mark_stored(range);
        self.chunk_of(key).expect("it was claimed").replace_overlapping(span);
        freed
    }
}
