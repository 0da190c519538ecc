//! Segments made ahead of need, off the path of a commit ([disk-10]).
//!
//! One spare waits while the log writes, or as many as are asked for: a burst that they hold finds the
//! disk free of zeros. When a spare cannot be made the log goes on in the segment
//! that it has. Once that is full too:
//! - no room (ENOSPC, EDQUOT) is **busy**: records gather, the caller pushes back, and as soon as
//!   there is room again the log goes on. It lasts as long as it lasts, and never becomes an error:
//!   nothing was promised that is not kept.
//! - anything else (EIO, EROFS) is an **error** and final, as a failed write is ([disk-9]).

use std::collections::VecDeque;

use crate::{
    disk::{Disk, Segment, SegmentFile, Zeros},
    error::DiskError,
};

const SKIPS_MAX: u32 = 1024;

#[derive(Debug)]
pub(crate) struct Pool {
    segment_bytes: u64,
    zeros: Zeros,
    /// So many spares are kept.
    wanted: usize,
    spares: VecDeque<SegmentFile>,
    preparing: Option<Segment>,
    /// The disk knows that it is waited for.
    hurried: bool,
    /// The highest number in use; numbers are epochs and only grow ([disk-4]).
    highest: Segment,
    failure: Option<DiskError>,
    /// Attempts that failed in a row, and calls still to be let pass before the next: without a
    /// clock, this keeps a full disk from being asked in a tight loop.
    failures: u32,
    skips: u32,
    files: usize,
    bytes: u64,
}

impl Pool {
    pub(crate) fn new(
        segment_bytes: u64,
        zeros: Zeros,
        wanted: usize,
        files: &[SegmentFile],
        spares: &[SegmentFile],
    ) -> Self {
        Self {
            segment_bytes,
            zeros,
            wanted,
            spares: spares.iter().copied().collect(),
            preparing: None,
            hurried: false,
            highest: files
                .iter()
                .map(|file| file.segment)
                .max()
                .unwrap_or_default(),
            failure: None,
            failures: 0,
            skips: 0,
            files: files.len(),
            bytes: files.iter().map(|file| file.bytes).sum(),
        }
    }

    /// A segment with room for `length` bytes, if one is ready. A spare that is too small for the
    /// batch, which can only be after the segment size was raised, is passed over for good.
    pub(crate) fn take(&mut self, length: usize) -> Option<SegmentFile> {
        while let Some(spare) = self.spares.pop_front() {
            if spare.bytes >= length as u64 {
                return Some(spare);
            }
        }
        None
    }

    /// Makes a spare if there are too few. Called with every poll.
    pub(crate) fn tend<D: Disk>(&mut self, disk: &mut D) {
        if self.spares.len() >= self.wanted || self.preparing.is_some() {
            return;
        }
        if !self.spares.is_empty() && !self.may_take_more(disk) {
            return;
        }
        if let Some(failure) = &self.failure {
            let room = disk
                .free_bytes()
                .is_none_or(|free| free >= self.segment_bytes);
            if failure.is_full() && !room {
                return;
            }
            if self.skips > 0 {
                self.skips -= 1;
                return;
            }
        }
        let next = Segment(self.highest.0 + 1);
        self.preparing = Some(next);
        self.hurried = false;
        disk.start_prepare(next, self.segment_bytes, self.zeros);
    }

    /// Whether the disk has room for a spare beyond the first: spares leave others, such as the
    /// service's own files, at least as much as they take. Asked now and then only.
    fn may_take_more<D: Disk>(&mut self, disk: &D) -> bool {
        if self.skips > 0 {
            self.skips -= 1;
            return false;
        }
        let wanted = self.spare_bytes() + 2 * self.segment_bytes;
        let may = disk.free_bytes().is_none_or(|free| free >= wanted);
        if !may {
            self.skips = SKIPS_MAX;
        }
        may
    }

    /// So many bytes of the segment in use are full. Without a spare, the one that is being made
    /// stays a quarter ahead, so that it is there before it is needed, however fast the log is, as
    /// long as the disk is fast enough.
    pub(crate) fn keep_ahead<D: Disk>(&self, used: u64, disk: &mut D) {
        if self.preparing.is_some() {
            let is_next = self.spares.is_empty();
            disk.want_prepared(if is_next { used + used / 4 } else { 0 });
        }
    }

    /// Bytes of the spares.
    pub(crate) fn spare_bytes(&self) -> u64 {
        self.spares.iter().map(|spare| spare.bytes).sum()
    }

    /// There is no segment to write to: the one that is being made is waited for.
    pub(crate) fn hurry<D: Disk>(&mut self, disk: &mut D) {
        if self.preparing.is_some() && !self.hurried {
            self.hurried = true;
            disk.hurry_prepare();
        }
    }

    /// A segment was made, or could not be made.
    pub(crate) fn prepared(&mut self, segment: Segment, result: Result<(), DiskError>) {
        if self.preparing == Some(segment) {
            self.preparing = None;
        }
        match result {
            Ok(()) => {
                self.highest = self.highest.max(segment);
                self.spares.push_back(SegmentFile {
                    segment,
                    bytes: self.segment_bytes,
                });
                self.files += 1;
                self.bytes += self.segment_bytes;
                (self.failure, self.failures, self.skips) = (None, 0, 0);
            }
            Err(error) => {
                self.skips = (1 << self.failures.min(10)).min(SKIPS_MAX);
                self.failures += 1;
                self.failure = Some(error);
            }
        }
    }

    /// Why there is no spare, if making one failed.
    pub(crate) fn failure(&self) -> Option<&DiskError> {
        self.failure.as_ref()
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
