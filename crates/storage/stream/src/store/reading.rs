//! Reads bytes from memory, or from the disk with verification of their checksums.
//!
//! A read returns only bytes that are stored together, so it may return fewer than requested; the
//! caller continues after them. A read of bytes whose write is in flight waits for that write.

use std::{
    collections::{BTreeMap, VecDeque},
    ops::Range,
};

use quorate_core::value::StreamName;
use quorate_log::disk::{BlockPool, Blocks, Buffer, Disk, DiskError};

use super::{
    ReadError, ReadsBusy, Store,
    chunk::BlockSpan,
    layout::ChunkAddress,
    stream::{ByteLocation, Stream},
};

/// Maximum number of started reads whose results have not been taken.
pub const READS_MAX: usize = 64;
/// Maximum number of disk reads in flight.
pub(super) const READS_IN_FLIGHT_MAX: usize = 4;
/// Maximum number of unused read buffers that are retained.
const SPARE_BUFFERS_MAX: usize = 2 * READS_IN_FLIGHT_MAX;

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReadDone {
    /// Token passed to [`Store::start_read`].
    pub token: u64,
    pub stream: StreamName,
    pub position: u64,
    /// The bytes: at least one, and never more than requested.
    pub result: Result<Blocks, ReadError>,
}

#[derive(Debug)]
pub(super) struct Reads {
    pool: BlockPool,
    waiting_reads: VecDeque<QueuedRead>,
    /// Disk reads in flight, by number.
    active: BTreeMap<u64, ReadInFlight>,
    finished: VecDeque<ReadDone>,
    next_number: u64,
}

#[derive(Clone, Copy, Debug)]
struct QueuedRead {
    token: u64,
    stream: StreamName,
    position: u64,
    bytes_max: usize,
}

#[derive(Debug)]
struct ReadInFlight {
    read: QueuedRead,
    part: u64,
    address: ChunkAddress,
    /// The spans being read, which are consecutive.
    reading_spans: Vec<BlockSpan>,
}

impl Reads {
    pub(super) fn new(chunk_bytes: u32) -> Self {
        Self {
            pool: BlockPool::new(chunk_bytes as usize, SPARE_BUFFERS_MAX),
            waiting_reads: VecDeque::new(),
            active: BTreeMap::new(),
            finished: VecDeque::new(),
            next_number: 0,
        }
    }

    fn finish_read(&mut self, read: QueuedRead, result: Result<Blocks, ReadError>) {
        self.finished.push_back(ReadDone {
            token: read.token,
            stream: read.stream,
            position: read.position,
            result,
        });
    }
}

impl Store {
    /// Starts a read at `position`, of at most `bytes_max` bytes and at most one chunk. Fails if
    /// [`READS_MAX`] reads have been started already.
    pub fn start_read<D: Disk>(
        &mut self,
        token: u64,
        stream: StreamName,
        position: u64,
        bytes_max: usize,
        disk: &mut D,
    ) -> Result<(), ReadsBusy> {
        let Reads { waiting_reads: waiting, active, finished: done, .. } = &mut self.reads;
        if waiting.len() + active.len() + done.len() >= READS_MAX {
            return Err(ReadsBusy);
        }
        waiting.push_back(QueuedRead {
            token,
            stream,
            position,
            bytes_max: bytes_max.clamp(1, self.layout.chunk_bytes as usize),
        });
        self.read(disk);
        Ok(())
    }

    pub fn has_finished_read(&self) -> bool {
        !self.reads.finished.is_empty()
    }

    /// Removes and returns the next completed read. Reads may complete in any order.
    pub fn next_read(&mut self) -> Option<ReadDone> {
        self.reads.finished.pop_front()
    }

    /// Completes reads from memory, and starts disk reads.
    pub(super) fn read<D: Disk>(&mut self, disk: &mut D) {
        for _ in 0..self.reads.waiting_reads.len() {
            let mut read = self.reads.waiting_reads.pop_front().expect("counted");
            let stream = self.streams.get(&read.stream);
            // The last block of a stream may contain more bytes than the store has.
            let held = stream.map_or(0, |stream| {
                stream.held_ranges().end_of_range_at(read.position) - read.position
            });
            let held = usize::try_from(held).unwrap_or(usize::MAX);
            read.bytes_max = read.bytes_max.min(held.max(1));
            let source = stream.map_or(ByteLocation::Missing, |stream| {
                stream.locate_byte(read.position, self.layout)
            });
            match source {
                ByteLocation::Missing => self.reads.finish_read(read, Err(ReadError::Missing)),
                ByteLocation::Memory(bytes) => {
                    let bytes = &bytes[..bytes.len().min(read.bytes_max)];
                    let copy = self.reads.pool.copy_bytes(bytes);
                    self.reads.finish_read(read, Ok(copy));
                }
                ByteLocation::Disk(address, spans)
                    if self.reads.active.len() < READS_IN_FLIGHT_MAX =>
                {
                    let block = self.layout.block_in_chunk(read.position);
                    let last =
                        read.position % self.layout.chunk_bytes_u64() + read.bytes_max as u64 - 1;
                    let end = last.min(self.layout.chunk_bytes_u64() - 1);
                    let end = self.layout.block_in_chunk(end);
                    let needed = spans.iter().take_while(|span| span.from <= end);
                    let spans: Vec<BlockSpan> = needed.copied().collect();
                    let from = spans.first().expect("it begins there").from;
                    assert!(from <= block, "it begins there");
                    let bytes = spans.iter().map(BlockSpan::bytes).sum();
                    let number = self.reads.next_number;
                    self.reads.next_number += 1;
                    let place = self.layout.file_position(address, from);
                    let part = read.position / self.layout.chunk_bytes_u64();
                    let active = ReadInFlight { read, part, address, reading_spans: spans };
                    self.reads.active.insert(number, active);
                    disk.start_read(number, place, self.reads.pool.buffer_for_read(bytes), bytes);
                }
                ByteLocation::Disk(..) | ByteLocation::Pending => {
                    self.reads.waiting_reads.push_back(read)
                }
            }
        }
    }

    pub(super) fn on_disk_read(
        &mut self,
        number: u64,
        buffer: Buffer,
        result: Result<(), DiskError>,
    ) {
        let Some(active) = self.reads.active.remove(&number) else {
            return;
        };
        let read = active.read;
        let stream = self.streams.get(&read.stream);
        let held = stream.filter(|stream| stream.held_ranges().contains(read.position));
        let Some(stream) = held else {
            return self.reads.finish_read(read, Err(ReadError::Missing));
        };
        let first = *active.reading_spans.first().expect("one at least");
        let place = self.layout.file_position(active.address, first.from);
        let damaged = match result {
            Ok(()) => match self.verified_part(&active, &buffer) {
                Some(wanted) => {
                    let bytes = active.reading_spans.iter().map(BlockSpan::bytes).sum();
                    let read_bytes = self.reads.pool.blocks_from_read(buffer, bytes, wanted);
                    return self.reads.finish_read(read, Ok(read_bytes));
                }
                None => format!("{place}: a checksum does not match"),
            },
            Err(error) if error.exhausted.is_some() => {
                return self.reads.finish_read(read, Err(ReadError::RetryLater(error)));
            }
            Err(error) => error.to_string(),
        };
        if !stream.chunk_covers(active.part, active.address, first) {
            // The bytes were moved while the read was in flight, so it is repeated.
            self.reads.waiting_reads.push_back(read);
            return;
        }
        let range = self.positions_sharing_checksum(stream, &active);
        let stream = read.stream;
        let rotten = ReadError::Corrupt { stream, range, reason: damaged };
        self.reads.finish_read(read, Err(rotten));
    }

    /// Returns the part of the buffer with the requested bytes, up to the first wrong checksum.
    fn verified_part(&self, active: &ReadInFlight, buffer: &Buffer) -> Option<Range<usize>> {
        let mut sound = 0;
        for span in &active.reading_spans {
            let bytes = &buffer[sound..sound + span.bytes()];
            if crc32c::crc32c(bytes) != span.checksum {
                break;
            }
            sound += bytes.len();
        }
        let first = active.reading_spans.first()?.from;
        let start = self.layout.file_position(active.address, first).offset;
        let chunk = self.layout.file_position(active.address, 0).offset;
        let skipped = active.read.position % self.layout.chunk_bytes_u64() - (start - chunk);
        let skipped = usize::try_from(skipped).expect("within a chunk");
        let end = sound.min(skipped + active.read.bytes_max);
        (skipped < end).then_some(skipped..end)
    }

    /// Returns all positions that share a checksum with the first requested byte.
    fn positions_sharing_checksum(&self, stream: &Stream, active: &ReadInFlight) -> Range<u64> {
        let first = active.reading_spans.first().expect("one at least");
        stream.positions(active.part, first, self.layout)
    }
}
