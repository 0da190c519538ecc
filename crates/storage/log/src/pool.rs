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

use crate::disk::{Disk, DiskError, Family, Lack, Zeros};

use crate::{
    patience::Backoff,
    place::{Segment, SegmentFile},
    walk::Walked,
};

/// Maximum number of calls between two attempts to create a segment.
const SKIPS_MAX: u32 = 1024;
/// Maximum number of calls between two attempts to open a file. Lower, because a retry is cheap.
const OPEN_SKIPS_MAX: u32 = 16;
/// Number of trimmed segments kept for recycling, in addition to those that replace missing spares.
const FREE_MAX: usize = 4;

#[derive(Debug)]
pub(crate) struct Pool {
    segment_bytes: u64,
    zeros: Zeros,
    /// Number of spares to maintain.
    target_spares: usize,
    spares: VecDeque<SegmentFile>,
    /// The spare whose file is open. It is written next.
    next_spare: Option<Segment>,
    preparing: Option<Segment>,
    /// The trimmed segment that is being recycled as `preparing`, or `None` if `preparing` is
    /// created from scratch.
    reusing: Option<SegmentFile>,
    /// Trimmed segments, which a durable base no longer needs.
    free: VecDeque<SegmentFile>,
    retiring: Option<SegmentFile>,
    /// Backoff after a segment could not be removed.
    removing: Backoff,
    /// Set once the disk has been notified that a log write waits for the segment.
    hurried: bool,
    /// Highest segment number in use. Numbers are epochs and never decrease ([disk-4]).
    highest: Segment,
    /// Error of the last attempt to create a spare, if it failed.
    not_made: Option<DiskError>,
    /// Backoff after a failure to create a segment, so that a full disk does not cause a busy loop.
    making: Backoff,
    /// Error of the last attempt to open the next spare, if it failed.
    not_opened: Option<DiskError>,
    opening: Backoff,
    files: usize,
    bytes: u64,
}

impl Pool {
    pub(crate) fn new(
        segment_bytes: u64,
        zeros: Zeros,
        wanted: usize,
        highest: Segment,
        walked: &Walked,
    ) -> Self {
        let Walked { files, spares, trimmed, .. } = walked;
        let all = || files.iter().chain(trimmed);
        Self {
            segment_bytes,
            zeros,
            target_spares: wanted,
            spares: spares.iter().copied().collect(),
            next_spare: None,
            preparing: None,
            reusing: None,
            free: trimmed.iter().copied().collect(),
            retiring: None,
            removing: Backoff::default(),
            hurried: false,
            highest,
            not_made: None,
            making: Backoff::default(),
            not_opened: None,
            opening: Backoff::default(),
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
            self.free.extend(self.spares.pop_front());
        }
        if self.open_ahead(disk) {
            return Ok(self.spares.pop_front());
        }
        let why = match self.spares.is_empty() {
            true => &self.not_made,
            false => &self.not_opened,
        };
        match why {
            Some(failure) if failure.lack.is_none() => Err(failure.clone()),
            _ => Ok(None),
        }
    }

    /// Opens the file of the next spare. Returns whether it is open.
    fn open_ahead<D: Disk>(&mut self, disk: &mut D) -> bool {
        let Some(next) = self.spares.front().map(|spare| spare.segment) else {
            return false;
        };
        if self.next_spare != Some(next) && self.opening.may_try() {
            match disk.open_ahead(next.into()) {
                Ok(()) => {
                    self.next_spare = Some(next);
                    self.not_opened = None;
                    self.opening.succeeded();
                }
                Err(error) => {
                    self.not_opened = Some(error);
                    self.opening.failed(OPEN_SKIPS_MAX);
                }
            }
        }
        self.next_spare == Some(next)
    }

    /// Opens the next spare, and creates one if there are too few. Called with every poll.
    pub(crate) fn maintain_spares<D: Disk>(&mut self, disk: &mut D) {
        self.open_ahead(disk);
        self.retire(disk);
        if self.spares.len() >= self.target_spares || self.preparing.is_some() {
            return;
        }
        if let Some(at) = self.free.iter().position(|free| self.fits(free)) {
            if self.not_made.is_none() || self.making.may_try() {
                let free = self.free.remove(at);
                self.prepare(disk, free);
            }
            return;
        }
        if !self.spares.is_empty() && !self.may_take_more(disk) {
            return;
        }
        if let Some(failure) = &self.not_made {
            let room = disk.free_bytes(Family::Log).is_none_or(|free| free >= self.segment_bytes);
            if failure.lack == Some(Lack::Space) && !room {
                return;
            }
            if !self.making.may_try() {
                return;
            }
        }
        self.prepare(disk, None);
    }

    /// Creates the segment with the next number, by recycling `free` if it is given.
    fn prepare<D: Disk>(&mut self, disk: &mut D, free: Option<SegmentFile>) {
        let next = Segment(self.highest.0 + 1);
        self.preparing = Some(next);
        self.reusing = free;
        self.hurried = false;
        match free {
            Some(free) => disk.start_reuse(free.segment.into(), next.into()),
            None => disk.start_prepare(next.into(), self.segment_bytes, self.zeros),
        }
    }

    /// Adds trimmed segments, which a durable base no longer needs.
    pub(crate) fn free(&mut self, trimmed: impl Iterator<Item = SegmentFile>) {
        self.free.extend(trimmed);
        self.making.end_wait();
    }

    /// Returns whether a free segment has the size of new ones, so that it can be recycled.
    fn fits(&self, free: &SegmentFile) -> bool {
        free.bytes == self.segment_bytes
    }

    /// Removes a free segment that will not be recycled, one at a time.
    fn retire<D: Disk>(&mut self, disk: &mut D) {
        if self.free.is_empty() || self.retiring.is_some() || !self.removing.may_try() {
            return;
        }
        let missing = self.target_spares.saturating_sub(self.spares.len());
        let at = match self.free.iter().position(|free| !self.fits(free)) {
            None if self.free.len() > FREE_MAX + missing => Some(0),
            at => at,
        };
        self.retiring = at.and_then(|at| self.free.remove(at));
        if let Some(retiring) = self.retiring {
            disk.start_retire(retiring.segment.into());
        }
    }

    /// Handles the removal of a segment, or its failure.
    pub(crate) fn retired(&mut self, segment: Segment, result: Result<(), DiskError>) {
        let Some(file) = self.retiring.take_if(|file| file.segment == segment) else {
            return;
        };
        match result {
            Err(error) if error.kind != ErrorKind::NotFound => {
                self.removing.failed(SKIPS_MAX);
                self.free.push_back(file);
            }
            _ => {
                self.removing.succeeded();
                self.forget_file(file);
            }
        }
    }

    /// Returns whether the disk has room for another spare while one exists. At least as much space
    /// as the spares take is left to other files, such as the service's. Checked only occasionally.
    fn may_take_more<D: Disk>(&mut self, disk: &D) -> bool {
        if !self.making.may_try() {
            return false;
        }
        let spare_bytes: u64 = self.spares.iter().map(|spare| spare.bytes).sum();
        let wanted = spare_bytes + 2 * self.segment_bytes;
        let may = disk.free_bytes(Family::Log).is_none_or(|free| free >= wanted);
        if !may {
            self.making.start_wait(SKIPS_MAX);
        }
        may
    }

    /// Paces the creation of a segment. `used` is the number of bytes used in the current one. If
    /// no spare exists, the new segment is created a quarter ahead of the current one's use, so
    /// that a fast enough disk has it ready in time at any write rate.
    pub(crate) fn keep_ahead<D: Disk>(&self, used: u64, disk: &mut D) {
        if self.preparing.is_some() {
            let is_next = self.spares.is_empty();
            disk.pace_prepare(Family::Log, if is_next { used + used / 4 } else { 0 });
        }
    }

    /// Returns the total size of the spares and of the segments that will become spares, in bytes.
    pub(crate) fn spare_bytes(&self) -> u64 {
        let waiting = self.spares.iter().chain(&self.free);
        let waiting = waiting.chain(&self.reusing).chain(&self.retiring);
        waiting.map(|file| file.bytes).sum()
    }

    /// Notifies the disk that a log write waits for the segment being created.
    pub(crate) fn hurry_creation<D: Disk>(&mut self, disk: &mut D) {
        if self.preparing.is_some() && !self.hurried {
            self.hurried = true;
            disk.hurry_prepare(Family::Log);
        }
    }

    /// Stops counting a file that was removed or turned out to be missing.
    fn forget_file(&mut self, file: SegmentFile) {
        self.files -= 1;
        self.bytes -= file.bytes;
    }

    pub(crate) fn prepared(&mut self, segment: Segment, result: Result<(), DiskError>) {
        if self.preparing == Some(segment) {
            self.preparing = None;
        }
        let reused = self.reusing.take();
        match result {
            Ok(()) => {
                self.highest = self.highest.max(segment);
                self.spares.push_back(SegmentFile { segment, bytes: self.segment_bytes });
                if reused.is_none() {
                    self.files += 1;
                    self.bytes += self.segment_bytes;
                }
                self.not_made = None;
                self.making.succeeded();
            }
            Err(error) if reused.is_some() && error.lack.is_none() => {
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
                    self.free.push_front(file);
                }
                self.making.failed(match error.lack {
                    Some(Lack::Descriptors) => OPEN_SKIPS_MAX,
                    Some(Lack::Space) | None => SKIPS_MAX,
                });
                self.not_made = Some(error);
            }
        }
    }

    /// Ends the backoff, so that the next call retries failed requests.
    pub(crate) const fn try_again(&mut self) {
        self.making.end_wait();
        self.opening.end_wait();
        self.removing.end_wait();
    }

    /// Returns the error from creating or opening a segment, because of which the log lacks a
    /// segment now or soon.
    pub(crate) fn failure(&self) -> Option<&DiskError> {
        self.not_opened.as_ref().or(self.not_made.as_ref())
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
