//! Records waiting to be written, already arranged as log writes.

use std::collections::VecDeque;

use crate::disk::{BLOCK, Buffer, Disk};
use quorate_core::record::{HardState, Record, RecordSeq};

use crate::{index::Runs, log_write::HEADER, record};

/// A log write that is being filled or waits to be submitted.
#[derive(Debug)]
pub(crate) struct Gathered {
    pub(crate) buffer: Buffer,
    /// Number of bytes in use, including space for the header.
    used: usize,
    pub(crate) records: u32,
    /// Last record in the log write.
    pub(crate) last: RecordSeq,
    /// Hard state after the last record.
    pub(crate) hard: HardState,
    pub(crate) runs: Runs,
}

impl Gathered {
    /// Returns the size of the log write on disk, in bytes.
    pub(crate) fn length(&self) -> usize {
        self.used.next_multiple_of(BLOCK)
    }

    /// Returns the total size of the records, in bytes.
    pub(crate) fn body(&self) -> usize {
        self.used - HEADER
    }

    /// Returns the bytes to write, padded with zeros to whole blocks.
    pub(crate) fn blocks(&mut self) -> &mut [u8] {
        let length = self.length();
        self.buffer[self.used..length].fill(0);
        &mut self.buffer[..length]
    }
}

/// Queue of log writes that are not submitted yet.
#[derive(Debug)]
pub(crate) struct Gather {
    write_bytes: usize,
    spare_max: usize,
    full: VecDeque<Gathered>,
    open: Option<Gathered>,
    spare: Vec<Buffer>,
    bytes: usize,
    scratch: Vec<u8>,
}

impl Gather {
    /// Creates a queue of log writes of at most `write_bytes` bytes. Retains up to `spare_max`
    /// buffers for reuse.
    pub(crate) fn new(write_bytes: usize, spare_max: usize) -> Self {
        Self {
            write_bytes,
            spare_max,
            full: VecDeque::new(),
            open: None,
            spare: Vec::new(),
            bytes: 0,
            scratch: Vec::with_capacity(record::RECORD_HEAD_MAX),
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
        self.scratch.clear();
        let length = u32::try_from(bytes.len()).expect("bounded by WRITE_BYTES_MAX");
        record::encode(record, placed, length, &mut self.scratch);
        let need = self.scratch.len() + bytes.len();
        if self.open.as_ref().is_some_and(|open| open.used + need > open.buffer.len()) {
            self.full.extend(self.open.take());
        }
        let mut open = match self.open.take() {
            Some(open) => open,
            None => self.begin(disk, need),
        };
        let head = open.used + self.scratch.len();
        open.buffer[open.used..head].copy_from_slice(&self.scratch);
        open.buffer[head..head + bytes.len()].copy_from_slice(bytes);
        open.used += need;
        open.records += 1;
        (open.last, open.hard) = (seq, hard);
        if let Record::Vote { range, .. } | Record::Decided { range, .. } = record {
            open.runs.push(*range);
        }
        self.bytes += need;
        self.open = Some(open);
    }

    /// Restates the hard state, in the log write being filled if there is one, otherwise in a log
    /// write without records.
    pub(crate) fn restate<D: Disk>(&mut self, disk: &mut D, last: RecordSeq, hard: HardState) {
        let mut open = match self.open.take() {
            Some(open) => open,
            None => self.begin(disk, 0),
        };
        (open.last, open.hard) = (last.max(open.last), hard);
        self.open = Some(open);
    }

    fn begin<D: Disk>(&mut self, disk: &mut D, need: usize) -> Gathered {
        let bytes = (HEADER + need).max(self.write_bytes);
        let spare = if bytes == self.write_bytes { self.spare.pop() } else { None };
        let buffer = spare.unwrap_or_else(|| disk.allocate(bytes));
        let (last, hard) = (RecordSeq(0), HardState::default());
        self.bytes += HEADER;
        Gathered { buffer, used: HEADER, records: 0, last, hard, runs: Runs::default() }
    }

    /// Returns the size on disk of the next log write, or `None` if the queue is empty.
    pub(crate) fn next_length(&self) -> Option<usize> {
        self.full.front().or(self.open.as_ref()).map(Gathered::length)
    }

    pub(crate) fn take(&mut self) -> Option<Gathered> {
        let next = self.full.pop_front().or_else(|| self.open.take())?;
        self.bytes -= next.used;
        Some(next)
    }

    /// Retains the buffer of a completed log write for reuse, or releases it.
    pub(crate) fn reuse<D: Disk>(&mut self, disk: &mut D, buffer: Buffer) {
        if buffer.len() == self.write_bytes && self.spare.len() < self.spare_max {
            self.spare.push(buffer);
        } else {
            disk.release(buffer);
        }
    }

    /// Returns the number of bytes waiting to be written.
    pub(crate) fn bytes(&self) -> usize {
        self.bytes
    }
}
