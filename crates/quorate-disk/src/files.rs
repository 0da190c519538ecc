//! Which files of segments are open: the one that is written to with the next, and a few that were
//! read lately. However long the log is, it holds no more descriptors than that.

use std::{fs::File, sync::Arc};

use super::Segment;
use crate::error::{DiskError, Lack};

/// Files kept open for reading. Reads go through a segment from its start to its end, so a few are as
/// good as many.
pub(super) const READ_OPEN_MAX: usize = 16;

/// Open files. What is in flight holds its file itself.
#[derive(Debug, Default)]
pub(super) struct Files {
    /// Never given up: the segment that is written to and the one after it, in order.
    written: Vec<(Segment, Arc<File>)>,
    /// Given up when there are too many, the one that was not used for longest first, and when the
    /// process has no descriptor left. The latest is the last.
    read: Vec<(Segment, Arc<File>)>,
}

impl Files {
    /// The file of a segment that is written to from now on. Earlier ones are only read.
    pub(super) fn for_write(&mut self, segment: Segment) -> Option<Arc<File>> {
        let at = self.written.iter().position(|(open, _)| *open == segment)?;
        if at > 0 {
            for (earlier, file) in self.written.drain(..at).collect::<Vec<_>>() {
                self.keep_for_reading(earlier, file);
            }
        }
        self.written.first().map(|(_, file)| Arc::clone(file))
    }

    /// Opens the file of the segment that is written to next, if it is not open.
    pub(super) fn open_ahead(
        &mut self,
        segment: Segment,
        open: impl FnMut() -> Result<File, DiskError>,
    ) -> Result<(), DiskError> {
        if self.written.iter().any(|(open, _)| *open == segment) {
            return Ok(());
        }
        let file = match self.take_read(segment) {
            Some(file) => file,
            None => Arc::new(self.open(open)?),
        };
        self.written.push((segment, file));
        self.written.sort_unstable_by_key(|(segment, _)| *segment);
        Ok(())
    }

    /// The file of a segment, to be read.
    pub(super) fn for_read(
        &mut self,
        segment: Segment,
        open: impl FnMut() -> Result<File, DiskError>,
    ) -> Result<Arc<File>, DiskError> {
        if let Some((_, file)) = self.written.iter().find(|(open, _)| *open == segment) {
            return Ok(Arc::clone(file));
        }
        let file = match self.take_read(segment) {
            Some(file) => file,
            None => Arc::new(self.open(open)?),
        };
        self.keep_for_reading(segment, Arc::clone(&file));
        Ok(file)
    }

    fn take_read(&mut self, segment: Segment) -> Option<Arc<File>> {
        let at = self.read.iter().position(|(open, _)| *open == segment)?;
        Some(self.read.remove(at).1)
    }

    fn keep_for_reading(&mut self, segment: Segment, file: Arc<File>) {
        if self.read.len() >= READ_OPEN_MAX {
            self.read.remove(0);
        }
        self.read.push((segment, file));
    }

    /// Opens a file. Files that are only kept make room for one that is needed.
    fn open(
        &mut self,
        mut open: impl FnMut() -> Result<File, DiskError>,
    ) -> Result<File, DiskError> {
        loop {
            match open() {
                Err(error) if error.lack == Some(Lack::Descriptors) && !self.read.is_empty() => {
                    self.read.remove(0);
                }
                opened => return opened,
            }
        }
    }

    #[cfg(test)]
    fn open_segments(&self) -> Vec<u64> {
        let open = self.written.iter().chain(&self.read);
        open.map(|(segment, _)| segment.0).collect()
    }
}

#[cfg(test)]
mod tests {
    use std::{cell::Cell, io};

    use super::*;

    fn null() -> Result<File, DiskError> {
        File::open("/dev/null").map_err(|error| DiskError::new("open", "/dev/null", &error))
    }

    fn not_again() -> Result<File, DiskError> {
        panic!("it is open")
    }

    #[test]
    fn a_few_files_are_open_however_many_were_read() {
        let mut files = Files::default();
        for segment in 1..=100 {
            files.for_read(Segment(segment), null).unwrap();
            files.for_read(Segment(1), null).unwrap();
        }
        let open = files.open_segments();
        assert_eq!(open.len(), READ_OPEN_MAX);
        assert_eq!(open.last(), Some(&1), "what is used is kept");
        assert_eq!(open[0], 100 - READ_OPEN_MAX as u64 + 2);
    }

    #[test]
    fn the_segment_in_use_and_the_next_stay_open_whatever_is_read() {
        let mut files = Files::default();
        files.open_ahead(Segment(7), null).unwrap();
        files.open_ahead(Segment(8), null).unwrap();
        for segment in 1..=6 * READ_OPEN_MAX as u64 {
            let open = if matches!(segment, 7 | 8) {
                not_again
            } else {
                null
            };
            files.for_read(Segment(segment), open).unwrap();
        }
        assert!(files.for_write(Segment(7)).is_some());
        assert!(files.for_write(Segment(8)).is_some());
        assert!(files.for_write(Segment(7)).is_none(), "it is only read now");
        files.for_read(Segment(7), not_again).unwrap();
        assert!(files.for_write(Segment(9)).is_none(), "it was not opened");
    }

    #[test]
    fn files_that_are_only_kept_make_room_when_descriptors_run_out() {
        let mut files = Files::default();
        for segment in 1..=5 {
            files.for_read(Segment(segment), null).unwrap();
        }
        files.open_ahead(Segment(9), null).unwrap();
        // Three descriptors too few; and then none at all, whatever is closed.
        let missing = Cell::new(3);
        let scarce = || match missing.get() {
            0 => null(),
            left => {
                missing.set(left - 1);
                let error = io::Error::from(rustix::io::Errno::MFILE);
                Err(DiskError::new("open", "it", &error))
            }
        };
        files.open_ahead(Segment(10), scarce).unwrap();
        assert_eq!(files.open_segments(), [9, 10, 4, 5]);
        missing.set(u32::MAX);
        let error = files.for_read(Segment(1), scarce).unwrap_err();
        assert_eq!(error.lack, Some(Lack::Descriptors));
        assert_eq!(files.open_segments(), [9, 10], "these are never given up");
    }

    #[test]
    fn another_error_closes_nothing() {
        let mut files = Files::default();
        files.for_read(Segment(1), null).unwrap();
        let broken = || Err(DiskError::new("open", "it", &io::Error::other("broken")));
        assert!(files.for_read(Segment(2), broken).is_err());
        assert_eq!(files.open_segments(), [1]);
    }
}
