//! Reads values with their bytes, for catch-up and replay. Only complete log writes are visible.

use std::collections::{BTreeMap, VecDeque};

use crate::disk::{BLOCK, Buffer, Disk, DiskError, ExhaustedResource};
use quorate_core::{
    slot::{Slot, SlotRange},
    value::Value,
};

use crate::{
    error::LogError,
    index::{Index, Span},
    log_write::{self, Header},
    patience::Backoff,
    place::Place,
    range_map::RangeMap,
    record::Records,
};

/// Maximum number of reads in flight.
pub(crate) const IN_FLIGHT_MAX: usize = 4;
const WAITING_MAX: usize = 64;
/// Number of consecutive failures after which a place counts as lost.
const PLACE_FAILURES_MAX: u32 = 3;
/// Maximum number of calls before retrying a read that lacked a descriptor.
const RETRY_SKIPS_MAX: u32 = 16;

/// Ranges of slots, each with its value and the value's bytes, from their latest records.
pub type Values = Vec<(SlotRange, Value, ValueBytes)>;

/// Bytes of a record's value, or where they are stored.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ValueBytes {
    /// The bytes themselves. Empty if the value has none or they are not needed.
    Bytes(Vec<u8>),
    /// Places of the bytes, as passed to `append_placed`.
    Places(Vec<u8>),
}

impl ValueBytes {
    /// Returns the bytes, or `None` if they are stored elsewhere.
    pub fn bytes(&self) -> Option<&[u8]> {
        match self {
            Self::Bytes(bytes) => Some(bytes),
            Self::Places(_) => None,
        }
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReadDone {
    pub token: u64,
    /// Values starting at the first requested slot, without gaps, possibly fewer than requested.
    /// Empty if the first slot is not in the log.
    pub result: Result<Values, LogError>,
    /// Slots whose records turned out to be unreadable. The log no longer has them until they are
    /// appended again.
    pub lost_slots: Vec<SlotRange>,
}

#[derive(Debug)]
struct Job {
    token: u64,
    range: SlotRange,
    bytes_left: usize,
    values: Values,
    lost_slots: Vec<SlotRange>,
    /// Index entry being read, with all slots that it covers.
    current_entry: Option<(SlotRange, Span)>,
}

#[derive(Debug, Default)]
pub(crate) struct Reads {
    waiting_jobs: VecDeque<Job>,
    active: BTreeMap<u64, Job>,
    finished: VecDeque<ReadDone>,
    next_id: u64,
    spare_buffer: Option<Buffer>,
    /// Place that the disk last failed to read, and the number of consecutive failures.
    failing_place: Option<(Place, u32)>,
    /// Backoff after reads that lacked a descriptor.
    backoff: Backoff,
}

impl Reads {
    pub(crate) fn queue_read(
        &mut self,
        token: u64,
        range: SlotRange,
        bytes_max: usize,
        index: &Index,
    ) -> Result<(), LogError> {
        check_above_start(range, index)?;
        if self.waiting_jobs.len() >= WAITING_MAX {
            return Err(LogError::ReadsBusy);
        }
        let values = Values::new();
        self.waiting_jobs.push_back(Job {
            token,
            range,
            bytes_left: bytes_max,
            values,
            lost_slots: Vec::new(),
            current_entry: None,
        });
        Ok(())
    }

    pub(crate) fn next_done(&mut self) -> Option<ReadDone> {
        self.finished.pop_front()
    }

    pub(crate) fn is_idle(&self) -> bool {
        self.waiting_jobs.is_empty() && self.active.is_empty()
    }

    /// Starts queued reads while fewer than `IN_FLIGHT_MAX` are in flight. Called with every poll.
    pub(crate) fn start_queued<D: Disk>(&mut self, disk: &mut D, index: &Index) {
        if !self.backoff.try_or_skip() {
            return;
        }
        while self.active.len() < IN_FLIGHT_MAX {
            let Some(job) = self.waiting_jobs.pop_front() else {
                return;
            };
            self.advance_job(job, disk, index);
        }
    }

    /// Starts reading the next entry of a job, or completes the job.
    fn advance_job<D: Disk>(&mut self, mut job: Job, disk: &mut D, index: &Index) {
        if let Err(error) = check_above_start(job.range, index) {
            self.finished.push_back(job.into_done(Some(error)));
            return;
        }
        let found = if job.range.is_empty() { None } else { index.find(job.range.from) };
        let Some((run, span)) = found else {
            self.finished.push_back(job.into_done(None));
            return;
        };
        job.current_entry = Some((run, span));
        let bytes = usize::try_from(span.bytes).expect("an entry is bounded");
        let spare = self.spare_buffer.take().filter(|buffer| buffer.len() >= bytes);
        let buffer = spare.unwrap_or_else(|| Buffer::new(bytes));
        let id = self.next_id;
        self.next_id += 1;
        self.active.insert(id, job);
        disk.start_read(id, span.place.into(), buffer, bytes);
    }

    /// Returns whether a read waits because a file could not be opened.
    pub(crate) const fn is_short(&self) -> bool {
        self.backoff.has_failed()
    }

    /// Ends the backoff, so that the next call retries reads that lacked a descriptor.
    pub(crate) const fn try_again(&mut self) {
        self.backoff.end_wait();
    }

    /// Handles the completed read of a run of log writes.
    pub(crate) fn on_read<D: Disk>(
        &mut self,
        id: u64,
        mut buffer: Buffer,
        result: Result<(), DiskError>,
        disk: &mut D,
        index: &mut Index,
    ) {
        let Some(mut job) = self.active.remove(&id) else {
            return;
        };
        let (run, span) = job.current_entry.take().expect("set when the read was started");
        if let Err(error) = check_above_start(job.range, index) {
            // The log was trimmed during the read, so the segment may have been overwritten.
            self.spare_buffer = Some(buffer);
            self.finished.push_back(job.into_done(Some(error)));
            return;
        }
        if let Err(error) = &result
            && error.exhausted == Some(ExhaustedResource::Descriptors)
        {
            // The file was not read, so nothing is known about its contents. The read is retried
            // later.
            self.spare_buffer = Some(buffer);
            self.backoff.record_failure(RETRY_SKIPS_MAX);
            self.waiting_jobs.push_front(job);
            return;
        }
        self.backoff.record_success();
        let slots = job.range.intersect(run);
        let bytes = usize::try_from(span.bytes).expect("an entry is bounded");
        let read = result
            .map_err(LogError::Disk)
            .and_then(|()| ReadRecords::read(run, span.place, &mut buffer[..bytes]));
        let lost = match &read {
            Ok(pieces) => {
                self.failing_place = None;
                pieces.map.gaps(run)
            }
            Err(LogError::Disk(_)) if !self.record_failure(span.place) => Vec::new(),
            Err(_) => vec![run],
        };
        // Some of these slots may have newer records elsewhere.
        let lost = lost.into_iter().map(|range| index.remove_unreadable(range, span.place));
        job.lost_slots.extend(lost.flatten());
        let taken =
            read.and_then(|pieces| job.add_slots(slots, span.place, pieces, &buffer[..bytes]));
        self.spare_buffer = Some(buffer);
        match taken {
            Err(error) => self.finished.push_back(job.into_done(Some(error))),
            Ok(true) => self.advance_job(job, disk, index),
            Ok(false) => self.finished.push_back(job.into_done(None)),
        }
    }
}

impl Reads {
    /// Records a failure at a place. Returns whether there were too many to retry.
    fn record_failure(&mut self, at: Place) -> bool {
        let times = match self.failing_place {
            Some((place, times)) if place == at => times + 1,
            _ => 1,
        };
        self.failing_place = Some((at, times));
        times >= PLACE_FAILURES_MAX
    }
}

/// [snap-3] Fails for slots below the start of the log.
fn check_above_start(range: SlotRange, index: &Index) -> Result<(), LogError> {
    let start = index.start();
    match !range.is_empty() && range.from < start {
        true => Err(LogError::BelowStart { start }),
        false => Ok(()),
    }
}

/// A value in the log writes that were read: its slots, the value, whether its bytes are placed
/// elsewhere, and the offset and length of its bytes.
type ReadValue = (SlotRange, (Value, bool), usize, usize);

impl Job {
    fn into_done(self, error: Option<LogError>) -> ReadDone {
        ReadDone {
            token: self.token,
            result: error.map_or(Ok(self.values), Err),
            lost_slots: self.lost_slots,
        }
    }

    /// Adds slots to the result. Returns whether there is room for more.
    fn add_slots(
        &mut self,
        slots: SlotRange,
        at: Place,
        pieces: ReadRecords,
        bytes: &[u8],
    ) -> Result<bool, LogError> {
        while self.range.from < slots.to {
            let Some((run, piece)) = pieces.map.find(self.range.from) else {
                let reason = format!("slot {} is not where it was", self.range.from);
                let missing = LogError::Damaged { place: at, reason };
                return Err(pieces.first_fault.unwrap_or(missing));
            };
            let range = run.intersect(SlotRange::new(self.range.from, slots.to));
            let (value, bytes) = cut_value(range, piece, bytes);
            let (value, placed) = value;
            if bytes.len() > self.bytes_left && !self.values.is_empty() {
                return Ok(false);
            }
            self.bytes_left = self.bytes_left.saturating_sub(bytes.len());
            let bytes = bytes.to_vec();
            let body = match placed {
                true => ValueBytes::Places(bytes),
                false => ValueBytes::Bytes(bytes),
            };
            self.values.push((range, value, body));
            self.range.from = range.to;
        }
        Ok(self.bytes_left > 0 && self.range.from < self.range.to)
    }
}

/// Returns the part of a value that covers `range`. Every stream byte has a slot, so a part of the
/// slots has the corresponding part of the bytes.
fn cut_value<'a>(
    range: SlotRange,
    piece: &ReadValue,
    bytes: &'a [u8],
) -> ((Value, bool), &'a [u8]) {
    let (whole, value, start, length) = *piece;
    let bytes = &bytes[start..start + length];
    let here = matches!(value, (Value::Content { .. }, false));
    if here && bytes.len() as u64 == whole.len() {
        let offset = |slot: Slot| usize::try_from(slot.0 - whole.from.0).unwrap_or(usize::MAX);
        return (value, &bytes[offset(range.from)..offset(range.to)]);
    }
    (value, bytes)
}

/// Latest record of each slot in a run of log writes.
struct ReadRecords {
    map: RangeMap<ReadValue>,
    /// Fault of the first log write that turned out to be unreadable.
    first_fault: Option<LogError>,
}

impl ReadRecords {
    /// Reads the records of `run` from the log writes in `bytes`. Slots without a record are lost.
    ///
    /// [disk-8] A lost vote cannot be for a slot that was decided before it, nor for one that the
    /// next header does not include in those voted for. Slots in between count only if later log
    /// writes record them.
    fn read(run: SlotRange, at: Place, bytes: &mut [u8]) -> Result<Self, LogError> {
        let mut pieces = Self { map: RangeMap::default(), first_fault: None };
        let (mut decided_to, mut gap, mut start) = (run.from, None, 0);
        while start < bytes.len() {
            let header = match log_write_at(at, start, bytes) {
                Ok(header) => header,
                Err(error) => {
                    pieces.first_fault.get_or_insert(error);
                    gap.get_or_insert(decided_to);
                    start += BLOCK;
                    continue;
                }
            };
            let hard = header.hard_state;
            if let Some(from) = gap.take() {
                let to = hard.decided_to.max(hard.voted_to);
                pieces.map.remove(SlotRange::new(from, to.max(from)));
            }
            decided_to = hard.decided_to;
            let end = start + header.length_bytes as usize;
            pieces.add_records(run, &header, start, &bytes[start..end])?;
            start = end;
        }
        if let Some(from) = gap {
            pieces.map.remove(SlotRange::new(from, run.to.max(from)));
        }
        Ok(pieces)
    }

    /// Adds the records of the log write at offset `start` of the bytes that were read.
    fn add_records(
        &mut self,
        run: SlotRange,
        header: &Header,
        start: usize,
        blocks: &[u8],
    ) -> Result<(), LogError> {
        let body = header.body_of(blocks);
        // Offsets are stored rather than slices, because the values are cut out of the whole buffer
        // below.
        let base = body.as_ptr() as usize;
        for stored in Records::new(body) {
            let stored = stored.map_err(|malformed| LogError::Damaged {
                place: header.place,
                reason: malformed.0.to_owned(),
            })?;
            let Some((range, value)) = stored.slots() else {
                continue;
            };
            let inside = stored.bytes.as_ptr() as usize;
            let within = if stored.bytes.is_empty() { 0 } else { inside - base };
            let from = start + log_write::HEADER_BYTES + within;
            let piece = (range, (value, stored.is_placed), from, stored.bytes.len());
            self.map.insert(range.intersect(run), piece);
        }
        Ok(())
    }
}

/// Verifies the log write at offset `start` of the bytes that were read from `at`, and returns its
/// header.
fn log_write_at(at: Place, start: usize, bytes: &mut [u8]) -> Result<Header, LogError> {
    let place = Place { offset: at.offset + start as u64, ..at };
    let damaged = |reason: &str| LogError::Damaged { place, reason: reason.to_owned() };
    let header = Header::decode(&bytes[start..])
        .map_err(|_| damaged("the header of a batch cannot be read any more"))?;
    let end = start + header.length_bytes as usize;
    if header.place != place || end > bytes.len() {
        return Err(damaged("another batch lies here"));
    }
    log_write::open(&header, &mut bytes[start..end]).map_err(|malformed| damaged(malformed.0))?;
    Ok(header)
}
