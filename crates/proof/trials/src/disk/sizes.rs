//! File sizes that were set and not flushed since, and their state after a power cut.

use std::{fs::File, io, os::unix::fs::FileExt as _};

/// A change of size that a power cut may undo.
#[derive(Debug)]
struct SizeChange {
    /// Inode number of the file.
    inode: u64,
    old_size: u64,
    new: u64,
    /// Bytes that were truncated.
    truncated_bytes: Vec<u8>,
}

/// All changes that a power cut could undo, in the order in which they were made.
#[derive(Debug, Default)]
pub(crate) struct SizeJournal(Vec<SizeChange>);

impl SizeJournal {
    /// Runs the operation that sets the size of a file, and records how to undo it.
    pub(crate) fn set(
        &mut self,
        open: &File,
        file: u64,
        set: impl FnOnce(&File) -> io::Result<()>,
        new: u64,
    ) -> io::Result<()> {
        let old = open.metadata()?.len();
        let mut lost = vec![0; usize::try_from(old.saturating_sub(new)).unwrap_or(0)];
        open.read_exact_at(&mut lost, new.min(old))?;
        set(open)?;
        if old != new {
            self.0.push(SizeChange { inode: file, old_size: old, new, truncated_bytes: lost });
        }
        Ok(())
    }

    /// Makes the size of a flushed file durable.
    pub(crate) fn flush(&mut self, file: u64) {
        self.0.retain(|size| size.inode != file);
    }

    /// Returns the number of size changes of chosen files that a power cut could undo.
    pub(crate) fn undoable_count(&self, chosen: impl Fn(u64) -> bool) -> usize {
        self.0.iter().filter(|size| chosen(size.inode)).count()
    }

    /// Cuts the power. Files return to their durable sizes, unless later writes have changed the
    /// size. Returns descriptions of the undone changes. No file may be open.
    pub(crate) fn cut_power(
        &mut self,
        chosen: impl Fn(u64) -> bool,
        open: impl Fn(u64) -> Option<(File, String)>,
    ) -> io::Result<Vec<String>> {
        let mut said = Vec::new();
        for size in std::mem::take(&mut self.0).into_iter().rev() {
            let SizeChange { inode: file, old_size: old, new, truncated_bytes: lost } = size;
            let Some((open, name)) = open(file).filter(|_| chosen(file)) else {
                continue;
            };
            if open.metadata()?.len() != new {
                continue;
            }
            open.set_len(old)?;
            open.write_all_at(&lost, new.min(old))?;
            said.push(format!("{name} has {old} bytes again, not {new}"));
        }
        Ok(said)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FILE: u64 = 7;

    #[test]
    fn unflushed_size_is_undone_with_its_contents() {
        for flushed in [false, true] {
            let file = tempfile::tempfile().unwrap();
            file.write_all_at(b"abcdef", 0).unwrap();
            let mut sizes = SizeJournal::default();
            for new in [2, 9] {
                sizes.set(&file, FILE, |file| file.set_len(new), new).unwrap();
            }
            if flushed {
                sizes.flush(FILE);
            }
            let open = |_| Some((file.try_clone().unwrap(), "f".to_owned()));
            assert_eq!(sizes.undoable_count(|_| true), if flushed { 0 } else { 2 });
            let said = sizes.cut_power(|_| true, open).unwrap();
            let mut bytes = [0; 12];
            let left = file.read_at(&mut bytes, 0).unwrap();
            let wanted: (&[u8], usize) = match flushed {
                false => (b"abcdef", 2),
                true => (b"ab\0\0\0\0\0\0\0", 0),
            };
            assert_eq!((&bytes[..left], said.len()), wanted);
        }
    }
}
