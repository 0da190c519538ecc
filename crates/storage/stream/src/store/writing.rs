//! Writes whole blocks to the disk: each waits for a chunk, is assigned a place in it, and is
//! written.

use std::{
    collections::{BTreeMap, BTreeSet, VecDeque},
    ops::Range,
};

use quorate_core::value::StreamName;
use quorate_log::disk::{BLOCK, Buffer, Disk, DiskError, Durability, Output};
use quorate_log::patience::Backoff;

use super::{
    Store,
    chunk::BlockSpan,
    layout::{ChunkAddress, Layout, RETRY_SKIPS_MAX},
    spares::CutBlocks,
    stream::Stream,
};

/// Maximum number of stream writes in flight.
pub(super) const WRITES_MAX: usize = 16;
/// Maximum number of writes in flight that neither a reader nor a caller waits for.
const BACKGROUND_WRITES_MAX: usize = 4;

#[derive(Debug, Default)]
pub(super) struct Writes {
    /// Cuts without a chunk, in the order in which they get one. Some may no longer be needed.
    waiting_cuts: VecDeque<(StreamName, u64, u64)>,
    waiting_bytes: usize,
    /// Streams with gathered whole blocks.
    gathering_streams: BTreeSet<StreamName>,
    gathered_bytes: usize,
    /// Writes that have a place and have not begun. They are carried out even if no longer needed,
    /// because a catalogue in progress may list them.
    placed_writes: VecDeque<(Write, Output)>,
    /// Writes that have a place and have not begun, and that a reader or caller waits for.
    urgent_writes: VecDeque<(Write, Output)>,
    /// All writes that have a place and have not completed, by number.
    placed_uncompleted: BTreeMap<u64, Write>,
    placed_uncompleted_bytes: usize,
    in_flight: usize,
    /// Number of writes in flight that neither a reader nor a caller waits for.
    background_in_flight: usize,
    /// Number of the next write. Writes are numbered in the order in which they get places.
    next_number: u64,
    /// Placed bytes that are on stable storage and have not been reported to the caller.
    unreported_placed: VecDeque<(StreamName, Range<u64>)>,
    /// Files with completed writes that have not been flushed since.
    unflushed_files: BTreeSet<u64>,
    backoff: Backoff,
    shortage: Option<String>,
}

#[derive(Clone, Copy, Debug)]
struct Write {
    number: u64,
    stream: StreamName,
    part: u64,
    address: ChunkAddress,
    from: u16,
    bytes: usize,
    durability: Durability,
}

impl Write {
    /// Returns the blocks that the write covers in each unit.
    fn unit_blocks(self, layout: Layout) -> impl Iterator<Item = Range<u16>> {
        let blocks = u16::try_from(self.bytes / BLOCK).expect("of a chunk");
        let (unit, to) = (layout.blocks_per_unit(), self.from + blocks);
        let mut from = self.from;
        std::iter::from_fn(move || {
            let end = ((from / unit + 1) * unit).min(to);
            let blocks = from..end;
            from = end;
            (!blocks.is_empty()).then_some(blocks)
        })
    }
}

impl Writes {
    /// Queues a cut that waits for a chunk.
    pub(super) fn queue_cut(&mut self, stream: StreamName, position: u64, cut: &CutBlocks) {
        self.waiting_cuts.push_back((stream, position, cut.id));
        self.waiting_bytes += cut.bytes;
    }

    /// Returns whether any bytes wait for a chunk or to be written.
    pub(super) fn is_waiting(&self) -> bool {
        !self.waiting_cuts.is_empty()
            || !self.placed_writes.is_empty()
            || !self.urgent_writes.is_empty()
    }

    /// Returns whether any bytes wait for a chunk.
    pub(super) fn has_waiting_cuts(&self) -> bool {
        !self.waiting_cuts.is_empty()
    }

    /// Returns the next placed bytes that have reached stable storage.
    pub(super) fn next_durable_placed(&mut self) -> Option<(StreamName, Range<u64>)> {
        self.unreported_placed.pop_front()
    }

    /// Subtracts waiting bytes that are no longer needed from the total.
    pub(super) fn subtract_waiting(&mut self, bytes: usize) {
        self.waiting_bytes -= bytes;
    }

    /// Updates the total after the gathered whole blocks of a stream changed from `before` to
    /// `after` bytes.
    pub(super) fn update_gathered(&mut self, stream: StreamName, before: usize, after: usize) {
        self.gathered_bytes = self.gathered_bytes - before + after;
        if after > 0 && before == 0 {
            self.gathering_streams.insert(stream);
        } else if after == 0 && before > 0 {
            self.gathering_streams.remove(&stream);
        }
    }

    pub(super) fn gathered_bytes(&self) -> usize {
        self.gathered_bytes
    }

    /// Returns the total size of the whole blocks in memory, in bytes.
    pub(super) fn dirty_bytes(&self) -> usize {
        self.gathered_bytes + self.waiting_bytes + self.placed_uncompleted_bytes
    }

    pub(super) fn next_number(&self) -> u64 {
        self.next_number
    }

    /// Returns whether all writes with numbers below `number` have completed.
    pub(super) fn all_completed_below(&self, number: u64) -> bool {
        let first = self.placed_uncompleted.first_key_value();
        first.is_none_or(|(first, _)| *first >= number)
    }

    /// Removes and returns the files with completed writes that must be flushed.
    pub(super) fn take_unflushed(&mut self) -> BTreeSet<u64> {
        std::mem::take(&mut self.unflushed_files)
    }

    /// Returns the queue to take the next write from. Urgent writes come first. Other writes begin
    /// only while few of them are in flight.
    fn next_queue(&mut self) -> Option<&mut VecDeque<(Write, Output)>> {
        if self.in_flight >= WRITES_MAX {
            return None;
        }
        let others =
            self.background_in_flight < BACKGROUND_WRITES_MAX && !self.placed_writes.is_empty();
        match self.urgent_writes.is_empty() {
            false => Some(&mut self.urgent_writes),
            true => others.then_some(&mut self.placed_writes),
        }
    }

    /// Describes the lack of resources that keeps waiting writes from beginning.
    pub(super) fn shortage(&self) -> Option<&str> {
        self.shortage.as_deref()
    }
}

impl Store {
    /// Cuts gathered blocks, stream by stream, until at most `left` bytes remain gathered.
    pub(super) fn cut_gathered(&mut self, left: usize) {
        while self.writes.gathered_bytes > left
            && let Some(name) = self.writes.gathering_streams.pop_first()
        {
            let stream = self.streams.get_mut(&name).expect("it is gathered for");
            let before = stream.gathered_bytes();
            let mut cuts = Vec::new();
            stream
                .cut_all_blocks(&mut self.unit_buffers, |position, cut| cuts.push((position, cut)));
            for (position, cut) in cuts {
                self.writes.queue_cut(name, position, &cut);
                stream.queue_blocks(position, cut);
            }
            self.writes.update_gathered(name, before, stream.gathered_bytes());
        }
    }

    /// Assigns places as long as chunks are free, and begins writes.
    pub(super) fn assign_and_write<D: Disk>(&mut self, disk: &mut D) {
        self.assign_places();
        if self.writes.next_queue().is_none() {
            return;
        }
        if self.writes.shortage.is_some() && !self.writes.backoff.try_or_skip() {
            return;
        }
        while let Some((write, _)) = self.writes.next_queue().and_then(|queue| queue.front()) {
            if let Err(error) = disk.open_next_file(write.address.file_id()) {
                return self.on_open_failure(&error);
            }
            let writes = &mut self.writes;
            let queue = writes.next_queue().expect("just looked at");
            let (write, output) = queue.pop_front().expect("just looked at");
            writes.in_flight += 1;
            writes.background_in_flight += usize::from(write.durability == Durability::AfterFlush);
            writes.shortage = None;
            writes.backoff.record_success();
            let place = self.layout.file_position(write.address, write.from);
            disk.start_write(write.number, place, output, write.bytes, write.durability);
        }
    }

    /// Handles a file that could not be opened. If the cause is a lack of resources, the write is
    /// retried later.
    fn on_open_failure(&mut self, error: &DiskError) {
        if error.exhausted.is_none() {
            return self.fail(error);
        }
        self.writes.backoff.record_failure(RETRY_SKIPS_MAX);
        self.writes.shortage = Some(error.to_string());
    }

    /// Assigns places as long as chunks are free.
    pub(super) fn assign_places(&mut self) {
        while let Some((name, position, id)) = self.writes.waiting_cuts.front().copied() {
            let waits = |stream: &&mut Stream| stream.has_cut(position, id);
            if self.streams.get_mut(&name).filter(waits).is_some() {
                let part = position / self.layout.chunk_bytes_u64();
                let Some(address) = self.chunk_for(name, part) else {
                    return;
                };
                self.assign_place(name, position, id, address);
            }
            self.writes.waiting_cuts.pop_front();
        }
    }

    /// Returns the chunk for a part of a known stream, allocating one if needed; `None` if no chunk
    /// is free.
    pub(super) fn chunk_for(&mut self, stream: StreamName, part: u64) -> Option<ChunkAddress> {
        let stream = self.streams.get_mut(&stream).expect("it is known");
        if let Some(chunk) = stream.accepting_chunk(part) {
            return Some(chunk.address);
        }
        let address = self.file_space.allocate_chunk()?;
        Some(stream.add_chunk(part, address).address)
    }

    fn assign_place(&mut self, name: StreamName, position: u64, id: u64, address: ChunkAddress) {
        let stream = self.streams.get_mut(&name).expect("it waits");
        let CutBlocks { buffer, bytes, .. } = stream.take_cut(position, id).expect("it waits");
        self.writes.waiting_bytes -= bytes;
        let check = crc32c::crc32c(&buffer[..bytes]);
        let cut = (buffer.into(), bytes);
        self.queue_write(name, position, cut, |_| check, address, Durability::AfterFlush);
    }

    /// Queues a write of part of a unit, or of whole units. `check` returns the CRC-32C of a unit,
    /// given its index within the write.
    pub(super) fn queue_write(
        &mut self,
        name: StreamName,
        position: u64,
        (output, bytes): (Output, usize),
        check: impl Fn(usize) -> u32,
        address: ChunkAddress,
        durability: Durability,
    ) {
        let layout = self.layout;
        let writes = &mut self.writes;
        let write = Write {
            number: writes.next_number,
            stream: name,
            part: position / layout.chunk_bytes_u64(),
            address,
            from: layout.block_in_chunk(position),
            bytes,
            durability,
        };
        let stream = self.streams.get_mut(&name).expect("it is known");
        let chunk = stream.chunk_at(write.part, address).expect("it was given");
        for (number, blocks) in write.unit_blocks(layout).enumerate() {
            let span = BlockSpan {
                from: blocks.start,
                end_block: blocks.end,
                checksum: check(number),
                is_pending: true,
                is_durable: durability == Durability::Flushed,
            };
            assert!(chunk.add_if_free(span), "a block is written once, at {position}");
        }
        writes.next_number += 1;
        writes.placed_uncompleted_bytes += bytes;
        writes.placed_uncompleted.insert(write.number, write);
        match durability {
            Durability::Flushed => writes.urgent_writes.push_back((write, output)),
            Durability::AfterFlush => writes.placed_writes.push_back((write, output)),
        }
    }

    pub(super) fn on_write_completed(
        &mut self,
        number: u64,
        output: Output,
        result: Result<(), DiskError>,
    ) {
        let Some(write) = self.writes.placed_uncompleted.remove(&number) else {
            return;
        };
        self.writes.in_flight -= 1;
        self.writes.background_in_flight -= usize::from(write.durability == Durability::AfterFlush);
        self.writes.placed_uncompleted_bytes -= write.bytes;
        if let Err(error) = result {
            self.return_to_memory(write, output);
            return self.fail(&error);
        }
        if write.durability == Durability::AfterFlush {
            self.writes.unflushed_files.insert(write.address.file);
        }
        if let Some(buffer) = output.into_buffer() {
            self.unit_buffers.return_buffer(buffer);
        }
        let stream = self.streams.get_mut(&write.stream);
        let chunk = stream.and_then(|stream| stream.chunk_at(write.part, write.address));
        if let Some(chunk) = chunk {
            for blocks in write.unit_blocks(self.layout) {
                chunk.mark_written(blocks.start, self.layout.blocks_per_unit());
            }
            if write.durability == Durability::Flushed {
                let from = write.part * self.layout.chunk_bytes_u64()
                    + u64::from(write.from) * BLOCK as u64;
                let range = from..from + write.bytes as u64;
                self.writes.unreported_placed.push_back((write.stream, range));
            }
        }
    }

    /// Returns the bytes of a failed write to memory, where they can be read.
    fn return_to_memory(&mut self, write: Write, output: Output) {
        let Some(stream) = self.streams.get_mut(&write.stream) else {
            return;
        };
        let mut at = 0;
        for blocks in write.unit_blocks(self.layout) {
            let bytes = usize::from(blocks.end - blocks.start) * BLOCK;
            let mut buffer = Buffer::new(bytes);
            buffer.copy_from_slice(&output[at..at + bytes]);
            at += bytes;
            let id = 0;
            let cut = CutBlocks { id, buffer, bytes };
            if stream.return_to_memory(write.part, write.address, blocks.start, cut, self.layout) {
                self.writes.waiting_bytes += bytes;
            }
        }
    }

    /// Cancels all writes that have not begun, after a failure. Their bytes remain in memory only.
    pub(super) fn cancel_writes(&mut self) {
        let hurried = std::mem::take(&mut self.writes.urgent_writes);
        for (write, output) in
            hurried.into_iter().chain(std::mem::take(&mut self.writes.placed_writes))
        {
            self.writes.placed_uncompleted.remove(&write.number);
            self.writes.placed_uncompleted_bytes -= write.bytes;
            self.return_to_memory(write, output);
        }
    }
}
