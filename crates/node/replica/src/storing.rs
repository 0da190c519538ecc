//! The log of this replica: appends records, schedules writes, and reads.

pub(crate) mod reads;

use quorate_core::{
    record::{HardState, Record, RecordSeq},
    slot::SlotRange,
    time::Time,
};
use quorate_log::disk::{Disk, ExhaustedResource};
use quorate_log::{Log, LogError, ReadDone};
use quorate_wire::BODY_BYTES_MAX;

use crate::{
    limits::Limits,
    proposing::batch::OVERHEAD_BYTES,
    storing::reads::{Kind, LogReads, Purpose},
};

/// Interval in milliseconds at which a log that lacks free space or file descriptors retries, even
/// without input.
const SHORTAGE_RETRY_MS: u64 = 100;
/// Time in milliseconds without free space or a file descriptor after which the log counts as
/// unable to write. Trimming may free space sooner.
const SHORTAGE_TIMEOUT_MS: u64 = 100;
/// Time in milliseconds after which a pending write or segment creation makes the log count as
/// unable to write. Busy disks finish sooner; some disks stall for longer and then recover.
const HANG_TIMEOUT_MS: u64 = 700;
/// Maximum time in milliseconds that records may wait in memory if no caller awaits them.
const WRITE_DELAY_MAX_MS: u64 = 5;

/// Form in which a record contains a value's bytes.
#[derive(Clone, Copy, Debug)]
pub(crate) enum RecordForm<'a> {
    /// The bytes themselves; empty if the value has none.
    Bytes(&'a [u8]),
    /// [disk-5] Places of the bytes in the store of streams, on stable storage. Empty for decided
    /// content whose bytes the store will fetch if peers still retain them ([snap-5]).
    Places(&'a [u8]),
}

/// The log, and this process's record of its state.
pub(crate) struct Storing<D: Disk> {
    log: Log<D>,
    reads: LogReads,
    /// Number of the core's last appended record.
    last_record: RecordSeq,
    /// Number of the last record on stable storage.
    persisted_to: RecordSeq,
    /// Reason to append no more records: the log failed permanently, or votes were forgotten.
    failure: Option<String>,
    /// Error of the last read, if it failed.
    read_failure: Option<String>,
    /// Deadline for writing the records that wait in memory, if any do.
    write_deadline: Option<Time>,
    /// Time at which a log that lacks free space or file descriptors retries.
    shortage_retry_at: Time,
    /// Number of the last completed write, and the time since when no further one has completed;
    /// set only while records wait to be written.
    write_wait: Option<(u64, Time)>,
    /// Number of bytes waiting to be written above which no new input is accepted.
    backlog_bytes_max: u64,
    /// Maximum number of bytes read in one turn.
    read_bytes_max: usize,
}

/// Outcome of a query for the lost slots of a range.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum LostSlotsOutcome {
    Asked,
    /// The log cannot answer at the moment.
    NotNow,
    /// None of these slots is needed from the disk: they were trimmed, or their latest records are
    /// in memory, where a volatile group may leave them until a caller waits for them.
    Needless,
}

impl<D: Disk> Storing<D> {
    pub(crate) fn new(now: Time, log: Log<D>, limits: &Limits) -> Self {
        Self {
            log,
            reads: LogReads::default(),
            last_record: RecordSeq(0),
            persisted_to: RecordSeq(0),
            failure: None,
            read_failure: None,
            write_deadline: None,
            shortage_retry_at: now,
            write_wait: None,
            backlog_bytes_max: limits.log_backlog_bytes,
            read_bytes_max: limits.log_read_bytes,
        }
    }

    pub(crate) fn log(&self) -> &Log<D> {
        &self.log
    }

    /// Returns the log, for moving its start and for using the disk that it shares.
    pub(crate) fn log_mut(&mut self) -> &mut Log<D> {
        &mut self.log
    }

    pub(crate) fn failure(&self) -> Option<&str> {
        self.failure.as_deref()
    }

    pub(crate) fn read_failure(&self) -> Option<&str> {
        self.read_failure.as_deref()
    }

    /// Stops appending because of `why`. Returns `false` if appending had already stopped.
    pub(crate) fn stop_appending(&mut self, why: String) -> bool {
        let first = self.failure.is_none();
        if first {
            self.failure = Some(why);
        }
        first
    }

    /// Returns whether the log cannot keep up with its input.
    pub(crate) fn is_behind(&self) -> bool {
        self.log.backlog_bytes() as u64 > self.backlog_bytes_max
    }

    /// Appends a record of the core about the slots in `range`.
    pub(crate) fn append(
        &mut self,
        seq: RecordSeq,
        record: &Record,
        range: Option<SlotRange>,
        written: RecordForm<'_>,
        hard: HardState,
    ) -> Result<(), LogError> {
        if let Some(range) = range {
            self.reads.record_appended(seq, range, self.failure.is_some());
        }
        self.write(seq, record, written, hard)
    }

    /// Appends the first part of a record of the core. The rest follows under the record's number,
    /// and completes the record for the core.
    pub(crate) fn append_part(
        &mut self,
        seq: RecordSeq,
        record: &Record,
        range: SlotRange,
        written: RecordForm<'_>,
        hard: HardState,
    ) -> Result<(), LogError> {
        self.reads.record_appended(seq, range, self.failure.is_some());
        self.write(self.last_record, record, written, hard)
    }

    /// Appends a record that does not come from the core, under the number of the core's last one.
    /// Its completion is not reported to the core.
    pub(crate) fn append_unreported(
        &mut self,
        record: &Record,
        written: RecordForm<'_>,
        hard: HardState,
    ) -> Result<(), LogError> {
        self.write(self.last_record, record, written, hard)
    }

    fn write(
        &mut self,
        seq: RecordSeq,
        record: &Record,
        written: RecordForm<'_>,
        hard: HardState,
    ) -> Result<(), LogError> {
        if self.failure.is_some() {
            return Ok(());
        }
        self.last_record = seq;
        match written {
            RecordForm::Bytes(bytes) => self.log.append(seq, record, bytes, hard),
            RecordForm::Places(places) => self.log.append_placed(seq, record, places, hard),
        }
    }

    /// Processes completed disk operations. Returns the number of the last record on stable
    /// storage, if it has changed.
    pub(crate) fn poll(&mut self, now: Time) -> Result<Option<RecordSeq>, LogError> {
        if self.shortage_retry_at().is_some_and(|at| at <= now) {
            self.log.retry_now();
            self.shortage_retry_at = now.plus_ms(SHORTAGE_RETRY_MS);
        }
        let polled = self.log.poll();
        self.update_wait(now);
        let persisted_to = polled?;
        if persisted_to <= self.persisted_to {
            return Ok(None);
        }
        self.persisted_to = persisted_to;
        self.reads.record_written(persisted_to);
        Ok(Some(persisted_to))
    }

    /// Returns the number of the last write that has ended together with all writes before it.
    pub(crate) fn written_to(&self) -> u64 {
        let oldest = self.log.writes_in_flight().next();
        let next = oldest.map_or(self.log.next_seq(), |(seq, _)| seq);
        next.saturating_sub(1)
    }

    /// Updates the measured wait of the appended records.
    fn update_wait(&mut self, now: Time) {
        let written_to = self.written_to();
        self.write_wait = if self.all_written() {
            None
        } else {
            let same = self.write_wait.filter(|(to, _)| *to == written_to);
            Some(same.unwrap_or((written_to, now)))
        };
    }

    /// [live-3] Returns why this log cannot write at present; `None` if it can, or if it has failed
    /// permanently. This sets no timer, since heartbeats and timeouts call it often enough.
    pub(crate) fn write_obstacle(&self, now: Time) -> Option<&'static str> {
        let (_, since) = self.write_wait?;
        let waited_us = now.since_us(since);
        match self.log.write_obstacle() {
            Some(error) if waited_us >= SHORTAGE_TIMEOUT_MS * 1000 => Some(match error.exhausted {
                Some(ExhaustedResource::Descriptors) => "no descriptor for the log",
                Some(ExhaustedResource::Space) | None => "no room for the log",
            }),
            _ => (waited_us >= HANG_TIMEOUT_MS * 1000).then_some("a write to the log does not end"),
        }
    }

    /// Starts writing the appended records, or leaves them in memory for a while unless their
    /// completion is `awaited`.
    pub(crate) fn submit(&mut self, now: Time, awaited: bool) {
        if self.log.is_lingering() {
            let due = *self.write_deadline.get_or_insert(now.plus_ms(WRITE_DELAY_MAX_MS));
            if awaited || now >= due {
                self.log.write_soon();
            }
        }
        self.log.start_writes();
        if !self.log.is_lingering() {
            self.write_deadline = None;
        }
        self.update_wait(now);
    }

    /// Writes all records, ending with this hard state.
    pub(crate) fn write_all(&mut self, hard: HardState) {
        if self.failure.is_none() {
            self.log.checkpoint(hard);
            self.log.start_writes();
        }
    }

    /// Returns whether the last record is on disk or will never be.
    pub(crate) fn all_written(&self) -> bool {
        self.log.is_idle() || self.failure.is_some()
    }

    /// Starts reading the part of `range` before the first slot whose record is still in memory,
    /// unless a read of the same kind is in flight.
    pub(crate) fn read(&mut self, now: Time, purpose: Purpose, range: SlotRange) {
        let range = self.reads.readable_part(range);
        if !range.is_empty() && self.reads.may_start(now, purpose.kind()) {
            self.reads.start_read(&mut self.log, purpose, range, self.read_bytes_max);
        }
    }

    /// Queries which of these slots are lost. They are read together, as one request.
    pub(crate) fn query_lost_slots(&mut self, now: Time, slots: SlotRange) -> LostSlotsOutcome {
        // The log may have been trimmed since these slots were found to be damaged.
        let left = SlotRange::new(slots.from.max(self.log.start()), slots.to);
        let Some(slot) = self.reads.first_written(left) else {
            return LostSlotsOutcome::Needless;
        };
        if !self.reads.may_start(now, Kind::Scrub) {
            return LostSlotsOutcome::NotNow;
        }
        let one = SlotRange::one(slot);
        self.reads.start_read(&mut self.log, Purpose::Scrub, one, 1);
        match self.reads.may_start(now, Kind::Scrub) {
            true => LostSlotsOutcome::NotNow,
            false => LostSlotsOutcome::Asked,
        }
    }

    /// Writes the hard state again, because its record is damaged.
    pub(crate) fn rewrite_hard_state(&mut self, hard: HardState) {
        if self.failure.is_none() {
            self.log.checkpoint(hard);
        }
    }

    pub(crate) fn can_read(&self, now: Time, kind: Kind) -> bool {
        self.reads.may_start(now, kind)
    }

    pub(crate) fn postpone_reads(&mut self, kind: Kind, until: Time) {
        self.reads.postpone_reads(kind, until);
    }

    pub(crate) fn next_read(&mut self) -> Option<(Purpose, ReadDone)> {
        while let Some(done) = self.log.next_read_done() {
            if let Some(purpose) = self.reads.end_read(done.token) {
                return Some((purpose, done));
            }
        }
        None
    }

    /// Handles the result of a read. Returns the error to report, if it is new.
    pub(crate) fn record_read_result(&mut self, done: &ReadDone) -> Option<String> {
        let Err(error) = &done.result else {
            self.read_failure = None;
            return None;
        };
        if matches!(error, LogError::BelowStart { .. }) {
            // The slots were trimmed in the meantime, so a snapshot covers them.
            return None;
        }
        let lost = !done.lost_slots.is_empty();
        let news = self.read_failure.is_none() || lost;
        // Lost data is repaired; after any other error the next read may succeed.
        self.read_failure = (!lost).then(|| error.to_string());
        news.then(|| error.to_string())
    }

    pub(crate) fn read_at(&self, now: Time) -> Option<Time> {
        self.reads.wake_at(now)
    }

    pub(crate) fn write_deadline(&self) -> Option<Time> {
        self.write_deadline
    }

    /// Returns the time of the next retry while the log lacks a resource. Polling is needed because
    /// a disk does not report when space becomes free.
    pub(crate) fn shortage_retry_at(&self) -> Option<Time> {
        self.log.is_short_of_resources().then_some(self.shortage_retry_at)
    }
}

/// Returns the maximum length of a batch in bytes. A batch must fit into one record and one frame.
pub(crate) fn batch_bytes_max<D: Disk>(log: &Log<D>) -> usize {
    log.record_bytes_max().min(BODY_BYTES_MAX)
}

/// Returns the maximum length of a command in bytes. A command must fit into a batch.
pub(crate) fn largest_command<D: Disk>(log: &Log<D>) -> usize {
    batch_bytes_max(log).saturating_sub(OVERHEAD_BYTES)
}
