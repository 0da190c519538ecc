//! Progress reports while a log is opened. Reading many gigabytes takes time.

use crate::disk::{Buffer, DiskError, Family, FileId, FileInfo, Position, Source};

use crate::place::Segment;

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ReadProgress {
    pub read: u64,
    pub total: u64,
}

/// A source that wraps another one and reports progress after each read.
pub(crate) struct ProgressSource<'a, S> {
    inner: &'a mut S,
    /// First segment to be read.
    first_segment: Segment,
    reading: ReadProgress,
    report_progress: &'a mut dyn FnMut(ReadProgress),
}

impl<'a, S: Source> ProgressSource<'a, S> {
    pub(crate) fn new(
        inner: &'a mut S,
        first: Segment,
        tell: &'a mut dyn FnMut(ReadProgress),
    ) -> Self {
        Self {
            inner,
            first_segment: first,
            reading: ReadProgress::default(),
            report_progress: tell,
        }
    }
}

impl<S: Source> Source for ProgressSource<'_, S> {
    fn files(&mut self, family: Family) -> Result<Vec<FileInfo>, DiskError> {
        let files = self.inner.files(family)?;
        let read = |info: &&FileInfo| info.file.number >= self.first_segment.0;
        self.reading.total = files.iter().filter(read).map(|file| file.bytes).sum();
        Ok(files)
    }

    fn newest_created(&mut self, family: Family) -> Result<Option<FileId>, DiskError> {
        self.inner.newest_created(family)
    }

    fn read_small_file(&mut self, name: &str) -> Result<Option<Vec<u8>>, DiskError> {
        self.inner.read_small_file(name)
    }

    fn read_now(
        &mut self,
        at: Position,
        buffer: &mut Buffer,
        bytes: usize,
    ) -> Result<(), DiskError> {
        let result = self.inner.read_now(at, buffer, bytes);
        // The beginning of each segment is read twice, and damaged parts more often, so progress is
        // capped at the total.
        let read = self.reading.read.saturating_add(bytes as u64);
        self.reading.read = read.min(self.reading.total);
        (self.report_progress)(self.reading);
        result
    }
}
