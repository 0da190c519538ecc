//! The log of this replica: appended records, the times of writes, and reads.

pub(crate) mod reads;

use quorate_core::{
    record::{HardState, Record, RecordSeq},
    slot::SlotRange,
    time::Time,
};
use quorate_log::disk::{Disk, Lack};
use quorate_log::{Log, LogError, ReadDone};
use quorate_wire::BODY_BYTES_MAX;

use crate::{
    limits::Limits,
    proposing::batch::OVERHEAD_BYTES,
    storing::reads::{Kind, LogReads, Purpose},
};

/// A log that lacks room or descriptors looks for them this often, however quiet it is.
const SHORT_RETRY_MS: u64 = 100;
/// Time without room, or a descriptor, after which a log counts as unable to write: trimming may
/// make room sooner.
const SHORT_MS: u64 = 100;
/// Time after which a pending write, or segment, makes a log count as unable to write. Disks that
/// are busy take less; some stand still for longer, and recover.
const HANGS_MS: u64 = 700;
/// Maximum time that records linger in a log that nothing waits for.
const LINGER_MS: u64 = 5;

/// Bytes of a value as stored in a record.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Written<'a> {
    /// The bytes, or none.
    Bytes(&'a [u8]),
    /// [disk-5] Where they are in the store of streams, on stable storage; none for decided content
    /// that is looked for as far as it is kept ([snap-5]).
    Places(&'a [u8]),
}

/// The log, with its state as known to this process.
pub(crate) struct Storing<D: Disk> {
    log: Log<D>,
    reads: LogReads,
    /// Number of the last record of the core that was appended.
    last_record: RecordSeq,
    /// Records up to this one are on stable storage.
    persisted_to: RecordSeq,
    /// Reason why nothing is appended any more, if so: the log failed permanently, or votes were
    /// forgotten.
    failure: Option<String>,
    /// Last failure of the log to read back.
    read_failure: Option<String>,
    /// Deadline for writing lingering records.
    write_by: Option<Time>,
    /// The log lacks room or descriptors: it tries again then.
    short_retry_at: Time,
    /// While records wait to be written: the last completed write, with the time of its completion.
    waits: Option<(u64, Time)>,
    /// Maximum of bytes that wait to be written before nothing new is accepted.
    backlog_bytes_max: u64,
    /// Maximum of bytes that are read in one turn.
    read_bytes_max: usize,
}

/// Outcome of a request to find the lost slots of a range.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Asked {
    Yes,
    /// The log cannot answer at the moment.
    NotNow,
    /// None of these slots is needed from the disk: they were trimmed, or their latest records are
    /// in memory, and not written yet. In a group in memory they may stay there until there is a
    /// request.
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
            write_by: None,
            short_retry_at: now,
            waits: None,
            backlog_bytes_max: limits.log_backlog_bytes,
            read_bytes_max: limits.log_read_bytes,
        }
    }

    /// Returns the log.
    pub(crate) fn log(&self) -> &Log<D> {
        &self.log
    }

    /// Returns the log, for its own operations: its start, and the disk that it shares.
    pub(crate) fn log_mut(&mut self) -> &mut Log<D> {
        &mut self.log
    }

    /// Returns the reason why nothing is appended any more, if so: the log failed permanently, or
    /// votes were forgotten outside of it.
    pub(crate) fn failure(&self) -> Option<&str> {
        self.failure.as_deref()
    }

    /// Returns the last failure of the log to read back.
    pub(crate) fn read_failure(&self) -> Option<&str> {
        self.read_failure.as_deref()
    }

    /// Stops appending; returns `false` if that was so before.
    pub(crate) fn fail(&mut self, why: String) -> bool {
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

    /// Appends a record of the core, which speaks of the slots in `range`.
    pub(crate) fn append(
        &mut self,
        seq: RecordSeq,
        record: &Record,
        range: Option<SlotRange>,
        written: Written<'_>,
        hard: HardState,
    ) -> Result<(), LogError> {
        if let Some(range) = range {
            self.reads.appended(seq, range, self.failure.is_some());
        }
        self.write(seq, record, written, hard)
    }

    /// Appends the first part of a record of the core; the rest follows under its number, and
    /// both are on stable storage when that is.
    pub(crate) fn append_before(
        &mut self,
        seq: RecordSeq,
        record: &Record,
        range: SlotRange,
        written: Written<'_>,
        hard: HardState,
    ) -> Result<(), LogError> {
        self.reads.appended(seq, range, self.failure.is_some());
        self.write(self.last_record, record, written, hard)
    }

    /// Appends a record that is not the core's: it bears the number of the last one, and releases
    /// nothing.
    pub(crate) fn append_beside(
        &mut self,
        record: &Record,
        written: Written<'_>,
        hard: HardState,
    ) -> Result<(), LogError> {
        self.write(self.last_record, record, written, hard)
    }

    fn write(
        &mut self,
        seq: RecordSeq,
        record: &Record,
        written: Written<'_>,
        hard: HardState,
    ) -> Result<(), LogError> {
        if self.failure.is_some() {
            return Ok(());
        }
        self.last_record = seq;
        match written {
            Written::Bytes(bytes) => self.log.append(seq, record, bytes, hard),
            Written::Places(places) => self.log.append_placed(seq, record, places, hard),
        }
    }

    /// Processes the completions of the disk. Returns the last record on stable storage, if it is
    /// new.
    pub(crate) fn poll(&mut self, now: Time) -> Result<Option<RecordSeq>, LogError> {
        if self.short_retry().is_some_and(|at| at <= now) {
            self.log.try_again();
            self.short_retry_at = now.plus_ms(SHORT_RETRY_MS);
        }
        let polled = self.log.poll();
        self.look(now);
        let persisted_to = polled?;
        if persisted_to <= self.persisted_to {
            return Ok(None);
        }
        self.persisted_to = persisted_to;
        self.reads.written(persisted_to);
        Ok(Some(persisted_to))
    }

    /// Writes up to this one have ended.
    pub(crate) fn written_to(&self) -> u64 {
        let oldest = self.log.writes().next();
        let next = oldest.map_or(self.log.next_seq(), |(seq, _)| seq);
        next.saturating_sub(1)
    }

    /// Checks how long the appended records have waited.
    fn look(&mut self, now: Time) {
        let written_to = self.written_to();
        self.waits = if self.all_written() {
            None
        } else {
            let same = self.waits.filter(|(to, _)| *to == written_to);
            Some(same.unwrap_or((written_to, now)))
        };
    }

    /// [live-3] Returns the reason why this log cannot write; `None` while it can, or failed
    /// permanently. It causes no wake-up: heartbeats and time-outs come often enough.
    pub(crate) fn trouble(&self, now: Time) -> Option<&'static str> {
        let (_, since) = self.waits?;
        let waited_us = now.since_us(since);
        match self.log.obstacle() {
            Some(error) if waited_us >= SHORT_MS * 1000 => Some(match error.lack {
                Some(Lack::Descriptors) => "no descriptor for the log",
                Some(Lack::Room) | None => "no room for the log",
            }),
            _ => (waited_us >= HANGS_MS * 1000).then_some("a write to the log does not end"),
        }
    }

    /// Starts writing the appended records; without lingering if their completion is awaited.
    pub(crate) fn submit(&mut self, now: Time, awaited: bool) {
        if self.log.lingers() {
            let due = *self.write_by.get_or_insert(now.plus_ms(LINGER_MS));
            if awaited || now >= due {
                self.log.hurry();
            }
        }
        self.log.submit();
        if !self.log.lingers() {
            self.write_by = None;
        }
        self.look(now);
    }

    /// Writes everything, with this hard state at the end: nothing follows.
    pub(crate) fn close(&mut self, hard: HardState) {
        if self.failure.is_none() {
            self.log.checkpoint(hard);
            self.log.submit();
        }
    }

    /// Returns whether the last record is on disk, or never will be.
    pub(crate) fn all_written(&self) -> bool {
        self.log.is_idle() || self.failure.is_some()
    }

    /// Reads as much of `range` back as the log can be trusted with, if no read for this is in
    /// flight.
    pub(crate) fn read(&mut self, now: Time, purpose: Purpose, range: SlotRange) {
        let range = self.reads.readable(range);
        if !range.is_empty() && self.reads.may_start(now, purpose.kind()) {
            self.reads.start(&mut self.log, purpose, range, self.read_bytes_max);
        }
    }

    /// Asks which of these slots, of which the log reads all with any one of them, are lost.
    pub(crate) fn ask_whether_lost(&mut self, now: Time, slots: SlotRange) -> Asked {
        // The log may have been trimmed since they were found.
        let left = SlotRange::new(slots.from.max(self.log.start()), slots.to);
        let Some(slot) = self.reads.first_written(left) else {
            return Asked::Needless;
        };
        if !self.reads.may_start(now, Kind::Scrub) {
            return Asked::NotNow;
        }
        let one = SlotRange::one(slot);
        self.reads.start(&mut self.log, Purpose::Scrub, one, 1);
        match self.reads.may_start(now, Kind::Scrub) {
            true => Asked::NotNow,
            false => Asked::Yes,
        }
    }

    /// Writes the hard state once more, as its record is damaged.
    pub(crate) fn restate(&mut self, hard: HardState) {
        if self.failure.is_none() {
            self.log.checkpoint(hard);
        }
    }

    /// Returns whether a read of this kind may start.
    pub(crate) fn may_read(&self, now: Time, kind: Kind) -> bool {
        self.reads.may_start(now, kind)
    }

    /// Postpones the next read of this kind.
    pub(crate) fn read_later(&mut self, kind: Kind, until: Time) {
        self.reads.wait(kind, until);
    }

    /// Takes the next read that has ended.
    pub(crate) fn next_read(&mut self) -> Option<(Purpose, ReadDone)> {
        while let Some(done) = self.log.next_read() {
            if let Some(purpose) = self.reads.ended(done.token) {
                return Some((purpose, done));
            }
        }
        None
    }

    /// Records the result of a read. Returns the failure to report, if it is new.
    pub(crate) fn note_read(&mut self, done: &ReadDone) -> Option<String> {
        let Err(error) = &done.result else {
            self.read_failure = None;
            return None;
        };
        if matches!(error, LogError::BelowStart { .. }) {
            // It was trimmed in the meantime: a snapshot has it.
            return None;
        }
        let lost = !done.lost.is_empty();
        let news = self.read_failure.is_none() || lost;
        // What is lost is repaired; anything else may succeed the next time.
        self.read_failure = (!lost).then(|| error.to_string());
        news.then(|| error.to_string())
    }

    /// Returns the time at which a waiting read may start.
    pub(crate) fn read_at(&self, now: Time) -> Option<Time> {
        self.reads.wake_at(now)
    }

    /// Returns the deadline for writing lingering records.
    pub(crate) fn write_by(&self) -> Option<Time> {
        self.write_by
    }

    /// Returns the time at which a log that lacks a resource tries again: a disk does not report
    /// when it has room again.
    pub(crate) fn short_retry(&self) -> Option<Time> {
        self.log.is_short().then_some(self.short_retry_at)
    }
}

/// Returns the size of the largest batch: it must fit into one record, and into one frame.
pub(crate) fn batch_bytes_max<D: Disk>(log: &Log<D>) -> usize {
    log.record_bytes_max().min(BODY_BYTES_MAX)
}

/// Returns the size of the largest command that any batch has room for.
pub(crate) fn largest_command<D: Disk>(log: &Log<D>) -> usize {
    batch_bytes_max(log).saturating_sub(OVERHEAD_BYTES)
}
