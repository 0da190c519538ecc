//! The log of one node: append, submit, poll, read.

use std::{collections::VecDeque, os::fd::BorrowedFd};

use crate::disk::{Completed, Disk, DiskCounters, DiskError, Family, Lack, Output};
use quorate_core::{
    record::{HardState, Record, RecordSeq},
    slot::{Slot, SlotRange},
    value::Value,
};

use crate::{
    base::BASE_FILE,
    error::LogError,
    gather::Gather,
    holdings::Holdings,
    index::Index,
    log_write::{HEADER, WRITE_BYTES_MAX},
    mutant::{Mutant, planted},
    options::LogOptions,
    place::{Place, Segment},
    pool::Pool,
    read::{ReadDone, Reads},
    rebase::Rebase,
    record::RECORD_HEAD_MAX,
    recover::{Recovery, recover},
    scrub::{self, Scrub, ScrubbedPiece},
    told::Reading,
    writer::Writer,
};

/// Returns whether the log requested this operation.
fn is_ours(completed: &Completed) -> bool {
    match completed {
        Completed::Written { file, .. }
        | Completed::Read { file, .. }
        | Completed::Flushed { file, .. }
        | Completed::Prepared { file, .. }
        | Completed::Retired { file, .. } => file.family == Family::Log,
        Completed::Kept { name, .. } => *name == BASE_FILE,
        Completed::Recalled { .. } => false,
    }
}

/// The log of one node. It has no clock and no thread: it moves when it is called.
///
/// `append` gathers; `submit` starts a write while fewer than `depth` are in flight; `poll` takes
/// what completed, and says up to which record everything is on stable storage.
#[derive(Debug)]
pub struct Log<D> {
    disk: D,
    depth: usize,
    linger_bytes: usize,
    /// Gathered records are written without waiting for more.
    hurried: bool,
    gather: Gather,
    writer: Writer,
    pool: Pool,
    index: Index,
    holdings: Holdings,
    rebase: Rebase,
    /// The last number that was used when it was opened, and the last one whose write was here.
    opened_to: (u64, u64),
    reads: Reads,
    scrub: Scrub,
    /// Completions of operations that are not the log's.
    others: VecDeque<Completed>,
    /// [disk-9] Final.
    error: Option<LogError>,
}

impl<D: Disk> Log<D> {
    /// Reads what is there, and goes on behind it. Blocks while it reads.
    pub fn open(disk: D, options: LogOptions) -> Result<(Self, Recovery), LogError> {
        Self::open_telling(disk, options, &mut |_| ())
    }

    /// The same; `tell` hears all the while how far the reading is.
    pub fn open_telling(
        mut disk: D,
        options: LogOptions,
        tell: &mut dyn FnMut(Reading),
    ) -> Result<(Self, Recovery), LogError> {
        options.check()?;
        let opened = recover(&mut disk, &options, tell)?;
        let walked = opened.walked;
        // [disk-4] Behind a cut nothing is written any more: a fresh segment is.
        let go_on = walked.tail_clean || planted(Mutant::SegmentKeptAfterCut);
        let tail = walked.tail.filter(|_| go_on);
        if let Some((tail, ..)) = tail {
            disk.open_ahead(tail.segment.into()).map_err(LogError::Disk)?;
        }
        let writer = Writer::new(
            options.owner(),
            options.incarnation,
            walked.next_seq,
            walked.checksum,
            tail,
        );
        let mut log = Self {
            depth: options.depth,
            linger_bytes: options.linger_bytes,
            hurried: false,
            gather: Gather::new(options.write_bytes_max, options.depth + 2),
            writer,
            pool: Pool::new(
                options.segment_bytes,
                options.zeros(),
                options.spare_segments,
                opened.highest,
                &walked,
            ),
            rebase: Rebase::new(options.owner(), opened.index.start()),
            index: opened.index,
            holdings: opened.holdings,
            others: VecDeque::new(),
            reads: Reads::default(),
            opened_to: (walked.next_seq.saturating_sub(1), walked.whole_to),
            scrub: Scrub::default(),
            error: None,
            disk,
        };
        log.pool.tend(&mut log.disk);
        Ok((log, opened.recovery))
    }

    /// Gathers a record with the bytes of its value. `hard` is the hard state after it. Records are
    /// appended in the order of their numbers.
    pub fn append(
        &mut self,
        seq: RecordSeq,
        record: &Record,
        bytes: &[u8],
        hard: HardState,
    ) -> Result<(), LogError> {
        self.append_with(seq, record, (bytes, false), hard)
    }

    /// [disk-5] The same for a value whose bytes are on stable storage already, elsewhere: `places`
    /// say where, in words of the caller's, who gets them back.
    pub fn append_placed(
        &mut self,
        seq: RecordSeq,
        record: &Record,
        places: &[u8],
        hard: HardState,
    ) -> Result<(), LogError> {
        self.append_with(seq, record, (places, true), hard)
    }

    fn append_with(
        &mut self,
        seq: RecordSeq,
        record: &Record,
        (bytes, placed): (&[u8], bool),
        hard: HardState,
    ) -> Result<(), LogError> {
        let bytes_max = self.record_bytes_max();
        if bytes.len() > bytes_max {
            return Err(LogError::TooLarge { bytes: bytes.len(), bytes_max });
        }
        if self.error.is_none() {
            self.gather.append(&mut self.disk, seq, record, (bytes, placed), hard);
            // Ballots and configurations are durable in every class; a candidate or leader waits
            // for them.
            self.hurried |= !matches!(
                record,
                Record::Vote { value: Value::Batch(_), .. } | Record::Decided { .. }
            );
        }
        Ok(())
    }

    /// Most bytes that the value of one record may have.
    pub fn record_bytes_max(&self) -> usize {
        let segment = usize::try_from(self.pool.segment_bytes()).unwrap_or(usize::MAX);
        segment.min(WRITE_BYTES_MAX) - HEADER - RECORD_HEAD_MAX
    }

    /// Gathers a write that restates the hard state even if there is no record: for a clean stop,
    /// or as one that stated it is damaged. It is complete when [`Self::is_idle`] is true again.
    pub fn checkpoint(&mut self, hard: HardState) {
        if self.error.is_none() {
            self.gather.restate(&mut self.disk, RecordSeq(0), hard);
            self.hurried = true;
        }
    }

    /// Returns whether gathered records wait for more.
    pub fn lingers(&self) -> bool {
        !self.hurried && (1..self.linger_bytes).contains(&self.gather.bytes())
    }

    /// Writes gathered records without waiting for more.
    pub fn hurry(&mut self) {
        self.hurried = true;
    }

    /// Starts writes while fewer than `depth` are in flight and something has gathered.
    pub fn submit(&mut self) {
        if self.lingers() {
            return;
        }
        while self.error.is_none() && self.writer.in_flight() < self.depth {
            let Some(length) = self.gather.next_length() else {
                self.hurried = false;
                return;
            };
            if !self.writer.has_room(length) && !self.next_segment(length) {
                self.pool.hurry(&mut self.disk);
                return;
            }
            let Some(gathered) = self.gather.take() else {
                return;
            };
            self.writer.write(&mut self.disk, gathered, &mut self.holdings);
            self.pool.keep_ahead(self.writer.used(), &mut self.disk);
        }
    }

    /// Moves on to a fresh segment; false if there is none yet.
    fn next_segment(&mut self, length: usize) -> bool {
        match self.pool.take(length, &mut self.disk) {
            Ok(Some(spare)) => {
                self.writer.enter(spare);
                self.holdings.enter(spare);
                self.pool.tend(&mut self.disk);
                true
            }
            Ok(None) => false,
            Err(failure) => {
                self.error = Some(LogError::Failed(failure));
                false
            }
        }
    }

    /// Takes what completed, starts what may start. The answer is the last record on stable storage
    /// with everything before it ([disk-2]). An error is final ([disk-9]); reads go on.
    pub fn poll(&mut self) -> Result<RecordSeq, LogError> {
        while let Some(completed) = self.disk.poll() {
            match completed {
                other if !is_ours(&other) => self.others.push_back(other),
                Completed::Written { token, output, result, .. } => {
                    self.written(token, output, result)
                }
                Completed::Read { token: scrub::TOKEN, buffer, result, .. } => {
                    self.scrub.on_read(buffer, result, &self.holdings, &self.index);
                }
                Completed::Read { token, buffer, result, .. } => {
                    self.reads.on_read(token, buffer, result, &mut self.disk, &mut self.index);
                }
                Completed::Prepared { file, result } => {
                    self.pool.prepared(Segment(file.number), result);
                }
                Completed::Retired { file, result } => {
                    self.pool.retired(Segment(file.number), result);
                }
                Completed::Kept { result, .. } => self.rebased_to(result),
                // Not asked for by the log.
                Completed::Flushed { .. } | Completed::Recalled { .. } => {}
            }
        }
        self.pump_base();
        if self.error.is_none() {
            self.pool.tend(&mut self.disk);
        }
        self.submit();
        self.reads.pump(&mut self.disk, &self.index);
        match &self.error {
            None => Ok(self.writer.persisted_to()),
            Some(error) => Err(error.clone()),
        }
    }

    fn written(&mut self, seq: u64, output: Output, result: Result<(), DiskError>) {
        if let Some(buffer) = output.into_buffer() {
            self.gather.reuse(&mut self.disk, buffer);
        }
        match result {
            // Whatever completes behind a failure is not released any more.
            Ok(()) if self.error.is_none() => {
                self.writer.written(seq, &mut self.index, &mut self.holdings);
            }
            Ok(()) => {}
            Err(error) => self.fail(error),
        }
    }

    /// From now on the log is to begin with `start`, below which a snapshot has everything,
    /// durably; it never begins earlier again, whatever is asked for. `note` is the replica's, and
    /// comes back with [`Recovery::base`]. One change is in flight at a time, and the newest waits:
    /// [`Self::rebased`] tells. What lies before is used again, or removed, when that is durable
    /// ([trim-3]).
    ///
    /// # Panics
    /// The note has more than [`crate::NOTE_BYTES_MAX`] bytes.
    pub fn rebase(&mut self, start: Slot, note: Vec<u8>) {
        self.rebase.want(start, note);
        self.pump_base();
    }

    fn pump_base(&mut self) {
        if self.error.is_some() {
            return;
        }
        let complete_to = self.writer.complete_to();
        let begun = self.rebase.pump(&mut self.disk, &self.holdings, complete_to);
        if let Some(file) = begun.filter(|_| planted(Mutant::BaseAfterOverwrite)) {
            self.pool.free(self.holdings.trim(file.anchor));
        }
    }

    fn rebased_to(&mut self, result: Result<(), DiskError>) {
        if let Some(file) = self.rebase.kept(result) {
            self.index.trim(file.base.start);
            self.pool.free(self.holdings.trim(file.anchor));
        }
    }

    /// News, once: a base with this start is durable.
    pub fn rebased(&mut self) -> Option<Slot> {
        self.rebase.news()
    }

    /// Bytes of the segments that [`Self::rebase`] would free, if it began with `start` now.
    pub fn freed_by(&self, start: Slot) -> u64 {
        self.holdings.freed_by(start)
    }

    /// Returns about how many bytes of log writes lie before those that hold `slot`.
    pub fn bytes_before(&self, slot: Slot) -> u64 {
        match self.index.place_of(slot) {
            Some(place) => self.holdings.bytes_before(place),
            None => self.holdings.written_bytes(),
        }
    }

    /// Where the log begins, durably: below, nothing is indexed, read or served ([snap-3]).
    pub fn start(&self) -> Slot {
        self.index.start()
    }

    /// Returns the disk's error if the base could not be replaced, until it can be. Until then the
    /// log keeps everything.
    pub fn rebase_failure(&self) -> Option<&DiskError> {
        self.rebase.failure()
    }

    /// Number and bytes of each write that has begun and is not known to be on stable storage.
    pub fn writes(&self) -> impl Iterator<Item = (u64, u64)> {
        self.writer.writes()
    }

    /// Ends releasing for good, for a caller that knows more than the disk says: a write that takes
    /// too long has failed ([disk-9]).
    pub fn fail(&mut self, error: DiskError) {
        self.error.get_or_insert(LogError::Failed(error));
    }

    /// Asks for the values of these slots; refused below [`Self::start`]. About `bytes_max` bytes
    /// are read, one value at least. [`Self::next_read`] has the answer after some [`Self::poll`].
    pub fn start_read(
        &mut self,
        token: u64,
        range: SlotRange,
        bytes_max: usize,
    ) -> Result<(), LogError> {
        self.reads.start(token, range, bytes_max, &self.index)?;
        self.reads.pump(&mut self.disk, &self.index);
        Ok(())
    }

    /// The next read that ended.
    pub fn next_read(&mut self) -> Option<ReadDone> {
        self.reads.next()
    }

    /// All that is complete now is to be read and checked, a piece with each [`Self::scrub`]; what
    /// was being scrubbed is given up.
    pub fn begin_scrub(&mut self) {
        self.scrub.begin(self.writer.owner(), &self.holdings);
    }

    /// Nothing more is scrubbed.
    pub fn end_scrub(&mut self) {
        self.scrub.end();
    }

    /// Reads the next piece, if none is being read; [`Self::next_scrubbed`] has it after some
    /// [`Self::poll`]. `false`: all was read.
    pub fn scrub(&mut self) -> bool {
        self.scrub.start(&self.holdings, &mut self.disk)
    }

    /// The piece that was read, once.
    pub fn next_scrubbed(&mut self) -> Option<ScrubbedPiece> {
        self.scrub.next()
    }

    /// Bytes of complete log writes: what a scrub reads.
    pub fn written_bytes(&self) -> u64 {
        self.holdings.written_bytes()
    }

    /// Bytes that gather or are in flight, for back-pressure.
    pub fn backlog_bytes(&self) -> usize {
        self.gather.bytes() + self.writer.bytes_in_flight()
    }

    /// Returns whether everything appended is on stable storage.
    pub fn is_idle(&self) -> bool {
        self.backlog_bytes() == 0
    }

    /// Returns whether no read waits or is in flight.
    pub fn reads_idle(&self) -> bool {
        self.reads.is_idle()
    }

    /// Why a write waits for a segment, if one does and making one failed. Not an error: the log
    /// goes on when there is room.
    pub fn busy_reason(&self) -> Option<String> {
        let failure = self.pool.failure()?;
        let what = match failure.lack {
            Some(Lack::Descriptors) => "no descriptor for",
            Some(Lack::Room) | None => "no room for",
        };
        Some(format!("{what} the next segment: {failure}"))
    }

    /// Why what has gathered cannot be written: the segment in use has no room for it, and there is
    /// no other. Nothing is in flight that could change that.
    pub fn obstacle(&self) -> Option<&DiskError> {
        let length = self.gather.next_length()?;
        let waits = self.writer.in_flight() == 0 && !self.writer.has_room(length);
        self.pool.failure().filter(|_| waits)
    }

    /// Returns whether space or descriptors are missing. The log retries after some calls of
    /// [`Self::poll`]; it has no clock.
    pub fn is_short(&self) -> bool {
        let rebase = self.rebase.failure().is_some();
        rebase || self.pool.failure().is_some() || self.reads.is_short()
    }

    /// Enough time has passed since the last attempt: the next [`Self::poll`] tries again.
    pub fn try_again(&mut self) {
        self.pool.try_again();
        self.reads.try_again();
        self.rebase.try_again();
    }

    /// Returns the disk's error if a segment could not be made, until one can be made again.
    pub fn segment_failure(&self) -> Option<&DiskError> {
        self.pool.failure()
    }

    /// Bytes of segments that hold something that is needed: neither spares nor what was trimmed.
    pub fn used_bytes(&self) -> u64 {
        self.holdings.bytes()
    }

    /// Bytes of all segments on disk, those that wait to be used included.
    pub fn size_bytes(&self) -> u64 {
        self.pool.bytes()
    }

    /// Bytes of segments that wait to be used.
    pub fn spare_bytes(&self) -> u64 {
        self.pool.spare_bytes()
    }

    /// Returns the number of segments.
    pub fn segments(&self) -> usize {
        self.pool.files()
    }

    /// Returns the place of the next write, if a segment is in use.
    pub fn position(&self) -> Option<Place> {
        self.writer.position()
    }

    /// The last write that is here, and on stable storage with all before it, as far as they are
    /// not known to be damaged. The next process finds it, whatever else it finds.
    pub fn whole_to(&self) -> u64 {
        let complete_to = self.writer.complete_to();
        match complete_to > self.opened_to.0 {
            true => complete_to,
            // Writes that are missing at the end have numbers, too.
            false => self.opened_to.1,
        }
    }

    /// Number of the next write.
    pub fn next_seq(&self) -> u64 {
        self.writer.next_seq()
    }

    /// Readable when [`Self::poll`] has something to do; for epoll.
    pub fn wait_fd(&self) -> Option<BorrowedFd<'_>> {
        self.disk.wait_fd()
    }

    /// Describes the driver of the disk and why it was chosen.
    pub fn describe(&self) -> String {
        self.disk.describe()
    }

    /// Returns the disk's counts for the log: one write and one flush per log write.
    pub fn counters(&self) -> DiskCounters {
        self.disk.counters().of_the_log()
    }

    /// The disk.
    pub fn disk(&self) -> &D {
        &self.disk
    }

    /// The disk, for operations on files of other families, and on small files other than `base`.
    /// What they come to is told by [`Self::next_other`]; the log itself has up to eight operations
    /// in flight of those that a disk takes.
    pub fn disk_mut(&mut self) -> &mut D {
        &mut self.disk
    }

    /// Returns the next completion of an operation that was not the log's, in order. [`Self::poll`]
    /// finds these, also when it reports that the log has failed.
    pub fn next_other(&mut self) -> Option<Completed> {
        self.others.pop_front()
    }

    #[cfg(test)]
    pub(crate) fn scrubs(&self) -> Option<Segment> {
        self.scrub.reads()
    }

    #[cfg(test)]
    pub(crate) fn index_entries(&self) -> usize {
        self.index.entries()
    }
}
