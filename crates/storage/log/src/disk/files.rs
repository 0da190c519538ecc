//! Cache of open files: for each family the file being written and the next one, and a few that
//! were read recently. The cache limits the number of descriptors that a node uses.

use std::{fs::File, sync::Arc};

use crate::disk::{DiskError, ExhaustedResource, FileId};

/// Maximum number of files kept open for reading. Files are read from start to end, so a few
/// suffice.
pub(crate) const READ_OPEN_MAX: usize = 16;

type OpenedFile = (FileId, Arc<File>);

/// Cache of open files. Each operation in flight also holds a reference to its file.
#[derive(Debug, Default)]
pub(crate) struct Files {
    /// The files being written and the next ones, in order. Never evicted.
    write_files: Vec<OpenedFile>,
    /// Files read through the driver.
    read_files: LruFiles,
    /// Files read without the driver, through the page cache.
    direct_read_files: LruFiles,
}

/// Least recently used files, oldest first. The oldest is evicted if there are too many or if the
/// process runs out of descriptors.
#[derive(Debug, Default)]
struct LruFiles(Vec<OpenedFile>);

impl LruFiles {
    fn remove_file(&mut self, file: FileId) -> Option<Arc<File>> {
        let at = self.0.iter().position(|(open, _)| *open == file)?;
        Some(self.0.remove(at).1)
    }

    fn add_file(&mut self, file: FileId, open: Arc<File>) {
        if self.0.len() >= READ_OPEN_MAX {
            self.0.remove(0);
        }
        self.0.push((file, open));
    }

    /// Closes the least recently used file. Returns false if none is open.
    fn close_oldest(&mut self) -> bool {
        if self.0.is_empty() {
            return false;
        }
        self.0.remove(0);
        true
    }
}

impl Files {
    /// Returns a file that was opened ahead for writing. Keeps earlier files of its family for
    /// reading only.
    pub(crate) fn for_write(&mut self, file: FileId) -> Option<Arc<File>> {
        let at = self.write_files.iter().position(|(open, _)| *open == file)?;
        let open = Arc::clone(&self.write_files[at].1);
        let earlier = |(open, _): &OpenedFile| open.family == file.family && *open < file;
        if at > 0 && earlier(&self.write_files[at - 1]) {
            for (earlier, open) in self.write_files.extract_if(.., |open| earlier(open)) {
                self.read_files.add_file(earlier, open);
            }
        }
        Some(open)
    }

    /// Opens the next file to be written, if it is not open yet.
    pub(crate) fn open_ahead(
        &mut self,
        file: FileId,
        open: impl FnMut() -> Result<File, DiskError>,
    ) -> Result<(), DiskError> {
        if self.write_files.iter().any(|(open, _)| *open == file) {
            return Ok(());
        }
        let open = match self.read_files.remove_file(file) {
            Some(open) => open,
            None => Arc::new(self.open(open)?),
        };
        self.write_files.push((file, open));
        self.write_files.sort_unstable_by_key(|(file, _)| *file);
        Ok(())
    }

    /// Returns a file, opening it for reading if necessary.
    pub(crate) fn for_read(
        &mut self,
        file: FileId,
        open: impl FnMut() -> Result<File, DiskError>,
    ) -> Result<Arc<File>, DiskError> {
        if let Some((_, open)) = self.write_files.iter().find(|(open, _)| *open == file) {
            return Ok(Arc::clone(open));
        }
        let open = match self.read_files.remove_file(file) {
            Some(open) => open,
            None => Arc::new(self.open(open)?),
        };
        self.read_files.add_file(file, Arc::clone(&open));
        Ok(open)
    }

    /// Returns a file for reads without the driver, opening it if necessary.
    pub(crate) fn lend_file(
        &mut self,
        file: FileId,
        open: impl FnMut() -> Result<File, DiskError>,
    ) -> Result<&File, DiskError> {
        let open = match self.direct_read_files.remove_file(file) {
            Some(open) => open,
            None => Arc::new(self.open(open)?),
        };
        self.direct_read_files.add_file(file, open);
        let (_, open) = self.direct_read_files.0.last().expect("it was put there");
        Ok(open)
    }

    pub(crate) fn close_file(&mut self, file: FileId) {
        self.write_files.retain(|(open, _)| *open != file);
        self.read_files.remove_file(file);
        self.direct_read_files.remove_file(file);
    }

    /// Opens a file. If descriptors run out, closes cached files and retries.
    fn open(
        &mut self,
        mut open: impl FnMut() -> Result<File, DiskError>,
    ) -> Result<File, DiskError> {
        loop {
            match open() {
                Err(error)
                    if error.exhausted == Some(ExhaustedResource::Descriptors)
                        && (self.direct_read_files.close_oldest()
                            || self.read_files.close_oldest()) => {}
                opened => return opened,
            }
        }
    }

    #[cfg(test)]
    fn open_numbers(&self) -> Vec<u64> {
        let open = self.write_files.iter().chain(&self.read_files.0);
        open.map(|(file, _)| file.number).collect()
    }
}

#[cfg(test)]
mod tests {
    use std::{cell::Cell, io};

    use super::*;

    use crate::disk::Family;

    fn log(number: u64) -> FileId {
        FileId::new(Family::Log, number)
    }

    fn null() -> Result<File, DiskError> {
        File::open("/dev/null").map_err(|error| DiskError::new("open", "/dev/null", &error))
    }

    fn not_again() -> Result<File, DiskError> {
        panic!("it is open")
    }

    #[test]
    fn number_of_files_open_for_reading_is_bounded() {
        let mut files = Files::default();
        for number in 1..=100 {
            files.for_read(log(number), null).unwrap();
            files.for_read(log(1), null).unwrap();
        }
        let open = files.open_numbers();
        assert_eq!(open.len(), READ_OPEN_MAX);
        assert_eq!(open.last(), Some(&1), "what is used is kept");
        assert_eq!(open[0], 100 - READ_OPEN_MAX as u64 + 2);
    }

    #[test]
    fn current_and_next_file_stay_open_during_reads() {
        let mut files = Files::default();
        files.open_ahead(log(7), null).unwrap();
        files.open_ahead(log(8), null).unwrap();
        for number in 1..=6 * READ_OPEN_MAX as u64 {
            let open = if matches!(number, 7 | 8) { not_again } else { null };
            files.for_read(log(number), open).unwrap();
        }
        assert!(files.for_write(log(7)).is_some());
        assert!(files.for_write(log(8)).is_some());
        assert!(files.for_write(log(7)).is_none(), "it is only read now");
        files.for_read(log(7), not_again).unwrap();
        assert!(files.for_write(log(9)).is_none(), "it was not opened");
    }

    #[test]
    fn unused_files_are_closed_when_descriptors_run_out() {
        let mut files = Files::default();
        for number in 1..=5 {
            files.for_read(log(number), null).unwrap();
        }
        files.open_ahead(log(9), null).unwrap();
        // First, three descriptors are missing. Later, none are available whatever is closed.
        let missing = Cell::new(3);
        let scarce = || match missing.get() {
            0 => null(),
            left => {
                missing.set(left - 1);
                let error = io::Error::from(rustix::io::Errno::MFILE);
                Err(DiskError::new("open", "it", &error))
            }
        };
        files.open_ahead(log(10), scarce).unwrap();
        assert_eq!(files.open_numbers(), [9, 10, 4, 5]);
        missing.set(u32::MAX);
        let error = files.for_read(log(1), scarce).unwrap_err();
        assert_eq!(error.exhausted, Some(ExhaustedResource::Descriptors));
        assert_eq!(files.open_numbers(), [9, 10], "these are never given up");
    }

    #[test]
    fn other_errors_close_no_file() {
        let mut files = Files::default();
        files.for_read(log(1), null).unwrap();
        let broken = || Err(DiskError::new("open", "it", &io::Error::other("broken")));
        assert!(files.for_read(log(2), broken).is_err());
        assert_eq!(files.open_numbers(), [1]);
    }

    #[test]
    fn each_family_has_its_own_files_for_writing() {
        let other = |number| FileId::new(Family::Snapshot, number);
        let mut files = Files::default();
        for file in [log(7), other(1), log(8), other(2)] {
            files.open_ahead(file, null).unwrap();
        }
        assert!(files.for_write(log(8)).is_some());
        assert!(files.for_write(log(7)).is_none(), "it is only read now");
        assert!(files.for_write(other(1)).is_some(), "another family's");
        assert!(files.for_write(other(2)).is_some());
        assert!(files.for_write(log(8)).is_some());
        files.close_file(log(8));
        assert!(files.for_write(log(8)).is_none(), "it is closed");
        assert_eq!(files.open_numbers(), [2, 7, 1]);
    }

    #[test]
    fn lent_file_has_its_own_descriptor() {
        let mut files = Files::default();
        files.for_read(log(1), null).unwrap();
        files.lend_file(log(1), null).unwrap();
        files.lend_file(log(1), not_again).unwrap();
        files.close_file(log(1));
        let broken = || Err(DiskError::new("open", "it", &io::Error::other("broken")));
        assert!(files.lend_file(log(1), broken).is_err(), "it was closed");
    }
}
