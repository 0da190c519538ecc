//! Writer of the log: gathers records into log writes, numbers and chains them, and releases them
//! in order.

use std::collections::VecDeque;

use crate::disk::{BLOCK, Buffer, Disk, Durability};
use quorate_core::{
    node_id::Incarnation,
    record::{HardState, Record, RecordSeq},
};

use crate::{
    base::Anchor,
    holdings::Holdings,
    index::{Index, Runs, Span},
    log_write::{self, HEADER_BYTES, Header, Owner},
    mutant::{Mutant, planted},
    place::{Place, SegmentFile},
    record,
};

/// A log write that is being filled or waits to be submitted.
#[derive(Debug)]
pub(crate) struct FillingWrite {
    pub(crate) buffer: Buffer,
    /// Number of bytes in use, including room for the header.
    used_bytes: usize,
    pub(crate) records: u32,
    /// Last record in the log write.
    pub(crate) last_record: RecordSeq,
    /// Hard state after the last record.
    pub(crate) hard_state: HardState,
    pub(crate) runs: Runs,
}

impl FillingWrite {
    /// Returns the size of the log write on disk, in bytes.
    pub(crate) fn length(&self) -> usize {
        self.used_bytes.next_multiple_of(BLOCK)
    }

    /// Returns the total size of the records, in bytes.
    pub(crate) fn body(&self) -> usize {
        self.used_bytes - HEADER_BYTES
    }

    /// Returns the bytes to write, padded with zeros to whole blocks.
    pub(crate) fn blocks(&mut self) -> &mut [u8] {
        let length = self.length();
        self.buffer[self.used_bytes..length].fill(0);
        &mut self.buffer[..length]
    }
}

/// Queue of log writes that are not submitted yet.
#[derive(Debug)]
pub(crate) struct WriteQueue {
    write_bytes_max: usize,
    spare_buffers_max: usize,
    queued_writes: VecDeque<FillingWrite>,
    open: Option<FillingWrite>,
    spare_buffers: Vec<Buffer>,
    bytes: usize,
    encode_buffer: Vec<u8>,
}

impl WriteQueue {
    /// Creates a queue of log writes of at most `write_bytes` bytes. Retains up to `spare_max`
    /// buffers for reuse.
    pub(crate) fn new(write_bytes: usize, spare_max: usize) -> Self {
        Self {
            write_bytes_max: write_bytes,
            spare_buffers_max: spare_max,
            queued_writes: VecDeque::new(),
            open: None,
            spare_buffers: Vec::new(),
            bytes: 0,
            encode_buffer: Vec::with_capacity(record::RECORD_HEAD_BYTES_MAX),
        }
    }

    /// Appends a record. The log has checked that it fits into a log write.
    pub(crate) fn append<D: Disk>(
        &mut self,
        disk: &mut D,
        seq: RecordSeq,
        record: &Record,
        (bytes, placed): (&[u8], bool),
        hard: HardState,
    ) {
        self.encode_buffer.clear();
        let length = u32::try_from(bytes.len()).expect("bounded by WRITE_BYTES_MAX");
        record::encode(record, placed, length, &mut self.encode_buffer);
        let need = self.encode_buffer.len() + bytes.len();
        if self.open.as_ref().is_some_and(|open| open.used_bytes + need > open.buffer.len()) {
            self.queued_writes.extend(self.open.take());
        }
        let mut open = match self.open.take() {
            Some(open) => open,
            None => self.begin_write(disk, need),
        };
        let head = open.used_bytes + self.encode_buffer.len();
        open.buffer[open.used_bytes..head].copy_from_slice(&self.encode_buffer);
        open.buffer[head..head + bytes.len()].copy_from_slice(bytes);
        open.used_bytes += need;
        open.records += 1;
        (open.last_record, open.hard_state) = (seq, hard);
        if let Record::Vote { range, .. } | Record::Decided { range, .. } = record {
            open.runs.push(*range);
        }
        self.bytes += need;
        self.open = Some(open);
    }

    /// Restates the hard state, in the log write being filled if there is one, otherwise in a log
    /// write without records.
    pub(crate) fn restate_hard_state<D: Disk>(
        &mut self,
        disk: &mut D,
        last: RecordSeq,
        hard: HardState,
    ) {
        let mut open = match self.open.take() {
            Some(open) => open,
            None => self.begin_write(disk, 0),
        };
        (open.last_record, open.hard_state) = (last.max(open.last_record), hard);
        self.open = Some(open);
    }

    fn begin_write<D: Disk>(&mut self, disk: &mut D, need: usize) -> FillingWrite {
        let bytes = (HEADER_BYTES + need).max(self.write_bytes_max);
        let spare = if bytes == self.write_bytes_max { self.spare_buffers.pop() } else { None };
        let buffer = spare.unwrap_or_else(|| disk.allocate(bytes));
        let (last, hard) = (RecordSeq(0), HardState::default());
        self.bytes += HEADER_BYTES;
        FillingWrite {
            buffer,
            used_bytes: HEADER_BYTES,
            records: 0,
            last_record: last,
            hard_state: hard,
            runs: Runs::default(),
        }
    }

    /// Returns the size on disk of the next log write, or `None` if the queue is empty.
    pub(crate) fn next_write_bytes(&self) -> Option<usize> {
        self.queued_writes.front().or(self.open.as_ref()).map(FillingWrite::length)
    }

    pub(crate) fn take_write(&mut self) -> Option<FillingWrite> {
        let next = self.queued_writes.pop_front().or_else(|| self.open.take())?;
        self.bytes -= next.used_bytes;
        Some(next)
    }

    /// Retains the buffer of a completed log write for reuse, or releases it.
    pub(crate) fn reuse_buffer<D: Disk>(&mut self, disk: &mut D, buffer: Buffer) {
        if buffer.len() == self.write_bytes_max && self.spare_buffers.len() < self.spare_buffers_max
        {
            self.spare_buffers.push(buffer);
        } else {
            disk.release(buffer);
        }
    }

    pub(crate) fn bytes(&self) -> usize {
        self.bytes
    }
}

#[derive(Debug)]
pub(crate) struct Writer {
    owner: Owner,
    pub(crate) incarnation: Incarnation,
    next_seq: u64,
    previous_checksum: u32,
    /// Number of the last log write that, with all before it, is complete.
    complete_to: u64,
    current_segment: Option<CurrentSegment>,
    in_flight: VecDeque<InFlight>,
    bytes_in_flight: usize,
    persisted_to: RecordSeq,
}

#[derive(Clone, Copy, Debug)]
struct CurrentSegment {
    file: SegmentFile,
    first_seq: u64,
    offset: u64,
}

#[derive(Debug)]
struct InFlight {
    seq: u64,
    last_record: RecordSeq,
    span: Span,
    runs: Runs,
    is_done: bool,
}

impl Writer {
    /// Creates a writer that continues after log write `next_seq - 1`, whose checksum is
    /// `previous`. `tail` is the segment to continue, if any: the file, the number of its first log
    /// write, and the offset to continue at.
    pub(crate) fn new(
        owner: Owner,
        incarnation: Incarnation,
        next_seq: u64,
        previous: u32,
        tail: Option<(SegmentFile, u64, u64)>,
    ) -> Self {
        let current = |(file, first_seq, offset)| CurrentSegment { file, first_seq, offset };
        Self {
            owner,
            incarnation,
            next_seq,
            previous_checksum: previous,
            complete_to: next_seq - 1,
            current_segment: tail.map(current),
            in_flight: VecDeque::new(),
            bytes_in_flight: 0,
            persisted_to: RecordSeq(0),
        }
    }

    pub(crate) fn owner(&self) -> Owner {
        self.owner
    }

    pub(crate) fn in_flight(&self) -> usize {
        self.in_flight.len()
    }

    pub(crate) fn bytes_in_flight(&self) -> usize {
        self.bytes_in_flight
    }

    pub(crate) fn persisted_to(&self) -> RecordSeq {
        self.persisted_to
    }

    pub(crate) fn next_seq(&self) -> u64 {
        self.next_seq
    }

    pub(crate) fn next_write_place(&self) -> Option<Place> {
        let place = |at: CurrentSegment| Place { segment: at.file.segment, offset: at.offset };
        self.current_segment.map(place)
    }

    /// Returns the number and size of each log write in flight.
    pub(crate) fn writes_in_flight(&self) -> impl Iterator<Item = (u64, u64)> {
        let in_flight = self.in_flight.iter();
        in_flight.map(|write| (write.seq, write.span.bytes))
    }

    /// Returns whether the current segment has room for a log write of `length` bytes.
    pub(crate) fn has_room(&self, length: usize) -> bool {
        self.current_segment.is_some_and(|at| at.offset + length as u64 <= at.file.bytes)
    }

    /// Returns the number of bytes used in the current segment.
    pub(crate) fn used_bytes(&self) -> u64 {
        self.current_segment.map_or(0, |at| at.offset)
    }

    pub(crate) fn complete_to(&self) -> u64 {
        self.complete_to
    }

    /// Directs further log writes to a segment that has none under its number yet.
    pub(crate) fn begin_segment(&mut self, file: SegmentFile) {
        self.current_segment = Some(CurrentSegment { file, first_seq: self.next_seq, offset: 0 });
    }

    /// Starts a log write. The current segment must have room for it.
    pub(crate) fn write<D: Disk>(
        &mut self,
        disk: &mut D,
        mut gathered: FillingWrite,
        holdings: &mut Holdings,
    ) {
        let length = gathered.length();
        let current = self.current_segment.as_mut().expect("a segment was entered");
        let place = Place { segment: current.file.segment, offset: current.offset };
        let header = Header {
            owner: self.owner,
            incarnation: self.incarnation,
            place,
            first_seq: current.first_seq,
            seq: self.next_seq,
            complete_to: self.complete_to,
            previous_checksum: self.previous_checksum,
            record_count: gathered.records,
            length_bytes: 0,
            body_bytes: u32::try_from(gathered.body()).expect("bounded by WRITE_BYTES_MAX"),
            body_checksum: 0,
            hard_state: gathered.hard_state,
            checksum: 0,
        };
        let first = Anchor {
            segment: place.segment,
            seq: header.seq,
            previous_checksum: header.previous_checksum,
        };
        holdings.record_begun(first, gathered.runs.slots_end());
        let header = log_write::seal(header, gathered.blocks());
        current.offset += length as u64;
        self.previous_checksum = header.checksum;
        self.next_seq += 1;
        self.bytes_in_flight += length;
        self.in_flight.push_back(InFlight {
            seq: header.seq,
            last_record: gathered.last_record,
            span: Span { place, bytes: length as u64 },
            runs: gathered.runs,
            is_done: false,
        });
        disk.start_write(
            header.seq,
            place.into(),
            gathered.buffer.into(),
            length,
            Durability::Flushed,
        );
    }

    /// [disk-2] Handles a log write that reached stable storage. Its records are released only once
    /// all earlier log writes are complete, too.
    pub(crate) fn on_written(&mut self, seq: u64, index: &mut Index, holdings: &mut Holdings) {
        if let Some(write) = self.in_flight.iter_mut().find(|write| write.seq == seq) {
            write.is_done = true;
            if planted(Mutant::ReleaseOutOfOrder) {
                self.persisted_to = self.persisted_to.max(write.last_record);
            }
        }
        while let Some(write) = self.in_flight.pop_front_if(|write| write.is_done) {
            self.complete_to = write.seq;
            let end = write.span.place.offset + write.span.bytes;
            holdings.record_complete(write.span.place.segment, end);
            self.persisted_to = self.persisted_to.max(write.last_record);
            self.bytes_in_flight -= usize::try_from(write.span.bytes).expect("fitted a buffer");
            for range in write.runs.iter() {
                index.insert(range, write.span);
            }
        }
    }
}
