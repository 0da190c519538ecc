//! The log of one node: append, submit, poll, read.

use std::{collections::VecDeque, os::fd::BorrowedFd};

use crate::disk::{Completed, Disk, DiskCounters, DiskError, ExhaustedResource, Family, Output};
use quorate_core::{
    record::{HardState, Record, RecordSeq},
    slot::{Slot, SlotRange},
    value::Value,
};

use crate::{
    base::BASE_FILE,
    error::LogError,
    holdings::Holdings,
    index::Index,
    log_write::{HEADER_BYTES, WRITE_BYTES_MAX},
    mutant::{Mutant, planted},
    options::LogOptions,
    place::{Place, Segment},
    pool::Pool,
    read::{ReadDone, Reads},
    rebase::Rebase,
    record::RECORD_HEAD_BYTES_MAX,
    recover::{Recovery, recover},
    scrub::{self, Scrub, ScrubbedPiece},
    told::ReadProgress,
    writer::{WriteQueue, Writer},
};

/// Returns whether the log started the operation that completed.
fn is_log_completion(completed: &Completed) -> bool {
    match completed {
        Completed::Written { file, .. }
        | Completed::Read { file, .. }
        | Completed::Flushed { file, .. }
        | Completed::Prepared { file, .. }
        | Completed::Retired { file, .. } => file.family == Family::Log,
        Completed::SmallFileReplaced { name, .. } => *name == BASE_FILE,
        Completed::SmallFileRead { .. } => false,
    }
}

/// The log of one node. It has no clock and no thread, and makes progress only when called.
///
/// `append` buffers records. `start_writes` starts log writes while fewer than
/// `writes_in_flight_max` are in flight. `poll` handles completions, and returns the record up to
/// which everything is on stable storage.
#[derive(Debug)]
pub struct Log<D> {
    disk: D,
    writes_in_flight_max: usize,
    linger_bytes: usize,
    /// Set if buffered records must be written without waiting for more.
    skips_linger: bool,
    gather: WriteQueue,
    writer: Writer,
    segment_pool: Pool,
    index: Index,
    holdings: Holdings,
    rebase: Rebase,
    /// Highest log write number in use when the log was opened, and the highest number of an intact
    /// log write at that time.
    seqs_at_open: (u64, u64),
    reads: Reads,
    scrub: Scrub,
    /// Completions of operations that the log did not start.
    other_completions: VecDeque<Completed>,
    /// [disk-9] Permanent failure.
    error: Option<LogError>,
}

impl<D: Disk> Log<D> {
    /// Opens the log: reads the existing records, and prepares to continue after them. Blocks while
    /// reading.
    pub fn open(disk: D, options: LogOptions) -> Result<(Self, Recovery), LogError> {
        Self::open_with_progress(disk, options, &mut |_| ())
    }

    /// Like [`Self::open`], but calls `tell` with the progress of reading.
    pub fn open_with_progress(
        mut disk: D,
        options: LogOptions,
        tell: &mut dyn FnMut(ReadProgress),
    ) -> Result<(Self, Recovery), LogError> {
        options.check()?;
        let opened = recover(&mut disk, &options, tell)?;
        let walked = opened.walk_result;
        // [disk-4] A segment that was cut off is never written again. A new segment is used
        // instead.
        let go_on = walked.is_tail_clean || planted(Mutant::SegmentKeptAfterCut);
        let tail = walked.tail.filter(|_| go_on);
        if let Some((tail, ..)) = tail {
            disk.open_next_file(tail.segment.into()).map_err(LogError::Disk)?;
        }
        let writer = Writer::new(
            options.owner(),
            options.incarnation,
            walked.next_seq,
            walked.last_checksum,
            tail,
        );
        let mut log = Self {
            writes_in_flight_max: options.writes_in_flight_max,
            linger_bytes: options.linger_bytes,
            skips_linger: false,
            gather: WriteQueue::new(options.write_bytes_max, options.writes_in_flight_max + 2),
            writer,
            segment_pool: Pool::new(
                options.segment_bytes,
                options.zero_fill(),
                options.spare_segments,
                opened.highest_segment,
                &walked,
            ),
            rebase: Rebase::new(options.owner(), opened.index.start()),
            index: opened.index,
            holdings: opened.holdings,
            other_completions: VecDeque::new(),
            reads: Reads::default(),
            seqs_at_open: (walked.next_seq.saturating_sub(1), walked.intact_to),
            scrub: Scrub::default(),
            error: None,
            disk,
        };
        log.segment_pool.maintain_spares(&mut log.disk);
        Ok((log, opened.recovery))
    }

    /// Buffers a record with the bytes of its value. `hard` is the hard state after the record.
    /// Records must be appended in the order of their numbers.
    pub fn append(
        &mut self,
        seq: RecordSeq,
        record: &Record,
        bytes: &[u8],
        hard: HardState,
    ) -> Result<(), LogError> {
        self.append_encoded(seq, record, (bytes, false), hard)
    }

    /// [disk-5] Buffers a record whose value is already on stable storage elsewhere. `places`
    /// locates the value in an encoding chosen by the caller. Reads return it.
    pub fn append_placed(
        &mut self,
        seq: RecordSeq,
        record: &Record,
        places: &[u8],
        hard: HardState,
    ) -> Result<(), LogError> {
        self.append_encoded(seq, record, (places, true), hard)
    }

    fn append_encoded(
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
            // Ballots and configurations are durable in every class, and a candidate or leader
            // waits for them.
            self.skips_linger |= !matches!(
                record,
                Record::Vote { value: Value::Batch(_), .. } | Record::Decided { .. }
            );
        }
        Ok(())
    }

    pub fn record_bytes_max(&self) -> usize {
        let segment = usize::try_from(self.segment_pool.segment_bytes()).unwrap_or(usize::MAX);
        segment.min(WRITE_BYTES_MAX) - HEADER_BYTES - RECORD_HEAD_BYTES_MAX
    }

    /// Returns the size of a new segment in bytes.
    pub fn segment_bytes(&self) -> u64 {
        self.segment_pool.segment_bytes()
    }

    /// Buffers a log write that restates the hard state even without a record. Used for a clean
    /// stop, or when the last restatement is damaged. The log write is complete when
    /// [`Self::is_idle`] becomes true again.
    pub fn checkpoint(&mut self, hard: HardState) {
        if self.error.is_none() {
            self.gather.restate_hard_state(&mut self.disk, RecordSeq(0), hard);
            self.skips_linger = true;
        }
    }

    /// Returns whether buffered records wait for more records before they are written.
    pub fn is_lingering(&self) -> bool {
        !self.skips_linger && (1..self.linger_bytes).contains(&self.gather.bytes())
    }

    /// Lets buffered records be written without waiting for more.
    pub fn write_soon(&mut self) {
        self.skips_linger = true;
    }

    /// Starts log writes while records are buffered and fewer than `writes_in_flight_max` are in
    /// flight.
    pub fn start_writes(&mut self) {
        if self.is_lingering() {
            return;
        }
        while self.error.is_none() && self.writer.in_flight() < self.writes_in_flight_max {
            let Some(length) = self.gather.next_write_bytes() else {
                self.skips_linger = false;
                return;
            };
            if !self.writer.has_room(length) && !self.switch_segment(length) {
                self.segment_pool.hurry_creation(&mut self.disk);
                return;
            }
            let Some(gathered) = self.gather.take_write() else {
                return;
            };
            self.writer.write(&mut self.disk, gathered, &mut self.holdings);
            self.segment_pool.pace_creation(self.writer.used_bytes(), &mut self.disk);
        }
    }

    /// Switches to a new segment. Returns false if none is ready.
    fn switch_segment(&mut self, length: usize) -> bool {
        match self.segment_pool.take_segment(length, &mut self.disk) {
            Ok(Some(spare)) => {
                self.writer.begin_segment(spare);
                self.holdings.add_segment(spare);
                self.segment_pool.maintain_spares(&mut self.disk);
                true
            }
            Ok(None) => false,
            Err(failure) => {
                self.error = Some(LogError::Failed(failure));
                false
            }
        }
    }

    /// Handles completions and starts queued operations. Returns the last record that, with
    /// everything before it, is on stable storage ([disk-2]). An error is permanent ([disk-9]), but
    /// reads continue to work.
    pub fn poll(&mut self) -> Result<RecordSeq, LogError> {
        while let Some(completed) = self.disk.poll() {
            match completed {
                other if !is_log_completion(&other) => self.other_completions.push_back(other),
                Completed::Written { token, output, result, .. } => {
                    self.on_written(token, output, result)
                }
                Completed::Read { token: scrub::SCRUB_TOKEN, buffer, result, .. } => {
                    self.scrub.on_read(buffer, result, &self.holdings, &self.index);
                }
                Completed::Read { token, buffer, result, .. } => {
                    self.reads.on_read(token, buffer, result, &mut self.disk, &mut self.index);
                }
                Completed::Prepared { file, result } => {
                    self.segment_pool.on_prepared(Segment(file.number), result);
                }
                Completed::Retired { file, result } => {
                    self.segment_pool.retired(Segment(file.number), result);
                }
                Completed::SmallFileReplaced { result, .. } => self.on_rebase_done(result),
                // The log starts no such operations.
                Completed::Flushed { .. } | Completed::SmallFileRead { .. } => {}
            }
        }
        self.pump_base();
        if self.error.is_none() {
            self.segment_pool.maintain_spares(&mut self.disk);
        }
        self.start_writes();
        self.reads.start_queued(&mut self.disk, &self.index);
        match &self.error {
            None => Ok(self.writer.persisted_to()),
            Some(error) => Err(error.clone()),
        }
    }

    fn on_written(&mut self, seq: u64, output: Output, result: Result<(), DiskError>) {
        if let Some(buffer) = output.into_buffer() {
            self.gather.reuse_buffer(&mut self.disk, buffer);
        }
        match result {
            // Records that complete after a failure are never released.
            Ok(()) if self.error.is_none() => {
                self.writer.on_written(seq, &mut self.index, &mut self.holdings);
            }
            Ok(()) => {}
            Err(error) => self.fail(error),
        }
    }

    /// Requests that the log begin at `start`. A snapshot must durably cover the slots below it.
    /// The start never decreases, whatever later calls request. `note` belongs to the replica,
    /// which gets it back in [`Recovery::base`]. One change is in flight at a time, and only the
    /// newest request waits; [`Self::take_rebased`] reports completion. Segments before the new
    /// start are recycled or removed once it is durable ([trim-3]). Panics if the note exceeds
    /// [`crate::NOTE_BYTES_MAX`].
    pub fn rebase(&mut self, start: Slot, note: Vec<u8>) {
        self.rebase.request_base(start, note);
        self.pump_base();
    }

    fn pump_base(&mut self) {
        if self.error.is_some() {
            return;
        }
        let complete_to = self.writer.complete_to();
        let begun = self.rebase.start_pending(&mut self.disk, &self.holdings, complete_to);
        if let Some(file) = begun.filter(|_| planted(Mutant::BaseAfterOverwrite)) {
            self.segment_pool.add_trimmed(self.holdings.trim(file.anchor));
        }
    }

    fn on_rebase_done(&mut self, result: Result<(), DiskError>) {
        if let Some(file) = self.rebase.on_replaced(result) {
            self.index.trim(file.base.start);
            self.segment_pool.add_trimmed(self.holdings.trim(file.anchor));
        }
    }

    /// Returns the start slot of a base that has become durable since the last call.
    pub fn take_rebased(&mut self) -> Option<Slot> {
        self.rebase.take_new_start()
    }

    /// Returns how many bytes of segments a [`Self::rebase`] to `start` would free now.
    pub fn bytes_freed_by(&self, start: Slot) -> u64 {
        self.holdings.bytes_freed_by(start)
    }

    /// Returns approximately how many bytes of log writes precede those with `slot`.
    pub fn bytes_before(&self, slot: Slot) -> u64 {
        match self.index.first_place_from(slot) {
            Some(place) => self.holdings.bytes_before(place),
            None => self.holdings.written_bytes(),
        }
    }

    /// Returns the durable first slot of the log. Lower slots are not indexed, read or served
    /// ([snap-3]).
    pub fn start(&self) -> Slot {
        self.index.start()
    }

    /// Returns the error of the last attempt to replace the base, or `None` once a retry has
    /// succeeded. Meanwhile the log retains everything.
    pub fn rebase_failure(&self) -> Option<&DiskError> {
        self.rebase.failure()
    }

    /// Returns the number and size of each log write that has begun and is not known to be on
    /// stable storage.
    pub fn writes_in_flight(&self) -> impl Iterator<Item = (u64, u64)> {
        self.writer.writes_in_flight()
    }

    /// Permanently stops releasing records. For a caller that knows more than the disk reports,
    /// because a write that takes too long has failed ([disk-9]).
    pub fn fail(&mut self, error: DiskError) {
        self.error.get_or_insert(LogError::Failed(error));
    }

    /// Requests the values of the slots in `range`. Fails for slots below [`Self::start`]. Reads
    /// about `bytes_max` bytes, at least one value. [`Self::next_read_done`] returns the result
    /// after a later [`Self::poll`].
    pub fn start_read(
        &mut self,
        token: u64,
        range: SlotRange,
        bytes_max: usize,
    ) -> Result<(), LogError> {
        self.reads.queue_read(token, range, bytes_max, &self.index)?;
        self.reads.start_queued(&mut self.disk, &self.index);
        Ok(())
    }

    pub fn next_read_done(&mut self) -> Option<ReadDone> {
        self.reads.next_done()
    }

    /// Starts a scrub of all log writes that are complete now. Replaces a scrub in progress. Each
    /// [`Self::scrub`] reads one piece, at most 256 KiB.
    pub fn begin_scrub(&mut self) {
        self.scrub.begin_pass(self.writer.owner(), &self.holdings);
    }

    pub fn end_scrub(&mut self) {
        self.scrub.end_pass();
    }

    /// Reads the next piece, unless one is being read. [`Self::next_scrubbed_piece`] returns the
    /// result after a later [`Self::poll`]. Returns `false` if everything was read.
    pub fn scrub(&mut self) -> bool {
        self.scrub.start_read(&self.holdings, &mut self.disk)
    }

    /// Returns the result of the last read of a scrub, once.
    pub fn next_scrubbed_piece(&mut self) -> Option<ScrubbedPiece> {
        self.scrub.next_piece()
    }

    /// Returns the total size of all complete log writes, which a scrub reads, in bytes.
    pub fn written_bytes(&self) -> u64 {
        self.holdings.written_bytes()
    }

    /// Returns the number of bytes that are buffered or in flight, for backpressure.
    pub fn backlog_bytes(&self) -> usize {
        self.gather.bytes() + self.writer.bytes_in_flight()
    }

    /// Returns whether everything appended is on stable storage.
    pub fn is_idle(&self) -> bool {
        self.backlog_bytes() == 0
    }

    /// Returns whether no read is queued or in flight.
    pub fn reads_idle(&self) -> bool {
        self.reads.is_idle()
    }

    /// Describes the lack of space or descriptors for which creating or opening the next segment
    /// failed, if any. This is not an error: the log continues once they are available.
    pub fn shortage_reason(&self) -> Option<String> {
        let failure = self.segment_pool.failure()?;
        let what = match failure.exhausted {
            Some(ExhaustedResource::Descriptors) => "no descriptor for",
            Some(ExhaustedResource::Space) | None => "no room for",
        };
        Some(format!("{what} the next segment: {failure}"))
    }

    /// Returns the disk's error if buffered records cannot be written: the current segment is full,
    /// there is no other one, and no write in flight could change that.
    pub fn write_obstacle(&self) -> Option<&DiskError> {
        let length = self.gather.next_write_bytes()?;
        let waits = self.writer.in_flight() == 0 && !self.writer.has_room(length);
        self.segment_pool.failure().filter(|_| waits)
    }

    /// Returns whether the log lacks space or descriptors. Because it has no clock, it retries
    /// after a number of [`Self::poll`] calls.
    pub fn is_short_of_resources(&self) -> bool {
        let rebase = self.rebase.failure().is_some();
        rebase || self.segment_pool.failure().is_some() || self.reads.is_short()
    }

    /// Ends the backoff, so that the next [`Self::poll`] retries.
    pub fn retry_now(&mut self) {
        self.segment_pool.retry_now();
        self.reads.try_again();
        self.rebase.retry_now();
    }

    /// Returns the error of the last attempt to create a segment, until one can be created again.
    pub fn segment_failure(&self) -> Option<&DiskError> {
        self.segment_pool.failure()
    }

    /// Returns the total size of the segments still needed, without spares and trimmed segments, in
    /// bytes.
    pub fn used_bytes(&self) -> u64 {
        self.holdings.bytes()
    }

    /// Returns the total size of all segments on disk, spares included, in bytes.
    pub fn size_bytes(&self) -> u64 {
        self.segment_pool.bytes()
    }

    pub fn spare_bytes(&self) -> u64 {
        self.segment_pool.spare_bytes()
    }

    pub fn segments(&self) -> usize {
        self.segment_pool.files()
    }

    /// Returns the place of the next log write, or `None` if no segment is in use.
    pub fn next_write_place(&self) -> Option<Place> {
        self.writer.next_write_place()
    }

    /// Returns the number of the last log write that is intact and on stable storage, and that the
    /// next process is sure to find. All earlier log writes are intact too, except where damage is
    /// known.
    pub fn intact_to(&self) -> u64 {
        let complete_to = self.writer.complete_to();
        match complete_to > self.seqs_at_open.0 {
            true => complete_to,
            // Numbers up to `seqs_at_open.0` include log writes that are missing at the end.
            false => self.seqs_at_open.1,
        }
    }

    pub fn next_seq(&self) -> u64 {
        self.writer.next_seq()
    }

    /// Returns a descriptor, for epoll, that is readable when [`Self::poll`] has a completion to
    /// handle.
    pub fn wait_fd(&self) -> Option<BorrowedFd<'_>> {
        self.disk.wait_fd()
    }

    pub fn describe(&self) -> String {
        self.disk.describe()
    }

    /// Returns the disk's counters for the log. There is one write and one flush per log write.
    pub fn counters(&self) -> DiskCounters {
        self.disk.counters().without_other_families()
    }

    pub fn disk(&self) -> &D {
        &self.disk
    }

    /// Returns the disk, for operations on files of other families, and on small files other than
    /// `base`. [`Self::next_other_completion`] returns their completions. The log itself has up to
    /// [`crate::OPERATIONS_MAX`] of the disk's operations in flight.
    pub fn disk_mut(&mut self) -> &mut D {
        &mut self.disk
    }

    /// Returns the next completion of an operation that the log did not start, in order.
    /// [`Self::poll`] collects these, even if it reports that the log has failed.
    pub fn next_other_completion(&mut self) -> Option<Completed> {
        self.other_completions.pop_front()
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
