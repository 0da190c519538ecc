//! Segments created ahead of need, off the commit path ([disk-10]). A trimmed segment is recycled
//! under the next number; its old contents stay until they are overwritten. A few are retained for
//! this. Surplus ones, and those of another size than new segments, are removed one by one.
//!
//! One spare is ready while the log writes, or as many as configured. During a burst that fits into
//! the spares, the disk writes no zeros. If a spare cannot be created, the log continues in its
//! current segment. Once that is full too:
//! - A lack of space (ENOSPC, EDQUOT) or of descriptors (EMFILE, ENFILE) makes the log **busy**: it
//!   buffers records, the caller applies backpressure, and the log continues as soon as the
//!   resource is available. This never becomes an error, because no promise is broken by waiting.
//! - Any other failure (EIO, EROFS) is a permanent **error**, like a failed write ([disk-9]).

use std::{collections::VecDeque, io::ErrorKind};

use crate::disk::{Disk, DiskError, ExhaustedResource, Family, ZeroFill};

use crate::{
    patience::Backoff,
    place::{Segment, SegmentFile},
    walk::WalkResult,
};

/// Maximum number of calls between two attempts to create a segment.
const CREATE_SKIPS_MAX: u32 = 1024;
/// Maximum number of calls between two attempts to open a file. Lower, because a retry is cheap.
const OPEN_SKIPS_MAX: u32 = 16;
/// Number of trimmed segments kept for recycling, in addition to those that replace missing spares.
const RECYCLED_MAX: usize = 4;

#[derive(Debug)]
pub(crate) struct Pool {
    segment_bytes: u64,
    zeros: ZeroFill,
    /// Number of spares to maintain.
    spares_wanted: usize,
    spares: VecDeque<SegmentFile>,
    /// The spare whose file is open. It is written next.
    open_spare: Option<Segment>,
    preparing: Option<Segment>,
    /// The trimmed segment that is being recycled as `preparing`, or `None` if `preparing` is
    /// created from scratch.
    recycling_from: Option<SegmentFile>,
    /// Trimmed segments, which a durable base no longer needs.
    recyclable: VecDeque<SegmentFile>,
    being_removed: Option<SegmentFile>,
    /// Backoff after a segment could not be removed.
    remove_backoff: Backoff,
    /// Set once the disk has been notified that a log write waits for the segment.
    is_hurried: bool,
    /// Highest segment number in use. Numbers are epochs and never decrease ([disk-4]).
    highest_segment: Segment,
    /// Error of the last attempt to create a spare, if it failed.
    create_error: Option<DiskError>,
    /// Backoff after a failure to create a segment, so that a full disk does not cause a busy loop.
    create_backoff: Backoff,
    /// Error of the last attempt to open the next spare, if it failed.
    open_error: Option<DiskError>,
    open_backoff: Backoff,
    files: usize,
    bytes: u64,
}

impl Pool {
    pub(crate) fn new(
        segment_bytes: u64,
        zeros: ZeroFill,
        wanted: usize,
        highest: Segment,
        walked: &WalkResult,
    ) -> Self {
        let WalkResult { files, spares, trimmed_segments: trimmed, .. } = walked;
        let all = || files.iter().chain(trimmed);
        Self {
            segment_bytes,
            zeros,
            spares_wanted: wanted,
            spares: spares.iter().copied().collect(),
            open_spare: None,
            preparing: None,
            recycling_from: None,
            recyclable: trimmed.iter().copied().collect(),
            being_removed: None,
            remove_backoff: Backoff::default(),
            is_hurried: false,
            highest_segment: highest,
            create_error: None,
            create_backoff: Backoff::default(),
            open_error: None,
            open_backoff: Backoff::default(),
            files: all().count(),
            bytes: all().map(|file| file.bytes).sum(),
        }
    }

    /// Returns a segment with room for `length` bytes and an open file, or `None` if none is ready.
    /// A spare that is too small is freed permanently; this happens only after the segment size has
    /// been raised. An error is permanent.
    pub(crate) fn take_segment<D: Disk>(
        &mut self,
        length: usize,
        disk: &mut D,
    ) -> Result<Option<SegmentFile>, DiskError> {
        while let Some(spare) = self.spares.front()
            && spare.bytes < length as u64
        {
            self.recyclable.extend(self.spares.pop_front());
        }
        if self.open_next_spare(disk) {
            return Ok(self.spares.pop_front());
        }
        let why = match self.spares.is_empty() {
            true => &self.create_error,
            false => &self.open_error,
        };
        match why {
            Some(failure) if failure.exhausted.is_none() => Err(failure.clone()),
            _ => Ok(None),
        }
    }

    /// Opens the file of the next spare. Returns whether it is open.
    fn open_next_spare<D: Disk>(&mut self, disk: &mut D) -> bool {
        let Some(next) = self.spares.front().map(|spare| spare.segment) else {
            return false;
        };
        if self.open_spare != Some(next) && self.open_backoff.try_or_skip() {
            match disk.open_next_file(next.into()) {
                Ok(()) => {
                    self.open_spare = Some(next);
                    self.open_error = None;
                    self.open_backoff.record_success();
                }
                Err(error) => {
                    self.open_error = Some(error);
                    self.open_backoff.record_failure(OPEN_SKIPS_MAX);
                }
            }
        }
        self.open_spare == Some(next)
    }

    /// Opens the next spare, and creates one if there are too few. Called with every poll.
    pub(crate) fn maintain_spares<D: Disk>(&mut self, disk: &mut D) {
        self.open_next_spare(disk);
        self.retire(disk);
        if self.spares.len() >= self.spares_wanted || self.preparing.is_some() {
            return;
        }
        if let Some(at) = self.recyclable.iter().position(|free| self.is_recyclable(free)) {
            if self.create_error.is_none() || self.create_backoff.try_or_skip() {
                let free = self.recyclable.remove(at);
                self.prepare(disk, free);
            }
            return;
        }
        if !self.spares.is_empty() && !self.has_disk_room(disk) {
            return;
        }
        if let Some(failure) = &self.create_error {
            let room = disk.free_bytes(Family::Log).is_none_or(|free| free >= self.segment_bytes);
            if failure.exhausted == Some(ExhaustedResource::Space) && !room {
                return;
            }
            if !self.create_backoff.try_or_skip() {
                return;
            }
        }
        self.prepare(disk, None);
    }

    /// Creates the segment with the next number, by recycling `free` if it is given.
    fn prepare<D: Disk>(&mut self, disk: &mut D, free: Option<SegmentFile>) {
        let next = Segment(self.highest_segment.0 + 1);
        self.preparing = Some(next);
        self.recycling_from = free;
        self.is_hurried = false;
        match free {
            Some(free) => disk.start_reuse(free.segment.into(), next.into()),
            None => disk.start_prepare(next.into(), self.segment_bytes, self.zeros),
        }
    }

    /// Adds trimmed segments, which a durable base no longer needs.
    pub(crate) fn add_trimmed(&mut self, trimmed: impl Iterator<Item = SegmentFile>) {
        self.recyclable.extend(trimmed);
        self.create_backoff.end_wait();
    }

    /// Returns whether a free segment has the size of new ones, so that it can be recycled.
    fn is_recyclable(&self, free: &SegmentFile) -> bool {
        free.bytes == self.segment_bytes
    }

    /// Removes a free segment that will not be recycled, one at a time.
    fn retire<D: Disk>(&mut self, disk: &mut D) {
        if self.recyclable.is_empty()
            || self.being_removed.is_some()
            || !self.remove_backoff.try_or_skip()
        {
            return;
        }
        let missing = self.spares_wanted.saturating_sub(self.spares.len());
        let at = match self.recyclable.iter().position(|free| !self.is_recyclable(free)) {
            None if self.recyclable.len() > RECYCLED_MAX + missing => Some(0),
            at => at,
        };
        self.being_removed = at.and_then(|at| self.recyclable.remove(at));
        if let Some(retiring) = self.being_removed {
            disk.start_retire(retiring.segment.into());
        }
    }

    /// Handles the removal of a segment, or its failure.
    pub(crate) fn retired(&mut self, segment: Segment, result: Result<(), DiskError>) {
        let Some(file) = self.being_removed.take_if(|file| file.segment == segment) else {
            return;
        };
        match result {
            Err(error) if error.kind != ErrorKind::NotFound => {
                self.remove_backoff.record_failure(CREATE_SKIPS_MAX);
                self.recyclable.push_back(file);
            }
            _ => {
                self.remove_backoff.record_success();
                self.forget_file(file);
            }
        }
    }

    /// Returns whether the disk has room for another spare while one exists. At least as much space
    /// as the spares take is left to other files, such as the service's. Checked only occasionally.
    fn has_disk_room<D: Disk>(&mut self, disk: &D) -> bool {
        if !self.create_backoff.try_or_skip() {
            return false;
        }
        let spare_bytes: u64 = self.spares.iter().map(|spare| spare.bytes).sum();
        let wanted = spare_bytes + 2 * self.segment_bytes;
        let may = disk.free_bytes(Family::Log).is_none_or(|free| free >= wanted);
        if !may {
            self.create_backoff.skip_next(CREATE_SKIPS_MAX);
        }
        may
    }

    /// Paces the creation of a segment. `used` is the number of bytes used in the current one. If
    /// no spare exists, the new segment is created a quarter ahead of the current one's use, so
    /// that a fast enough disk has it ready in time at any write rate.
    pub(crate) fn pace_creation<D: Disk>(&self, used: u64, disk: &mut D) {
        if self.preparing.is_some() {
            let is_next = self.spares.is_empty();
            disk.pace_file_creation(Family::Log, if is_next { used + used / 4 } else { 0 });
        }
    }

    /// Returns the total size of the spares and of the segments that will become spares, in bytes.
    pub(crate) fn spare_bytes(&self) -> u64 {
        let waiting = self.spares.iter().chain(&self.recyclable);
        let waiting = waiting.chain(&self.recycling_from).chain(&self.being_removed);
        waiting.map(|file| file.bytes).sum()
    }

    /// Notifies the disk that a log write waits for the segment being created.
    pub(crate) fn hurry_creation<D: Disk>(&mut self, disk: &mut D) {
        if self.preparing.is_some() && !self.is_hurried {
            self.is_hurried = true;
            disk.hurry_file_creation(Family::Log);
        }
    }

    /// Stops counting a file that was removed or turned out to be missing.
    fn forget_file(&mut self, file: SegmentFile) {
        self.files -= 1;
        self.bytes -= file.bytes;
    }

    pub(crate) fn on_prepared(&mut self, segment: Segment, result: Result<(), DiskError>) {
        if self.preparing == Some(segment) {
            self.preparing = None;
        }
        let reused = self.recycling_from.take();
        match result {
            Ok(()) => {
                self.highest_segment = self.highest_segment.max(segment);
                self.spares.push_back(SegmentFile { segment, bytes: self.segment_bytes });
                if reused.is_none() {
                    self.files += 1;
                    self.bytes += self.segment_bytes;
                }
                self.create_error = None;
                self.create_backoff.record_success();
            }
            Err(error) if reused.is_some() && error.exhausted.is_none() => {
                // The file has no valid name until the next start. Another one is recycled or
                // created under the same number, and replaces it if it already has that name.
                if let Some(file) = reused.filter(|_| error.kind == ErrorKind::NotFound) {
                    self.forget_file(file);
                }
            }
            Err(error) => {
                // If space or a descriptor was missing, the file may already have its new name. The
                // request is repeated.
                if let Some(file) = reused {
                    self.recyclable.push_front(file);
                }
                self.create_backoff.record_failure(match error.exhausted {
                    Some(ExhaustedResource::Descriptors) => OPEN_SKIPS_MAX,
                    Some(ExhaustedResource::Space) | None => CREATE_SKIPS_MAX,
                });
                self.create_error = Some(error);
            }
        }
    }

    /// Ends the backoff, so that the next call retries failed requests.
    pub(crate) const fn retry_now(&mut self) {
        self.create_backoff.end_wait();
        self.open_backoff.end_wait();
        self.remove_backoff.end_wait();
    }

    /// Returns the error from creating or opening a segment, because of which the log lacks a
    /// segment now or soon.
    pub(crate) fn failure(&self) -> Option<&DiskError> {
        self.open_error.as_ref().or(self.create_error.as_ref())
    }

    pub(crate) fn segment_bytes(&self) -> u64 {
        self.segment_bytes
    }

    pub(crate) fn files(&self) -> usize {
        self.files
    }

    pub(crate) fn bytes(&self) -> u64 {
        self.bytes
    }
}
