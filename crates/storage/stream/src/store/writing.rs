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
    chunk::Span,
    layout::{Address, Layout, SKIPS_MAX},
    spares::WaitingBlocks,
    stream::Stream,
};

/// Maximum number of stream writes in flight.
pub(super) const WRITES_MAX: usize = 16;
/// Maximum number of writes in flight that neither a reader nor a caller waits for.
const LATER_MAX: usize = 4;

#[derive(Debug, Default)]
pub(super) struct Writes {
    /// Cuts without a chunk, in the order in which they get one. Some may no longer be needed.
    waiting_cuts: VecDeque<(StreamName, u64, u64)>,
    waiting_bytes: usize,
    /// Streams with gathered whole blocks.
    gathering: BTreeSet<StreamName>,
    gathered_bytes: usize,
    /// Writes that have a place and have not begun. They are carried out even if no longer needed,
    /// because a catalogue in progress may list them.
    placed_writes: VecDeque<(Write, Output)>,
    /// Writes that have a place and have not begun, and that a reader or caller waits for.
    hurried: VecDeque<(Write, Output)>,
    /// All writes that have a place and have not completed, by number.
    outstanding: BTreeMap<u64, Write>,
    outstanding_bytes: usize,
    in_flight: usize,
    /// Number of writes in flight that neither a reader nor a caller waits for.
    later: usize,
    /// Number of the next write. Writes are numbered in the order in which they get places.
    next_number: u64,
    /// Placed bytes that are on stable storage and have not been reported to the caller.
    unreported: VecDeque<(StreamName, Range<u64>)>,
    /// Files with completed writes that have not been flushed since.
    unflushed: BTreeSet<u64>,
    patience: Backoff,
    short: Option<String>,
}

#[derive(Clone, Copy, Debug)]
struct Write {
    number: u64,
    stream: StreamName,
    part: u64,
    address: Address,
    from: u16,
    bytes: usize,
    durability: Durability,
}

impl Write {
    /// Returns the blocks that the write covers in each unit.
    fn units(self, layout: Layout) -> impl Iterator<Item = Range<u16>> {
        let blocks = u16::try_from(self.bytes / BLOCK).expect("of a chunk");
        let (unit, to) = (layout.unit_blocks(), self.from + blocks);
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
    pub(super) fn queue(&mut self, stream: StreamName, position: u64, cut: &WaitingBlocks) {
        self.waiting_cuts.push_back((stream, position, cut.id));
        self.waiting_bytes += cut.bytes;
    }

    /// Returns whether any bytes wait for a chunk or to be written.
    pub(super) fn is_waiting(&self) -> bool {
        !self.waiting_cuts.is_empty() || !self.placed_writes.is_empty() || !self.hurried.is_empty()
    }

    /// Returns whether any bytes wait for a chunk.
    pub(super) fn waits_for_place(&self) -> bool {
        !self.waiting_cuts.is_empty()
    }

    /// Returns the next placed bytes that have reached stable storage.
    pub(super) fn placed_now(&mut self) -> Option<(StreamName, Range<u64>)> {
        self.unreported.pop_front()
    }

    /// Subtracts waiting bytes that are no longer needed from the total.
    pub(super) fn cancelled(&mut self, bytes: usize) {
        self.waiting_bytes -= bytes;
    }

    /// Updates the total after the gathered whole blocks of a stream changed from `before` to
    /// `after` bytes.
    pub(super) fn gathered(&mut self, stream: StreamName, before: usize, after: usize) {
        self.gathered_bytes = self.gathered_bytes - before + after;
        if after > 0 && before == 0 {
            self.gathering.insert(stream);
        } else if after == 0 && before > 0 {
            self.gathering.remove(&stream);
        }
    }

    pub(super) fn gathered_bytes(&self) -> usize {
        self.gathered_bytes
    }

    /// Returns the total size of the whole blocks in memory, in bytes.
    pub(super) fn dirty_bytes(&self) -> usize {
        self.gathered_bytes + self.waiting_bytes + self.outstanding_bytes
    }

    pub(super) fn next_number(&self) -> u64 {
        self.next_number
    }

    /// Returns whether all writes with numbers below `number` have completed.
    pub(super) fn are_done_below(&self, number: u64) -> bool {
        let first = self.outstanding.first_key_value();
        first.is_none_or(|(first, _)| *first >= number)
    }

    /// Removes and returns the files with completed writes that must be flushed.
    pub(super) fn take_unflushed(&mut self) -> BTreeSet<u64> {
        std::mem::take(&mut self.unflushed)
    }

    /// Returns the queue to take the next write from. Urgent writes come first. Other writes begin
    /// only while few of them are in flight.
    fn next_queue(&mut self) -> Option<&mut VecDeque<(Write, Output)>> {
        if self.in_flight >= WRITES_MAX {
            return None;
        }
        let others = self.later < LATER_MAX && !self.placed_writes.is_empty();
        match self.hurried.is_empty() {
            false => Some(&mut self.hurried),
            true => others.then_some(&mut self.placed_writes),
        }
    }

    /// Describes the lack of resources that keeps waiting writes from beginning.
    pub(super) fn short(&self) -> Option<&str> {
        self.short.as_deref()
    }
}

impl Store {
    /// Cuts gathered blocks, stream by stream, until at most `left` bytes remain gathered.
    pub(super) fn cut_gathered(&mut self, left: usize) {
        while self.writes.gathered_bytes > left
            && let Some(name) = self.writes.gathering.pop_first()
        {
            let stream = self.streams.get_mut(&name).expect("it is gathered for");
            let before = stream.gathered();
            let mut cuts = Vec::new();
            stream.cut_all(&mut self.spares, |position, cut| cuts.push((position, cut)));
            for (position, cut) in cuts {
                self.writes.queue(name, position, &cut);
                stream.queue_blocks(position, cut);
            }
            self.writes.gathered(name, before, stream.gathered());
        }
    }

    /// Assigns places as long as chunks are free, and begins writes.
    pub(super) fn write<D: Disk>(&mut self, disk: &mut D) {
        self.place_all();
        if self.writes.next_queue().is_none() {
            return;
        }
        if self.writes.short.is_some() && !self.writes.patience.may_try() {
            return;
        }
        while let Some((write, _)) = self.writes.next_queue().and_then(|queue| queue.front()) {
            if let Err(error) = disk.open_ahead(write.address.file_id()) {
                return self.not_opened(&error);
            }
            let writes = &mut self.writes;
            let queue = writes.next_queue().expect("just looked at");
            let (write, output) = queue.pop_front().expect("just looked at");
            writes.in_flight += 1;
            writes.later += usize::from(write.durability == Durability::Later);
            writes.short = None;
            writes.patience.succeeded();
            let place = self.layout.place(write.address, write.from);
            disk.start_write(write.number, place, output, write.bytes, write.durability);
        }
    }

    /// Handles a file that could not be opened. If the cause is a lack of resources, the write is
    /// retried later.
    fn not_opened(&mut self, error: &DiskError) {
        if error.lack.is_none() {
            return self.fail(error);
        }
        self.writes.patience.failed(SKIPS_MAX);
        self.writes.short = Some(error.to_string());
    }

    /// Assigns places as long as chunks are free.
    pub(super) fn place_all(&mut self) {
        while let Some((name, position, id)) = self.writes.waiting_cuts.front().copied() {
            let waits = |stream: &&mut Stream| stream.has_cut(position, id);
            if self.streams.get_mut(&name).filter(waits).is_some() {
                let part = position / self.layout.chunk();
                let Some(address) = self.chunk_for(name, part) else {
                    return;
                };
                self.place_at(name, position, id, address);
            }
            self.writes.waiting_cuts.pop_front();
        }
    }

    /// Returns the chunk for a part of a known stream, allocating one if needed; `None` if no chunk
    /// is free.
    pub(super) fn chunk_for(&mut self, stream: StreamName, part: u64) -> Option<Address> {
        let stream = self.streams.get_mut(&stream).expect("it is known");
        if let Some(chunk) = stream.open_chunk(part) {
            return Some(chunk.address);
        }
        let address = self.space.allocate_chunk()?;
        Some(stream.add_chunk(part, address).address)
    }

    fn place_at(&mut self, name: StreamName, position: u64, id: u64, address: Address) {
        let stream = self.streams.get_mut(&name).expect("it waits");
        let WaitingBlocks { buffer, bytes, .. } = stream.take_cut(position, id).expect("it waits");
        self.writes.waiting_bytes -= bytes;
        let check = crc32c::crc32c(&buffer[..bytes]);
        let cut = (buffer.into(), bytes);
        self.queue_write(name, position, cut, |_| check, address, Durability::Later);
    }

    /// Queues a write of part of a unit, or of whole units. `check` returns the CRC-32C of a unit,
    /// given its index within the write.
    pub(super) fn queue_write(
        &mut self,
        name: StreamName,
        position: u64,
        (output, bytes): (Output, usize),
        check: impl Fn(usize) -> u32,
        address: Address,
        durability: Durability,
    ) {
        let layout = self.layout;
        let writes = &mut self.writes;
        let write = Write {
            number: writes.next_number,
            stream: name,
            part: position / layout.chunk(),
            address,
            from: layout.block_of(position),
            bytes,
            durability,
        };
        let stream = self.streams.get_mut(&name).expect("it is known");
        let chunk = stream.chunk_at(write.part, address).expect("it was given");
        for (number, blocks) in write.units(layout).enumerate() {
            let span = Span {
                from: blocks.start,
                to: blocks.end,
                checksum: check(number),
                pending: true,
                durable: durability == Durability::Flushed,
            };
            assert!(chunk.add(span), "a block is written once, at {position}");
        }
        writes.next_number += 1;
        writes.outstanding_bytes += bytes;
        writes.outstanding.insert(write.number, write);
        match durability {
            Durability::Flushed => writes.hurried.push_back((write, output)),
            Durability::Later => writes.placed_writes.push_back((write, output)),
        }
    }

    pub(super) fn written(&mut self, number: u64, output: Output, result: Result<(), DiskError>) {
        let Some(write) = self.writes.outstanding.remove(&number) else {
            return;
        };
        self.writes.in_flight -= 1;
        self.writes.later -= usize::from(write.durability == Durability::Later);
        self.writes.outstanding_bytes -= write.bytes;
        if let Err(error) = result {
            self.take_back(write, output);
            return self.fail(&error);
        }
        if write.durability == Durability::Later {
            self.writes.unflushed.insert(write.address.file);
        }
        if let Some(buffer) = output.into_buffer() {
            self.spares.return_buffer(buffer);
        }
        let stream = self.streams.get_mut(&write.stream);
        let chunk = stream.and_then(|stream| stream.chunk_at(write.part, write.address));
        if let Some(chunk) = chunk {
            for blocks in write.units(self.layout) {
                chunk.mark_written(blocks.start, self.layout.unit_blocks());
            }
            if write.durability == Durability::Flushed {
                let from = write.part * self.layout.chunk() + u64::from(write.from) * BLOCK as u64;
                let range = from..from + write.bytes as u64;
                self.writes.unreported.push_back((write.stream, range));
            }
        }
    }

    /// Returns the bytes of a failed write to memory, where they can be read.
    fn take_back(&mut self, write: Write, output: Output) {
        let Some(stream) = self.streams.get_mut(&write.stream) else {
            return;
        };
        let mut at = 0;
        for blocks in write.units(self.layout) {
            let bytes = usize::from(blocks.end - blocks.start) * BLOCK;
            let mut buffer = Buffer::new(bytes);
            buffer.copy_from_slice(&output[at..at + bytes]);
            at += bytes;
            let id = 0;
            let cut = WaitingBlocks { id, buffer, bytes };
            if stream.take_back(write.part, write.address, blocks.start, cut, self.layout) {
                self.writes.waiting_bytes += bytes;
            }
        }
    }

    /// Cancels all writes that have not begun, after a failure. Their bytes remain in memory only.
    pub(super) fn cancel_writes(&mut self) {
        let hurried = std::mem::take(&mut self.writes.hurried);
        for (write, output) in
            hurried.into_iter().chain(std::mem::take(&mut self.writes.placed_writes))
        {
            self.writes.outstanding.remove(&write.number);
            self.writes.outstanding_bytes -= write.bytes;
            self.take_back(write, output);
        }
    }
}
